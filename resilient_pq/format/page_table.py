"""The pages of a column chunk as a table of what their headers say: without an object for each, as there are many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.checksum import crc32, unsigned
from resilient_pq.errors import EncodingError, ThriftError, Where
from resilient_pq.format import kernels
from resilient_pq.format.kernels.tables import PageField
from resilient_pq.format.metadata import DataPageHeader, DataPageHeaderV2, PageType
from resilient_pq.format.page import Page, check_crc, compare_crc, pages_of, read_header

DATA_PAGES: Final = (int(PageType.DATA_PAGE), int(PageType.DATA_PAGE_V2))


@dataclass(frozen=True, slots=True)
class PageTable:
    """The pages of a chunk, or some of them, in order.

    Attributes:
        rows: What the headers say, in the order of `PageField`; HEADER and BODY count from the start of the chunk, and
            mean nothing where `pages` are given. Lists of numbers are cheaper to look at one by one than an array.
        chunk: The bytes that hold the pages; None where each has memory of its own.
        base: Absolute offset of the chunk.
        pages: The pages as objects; None where they can be made of `chunk`.
    """

    rows: list[list[int]]
    chunk: memoryview | None
    base: int
    pages: Sequence[Page] | None

    @classmethod
    def of(cls, pages: Sequence[Page]) -> PageTable:
        """A table of pages that are objects already."""
        return cls([_row(page) for page in pages], None, 0, pages)

    @classmethod
    def read(cls, chunk: memoryview, base: int, num_values: int | None = None) -> PageTable:
        """The table of a chunk's pages; arguments and errors are those of `pages_of`."""
        try:
            headers = kernels.page_headers(chunk, -1 if num_values is None else num_values)
        except (ThriftError, EncodingError):
            # Says which page it is, and may understand what the kernel did not.
            return cls.of(list(pages_of(chunk, base, num_values)))
        return cls(headers.tolist(), chunk, base, None)

    def page(self, row: int) -> Page:
        """One of the pages as an object."""
        if self.pages is not None:
            return self.pages[row]
        assert self.chunk is not None
        at = self.rows[row][PageField.HEADER]
        header, body = read_header(self.chunk, at)
        end = body + header.compressed_page_size
        return Page(row, self.base + at, header, self.chunk[at:body], self.chunk[body:end])

    def ordinal(self, row: int) -> int:
        """The number of a page in its chunk."""
        return row if self.pages is None else self.pages[row].ordinal

    def offset(self, row: int) -> int:
        """The absolute offset of a page's header."""
        return self.base + self.rows[row][PageField.HEADER] if self.pages is None else self.pages[row].offset

    def body(self, row: int) -> memoryview:
        """The bytes of a page behind its header."""
        if self.pages is not None:
            return self.pages[row].body
        assert self.chunk is not None
        start = self.rows[row][PageField.BODY]
        return self.chunk[start : start + self.rows[row][PageField.COMPRESSED_SIZE]]

    @property
    def num_entries(self) -> int:
        """Entries of all data pages, nulls included."""
        return sum([row[PageField.NUM_VALUES] for row in self.rows if row[PageField.TYPE] in DATA_PAGES])


def _row(page: Page) -> list[int]:
    header = page.header
    crc = -1 if header.crc is None else unsigned(header.crc)
    row = [0, 0, len(page.body), header.uncompressed_page_size, header.type, crc, page.num_values]
    detail = page.data_header
    if isinstance(detail, DataPageHeader):
        levels = detail.definition_level_encoding, detail.repetition_level_encoding
        return [*row, detail.encoding, *levels, -1, -1, 1]
    if isinstance(detail, DataPageHeaderV2):
        sizes = detail.definition_levels_byte_length, detail.repetition_levels_byte_length
        return [*row, detail.encoding, -1, -1, *sizes, int(detail.is_compressed is not False)]
    if header.dictionary_page_header is not None and header.type == PageType.DICTIONARY_PAGE:
        row[PageField.NUM_VALUES] = header.dictionary_page_header.num_values
        return [*row, header.dictionary_page_header.encoding, -1, -1, -1, -1, 1]
    return [*row, -1, -1, -1, -1, -1, 1]


def stored_crcs(chunk: memoryview, base: int, num_values: int | None) -> NDArray[np.int64]:
    """The CRC32 that each page of a chunk has in its header, -1 where it has none; arguments are those of `pages_of`.

    Raises:
        FormatError: The pages cannot be told apart.
    """
    try:
        return kernels.page_headers(chunk, -1 if num_values is None else num_values)[:, PageField.CRC]
    except (ThriftError, EncodingError):
        return np.array([_row(page)[PageField.CRC] for page in pages_of(chunk, base, num_values)], np.int64)


def check_crcs(chunk: memoryview, base: int, num_values: int | None, *, zero_is_none: bool = False) -> PageTable:
    """The pages of a chunk, once the CRC32 of every page that has one was compared.

    Args:
        chunk: All bytes of the chunk.
        base: Absolute offset of its first byte.
        num_values: Entries after which the chunk is at its end; None reads all bytes.
        zero_is_none: Whether the writer leaves 0 there without computing anything.

    Raises:
        ChecksumError: One does not hold.
        FormatError: The pages cannot be told apart; the checksums of those before hold.
    """
    try:
        headers = kernels.page_headers(chunk, -1 if num_values is None else num_values)
    except (ThriftError, EncodingError):
        pages = []
        for page in pages_of(chunk, base, num_values):
            check_crc(page, zero_is_none=zero_is_none)
            pages.append(page)
        return PageTable.of(pages)
    table = PageTable(headers.tolist(), chunk, base, None)
    least = 1 if zero_is_none else 0
    for ordinal, (_, body, size, _, _, stored, *_) in enumerate(table.rows):
        if stored >= least and crc32(chunk[body : body + size]) != stored:
            compare_crc(stored, table.body(ordinal), Where(page=ordinal, offset=table.offset(ordinal)))
    return table
