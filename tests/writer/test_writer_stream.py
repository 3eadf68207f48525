"""What a writer puts beside row groups, how it is entered, and that it needs a schema."""

from __future__ import annotations

import io
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.format import compact_protocol
from resilient_pq.format.resilience_records import RecordKind, RowGroupRecord
from resilient_pq.io import MemoryStore
from resilient_pq.recovery.evidence.records.record_scan import in_place, scan_headers

ROWS = 1_000


def table(start: int = 0, rows: int = ROWS) -> pa.Table:
    numbers = np.arange(start, start + rows)
    return pa.table({"n": numbers, "s": [None if n % 5 == 0 else f"value {n % 13}" for n in numbers]})


async def content(store: MemoryStore, key: str = "f") -> bytes:
    info = await store.head(key)
    return bytes(await store.read_range(key, 0, info.size, pin=info))


async def read_back(store: MemoryStore, key: str = "f") -> pa.Table:
    return pq.read_table(io.BytesIO(await content(store, key)))


@pytest.mark.parametrize(("entries", "is_copied"), [(8192, True), (8193, False)])
async def test_dictionaries_up_to_64_kib_have_a_copy(entries: int, is_copied: bool) -> None:
    """In the record of their row group, as they are stored."""
    store = MemoryStore()
    async with rpq.create((store, "f"), compression=None) as writer:
        values = [f"{i:04}" for i in range(entries)]  # of eight bytes each, with their lengths
        await writer.write(pa.table({"s": random.Random(1).sample(values * 8, k=8 * entries)}))
    data = (await store.read_tail("f", 1 << 30)).data
    record = next(header for header in in_place(scan_headers(data, 0)) if header.kind == RecordKind.ROW_GROUP)
    (copies,) = compact_protocol.decode(RowGroupRecord, data, record.payload_offset)[0].chunks
    assert copies.dictionary_page is not None
    assert (copies.dictionary_copy is not None) == is_copied
    assert not is_copied or len(copies.dictionary_copy) == 8 * entries


async def test_a_writer_that_was_awaited_is_a_context_too() -> None:
    store = MemoryStore()
    writer = await rpq.create((store, "f"))
    async with writer as same:
        assert same is writer
        await same.write(table())
    assert (await read_back(store)).num_rows == ROWS


async def test_neither_rows_nor_schema() -> None:
    store = MemoryStore()
    with pytest.raises(rpq.SchemaError, match="no schema"):
        async with rpq.create((store, "f")):
            pass
    with pytest.raises(rpq.NotFoundError):
        await store.head("f")
