"""Column chunks, written: the levels and values of one leaf over a row group become pages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from resilient_pq import room
from resilient_pq.checksum import combine, crc32, signed
from resilient_pq.format import bloom, compression, kernels, thrift
from resilient_pq.format.chunk_options import ChunkOptions
from resilient_pq.format.encoding_choice import Choice, choose, plain_bytes
from resilient_pq.format.encodings import bit_packed, dictionary, encode_values, plain, rle
from resilient_pq.format.encodings.dictionary import Dictionary
from resilient_pq.format.levels import row_starts
from resilient_pq.format.metadata import (
    ColumnIndex,
    ColumnMetaData,
    CompressionCodec,
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    Encoding,
    KeyValue,
    OffsetIndex,
    PageEncodingStats,
    PageHeader,
    PageLocation,
    PageType,
)
from resilient_pq.format.open_chunk import concatenate
from resilient_pq.format.page_index import PageSummary, column_index
from resilient_pq.format.schema import Leaf
from resilient_pq.format.size_statistics import page_sizes, size_statistics_of
from resilient_pq.format.statistics import Bounds, DictionaryBounds, bounds_of, statistics_of
from resilient_pq.format.values import ByteArrays, LeafData, Levels, Values, check_values


@dataclass(slots=True)
class EncodedChunk:
    """A column chunk ready to be placed in a file; its offsets count from its own first byte until then.

    Attributes:
        buffers: Headers and bodies in order.
        size: Their bytes together.
        metadata: What the footer says of it.
        offset_index: Locations of its data pages; None where the rows of a page are not known.
        column_index: Bounds of its data pages; None where they cannot be given.
        headers: Copies of all page headers, back to back.
        header_crcs: CRC32 of each page header.
        crc: CRC32 of the whole chunk, headers included.
        dictionary_page: Where the dictionary page lies; None without one.
        dictionary_body: Its bytes as stored.
        bloom_filter: Its bloom filter as stored; None without one.
    """

    buffers: list[Any]
    size: int
    metadata: ColumnMetaData
    offset_index: OffsetIndex | None
    column_index: ColumnIndex | None
    headers: bytes
    header_crcs: list[int]
    crc: int
    dictionary_page: PageLocation | None
    dictionary_body: memoryview | bytes | None
    bloom_filter: bytes | None = None

    def place(self, offset: int) -> None:
        """Make all offsets absolute: the chunk's first byte lies at `offset`."""
        self.metadata.data_page_offset += offset
        if self.metadata.dictionary_page_offset is not None:
            self.metadata.dictionary_page_offset += offset
        if self.offset_index is not None:
            for location in self.offset_index.page_locations:
                location.offset += offset
        if self.dictionary_page is not None:
            self.dictionary_page.offset += offset


@dataclass(slots=True)
class _Pages:
    """Collects the pages of a chunk while they are made."""

    options: ChunkOptions
    buffers: list[Any] = field(default_factory=list)
    size: int = 0
    uncompressed_size: int = 0
    crc: int = 0
    headers: list[bytes] = field(default_factory=list)
    header_crcs: list[int] = field(default_factory=list)

    def add(
        self,
        header: PageHeader,
        content: Sequence[NDArray[np.uint8]],
        *,
        uncompressed: Sequence[NDArray[np.uint8]] = (),
    ) -> PageLocation:
        """Append a page: the `uncompressed` levels of a v2 page, then `content`, compressed as one."""
        codec = self.options.codec
        # Without a codec the values go out as they lie in memory, levels and header beside them.
        body: list[Any] = [*uncompressed, *content]
        header.uncompressed_page_size = sum(map(len, body))
        if codec is not CompressionCodec.UNCOMPRESSED:
            whole = content[0] if len(content) == 1 else _in_one_piece(content)
            body = [*uncompressed, compression.compress(codec, whole, self.options.level)]
        header.compressed_page_size = sum(map(len, body))
        body_crc = 0
        for piece in body:
            body_crc = crc32(piece, body_crc)
        header.crc = signed(body_crc)
        header_bytes = thrift.encode(header)
        header_crc = crc32(header_bytes)
        size = len(header_bytes) + header.compressed_page_size
        location = PageLocation(offset=self.size, compressed_page_size=size, first_row_index=0)
        self.headers.append(header_bytes)
        self.header_crcs.append(signed(header_crc))
        self.buffers += (header_bytes, *body)
        # The chunk's sum comes of those of its pages: no byte is looked at twice.
        self.crc = combine(self.crc, header_crc, len(header_bytes))
        self.crc = combine(self.crc, body_crc, header.compressed_page_size)
        self.size += size
        self.uncompressed_size += len(header_bytes) + header.uncompressed_page_size
        return location


