"""Bytes of column chunks in, columns out, every checksum on the way compared. Sans-io."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import ChecksumError, EncodingError, FormatError, Where, located
from resilient_pq.format.file_metadata import ColumnMetaData, DataPageHeaderV2, Encoding, PageType
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.pages.chunk_decoder import decode_chunk
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page import Page, check_crc, pages_of
from resilient_pq.format.pages.page_sums import PageSums
from resilient_pq.format.pages.page_table import DATA_PAGES, PageTable, check_crcs, check_end
from resilient_pq.format.pages.selected_pages import PageRead, SelectedPages
from resilient_pq.format.physical_values import ByteLayout, LeafColumn
from resilient_pq.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from resilient_pq.damage.lost_region import LostRegion
    from resilient_pq.reader.read_plan import RowGroupRead

_DICTIONARY: Final = frozenset({int(Encoding.PLAIN_DICTIONARY), int(Encoding.RLE_DICTIONARY)})


@dataclass(frozen=True, slots=True)
class DamagedChunk:
    """A chunk whose checksums do not hold, or that does not decode."""

    chunk: ChunkRead  # Which one
    data: memoryview  # Its bytes, as they were read last
    error: FormatError  # What is wrong with them


@dataclass(frozen=True, slots=True)
class DecodedRowGroup:
    """Rows of a row group."""

    read: RowGroupRead  # What was asked for
    columns: Mapping[int, LeafColumn]  # By the ordinal of each leaf, its rows
    num_rows: int  # How many these are; fewer than the row group has where some are left out
    lost: tuple[LostRegion, ...] = ()  # What of it is lost, in the order of the bytes


@dataclass(frozen=True, slots=True)
class RowGroupArrays:
    """Rows of a row group."""

    arrays: list[Any]  # One per top-level column asked for, nanoarrow's
    num_rows: int  # How many rows these are; fewer than the row group has where some are left out
    lost: tuple[LostRegion, ...] = ()  # What of it is lost, in the order of the bytes


def decode(chunk: ChunkRead, data: memoryview, *, verify: bool, layout: ByteLayout = ByteLayout.ARRAYS) -> LeafColumn:
    """The column of all bytes of a chunk; byte arrays come in a `layout`."""
    with located(chunk):
        table = _compare(chunk, data)[1] if verify else None
        if table is None:
            table = PageTable.read(data, chunk.range.start, chunk.num_values_to_read)
        codec = chunk.metadata.codec
        column = decode_chunk(chunk.leaf, codec, table, chunk.num_rows, chunk.quirks, layout=layout)
        levels = column.repetition_levels
        if levels is not None and len(levels) and levels[0]:
            raise EncodingError(f"the first repetition level is {levels[0]}, not 0")
        return column


def verify_chunk(chunk: ChunkRead, data: memoryview) -> bool:
    """Compare the checksums that cover a chunk; gives whether one covers every byte."""
    return _compare(chunk, data)[0]


def _compare(chunk: ChunkRead, data: memoryview) -> tuple[bool, PageTable | None]:
    """The result of `verify_chunk`, and the pages where these had to be separated for it."""
    # A checksum over the whole chunk, headers included, makes those of its pages needless. Where there is none, or it
    # does not hold, the pages' own show which of them is damaged.
    sums = ChunkSums.of(chunk.metadata)
    stored = None if sums is None else sums.of_chunk
    computed = None if sums is None or stored is None else sums.computed(data)
    if stored is not None and stored == computed:
        return True, None
    zero_is_none = chunk.quirks.zero_crc_is_none
    table = check_crcs(data, chunk.range.start, chunk.num_values_to_read, zero_is_none=zero_is_none)
    if sums is not None and stored is not None and computed is not None:
        name = "CRC32" if sums.xxh3 is None else "xxh3"
        raise ChecksumError(
            f"column chunk {name} does not match, though the CRC32s of its pages do: a header was changed, or pages"
            " were exchanged",
            stored=stored,
            computed=computed,
        )
    if chunk.range.size == chunk.metadata.total_compressed_size:  # else it is read beyond a size that is too small
        check_end(table)
    return False, table


# --- some of the pages --------------------------------------------------------------------------------------------


def decode_parts(
    chunk: ChunkRead, parts: Sequence[memoryview], *, verify: bool, layout: ByteLayout = ByteLayout.ARRAYS
) -> LeafColumn:
    """The column of the bytes of a chunk's `ranges`; its rows are those of the pages that were read."""
    if chunk.pages is None:
        return decode(chunk, parts[0], verify=verify, layout=layout)
    with located(chunk):
        return _decode_pages(chunk, chunk.pages, parts, verify=verify, layout=layout)


