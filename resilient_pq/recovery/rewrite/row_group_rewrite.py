"""Row groups that are kept, as chunks to be laid out again: taken over as stored, or encoded. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from resilient_pq.checksum import crc32, signed
from resilient_pq.damage.chunk_salvage import SalvagedChunk
from resilient_pq.damage.on_damage import rows_kept
from resilient_pq.errors import FormatError, TransientError
from resilient_pq.format import compact_protocol
from resilient_pq.format.compression import codecs
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
from resilient_pq.format.indexes.split_block_filter import FilterOptions
from resilient_pq.format.pages.chunk_encoder import EncodedChunk, encode_chunk
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page import Page, check_crc, pages_of
from resilient_pq.format.pages.page_sums import sums_of
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.decoder import verify_chunk
from resilient_pq.reader.filter import index_ranges
from resilient_pq.recovery.rewrite.retained_rows import RowGroupOutcome
from resilient_pq.recovery.verification.checksum_checks import PagesSeen
from resilient_pq.recovery.verification.page_scan import PageScanner
from resilient_pq.recovery.verification.verification import Verification
from resilient_pq.writer.dictionary_use import has_dictionary

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


_copied_chunk = partial(copied_chunk, keep_empty_pages=False)


class RowGroupRewriter:
    """Takes row groups over from a damaged file."""

    def __init__(self, verification: Verification, contents: Contents) -> None:
        """Prepare to take over what was verified."""
        known = verification.reconstruction
        self.scanner = PageScanner(known.source, verification.options, contents)
        self._source, self._contents = known.source, contents
        self._positions, self._seen = known.positions, verification.seen

    async def chunks(
        self, outcome: RowGroupOutcome, leaves: Sequence[Leaf], salvaged: Sequence[SalvagedChunk | None] | None = None
    ) -> AsyncGenerator[tuple[EncodedChunk, int], None]:
        """The chunks of a row group that is kept, each with how many bytes of the input it has as they were."""
        if outcome.scanned is None:
            for leaf in leaves:
                chunk = outcome.located.chunks[leaf.ordinal]
                assert chunk is not None  # or it would not be whole
                yield await self._copied(outcome, chunk.read), chunk.read.range.size
            return
        salvaged = await self.scanner.salvage(outcome.located) if salvaged is None else salvaged
        for leaf in leaves:
            yield await self._rewritten(outcome, leaf, salvaged[leaf.ordinal])

    async def _rewritten(
        self, outcome: RowGroupOutcome, leaf: Leaf, salvaged: SalvagedChunk | None
    ) -> tuple[EncodedChunk, int]:
        choice = outcome.choice
        unchanged = choice is None or (choice.keep.all() and leaf.ordinal not in choice.nulled)
        if salvaged is not None and salvaged.is_whole and unchanged:
            # Page by page it is as it was written; indexes and filters go along as far as they are whole.
            data = salvaged.bytes()
            derived = await self._derived(outcome, salvaged.chunk)
            return await asyncio.to_thread(_copied_chunk, salvaged.chunk, data, derived), len(data)
        assert choice is not None
        options = _options_like(leaf, salvaged)
        runs = () if salvaged is None else salvaged.runs

        def encode() -> EncodedChunk:
            return encode_chunk(leaf, rows_kept(leaf, runs, choice), options)

        return await asyncio.to_thread(encode), 0

    async def _copied(self, outcome: RowGroupOutcome, chunk: ChunkRead) -> EncodedChunk:
        derived = await self._derived(outcome, chunk)
        data = await self.read_again(outcome, chunk)
        return await asyncio.to_thread(_copied_chunk, chunk, data, derived)

    async def read_again(self, outcome: RowGroupOutcome, chunk: ChunkRead) -> memoryview:
        """The bytes of a chunk that was examined before, held against its checksums: it gets new ones from them."""
        position = self._positions.get(outcome.located.ordinal, -1)
        crc = self._seen.get((position, chunk.leaf.ordinal), PagesSeen()).crc
        for again in (False, True):
            data = await self._source.read(chunk.range, again=again)
            try:
                await asyncio.to_thread(verify_chunk, chunk, data)
            except FormatError as error:
                if again:
                    raise _changed(chunk) from error
            else:
                if crc is None or await asyncio.to_thread(crc32, data) == crc:
                    return data
        raise _changed(chunk)

    async def _derived(self, outcome: RowGroupOutcome, chunk: ChunkRead) -> Derived:
        """The chunk's indexes and bloom filter, as far as their checksums hold."""
        position = self._positions.get(outcome.located.ordinal)
        if position is None:
            return Derived()
        of = index_ranges.IndexedChunk(self._contents, position, chunk.leaf)
        columns = await self._checksummed(of, index_ranges.column_index_place)
        offsets = await self._checksummed(of, index_ranges.offset_index_place)
        bloom = await self._checksummed(of, index_ranges.bloom_filter_place)
        return Derived(
            None if columns is None else compact_protocol.decode(ColumnIndex, columns)[0],
            None if offsets is None else compact_protocol.decode(OffsetIndex, offsets)[0],
            None if bloom is None else bytes(bloom),
        )

    async def _checksummed(
        self,
        chunk: index_ranges.IndexedChunk,
        find: Callable[[index_ranges.IndexedChunk], index_ranges.IndexPlace | None],
    ) -> memoryview | None:
        try:
            place = find(chunk)
        except FormatError:
            return None  # it has been reported as a finding, and readers do without
        if place is None or place.crc is None or not place.complete:
            return None
        for again in (False, True):  # it may have been damaged on the way
            data = await self._source.read(place.range, again=again)
            if crc32(data) == place.crc:
                return data
        return None


def _changed(chunk: ChunkRead) -> TransientError:
    return TransientError("a column chunk was whole before, and is not now", where=chunk.where)


def _options_like(leaf: Leaf, salvaged: SalvagedChunk | None) -> ChunkOptions:
    if salvaged is None:
        return ChunkOptions()
    pages = [fate.page for fate in salvaged.pages if fate.page is not None]
    v2 = any(page.header.type == PageType.DATA_PAGE_V2 for page in pages)
    return options_like(leaf, salvaged.chunk.metadata, v2=v2)


def options_like(leaf: Leaf, metadata: ColumnMetaData, *, v2: bool) -> ChunkOptions:
    """How a chunk is encoded again: as it was, where that can be written."""
    codec = CompressionCodec(metadata.codec) if codecs.is_written(metadata.codec) else CompressionCodec.ZSTD
    pairs = ((pair.key, pair.value) for pair in metadata.key_value_metadata or ())
    return ChunkOptions(
        codec=codec,
        # Other row groups of the column are copied as they are.
        dictionary=has_dictionary(metadata) if leaf.is_flat_text else None,
        level=codecs.check_level(codec, None),
        version=2 if v2 else 1,
        bloom_filter=None if metadata.bloom_filter_offset is None else FilterOptions(),
        key_value=tuple((key, value) for key, value in pairs if value is not None and not key.startswith("rpq.")),
    )
