"""The event loop of blocking calls: finalizers hand over to it, and wait for nothing."""

from __future__ import annotations

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

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import memory_pool
from resilient_pq import sync as rpq
from resilient_pq.blocking import _keep_all_rows
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.loop_portal import Portal, portal
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


def test_what_is_left_before_there_is_a_loop_begins_with_it() -> None:
    ended: list[int] = []

    async def end() -> None:
        ended.append(1)

    alone = Portal()
    alone.end_later(end())
    assert not ended
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
    loop = alone._running()
    loop.call_soon_threadsafe(loop.stop)
