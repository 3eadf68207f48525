"""Single values: from PLAIN bytes to Python and back, and what no column can hold."""

from __future__ import annotations

import datetime as dt
import math
import struct
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import FormatError, SchemaError
from resilient_pq.format import logical
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.logical import Integer, Logical, Time, Timestamp, TimeUnit
from resilient_pq.format.scalars import from_plain, from_python, to_plain, to_python
from resilient_pq.format.schema_tree import Primitive

MS, US, NS = TimeUnit.MILLIS, TimeUnit.MICROS, TimeUnit.NANOS
UTC = dt.UTC


def node(kind: Type, annotation: Logical | None = None, length: int | None = None) -> Primitive:
    return Primitive("c", Repetition.OPTIONAL, kind, length, annotation)


BOOL, I32, I64 = node(Type.BOOLEAN), node(Type.INT32), node(Type.INT64)
U32 = node(Type.INT32, Integer(32, False))
FLOAT, DOUBLE = node(Type.FLOAT), node(Type.DOUBLE)
HALF = node(Type.FIXED_LEN_BYTE_ARRAY, logical.FLOAT16, 2)
TEXT, BYTES = node(Type.BYTE_ARRAY, logical.STRING), node(Type.BYTE_ARRAY)
UUID = node(Type.FIXED_LEN_BYTE_ARRAY, logical.UUID, 16)
DATE = node(Type.INT32, logical.DATE)
I96 = node(Type.INT96)


def decimals(kind: Type, length: int | None = None) -> Primitive:
    return node(kind, logical.Decimal(9, 2), length)


WHOLE: list[tuple[Primitive, Any, bytes]] = [
    (BOOL, True, b"\1"),
    (BOOL, False, b"\0"),
    (I32, -2, struct.pack("<i", -2)),
    (I64, 2**63 - 1, struct.pack("<q", 2**63 - 1)),
    (U32, 2**32 - 1, b"\xff" * 4),
    (FLOAT, 1.5, struct.pack("<f", 1.5)),
    (DOUBLE, -math.inf, struct.pack("<d", -math.inf)),
    (HALF, 0.5, struct.pack("<e", 0.5)),
    (TEXT, "grün", "grün".encode()),
    (BYTES, b"\xff\0", b"\xff\0"),
    (UUID, bytes(range(16)), bytes(range(16))),
    (node(Type.FIXED_LEN_BYTE_ARRAY, None, 3), b"abc", b"abc"),
    (decimals(Type.INT32), Decimal("-1.25"), struct.pack("<i", -125)),
    (decimals(Type.INT64), Decimal("70000000.00"), struct.pack("<q", 7_000_000_000)),
    (decimals(Type.FIXED_LEN_BYTE_ARRAY, 5), Decimal("-0.01"), b"\xff" * 5),
    (DATE, dt.date(1969, 12, 31), struct.pack("<i", -1)),
    (node(Type.INT32, Time(MS, True)), dt.time(0, 0, 1, 5000), struct.pack("<i", 1005)),
    (node(Type.INT64, Time(US, False)), dt.time(23, 59, 59, 999_999), struct.pack("<q", 86_399_999_999)),
    (node(Type.INT64, Time(NS, False)), np.timedelta64(1, "ns"), struct.pack("<q", 1)),
    (node(Type.INT32, Time(MS, True)), np.timedelta64(-1, "ms"), struct.pack("<i", -1)),
    (
        node(Type.INT64, Timestamp(MS, True)),
        dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        struct.pack("<q", 1000),
    ),
    (
        node(Type.INT64, Timestamp(US, False)),
        dt.datetime(1969, 12, 31, 23),
        struct.pack("<q", -3_600_000_000),
    ),
    (node(Type.INT64, Timestamp(NS, False)), dt.datetime(1970, 1, 1, 0, 0, 0, 1), struct.pack("<q", 1000)),
    (node(Type.INT64, Timestamp(NS, True)), np.datetime64(7, "ns"), struct.pack("<q", 7)),
    (node(Type.INT64, Timestamp(MS, True)), np.datetime64(2**62, "ms"), struct.pack("<q", 2**62)),
]


@pytest.mark.parametrize(("column", "value", "plain"), WHOLE, ids=str)
def test_plain_to_python_and_back(column: Primitive, value: Any, plain: bytes) -> None:
    found = to_python(column, from_plain(column, plain))
    assert found == value
    assert type(found) is type(value)
    assert to_plain(column, from_python(column, value)) == [plain]


@settings(deadline=None, max_examples=200)
@given(st.sampled_from([MS, US, NS]), st.booleans(), st.integers(-(2**63) + 1, 2**63 - 1))
def test_any_timestamp_comes_back(unit: TimeUnit, utc: bool, number: int) -> None:
    column = node(Type.INT64, Timestamp(unit, utc))
    assert from_python(column, to_python(column, number)) == number


@settings(deadline=None, max_examples=100)
@given(st.integers(-(2**31), 2**31 - 1))
def test_any_date_comes_back(days: int) -> None:
    assert from_python(DATE, to_python(DATE, days)) == days


