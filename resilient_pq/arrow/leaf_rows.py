"""Rows of one leaf where the caller has them, and their levels and values when they are wanted.

What waits for its row group in large arrays is not copied before its chunk is encoded, and then by the thread that
encodes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from resilient_pq.arrow.batch_sources import Rows
from resilient_pq.arrow.buffers import BufferPart, Valid
from resilient_pq.arrow.c_arrays import LIST_VIEW_KINDS
from resilient_pq.arrow.physical import (
    Positions,
    UnstorableValueError,
    dictionary_entries,
    no_values,
    physical_bytes,
    physical_values,
)
from resilient_pq.arrow.types.type_matching import Fit
from resilient_pq.errors import SchemaError, Where
from resilient_pq.format.file_metadata import Repetition
from resilient_pq.format.levels import Listed, Optional, Repeated, Shredded, Step, shred, slice_rows
from resilient_pq.format.physical_values import LeafData
from resilient_pq.format.schema_tree import Leaf, Node, Primitive
from resilient_pq.lazy_dataclass import dataclass

_NO_SLOTS: Final = np.zeros(0, np.int64)
#: Which child to take at each node that has several.
Way = tuple[int, ...]


def ways(fit: Fit) -> Iterator[Way]:
    """The ways to the leaves of a column, in their order."""
    if fit.found.kind == "n":
        yield from _ways_below(fit.node)
    elif not fit.children:
        yield ()
    elif len(fit.children) == 1:
        yield from ways(fit.children[0])
    else:
        for choice, child in enumerate(fit.children):
            for way in ways(child):
                yield (choice, *way)


def _ways_below(node: Node) -> Iterator[Way]:
    if isinstance(node, Primitive):
        yield ()
        return
    for choice, child in enumerate(node.children):
        for way in _ways_below(child):
            yield (choice, *way) if len(node.children) > 1 else way


@dataclass(frozen=True, slots=True)
class LeafRows:
    """Some rows of a leaf, still in the arrays of the caller.

    `fit` says how its column, `column` of `rows`, goes into the schema, and `way` leads from there to the leaf;
    `first_row` is the number of the first of `rows` in what the caller gave, for messages.
    """

    leaf: Leaf
    rows: Rows
    column: int
    fit: Fit
    way: Way
    start: int
    num_rows: int
    first_row: int
    known: LeafData | None = None

    @property
    def num_bytes(self) -> int:
        """About what their levels and values take in memory, values for nulls included."""
        if self.known is not None:
            return self.known.num_bytes
        part = self._part
        fit, way = self.fit, iter(self.way)
        while fit.children:
            choice = next(way) if len(fit.children) > 1 else 0
            part = _below(fit, part, choice)
            fit = fit.children[choice]
        if part.field.kind == "n":
            return self.num_rows
        levels = (self.leaf.max_definition_level > 0) + (self.leaf.max_repetition_level > 0)
        return levels * part.length + physical_bytes(self.leaf.node, part)

    @property
    def _part(self) -> BufferPart:
        return self.rows.columns[self.column].slice(self.start, self.num_rows)

    def slice(self, start: int, end: int) -> LeafRows:
        """The rows from `start` up to and not including `end`."""
        known = None if self.known is None else slice_rows(self.leaf, self.known, start, end)
        return self._at(self.start + start, end - start, known)

    def _at(self, start: int, num_rows: int, known: LeafData | None) -> LeafRows:
        """Other rows of the same array."""
        # As `replace` does, in a third of the time: there is one for each column chunk.
        return LeafRows(self.leaf, self.rows, self.column, self.fit, self.way, start, num_rows, self.first_row, known)

    def joined(self, others: LeafRows | ShreddedRows) -> LeafRows | None:
        """These rows and those that follow, where they follow in the same array."""
        if isinstance(others, ShreddedRows):
            return None
        follow = self.rows is others.rows and self.start + self.num_rows == others.start
        if not follow or self.known is not None or others.known is not None:
            return None
        return self._at(self.start, self.num_rows + others.num_rows, None)

    def shredded(self) -> LeafData:
        """Their levels and values; a SchemaError where a null or a value may not stand."""
        if self.known is not None:
            return self.known
        shredder = _Shredder(self.leaf.node, self.num_rows, self.first_row + self.start)
        return shredder.node(self.fit, self._part, self.way, ())


@dataclass(frozen=True, slots=True)
class ShreddedRows:
    """Some rows of a leaf as levels and values, which need nothing of the caller's any more."""

    leaf: Leaf
    data: LeafData

    @property
    def num_bytes(self) -> int:
        """What levels and values take in memory."""
        return self.data.num_bytes

    def slice(self, start: int, end: int) -> ShreddedRows:
        """The rows from `start` up to and not including `end`."""
        return ShreddedRows(self.leaf, slice_rows(self.leaf, self.data, start, end))

    def joined(self, others: LeafRows | ShreddedRows) -> None:
        """Nothing: where the next rows lie is not known."""

    def shredded(self) -> LeafData:
        """Levels and values."""
        return self.data


