"""Hints about the pages of a chunk from outside of it: from records, from indexes, and from carving. Pure."""

from __future__ import annotations

from dataclasses import replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32, unsigned
from resilient_pq.errors import FormatError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import ColumnMetaData, OffsetIndex
from resilient_pq.format.footer import RECORD_KEY, ChunkSums, key_values
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page import read_header
from resilient_pq.format.pages.page_sums import PageSum, PageSums, needs_hashes
from resilient_pq.format.resilience_records import HEADER_SIZE, ChunkCopies, RecordKind, RowGroupRecord, parse_header
from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PageHint:
    """A page, as something outside of it describes it."""

    offset: int  # Absolute offset of its header
    size: int  # Bytes of header and body together
    # Its header's bytes as written, from a copy that a checksum vouches for; None where there is no copy
    header: bytes | None = None
    body: bytes | None = None  # Its body as stored, from such a copy; None where there is none
    # The row of the row group that it begins with; None for a dictionary page, or where it is not known
    first_row: int | None = None
    sum: PageSum | None = None  # Of header and body, where one is known besides what the header says

    @property
    def end(self) -> int:
        """Absolute offset just after the page."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class PageHints:
    """The pages of a chunk, in order."""

    pages: tuple[PageHint, ...]  # They do not overlap
    complete: bool  # Whether these are all pages of the chunk; otherwise others may lie between and behind them
    summed: bool = False  # Whether there is a copy of the header of each of them, with the CRC32 of its body
    begins: bool = True  # Whether the first of them is the first of the chunk; otherwise others may have been before it
    ends: bool = True  # Whether nothing of the chunk is behind the last of them; otherwise others may have been there
    unproven: bool = False  # Whether nothing proves that the pages at these places are of the chunk
    searched: bool = False  # Whether whole pages that lie between them are known to be of something else
    counted: bool = False  # Whether rows are counted by the headers of the pages themselves, which nothing vouches for

    def tell_apart(self, codec: int) -> bool:
        """Whether these are pages that no others, compressed with a codec, can be taken for."""
        return self.summed and (not needs_hashes(codec) or all(page.sum is not None for page in self.pages))

    @classmethod
    def of_index(cls, index: OffsetIndex, sums: PageSums | None = None) -> PageHints:
        """The data pages of an OffsetIndex, which does not name the dictionary page before them."""
        pages = _in_order(index)
        dictionaries = -1 if sums is None else len(sums) - len(pages)
        if sums is not None and dictionaries in (0, 1):
            pages = tuple(replace(page, sum=sums[i + dictionaries]) for i, page in enumerate(pages))
        return cls(pages, complete=False)

    @classmethod
    def of_copies(cls, copies: ChunkCopies, start: int) -> PageHints:
        """The pages of a chunk, which begins at `start`, from the record of its row group."""
        indexed = () if copies.offset_index is None else _in_order(copies.offset_index)
        rows = {page.offset: page.first_row for page in indexed}
        pages: list[PageHint] = []
        headers, at, offset, summed = memoryview(copies.page_headers), 0, start, True
        while at < len(headers):
            header, end = read_header(headers, at)
            size = end - at + header.compressed_page_size
            is_dictionary = copies.dictionary_page is not None and copies.dictionary_page.offset == offset
            body = copies.dictionary_copy if is_dictionary else None
            pages.append(PageHint(offset, size, bytes(headers[at:end]), body, rows.get(offset)))
            at, offset, summed = end, offset + size, summed and header.crc is not None
        if rows and sum(page.first_row is not None for page in pages) != len(rows):
            raise FormatError("the record of a row group has other pages in its index than headers")
        if copies.page_hashes is not None:
            if len(copies.page_hashes) != len(pages):
                raise FormatError("the record of a row group has hashes of other pages than headers")
            hashes = [PageSum(unsigned(value, 64), is_hash=True) for value in copies.page_hashes]
            pages = [replace(page, sum=each) for page, each in zip(pages, hashes, strict=True)]
        return cls(tuple(pages), complete=True, summed=summed)


def _in_order(index: OffsetIndex) -> tuple[PageHint, ...]:
    """The pages of an index; a FormatError where they overlap."""
    pages, end, row = [], 0, 0
    for place in index.page_locations:
        if place.offset < end or place.compressed_page_size <= 0 or place.first_row_index < row:
            raise FormatError("the pages of an index overlap or are out of order")
        pages.append(PageHint(place.offset, place.compressed_page_size, first_row=place.first_row_index))
        end, row = pages[-1].end, place.first_row_index
    return tuple(pages)


# -- where they are described ----------------------------------------------------------------------


def record_place(metadata: ColumnMetaData) -> ByteRange | None:
    """Where the record of a row group lies, by its first chunk; None where that does not say, or not rightly."""
    text = key_values(metadata.key_value_metadata).get(RECORD_KEY) or ""
    offset, _, size = text.partition(":")
    if not (offset.isdecimal() and size.isdecimal()):
        return None
    return ByteRange(int(offset), int(offset) + int(size))


def record_of_row_group(data: memoryview, place: ByteRange) -> RowGroupRecord | None:
    """The record of a row group; None where its bytes are damaged, or those of something else."""
    header, payload = parse_header(data), data[HEADER_SIZE:]
    if header is None or header.kind != RecordKind.ROW_GROUP or header.offset != place.start:
        return None
    if not header.holds(payload):
        return None
    try:
        record, _ = compact_protocol.decode(RowGroupRecord, payload)
    except FormatError:
        return None
    return record


def pages_by_record(record: RowGroupRecord, chunk: ChunkRead) -> PageHints | None:
    """The hints that the record of a row group has for a chunk; None where it contradicts itself, or the footer."""
    copies = record.chunks[chunk.leaf.ordinal]
    try:
        sums = ChunkSums.of(chunk.metadata)
        if sums is not None and sums.chunk not in (None, unsigned(copies.crc32)):
            return None  # the record is of another file, or of a version of this one that went on otherwise
        return PageHints.of_copies(copies, chunk.range.start)
    except FormatError:
        return None


def pages_by_index(data: memoryview, chunk: ChunkRead) -> PageHints | None:
    """The hints that a stored OffsetIndex has for a chunk; None where it is damaged, or has none."""
    sums = ChunkSums.of(chunk.metadata)
    if sums is not None and sums.offset_index not in (None, crc32(data)):
        return None
    try:
        known = PageHints.of_index(compact_protocol.decode(OffsetIndex, data)[0], PageSums.of_index(data))
    except FormatError:
        return None
    inside = chunk.range
    if known.pages and inside.start <= known.pages[0].offset and known.pages[-1].end <= inside.end:
        return known
    return None