def _decode_pages(
    chunk: ChunkRead, selected: SelectedPages, parts: Sequence[memoryview], *, verify: bool, layout: ByteLayout
) -> LeafColumn:
    found = [page for place, data in zip(selected.ranges, parts, strict=True) for page in pages_of(data, place.start)]
    expected = list(selected.pages)
    pages: list[Page] = []
    if selected.dictionary is not None:
        pages.append(_dictionary_page(found[:1], selected.dictionary))
        found = found[1:]
    if len(found) != len(expected):
        raise FormatError(f"there are {len(found)} pages where the index has {len(expected)}")
    for page, place in zip(found, expected, strict=True):
        pages.append(_data_page(chunk, page, place))
    if verify:
        for page in pages:
            _check_page(page, selected.sums, zero_is_none=chunk.quirks.zero_crc_is_none)
    num_rows = sum(len(place.rows) for place in expected)
    table = PageTable.of(pages)
    column = decode_chunk(chunk.leaf, chunk.metadata.codec, table, num_rows, chunk.quirks, layout=layout)
    if column.repetition_levels is not None:
        _check_rows(column, [page.num_values for page in pages if page.data_header is not None], expected)
    return column


def _check_page(page: Page, sums: PageSums | None, *, zero_is_none: bool) -> None:
    """Compare a page with the sum that the index has for its place; without one, its body with that in its header."""
    if sums is None:
        check_crc(page, zero_is_none=zero_is_none)
        return
    expected = sums[page.ordinal]
    computed = expected.computed(page.header_bytes, page.body)
    if computed != expected.value:
        raise ChecksumError(
            "page is not the one whose sum the index has",
            stored=expected.value,
            computed=computed,
            where=Where(page=page.ordinal, offset=page.offset),
        )


def _dictionary_page(found: Sequence[Page], place: ByteRange) -> Page:
    if not found or found[0].header.type != PageType.DICTIONARY_PAGE or found[0].end != place.end:
        raise FormatError("there is no dictionary page before the data pages", where=Where(offset=place.start))
    return found[0]


def _data_page(chunk: ChunkRead, page: Page, place: PageRead) -> Page:
    where = Where(page=place.ordinal, offset=place.bytes.start)
    header = page.data_header
    if header is None or (page.offset, page.end) != (place.bytes.start, place.bytes.end):
        raise FormatError("the page is not the one that the index has", where=where)
    counts = [] if chunk.leaf.max_repetition_level else [header.num_values]
    if isinstance(header, DataPageHeaderV2):
        counts.append(header.num_rows)
    if any(count != len(place.rows) for count in counts):
        raise FormatError(f"the page has {counts[0]:,} rows, where the index has {len(place.rows):,}", where=where)
    if not _was_written(chunk.metadata, header.encoding):
        raise FormatError(f"the page's encoding, {header.encoding}, is none that the footer has", where=where)
    return replace(page, ordinal=place.ordinal)


def _was_written(metadata: ColumnMetaData, encoding: int) -> bool:
    """Whether the footer says that data pages are encoded so: no checksum of a page covers its header."""
    stats = metadata.encoding_stats
    known = {each.encoding for each in stats if each.page_type in DATA_PAGES} if stats else {*metadata.encodings}
    # Two names of the same encoding; writers do not always give the same one in both places.
    return bool(known & _DICTIONARY) if encoding in _DICTIONARY else encoding in known


def _check_rows(column: LeafColumn, entries: Sequence[int], expected: Sequence[PageRead]) -> None:
    """Whether each page begins with a row, and has as many as the index says."""
    repetition = column.repetition_levels
    assert repetition is not None
    borders = np.cumsum([0, *entries])
    for (start, end), place in zip(pairwise(borders.tolist()), expected, strict=True):
        begins = start < end and repetition[start] == 0
        num_rows = int(np.count_nonzero(repetition[start:end] == 0))
        if not begins or num_rows != len(place.rows):
            raise FormatError(
                f"the page has {num_rows:,} rows, where the index has {len(place.rows):,}",
                where=Where(page=place.ordinal, offset=place.bytes.start),
            )
