"""What the reader's tests share: a resilient file in memory, and one of pyarrow's."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import content

import resilient_pq as rpq
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.format.resilience_records import RecordChain, RecordKind
from resilient_pq.io.memory_store import MemoryStore

ROWS = pa.table(
    {
        "n": pa.array(range(90)),
        "s": pa.array([None if i % 7 == 0 else f"text {i % 11}" for i in range(90)]),
        "f": pa.array([i / 3 for i in range(90)]),
        "l": pa.array([None if i % 5 == 0 else [i] * (i % 4) for i in range(90)], pa.list_(pa.int32())),
    }
)


async def _write(store: MemoryStore, key: str, table: pa.Table, **options: Any) -> None:
    chosen = {"row_group_rows": 20, "checkpoint_every": 2, "checkpoint_overhead": 100.0, **options}
    async with rpq.create((store, key), **chosen) as writer:
        await writer.write(table)


@pytest.fixture(scope="session")
def rows() -> pa.Table:
    """90 rows of four columns."""
    return ROWS


@pytest.fixture(scope="session")
def our_bytes() -> bytes:
    """`rows` in five row groups and two checkpoints."""

    async def make() -> bytes:
        store = MemoryStore()
        await _write(store, "file", ROWS)
        return await content(store, "file")

    return asyncio.run(make())


@pytest.fixture(scope="session")
def their_bytes() -> bytes:
    """`rows` as pyarrow writes them, with checksums."""
    out = io.BytesIO()
    pq.write_table(ROWS, out, row_group_size=20, write_page_checksum=True)
    return out.getvalue()


@pytest.fixture(scope="session")
def stored() -> Callable[[bytes], Awaitable[MemoryStore]]:
    """A store with one object, ``file``."""

    async def put(data: bytes) -> MemoryStore:
        store = MemoryStore()
        await store.put("file", data)
        return store

    return put


@pytest.fixture(scope="session")
def with_footer() -> Callable[..., bytes]:
    """A file's bytes with its footer changed by a function; vouched for by a record when it was and is to be."""

    def change(data: bytes, edit: Callable[[FileMetaData], object], *, vouch: bool = True) -> bytes:
        start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        metadata, _ = compact_protocol.decode(FileMetaData, data, start)
        edit(metadata)
        framed = footer.frame(compact_protocol.encode(metadata))
        if not vouch:
            return data[:start] + framed
        at = start - 96
        file_id = data[at + 16 : at + 32]
        return data[:at] + RecordChain(file_id).record(RecordKind.FINAL, at, framed, num_rows=90, num_row_groups=5)

    return change
