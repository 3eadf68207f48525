"""What the bytes of pages are in a ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from resilient_pq.damage.chunk_salvage import PageFate, RepairSource
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.recovery.evidence.located_row_group import LocatedChunk
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Region
from resilient_pq.recovery.verification.page_scan import ScannedChunk
from resilient_pq.recovery.verification.row_group_outcome import (
    NOTHING_FOUND,
    RowGroupOutcome,
    confidence_of_page,
    placed,
)

_OF_OTHERS: Final = "its rows went with values that another column lost"
_OF_GROUP: Final = "its values went with those of another column in the same group"
_UNPLACED: Final = "the rows before it cannot be counted"
_UNFINISHED: Final = "its rows go on in pages that are lost"
_WHY_MENDED: Final = {
    RepairSource.HEADER_COPY: "its header is damaged",
    RepairSource.DICTIONARY_COPY: "its bytes are damaged",
    RepairSource.DISPLACED: "its bytes lie elsewhere than they were written",
    RepairSource.OTHER_COPY: "it is damaged, or missing, in the first input",
    RepairSource.BIT_REPAIR: "its CRC32 does not match",
}

#: A region as if it lay where it was written, and what became of the page, where it was looked at.
Told = tuple[Region, PageFate | None]


def regions_of_row_group(row_group: RowGroupOutcome, leaves: tuple[Leaf, ...]) -> Iterator[Told]:
    """The pages of a row group; chunks whose pages nobody told apart as they are."""
    for leaf in leaves:
        chunk = row_group.known.chunks[leaf.ordinal]
        if row_group.found is None:
            if chunk is not None:
                yield _chunk(row_group, leaf, chunk), None
            continue
        found = row_group.found.chunks[leaf.ordinal]
        if found is None:
            yield _nothing(row_group, leaf, chunk), None
        elif found.in_place and not found.intact:
            yield _chunk(row_group, leaf, found.known, found), None
        else:
            yield from _pages(row_group, leaf, found)


def _nothing(row_group: RowGroupOutcome, leaf: Leaf, chunk: LocatedChunk | None) -> Region:
    place = None if chunk is None else chunk.read.range
    start, end = (row_group.known.start,) * 2 if place is None else (place.start, place.end)
    return Region(
        0, start, end, ByteUse.LOST, "chunk", row_group.number, leaf.column_path, reason=NOTHING_FOUND,
        rows_kept=row_group.rows_nulled(leaf.ordinal, 0, row_group.num_rows) or None,
    )  # fmt: skip


def _chunk(row_group: RowGroupOutcome, leaf: Leaf, chunk: LocatedChunk, found: ScannedChunk | None = None) -> Region:
    """A chunk that is whole in its place."""
    read, count = chunk.read, row_group.num_rows
    kept = row_group.rows_kept(leaf.ordinal, 0, count)
    # Slack may hold the first bytes of what follows.
    end = read.range.end - read.slack
    nulled = row_group.rows_nulled(leaf.ordinal, 0, count)
    use, reason, believed = ByteUse.DATA, None, row_group.confidence_of(chunk, found)
    if kept and nulled == kept:
        return Region(
            0, read.range.start, end, ByteUse.LOST, "chunk", row_group.number, leaf.column_path,
            None, None, None, _OF_GROUP, 0, count, kept,
        )  # fmt: skip
    if not kept and count:
        use, reason = ByteUse.LOST, _OF_OTHERS
    elif kept < count:
        reason = _OF_OTHERS
    return Region(
        0, read.range.start, end, use, "chunk", row_group.number, leaf.column_path,
        None, None, believed, reason, 0, count, kept,
    )  # fmt: skip


def _pages(row_group: RowGroupOutcome, leaf: Leaf, chunk: ScannedChunk) -> Iterator[Told]:
    pages = chunk.pages or chunk.intact
    rows = placed(pages, row_group.num_rows)
    for number, (fate, (first, count)) in enumerate(zip(pages, rows, strict=True)):
        if fate.reason is not None:
            yield _lost(row_group, leaf, chunk, fate, number, first, count), fate
        else:
            yield _whole(row_group, leaf, chunk, fate, number, first, count), fate


def _lost(
    row_group: RowGroupOutcome,
    leaf: Leaf,
    chunk: ScannedChunk,
    fate: PageFate,
    number: int,
    first: int | None,
    count: int | None,
) -> Region:
    """A page whose values are lost."""
    kept = None
    if first is not None and count is not None:
        kept = row_group.rows_kept(leaf.ordinal, first, first + count)
    elif not fate.is_dictionary and not row_group.apart:
        # Which rows it held is not known; they are among those that its chunk lost.
        kept = row_group.rows_nulled(leaf.ordinal, 0, row_group.num_rows) or None
    return Region(
        0, fate.offset, fate.end, ByteUse.LOST, _what(fate), row_group.number, leaf.column_path, number,
        None, None, fate.reason, first, count, kept,
    )  # fmt: skip


def _whole(
    row_group: RowGroupOutcome,
    leaf: Leaf,
    chunk: ScannedChunk,
    fate: PageFate,
    number: int,
    first: int | None,
    count: int | None,
) -> Region:
    """A page whose values are there; kept or not."""
    use, kept = ByteUse.DATA, None
    mended = None if fate.repair is None else str(fate.repair)
    reason = None if fate.repair is None else _WHY_MENDED[fate.repair]
    believed = confidence_of_page(fate)
    if fate.is_dictionary:
        if row_group.num_rows and not row_group.rows_kept(leaf.ordinal, 0, row_group.num_rows):
            use, reason = ByteUse.LOST, _OF_OTHERS
    elif first is None or count is None:
        use, reason = ByteUse.LOST, _UNPLACED
    else:
        kept = row_group.rows_kept(leaf.ordinal, first, first + count)
        untold = chunk.present is not None and not chunk.present[first : first + count].any()
        if kept and row_group.rows_nulled(leaf.ordinal, first, first + count) == kept:
            return Region(
                0, fate.offset, fate.end, ByteUse.LOST, "page", row_group.number, leaf.column_path, number,
                None, None, _UNFINISHED if untold else _OF_GROUP, first, count, kept,
            )  # fmt: skip
        if kept < count:
            reason = _UNFINISHED if untold else _OF_OTHERS
            use = ByteUse.DATA if kept else ByteUse.LOST
    return Region(
        0, fate.offset, fate.end, use, _what(fate), row_group.number, leaf.column_path, number,
        mended, believed, reason, first, count, kept,
    )  # fmt: skip


def _what(fate: PageFate) -> str:
    return "dictionary page" if fate.is_dictionary else "page"
