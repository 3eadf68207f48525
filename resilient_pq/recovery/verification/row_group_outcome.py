"""How the row groups of a damaged file fared: which of their rows are kept, with what values, and why not. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.damage.chunk_salvage import PageFate, RepairSource
from resilient_pq.damage.on_damage import Mask, OnDamage
from resilient_pq.errors import FormatError
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.schema_tree import Schema
from resilient_pq.recovery.evidence.located_row_group import LocatedChunk, LocatedRowGroup
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.ledger.ledger_model import Confidence, RowsFate
from resilient_pq.recovery.rewrite.retained_rows import RetainedRows
from resilient_pq.recovery.verification.page_scan import ScannedChunk, ScannedRowGroup
from resilient_pq.recovery.verification.verification import Verification

#: From the most to the least.
_CONFIDENCE: Final = (
    Confidence.CHECKSUM, Confidence.DECODED, Confidence.REPAIRED, Confidence.UNPLACED, Confidence.UNREAD,
)  # fmt: skip
_RANK: Final = {confidence: rank for rank, confidence in enumerate(_CONFIDENCE)}
NOTHING_FOUND: Final = "nothing of the column was found"
NOT_FOUND: Final = "they lie, or end, in pages that were not found"

Ordinals = NDArray[np.int64]


@dataclass(frozen=True)
class RowGroupOutcome:
    """How a row group fared.

    Attributes:
        number: Its ordinal in the ledger.
        known: What was known of it.
        found: What is left of it; None where all of it is whole in its place.
        num_rows: Its rows, as far as they are known.
        keep: Which of them are kept; None for all.
        nulled: For each leaf that lost values of rows that are kept, by its ordinal, which.
        apart: Whether each column has its own output, in which these rows are not.
        unread: Whether it was copied within the store, and not read.
        vouched: Of one that is whole in its place, the leaves whose pages all have checksums, by their ordinals.
    """

    number: int
    known: LocatedRowGroup
    found: ScannedRowGroup | None
    num_rows: int
    keep: Mask | None = None
    nulled: Mapping[int, Mask] = field(default_factory=dict)
    apart: bool = False
    unread: bool = False
    vouched: Collection[int] = ()

    @cached_property
    def _kept_before(self) -> Ordinals:
        return _counted(np.ones(self.num_rows, np.bool_) if self.keep is None else self.keep)

    @cached_property
    def _nulled_before(self) -> dict[int, Ordinals]:
        return {leaf: _counted(mask) for leaf, mask in self.nulled.items()}

    def rows_kept(self, leaf: int, first: int, end: int) -> int:
        """How many of some rows are in the output, in that of a leaf's column where each has its own."""
        kept = end - first if self.keep is None else int(self._kept_before[end] - self._kept_before[first])
        return kept - self.rows_nulled(leaf, first, end) if self.apart else kept

    def rows_nulled(self, leaf: int, first: int, end: int) -> int:
        """How many of some rows are kept without the values of a leaf."""
        counted = self._nulled_before.get(leaf)
        return 0 if counted is None else int(counted[end] - counted[first])

    def confidence_of(self, chunk: LocatedChunk, found: ScannedChunk | None = None) -> Confidence:
        """Why a chunk that is whole in its place is believed."""
        if self.unread:
            return Confidence.UNREAD
        if chunk.read.leaf.ordinal in self.vouched or (found is not None and found.checksummed):
            return Confidence.CHECKSUM
        try:
            sums = ChunkSums.of(chunk.read.metadata)
        except FormatError:
            sums = None
        return Confidence.DECODED if sums is None or sums.chunk is None else Confidence.CHECKSUM


def _counted(mask: Mask) -> Ordinals:
    """How many are set before each place, and before the end."""
    counts = np.zeros(len(mask) + 1, np.int64)
    np.cumsum(mask, out=counts[1:])
    return counts


