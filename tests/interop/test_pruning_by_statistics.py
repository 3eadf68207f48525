"""Filters find the same rows in our files as in memory, whatever row groups and pages the statistics let be skipped."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from resilient_pq import WriteOptions

NUM_ROWS = 240
OPERATORS = ("==", "!=", "<", "<=", ">", ">=")
SQL = {"==": "=", "!=": "<>"}


def _clustered(kind: pa.DataType, value: Callable[[int], Any]) -> pa.Array:
    """Values that differ much between row groups and little within, with nulls; one row group is all null."""
    return pa.array([None if i % 7 == 3 or 80 <= i < 100 else value(i) for i in range(NUM_ROWS)], kind)


def _floats(i: int) -> float:
    specials = [float("nan"), -0.0, 0.0, float("inf"), float("-inf")]
    return specials[i % 5] if (i // 20) % 3 == 1 else float(i // 20 - 6) + (i % 4) / 8


COLUMNS: dict[str, tuple[pa.Array, list[Any]]] = {
    "int64": (_clustered(pa.int64(), lambda i: i - 120), [-121, -120, 0, 7, 119, 120, -(2**63), 2**63 - 1]),
    "int8": (_clustered(pa.int8(), lambda i: i % 256 - 128), [-128, -1, 0, 1, 127]),
    "uint8": (_clustered(pa.uint8(), lambda i: i), [0, 127, 128, 200, 255]),
    "uint32": (_clustered(pa.uint32(), lambda i: 2**31 - 100 + i * 7), [0, 2**31 - 1, 2**31, 2**32 - 1]),
    "uint64": (_clustered(pa.uint64(), lambda i: 2**63 - 100 + i * 2), [0, 2**63 - 1, 2**63, 2**64 - 1]),
    "float32": (_clustered(pa.float32(), _floats), [-6.0, -0.0, 0.0, 1.125, 5.0, float("inf"), float("-inf")]),
    "float64": (
        _clustered(pa.float64(), _floats),
        [-6.0, -0.0, 0.0, 1.125, 5.0, float("inf"), float("-inf"), float("nan")],
    ),
    "text": (
        _clustered(pa.string(), lambda i: "zaé\U0001f600"[i // 60] * (i % 3) + f"{i:03}" + "\U0010ffff" * 20),
        ["", "000", "z", "zz", "a", "é", "\U0001f600", "\U0010ffff" * 17, "é065" + "\U0010ffff" * 20],
    ),
    "binary": (
        _clustered(pa.binary(), lambda i: bytes([i]) * (60 + i % 10)),
        [b"", b"\x00", b"\x7f\xff", b"\x80" * 65, b"\xff" * 70],
    ),
    "fixed": (_clustered(pa.binary(9), lambda i: bytes([i]) * 9), [b"\x00" * 9, b"\x90" * 9, b"\xff" * 9]),
    "wide": (_clustered(pa.binary(70), lambda i: bytes([i]) * 70), [b"\x00" * 70, b"\x90" * 70, b"\xff" * 70]),
    "date": (
        _clustered(pa.date32(), lambda i: dt.date(1969, 6, 1) + dt.timedelta(days=3 * i)),
        [dt.date(1969, 6, 1), dt.date(1970, 1, 1), dt.date(1971, 5, 19), dt.date(2020, 1, 1)],
    ),
    "timestamp": (
        _clustered(pa.timestamp("us"), lambda i: dt.datetime(1969, 12, 31) + dt.timedelta(minutes=13 * i)),
        [dt.datetime(1969, 12, 31), dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, 12, 39, 0, 1)],
    ),
    "decimal": (
        _clustered(pa.decimal128(20, 3), lambda i: decimal.Decimal(i - 120) * 10**12),
        [decimal.Decimal(0), decimal.Decimal("-0.001"), decimal.Decimal("7000000000000"), decimal.Decimal(-(10**16))],
    ),
    "small_decimal": (
        _clustered(pa.decimal128(4, 2), lambda i: decimal.Decimal(i - 120) / 4),
        [decimal.Decimal(0), decimal.Decimal("-0.25"), decimal.Decimal("-30"), decimal.Decimal("29.75")],
    ),
    "bool": (_clustered(pa.bool_(), lambda i: (i // 40) % 3 == 1 or (i > 200 and i % 2 == 0)), [True, False]),
}  # fmt: skip

LAYOUTS: dict[str, dict[str, Any]] = {
    "row groups": {"row_group_rows": 20},
    "pages": {"row_group_rows": 80, "options": WriteOptions(page_rows=6), "encodings": "PLAIN"},
}


@pytest.fixture(scope="module", params=LAYOUTS)
def stored(request: pytest.FixtureRequest, write_file: Callable[..., Any]) -> bytes:
    """All columns, with the numbers of the rows beside them."""
    table = pa.table({"row": pa.array(range(NUM_ROWS)), **{name: array for name, (array, _) in COLUMNS.items()}})
    data: bytes = write_file(table, checkpoint_every=2, **LAYOUTS[request.param]).data
    return data


def _cases() -> Iterator[Any]:
    """Each column with a few of its thresholds, and in the thorough suite with all."""
    for name, (array, thresholds) in COLUMNS.items():
        some = random.Random(name).sample(thresholds, min(3, len(thresholds)))
        yield pytest.param(name, array, some, id=name)
        yield pytest.param(name, array, thresholds, id=f"{name}, all", marks=pytest.mark.thorough)


CASES = list(_cases())


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _memory(name: str, array: pa.Array) -> pa.Table:
    return pa.table({"row": pa.array(range(NUM_ROWS)), name: array})


@pytest.mark.parametrize(("name", "array", "thresholds"), CASES)
@pytest.mark.ways_in_quick(12)
def test_pyarrow(stored: bytes, tmp_path: Path, name: str, array: pa.Array, thresholds: list[Any]) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(stored)
    dataset = ds.dataset(path)
    table = _memory(name, array)
    for threshold in thresholds:
        scalar = pa.scalar(threshold, array.type)
        for operator in OPERATORS:
            expression = _arrow_expression(name, operator, scalar)
            found = dataset.to_table(columns=["row"], filter=expression)["row"].to_pylist()
            assert found == table.filter(expression)["row"].to_pylist(), (operator, threshold)
    for expression in (pc.field(name).is_null(), pc.field(name).is_valid()):
        found = dataset.to_table(columns=["row"], filter=expression)["row"].to_pylist()
        assert found == table.filter(expression)["row"].to_pylist()


def _arrow_expression(name: str, operator: str, scalar: pa.Scalar) -> pc.Expression:
    field = pc.field(name)
    comparisons = {
        "==": field == scalar, "!=": field != scalar, "<": field < scalar, "<=": field <= scalar,
        ">": field > scalar, ">=": field >= scalar,
    }  # fmt: skip
    return comparisons[operator]


@pytest.mark.parametrize(("name", "array", "thresholds"), CASES)
@pytest.mark.ways_in_quick(12)
def test_duckdb(stored: bytes, tmp_path: Path, name: str, array: pa.Array, thresholds: list[Any]) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(stored)
    with duckdb.connect() as connection:
        connection.register("arrow", _memory(name, array))
        connection.execute("CREATE TABLE memory AS SELECT * FROM arrow")
        kind = connection.execute(f'SELECT typeof("{name}") FROM memory LIMIT 1').fetchall()[0][0]

        def rows(source: str, condition: str, *values: Any) -> list[int]:
            query = f"SELECT row FROM {source} WHERE {condition} ORDER BY row"
            return [row for (row,) in connection.execute(query, values).fetchall()]

        source = f"read_parquet('{path}')"
        for threshold in thresholds:
            for operator in OPERATORS:
                # A constant, not a parameter: only constants are pushed down to the statistics.
                literal = _literal(threshold, kind)
                condition = f'"{name}" {SQL.get(operator, operator)} {literal}'
                assert rows(source, condition) == rows("memory", condition), condition
        for condition in (f'"{name}" IS NULL', f'"{name}" IS NOT NULL'):
            assert rows(source, condition) == rows("memory", condition), condition


def _literal(value: Any, kind: str) -> str:
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02x}" for byte in value) + "'::BLOB"
    if isinstance(value, float):
        return f"'{value}'::{kind}"
    text = str(value).replace("'", "''")
    return f"'{text}'::{kind}"


@pytest.mark.parametrize(("name", "array", "thresholds"), CASES)
@pytest.mark.ways_in_quick(12)
def test_polars(stored: bytes, tmp_path: Path, name: str, array: pa.Array, thresholds: list[Any]) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(stored)
    memory = pl.DataFrame(_memory(name, array))
    for threshold in thresholds:
        literal = pl.lit(threshold, dtype=memory.schema[name])
        for operator in OPERATORS:
            expression = _polars_expression(name, operator, literal)
            for use_statistics in (True, False):
                scan = pl.scan_parquet(path, use_statistics=use_statistics)
                found = scan.filter(expression).select("row").collect()["row"].to_list()
                assert found == memory.filter(expression)["row"].to_list(), (operator, threshold)
    for expression in (pl.col(name).is_null(), pl.col(name).is_not_null()):
        found = pl.scan_parquet(path).filter(expression).select("row").collect()["row"].to_list()
        assert found == memory.filter(expression)["row"].to_list()


def _polars_expression(name: str, operator: str, literal: pl.Expr) -> pl.Expr:
    column = pl.col(name)
    comparisons = {
        "==": column == literal, "!=": column != literal, "<": column < literal, "<=": column <= literal,
        ">": column > literal, ">=": column >= literal,
    }  # fmt: skip
    return comparisons[operator]


def test_statistics_as_pyarrow_reads_them(stored: bytes) -> None:
    metadata = pq.read_metadata(io.BytesIO(stored))
    first_row = 0
    for ordinal in range(metadata.num_row_groups):
        group = metadata.row_group(ordinal)
        for column in range(1, metadata.num_columns):
            chunk = group.column(column)
            array = COLUMNS[chunk.path_in_schema][0].slice(first_row, group.num_rows)
            statistics = chunk.statistics
            assert statistics.null_count == array.null_count
            values = [value for value in array.to_pylist() if value is not None and not _is_nan(value)]
            # Bounds of wide values of a fixed length would have to be cut, which pyarrow does not survive.
            bounded = bool(values) and chunk.path_in_schema != "wide"
            assert statistics.has_min_max == bounded, chunk.path_in_schema
            if not bounded:
                continue
            low, high = statistics.min, statistics.max
            if chunk.path_in_schema in ("text", "binary", "fixed"):
                assert low <= min(values) and high >= max(values)
            else:
                assert (low, high) == (min(values), max(values)), chunk.path_in_schema
            if isinstance(low, float):
                zeros = [bound for bound in (low, high) if bound == 0]
                assert [np.signbit(zero) for zero in zeros] == ([True, False] if len(zeros) == 2 else
                                                                [low == 0] * len(zeros))  # fmt: skip
        first_row += group.num_rows


def test_pages_of_nothing_but_nan(write_file: Callable[..., Any], tmp_path: Path) -> None:
    nan = float("nan")
    table = pa.table({"x": pa.array([1.0, 2.0, nan, nan, 3.0, nan, None, None]), "row": pa.array(range(8))})
    path = tmp_path / "nan.parquet"
    path.write_bytes(write_file(table, row_group_rows=8, options=WriteOptions(page_rows=2)).data)
    assert not pq.read_metadata(path).row_group(0).column(0).has_column_index
    assert duckdb.execute(f"SELECT row FROM '{path}' WHERE x > 2.5 ORDER BY row").fetchall() == [
        (2,),
        (3,),
        (4,),
        (5,),
    ]
    scan = pl.scan_parquet(path)
    assert scan.filter(pl.col("x").is_nan()).select("row").collect()["row"].to_list() == [2, 3, 5]
    assert ds.dataset(path).to_table(filter=pc.field("x") > 2.5)["row"].to_pylist() == [4]
    assert ds.dataset(path).to_table(filter=pc.is_nan(pc.field("x")))["row"].to_pylist() == [2, 3, 5]


@pytest.mark.parametrize("extreme", [-0.0, 0.0])
def test_zeros_of_either_sign_are_found(write_file: Callable[..., Any], tmp_path: Path, extreme: float) -> None:
    table = pa.table({"x": pa.array([extreme] * 4)})
    path = tmp_path / "zero.parquet"
    path.write_bytes(write_file(table, row_group_rows=2).data)
    for wanted in (0.0, -0.0):
        assert pl.scan_parquet(path).filter(pl.col("x") == wanted).collect().height == 4
        assert ds.dataset(path).to_table(filter=pc.field("x") == wanted).num_rows == 4
        assert len(duckdb.execute(f"SELECT x FROM '{path}' WHERE x = '{wanted}'::DOUBLE").fetchall()) == 4
