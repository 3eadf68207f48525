"""Levels out of validity and lists (parquet-format, README, "Nested Encoding"), and dense values out of slots."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.format.kernels.reference.arrays import Offsets, bits_of

Levels = NDArray[np.uint8]
Slots = NDArray[np.int64]


def shred_optional(definition: Levels, slots: Slots | None, valid: NDArray[np.bool_] | None, level: int) -> None:
    """Add 1 to the definition levels of entries that are defined down to a node's parent, where the node is, too."""
    # Those of `level`, the parent's. `slots` has the slot of each of these entries, None where entry i has slot i;
    # `valid` a flag per slot, None where all are there.
    alive = definition == level
    if valid is not None:
        alive[alive] = valid[_slots_of(alive, slots, len(valid))]
    definition += alive


def shred_repeated(
    definition: Levels,
    repetition: Levels | None,
    slots: Slots | None,
    starts: Slots,
    lengths: Slots,
    level: int,
    depth: int,
) -> tuple[Levels, Levels, Slots]:
    """Put an entry for each element where an entry for a list was; entries without elements stay as they are."""
    # As `shred_optional`; `starts` and `lengths` say which slots the elements of each list have, `level` is the
    # definition level of an empty list, `depth` the repetition level of elements behind the first. Returns definition
    # levels, repetition levels and slots of the new entries; slots of those that are no element are 0.
    alive = definition == level
    counts = np.ones(len(definition), np.int64)
    chosen = _slots_of(alive, slots, len(lengths))
    if len(starts) != len(lengths):
        raise ValueError("there must be one start per length")
    if (lengths[chosen] < 0).any():
        raise ValueError("a list has a negative length")
    first_slots = np.zeros(len(definition), np.int64)
    first_slots[alive] = starts[chosen]
    alive[alive] = lengths[chosen] > 0
    counts[alive] = lengths[_slots_of(alive, slots, len(lengths))]
    ends = np.cumsum(counts)
    within = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(ends - counts, counts)
    is_element = np.repeat(alive, counts)
    outer = np.zeros(len(definition), np.uint8) if repetition is None else repetition
    return (
        np.repeat(definition, counts) + is_element.astype(np.uint8),
        np.where(within > 0, np.uint8(depth), np.repeat(outer, counts)),
        (np.repeat(first_slots, counts) + within) * is_element,
    )


def optional_in_order(definition: Levels, valid: NDArray[np.bool_], base: int, level: int, to: int) -> int:
    """As `shred_optional`, for nodes whose slots are the entries of `base` or more, in order; returns how many rise."""
    # They rise `to` the level of the node, or of what is below it and always there.
    slots = np.flatnonzero(definition >= base)
    if len(slots) != len(valid):
        raise ValueError("an entry has a slot that is not there")
    risen = slots[(definition[slots] == level) & valid]
    definition[risen] = to
    return len(risen)


def entries_in_order(definition: Levels, offsets: Offsets, base: int, level: int) -> int | None:
    """How many entries `lists_in_order` makes of these; None where a slot that is no list has elements."""
    # `level` is the definition level of an empty list.
    lengths = _lengths_in_order(definition, offsets, base)
    if (lengths < 0).any():
        raise ValueError("a list has a negative length")
    if lengths[definition != level].any():
        return None
    return int(np.maximum(lengths, 1).sum())


def lists_in_order(
    definition: Levels,
    repetition: Levels | None,
    offsets: Offsets,
    base: int,
    to: int,
    depth: int,
    new_definition: Levels,
    new_repetition: Levels,
) -> None:
    """As `shred_repeated`, where `entries_in_order` counted the entries, for whose levels there is room."""
    # `base` as of `optional_in_order`; `to` is the definition level of an element, or of what is below it and always
    # there.
    lengths = _lengths_in_order(definition, offsets, base)
    counts = np.maximum(lengths, 1)
    if (lengths < 0).any() or not len(new_definition) == len(new_repetition) == counts.sum():
        raise ValueError("the levels do not have the room that the entries take")
    first = np.cumsum(counts) - counts
    new_definition[:] = to
    new_definition[first[lengths == 0]] = definition[lengths == 0]
    new_repetition[:] = depth
    new_repetition[first] = 0 if repetition is None else repetition


def _lengths_in_order(definition: Levels, offsets: Offsets, base: int) -> NDArray[np.int64]:
    """How many elements each entry's slot has, 0 where it has none."""
    if not len(offsets):
        raise ValueError("there must be one offset more than slots")
    has_slot = definition >= base
    if np.count_nonzero(has_slot) != len(offsets) - 1:
        raise ValueError("an entry has a slot that is not there")
    lengths = np.zeros(len(definition), np.int64)
    lengths[has_slot] = np.diff(offsets.astype(np.int64))
    return lengths


def _slots_of(alive: NDArray[np.bool_], slots: Slots | None, count: int) -> Slots:
    """The slots of entries, checked against how many there are."""
    chosen = np.flatnonzero(alive) if slots is None else slots[alive]
    if len(chosen) and not 0 <= chosen.min() <= chosen.max() < count:
        raise ValueError("an entry has a slot that is not there")
    return chosen


def compact(values: NDArray[Any], present: NDArray[np.bool_]) -> NDArray[Any]:
    """The values where `present` is true, back to back: what `spread` undoes."""
    bits_of(values)
    if len(present) != len(values):
        raise ValueError("there must be one flag per value")
    return values[present]


def compact_offsets(offsets: Offsets, present: NDArray[np.bool_], out: Offsets) -> bool:
    """Fill `out` with offsets of the byte strings where `present` is true, into the same data."""
    # False where others have bytes, so that those of these are not back to back; then `out` means nothing.
    if len(offsets) != len(present) + 1:
        raise ValueError("there must be one offset more than flags")
    if len(out) != np.count_nonzero(present) + 1 or out.dtype != offsets.dtype:
        raise ValueError("there must be room for the offsets of what is present")
    out[0] = offsets[0]
    out[1:] = offsets[1:][present]
    return bool((offsets[1:][~present] == offsets[:-1][~present]).all())
