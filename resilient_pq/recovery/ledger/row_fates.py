"""What became of the rows and of the pages of a damaged file, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from resilient_pq.damage.chunk_salvage import PageFate, RepairSource
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.errors import FormatError
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.recovery.evidence.located_row_group import LocatedChunk
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Confidence, Region, RowsFate
from resilient_pq.recovery.rewrite.retained_rows import Ordinals, RetainedRows, RowGroupOutcome
from resilient_pq.recovery.verification.page_scan import ScannedChunk
from resilient_pq.recovery.verification.verification import Verification

#: From the most to the least.
_CONFIDENCE: Final = (
    Confidence.CHECKSUM, Confidence.DECODED, Confidence.REPAIRED, Confidence.UNPLACED, Confidence.UNREAD
)  # fmt: skip
_RANK: Final = {confidence: rank for rank, confidence in enumerate(_CONFIDENCE)}
NOTHING_FOUND: Final = "nothing of the column was found"
NOT_FOUND: Final = "they lie, or end, in pages that were not found"


def number_row_groups(
    positions: dict[int, int], verification: Verification, rows: RetainedRows, on_damage: OnDamage
) -> list[RowGroupOutcome]:
    """The outcomes of all row groups, with what the ledger says of them besides."""
    checksummed: dict[int, set[int]] = {}
    for (position, leaf), pages in verification.seen.items():
        if pages.verified and not pages.decoded:
            checksummed.setdefault(position, set()).add(leaf)
    outcomes = rows.outcomes
    # Files have 16 bits for ordinals: those that cannot be true give way to positions.
    has_ordinals = not outcomes or outcomes[-1].located.ordinal < len(outcomes) + (1 << 16)
    numbered = []
    for index, outcome in enumerate(outcomes):
        ordinal = outcome.located.ordinal
        in_place = outcome.scanned is None
        numbered.append(
            replace(
                outcome,
                number=ordinal if has_ordinals else index,
                own_outputs=on_damage is OnDamage.COLUMNS,
                unread=in_place and verification.unread and ordinal in positions,
                checksummed=checksummed.get(positions.get(ordinal, -1), ()) if in_place else (),
            )
        )
    return numbered


def confidence_of_chunk(outcome: RowGroupOutcome, chunk: LocatedChunk, scanned: ScannedChunk | None) -> Confidence:
    """Why a chunk that is whole in its place is taken for what was written."""
    if outcome.unread:
        return Confidence.UNREAD
    if chunk.read.leaf.ordinal in outcome.checksummed or (scanned is not None and scanned.checksummed):
        return Confidence.CHECKSUM
    try:
        sums = ChunkSums.of(chunk.read.metadata)
    except FormatError:
        sums = None
    return Confidence.DECODED if sums is None or sums.chunk is None else Confidence.CHECKSUM


def confidence_of_page(fate: PageFate) -> Confidence:
    """Why a page that is whole is taken for what was written."""
    if fate.unplaced:
        return Confidence.UNPLACED
    if fate.repair is RepairSource.BIT_REPAIR:
        return Confidence.REPAIRED
    return Confidence.CHECKSUM if fate.checksummed else Confidence.DECODED


def place_pages(fates: Sequence[PageFate], num_rows: int) -> list[tuple[int | None, int | None]]:
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


def fates_of_rows(schema: Schema, outcome: RowGroupOutcome, first_row: int | None) -> Iterator[RowsFate]:
    """The rows of a row group, in runs with one fate; `first_row` is the number of the first in the file."""
    if not outcome.num_rows:
        return
    starts = _starts(outcome)
    paths = [leaf.column_path for leaf in schema.leaves]
    keep = np.ones(len(starts), np.bool_) if outcome.keep is None else outcome.keep[starts]
    nulled = [(leaf, mask[starts]) for leaf, mask in sorted(outcome.nulled.items())]
    masks = [mask for _, mask in nulled]
    reasons = _Reasons(len(starts))
    rank = _explain(reasons, outcome, paths, starts)
    rank[~keep] = -1
    is_nulled = np.logical_or.reduce([np.zeros(len(starts), np.bool_), *masks])
    reasons.chosen[keep & ~is_nulled] = -1
    changes = np.zeros(len(starts), np.bool_)
    changes[0] = True
    for values in (keep, rank, reasons.chosen, *masks):
        changes[1:] |= values[1:] != values[:-1]
    runs = np.flatnonzero(changes)
    ends = [*starts[runs[1:]].tolist(), outcome.num_rows]
    for run, start, end in zip(runs.tolist(), starts[runs].tolist(), ends, strict=True):
        without = tuple(paths[leaf] for leaf, mask in nulled if mask[run])
        why = reasons.text(reasons.chosen[run], alone=len(without) == 1)
        yield RowsFate(
            first_row=None if first_row is None else first_row + start,
            num_rows=end - start,
            row_group=outcome.number if outcome.located.placed else None,
            kept=bool(keep[run]),
            nulled=without,
            method=str(outcome.located.method),
            confidence=_CONFIDENCE[rank[run]] if keep[run] else None,
            reason=why if why is not None or (keep[run] and not without) else NOT_FOUND,
            may_repeat=outcome.located.may_be_rest,
        )


def _explain(reasons: _Reasons, outcome: RowGroupOutcome, paths: Sequence[str], starts: Ordinals) -> NDArray[np.int8]:
    """Give the rows that lost values their reasons, and rank how far the values of each row can be trusted."""
    chunks = () if outcome.scanned is None else outcome.scanned.chunks
    if outcome.scanned is None:
        whole = [confidence_of_chunk(outcome, chunk, None) for chunk in outcome.located.chunks if chunk is not None]
    else:
        in_place = [chunk for chunk in chunks if chunk is not None and chunk.in_place]
        whole = [confidence_of_chunk(outcome, chunk.located, chunk) for chunk in in_place]
    least = max(whole, key=_RANK.__getitem__, default=Confidence.CHECKSUM)
    rank = np.full(len(starts), _RANK[least], np.int8)
    for path, chunk in zip(paths, chunks, strict=False):
        _explain_chunk(reasons, rank, outcome.num_rows, chunk, path, starts)
    return rank


def _starts(outcome: RowGroupOutcome) -> Ordinals:
    """The rows with which something may change: what is kept, what is null, or which page a value lies in."""
    borders = [np.zeros(1, np.int64)]
    for mask in (outcome.keep, *outcome.nulled.values()):
        if mask is not None:
            borders.append(np.flatnonzero(mask[1:] != mask[:-1]) + 1)
    for chunk in () if outcome.scanned is None else outcome.scanned.chunks:
        if chunk is None:
            continue
        rows = place_pages(chunk.pages, outcome.num_rows)
        pages = [(first, first + (count or 0)) for first, count in rows if first is not None]
        borders.append(np.array(pages, np.int64).ravel())
    starts = np.unique(np.concatenate(borders))
    return starts[starts < outcome.num_rows]


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


def _explain_chunk(
    reasons: _Reasons, rank: NDArray[np.int8], num_rows: int, chunk: ScannedChunk | None, path: str, starts: Ordinals
) -> None:
    """Give rows whose values a column lost the reason, and lower the rank of rows whose values it has."""
    if chunk is None:
        reasons.give(np.arange(len(starts)), path, NOTHING_FOUND)
        return
    lost = None if chunk.present is None else ~chunk.present[starts]
    unplaced = None
    for fate, (first, count) in zip(chunk.pages, place_pages(chunk.pages, num_rows), strict=True):
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


_OF_OTHERS: Final = "its rows went with values that another column lost"
_OF_GROUP: Final = "its values went with those of another column in the same group"
_UNPLACED: Final = "the rows before it cannot be counted"
_UNFINISHED: Final = "its rows go on in pages that are lost"
_WHY_REPAIRED: Final = {
    RepairSource.HEADER_COPY: "its header is damaged",
    RepairSource.DICTIONARY_COPY: "its bytes are damaged",
    RepairSource.DISPLACED: "its bytes lie elsewhere than they were written",
    RepairSource.OTHER_COPY: "it is damaged, or missing, in the first input",
    RepairSource.BIT_REPAIR: "its CRC32 does not match",
}

#: A region as if it lay where it was written, and what became of the page, where it was looked at.
PlacedRegion = tuple[Region, PageFate | None]


def regions_of_row_group(outcome: RowGroupOutcome, leaves: tuple[Leaf, ...]) -> Iterator[PlacedRegion]:
    """The pages of a row group, and as a whole the chunks that were not scanned."""
    for leaf in leaves:
        chunk = outcome.located.chunks[leaf.ordinal]
        if outcome.scanned is None:
            if chunk is not None:
                yield _chunk(outcome, leaf, chunk), None
            continue
        scanned = outcome.scanned.chunks[leaf.ordinal]
        if scanned is None:
            yield _nothing(outcome, leaf, chunk), None
        elif scanned.in_place and not scanned.intact:
            yield _chunk(outcome, leaf, scanned.located, scanned), None
        else:
            yield from _pages(outcome, leaf, scanned)


def _nothing(outcome: RowGroupOutcome, leaf: Leaf, chunk: LocatedChunk | None) -> Region:
    place = None if chunk is None else chunk.read.range
    start, end = (outcome.located.start,) * 2 if place is None else (place.start, place.end)
    return Region(
        0, start, end, ByteUse.LOST, "chunk", outcome.number, leaf.column_path, reason=NOTHING_FOUND,
        rows_kept=outcome.rows_nulled(leaf.ordinal, 0, outcome.num_rows) or None
    )  # fmt: skip


def _chunk(outcome: RowGroupOutcome, leaf: Leaf, chunk: LocatedChunk, scanned: ScannedChunk | None = None) -> Region:
    """A chunk that is whole in its place."""
    read, count = chunk.read, outcome.num_rows
    kept = outcome.rows_kept(leaf.ordinal, 0, count)
    # Slack may hold the first bytes of what follows.
    end = read.range.end - read.slack
    nulled = outcome.rows_nulled(leaf.ordinal, 0, count)
    use, reason, confidence = ByteUse.DATA, None, confidence_of_chunk(outcome, chunk, scanned)
    if kept and nulled == kept:
        return Region(
            0, read.range.start, end, ByteUse.LOST, "chunk", outcome.number, leaf.column_path,
            None, None, None, _OF_GROUP, 0, count, kept
        )  # fmt: skip
    if not kept and count:
        use, reason = ByteUse.LOST, _OF_OTHERS
    elif kept < count:
        reason = _OF_OTHERS
    return Region(
        0, read.range.start, end, use, "chunk", outcome.number, leaf.column_path,
        None, None, confidence, reason, 0, count, kept
    )  # fmt: skip


#: Use, repair, confidence, reason and rows kept of a page, as in `Region`.
_Judgement: TypeAlias = tuple[ByteUse, str | None, Confidence | None, str | None, int | None]


def _pages(outcome: RowGroupOutcome, leaf: Leaf, chunk: ScannedChunk) -> Iterator[PlacedRegion]:
    pages = chunk.pages or chunk.intact
    rows = place_pages(pages, outcome.num_rows)
    for number, (fate, (first, count)) in enumerate(zip(pages, rows, strict=True)):
        judge = _judge_whole if fate.reason is None else _judge_lost
        use, repair, confidence, reason, kept = judge(outcome, leaf.ordinal, chunk, fate, first, count)
        what = "dictionary page" if fate.is_dictionary else "page"
        region = Region(
            0, fate.offset, fate.end, use, what, outcome.number, leaf.column_path, number,
            repair, confidence, reason, first, count, kept
        )  # fmt: skip
        yield region, fate


def _judge_lost(
    outcome: RowGroupOutcome, leaf: int, _: ScannedChunk, fate: PageFate, first: int | None, count: int | None
) -> _Judgement:
    """A page whose values are lost."""
    kept = None
    if first is not None and count is not None:
        kept = outcome.rows_kept(leaf, first, first + count)
    elif not fate.is_dictionary and not outcome.own_outputs:
        # It is not known which rows it held; they are among those that its chunk lost.
        kept = outcome.rows_nulled(leaf, 0, outcome.num_rows) or None
    return ByteUse.LOST, None, None, fate.reason, kept


def _judge_whole(
    outcome: RowGroupOutcome, leaf: int, chunk: ScannedChunk, fate: PageFate, first: int | None, count: int | None
) -> _Judgement:
    """A page whose values are there; kept or not."""
    repair = None if fate.repair is None else str(fate.repair)
    reason = None if fate.repair is None else _WHY_REPAIRED[fate.repair]
    confidence = confidence_of_page(fate)
    if fate.is_dictionary:
        if outcome.num_rows and not outcome.rows_kept(leaf, 0, outcome.num_rows):
            return ByteUse.LOST, repair, confidence, _OF_OTHERS, None
        return ByteUse.DATA, repair, confidence, reason, None
    if first is None or count is None:
        return ByteUse.LOST, repair, confidence, _UNPLACED, None
    kept = outcome.rows_kept(leaf, first, first + count)
    unfinished = chunk.present is not None and not chunk.present[first : first + count].any()
    if kept and outcome.rows_nulled(leaf, first, first + count) == kept:
        return ByteUse.LOST, None, None, _UNFINISHED if unfinished else _OF_GROUP, kept
    if kept == count:
        return ByteUse.DATA, repair, confidence, reason, kept
    use = ByteUse.DATA if kept else ByteUse.LOST
    return use, repair, confidence, _UNFINISHED if unfinished else _OF_OTHERS, kept
