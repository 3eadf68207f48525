"""Page indexes, bloom filters and statistics of column chunks: where they lie, and how they decode. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Any

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32
from resilient_pq.errors import ChecksumError, FormatError, SchemaError, Where, located
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import ColumnChunk, ColumnIndex, ColumnMetaData, OffsetIndex, RowGroup
from resilient_pq.format.footer import MAGIC, ChunkSums
from resilient_pq.format.indexes.split_block_filter import MAX_BYTES, BloomFilter, header_size
from resilient_pq.format.indexes.trusted_bounds import (
    ColumnStatistics,
    DecodedColumnIndex,
    chunk_statistics,
    decode_column_index,
)
from resilient_pq.format.pages.page_sums import PageSums
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.format.sorting import SortingColumn, sorting_columns_of
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents, chunk_range
from resilient_pq.reader.data_file import data_file

#: Enough for the header of a bloom filter whose length is not in the footer, and for a small filter.
_HEADER_GUESS = 1024


@dataclass(frozen=True, slots=True)
class IndexedChunk:
    """A column chunk whose indexes are wanted."""

    contents: Contents  # The file
    row_group: int  # Ordinal of its row group
    leaf: Leaf  # Its column

    @property
    def where(self) -> Where:
        """Its place, for errors."""
        return Where(row_group=self.row_group, column=self.leaf.column_path)

    @property
    def group(self) -> RowGroup:
        """The footer's metadata of its row group."""
        return self.contents.metadata.row_groups[self.row_group]

    @property
    def column(self) -> ColumnChunk:
        """The footer's entry for it."""
        return self.group.columns[self.leaf.ordinal]

    @property
    def data_end(self) -> int:
        """Offset before which everything of it ends; how large a data file is turns out when it is read."""
        return self.contents.data_end_in(self.column.file_path or None)

    @property
    def metadata(self) -> ColumnMetaData:
        """The footer's metadata of the chunk; a FormatError where there are none."""
        metadata = self.column.meta_data
        if metadata is None:
            raise FormatError("the column chunk has no metadata", where=self.where)
        return metadata


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """Where an index or a filter lies."""

    chunk: IndexedChunk  # Whose it is
    what: str  # In words
    file: str | None  # The data file that a summary names for the chunk; None where it is the file itself
    range: ByteRange  # Its bytes
    crc: int | None  # CRC32 of them; None where the file has none
    complete: bool = True  # Whether `range` is all of it; else the length is in its header

    @property
    def where(self) -> Where:
        """The place, for errors."""
        return self.chunk.where.merged_with(Where(offset=self.range.start))


def chunk_of(contents: Contents, row_group: int, column: str | int) -> IndexedChunk:
    """The column chunk that a caller names, by the path or the ordinal of its leaf."""
    count = len(contents.metadata.row_groups)
    if not 0 <= row_group < count:
        raise SchemaError(f"there is no row group {row_group}", hint=f"the file has {count}")
    return IndexedChunk(contents, row_group, _leaf_named(contents.schema, column))


def _leaf_named(schema: Schema, column: str | int) -> Leaf:
    if isinstance(column, int):
        if 0 <= column < len(schema.leaves):
            return schema.leaves[column]
    else:
        leaf = schema.leaf_named(column)
        if leaf is not None:
            return leaf
    names = ", ".join(leaf.column_path for leaf in schema.leaves)
    raise SchemaError(f"there is no column {column!r}", hint=f"columns: {names}")


# --- where they lie ---------------------------------------------------------------------------------------------


def column_index_place(chunk: IndexedChunk) -> IndexPlace | None:
    """Where the ColumnIndex lies; None without one."""
    column = chunk.column
    return _place(chunk, "column index", column.column_index_offset, column.column_index_length)


def offset_index_place(chunk: IndexedChunk) -> IndexPlace | None:
    """Where the OffsetIndex lies; None without one."""
    column = chunk.column
    return _place(chunk, "offset index", column.offset_index_offset, column.offset_index_length)


def bloom_filter_place(chunk: IndexedChunk) -> IndexPlace | None:
    """Where the bloom filter lies, or its header where the footer has no length of it; None without one."""
    offset, length = chunk.metadata.bloom_filter_offset, chunk.metadata.bloom_filter_length
    if offset is None or length is not None:
        return _place(chunk, "bloom filter", offset, length)
    length = max(min(_HEADER_GUESS, chunk.data_end - offset), 0)
    place = _place(chunk, "bloom filter", offset, length)
    return None if place is None else replace(place, complete=False)