def fared(
    known: Reconstruction, examined: Verification, rows: RetainedRows, on_damage: OnDamage
) -> list[RowGroupOutcome]:
    """How each row group fared, in order."""
    kept = {row_group.known.ordinal: row_group for row_group in rows.row_groups}
    positions = known.positions
    vouched: dict[int, set[int]] = {}
    for (position, leaf), pages in examined.seen.items():
        if pages.verified and not pages.decoded:
            vouched.setdefault(position, set()).add(leaf)
    told = []
    for number, row_group in _numbered(known.row_groups):
        found = examined.found.get(row_group.ordinal)
        apart = on_damage is OnDamage.COLUMNS
        if found is None:
            unread = examined.unread and row_group.ordinal in positions
            count = row_group.num_rows or 0
            leaves = vouched.get(positions.get(row_group.ordinal, -1), ())
            told.append(RowGroupOutcome(number, row_group, None, count, None, {}, apart, unread, leaves))
            continue
        mine = kept.get(row_group.ordinal)
        if mine is None:
            told.append(
                RowGroupOutcome(number, row_group, found, found.num_rows, np.zeros(found.num_rows, np.bool_), {}, apart)
            )
        elif mine.choice is None:
            told.append(RowGroupOutcome(number, row_group, found, found.num_rows, apart=apart))
        else:
            choice = mine.choice
            told.append(RowGroupOutcome(number, row_group, found, found.num_rows, choice.keep, choice.nulled, apart))
    return told


def _numbered(row_groups: Sequence[LocatedRowGroup]) -> Iterator[tuple[int, LocatedRowGroup]]:
    """Row groups with their ordinals; with their positions where these cannot be true: files have 16 bits for them."""
    if row_groups and row_groups[-1].ordinal >= len(row_groups) + (1 << 16):
        yield from enumerate(row_groups)
        return
    for row_group in row_groups:
        yield row_group.ordinal, row_group


def confidence_of_page(fate: PageFate) -> Confidence:
    """Why a page that is whole is believed."""
    if fate.unplaced:
        return Confidence.UNPLACED
    if fate.mending is RepairSource.BIT_REPAIR:
        return Confidence.REPAIRED
    return Confidence.CHECKSUM if fate.checksummed else Confidence.DECODED


def placed(fates: Sequence[PageFate], num_rows: int) -> list[tuple[int | None, int | None]]:
    """The first row of each page of a chunk, and its rows, as far as they do not contradict each other."""
    said: list[tuple[int | None, int | None]] = []
    row = 0
    for fate in fates:
        first = fate.first_row
        if fate.is_dictionary:
            said.append((None, None))
        elif first is None or not row <= first <= num_rows:
            said.append((None, fate.num_rows))
        else:
            said.append((first, fate.num_rows))
            row = first
    following = num_rows
    for i in range(len(said) - 1, -1, -1):
        first, count = said[i]
        if first is None:
            continue
        if count is not None and first + count > following:
            said[i] = first, following - first
        following = first
    return said


# -- rows ------------------------------------------------------------------------------------------


def fates_of_rows(schema: Schema, row_group: RowGroupOutcome, first_row: int | None) -> Iterator[RowsFate]:
    """The rows of a row group, in runs that fared alike."""
    if not row_group.num_rows:
        return
    starts = _starts(row_group)
    paths = [leaf.column_path for leaf in schema.leaves]
    keep = np.ones(len(starts), np.bool_) if row_group.keep is None else row_group.keep[starts]
    nulled = [(leaf, mask[starts]) for leaf, mask in sorted(row_group.nulled.items())]
    rank = np.full(len(starts), _RANK[_least(row_group)], np.int8)
    reasons = _Reasons(len(starts))
    for leaf, chunk in enumerate(() if row_group.found is None else row_group.found.chunks):
        _tell(reasons, rank, row_group, chunk, paths[leaf], starts)
    rank[~keep] = -1
    reason = reasons.chosen
    reason[keep & ~np.logical_or.reduce([np.zeros(len(starts), np.bool_), *(mask for _, mask in nulled)])] = -1
    told: list[NDArray[Any]] = [keep, rank, reason, *(mask for _, mask in nulled)]
    changes = np.zeros(len(starts), np.bool_)
    changes[0] = True
    for values in told:
        changes[1:] |= values[1:] != values[:-1]
    runs = np.flatnonzero(changes)
    ends = [*starts[runs[1:]].tolist(), row_group.num_rows]
    for run, start, end in zip(runs.tolist(), starts[runs].tolist(), ends, strict=True):
        without = tuple(paths[leaf] for leaf, mask in nulled if mask[run])
        why = reasons.text(reason[run], alone=len(without) == 1)
        yield RowsFate(
            first_row=None if first_row is None else first_row + start,
            num_rows=end - start,
            row_group=row_group.number,
            kept=bool(keep[run]),
            nulled=without,
            method=str(row_group.known.method),
            confidence=_CONFIDENCE[rank[run]] if keep[run] else None,
            reason=why if why is not None or (keep[run] and not without) else NOT_FOUND,
        )


