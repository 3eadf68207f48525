"""The requests of a read, told in the words of the format."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes
from store_wrapper import Call, RecordingStore

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore

#: The data pages of a column chunk, by its row group and column.
Pages = dict[tuple[int, str], list[range]]
COLUMNS = ("id", "town", "wide", "score")


def rows() -> pa.Table:
    """Three row groups of a hundred rows; `wide` keeps the columns beside it apart by 400 KB."""
    count = 300
    return pa.table(
        {
            "id": list(range(count)),
            "town": [f"town {i % 7}" for i in range(count)],
            "wide": [random.Random(i).randbytes(4_000) for i in range(count)],
            "score": [i / 3 for i in range(count)],
        }
    )


async def written(table: pa.Table, **options: Any) -> bytes:
    return await file_bytes(
        table, **{"row_group_rows": 100, "checkpoint_every": None, "compression": "none", **options}
    )


class Told:
    """Renders calls in the format's words, by what pyarrow says of the file."""

    def __init__(self, data: bytes, pages: Pages | None = None) -> None:
        self._pages = pages or {}
        metadata = pq.read_metadata(io.BytesIO(data))
        self._size = len(data)
        self._footer = len(data) - 8 - metadata.serialized_size
        self._chunks: list[tuple[int, int, int, str]] = []
        for i in range(metadata.num_row_groups):
            for j in range(metadata.num_columns):
                chunk = metadata.row_group(i).column(j)
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                end = start + chunk.total_compressed_size
                self._chunks.append((start, end, i, chunk.path_in_schema))

    def __call__(self, call: Call) -> str:
        if call.verb == "read_tail":
            return f"tail of {-(call.start or 0):,} bytes"
        if call.verb != "read_range" or call.start is None or call.end is None:
            return call.verb
        words = []
        for i in sorted({i for _, _, i, _ in self._chunks}):
            names = [
                name if call.start <= start and end <= call.end else self._part(call, i, name, start)
                for start, end, ordinal, name in self._chunks
                if ordinal == i and start < call.end and call.start < end
            ]
            if names:
                words.append(f"row group {i}: {', '.join(names)}")
        if call.end > self._footer:
            words.append("footer" if call.start <= self._footer else "part of the footer")
        return "; ".join(words) or f"{call.start:,} to {call.end:,}"

    def _part(self, call: Call, row_group: int, name: str, start: int) -> str:
        """The pages of a chunk that a call is for, where it begins and ends with one."""
        pages = self._pages.get((row_group, name))
        assert call.start is not None and call.end is not None
        if pages is None:
            return f"part of {name}"
        data = [page for page in pages if call.start <= page.start and page.stop <= call.end]
        words = ["dictionary"] if call.start <= start < pages[0].start <= call.end else []
        if data:
            words.append(f"{len(data)} of {len(pages)} pages")
        size = sum(map(len, data)) + (pages[0].start - start if words[:1] == ["dictionary"] else 0)
        exactly = size == min(call.end, pages[-1].stop) - max(call.start, start)
        return f"{' and '.join(words)} of {name}" if exactly else f"part of {name}"


@pytest.fixture(scope="session")
def table() -> pa.Table:
    return rows()


@pytest.fixture(scope="session")
def data(table: pa.Table) -> bytes:
    return asyncio.run(written(table))


@pytest.fixture
async def store(data: bytes) -> RecordingStore:
    """The file in memory, behind a store that remembers what it is asked for."""
    return await _recording(data)


async def _recording(data: bytes) -> RecordingStore:
    recording = RecordingStore(MemoryStore())
    await recording.put("file", data)
    recording.calls.clear()
    return recording


async def pages_of(data: bytes) -> Pages:
    store = MemoryStore()
    await store.put("file", data)
    found: Pages = {}
    async with rpq.open((store, "file")) as file:
        for group in range(file.num_row_groups):
            for leaf in file.schema.leaves:
                index = await file.offset_index(group, leaf.ordinal)
                assert index is not None
                found[group, leaf.column_path] = [
                    range(page.offset, page.offset + page.compressed_page_size) for page in index.page_locations
                ]
    return found


@pytest.fixture(scope="session")
def paged_data() -> bytes:
    """Two row groups of 2,000 rows, in pages of a hundred: flat, in a struct and in a list."""
    count = 4_000
    table = pa.table(
        {
            "key": range(count),
            "town": [f"town {i % 7}" for i in range(count)],
            "wide": [random.Random(i).randbytes(1_000) for i in range(count)],
            "inner": [{"x": i // 50, "y": None if i % 3 == 0 else i} for i in range(count)],
            "list": [[i] * (i % 4) for i in range(count)],
        }
    )
    options = rpq.WriteOptions(page_rows=100)
    plain = {"wide": "PLAIN", "key": "PLAIN", "inner.x": "PLAIN", "inner.y": "PLAIN", "list.list.element": "PLAIN"}
    return asyncio.run(written(table, row_group_rows=2_000, encodings=plain, options=options))


@pytest.fixture
async def paged_store(paged_data: bytes) -> RecordingStore:
    """That file, behind a store that remembers what it is asked for."""
    return await _recording(paged_data)


@pytest.fixture
async def paged_log(paged_store: RecordingStore, paged_data: bytes) -> Callable[[], list[str]]:
    """What that store was asked for since the last call, page by page."""
    return partial(_since, paged_store, Told(paged_data, await pages_of(paged_data)))


@pytest.fixture
def log(store: RecordingStore, data: bytes) -> Callable[[], list[str]]:
    """What the store was asked for since the last call, request by request."""
    return partial(_since, store, Told(data))


def _since(store: RecordingStore, told: Told) -> list[str]:
    lines = [told(call) for call in store.calls]
    store.calls.clear()
    return lines
