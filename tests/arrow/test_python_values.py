"""Types found for Python values and NumPy arrays, and values that do not fit the type of their column."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.arrow.batch_sources import open_source
from resilient_pq.errors import SchemaError


def arrow_of(data: object, schema: pa.Schema | None = None) -> pa.Table:
    """What our own conversion makes of Python values, seen by pyarrow."""
    source = open_source(data, None if schema is None else Ingest.from_schema(schema).field)
    schema = pa.schema(source.field.to_c())
    batches = [[pa.array(column.owner) for column in rows.columns] for rows in source.batches]
    table = pa.Table.from_batches([pa.record_batch(columns, schema=schema) for columns in batches], schema)
    table.validate(full=True)
    return table


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([None, None], pa.null()),
        ([], pa.null()),
        ([True, None], pa.bool_()),
        ([1, None, -(2**63), 2**63 - 1], pa.int64()),
        ([1, 2.5, None], pa.float64()),
        (["a", None, ""], pa.string()),
        ([b"a", bytearray(b"b"), memoryview(b"c"), None], pa.binary()),
        ([dt.date(2024, 2, 29), None], pa.date32()),
        ([dt.datetime(2024, 1, 1, 1, 2, 3, 4), None, dt.datetime(1, 1, 1)], pa.timestamp("us")),
        ([dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        (
            [dt.datetime(2024, 7, 1, tzinfo=BERLIN), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
            pa.timestamp("us", "Europe/Berlin"),
        ),
        ([dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))], pa.timestamp("us", "UTC")),
        ([dt.time(23, 59, 59, 999_999), None], pa.time64("us")),
        ([dt.timedelta(days=-3, microseconds=7), None], pa.duration("us")),
        ([Decimal("1.50"), Decimal("-100"), None], pa.decimal128(5, 2)),
        ([Decimal("1E+3"), Decimal("0")], pa.decimal128(4, 0)),
        ([Decimal("0.001")], pa.decimal128(3, 3)),
        ([Decimal(10) ** 50], pa.decimal256(51, 0)),
        ([[1, None], None, []], pa.list_(pa.field("element", pa.int64()))),
        ([(1.5,), np.array([1, 2])], pa.list_(pa.field("element", pa.float64()))),
        ([[["a"], None]], pa.list_(pa.field("element", pa.list_(pa.field("element", pa.string()))))),
        ([{"a": 1, "b": None}, {"b": "x"}, None], pa.struct({"a": pa.int64(), "b": pa.string()})),
        ([np.int8(1), np.float32(0.5), None], pa.float64()),
        ([np.bool_(True), np.str_("x")][:1], pa.bool_()),
        ([np.datetime64("2024-01-01T00:00:00.000001"), None], pa.timestamp("us")),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_types_of_python_values(values: list[Any], kind: pa.DataType) -> None:
    column = arrow_of({"c": values})["c"]
    assert column.type == kind
    expected = [value.item() if isinstance(value, np.generic) else value for value in values]
    expected = [value.tolist() if isinstance(value, np.ndarray) else value for value in expected]
    assert column.to_pylist() == pa.array(expected, kind).to_pylist()


def test_instants_are_the_same_in_any_zone() -> None:
    column = arrow_of({"c": [dt.datetime(2024, 7, 1, 12, tzinfo=BERLIN)]})["c"]
    assert column.to_pylist() == [dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC)]


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        (np.array([True, False]), pa.bool_(), [True, False]),
        (np.array([1, 2], ">i4"), pa.int32(), [1, 2]),
        (np.array([1, 2], "u2")[::-1], pa.uint16(), [2, 1]),
        (np.array([1.5], "f2"), pa.float16(), [1.5]),
        (np.array([0.1, np.nan], ">f8")[:1], pa.float64(), [0.1]),
        (np.array(["2024-01-01", "NaT"], "M8[D]"), pa.date32(), [dt.date(2024, 1, 1), None]),
        (np.array([1, "NaT"], ">M8[s]"), pa.timestamp("s"), [dt.datetime(1970, 1, 1, 0, 0, 1), None]),
        (np.array([5], "m8[ms]"), pa.duration("ms"), [dt.timedelta(milliseconds=5)]),
        (np.array(["a", "é"]), pa.string(), ["a", "é"]),
        (np.array([b"a", b"bc"]), pa.binary(), [b"a", b"bc"]),
        (np.array(["a", None], object), pa.string(), ["a", None]),
        (np.ma.MaskedArray(["a", "b"], [True, False]), pa.string(), [None, "b"]),
        (np.ma.MaskedArray([1, 2], [True, False], "i1"), pa.int8(), [None, 2]),
        (np.ma.MaskedArray(np.array(["NaT", 1], "M8[us]"), [False, True]), pa.timestamp("us"), [None, None]),
        (np.ma.MaskedArray([1, 2], False, "i1"), pa.int8(), [1, 2]),
        (np.zeros(0, "i2"), pa.int16(), []),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, np.ndarray) else "",
)
def test_types_of_numpy_arrays(array: Any, kind: pa.DataType, expected: list[Any]) -> None:
    column = arrow_of({"c": array})["c"]
    assert column.type == kind
    assert column.to_pylist() == expected


def test_nan_is_a_value_of_numpy_arrays_and_lists() -> None:
    for values in (np.array([np.nan, 1.0]), [float("nan"), 1.0]):
        assert arrow_of({"c": values})["c"].null_count == 0


def test_numpy_arrays_are_not_copied() -> None:
    numbers = np.arange(100)
    column = arrow_of({"c": numbers})["c"].chunk(0)
    assert column.buffers()[1].address == numbers.__array_interface__["data"][0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "a"], "column 'c': its values are of several kinds: int and str"),
        ([True, 1], "its values are of several kinds: bool and int"),
        ([dt.date(2024, 1, 1), dt.datetime(2024, 1, 1)], "several kinds: date and datetime"),
        (
            [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
            "it is timestamp.* has no time zone",
        ),
        ([2**63], f"{2**63} does not fit int64"),
        ([-(2**63) - 1], "does not fit int64"),
        ([1.5, 2**53 + 1], f"{2**53 + 1} is not exact as a float"),
        ([uuid.UUID(int=1)], "there is no Arrow type for values of type UUID"),
        ([1j], "there is no Arrow type for values of type complex"),
        ([{1}], "there is no Arrow type for values of type set"),
        ([Decimal("NaN")], "NaN is no number"),
        ([Decimal("Infinity")], "Infinity is no number"),
        ([Decimal(1), Decimal("1E-80")], "its decimals take 81 digits, more than 76"),
        (["\ud800"], "is no text"),
        ([dt.time(1, tzinfo=dt.UTC)], "has a time zone"),
        ([[1], ["a"]], "column 'c.element': its values are of several kinds"),
        ([{"a": 1}, {"a": "x"}], "column 'c.a': its values are of several kinds"),
        ([{1: "a"}], "the keys of a dict are names of fields, but one is 1"),
        ([np.datetime64(1, "ns")], "is finer than Python's times: pass a NumPy array"),
        (np.array([1j]), "there is no Arrow type for NumPy's complex128"),
        (np.array([1], "M8[h]"), r"there is no Arrow type for NumPy's datetime64\[h\]"),
        (np.array([1], "m8[D]"), r"there is no Arrow type for NumPy's timedelta64\[D\]"),
        (np.array([2**31], "M8[D]"), "a date is too far from 1970"),
        (np.zeros(2, [("a", "i4")]), "there is no Arrow type for NumPy's"),
        (np.array(1), "it has 0 dimensions, not one"),
    ],
    ids=str,
)
def test_values_without_a_type(values: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message) as caught:
        open_source({"c": values})
    assert caught.value.where.column is not None


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [-128, None, 127]),
        (pa.uint64(), [2**64 - 1]),
        (pa.float32(), [0.5, 1, None]),
        (pa.float16(), [0.5, 65504]),
        (pa.large_string(), ["a", None]),
        (pa.large_binary(), [b"a", None]),
        (pa.binary(2), [b"ab", None]),
        (pa.date64(), [dt.date(1969, 12, 31), None]),
        (pa.time32("s"), [dt.time(1, 2, 3), None]),
        (pa.time64("ns"), [dt.time(1, 2, 3, 4), None]),
        (pa.timestamp("s"), [dt.datetime(1969, 12, 31, 23, 59, 59), None]),
        (pa.timestamp("ns", "Asia/Tokyo"), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None]),
        (pa.duration("ms"), [dt.timedelta(milliseconds=-1), None]),
        (
            pa.decimal128(5, 2),
            [Decimal("1.5"), 3, Decimal("-999.99"), Decimal("1E+2"), None],
        ),
        (pa.decimal256(60, 0), [Decimal(10) ** 59, None]),
        (pa.large_list(pa.int8()), [[1, None], None, []]),
        (pa.list_(pa.int8(), 2), [[1, None], None, (3, 4)]),
        (pa.map_(pa.string(), pa.int8()), [{"a": 1}, [("b", None)], None, {}]),
        (pa.struct({"a": pa.int8(), "b": pa.list_(pa.float32())}), [{"a": 1}, {}, None, {"b": [0.5]}]),
        (pa.null(), [None]),
        (pa.string_view(), ["a", None]),
        (pa.bool_(), [True, np.bool_(False), None]),
    ],
    ids=str,
)
def test_lists_take_the_type_of_their_column(kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema({"c": kind})
    column = arrow_of({"c": values}, schema)["c"]
    assert column.type == (pa.string() if kind == pa.string_view() else kind)
    assert column.to_pylist() == pa.array(values, kind).to_pylist()
    assert arrow_of([{"c": value} for value in values], schema)["c"].equals(column)


def test_zero_has_no_digits_however_large_its_exponent() -> None:
    column = arrow_of({"c": [Decimal("0E+99999999")]}, pa.schema({"c": pa.decimal128(5, 2)}))["c"]
    assert column.to_pylist() == [Decimal("0.00")]


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (pa.int8(), 128, "column 'c': 128 does not fit int8"),
        (pa.uint8(), -1, "-1 does not fit uint8"),
        (pa.int8(), True, "it is int8, but a value is True"),
        (pa.int8(), 1.0, "it is int8, but a value is 1.0"),
        (pa.int8(), "1", "it is int8, but a value is '1'"),
        (pa.bool_(), 1, "it is bool, but a value is 1"),
        (pa.float32(), 1e300, "a value is too large for float"),
        (pa.float64(), True, "it is double, but a value is True"),
        (pa.float64(), 2**53 + 1, "is not exact as a float"),
        (pa.string(), b"a", "it is string, but a value is b'a'"),
        (pa.binary(), "a", "it is binary, but a value is 'a'"),
        (pa.binary(2), b"abc", r"it is fixed_size_binary\[2\], but a value has 3 bytes"),
        (pa.date32(), dt.datetime(2024, 1, 1), "has a time of day"),
        (pa.date32(), "2024-01-01", "but a value is '2024-01-01'"),
        (pa.timestamp("us"), dt.date(2024, 1, 1), "but a value is datetime.date"),
        (pa.timestamp("us"), dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "has a time zone"),
        (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 1), "has no time zone"),
        (
            pa.timestamp("s"),
            dt.datetime(2024, 1, 1, 0, 0, 0, 1),
            r"is not whole in the unit of timestamp\[s\]",
        ),
        (pa.timestamp("ns"), dt.datetime(9999, 1, 1), r"does not fit timestamp\[ns\]"),
        (pa.time32("s"), dt.time(0, 0, 0, 1), r"is not whole in the unit of time32\[s\]"),
        (pa.duration("s"), dt.timedelta(microseconds=1), "is not whole in the unit"),
        (pa.decimal128(5, 2), Decimal("1000"), r"1000 does not fit decimal128\(5, 2\)"),
        (pa.decimal128(5, 2), Decimal("1.001"), "1.001 does not fit"),
        (pa.decimal128(5, 2), Decimal("1E+999999"), "does not fit"),
        (pa.decimal128(5, 2), Decimal("1E-999999"), "does not fit"),
        (pa.decimal128(5, 2), Decimal("1." + "0" * 5000), "does not fit"),
        (pa.decimal128(5, 2), 1.5, "but a value is 1.5"),
        (pa.decimal128(5, 2), Decimal("NaN"), "is no number"),
        (pa.list_(pa.int8()), [300], "column 'c.element': 300 does not fit int8"),
        (pa.list_(pa.int8()), 7, "but a value is 7"),
        (pa.list_(pa.int8(), 2), [1], "but a list has another length"),
        (pa.struct({"a": pa.int8()}), {"b": 1}, "it has no field 'b'"),
        (pa.struct({"a": pa.int8()}), {"a": "x"}, "column 'c.a': it is int8"),
        (pa.map_(pa.string(), pa.int8()), [("a", 1, 2)], "an entry of a map is a pair of key and value"),
        (pa.map_(pa.string(), pa.int8()), [7], "an entry of a map is a pair of key and value, not 7"),
        (pa.null(), 1, "it is null, but a value is 1"),
    ],
    ids=str,
)
def test_values_that_do_not_fit_their_column(kind: pa.DataType, value: Any, message: str) -> None:
    schema = pa.schema({"c": kind})
    for data in ({"c": [None, value]}, [{"c": value}]):
        with pytest.raises(SchemaError, match=message):
            arrow_of(data, schema)


@pytest.mark.parametrize(
    ("values", "kind", "stored"),
    [
        ([pd.Timestamp(1_001), None, dt.datetime(1970, 1, 1)], pa.timestamp("ns"), [1_001, None, 0]),
        ([pd.Timestamp(-1, tz="UTC")], pa.timestamp("ns", "UTC"), [-1]),
        ([pd.Timedelta(1_001), pd.Timedelta(-1)], pa.duration("ns"), [1_001, -1]),
        ([pd.Timestamp(2_000)], pa.timestamp("us"), [2]),
        ([pd.Timedelta(2_000)], pa.duration("us"), [2]),
    ],
    ids=repr,
)
def test_times_of_pandas_keep_their_nanoseconds(values: list[Any], kind: pa.DataType, stored: list[int | None]) -> None:
    for schema in (None, pa.schema({"a": kind})):
        found = arrow_of({"a": values}, schema)["a"]
        assert found.type == kind
        assert found.cast(pa.int64()).to_pylist() == stored


def test_nanoseconds_do_not_fit_microseconds() -> None:
    for value, kind in (
        (pd.Timestamp(1_001), pa.timestamp("us")),
        (pd.Timedelta(1_001), pa.duration("us")),
    ):
        with pytest.raises(SchemaError, match="is not whole in the unit"):
            arrow_of({"a": [value]}, pa.schema({"a": kind}))
