"""A column chunk taken over as stored: its bytes and metadata become an `EncodedChunk` to be laid out again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from resilient_pq.checksum import crc32, signed
from resilient_pq.format import compact_protocol
from resilient_pq.format.compression.codecs import is_written
from resilient_pq.format.file_metadata import (
    ColumnIndex,
    ColumnMetaData,
    CompressionCodec,
    Encoding,
    OffsetIndex,
    PageLocation,
    PageType,
)
from resilient_pq.format.pages.chunk_encoder import EncodedChunk
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page import Page, check_crc, pages_of
from resilient_pq.format.pages.page_sums import sums_of
from resilient_pq.lazy_dataclass import dataclass

_ENCODINGS = frozenset(Encoding)  # Those that there are: others come of a damaged footer
_DATA_PAGES = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


@dataclass(frozen=True, slots=True)
class Derived:
    """The indexes and the bloom filter of a chunk, as far as their checksums hold."""

    column_index: ColumnIndex | None = None
    offset_index: OffsetIndex | None = None
    bloom_filter: bytes | None = None


def copied_chunk(
    chunk: ChunkRead, data: memoryview, derived: Derived, *, keep_empty_pages: bool = True
) -> EncodedChunk:
    """The chunk as it is, its offsets counted from its own first byte, with an OffsetIndex where pages tell rows."""
    # pyarrow stops at data pages without values, at the first of a chunk and at two in a row.
    pages = list(pages_of(data, 0, chunk.num_values_to_read))
    metadata = _of_pages(chunk.metadata, pages)
    if not keep_empty_pages and metadata.num_values:
        data, pages = _without_empty_pages(metadata, data, pages)
    data = data[: pages[-1].end] if pages else data[:0]
    metadata.path_in_schema = list(chunk.leaf.path)  # a footer without a checksum may have lost it
    metadata.encodings = [encoding for encoding in metadata.encodings if encoding in _ENCODINGS]
    metadata.codec = _codec_of(metadata, pages)
    metadata.total_compressed_size = len(data)  # its writer may have counted other bytes, too few or too many
    data_pages = [page for page in pages if page.header.type in _DATA_PAGES]
    metadata.data_page_offset = data_pages[0].offset if data_pages else 0
    metadata.dictionary_page_offset = None
    metadata.index_page_offset = metadata.bloom_filter_offset = metadata.bloom_filter_length = None
    dictionary = next((page for page in pages if page.header.type == PageType.DICTIONARY_PAGE), None)
    if dictionary is not None:
        metadata.dictionary_page_offset = dictionary.offset
    offset_index, column_index = _indexes(chunk, derived, data_pages)
    crcs = [crc32(data[page.offset : page.end]) for page in pages]
    digest, sums = sums_of(metadata.codec, [(page.header_bytes, page.body) for page in pages], crcs)
    return EncodedChunk(
        buffers=[data],
        size=len(data),
        metadata=metadata,
        offset_index=offset_index,
        column_index=column_index,
        headers=b"".join(page.header_bytes for page in pages),
        header_crcs=[signed(crc32(page.header_bytes)) for page in pages],
        crc=crc32(data),
        dictionary_page=None if dictionary is None else _location(dictionary, 0),
        dictionary_body=None if dictionary is None else bytes(dictionary.body),
        bloom_filter=derived.bloom_filter,
        digest=digest,
        page_sums=sums,
    )


def sealed_chunk(chunk: ChunkRead, data: memoryview, derived: Derived) -> EncodedChunk:
    """The chunk with a CRC32 in the header of each page; the bytes of pages stay, and the index if it fits them."""
    parts: list[bytes | memoryview] = []
    places: dict[tuple[int, int], PageLocation] = {}
    at = growth = 0
    for page in pages_of(data, 0, chunk.num_values_to_read):
        header: bytes | memoryview = page.header_bytes
        if not check_crc(page, zero_is_none=chunk.quirks.zero_crc_is_none):
            header = compact_protocol.encode(replace(page.header, crc=signed(crc32(page.body))))
        parts += [header, page.body]
        size = len(header) + len(page.body)
        if page.header.type in _DATA_PAGES:
            places[chunk.range.start + page.offset, page.end - page.offset] = PageLocation(
                chunk.range.start + at, size, 0
            )
        at += size
        growth += len(header) - len(page.header_bytes)
    index = None if derived.offset_index is None else _renamed(derived.offset_index, places)
    size = chunk.metadata.total_uncompressed_size + growth
    metadata = replace(chunk.metadata, total_uncompressed_size=size)
    moved = replace(derived, offset_index=index, column_index=None if index is None else derived.column_index)
    return copied_chunk(replace(chunk, metadata=metadata), memoryview(b"".join(parts)), moved)


def _codec_of(metadata: ColumnMetaData, pages: Iterable[Page]) -> int:
    """The codec of a chunk; a damaged footer may name one that other readers refuse, and that no page needs."""
    if is_written(metadata.codec) or any(map(_is_compressed, pages)):
        return metadata.codec
    return CompressionCodec.UNCOMPRESSED


def _is_compressed(page: Page) -> bool:
    v2 = page.header.data_page_header_v2
    return v2 is None or v2.is_compressed is not False or len(page.body) != page.header.uncompressed_page_size


def _renamed(index: OffsetIndex, places: Mapping[tuple[int, int], PageLocation]) -> OffsetIndex | None:
    """The index with the new places of pages, by the old ones and their sizes; None where it names others."""
    found = [places.get((page.offset, page.compressed_page_size)) for page in index.page_locations]
    locations = [
        replace(place, first_row_index=page.first_row_index)
        for place, page in zip(found, index.page_locations, strict=True)
        if place is not None
    ]
    if len(locations) != len(found) or [place.offset for place in locations] != [p.offset for p in places.values()]:
        return None
    return replace(index, page_locations=locations)


def _of_pages(metadata: ColumnMetaData, pages: Sequence[Page]) -> ColumnMetaData:
    """The metadata of a chunk; where they were made up of fewer pages than there are now, those of its pages."""
    num_values = sum(page.num_values for page in pages if page.header.type in _DATA_PAGES)
    if num_values == metadata.num_values:
        return replace(metadata)
    encodings = [*metadata.encodings]
    for page in pages:
        detail = page.data_header or page.header.dictionary_page_header
        if detail is not None and detail.encoding not in encodings:
            encodings.append(detail.encoding)
    return replace(
        metadata,
        num_values=num_values,
        total_uncompressed_size=_uncompressed_size(pages),
        encodings=encodings,
        statistics=None,
        size_statistics=None,
        geospatial_statistics=None,
        encoding_stats=None,
    )


def _without_empty_pages(
    metadata: ColumnMetaData, data: memoryview, pages: list[Page]
) -> tuple[memoryview, list[Page]]:
    """The bytes and pages of a chunk without data pages that have no values, of which its metadata tell no more."""
    filled = [page for page in pages if page.num_values or page.header.type not in _DATA_PAGES]
    if sum(page.end - page.offset for page in filled) == len(data):
        return data, pages
    metadata.total_uncompressed_size, metadata.encoding_stats = _uncompressed_size(filled), None
    data = memoryview(b"".join(part for page in filled for part in (page.header_bytes, page.body)))
    return data, list(pages_of(data, 0))


def _uncompressed_size(pages: Sequence[Page]) -> int:
    return sum(len(page.header_bytes) + page.header.uncompressed_page_size for page in pages)


def _indexes(
    chunk: ChunkRead, derived: Derived, data_pages: Sequence[Page]
) -> tuple[OffsetIndex | None, ColumnIndex | None]:
    """Both indexes, as far as they are of these pages; without an OffsetIndex, one of what the pages tell."""
    moved = _moved(chunk, derived.offset_index, data_pages)
    offset_index = moved or _offset_index(chunk, data_pages)
    fits = offset_index is not None and (moved is not None or derived.offset_index is None)
    column_index = derived.column_index if fits else None
    if column_index is not None and len(column_index.null_pages) != len(data_pages):
        column_index = None
    return offset_index, column_index


def _moved(chunk: ChunkRead, index: OffsetIndex | None, data_pages: Sequence[Page]) -> OffsetIndex | None:
    """The index with its offsets counted from the chunk's first byte; None where these are not the places of pages."""
    if index is None:
        return None
    locations = [replace(location, offset=location.offset - chunk.range.start) for location in index.page_locations]
    places = [(location.offset, location.compressed_page_size) for location in locations]
    if places != [(page.offset, page.end - page.offset) for page in data_pages]:
        return None
    return OffsetIndex(locations, index.unencoded_byte_array_data_bytes)


def _location(page: Page, first_row: int) -> PageLocation:
    return PageLocation(offset=page.offset, compressed_page_size=page.end - page.offset, first_row_index=first_row)


def _offset_index(chunk: ChunkRead, data_pages: Sequence[Page]) -> OffsetIndex | None:
    locations: list[PageLocation] = []
    row = 0
    for page in data_pages:
        v2 = page.header.data_page_header_v2
        if v2 is None and chunk.leaf.max_repetition_level:
            return None
        locations.append(_location(page, row))
        row += v2.num_rows if v2 is not None else page.num_values
    return OffsetIndex(page_locations=locations)
