"""Regions of an encrypted file, and their bytes in the clear, which lie at the same offsets. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from resilient_pq.errors import FormatError, Where, located
from resilient_pq.format import compact_protocol
from resilient_pq.format.crypto.modules import GCM_OVERHEAD, ModuleType, WrongTagError, module_size
from resilient_pq.format.crypto.page_view import ChunkCipher, SealedPage, pages_in
from resilient_pq.format.crypto.sealed_footer import OpenedChunk, wrong_tag
from resilient_pq.format.file_metadata import OffsetIndex
from resilient_pq.format.footer import SEALED_CRC_KEY, ChunkSums, key_values


@dataclass(slots=True)
class PlainRegion:
    """Bytes that differ from those that are stored.

    Attributes:
        start: Absolute offset of the first.
        end: Absolute offset just after the last.
    """

    start: int
    end: int

    def read(self, data: memoryview, base: int, out: memoryview, start: int) -> None:
        """Put what lies in `out`, which begins at `start`, into it; `data` are the stored bytes from `base` on."""
        raise NotImplementedError


@dataclass(slots=True)
class Patch(PlainRegion):
    """Bytes that are known."""

    content: bytes | memoryview

    def read(self, data: memoryview, base: int, out: memoryview, start: int) -> None:
        """The part that is asked for."""
        _put(self.content, self.start, out, start)


@dataclass(slots=True)
class SealedIndex(PlainRegion):
    """A page index, or a bloom filter, which is two modules."""

    opener: ChunkCipher
    types: tuple[ModuleType, ...]

    def read(self, data: memoryview, base: int, out: memoryview, start: int) -> None:
        """The contents of its modules, one behind the other, and zero bytes behind them."""
        at, end, contents = self.start - base, self.end - base, []
        where = Where(row_group=self.opener.row_group, offset=self.start)
        with located(where):
            for module_type in self.types:
                size = module_size(data, at, end, GCM_OVERHEAD)
                try:
                    contents.append(self.opener.open_index(data[at : at + size], module_type))
                except WrongTagError:
                    raise wrong_tag(self.opener.cipher, "an index", None, where=where) from None
                at += size
        content = b"".join(contents)
        _put(content + bytes(self.end - self.start - len(content)), self.start, out, start)


@dataclass(slots=True)
class SealedChunk(PlainRegion):
    """A column chunk.

    Attributes:
        opener: What opens its pages.
        column: Its dotted path, for errors.
        has_dictionary: Whether its first page is a dictionary.
        offset_index: Where its offset index lies, as far as it has one.
        crc: CRC32 of its bytes as they are stored; None where it is not known.
        pages: Its pages; None where they have not been looked for.
    """

    opener: ChunkCipher
    column: str
    has_dictionary: bool
    offset_index: tuple[int, int] | None = None
    crc: int | None = None
    pages: list[SealedPage] | None = field(default=None, repr=False)

    def read(self, data: memoryview, base: int, out: memoryview, start: int) -> None:
        """Its pages that are asked for; `data` has the whole of these."""
        if self.pages is None:
            chunk = data[self.start - base : self.end - base]
            self.pages = list(pages_in(chunk, self.start, has_dictionary=self.has_dictionary))
        end = start + len(out)
        for page in self.pages:
            if page.end <= start or page.start >= end:
                continue
            where = Where(row_group=self.opener.row_group, column=self.column, page=page.ordinal, offset=page.start)
            with located(where):
                inside = start <= page.start and page.end <= end
                room = out[page.start - start : page.end - start] if inside else memoryview(bytearray(page.size))
                try:
                    self.opener.open_page(page, data[page.start - base : page.end - base], room)
                except WrongTagError:
                    raise wrong_tag(self.opener.cipher, "a page", None, where=where) from None
            if not inside:
                _put(room, page.start, out, start)

    def pages_by_index(self, index: memoryview) -> bool:
        """Take the places of pages from the stored offset index; whether they fit the chunk."""
        content = self.opener.open_index(index, ModuleType.OFFSET_INDEX)
        locations = compact_protocol.decode(OffsetIndex, content)[0].page_locations
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


def _put(content: bytes | bytearray | memoryview, at: int, out: memoryview, start: int) -> None:
    """Copy the part of `content`, which lies at `at`, that lies in `out`, which begins at `start`."""
    first, last = max(at, start), min(at + len(content), start + len(out))
    if first < last:
        out[first - start : last - start] = memoryview(content)[first - at : last - at]


def regions_of(opened: OpenedChunk) -> Iterator[PlainRegion]:
    """Where the pages, the indexes and the bloom filter of a chunk lie."""
    chunk, opener = opened.chunk, opened.opener
    metadata = chunk.meta_data
    if metadata is None:
        raise FormatError("an encrypted column chunk has no metadata")
    index = None
    if chunk.offset_index_offset is not None and chunk.offset_index_length is not None:
        index = chunk.offset_index_offset, chunk.offset_index_length + GCM_OVERHEAD
        yield SealedIndex(index[0], sum(index), opener, (ModuleType.OFFSET_INDEX,))
    if chunk.column_index_offset is not None and chunk.column_index_length is not None:
        start, size = chunk.column_index_offset, chunk.column_index_length + GCM_OVERHEAD
        yield SealedIndex(start, start + size, opener, (ModuleType.COLUMN_INDEX,))
    if opened.bloom_filter is not None:
        start, length = opened.bloom_filter
        types = ModuleType.BLOOM_FILTER_HEADER, ModuleType.BLOOM_FILTER_BITSET
        if length is None:
            raise FormatError("the bloom filter of an encrypted column chunk has no length")
        yield SealedIndex(start, start + length, opener, types)
    if metadata.num_values:
        dictionary = metadata.dictionary_page_offset or 0
        start = min(dictionary or metadata.data_page_offset, metadata.data_page_offset)
        path = ".".join(metadata.path_in_schema or ())
        sums = key_values(metadata.key_value_metadata).get(SEALED_CRC_KEY)
        known = None if sums is None else ChunkSums.parse(sums).chunk
        yield SealedChunk(start, start + metadata.total_compressed_size, opener, path, dictionary > 0, index, known)
