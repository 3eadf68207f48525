"""We read what other libraries write: their codecs, page versions, encodings, nested columns and old habits."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import fastparquet  # type: ignore[import-untyped]
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ReadBack = Callable[..., pa.Table]
Plain = Callable[[Any], list[Any]]


def _by_pyarrow(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **{"row_group_size": 30, **options})
    return out.getvalue()


def _assert_same(found: pa.Table, expected: pa.Table, plain: Plain) -> None:
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        assert plain(found[name]) == plain(expected[name]), name


# --- pyarrow ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("use_dictionary", [True, False], ids=["dictionary", "plain"])
def test_pyarrow_every_type(
    read_back: ReadBack,
    every_type: pa.Table,
    plain: Plain,
    version: str,
    compression: str,
    use_dictionary: bool,
) -> None:
    data = _by_pyarrow(every_type, compression=compression, use_dictionary=use_dictionary, data_page_version=version)
    _assert_same(read_back(data), every_type, plain)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"data_page_size": 1, "write_batch_size": 3}, id="tiny pages"),
        pytest.param({"data_page_size": 1, "write_batch_size": 3, "data_page_version": "2.0"}, id="tiny pages v2"),
        pytest.param({"dictionary_pagesize_limit": 20, "write_batch_size": 4}, id="dictionary given up"),
        pytest.param({"write_page_checksum": True, "write_page_index": True}, id="checksums and indexes"),
        pytest.param({"store_schema": False}, id="no Arrow schema"),
        pytest.param({"use_compliant_nested_type": False}, id="old names of elements"),
        pytest.param({"store_decimal_as_integer": True}, id="decimals as integers"),
        pytest.param({"write_statistics": False}, id="no statistics"),
        pytest.param({"use_deprecated_int96_timestamps": True}, id="nanoseconds in 96 bits"),
        pytest.param({"use_deprecated_int96_timestamps": True, "store_schema": False}, id="nothing but 96 bits"),
        pytest.param({"row_group_size": 1}, id="a row group a row"),
        pytest.param({"version": "1.0", "coerce_timestamps": "us", "allow_truncated_timestamps": True}, id="old"),
    ],
)
def test_pyarrow_layouts(read_back: ReadBack, every_type: pa.Table, plain: Plain, options: dict[str, Any]) -> None:
    table = every_type
    if "coerce_timestamps" in options:
        table = table.drop_columns(["timestamp_ns", "instant_ns"])  # cut by the writer
    data = _by_pyarrow(table, **options)
    expected = pq.read_table(io.BytesIO(data))
    found = read_back(data)
    for field, written in zip(found.schema, pq.ParquetFile(io.BytesIO(data)).schema_arrow, strict=True):
        # We give no views and no dictionaries, but seconds and date64 again where pyarrow does not.
        kind = written.type.value_type if pa.types.is_dictionary(written.type) else written.type
        ours = [pa.string() if kind == pa.string_view() else kind]
        if options.get("store_schema", True):
            ours.append(table.schema.field(field.name).type)
        assert field.type in ours and field.nullable == written.nullable, field.name
    _assert_same(found, expected, plain)


def test_pyarrow_old_nanoseconds(read_back: ReadBack, plain: Plain) -> None:
    moments = [0, 1, -1, 10**18, None, -(10**18), 86_399_999_999_999]
    table = pa.table({"t": pa.array(moments, pa.int64()).cast(pa.timestamp("ns")), "i": pa.array(range(7))})
    data = _by_pyarrow(table, use_deprecated_int96_timestamps=True)
    found = read_back(data)
    assert found.schema.field("t").type == pa.timestamp("ns")
    _assert_same(found, table, plain)


def test_pyarrow_several_columns_of_one_name(read_back: ReadBack) -> None:
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array(["a", "b"])], ["same", "same"])
    found = read_back(_by_pyarrow(table))
    assert found.column_names == ["same", "same"]
    assert [column.to_pylist() for column in found.columns] == [[1, 2], ["a", "b"]]


def test_pyarrow_no_rows_and_no_columns(read_back: ReadBack, every_type: pa.Table) -> None:
    found = read_back(_by_pyarrow(every_type.slice(0, 0)))
    assert found.num_rows == 0 and found.column_names == every_type.column_names
    assert read_back(_by_pyarrow(pa.table({}))).num_columns == 0


def test_pyarrow_row_groups_and_columns(read_back: ReadBack, every_type: pa.Table, plain: Plain) -> None:
    data = _by_pyarrow(every_type)
    found = read_back(data, columns=["lists", "uint8"], row_groups=[2, 0])
    expected = pa.concat_tables([every_type.slice(60, 30), every_type.slice(0, 30)]).select(["lists", "uint8"])
    _assert_same(found, expected, plain)


def test_pyarrow_deeply_nested(read_back: ReadBack) -> None:
    kind = pa.list_(
        pa.struct(
            {
                "m": pa.map_(pa.string(), pa.list_(pa.struct({"x": pa.int16()}))),
                "s": pa.struct({"y": pa.string()}),
            }
        )
    )
    rows = [
        None,
        [],
        [None, {"m": None, "s": None}],
        [{"m": [], "s": {"y": None}}, {"m": [("k", None), ("l", [])], "s": {"y": "z"}}],
        [{"m": [("k", [{"x": 1}, None, {"x": None}])], "s": None}],
    ] * 9
    table = pa.table({"deep": pa.array(rows, kind), "flat": pa.array(range(45))})
    for version in ("1.0", "2.0"):
        data = _by_pyarrow(table, data_page_version=version, data_page_size=1, write_batch_size=2)
        assert read_back(data).equals(table.cast(read_back(data).schema))
        assert read_back(data)["deep"].to_pylist() == table["deep"].to_pylist()


# --- DuckDB -------------------------------------------------------------------------------------------------

DUCKDB_QUERY = """
    SELECT i, i::TINYINT AS tiny, i::SMALLINT AS small, i::INTEGER AS int, (i * 17)::UTINYINT AS utiny,
           (i * 1000)::USMALLINT AS usmall, (i * 100000000)::UINTEGER AS uint,
           (i::HUGEINT * 1000000000000000000)::UBIGINT AS ubig, i % 3 = 0 AS flag, (i / 7)::FLOAT AS single,
           i / 7 AS double, CASE WHEN i % 4 > 0 THEN 'text ' || i END AS text, ('b' || i)::BLOB AS blob,
           DATE '1970-01-01' + i::INTEGER AS day, TIMESTAMP '1970-01-01' + INTERVAL (i) SECOND AS moment,
           (TIMESTAMP '1970-01-01' + INTERVAL (i) SECOND)::TIMESTAMP_NS AS nanos,
           TIMESTAMPTZ '1970-01-01 00:00:00+00' + INTERVAL (i) SECOND AS instant,
           TIME '01:02:03' + INTERVAL (i) SECOND AS clock, (i / 4)::DECIMAL(4, 2) AS cents,
           (i / 4)::DECIMAL(18, 3) AS more, (i / 4)::DECIMAL(38, 10) AS most,
           CASE WHEN i % 5 > 0 THEN [i, NULL, i + 1] END AS list,
           CASE WHEN i % 5 > 1 THEN {'a': i, 'b': 'x' || i} END AS struct, MAP {'k' || i: i, 'l': NULL} AS map
    FROM range(15) t(i)
