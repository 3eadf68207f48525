"""The statistics and indexes of a column chunk, as evidence for values that no checksum covers. Pure.

Statistics and indexes were written together with the values. Where trusted ones (`format.indexes.trusted_bounds`)
contradict the values, one of both was changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import ColumnIndex, FileMetaData, OffsetIndex
from resilient_pq.format.indexes.trusted_bounds import ColumnStatistics, chunk_statistics, decode_column_index, within
from resilient_pq.format.levels import slice_rows
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.physical_values import LeafData
from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StatedPage:
    """A data page as a page index describes it."""

    place: ByteRange
    rows: range  # Of the row group
    values: ColumnStatistics  # What is known of its values


@dataclass(frozen=True, slots=True)
class Stated:
    """The statistics and the page index of a chunk."""

    chunk: ChunkRead
    values: ColumnStatistics  # What is known of all of them
    pages: tuple[StatedPage, ...] = ()  # Of those of each data page; nothing where no index tells

    def agrees(self, data: LeafData, first_row: int | None) -> bool:
        """Whether some rows of the chunk agree with it."""
        if not within(self.values, self.chunk.leaf, data):
            return False
        return first_row is None or next(self.contradicting(data, first_row), None) is None

    def contradicting(self, data: LeafData, first_row: int = 0) -> Iterator[StatedPage]:
        """The pages that lie wholly within some rows and whose values contradict the index."""
        for page in self.pages:
            start, end = page.rows.start - first_row, page.rows.stop - first_row
            if 0 <= start < end <= data.num_rows:
                rows = slice_rows(self.chunk.leaf, data, start, end)
                if not within(page.values, self.chunk.leaf, rows):
                    yield page


def stated_of(
    file: FileMetaData, chunk: ChunkRead, columns: memoryview | None = None, offsets: memoryview | None = None
) -> Stated:
    """The trusted statistics of a chunk and, from its stored ColumnIndex and OffsetIndex, of its pages."""
    values = chunk_statistics(file, chunk.leaf, chunk.metadata)
    if columns is None or offsets is None:
        return Stated(chunk, values)
    try:
        said = decode_column_index(file, chunk.leaf, compact_protocol.decode(ColumnIndex, columns)[0]).pages
        places = compact_protocol.decode(OffsetIndex, offsets)[0].page_locations
    except FormatError:
        return Stated(chunk, values)  # readers do without; what else is wrong there is not seen in the values
    rows = [place.first_row_index for place in places] + [chunk.num_rows]
    if len(said) != len(places) or rows[0] != 0 or any(two < one for one, two in pairwise(rows)):
        return Stated(chunk, values)
    if any(place.offset < 0 or place.compressed_page_size < 0 for place in places):
        return Stated(chunk, values)
    pages = [
        StatedPage(ByteRange(place.offset, place.offset + place.compressed_page_size), range(first, end), page)
        for place, (first, end), page in zip(places, pairwise(rows), said, strict=True)
    ]
    return Stated(chunk, values, tuple(pages))
