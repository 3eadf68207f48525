"""The page index tells the truth: against the pages as they lie in the file, and against the rows in them."""

from __future__ import annotations

import io
import itertools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import WriteOptions
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import (
    BoundaryOrder,
    ColumnIndex,
    FileMetaData,
    OffsetIndex,
    PageHeader,
    PageType,
)

WriteFile = Callable[..., Any]

LAYOUTS: dict[str, dict[str, Any]] = {
    "v1": {"options": WriteOptions(page_rows=5), "encodings": "PLAIN"},
    "v2": {"options": WriteOptions(page_rows=5, data_page_version="2.0"), "compression": "none"},
    "bytes": {"page_bytes": 40, "encodings": "PLAIN"},
    "dictionaries": {"options": WriteOptions(page_rows=4)},
}


def _metadata(data: bytes) -> FileMetaData:
    length = int.from_bytes(data[-8:-4], "little")
    return compact_protocol.decode(FileMetaData, data[-8 - length : -8])[0]


def _pages(data: bytes, start: int, end: int) -> list[tuple[int, int, PageHeader]]:
    """Offset, size with its header, and header of each page, by walking from one to the next."""
    found = []
    while start < end:
        header, body = compact_protocol.decode(PageHeader, data, start)
        following = body + header.compressed_page_size
        found.append((start, following - start, header))
        start = following
    assert start == end
    return found


