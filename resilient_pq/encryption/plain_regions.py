"""Regions of an encrypted file, and their bytes in the clear, which lie at the same offsets. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Set
from dataclasses import field, replace

import numpy as np

from resilient_pq import memory_pool
from resilient_pq.checksum import crc32
from resilient_pq.errors import AuthenticationError, ChecksumError, FormatError, Where, located
from resilient_pq.format.crypto.modules import GCM_OVERHEAD, ModuleType, WrongTagError, module_size
from resilient_pq.format.crypto.page_view import NO_PAGE, ChunkCipher, SealedPage, pages_in
from resilient_pq.format.crypto.sealed_footer import OpenedChunk, wrong_tag
from resilient_pq.format.footer import SEALED_CRC_KEY, ChunkSums, key_values
from resilient_pq.lazy_dataclass import dataclass


@dataclass(slots=True)
class PlainRegion(ABC):
    """Bytes that differ from those that are stored."""

    start: int  # Absolute offset of the first
    end: int  # Absolute offset just after the last

    @abstractmethod
    def read(self, data: memoryview, base: int, out: memoryview, start: int, *, lenient: bool) -> None:
        """Put what lies in `out`, which begins at `start`, into it; `data` are the stored bytes from `base` on.

        What does not open is an error, or if `lenient`, shown as bytes that are nothing.
        """


@dataclass(slots=True)
class Patch(PlainRegion):
    """Bytes that are known."""

    content: bytes | memoryview

    def read(self, data: memoryview, base: int, out: memoryview, start: int, *, lenient: bool) -> None:
        """The part that is asked for."""
        put_bytes(self.content, self.start, out, start)


@dataclass(slots=True)
class SealedIndex(PlainRegion):
    """A page index, or a bloom filter, which is two modules."""

    opener: ChunkCipher
    types: tuple[ModuleType, ...]
    crc: int | None = None  # CRC32 of its bytes as they are stored; None where it is not known

    def read(self, data: memoryview, base: int, out: memoryview, start: int, *, lenient: bool) -> None:
        """The contents of its modules, one behind the other, and zero bytes behind them."""
        try:
            content = self.contents(data, base)
        except FormatError:
            if not lenient:
                raise
            content = b""
        put_bytes(content + bytes(self.end - self.start - len(content)), self.start, out, start)

    def contents(self, data: memoryview, base: int) -> bytes:
        """The contents of its modules; `data` are the stored bytes from `base` on."""
        at, end, contents = self.start - base, self.end - base, []
        where = Where(row_group=self.opener.row_group, offset=self.start)
        with located(where):
            for module_type in self.types:
                try:
                    size = module_size(data, at, end, GCM_OVERHEAD)
                    contents.append(self.opener.open_index(data[at : at + size], module_type))
                except (WrongTagError, FormatError) as error:
                    _compare("index", self.crc, data[self.start - base : end], where)
                    raise _refused(self.opener, error, "an index", where) from None
                at += size
        return b"".join(contents)


@dataclass(slots=True)
class SealedChunk(PlainRegion):
    """A column chunk."""

    opener: ChunkCipher  # What opens its pages
    column: str  # Its dotted path, for errors
    has_dictionary: bool  # Whether its first page is a dictionary
    offset_index: tuple[int, int] | None = None  # Where its offset index lies, as far as it has one
    crc: int | None = None  # CRC32 of its bytes as they are stored; None where it is not known
    # Its pages; None where they have not been looked for
    pages: list[SealedPage] | None = field(default=None, repr=False)
    with_crc: bool = False  # Whether pages are shown with a CRC32 of what they are in the clear
    # Bytes that are known to be others than those that are stored, by their offsets
    instead: dict[int, memoryview] = field(default_factory=dict, repr=False)

    @property
    def where(self) -> Where:
        """The chunk, for errors."""
        return Where(row_group=self.opener.row_group, column=self.column)

    def is_torn_by(self, start: int, end: int) -> bool:
        """Whether a range has a part of it of which it is not known which pages these are."""
        return self.pages is None and not (start <= self.start and self.end <= end)

    def read(self, data: memoryview, base: int, out: memoryview, start: int, *, lenient: bool) -> None:
        """Its pages that are asked for; `data` has the whole of these."""
        if self.pages is None:
            self.pages = self._pages(data, base, lenient=lenient)
        at, end = max(self.start, start), min(self.end, start + len(out))
        for page in self.pages:
            if page.end <= start or page.start >= end:
                continue
            put_bytes(NO_PAGE * (page.start - at), at, out, start)
            at = page.end
            where = replace(self.where, page=page.ordinal, offset=page.start)
            with located(where):
                inside = start <= page.start and page.end <= end
                room = out[page.start - start : page.end - start] if inside else memoryview(bytearray(page.size))
                stored = self.stored_page(page, data, base)
                try:
                    self.opener.open_page(page, stored, room, with_crc=self.with_crc)
                except (WrongTagError, FormatError) as error:
                    if not lenient:
                        self._compare(data, base)
                        raise _refused(self.opener, error, "a page", where) from None
                    self.opener.show_damaged_page(page, stored, room)
            if not inside:
                put_bytes(room, page.start, out, start)
        put_bytes(NO_PAGE * (end - at), at, out, start)

    def stored_page(self, page: SealedPage, data: memoryview, base: int) -> memoryview:
        """The two modules of a page; what is known better stands in the place of what is stored."""
        stored = data[page.start - base : page.end - base]
        better = [at for at in self.instead if page.start <= at < page.end]
        if better:
            stored = memoryview(bytearray(stored))
            for at in better:
                put_bytes(self.instead[at], at, stored, page.start)
        return stored

    def _pages(self, data: memoryview, base: int, *, lenient: bool) -> list[SealedPage]:
        """The pages of the chunk, of which `data` has all, by the lengths of their modules."""
        pages: list[SealedPage] = []
        chunk = data[self.start - base : self.end - base]
        try:
            for page in pages_in(chunk, self.start, has_dictionary=self.has_dictionary):
                pages.append(page)
        except FormatError as error:
            if not lenient:
                self._compare(data, base)
                raise _refused(self.opener, error, "a page", self.where) from None
        return pages

    def _compare(self, data: memoryview, base: int) -> None:
        """Refuse a chunk whose stored bytes do not have the CRC32 that is known, where `data` has all of them."""
        stored = data[max(self.start - base, 0) : self.end - base]
        if len(stored) == self.end - self.start:
            _compare("chunk", self.crc, stored, self.where)

    def pages_by_index(self, index: memoryview) -> bool:
        """Take the places of pages from the stored offset index; whether they fit the chunk."""
        locations = self.opener.open_offset_index(index).page_locations
        pages = [SealedPage(one.offset, one.compressed_page_size, i) for i, one in enumerate(locations)]
        first = pages[0].start if pages else self.end
        if self.has_dictionary and first > self.start:
            pages.insert(0, SealedPage(self.start, first - self.start, None))
        at = self.start
        for page in pages:
            if page.start != at or page.size <= 0:
                return False
            at = page.end
        if at != self.end:
            return False
        self.pages = pages
        return True


def _compare(what: str, crc: int | None, stored: memoryview, where: Where) -> None:
    """Refuse stored bytes that do not have the CRC32 that is known."""
    if crc is not None and (computed := crc32(stored)) != crc:
        raise ChecksumError(f"{what} CRC32 does not match", stored=crc, computed=computed, where=where)


def _refused(opener: ChunkCipher, error: Exception, what: str, where: Where) -> Exception:
    """The error of bytes that do not open, or are no modules."""
    if isinstance(error, WrongTagError):
        return wrong_tag(opener.cipher, what, None, where=where)
    if isinstance(error, ChecksumError) or not opener.cipher.num_opened:
        return error
    return AuthenticationError(str(error.args[0]), where=where)


def put_bytes(content: bytes | bytearray | memoryview, at: int, out: memoryview, start: int) -> None:
    """Copy the part of `content`, which lies at `at`, that lies in `out`, which begins at `start`."""
    first, last = max(at, start), min(at + len(content), start + len(out))
    if first < last:
        out[first - start : last - start] = memoryview(content)[first - at : last - at]


def opened(
    data: memoryview, base: int, touched: Sequence[PlainRegion], start: int, end: int, lenient: Set[int] = frozenset()
) -> memoryview:
    """The bytes from `start` to `end` in the clear; regions at `lenient` offsets may be shown as damaged."""
    out, at = memory_pool.empty((end - start,), np.uint8).data, start
    # An index between pages that are wanted is not: zero bytes are none, which is told where one is wanted.
    has_pages = any(isinstance(region, SealedChunk) for region in touched)
    for region in touched:
        if region.start > at:
            out[at - start : region.start - start] = data[at - base : region.start - base]
        is_between = has_pages and isinstance(region, SealedIndex)
        region.read(data, base, out, start, lenient=is_between or region.start in lenient)
        at = max(at, region.end)
    if at < end:
        out[at - start :] = data[at - base : end - base]
    return out.toreadonly()


def regions_of(opened: OpenedChunk) -> Iterator[PlainRegion]:
    """Where the pages, the indexes and the bloom filter of a chunk lie."""
    chunk, opener = opened.chunk, opened.opener
    metadata = chunk.meta_data
    if metadata is None:
        raise FormatError("an encrypted column chunk has no metadata")
    index = None
    stored = key_values(metadata.key_value_metadata).get(SEALED_CRC_KEY)
    sums = ChunkSums() if stored is None else ChunkSums.parse(stored)
    if chunk.offset_index_offset is not None and chunk.offset_index_length is not None:
        index = chunk.offset_index_offset, chunk.offset_index_length + GCM_OVERHEAD
        yield SealedIndex(index[0], sum(index), opener, (ModuleType.OFFSET_INDEX,), sums.offset_index)
    if chunk.column_index_offset is not None and chunk.column_index_length is not None:
        start, size = chunk.column_index_offset, chunk.column_index_length + GCM_OVERHEAD
        yield SealedIndex(start, start + size, opener, (ModuleType.COLUMN_INDEX,), sums.column_index)
    if opened.bloom_filter is not None:
        start, length = opened.bloom_filter
        types = ModuleType.BLOOM_FILTER_HEADER, ModuleType.BLOOM_FILTER_BITSET
        if length is None:
            raise FormatError("the bloom filter of an encrypted column chunk has no length")
        yield SealedIndex(start, start + length, opener, types, sums.bloom)
    if metadata.num_values:
        dictionary = metadata.dictionary_page_offset or 0
        start = min(dictionary or metadata.data_page_offset, metadata.data_page_offset)
        path = ".".join(metadata.path_in_schema or ())
        end = start + metadata.total_compressed_size
        yield SealedChunk(start, end, opener, path, dictionary > 0, index, sums.chunk)