def with_length(place: IndexPlace, data: memoryview) -> IndexPlace:
    """The whole of a bloom filter whose header is at hand."""
    with located(place.where):
        start, size = header_size(data)
        end = place.range.start + start + size
        if not 0 < size <= MAX_BYTES or end > place.chunk.data_end:
            raise FormatError(f"the bloom filter is said to have {size:,} bytes")
    return replace(place, range=ByteRange(place.range.start, end), complete=True)


def _place(chunk: IndexedChunk, what: str, offset: int | None, length: int | None) -> IndexPlace | None:
    if offset is None or length is None:
        return None
    with located(chunk.where):
        if not len(MAGIC) <= offset < offset + length <= chunk.data_end:
            raise FormatError(f"the {what} is said to lie at {offset:,}, {length:,} bytes: outside of the file")
        if what == "bloom filter" and length > 2 * MAX_BYTES:
            raise FormatError(f"the bloom filter is said to have {length:,} bytes")
        sums = ChunkSums.of(chunk.metadata) or ChunkSums()
    crc = {"column index": sums.column_index, "offset index": sums.offset_index, "bloom filter": sums.bloom}
    return IndexPlace(
        chunk, what, data_file(chunk.column.file_path or None), ByteRange(offset, offset + length), crc[what]
    )


# --- their bytes ------------------------------------------------------------------------------------------------


def check_sum(place: IndexPlace, data: memoryview) -> None:
    """Compare the CRC32 of an index or a filter, where the file has one."""
    if place.crc is not None and (computed := crc32(data)) != place.crc:
        message = f"{place.what} CRC32 does not match"
        raise ChecksumError(message, stored=place.crc, computed=computed, where=place.where)


def decode_columns(place: IndexPlace, data: memoryview) -> DecodedColumnIndex:
    """Decode a ColumnIndex, and check it against itself and the schema."""
    with located(place.where):
        index, _ = compact_protocol.decode(ColumnIndex, data, what="column index")
        return decode_column_index(place.chunk.contents.metadata, place.chunk.leaf, index)


def decode_offsets(place: IndexPlace, data: memoryview) -> OffsetIndex:
    """Decode an OffsetIndex; its pages lie in their chunk and its rows are in order."""
    chunk = place.chunk
    with located(place.where):
        index, _ = compact_protocol.decode(OffsetIndex, data, what="offset index")
        start, end = len(MAGIC), chunk.data_end
        if chunk.metadata.num_values:  # of an empty chunk the footer does not tell where its pages lie
            start, end = chunk_range(chunk.metadata, end)
        for page in index.page_locations:
            if not start <= page.offset < page.offset + page.compressed_page_size <= end:
                raise FormatError(f"a page is said to lie at {page.offset:,}, outside of its column chunk")
        rows = [page.first_row_index for page in index.page_locations]
        if rows and (rows[0] != 0 or rows[-1] > chunk.group.num_rows):
            raise FormatError(f"pages are said to begin with row {rows[0]:,} and end after row {rows[-1]:,}")
        if any(two < one for one, two in pairwise(rows)):
            raise FormatError("the rows of its pages do not follow one another")
        sizes = index.unencoded_byte_array_data_bytes
        if sizes and (len(sizes) != len(rows) or min(sizes) < 0):
            raise FormatError("the sizes of its pages are not those of its pages")
    return index


def decode_page_sums(place: IndexPlace, data: memoryview) -> PageSums | None:
    """Decode the sums of pages in an OffsetIndex; None where there are none."""
    return PageSums.of_index(data)


def decode_filter(place: IndexPlace, data: memoryview) -> BloomFilter:
    """Decode a bloom filter."""
    with located(place.where):
        return BloomFilter.from_bytes(data)


# --- facts of the footer ---------------------------------------------------------------------------------------


def statistics_of_chunk(chunk: IndexedChunk) -> ColumnStatistics:
    """The footer's statistics of a chunk."""
    return chunk_statistics(chunk.contents.metadata, chunk.leaf, chunk.metadata)


def common_sorting_columns(contents: Contents) -> tuple[SortingColumn, ...]:
    """The order in which the rows of every row group are."""
    orders = [sorting_columns_of(contents.schema, group) for group in contents.metadata.row_groups]
    return _common_front(orders)


def _common_front(lists: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    same = takewhile(lambda entries: len(set(entries)) == 1, zip(*lists, strict=False))
    return tuple(entries[0] for entries in same)
