"""What filters ask of values: constants of every kind against values and bounds, as SQL and IEEE 754 have it."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
import uuid
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from resilient_pq import ColumnStatistics, SchemaError
from resilient_pq.format import logical
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.indexes.condition import OPERATORS, Condition, ConditionKind, condition_of
from resilient_pq.format.indexes.row_masks import matching_rows
from resilient_pq.format.logical import Decimal, Integer, Timestamp, TimeUnit
from resilient_pq.format.physical_values import JULIAN_DAY_OF_EPOCH, NANOS_PER_DAY, ByteArrays, ByteViews, LeafColumn
from resilient_pq.format.schema_tree import Leaf, Primitive

NAN, INF = math.nan, math.inf
Dec = decimal.Decimal


def node(kind: Type, annotation: Any = None, length: int | None = None) -> Primitive:
    return Primitive("c", Repetition.OPTIONAL, kind, length, annotation)


def column(of: Primitive, values: Any, present: Any = None) -> LeafColumn:
    return LeafColumn(Leaf(0, ("c",), of, 1, 0, 0), len(values), values, present, None, None)


def strings(*values: bytes) -> ByteArrays:
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    return ByteArrays(offsets, np.frombuffer(b"".join(values), np.uint8))


def rows(*values: bytes) -> Any:
    return np.frombuffer(b"".join(values), np.uint8).reshape(len(values), -1)


def met(of: Primitive, values: Any, operator: str, value: Any) -> list[int]:
    """The positions of the values that meet a condition."""
    return np.flatnonzero(matching_rows(condition_of(of, operator, value), column(of, values))).tolist()


INT32 = node(Type.INT32)
INT64 = node(Type.INT64)
FLOAT = node(Type.FLOAT)
DOUBLE = node(Type.DOUBLE)
TEXT = node(Type.BYTE_ARRAY, logical.STRING)
NUMBERS = np.array([-(2**31), -1, 0, 1, 2**31 - 1], np.int32)


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("=", 0, [2]),
        ("==", 1.0, [3]),
        ("=", 0.5, []),
        ("=", 2**40, []),
        ("=", NAN, []),
        ("!=", 0, [0, 1, 3, 4]),
        ("!=", 0.5, [0, 1, 2, 3, 4]),
        ("!=", NAN, [0, 1, 2, 3, 4]),
        ("<", 0.5, [0, 1, 2]),
        ("<=", 0.5, [0, 1, 2]),
        ("<", 0, [0, 1]),
        (">", -0.5, [2, 3, 4]),
        (">=", Dec("0.5"), [3, 4]),
        ("<", -(2**31), []),
        ("<=", -(2**31), [0]),
        (">", 2**31 - 1, []),
        (">=", 2**31 - 1, [4]),
        ("<", 2**31, [0, 1, 2, 3, 4]),
        (">", -(2**70), [0, 1, 2, 3, 4]),
        (">=", 2**70, []),
        ("<", INF, [0, 1, 2, 3, 4]),
        ("<", -INF, []),
        (">", Dec("1e999999"), []),
        ("<", Dec("1e999999"), [0, 1, 2, 3, 4]),
        ("<", 10**400, [0, 1, 2, 3, 4]),
        ("=", 10**400, []),
        (">", Dec("-1e-999999"), [2, 3, 4]),
        ("<", NAN, []),
        (">=", NAN, []),
        ("in", [1, 1, 0.5, 2**99, NAN, np.int8(-1)], [1, 3]),
        ("in", range(-20, 20), [1, 2, 3]),
        ("not in", [1, 0.5], [0, 1, 2, 4]),
        ("not in", range(-20, 20), [0, 4]),
        ("in", [], []),
        ("not in", [], [0, 1, 2, 3, 4]),
    ],
)
def test_integers_compare_exactly_with_any_number(operator: str, value: Any, expected: list[int]) -> None:
    assert met(INT32, NUMBERS, operator, value) == expected


def test_unsigned_integers() -> None:
    wide = node(Type.INT64, Integer(64, False))
    values = np.array([0, 1, 2**63, 2**64 - 1], np.uint64).view(np.int64)
    assert met(wide, values, ">", 1) == [2, 3]
    assert met(wide, values, "=", 2**64 - 1) == [3]
    assert met(wide, values, "<", 0) == []
    assert met(wide, values, ">=", -5) == [0, 1, 2, 3]


def test_integers_of_few_bits_are_their_lowest_bits() -> None:
    """As in tables: some writers extend the sign of unsigned ones."""
    small = node(Type.INT32, Integer(8, False))
    values = np.array([-1, 255, 1], np.int32)
    assert met(small, values, "=", 255) == [0, 1]
    extended = ColumnStatistics(small, 0xFFFFFFFF, 0xFFFFFFFF, null_count=0)
    assert condition_of(small, "=", 255).may_hold(extended)
    assert condition_of(small, "=", 255).to_plain() is None


SPECIAL = np.array([-INF, -1.5, -0.0, 0.0, 0.1, INF, NAN], np.float32)


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("=", 0, [2, 3]),
        ("=", -0.0, [2, 3]),
        ("in", [0.0], [2, 3]),
        ("=", 0.1, [4]),
        ("<", 0.1, [0, 1, 2, 3]),
        ("=", NAN, []),
        ("!=", NAN, [0, 1, 2, 3, 4, 5, 6]),
        ("!=", 0, [0, 1, 4, 5, 6]),
        (">", NAN, []),
        ("in", [NAN], [6]),
        ("not in", [NAN, 0], [0, 1, 4, 5]),
        ("not in", [0], [0, 1, 4, 5, 6]),
        ("=", 1e300, []),
        ("!=", 1e300, [0, 1, 2, 3, 4, 5, 6]),
        ("<", 1e300, [0, 1, 2, 3, 4]),
        ("<=", 1e300, [0, 1, 2, 3, 4]),
        (">", 1e300, [5]),
        (">=", 10**400, [5]),
        ("=", Dec("1e400"), []),
        ("<=", Dec("1e400"), [0, 1, 2, 3, 4]),
        ("<", -1e300, [0]),
        ("<=", -(10**400), [0]),
        (">", -1e300, [1, 2, 3, 4, 5]),
        (">=", INF, [5]),
        ("<=", INF, [0, 1, 2, 3, 4, 5]),
        ("<", INF, [0, 1, 2, 3, 4]),
    ],
)
def test_floating_point(operator: str, value: Any, expected: list[int]) -> None:
    assert met(FLOAT, SPECIAL, operator, value) == expected
    half = node(Type.FIXED_LEN_BYTE_ARRAY, logical.FLOAT16, 2)
    assert met(half, SPECIAL.astype("<f2").view(np.uint8).reshape(-1, 2), operator, value) == expected


WORDS = (b"", b"\0", b"a", b"a\0", b"a\0\0", b"abcdefg", b"abcdefgh", b"abcdefgh\0", b"abcdefghi", b"b", b"\xff" * 20)


def test_strings_of_bytes_compare_as_bytes_do() -> None:
    """Against Python's own order, at every border of words and of the data's end."""
    binary = node(Type.BYTE_ARRAY)
    order = {"=": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
    for values in (WORDS, WORDS[::-1], WORDS[:3], WORDS[:1]):
        views = ByteViews.of(strings(*values))
        for (operator, method), constant in itertools.product(order.items(), WORDS):
            expected = [i for i, value in enumerate(values) if getattr(value, method)(constant)]
            assert met(binary, strings(*values), operator, constant) == expected, (operator, constant)
            assert met(binary, views, operator, constant) == expected
        assert met(binary, strings(*values), "in", WORDS[1::2]) == [
            i for i, value in enumerate(values) if value in WORDS[1::2]
        ]
        many = [*WORDS[1::2], *(bytes([i]) * 3 for i in range(30))]
        assert met(binary, strings(*values), "not in", many) == [
            i for i, value in enumerate(values) if value not in many
        ]


def test_strings_that_do_not_begin_at_the_beginning_of_their_data() -> None:
    whole = strings(b"xxxx", b"abc", b"abd")
    assert met(TEXT, whole[1:], "=", "abd") == [1]
    assert met(TEXT, whole[1:], "<", "abd") == [0]
    assert met(TEXT, whole[1:], "in", [f"a{i}" for i in range(20)] + ["abc"]) == [0]


def test_fixed_length_bytes() -> None:
    three = node(Type.FIXED_LEN_BYTE_ARRAY, None, 3)
    values = rows(b"abc", b"ab\0", b"\xff\xff\xff")
    assert met(three, values, "=", b"ab") == []
    assert met(three, values, ">", b"ab") == [0, 1, 2]
    assert met(three, values, "<", b"abc") == [1]
    unique = uuid.UUID(int=7)
    assert met(node(Type.FIXED_LEN_BYTE_ARRAY, logical.UUID, 16), rows(unique.bytes, bytes(16)), "=", unique) == [0]


@pytest.mark.parametrize("width", [4, 9, None])
def test_decimals(width: int | None) -> None:
    numbers = [-(2**31), -150, -1, 0, 150, 2**31 - 1]
    if width is None:
        lengths = [4, 2, 9, 0, 2, 5]
        encoded = [number.to_bytes(length, "big", signed=True) for number, length in zip(numbers, lengths, strict=True)]
        of, values = node(Type.BYTE_ARRAY, Decimal(10, 2)), strings(*encoded)
    else:
        of = node(Type.FIXED_LEN_BYTE_ARRAY, Decimal(9, 2), width)
        values = rows(*(number.to_bytes(width, "big", signed=True) for number in numbers))  # type: ignore[assignment]
    assert met(of, values, "=", Dec("1.5")) == [4]
    assert met(of, values, "=", Dec("1.501")) == []
    assert met(of, values, "<", Dec("-0.001")) == [0, 1, 2]
    assert met(of, values, ">=", Dec("-0.014")) == [2, 3, 4, 5]
    assert met(of, values, ">", -2) == [1, 2, 3, 4, 5]
    assert met(of, values, "<=", Dec("1e100000")) == [0, 1, 2, 3, 4, 5]
    assert met(of, values, ">", Dec("Infinity")) == []
    assert met(of, values, "not in", [Dec("0.00"), Dec("NaN")]) == [0, 1, 2, 4, 5]
    with pytest.raises(SchemaError, match="cannot be compared"):
        condition_of(of, "=", 1.5)


def test_decimals_of_too_many_bytes() -> None:
    of = node(Type.BYTE_ARRAY, Decimal(10, 2))
    with pytest.raises(ValueError, match="a decimal has 65 bytes"):
        met(of, strings(bytes(65)), "=", 1)


def test_decimals_as_long_as_only_damage_has_them() -> None:
    """The range of their values alone would take gigabytes."""
    of = node(Type.FIXED_LEN_BYTE_ARRAY, Decimal(10, 2), 2**31 - 1)
    for operator, value in (("<", 1), ("in", [1])):
        with pytest.raises(SchemaError, match="decimals of 2,147,483,647 bytes cannot be compared"):
            condition_of(of, operator, value)
    assert condition_of(of, "is null").may_hold(ColumnStatistics(of))


def test_times() -> None:
    utc = node(Type.INT64, Timestamp(TimeUnit.MILLIS, True))
    values = np.array([-1, 0, 1, 1000], np.int64)
    eastern = dt.timezone(dt.timedelta(hours=5))
    assert met(utc, values, ">", dt.datetime(1970, 1, 1, 5, tzinfo=eastern)) == [2, 3]
    assert met(utc, values, "=", np.datetime64("1970-01-01T00:00:01")) == [3]
    assert met(utc, values, "<", dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC)) == [0, 1]
    with pytest.raises(SchemaError, match="cannot be compared"):
        condition_of(utc, ">", dt.datetime(1970, 1, 1))
    date = node(Type.INT32, logical.DATE)
    assert met(date, np.array([0, 1], np.int32), "=", dt.date(1970, 1, 2)) == [1]


def test_int96() -> None:
    """Days and nanoseconds, also where the latter leave the day."""
    of = node(Type.INT96)

    def stored(day: int, nanos: int) -> bytes:
        return nanos.to_bytes(8, "little", signed=True) + (day + JULIAN_DAY_OF_EPOCH).to_bytes(4, "little", signed=True)

    values = rows(stored(0, 0), stored(0, 1), stored(1, -1), stored(-1, NANOS_PER_DAY), stored(10**6, 0))
    epoch = dt.datetime(1970, 1, 1)
    assert met(of, values, "=", epoch) == [0, 3]
    assert met(of, values, ">", epoch) == [1, 2, 4]
    assert met(of, values, "<=", epoch) == [0, 3]
    assert met(of, values, ">=", dt.datetime(1970, 1, 2)) == [4]
    assert met(of, values, "<", np.datetime64(1, "ps")) == [0, 3]
    assert met(of, values, "in", [epoch, np.datetime64(1, "ns")]) == [0, 1, 3]
    assert met(of, values, "not in", [epoch]) == [1, 2, 4]
    known = ColumnStatistics(of, (JULIAN_DAY_OF_EPOCH, 0), (JULIAN_DAY_OF_EPOCH, 5), null_count=0)
    assert condition_of(of, "<=", epoch).may_hold(known)
    assert not condition_of(of, "<", epoch).may_hold(known)
    assert not condition_of(of, "=", dt.datetime(1970, 1, 2)).may_hold(known)


def test_nulls_meet_nothing_but_null() -> None:
    present = np.array([True, False, True, False, True])
    for operator in OPERATORS:
        several = operator.endswith("in")
        value = [0] if several else None if operator.startswith("is") else 0
        found = matching_rows(condition_of(INT32, operator, value), column(INT32, NUMBERS, present))
        if operator == "is null":
            assert (found == ~present).all()
        else:
            assert not (found & ~present).any(), operator
    assert not matching_rows(condition_of(INT32, "is null"), column(INT32, NUMBERS)).any()
    assert matching_rows(condition_of(INT32, "is not null"), column(INT32, NUMBERS)).all()


def test_columns_of_nulls_alone_compare_with_anything() -> None:
    """They have no kind of their own; another file of the same rows has a column of one in their place."""
    of = node(Type.INT32, logical.UNKNOWN)
    nothing = column(of, NUMBERS, np.zeros(5, np.bool_))
    for value in ("x", b"x", 1, 0.5, True, dt.date(1970, 1, 1)):
        for operator, given in (("=", value), ("!=", value), ("<", value), ("in", [value]), ("not in", [value])):
            assert not matching_rows(condition_of(of, operator, given), nothing).any()
    assert matching_rows(condition_of(of, "is null"), nothing).all()
    for operator, given in (("=", None), ("in", ["x", None])):
        with pytest.raises(SchemaError, match="compares with nothing"):
            condition_of(of, operator, given)


@pytest.mark.parametrize("value", [None, np.datetime64("NaT", "ns"), "1", b"1", True, object(), dt.date(1970, 1, 1)])
def test_values_of_another_kind(value: Any) -> None:
    for operator, given in (("=", value), ("<", value), ("in", [1, value]), ("not in", [value])):
        with pytest.raises(SchemaError):
            condition_of(INT32, operator, given)


def test_pandas_nat() -> None:
    pandas = pytest.importorskip("pandas")
    utc = node(Type.INT64, Timestamp(TimeUnit.MILLIS, True))
    with pytest.raises(SchemaError, match="compares with nothing") as caught:
        condition_of(utc, ">", pandas.NaT)
    assert caught.value.hint == 'ask for nulls with the operators "is null" and "is not null"'
    assert condition_of(utc, ">", pandas.Timestamp(0, tz="UTC")).constants == (1,)


def test_operators_that_are_none() -> None:
    for operator in ("~", "IN", "", 3):
        with pytest.raises(SchemaError, match="there is no operator") as caught:
            condition_of(INT32, operator, 1)  # type: ignore[arg-type]
        assert "is not null" in str(caught.value.hint)
    with pytest.raises(SchemaError, match="takes no value"):
        condition_of(INT32, "is null", 1)


def test_columns_without_an_order() -> None:
    interval = node(Type.FIXED_LEN_BYTE_ARRAY, logical.INTERVAL, 12)
    assert met(interval, rows(bytes(12), b"x" * 12), "=", b"x" * 12) == [1]
    with pytest.raises(SchemaError, match="no order"):
        condition_of(interval, "<", bytes(12))


# --- bounds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [INT64, DOUBLE])
def test_what_bounds_rule_out_is_never_there(of: Primitive) -> None:
    """All operators and constants against all bounds: where a value could be, it is not ruled out; else it is."""
    numbers = range(-2, 3)
    for low, high in itertools.product(numbers, numbers):
        if low > high:
            continue
        known = ColumnStatistics(of, low, high, null_count=1, nan_count=0)
        possible = np.arange(low, high + 1, dtype=np.int64 if of is INT64 else np.float64)
        for operator, constant in itertools.product(("=", "!=", "<", "<=", ">", ">="), (-3, -2, -1, 0, 1, 2, 3)):
            # Of floating point there are values between; the ends alone decide all the same.
            assert condition_of(of, operator, constant).may_hold(known) == bool(met(of, possible, operator, constant))
        for several in itertools.combinations(range(-3, 4), 2):
            assert condition_of(of, "in", several).may_hold(known) == bool(met(of, possible, "in", several))
            assert condition_of(of, "not in", several).may_hold(known) >= bool(met(of, possible, "not in", several))


def test_bounds_that_are_not_known_rule_out_nothing() -> None:
    for low, high in ((None, None), (None, 5), (5, None)):
        known = ColumnStatistics(INT64, low, high)
        for operator in ("=", "!=", "<", "<=", ">", ">="):
            assert condition_of(INT64, operator, 5 if "=" in operator else 4 if operator == ">" else 6).may_hold(known)
        assert condition_of(INT64, "is null").may_hold(known)
    assert not condition_of(INT64, ">", 5).may_hold(ColumnStatistics(INT64, None, 5))
    assert not condition_of(INT64, "<", 5).may_hold(ColumnStatistics(INT64, 5, None))


def test_nan_lies_between_no_bounds() -> None:
    for count in (None, 1):
        known = ColumnStatistics(DOUBLE, 1.0, 1.0, nan_count=count)
        assert condition_of(DOUBLE, "!=", 1).may_hold(known)
        assert condition_of(DOUBLE, "in", [NAN]).may_hold(known)
        assert not condition_of(DOUBLE, "not in", [1, NAN]).may_hold(known)
    known = ColumnStatistics(DOUBLE, 1.0, 1.0, nan_count=0)
    assert not condition_of(DOUBLE, "!=", 1).may_hold(known)
    assert not condition_of(DOUBLE, "in", [NAN]).may_hold(known)


def test_counts_of_nulls() -> None:
    nothing = ColumnStatistics(INT64, null_count=4, num_values=4, all_null=True)
    assert not any(condition_of(INT64, operator, 1).may_hold(nothing) for operator in ("=", "!=", "<", ">="))
    assert condition_of(INT64, "is null").may_hold(nothing)
    assert not condition_of(INT64, "is not null").may_hold(nothing)
    assert not condition_of(INT64, "is null").may_hold(ColumnStatistics(INT64, null_count=0))


def test_bounds_that_were_cut() -> None:
    known = ColumnStatistics(TEXT, b"ab", b"ad", is_min_exact=False, is_max_exact=False)
    assert condition_of(TEXT, "=", "abc").may_hold(known)
    assert condition_of(TEXT, "<", "abc").may_hold(known)
    assert not condition_of(TEXT, "=", "ae").may_hold(known)


def test_what_bloom_filters_are_asked() -> None:
    assert condition_of(INT64, "in", [1, 2**70]).to_plain() == [(1).to_bytes(8, "little")]
    assert condition_of(INT64, "=", 0.5).to_plain() == []
    assert len(condition_of(DOUBLE, "=", 0).to_plain() or ()) == 2
    assert condition_of(TEXT, "=", "ä").to_plain() == ["ä".encode()]
    asked: list[Condition] = [
        condition_of(INT64, "!=", 1),
        condition_of(INT64, "<", 1),
        condition_of(DOUBLE, "in", [NAN]),
        condition_of(node(Type.BYTE_ARRAY, Decimal(5, 2)), "=", 1),
        condition_of(node(Type.INT96), "=", dt.datetime(2020, 1, 1)),
    ]
    assert [each.to_plain() for each in asked] == [None] * len(asked)
    assert condition_of(DOUBLE, "=", Fraction(1, 2).numerator).kind is ConditionKind.IN
