"""Dremel's levels: how nested and null values become flat columns, and come back.

A column's way from the row down to its leaf is a list of steps: `Optional` where a value may be null,
`Repeated` where it is a list. `shred` turns the steps of an array into definition and repetition levels
(parquet-format, README, "Nested Encoding"); `assemble` turns levels back into the steps. A required step
adds nothing and is left out, so a flat required column has no steps and a flat optional one has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.physical_values import LeafData, Levels, uniform_levels
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Optional:
    """A node that may be null."""

    #: One per slot of the parent, True where the node is there; None where it is everywhere.
    valid: NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class Repeated:
    """A node that stands any number of times in its parent."""

    starts: NDArray[np.int64]  # for each slot of the parent, the first slot of its elements
    lengths: NDArray[np.int64]  # for each slot of the parent, how many elements it has


@dataclass(frozen=True, slots=True)
class Listed:
    """A node that stands any number of times in its parent, its elements in the order of the parent's slots."""

    #: int32 or int64, one more than the parent has slots: where the elements of each begin, and where those of
    #: the last end. They count from the first of them.
    offsets: NDArray[Any]

    def apart(self) -> Repeated:
        """The same as a step that may lead to elements in any order."""
        offsets = self.offsets.astype(np.int64)
        return Repeated(offsets[:-1] - offsets[:1], np.diff(offsets))


Step = Optional | Repeated | Listed


@dataclass(frozen=True, slots=True)
class Shredded:
    """The levels of one leaf."""

    definition_levels: Levels | None  # one per entry, None where there is no step
    repetition_levels: Levels | None  # one per entry, None where no step is repeated
    #: Where the values of the fully defined entries stand in the leaf's array: slots, or for each slot whether
    #: it is one. None means all, in order.
    positions: NDArray[np.int64] | NDArray[np.bool_] | None


def shred(num_rows: int, steps: Sequence[Step]) -> Shredded:
    """Levels of a leaf over `num_rows` rows, by the steps from the row down to it."""
    if not steps:
        return Shredded(None, None, None)
    if len(steps) == 1 and isinstance(steps[0], Optional):
        return _shred_flat(num_rows, steps[0])
    return _shred_in_order(num_rows, steps) or _shred_any(num_rows, steps)


def _shred_in_order(num_rows: int, steps: Sequence[Step]) -> Shredded | None:
    """The levels where the slots of every step are in the order of the entries, counted; None where they are not."""
    if any(isinstance(step, Repeated) for step in steps):
        return None
    rises = _rises(steps)
    definition: Levels = np.full(num_rows, rises[0], np.uint8)
    repetition: Levels | None = None
    base = depth = 0
    num_slots = num_present = num_rows
    valid: NDArray[np.bool_] | None = None  # of the last step, where all slots of its parent are there
    for level, step in enumerate(steps):
        if isinstance(step, Listed):
            offsets = step.offsets
            total = kernels.entries_in_order(definition, offsets, base, level)
            if total is None:
                return None
            outer, depth = (definition, repetition), depth + 1
            definition, repetition = memory_pool.empty((total,), np.uint8), memory_pool.empty((total,), np.uint8)
            to = level + 1 + rises[level + 1]
            kernels.lists_in_order(*outer, offsets, base, to, depth, definition, repetition)
            base, num_slots, valid = level + 1, int(offsets[-1]) - int(offsets[0]), None
            num_present = num_slots
        elif isinstance(step, Optional) and step.valid is not None:
            valid = step.valid if num_present == num_slots else None
            to = level + 1 + rises[level + 1]
            num_present = kernels.optional_in_order(definition, step.valid, base, level, to)
    if num_present == num_slots:
        return Shredded(definition, repetition, None)
    if valid is None:
        no_lists = np.zeros(len(definition), np.uint8) if repetition is None else repetition
        valid = kernels.slot_validity(definition, no_lists, depth, base, len(steps))
    return Shredded(definition, repetition, valid)


def _rises(steps: Sequence[Step]) -> list[int]:
    """For each step and behind the last, how many from there on are nodes that are there everywhere."""
    rises = [0]
    for step in reversed(steps):
        everywhere = isinstance(step, Optional) and step.valid is None
        rises.append(rises[-1] + 1 if everywhere else 0)
    return rises[::-1]


def _shred_any(num_rows: int, steps: Sequence[Step]) -> Shredded:
    """The levels wherever slots are."""
    definition: Levels = np.zeros(num_rows, np.uint8)
    repetition: Levels | None = None
    slots: NDArray[np.int64] | None = None
    depth = 0
    for level, step in enumerate(steps):
        if isinstance(step, Optional):
            kernels.shred_optional(definition, slots, step.valid, level)
            continue
        repeated = step.apart() if isinstance(step, Listed) else step
        depth += 1
        definition, repetition, slots = kernels.shred_repeated(
            definition, repetition, slots, repeated.starts, repeated.lengths, level, depth
        )
    present = definition == len(steps)
    if slots is None:
        return Shredded(definition, None, None if present.all() else present)
    return Shredded(definition, repetition, slots if present.all() else slots[present])


