"""What of the row groups of a damaged file goes into the output, and what is lost. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.lost_region import LostRegion, RemainingRowGroup, lost_regions
from resilient_pq.damage.on_damage import OnDamage, RowChoice, choose_rows
from resilient_pq.errors import Where
from resilient_pq.format.file_metadata import SortingColumn
from resilient_pq.format.schema_tree import Schema, Selection
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup
from resilient_pq.recovery.report import Damage, Finding
from resilient_pq.recovery.verification.page_scan import ScannedRowGroup


@dataclass(frozen=True, slots=True)
class RetainedRowGroup:
    """A row group of which rows go into the output.

    Attributes:
        known: What was known of it.
        found: What is left of it; None where all of it is whole in its place.
        choice: Which of its rows are kept; None for all, without nulls for lost values.
    """

    known: LocatedRowGroup
    found: ScannedRowGroup | None = None
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
    def sorting_columns(self) -> tuple[SortingColumn, ...]:
        """The order that its rows still have: up to the first column that got nulls for what is lost."""
        nulled = () if self.choice is None else self.choice.nulled
        return tuple(takewhile(lambda column: column.column_idx not in nulled, self.known.sorting_columns))

    @property
    def in_place(self) -> bool:
        """Whether it is whole as it lies."""
        return self.found is None


@dataclass(frozen=True, slots=True)
class RetainedRows:
    """What goes into an output.

    Attributes:
        row_groups: The row groups with rows, in order.
        lost: What of the row groups is lost, in the order of the bytes.
    """

    row_groups: tuple[RetainedRowGroup, ...]
    lost: tuple[LostRegion, ...]

    @property
    def num_rows(self) -> int:
        """Rows of all row groups."""
        return sum(row_group.num_rows for row_group in self.row_groups)


def keep(
    schema: Schema,
    row_groups: Sequence[LocatedRowGroup],
    found: Mapping[int, ScannedRowGroup],
    on_damage: OnDamage,
    columns: Sequence[Selection] | None = None,
) -> RetainedRows:
    """Decide which rows are kept."""
    wanted = schema.columns if columns is None else columns
    kept: list[RetainedRowGroup] = []
    lost: list[LostRegion] = []
    for known in row_groups:
        left = found.get(known.ordinal)
        if left is None:
            kept.append(RetainedRowGroup(known))
            continue
        counted = left.known
        leaves = [leaf for column in wanted for leaf in column.leaves]
        ordinals = {leaf.ordinal for leaf in leaves}
        present = {ordinal: mask for ordinal, mask in left.present.items() if ordinal in ordinals}
        if not present and left.is_whole and counted.num_rows is not None:
            kept.append(RetainedRowGroup(counted, left))
            continue
        choice = choose_rows(wanted, present, left.num_rows, on_damage)
        pages = {ordinal: chunk.pages for ordinal, chunk in enumerate(left.chunks) if chunk is not None}
        place = ByteRange(known.start, known.end)
        lost += lost_regions(leaves, RemainingRowGroup(known.ordinal, place, pages, present), choice)
        if choice.num_rows:
            kept.append(RetainedRowGroup(counted, left, choice))
    return RetainedRows(tuple(kept), tuple(sorted(lost, key=lambda region: region.start)))


@dataclass(frozen=True, slots=True)
class RowNumbers:
    """The numbers that rows have in the damaged file.

    Attributes:
        first: The number of the first row of each row group, by its ordinal; they ascend, and each is of one row.
        guessed: The first row group before which rows may be missing that nobody counted; None where all are counted.
    """

    first: Mapping[int, int]
    guessed: int | None


def row_numbers(row_groups: Sequence[LocatedRowGroup], found: Mapping[int, ScannedRowGroup]) -> RowNumbers:
    """Number the rows of all row groups, those that are kept and those that are not.

    Where nobody counted the rows before a row group, its numbers go on as if none were missing there.
    """
    first: dict[int, int] = {}
    guessed: int | None = None
    following = 0
    for row_group in row_groups:
        before = row_group.rows_before
        if before is None or before < following:
            guessed = row_group.ordinal if guessed is None else guessed
        else:
            following = before
        first[row_group.ordinal] = following
        left = found.get(row_group.ordinal)
        following += max(row_group.num_rows or 0, 0 if left is None else left.num_rows)
    return RowNumbers(first, guessed)


def numbering(row_groups: Sequence[LocatedRowGroup], found: Mapping[int, ScannedRowGroup]) -> list[Finding]:
    """What a user has to know of the numbers of rows in outputs of single columns."""
    guessed = row_numbers(row_groups, found).guessed
    if guessed is None:
        return []
    message = (
        "rows may be missing before it that nobody counted: from here on the numbers in `row` go on as if none were, "
        "so they tell which values are of one row, and no more"
    )
    return [Finding(Damage.UNVERIFIED, message, Where(row_group=guessed), costs_rows=False)]
