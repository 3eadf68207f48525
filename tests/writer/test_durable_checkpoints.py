"""Checkpoints of uploads: their states, when they come by themselves, what they cost, and the log of them."""

from __future__ import annotations

import asyncio
import io
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from file_bytes import content
from parts_in_memory import PartStore

import resilient_pq as rpq
from resilient_pq.io import MemoryStore
from resilient_pq.units import MiB
from resilient_pq.writer.checkpoint_log import read_log

SMALL = {"part_bytes": MiB, "max_part_bytes": MiB, "max_bytes_in_flight": 4 * MiB}


def rows(start: int, stop: int, size: int = 50_000) -> dict[str, list[Any]]:
    return {"id": list(range(start, stop)), "noise": [random.Random(i).randbytes(size) for i in range(start, stop)]}


async def completed_by_the_rule(store: MemoryStore) -> bytes:
    """What anyone would find who completed the only upload now."""
    (upload,) = await store.list_uploads("")
    taken = []
    for number, part in enumerate(await store.list_parts(upload.key, upload.upload_id), start=1):
        assert part.number == number
        taken.append(part)
        if part.size % MiB:
            break
    await store.complete_upload(upload.key, upload.upload_id, taken)
    return await content(store, upload.key)


def settings(**options: Any) -> dict[str, Any]:
    return {"compression": "none", "checkpoint_every": None, "options": rpq.WriteOptions(**SMALL, **options)}


async def test_accepted_stored_visible() -> None:
    store = PartStore()
    async with rpq.create((store, "f"), **settings()) as writer:
        assert (await writer.checkpoint()).ordinal == 0
        await writer.write(rows(0, 30))
        first = await writer.checkpoint()
        assert (first.num_rows, first.state) == (30, rpq.StoredState.STORED)
        assert writer.num_rows_stored == 30
        await writer.write(rows(30, 100))
        assert writer.last_checkpoint == first and writer.num_rows_stored == 30
        second = await writer.checkpoint()
        assert (second.num_rows, second.state, writer.num_rows_stored) == (100, rpq.StoredState.STORED, 100)
        assert await writer.checkpoint() == second, "nothing is new"
        head = writer.num_bytes_resent - first.offset % MiB
        assert 0 < head < 1000, "the open slot was sent in full, and before it the anchor in the first part"
    assert writer.last_checkpoint.state is rpq.StoredState.VISIBLE
    assert pq.read_table(io.BytesIO(await content(store, "f"))).to_pydict() == rows(0, 100)