@pytest.fixture(scope="module")
def columns() -> pa.Table:
    """Columns whose bounds are easily told from their rows."""
    count = 60
    return pa.table(
        {
            "rising": pa.array(range(count)),
            "falling": pa.array([-i for i in range(count)], pa.int32()),
            "wild": pa.array([i * 37 % 61 for i in range(count)], pa.uint64()),
            "gaps": pa.array([None if i % 16 < 9 else i for i in range(count)]),
            "text": pa.array([None if i % 7 == 0 else f"{i * 31 % 100:02}é" for i in range(count)]),
            "bytes": pa.array([bytes([200 + i % 50]) * (i % 5) for i in range(count)]),
            "floats": pa.array([[-0.0, 0.0, float("nan"), 1.5, -2.5][i % 5] for i in range(count)]),
            "flags": pa.array([i % 16 > 8 for i in range(count)]),
            "absent": pa.nulls(count, pa.string()),
            "lists": pa.array([None if i % 6 == 0 else list(range(i % 4)) for i in range(count)]),
        }
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_offset_index_names_every_page(write_file: WriteFile, columns: pa.Table, layout: str) -> None:
    data = write_file(columns, **LAYOUTS[layout]).data
    several = 0
    for row_group in _metadata(data).row_groups:
        for chunk in row_group.columns:
            assert chunk.meta_data is not None and chunk.offset_index_offset is not None
            meta = chunk.meta_data
            assert chunk.offset_index_length is not None
            index, end = compact_protocol.decode(OffsetIndex, data, chunk.offset_index_offset)
            assert end == chunk.offset_index_offset + chunk.offset_index_length
            start = meta.dictionary_page_offset or meta.data_page_offset
            pages = _pages(data, start, start + meta.total_compressed_size)
            data_pages = [page for page in pages if page[2].type != PageType.DICTIONARY_PAGE]
            assert (len(pages) - len(data_pages) == 1) == (meta.dictionary_page_offset is not None)
            assert data_pages[0][0] == meta.data_page_offset
            locations = index.page_locations
            assert [(place.offset, place.compressed_page_size) for place in locations] == [
                page[:2] for page in data_pages
            ]
            first_rows = [place.first_row_index for place in locations]
            assert first_rows[0] == 0 and first_rows == sorted(set(first_rows))
            assert first_rows[-1] < row_group.num_rows
            assert _rows_by_headers(data_pages, first_rows, row_group.num_rows, meta.path_in_schema)
            several += len(locations) > 1
    assert several > 10


def _rows_by_headers(
    pages: Sequence[tuple[int, int, PageHeader]],
    first_rows: Sequence[int],
    num_rows: int,
    path: Sequence[str] | None,
) -> bool:
    """Whether the row counts that the headers have agree: all of v2 have them, those of v1 in flat columns."""
    ends = [*first_rows[1:], num_rows]
    for (_, _, header), first, end in zip(pages, first_rows, ends, strict=True):
        if header.data_page_header_v2 is not None:
            if header.data_page_header_v2.num_rows != end - first:
                return False
        elif path is not None and len(path) == 1:
            assert header.data_page_header is not None
            if header.data_page_header.num_values != end - first:
                return False
    return True


@pytest.mark.parametrize("layout", LAYOUTS)
def test_column_index_bounds_the_rows_of_every_page(write_file: WriteFile, columns: pa.Table, layout: str) -> None:
    data = write_file(columns, **LAYOUTS[layout]).data
    flat = [name for name in columns.column_names if name != "lists"]
    first_row = 0
    null_pages = 0
    for row_group in _metadata(data).row_groups:
        for ordinal, name in enumerate(flat):
            chunk = row_group.columns[ordinal]
            assert chunk.offset_index_offset is not None
            places = compact_protocol.decode(OffsetIndex, data, chunk.offset_index_offset)[0].page_locations
            starts = [place.first_row_index for place in places]
            pages = [
                columns[name].slice(first_row + start, end - start).to_pylist()
                for start, end in zip(starts, [*starts[1:], row_group.num_rows], strict=True)
            ]
            if any(all(_is_nan(value) for value in page) for page in pages):
                assert chunk.column_index_offset is None, "a page of nothing but NaN has no bounds"
                continue
            assert chunk.column_index_offset is not None and chunk.column_index_length is not None
            index, end = compact_protocol.decode(ColumnIndex, data, chunk.column_index_offset)
            assert end == chunk.column_index_offset + chunk.column_index_length
            null_pages += sum(index.null_pages)
            _assert_bounds(index, pages, columns.schema.field(name).type)
        first_row += row_group.num_rows
    assert null_pages


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _assert_bounds(index: ColumnIndex, pages: list[list[Any]], kind: pa.DataType) -> None:
    assert index.null_counts == [page.count(None) for page in pages]
    assert index.null_pages == [page.count(None) == len(page) for page in pages]
    bounds = []
    for page, low, high, is_null in zip(pages, index.min_values, index.max_values, index.null_pages, strict=True):
        if is_null:
            assert (low, high) == (b"", b"")
            continue
        values = [value for value in page if value is not None and not _is_nan(value)]
        bounds.append((min(values), max(values)))
        assert low == _plain(kind, min(values), upper=False)
        assert high == _plain(kind, max(values), upper=True)
    rising = all(a[0] <= b[0] and a[1] <= b[1] for a, b in itertools.pairwise(bounds))
    falling = all(a[0] >= b[0] and a[1] >= b[1] for a, b in itertools.pairwise(bounds))
    if index.boundary_order == BoundaryOrder.ASCENDING:
        assert rising
    elif index.boundary_order == BoundaryOrder.DESCENDING:
        assert falling and not rising
    else:
        assert not rising and not falling


def _plain(kind: pa.DataType, value: Any, *, upper: bool) -> bytes:
    """PLAIN encoding, with the zeros as the specification wants them in bounds."""
    if kind == pa.float64():
        return struct.pack("<d", (0.0 if upper else -0.0) if value == 0 else value)
    if kind == pa.bool_():
        return bytes([value])
    if pa.types.is_integer(kind):
        return struct.pack({pa.int32(): "<i", pa.uint64(): "<Q"}.get(kind, "<q"), value)
    return value.encode() if isinstance(value, str) else bytes(value)


def test_pyarrow_sees_the_page_index(write_file: WriteFile, columns: pa.Table) -> None:
    metadata = pq.read_metadata(io.BytesIO(write_file(columns, **LAYOUTS["v1"]).data))
    chunks = [metadata.row_group(0).column(i) for i in range(metadata.num_columns)]
    assert all(chunk.has_offset_index for chunk in chunks)
    assert {chunk.path_in_schema for chunk in chunks if not chunk.has_column_index} <= {"floats"}


def test_checkpoints_name_no_page_index(write_file: WriteFile, columns: pa.Table) -> None:
    ours = write_file(columns)
    for prefix in ours.prefixes[1:]:
        metadata = _metadata(ours.data[: prefix.size])
        for row_group in metadata.row_groups:
            for chunk in row_group.columns:
                assert chunk.offset_index_offset is None and chunk.column_index_offset is None


def test_page_indexes_stand_just_before_the_final_record(write_file: WriteFile, columns: pa.Table) -> None:
    data = write_file(columns).data
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    chunks = [chunk for row_group in _metadata(data).row_groups for chunk in row_group.columns]
    column_indexes = [(c.column_index_offset, c.column_index_length) for c in chunks if c.column_index_offset]
    offset_indexes = [(c.offset_index_offset, c.offset_index_length) for c in chunks]
    places = [(at, size) for at, size in column_indexes + offset_indexes if at is not None and size is not None]
    ends = [at + size for at, size in places]
    assert len(places) == len(column_indexes) + len(chunks)
    assert [at for at, _ in places[1:]] == ends[:-1]
    assert ends[-1] == footer - 96


def test_no_statistics_means_no_column_index(write_file: WriteFile, columns: pa.Table) -> None:
    data = write_file(columns, options=WriteOptions(statistics=False)).data
    metadata = pq.read_metadata(io.BytesIO(data))
    for ordinal in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(ordinal).column(column)
            assert not chunk.has_column_index and chunk.has_offset_index
            assert chunk.statistics is None or not chunk.statistics.has_min_max
