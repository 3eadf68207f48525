"""The requests of a read, told in the words of the format."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.io.memory import MemoryStore
from resilient_pq.io.testing import Call, RecordingStore

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
    store = MemoryStore()
    chosen = {"row_group_rows": 100, "checkpoint_every": None, "compression": "none", **options}
    async with rpq.create((store, "file"), **chosen) as writer:
        await writer.write(table)
    return bytes((await store.read_tail("file", 1 << 40)).data)


class Told:
    """Renders calls in the format's words, by what pyarrow says of the file."""

    def __init__(self, data: bytes) -> None:
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
                name if call.start <= start and end <= call.end else f"part of {name}"
                for start, end, ordinal, name in self._chunks
                if ordinal == i and start < call.end and call.start < end
            ]
            if names:
                words.append(f"row group {i}: {', '.join(names)}")
        if call.end > self._footer:
            words.append("footer" if call.start <= self._footer else "part of the footer")
        return "; ".join(words) or f"{call.start:,} to {call.end:,}"


@pytest.fixture(scope="session")
def table() -> pa.Table:
    return rows()


@pytest.fixture(scope="session")
def data(table: pa.Table) -> bytes:
    return asyncio.run(written(table))


@pytest.fixture
async def store(data: bytes) -> RecordingStore:
    """The file in memory, behind a store that remembers what it is asked for."""
    recording = RecordingStore(MemoryStore())
    await recording.put("file", data)
    recording.calls.clear()
    return recording


@pytest.fixture
def log(store: RecordingStore, data: bytes) -> Callable[[], list[str]]:
    """What the store was asked for since the last call, request by request."""
    told = Told(data)

    def since() -> list[str]:
        lines = [told(call) for call in store.calls]
        store.calls.clear()
        return lines

    return since