class SlowParts(PartStore):
    """Takes a part only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.taking = asyncio.Event()

    async def put_part(self, *arguments: Any) -> Any:
        await self.taking.wait()
        return await super().put_part(*arguments)


async def test_the_last_checkpoint_never_goes_back_from_stored_to_accepted() -> None:
    store = SlowParts()
    options = {**settings(checkpoint_bytes=MiB), "max_unstored_seconds": None}
    writer = await rpq.create((store, "f"), row_group_rows=25, **options)
    seen: list[rpq.Checkpoint] = []

    async def look(turns: int = 30) -> None:
        for _ in range(turns):
            if not seen or seen[-1] != writer.last_checkpoint:
                seen.append(writer.last_checkpoint)
            await asyncio.sleep(0)

    for start in range(0, 200, 25):
        store.taking.clear()
        await writer.write(rows(start, start + 25))
        await look()
        store.taking.set()
        await look()
    stored = [known.ordinal for known in seen if known.state is rpq.StoredState.STORED]
    assert len(stored) > 4 and stored == sorted(set(stored))
    first = next(at for at, known in enumerate(seen) if known.state is rpq.StoredState.STORED)
    assert all(known.state is rpq.StoredState.STORED for known in seen[first:])
    assert seen[-1].num_rows == 200
    store.taking.clear()
    asking = asyncio.create_task(writer.checkpoint())
    await look()
    store.taking.set()
    assert await asking == writer.last_checkpoint
    await writer.abort()
    assert writer.last_checkpoint.state is rpq.StoredState.ACCEPTED, "nothing is stored any more"


async def test_before_anything_is_stored_the_schema_is() -> None:
    store = PartStore()
    writer = await rpq.create((store, "f"), row_group_rows=10, **settings())
    await writer.write(rows(0, 200))
    assert writer.num_rows_stored == 0
    for _ in range(50):
        await asyncio.sleep(0)
    data = await completed_by_the_rule(store)
    assert pq.read_table(io.BytesIO(data)).to_pydict() == {"id": [], "noise": []}
    with pytest.raises(rpq.WriterFencedError):
        await writer.close()


async def test_by_bytes() -> None:
    store = PartStore()
    writer = await rpq.create((store, "f"), row_group_rows=20, **settings(checkpoint_bytes=3 * MiB))
    stored = []
    for start in range(0, 400, 20):
        await writer.write(rows(start, start + 20))
        for _ in range(100):
            await asyncio.sleep(0)
        stored.append(writer.num_rows_stored)
        assert writer.num_bytes - writer.last_checkpoint.offset < 4.1 * MiB
    assert stored == sorted(stored) and stored[-1] >= 320
    data = await completed_by_the_rule(store)
    assert pq.read_table(io.BytesIO(data)).num_rows == stored[-1]
    await writer.abort()


async def test_by_seconds(clock: Any) -> None:
    """By a timer, and however little the open row group has."""
    store = PartStore()
    writer = await rpq.create((store, "f"), **settings(checkpoint_seconds=5.0))
    await writer.write(rows(0, 100))
    await clock.skip(3)
    assert writer.last_checkpoint.ordinal == 0
    await clock.skip(1.9)
    await clock.until(lambda: writer.num_rows_stored == 100)
    await writer.write(rows(100, 101))
    await clock.skip(4.9)
    await clock.until(lambda: writer.num_rows_stored == 101)
    assert (writer.last_checkpoint.ordinal, writer.last_checkpoint.state) == (2, rpq.StoredState.STORED)
    await writer.abort()


async def test_without_a_bound_a_complete_row_group_is_stored_within_a_minute() -> None:
    now = 0.0
    store = PartStore()
    options = rpq.WriteOptions(**SMALL)
    how: dict[str, Any] = {"row_group_rows": 10, "compression": "none", "max_unstored_seconds": None}
    writer = await rpq.create((store, "f"), options=options, **how)
    writer._clock = lambda: now
    stored = []
    for start in range(0, 150, 5):
        now += 7.0
        await writer.write(rows(start, start + 5))
        for _ in range(100):
            await asyncio.sleep(0)
        stored.append(writer.num_rows_stored)
    waiting = [5 * count - of_them for count, of_them in enumerate(stored, start=1)]
    assert max(waiting) <= 10 + 60 / 7 * 5 + 5, "an open row group, and what a minute brings"
    assert stored[-1] >= 100
    await writer.abort()


async def test_automatic_checkpoints_cost_no_more_than_their_share() -> None:
    """Records of checkpoints are cheap, and written; sending bytes twice for each of them would not be."""
    store = PartStore()
    options = {**settings(), "checkpoint_every": 1}
    async with rpq.create((store, "f"), row_group_rows=10, **options) as writer:
        for start in range(0, 2000, 10):
            await writer.write(rows(start, start + 10))
    assert writer.last_checkpoint.ordinal > 50
    assert 0 < writer.num_bytes_resent <= 0.02 * writer.num_bytes + MiB


async def test_a_log_of_what_is_stored(tmp_path: Path) -> None:
    store, log = PartStore(), tmp_path / "log"
    options = settings(checkpoint_log=log)
    async with rpq.create((store, "f"), **options) as writer:
        for start in (0, 30, 60):
            await writer.write(rows(start, start + 30))
            checkpoint = await writer.checkpoint()
            logged = read_log(log)[-1]
            assert (logged.ordinal, logged.num_rows, logged.offset) == (
                checkpoint.ordinal, checkpoint.num_rows, checkpoint.offset
            )  # fmt: skip
            (upload,) = await store.list_uploads("")
            assert (logged.upload_id, logged.url) == (upload.upload_id, "memory:f")
    async with rpq.open((store, "f")) as file:
        stored = [each.num_rows for each in read_log(log) if each.stored]
        assert [known.num_rows for known in file.checkpoints] == stored


async def test_the_log_knows_the_rows_of_a_checkpoint_before_it_is_stored(tmp_path: Path) -> None:
    """A writer that is killed while it waits for its source has nobody who notes what was stored meanwhile."""
    store, log = PartStore(), tmp_path / "log"
    options = settings(checkpoint_log=log, checkpoint_bytes=MiB)
    writer = await rpq.create((store, "f"), row_group_rows=10, **options)
    await writer.write(rows(0, 30))
    await writer.checkpoint()
    send, read, written = store.put_part, store.read_tail, asyncio.Event()
    answered = asyncio.Event()

    async def send_later(*arguments: Any) -> Any:
        await written.wait()
        return await send(*arguments)

    async def read_and_tell(*arguments: Any) -> Any:
        answered.set()  # what is asked last before a checkpoint counts as stored: whether the lease is held still
        return await read(*arguments)

    store.put_part, store.read_tail = send_later, read_and_tell  # type: ignore[method-assign]
    await writer.write(rows(30, 60))
    written.set()
    while writer.last_checkpoint.state is not rpq.StoredState.STORED:
        await answered.wait()
        await asyncio.sleep(0)
    (upload,) = await rpq.list_uploads((store, ""), log=log)
    assert (upload.stored_bytes, upload.num_rows) == (writer.last_checkpoint.offset, 60)
    assert read_log(log)[-1].stored is False
    await writer.abort()


async def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(rpq.StoreError, match="cannot write the log"):
        await rpq.create((PartStore(), "f"), **settings(checkpoint_log=tmp_path / "no" / "log"))


async def file_with(noise: int) -> tuple[bytes, int]:
    """A file with a checkpoint, and where that ends."""
    store = MemoryStore()
    async with rpq.create((store, "f"), compression="none", checkpoint_every=None) as writer:
        await writer.write({"noise": [bytes(noise)]})
        checkpoint = await writer.checkpoint()
        await writer.write({"noise": [b"behind it"]})
    return await content(store, "f"), checkpoint.offset


@pytest.mark.parametrize("which", ["checkpoint", "final"])
async def test_no_footer_ends_on_a_multiple_of_a_mebibyte(which: str) -> None:
    """The zero bytes that see to it are dead space like any other."""

    async def end_with(noise: int) -> int:
        data, checkpoint_end = await file_with(noise)
        return checkpoint_end if which == "checkpoint" else len(data)

    noise = MiB
    for _ in range(5):  # lengths are written in few bytes or more: so it is come nearer to
        noise += -await end_with(noise) % MiB
        if await end_with(noise) % MiB == 64:
            break
    assert await end_with(noise) % MiB == 64, "it would have ended there, and was moved on"
    data, checkpoint_end = await file_with(noise)
    assert await end_with(noise - 1) % MiB in (MiB - 1, MiB - 1 + 64)
    assert pq.read_table(io.BytesIO(data)).num_rows == 2
    assert pq.read_table(io.BytesIO(data[:checkpoint_end])).num_rows == 1
    store = MemoryStore()
    await store.put("f", data)
    report = await rpq.check((store, "f"))
    assert (report.outcome, report.findings) == (rpq.Outcome.SOUND, ())
    for cut in (len(data) - 1, checkpoint_end + 10):
        await store.put("torn", data[:cut])
        report = await rpq.recover((store, "torn"), (store, "saved"), overwrite=True)
        assert report.num_rows == (2 if cut > checkpoint_end + 10 else 1)
    await store.put("flipped", data[: checkpoint_end - 30] + b"\xff" + data[checkpoint_end - 29 :])
    assert (await rpq.check((store, "flipped"))).outcome is not rpq.Outcome.SOUND
