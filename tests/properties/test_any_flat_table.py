"""Any table of flat columns, written in any way, is read back equal to the last bit, in full and in part."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Draw = st.DataObject
quick = settings(deadline=None, suppress_health_check=list(HealthCheck))

RECORD_MAGIC = bytes.fromhex("d75250510d0a1a0a")


def _round_trip(draw: Draw, flat_tables: Any, ways: Any, written: Any, read: Any, assert_same: Any) -> None:
    table, way = draw.draw(flat_tables()), draw.draw(ways)
    data = written([table], table.schema, way)
    assert_same(read(data), table)
    theirs = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True).read()
    for name in table.column_names:
        ours = read(data)[name]
        assert _bits(theirs[name].cast(ours.type)).equals(_bits(ours)), name


def _bits(array: pa.ChunkedArray) -> pa.ChunkedArray:
    kinds = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    if array.type not in kinds:
        return array
    return pa.chunked_array([chunk.view(kinds[array.type]) for chunk in array.chunks], kinds[array.type])


@given(draw=st.data())
@settings(quick, max_examples=70)
def test_round_trip(
    draw: Draw, flat_tables: Any, ways: Any, written: Any, read: Any, assert_same: Any
) -> None:
    _round_trip(draw, flat_tables, ways, written, read, assert_same)


@pytest.mark.thorough
@given(draw=st.data())
@settings(quick, max_examples=3000)
def test_round_trip_of_many(
    draw: Draw, flat_tables: Any, ways: Any, written: Any, read: Any, assert_same: Any
) -> None:
    _round_trip(draw, flat_tables, ways, written, read, assert_same)


@given(draw=st.data())
@settings(quick, max_examples=25)
def test_some_columns_of_some_row_groups(
    draw: Draw, flat_tables: Any, ways: Any, written: Any, read: Any, assert_same: Any
) -> None:
    table, way = draw.draw(flat_tables()), draw.draw(ways)
    data = written([table], table.schema, way)
    metadata = pq.read_metadata(io.BytesIO(data))
    starts = [0]
    for ordinal in range(metadata.num_row_groups):
        starts.append(starts[-1] + metadata.row_group(ordinal).num_rows)
    names = draw.draw(st.lists(st.sampled_from(table.column_names), unique=True, min_size=1))
    groups = draw.draw(st.lists(st.integers(0, len(starts) - 2), max_size=4)) if len(starts) > 1 else []
    pieces = [table.slice(starts[i], starts[i + 1] - starts[i]) for i in groups]
    expected = pa.concat_tables(pieces) if pieces else table.slice(0, 0)
    assert_same(read(data, columns=names, row_groups=groups), expected.select(names))


@given(draw=st.data())
@settings(quick, max_examples=20)
def test_every_prefix_is_a_file(
    draw: Draw, flat_tables: Any, ways: Any, written: Any, read: Any, assert_same: Any
) -> None:
    table, way = draw.draw(flat_tables()), {**draw.draw(ways), "checkpoint_every": 1}
    data = written([table], table.schema, way)
    for size, num_rows in _prefixes(data):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it was not finished
            assert_same(read(data[:size]), table.slice(0, num_rows))
        assert pq.ParquetFile(io.BytesIO(data[:size])).read().num_rows == num_rows


def _prefixes(data: bytes) -> list[tuple[int, int]]:
    """The ends of the anchor and of the checkpoints that lie where they say, and the rows before them."""
    found = []
    at = data.find(RECORD_MAGIC)
    while at >= 0:
        if int.from_bytes(data[at + 32 : at + 40], "little") == at and data[at + 9] in (1, 3):
            size = int.from_bytes(data[at + 72 : at + 80], "little")
            found.append((at + 96 + size, int.from_bytes(data[at + 56 : at + 64], "little")))
        at = data.find(RECORD_MAGIC, at + 1)
    return found


@given(draw=st.data())
@settings(quick, max_examples=30)
def test_how_rows_are_batched_leaves_no_trace(
    draw: Draw, flat_tables: Any, ways: Any, written: Any, read: Any, assert_same: Any
) -> None:
    """Where row groups are cut by rows: the same chunks, byte by byte."""
    table = draw.draw(flat_tables())
    way = {**draw.draw(ways), "row_group_bytes": 1 << 26, "checkpoint_every": None}
    cuts = sorted({0, table.num_rows, *draw.draw(st.lists(st.integers(0, table.num_rows), max_size=5))})
    batches = [table.slice(a, b - a) for a, b in pairwise(cuts)]
    one, many = written([table], table.schema, way), written(batches, table.schema, way)
    assert_same(read(many), table)
    assert _chunk_sums(one) == _chunk_sums(many)


def _chunk_sums(data: bytes) -> list[bytes]:
    metadata = pq.read_metadata(io.BytesIO(data))
    chunks = [
        metadata.row_group(i).column(j)
        for i in range(metadata.num_row_groups)
        for j in range(metadata.num_columns)
    ]
    return [_bytes_of(data, chunk) for chunk in chunks]


def _bytes_of(data: bytes, chunk: Any) -> bytes:
    start = chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset
    return data[start : start + chunk.total_compressed_size]


ENCODINGS: dict[str, Callable[[pa.DataType], bool]] = {
    "PLAIN": lambda kind: True,
    "RLE_DICTIONARY": lambda kind: not pa.types.is_boolean(kind),
    "RLE": pa.types.is_boolean,
}


@given(draw=st.data())
@settings(quick, max_examples=40)
def test_encodings_by_column(
    draw: Draw, flat_tables: Any, ways: Any, written: Any, read: Any, assert_same: Any
) -> None:
    table, way = draw.draw(flat_tables()), draw.draw(ways)
    encodings = {}
    for field in table.schema:
        possible = ["auto", *(name for name, fits in ENCODINGS.items() if fits(field.type))]
        encodings[field.name] = draw.draw(st.sampled_from(possible))
    data = written([table], table.schema, {**way, "encodings": encodings})
    assert_same(read(data), table)
    chunks = _chunks(data)
    for name, encoding in encodings.items():
        if encoding == "PLAIN":
            assert all(
                "RLE_DICTIONARY" not in chunk.encodings for chunk in chunks if chunk.path_in_schema == name
            )


def _chunks(data: bytes) -> list[Any]:
    metadata = pq.read_metadata(io.BytesIO(data))
    groups = [metadata.row_group(ordinal) for ordinal in range(metadata.num_row_groups)]
    return [group.column(column) for group in groups for column in range(metadata.num_columns)]
