"""An upload that nobody writes to any more is removed, or named with the command that removes it."""

from __future__ import annotations

import logging
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from faulty_store import Fault, FaultyStore
from parts_in_memory import InParts

import resilient_pq as rpq
from resilient_pq.io import Lease, LeaseTerms, MemoryStore
from resilient_pq.io.upload.upload_start import begin_upload

MiB = 2**20
OPTIONS = rpq.WriteOptions(part_bytes=MiB, max_part_bytes=MiB)
ROWS = {"id": list(range(30)), "noise": [random.Random(n).randbytes(100_000) for n in range(30)]}


class Parts(InParts, FaultyStore):
    """Memory that takes objects in parts, and fails as its script says."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(MemoryStore(), faults)
        self.twice: set[str] = set()

    def begun_twice(self, upload_id: str) -> bool:
        return upload_id in self.twice

    async def create_upload(self, key: str) -> str:
        upload_id = await super().create_upload(key)
        if "twice" in self.twice:
            upload_id = await super().create_upload(key)
            self.twice.add(upload_id)
        return upload_id


def denied() -> Fault:
    error = rpq.AccessDeniedError("abort_multipart_upload: ExpiredToken", hint="ask for new credentials")
    return Fault("abort_upload", error, times=100)


def expired(verb: str, skip: int = 0) -> Fault:
    return Fault(verb, rpq.AccessDeniedError(f"{verb}: ExpiredToken", hint="credentials"), skip=skip, times=100)


async def the_upload(store: Parts, key: str) -> str:
    (upload,) = await store.list_uploads(key)
    return f"rpq uploads abort memory:{key} --upload-id {upload.upload_id}"


@pytest.mark.parametrize("fencing", ["lease", "none"])
@pytest.mark.parametrize("how", ["block", "close"])
async def test_a_writer_whose_upload_cannot_be_removed(
    fencing: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of what went wrong first the caller is told, and of what is left."""
    store = Parts(expired("put_part"), denied())
    writer = await rpq.create((store, "f"), options=OPTIONS, compression="none", fencing=fencing)
    if how == "block":
        with pytest.raises(rpq.AccessDeniedError, match="put_part: ExpiredToken") as caught:
            async with writer:
                await writer.write(ROWS)
                await writer.checkpoint()
    else:
        await writer.write(ROWS)
        with pytest.raises(rpq.AccessDeniedError, match="put_part: ExpiredToken") as caught:
            await writer.close()
    command = await the_upload(store, "f")
    (note,) = caught.value.__notes__
    assert "abort_multipart_upload: ExpiredToken" in note and "ask for new credentials" in note and command in note
    assert caught.value.hint == "credentials" and command in caplog.text
    assert writer.closed


async def test_a_sink_whose_upload_cannot_be_removed() -> None:
    store = Parts(expired("put_part"), denied())
    with pytest.raises(rpq.AccessDeniedError, match="put_part: ExpiredToken") as caught:
        async with rpq.create_dataset((store, "d"), options=OPTIONS, compression="none") as sink:
            await sink.write(ROWS)
            await sink.checkpoint()
    (note,) = caught.value.__notes__
    assert await the_upload(store, "d/part-00000000.parquet") in note


async def test_an_abort_that_was_asked_for_raises_what_refused_it() -> None:
    store = Parts(denied())
    writer = await rpq.create((store, "f"), options=OPTIONS, compression="none")
    await writer.write(ROWS)
    await writer.checkpoint()
    with pytest.raises(rpq.AccessDeniedError, match="abort_multipart_upload") as caught:
        await writer.abort()
    assert caught.value.hint == f"ask for new credentials; remove it later: {await the_upload(store, 'f')}"


async def damaged(store: Any, key: str = "src") -> None:
    """A file of 12 MB whose end is cut off."""
    memory = Parts()
    async with rpq.create((memory, key), options=OPTIONS, compression="none", row_group_rows=5) as writer:
        for _ in range(4):
            await writer.write(ROWS)
    whole = bytes((await memory.read_tail(key, 1 << 40)).data)
    await store.put(key, whole[:-500_000])


@pytest.mark.parametrize("verb", ["copy_part", "put_part"])
@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
async def test_a_recovery_whose_upload_cannot_be_removed(verb: str, caplog: pytest.LogCaptureFixture) -> None:
    store = Parts()
    await damaged(store)
    error = rpq.TransientError(f"{verb}: no answer")
    store.faults += [Fault(verb, error, times=100), denied()]
    with pytest.raises(rpq.TransientError, match=verb) as caught:
        await rpq.recover((store, "src"), (store, "out"))
    command = await the_upload(store, "out")
    assert any(command in note for note in caught.value.__notes__) and command in caplog.text


