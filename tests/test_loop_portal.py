"""The event loop of blocking calls: finalizers hand over to it, and wait for nothing."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import memory_pool
from resilient_pq import sync as rpq
from resilient_pq.blocking import _keep_all_rows, _keeping
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.loop_portal import Portal, portal
from resilient_pq.reader import streaming
from resilient_pq.writer.file_writer import Writer

STORE = MemoryStore()


@contextmanager
def loop_stands() -> Iterator[None]:
    """The loop does nothing, as where one of its threads waits for a lock that the caller holds."""
    stands, goes_on = threading.Event(), threading.Event()
    portal._running().call_soon_threadsafe(lambda: (stands.set(), goes_on.wait(60)))
    assert stands.wait(30)
    try:
        yield
    finally:
        goes_on.set()


def _write(path: Path) -> None:
    rpq.write(path, pa.table({"n": range(30_000)}), row_group_rows=1000)


def _scan(path: Path) -> object:
    _write(path)
    scan = rpq.scan(path)
    assert scan.to_polars().select("n").collect().height == 30_000
    return scan


def _generator(path: Path) -> object:
    _write(path)
    batches = rpq.open(path).batches(1000)
    next(batches)
    return batches


def _records(path: Path) -> object:
    _write(path)
    records = iter(rpq.open(path).records())
    assert next(records) == {"n": 0}
    return records


def _tables_of_a_scan(path: Path) -> object:
    _write(path)
    tables = rpq.scan(path)._tables(None, None, None, 1000)
    next(tables)
    return tables


def _arrow_stream(path: Path) -> object:
    _write(path)
    stream = pa.RecordBatchReader.from_stream(rpq.open(path).batches(1000))
    assert stream.read_next_batch().num_rows == 1000
    return stream


def _writer(path: Path) -> object:
    writer = rpq.create((STORE, path.name))
    writer.write({"n": [1, 2, 3]})
    return writer


def _local_writer(path: Path) -> object:
    writer = rpq.create(path)
    writer.write({"n": [1, 2, 3]})
    return writer


@pytest.mark.filterwarnings("ignore:.* was not closed")
@pytest.mark.parametrize(
    "make", [_scan, _generator, _records, _tables_of_a_scan, _arrow_stream, _writer, _local_writer]
)
def test_garbage_does_not_wait_for_the_loop(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    """The garbage collector runs amid any code; what the code has locked the loop may need to go on."""
    things = [make(tmp_path / "file.parquet")]
    gc.collect()
    dropped = threading.Thread(target=lambda: (things.clear(), gc.collect()), daemon=True)
    with loop_stands():
        dropped.start()
        dropped.join(20)
        waited = dropped.is_alive()
    dropped.join(60)
    assert not waited
    portal.wait_for_ends()
    assert not portal._left and not portal._ending


def test_a_scan_dropped_while_memory_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing its file gives memory back, in the thread of the loop."""
    scans: list[Any] = [_scan(tmp_path / "file.parquet")]
    sort_in = memory_pool._Pool._sort_in

    def amid(pool: memory_pool._Pool) -> None:
        scans.clear()
        gc.collect()
        sort_in(pool)

    monkeypatch.setattr(memory_pool._Pool, "_sort_in", amid)
    taken = threading.Thread(target=lambda: memory_pool.empty((1 << 20,), "u1"), daemon=True)
    taken.start()
    taken.join(30)
    assert not taken.is_alive()


@pytest.mark.filterwarnings("ignore:.* was not closed")
def test_rows_of_dropped_writers_are_kept_at_the_latest_when_the_interpreter_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Writer, "_begins_without_loop", lambda *_: False)  # as that of a remote file
    writer = rpq.create(tmp_path / "file.parquet")
    writer.write({"n": [1, 2, 3]})
    with loop_stands():
        del writer
        gc.collect()
        assert portal._left
    _keep_all_rows()
    assert rpq.check(tmp_path / "file.parquet.partial").num_rows == 3


@pytest.mark.filterwarnings("ignore:.* was not closed")
def test_many_rows_are_kept_when_the_interpreter_ends_without_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.12 on none can be started any more at that time."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    writer = rpq.create(tmp_path / "file.parquet")
    rng = np.random.default_rng(1)
    writer.write({name: rng.integers(0, 1 << 60, 500_000) for name in "abcd"})
    for name in ("run", "end_later"):
        monkeypatch.setattr(portal, name, refuse)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    _keep_all_rows()
    monkeypatch.undo()
    assert writer.closed and rpq.check(tmp_path / "file.parquet.partial").num_rows == 500_000