"""


def _by_duckdb(path: Path, options: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"COPY ({DUCKDB_QUERY}) TO '{path}' (FORMAT parquet, {options})")
        return connection.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4_raw"])
def test_duckdb_every_type(read_back: ReadBack, plain: Plain, codec: str, version: str, tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    expected = _by_duckdb(path, f"COMPRESSION {codec}, PARQUET_VERSION {version}, ROW_GROUP_SIZE 6")
    _assert_same(read_back(path.read_bytes()), expected, plain)


# --- Polars -------------------------------------------------------------------------------------------------


def _polars_frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "int": pl.Series([None if i % 6 == 0 else i for i in range(50)], dtype=pl.Int64),
            "u8": pl.Series([i * 5 for i in range(50)], dtype=pl.UInt8),
            "i16": pl.Series([i * 600 - 16_000 for i in range(50)], dtype=pl.Int16),
            "u64": pl.Series([2**64 - 1 - i for i in range(50)], dtype=pl.UInt64),
            "f32": pl.Series([[0.0, -0.0, float("nan"), float("inf")][i % 4] for i in range(50)], dtype=pl.Float32),
            "text": [None if i % 7 == 0 else "ä" * (i % 5) + "too long to be inlined" * (i % 2) for i in range(50)],
            "category": pl.Series([f"c{i % 3}" for i in range(50)], dtype=pl.Categorical),
            "bytes": [bytes([i]) * (i % 20) for i in range(50)],
            "flag": [i % 2 == 0 for i in range(50)],
            "day": [dt.date(2020, 1, 1) + dt.timedelta(days=i) for i in range(50)],
            "moment": pl.Series([dt.datetime(2020, 1, 1, i % 24) for i in range(50)], dtype=pl.Datetime("ns")),
            "zoned": pl.Series([dt.datetime(2020, 1, 1, i % 24) for i in range(50)]).dt.replace_time_zone("Asia/Tokyo"),
            "clock": [dt.time(i % 24, 1, 2, 3) for i in range(50)],
            "decimal": pl.Series([i - 25 for i in range(50)]).cast(pl.Decimal(20, 3)),
            "list": [None if i % 5 == 0 else list(range(i % 4)) for i in range(50)],
            "struct": [{"a": i, "b": f"s{i}"} for i in range(50)],
            "nothing": pl.Series([None] * 50),
        }
    )  # fmt: skip


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_polars_every_type(read_back: ReadBack, plain: Plain, compression: Any) -> None:
    frame = _polars_frame()
    out = io.BytesIO()
    frame.write_parquet(out, compression=compression, row_group_size=20, statistics="full")
    _assert_same(read_back(out.getvalue()), frame.to_arrow(), plain)


def test_polars_small_pages(read_back: ReadBack, plain: Plain) -> None:
    frame = _polars_frame()
    out = io.BytesIO()
    frame.write_parquet(out, data_page_size=64)
    _assert_same(read_back(out.getvalue()), frame.to_arrow(), plain)


# --- fastparquet and pandas ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    count = 40
    return pd.DataFrame(
        {
            "int": np.arange(count, dtype=np.int64),
            "small": np.arange(count, dtype=np.int8),
            "unsigned": np.arange(count, dtype=np.uint32) + 2**31,
            "nullable": pd.array([None if i % 4 == 0 else i for i in range(count)], dtype="Int64"),
            "single": np.arange(count, dtype=np.float32) / 3,
            "double": [float("nan") if i % 9 == 0 else i / 3 for i in range(count)],
            "flag": [i % 2 == 0 for i in range(count)],
            "moment": pd.date_range("2020-01-01", periods=count, freq="h", unit="us"),
        }
    )


@pytest.mark.parametrize("compression", ["UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4_RAW"])
def test_fastparquet(read_back: ReadBack, plain: Plain, frame: pd.DataFrame, compression: str, tmp_path: Path) -> None:
    path = tmp_path / "fast.parquet"
    fastparquet.write(str(path), frame, compression=compression, row_group_offsets=[0, 13, 26])
    expected = pq.read_table(path)
    _assert_same(read_back(path.read_bytes()), expected, plain)
    assert read_back(path.read_bytes())["int"].to_pylist() == list(range(40))


@pytest.mark.parametrize(
    "options",
    [
        {"times": "int96"},
        {"has_nulls": True},
        {"stats": True},
        {"object_encoding": "utf8"},
        {"object_encoding": "bytes"},
        {"object_encoding": "json"},
    ],
    ids=str,
)
def test_fastparquet_ways(
    read_back: ReadBack, plain: Plain, frame: pd.DataFrame, options: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "fast.parquet"
    objects = {"utf8": "ä{}", "bytes": b"\xff{}", "json": {"a": [1, "{}"]}}
    if "object_encoding" in options:
        value = objects[options["object_encoding"]]
        frame = frame.assign(object=pd.Series([value] * len(frame), dtype=object))
    # It takes counts of any unit for nanoseconds when it writes those of 96 bits.
    frame = frame.assign(moment=frame["moment"].astype("datetime64[ns]"))
    fastparquet.write(str(path), frame, **options)
    found = read_back(path.read_bytes())
    _assert_same(found, pq.read_table(path), plain)
    assert found["int"].to_pylist() == list(range(40))
    assert found["moment"].to_pylist() == list(frame["moment"])


def test_pandas_through_pyarrow(read_back: ReadBack, frame: pd.DataFrame) -> None:
    out = io.BytesIO()
    labelled = frame.set_index("int").assign(kind=pd.Categorical(["a", "b"] * 20))
    labelled.to_parquet(out, engine="pyarrow")
    expected = pd.read_parquet(io.BytesIO(out.getvalue()))
    found = read_back(out.getvalue()).to_pandas()
    assert list(found["kind"]) == list(expected["kind"])  # we give no dictionaries
    pd.testing.assert_frame_equal(found.drop(columns="kind"), expected.drop(columns="kind"))
