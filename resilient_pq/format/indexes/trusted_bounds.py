"""Statistics as a reader may trust them: of column chunks, and of the pages that a ColumnIndex describes."""

# As far as the column order, the writer and the specification allow (parquet.thrift, Statistics and ColumnOrder;
# PageIndex.md). What cannot be trusted is None, never an error: only a ColumnIndex that contradicts itself is one.

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import field
from enum import Enum, auto
from itertools import pairwise
from typing import Any

from resilient_pq.errors import FormatError
from resilient_pq.format import logical
from resilient_pq.format.file_metadata import (
    BoundaryOrder,
    ColumnIndex,
    ColumnMetaData,
    FileMetaData,
    SizeStatistics,
    Statistics,
    Type,
)
from resilient_pq.format.indexes.statistics import Bounds, Order, bounds_of, order_of
from resilient_pq.format.logical import Decimal
from resilient_pq.format.physical_values import LeafData
from resilient_pq.format.scalars import from_plain, to_python
from resilient_pq.format.schema_tree import Leaf, Primitive
from resilient_pq.lazy_dataclass import dataclass

_FLOATING = (Order.FLOAT, Order.FLOAT16)
_BYTE_STRINGS = (Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY)
#: Orders that a comparison of signed numbers, the only one of old writers, agrees with.
_SIGNED = (Order.SIGNED, Order.FLOAT, Order.BOOLEAN)
_MAX_SCALE = 1000  # Arrow's decimals have 76 digits; nobody's have so many
_PARQUET_MR = re.compile(r"parquet-mr version (\d+)\.(\d+)\.(\d+)(?:-cdh(\d+)\.(\d+))?")


class BoundsOrder(Enum):
    """What the footer says of how the minima and maxima of a column were found."""

    TYPE_ORDER = auto()
    IEEE_754_TOTAL_ORDER = auto()
    INT96_TIMESTAMP_ORDER = auto()
    #: Not told, or in a way that this version does not know, or one that the column's type does not have.
    UNKNOWN = auto()


