"""ColumnIndex: null pages, boundary order, and when there is none."""

from __future__ import annotations

import struct

import pytest

from resilient_pq.format import logical
from resilient_pq.format.file_metadata import BoundaryOrder, Repetition, Type
from resilient_pq.format.indexes.statistics import Bounds, PageSummary, column_index
from resilient_pq.format.schema_tree import Primitive

INT32 = Primitive("c", Repetition.OPTIONAL, Type.INT32)
DOUBLE = Primitive("c", Repetition.OPTIONAL, Type.DOUBLE)
BYTES = Primitive("c", Repetition.OPTIONAL, Type.BYTE_ARRAY)

A, D, U = BoundaryOrder.ASCENDING, BoundaryOrder.DESCENDING, BoundaryOrder.UNORDERED
NULLS = PageSummary(Bounds(None, None), 4, 4)


def _page(low: int, high: int, nulls: int = 0) -> PageSummary:
    return PageSummary(Bounds(low, high), nulls, 4)


def _plain(value: int) -> bytes:
    return struct.pack("<i", value)


@pytest.mark.parametrize(
    ("pages", "order"),
    [
        ([(0, 5)], A),
        ([(0, 5), (5, 9), (5, 9), (6, 10)], A),
        ([(0, 5), (0, 5)], A),
        ([(6, 10), (5, 9), (5, 8)], D),
        ([(0, 5), (1, 4)], U),
        ([(0, 5), (-1, 6)], U),
        ([(0, 5), (6, 7), (1, 9)], U),
        ([(-5, -4), (3, 4)], A),
        ([None, (0, 1), None, (1, 2), None], A),
        ([(3, 4), None, (1, 2)], D),
        ([None, None], A),
        ([(0, 1), None], A),
    ],
)
def test_boundary_order_passes_over_null_pages(pages: list[tuple[int, int] | None], order: BoundaryOrder) -> None:
    index = column_index(INT32, [NULLS if page is None else _page(*page) for page in pages])
    assert index is not None and index.boundary_order == order


def test_boundaries_are_ordered_as_numbers_not_as_bytes() -> None:
    index = column_index(INT32, [_page(-1, 0), _page(1, 256), _page(257, 300)])
    assert index is not None and index.boundary_order == A
    assert index.min_values == [_plain(-1), _plain(1), _plain(257)]
    assert index.max_values == [_plain(0), _plain(256), _plain(300)]


def test_null_pages_have_empty_bounds_and_all_counts_are_kept() -> None:
    index = column_index(INT32, [NULLS, _page(1, 2, nulls=3), _page(1, 2)])
    assert index is not None
    assert index.null_pages == [True, False, False]
    assert index.null_counts == [4, 3, 0]
    assert index.min_values == [b"", _plain(1), _plain(1)]
    assert index.nan_counts is None


def test_nan_counts_of_floats() -> None:
    pages = [PageSummary(Bounds(0.0, 1.0, 2), 0, 4), PageSummary(Bounds(None, None, 0), 4, 4)]
    index = column_index(DOUBLE, pages)
    assert index is not None and index.nan_counts == [2, 0]
    assert index.min_values == [struct.pack("<d", -0.0), b""]


def test_no_index_where_a_page_has_values_and_no_bounds() -> None:
    assert column_index(DOUBLE, [PageSummary(Bounds(None, None, 4), 0, 4)]) is None
    assert (
        column_index(DOUBLE, [PageSummary(Bounds(0.0, 1.0, 0), 0, 4), PageSummary(Bounds(None, None, 1), 3, 4)]) is None
    )
    assert column_index(BYTES, [PageSummary(Bounds(b"\xff" * 70, b"\xff" * 70), 0, 4)]) is None


def test_no_index_for_a_type_without_an_order() -> None:
    interval = Primitive("c", Repetition.OPTIONAL, Type.FIXED_LEN_BYTE_ARRAY, 12, logical.INTERVAL)
    assert column_index(interval, [NULLS]) is None


def test_the_order_is_that_of_the_values_before_they_are_cut() -> None:
    one, two = b"x" * 64 + b"a", b"x" * 64 + b"b"
    index = column_index(BYTES, [PageSummary(Bounds(two, two), 0, 1), PageSummary(Bounds(one, one), 0, 1)])
    assert index is not None and index.boundary_order == D
    assert index.min_values == [b"x" * 64] * 2 and index.max_values == [b"x" * 63 + b"y"] * 2
