"""The rows of a row group whose pages contradict the footer, or each other. Pure.

A footer of another writer has no checksum, and a row group may claim billions of rows, for which no memory is left. The
pages that are there are counted, and the bytes of lost pages limit the rows that they may have held.
Page headers of which only chunk records are left have no checksum either: there the rows are what most chunks count.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from resilient_pq.damage.chunk_salvage import PageFate, RowRun, SalvagedChunk
from resilient_pq.damage.displaced_pages import without_pages
from resilient_pq.damage.exact_page import check_exact
from resilient_pq.damage.lost_region import Damage, LostRegion
from resilient_pq.errors import FormatError, UnsupportedError, Where
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.levels import slice_rows
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup, Method

#: Rows that a byte of lost pages may have held: bits that compress to an eighth.
_ROWS_PER_BYTE: Final = 64
#: So many rows may be lost with any bytes: pages of runs have few.
_LEAST: Final = 1 << 20
_CONTESTED: Final = "another column of its row group has other rows, and nothing tells which of both is right"
_BEHIND: Final = "it holds rows behind the last of its row group"

Chunks = Sequence[SalvagedChunk | None]
Counted = tuple[LocatedRowGroup, list[SalvagedChunk | None]]


def is_doubted(known: LocatedRowGroup, left: Chunks) -> bool:
    """Whether the pages of a row group contradict the stated number of rows."""
    stated = known.num_rows
    if stated is None:
        return known.method is Method.CHUNK_RECORDS and bool(_whole_counts(known, left))
    return _is_too_many(stated, left) or any(_contradicts(chunk, stated) for chunk in left)


def correct_row_count(known: LocatedRowGroup, left: Chunks, free: Chunks) -> Counted:
    """A row group with the number of rows that its pages support, and its salvaged chunks with as many rows.

    `left` was salvaged with the stated number of rows, `free` without one. Where all chunks of `free` agree, their
    number is taken; where only some have more rows than stated, these are cut; a number that the bytes cannot hold is
    dropped.
    """
    stated = known.num_rows
    if stated is None or (known.method is Method.CHUNK_RECORDS and not _is_too_many(stated, left)):
        return _count_by_most(known, left, free)
    counts = [None if chunk is None else _proven_rows(chunk) for chunk in free]
    told = {count for chunk, count in zip(free, counts, strict=True) if chunk is not None}
    agreed = told.pop() if len(told) == 1 else None
    if agreed is not None:
        return replace(known, num_rows=agreed), list(free)
    if _is_too_many(stated, left):
        return replace(known, num_rows=None), list(free)
    fitting = list(left)
    for i, (chunk, count) in enumerate(zip(free, counts, strict=True)):
        if chunk is not None and count is not None and count > stated and _contradicts(left[i], stated):
            fitting[i] = _cut_chunk(chunk, stated)
    return known, fitting


def _count_by_most(known: LocatedRowGroup, left: Chunks, free: Chunks) -> Counted:
    """A row group with the rows of most of its whole chunks; without these chunks where they have no majority."""
    whole, stated = _whole_counts(known, free), known.num_rows
    counts = Counter([*whole.values(), *([] if stated is None else [stated])])
    ((num_rows, votes),) = counts.most_common(1)
    if 2 * votes > counts.total():
        return replace(known, num_rows=num_rows), list(left)
    lost = whole if stated is None else ()
    return known, [chunk and without_pages(chunk, _CONTESTED) if i in lost else chunk for i, chunk in enumerate(left)]


def _whole_counts(known: LocatedRowGroup, free: Chunks) -> dict[int, int]:
    """The rows of the chunks of which all pages are there and decode, by the positions of these chunks."""
    return {
        i: sum(fate.num_rows or 0 for fate in chunk.pages)
        for i, (located, chunk) in enumerate(zip(known.chunks, free, strict=True))
        if located is not None and located.pages is not None and located.pages.complete
        if chunk is not None and all(fate.page is not None for fate in chunk.pages)
    }


def find_uncounted(row_groups: Sequence[LocatedRowGroup], found: Mapping[int, LocatedRowGroup]) -> Iterator[LostRegion]:
    """The row groups whose stated number of rows cannot be right, while no other is known."""
    for known in row_groups:
        if known.num_rows is not None and found.get(known.ordinal, known).num_rows is None:
            reason = f"{known.num_rows:,} rows are stated, more than its bytes can hold"
            yield LostRegion(known.start, known.end, None, Damage.CORRUPT, reason, Where(row_group=known.ordinal))


def _is_too_many(stated: int, left: Chunks) -> bool:
    """Whether neither the pages of any chunk nor the bytes of its lost pages can have held as many rows."""
    return stated > max((_max_rows(chunk) for chunk in left if chunk is not None), default=0) and stated > _LEAST


def _max_rows(chunk: SalvagedChunk) -> float:
    held = sum(fate.num_rows or 0 for fate in chunk.pages if fate.page is not None)
    lost = [fate for fate in chunk.pages if fate.page is None and not fate.is_dictionary]
    if not lost:
        return held
    return held + max(sum(min(_stated_rows(fate), _ROWS_PER_BYTE * (fate.end - fate.offset)) for fate in lost), _LEAST)


def _stated_rows(fate: PageFate) -> float:
    return math.inf if fate.num_rows is None else fate.num_rows


def _contradicts(chunk: SalvagedChunk | None, stated: int) -> bool:
    """Whether the pages of a chunk have another number of rows, and were all lost for that."""
    if chunk is None or chunk.runs:
        return False
    counts = [fate.num_rows for fate in chunk.pages if not fate.is_dictionary]
    return None not in counts and sum(count or 0 for count in counts) != stated


def _proven_rows(chunk: SalvagedChunk) -> int | None:
    """The rows of a chunk whose page headers agree with the footer, or with the bodies of the pages."""
    pages = [fate.page for fate in chunk.pages if fate.page is not None and fate.repair is None]
    if ChunkSums.of(chunk.chunk.metadata) is not None or len(pages) < len(chunk.pages):
        return None  # what a record of ours vouches for is not what is wrong
    if sum(page.num_values for page in pages) != chunk.chunk.metadata.num_values:
        leaf, metadata = chunk.chunk.leaf, chunk.chunk.metadata
        try:
            for page in pages:
                check_exact(page, leaf, metadata.codec, metadata.encodings, chunk.chunk.quirks)
        except (FormatError, UnsupportedError):
            return None
    return chunk.num_rows


def _cut_chunk(chunk: SalvagedChunk, num_rows: int) -> SalvagedChunk:
    """A chunk without the rows behind the last row of its row group."""
    leaf = chunk.chunk.leaf
    runs = []
    for run in chunk.runs:
        end = min(run.data.num_rows, num_rows - (run.first_row or 0))
        if end > 0:
            runs.append(RowRun(run.first_row, slice_rows(leaf, run.data, 0, end)))
    fates = [fate if fate.is_dictionary else _cut_page(fate, num_rows) for fate in chunk.pages]
    return SalvagedChunk(chunk.chunk, tuple(fates), tuple(runs), is_cut=True)


def _cut_page(fate: PageFate, num_rows: int) -> PageFate:
    first = fate.first_row or 0
    if first >= num_rows:
        return replace(fate.lost(_BEHIND), first_row=num_rows, num_rows=0)
    return replace(fate, num_rows=min(fate.num_rows or 0, num_rows - first))
