"""Any table, split into any number of files, is read back equal through the summary of their folder."""

from __future__ import annotations

import asyncio
import io
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampled import in_both_suites

import resilient_pq as rpq
from resilient_pq.io import MemoryStore

Draw = st.DataObject
quick = settings(deadline=None, suppress_health_check=list(HealthCheck))


def _parts(draw: Draw, table: pa.Table) -> list[pa.Table]:
    """The table in order, in pieces that may be empty."""
    cuts = draw.draw(st.lists(st.integers(0, table.num_rows), max_size=6))
    return [table.slice(start, end - start) for start, end in pairwise([*sorted({0, *cuts}), table.num_rows])]


async def _through_summary(parts: list[bytes], options: rpq.ReadOptions, row_groups: Any) -> tuple[pa.Table, list[int]]:
    """All rows, or those of some row groups; and how many rows each row group has."""
    store = MemoryStore()
    for number, data in enumerate(parts):
        await store.put(f"data/{number:02}/part.parquet", data)
    written = await rpq.write_metadata((store, "data"))
    assert written.num_files == len(parts)
    theirs = pq.read_metadata(pa.BufferReader(bytes((await store.read_tail("data/_metadata", 1 << 40)).data)))
    async with rpq.open((store, "data/_metadata"), options=options) as file:
        assert file.contents.verified and file.num_rows == theirs.num_rows == written.num_rows
        chosen = row_groups(file.num_row_groups)
        table = pa.table(await file.read(row_groups=chosen))
        batches = [pa.table(batch) async for batch in file.batches(7, row_groups=chosen)]
        assert sum(batch.num_rows for batch in batches) == table.num_rows
        counts = [group.num_rows for group in file.metadata.row_groups]
        assert counts == [theirs.row_group(i).num_rows for i in range(theirs.num_row_groups)]
    assert (await rpq.check((store, "data/_metadata"))).outcome is rpq.Outcome.SOUND
    table.validate(full=True)
    return table, counts


def _read_options(draw: Draw) -> rpq.ReadOptions:
    return rpq.ReadOptions(
        tail_bytes=draw.draw(st.sampled_from([8, 1 << 18])),
        max_requests=draw.draw(st.integers(1, 4)),
        memory_budget=draw.draw(st.sampled_from([1, 1 << 26])),
    )


def _split(draw: Draw, tables: Any, ways: Any, written: Any, assert_same: Any) -> None:
    table = draw.draw(tables(40, depth=0))
    parts = [written([part], table.schema, draw.draw(ways)) for part in _parts(draw, table)]
    found, counts = asyncio.run(_through_summary(parts, _read_options(draw), range))
    assert_same(found, table)
    chosen = draw.draw(st.lists(st.integers(0, len(counts) - 1), max_size=4)) if counts else []
    found, _ = asyncio.run(_through_summary(parts, rpq.ReadOptions(), lambda _: chosen))
    starts = [sum(counts[:ordinal]) for ordinal in chosen]
    pieces = [table.slice(start, counts[ordinal]) for start, ordinal in zip(starts, chosen, strict=True)]
    assert_same(found, pa.concat_tables([table.slice(0, 0), *pieces]))


@in_both_suites
@given(draw=st.data())
@settings(quick, max_examples=max(15, quick.max_examples // 5))
def test_split_into_files(draw: Draw, tables: Any, ways: Any, written: Any, assert_same: Any) -> None:
    _split(draw, tables, ways, written, assert_same)


@given(draw=st.data())
@settings(quick, max_examples=15)
def test_split_into_files_of_theirs(draw: Draw, tables: Any, leaf_of: Any) -> None:
    kinds = (pa.int64(), pa.int8(), pa.string(), pa.float64(), pa.bool_(), pa.binary())
    table = draw.draw(tables(12, leaves=[leaf_of(kind) for kind in kinds], depth=0))
    parts = []
    for part in _parts(draw, table):
        out = io.BytesIO()
        pq.write_table(
            part, out, row_group_size=draw.draw(st.integers(1, 8)),
            use_dictionary=draw.draw(st.booleans()), write_page_index=draw.draw(st.booleans()),
        )  # fmt: skip
        parts.append(out.getvalue())
    found, _ = asyncio.run(_through_summary(parts, _read_options(draw), range))
    expected = pa.concat_tables([pq.read_table(pa.BufferReader(part)) for part in parts])
    assert found.schema.equals(expected.schema)
    for name in table.column_names:
        assert repr(found[name].to_pylist()) == repr(expected[name].to_pylist()), name
