"""One call for the first start and for every other: what it finds there, what it goes on with, and what it removes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from faulty_store import Fault, FaultyStore
from parts_in_memory import InParts, PartStore
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq.io import Buffer, ObjectInfo, find_epoch
from resilient_pq.io.s3.s3_store import S3Store

MiB = 2**20
SMALL = rpq.WriteOptions(part_bytes=MiB, max_part_bytes=MiB)
EPOCH = "days/_f.rpq-epoch"


class Faulty(InParts, FaultyStore):
    """Makes sinks whose requests follow the script."""


class Recording(InParts, RecordingStore):
    """Makes sinks whose requests are recorded."""


class Flipping(PartStore):
    """Turns one bit on the way, in the n-th answer with bytes of the file."""

    flips_at, answers = 0, 0

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> memoryview:
        data = bytearray(await super().read_range(key, start, end, pin=pin))
        if key == "days/f":
            self.answers += 1
            if self.answers == self.flips_at:
                data[len(data) // 2] ^= 1
        return memoryview(data)


@pytest.fixture
def store() -> PartStore:
    return PartStore()


def rows(start: int, end: int) -> dict[str, list[int]]:
    return {"id": list(range(start, end))}


async def begin(store: Any, **options: Any) -> rpq.Writer:
    return await rpq.create_or_resume((store, "days/f"), **{"options": SMALL, "checkpoint_every": None, **options})


async def crash(store: Any, rows_more: int, **options: Any) -> int:
    """Write some rows, have them stored, and be killed; gives the rows that were in place."""
    writer = await begin(store, **options)
    start = writer.num_rows_stored
    await writer.write(rows(start, start + rows_more))
    assert (await writer.checkpoint()).state is rpq.StoredState.STORED
    return start


async def finish(store: Any, until: int, **options: Any) -> int:
    async with await begin(store, **options) as writer:
        start = writer.num_rows_stored
        await writer.write(rows(start, until))
    return start


async def ids(store: Any) -> list[int]:
    async with rpq.open((store, "days/f")) as file:
        assert file.state is rpq.FileState.COMPLETE
        return [row["id"] for row in (await file.read()).to_pylist()]


async def uploads(store: Any) -> list[str]:
    return [upload.upload_id for upload in await store.list_uploads("days/f")]


# --- a file smaller than a part


async def test_a_small_file_is_resumed_as_often_as_it_takes(store: PartStore) -> None:
    assert [await crash(store, 10) for _ in range(5)] == [0, 10, 20, 30, 40]
    assert await finish(store, 60) == 50
    assert await ids(store) == list(range(60))
    assert await store.list_names("") == ["days/f"] and not await uploads(store)


async def test_a_bit_that_is_turned_on_the_way_is_not_written_down() -> None:
    """The bytes of a small file are read, and sent again with what follows."""
    for flips_at in range(1, 100):
        store = Flipping()
        await crash(store, 10, row_group_rows=5)
        store.flips_at = flips_at
        assert await finish(store, 20, row_group_rows=5) == 10
        missed, store.flips_at = store.answers < flips_at, 0
        assert await ids(store) == list(range(20))
        if missed:
            break
    assert flips_at > 2


async def test_without_an_epoch_object_a_small_file_needs_a_word_the_second_time(store: PartStore) -> None:
    """What `fencing="none"` loses."""
    for _ in range(2):
        await crash(store, 10, fencing="none")
    with pytest.raises(rpq.RecoveryError, match="cannot be shown to be one file"):
        await begin(store, fencing="none")


async def test_what_an_epoch_object_says(store: PartStore) -> None:
    writer = await begin(store)
    await writer.write(rows(0, 10))
    await writer.checkpoint()
    said = json.loads(bytes((await store.read_tail(EPOCH, MiB)).data))
    assert await uploads(store) == [said["upload_id"]]
    file_id = writer._known_pipeline._encoder.layout.file_id.hex()
    assert (said["format"], said["epoch"], said["file_id"], said["before"]) == (1, 0, file_id, [])
    await finish(store, 20)
    assert not await store.exists(EPOCH)


async def test_a_resumer_that_died_before_its_first_checkpoint(store: PartStore) -> None:
    await crash(store, 10)
    for _ in range(3):
        await begin(store)
        assert len(await uploads(store)) == 1, "that of the one before is removed"
    assert await finish(store, 20) == 10
    assert await ids(store) == list(range(20)) and not await uploads(store)


async def test_aborted_nothing_is_left(store: PartStore) -> None:
    writer = await begin(store)
    await writer.write(rows(0, 10))
    await writer.checkpoint()
    await writer.abort()
    assert await store.list_names("") == [] and not await uploads(store)


async def test_one_who_was_taken_over_aborts_nothing(store: PartStore) -> None:
    """What it was told to be stored is in the upload of the one who took over, or was until then in its own."""
    first = await begin(store, on_error="abort")
    await first.write(rows(0, 10))
    await first.checkpoint()
    lying = FaultyStore(store, [Fault("list_parts", rpq.TransientError("killed"))])
    with pytest.raises(rpq.TransientError):
        await begin(lying)  # dies when it has taken the lease
    await first.abort()
    assert await finish(store, 20) == 10


async def test_a_resumed_file_with_a_schema_and_metadata_keeps_its_own(store: PartStore) -> None:
    await crash(store, 10, metadata={"from": "first"})
    await finish(store, 20, schema=rpq.Schema.parse("message m { required binary other (STRING); }"),
                 metadata={"from": "second"})  # fmt: skip
    async with rpq.open((store, "days/f")) as file:
        assert file.key_value_metadata["from"] == "first" and file.num_rows == 20


# --- what is at the key


@pytest.mark.parametrize("what", ["complete", "foreign"])
async def test_an_older_object_is_replaced_only_when_asked(store: PartStore, what: str) -> None:
    if what == "complete":
        assert await finish(store, 5) == 0
    else:
        await store.put("days/f", b"the notes of somebody")
    before = (await store.head("days/f")).etag
    with pytest.raises(rpq.AlreadyExistsError) as caught:
        await begin(store)
    assert "overwrite=True" in str(caught.value.hint)
    writer = await begin(store, overwrite=True)
    await writer.write(rows(0, 10))
    await writer.checkpoint()
    assert (await store.head("days/f")).etag == before, "not before the new file is complete"
    await writer.close()
    assert await ids(store) == list(range(10))


async def test_an_older_object_and_a_crash(store: PartStore) -> None:
    await finish(store, 5)
    await crash(store, 10, overwrite=True)
    with pytest.raises(rpq.AlreadyExistsError):
        await begin(store)
    assert await finish(store, 20, overwrite=True) == 10
    assert await ids(store) == list(range(20))


async def test_killed_between_the_completion_and_the_removal_of_the_epoch(store: PartStore) -> None:
    dying = Faulty(store, [Fault("delete", rpq.TransientError("killed"))])
    assert await finish(dying, 10, row_group_rows=5) == 0
    found = await find_epoch(store, "days/f")
    assert found is not None and found.epoch.file_id is not None
    with pytest.raises(rpq.AlreadyExistsError):
        await begin(store)
    assert not await store.exists(EPOCH), "it was of the complete file"
    assert await ids(store) == list(range(10))


async def test_the_epoch_of_a_complete_file_and_a_new_one(store: PartStore) -> None:
    dying = Faulty(store, [Fault("delete", rpq.TransientError("killed"))])
    await finish(dying, 10)
    assert await finish(store, 30, overwrite=True) == 0
    assert await ids(store) == list(range(30)) and not await store.exists(EPOCH)


async def test_killed_when_everything_was_sent(store: PartStore) -> None:
    """The upload held the whole file: nothing is left to be written."""
    dying = Faulty(store, [Fault("complete_upload", rpq.TransientError("killed"))])
    with suppress(rpq.TransientError):
        await finish(dying, 10)
    with pytest.raises(rpq.AlreadyExistsError, match="its writer had sent all of it"):
        await begin(store)
    assert await ids(store) == list(range(10)) and await store.list_names("") == ["days/f"]


# --- uploads that hold nothing


async def test_an_empty_upload_is_passed_over(store: PartStore) -> None:
    """Of whom it is cannot be told: it stays."""
    empty = await store.create_upload("days/f")
    assert await finish(store, 10) == 0
    assert await uploads(store) == [empty]


async def test_empty_uploads_beside_one_that_holds_rows(store: PartStore) -> None:
    await crash(store, 10, fencing="none")
    await store.create_upload("days/f")
    assert await finish(store, 20) == 10


async def test_an_empty_upload_begun_since_the_file_was_is_removed(store: PartStore) -> None:
    """A writer that is killed when it has asked for an upload leaves such a one."""
    await crash(store, 10)
    await store.create_upload("days/f")
    other = await store.create_upload("days/f.other")
    assert await finish(store, 20) == 10
    assert await uploads(store) == [other]


async def test_an_upload_of_somebody_else_stays(store: PartStore) -> None:
    await crash(store, 10)
    theirs = await store.create_upload("days/f")
    await store.put_part("days/f", theirs, 1, bytes(MiB))
    assert await finish(store, 20) == 10
    assert await uploads(store) == [theirs]


async def test_a_file_of_which_nothing_was_stored(store: PartStore) -> None:
    """Parts were sent, and no checkpoint."""
    writer = await begin(store, compression="none", row_group_rows=1000, encodings="PLAIN")
    await writer.write({"id": list(range(400_000))})
    await asyncio.sleep(0.05)
    assert writer.num_rows_stored == 0 and len(await uploads(store)) == 1
    assert await finish(store, 10) == 0
    assert await ids(store) == list(range(10)) and not await uploads(store)
    with pytest.raises((rpq.WriterFencedError, rpq.WriterFailedError)):
        await writer.close()


async def test_a_new_file_leaves_the_unfinished_one_that_was_there(
    store: PartStore, caplog: pytest.LogCaptureFixture
) -> None:
    """`create` begins a new one whatever there is; nobody is left to be told that rows of the other are stored."""
    first = await begin(store)
    await first.write(rows(0, 10))
    await first.checkpoint()
    (left,) = await uploads(store)
    with caplog.at_level(logging.WARNING):
        async with rpq.create((store, "days/f"), options=SMALL) as second:
            await second.write(rows(0, 3))
            await second.checkpoint()
            await first.write(rows(10, 20))
            with pytest.raises(rpq.WriterFencedError):
                await first.checkpoint()
    assert left in caplog.text and await uploads(store) == [left]
    assert await ids(store) == [0, 1, 2]


class BegunTwice(PartStore):
    """No answer came to the first request for an upload."""

    def begun_twice(self, upload_id: str) -> bool:
        return True


async def test_a_request_for_an_upload_that_is_carried_out_late() -> None:
    """A store may do so when its writer has looked for such an upload, and has gone on."""
    store = BegunTwice()
    async with rpq.create_or_resume((store, "days/f"), options=SMALL) as writer:
        await writer.write(rows(0, 10))
        await writer.checkpoint()
        late = await store.create_upload("days/f")
        assert late in await uploads(store)
    assert await uploads(store) == [] and await ids(store) == list(range(10))


# --- who holds the lease


async def test_of_two_who_begin_one_is_told(store: PartStore) -> None:
    first, second = [await begin(store) for _ in range(2)]
    for writer in (first, second):
        await writer.write(rows(0, 10))
    assert (await second.checkpoint()).state is rpq.StoredState.STORED
    with pytest.raises(rpq.WriterFencedError):
        await first.checkpoint()
    await second.close()
    assert await ids(store) == list(range(10))


async def test_of_many_who_resume_at_one_moment_one_is_told(store: PartStore) -> None:
    await crash(store, 10)
    outcomes = await asyncio.gather(*(crash(store, 5) for _ in range(8)), return_exceptions=True)
    told = [outcome for outcome in outcomes if outcome == 10]
    assert len(told) == 1
    assert all(isinstance(other, rpq.WriterFencedError) for other in outcomes if other != 10), outcomes
    assert await finish(store, 20) == 15


class Heedless(PartStore):
    """Passes over the conditions of PUTs and DELETEs."""

    async def put(self, key: str, data: Sequence[Buffer] | Buffer, **_: Any) -> ObjectInfo:
        return await super().put(key, data)

    async def delete(self, key: str, **_: Any) -> None:
        await super().delete(key)

    async def heeds_conditions(self, key: str, data: bytes) -> bool:
        return False


class Refusing(PartStore):
    """Refuses what has a condition."""

    async def put(
        self,
        key: str,
        data: Sequence[Buffer] | Buffer,
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        if if_none_match or if_match:
            raise rpq.UnsupportedError("A header you provided implies functionality that is not implemented")
        return await super().put(key, data)

    async def delete(self, key: str, *, if_match: str | None = None) -> None:
        if if_match:
            raise rpq.UnsupportedError("A header you provided implies functionality that is not implemented")
        await super().delete(key)


@pytest.mark.parametrize("kind", [Heedless, Refusing])
async def test_a_store_without_conditions(kind: type[PartStore], caplog: pytest.LogCaptureFixture) -> None:
    """It is said; a writer that comes back is fenced all the same."""
    store = kind()
    with caplog.at_level(logging.WARNING):
        first = await begin(store)
        await first.write(rows(0, 10))
        await first.checkpoint()
    assert "heeds no conditions" in caplog.text and first.fencing is rpq.Fencing.ADVISORY
    second = await begin(store)
    await first.write(rows(10, 20))
    with pytest.raises(rpq.WriterFencedError):
        await first.checkpoint()
    await second.write(rows(10, 30))
    await second.close()
    assert await ids(store) == list(range(30)) and not await store.exists(EPOCH)


async def test_what_keeps_others_out(store: PartStore, tmp_path: Path) -> None:
    assert (await begin(store)).fencing is rpq.Fencing.LEASE
    assert (await begin(store, fencing="none")).fencing is rpq.Fencing.NONE
    assert (await rpq.create(tmp_path / "f")).fencing is rpq.Fencing.LOCK
    with pytest.raises(rpq.SchemaError, match="fencing"):
        await begin(store, fencing="both")


class Writing(Faulty):
    """Credentials that may write, and not read: neither is a version known to them that might be replaced."""

    async def put(self, *arguments: Any, if_match: str | None = None, **rest: Any) -> ObjectInfo:
        if if_match is not None:
            raise rpq.AccessDeniedError("you may not read")
        return await super().put(*arguments, **rest)

    async def read_tail(self, *_: Any) -> Any:
        raise rpq.AccessDeniedError("you may not read")


@pytest.mark.parametrize("what", ["beside", "read", "confirm"])
async def test_credentials_that_are_for_the_file_alone(
    store: PartStore, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """A policy may allow the file alone, or nothing to be read: then nothing keeps others out, which is said."""
    verb = {"beside": "put", "confirm": "read_tail"}.get(what, "none")
    denied = (Writing if what == "read" else Faulty)(store, [Fault(verb, rpq.AccessDeniedError("no"))])
    async with rpq.create((denied, "days/f"), options=SMALL) as writer:
        await writer.write(rows(0, 10))
        assert (await writer.checkpoint()).state is rpq.StoredState.STORED
        assert writer.fencing is rpq.Fencing.NONE and "cannot be written and read" in caplog.text
    assert await ids(store) == list(range(10))


async def test_an_epoch_object_of_a_newer_version(store: PartStore) -> None:
    await store.put(EPOCH, b'{"format": 2, "holder": "them"}')
    with pytest.raises(rpq.UnsupportedError, match="format 2"):
        await begin(store)


@pytest.mark.parametrize("said", [b"", b"{}", b"[1]", b'{"format": 1, "owner": 7}', b"\xff"])
async def test_something_else_under_that_name(store: PartStore, said: bytes) -> None:
    await store.put(EPOCH, said)
    with pytest.raises(rpq.FormatError, match="no epoch object"):
        await begin(store)


async def test_listings_pass_over_it(store: PartStore) -> None:
    await finish(store, 10)
    await store.put("days/_f.rpq-epoch", b"{}")
    await store.put("days/part.parquet", (await store.read_tail("days/f", MiB)).data)
    await store.put("days/_part.parquet.rpq-epoch", b"{}")
    for which in ("days/", "days/*"):
        summary = await rpq.check_many((store, which)).finish()
        assert summary.num_files == (1 if which == "days/" else 2)
    async with rpq.open_many((store, "days/")) as dataset:
        assert dataset.num_rows == 10


# --- what is asked of the store


async def test_a_small_file_that_create_writes_costs_one_request(store: PartStore) -> None:
    recording = Recording(store)
    async with rpq.create((recording, "days/f")) as writer:
        await writer.write(rows(0, 10))
    assert [call.verb for call in recording.calls] == ["put"]


async def test_what_a_lease_costs(store: PartStore) -> None:
    """Two PUTs before the upload, a GET for each commit, a DELETE at the end."""
    counted: dict[str, list[str]] = {}
    for fencing in ("none", "lease"):
        recording, options = Recording(PartStore()), {"options": SMALL, "fencing": fencing}
        async with rpq.create((recording, "days/f"), **options) as writer:  # type: ignore[arg-type]
            for start in (0, 10, 20):
                await writer.write(rows(start, start + 10))
                await writer.checkpoint()
        counted[fencing] = sorted(call.verb for call in recording.calls)
    more = list(counted["lease"])
    for verb in counted["none"]:
        more.remove(verb)
    assert sorted(more) == ["delete", "put", "put", *["read_tail"] * 4]


# --- uploads that are ended by hand


async def test_an_upload_completed_or_aborted_by_hand(store: PartStore) -> None:
    await crash(store, 10)
    await rpq.complete_upload((store, "days/f"))
    assert await finish(store, 20) == 10
    await store.delete("days/f")
    await crash(store, 10)
    await rpq.abort_upload((store, "days/f"))
    assert await store.list_names("") == []
    assert await finish(store, 5) == 0


# --- local files


async def test_a_local_file(tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    for start in (0, 10, 20):
        with pytest.raises(ConnectionError):
            async with rpq.create_or_resume(path) as writer:
                assert writer.num_rows_stored == start
                await writer.write(rows(start, start + 10))
                await writer.checkpoint()
                raise ConnectionError
    async with rpq.create_or_resume(path) as writer:
        assert writer.num_rows_stored == 30
        with pytest.raises(rpq.AlreadyExistsError):
            await rpq.create_or_resume(path)
    with pytest.raises(rpq.AlreadyExistsError, match="complete file"):
        await rpq.create_or_resume(path)
    async with rpq.create_or_resume(path, overwrite=True) as writer:
        assert writer.num_rows_stored == 0
        await writer.write(rows(0, 5))
    async with rpq.open(path) as file:
        assert file.num_rows == 5
    assert [each.name for each in tmp_path.iterdir()] == ["day.parquet"]


@pytest.mark.parametrize("size", [0, 3, 50, 200])
async def test_a_local_file_that_was_torn_at_once(tmp_path: Path, size: int) -> None:
    """Its writer was killed within its first bytes: no row was stored."""
    writer = await rpq.create(tmp_path / "whole")
    await writer.write(rows(0, 10))
    await writer.checkpoint()
    (tmp_path / "day.partial").write_bytes((tmp_path / "whole.partial").read_bytes()[:size])
    async with rpq.create_or_resume(tmp_path / "day") as writer:
        assert writer.num_rows_stored == 0
        await writer.write(rows(0, 10))
    async with rpq.open(tmp_path / "day") as file:
        assert file.num_rows == 10


async def test_a_store_that_keeps_nothing() -> None:
    url = "memory://bucket/create_or_resume"
    async with rpq.create_or_resume(url) as writer:
        await writer.write(rows(0, 10))
    with pytest.raises(rpq.AlreadyExistsError):
        async with rpq.create_or_resume(url) as writer:
            await writer.write(rows(0, 5))
    async with rpq.create_or_resume(url, overwrite=True) as writer:
        await writer.write(rows(0, 5))
    async with rpq.open(url) as file:
        assert file.num_rows == 5


# --- on servers


async def test_of_many_who_resume_on_a_server_one_is_told(s3: Any) -> None:
    settings: dict[str, Any] = {"storage_options": s3.storage_options, "checkpoint_every": None}

    async def more(num_rows: int) -> int:
        writer = await rpq.create_or_resume(s3.url("f"), **settings)
        start = writer.num_rows_stored
        try:
            await writer.write(rows(start, start + num_rows))
            await writer.checkpoint()
        finally:
            await writer._sink.keep()
            await writer._store.close()
        return start

    assert await more(10) == 0
    for _ in range(2):
        outcomes = await asyncio.gather(*(more(5) for _ in range(4)), return_exceptions=True)
        told = [outcome for outcome in outcomes if isinstance(outcome, int)]
        refused = [outcome for outcome in outcomes if not isinstance(outcome, int)]
        assert all(isinstance(error, rpq.WriterFencedError) for error in refused), outcomes
        # One may take over from another that was told before.
        assert told and sorted(set(told)) == sorted(told), outcomes
        writer = await rpq.create_or_resume(s3.url("f"), **settings)
        assert writer.num_rows_stored >= max(told) + 5
        await writer._sink.keep()
        await writer._store.close()


async def test_a_lost_answer_to_the_beginning_of_an_upload(s3_proxy: Any) -> None:
    """Two uploads were begun: the one that nobody knows of is removed."""
    s3, proxy = s3_proxy
    options = {"options": rpq.WriteOptions(), "storage_options": s3.storage_options}
    async with S3Store(s3.storage_options) as store:
        await store.exists(f"{s3.bucket}/f")  # connected
    proxy.on("POST", match="uploads", lose_reply=True)
    async with rpq.create_or_resume(s3.url("f"), **options) as writer:
        await writer.write(rows(0, 10))
        await writer.checkpoint()
        assert len(s3.upload_ids()) == 1
    assert s3.upload_ids() == []
