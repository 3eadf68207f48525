"""Bounds: the order of each type, NaN and zeros, and byte strings that are cut and still bound."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.format import logical
from resilient_pq.format.encodings.dictionary import build
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.indexes.statistics import (
    MAX_BOUND_BYTES,
    Bounds,
    DictionaryBounds,
    Order,
    bounds_of,
    order_of,
    plain_bound,
    statistics_of,
)
from resilient_pq.format.logical import Decimal, Integer, Logical, Timestamp, TimeUnit, Uninterpreted
from resilient_pq.format.physical_values import ByteArrays
from resilient_pq.format.schema_tree import Primitive

quick = settings(max_examples=200, deadline=None)


def _node(kind: Type, annotation: Logical | None = None, length: int | None = None) -> Primitive:
    return Primitive("c", Repetition.OPTIONAL, kind, length, annotation)


def _strings(values: list[bytes]) -> ByteArrays:
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    return ByteArrays(offsets, np.frombuffer(b"".join(values), np.uint8))


def _rows(values: list[bytes]) -> np.ndarray[Any, Any]:
    return np.frombuffer(b"".join(values), np.uint8).reshape(len(values), -1)


ORDERS = [
    (_node(Type.BOOLEAN), Order.BOOLEAN),
    (_node(Type.INT32), Order.SIGNED),
    (_node(Type.INT64, Integer(64, False)), Order.UNSIGNED),
    (_node(Type.INT32, Integer(8, False)), Order.UNSIGNED),
    (_node(Type.INT32, Integer(8, True)), Order.SIGNED),
    (_node(Type.INT32, logical.DATE), Order.SIGNED),
    (_node(Type.INT64, Timestamp(TimeUnit.NANOS, True)), Order.SIGNED),
    (_node(Type.INT32, Decimal(9, 2)), Order.SIGNED),
    (_node(Type.INT32, logical.UNKNOWN), Order.UNDEFINED),
    (_node(Type.INT96), Order.UNDEFINED),
    (_node(Type.DOUBLE), Order.FLOAT),
    (_node(Type.FIXED_LEN_BYTE_ARRAY, logical.FLOAT16, 2), Order.FLOAT16),
    (_node(Type.FIXED_LEN_BYTE_ARRAY, Decimal(20, 2), 9), Order.SIGNED_BYTES),
    (_node(Type.FIXED_LEN_BYTE_ARRAY, logical.UUID, 16), Order.BYTES),
    (_node(Type.FIXED_LEN_BYTE_ARRAY, logical.INTERVAL, 12), Order.UNDEFINED),
    (_node(Type.BYTE_ARRAY), Order.BYTES),
    (_node(Type.BYTE_ARRAY, logical.STRING), Order.BYTES),
    (_node(Type.BYTE_ARRAY, Decimal(20, 2)), Order.SIGNED_BYTES),
    (_node(Type.BYTE_ARRAY, Uninterpreted("GEOMETRY")), Order.UNDEFINED),
]


@pytest.mark.parametrize(("node", "order"), ORDERS, ids=str)
def test_order_of_each_type(node: Primitive, order: Order) -> None:
    assert order_of(node) is order


# --- numbers ------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
@quick
def test_signed(values: list[int]) -> None:
    node = _node(Type.INT64)
    bounds = bounds_of(node, np.array(values, np.int64))
    assert (bounds.low, bounds.high, bounds.nan_count) == (min(values), max(values), None)
    statistics = statistics_of(node, bounds, 3)
    assert statistics.min_value == struct.pack("<q", min(values))
    assert statistics.max_value == struct.pack("<q", max(values))
    assert statistics.is_min_value_exact and statistics.is_max_value_exact and statistics.null_count == 3


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
@quick
def test_unsigned(values: list[int]) -> None:
    node = _node(Type.INT32, Integer(32, False))
    statistics = statistics_of(node, bounds_of(node, np.array(values, np.uint32).view(np.int32)), 0)
    assert (statistics.min_value, statistics.max_value) == (
        struct.pack("<I", min(values)), struct.pack("<I", max(values)),
    )  # fmt: skip


@given(st.lists(st.floats(), min_size=1))
@quick
def test_floats_leave_nan_out_and_count_it(values: list[float]) -> None:
    node = _node(Type.DOUBLE)
    numbers = [value for value in values if value == value]  # noqa: PLR0124 (NaN is not itself)
    bounds = bounds_of(node, np.array(values))
    assert bounds.nan_count == len(values) - len(numbers)
    statistics = statistics_of(node, bounds, 0)
    assert statistics.nan_count == bounds.nan_count
    if not numbers:
        assert (statistics.min_value, statistics.max_value) == (None, None)
        return
    assert statistics.min_value == struct.pack("<d", min(numbers) or -0.0)
    assert statistics.max_value == struct.pack("<d", max(numbers) or 0.0)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize(
    ("node", "dtype", "code"),
    [
        (_node(Type.FLOAT), np.float32, "<f"),
        (_node(Type.DOUBLE), np.float64, "<d"),
        (_node(Type.FIXED_LEN_BYTE_ARRAY, logical.FLOAT16, 2), np.float16, "<e"),
    ],
    ids=["float", "double", "float16"],
)
def test_a_minimum_of_zero_is_negative_and_a_maximum_positive(
    node: Primitive, dtype: type, code: str, zero: float
) -> None:
    values: Any = np.array([zero, zero], dtype)
    if dtype is np.float16:
        values = values.view(np.uint8).reshape(-1, 2)
    statistics = statistics_of(node, bounds_of(node, values), 0)
    assert statistics.min_value == struct.pack(code, -0.0)
    assert statistics.max_value == struct.pack(code, 0.0)


@given(st.lists(st.floats(width=16), min_size=1))
@quick
def test_float16_is_ordered_as_a_number(values: list[float]) -> None:
    node = _node(Type.FIXED_LEN_BYTE_ARRAY, logical.FLOAT16, 2)
    numbers = [value for value in values if value == value]  # noqa: PLR0124 (NaN is not itself)
    bounds = bounds_of(node, np.array(values, np.float16).view(np.uint8).reshape(-1, 2))
    assert (bounds.low, bounds.high) == (min(numbers, default=None), max(numbers, default=None))
    assert bounds.nan_count == len(values) - len(numbers)


def test_booleans() -> None:
    node = _node(Type.BOOLEAN)
    for values in ([True], [False], [False, True]):
        statistics = statistics_of(node, bounds_of(node, np.array(values)), 0)
        assert (statistics.min_value, statistics.max_value) == (bytes([min(values)]), bytes([max(values)]))


@given(st.lists(st.integers(-(10**20) + 1, 10**20 - 1), min_size=1))
@quick
def test_decimals_are_ordered_by_their_sign(values: list[int]) -> None:
    node = _node(Type.FIXED_LEN_BYTE_ARRAY, Decimal(20, 3), 9)
    rows = _rows([value.to_bytes(9, "big", signed=True) for value in values])
    statistics = statistics_of(node, bounds_of(node, rows), 0)
    assert statistics.min_value == min(values).to_bytes(9, "big", signed=True)
    assert statistics.max_value == max(values).to_bytes(9, "big", signed=True)


# --- byte strings -------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=90), min_size=1, max_size=8))
@quick
def test_bounds_of_byte_strings_bound(values: list[bytes]) -> None:
    node = _node(Type.BYTE_ARRAY)
    statistics = statistics_of(node, bounds_of(node, _strings(values)), 0)
    low, high = min(values), max(values)
    assert statistics.min_value is not None and statistics.min_value <= low
    assert statistics.is_min_value_exact == (statistics.min_value == low)
    assert len(statistics.min_value) <= MAX_BOUND_BYTES
    if statistics.max_value is None:
        assert high[:MAX_BOUND_BYTES] == b"\xff" * MAX_BOUND_BYTES and len(high) > MAX_BOUND_BYTES
    else:
        assert statistics.max_value >= high and len(statistics.max_value) <= MAX_BOUND_BYTES
        assert statistics.is_max_value_exact == (statistics.max_value == high)


_CHARACTERS = st.sampled_from("aé€\ud7ff\ue000\uffff\U0001f600\U0010ffff\x7f\x00")


@given(st.lists(st.text(_CHARACTERS, max_size=40), min_size=1, max_size=4))
@quick
def test_bounds_of_text_bound_and_are_utf8(values: list[str]) -> None:
    node = _node(Type.BYTE_ARRAY, logical.STRING)
    encoded = [value.encode() for value in values]
    statistics = statistics_of(node, bounds_of(node, _strings(encoded)), 0)
    assert statistics.min_value is not None and statistics.min_value <= min(encoded)
    statistics.min_value.decode()
    assert len(statistics.min_value) <= MAX_BOUND_BYTES
    if statistics.max_value is not None:
        statistics.max_value.decode()
        assert statistics.max_value >= max(encoded)
        assert statistics.is_max_value_exact == (statistics.max_value == max(encoded))
    else:
        assert set(max(encoded)[:60].decode()) == {"\U0010ffff"}


CUTS = [
    ("x" * 64, "x" * 64, True, "x" * 64, True),
    ("x" * 65, "x" * 64, False, "x" * 63 + "y", False),
    ("x" * 63 + "é", "x" * 63, False, "x" * 62 + "y", False),
    ("x" * 63 + "\U0010ffff" * 2, "x" * 63, False, "x" * 62 + "y", False),
    ("x" * 60 + "\U0010ffff" * 2, "x" * 60 + "\U0010ffff", False, "x" * 59 + "y", False),
    ("\ud7ff" * 22, "\ud7ff" * 21, False, "\ud7ff" * 20 + "\ue000", False),
    ("\x7f" * 65, "\x7f" * 64, False, "\x7f" * 63 + "\x80", False),
    ("\U0010ffff" * 17, "\U0010ffff" * 16, False, None, False),
]


@pytest.mark.parametrize(("value", "low", "low_exact", "high", "high_exact"), CUTS)
def test_text_is_cut_on_the_border_of_a_character(
    value: str, low: str, low_exact: bool, high: str | None, high_exact: bool
) -> None:
    node = _node(Type.BYTE_ARRAY, logical.STRING)
    assert plain_bound(node, value.encode(), upper=False) == (low.encode(), low_exact)
    found, exact = plain_bound(node, value.encode(), upper=True)
    assert (found, exact) == (None if high is None else high.encode(), high_exact)
    assert found is None or found >= value.encode()


def test_bytes_are_cut_anywhere() -> None:
    node = _node(Type.BYTE_ARRAY)
    assert plain_bound(node, b"\xff" * 65, upper=True) == (None, False)
    assert plain_bound(node, b"a" + b"\xff" * 70, upper=True) == (b"b", False)
    assert plain_bound(node, b"\x80" * 70, upper=True) == (b"\x80" * 63 + b"\x81", False)
    assert plain_bound(node, b"\x80" * 70, upper=False) == (b"\x80" * 64, False)


def test_text_that_is_not_utf8_has_a_lower_bound_at_least() -> None:
    node = _node(Type.BYTE_ARRAY, logical.STRING)
    value = b"\xff" * 70
    low, exact = plain_bound(node, value, upper=False)
    assert low is not None and low <= value and not exact
    assert plain_bound(node, value, upper=True) == (None, False)


def test_fixed_values_are_never_cut() -> None:
    """A reader takes a bound of a fixed-length column for a whole value; pyarrow ends the process otherwise."""
    for width in (1, 16, MAX_BOUND_BYTES):
        node = _node(Type.FIXED_LEN_BYTE_ARRAY, None, width)
        statistics = statistics_of(node, bounds_of(node, _rows([b"\x01" * width, b"\xfe" * width])), 0)
        assert (statistics.min_value, statistics.max_value) == (b"\x01" * width, b"\xfe" * width)
    wide = _node(Type.FIXED_LEN_BYTE_ARRAY, None, MAX_BOUND_BYTES + 1)
    bounds = bounds_of(wide, _rows([b"\x01" * (MAX_BOUND_BYTES + 1)]))
    assert bounds == Bounds(None, None)
    assert statistics_of(wide, bounds, 1).min_value is None


@given(st.integers(1, 6).flatmap(lambda w: st.lists(st.binary(min_size=w, max_size=w), min_size=1)))
@quick
def test_fixed_values_are_ordered_by_their_bytes(values: list[bytes]) -> None:
    node = _node(Type.FIXED_LEN_BYTE_ARRAY, None, len(values[0]))
    bounds = bounds_of(node, _rows(values))
    assert (bounds.low, bounds.high) == (min(values), max(values))


# --- by the entries of a dictionary -------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    node=st.sampled_from([node for node, _ in ORDERS if node.physical_type is Type.BYTE_ARRAY]),
    values=st.lists(st.binary(max_size=12), max_size=40),
    borders=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_bounds_by_dictionary_are_those_of_strings(
    node: Primitive, values: list[bytes], borders: tuple[int, int]
) -> None:
    built = build(node, _strings(values), 10_000)
    assert built is not None
    start, end = sorted(min(border, len(values)) for border in borders)
    assert DictionaryBounds(node, built).of(start, end) == bounds_of(node, _strings(values[start:end]))


@pytest.mark.parametrize(
    ("node", "order"), [(node, order) for node, order in ORDERS if node.physical_type is Type.FIXED_LEN_BYTE_ARRAY],
    ids=str,
)  # fmt: skip
def test_bounds_by_dictionary_are_those_of_rows(node: Primitive, order: Order) -> None:
    del order
    random = np.random.default_rng(node.type_length)
    pool = random.integers(0, 256, (30, node.type_length or 0)).astype(np.uint8)
    pool[:3] = np.frombuffer(np.array([np.nan], np.float16).tobytes() * (node.type_length or 0), np.uint8)[
        : node.type_length
    ]  # a NaN where they are floats
    rows = pool[random.integers(0, len(pool), 400)]
    built = build(node, rows, 100_000)
    assert built is not None
    for start, end in ((0, 400), (0, 0), (5, 6), (100, 300), (398, 400)):
        assert DictionaryBounds(node, built).of(start, end) == bounds_of(node, rows[start:end])


# --- nothing to say -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("node", "order"), ORDERS, ids=str)
def test_no_values_have_no_bounds(node: Primitive, order: Order) -> None:
    if node.physical_type is Type.BYTE_ARRAY:
        nothing: Any = _strings([])
    elif node.physical_type in (Type.FIXED_LEN_BYTE_ARRAY, Type.INT96):
        nothing = np.zeros((0, node.type_length or 12), np.uint8)
    else:
        nothing = np.zeros(0, {Type.BOOLEAN: bool, Type.INT32: np.int32, Type.INT64: np.int64}.get(
            node.physical_type, np.float64))  # fmt: skip
    bounds = bounds_of(node, nothing)
    assert (bounds.low, bounds.high) == (None, None)
    assert bounds.nan_count == (0 if order in (Order.FLOAT, Order.FLOAT16) else None)
    statistics = statistics_of(node, bounds, 5)
    assert statistics.null_count == 5 and statistics.min_value is None and statistics.max_value is None
    assert statistics.is_min_value_exact is None and statistics.is_max_value_exact is None


def test_the_deprecated_fields_are_left_out() -> None:
    node = _node(Type.INT32)
    statistics = statistics_of(node, bounds_of(node, np.array([1], np.int32)), 0)
    assert statistics.min is None and statistics.max is None


def test_bounds_merge() -> None:
    assert Bounds(1, 5, 2).merged(Bounds(0, 3, 1)) == Bounds(0, 5, 3)
    assert Bounds(None, None, 2).merged(Bounds(0, 3, 0)) == Bounds(0, 3, 2)
    assert Bounds(1, 2).merged(Bounds(None, None)) == Bounds(1, 2)
    assert Bounds(None, None).merged(Bounds(None, None)) == Bounds(None, None)
