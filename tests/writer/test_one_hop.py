"""Little that is written to a local file: in one thread from end to end, and without an event loop where one blocks."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.format.pages.thread_count import Cost
from resilient_pq.io.cancellation import begun, in_loop, in_one_hop
from resilient_pq.loop_portal import portal
from resilient_pq.writer import unstored_deadline
from resilient_pq.writer.lifecycle import CallLock

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


async def test_a_small_row_group_of_much_data_is_two_hops(tmp_path: Path, threads: Counting) -> None:
    """One that takes its rows, and one that encodes and pushes it."""
    table = pa.concat_tables([TABLE] * 100)
    assert table.nbytes > unstored_deadline.ONE_HOP_BYTES
    async with rpq.create(tmp_path / "a.parquet", row_group_rows=1000) as writer:
        await writer.write(table)
        assert threads.hops < 2 * 100 + 10
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 100


async def test_a_hop_writes_the_bytes_that_many_hops_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    await rpq.write(tmp_path / "one", TABLE, row_group_rows=300)
    monkeypatch.setattr(unstored_deadline, "ONE_HOP_BYTES", 0)
    async with rpq.create(tmp_path / "many", row_group_rows=300) as writer:
        await writer.write(TABLE)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "many").read_bytes()


@pytest.fixture
def no_portal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portal, "_running", None)


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


@pytest.mark.usefixtures("no_portal")
def test_a_writer_that_is_given_little_needs_no_event_loop(tmp_path: Path) -> None:
    with sync.create(tmp_path / "a.parquet", max_unstored_seconds=None) as writer:
        writer.write(TABLE)
        writer.flush()
        writer.write(TABLE)
        assert writer.checkpoint().num_rows == 2000
        with pytest.raises(rpq.SchemaError):
            writer.write({"other": [1]})
    assert writer.closed
    with rpq.ParquetWriter(tmp_path / "b.parquet", TABLE.schema, max_unstored_seconds=None) as by_table:
        by_table.write_table(TABLE)
    assert [pq.read_table(tmp_path / name).num_rows for name in ("a.parquet", "b.parquet")] == [2000, 1000]


def test_rows_that_nothing_follows_are_stored_by_the_timer_of_the_portal(tmp_path: Path) -> None:
    """Written in the thread of the caller, and not followed by a call."""
    writers = [sync.create(tmp_path / f"{n}.parquet", max_unstored_seconds=0.5) for n in range(3)]
    for writer in writers:
        writer.write(TABLE)
        assert writer.num_rows_stored == 0
    end = time.monotonic() + 20
    while any(writer.num_rows_stored == 0 for writer in writers):
        assert time.monotonic() < end
        time.sleep(0.02)
    for writer in writers:
        writer.write(TABLE)
        writer.close()
    assert pq.read_table(tmp_path / "2.parquet").equals(pa.concat_tables([TABLE] * 2))


def test_threads_that_write_with_one_writer_take_turns(tmp_path: Path) -> None:
    """Some calls begin in the thread of the caller, those with much data in the event loop."""
    large = pa.table({"n": np.zeros(200_000, np.int64), "s": ["text"] * 200_000, "x": np.zeros(200_000)})
    with sync.create(tmp_path / "a.parquet", row_group_rows=50_000) as writer, ThreadPoolExecutor(6) as threads:
        for written in [threads.submit(writer.write, large if n % 5 == 0 else TABLE) for n in range(20)]:
            written.result()
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 4 * 200_000 + 16_000


async def test_tasks_and_threads_wait_for_one_lock() -> None:
    lock, order, held = CallLock(), [], 0

    async def work(number: int) -> None:
        nonlocal held
        async with lock:
            held += 1
            assert held == 1
            if asyncio._get_running_loop() is not None:
                await asyncio.sleep(0)
            order.append(number)
            held -= 1

    await asyncio.gather(*map(work, range(5)))
    assert order == [0, 1, 2, 3, 4], "tasks take it in their order"
    await lock.acquire()
    waiting = asyncio.create_task(work(5))
    others = [in_one_hop(work(number)) for number in range(6, 12)]
    under_way = asyncio.gather(*others)
    await asyncio.sleep(0.01)
    waiting.cancel()
    lock.release()
    await under_way
    await work(12)
    assert sorted(order[5:]) == [6, 7, 8, 9, 10, 11, 12] and order[-1] == 12
