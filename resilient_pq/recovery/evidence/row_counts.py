"""How many rows a row group has where its pages contradict what is said of it. Pure.

A footer of others has no checksum: a row group may claim billions of rows, and whoever makes room for them has none
left. What the pages hold is at hand, and their bytes bound what those may have held that are lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from resilient_pq.damage.chunk_salvage import PageFate, RowRun, SalvagedChunk
from resilient_pq.damage.exact_page import check_exact
from resilient_pq.damage.lost_region import Damage, LostRegion
from resilient_pq.errors import FormatError, UnsupportedError, Where
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.levels import slice_rows
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup

#: Rows that a byte of lost pages may have held: bits that compress to an eighth.
_ROWS_PER_BYTE: Final = 64
#: So many rows may be lost with any bytes: pages of runs have few.
_LEAST: Final = 1 << 20
_BEHIND: Final = "it holds rows behind the last of its row group"

Chunks = Sequence[SalvagedChunk | None]


def is_doubted(known: LocatedRowGroup, left: Chunks) -> bool:
    """Whether the pages of a row group speak against the number of rows that is stated for it."""
    stated = known.num_rows
    if stated is None:
        return False
    return _is_too_many(stated, left) or any(_contradicts(chunk, stated) for chunk in left)


def borne_out(known: LocatedRowGroup, left: Chunks, free: Chunks) -> tuple[LocatedRowGroup, list[SalvagedChunk | None]]:
    """A row group with the rows that its pages bear out, and what is left of it then.

    Where all chunks hold the same number of rows, that is what it has. Where only some hold more than is stated, the
    rows behind the last one are none of it. A number that the bytes cannot hold is no number.

    Args:
        known: What is stated of it; its pages speak against that.
        left: What is left of its chunks if it has as many rows as stated.
        free: What is left of them if nothing is stated.
    """
    stated = known.num_rows
    assert stated is not None
    counts = [None if chunk is None else _proven(chunk) for chunk in free]
    told = {count for chunk, count in zip(free, counts, strict=True) if chunk is not None}
    agreed = told.pop() if len(told) == 1 else None
    if agreed is not None:
        return replace(known, num_rows=agreed), list(free)
    if _is_too_many(stated, left):
        return replace(known, num_rows=None), list(free)
    fitting = list(left)
    for i, (chunk, count) in enumerate(zip(free, counts, strict=True)):
        if chunk is not None and count is not None and count > stated and _contradicts(left[i], stated):
            fitting[i] = _cut(chunk, stated)
    return known, fitting


def uncounted(row_groups: Sequence[LocatedRowGroup], found: Mapping[int, LocatedRowGroup]) -> Iterator[LostRegion]:
    """The row groups of which nobody knows how many rows they had, though a number is stated.

    Args:
        row_groups: As they are stated.
        found: By their ordinals, with the rows that their pages bear out; the others have those that are stated.
    """
    for known in row_groups:
        if known.num_rows is not None and found.get(known.ordinal, known).num_rows is None:
            reason = f"{known.num_rows:,} rows are stated, more than its bytes can hold"
            yield LostRegion(known.start, known.end, None, Damage.CORRUPT, reason, Where(row_group=known.ordinal))


def _is_too_many(stated: int, left: Chunks) -> bool:
    """Whether no chunk can have held as many rows, by the pages that it has, and the bytes of those that are lost."""
    return stated > max((_most(chunk) for chunk in left if chunk is not None), default=0) and stated > _LEAST


def _most(chunk: SalvagedChunk) -> float:
    held = sum(fate.num_rows or 0 for fate in chunk.pages if fate.page is not None)
    lost = [fate for fate in chunk.pages if fate.page is None and not fate.is_dictionary]
    if not lost:
        return held
    return held + max(sum(min(_told(fate), _ROWS_PER_BYTE * (fate.end - fate.offset)) for fate in lost), _LEAST)


def _told(fate: PageFate) -> float:
    return math.inf if fate.num_rows is None else fate.num_rows


def _contradicts(chunk: SalvagedChunk | None, stated: int) -> bool:
    """Whether the pages of a chunk tell of another number of rows, and all were lost for that."""
    if chunk is None or chunk.runs:
        return False
    counts = [fate.num_rows for fate in chunk.pages if not fate.is_dictionary]
    return None not in counts and sum(count or 0 for count in counts) != stated


def _proven(chunk: SalvagedChunk) -> int | None:
    """The rows of a chunk whose headers are believed: the footer, or their bodies, have as many values as they say."""
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


def _cut(chunk: SalvagedChunk, num_rows: int) -> SalvagedChunk:
    """A chunk without the rows behind those of its row group."""
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
