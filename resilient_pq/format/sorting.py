"""The sort order that row groups state (parquet.thrift, SortingColumn), and whether rows are in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from resilient_pq.format import file_metadata, kernels
from resilient_pq.format.file_metadata import RowGroup
from resilient_pq.format.indexes.statistics import Order, order_of
from resilient_pq.format.physical_values import ByteArrays, LeafData, Values
from resilient_pq.format.schema_tree import Leaf, Primitive, Schema
from resilient_pq.lazy_dataclass import dataclass

#: For each row but the first: 1 where it sorts after the row before, -1 before it, 0 where they are equal.
_Signs: TypeAlias = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class SortingColumn:
    """One column of a sort order.

    Attributes:
        column: Path of the leaf column, with dots.
        descending: Whether the largest value comes first.
        nulls_first: Whether nulls come before all values, whatever the direction.
    """

    column: str
    descending: bool = False
    nulls_first: bool = False

    def to_thrift(self, leaf: Leaf) -> file_metadata.StoredSortingColumn:
        """The struct as it stands in a row group; Polars refuses one without its flags."""
        return file_metadata.StoredSortingColumn(leaf.ordinal, self.descending, self.nulls_first)


def sorting_columns_of(schema: Schema, row_group: RowGroup) -> tuple[SortingColumn, ...]:
    """What a row group says of its order, up to the first column that the schema does not have."""
    known = takewhile(lambda column: 0 <= column.column_idx < len(schema.leaves), row_group.sorting_columns or ())
    return tuple(
        SortingColumn(schema.leaves[column.column_idx].column_path, bool(column.descending), bool(column.nulls_first))
        for column in known
    )


def is_sorted(columns: Sequence[tuple[Leaf, LeafData, SortingColumn]]) -> bool:
    """Whether rows are in the order of `columns`, which are not repeated; NaN may stand before or after all numbers."""
    return any(_is_sorted(columns, nan_last=nan_last) for nan_last in (True, False))


def rows_in_order(columns: Sequence[tuple[Leaf, LeafData, SortingColumn]]) -> NDArray[np.int64]:
    """The numbers of rows in the order of `columns`; rows that are equal stay in theirs."""
    keys: list[NDArray[Any]] = []
    for leaf, data, wanted in columns:
        values = _ranks(leaf.node, data.values)
        ranks = -values if wanted.descending else values
        if data.definition_levels is not None:
            present = data.definition_levels == leaf.max_definition_level
            whole = np.zeros(len(present), np.int64)
            whole[present] = ranks
            keys += [present if wanted.nulls_first else ~present, whole]
        else:
            keys.append(ranks)
    return np.lexsort(keys[::-1])


def _ranks(node: Primitive, values: Values) -> NDArray[np.int64]:
    """For each value its place among all that differ; NaN is the last."""
    order = order_of(node)
    if isinstance(values, ByteArrays):
        texts = [values.value(at) for at in range(len(values))]
        places = {text: place for place, text in enumerate(sorted(set(texts)))}
        return np.array([places[text] for text in texts], np.int64)
    if order in (Order.BYTES, Order.SIGNED_BYTES):
        if order is Order.SIGNED_BYTES and values.shape[1]:
            values = values.copy()
            values[:, 0] ^= 0x80
        rows = np.ascontiguousarray(values).view(f"V{max(values.shape[1], 1)}").reshape(-1)
        places = {row: place for place, row in enumerate(sorted({bytes(row) for row in rows}))}
        return np.array([places[bytes(row)] for row in rows], np.int64)
    return np.unique(_numbers(order, values), return_inverse=True)[1].reshape(-1)


def _is_sorted(columns: Sequence[tuple[Leaf, LeafData, SortingColumn]], *, nan_last: bool) -> bool:
    equal: NDArray[np.bool_] | bool = True
    for leaf, data, wanted in columns:
        signs = _row_signs(leaf, data, wanted, nan_last=nan_last)
        if (equal & (signs < 0)).any():
            return False
        equal = equal & (signs == 0)
    return True


def _row_signs(leaf: Leaf, data: LeafData, wanted: SortingColumn, *, nan_last: bool) -> _Signs:
    between = _value_signs(leaf.node, data.values, descending=wanted.descending, nan_last=nan_last)
    if data.definition_levels is None:
        return between
    present = data.definition_levels == leaf.max_definition_level
    # A null sorts after a value, or before it; two neighbours with values are neighbours among the values, too.
    signs = _signs(present[1:], present[:-1])
    if wanted.nulls_first:
        signs = -signs
    both = present[:-1] & present[1:]
    second = np.cumsum(present)[1:][both] - 1
    signs[both] = between[second - 1]
    return signs


def _value_signs(node: Primitive, values: Values, *, descending: bool, nan_last: bool) -> _Signs:
    if len(values) < 2:
        return np.empty(0, np.int8)
    order = order_of(node)
    nan: NDArray[np.bool_] | None = None
    if isinstance(values, ByteArrays):
        signs = _byte_array_signs(values)
    elif order in (Order.BYTES, Order.SIGNED_BYTES):
        signs = _row_bytes_signs(values, signed=order is Order.SIGNED_BYTES)
    else:
        numbers = _numbers(order, values)
        signs = _signs(numbers[:-1], numbers[1:])
        nan = np.isnan(numbers) if order in (Order.FLOAT, Order.FLOAT16) else None
    if descending:
        signs = -signs
    if nan is not None:
        by_nan = _signs(nan[:-1], nan[1:])
        signs[by_nan != 0] = by_nan[by_nan != 0] if nan_last else -by_nan[by_nan != 0]
    return signs


def _numbers(order: Order, values: NDArray[Any]) -> NDArray[Any]:
    if order is Order.FLOAT16:
        return np.ascontiguousarray(values).view("<f2").reshape(-1)
    if order is Order.UNSIGNED:
        values = values.view(values.dtype.str.replace("i", "u"))
    return values


def _signs(before: NDArray[Any], here: NDArray[Any]) -> _Signs:
    signs: _Signs = (here > before).astype(np.int8) - (here < before).astype(np.int8)
    return signs


def _row_bytes_signs(values: NDArray[np.uint8], *, signed: bool) -> _Signs:
    if not values.shape[1]:
        return np.zeros(len(values) - 1, np.int8)
    if signed:
        values = values.copy()
        values[:, 0] ^= 0x80
    rows = np.arange(len(values) - 1)
    first = (values[1:] != values[:-1]).argmax(axis=1)
    return _signs(values[rows, first], values[rows + 1, first])


def _byte_array_signs(values: ByteArrays) -> _Signs:
    shared = kernels.shared_prefixes(values.offsets, values.data)[1:].astype(np.int64)
    starts = values.offsets.astype(np.int64)
    lengths = np.diff(starts)
    signs = _signs(lengths[:-1], lengths[1:])  # where one begins with the other, the shorter sorts first
    differ = np.flatnonzero(shared < np.minimum(lengths[:-1], lengths[1:]))
    before = values.data[starts[differ] + shared[differ]]
    here = values.data[starts[differ + 1] + shared[differ]]
    signs[differ] = _signs(before, here)
    return signs
