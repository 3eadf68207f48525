"""Local files are read by the threads that decode them: with the same rows, losses and errors as any other store."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import memory_pool
from resilient_pq.format import kernels
from resilient_pq.io import LocalStore, MemoryStore, OpenObject
from resilient_pq.reader import read_units, row_groups

#: What is tested here is what threads do.
pytestmark = pytest.mark.usefixtures("threads_for_small_chunks")

NUMBERS = np.random.default_rng(7).integers(0, 1 << 40, 120_000)
TABLE = pa.table(
    {
        "n": NUMBERS,
        "s": pa.array([None if n % 7 == 0 else f"text {n % 1000}" for n in NUMBERS.tolist()]),
        "lists": pa.array([[int(n), None][: n % 3] or None for n in NUMBERS.tolist()]),
        "points": pa.StructArray.from_arrays([pa.array(NUMBERS), pa.array(NUMBERS / 3)], ["x", "y"]),
    }
)


@pytest.fixture(scope="module")
def data() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        TABLE, sink, row_group_size=25_000, compression="none", use_dictionary=False, write_page_checksum=True
    )
    return sink.getvalue().to_pybytes()


@pytest.fixture
def path(data: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "f.parquet"
    path.write_bytes(data)
    return path


class Watched(OpenObject):
    """An open object that tells which threads read it, how much they hold, and is told when to fail."""

    def __init__(self, inner: OpenObject, log: Log) -> None:
        self.inner, self.log = inner, log
        log.opened += 1

    def read(self, start: int, end: int) -> memoryview:
        self.log.threads.add(threading.get_ident())
        self.log.reads.append((start, end))
        if self.log.before is not None:
            self.log.before()
        return self.inner.read(start, end)

    def close(self) -> None:
        self.inner.close()
        self.log.closed += 1
        self.log.ended.set()


class Log:
    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.ended = threading.Event()
        self.threads: set[int] = set()
        self.reads: list[tuple[int, int]] = []
        self.before: Callable[[], object] | None = None


class WatchedStore(LocalStore):
    def __init__(self) -> None:
        super().__init__()
        self.log = Log()

    @property
    def opener(self) -> Any:
        opener = super().opener
        return lambda pin: Watched(opener(pin), self.log)


@pytest.mark.parametrize("max_threads", [1, 2, 5, None])
@pytest.mark.parametrize("columns", [None, ["s"], ["lists", "n"], ["points"]], ids=str)
async def test_the_rows_are_those_written(path: Path, columns: list[str] | None, max_threads: int | None) -> None:
    expected = pq.read_table(path, columns=columns)
    async with rpq.open(path, options=rpq.ReadOptions(max_threads=max_threads)) as file:
        table = pa.table(await file.read(columns))
        assert table.equals(expected.select(table.column_names))
        backwards = pa.table(await file.read(columns, row_groups=[4, 0, 4]))
        assert backwards.slice(20_000).equals(pa.concat_tables([table.slice(0, 25_000), table.slice(100_000)]))
        assert pa.concat_tables([pa.table(part) async for part in file.batches(9_999, columns)]).equals(table)


async def test_one_thread_means_one(path: Path) -> None:
    store = WatchedStore()
    async with rpq.open((store, str(path)), options=rpq.ReadOptions(max_threads=1)) as file:
        await file.read()
    assert len(store.log.threads) == 1 and store.log.opened == store.log.closed == 1


async def test_small_neighbours_are_one_read_and_large_chunks_one_each(path: Path) -> None:
    store = WatchedStore()
    async with rpq.open((store, str(path))) as file:
        await file.read()
        sizes = [end - start for start, end in store.log.reads]
        assert sum(sizes) == file.counters.useful_bytes and len(sizes) == 25
        assert file.counters.requests == 1 + len(sizes)
    small = path.with_name("small")
    pq.write_table(TABLE.slice(0, 500), small)
    store = WatchedStore()
    async with rpq.open((store, str(small))) as file:
        await file.read()
        assert len(store.log.reads) == 1


async def test_what_is_held_before_it_is_decoded_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, most, lock, real = 0, 0, threading.Lock(), row_groups.decode_parts

    def decode(chunk: Any, parts: list[memoryview], *, verify: bool, layout: Any) -> Any:
        nonlocal held, most
        size = sum(map(len, parts))
        with lock:
            held += size
            most = max(most, held)
        try:
            return real(chunk, parts, verify=verify, layout=layout)
        finally:
            with lock:
                held -= size

    monkeypatch.setattr(row_groups, "decode_parts", decode)
    async with rpq.open(path, options=rpq.ReadOptions(max_threads=4, memory_budget=300_000)) as file:
        assert pa.table(await file.read()).equals(pq.read_table(path))
    largest = 200_000 + 1_000  # of the plain numbers of a row group
    assert 0 < most <= max(300_000, largest * 2)


def broken(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize("on_damage", ["null", "drop"])
async def test_damage_is_read_around_as_anywhere(data: bytes, path: Path, on_damage: Any) -> None:
    footer = pq.read_metadata(path)
    bad = data
    for group, column in [(1, 1), (1, 2), (3, 0)]:
        chunk = footer.row_group(group).column(column)
        bad = broken(bad, chunk.data_page_offset + chunk.total_compressed_size // 2)
    path.write_bytes(bad)
    memory = MemoryStore()
    await memory.put("f", bad)
    found = []
    for where in (path, (memory, "f")):
        lost: list[rpq.LostRegion] = []
        async with rpq.open(where, on_damage=on_damage, on_lost=lost.append) as file:  # type: ignore[arg-type]
            found.append((pa.table(await file.read()), [(region.start, region.end) for region in lost]))
    (here, lost_here), (there, lost_there) = found
    assert here.equals(there) and lost_here == lost_there and len(lost_here) >= 3


async def test_damage_is_an_error_that_names_its_place(data: bytes, path: Path) -> None:
    chunk = pq.read_metadata(path).row_group(2).column(1)
    path.write_bytes(broken(data, chunk.data_page_offset + chunk.total_compressed_size // 2))
    async with rpq.open(path) as file:
        with pytest.raises(rpq.ChecksumError) as caught:
            await file.read()
        where = caught.value.where
        assert (where.key, where.row_group, where.column) == (str(path), 2, "s") and where.page is not None
        assert pa.table(await file.read(["n"])).num_rows == len(TABLE)


async def test_what_a_disk_gave_wrong_once_is_read_again(
    path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real, seen = WatchedStore(), row_groups.decode_parts, set()

    def once_wrong(chunk: Any, parts: list[memoryview], *, verify: bool, layout: Any) -> Any:
        if chunk.range.start in seen:
            return real(chunk, parts, verify=verify, layout=layout)
        seen.add(chunk.range.start)
        (data,) = parts
        return real(chunk, [memoryview(broken(bytes(data), len(data) // 2))], verify=verify, layout=layout)

    monkeypatch.setattr(kernels, "ChunkBatch", kernels.reference.ChunkBatch)
    monkeypatch.setattr(row_groups, "decode_parts", once_wrong)
    async with rpq.open((store, str(path))) as file:
        assert pa.table(await file.read(["n"])).equals(pq.read_table(path, columns=["n"]))
    assert len(store.log.reads) == 10


async def test_a_file_that_is_replaced_is_noticed(data: bytes, path: Path) -> None:
    async with rpq.open(path) as file:
        other = path.with_name("other")
        other.write_bytes(data)
        os.replace(other, path)
        with pytest.raises(rpq.ObjectChangedError, match="replaced"):
            await file.read()


async def test_a_file_that_is_cut_while_it_is_read_is_noticed(path: Path) -> None:
    store = WatchedStore()
    async with rpq.open((store, str(path)), options=rpq.ReadOptions(max_threads=2)) as file:
        store.log.before = lambda: os.truncate(path, 1_000)
        with pytest.raises(rpq.ObjectChangedError):
            await file.read()
    assert store.log.opened == store.log.closed > 0


async def test_a_cancelled_read_ends_its_threads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_units, "_UNIT", 1)
    store, begun, gate = WatchedStore(), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        gate.wait(10)

    async with rpq.open((store, str(path)), options=rpq.ReadOptions(max_threads=1)) as file:
        store.log.before = wait
        reading = asyncio.create_task(file.read())
        await asyncio.to_thread(begun.wait, 10)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        store.log.before = None
        gate.set()
        assert await asyncio.to_thread(store.log.ended.wait, 10)
        assert len(store.log.reads) == 1
        assert pa.table(await file.read(["n"])).num_rows == len(TABLE)


async def test_nothing_of_a_read_stays_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker thread lets go of what it did a moment after its result is there, so that is waited for."""
    leases: weakref.WeakSet[Lease] = weakref.WeakSet()

    class Lease(memory_pool._Lease):
        def __init__(self, size: int, shape: tuple[int, ...], typestr: str) -> None:
            super().__init__(size, shape, typestr)
            leases.add(self)

    monkeypatch.setattr(memory_pool, "_Lease", Lease)
    async with rpq.open(path) as file:
        table = await file.read()
        assert len(leases) > 0
        del table
        await file.read(["n"])
    del file
    async with asyncio.timeout(60):
        while len(leases):
            gc.collect()
            await asyncio.sleep(0.01)
