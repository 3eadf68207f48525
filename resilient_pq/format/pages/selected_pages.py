"""Some pages of a column chunk instead of all: which of them hold the rows that are wanted. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import compress, pairwise

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format.file_metadata import OffsetIndex
from resilient_pq.format.indexes.row_ranges import Rows, rows_of
from resilient_pq.format.pages.page_sums import PageSums
from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PageRead:
    """A data page to fetch and decode."""

    ordinal: int  # Its number in the chunk; the dictionary page counts
    bytes: ByteRange  # Its header and body
    rows: range  # Its rows, in the row group


@dataclass(frozen=True, slots=True)
class SelectedPages:
    """The pages to read of a chunk."""

    dictionary: ByteRange | None  # The bytes of the dictionary page; None without one
    pages: tuple[PageRead, ...]  # The data pages, in order, one at least
    num_pages: int  # How many data pages the chunk has
    sums: PageSums | None = None  # Of all its pages; None where the index has none

    @property
    def ranges(self) -> tuple[ByteRange, ...]:
        """The bytes to fetch; pages that touch each other are one range."""
        found: list[ByteRange] = [] if self.dictionary is None else [self.dictionary]
        for page in self.pages:
            if found and found[-1].end == page.bytes.start:
                found[-1] = ByteRange(found[-1].start, page.bytes.end)
            else:
                found.append(page.bytes)
        return tuple(found)

    @property
    def num_bytes(self) -> int:
        """How many bytes these are."""
        return sum(each.size for each in self.ranges)

    @property
    def covered(self) -> Rows:
        """The rows that the pages hold."""
        return rows_of(page.rows for page in self.pages)


def page_rows(index: OffsetIndex, num_rows: int) -> list[range]:
    """The rows of each page, some of them perhaps none."""
    starts = [page.first_row_index for page in index.page_locations]
    return [range(*pair) for pair in pairwise([*starts, num_rows])]


def select_pages(
    chunk: ByteRange,
    num_rows: int,
    index: OffsetIndex,
    rows: Rows,
    *,
    with_following: bool = False,
    sums: PageSums | None = None,
) -> SelectedPages | None:
    """The pages that hold some rows."""
    places, ends = index.page_locations, _page_ends(chunk, index)
    if not ends:
        return None
    start = places[0].offset
    dictionary = None if start == chunk.start else ByteRange(chunk.start, start)
    first = 0 if dictionary is None else 1
    if sums is not None and len(sums) != first + len(places):
        return None
    rows_held = page_rows(index, num_rows)
    is_wanted = _pages_holding(rows_held, rows)
    if with_following:
        is_wanted = [any(pair) for pair in zip(is_wanted, [False, *is_wanted], strict=False)]
    chosen = tuple(
        PageRead(first + at, ByteRange(places[at].offset, ends[at]), rows_held[at])
        for at in compress(range(len(places)), is_wanted)
    )
    return SelectedPages(dictionary, chosen, len(places), sums) if chosen else None


def _page_ends(chunk: ByteRange, index: OffsetIndex) -> list[int]:
    """Where each data page ends; nothing where the index leaves out bytes between them, or behind the last."""
    places = index.page_locations
    ends = [place.offset + place.compressed_page_size for place in places]
    return ends if ends == [*(place.offset for place in places[1:]), chunk.end] else []


def _pages_holding(rows_held: Sequence[range], wanted: Rows) -> list[bool]:
    """For each page whether it holds any of the rows wanted: there may be many of both."""
    stops = [each.stop for each in wanted]
    found = []
    for held in rows_held:
        at = bisect_right(stops, held.start)
        found.append(bool(held) and at < len(wanted) and wanted[at].start < held.stop)
    return found
