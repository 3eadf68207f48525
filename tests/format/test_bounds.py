"""What a reader may believe of statistics: by column order, by writer, by what the bytes themselves say."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from resilient_pq.errors import FormatError
from resilient_pq.format import logical
from resilient_pq.format.annotations import Empty
from resilient_pq.format.file_metadata import (
    BoundaryOrder,
    ColumnIndex,
    ColumnMetaData,
    ColumnOrder,
    FileMetaData,
    Repetition,
    SizeStatistics,
    Statistics,
    Type,
)
from resilient_pq.format.indexes.trusted_bounds import (
    BoundsOrder,
    ColumnStatistics,
    bounds_order_of,
    chunk_statistics,
    decode_column_index,
)
from resilient_pq.format.logical import Decimal, Integer, Logical
from resilient_pq.format.schema_tree import Group, Leaf, Primitive, Schema

TYPE_ORDER = ColumnOrder(TYPE_ORDER=Empty())
IEEE = ColumnOrder(IEEE_754_TOTAL_ORDER=Empty())
INT96_ORDER = ColumnOrder(INT96_TIMESTAMP_ORDER=Empty())
OF_THE_FUTURE = ColumnOrder()
OURS = "a writer version 1"


def leaf_of(kind: Type, annotation: Logical | None = None, length: int | None = None) -> Leaf:
    node = Primitive("c", Repetition.OPTIONAL, kind, length, annotation)
    return Schema(Group("schema", Repetition.REQUIRED, (node,))).leaves[0]


I32, U32 = leaf_of(Type.INT32), leaf_of(Type.INT32, Integer(32, False))
DOUBLE, BOOL = leaf_of(Type.DOUBLE), leaf_of(Type.BOOLEAN)
HALF = leaf_of(Type.FIXED_LEN_BYTE_ARRAY, logical.FLOAT16, 2)
TEXT, BYTES = leaf_of(Type.BYTE_ARRAY, logical.STRING), leaf_of(Type.BYTE_ARRAY)
DECIMAL = leaf_of(Type.BYTE_ARRAY, Decimal(20, 2))
INTERVAL = leaf_of(Type.FIXED_LEN_BYTE_ARRAY, logical.INTERVAL, 12)
I96 = leaf_of(Type.INT96)


def i32(value: int) -> bytes:
    return struct.pack("<i", value)


def f64(value: float) -> bytes:
    return struct.pack("<d", value)


def i96(days: int, nanos: int) -> bytes:
    return struct.pack("<qi", nanos, days)


def file(created_by: str | None = OURS, *orders: ColumnOrder) -> FileMetaData:
    return FileMetaData(1, [], 0, [], created_by=created_by, column_orders=list(orders) or None)


def chunk(leaf: Leaf, order: ColumnOrder | None = TYPE_ORDER, by: str | None = OURS, **found: Any) -> ColumnStatistics:
    metadata = ColumnMetaData(int(leaf.node.physical_type), [], num_values=10, statistics=Statistics(**found))
    return chunk_statistics(file(by, *([] if order is None else [order])), leaf, metadata)


def bounds(*arguments: Any, **found: Any) -> tuple[Any, Any]:
    statistics = chunk(*arguments, **found)
    return statistics.low, statistics.high


def both(low: bytes, high: bytes) -> dict[str, bytes]:
    return {"min_value": low, "max_value": high}


def old(low: bytes, high: bytes) -> dict[str, bytes]:
    return {"min": low, "max": high}


# --- orders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaf", "order", "expected"),
    [
        (I32, TYPE_ORDER, BoundsOrder.TYPE_ORDER),
        (I32, IEEE, BoundsOrder.UNKNOWN),
        (I32, OF_THE_FUTURE, BoundsOrder.UNKNOWN),
        (I32, None, BoundsOrder.UNKNOWN),
        (DOUBLE, IEEE, BoundsOrder.IEEE_754_TOTAL_ORDER),
        (HALF, IEEE, BoundsOrder.IEEE_754_TOTAL_ORDER),
        (I96, TYPE_ORDER, BoundsOrder.UNKNOWN),
        (I96, INT96_ORDER, BoundsOrder.INT96_TIMESTAMP_ORDER),
        (TEXT, INT96_ORDER, BoundsOrder.UNKNOWN),
        (INTERVAL, TYPE_ORDER, BoundsOrder.UNKNOWN),
    ],
)
def test_order_of_a_column(leaf: Leaf, order: ColumnOrder | None, expected: BoundsOrder) -> None:
    assert bounds_order_of(file(OURS, *([] if order is None else [order])), leaf) is expected


def test_orders_of_fewer_columns() -> None:
    assert bounds_order_of(file(OURS, TYPE_ORDER), replace(I32, ordinal=1)) is BoundsOrder.UNKNOWN


# --- column chunks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaf", "found", "expected"),
    [
        (I32, both(i32(-5), i32(7)), (-5, 7)),
        (U32, both(i32(5), i32(-1)), (5, 2**32 - 1)),
        (BOOL, both(b"\0", b"\1"), (False, True)),
        (TEXT, both(b"a", b"\xc3\xa9"), (b"a", b"\xc3\xa9")),
        (DECIMAL, both(b"\xff\x38", b"\x01"), (-200, 1)),
        (I32, {"min_value": i32(1)}, (1, None)),
        (I32, {"max_value": i32(1)}, (None, 1)),
        # What cannot be is passed over.
        (I32, both(i32(7), i32(-5)), (None, None)),
        (U32, both(i32(-1), i32(5)), (None, None)),
        (I32, both(b"\0", i32(5)), (None, None)),
        (INTERVAL, both(bytes(12), bytes(12)), (None, None)),
        (I96, both(i96(1, 2), i96(3, 4)), (None, None)),
    ],
)
def test_bounds_in_type_order(leaf: Leaf, found: dict[str, Any], expected: tuple[Any, Any]) -> None:
    assert bounds(leaf, **found) == expected
    assert bounds(leaf, None, **found) == (None, None)
    assert bounds(leaf, OF_THE_FUTURE, **found) == (None, None)


@pytest.mark.parametrize("order", [TYPE_ORDER, IEEE])
@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-1.5, 2.5, (-1.5, 2.5)),
        (0.0, 0.0, (-0.0, 0.0)),
        (0.0, 1.0, (-0.0, 1.0)),
        (-1.0, -0.0, (-1.0, 0.0)),
        (math.nan, 1.0, (None, None)),
        (1.0, math.nan, (None, None)),
        (math.nan, -math.nan, (None, None)),
        (2.0, 1.0, (None, None)),
        (-math.inf, math.inf, (-math.inf, math.inf)),
    ],
)
def test_floats(order: ColumnOrder, low: float, high: float, expected: tuple[Any, Any]) -> None:
    assert repr(bounds(DOUBLE, order, **both(f64(low), f64(high)))) == repr(expected)
    if order is TYPE_ORDER:
        assert repr(bounds(DOUBLE, None, **old(f64(low), f64(high)))) == repr(expected)


def test_int96_has_bounds_in_its_own_order_only() -> None:
    assert bounds(I96, INT96_ORDER, **both(i96(-1, 5), i96(7, 0))) == ((-1, 5), (7, 0))
    assert bounds(I96, INT96_ORDER, **both(i96(0, -1), i96(1, 0))) == (None, None)
    assert bounds(I96, INT96_ORDER, **both(i96(0, 0), i96(0, 86_400 * 10**9))) == (None, None)


@pytest.mark.parametrize(
    ("leaf", "found", "expected"),
    [
        (I32, old(i32(-5), i32(7)), (-5, 7)),
        (BOOL, old(b"\0", b"\1"), (False, True)),
        (U32, old(i32(1), i32(7)), (None, None)),
        (TEXT, old(b"a", b"b"), (None, None)),
        (DECIMAL, old(b"\0", b"\1"), (None, None)),
        (INTERVAL, old(bytes(12), bytes(12)), (None, None)),
        # Where both are the same, no order could have told them apart.
        (U32, old(i32(7), i32(7)), (7, 7)),
        (TEXT, old(b"a", b"a"), (b"a", b"a")),
        (I32, {"min": i32(1)}, (None, None)),
    ],
)
def test_old_bounds_count_where_a_signed_order_suffices(
    leaf: Leaf, found: dict[str, Any], expected: tuple[Any, Any]
) -> None:
    for order in (None, TYPE_ORDER, OF_THE_FUTURE):
        assert bounds(leaf, order, **found) == expected
    statistics = chunk(leaf, None, **found, is_min_value_exact=True, is_max_value_exact=True)
    assert (statistics.is_min_exact, statistics.is_max_exact) == (None, None)


def test_new_bounds_before_old_ones() -> None:
    found = {**both(i32(1), i32(2)), **old(i32(3), i32(4))}
    assert bounds(I32, **found) == (1, 2)
    assert bounds(I32, None, **found) == (3, 4)


MR = "parquet-mr version {} (build abc)"


@pytest.mark.parametrize(
    ("created_by", "trusted"),
    [
        (MR.format("1.8.0"), True),
        (MR.format("1.13.1"), True),
        (MR.format("2.0.0"), True),
        (MR.format("1.7.9"), False),
        (MR.format("1.6.0rc3"), False),
        (MR.format("1.5.0-cdh5.4.99"), False),
        (MR.format("1.5.0-cdh5.5.0"), True),
        (MR.format("1.5.0-cdh6.0.0"), True),
        (MR.format("1.5.0"), False),
        ("parquet-mr", False),
        ("parquet-mr version x", False),
        (None, False),
        ("", False),
        ("parquet-cpp version 1.0.0", True),
        ("impala version 1.2", True),
    ],
)
def test_writers_known_for_wrong_bounds_of_byte_strings(created_by: str | None, trusted: bool) -> None:
    expected = (b"a", b"a") if trusted else (None, None)
    for found in (both(b"a", b"a"), old(b"a", b"a")):
        assert bounds(TEXT, TYPE_ORDER, created_by, **found) == expected
    assert bounds(I32, TYPE_ORDER, created_by, **both(i32(1), i32(2))) == (1, 2)


@pytest.mark.parametrize(("scale", "expected"), [(0, 5), (1000, 5), (-1, None), (1001, None), (2**31 - 1, None)])
def test_decimals_of_a_scale_that_cannot_be(scale: int, expected: int | None) -> None:
    leaf = leaf_of(Type.INT32, Decimal(9, scale))
    assert bounds(leaf, **both(i32(5), i32(5))) == (expected, expected)


def test_flags_and_counts() -> None:
    found = chunk(
        TEXT,
        **both(b"a", b"b"),
        is_min_value_exact=True,
        is_max_value_exact=False,
        null_count=3,
        distinct_count=2,
    )
    assert (found.is_min_exact, found.is_max_exact) == (True, False)
    assert (found.null_count, found.distinct_count, found.nan_count, found.num_values) == (3, 2, None, 10)
    assert not found.all_null
    assert (found.min, found.max) == ("a", "b")
    assert chunk(TEXT, null_count=10).all_null
    impossible = chunk(DOUBLE, null_count=11, nan_count=-1, distinct_count=11, is_min_value_exact=True)
    assert (impossible.null_count, impossible.nan_count, impossible.distinct_count) == (None, None, None)
    assert impossible.is_min_exact is None


def test_a_chunk_without_statistics() -> None:
    metadata = ColumnMetaData(int(Type.INT32), [], num_values=3)
    found = chunk_statistics(file(OURS, TYPE_ORDER), I32, metadata)
    assert found == ColumnStatistics(I32.node, num_values=3)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (SizeStatistics(7, [4], [1, 3]), (7, (4,), (1, 3))),
        (SizeStatistics(-1, [4, 0], [1, 2]), (None, None, None)),
        (SizeStatistics(0, [5], [5, -1]), (0, None, None)),
        (SizeStatistics(), (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_size_statistics(sizes: SizeStatistics | None, expected: tuple[Any, ...]) -> None:
    metadata = ColumnMetaData(int(Type.BYTE_ARRAY), [], num_values=4, size_statistics=sizes)
    found = chunk_statistics(file(OURS, TYPE_ORDER), TEXT, metadata)
    assert (
        found.byte_array_bytes, found.repetition_level_histogram, found.definition_level_histogram,
    ) == expected  # fmt: skip


# --- column indexes -----------------------------------------------------------------------------------------


def index_of(*pages: tuple[int, int] | None, order: int = 0, **more: Any) -> ColumnIndex:
    more.setdefault("null_counts", [4 if page is None else 0 for page in pages])
    return ColumnIndex(
        [page is None for page in pages],
        [b"" if page is None else i32(page[0]) for page in pages],
        [b"" if page is None else i32(page[1]) for page in pages],
        order,
        **more,
    )


def test_pages() -> None:
    index = index_of(
        (1, 2), None, (2, 5), order=1, null_counts=[0, 4, 1], definition_level_histograms=[0, 4, 4, 0, 1, 3]
    )
    found = decode_column_index(file(OURS, TYPE_ORDER), I32, index)
    assert [(page.min, page.max) for page in found.pages] == [(1, 2), (None, None), (2, 5)]
    assert [page.null_count for page in found.pages] == [0, 4, 1]
    assert [page.all_null for page in found.pages] == [False, True, False]
    assert [page.definition_level_histogram for page in found.pages] == [(0, 4), (4, 0), (1, 3)]
    assert found.boundary_order is BoundaryOrder.ASCENDING
    empty = decode_column_index(file(OURS, TYPE_ORDER), I32, index_of())
    assert empty.pages == ()


@pytest.mark.parametrize(
    ("pages", "stated", "expected"),
    [
        ([(1, 2), (1, 3)], 1, BoundaryOrder.ASCENDING),
        ([(1, 3), (1, 2)], 2, BoundaryOrder.DESCENDING),
        ([(1, 2), (1, 3)], 2, BoundaryOrder.UNORDERED),
        ([(1, 3), (2, 2)], 1, BoundaryOrder.UNORDERED),
        ([(1, 2), (1, 3)], 0, BoundaryOrder.UNORDERED),
        ([(1, 2), (1, 3)], 7, BoundaryOrder.UNORDERED),
        ([(1, 2), None, (1, 3)], 1, BoundaryOrder.ASCENDING),
    ],
)
def test_an_order_that_is_stated_is_checked(pages: list[Any], stated: int, expected: BoundaryOrder) -> None:
    found = decode_column_index(file(OURS, TYPE_ORDER), I32, index_of(*pages, order=stated))
    assert found.boundary_order is expected


@pytest.mark.parametrize("metadata", [file(OURS), file(OURS, OF_THE_FUTURE)])
def test_pages_without_an_order_keep_their_counts(metadata: FileMetaData) -> None:
    found = decode_column_index(metadata, I32, index_of((1, 2), order=1, null_counts=[3]))
    assert (found.pages[0].low, found.pages[0].null_count) == (None, 3)
    assert found.boundary_order is BoundaryOrder.UNORDERED


def test_a_page_of_nothing_but_nan_has_no_bounds() -> None:
    index = ColumnIndex([False] * 2, [f64(math.nan), f64(0)], [f64(math.nan), f64(1)], 1, [0, 0], nan_counts=[9, 0])
    found = decode_column_index(file(OURS, IEEE), DOUBLE, index)
    assert [(page.low, page.high, page.nan_count) for page in found.pages] == [
        (None, None, 9),
        (-0.0, 1.0, 0),
    ]
    assert found.boundary_order is BoundaryOrder.UNORDERED


def changed(**fields: Any) -> Callable[[], ColumnIndex]:
    return lambda: replace(index_of((1, 2), (3, 4), null_counts=[0, 0]), **fields)


@pytest.mark.parametrize(
    "make",
    [
        changed(min_values=[i32(1)]),
        changed(max_values=[]),
        changed(null_pages=[False]),
        changed(null_counts=[1]),
        changed(nan_counts=[1, 2, 3]),
        changed(repetition_level_histograms=[1]),
        changed(definition_level_histograms=[1, 2, 3]),
        changed(min_values=[i32(1), b"\0"]),
        changed(min_values=[i32(1), i32(5)]),
        changed(max_values=[i32(2), b""]),
    ],
)
def test_an_index_that_contradicts_itself(make: Callable[[], ColumnIndex]) -> None:
    with pytest.raises(FormatError):
        decode_column_index(file(OURS, TYPE_ORDER), I32, make())


@pytest.mark.parametrize(("counts", "expected"), [(None, False), ([0], False), ([-1], False), ([3], True)])
def test_null_pages_count_their_nulls(counts: list[int] | None, expected: bool) -> None:
    """parquet-mr 1.13 says so of pages without statistics, too."""
    metadata = file(OURS, TYPE_ORDER)
    (page,) = decode_column_index(metadata, I32, index_of(None, null_counts=counts)).pages
    assert (page.all_null, page.low, page.high) == (expected, None, None)
    required = replace(I32, max_definition_level=0)
    assert not decode_column_index(metadata, required, index_of(None, null_counts=counts)).pages[0].all_null


def test_lists_that_some_writers_leave_empty() -> None:
    index = changed(null_counts=[], repetition_level_histograms=[], definition_level_histograms=[])()
    found = decode_column_index(file(OURS, TYPE_ORDER), I32, index)
    assert [page.null_count for page in found.pages] == [None, None]