def _below(fit: Fit, part: BufferPart, choice: int) -> BufferPart:
    """The slots of a child that all slots of a struct, list or map take."""
    if part.field.kind == "+s":
        return part.child(fit.positions[choice])
    elements = part.elements(*part.element_range())
    return elements.child(fit.positions[choice]) if part.field.kind == "+m" else elements


class _Shredder:
    """Shreds a leaf of some rows."""

    def __init__(self, leaf: Primitive, num_rows: int, first_row: int) -> None:
        self.leaf = leaf
        self.num_rows = num_rows
        self.first_row = first_row

    def node(self, fit: Fit, part: BufferPart, way: Way, steps: tuple[Step, ...]) -> LeafData:
        """The leaf that `way` leads to from a node, whose own step is not among `steps` yet."""
        valid = _valid(part)
        if fit.node.repetition is Repetition.OPTIONAL:
            steps = (*steps, Optional(valid))
        elif valid is not None:
            self._refuse_nulls(fit, valid, steps)
        if part.field.kind == "n":
            return self._absent(fit.node, way, steps)
        if not fit.children:
            return self._leaf(fit, part, steps)
        choice, way = (way[0], way[1:]) if len(fit.children) > 1 else (0, way)
        if part.field.kind != "+s":
            steps = (*steps, _repeated(part))
        return self.node(fit.children[choice], _below(fit, part, choice), way, steps)

    def _leaf(self, fit: Fit, part: BufferPart, steps: tuple[Step, ...]) -> LeafData:
        shredded = shred(self.num_rows, steps)
        positions = shredded.positions
        if positions is not None and _is_everything(positions, part.length):
            positions = None
        try:
            values = physical_values(self.leaf, part, positions)
        except UnstorableValueError as error:
            row = self._row_of(shredded, len(steps), error.index)
            raise SchemaError(
                f"column {fit.path!r}, row {row}: {error.message}", where=Where(column=fit.path)
            ) from None
        levels = shredded.definition_levels, shredded.repetition_levels
        return LeafData(self.num_rows, *levels, values, dictionary_entries(self.leaf, part))

    def _absent(self, node: Node, way: Way, steps: tuple[Step, ...]) -> LeafData:
        """A leaf of a node of which no slot has a value, whose own step is among `steps` where it is optional."""
        if node.repetition is Repetition.REPEATED:
            steps = (*steps, Repeated(_NO_SLOTS, _NO_SLOTS))
        if isinstance(node, Primitive):
            shredded = shred(self.num_rows, steps)
            levels = shredded.definition_levels, shredded.repetition_levels
            return LeafData(self.num_rows, *levels, no_values(node))
        choice, way = (way[0], way[1:]) if len(node.children) > 1 else (0, way)
        child = node.children[choice]
        optional = child.repetition is Repetition.OPTIONAL
        return self._absent(child, way, (*steps, Optional(None)) if optional else steps)

    def _refuse_nulls(self, fit: Fit, valid: Valid, steps: tuple[Step, ...]) -> None:
        """Refuse a null in a required node; below a parent that is null itself it means nothing."""
        shredded = shred(self.num_rows, steps)
        nulls = ~valid if shredded.positions is None else ~valid[shredded.positions]
        if nulls.any():
            row = self._row_of(shredded, len(steps), int(np.argmax(nulls)))
            raise SchemaError(
                f"column {fit.path!r} may not be null, but row {row} is",
                where=Where(column=fit.path),
                hint="declare the column nullable in the schema, or fill its nulls",
            )

    def _row_of(self, shredded: Shredded, num_steps: int, index: int) -> int:
        """The row of the value `index`, counted among those that are there."""
        if shredded.definition_levels is None:
            return self.first_row + index
        entry = int(np.flatnonzero(shredded.definition_levels == num_steps)[index])
        if shredded.repetition_levels is None:
            return self.first_row + entry
        return self.first_row + int(np.count_nonzero(shredded.repetition_levels[: entry + 1] == 0)) - 1


def _valid(part: BufferPart) -> Valid | None:
    """Which slots have a value: in a dictionary array, those whose index leads to one."""
    valid = part.valid()
    if part.field.dictionary is None:
        return valid
    entries = part.dictionary().valid()
    if entries is None:
        return valid
    slots = np.arange(part.length) if valid is None else np.flatnonzero(valid)
    indices = part.indices()[slots]
    # An index that leads out of the dictionary is found, and refused, where the values are looked up.
    if len(entries):
        slots = slots[entries[np.clip(indices, 0, len(entries) - 1)]]
    out = np.zeros(part.length, np.bool_)
    out[slots] = True
    return out


def _repeated(part: BufferPart) -> Repeated | Listed:
    """Where among the elements that the slots of a list or map span each slot's are."""
    if part.field.kind != "+w" and part.field.kind not in LIST_VIEW_KINDS:
        return Listed(part.offsets())
    starts, lengths = part.list_extents()
    return Repeated(starts - part.element_range()[0], lengths)


def _is_everything(positions: Positions, length: int) -> bool:
    if positions.dtype == np.bool_:
        return bool(positions.all())
    return len(positions) == length and bool((positions == np.arange(length)).all())