def bounds_order_of(metadata: FileMetaData, leaf: Leaf) -> BoundsOrder:
    """The order of a column's minima and maxima."""
    orders = metadata.column_orders
    if orders is None or leaf.ordinal >= len(orders):
        return BoundsOrder.UNKNOWN
    order, own = orders[leaf.ordinal], order_of(leaf.node)
    if order.TYPE_ORDER is not None and own is not Order.UNDEFINED:
        return BoundsOrder.TYPE_ORDER
    if order.IEEE_754_TOTAL_ORDER is not None and own in _FLOATING:
        return BoundsOrder.IEEE_754_TOTAL_ORDER
    is_int96 = leaf.node.physical_type is Type.INT96 and leaf.node.logical != logical.UNKNOWN
    if order.INT96_TIMESTAMP_ORDER is not None and is_int96:
        return BoundsOrder.INT96_TIMESTAMP_ORDER
    return BoundsOrder.UNKNOWN


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What is known of the values of a column chunk, or of one of its data pages; what is not is None.

    Every value that is neither null nor NaN lies between the bounds, both inclusive. They need not be among the values:
    bounds of long byte strings are cut.

    Attributes:
        node: The column.
        low: The lower bound in the form in which values compare: an int, float or bytes; DECIMAL unscaled, times and
            dates in the column's unit, INT96 as days and nanoseconds.
        high: The upper bound.
        is_min_exact: Whether the lower bound is the smallest value; None where the writer did not say.
        is_max_exact: Whether the upper bound is the largest value.
        null_count: Entries without a value; writers differ in whether empty lists are among them, ours counts them.
        nan_count: Values that are NaN.
        distinct_count: Distinct values, as far as the writer cared.
        num_values: Entries, nulls included; not known of pages.
        all_null: Whether it is certain that there is no value at all.
        byte_array_bytes: Bytes of its BYTE_ARRAY values, without their lengths.
        repetition_level_histogram: How often each repetition level occurs, from 0 on. Writers leave it out where the
            schema tells it, and so with definition levels.
        definition_level_histogram: How often each definition level occurs.
    """

    node: Primitive = field(repr=False)
    low: Any = None
    high: Any = None
    is_min_exact: bool | None = None
    is_max_exact: bool | None = None
    null_count: int | None = None
    nan_count: int | None = None
    distinct_count: int | None = None
    num_values: int | None = None
    all_null: bool = False
    byte_array_bytes: int | None = None
    repetition_level_histogram: tuple[int, ...] | None = None
    definition_level_histogram: tuple[int, ...] | None = None

    @property
    def min(self) -> Any:
        """The lower bound as tables give values: text as str, dates as date, decimals as Decimal.

        Text is bytes where it was cut within a character, and what `datetime` cannot hold is NumPy's datetime64 or
        timedelta64.
        """
        return to_python(self.node, self.low)

    @property
    def max(self) -> Any:
        """The upper bound as tables give values."""
        return to_python(self.node, self.high)


_NOTHING = Bounds(None, None)


# --- column chunks ----------------------------------------------------------------------------------------------


def chunk_statistics(file: FileMetaData, leaf: Leaf, chunk: ColumnMetaData) -> ColumnStatistics:
    """The statistics of a column chunk in the footer, as far as they can be trusted."""
    found = chunk.statistics or Statistics()
    bounds, exact = _chunk_bounds(file, leaf, found)
    null_count = _count(found.null_count, chunk.num_values)
    sizes = chunk.size_statistics or SizeStatistics()
    return ColumnStatistics(
        leaf.node,
        bounds.low,
        bounds.high,
        found.is_min_value_exact if exact and bounds.low is not None else None,
        found.is_max_value_exact if exact and bounds.high is not None else None,
        null_count,
        _count(found.nan_count, chunk.num_values),
        _count(found.distinct_count, chunk.num_values),
        chunk.num_values,
        null_count is not None and null_count == chunk.num_values,
        _count(sizes.unencoded_byte_array_data_bytes, None),
        _histogram(sizes.repetition_level_histogram, leaf.max_repetition_level, chunk.num_values),
        _histogram(sizes.definition_level_histogram, leaf.max_definition_level, chunk.num_values),
    )


def within(stated: ColumnStatistics, leaf: Leaf, data: LeafData) -> bool:
    """Whether values can be those, or some of those, of which something is stated; True where nothing can be said."""
    found = bounds_of(stated.node, data.values)
    if _less(found.low, stated.low) or _less(stated.high, found.high):
        return False
    entries = data.num_rows if data.definition_levels is None else len(data.definition_levels)
    nulls = entries - len(data.values)
    if stated.null_count is None or leaf.max_repetition_level:
        return True  # writers differ in what they count of lists
    return nulls <= stated.null_count if entries != stated.num_values else nulls == stated.null_count


def _less(one: Any, other: Any) -> bool:
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    strings = isinstance(one, bytes) and isinstance(other, bytes)
    return (numbers or strings) and bool(one < other)


def _count(count: int | None, most: int | None) -> int | None:
    """A count that can be: neither negative nor more than there are entries."""
    return None if count is None or count < 0 or (most is not None and count > most) else count


def _histogram(counts: list[int] | None, maximum: int, total: int) -> tuple[int, ...] | None:
    if counts is None or len(counts) != maximum + 1 or min(counts) < 0 or sum(counts) != total:
        return None
    return tuple(counts)


def _chunk_bounds(file: FileMetaData, leaf: Leaf, found: Statistics) -> tuple[Bounds, bool]:
    """The bounds, and whether the flags of exactness beside them are theirs."""
    if _distrusted(file.created_by, leaf.node):
        return _NOTHING, False
    order = bounds_order_of(file, leaf)
    if order is not BoundsOrder.UNKNOWN and (found.min_value is not None or found.max_value is not None):
        try:
            return _bounds(leaf.node, order, found.min_value, found.max_value), True
        except FormatError:
            return _NOTHING, False
    if found.min is None or found.max is None:
        return _NOTHING, False
    own = order_of(leaf.node)
    if own in _SIGNED or (own is not Order.UNDEFINED and found.min == found.max):
        try:
            return _bounds(leaf.node, BoundsOrder.TYPE_ORDER, found.min, found.max), False
        except FormatError:
            return _NOTHING, False
    return _NOTHING, False


def _distrusted(created_by: str | None, node: Primitive) -> bool:
    """Whether the writer is known for wrong bounds of byte strings: parquet-mr before 1.8.0 (PARQUET-251)."""
    # Files that do not name their writer may be of the same time (PARQUET-297). Decimals of a scale that cannot be have
    # no bounds either: digits for all their places might fill the memory.
    if isinstance(node.logical, Decimal) and not 0 <= node.logical.scale <= _MAX_SCALE:
        return True
    if node.physical_type not in _BYTE_STRINGS:
        return False
    if not created_by:
        return True
    if not created_by.startswith("parquet-mr"):
        return False
    version = _PARQUET_MR.match(created_by)
    if version is None:
        return True
    numbers = tuple(int(part) for part in version.groups()[:3])
    if numbers == (1, 5, 0) and version[4] is not None:
        return (int(version[4]), int(version[5])) < (5, 5)  # it was mended there first
    return numbers < (1, 8, 0)


def _bounds(node: Primitive, order: BoundsOrder, low: bytes | None, high: bytes | None) -> Bounds:
    """Bounds of their bytes."""
    lowest = None if low is None else from_plain(node, low)
    highest = None if high is None else from_plain(node, high)
    if order_of(node) in _FLOATING:
        return _float_bounds(lowest, highest)
    if order is BoundsOrder.INT96_TIMESTAMP_ORDER:
        _check_timestamps96(lowest, highest)
    if lowest is not None and highest is not None and lowest > highest:
        raise FormatError(f"the minimum {lowest!r} is greater than the maximum {highest!r}")
    return Bounds(lowest, highest)


def _float_bounds(low: float | None, high: float | None) -> Bounds:
    """NaN is no bound, and a bound of zero stands for both zeros."""
    # Beside a NaN the other bound says nothing either: it was found by comparing with it. Under IEEE_754_TOTAL_ORDER a
    # NaN means that all values are NaN.
    if any(bound is not None and math.isnan(bound) for bound in (low, high)):
        return _NOTHING
    low, high = -0.0 if low == 0 else low, 0.0 if high == 0 else high
    if low is not None and high is not None and low > high:
        raise FormatError(f"the minimum {low!r} is greater than the maximum {high!r}")
    return Bounds(low, high)


def _check_timestamps96(*bounds: tuple[int, int] | None) -> None:
    if any(bound is not None and not 0 <= bound[1] < 86_400 * 10**9 for bound in bounds):
        raise FormatError("an INT96 bound has more nanoseconds than a day")


# --- pages ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DecodedColumnIndex:
    """A ColumnIndex, decoded: what is known of each data page of a chunk.

    Attributes:
        pages: One for each data page, in order.
        boundary_order: Whether the bounds of the pages that have values rise or fall from page to page, both of them;
            checked, not only stated.
    """

    pages: tuple[ColumnStatistics, ...]
    boundary_order: BoundaryOrder


def decode_column_index(file: FileMetaData, leaf: Leaf, index: ColumnIndex) -> DecodedColumnIndex:
    """The statistics of each page in a ColumnIndex, as far as they can be trusted."""
    count = len(index.null_pages)
    _check_lengths(leaf, index, count)
    order = bounds_order_of(file, leaf)
    if _distrusted(file.created_by, leaf.node):
        order = BoundsOrder.UNKNOWN
    repetition = _by_page(index.repetition_level_histograms, count)
    definition = _by_page(index.definition_level_histograms, count)
    pages = tuple(_page(leaf, index, order, at, repetition[at], definition[at]) for at in range(count))
    return DecodedColumnIndex(pages, _boundary_order(index.boundary_order, pages))


def _boundary_order(stated: int, pages: Sequence[ColumnStatistics]) -> BoundaryOrder:
    """The order that is stated, if the bounds are in it, as a binary search misses pages otherwise."""
    filled = [page for page in pages if not page.all_null]
    if any(page.low is None or page.high is None for page in filled):
        return BoundaryOrder.UNORDERED
    if stated == BoundaryOrder.DESCENDING:
        filled.reverse()
    elif stated != BoundaryOrder.ASCENDING:
        return BoundaryOrder.UNORDERED
    rising = all(one.low <= two.low and one.high <= two.high for one, two in pairwise(filled))
    return BoundaryOrder(stated) if rising else BoundaryOrder.UNORDERED


def _check_lengths(leaf: Leaf, index: ColumnIndex, count: int) -> None:
    for name, found, expected in (
        ("min_values", index.min_values, count),
        ("max_values", index.max_values, count),
        ("null_counts", index.null_counts, count),
        ("nan_counts", index.nan_counts, count),
        ("repetition_level_histograms", index.repetition_level_histograms, count * (leaf.max_repetition_level + 1)),
        ("definition_level_histograms", index.definition_level_histograms, count * (leaf.max_definition_level + 1)),
    ):
        # Some writers give empty lists for what they leave out.
        if found is not None and len(found) != expected and (found or name in ("min_values", "max_values")):
            raise FormatError(f"the column index has {len(found)} {name} for {count} pages")


def _by_page(counts: Sequence[int] | None, count: int) -> list[tuple[int, ...] | None]:
    if not counts:
        return [None] * count
    width = len(counts) // count
    return [tuple(counts[at : at + width]) for at in range(0, len(counts), width)]


def _page(
    leaf: Leaf,
    index: ColumnIndex,
    order: BoundsOrder,
    at: int,
    repetition: tuple[int, ...] | None,
    definition: tuple[int, ...] | None,
) -> ColumnStatistics:
    bounds = _NOTHING
    if order is not BoundsOrder.UNKNOWN and not index.null_pages[at]:
        bounds = _bounds(leaf.node, order, index.min_values[at], index.max_values[at])
    null_count = _count(index.null_counts[at], None) if index.null_counts else None
    # Some writers call pages null of whose values they kept no account: their nulls must have been counted.
    all_null = index.null_pages[at] and bool(null_count) and leaf.max_definition_level > 0
    return ColumnStatistics(
        leaf.node,
        bounds.low,
        bounds.high,
        null_count=null_count,
        nan_count=_count(index.nan_counts[at], None) if index.nan_counts else None,
        all_null=all_null,
        repetition_level_histogram=repetition,
        definition_level_histogram=definition,
    )
