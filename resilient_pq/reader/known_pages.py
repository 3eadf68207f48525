"""What is known of the pages of a chunk besides what stands in the chunk: copies, indexes, what carving found. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from resilient_pq.errors import FormatError
from resilient_pq.format.metadata import OffsetIndex
from resilient_pq.format.page import read_header
from resilient_pq.format.records import ChunkCopies


@dataclass(frozen=True, slots=True)
class KnownPage:
    """A page, as something outside of it describes it.

    Attributes:
        offset: Absolute offset of its header.
        size: Bytes of header and body together.
        header: Its header's bytes as written, from a copy that a checksum vouches for; None where there is no copy.
        body: Its body as stored, from such a copy; None where there is none.
        first_row: The row of the row group that it begins with; None for a dictionary page, or where it is not known.
    """

    offset: int
    size: int
    header: bytes | None = None
    body: bytes | None = None
    first_row: int | None = None

    @property
    def end(self) -> int:
        """Absolute offset just after the page."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class KnownPages:
    """The pages of a chunk, in order.

    Attributes:
        pages: They do not overlap.
        complete: Whether these are all pages of the chunk; otherwise others may lie between and behind them.
    """

    pages: tuple[KnownPage, ...]
    complete: bool

    @classmethod
    def of_index(cls, index: OffsetIndex) -> KnownPages:
        """The data pages as an OffsetIndex has them; a dictionary page before them is not in it.

        Raises:
            FormatError: They overlap.
        """
        return cls(_in_order(index), complete=False)

    @classmethod
    def of_copies(cls, copies: ChunkCopies, start: int) -> KnownPages:
        """The pages as the record of a row group has them.

        Args:
            copies: What it keeps of the chunk.
            start: Absolute offset of the chunk's first byte.

        Raises:
            FormatError: The copies contradict each other.
        """
        indexed = () if copies.offset_index is None else _in_order(copies.offset_index)
        rows = {page.offset: page.first_row for page in indexed}
        pages: list[KnownPage] = []
        headers, at, offset = memoryview(copies.page_headers), 0, start
        while at < len(headers):
            header, end = read_header(headers, at)
            size = end - at + header.compressed_page_size
            is_dictionary = copies.dictionary_page is not None and copies.dictionary_page.offset == offset
            body = copies.dictionary_copy if is_dictionary else None
            pages.append(KnownPage(offset, size, bytes(headers[at:end]), body, rows.get(offset)))
            at, offset = end, offset + size
        if rows and sum(page.first_row is not None for page in pages) != len(rows):
            raise FormatError("the record of a row group has other pages in its index than headers")
        return cls(tuple(pages), complete=True)


def _in_order(index: OffsetIndex) -> tuple[KnownPage, ...]:
    """The pages of an index, one behind the other.

    Raises:
        FormatError: They are not.
    """
    pages, end, row = [], 0, 0
    for place in index.page_locations:
        if place.offset < end or place.compressed_page_size <= 0 or place.first_row_index < row:
            raise FormatError("the pages of an index overlap or are out of order")
        pages.append(KnownPage(place.offset, place.compressed_page_size, first_row=place.first_row_index))
        end, row = pages[-1].end, place.first_row_index
    return tuple(pages)
