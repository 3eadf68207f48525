"""The policy for rows of which a value is lost. Pure.

Columns lose different rows, since their pages hold different numbers of them. A row is kept where all columns have it;
or where those that lost it may be null, and then they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import FormatError, OptionError
from resilient_pq.format.file_metadata import Repetition
from resilient_pq.format.levels import slice_rows
from resilient_pq.format.pages.row_selection import null_rows
from resilient_pq.format.physical_values import LeafData
from resilient_pq.format.schema_tree import Leaf, Node, Primitive, Selection
from resilient_pq.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from resilient_pq.damage.chunk_salvage import RowRun

Mask = NDArray[np.bool_]


class OnDamage(StrEnum):
    """The policy for rows of which a value is lost."""

    RAISE = "raise"
    """Nothing: the damage is an error."""
    DROP = "drop"
    """They are left out, in every column."""
    NULL = "null"
    """Columns that may be null are null in them; they are left out where one may not, or where nothing is left."""
    COLUMNS = "columns"
    """Each column's rows are kept by themselves."""

    @classmethod
    def named(cls, name: str, among: Sequence[OnDamage]) -> OnDamage:
        """The member of a name; a SchemaError where it is not `among` those allowed."""
        if name not in list(among):
            raise OptionError(f"on_damage is {name!r}", hint=f"one of: {', '.join(among)}")
        return cls(name)


@dataclass(frozen=True, slots=True)
class Nullable:
    """Leaves below one node that can only be null together."""

    leaves: tuple[int, ...]
    can_be_null: bool  # Whether the node may be null; otherwise it is required, or repeated


def nullables(column: Selection) -> Iterator[Nullable]:
    """The outermost nodes of a column that are not required groups, with the leaves wanted of each."""
    wanted = [leaf.ordinal for leaf in column.leaves]
    stack: list[tuple[Node, list[Leaf], int]] = [(column.node, list(column.leaves), 0)]
    while stack:
        node, leaves, depth = stack.pop()
        if isinstance(node, Primitive) or node.repetition is not Repetition.REQUIRED:
            mine = tuple(leaf.ordinal for leaf in leaves if leaf.ordinal in wanted)
            if mine:
                yield Nullable(mine, node.repetition is Repetition.OPTIONAL)
            continue
        for child in reversed(node.children):
            below = [leaf for leaf in leaves if leaf.path[depth + 1] == child.name]
            stack.append((child, below, depth + 1))


@dataclass(frozen=True, slots=True)
class RowChoice:
    """Which rows of a row group are kept."""

    keep: Mask  # One per row
    # For each leaf that gets nulls, by its ordinal, the rows in which it does; they are kept
    nulled: Mapping[int, Mask]

    @property
    def num_rows(self) -> int:
        """How many are kept."""
        return int(np.count_nonzero(self.keep))


def choose_rows(
    columns: Sequence[Selection],
    present: Mapping[int, Mask],
    num_rows: int,
    on_damage: OnDamage,
    *,
    keep_empty: bool = False,
) -> RowChoice:
    """The rows of a row group to keep, where `present` says for each leaf that lost rows which of them are left."""
    keep = np.ones(num_rows, np.bool_)
    # With `keep_empty` rows stay of which nothing is left: other columns of the file stay beside them.
    anything = np.full(num_rows, keep_empty, np.bool_)
    lost: dict[int, Mask] = {}
    for column in columns:
        apart = [Nullable(tuple(leaf.ordinal for leaf in column.leaves), can_be_null=True)]
        for group in apart if on_damage is OnDamage.COLUMNS else nullables(column):
            whole = np.ones(num_rows, np.bool_)
            for leaf in group.leaves:
                whole &= present.get(leaf, True)
            anything |= whole
            if on_damage is OnDamage.COLUMNS or (on_damage is OnDamage.NULL and group.can_be_null):
                lost.update((leaf, ~whole) for leaf in group.leaves if not whole.all())
            else:
                keep &= whole
    keep &= anything
    return RowChoice(keep, {leaf: rows & keep for leaf, rows in lost.items() if (rows & keep).any()})


def rows_kept(leaf: Leaf, runs: Sequence[RowRun], choice: RowChoice) -> list[LeafData]:
    """The rows of a leaf that are kept, in order, in pieces; nulls where it gets them."""
    nulled = choice.nulled.get(leaf.ordinal)
    what = choice.keep.astype(np.int8)
    if nulled is not None:
        what[nulled] = 2
    placed = [(run.first_row, run.first_row + run.data.num_rows, run.data) for run in runs if run.first_row is not None]
    borders = {0, len(what), *(np.flatnonzero(np.diff(what)) + 1).tolist()}
    borders.update(border for first, end, _ in placed for border in (first, end))
    pieces: list[LeafData] = []
    for start, end in pairwise(sorted(borders)):
        if what[start] == 2:
            pieces.append(null_rows(leaf, end - start))
        elif what[start] == 1:
            around = [(first, data) for first, last, data in placed if first <= start and end <= last]
            if not around:
                raise FormatError(f"rows {start:,} to {end - 1:,} were there when it was examined, and now are not")
            first, data = around[0]
            pieces.append(slice_rows(leaf, data, start - first, end - first))
    return pieces
