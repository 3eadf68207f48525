"""From levels to what Arrow has in their place: validity of nodes, and offsets of lists.

An entry is a slot of a node when its repetition level is at most the number of lists around the node, and its
definition level at least that of the innermost of them having an element. Depths and levels are 0 to 255.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.format.kernels.reference.arrays import check_levels


def slot_validity(
    definition: NDArray[np.uint8], repetition: NDArray[np.uint8], depth: int, slot_level: int, level: int
) -> NDArray[np.bool_]:
    """For each slot of a node within `depth` lists, whether the node is there: has `level` or more."""
    # `slot_level` is the definition level from which on an entry is a slot; 0 where there are no lists.
    check_levels(definition, repetition)
    valid: NDArray[np.bool_] = definition[_slots(definition, repetition, depth, slot_level)] >= level
    return valid


def list_offsets(
    definition: NDArray[np.uint8], repetition: NDArray[np.uint8], depth: int, slot_level: int, level: int
) -> NDArray[Any]:
    """For each slot of a list within `depth` others, how many elements are before it; at the end how many there are."""
    # `slot_level` is the definition level from which on an entry is a slot of the list, `level`, which is more, that
    # from which on it is an element. int32, or int64 where there are more entries than that can count.
    check_levels(definition, repetition)
    elements = _slots(definition, repetition, depth + 1, level)
    dtype = np.int32 if len(definition) < 1 << 31 else np.int64
    before = np.zeros(len(definition) + 1, dtype)
    np.cumsum(elements, out=before[1:])
    slots = np.append(_slots(definition, repetition, depth, slot_level), True)
    offsets: NDArray[Any] = before[slots]
    return offsets


def row_entries(repetition: NDArray[np.uint8], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """At which entries some rows begin, whose numbers never fall; of one that is not there, the number of entries."""
    if rows.size and (rows[0] < 0 or (rows[1:] < rows[:-1]).any()):
        raise ValueError("the rows are not in order")
    starts = np.append(np.flatnonzero(repetition == 0), repetition.size)
    entries: NDArray[np.int64] = starts[np.minimum(rows, starts.size - 1)]
    return entries


def level_counts(levels: NDArray[np.uint8], maximum: int) -> tuple[int, ...]:
    """How often each level from 0 to `maximum` stands among some."""
    # There are few levels, and comparing bytes is quicker than counting them one by one.
    return tuple(int(np.count_nonzero(levels == level)) for level in range(maximum + 1))


def _slots(definition: NDArray[np.uint8], repetition: NDArray[np.uint8], depth: int, level: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (repetition <= depth) & (definition >= level)
    return found
