"""Minima, maxima, counts and sizes of values, of chunks and of their pages (parquet.thrift, PageIndex.md)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.format import kernels, logical
from resilient_pq.format.encodings.dictionary import Dictionary, entries_at
from resilient_pq.format.file_metadata import BoundaryOrder, ColumnIndex, SizeStatistics, Statistics, Type
from resilient_pq.format.logical import Decimal, Integer, Uninterpreted
from resilient_pq.format.physical_values import ByteArrays, Levels, Values, is_uniform
from resilient_pq.format.schema_tree import Leaf, Primitive
from resilient_pq.lazy_dataclass import dataclass

# Bounds are kept as Python numbers or bytes, which compare as the column's order asks, until they are written in PLAIN
# encoding. Byte arrays are cut to 64 bytes, with the exactness flags saying so; values of a fixed length above that
# have no bounds.


_TEXT = (logical.STRING, logical.ENUM, logical.JSON)
_UNSIGNED: dict[Type, np.dtype[Any]] = {Type.INT32: np.dtype("<u4"), Type.INT64: np.dtype("<u8")}
MAX_BOUND_BYTES = 64  # Bounds of byte arrays are cut to this many bytes


class Order(Enum):
    """How the values of a column compare; UNDEFINED ones have no bounds."""

    SIGNED = auto()
    UNSIGNED = auto()
    FLOAT = auto()
    BOOLEAN = auto()
    BYTES = auto()
    SIGNED_BYTES = auto()
    FLOAT16 = auto()
    UNDEFINED = auto()


@lru_cache(maxsize=1024)
def order_of(node: Primitive) -> Order:
    """The order that TYPE_ORDER gives the values of a column."""
    annotation = node.logical
    if isinstance(annotation, Uninterpreted) or annotation in (logical.INTERVAL, logical.UNKNOWN):
        return Order.UNDEFINED
    match node.physical_type:
        case Type.BOOLEAN:
            return Order.BOOLEAN
        case Type.INT32 | Type.INT64:
            unsigned = isinstance(annotation, Integer) and not annotation.signed
            return Order.UNSIGNED if unsigned else Order.SIGNED
        case Type.FLOAT | Type.DOUBLE:
            return Order.FLOAT
        case Type.INT96:
            return Order.UNDEFINED
        case Type.BYTE_ARRAY | Type.FIXED_LEN_BYTE_ARRAY:
            if isinstance(annotation, Decimal):
                return Order.SIGNED_BYTES
            return Order.FLOAT16 if annotation == logical.FLOAT16 else Order.BYTES


@dataclass(frozen=True, slots=True)
class Bounds:
    """Smallest and largest of some values; both are None where nothing could be said."""

    low: Any  # the smallest value, as a number or bytes that compare in the column's order
    high: Any
    nan_count: int | None = None  # NaNs among the values, which never are bounds; None for types that have none

    def merged(self, other: Bounds) -> Bounds:
        """Bounds of both sets of values together."""
        lows = [value for value in (self.low, other.low) if value is not None]
        highs = [value for value in (self.high, other.high) if value is not None]
        nans = None if self.nan_count is None else self.nan_count + (other.nan_count or 0)
        return Bounds(min(lows, default=None), max(highs, default=None), nans)


def bounds_of(node: Primitive, values: Values) -> Bounds:
    """Smallest and largest of `values`, and how many are NaN."""
    order = order_of(node)
    floating = order in (Order.FLOAT, Order.FLOAT16)
    if not len(values) or order is Order.UNDEFINED:
        return Bounds(None, None, 0 if floating else None)
    if isinstance(values, ByteArrays):
        if order is Order.SIGNED_BYTES:  # integers of any length: this package never writes them
            return Bounds(None, None)
        low, high = kernels.byte_array_min_max(values.offsets, values.data)
        return Bounds(values.value(low), values.value(high))
    if order in (Order.BYTES, Order.SIGNED_BYTES):
        return _fixed_bounds(values, signed=order is Order.SIGNED_BYTES)
    numbers: NDArray[Any] = np.ascontiguousarray(values)
    if order is Order.FLOAT16:
        numbers = numbers.view("<f2").reshape(-1).astype(np.float32)
    elif order is Order.UNSIGNED:
        numbers = numbers.view(_UNSIGNED[node.physical_type])
    elif order is Order.BOOLEAN:
        numbers = numbers.astype(np.int32)
    low, high, nans = kernels.number_min_max(numbers)
    if not floating:
        return Bounds(low, high)
    return Bounds(None, None, nans) if nans == len(numbers) else Bounds(low, high, nans)


class DictionaryBounds:
    """Bounds of runs of strings or rows of bytes by the entries of a dictionary that they are."""

    def __init__(self, node: Primitive, built: Dictionary) -> None:
        """Know the values of a column by their dictionary."""
        self._node = node
        self._built = built
        self._outermost: tuple[int, int] | None = None

    def of(self, start: int, end: int) -> Bounds:
        """Bounds of the values from `start` up to and not including `end`."""
        entries, indices = self._built.values, self._built.indices[start:end]
        if len(indices) == len(self._built.indices) and self._built.all_used:
            used = None  # every entry is the value of something
        else:
            used = np.zeros(len(entries), np.uint8)
            kernels.mark_used(indices, used)
        if isinstance(entries, ByteArrays) and used is not None and order_of(self._node) is Order.BYTES:
            if self._outermost is None:
                self._outermost = kernels.byte_array_min_max(entries.offsets, entries.data)
            low, high = self._outermost
            if used[low] and used[high]:  # as in most pages of many values
                return Bounds(entries.value(low), entries.value(high))
        if used is not None and not used.all():
            entries = entries_at(entries, np.flatnonzero(used))
        bounds = bounds_of(self._node, entries)
        if not bounds.nan_count:
            return bounds
        assert isinstance(self._built.values, np.ndarray)
        # NaNs are counted as often as they stand there.
        return bounds_of(self._node, self._built.values[indices])


def _fixed_bounds(values: NDArray[np.uint8], *, signed: bool) -> Bounds:
    # A bound of fixed length cannot be cut: readers take it for a whole value, and pyarrow ends the process.
    if not 0 < values.shape[1] <= MAX_BOUND_BYTES:
        return Bounds(None, None)
    rows = [values[at].tobytes() for at in kernels.row_min_max(np.ascontiguousarray(values), signed)]
    low, high = (int.from_bytes(row, "big", signed=True) if signed else row for row in rows)
    return Bounds(low, high)


def plain_bound(node: Primitive, value: Any, *, upper: bool) -> tuple[bytes | None, bool]:
    """A bound in PLAIN encoding without a length, and whether it is exact; None for an upper one that cannot be cut."""
    # A minimum of zero is written as -0.0 and a maximum as +0.0, since readers may hold the two for one
    # (parquet.thrift, ColumnOrder).
    number = _number_of(node)
    if number is not None:
        if value == 0 and isinstance(value, float):
            value = 0.0 if upper else -0.0
        return number.pack(value), True
    if order_of(node) is Order.SIGNED_BYTES:
        return value.to_bytes(node.type_length or 0, "big", signed=True), True
    return _cut(value, upper=upper, text=node.logical in _TEXT)


@lru_cache(maxsize=1024)
def _number_of(node: Primitive) -> Struct | None:
    """What turns a column's bounds into bytes, where they are numbers of one width."""
    narrow = node.physical_type in (Type.INT32, Type.FLOAT)
    match order_of(node):
        case Order.BOOLEAN:
            return Struct("<?")
        case Order.SIGNED:
            return Struct("<i" if narrow else "<q")
        case Order.UNSIGNED:
            return Struct("<I" if narrow else "<Q")
        case Order.FLOAT:
            return Struct("<f" if narrow else "<d")
        case Order.FLOAT16:
            return Struct("<e")
        case _:
            return None


