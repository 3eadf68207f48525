"""Page indexes and bloom filters are taken over with their row groups, as far as checksums vouch for them."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.format.footer import read_footer
from resilient_pq.io.memory_store import MemoryStore

TABLE = pa.table(
    {
        "n": range(40),
        "s": [f"text {i}" for i in range(40)],
        "l": pa.array([[i] * (i % 3) for i in range(40)], pa.list_(pa.int32())),
    }
)
PATHS = ("n", "s", "l.list.element")


@pytest.fixture(scope="module")
def whole(write_file: Any) -> bytes:
    options = rpq.WriteOptions(page_rows=4, bloom_filter_options=["n", "s", "l"])
    data: bytes = asyncio.run(write_file(TABLE, options=options)).data
    return data


def chunks_of(data: bytes) -> list[list[Any]]:
    metadata = read_footer(memoryview(data), 0).metadata
    return [row_group.columns for row_group in metadata.row_groups]


async def recovered(data: bytes) -> tuple[rpq.Report, MemoryStore]:
    store = MemoryStore()
    await store.put("damaged", data)
    return await rpq.recover((store, "damaged"), (store, "out")), store


@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
async def test_those_of_whole_row_groups(whole: bytes) -> None:
    damaged = bytearray(whole)
    damaged[chunks_of(whole)[1][0].meta_data.data_page_offset + 30] ^= 1
    report, store = await recovered(bytes(damaged))
    assert report.num_rows == 37  # a page is lost, which had three rows
    assert (await rpq.check((store, "out"))).outcome is rpq.Outcome.INCOMPLETE  # salvaged, and nothing else
    async with rpq.open((store, "out")) as file:
        for at in (0, 2, 3):
            rows = TABLE.slice(10 * at, 10)
            for path in PATHS:
                column = await file.column_index(at, path)
                assert column.pages[0].min is not None
                offsets = await file.offset_index(at, path)
                assert len(offsets.page_locations) == len(column.pages) == 3
                values = rows[path[0]].combine_chunks()
                inside = values.flatten() if path.startswith("l") else values
                assert (await file.bloom_filter(at, path)).may_contain(inside).all()
        assert (await file.column_index(2, "n")).pages[0].min == 20
        # Those of the damaged row group are made anew.
        left = pa.table(await file.read(row_groups=[1]))
        for path in PATHS:
            column = await file.column_index(1, path)
            assert column.pages[0].min is not None
            assert (await file.offset_index(1, path)) is not None
            values = left[path[0]].combine_chunks()
            inside = values.flatten() if path.startswith("l") else values
            assert (await file.bloom_filter(1, path)).may_contain(inside).all()
    data = bytes((await store.read_tail("out", 1 << 40)).data)
    kept = pq.read_table(io.BytesIO(data), filters=[("n", ">=", 25)])
    assert kept["n"].to_pylist() == list(range(25, 40))


@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
@pytest.mark.parametrize("what", ["column_index", "offset_index", "bloom_filter"])
async def test_damaged_ones_are_left_behind(whole: bytes, what: str) -> None:
    chunk = chunks_of(whole)[2][1]
    damaged = bytearray(whole)
    damaged[getattr(chunk.meta_data if what == "bloom_filter" else chunk, f"{what}_offset") + 5] ^= 1
    report, store = await recovered(bytes(damaged))
    assert report.num_rows == 40 and report.outcome is rpq.Outcome.RECOVERED
    assert (await rpq.check((store, "out"))).outcome is rpq.Outcome.INCOMPLETE
    async with rpq.open((store, "out")) as file:
        found = await getattr(file, what)(2, "s")
        # Where pages lie can be told from the pages themselves.
        assert (found is None) == (what != "offset_index")
        assert await getattr(file, what)(1, "s") is not None
        assert pa.table(await file.read()).equals(TABLE)


@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
async def test_records_say_where_pages_lie_but_not_what_is_in_them(whole: bytes) -> None:
    """A file that is cut has no indexes; those of offsets are in the row groups' records."""
    end = chunks_of(whole)[2][0].meta_data.data_page_offset
    report, store = await recovered(whole[:end])
    await store.put("whole", whole)
    assert report.num_rows == 20
    assert (await rpq.check((store, "out"))).outcome is rpq.Outcome.INCOMPLETE
    async with rpq.open((store, "whole")) as original, rpq.open((store, "out")) as file:
        for path in PATHS:
            assert await file.column_index(1, path) is None
            assert (await file.bloom_filter(1, path)) is not None
            assert await file.offset_index(1, path) == await original.offset_index(1, path)
            assert len((await file.offset_index(1, path)).page_locations) == 3
    data = bytes((await store.read_tail("out", 1 << 40)).data)
    kept = pq.read_table(io.BytesIO(data), filters=[("n", ">=", 5)])
    assert kept["n"].to_pylist() == list(range(5, 20))
