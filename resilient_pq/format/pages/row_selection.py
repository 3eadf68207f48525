"""Selection of rows of a leaf column, and null rows in place of lost ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.encodings.dictionary import entries_at, strings_at
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.levels import row_starts
from resilient_pq.format.physical_values import (
    ByteArrays,
    ByteCodes,
    ByteViews,
    DecodedStrings,
    LeafColumn,
    LeafData,
    Levels,
    Values,
    empty_fixed,
    is_uniform,
    uniform_levels,
)
from resilient_pq.format.schema_tree import Leaf


def leaf_data(column: LeafColumn) -> LeafData:
    """A column that came out of pages, as it goes into pages."""
    leaf, present = column.leaf, column.present
    definition: Levels | None = column.definition_levels
    if definition is None and leaf.max_definition_level:
        # A flat column: an entry is a row, and the only level says whether it has a value.
        definition = np.ones(column.num_rows, np.uint8) if present is None else present.view(np.uint8)
    values = column.values.to_byte_arrays() if isinstance(column.values, DecodedStrings) else column.values
    if present is not None:
        if isinstance(values, ByteArrays):
            # Slots without a value are empty, so leaving out their offsets moves no other.
            values = ByteArrays(np.append(values.offsets[:-1][present], values.offsets[-1:]), values.data)
        else:
            values = values[present]
    return LeafData(column.num_rows, definition, column.repetition_levels, values)


def leaf_column(leaf: Leaf, data: LeafData) -> LeafColumn:
    """The inverse of `leaf_data`: every slot of the leaf's array has a place again."""
    definition = data.definition_levels
    if definition is None:
        return LeafColumn(leaf, data.num_rows, data.values, None, None, data.repetition_levels)
    slots = definition[definition >= leaf.slot_definition_level] if leaf.slot_definition_level else definition
    present = slots == leaf.max_definition_level
    nested = len(leaf.path) > 1 or leaf.max_repetition_level > 0
    return LeafColumn(
        leaf=leaf,
        num_rows=data.num_rows,
        values=data.values if present.all() else _spread(leaf, data.values, present),
        present=None if present.all() else present,
        definition_levels=definition if nested else None,
        repetition_levels=data.repetition_levels,
    )


def _spread(leaf: Leaf, values: Values, present: NDArray[np.bool_]) -> Values:
    if isinstance(values, ByteArrays):
        lengths = np.zeros(len(present), np.int64)
        lengths[present] = np.diff(values.offsets)
        offsets = np.empty(len(present) + 1, values.offsets.dtype)
        offsets[0] = values.offsets[0]
        np.cumsum(lengths, out=offsets[1:])
        offsets[1:] += values.offsets[0]
        return ByteArrays(offsets, values.data)
    out = empty_fixed(leaf.node, len(present))
    out[: len(values)] = values
    kernels.spread(out, present)
    return out


def null_rows(leaf: Leaf, count: int) -> LeafData:
    """Rows in which the outermost node that may be null, is; all nodes above it are required."""
    values: Values
    if leaf.node.physical_type is Type.BYTE_ARRAY:
        values = ByteArrays(np.zeros(1, np.int32), np.empty(0, np.uint8))
    else:
        values = empty_fixed(leaf.node, 0)
    repetition = np.zeros(count, np.uint8) if leaf.max_repetition_level else None
    definition = np.zeros(count, np.uint8) if leaf.max_definition_level else None
    return LeafData(count, definition, repetition, values)


def select_rows(column: LeafColumn, keep: NDArray[np.bool_]) -> LeafColumn:
    """The rows of a column where `keep` is True, copied; views go on to lead into the memory they came with."""
    leaf, repetition = column.leaf, column.repetition_levels
    entries = slots = keep
    if repetition is not None:
        if len(repetition) and repetition[0]:
            raise EncodingError(f"the first repetition level is {repetition[0]}, not 0")
        entries = keep[np.cumsum(repetition == 0) - 1]
        slots = entries
        if column.definition_levels is not None and leaf.slot_definition_level:
            slots = entries[column.definition_levels >= leaf.slot_definition_level]
    return replace(
        column,
        num_rows=int(np.count_nonzero(keep)),
        values=_values_kept(column.values, slots),
        present=None if column.present is None else column.present[slots],
        definition_levels=None if column.definition_levels is None else column.definition_levels[entries],
        repetition_levels=None if repetition is None else repetition[entries],
    )


def take_rows(leaf: Leaf, data: LeafData, rows: NDArray[np.int64]) -> LeafData:
    """Some rows by their numbers, in any order, copied; the first entry of `data` begins a row."""
    definition, repetition = data.definition_levels, data.repetition_levels
    entries = rows
    if repetition is not None:
        starts = np.append(row_starts(repetition, 0), len(repetition))
        entries = _ranges(starts[rows], starts[rows + 1] - starts[rows])
        repetition = repetition[entries]
    if definition is None:
        return LeafData(len(rows), None, repetition, entries_at(data.values, entries), data.entries)
    if is_uniform(definition):  # and so is every part of it
        level = int(definition[0])
        positions = entries if level == leaf.max_definition_level else entries[:0]
        values = entries_at(data.values, positions)
        return LeafData(len(rows), uniform_levels(level, len(entries)), repetition, values, data.entries)
    has_value = definition == leaf.max_definition_level
    positions = (np.cumsum(has_value) - 1)[entries][has_value[entries]]
    return LeafData(len(rows), definition[entries], repetition, entries_at(data.values, positions), data.entries)


def _ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers ``start, start + 1, ...`` of all ranges, one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total, dtype=np.int64)


def _values_kept(values: Values | DecodedStrings, slots: NDArray[np.bool_]) -> Values | DecodedStrings:
    if isinstance(values, ByteCodes):
        return ByteCodes(values.codes[slots], values.entries)
    if isinstance(values, ByteViews):
        return ByteViews(values.views[slots], values.buffers, values.known_utf8)
    if not isinstance(values, ByteArrays):
        return values[slots]
    return strings_at(values, np.flatnonzero(slots))


def from_first_row(leaf: Leaf, data: LeafData) -> LeafData:
    """Without the entries before the first that begins a row: they go on with a row whose beginning is elsewhere."""
    repetition = data.repetition_levels
    if repetition is None or not len(repetition) or repetition[0] == 0:
        return data
    starts = np.flatnonzero(repetition == 0)
    first = int(starts[0]) if len(starts) else len(repetition)
    definition = data.definition_levels
    assert definition is not None  # what is repeated has definition levels
    skipped = int(np.count_nonzero(definition[:first] == leaf.max_definition_level))
    return LeafData(data.num_rows, definition[first:], repetition[first:], data.values[skipped:], data.entries)
