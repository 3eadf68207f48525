"""ColumnIndex: bounds and null counts of each data page of a chunk (parquet-format, PageIndex.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from resilient_pq.format.file_metadata import BoundaryOrder, ColumnIndex
from resilient_pq.format.indexes.statistics import (
    NO_SIZES,
    Bounds,
    Order,
    PageSizes,
    order_of,
    page_histograms,
    plain_bound,
)
from resilient_pq.format.schema_tree import Primitive


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
