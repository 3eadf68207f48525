"""An upload that was left open is completed, copied and gone on with; what else may stand there is never spoiled."""

# ruff: noqa: ASYNC220 - processes are started and killed here, while nothing else runs

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty_store import Fault, FaultyStore
from file_bytes import content
from parts_in_memory import InParts
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq.io import Buffer, ObjectInfo, Part, SinkOptions
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.io.s3.s3_store import S3Store
from resilient_pq.io.upload.part_layout import part_size

MiB = 2**20
CHECKPOINT = 3
#: Parts of a MiB, as no store on the net takes them.
SMALL = rpq.WriteOptions(part_bytes=MiB, max_part_bytes=MiB, max_bytes_in_flight=4 * MiB)
LARGE = rpq.WriteOptions(part_bytes=5 * MiB, max_part_bytes=5 * MiB, max_bytes_in_flight=10 * MiB)


class UploadStore(InParts, MemoryStore):
    """Memory that takes files in parts, and names parts as S3 does."""

    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        part = await super().put_part(key, upload_id, number, data)
        content = self._uploads[upload_id].parts[number][1]
        part = replace(part, etag=f'"{hashlib.md5(content).hexdigest()}"')
        self._uploads[upload_id].parts[number] = (part, content)
        return part


def table_of(num_rows: int, size: int, seed: int = 0) -> pa.Table:
    noise = [random.Random(seed * 10_000 + i).randbytes(size) for i in range(num_rows)]
    return pa.table({"id": pa.array(range(num_rows), pa.int64()), "noise": pa.array(noise, pa.binary())})


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Rows of a third of a MiB; a checkpoint behind every eighth."""
    return table_of(32, 350_000)


@pytest.fixture(scope="module")
def written(table: pa.Table, write_file: Any) -> Any:
    return asyncio.run(write_file(table, row_group_rows=4, compression="none"))


@pytest.fixture(scope="module")
def other(write_file: Any) -> Any:
    """Another file of the same schema."""
    return asyncio.run(write_file(table_of(32, 350_000, seed=1), row_group_rows=4, compression="none"))


@pytest.fixture
def store() -> UploadStore:
    return UploadStore()


def until(written: Any, checkpoint: int) -> bytes:
    """The bytes up to the end of a checkpoint, from 1; 0 is the anchor."""
    kept = [written.headers[0], *written.records(CHECKPOINT)][checkpoint].end
    assert kept % MiB
    return bytes(written.data[:kept])


async def leave_upload(store: Any, key: str, data: bytes, options: rpq.WriteOptions = SMALL) -> str:
    """An upload as its writer left it, its open slot ending with the data."""
    chosen = SinkOptions(part_bytes=options.part_bytes, max_part_bytes=options.max_part_bytes)
    upload_id: str = await store.create_upload(key)
    start, number = 0, 1
    while start < len(data):
        end = start + part_size(number, chosen)
        await store.put_part(key, upload_id, number, data[start:end])
        start, number = end, number + 1
    return upload_id


async def finish(place: Any, table: pa.Table, **options: Any) -> int:
    """Resume, write the rest of the rows, close; gives the rows that were in place."""
    async with rpq.resume(place, **{"row_group_rows": 4, "options": SMALL, **options}) as writer:
        in_place = writer.num_rows_stored
        assert writer.num_rows == in_place
        await writer.write(table.slice(in_place))
    return in_place


async def uploads_of(store: Any, key: str) -> list[str]:
    return [upload.upload_id for upload in await store.list_uploads(key)]


# --- going on


@pytest.mark.parametrize("checkpoint", range(5))
async def test_from_every_checkpoint(
    store: UploadStore, written: Any, table: pa.Table, checkpoint: int, is_whole: Any
) -> None:
    """The anchor, too, is something to go on from."""
    await leave_upload(store, "f", until(written, checkpoint))
    assert await finish((store, "f"), table) == 8 * checkpoint
    headers = await is_whole((store, "f"), await content(store, "f"), table)
    assert headers[0].file_id == written.headers[0].file_id and headers[-1].epoch == 1
    assert not await uploads_of(store, "f")


@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
async def test_readers_see_what_was_left_until_the_file_is_complete(
    store: UploadStore, written: Any, table: pa.Table
) -> None:
    await leave_upload(store, "f", until(written, 2))
    async with rpq.resume((store, "f"), options=SMALL) as writer:
        await writer.write(table.slice(16))
        async with rpq.open((store, "f")) as file:
            assert file.state is rpq.FileState.IN_PROGRESS
            assert pa.table(await file.read()).equals(table.slice(0, 16))
    async with rpq.open((store, "f")) as file:
        assert file.state is rpq.FileState.COMPLETE and file.num_rows == 32


async def test_the_log_of_a_resumed_writer_tells_the_rows_in_place(
    store: UploadStore, written: Any, table: pa.Table, tmp_path: Path
) -> None:
    """They are in a new upload, whose writer may be killed before it stores a checkpoint more."""
    await leave_upload(store, "f", until(written, 2))
    async with rpq.resume((store, "f"), options=replace(SMALL, checkpoint_log=tmp_path / "log")) as writer:
        in_place = writer.num_rows_stored
        await writer.write(table.slice(in_place, 1))
        (upload,) = await rpq.list_uploads((store, "f"), log=tmp_path / "log")
        assert upload.num_rows == in_place > 0


async def test_a_resume_of_a_resume(store: UploadStore, written: Any, table: pa.Table, is_whole: Any) -> None:
    """The new upload was left, too, behind a later checkpoint."""
    await leave_upload(store, "f", until(written, 1))
    writer = await rpq.resume((store, "f"), row_group_rows=4, checkpoint_every=None, options=SMALL)
    await writer.write(table.slice(8, 12))
    await writer.checkpoint()
    await writer._sink.keep()
    assert await finish((store, "f"), table) == 20
    headers = await is_whole((store, "f"), await content(store, "f"), table)
    assert headers[-1].epoch == 2


class Remembering(UploadStore):
    """Keeps what it held after each request that changed something, and what the writer had been promised then."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[tuple[int, UploadStore]] = []
        self.promised = 0

    def _remember(self) -> None:
        state = UploadStore()
        state._objects = dict(self._objects)
        state._uploads = {name: replace(up, parts=dict(up.parts)) for name, up in self._uploads.items()}
        state._serial = itertools.count(1_000_000)
        self.states.append((self.promised, state))

    async def create_upload(self, key: str) -> str:
        upload_id = await super().create_upload(key)
        self._remember()
        return upload_id

    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        part = await super().put_part(key, upload_id, number, data)
        self._remember()
        return part

    async def complete_upload(self, *arguments: Any, **conditions: Any) -> ObjectInfo:
        info = await super().complete_upload(*arguments, **conditions)
        self._remember()
        return info


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.thorough)])
async def test_left_after_any_request(written: Any, table: pa.Table, is_whole: Any, step: int) -> None:
    """Whatever had been sent when the resuming writer was killed, its promises are kept by the next that resumes."""
    store = Remembering()
    await store.put("f", until(written, 1))
    store.promised = 8
    writer = await rpq.resume((store, "f"), row_group_rows=2, checkpoint_every=None, options=SMALL)
    for start in range(8, 32, 6):
        await writer.write(table.slice(start, 6))
        await writer.checkpoint()
        store.promised = writer.num_rows_stored
    await writer._sink.keep()
    assert store.promised == 32 and len(store.states) > 12
    seen = set()
    for promised, state in store.states[::step]:
        in_place = await finish((state, "f"), table)
        assert in_place >= promised
        await is_whole((state, "f"), await content(state, "f"), table)
        seen.add(in_place)
    assert len(seen) > 2 and seen <= {8, 14, 20, 26, 32}