def _cut(value: bytes, *, upper: bool, text: bool) -> tuple[bytes | None, bool]:
    if len(value) <= MAX_BOUND_BYTES:
        return value, True
    prefix = value[:MAX_BOUND_BYTES]
    if text:
        # Stay on a character's border: readers expect UTF-8 in the bounds of strings too.
        while prefix and value[len(prefix)] & 0xC0 == 0x80:
            prefix = prefix[:-1]
    if not upper:
        return prefix, False
    return (_next_text(prefix) if text else _next_bytes(prefix)), False


def _next_bytes(prefix: bytes) -> bytes | None:
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def _next_text(prefix: bytes) -> bytes | None:
    try:
        characters = prefix.decode("utf-8")
    except UnicodeDecodeError:
        return None
    while characters:
        following = ord(characters[-1]) + 1
        if following == 0xD800:
            following = 0xE000  # surrogates are no characters
        if following <= 0x10FFFF:
            return (characters[:-1] + chr(following)).encode("utf-8")
        characters = characters[:-1]
    return None


def statistics_of(node: Primitive, bounds: Bounds, null_count: int) -> Statistics:
    """The Thrift struct for a column chunk."""
    statistics = Statistics(null_count=null_count, nan_count=bounds.nan_count)
    if bounds.low is not None:
        statistics.min_value, statistics.is_min_value_exact = plain_bound(node, bounds.low, upper=False)
    if bounds.high is not None:
        maximum, exact = plain_bound(node, bounds.high, upper=True)
        if maximum is not None:
            statistics.max_value, statistics.is_max_value_exact = maximum, exact
    return statistics


