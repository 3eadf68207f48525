"""What the bytes of pages are in a ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from resilient_pq.damage.chunk_salvage import PageFate, RepairSource
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.recovery.evidence.located_row_group import LocatedChunk
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Confidence, Region
from resilient_pq.recovery.ledger.row_fates import NOTHING_FOUND, confidence_of_chunk, confidence_of_page, place_pages
from resilient_pq.recovery.rewrite.retained_rows import RowGroupOutcome
from resilient_pq.recovery.verification.page_scan import ScannedChunk

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
