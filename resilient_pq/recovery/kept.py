"""What of the row groups of a damaged file goes into the output, and what is lost. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from resilient_pq.errors import Where
from resilient_pq.format.schema import Leaf, Schema, Selection
from resilient_pq.reader.on_damage import Mask, OnDamage, RowChoice, choose_rows
from resilient_pq.reader.surviving import PageFate
from resilient_pq.recovery.examination import ChunkFound, RowGroupFound
from resilient_pq.recovery.known import KnownRowGroup
from resilient_pq.recovery.report import Damage, LostRegion


@dataclass(frozen=True, slots=True)
class KeptRowGroup:
    """A row group of which rows go into the output.

    Attributes:
        known: What was known of it.
        found: What is left of it; None where all of it is whole in its place.
        choice: Which of its rows are kept; None for all, without nulls for lost values.
    """

    known: KnownRowGroup
    found: RowGroupFound | None = None
    choice: RowChoice | None = None

    @property
    def num_rows(self) -> int:
        """Rows that go into the output."""
        if self.choice is not None:
            return self.choice.num_rows
        if self.found is not None:
            return self.found.num_rows
        assert self.known.num_rows is not None  # what is whole in its place is complete
        return self.known.num_rows

    @property
    def in_place(self) -> bool:
        """Whether it is whole as it lies."""
        return self.found is None


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What goes into an output.

    Attributes:
        row_groups: The row groups with rows, in order.
        lost: What of the row groups is lost, in the order of the bytes.
    """

    row_groups: tuple[KeptRowGroup, ...]
    lost: tuple[LostRegion, ...]

    @property
    def num_rows(self) -> int:
        """Rows of all row groups."""
        return sum(row_group.num_rows for row_group in self.row_groups)


def keep(
    schema: Schema,
    row_groups: Sequence[KnownRowGroup],
    found: Mapping[int, RowGroupFound],
    on_damage: OnDamage,
    columns: Sequence[Selection] | None = None,
) -> KeptRows:
    """Decide which rows are kept.

    Args:
        schema: All columns of the file.
        row_groups: The row groups known of, in order.
        found: For each of them that is not whole in its place, by its ordinal, what is left of it.
        on_damage: DROP or NULL.
        columns: The columns of the output; None for all.
    """
    wanted = schema.columns if columns is None else columns
    kept: list[KeptRowGroup] = []
    lost: list[LostRegion] = []
    for known in row_groups:
        left = found.get(known.ordinal)
        if left is None:
            kept.append(KeptRowGroup(known))
            continue
        leaves = [leaf for column in wanted for leaf in column.leaves]
        ordinals = {leaf.ordinal for leaf in leaves}
        present = {ordinal: mask for ordinal, mask in left.present.items() if ordinal in ordinals}
        if not present and left.is_whole and known.num_rows is not None:
            kept.append(KeptRowGroup(known, left))
            continue
        choice = choose_rows(wanted, present, left.num_rows, on_damage)
        lost += _losses(leaves, left, choice)
        if choice.num_rows:
            kept.append(KeptRowGroup(known, left, choice))
    return KeptRows(tuple(kept), tuple(sorted(lost, key=lambda region: region.start)))


def _losses(leaves: Sequence[Leaf], found: RowGroupFound, choice: RowChoice) -> Iterator[LostRegion]:
    """The pages that cost rows, or values; a row that several of them cost counts once, with the first."""
    known = found.known
    missing = ~choice.keep
    for leaf in leaves:
        chunk = found.chunks[leaf.ordinal]
        where = Where(row_group=known.ordinal, column=leaf.column_path)
        if chunk is None:
            rows, missing = int(np.count_nonzero(missing)), np.zeros_like(missing)
            nulled = _count(choice.nulled.get(leaf.ordinal))
            reason = "nothing of the column was found"
            yield LostRegion(known.start, known.end, rows, Damage.MISSING, reason, where, nulled)
            continue
        for ordinal, fate in enumerate(chunk.pages):
            if fate.reason is None:
                continue
            concerned = _rows_of(fate, chunk, found.num_rows)
            rows = int(np.count_nonzero(missing & concerned))
            missing &= ~concerned
            nulled = _count(choice.nulled.get(leaf.ordinal), concerned)
            place = where.merged_with(Where(page=ordinal, offset=fate.offset))
            yield LostRegion(fate.offset, fate.end, rows, Damage.CORRUPT, fate.reason, place, nulled)
    left = int(np.count_nonzero(missing))
    if left:
        # Rows at the borders of pages that were lost, which go on in them.
        reason = "they lie partly in pages that are lost"
        where = Where(row_group=known.ordinal)
        yield LostRegion(known.start, known.end, left, Damage.CORRUPT, reason, where)


def _count(rows: Mask | None, among: Mask | None = None) -> int:
    if rows is None:
        return 0
    return int(np.count_nonzero(rows if among is None else rows & among))


def _rows_of(fate: PageFate, chunk: ChunkFound, num_rows: int) -> Mask:
    """The rows that a lost page holds; all that its chunk lost where they cannot be told."""
    rows = np.zeros(num_rows, np.bool_)
    if fate.is_dictionary or fate.first_row is None or fate.num_rows is None:
        return rows if chunk.present is None else ~chunk.present
    rows[max(fate.first_row, 0) : fate.first_row + fate.num_rows] = True
    return rows
