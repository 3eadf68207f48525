"""Which rows of a damaged file go into the output, and which are lost. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.lost_region import LostRegion, RemainingRowGroup, lost_regions
from resilient_pq.damage.on_damage import Mask, OnDamage, RowChoice, choose_rows
from resilient_pq.errors import Where
from resilient_pq.format.file_metadata import StoredSortingColumn
from resilient_pq.format.schema_tree import Schema, Selection
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup
from resilient_pq.recovery.report import Damage, Finding, OtherPolicy
from resilient_pq.recovery.verification.page_scan import ScannedRowGroup

Ordinals = NDArray[np.int64]


@dataclass(frozen=True)
class RowGroupOutcome:
    """What becomes of a row group: which of its rows the output has, with which values."""

    located: LocatedRowGroup  # Where it lies, with the number of rows that its pages bear out
    scanned: ScannedRowGroup | None = None  # What is left of it; None where all of it is whole in its place
    choice: RowChoice | None = None  # Which of its rows are kept; None for all, without nulls for lost values
    number: int = 0  # Its number in the ledger, which adds this and what follows
    own_outputs: bool = False  # Whether each column has its own output, in which rows without its value are not
    unread: bool = False  # Whether the store copied it, and it was not read
    # Of one that is whole in its place, the leaves whose pages all have checksums, by their ordinals
    checksummed: Collection[int] = ()

    @property
    def num_rows(self) -> int:
        """Its rows, as far as they are known."""
        return (self.located.num_rows or 0) if self.scanned is None else self.scanned.num_rows

    @property
    def num_rows_kept(self) -> int:
        """Its rows that go into the output."""
        return self.num_rows if self.choice is None else self.choice.num_rows

    @property
    def keep(self) -> Mask | None:
        """Which rows are kept; None for all."""
        return None if self.choice is None else self.choice.keep

    @property
    def nulled(self) -> Mapping[int, Mask]:
        """For each leaf that lost values of rows that are kept, by its ordinal, which rows."""
        return {} if self.choice is None else self.choice.nulled

    @property
    def sorting_columns(self) -> tuple[StoredSortingColumn, ...]:
        """The order that its rows still have: up to the first column that got nulls for what is lost."""
        return tuple(takewhile(lambda column: column.column_idx not in self.nulled, self.located.sorting_columns))

    @cached_property
    def _kept_before(self) -> Ordinals:
        return _running_count(np.ones(self.num_rows, np.bool_) if self.keep is None else self.keep)

    @cached_property
    def _nulled_before(self) -> dict[int, Ordinals]:
        return {leaf: _running_count(mask) for leaf, mask in self.nulled.items()}

    def rows_kept(self, leaf: int, first: int, end: int) -> int:
        """How many of some rows are in the output, in that of a leaf's column where each has its own."""
        kept = end - first if self.keep is None else int(self._kept_before[end] - self._kept_before[first])
        return kept - self.rows_nulled(leaf, first, end) if self.own_outputs else kept

    def rows_nulled(self, leaf: int, first: int, end: int) -> int:
        """How many of some rows are kept without the values of a leaf."""
        counted = self._nulled_before.get(leaf)
        return 0 if counted is None else int(counted[end] - counted[first])


def _running_count(mask: Mask) -> Ordinals:
    """How many are set before each place, and before the end."""
    counts = np.zeros(len(mask) + 1, np.int64)
    np.cumsum(mask, out=counts[1:])
    return counts


@dataclass(frozen=True)
class RetainedRows:
    """What goes into an output: the outcomes of all row groups, and what they lost in the order of the bytes."""

    outcomes: tuple[RowGroupOutcome, ...]
    lost: tuple[LostRegion, ...] = ()

    @cached_property
    def row_groups(self) -> tuple[RowGroupOutcome, ...]:
        """The row groups that the output has: one without rows only where it had none."""
        return tuple(each for each in self.outcomes if each.choice is None or each.choice.num_rows)

    @cached_property
    def num_rows(self) -> int:
        """Rows of all row groups."""
        return sum(row_group.num_rows_kept for row_group in self.row_groups)