def _in_one_piece(pieces: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    out: NDArray[np.uint8] = room.empty((sum(map(len, pieces)),), np.uint8)
    return np.concatenate(pieces, out=out)


def encode_chunk(leaf: Leaf, pieces: Sequence[LeafData], options: ChunkOptions) -> EncodedChunk:
    """The pages of `pieces`, which follow one another, as one column chunk."""
    data = concatenate(leaf, pieces)
    check_values(leaf, data)
    pages = _Pages(options)
    chosen = choose(leaf, data, options)
    built = chosen.dictionary
    dictionary_page = dictionary_body = None
    if built is not None:
        dictionary_page, dictionary_body = _add_dictionary(leaf, pages, built, chosen.dictionary_encoding)
    cuts = _cuts(leaf, data, built, options)
    by_dictionary = None
    if built is not None and not (isinstance(built.values, np.ndarray) and built.values.ndim == 1):
        by_dictionary = DictionaryBounds(leaf.node, built)
    locations: list[PageLocation] = []
    summaries: list[PageSummary] = []
    for cut in cuts:
        locations.append(_add_data_page(leaf, pages, data, chosen, cut))
        locations[-1].first_row_index = cut.first_row
        summaries.append(_summary(leaf, data, by_dictionary, cut, options))
    metadata = _metadata(leaf, pages, chosen, locations, summaries)
    return EncodedChunk(
        buffers=pages.buffers,
        size=pages.size,
        metadata=metadata,
        offset_index=_offset_index(locations, summaries),
        column_index=column_index(leaf.node, summaries) if options.statistics else None,
        headers=b"".join(pages.headers),
        header_crcs=pages.header_crcs,
        crc=pages.crc,
        dictionary_page=dictionary_page,
        dictionary_body=dictionary_body,
        bloom_filter=_bloom_filter(leaf, data.values if built is None else built.values, options),
    )


def _bloom_filter(leaf: Leaf, values: Values, options: ChunkOptions) -> bytes | None:
    if options.bloom_filter is None:
        return None
    return bloom.filter_of(leaf.node, values, options.bloom_filter).to_bytes()


def _summary(
    leaf: Leaf, data: LeafData, by_dictionary: DictionaryBounds | None, cut: _Cut, options: ChunkOptions
) -> PageSummary:
    num_values = cut.entry_end - cut.entry
    null_count = num_values - (cut.value_end - cut.value)
    if not options.statistics:
        return PageSummary(Bounds(None, None), null_count, num_values)
    values = data.values[cut.value : cut.value_end]
    sizes = page_sizes(leaf, values, *_levels_of(data, cut))
    bounds = bounds_of(leaf.node, values) if by_dictionary is None else by_dictionary.of(cut.value, cut.value_end)
    return PageSummary(bounds, null_count, num_values, sizes)


def _levels_of(data: LeafData, cut: _Cut) -> tuple[Levels | None, Levels | None]:
    """The repetition and the definition levels of a page."""
    repetition, definition = data.repetition_levels, data.definition_levels
    return (
        None if repetition is None else repetition[cut.entry : cut.entry_end],
        None if definition is None else definition[cut.entry : cut.entry_end],
    )


def _offset_index(locations: list[PageLocation], summaries: Sequence[PageSummary]) -> OffsetIndex:
    sizes = [size for summary in summaries if (size := summary.sizes.byte_array_bytes) is not None]
    return OffsetIndex(locations, sizes or None)


def _add_dictionary(
    leaf: Leaf, pages: _Pages, built: Dictionary, encoding: Encoding
) -> tuple[PageLocation, memoryview]:
    header = PageHeader(
        type=int(PageType.DICTIONARY_PAGE),
        uncompressed_page_size=0,
        compressed_page_size=0,
        dictionary_page_header=DictionaryPageHeader(num_values=len(built.values), encoding=int(encoding)),
    )
    location = pages.add(header, [encode_values(Encoding.PLAIN, leaf.node, built.values)])
    return location, memoryview(pages.buffers[-1])


@dataclass(frozen=True, slots=True)
class _Cut:
    """The part of a chunk that becomes one data page: rows, entries and values, ends exclusive."""

    first_row: int
    row_end: int
    entry: int
    entry_end: int
    value: int
    value_end: int


def _cuts(
    leaf: Leaf, data: LeafData, built: Dictionary | None, options: ChunkOptions
) -> list[_Cut]:
    """Cut the chunk into pages, at the beginnings of rows only."""
    num_entries = len(data.values) if data.definition_levels is None else len(data.definition_levels)
    size = _size_as_written(leaf, data, built)
    fewest = -(-data.num_rows // options.page_rows)
    count = max(-(-size // options.page_bytes), fewest, 1)
    if count == 1 or data.num_rows < 2:
        return [_Cut(0, data.num_rows, 0, num_entries, 0, len(data.values))]
    definition, repetition = data.definition_levels, data.repetition_levels
    if len(data.values) == num_entries:
        definition = None  # none lacks a value
    starts = present = byte_arrays = None
    if built is None and isinstance(data.values, ByteArrays):
        byte_arrays = data.values
        starts = None if repetition is None else row_starts(repetition, num_entries)
        present = None if definition is None else definition == leaf.max_definition_level
    rows = entries = _row_cuts(data.num_rows, byte_arrays, count, size, starts, present, options)
    if repetition is not None:
        entries = kernels.row_entries(np.ascontiguousarray(repetition), np.array(rows, np.int64)).tolist()
    cuts: list[_Cut] = []
    value = 0
    for (first, end), (entry, entry_end) in zip(pairwise(rows), pairwise(entries), strict=True):
        num_values = entry_end - entry
        if definition is not None:
            num_values = int(np.count_nonzero(definition[entry:entry_end] == leaf.max_definition_level))
        cuts.append(_Cut(first, end, entry, entry_end, value, value + num_values))
        value = cuts[-1].value_end
    return cuts


def _size_as_written(leaf: Leaf, data: LeafData, built: Dictionary | None) -> int:
    """Bytes of the values that pages are cut by: of indices to the dictionary, where there is one."""
    if built is None:
        return plain_bytes(leaf, data.values)
    return len(data.values) * rle.bit_width(len(built.values) - 1) // 8


def _row_cuts(
    num_rows: int,
    byte_arrays: ByteArrays | None,
    count: int,
    size: int,
    starts: NDArray[Any] | None,
    present: NDArray[np.bool_] | None,
    options: ChunkOptions,
) -> list[int]:
    """The rows at which pages begin, and the end of the last one.

    Args:
        num_rows: Rows of the chunk.
        byte_arrays: Its values, where the pages are to have equal shares of their bytes; None cuts by rows.
        count: How many pages there should be.
        size: Bytes of the values.
        starts: The entries at which rows begin; None where every entry is a row.
        present: Which entries have a value; None where none lacks one.
        options: How many rows a page may have.
    """
    if byte_arrays is not None:
        # Equal shares of bytes, found by the offsets, each value with its four bytes of length.
        values = np.array([_first_value_behind(byte_arrays, part * (size / count)) for part in range(1, count)])
        entries = values if present is None else _entries_of(values, present)
        rows = entries if starts is None else np.searchsorted(starts, entries)
        cuts = {0, num_rows, *(int(row) for row in rows)}
    else:
        cuts = {0, num_rows, *(num_rows * part // count for part in range(1, count))}
    ordered = sorted(cuts)
    return [
        row
        for first, end in pairwise(ordered)
        for row in range(first, end, options.page_rows)
    ] + [num_rows]


def _first_value_behind(byte_arrays: ByteArrays, size: float) -> int:
    """The first value before which the others take at least so many bytes in PLAIN encoding."""
    offsets = byte_arrays.offsets
    start = int(offsets[0])
    return bisect_left(range(len(offsets)), size, key=lambda at: int(offsets[at]) - start + 4 * at)


def _entries_of(values: NDArray[Any], present: NDArray[np.bool_]) -> NDArray[Any]:
    """The first entry before which each number of values stands."""
    before = np.zeros(len(present) + 1, np.int64)
    np.cumsum(present, out=before[1:])
    return np.searchsorted(before, values)


def _add_data_page(
    leaf: Leaf,
    pages: _Pages,
    data: LeafData,
    chosen: Choice,
    cut: _Cut,
) -> PageLocation:
    encoding, options = chosen.encoding, pages.options
    maxima = leaf.max_repetition_level, leaf.max_definition_level
    levels = [
        (found, maximum)
        for found, maximum in zip(_levels_of(data, cut), maxima, strict=True)
        if found is not None
    ]
    num_values = cut.entry_end - cut.entry
    if options.version == 1:
        header = PageHeader(
            type=int(PageType.DATA_PAGE),
            uncompressed_page_size=0,
            compressed_page_size=0,
            data_page_header=DataPageHeader(
                num_values=num_values,
                encoding=int(encoding),
                definition_level_encoding=int(options.level_encoding),
                repetition_level_encoding=int(options.level_encoding),
            ),
        )
        parts = [_v1_levels(found, maximum, options.level_encoding) for found, maximum in levels]
        values = data.values
        if options.codec is not CompressionCodec.UNCOMPRESSED and _is_plain_text(values, chosen):
            return pages.add(header, [plain.encode_behind(parts, values[cut.value : cut.value_end])])
        return pages.add(header, [*parts, _encoded_values(leaf, data, chosen, cut)])
    parts = [rle.encode_levels(found, maximum) for found, maximum in levels]
    repetition = len(parts[0]) if data.repetition_levels is not None else 0
    total = sum(len(part) for part in parts)
    header = PageHeader(
        type=int(PageType.DATA_PAGE_V2),
        uncompressed_page_size=0,
        compressed_page_size=0,
        data_page_header_v2=DataPageHeaderV2(
            num_values=num_values,
            num_nulls=num_values - (cut.value_end - cut.value),
            num_rows=cut.row_end - cut.first_row,
            encoding=int(encoding),
            definition_levels_byte_length=total - repetition,
            repetition_levels_byte_length=repetition,
            is_compressed=options.codec is not CompressionCodec.UNCOMPRESSED,
        ),
    )
    return pages.add(header, [_encoded_values(leaf, data, chosen, cut)], uncompressed=parts)


def _is_plain_text(values: Values, chosen: Choice) -> TypeGuard[ByteArrays]:
    """Whether values are large where they are encoded: they are better not copied behind levels once more."""
    return chosen.encoding is Encoding.PLAIN and isinstance(values, ByteArrays)


def _encoded_values(leaf: Leaf, data: LeafData, chosen: Choice, cut: _Cut) -> NDArray[np.uint8]:
    built = chosen.dictionary
    if built is None:
        return encode_values(chosen.encoding, leaf.node, data.values[cut.value : cut.value_end])
    return dictionary.encode_indices(built.indices[cut.value : cut.value_end], len(built.values))


def _v1_levels(levels: Levels, maximum: int, encoding: Encoding) -> NDArray[np.uint8]:
    if encoding is Encoding.BIT_PACKED:
        return bit_packed.encode_levels(levels, maximum)
    return rle.encode_prefixed(levels, maximum)


def _metadata(
    leaf: Leaf,
    pages: _Pages,
    chosen: Choice,
    locations: list[PageLocation],
    summaries: list[PageSummary],
) -> ColumnMetaData:
    options, has_dictionary = pages.options, chosen.dictionary is not None
    data_page = PageType.DATA_PAGE if options.version == 1 else PageType.DATA_PAGE_V2
    encodings = {int(chosen.encoding)}
    stats = [PageEncodingStats(int(data_page), int(chosen.encoding), len(locations))]
    if has_dictionary:
        encodings.add(int(chosen.dictionary_encoding))
        stats.insert(0, PageEncodingStats(int(PageType.DICTIONARY_PAGE), int(chosen.dictionary_encoding), 1))
    if leaf.max_definition_level or leaf.max_repetition_level:
        encodings.add(int(options.level_encoding if options.version == 1 else Encoding.RLE))
    statistics = sizes = None
    if options.statistics:
        bounds = summaries[0].bounds
        for summary in summaries[1:]:
            bounds = bounds.merged(summary.bounds)
        statistics = statistics_of(leaf.node, bounds, sum([summary.null_count for summary in summaries]))
        sizes = size_statistics_of([summary.sizes for summary in summaries])
    return ColumnMetaData(
        type=int(leaf.node.physical_type),
        encodings=sorted(encodings),
        path_in_schema=list(leaf.path),
        codec=int(options.codec),
        num_values=sum([summary.num_values for summary in summaries]),
        total_uncompressed_size=pages.uncompressed_size,
        total_compressed_size=pages.size,
        data_page_offset=locations[0].offset,
        dictionary_page_offset=0 if has_dictionary else None,
        statistics=statistics,
        encoding_stats=stats,
        key_value_metadata=[KeyValue(key, value) for key, value in options.key_value] or None,
        size_statistics=sizes,
    )
