"""Pages of files of other writers that change places, so that all between them lie elsewhere: no value is wrong."""

from __future__ import annotations

import io
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.format import compact_protocol
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


async def test_a_header_that_takes_values_for_levels() -> None:
    """The checksum of a page does not cover its header: levels have to end where that says."""
    names = [f"name {i % 7}" for i in range(40)]
    out = io.BytesIO()
    table = pa.table({"id": pa.array(range(40), pa.int32()), "name": names})
    pq.write_table(
        table, out, data_page_version="2.0", compression="zstd", write_page_checksum=True, data_page_size=8,
        write_batch_size=10, use_dictionary=["name"],
    )  # fmt: skip
    data, chunk = out.getvalue(), pq.read_metadata(out).row_group(0).column(1)
    end = chunk.dictionary_page_offset + chunk.total_compressed_size
    pages = list(pages_of(memoryview(data)[chunk.dictionary_page_offset : end], chunk.dictionary_page_offset))
    store = MemoryStore()
    await store.put("whole", data)
    for page in pages[1:]:
        detail = page.header.data_page_header_v2
        assert detail is not None and not detail.repetition_levels_byte_length
        for more in range(1, len(page.body) - detail.definition_levels_byte_length):
            longer = replace(detail, definition_levels_byte_length=detail.definition_levels_byte_length + more)
            header = compact_protocol.encode(replace(page.header, data_page_header_v2=longer))
            assert len(header) == len(page.header_bytes)
            await store.put("torn", data[: page.offset] + header + data[page.offset + len(header) : end])
            await rpq.recover(
                (store, "torn"), (store, "saved"), schema_from=(store, "whole"), on_damage="null", overwrite=True
            )
            found = pq.read_table(io.BytesIO((await store.read_tail("saved", 1 << 20)).data))
            left = found["name"].to_pylist()
            assert all(
                name in (None, names[number]) for number, name in zip(found["id"].to_pylist(), left, strict=True)
            )