def retain_rows(
    schema: Schema,
    row_groups: Sequence[LocatedRowGroup],
    scanned: Mapping[int, ScannedRowGroup],
    on_damage: OnDamage,
    columns: Sequence[Selection] | None = None,
) -> RetainedRows:
    """Decide which rows some columns, or all, keep; `scanned` has what is left of row groups that are not whole."""
    wanted = schema.columns if columns is None else columns
    leaves = [leaf for column in wanted for leaf in column.leaves]
    outcomes: list[RowGroupOutcome] = []
    lost: list[LostRegion] = []
    for located in row_groups:
        left = scanned.get(located.ordinal)
        if left is None:
            outcomes.append(RowGroupOutcome(located))
            continue
        ordinals = {leaf.ordinal for leaf in leaves}
        present = {ordinal: mask for ordinal, mask in left.present.items() if ordinal in ordinals}
        if not present and left.is_whole and located.num_rows is not None:
            outcomes.append(RowGroupOutcome(located, left))
            continue
        choice = choose_rows(wanted, present, left.num_rows, on_damage)
        pages = {ordinal: chunk.pages for ordinal, chunk in enumerate(left.chunks) if chunk is not None}
        place = ByteRange(located.start, located.end)
        lost += lost_regions(leaves, RemainingRowGroup(located.ordinal, place, pages, present), choice)
        outcomes.append(RowGroupOutcome(located, left, choice))
    return RetainedRows(tuple(outcomes), tuple(sorted(lost, key=lambda region: region.start)))


@dataclass(frozen=True, slots=True)
class RowNumbers:
    """The first row of each row group by its ordinal, and the first row group before which rows were not counted."""

    first: Mapping[int, int]
    guessed: int | None


def row_numbers(row_groups: Sequence[LocatedRowGroup], scanned: Mapping[int, ScannedRowGroup]) -> RowNumbers:
    """Number the rows of all row groups, as if none were missing where nobody counted those before one."""
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
        left = scanned.get(row_group.ordinal)
        following += max(row_group.num_rows or 0, 0 if left is None else left.num_rows)
    return RowNumbers(first, guessed)


def find_guessed_numbers(
    row_groups: Sequence[LocatedRowGroup], scanned: Mapping[int, ScannedRowGroup]
) -> list[Finding]:
    """What a user has to know of the numbers of rows in outputs of single columns."""
    guessed = row_numbers(row_groups, scanned).guessed
    if guessed is None:
        return []
    message = (
        "rows may be missing before it that nobody counted: from here on the numbers in `row` go on as if none were, "
        "so they tell which values are of one row, and no more"
    )
    return [Finding(Damage.UNVERIFIED, message, Where(row_group=guessed), costs_rows=False)]


_WORTH_NAMING: Final = 10  # Another policy is named where it keeps more than so many times as many rows


def better_policy(
    schema: Schema,
    chosen: RetainedRows,
    row_groups: Sequence[LocatedRowGroup],
    scanned: Mapping[int, ScannedRowGroup],
) -> OtherPolicy | None:
    """`on_damage="null"`, where it keeps far more rows than were chosen."""
    if not scanned:
        return None
    with_nulls = retain_rows(schema, row_groups, scanned, OnDamage.NULL)
    if with_nulls.num_rows <= chosen.num_rows * _WORTH_NAMING:
        return None
    shares = {leaf.column_path: _share(with_nulls, leaf.ordinal) for leaf in schema.leaves}
    return OtherPolicy(str(OnDamage.NULL), with_nulls.num_rows, shares)


def _share(rows: RetainedRows, leaf: int) -> float:
    nulled: Sequence[int] = [each.rows_nulled(leaf, 0, each.num_rows) for each in rows.row_groups]
    return 1 - sum(nulled) / rows.num_rows