@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
async def test_a_recovery_that_may_have_published_its_output(caplog: pytest.LogCaptureFixture) -> None:
    """Its upload stays, since nobody can tell, and is named."""
    store = Parts(Fault("complete_upload", rpq.TransientError("no answer"), times=9))
    await damaged(store.inner)
    with pytest.raises(rpq.TransientError, match="no answer") as caught:
        await rpq.recover((store, "src"), (store, "out"))
    command = (await the_upload(store, "out")).replace("abort", "complete")
    assert any(command in note for note in caught.value.__notes__) and command in caplog.text


@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
async def test_the_upload_of_a_recovery_that_was_killed_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can tell that it was one: so it is not removed."""
    store = Parts()
    await damaged(store)
    left = await store.create_upload("out")
    await store.put_part("out", left, 1, bytes(MiB))
    await store.create_upload("out.other")
    with caplog.at_level(logging.WARNING):
        report = await rpq.recover((store, "src"), (store, "out"))
    (note,) = report.notes
    assert note.endswith(f"remove it: rpq uploads abort memory:out --upload-id {left}")
    assert note in caplog.text and report.to_json()["notes"] == [note]
    assert left in {each.upload_id for each in await store.list_uploads("out")}
    await store.abort_upload("out", left)
    assert not (await rpq.recover((store, "src"), (store, "out"), overwrite=True)).notes


@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
async def test_the_uploads_of_a_killed_recovery_of_columns_are_named() -> None:
    """By one request for all outputs."""
    store = Parts()
    await damaged(store)
    left = {name: await store.create_upload(name) for name in ("out.id.parquet", "out.noise.parquet")}
    await store.create_upload("out.parquet")
    store.faults.append(Fault("list_uploads", rpq.TransientError("a second one"), skip=1, times=100))
    report = await rpq.recover((store, "src"), (store, "out.parquet"), on_damage="columns")
    commands = [note.partition("remove it: ")[2] for note in report.notes]
    assert commands == [f"rpq uploads abort memory:{key} --upload-id {each}" for key, each in left.items()]


@pytest.mark.parametrize("on_damage", ["drop", "columns"])
@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
async def test_a_recovery_does_not_need_to_list_uploads(on_damage: Any) -> None:
    store = Parts()
    await damaged(store)
    store.faults.append(expired("list_uploads"))
    assert (await rpq.recover((store, "src"), (store, "out"), on_damage=on_damage)).notes == ()


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
async def test_an_answer_that_was_lost_leaves_no_empty_upload_of_a_recovery(prefix: bool) -> None:
    """Neither where the store copies, nor where all is sent."""
    store, source = Parts(), Parts()
    await damaged(source if not prefix else store)
    store.twice.add("twice")
    await rpq.recover((store if prefix else source, "src"), (store, "out"))
    assert len(store.twice) > 1 and not await store.list_uploads("out")


@pytest.mark.parametrize("leased", [True, False])
async def test_only_an_empty_upload_of_that_moment_is_removed(leased: bool) -> None:
    """Not one that holds something, that another writer named, that was begun before, or is of another object."""
    store = Parts()
    memory: Any = store.inner
    holding, named, old = [await store.create_upload("f") for _ in range(3)]
    other = await store.create_upload("f.other")
    await store.put_part("f", holding, 1, b"rows")
    memory._uploads[old].initiated = datetime.now(UTC) - timedelta(hours=1)
    somebody = Lease(store, "f", LeaseTerms("00"))
    if not leased:
        await somebody.take()
        await somebody.name(named)
    store.twice.add("twice")
    mine = await begin_upload(store, "f", Lease(store, "f", LeaseTerms("01", before=(named,))) if leased else None)
    left = {each.upload_id for each in await store.list_uploads("f")}
    assert left == {holding, named, old, other, mine}


@pytest.mark.parametrize("verb", ["list_uploads", "list_parts"])
async def test_a_lost_answer_and_no_permission_to_look_for_its_upload(
    verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Parts(expired(verb))
    store.twice.add("twice")
    upload_id = await begin_upload(store, "f", Lease(store, "f", LeaseTerms("01")))
    assert store.begun_twice(upload_id) and "rpq uploads list memory:f" in caplog.text
    store.faults.clear()
    assert len(await store.list_uploads("f")) == 2


async def test_an_upload_that_cannot_be_named_is_told(caplog: pytest.LogCaptureFixture) -> None:
    store = Parts(Fault("put", rpq.TransientError("no answer to the epoch object"), skip=1, times=9), denied())
    with pytest.raises(rpq.TransientError, match="epoch object") as caught:
        await begin_upload(store, "f", Lease(store, "f", LeaseTerms("01")))
    command = await the_upload(store, "f")
    assert command in caught.value.__notes__[0] and command in caplog.text
