"""What `Table` offers: Arrow, Python values, NumPy arrays, parts of itself; and what it does not import."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import nanoarrow as na
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.arrow.table import Table
from resilient_pq.errors import FormatError, SchemaError, UnsupportedError

RoundTrip = Callable[..., Table]


def table_of(source: pa.Table | dict[str, Any]) -> Table:
    """The chunks of a pyarrow table as they are."""
    arrow = source if isinstance(source, pa.Table) else pa.table(source)
    chunks = [[na.c_array(column) for column in batch.columns] for batch in arrow.to_batches()]
    return Table(arrow.schema, chunks, arrow.num_rows)


ROWS = pa.table(
    {
        "n": pa.chunked_array([[1, 2], [3]], pa.int32()),
        "f": pa.chunked_array([[1.5, None], [float("nan")]]),
        "s": pa.chunked_array([["a", "é"], [None]]),
        "l": pa.chunked_array([[[1], None], [[2, 3]]], pa.list_(pa.int8())),
    }
)


def test_shape_and_names() -> None:
    table = table_of(ROWS)
    assert (len(table), table.num_rows, table.num_columns) == (3, 3, 4)
    assert table.column_names == ["n", "f", "s", "l"]
    assert pa.schema(table.schema) == ROWS.schema
    assert pa.schema(table) == ROWS.schema
    assert table.nbytes == sum([3 * 4, 3 * 8 + 1, 3 + 5 * 4 + 1, 3 * 4 + 3 + 1])


def test_repr_says_what_it_is() -> None:
    schema = pa.schema([pa.field("a", pa.int8(), nullable=False), ("b", pa.list_(pa.timestamp("us", "UTC")))])
    assert repr(table_of(schema.empty_table())) == (
        "<resilient_pq.Table: 0 rows, 2 columns>\na: int8 not null\nb: list<item: timestamp[us, tz=UTC]>"
    )
    wide = repr(table_of({f"c{at}": [1] for at in range(1000)}))
    assert wide.startswith("<resilient_pq.Table: 1 row, 1,000 columns>\nc0: int64\n")
    assert "c19: int64\n... and 980 more\n(1, 1, " in wide
    assert repr(table_of(ROWS)).count("\n(") == 3


def test_arrow_libraries_take_it_any_number_of_times() -> None:
    table = table_of(ROWS)
    for _ in range(2):
        assert pa.table(table).equals(pa.table(ROWS), check_metadata=True) or table["f"][2] != table["f"][2]
        assert pa.table(table).column("n").num_chunks == 2
        assert pl.DataFrame(table)["s"].to_list() == ["a", "é", None]
    assert isinstance(table.to_pyarrow(), pa.Table)
    assert isinstance(table.to_pandas(), pd.DataFrame)
    assert isinstance(table.to_polars(), pl.DataFrame)
    assert table.to_pandas(types_mapper=pd.ArrowDtype)["n"].dtype == pd.ArrowDtype(pa.int32())


def test_arrow_memory_outlives_the_table() -> None:
    def taken() -> pa.Table:
        return pa.table(table_of({"n": np.arange(100_000)}))

    assert taken()["n"].to_numpy().sum() == np.arange(100_000).sum()


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 0), (0, 1), (1, 1), (1, 2), (2, 9), (3, 1), (9, 9), (1, None), (0, None)]
)
def test_slices(offset: int, length: int | None) -> None:
    part = table_of(ROWS).slice(offset, length)
    expected = ROWS.slice(offset, length)
    assert len(part) == expected.num_rows
    assert pa.table(part).drop_columns("f").equals(expected.drop_columns("f"))
    assert part["n"].tolist() == expected["n"].to_pylist()
    assert part.nbytes <= table_of(ROWS).nbytes
    again = part.slice(1)
    assert pa.table(again).drop_columns("f").equals(expected.slice(1).drop_columns("f"))


def test_slices_of_nothing_and_head() -> None:
    assert [len(table_of(ROWS).head(count)) for count in (0, 2, 9)] == [0, 2, 3]
    for offset, length in ((-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="may not be negative"):
            table_of(ROWS).slice(offset, length)
    rows_only = Table(pa.schema([]), [], 5)
    assert (len(rows_only.slice(1, 3)), len(pa.table(rows_only))) == (3, 5)


def test_arrays_that_do_not_make_a_table() -> None:
    chunk = [na.c_array(pa.array([1])), na.c_array(pa.array([2]))]
    schema = pa.schema({"a": pa.int64()})
    with pytest.raises(ValueError, match="the schema has 1 columns, the chunks 2"):
        Table(schema, [chunk], 1)
    with pytest.raises(ValueError, match="the chunks do not have 2 rows"):
        Table(schema, [chunk[:1]], 2)
    with pytest.raises(ValueError, match="arrays of int64 do not go with arrays of int8"):
        Table(pa.schema({"a": pa.int8()}), [chunk[:1]], 1)


# --- Python values --------------------------------------------------------------------------------------------

PYTHON = {
    "null": pa.nulls(2),
    "bool": pa.array([True, None]),
    "uint64": pa.array([2**64 - 1, None], pa.uint64()),
    "float16": pa.array([np.float16(0.5), None], pa.float16()),
    "float": pa.array([0.1, None], pa.float32()),
    "string": pa.array(["é", None]),
    "ascii": pa.array(["abc", "d"], pa.large_string()),
    "binary": pa.array([b"\xff", None]),
    "fixed": pa.array([b"ab", None], pa.binary(2)),
    "date32": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "date64": pa.array([dt.date(1969, 12, 31), None], pa.date64()),
    "time32": pa.array([dt.time(23, 59, 59), None], pa.time32("s")),
    "time64": pa.array([dt.time(0, 0, 0, 1), None], pa.time64("ns")),
    "naive": pa.array([dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)], pa.timestamp("us")),
    "seconds": pa.array([dt.datetime(1969, 12, 31), None], pa.timestamp("s")),
    "nanos": pa.array([dt.datetime(2024, 1, 1, 0, 0, 0, 1), None], pa.timestamp("ns")),
    "utc": pa.array([dt.datetime(2024, 7, 1), None], pa.timestamp("ms", "UTC")),
    "zone": pa.array([dt.datetime(2024, 7, 1), dt.datetime(2024, 1, 1)], pa.timestamp("us", "Europe/Berlin")),
    "offset": pa.array([dt.datetime(2024, 7, 1), None], pa.timestamp("us", "-05:30")),
    "duration": pa.array([dt.timedelta(days=-1, microseconds=1), None], pa.duration("us")),
    "decimal": pa.array([Decimal("-0.10"), None], pa.decimal128(5, 2)),
    "decimal256": pa.array([Decimal(10**75 + 1), None], pa.decimal256(76, 0)),
    "list": pa.array([[1, None], None], pa.list_(pa.int8())),
    "large list": pa.array([[["a"], []], []], pa.large_list(pa.list_(pa.string()))),
    "pair": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
    "struct": pa.array(
        [{"a": 1, "b": {"c": None}}, None], pa.struct({"a": pa.int8(), "b": pa.struct({"c": pa.date32()})})
    ),
    "map": pa.array([[("k", 1), ("l", None)], None], pa.map_(pa.string(), pa.int8())),
}


@pytest.mark.parametrize("array", PYTHON.values(), ids=PYTHON)
def test_python_values_are_those_of_pyarrow(array: pa.Array) -> None:
    # pandas, where it is installed, makes pyarrow give Timestamps, which are datetimes.
    expected = [value.to_pydatetime() if isinstance(value, pd.Timestamp) else value for value in array.to_pylist()]
    found = table_of({"c": array}).to_pydict()["c"]
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))
    assert table_of({"c": array}).to_pylist() == [{"c": value} for value in expected]
    around = pa.concat_arrays([array, array, array]).slice(1, len(array) + 1)
    assert table_of({"c": around}).to_pydict()["c"] == (expected * 3)[1 : len(array) + 2]


def test_zones_are_those_of_the_column() -> None:
    values = table_of(PYTHON).to_pylist()[0]
    assert values["zone"].tzinfo == ZoneInfo("Europe/Berlin")
    assert values["zone"].utcoffset() == dt.timedelta(hours=2)
    assert values["utc"].tzinfo is dt.UTC
    assert values["offset"].utcoffset() == -dt.timedelta(hours=5, minutes=30)


@pytest.mark.parametrize("zone", ["Middle/Earth", "../../etc/passwd", "+99:00"])
def test_a_zone_that_nobody_knows(zone: str) -> None:
    table = table_of({"c": pa.array([1], pa.timestamp("us", zone))})
    with pytest.raises(UnsupportedError, match="column 'c': there is no time zone"):
        table.to_pydict()
    assert table["c"].tolist() == [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]


@pytest.mark.parametrize(
    ("kind", "number", "scalar"),
    [
        (pa.timestamp("ns"), 1, np.datetime64(1, "ns")),
        (pa.timestamp("ns", "UTC"), -1, np.datetime64(-1, "ns")),
        (pa.timestamp("us"), 2**62, np.datetime64(2**62, "us")),
        (pa.timestamp("s"), -(2**62), np.datetime64(-(2**62), "s")),
        (pa.date32(), 2**31 - 1, np.datetime64(2**31 - 1, "D")),
        (pa.date64(), 86_400_000 * 10**8, np.datetime64(86_400_000 * 10**8, "ms")),
        (pa.time64("ns"), 1, np.timedelta64(1, "ns")),
        (pa.time64("us"), 86_400_000_000, np.timedelta64(86_400_000_000, "us")),
        (pa.time32("s"), -1, np.timedelta64(-1, "s")),
        (pa.duration("ns"), 1001, np.timedelta64(1001, "ns")),
        (pa.duration("s"), 2**62, np.timedelta64(2**62, "s")),
    ],
    ids=str,
)
def test_times_that_datetime_cannot_hold(kind: pa.DataType, number: int, scalar: Any) -> None:
    storage = pa.int32() if kind.bit_width == 32 else pa.int64()
    table = table_of({"c": pa.array([None, number, 0], storage).view(kind)})
    with pytest.raises(SchemaError, match=rf"column 'c', row 1: {number} as .* does not fit Python's datetime"):
        table.to_pylist()
    found = table.to_pydict(inexact="numpy")["c"]
    assert (found[0], found[1], type(found[1]), found[1].dtype) == (None, scalar, type(scalar), scalar.dtype)
    assert isinstance(found[2], dt.date | dt.time | dt.timedelta)


def test_nulls_over_times_that_datetime_cannot_hold() -> None:
    storage = pa.Array.from_buffers(pa.timestamp("ns"), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([0, 1]))])
    assert table_of({"c": storage}).to_pydict() == {"c": [dt.datetime(1970, 1, 1), None]}


def test_text_that_is_not_utf8() -> None:
    text = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], "<i4")), pa.py_buffer(b"a\xff")]
    )
    table = table_of({"c": pa.array([["x"]]), "d": text.slice(1)})
    with pytest.raises(FormatError, match="column 'd': text is not UTF-8") as caught:
        table.to_pylist()
    assert caught.value.where.column == "d"
    assert pa.table(table)["d"].cast(pa.binary()).to_pylist() == [b"\xff"]


def test_names_that_repeat() -> None:
    table = table_of(pa.table([[1], [2]], names=["a", "a"]))
    with pytest.raises(SchemaError, match="several columns are named 'a', which a dict cannot hold"):
        table.to_pydict()
    with pytest.raises(SchemaError, match="there is several columns 'a'"):
        table["a"]
    with pytest.raises(SchemaError, match="there is no column 'b'\nhint: columns: a, a"):
        table["b"]
    assert pa.table(table).num_columns == 2


# --- NumPy arrays ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        (pa.array([True, False]), "bool", [True, False]),
        (pa.array([1, -1], pa.int8()), "int8", [1, -1]),
        (pa.array([2**64 - 1], pa.uint64()), "uint64", [2**64 - 1]),
        (pa.array([np.float16(1.5)], pa.float16()), "float16", [1.5]),
        (pa.array([1.5], pa.float32()), "float32", [1.5]),
        (pa.array([dt.date(2024, 1, 1)]), "datetime64[D]", [dt.date(2024, 1, 1)]),
        (pa.array([dt.date(2024, 1, 1)], pa.date64()), "datetime64[ms]", [dt.datetime(2024, 1, 1)]),
        (
            pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("s", "Asia/Tokyo")),
            "datetime64[s]",
            [dt.datetime(2024, 1, 1)],
        ),
        (pa.array([1], pa.timestamp("ns")), "datetime64[ns]", [1]),
        (pa.array([dt.time(1)], pa.time32("ms")), "timedelta64[ms]", [dt.timedelta(hours=1)]),
        (pa.array([dt.time(1)], pa.time64("us")), "timedelta64[us]", [dt.timedelta(hours=1)]),
        (pa.array([-1], pa.duration("s")), "timedelta64[s]", [dt.timedelta(seconds=-1)]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_numpy_arrays_of_columns_with_and_without_nulls(array: pa.Array, dtype: str, expected: list[Any]) -> None:
    found = table_of({"c": array})["c"]
    assert type(found) is np.ndarray
    assert found.dtype == np.dtype(dtype)
    assert found.tolist() == expected
    chunked = pa.chunked_array([array, pa.array([None], array.type), array[:0], array])
    masked = table_of(pa.table({"c": chunked}))["c"]
    assert isinstance(masked, np.ma.MaskedArray)
    assert masked.dtype == np.dtype(dtype)
    assert masked.mask.tolist() == [False] * len(array) + [True] + [False] * len(array)
    assert masked.compressed().tolist() == expected * 2


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", None, "é"]),
        pa.array([b"a", None], pa.large_binary()),
        pa.array([b"ab", None], pa.binary(2)),
        pa.array([[1], [2], None]),
        pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)),
        pa.array([{"a": 1}, None]),
        pa.array([Decimal("1.5"), None]),
        pa.nulls(2),
    ],
    ids=lambda array: str(array.type),
)
def test_numpy_arrays_of_objects(array: pa.Array) -> None:
    found = table_of({"c": array})["c"]
    assert found.dtype == np.object_
    assert found.shape == (len(array),)
    assert list(found) == array.to_pylist()


def test_numpy_arrays_share_the_memory_of_one_chunk() -> None:
    numbers = np.arange(10)
    found = table_of({"c": numbers}).slice(2, 5)["c"]
    assert np.shares_memory(found, numbers)
    assert not found.flags.writeable
    assert found.tolist() == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("kind", [pa.int8(), pa.bool_(), pa.date32(), pa.string(), pa.timestamp("ns", "UTC")], ids=str)
def test_numpy_arrays_without_rows(kind: pa.DataType) -> None:
    table = table_of(pa.schema({"c": kind}).empty_table())
    assert len(table["c"]) == 0
    assert table.to_pydict() == {"c": []}
    assert table.to_pylist() == []


def test_objects_that_python_cannot_hold_are_numpys() -> None:
    found = table_of({"c": pa.array([[1]], pa.list_(pa.timestamp("ns")))})["c"]
    assert found[0] == [np.datetime64(1, "ns")]


# --- what is imported -----------------------------------------------------------------------------------------


def run(code: str) -> str:
    # With the package that is under test, wherever this runs.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_other_arrow_library_is_imported() -> None:
    code = """
