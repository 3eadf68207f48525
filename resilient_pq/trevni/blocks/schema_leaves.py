"""Leaves of the schema, made of lengths and values: the levels of each, and what becomes of its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.encodings.dictionary import entries_at
from resilient_pq.format.levels import Optional, Repeated, shred
from resilient_pq.format.levels import Step as LevelStep
from resilient_pq.format.physical_values import ByteArrays, LeafData, Values
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.trevni.blocks.record_shape import LeafSource
from resilient_pq.trevni.blocks.trevni_metadata import ColumnMetadata, ValueType

#: What makes the values of a leaf of those of a column.
Convert = Callable[[Values], Values]


@dataclass(frozen=True, slots=True)
class Taken:
    """Values of a column in the rows of a window: `ends` counts the elements before each row and before the end."""

    lengths: NDArray[np.int64] | None
    values: Values
    ends: NDArray[np.int64] | None
    data: LeafData | None = None


def leaf_data(source: LeafSource, taken: Mapping[int, Taken], num_rows: int) -> LeafData:
    """The levels and values of a leaf; nested lengths become the steps of `shred`."""
    own = None if source.column is None else taken[source.column]
    if own is not None and own.data is not None:
        return own.data
    steps: list[LevelStep] = []
    slots = num_rows
    there: NDArray[Any] | None = None
    for step in source.steps:
        lengths = taken[step.lengths].lengths
        assert lengths is not None
        if there is not None:  # slots of what is null are no slots of the column
            spread = np.zeros(slots, np.int64)
            spread[there] = lengths
            lengths = spread
        if step.is_repeated:
            ends = np.cumsum(lengths)
            steps.append(Repeated(ends - lengths, lengths))
            slots, there = int(ends[-1]) if len(ends) else 0, None
        else:
            steps.append(Optional(lengths == 1))
            there = np.flatnonzero(lengths)
    if source.is_null:
        steps.append(Optional(np.zeros(slots, np.bool_)))
    shredded = shred(num_rows, steps)
    values = np.zeros(0, np.int32) if own is None or source.is_null else own.values
    return LeafData(num_rows, shredded.definition_levels, shredded.repetition_levels, values)


def _symbols_of(symbols: Sequence[bytes]) -> Convert:
    """Convert the ints of an enumeration to its symbols."""
    table = ByteArrays(np.cumsum([0, *map(len, symbols)]), np.frombuffer(b"".join(symbols), np.uint8))

    def convert(values: Values) -> Values:
        assert isinstance(values, np.ndarray)
        if len(values) and not 0 <= int(values.min()) <= int(values.max()) < len(symbols):
            worst = int(values.min()) if values.min() < 0 else int(values.max())
            raise EncodingError(f"an enumeration of {len(symbols):,} symbols has no number {worst}")
        return entries_at(table, values.astype(np.int64))

    return convert


def _fixed_of(width: int) -> Convert:
    """Convert bytes to values of one width."""

    def convert(values: Values) -> Values:
        if not isinstance(values, ByteArrays):
            return values
        if (np.diff(values.offsets) != width).any():
            raise EncodingError(f"a value has not the {width:,} bytes that all have")
        return values.data[int(values.offsets[0]) : int(values.offsets[-1])].reshape(-1, width)

    return convert


def _checked_text(values: Values) -> Values:
    if isinstance(values, ByteArrays) and not values.is_utf8():
        raise EncodingError("a string is not UTF-8")
    return values


def conversion(leaf: Leaf, source: LeafSource, column: ColumnMetadata) -> Convert | None:
    """The conversion of the values of a column to those of a leaf, if any; text of Impala may be any bytes."""
    if source.symbols:
        return _symbols_of(source.symbols)
    if leaf.node.type_length is not None:
        return _fixed_of(leaf.node.type_length)
    if column.type is ValueType.STRING and not column.has_levels:
        return _checked_text
    return None
