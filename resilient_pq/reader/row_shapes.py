"""The shape of rows above the leaves of a column, on which all leaves below a node must agree. Pure.

The leaves of a struct, or of the values of a list or a map, each repeat in their levels what is above them. Where these
differ, one of them was changed, and nobody can read the column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from resilient_pq.checksum import crc32
from resilient_pq.damage.chunk_salvage import SalvagedChunk
from resilient_pq.format.file_metadata import Repetition
from resilient_pq.format.physical_values import LeafData
from resilient_pq.format.schema_tree import Group, Leaf, Selection

#: Definition and repetition level of a node.
Depth = tuple[int, int]
#: Any odd number with bits all over.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def neighbours(column: Selection) -> Iterator[tuple[Leaf, Leaf, Depth]]:
    """Each pair of neighbouring leaves of a column, and the levels of the deepest node above both."""
    for one, other in pairwise(column.leaves):
        node, definition, repetition = column.node, 0, 0
        for depth in range(min(len(one.path), len(other.path))):
            definition += node.repetition is not Repetition.REQUIRED
            repetition += node.repetition is Repetition.REPEATED
            names = [leaf.path[depth + 1] if depth + 1 < len(leaf.path) else None for leaf in (one, other)]
            if names[0] is None or names[0] != names[1] or not isinstance(node, Group):
                break
            node = next(child for child in node.children if child.name == names[0])
        if definition:
            yield one, other, (definition, repetition)


def digest(data: LeafData, depth: Depth) -> int:
    """A number that all leaves below a node have in common."""
    return crc32(_above(data, depth).tobytes())


def contradicting_rows(
    columns: Sequence[Selection], chunks: Sequence[SalvagedChunk | None], num_rows: int
) -> dict[int, NDArray[np.bool_]]:
    """The rows on which leaves of one column do not agree, by the ordinal of each leaf that may be at fault."""
    found: dict[int, NDArray[np.bool_]] = {}
    for column in columns:
        for one, other, depth in neighbours(column):
            pair = [(leaf, chunks[leaf.ordinal]) for leaf in (one, other)]
            shapes = [None if chunk is None else _shapes(chunk, depth, num_rows) for _, chunk in pair]
            if shapes[0] is None or shapes[1] is None:
                continue
            (first, has_first), (second, has_second) = shapes[0], shapes[1]
            bad = has_first & has_second & (first != second)
            if not bad.any():
                continue
            proven = [chunk is not None and all(fate.checksummed for fate in chunk.pages) for _, chunk in pair]
            for (leaf, _), is_proven in zip(pair, proven, strict=True):
                if not is_proven or all(proven):
                    found[leaf.ordinal] = found.get(leaf.ordinal, False) | bad
    return found


def _above(data: LeafData, depth: Depth) -> NDArray[np.uint8]:
    """The repetition and the definition level of each entry of the node, with as much as it has of them."""
    definition, repetition = depth
    count = data.num_rows if data.definition_levels is None else len(data.definition_levels)
    repeated = np.zeros(count, np.uint8) if data.repetition_levels is None else data.repetition_levels
    defined = np.zeros(count, np.uint8) if data.definition_levels is None else data.definition_levels
    entries = np.stack([repeated, np.minimum(defined, definition)], axis=1).astype(np.uint8)
    return entries[repeated <= repetition]


def _shapes(chunk: SalvagedChunk, depth: Depth, num_rows: int) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """A number for the shape of each row, and which rows there are."""
    shapes = np.zeros(num_rows, np.uint64)
    there = np.zeros(num_rows, np.bool_)
    for run in chunk.runs:
        if run.first_row is None or not run.data.num_rows:
            continue
        entries = _above(run.data, depth).astype(np.uint64)
        starts = np.flatnonzero(entries[:, 0] == 0)
        place = np.arange(len(entries), dtype=np.uint64) - np.repeat(
            starts, np.diff(np.append(starts, len(entries)))
        ).astype(np.uint64)
        mixed = (entries[:, 0] * np.uint64(256) + entries[:, 1] + np.uint64(1)) * _FACTOR
        mixed = (mixed ^ (mixed >> np.uint64(29))) * (_FACTOR * (np.uint64(2) * place + np.uint64(1)))
        rows = slice(run.first_row, run.first_row + run.data.num_rows)
        shapes[rows] = np.add.reduceat(mixed, starts)
        there[rows] = True
    return shapes, there