@pytest.mark.parametrize(
    ("column", "value", "comparable"),
    [
        (I32, 2**40, 2**40),
        (I32, -(2**31) - 1, -(2**31) - 1),
        (U32, -1, -1),
        (I32, 1.5, 1.5),
        (I32, Decimal("1.5"), Decimal("1.5")),
        (I32, Decimal("1e999999"), Decimal("1e999999")),
        (I32, math.inf, math.inf),
        (decimals(Type.INT32), Decimal("1.234"), Decimal("123.4")),
        (decimals(Type.INT32), 10**8, 10**10),
        (node(Type.INT64, Timestamp(MS, False)), dt.datetime(1970, 1, 1, 0, 0, 0, 1), Fraction(1, 1000)),
        (node(Type.INT64, Timestamp(NS, False)), dt.datetime(9999, 1, 1), 253370764800 * 10**9),
        (DATE, np.datetime64("1970-01-01T12"), Fraction(1, 2)),
        (UUID, b"abc", b"abc"),
    ],
    ids=str,
)
def test_what_no_column_holds_compares_all_the_same(column: Primitive, value: Any, comparable: Any) -> None:
    found = from_python(column, value)
    assert found == comparable
    assert to_plain(column, found) == []


@pytest.mark.parametrize(
    ("column", "value", "comparable"),
    [
        (I32, 2.0, 2),
        (I32, Decimal("3.0"), 3),
        (I32, np.int8(-3), -3),
        (DOUBLE, 2, 2.0),
        (DOUBLE, 10**400, math.inf),
        (FLOAT, 0.1, float(np.float32(0.1))),
        (FLOAT, 1e300, math.inf),
        (HALF, Decimal("0.1"), float(np.float16(0.1))),
        (UUID, uuid.UUID(int=1), bytes(15) + b"\1"),
        (BYTES, "text", b"text"),
        (BYTES, memoryview(b"view"), b"view"),
        (TEXT, b"\xff", b"\xff"),
        (decimals(Type.BYTE_ARRAY), 3, 300),
        (DATE, np.datetime64("2000-01"), 10957),
        (node(Type.INT64, Timestamp(US, True)), np.datetime64("1971"), 31_536_000_000_000),
        (node(Type.INT64, Time(NS, True)), np.timedelta64(2, "h"), 7200 * 10**9),
        (I96, dt.datetime(1970, 1, 2, 0, 0, 0, 1), (2_440_589, 1000)),
        (
            node(Type.INT64, Timestamp(MS, True)),
            dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
            0,
        ),
    ],
    ids=lambda given: "view" if isinstance(given, memoryview) else str(given),
)
def test_values_of_kin(column: Primitive, value: Any, comparable: Any) -> None:
    found = from_python(column, value)
    assert found == comparable
    assert type(found) is type(comparable)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (BOOL, 1),
        (I32, True),
        (I32, "1"),
        (I32, np.datetime64("NaT", "ns")),
        (DOUBLE, "1.0"),
        (DOUBLE, False),
        (TEXT, 1),
        (node(Type.FIXED_LEN_BYTE_ARRAY, None, 3), "abc"),
        (decimals(Type.INT32), 1.5),
        (decimals(Type.INT32), True),
        (DATE, dt.datetime(2000, 1, 1)),
        (DATE, 5),
        (node(Type.INT64, Timestamp(US, True)), dt.datetime(2000, 1, 1)),
        (node(Type.INT64, Timestamp(US, False)), dt.datetime(2000, 1, 1, tzinfo=UTC)),
        (node(Type.INT64, Timestamp(US, False)), np.datetime64("NaT", "ns")),
        (node(Type.INT64, Timestamp(US, False)), dt.date(2000, 1, 1)),
        (node(Type.INT64, Time(US, False)), dt.time(1, tzinfo=UTC)),
        (I96, 7),
    ],
    ids=str,
)
def test_values_of_another_kind_are_refused(column: Primitive, value: Any) -> None:
    with pytest.raises(SchemaError, match="cannot be compared with"):
        from_python(column, value)


def test_zero_has_two_encodings_and_nan_too_many() -> None:
    assert to_plain(DOUBLE, -0.0) == [struct.pack("<d", 0.0), struct.pack("<d", -0.0)]
    assert to_plain(HALF, 0.0) == [b"\0\0", b"\0\x80"]
    for column, value in ((DOUBLE, math.nan), (I96, (0, 0)), (decimals(Type.BYTE_ARRAY), 1)):
        assert to_plain(column, value) is None


@pytest.mark.parametrize(
    ("column", "data"),
    [
        (BOOL, b""),
        (BOOL, b"\0\0"),
        (I32, b"\0" * 3),
        (I64, b"\0" * 4),
        (I96, b"\0" * 8),
        (FLOAT, b"\0" * 8),
        (HALF, b"\0"),
        (UUID, b"\0" * 17),
        (decimals(Type.FIXED_LEN_BYTE_ARRAY, 5), b"\0" * 4),
        (decimals(Type.BYTE_ARRAY), b"\1" * 1000),
    ],
    ids=str,
)
def test_bytes_that_are_no_value(column: Primitive, data: bytes) -> None:
    with pytest.raises(FormatError):
        from_plain(column, data)


def test_bounds_may_be_cut() -> None:
    assert from_plain(UUID, b"\0" * 3) == b"\0" * 3
    assert to_python(TEXT, from_plain(TEXT, "grün".encode()[:3])) == b"gr\xc3"
    assert to_python(I96, (2_440_588 + 10**8, 1)) == np.datetime64(86_400 * 10**8, "s")
    assert to_python(I32, None) is None


@pytest.mark.parametrize("year", [1, 1200, 1385, 1500, 1677, 1678, 2262, 2263])
def test_nanoseconds_of_any_year(year: int) -> None:
    """Without the nanoseconds where these are too many for 64 bits."""
    day = dt.date(year, 1, 1)
    found = to_python(I96, (2_440_588 + (day - dt.date(1970, 1, 1)).days, 1))
    assert found == np.datetime64(day, "ns" if 1677 < year < 2263 else "s") + (1 if 1677 < year < 2263 else 0)
