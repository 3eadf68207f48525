"""What statistics, page indexes and bloom filters say of values is true of the values: in our files, and in theirs.

Values are compared as `bounds_of` finds their extremes when it writes them, which has tests of its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from corpus_of_others import CORPUS, of_corpus
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampled import either

import resilient_pq as rpq
from resilient_pq.errors import ResilientPQError
from resilient_pq.format.file_metadata import BoundaryOrder, Type
from resilient_pq.format.indexes.split_block_filter import BloomFilter
from resilient_pq.format.indexes.statistics import bounds_of
from resilient_pq.format.indexes.trusted_bounds import ColumnStatistics
from resilient_pq.format.levels import row_starts
from resilient_pq.format.physical_values import ByteArrays, LeafColumn, Values
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.reader.decoder import decode
from resilient_pq.reader.read_plan import chunk_read

Draw = st.DataObject
quick = settings(deadline=None, suppress_health_check=list(HealthCheck))


@dataclasses.dataclass
class Tally:
    """How much was looked at, so that a test which looks at nothing fails."""

    bounds: int = 0
    pages: int = 0
    filters: int = 0
    unfiltered: int = 0
    histograms: int = 0


async def examine(data: bytes, tally: Tally) -> None:
    """Hold all that a file says of its values against the values."""
    store = MemoryStore()
    await store.put("file", data)
    async with rpq.open((store, "file"), verify=False) as file:
        for ordinal in range(file.num_row_groups):
            for leaf in file.schema.leaves:
                chunk = chunk_read(file.contents, ordinal, leaf)
                try:
                    column = decode(chunk, data[chunk.range.start : chunk.range.end], verify=False)
                except ResilientPQError:
                    continue  # whether it can be read is not the question here
                await _examine_chunk(file, ordinal, column, chunk.metadata.num_values, tally)


async def _examine_chunk(file: rpq.File, ordinal: int, column: LeafColumn, entries: int, tally: Tally) -> None:
    leaf = column.leaf
    said = file.statistics(ordinal, leaf.ordinal)
    inside = _present(column, 0, len(column.values))
    _examine(said, leaf, inside, entries, tally, exact=True)
    found = await file.bloom_filter(ordinal, leaf.ordinal)
    if found is not None:
        bits: BloomFilter = found._bits
        assert bits.may_contain(leaf.node, inside).all()
        tally.filters += 1
    elif leaf.node.physical_type is not Type.BOOLEAN:
        tally.unfiltered += 1
    offsets = await file.offset_index(ordinal, leaf.ordinal)
    index = await file.column_index(ordinal, leaf.ordinal)
    if offsets is None:
        assert index is None
        return
    rows = [page.first_row_index for page in offsets.page_locations] + [column.num_rows]
    spans = list(_spans(column, rows))
    sizes = offsets.unencoded_byte_array_data_bytes
    if sizes:
        assert sizes == [_num_bytes(_present(column, *slots)) for slots, _ in spans]
    if index is None:
        return
    assert len(index.pages) == len(spans)
    for page, (slots, count) in zip(index.pages, spans, strict=True):
        _examine(page, leaf, _present(column, *slots), count, tally, exact=False)
        tally.pages += 1
    filled = [page for page in index.pages if page.low is not None]
    if index.boundary_order is BoundaryOrder.DESCENDING:
        filled.reverse()
    if index.boundary_order is not BoundaryOrder.UNORDERED:
        assert all(one.low <= two.low and one.high <= two.high for one, two in pairwise(filled))


def _spans(column: LeafColumn, rows: list[int]) -> Iterator[tuple[tuple[int, int], int]]:
    """For each page its slots, first and end, and its number of entries."""
    if column.repetition_levels is None:
        yield from (((first, end), end - first) for first, end in pairwise(rows))
        return
    starts = [
        *row_starts(column.repetition_levels, len(column.repetition_levels)),
        len(column.repetition_levels),
    ]
    assert column.definition_levels is not None
    is_slot = column.definition_levels >= column.leaf.slot_definition_level
    slots_before = np.concatenate([[0], np.cumsum(is_slot)])
    for first, end in pairwise(int(starts[row]) for row in rows):
        yield (int(slots_before[first]), int(slots_before[end])), end - first


def _present(column: LeafColumn, first: int, end: int) -> Values:
    """The values of some slots, those without one left out."""
    values = column.values[first:end]
    if column.present is None:
        return values
    there = column.present[first:end]
    if isinstance(values, np.ndarray):
        return np.ascontiguousarray(values[there])
    kept = [values.value(int(at)) for at in np.flatnonzero(there)]
    return ByteArrays(np.cumsum([0, *map(len, kept)]), np.frombuffer(b"".join(kept), np.uint8))


def _num_bytes(values: Values) -> int:
    return values.num_bytes if isinstance(values, ByteArrays) else 0


def _examine(said: ColumnStatistics, leaf: Leaf, inside: Values, entries: int, tally: Tally, *, exact: bool) -> None:
    node, repeated = leaf.node, leaf.max_repetition_level > 0
    actual = bounds_of(node, inside)
    if said.low is not None and actual.low is not None:
        assert said.low <= actual.low and actual.high is not None
        assert said.is_min_exact is not True or said.low == actual.low
        tally.bounds += 1
    if said.high is not None and actual.high is not None:
        assert actual.high <= said.high
        assert said.is_max_exact is not True or said.high == actual.high
    if said.all_null:
        assert not len(inside)
    if said.null_count is not None and not repeated:  # writers disagree whether empty lists are nulls
        assert said.null_count == entries - len(inside)
    if said.nan_count is not None:
        assert said.nan_count == (actual.nan_count or 0)
    if exact and said.byte_array_bytes is not None:
        assert node.physical_type is Type.BYTE_ARRAY and said.byte_array_bytes == _num_bytes(inside)
    for histogram in (said.repetition_level_histogram, said.definition_level_histogram):
        if histogram is not None:
            assert sum(histogram) == entries
            tally.histograms += 1
    if said.definition_level_histogram is not None:
        assert said.definition_level_histogram[-1] == len(inside)
    _ = said.min, said.max  # none of them is refused


# --- ours -----------------------------------------------------------------------------------------------


def _with_filters(table: pa.Table, way: dict[str, Any], ndv: int | None) -> dict[str, Any]:
    names = [field.name for field in table.schema if not _is_boolean(field.type)]
    options = dataclasses.replace(way["options"], bloom_filter_options={name: {"ndv": ndv} for name in names})
    return {**way, "options": options}


def _is_boolean(kind: pa.DataType) -> bool:
    return pa.types.is_boolean(kind) or (pa.types.is_dictionary(kind) and pa.types.is_boolean(kind.value_type))


@pytest.mark.parametrize(("max_rows", "depth"), either([(40, 0), (20, 3)], [(40, 0), (20, 3)]))
@given(draw=st.data())
@settings(quick)
def test_of_columns(
    draw: Draw, tables: Any, ways: Any, written: Callable[..., bytes], max_rows: int, depth: int
) -> None:
    table, way = draw.draw(tables(max_rows, depth=depth)), draw.draw(ways)
    tally = Tally()
    ndv = draw.draw(st.sampled_from([None, 1, 1000]))
    asyncio.run(examine(written([table], table.schema, _with_filters(table, way, ndv)), tally))
    assert tally.unfiltered == 0


# --- theirs ---------------------------------------------------------------------------------------------

SAMPLE = (
    "data_index_bloom_encoding_stats",
    "data_index_bloom_encoding_with_length",
    "floating_orders_nan_count",
    "binary_truncated_min_max",
    "int32_with_null_pages",
    "alltypes_tiny_pages",
    "float16_nonzeros_and_nans",
    "list_columns",
)


def _corpus(name: str) -> bytes:
    return of_corpus(f"parquet-testing/data/{name}.parquet").read_bytes()


@pytest.mark.parametrize("name", SAMPLE)
def test_of_files_of_others(name: str) -> None:
    tally = Tally()
    asyncio.run(examine(_corpus(name), tally))
    assert tally.bounds + tally.filters > 0


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_of_all_files_of_others() -> None:
    """Each is examined; those that contradict themselves are known by name."""
    _corpus("alltypes_plain")
    tally, wrong = Tally(), []
    for path in sorted(CORPUS.rglob("*.parquet")):
        if path.stat().st_size > 4 << 20 or not path.is_file():
            continue
        try:
            asyncio.run(examine(path.read_bytes(), tally))
        except ResilientPQError:
            continue
        except AssertionError:
            wrong.append(path.name)
    assert tally.bounds > 1000 and tally.pages > 1000 and tally.filters > 1
    assert sorted(wrong) == []