import sys
from resilient_pq.arrow.assemble import to_arrow
from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.arrow.table import Table
ingest, data = Ingest.infer({"a": [1, None], "b": ["x", "y"]})
list(ingest.batches(data))
table = Table(ingest.arrow, [], 0)
table.to_pydict(), table["a"], repr(table), table.__arrow_c_stream__()
print(sorted({"pyarrow", "pandas", "polars", "duckdb"} & set(sys.modules)))
"""
    assert run(code).strip() == "[]"


@pytest.mark.parametrize(
    ("library", "method"),
    [("pyarrow", "to_pyarrow"), ("pandas", "to_pandas"), ("pyarrow", "to_pandas"), ("polars", "to_polars")],
)
def test_a_library_that_is_missing(library: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(Ingest.infer({"a": [1]})[0].arrow, [], 0)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UnsupportedError) as caught:
        getattr(table, method)()
    assert str(caught.value).splitlines() == [f"this needs {library}", f"hint: pip install {library}"]


def test_the_round_trip_leaves_shared_memory_alone(round_trip: RoundTrip) -> None:
    numbers = np.arange(5)
    before = numbers.copy()
    table = round_trip({"n": numbers})
    with pytest.raises(ValueError, match="read-only"):
        table["n"][0] = 7
    assert np.array_equal(numbers, before)


@pytest.mark.parametrize("array", PYTHON.values(), ids=PYTHON)
def test_slices_of_every_type_are_whole_arrays(array: pa.Array) -> None:
    arrow = pa.table({"c": pa.concat_arrays([array] * 5)})
    table = table_of(arrow)
    for offset, length in ((0, 1), (1, 1), (3, 5), (9, 1)):
        # Twice, since a slice of a slice starts from an offset.
        found = pa.table(table.slice(offset).slice(0, length))
        found.validate(full=True)
        expected = arrow.slice(offset, length)
        assert found.equals(expected)
        assert found["c"].null_count == expected["c"].null_count


def test_numpy_arrays_outlive_the_table() -> None:
    def taken() -> Any:
        return table_of({"n": np.arange(1_000_000)}).slice(1)["n"]

    found = taken()
    # Memory that was let go would be written over by this.
    overwriting = [np.full(1_000_000, 7) for _ in range(3)]
    assert np.array_equal(found, np.arange(1, 1_000_000))
    assert len(overwriting) == 3