@dataclass(frozen=True, slots=True)
class PageSizes:
    """Of one data page."""

    byte_array_bytes: int | None = None  # bytes of its BYTE_ARRAY values, without their lengths; None for other types
    repetition_levels: tuple[int, ...] = ()  # how often each level stands in it, from 0 on; empty where it is left out
    definition_levels: tuple[int, ...] = ()  # the same of definition levels


NO_SIZES: Final = PageSizes()  # Of a page whose schema and null count tell everything


def page_sizes(
    leaf: Leaf, values: Values, repetition_levels: Levels | None, definition_levels: Levels | None
) -> PageSizes:
    """The sizes of a page with these values and levels."""
    if not isinstance(values, ByteArrays) and leaf.max_repetition_level == 0 and leaf.max_definition_level <= 1:
        return NO_SIZES
    return PageSizes(
        values.num_bytes if isinstance(values, ByteArrays) else None,
        _histogram(repetition_levels, leaf.max_repetition_level) if leaf.max_repetition_level > 0 else (),
        _histogram(definition_levels, leaf.max_definition_level) if leaf.max_definition_level > 1 else (),
    )


def _histogram(levels: Levels | None, maximum: int) -> tuple[int, ...]:
    if levels is None:
        return ()
    if is_uniform(levels):
        return tuple(len(levels) * (level == levels[0]) for level in range(maximum + 1))
    return kernels.level_counts(levels, maximum)


def size_statistics_of(pages: Sequence[PageSizes]) -> SizeStatistics | None:
    """The sizes of a chunk with these pages; None where they say nothing."""
    if all(page is NO_SIZES for page in pages):
        return None
    sizes = [page.byte_array_bytes for page in pages if page.byte_array_bytes is not None]
    repetition = _sums([page.repetition_levels for page in pages])
    definition = _sums([page.definition_levels for page in pages])
    if not sizes and repetition is None and definition is None:
        return None
    return SizeStatistics(sum(sizes) if sizes else None, repetition, definition)


def _sums(histograms: Sequence[tuple[int, ...]]) -> list[int] | None:
    return [sum(counts) for counts in zip(*histograms, strict=True)] or None


def page_histograms(histograms: Sequence[tuple[int, ...]]) -> list[int] | None:
    """The histograms of a chunk's pages one after the other, as a ColumnIndex has them."""
    return [count for histogram in histograms for count in histogram] or None


@dataclass(frozen=True, slots=True)
class PageSummary:
    """What a ColumnIndex says of one data page."""

    bounds: Bounds  # of the page's values
    null_count: int  # entries without a value
    num_values: int  # entries, nulls included
    sizes: PageSizes = NO_SIZES  # of its values in memory, and its levels


def column_index(node: Primitive, pages: Sequence[PageSummary]) -> ColumnIndex | None:
    """The index of a chunk; None where a page has no bounds: of types without an order, of NaN alone, or too long."""
    if order_of(node) is Order.UNDEFINED:
        return None
    minima: list[bytes] = []
    maxima: list[bytes] = []
    filled: list[Bounds] = []
    floating = False
    for page in pages:
        bounds = page.bounds
        floating = floating or bounds.nan_count is not None
        if page.null_count == page.num_values:
            minima.append(b"")
            maxima.append(b"")
            continue
        if bounds.low is None:
            return None
        low, _ = plain_bound(node, bounds.low, upper=False)
        high, _ = plain_bound(node, bounds.high, upper=True)
        if low is None or high is None:
            return None
        minima.append(low)
        maxima.append(high)
        filled.append(bounds)
    return ColumnIndex(
        null_pages=[page.null_count == page.num_values for page in pages],
        min_values=minima,
        max_values=maxima,
        boundary_order=int(_boundary_order(filled)),
        null_counts=[page.null_count for page in pages],
        repetition_level_histograms=page_histograms([page.sizes.repetition_levels for page in pages]),
        definition_level_histograms=page_histograms([page.sizes.definition_levels for page in pages]),
        nan_counts=[page.bounds.nan_count or 0 for page in pages] if floating else None,
    )


def _boundary_order(pages: Sequence[Bounds]) -> BoundaryOrder:
    if len(pages) < 2:
        return BoundaryOrder.ASCENDING

    def never(falls: Any) -> bool:
        return not any(falls(one, two) for one, two in pairwise(pages))

    if never(lambda one, two: two.low < one.low or two.high < one.high):
        return BoundaryOrder.ASCENDING
    if never(lambda one, two: two.low > one.low or two.high > one.high):
        return BoundaryOrder.DESCENDING
    return BoundaryOrder.UNORDERED