@pytest.mark.filterwarnings("ignore:.* was not closed")
def test_many_rows_are_kept_at_the_end_of_a_process(tmp_path: Path) -> None:
    script = """
import sys, numpy
from resilient_pq import sync
writer = sync.create(sys.argv[1], row_group_rows=40_000)
for part in range(5):
    writer.write({name: numpy.arange(30_000) * 7919 for name in "abcd"})
sink = sync.create_dataset(sys.argv[2])
sink.write({name: numpy.arange(500_000) * 7919 for name in "abcd"})
"""
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "file.parquet"), str(tmp_path / "set")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "500,000 rows are kept" in ended.stderr and "Traceback" not in ended.stderr
    assert rpq.check(tmp_path / "file.parquet.partial").num_rows == 150_000
    assert rpq.check(next((tmp_path / "set").glob("*.partial"))).num_rows == 500_000


def test_threads_that_cannot_be_started_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on when the interpreter ends: those that there are do all work."""
    alone = Portal()
    loop = alone._running()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    async def several() -> list[int]:
        return await asyncio.gather(*(asyncio.to_thread(abs, -number) for number in range(50)))

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert alone.run(several()) == list(range(50))
    loop.call_soon_threadsafe(loop.stop)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_that_ends_leaves_the_writers_of_its_parent_alone(tmp_path: Path) -> None:
    """Those of multiprocessing end as the interpreter does, which stores the rows of its own writers."""
    with rpq.create(tmp_path / "file.parquet") as writer:
        writer.write({"n": [1, 2, 3]})
        before = (tmp_path / "file.parquet.partial").stat().st_size
        child = multiprocessing.get_context("fork").Process(target=int)
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert (tmp_path / "file.parquet.partial").stat().st_size == before
        writer.write({"n": [4, 5, 6]})
    assert pq.read_table(tmp_path / "file.parquet")["n"].to_pylist() == [1, 2, 3, 4, 5, 6]


FORK_AMID_A_BLOCK = """
import os, sys
from resilient_pq import sync
with sync.create(sys.argv[1]) as writer:
    writer.write({"n": [1, 2, 3]})
    if not (child := os.fork()):
        {what_the_child_does}
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    writer.write({"n": [4, 5, 6]})
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(
    ("what_the_child_does", "code"),
    [("pass", 7), *((f"writer.{call}", 1) for call in ('write({"n": [9]})', "checkpoint()", "close()", "abort()"))],
)
def test_a_forked_process_cannot_end_the_file_of_its_parent(
    tmp_path: Path, what_the_child_does: str, code: int
) -> None:
    """Also by leaving the block, or by an error in it."""
    script = FORK_AMID_A_BLOCK.replace("{what_the_child_does}", what_the_child_does)
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "file.parquet")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == f"{code}\n"
    assert ("UnsupportedError: a forked process cannot use a writer of its parent" in ended.stderr) == (code == 1)
    assert pq.read_table(tmp_path / "file.parquet")["n"].to_pylist() == [1, 2, 3, 4, 5, 6]
    assert [path.name for path in tmp_path.iterdir()] == ["file.parquet"]


@pytest.mark.filterwarnings("ignore:.* was not closed")
def test_garbage_does_not_wait_for_a_writer_at_work(tmp_path: Path) -> None:
    """Its timer may store rows just now, and need what the thread has locked that the collector runs in."""
    things = [_local_writer(tmp_path / "file.parquet")]
    lock = things[0]._target._lock  # type: ignore[attr-defined]
    assert lock._lock.acquire(blocking=False)
    dropped = threading.Thread(target=lambda: (things.clear(), gc.collect()), daemon=True)
    dropped.start()
    dropped.join(20)
    waited = dropped.is_alive()
    portal._running().call_soon_threadsafe(lock.release)
    dropped.join(60)
    assert not waited
    portal.wait_for_ends()
    assert rpq.check(tmp_path / "file.parquet.partial").num_rows == 3


@pytest.mark.filterwarnings("ignore:.* was not closed")
def test_a_dropped_file_is_resumed_at_once(tmp_path: Path) -> None:
    """Many rows are stored by the loop, which has not begun with that."""
    writer = rpq.create(tmp_path / "file.parquet", max_unstored_seconds=None)
    writer.write({"n": np.random.default_rng(1).integers(0, 1 << 60, 1_000_000)})
    portal._running().call_soon_threadsafe(time.sleep, 0.5)
    del writer
    gc.collect()
    with rpq.resume(tmp_path / "file.parquet") as writer:
        assert writer.num_rows == 1_000_000
    assert not _keeping


def test_a_file_is_created_while_a_stream_is_being_closed(tmp_path: Path) -> None:
    """Which may take as long as a request: only rows of writers are waited for."""
    goes_on = threading.Event()

    async def close() -> None:
        await asyncio.to_thread(goes_on.wait, 30)

    portal.end_later(close())
    try:
        with rpq.create(tmp_path / "file.parquet") as writer:
            writer.write({"n": [1]})
        assert portal._ending or portal._left
    finally:
        goes_on.set()
    portal.wait_for_ends()