def _shred_flat(num_rows: int, step: Optional) -> Shredded:
    if step.valid is None:
        return Shredded(uniform_levels(1, num_rows), None, None)
    return Shredded(step.valid.view(np.uint8), None, step.valid)


@dataclass(frozen=True, slots=True)
class AssembledOptional:
    """Validity of a node, one per slot of its parent."""

    valid: NDArray[np.bool_]

    @property
    def values(self) -> NDArray[Any]:
        """What leaves below the node have to agree on."""
        return self.valid


@dataclass(frozen=True, slots=True)
class AssembledRepeated:
    """List offsets of a node, int32 or int64, one more than its parent has slots, beginning at 0."""

    offsets: NDArray[Any]

    @property
    def values(self) -> NDArray[Any]:
        """What leaves below the node have to agree on."""
        return self.offsets


class Steps:
    """The steps of a leaf, rebuilt from its levels: one per definition level, each when it is first asked for."""

    def __init__(self, definition_levels: Levels, repetition_levels: Levels | None, repeated: Sequence[bool]) -> None:
        """Look at the levels; `repeated` says for each definition level from 1 on whether its node is repeated."""
        if repetition_levels is not None and len(repetition_levels) and repetition_levels[0] != 0:
            raise EncodingError(f"the first repetition level is {repetition_levels[0]}, not 0")
        if repetition_levels is None:
            repetition_levels = np.zeros(len(definition_levels), np.uint8)
        self._definition = definition_levels
        self._repetition = repetition_levels
        self._repeated = repeated
        self._made: dict[int, AssembledOptional | AssembledRepeated] = {}

    def __len__(self) -> int:
        return len(self._repeated)

    def __getitem__(self, number: int) -> AssembledOptional | AssembledRepeated:
        """A step, counted from the column down: validity or offsets over the slots of its node's parent."""
        if number not in self._made:
            self._made[number] = self._step(number)
        return self._made[number]

    def __iter__(self) -> Iterator[AssembledOptional | AssembledRepeated]:
        return map(self.__getitem__, range(len(self)))

    def _step(self, number: int) -> AssembledOptional | AssembledRepeated:
        if not 0 <= number < len(self):
            raise IndexError(number)
        above = self._repeated[:number]
        slot_level = max((level for level, is_repeated in enumerate(above, start=1) if is_repeated), default=0)
        levels = self._definition, self._repetition, sum(above), slot_level, number + 1
        if self._repeated[number]:
            return AssembledRepeated(kernels.list_offsets(*levels))
        return AssembledOptional(kernels.slot_validity(*levels))

    def agrees(self, other: Steps, number: int) -> bool:
        """Whether a step is the same as that of another leaf below the same node."""
        level = number + 1
        # Leaves that nothing is repeated between have the same levels up to there, which is sooner seen.
        alike = np.array_equal(self._repetition, other._repetition) and np.array_equal(
            np.minimum(self._definition, level), np.minimum(other._definition, level)
        )
        return alike or np.array_equal(self[number].values, other[number].values)


def _entries_up_to(repetition_levels: Levels | None, level: int, count: int) -> NDArray[Any]:
    """Positions of the entries whose repetition level is at most `level`."""
    if repetition_levels is None:
        return np.arange(count, dtype=np.int64)
    return np.flatnonzero(repetition_levels <= level)


def row_starts(repetition_levels: Levels | None, num_entries: int) -> NDArray[Any]:
    """Positions of the entries that begin a row."""
    return _entries_up_to(repetition_levels, 0, num_entries)


def slice_rows(leaf: Leaf, data: LeafData, start: int, end: int) -> LeafData:
    """The rows from `start` up to and not including `end`, sharing memory."""
    if start == 0 and end == data.num_rows:
        return data
    return cut_rows(leaf, data, [start, end])[0]


def cut_rows(leaf: Leaf, data: LeafData, borders: Sequence[int]) -> list[LeafData]:
    """The rows between each two neighbours of some borders, which never fall, sharing memory."""
    definition, repetition = data.definition_levels, data.repetition_levels
    entries = list(borders)
    if repetition is not None:
        entries = kernels.row_entries(np.ascontiguousarray(repetition), np.array(borders, np.int64)).tolist()
    values = entries
    if definition is not None:
        before = int(np.count_nonzero(definition[: entries[0]] == leaf.max_definition_level))
        counts = [
            np.count_nonzero(definition[start:end] == leaf.max_definition_level) for start, end in pairwise(entries)
        ]
        values = np.cumsum([before, *counts]).tolist()
    rows = (end - start for start, end in pairwise(borders))
    return [
        LeafData(
            num_rows,
            None if definition is None else definition[start:end],
            None if repetition is None else repetition[start:end],
            data.values[first:last],
            data.entries,
        )
        for num_rows, (start, end), (first, last) in zip(rows, pairwise(entries), pairwise(values), strict=True)
    ]
