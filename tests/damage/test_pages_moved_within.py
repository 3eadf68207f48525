"""Pages of files of other writers that change places, so that all between them lie elsewhere: no value is wrong."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.format.pages.page import Page, pages_of
from resilient_pq.io.memory_store import MemoryStore


def written() -> tuple[bytes, pa.Table]:
    """Three row groups of two pages a chunk, with checksums, and nothing else that tells values apart."""
    rng = random.Random(7)
    texts = [f"{rng.getrandbits(8 * (12 - i // 20)):x}" for i in range(120)]
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("text", pa.string())])
    table = pa.table({"id": list(range(120)), "text": texts}, schema)
    out = io.BytesIO()
    pq.write_table(
        table, out, row_group_size=40, use_dictionary=False, write_statistics=False, compression="none",
        write_page_checksum=True, data_page_size=8, write_batch_size=20,
    )  # fmt: skip
    return out.getvalue(), table


def last_page(data: bytes, group: int) -> Page:
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(group).column(1)
    start = chunk.data_page_offset
    *_, last = pages_of(memoryview(data)[start : start + chunk.total_compressed_size], start)
    return last


@pytest.mark.parametrize("on_damage", ["raise", "drop"])
async def test_no_row_has_values_of_another(on_damage: str) -> None:
    data, table = written()
    one, other = (last_page(data, group) for group in (1, 2))
    assert one.num_values == other.num_values and one.end - one.offset > other.end - other.offset
    between = data[one.end : other.offset]
    damaged = data[: one.offset] + data[other.offset : other.end] + between + data[one.offset : one.end]
    store = MemoryStore()
    await store.put("a", damaged + data[other.end :])
    assert (await rpq.check((store, "a"))).exit_code == 1
    if on_damage == "raise":
        with pytest.raises(rpq.FormatError):
            async with rpq.open((store, "a")) as file:
                await file.read()
        return
    async with rpq.open((store, "a"), on_damage="drop", on_lost=lambda region: None) as file:
        found = pa.table(await file.read())
    assert found.equals(table.take(found["id"])) and 40 <= found.num_rows < 120
