"""The page headers of a column chunk as a table of numbers, as there are too many for an object each.

Runs of data pages can be decoded together: their bytes in one piece, decompressed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.checksum import crc32, unsigned
from resilient_pq.errors import EncodingError, ThriftError, Where
from resilient_pq.format import kernels
from resilient_pq.format.compression import codecs
from resilient_pq.format.file_metadata import (
    CompressionCodec,
    DataPageHeader,
    DataPageHeaderV2,
    Encoding,
    PageType,
    Type,
)
from resilient_pq.format.kernels.page_columns import PageField
from resilient_pq.format.pages.decoded_values import FIXED_RUN_ENCODINGS, RUN_ENCODINGS
from resilient_pq.format.pages.page import Page, check_crc, compare_crc, pages_of, read_header
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.lazy_dataclass import dataclass

#: Decompressed bytes of a run, unless a single page has more: few enough to stay in a processor's cache.
_RUN_BYTES: Final = 1 << 20
# As plain numbers, which are quicker to compare.
_RUN_ENCODINGS: Final = frozenset(map(int, RUN_ENCODINGS))
_FIXED_RUN_ENCODINGS: Final = frozenset(map(int, FIXED_RUN_ENCODINGS))
_DATA_PAGE, _DATA_PAGE_V2, _RLE = int(PageType.DATA_PAGE), int(PageType.DATA_PAGE_V2), int(Encoding.RLE)
DATA_PAGES: Final = (_DATA_PAGE, _DATA_PAGE_V2)
#: With which the header of each kind of page begins: its type, then the field of its size.
_HEADERS_BEGIN: Final = [bytes([0x15, kind << 1, 0x15]) for kind in PageType]


@dataclass(frozen=True, slots=True)
class PageTable:
    """The pages of a chunk, or some of them, in order."""

    #: What the headers say, in the order of `PageField`; HEADER and BODY count from the start of the chunk, and
    #: mean nothing where `pages` are given. Lists of numbers are cheaper to look at one by one than an array.
    rows: list[list[int]]
    chunk: memoryview | None  # the bytes that hold the pages; None where each has memory of its own
    base: int  # absolute offset of the chunk
    pages: Sequence[Page] | None  # the pages as objects; None where they can be made of `chunk`

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


def check_end(table: PageTable) -> None:
    """Refuse a chunk behind whose last page a further one begins that goes beyond the chunk.

    Some writers leave bytes there. But of a page in which the next chunk begins these lie in the place of others.
    """
    if table.chunk is None or not table.rows:
        return
    rest = table.chunk[table.rows[-1][PageField.BODY] + table.rows[-1][PageField.COMPRESSED_SIZE] :]
    if bytes(rest[:3]) not in _HEADERS_BEGIN:
        return
    try:
        header, body = read_header(rest, 0)
    except ThriftError:
        fits = False
    else:
        fits = body + header.compressed_page_size <= len(rest)
    if not fits:
        where = Where(page=len(table.rows), offset=table.base + len(table.chunk) - len(rest))
        raise EncodingError("a page begins behind the last value, and goes beyond its column chunk", where=where)


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
    """The CRC32 in the header of each page of a chunk, -1 where there is none; arguments are those of `pages_of`."""
    try:
        return kernels.page_headers(chunk, -1 if num_values is None else num_values)[:, PageField.CRC]
    except (ThriftError, EncodingError):
        return np.array([_row(page)[PageField.CRC] for page in pages_of(chunk, base, num_values)], np.int64)


def check_crcs(chunk: memoryview, base: int, num_values: int | None, *, zero_is_none: bool = False) -> PageTable:
    """The pages of a chunk, once the CRC32 of every page that has one was compared; see `pages_of` and `check_crc`."""
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


# --- runs of pages ------------------------------------------------------------------------------------------------


def runs_of(leaf: Leaf, codec: int, table: PageTable) -> Iterator[tuple[range, bool]]:
    """The pages as rows of the table, in pieces, and whether those of a piece can be decoded together."""
    # Without compression, pages that lie in one piece of memory are decoded from there.
    most = sys.maxsize if codec == CompressionCodec.UNCOMPRESSED and table.chunk is not None else _RUN_BYTES
    is_fixed = leaf.node.physical_type is not Type.BYTE_ARRAY
    joins = _Joins(
        _FIXED_RUN_ENCODINGS if is_fixed else _RUN_ENCODINGS,
        leaf.max_definition_level > 0,
        leaf.max_repetition_level > 0,
        codec == CompressionCodec.UNCOMPRESSED,
    )
    start = num_bytes = 0
    encoding: int | None = None  # of the pages from `start` on; None where they cannot be decoded together
    for row, page in enumerate(table.rows):
        wanted = joins.encoding(page)
        size = page[PageField.UNCOMPRESSED_SIZE]
        num_bytes += size
        if row and (wanted is None or wanted != encoding or num_bytes > most):
            yield range(start, row), encoding is not None
            start, num_bytes = row, size
        encoding = wanted
    if table.rows:
        yield range(start, len(table.rows)), encoding is not None


@dataclass(frozen=True, slots=True)
class _Joins:
    """Which pages can be decoded in runs; the others, or what is wrong with them, need a closer look."""

    encodings: frozenset[int]
    has_definition: bool
    has_repetition: bool
    uncompressed: bool

    def encoding(self, page: list[int]) -> int | None:
        """The encoding that a page, a row of `PageField`s, shares with those it may join; None if it may not."""
        _, _, size, uncompressed, kind, _, _, encoding, definition, repetition, *level_sizes, _ = page
        if encoding not in self.encodings or (self.uncompressed and size != uncompressed):
            return None
        if kind == _DATA_PAGE:
            rle = (not self.has_definition or definition == _RLE) and (not self.has_repetition or repetition == _RLE)
            return encoding if rle else None
        joins = kind == _DATA_PAGE_V2 and self._joins_v2(level_sizes, min(size, uncompressed))
        return encoding if joins else None

    def _joins_v2(self, level_sizes: list[int], page_size: int) -> bool:
        """Whether the levels lie within the page, and there are none that the column does not need."""
        definition, repetition = level_sizes
        if definition < 0 or repetition < 0 or definition + repetition > page_size:
            return False
        return (self.has_definition or not definition) and (self.has_repetition or not repetition)


class RunBodies:
    """The bytes of runs of pages, decompressed into room that is used again for the next run."""

    def __init__(self, codec: int, table: PageTable, *, keeps_pages: bool) -> None:
        """Take pages of `table`; with `keeps_pages` no room is used again."""
        self._codec = codec
        self._table = table
        self._keeps_pages = keeps_pages
        self._scratch: NDArray[np.uint8] | None = None

    def open(self, rows: range) -> tuple[memoryview, NDArray[np.int64]]:
        """The pages of a run, decompressed: what holds them, and one row of `PagePart`s for each."""
        # Row by row in Python: most runs of small files have one page, for which a call of NumPy takes longer.
        headers = self._table.rows[rows.start : rows.stop]
        chunk = self._table.chunk if self._codec == CompressionCodec.UNCOMPRESSED else None
        parts, end = [], 0
        for page in headers:
            if chunk is None:
                start, end = end, end + page[PageField.UNCOMPRESSED_SIZE]
            else:
                start, end = page[PageField.BODY], page[PageField.BODY] + page[PageField.COMPRESSED_SIZE]
            levels = page[PageField.REPETITION_BYTES], page[PageField.DEFINITION_BYTES]
            parts.append((start, end, page[PageField.NUM_VALUES], *levels))
        pages = np.array(parts, np.int64)
        if chunk is not None:
            return chunk, pages
        out = self._room(rows, end)
        bodies = [self._table.body(row) for row in rows]
        if self._codec != CompressionCodec.UNCOMPRESSED and all(page[PageField.TYPE] == _DATA_PAGE for page in headers):
            sizes = [page[PageField.UNCOMPRESSED_SIZE] for page in headers]
            codecs.decompress_parts(self._codec, bodies, sizes, out)
            return out.data, pages
        for body, page, (start, end, _, *num_bytes) in zip(bodies, headers, parts, strict=True):
            levels_end = sum(count for count in num_bytes if count > 0)
            self._fill(body, out[start:end], levels_end, bool(page[PageField.IS_COMPRESSED]))
        return out.data, pages

    def _room(self, rows: range, size: int) -> NDArray[np.uint8]:
        if size > _RUN_BYTES and self._codec != CompressionCodec.UNCOMPRESSED:
            # One page: before room is made for what a damaged header announces.
            compressed = self._table.rows[rows.start][PageField.COMPRESSED_SIZE]
            codecs.check_growth(self._codec, compressed, size)
        if self._keeps_pages:
            return memory_pool.empty((size,), np.uint8)
        if self._scratch is None or len(self._scratch) < size:
            # A chunk that needs little room has no use for more.
            self._scratch = memory_pool.empty((size if size < _RUN_BYTES // 4 else max(size, _RUN_BYTES),), np.uint8)
        return self._scratch[:size]

    def _fill(self, body: memoryview, out: NDArray[np.uint8], levels: int, is_compressed: bool) -> None:
        """Fill `out` with a page whose first bytes, its levels, are not compressed, as version 2 has it."""
        if levels:
            out[:levels] = np.frombuffer(body, np.uint8, levels)
            body, out = body[levels:], out[levels:]
        # Old parquet-cpp compressed pages that it marked as not compressed; their size shows it (ARROW-17100).
        if self._codec != CompressionCodec.UNCOMPRESSED and (is_compressed or len(body) != len(out)):
            codecs.decompress_parts(self._codec, [body], [len(out)], out)
        elif len(body) != len(out):
            raise EncodingError(f"an uncompressed page has {len(body)} bytes instead of {len(out)}")
        else:
            out[:] = np.frombuffer(body, np.uint8)