def test_a_stream_that_is_being_closed_is_closed_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the consumer of an Arrow stream, and then by its maker: the second waits for the first."""
    ended: list[int] = []
    cancel = streaming._Ahead.cancel

    async def slowly(ahead: streaming._Ahead) -> None:
        await asyncio.sleep(0.5)
        await cancel(ahead)
        ended.append(1)

    monkeypatch.setattr(streaming._Ahead, "cancel", slowly)
    _write(tmp_path / "file.parquet")
    batches = rpq.open(tmp_path / "file.parquet").batches(1000)
    stream = pa.RecordBatchReader.from_stream(batches)
    assert stream.read_next_batch().num_rows == 1000
    del stream
    gc.collect()
    batches.close()
    assert ended == [1]


LEFT_IN_A_CYCLE = """
import gc, sys
from resilient_pq import sync
class Cycle: pass
for _ in range(5):
    cycle = Cycle()
    cycle.itself, cycle.file = cycle, sync.open(sys.argv[1])
    cycle.batches = cycle.file.batches(100)
    next(cycle.batches)
    del cycle
gc.collect()
print("done")
"""


def test_a_stream_in_a_cycle_ends_without_a_word(tmp_path: Path) -> None:
    """The collector closes its generators in any order, each while others close it."""
    _write(tmp_path / "file.parquet")
    command = [sys.executable, "-c", LEFT_IN_A_CYCLE, str(tmp_path / "file.parquet")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("done\n", "")


def test_ends_that_begin_meanwhile_are_waited_for() -> None:
    """And what fails in one is told, as what fails in any task that nobody waits for."""
    ended: list[int] = []
    told: list[object] = []
    alone = Portal()
    loop = alone._running()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

    async def end() -> None:
        await asyncio.sleep(0.1)
        ended.append(1)

    async def fail() -> None:
        await asyncio.sleep(0.01)
        alone.end_later(end())
        raise ValueError

    alone.end_later(fail())
    alone.wait_for_ends()
    gc.collect()
    assert ended == [1] and [type(error) for error in told] == [ValueError]
    loop.call_soon_threadsafe(loop.stop)


def test_an_end_that_is_just_begun_is_waited_for() -> None:
    ended: list[int] = []
    alone = Portal()
    loop = alone._running()

    def slowly(loop: asyncio.AbstractEventLoop, coroutine: Any, **given: Any) -> asyncio.Task[Any]:
        time.sleep(0.3)
        return asyncio.Task(coroutine, loop=loop, **given)

    async def end() -> None:
        await asyncio.sleep(0.1)
        ended.append(1)

    loop.set_task_factory(slowly)
    alone.end_later(end())
    time.sleep(0.1)
    alone.wait_for_ends()
    assert ended == [1]
    loop.call_soon_threadsafe(loop.stop)


def test_a_finalizer_amid_the_begin_of_the_loop_begins_none_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Portal()
    loops: list[object] = []
    new_loop = asyncio.new_event_loop

    async def here() -> object:
        return asyncio.get_running_loop()

    def finalize() -> asyncio.AbstractEventLoop:
        monkeypatch.setattr(asyncio, "new_event_loop", new_loop)
        loops.append(alone.run(here()))
        return new_loop()

    monkeypatch.setattr(asyncio, "new_event_loop", finalize)
    assert alone.run(here()) is loops[0] is alone._loop
    loop = alone._running()
    loop.call_soon_threadsafe(loop.stop)


def test_what_cannot_be_run_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    async def end() -> None:
        raise AssertionError

    alone, left = Portal(), end()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="shutdown"):
        alone.run(left)
    assert left.cr_frame is None


def test_what_is_left_before_there_is_a_loop_begins_one() -> None:
    ended: list[int] = []

    async def end() -> None:
        ended.append(1)

    unasked = Portal()
    unasked.end_later(end())
    for _ in range(1000):
        if ended:
            break
        time.sleep(0.01)
    assert ended == [1]
    ended.clear()
    alone = Portal()
    alone.end_later(end())
    alone.wait_for_ends()
    assert ended == [1]
    alone.end_later(end())
    for _ in range(1000):
        if len(ended) == 2:
            break
        time.sleep(0.01)
    assert ended == [1, 1]
    alone.leave()
    left = end()
    alone.end_later(left)
    assert left.cr_frame is None and ended == [1, 1]
    for each in (unasked, alone):
        loop = each._running()
        loop.call_soon_threadsafe(loop.stop)