async def test_what_is_copied_and_what_is_read(store: UploadStore, written: Any, table: pa.Table) -> None:
    """Whole MiBs are copied by the store; only what is left behind the last of them passes through here."""
    data = until(written, 3)
    await leave_upload(store, "f", data)
    recording = RecordingStore(store)
    options = rpq.WriteOptions(part_bytes=3 * MiB, max_part_bytes=3 * MiB)
    writer = await rpq.resume((recording, "f"), options=options)
    copied = sorted((call.start, call.end) for call in recording.calls if call.verb == "copy_part")
    starts = list(range(0, len(data) - 3 * MiB, 3 * MiB))
    assert copied == list(itertools.pairwise([*starts, len(data) // MiB * MiB]))
    assert len(data) % (3 * MiB) > MiB, "the last is longer than the others"
    passed = sum(call.end - call.start for call in recording.calls if call.verb == "read_range")
    assert passed < MiB + 100_000
    await writer.write(table.slice(24))
    await writer.close()
    assert (await rpq.check((store, "f"))).outcome is rpq.Outcome.SOUND


async def test_an_object_of_less_than_a_part(store: UploadStore, table: pa.Table, write_file: Any) -> None:
    rows = pa.table({"n": range(100)})
    small = await write_file(rows, row_group_rows=10)
    await leave_upload(store, "f", until(small, 2))
    recording = RecordingStore(store)
    assert await finish((recording, "f"), rows) == 40
    assert recording.count("copy_part") == 0
    async with rpq.open((store, "f")) as file:
        assert pa.table(await file.read()).equals(rows)


async def test_equal_parts_stay_equal(store: UploadStore, written: Any, table: pa.Table) -> None:
    await leave_upload(store, "f", until(written, 2))
    seen: list[list[int]] = []
    real = store.complete_upload

    async def complete(key: str, upload_id: str, parts: Sequence[Part], **condition: Any) -> ObjectInfo:
        seen.append([part.size for part in parts])
        return await real(key, upload_id, parts, **condition)

    store.complete_upload = complete  # type: ignore[method-assign]
    options = rpq.WriteOptions(part_bytes=2 * MiB, equal_parts=True)
    await finish((store, "f"), table, options=options)
    *full, last = seen[-1]
    assert set(full) == {2 * MiB} and 0 < last <= 2 * MiB


async def test_closed_with_no_row_more(store: UploadStore, written: Any, table: pa.Table, is_whole: Any) -> None:
    await leave_upload(store, "f", until(written, 3))
    async with rpq.resume((store, "f"), options=SMALL) as writer:
        assert writer.last_checkpoint.num_rows == writer.num_rows_stored == 24
        assert writer.last_checkpoint.offset == writer.num_bytes == len(until(written, 3))
    await is_whole((store, "f"), await content(store, "f"), table.slice(0, 24))


# --- what is at the key


async def test_nothing_there(store: UploadStore) -> None:
    with pytest.raises(rpq.NotFoundError, match="no unfinished file") as caught:
        await rpq.resume((store, "f"))
    assert caught.value.hint is not None


async def test_no_such_upload(store: UploadStore) -> None:
    with pytest.raises(rpq.NotFoundError):
        await rpq.resume((store, "f"), upload_id="upload-77")


async def test_an_upload_without_a_checkpoint(store: UploadStore, written: Any) -> None:
    upload_id = await leave_upload(store, "f", written.data[: 2 * MiB])
    with pytest.raises(rpq.RecoveryError, match="holds no checkpoint"):
        await rpq.resume((store, "f"), options=SMALL)
    assert await uploads_of(store, "f") == [upload_id] and not await store.exists("f")


async def test_an_upload_of_others(store: UploadStore) -> None:
    """Completed as one of ours it would lose its later parts."""
    upload_id = await store.create_upload("f")
    for number in (1, 2, 3):
        await store.put_part("f", upload_id, number, bytes(MiB + number))
    with pytest.raises(rpq.RecoveryError, match="holds no checkpoint"):
        await rpq.resume((store, "f"), options=SMALL)
    assert await uploads_of(store, "f") == [upload_id] and not await store.exists("f")


async def test_several_uploads(store: UploadStore, written: Any, other: Any, table: pa.Table) -> None:
    ids = [await leave_upload(store, "f", until(other, 2)), await leave_upload(store, "f", until(written, 1))]
    await leave_upload(store, "f.2", until(other, 2))  # of another key that begins alike
    with pytest.raises(rpq.RecoveryError, match="several uploads") as caught:
        await rpq.resume((store, "f"))
    assert all(upload_id in str(caught.value.hint) for upload_id in ids)
    assert await finish((store, "f"), table, upload_id=ids[1]) == 8
    assert await uploads_of(store, "f") == [ids[0], *await uploads_of(store, "f.2")]


@pytest.mark.parametrize("what", ["complete", "foreign", "encrypted"])
async def test_another_object_is_replaced_only_when_asked(
    store: UploadStore, written: Any, other: Any, table: pa.Table, what: str, is_whole: Any
) -> None:
    encrypted = b"PARE" + bytes(100) + (100).to_bytes(4, "little") + b"PARE"
    standing = {"complete": bytes(other.data), "foreign": b"the notes of somebody"}.get(what, encrypted)
    await store.put("f", standing)
    upload_id = await leave_upload(store, "f", until(written, 2))
    with pytest.raises(rpq.AlreadyExistsError) as caught:
        await rpq.resume((store, "f"), options=SMALL)
    assert "overwrite=True" in str(caught.value.hint)
    assert await content(store, "f") == standing and await uploads_of(store, "f") == [upload_id]
    assert await finish((store, "f"), table, overwrite=True) == 16
    await is_whole((store, "f"), await content(store, "f"), table)


@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
async def test_what_ended_is_not_resumed(store: UploadStore, written: Any) -> None:
    await store.put("complete", written.data)
    await store.put("foreign", b"the notes of somebody")
    await store.put("torn", written.data[: len(until(written, 2)) + 500])
    await rpq.recover((store, "torn"), (store, "salvaged"))
    for key, said in [
        ("complete", "complete"),
        ("foreign", "no file of ours"),
        ("salvaged", "a recovery made"),
    ]:
        before = await content(store, key)
        with pytest.raises(rpq.RecoveryError, match=said):
            await rpq.resume((store, key), overwrite=True)
        assert await content(store, key) == before and not await uploads_of(store, key)


async def test_an_upload_that_only_lacked_its_completion(store: UploadStore, written: Any) -> None:
    """All of the file was in it: now it is there, and there is nothing to resume."""
    await leave_upload(store, "f", written.data)
    with pytest.raises(rpq.RecoveryError, match="the file is complete"):
        await rpq.resume((store, "f"), options=SMALL)
    assert await content(store, "f") == written.data and not await uploads_of(store, "f")


async def test_an_unfinished_object_and_no_upload(
    store: UploadStore, written: Any, table: pa.Table, is_whole: Any
) -> None:
    await store.put("f", until(written, 2))
    assert await finish((store, "f"), table) == 16
    await is_whole((store, "f"), await content(store, "f"), table)


@pytest.mark.parametrize("checkpoint", [None, 1, 2])
async def test_an_upload_that_holds_no_more_than_the_object_is_left(
    store: UploadStore,
    written: Any,
    table: pa.Table,
    checkpoint: int | None,
    caplog: pytest.LogCaptureFixture,
    is_whole: Any,
) -> None:
    caplog.set_level(logging.WARNING, "resilient_pq.recovery")
    await store.put("f", until(written, 2))
    left = written.data[: 3 * MiB] if checkpoint is None else until(written, checkpoint)
    upload_id = await leave_upload(store, "f", left)
    assert await finish((store, "f"), table) == 16
    await is_whole((store, "f"), await content(store, "f"), table)
    assert await uploads_of(store, "f") == [upload_id]
    assert any(upload_id in message for message in caplog.messages)


async def test_of_several_uploads_those_that_hold_no_more_do_not_count(
    store: UploadStore, written: Any, table: pa.Table
) -> None:
    """They are what resumptions left that came to no checkpoint."""
    await store.put("f", until(written, 1))
    left = [await leave_upload(store, "f", until(written, checkpoint)) for checkpoint in (1, 3, 0)]
    assert await finish((store, "f"), table) == 24
    assert await uploads_of(store, "f") == [left[0], left[2]]


async def test_an_upload_that_is_shown_to_be_later(
    store: UploadStore, written: Any, table: pa.Table, is_whole: Any
) -> None:
    """Its first part is the beginning of the object, byte for byte."""
    await store.put("f", until(written, 1))
    await leave_upload(store, "f", until(written, 3))
    assert await finish((store, "f"), table) == 24
    await is_whole((store, "f"), await content(store, "f"), table)
    assert not await uploads_of(store, "f")


@pytest.mark.parametrize("decided_by", ["upload_id", "overwrite"])
@pytest.mark.parametrize("what", ["another file", "an object too small to tell"])
async def test_an_upload_that_cannot_be_shown_to_be_of_the_object(
    store: UploadStore, written: Any, other: Any, table: pa.Table, what: str, decided_by: str, is_whole: Any
) -> None:
    standing = until(other, 1) if what == "another file" else until(written, 0)
    await store.put("f", standing)
    upload_id = await leave_upload(store, "f", until(written, 3))
    with pytest.raises(rpq.RecoveryError, match="cannot be shown to be one file") as caught:
        await rpq.resume((store, "f"), options=SMALL)
    assert upload_id in str(caught.value) and f"{len(standing):,} bytes" in str(caught.value)
    assert "upload_id=" in str(caught.value.hint) and "overwrite=True" in str(caught.value.hint)
    assert await content(store, "f") == standing and await uploads_of(store, "f") == [upload_id]
    chosen = {"upload_id": upload_id} if decided_by == "upload_id" else {"overwrite": True}
    assert await finish((store, "f"), table, **chosen) == 24
    await is_whole((store, "f"), await content(store, "f"), table)


async def test_the_log_shows_of_which_file_an_upload_is(store: UploadStore, tmp_path: Path) -> None:
    """Also where the object is too small to be compared: a file that is resumed again and again in its first part."""
    logged = replace(SMALL, checkpoint_log=tmp_path / "log")
    alone: Any = {"fencing": "none"}
    for start in (0, 10, 20, 30):
        if start > 10:
            with pytest.raises(rpq.RecoveryError, match="cannot be shown to be one file"):
                await rpq.resume((store, "f"), options=SMALL, **alone)
            with pytest.raises(rpq.RecoveryError, match="cannot be shown to be one file"):
                other_log = replace(SMALL, checkpoint_log=tmp_path / "another log")
                await rpq.resume((store, "f"), options=other_log, **alone)
        begin = rpq.resume if start else rpq.create
        with pytest.raises(ConnectionError):
            async with begin((store, "f"), options=logged, **alone) as writer:  # type: ignore[operator]
                assert writer.num_rows_stored == start
                await writer.write({"id": list(range(start, start + 10))})
                await writer.checkpoint()
                raise ConnectionError
    async with rpq.resume((store, "f"), options=logged) as writer:
        assert writer.num_rows_stored == 40
    async with rpq.open((store, "f")) as file:
        assert (await file.read()).to_pylist() == [{"id": number} for number in range(40)]


async def test_an_upload_named_that_holds_no_more(store: UploadStore, written: Any, table: pa.Table) -> None:
    """Completed in place of the object it would take rows away: that must be said twice."""
    await store.put("f", until(written, 3))
    upload_id = await leave_upload(store, "f", until(written, 1))
    with pytest.raises(rpq.RecoveryError, match="no later checkpoint"):
        await rpq.resume((store, "f"), upload_id=upload_id, options=SMALL)
    assert await content(store, "f") == until(written, 3)
    assert await finish((store, "f"), table, upload_id=upload_id, overwrite=True) == 8


# --- when it fails on the way


@pytest.mark.parametrize("verb", ["create_upload", "copy_part", "put_part", "read_range", "head"])
@pytest.mark.parametrize("skip", [0, 1])
async def test_the_object_stays_and_the_new_upload_goes(
    store: UploadStore, written: Any, table: pa.Table, verb: str, skip: int, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put("f", until(written, 2))
    faulty = FaultyStore(store, [Fault(verb, skip=skip)])
    try:
        writer = await rpq.resume((faulty, "f"), options=SMALL)
    except rpq.TransientError:
        assert not await uploads_of(store, "f")
    else:
        assert faulty.faults[0].times, "it did not fail"
        await writer.abort()
    assert await content(store, "f") == until(written, 2) and caplog.text == ""
    assert await finish((store, "f"), table) == 16


async def test_cancelled_on_the_way(store: UploadStore, written: Any, table: pa.Table) -> None:
    await store.put("f", until(written, 2))
    for turns in range(0, 60, 3):
        task = asyncio.ensure_future(_resumed(store))
        for _ in range(turns):
            await asyncio.sleep(0)
        if not task.cancel():
            await task.result().abort()
        await asyncio.gather(task, return_exceptions=True)
        assert not await uploads_of(store, "f")
        assert await content(store, "f") == until(written, 2)
    assert await finish((store, "f"), table) == 16


async def _resumed(store: UploadStore) -> rpq.Writer:
    return await rpq.resume((store, "f"), options=SMALL)


async def test_replaced_while_it_is_copied(store: UploadStore, written: Any, other: Any) -> None:
    """Bytes of two objects are never put together, whatever the store thinks of conditions."""
    await store.put("f", until(written, 2))

    class Ignoring(FaultyStore):
        async def copy_part(self, *arguments: Any) -> Part:
            await store.put("f", until(other, 3))
            return await store.copy_part(*arguments[:6], None)

    with pytest.raises(rpq.ObjectChangedError):
        await rpq.resume((Ignoring(store), "f"), options=SMALL)
    assert not await uploads_of(store, "f") and await content(store, "f") == until(other, 3)


async def test_a_setting_that_does_not_fit(store: UploadStore, written: Any) -> None:
    await store.put("f", until(written, 2))
    with pytest.raises(rpq.SchemaError, match="nosuch"):
        await rpq.resume((store, "f"), encodings={"nosuch": "PLAIN"})
    assert not await uploads_of(store, "f")


async def test_giving_up_again_leaves_the_object(store: UploadStore, written: Any, table: pa.Table) -> None:
    await store.put("f", until(written, 2))
    writer = await rpq.resume((store, "f"), options=SMALL)
    await writer.write(table.slice(16))
    await writer.abort()
    assert await content(store, "f") == until(written, 2) and not await uploads_of(store, "f")


async def test_replaced_while_it_was_gone_on_with(
    store: UploadStore, written: Any, other: Any, table: pa.Table
) -> None:
    """The completion replaces the object that was gone on from, and no other."""
    await store.put("f", until(written, 2))
    writer = await rpq.resume((store, "f"), options=SMALL)
    await writer.write(table.slice(16))
    await store.put("f", other.data)
    with pytest.raises((rpq.ObjectChangedError, rpq.WriterFencedError)):
        await writer.close()
    assert await content(store, "f") == other.data


async def test_what_a_resumed_writer_leaves_is_completed_as_its_error_says(
    store: UploadStore, written: Any, table: pa.Table
) -> None:
    """In place of the object that it was gone on from."""
    await store.put("f", until(written, 2))
    writer = await rpq.resume((store, "f"), row_group_rows=4, options=SMALL)
    with pytest.raises(RuntimeError) as caught:
        async with writer:
            await writer.write(table.slice(16, 8))
            await writer.checkpoint()
            raise RuntimeError
    (upload_id,) = await uploads_of(store, "f")
    (note,) = caught.value.__notes__
    assert note.endswith(f"complete it: rpq uploads complete memory:f --upload-id {upload_id} --overwrite")
    await rpq.complete_upload((store, "f"), upload_id=upload_id, overwrite=True)
    assert (await rpq.check((store, "f"))).num_rows == 24


@pytest.mark.parametrize("standing", ["stays", "deleted", "replaced"])
async def test_a_resumption_that_comes_to_nothing_leaves_no_upload(
    store: UploadStore, written: Any, other: Any, table: pa.Table, standing: str
) -> None:
    """Unless it has become the only copy."""
    await store.put("f", until(written, 2))
    with pytest.raises(RuntimeError) as caught:
        async with rpq.resume((store, "f"), row_group_rows=4, options=SMALL) as writer:
            await writer.write(table.slice(16, 2))
            if standing != "stays":
                await (store.delete("f") if standing == "deleted" else store.put("f", other.data))
            raise RuntimeError
    (note,) = caught.value.__notes__
    if standing == "stays":
        assert note == "16 rows are kept in memory:f, as it was" and await uploads_of(store, "f") == []
        assert await finish((store, "f"), table) == 16
    else:
        (upload_id,) = await uploads_of(store, "f")
        assert upload_id in note
        await rpq.complete_upload((store, "f"), overwrite=True)
        assert await content(store, "f") == until(written, 2)


# --- several who go on


class Writing(FaultyStore):
    """Its upload's writer lives: it advances its open slot when the parts have been listed."""

    def __init__(self, store: UploadStore, upload_id: str, part: bytes) -> None:
        super().__init__(store)
        self.store, self.upload_id, self.part = store, upload_id, part

    async def list_parts(self, key: str, upload_id: str) -> list[Part]:
        parts = await self.store.list_parts(key, upload_id)
        if self.part:
            await self.store.put_part(key, self.upload_id, parts[-1].number, self.part)
            self.part = b""
        return parts


async def test_a_writer_that_sends_while_its_upload_is_completed(
    store: UploadStore, table: pa.Table, write_file: Any
) -> None:
    """What it stored meanwhile is not left behind."""
    rows = pa.table({"n": range(100)})
    small = await write_file(rows, row_group_rows=10)
    upload_id = await leave_upload(store, "f", until(small, 1))
    place = (Writing(store, upload_id, until(small, 3)), "f")
    assert await finish(place, rows) == 60
    async with rpq.open((store, "f")) as file:
        assert pa.table(await file.read()).equals(rows)


class NeverDone(FaultyStore):
    """Its upload's writer sends its open slot again and again, and the store is never done with completing it."""

    def __init__(self, store: UploadStore, slots: Sequence[bytes]) -> None:
        super().__init__(store, [Fault("complete_upload", rpq.StoreError("not now"), times=1000)])
        self.store, self.slots, self.listings = store, slots, 0

    async def list_parts(self, key: str, upload_id: str) -> list[Part]:
        parts = await self.store.list_parts(key, upload_id)
        # Nothing waits in memory: whoever lists for ever could not even be cancelled.
        assert self.listings < 100
        await self.store.put_part(key, upload_id, parts[-1].number, self.slots[self.listings % len(self.slots)])
        self.listings += 1
        return parts


async def test_a_writer_that_never_stops_sending(store: UploadStore, write_file: Any) -> None:
    """Its upload is listed a few times and no more: then the error of the store is told."""
    small = await write_file(pa.table({"n": range(100)}), row_group_rows=10)
    upload_id = await leave_upload(store, "f", until(small, 1))
    wearing = NeverDone(store, [until(small, 2), until(small, 1)])
    with pytest.raises(rpq.StoreError, match="not now"):
        await rpq.resume((wearing, "f"), options=SMALL)
    assert 2 <= wearing.listings <= 10
    assert await uploads_of(store, "f") == [upload_id], "it stays as it was"


class Unconditional(FaultyStore):
    """Refuses what may only be published where nothing is."""

    async def complete_upload(self, *arguments: Any, if_none_match: bool = False, **rest: Any) -> ObjectInfo:
        if if_none_match:
            raise rpq.UnsupportedError("A header you provided implies functionality that is not implemented")
        return await super().complete_upload(*arguments, **rest)


async def test_a_store_that_knows_no_conditions(store: UploadStore, written: Any, table: pa.Table) -> None:
    await leave_upload(store, "f", until(written, 2))
    assert await finish((Unconditional(store), "f"), table) == 16


@pytest.mark.parametrize("what", ["write", "checkpoint", "close"])
async def test_the_first_writer_can_do_nothing_more(
    store: UploadStore, table: pa.Table, what: str, is_whole: Any
) -> None:
    first = await rpq.create((store, "f"), row_group_rows=4, checkpoint_every=None, options=SMALL)
    await first.write(table.slice(0, 16))
    assert (await first.checkpoint()).state is rpq.StoredState.STORED
    second = await rpq.resume((store, "f"), row_group_rows=4, options=SMALL)
    assert second.num_rows_stored == 16
    left = await content(store, "f")
    with pytest.raises((rpq.WriterFencedError, rpq.WriterFailedError)) as caught:
        if what == "close":
            await first.close()
        while True:  # it notices when the store answers
            await first.write(table.slice(16, 4))
            if what == "checkpoint":
                await first.checkpoint()
    fenced = caught.value
    assert isinstance(fenced, rpq.WriterFencedError) or isinstance(fenced.__cause__, rpq.WriterFencedError)
    assert await content(store, "f") == left
    await second.write(table.slice(16))
    await second.close()
    await is_whole((store, "f"), await content(store, "f"), table)


@pytest.mark.parametrize(("fencing", "order"), [("none", (0, 1)), ("none", (1, 0)), ("lease", (1, 0))])
async def test_of_two_who_resume_one_wins(
    store: UploadStore, written: Any, table: pa.Table, fencing: Any, order: tuple[int, int], is_whole: Any
) -> None:
    """Without a lease the first to complete the file, with it the last who took it."""
    await store.put("f", until(written, 2))
    settings: Any = {"row_group_rows": 4, "options": SMALL, "fencing": fencing}
    writers = [await rpq.resume((store, "f"), **settings)]
    (mine,) = await uploads_of(store, "f")
    writers.append(await rpq.resume((store, "f"), **settings))
    winner, loser = (writers[i] for i in order)
    other = table_of(32, 350_000, seed=9)
    await winner.write(table.slice(16))
    with contextlib.suppress(rpq.WriterFencedError):
        await loser.write(other.slice(16))
    await winner.close()
    whole = await content(store, "f")
    with pytest.raises((rpq.WriterFencedError, rpq.WriterFailedError, rpq.ObjectChangedError)):
        await loser.close()
    assert await content(store, "f") == whole and mine
    await is_whole((store, "f"), whole, table)


# --- on servers


async def test_on_a_server(s3: Any, written: Any, table: pa.Table, is_whole: Any) -> None:
    url, options = s3.url("f"), s3.storage_options
    async with S3Store(options) as store:
        await leave_upload(store, f"{s3.bucket}/f", until(written, 2), LARGE)
        await leave_upload(store, f"{s3.bucket}/f.2", until(written, 1), LARGE)
    with pytest.raises(rpq.NotFoundError):
        await rpq.resume(s3.url("other"), storage_options=options)
    assert await finish(url, table, options=LARGE, storage_options=options) == 16
    async with S3Store(options) as store:
        headers = await is_whole((store, f"{s3.bucket}/f"), s3.read("f"), table)
    assert headers[-1].epoch == 1
    assert len(s3.upload_ids()) == 1


@pytest.mark.thorough
async def test_an_object_and_an_upload_on_a_server(s3: Any, written: Any, other: Any, table: pa.Table) -> None:
    url, options = s3.url("f"), s3.storage_options
    async with S3Store(options) as store:
        key = f"{s3.bucket}/f"
        await store.put(key, until(written, 2))
        upload_id = await leave_upload(store, key, until(other, 3), LARGE)
        with pytest.raises(rpq.RecoveryError, match="cannot be shown to be one file"):
            await rpq.resume(url, options=LARGE, storage_options=options)
        await store.abort_upload(key, upload_id)
        await leave_upload(store, key, until(written, 3), LARGE)
    assert await finish(url, table, options=LARGE, storage_options=options) == 24
    assert len(s3.read("f")) > len(until(written, 3)) and s3.upload_ids() == []


async def test_parts_that_s3_would_not_take(s3: Any, written: Any) -> None:
    async with S3Store(s3.storage_options) as store:
        await store.put(f"{s3.bucket}/f", until(written, 1))
    with pytest.raises(ValueError, match="at least 5 MiB"):
        await rpq.resume(s3.url("f"), options=SMALL, storage_options=s3.storage_options)
    assert s3.upload_ids() == []


@pytest.mark.parametrize("what", [pytest.param("checkpoint", marks=pytest.mark.thorough), "close"])
async def test_the_first_writer_can_do_nothing_more_on_a_server(s3: Any, table: pa.Table, what: str) -> None:
    url, options = s3.url("f"), {"options": LARGE, "storage_options": s3.storage_options}
    first = await rpq.create(url, row_group_rows=4, checkpoint_every=None, **options)
    await first.write(table.slice(0, 16))
    await first.checkpoint()
    second = await rpq.resume(url, row_group_rows=4, **options)
    assert second.num_rows_stored == 16
    left = s3.read("f")
    await first.write(table.slice(16, 4))
    with pytest.raises(rpq.WriterFencedError):
        await getattr(first, what)()
    assert s3.read("f") == left
    with contextlib.suppress(rpq.WriterStateError):
        await first.close()
    await second.write(table.slice(16))
    await second.close()
    assert (await rpq.check(url, storage_options=s3.storage_options)).outcome is rpq.Outcome.SOUND
    async with rpq.open(url, storage_options=s3.storage_options) as file:
        assert pa.table(await file.read()).equals(table)


@pytest.mark.thorough
async def test_of_two_who_resume_on_a_server_nothing_is_mixed(s3: Any, written: Any, table: pa.Table) -> None:
    """moto heeds no If-Match when an upload is completed: there the object is looked at just before."""
    async with S3Store(s3.storage_options) as store:
        await store.put(f"{s3.bucket}/f", until(written, 2))
    options = {"options": LARGE, "storage_options": s3.storage_options, "fencing": "none"}
    winner, loser = [await rpq.resume(s3.url("f"), row_group_rows=4, **options) for _ in range(2)]
    await winner.write(table.slice(16))
    await loser.write(table_of(32, 350_000, seed=9).slice(16))
    await winner.close()
    with pytest.raises((rpq.WriterFencedError, rpq.ObjectChangedError)):
        await loser.close()
    async with rpq.open(s3.url("f"), storage_options=s3.storage_options) as file:
        assert pa.table(await file.read()).equals(table)
    assert (await rpq.check(s3.url("f"), storage_options=s3.storage_options)).outcome is rpq.Outcome.SOUND


PROGRAM = """
import asyncio, json, random, sys
import resilient_pq as rpq

async def main(url, storage_options):
    settings = dict(
        row_group_rows=8,
        compression="none",
        checkpoint_every=None,
        options=rpq.WriteOptions(part_bytes=5 * 2**20, max_bytes_in_flight=5 * 2**20),
        storage_options=json.loads(storage_options),
    )
    try:
        writer = await rpq.resume(url, **settings)
    except rpq.NotFoundError:
        writer = await rpq.create(url, **settings)
    start = writer.num_rows_stored
    print(start, flush=True)
    while True:
        rows = range(start, start + 8)
        await writer.write({"id": list(rows), "noise": [random.Random(i).randbytes(350_000) for i in rows]})
        start += 8
        if random.random() < 0.5:
            await writer.checkpoint()
        print(writer.num_rows_stored, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.thorough
async def test_killed_again_and_again_on_a_server(s3: Any) -> None:
    """What each writer said to be stored is in place for the next; the object is always whole."""
    url, options = s3.url("f"), s3.storage_options
    rng = random.Random(5)
    promised, epochs = 0, 0
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, json.dumps(options)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(rng.randint(2, 9))]
        process.kill()
        lines += process.stdout.readlines()
        process.wait()
        told = [int(line) for line in lines if line.endswith("\n")]
        assert told == sorted(told) and told[0] >= promised
        promised, epochs = told[-1], epochs + (told[0] > 0)
    assert promised and epochs > 2
    table = table_of(promised + 40, 350_000)
    assert await finish(url, table, options=LARGE, storage_options=options) >= promised
    async with rpq.open(url, storage_options=options) as file:
        assert pa.table(await file.read()).equals(table)
    assert (await rpq.check(url, storage_options=options)).outcome is rpq.Outcome.SOUND
