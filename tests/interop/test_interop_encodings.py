"""Every encoding through every codec and both page versions: others read ours with equal values, and we theirs."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resilient_pq import WriteOptions
from resilient_pq.errors import SchemaError

WriteFile = Callable[..., Any]
ReadBack = Callable[..., pa.Table]
Plain = Callable[[Any], list[Any]]
NUM_ROWS = 300
CODECS = ["none", "snappy", "gzip", "brotli", "lz4_raw", "zstd"]


def _column(kind: pa.DataType, value: Callable[[int], Any]) -> pa.Array:
    """Every seventh is null, and so are all of two pages and a half."""
    rows = [None if i % 7 == 3 or 100 <= i < 200 else value(i) for i in range(NUM_ROWS)]
    return pa.array(rows, kind)


def _floats(kind: pa.DataType) -> pa.Array:
    odd = [0.0, -0.0, float("nan"), float("inf"), float("-inf")]
    return _column(kind, lambda i: kind.to_pandas_dtype()(odd[i % 5] if i % 9 == 0 else i / 8))


def _integers(kind: pa.DataType, bits: int) -> pa.Array:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return _column(kind, lambda i: [least, most, 0, -1][i % 4] if i % 11 == 0 else i * 1000 - 7)


def _table() -> pa.Table:
    columns = {
        "int32": _integers(pa.int32(), 32),
        "int64": _integers(pa.int64(), 64),
        "int8": _column(pa.int8(), lambda i: i % 100),
        "uint64": _column(pa.uint64(), lambda i: 2**64 - 1 - i),
        "moment": _column(pa.timestamp("us", "UTC"), lambda i: i * 1_000_001),
        "decimal": _column(pa.decimal128(12, 2), lambda i: i - 50),
        "float": _floats(pa.float32()),
        "double": _floats(pa.float64()),
        "half": _column(pa.float16(), lambda i: i / 4),
        "fixed": _column(pa.binary(5), lambda i: struct.pack(">BI", i % 3, i)),
        "string": _column(pa.string(), lambda i: f"https://example.org/{i // 10}/" + "é" * (i % 4)),
        "binary": _column(pa.binary(), lambda i: bytes([i % 256]) * (i % 6)),
        "flag": _column(pa.bool_(), lambda i: i % 5 == 0),
        "list": _column(pa.list_(pa.int32()), lambda i: [None if j == 2 else i for j in range(i % 4)]),
        "words": _column(pa.list_(pa.string()), lambda i: [f"word {j}" for j in range(i % 4)]),
    }
    required = {
        "required_int64": pa.array([i * i for i in range(NUM_ROWS)], pa.int64()),
        "required_string": pa.array([f"{i // 3:05}" for i in range(NUM_ROWS)]),
        "required_double": pa.array([i / 3 for i in range(NUM_ROWS)]),
    }
    fields = [pa.field(name, array.type) for name, array in columns.items()]
    fields += [pa.field(name, array.type, nullable=False) for name, array in required.items()]
    return pa.table([*columns.values(), *required.values()], pa.schema(fields))


TABLE = _table()
_INTEGERS = ["int32", "int64", "int8", "uint64", "moment", "list", "required_int64"]
_STRINGS = ["string", "binary", "words", "required_string"]
_FLOATS = ["float", "double", "required_double"]
_FIXED = ["half", "fixed", "decimal"]

#: The columns that each encoding can hold.
HOLDS = {
    "PLAIN": TABLE.column_names,
    "RLE": ["flag"],
    "RLE_DICTIONARY": [name for name in TABLE.column_names if name != "flag"],
    "PLAIN_DICTIONARY": [name for name in TABLE.column_names if name != "flag"],
    "DELTA_BINARY_PACKED": _INTEGERS,
    "DELTA_LENGTH_BYTE_ARRAY": _STRINGS,
    "DELTA_BYTE_ARRAY": [*_STRINGS, *_FIXED],
    "BYTE_STREAM_SPLIT": [*_INTEGERS, *_FLOATS, *_FIXED],
}

DICTIONARIES = ("RLE_DICTIONARY", "PLAIN_DICTIONARY")

#: Columns that a library does not read in an encoding, whoever wrote them.
CANNOT = {
    ("duckdb", "BYTE_STREAM_SPLIT"): _FIXED,
    ("polars", "BYTE_STREAM_SPLIT"): ["fixed", "decimal"],
    ("polars", "DELTA_BYTE_ARRAY"): _FIXED,
}


def _read_pyarrow(path: Path, names: list[str]) -> pa.Table:
    table = pq.read_table(path, columns=names, page_checksum_verification=True)
    table.validate(full=True)
    return table


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _read_duckdb(path: Path, names: list[str]) -> pa.Table:
    with duckdb.connect() as connection:
        return connection.sql(f"SELECT {_quoted(names)} FROM read_parquet('{path}')").to_arrow_table()


def _read_polars(path: Path, names: list[str]) -> pa.Table:
    return pl.read_parquet(path, columns=names).to_arrow()


READERS: dict[str, Callable[[Path, list[str]], pa.Table]] = {
    "pyarrow": _read_pyarrow,
    "duckdb": _read_duckdb,
    "polars": _read_polars,
}


def _options(encoding: str, codec: str, version: str) -> dict[str, Any]:
    return {
        "encodings": encoding,
        "compression": codec,
        "row_group_rows": 210,
        "options": WriteOptions(data_page_version=version, page_rows=40),  # type: ignore[arg-type]
    }


def _ways_to_write() -> Iterator[Any]:
    """Each encoding in pages of either version with two of the codecs, and in the thorough suite with the others."""
    for number, encoding in enumerate(HOLDS):
        for step, version in enumerate(("1.0", "2.0")):
            for place, codec in enumerate(CODECS):
                quick = (place - number - step) % 3 == 0
                yield pytest.param(encoding, codec, version, marks=() if quick else pytest.mark.thorough)


@pytest.mark.parametrize(("encoding", "codec", "version"), list(_ways_to_write()))
@pytest.mark.ways_in_quick(12)
def test_others_read_ours(
    write_file: WriteFile,
    read_back: ReadBack,
    plain: Plain,
    tmp_path: Path,
    *,
    encoding: str,
    codec: str,
    version: str,
) -> None:
    table = TABLE.select(HOLDS[encoding])
    path = tmp_path / "ours.parquet"
    path.write_bytes(write_file(table, **_options(encoding, codec, version)).data)
    expected = {name: plain(table[name]) for name in table.column_names}
    ours = read_back(path.read_bytes())
    assert {name: plain(ours[name]) for name in table.column_names} == expected
    for reader, read in READERS.items():
        names = [name for name in table.column_names if name not in CANNOT.get((reader, encoding), [])]
        found = read(path, names)
        for name in names:
            assert plain(found[name]) == expected[name], (reader, name)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_others_read_what_is_chosen_for_newer_readers(write_file: WriteFile, tmp_path: Path, version: str) -> None:
    rng = np.random.default_rng(3)
    waves = 20 + np.sin(np.arange(6000) / 500) + rng.normal(0, 0.01, 6000)
    lost = rng.random(6000) < 0.1
    table = pa.table(
        {
            "double": waves,
            "float": waves.astype(np.float32),
            "gaps": pa.array(waves, mask=lost),
            "count": pa.array(np.arange(6000) << 34, mask=lost),
            "lists": pa.ListArray.from_arrays(np.arange(0, 6001, 1), pa.array(waves)),
        }
    )
    path = tmp_path / "compact.parquet"
    options = WriteOptions(data_page_version=version, page_rows=700)  # type: ignore[arg-type]
    path.write_bytes(write_file(table, encodings="compact", options=options).data)
    chunks = pq.ParquetFile(path).metadata.row_group(0)
    found = [chunks.column(i).encodings for i in range(5)]
    assert ["BYTE_STREAM_SPLIT" in encodings for encodings in found] == [True, True, True, False, True]
    assert "DELTA_BINARY_PACKED" in found[3]
    for read in READERS.values():
        assert read(path, table.column_names).to_pydict() == table.to_pydict()


def test_what_is_chosen_for_newer_readers_is_read_by_polars_where_groups_are_null(
    write_file: WriteFile, tmp_path: Path
) -> None:
    """It fails on pages in new encodings without values of a required leaf in groups that are all null."""
    rows = [
        None if 700 <= i < 2000 else {"must": np.sin(i / 500), "may": np.sin(i / 500), "count": 9 * i, "some": 9 * i}
        for i in range(3000)
    ]
    fields = [
        pa.field("must", pa.float64(), nullable=False),
        pa.field("may", pa.float64()),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("some", pa.int64()),
    ]
    table = pa.table({"group": pa.array(rows, pa.struct(fields))})
    path = tmp_path / "compact.parquet"
    path.write_bytes(write_file(table, encodings="compact", options=WriteOptions(page_rows=100)).data)
    chunks = pq.ParquetFile(path).metadata.row_group(0)
    assert ["BYTE_STREAM_SPLIT" in chunks.column(i).encodings for i in range(2)] == [False, True]
    assert ["DELTA_BINARY_PACKED" in chunks.column(i).encodings for i in range(2, 4)] == [False, True]
    for read in READERS.values():
        assert read(path, ["group"]).to_pydict() == table.to_pydict()


@pytest.mark.parametrize(("reader", "encoding"), CANNOT)
def test_what_others_cannot_read_they_cannot_read_of_pyarrow_either(tmp_path: Path, reader: str, encoding: str) -> None:
    path = tmp_path / "theirs.parquet"
    for name in CANNOT[reader, encoding]:
        pq.write_table(TABLE.select([name]), path, use_dictionary=False, column_encoding=encoding)
        with pytest.raises((duckdb.Error, pl.exceptions.ComputeError), match="supported"):
            READERS[reader](path, [name])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", HOLDS)
def test_the_footer_names_what_was_used(write_file: WriteFile, encoding: str, version: str) -> None:
    for name in HOLDS[encoding]:
        data = write_file(TABLE.select([name]), **_options(encoding, "none", version)).data
        file = pq.ParquetFile(io.BytesIO(data))
        assert file.metadata.num_row_groups == 2
        for group in range(2):
            chunk = file.metadata.row_group(group).column(0)
            expected = {encoding}
            if encoding == "RLE_DICTIONARY":
                expected.add("PLAIN")  # of the dictionary page
            if not name.startswith("required"):
                expected.add("RLE")  # of the levels
            assert set(chunk.encodings) == expected
            assert chunk.has_dictionary_page == (encoding in DICTIONARIES)


@pytest.mark.parametrize("encoding", [name for name in HOLDS if name not in ("PLAIN", *DICTIONARIES)])
def test_pages_are_cut_where_plain_would(write_file: WriteFile, encoding: str) -> None:
    # A page is then no larger in memory, whatever an encoding makes of its values.
    for name in HOLDS[encoding]:
        table = TABLE.select([name])
        for page_bytes in (64, 10**6):
            cuts = [
                _rows_of_pages(write_file(table, **_options(used, "none", "1.0"), page_bytes=page_bytes).data)
                for used in (encoding, "PLAIN")
            ]
            assert cuts[0] == cuts[1]
            assert [sum(pages) for pages in cuts[0]] == [210, 90]
            assert max(map(max, cuts[0])) <= 40


def _rows_of_pages(data: bytes) -> list[list[int]]:
    """The rows of each page of each row group of the only column, by its OffsetIndex."""
    from resilient_pq.format import compact_protocol
    from resilient_pq.format.file_metadata import FileMetaData, OffsetIndex

    size = int.from_bytes(data[-8:-4], "little")
    footer, _ = compact_protocol.decode(FileMetaData, data[-8 - size : -8])
    found = []
    for group in footer.row_groups:
        at = group.columns[0].offset_index_offset
        assert at is not None
        index, _ = compact_protocol.decode(OffsetIndex, data, at)
        firsts = [location.first_row_index for location in index.page_locations]
        found.append([end - first for first, end in zip(firsts, [*firsts[1:], group.num_rows], strict=True)])
    return found


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("encoding", [name for name in HOLDS if name not in DICTIONARIES])
def test_we_read_theirs(read_back: ReadBack, plain: Plain, encoding: str, codec: str, version: str) -> None:
    table = TABLE.select(HOLDS[encoding])
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        use_dictionary=False,
        column_encoding=encoding,
        compression={"lz4_raw": "lz4"}.get(codec, codec),
        data_page_version=version,
        data_page_size=512,
        write_batch_size=32,
    )
    seen = pq.ParquetFile(io.BytesIO(sink.getvalue())).metadata.row_group(0).column(0)
    assert encoding in seen.encodings
    found = read_back(sink.getvalue())
    for name in table.column_names:
        assert plain(found[name]) == plain(table[name]), name


def test_we_read_the_second_version_of_duckdb(read_back: ReadBack, plain: Plain, tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    names = [name for name in TABLE.column_names if name not in ("half", "decimal")]
    given_table = TABLE.select(names)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given_table", given_table)
        options = "FORMAT parquet, PARQUET_VERSION v2, DICTIONARY_SIZE_LIMIT 1"
        connection.execute(f"COPY (SELECT {_quoted(names)} FROM given_table) TO '{path}' ({options})")
    data = path.read_bytes()
    metadata = pq.ParquetFile(path).metadata.row_group(0)
    used = {encoding for i in range(metadata.num_columns) for encoding in metadata.column(i).encodings}
    assert {"DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "BYTE_STREAM_SPLIT"} <= used
    found = read_back(data)
    for name in names:
        assert plain(found[name]) == plain(given_table[name]), name


words = st.lists(st.sampled_from(["", "a", "ab", "b", "ä", "-" * 9]), max_size=5).map("".join)
whole = st.integers(-(2**63), 2**63 - 1)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    strings=st.lists(st.one_of(st.none(), words), max_size=60),
    numbers=st.lists(st.one_of(st.none(), whole, st.integers(-3, 3)), max_size=60),
    page_rows=st.integers(1, 40),
)
def test_pyarrow_reads_whatever_is_written(
    write_file: WriteFile,
    tmp_path: Path,
    strings: list[str | None],
    numbers: list[int | None],
    page_rows: int,
) -> None:
    count = min(len(strings), len(numbers))
    texts, integers = pa.array(strings[:count], pa.string()), pa.array(numbers[:count], pa.int64())
    table = pa.table({"lengths": texts, "prefixes": texts, "deltas": integers, "streams": integers})
    encodings = {
        "lengths": "DELTA_LENGTH_BYTE_ARRAY",
        "prefixes": "DELTA_BYTE_ARRAY",
        "deltas": "DELTA_BINARY_PACKED",
        "streams": "BYTE_STREAM_SPLIT",
    }
    ours = write_file(table, encodings=encodings, options=WriteOptions(page_rows=page_rows), compression="none")
    path = tmp_path / "ours.parquet"
    path.write_bytes(ours.data)
    assert _read_pyarrow(path, table.column_names).equals(table)


def test_an_encoding_is_refused_where_it_cannot_hold_the_column(write_file: WriteFile) -> None:
    for encoding, held in HOLDS.items():
        for name in sorted(set(TABLE.column_names) - set(held)):
            with pytest.raises(SchemaError, match=f"column '{name}.*: {encoding} cannot hold"):
                write_file(TABLE.select([name]), encodings={name: encoding})
    for unknown in ("ALP", "BIT_PACKED", "DELTA"):
        with pytest.raises(SchemaError, match=f"unknown encoding '{unknown}'") as caught:
            write_file(TABLE.select(["double"]), encodings=unknown)
        assert caught.value.hint is not None and "BYTE_STREAM_SPLIT" in caught.value.hint