def _least(row_group: RowGroupOutcome) -> Confidence:
    """The confidence of what is whole in its place."""
    if row_group.found is None:
        whole = [row_group.confidence_of(chunk) for chunk in row_group.known.chunks if chunk is not None]
    else:
        found = [chunk for chunk in row_group.found.chunks if chunk is not None and chunk.in_place]
        whole = [row_group.confidence_of(chunk.known, chunk) for chunk in found]
    return max(whole, key=_RANK.__getitem__, default=Confidence.CHECKSUM)


def _starts(row_group: RowGroupOutcome) -> Ordinals:
    """The rows with which something may change: what is kept, what is null, or which page a value lies in."""
    borders = [np.zeros(1, np.int64)]
    for mask in (row_group.keep, *row_group.nulled.values()):
        if mask is not None:
            borders.append(np.flatnonzero(mask[1:] != mask[:-1]) + 1)
    for chunk in () if row_group.found is None else row_group.found.chunks:
        if chunk is None:
            continue
        rows = placed(chunk.pages, row_group.num_rows)
        pages = [(first, first + (count or 0)) for first, count in rows if first is not None]
        borders.append(np.array(pages, np.int64).ravel())
    starts = np.unique(np.concatenate(borders))
    return starts[starts < row_group.num_rows]


class _Reasons:
    """Why rows lost values: for each of some rows, the first reason that was given."""

    def __init__(self, count: int) -> None:
        self._texts: list[tuple[str, str]] = []
        self.chosen = np.full(count, -1, np.int64)

    def text(self, number: int, *, alone: bool) -> str | None:
        """A reason in words, with the column that it is about where that is not `alone`; None for a negative number."""
        if number < 0:
            return None
        path, text = self._texts[number]
        return text if alone else f"{path}: {text}"

    def give(self, rows: NDArray[Any], path: str, text: str) -> None:
        """Give a reason of a column to those of some rows that have none."""
        if not self._texts or self._texts[-1] != (path, text):
            self._texts.append((path, text))
        chosen = self.chosen[rows]
        chosen[chosen < 0] = len(self._texts) - 1
        self.chosen[rows] = chosen


def _tell(
    reasons: _Reasons,
    rank: NDArray[np.int8],
    row_group: RowGroupOutcome,
    chunk: ScannedChunk | None,
    path: str,
    starts: Ordinals,
) -> None:
    """Say of some rows why a column lost values of them, and how much those are believed that it has."""
    if chunk is None:
        reasons.give(np.arange(len(starts)), path, NOTHING_FOUND)
        return
    lost = None if chunk.present is None else ~chunk.present[starts]
    unplaced = None
    for fate, (first, count) in zip(chunk.pages, placed(chunk.pages, row_group.num_rows), strict=True):
        if fate.reason is not None and (first is None or count is None):
            unplaced = unplaced or fate.reason
        if first is None or not count:
            continue
        rows = np.arange(*np.searchsorted(starts, (first, first + count)))
        if fate.reason is not None:
            reasons.give(rows, path, fate.reason)
        else:
            rank[rows] = np.maximum(rank[rows], _RANK[confidence_of_page(fate)])
    if lost is not None and lost.any():
        reasons.give(np.flatnonzero(lost), path, unplaced or NOT_FOUND)
