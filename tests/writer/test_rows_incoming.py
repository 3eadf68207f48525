"""Rows of a source are taken many batches at a time, and the event loop has its turn all the same."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import resilient_pq as rpq
from resilient_pq.io import MemoryStore
from resilient_pq.io.cancellation import finish_in_thread
from resilient_pq.writer import file_writer
from resilient_pq.writer.pipeline import BatchFeeder

SCHEMA = pa.schema([("n", pa.int64())])


def source(count: int, seconds: float, given: list[int], begun: threading.Event | None = None) -> pa.RecordBatchReader:
    """Batches of one row, each of which takes so long to come."""

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(count):
            time.sleep(seconds)
            given.append(number)
            if begun is not None:
                begun.set()
            yield pa.record_batch({"n": [number]}, SCHEMA)

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


async def test_batches_that_are_there_are_taken_in_few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[object] = []

    async def counted(function: Callable[..., object], *arguments: object) -> object:
        turns.append(function)
        return await finish_in_thread(function, *arguments)

    monkeypatch.setattr(file_writer, "finish_in_thread", counted)
    store, given = MemoryStore(), []
    async with rpq.create((store, "f")) as writer:
        await writer.write(source(100, 0, given))
        assert len(turns) < 20, "each hand-over between threads takes longer than a small batch"
    assert len(given) == writer.num_rows == 100


async def test_a_write_of_a_slow_source_can_be_cancelled() -> None:
    store, given, begun = MemoryStore(), [], threading.Event()
    writer = await rpq.create((store, "f"))
    writing = asyncio.create_task(writer.write(source(10_000, 0.03, given, begun)))
    assert await asyncio.to_thread(begun.wait, 60)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert len(given) < 1000
    await writer.abort()


def test_a_feeder_that_stopped_waiting_meanwhile_is_not_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source gave its batch, and the call that took it ended, after `pause` had seen that it waits."""
    feeder, lock = BatchFeeder(iter(()), encoder=None), threading.Lock()  # type: ignore[arg-type]

    class Late:
        """Comes to the caller as the lock does where a call has just ended."""

        def acquire(self, *, blocking: bool) -> bool:
            feeder._waiting = False
            return lock.acquire(blocking=blocking)

        release = lock.release

    monkeypatch.setattr(feeder, "_waiting", True)
    monkeypatch.setattr(feeder, "_at_work", Late())
    assert not feeder.pause(), "the rows that the next call takes would meet those of a timer"
    assert not lock.locked()
