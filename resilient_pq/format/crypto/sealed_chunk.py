"""A column chunk that is encrypted: its page headers, the bodies of its pages and its bloom filter as modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from resilient_pq.checksum import combine, crc32, signed, unsigned
from resilient_pq.format import compact_protocol
from resilient_pq.format.crypto.modules import KeyCipher, ModulePlace, ModuleType, RandomBytes
from resilient_pq.format.file_metadata import OffsetIndex, PageHeader, PageLocation, PageType
from resilient_pq.format.indexes.split_block_filter import header_size
from resilient_pq.format.pages.chunk_encoder import EncodedChunk
from resilient_pq.format.pages.page import read_header
from resilient_pq.lazy_dataclass import dataclass


class EncryptedChunk(EncodedChunk):
    """A chunk whose pages and bloom filter are sealed; its statistics and indexes are not."""


@dataclass(frozen=True, slots=True)
class ChunkSealer:
    """Seals the modules of one column chunk, whose ordinals are in the AAD of each."""

    cipher: KeyCipher
    file_aad: bytes | None
    random_bytes: RandomBytes
    row_group: int
    column: int

    def sealed(self, content: Any, kind: ModuleType, page: int | None = None) -> bytearray:
        """The module of some content; `page` is the number of a data page in its chunk."""
        aad = ModulePlace(kind, self.row_group, self.column, page).aad(self.file_aad)
        return self.cipher.seal(content, kind, aad, self.random_bytes)

    def chunk(self, chunk: EncodedChunk) -> EncryptedChunk:
        """The chunk with its pages and its bloom filter sealed."""
        buffers: list[bytearray] = []
        places: dict[int, PageLocation] = {}  # of each page, by where it was
        dictionary_page = dictionary_body = None
        size = crc = num_data_pages = 0
        for at, header, content in _pages(chunk):
            page = None if header.type == PageType.DICTIONARY_PAGE else num_data_pages
            stored, body = self._page(header, content, page)
            places[at] = PageLocation(size, len(stored) + len(body), 0)
            if page is None:
                dictionary_page, dictionary_body = places[at], memoryview(body)
            else:
                num_data_pages += 1
            buffers += [stored, body]
            page_crc = combine(crc32(stored), unsigned(header.crc or 0), len(body))
            crc = combine(crc, page_crc, len(stored) + len(body))
            size += len(stored) + len(body)
        headers = buffers[::2]
        first = places.get(chunk.metadata.data_page_offset)
        metadata = replace(
            chunk.metadata,
            total_compressed_size=size,
            total_uncompressed_size=chunk.uncompressed_size + sum(map(len, headers)) - len(chunk.headers),
            data_page_offset=0 if first is None else first.offset,
            dictionary_page_offset=None if dictionary_page is None else dictionary_page.offset,
        )
        return EncryptedChunk(
            buffers=list(buffers),
            size=size,
            metadata=metadata,
            offset_index=_moved(chunk.offset_index, places),
            column_index=chunk.column_index,
            headers=b"".join(headers),
            header_crcs=[signed(crc32(header)) for header in headers],
            crc=crc,
            dictionary_page=dictionary_page,
            dictionary_body=dictionary_body,
            bloom_filter=None if chunk.bloom_filter is None else self._bloom_filter(chunk.bloom_filter),
        )

    def _page(self, header: PageHeader, content: Any, page: int | None) -> tuple[bytearray, bytearray]:
        """The modules of a page: its header, which has the size and the CRC32 of the other, and its body."""
        header_type, body_type = ModuleType.DATA_PAGE_HEADER, ModuleType.DATA_PAGE
        if page is None:
            header_type, body_type = ModuleType.DICTIONARY_PAGE_HEADER, ModuleType.DICTIONARY_PAGE
        body = self.sealed(content, body_type, page)
        header.compressed_page_size, header.crc = len(body), signed(crc32(body))
        return self.sealed(compact_protocol.encode(header), header_type, page), body

    def _bloom_filter(self, stored: bytes) -> bytes:
        """A bloom filter as it stands in a file: its header and its bits, each a module."""
        start, _ = header_size(stored)
        header = self.sealed(stored[:start], ModuleType.BLOOM_FILTER_HEADER)
        return bytes(header + self.sealed(memoryview(stored)[start:], ModuleType.BLOOM_FILTER_BITSET))


def _pages(chunk: EncodedChunk) -> Iterator[tuple[int, PageHeader, Any]]:
    """Where each page of a chunk begins, its header, and its body in one piece."""
    pieces, headers = _Pieces(chunk.buffers), memoryview(chunk.headers)
    at = page_at = 0
    while at < len(headers):
        header, end = read_header(headers, at)
        pieces.take(end - at)
        yield page_at, header, pieces.take(size := header.compressed_page_size)
        page_at += end - at + size
        at = end


class _Pieces:
    """The bytes of buffers that follow one another, taken from the front."""

    def __init__(self, buffers: Sequence[Any]) -> None:
        self._buffers = iter(buffers)
        self._rest = memoryview(b"")

    def take(self, size: int) -> Any:
        """The next bytes, in one piece."""
        found: list[memoryview] = []
        while size > len(self._rest):
            found.append(self._rest)
            size -= len(self._rest)
            self._rest = memoryview(next(self._buffers))
        found.append(self._rest[:size])
        self._rest = self._rest[size:]
        found = [piece for piece in found if len(piece)]
        return found[0] if len(found) == 1 else b"".join(found)


def _moved(index: OffsetIndex | None, places: dict[int, PageLocation]) -> OffsetIndex | None:
    """The index with the new places of pages; None where it names others."""
    if index is None or any(page.offset not in places for page in index.page_locations):
        return None
    locations = [replace(places[page.offset], first_row_index=page.first_row_index) for page in index.page_locations]
    return OffsetIndex(locations, index.unencoded_byte_array_data_bytes)
