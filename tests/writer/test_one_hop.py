"""Little that is written to a local file: in one thread from end to end, and without an event loop where one blocks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import blocking, sync
from resilient_pq.format.pages.thread_count import Cost
from resilient_pq.io.cancellation import begun, in_loop, in_one_hop
from resilient_pq.writer import unstored_deadline

TABLE = pa.table({"n": np.arange(1000), "s": [f"text {n % 9}" for n in range(1000)], "x": np.linspace(0, 1, 1000)})


class Counting(ThreadPoolExecutor):
    """The threads of a loop, which count what they are given."""

    def __init__(self) -> None:
        super().__init__(4)
        self.hops = 0

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self.hops += 1
        return super().submit(call, *args, **kwargs)


@pytest.fixture
async def threads() -> Counting:
    threads = Counting()
    asyncio.get_running_loop().set_default_executor(threads)
    return threads


@pytest.mark.parametrize("row_group_rows", [None, 10])
async def test_a_small_file_is_written_in_one_hop(tmp_path: Path, threads: Counting, row_group_rows: int) -> None:
    writer = await rpq.write(tmp_path / "a.parquet", TABLE, row_group_rows=row_group_rows)
    assert threads.hops == 1 and writer.closed and writer.num_rows == 1000
    assert pq.read_table(tmp_path / "a.parquet").equals(TABLE)


async def test_every_call_of_a_writer_is_one_hop(tmp_path: Path, threads: Counting) -> None:
    async with rpq.create(tmp_path / "a.parquet") as writer:
        for hops in (2, 3, 4):
            await writer.write(TABLE)
            assert threads.hops == hops
        await writer.checkpoint()
        await writer.write(TABLE)
        await writer.flush()
        assert threads.hops == 7
        assert (writer.last_checkpoint.num_rows, writer.num_rows_stored) == (3000, 4000)
    assert threads.hops == 8
    assert pq.read_table(tmp_path / "a.parquet").equals(pa.concat_tables([TABLE] * 4))


async def test_a_hop_writes_the_bytes_that_many_hops_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    await rpq.write(tmp_path / "one", TABLE, row_group_rows=300)
    monkeypatch.setattr(unstored_deadline, "ONE_HOP_BYTES", 0)
    async with rpq.create(tmp_path / "many", row_group_rows=300) as writer:
        await writer.write(TABLE)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "many").read_bytes()


@pytest.fixture
def no_portal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "_loop", None)


@pytest.mark.usefixtures("no_portal")
def test_a_caller_that_blocks_needs_no_event_loop(tmp_path: Path) -> None:
    before = threading.active_count()
    for data in (TABLE, TABLE.to_batches()[0], {"n": np.arange(9)}, [{"n": 1}], {"n": [1, 2]}):
        assert sync.write(tmp_path / "a.parquet", data).closed
    assert threading.active_count() == before
    with pytest.raises(rpq.SchemaError):
        sync.write(tmp_path / "a.parquet", {"n": [1, 2], "m": [1]})
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 2


async def test_beside_a_running_loop_a_caller_that_blocks_waits_for_another(tmp_path: Path) -> None:
    sync.write(tmp_path / "a.parquet", TABLE)
    assert pq.read_table(tmp_path / "a.parquet").equals(TABLE)


def _many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every row group encoded by several threads, which begin in the event loop."""
    monkeypatch.setattr(Cost, "threads_worth", lambda *_: 3)


async def test_what_needs_the_loop_goes_on_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _many_threads(monkeypatch)
    options = rpq.WriteOptions(max_threads=3)
    await rpq.write(tmp_path / "a.parquet", TABLE, row_group_rows=100, options=options)
    async with rpq.create(tmp_path / "b.parquet", row_group_rows=700, options=options) as writer:
        for _ in range(3):
            await writer.write(TABLE)
            await writer.flush()
    assert pq.read_table(tmp_path / "a.parquet").equals(TABLE)
    assert pq.read_table(tmp_path / "b.parquet").equals(pa.concat_tables([TABLE] * 3))


def test_a_caller_that_blocks_goes_on_in_the_portal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _many_threads(monkeypatch)
    writer = sync.write(tmp_path / "a.parquet", TABLE, options=rpq.WriteOptions(max_threads=3))
    assert writer.closed and pq.read_table(tmp_path / "a.parquet").equals(TABLE)


def test_rows_that_come_over_time_are_stored_in_time(tmp_path: Path) -> None:
    """A loop keeps the bound; what is at hand is written before it matters."""
    stored = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in TABLE.to_batches(max_chunksize=100):
            yield batch
            stored.append((tmp_path / "a.parquet.partial").stat().st_size)
            threading.Event().wait(0.06)

    source = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    sync.write(tmp_path / "a.parquet", source, max_unstored_seconds=0.2)
    assert len(set(stored)) > 2 and pq.read_table(tmp_path / "a.parquet").equals(TABLE)


async def test_a_coroutine_is_handed_over_where_it_asks_for_a_loop() -> None:
    async def work(fails: bool) -> list[int]:
        seen = [threading.get_ident()]
        await in_loop()
        await asyncio.sleep(0)
        await in_loop()
        if fails:
            raise ZeroDivisionError
        return [*seen, threading.get_ident()]

    first, then = await in_one_hop(work(False))
    assert (first == threading.get_ident(), then == threading.get_ident()) == (False, True)
    with pytest.raises(ZeroDivisionError):
        await in_one_hop(work(True))
    task = asyncio.ensure_future(in_one_hop(work(False)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_is_left_is_cancelled_with_the_caller() -> None:
    """Also where the cancellation comes while the thread is at work: cleaning up goes on in the loop."""
    begins, goes_on, cleaned = threading.Event(), threading.Event(), []

    async def work() -> None:
        try:
            begins.set()
            goes_on.wait(10)
            await in_loop()
            await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            cleaned.append(asyncio.get_running_loop())

    task = asyncio.ensure_future(in_one_hop(work()))
    await asyncio.to_thread(begins.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [asyncio.get_running_loop()]


def test_what_asks_for_no_loop_ends_without_one() -> None:
    async def work() -> int:
        return await in_one_hop(asyncio.Lock().acquire())

    assert begun(work()) == (True, True)
