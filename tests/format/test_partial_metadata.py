"""File metadata cut, damaged or made up: what is given of them is what stands there, and nothing takes long."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from resilient_pq.damage.partial_metadata import SHAPE, MetadataEnd, partial_metadata
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import FileMetaData


@cache
def metadata() -> bytes:
    """Of a file with five row groups, statistics and key-value pairs."""
    rows = range(50)
    table = pa.table(
        {"id": list(rows), "name": [f"n{i}" for i in rows], "list": [[i] for i in rows]},
        metadata={"one": "1", "two": "2"},
    )
    return metadata_of(table, row_group_size=10)


def metadata_of(table: pa.Table, row_group_size: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=row_group_size)
    data = sink.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


@cache
def whole() -> FileMetaData:
    return compact_protocol.decode(FileMetaData, metadata())[0]


def test_whole_metadata_are_given_whole() -> None:
    found = partial_metadata(b"before" + metadata() + b"after", 6)
    assert (found.ending, found.end) == (MetadataEnd.WHOLE, 6 + len(metadata()))
    assert found.metadata() == whole()
    assert found.has_schema and found.names_all_row_groups and not found.encrypted


@pytest.mark.parametrize("count", [14, 15, 16, 300])
def test_lists_of_any_length_are_given_whole(count: int) -> None:
    """Of columns, of row groups, and of the names in a path; from 15 elements on the count has bytes of its own."""
    deep: Any = {"leaf": 1}
    for i in range(min(count, 60)):
        deep = {f"d{i}": deep}
    table = pa.Table.from_pylist([{**{f"c{i}": i for i in range(min(count, 60))}, "deep": deep}] * count)
    data = metadata_of(table, row_group_size=1)
    found = partial_metadata(data)
    assert found.ending is MetadataEnd.WHOLE
    assert found.metadata() == compact_protocol.decode(FileMetaData, data)[0]
    cut = partial_metadata(data[: len(data) // 2])
    assert cut.row_groups == found.row_groups[: len(cut.row_groups)]
    assert 0 < len(cut.row_groups) < count


def test_a_cut_at_every_byte() -> None:
    known: list[tuple[int, int, int]] = []
    for size in range(len(metadata())):
        found = partial_metadata(metadata()[:size])
        assert found.ending is MetadataEnd.CUT
        assert found.end <= size
        assert found.schema == whole().schema[: len(found.schema)]
        assert found.row_groups == whole().row_groups[: len(found.row_groups)]
        following = len(found.row_groups)
        columns = whole().row_groups[following].columns if following < 5 else []
        assert found.columns == columns[: len(found.columns)]
        assert found.num_rows in (None, 50) and found.created_by in (None, whole().created_by)
        assert found.metadata().num_rows == 10 * len(found.row_groups)
        known.append((len(found.schema), len(found.row_groups), len(found.key_value_metadata)))
    assert known == sorted(known), "with more bytes never less is known"
    assert known[-1] == (6, 5, 3)


def test_what_comes_first_is_lost_last() -> None:
    sizes = [partial_metadata(metadata()[:size]) for size in range(len(metadata()))]
    schema = next(i for i, found in enumerate(sizes) if found.has_schema)
    rows = next(i for i, found in enumerate(sizes) if found.num_rows is not None)
    first = next(i for i, found in enumerate(sizes) if found.row_groups)
    assert schema < rows < first < len(metadata()) / 4


@pytest.mark.parametrize("offset", range(0, 4000, 97))
def test_a_stretch_of_zeros_ends_what_is_known(offset: int) -> None:
    data = bytearray(metadata())
    data[offset : offset + 64] = bytes(len(data[offset : offset + 64]))
    found = partial_metadata(data)
    before = partial_metadata(metadata()[:offset])
    assert found.row_groups[: len(before.row_groups)] == before.row_groups
    assert found.schema[: len(before.schema)] == before.schema


def test_metadata_of_any_writer_have_the_shape(tmp_path: Any) -> None:
    import duckdb
    import fastparquet
    import polars

    table = pa.table({"id": [1, 2]})
    polars.from_arrow(table).write_parquet(tmp_path / "polars")
    fastparquet.write(str(tmp_path / "fastparquet"), table.to_pandas())
    duckdb.register("given", table)
    duckdb.sql(f"copy given to '{tmp_path}/duckdb' (format parquet)")
    duckdb.unregister("given")
    pq.write_table(table, tmp_path / "pyarrow")
    for path in sorted(tmp_path.iterdir()):
        data = path.read_bytes()
        start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        assert SHAPE.match(data, start), path.name
        assert [match.start() for match in SHAPE.finditer(data)] == [start], path.name


@pytest.mark.parametrize(
    "data",
    [
        b"\x15\x02\x19\xfc" + b"\xff" * 9 + b"\x01",  # 2**64 - 1 elements
        b"\x15\x02\x19\xfc\x80\x80\x80\x80\x08" + b"\x48\x00\x00" * 1000,  # more elements than bytes
        b"\x1b\xff\xff\xff\xff\x0f\x88" + bytes(1000),  # a map of as many entries
        b"\x19\xf3\xff\xff\xff\xff\x0f" + bytes(1000),  # a list of bytes, in place of the schema
        b"\x1c" * 100_000,  # structs within each other
        b"\x19\x19" * 100_000,  # lists within each other
        b"\x19\xf9\x7f" * 100_000,
        b"\x15" + b"\x80" * 100,  # an integer that does not end
        b"\x1e",  # a type that there is not
    ],
)
def test_hostile_metadata(data: bytes) -> None:
    found = partial_metadata(data)
    assert found.ending is not MetadataEnd.WHOLE
    assert not found.row_groups and not found.has_schema


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 3600), st.booleans())
@example(b"", 0, False)
def test_any_bytes_in_any_place(piece: bytes, at: int, over: bool) -> None:
    data = metadata()[:at] + piece + (metadata()[at + len(piece) :] if over else metadata()[at:])
    found = partial_metadata(data)
    assert 0 <= found.end <= len(data)
    assert len(found.schema) <= (found.num_schema_elements or 0)
    assert len(found.row_groups) <= (found.num_row_groups or 0)
    if found.ending is MetadataEnd.WHOLE:
        # Whatever is said to be whole, the strict reader reads as well; and to the same end.
        decoded, end = compact_protocol.decode(FileMetaData, data)
        assert (end, decoded.row_groups, decoded.schema) == (found.end, found.row_groups, found.schema)
