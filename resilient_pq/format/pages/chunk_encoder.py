"""Encoding of column chunks: the levels and values of one leaf over a row group become pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from resilient_pq.checksum import combine, signed
from resilient_pq.format.file_metadata import (
    ColumnIndex,
    ColumnMetaData,
    Encoding,
    KeyValue,
    OffsetIndex,
    PageEncodingStats,
    PageLocation,
    PageType,
)
from resilient_pq.format.indexes import split_block_filter
from resilient_pq.format.indexes.statistics import (
    Bounds,
    DictionaryBounds,
    PageSummary,
    bounds_of,
    column_index,
    page_sizes,
    size_statistics_of,
    statistics_of,
)
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.encoding_choice import Choice, Choose, choose
from resilient_pq.format.pages.flat_chunk import flat_chunk, is_flat
from resilient_pq.format.pages.open_chunk import concatenate
from resilient_pq.format.pages.page_encoder import EncodedPage, PageCut, cut_pages, data_page, dictionary_page
from resilient_pq.format.pages.page_sums import PageSums, sums_of
from resilient_pq.format.physical_values import LeafData, check_values
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.format.side_by_side import SideBySide, one_by_one
from resilient_pq.lazy_dataclass import dataclass


@dataclass(slots=True)
class EncodedChunk:
    """A column chunk ready to be placed in a file; its offsets count from its own first byte until then."""

    buffers: list[Any]  # headers and bodies in order
    size: int  # their bytes together
    metadata: ColumnMetaData  # what the footer says of it
    offset_index: OffsetIndex | None  # locations of its data pages; None where the rows of a page are not known
    column_index: ColumnIndex | None  # bounds of its data pages; None where they cannot be given
    headers: bytes  # copies of all page headers, back to back
    header_crcs: list[int]  # CRC32 of each page header
    crc: int  # CRC32 of the whole chunk, headers included
    dictionary_page: PageLocation | None  # where the dictionary page lies; None without one
    dictionary_body: memoryview | bytes | None  # its bytes as stored
    bloom_filter: bytes | None = None  # its bloom filter as stored; None without one
    digest: int | None = None  # xxh3-64 of the whole chunk, where its CRC32 may be that of another too
    page_sums: PageSums | None = None  # of its pages; None where they are not known

    @property
    def offset(self) -> int:
        """Where its first page lies."""
        return self.metadata.dictionary_page_offset or self.metadata.data_page_offset

    @property
    def codec(self) -> int:
        """How its pages are compressed."""
        return self.metadata.codec

    @property
    def uncompressed_size(self) -> int:
        """Bytes of its pages before they were compressed, headers included."""
        return self.metadata.total_uncompressed_size

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
    """The pages of a chunk, one behind the other."""

    parts: list[tuple[Any, ...]] = field(default_factory=list)
    size: int = 0
    uncompressed_size: int = 0
    crc: int = 0
    crcs: list[int] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)
    header_crcs: list[int] = field(default_factory=list)

    def add(self, page: EncodedPage, first_row: int = 0) -> PageLocation:
        """Append a page, whose first row has this number in the chunk."""
        size = len(page.header) + page.body_size
        location = PageLocation(offset=self.size, compressed_page_size=size, first_row_index=first_row)
        self.headers.append(page.header)
        self.header_crcs.append(signed(page.header_crc))
        self.parts.append((page.header, *page.body))
        # The chunk's sum comes of those of its pages: no byte is looked at twice.
        self.crcs.append(combine(page.header_crc, page.body_crc, page.body_size))
        self.crc = combine(self.crc, self.crcs[-1], size)
        self.size += size
        self.uncompressed_size += page.uncompressed_size
        return location


def encode_chunk(
    leaf: Leaf,
    pieces: Sequence[LeafData],
    options: ChunkOptions,
    side_by_side: SideBySide = one_by_one,
    choose: Choose = choose,
    *,
    flat: bool = False,
) -> EncodedChunk:
    """The pages of `pieces`, which follow one another, as one column chunk; with `flat` of `flat_chunk` where it can.

    That has the same bytes, and `FileLayout` says the same of it.
    """
    data = concatenate(leaf, pieces)
    check_values(leaf, data)
    chosen = choose(leaf, data, options, side_by_side)
    built, by_dictionary = chosen.dictionary, None
    cuts = cut_pages(leaf, data, built, options)
    if flat and is_flat(leaf, options, cuts):
        found: EncodedChunk = flat_chunk(leaf, data, chosen, cuts[0], options)
        return found
    pages = _Pages()
    dictionary_at = dictionary_body = None
    if built is not None:
        dictionary_at = pages.add(dictionary_page(leaf, built.values, chosen, options))
        dictionary_body = memoryview(pages.parts[-1][-1])
        if not (isinstance(built.values, np.ndarray) and built.values.ndim == 1):
            by_dictionary = DictionaryBounds(leaf.node, built)
    encode = partial(_encode_page, leaf, data, chosen, by_dictionary, options)
    made = side_by_side([partial(encode, cut) for cut in cuts])
    locations = [pages.add(page, cut.first_row) for cut, (page, _) in zip(cuts, made, strict=True)]
    summaries = [summary for _, summary in made]
    digest, sums = sums_of(options.codec, pages.parts, pages.crcs)
    bloom_filter = None
    if options.bloom_filter is not None:
        values = data.values if built is None else built.values
        bloom_filter = split_block_filter.filter_of(leaf.node, values, options.bloom_filter).to_bytes()
    return EncodedChunk(
        buffers=list(chain.from_iterable(pages.parts)),
        size=pages.size,
        metadata=_metadata(leaf, pages, chosen, options, locations, summaries),
        offset_index=_offset_index(locations, summaries),
        column_index=column_index(leaf.node, summaries) if options.statistics else None,
        headers=b"".join(pages.headers),
        header_crcs=pages.header_crcs,
        crc=pages.crc,
        dictionary_page=dictionary_at,
        dictionary_body=dictionary_body,
        bloom_filter=bloom_filter,
        digest=digest,
        page_sums=sums,
    )


def _encode_page(
    leaf: Leaf,
    data: LeafData,
    chosen: Choice,
    by_dictionary: DictionaryBounds | None,
    options: ChunkOptions,
    cut: PageCut,
) -> tuple[EncodedPage, PageSummary]:
    page = data_page(leaf, data, chosen, cut, options)
    num_values = cut.entry_end - cut.entry
    null_count = num_values - (cut.value_end - cut.value)
    if not options.statistics:
        return page, PageSummary(Bounds(None, None), null_count, num_values)
    values = data.values[cut.value : cut.value_end]
    sizes = page_sizes(leaf, values, *cut.levels_of(data))
    bounds = bounds_of(leaf.node, values) if by_dictionary is None else by_dictionary.of(cut.value, cut.value_end)
    return page, PageSummary(bounds, null_count, num_values, sizes)


def _offset_index(locations: list[PageLocation], summaries: Sequence[PageSummary]) -> OffsetIndex:
    sizes = [size for summary in summaries if (size := summary.sizes.byte_array_bytes) is not None]
    return OffsetIndex(locations, sizes or None)


def _metadata(
    leaf: Leaf,
    pages: _Pages,
    chosen: Choice,
    options: ChunkOptions,
    locations: list[PageLocation],
    summaries: list[PageSummary],
) -> ColumnMetaData:
    has_dictionary = chosen.dictionary is not None
    page_type = PageType.DATA_PAGE if options.version == 1 else PageType.DATA_PAGE_V2
    encodings = {int(chosen.encoding)}
    stats = [PageEncodingStats(int(page_type), int(chosen.encoding), len(locations))]
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
