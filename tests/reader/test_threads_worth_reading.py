"""`format.pages.thread_count`: small chunks are read by one thread, large ones by as many as there are."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import resilient_pq as rpq
from resilient_pq.arrow.flat_columns import FlatChunks
from resilient_pq.format.file_metadata import CompressionCodec
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.thread_count import READING
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.reader.file import File
from resilient_pq.reader.read_plan import chunk_read


async def _opened(path: Path, rows: int, codec: str, row_group_rows: int) -> File:
    table = pa.table({f"c{i}": np.arange(rows) * (i + 0.5) for i in range(8)})
    async with rpq.create(path, compression=codec, row_group_rows=row_group_rows, encodings="PLAIN") as writer:
        await writer.write(table)
    return await rpq.open(path, options=rpq.ReadOptions(max_threads=2))


def threads_worth(chunks: list[ChunkRead]) -> int:
    return READING.threads_worth((chunk.num_decoded, chunk.metadata.codec) for chunk in chunks)


def _chunks(file: File) -> list[ChunkRead]:
    return [
        chunk_read(file.contents, group, leaf) for group in range(file.num_row_groups) for leaf in file.schema.leaves
    ]


@pytest.mark.parametrize(
    ("codec", "row_group_rows", "several"),
    [("none", 1_000, False), ("none", 200_000, True), ("zstd", 1_000, False), ("zstd", 50_000, True)],
)
async def test_small_chunks_are_worth_one_thread(
    tmp_path: Path, codec: str, row_group_rows: int, several: bool
) -> None:
    async with await _opened(tmp_path / "f.parquet", max(row_group_rows, 4_000), codec, row_group_rows) as file:
        assert (threads_worth(_chunks(file)) > 1) is several


async def test_no_chunks_are_worth_one_thread_and_absurd_ones_no_endless_number(tmp_path: Path) -> None:
    assert threads_worth([]) == 1
    async with await _opened(tmp_path / "f.parquet", 10, "none", 10) as file:
        chunk = _chunks(file)[0]
    chunk.metadata.total_uncompressed_size = -(2**63)
    assert threads_worth([chunk]) == 1
    chunk.metadata.total_uncompressed_size = 2**63 - 1
    chunk.metadata.codec = CompressionCodec.ZSTD
    assert threads_worth([chunk]) > 1


@pytest.mark.parametrize(("row_group_rows", "most"), [(1_000, 1), (200_000, 2)])
async def test_no_more_threads_take_part_than_pay(
    tmp_path: Path, row_group_rows: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a store is read from threads, and where the loop hands them what arrives."""
    path = tmp_path / "f.parquet"
    file = await _opened(path, max(row_group_rows, 8_000), "none", row_group_rows)
    await file.close()
    at_work, seen = 0, 0
    lock, both = threading.Lock(), threading.Event()
    decode = FlatChunks.decode

    def watched(*args: object, **kwargs: object) -> object:
        nonlocal at_work, seen
        with lock:
            at_work += 1
            seen = max(seen, at_work)
        if seen == 2:
            both.set()
        elif most == 2:
            both.wait(60)  # for the other thread, which there is
        try:
            return decode(*args, **kwargs)  # type: ignore[arg-type]
        finally:
            with lock:
                at_work -= 1

    monkeypatch.setattr(FlatChunks, "decode", watched)
    options = rpq.ReadOptions(max_threads=2)
    async with rpq.open(path, options=options) as file:
        await file.read()
    assert seen == most
    seen = 0
    both.clear()
    store = MemoryStore()
    await store.put("f", await asyncio.to_thread(path.read_bytes))
    async with rpq.open((store, "f"), options=options) as file:
        await file.read()
    assert seen == most
