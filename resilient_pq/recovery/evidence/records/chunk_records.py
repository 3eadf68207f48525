"""Row groups that only the records before their chunks name. Sans-io.

The writer died before it wrote the record of the row group, or that record is damaged. Before each chunk lies a record
that names it, and behind it the headers of its pages lead from one to the next. Only these are read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Generator, Sequence
from dataclasses import field, replace
from typing import Any, Final

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32, unsigned
from resilient_pq.errors import FormatError
from resilient_pq.format.file_metadata import PageType
from resilient_pq.format.indexes import split_block_filter
from resilient_pq.format.pages.page import read_header
from resilient_pq.format.quirks import NO_QUIRKS, Quirks
from resilient_pq.format.resilience_records import (
    CHUNK_RECORD_SIZE,
    FILE_ID_SIZE,
    FOOTER_KINDS,
    HEADER_SIZE,
    ChunkPlace,
    RecordHeader,
    RecordKind,
)
from resilient_pq.format.schema_tree import Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup
from resilient_pq.recovery.evidence.records.recorded_chunks import (
    DATA_PAGES,
    ChainedPage,
    RecordedChunk,
    describe_row_group,
)
from resilient_pq.units import KiB

_PLACE_SIZE: Final = CHUNK_RECORD_SIZE - HEADER_SIZE
#: Where the header of a record has its offset: behind the file id.
_OFFSET_AT: Final = 32
#: Where it has its epoch: before the file id.
_EPOCH_AT: Final = _OFFSET_AT - FILE_ID_SIZE - 4
#: Read where a page header begins: most take less than a hundred bytes, and small pages follow in it.
_WINDOW: Final = 16 * KiB
#: Read where that was not enough: bounds of long strings stand in page headers of some writers.
_LARGE_WINDOW: Final = 1024 * KiB
#: Bodies that are larger are not read to make sure of a header; parquet-format has 31 bits for their size.
_LARGEST_BODY: Final = 1 << 30
#: So many bytes of a destroyed record have to be as they were, zeros not counted, for it to be one.
_REMAINS: Final = 16

Reading = Generator[ByteRange, memoryview, Any]


def find_row_groups(
    size: int,
    schema: Schema,
    headers: Sequence[RecordHeader],
    known: Collection[int],
    *,
    strangers: Sequence[int] = (),
    moved: bool = False,
    quirks: Quirks = NO_QUIRKS,
) -> Generator[ByteRange, memoryview, tuple[LocatedRowGroup, ...]]:
    """The row groups, with `known` ordinals left out, that only the records of their chunks name.

    A chunk whose own record is destroyed is found where it follows another. Pages behind a destroyed page header are
    not listed; they belong to the chunk as far as its range goes. `strangers` are offsets of records of other files, or
    that were moved: pages near them, or near any record of a file with moved parts, count only where they fill a chunk
    to the next record.
    """
    places: dict[int, ChunkPlace] = {}
    for header in headers:
        if header.kind == RecordKind.CHUNK and header.num_row_groups not in known:
            place = yield from _place(header, size)
            if place is not None and place.column < len(schema.leaves):
                places[header.number] = place
    window = _Window(size)
    found: list[RecordedChunk] = []
    for i, header in enumerate(headers):
        following = headers[i + 1] if i + 1 < len(headers) else None
        if header.num_row_groups not in known:
            end = size if following is None else following.offset
            strange = bisect_left(strangers, header.offset) < bisect_left(strangers, end)
            strange = strange or (moved and following is not None)
            region = _Region(header, following, size, places, window, strange)
            found += yield from region.chunks(len(schema.leaves))
    groups = _by_row_group(found)
    return tuple(describe_row_group(ordinal, groups[ordinal], headers, schema, quirks) for ordinal in sorted(groups))


def _by_row_group(found: Sequence[RecordedChunk]) -> dict[int, list[RecordedChunk]]:
    """Chunks by the ordinals of their row groups, which a later writer begins anew: of each those of the last one."""
    groups: dict[int, list[RecordedChunk]] = {}
    for chunk in sorted(found, key=lambda chunk: -chunk.record.epoch):
        group = groups.setdefault(chunk.record.num_row_groups, [])
        if not group or group[0].record.epoch == chunk.record.epoch:
            group.append(chunk)
    return groups


def _place(header: RecordHeader, size: int) -> Generator[ByteRange, memoryview, ChunkPlace | None]:
    """The payload of a chunk record, if it is whole and agrees with the header."""
    if header.payload_size != _PLACE_SIZE or header.end > size:
        return None
    payload = yield ByteRange(header.payload_offset, header.end)
    if not header.holds(payload):
        return None
    place = ChunkPlace.unpack(payload)
    agrees = place.row_group == header.num_row_groups and place.first_row == header.num_rows
    return place if agrees else None


def _tells_of_another(there: memoryview, mine: ChunkPlace) -> bool:
    """Whether the payload of a destroyed record is left, and names another chunk than `mine`; one bit may be wrong."""
    payload = bytes(there[HEADER_SIZE:CHUNK_RECORD_SIZE])
    if len(payload) < _PLACE_SIZE or not any(payload):
        return False
    left = ChunkPlace.unpack(payload)
    if max(left.row_group, left.column, left.codec) >= 1 << 16 or left.first_row >= 1 << 40:
        return False  # something was written over it
    stated, found = (replace(place, codec=0).pack() for place in (mine, left))
    return sum((one ^ other).bit_count() for one, other in zip(stated, found, strict=True)) > 1


@dataclass(slots=True)
class _Window:
    """Bytes around the offset that is examined."""

    size: int
    start: int = 0
    data: memoryview = field(default_factory=lambda: memoryview(b""))

    def read(self, start: int, end: int, least: int) -> Generator[ByteRange, memoryview, memoryview]:
        """The bytes from `start` to `end` at most, and at least so many of them as there are."""
        if start < self.start or min(start + least, end) > self.start + len(self.data):
            self.data = yield ByteRange(start, min(start + max(least, _WINDOW), self.size))
            self.start = start
        return self.data[start - self.start : end - self.start]


@dataclass(slots=True)
class _Region:
    """The bytes between two records that were found."""

    header: RecordHeader  # Of the first record
    following: RecordHeader | None  # Of the next; None where the file ends
    size: int  # Bytes of the file
    places: dict[int, ChunkPlace]  # What whole chunk records say, by their number
    window: _Window  # What is read through
    strange: bool = False  # Whether a record of another file lies in between, or one that says that it lies elsewhere

    @property
    def limit(self) -> int:
        return self.size if self.following is None else self.following.offset

    def chunks(self, num_columns: int) -> Generator[ByteRange, memoryview, list[RecordedChunk]]:
        """The chunk behind the record, if it is that of one, and those whose records are destroyed."""
        found: list[RecordedChunk] = []
        column = self._first_column(num_columns)
        if column is None:
            return found
        record, at, codec = self.header, self.header.end, self._codec()
        while True:
            if column >= 0:
                chunk = yield from self._chunk(record, column, codec, at)
                if self.strange and not chunk.complete:
                    return found
                found.append(chunk)
                if not chunk.pages:
                    return found
                at = chunk.pages[-1].end
            column += 1
            destroyed = yield from self._destroyed(record, at, column, codec or 0)
            if destroyed is None:
                if found:
                    found[-1].unproven = yield from self._is_unproven(record, at, column)
                return found
            if column >= num_columns:
                return found
            if found:
                found[-1].end, found[-1].complete = at, True
            record, codec, at = destroyed, None, destroyed.end

    def _first_column(self, num_columns: int) -> int | None:
        """The column of the chunk behind the record; -1 where that begins a row group, None where there is no chunk."""
        if self.header.kind == RecordKind.FINAL:
            return None
        if self.header.kind != RecordKind.CHUNK:
            return -1
        column = self._column()
        return None if column is None or column >= num_columns else column

    def _is_unproven(self, record: RecordHeader, at: int, column: int) -> Generator[ByteRange, memoryview, bool]:
        """Whether neither a record nor the bytes behind the pages of the last chunk prove them."""
        there = yield from self.window.read(at, self.limit, CHUNK_RECORD_SIZE)
        if _tells_of_another(there, ChunkPlace(record.num_row_groups, column, record.num_rows, 0)):
            return True
        return self.following is None and (yield from self._ends_oddly(at))

    def _column(self) -> int | None:
        """The column of the chunk, which one whole record gives for all chunks of a row group."""
        own = self.places.get(self.header.number)
        if own is not None:
            return own.column
        for number, place in self.places.items():
            column = self.header.number - number + place.column
            if place.row_group == self.header.num_row_groups and column >= 0:
                return column
        return None

    def _codec(self) -> int | None:
        own = self.places.get(self.header.number)
        return None if own is None else own.codec

    def _missing(self, record: RecordHeader) -> int | None:
        """How many records must have been between this one and the next that was found; None where that is unknown."""
        return None if self.following is None else self.following.number - record.number - 1

    def _chunk(
        self, record: RecordHeader, column: int, codec: int | None, start: int
    ) -> Generator[ByteRange, memoryview, RecordedChunk]:
        pages = yield from self._chain(start)
        at = pages[-1].end if pages else start
        follows = self._missing(record) == 0
        closed = follows and self.following is not None and self.following.previous == record.offset
        ends = closed and (at == self.limit or (yield from self._begins_filter(at)))
        if pages and (ends or (yield from self._begins_torn_record(at))):
            return RecordedChunk(record, column, codec, start, at, pages, complete=True)
        # Where a destroyed record may stand in between, what follows may be another column's pages, or pages of rows
        # that nobody can count. One byte, in which no page can be found, says that there is more.
        end = self.limit if closed else min(at + 1, self.limit)
        return RecordedChunk(record, column, codec, start, end, pages, complete=False)

    def _ends_oddly(self, at: int) -> Generator[ByteRange, memoryview, bool]:
        """Whether the pages of a chunk end before bytes that belong neither to a page nor to a record in its place.

        A page of another size that was written over one leaves such bytes: then nothing proves the pages before it.
        """
        data = bytes((yield from self.window.read(at, self.limit, min(2 * HEADER_SIZE, self.limit - at))))
        if len(data) < 2 * HEADER_SIZE or not any(data[:_REMAINS]):
            return False
        if (place := data.find(self.header.file_id) + FILE_ID_SIZE) >= FILE_ID_SIZE:
            stated = int.from_bytes(data[place : place + 8], "little")
            # What is left of a record; one bit may be wrong, and what is no offset was written over.
            is_offset = 0 < stated < 2 * self.size and place + 8 <= len(data)
            return is_offset and (stated ^ (at + place - _OFFSET_AT)).bit_count() > 1
        try:
            read_header(memoryview(data), 0)
        except FormatError:
            return not (yield from self._begins_filter(at))
        return False

    def _begins_torn_record(self, at: int) -> Generator[ByteRange, memoryview, bool]:
        """Whether the file ends within a record of the same writer that begins at `at`, and says so."""
        there = yield from self.window.read(at, self.limit, min(HEADER_SIZE, self.limit - at))
        stated = self.header.epoch.to_bytes(4, "little") + self.header.file_id + at.to_bytes(8, "little")
        return self.following is None and there[_EPOCH_AT : _OFFSET_AT + 8] == stated

    def _begins_filter(self, at: int) -> Generator[ByteRange, memoryview, bool]:
        """Whether a bloom filter begins at `at`, as between the last chunk of a row group and its record."""
        data = yield from self.window.read(at, self.limit, min(256, self.limit - at))
        try:
            header, bits = split_block_filter.header_size(data)
        except FormatError:
            return False
        return bits >= 0 and at + header + bits <= self.limit

    def _chain(self, start: int) -> Generator[ByteRange, memoryview, list[ChainedPage]]:
        """The pages that lead from one to the next; a record behind the last one, or its CRC32, proves it."""
        pages: list[ChainedPage] = []
        at = start
        while at < self.limit:
            page = yield from self._page(at)
            if page is None:
                break
            pages.append(page)
            at = page.end
        if at == self.limit and self.following is not None:
            return pages
        while pages and not (yield from self._holds(pages[-1])):
            pages.pop()
        return pages

    def _page(self, at: int) -> Generator[ByteRange, memoryview, ChainedPage | None]:
        """The page whose header lies at `at`; None where there is none, or it goes beyond the region."""
        for least in (min(256, self.limit - at), _LARGE_WINDOW):
            data = yield from self.window.read(at, self.limit, least)
            try:
                header, body = read_header(data, 0)
            except FormatError:
                continue
            end = at + body + header.compressed_page_size
            fits = end <= self.limit and header.type in (*DATA_PAGES, PageType.DICTIONARY_PAGE)
            return ChainedPage(at, at + body, end, header) if fits else None
        return None

    def _holds(self, page: ChainedPage) -> Generator[ByteRange, memoryview, bool]:
        if page.header.crc is None or page.end - page.body > _LARGEST_BODY:
            return False
        body = memoryview(b"") if page.body == page.end else (yield ByteRange(page.body, page.end))
        return crc32(body) == unsigned(page.header.crc)

    def _destroyed(
        self, record: RecordHeader, at: int, column: int, codec: int
    ) -> Generator[ByteRange, memoryview, RecordHeader | None]:
        """The header of the destroyed chunk record at `at`, behind `record`; None where there cannot have been one.

        Pages have to follow it, and either some of its bytes are left, or the number of the next record shows that one
        is missing.
        """
        missing = self._missing(record)
        if missing == 0 or at + CHUNK_RECORD_SIZE >= self.limit:
            return None
        mine = ChunkPlace(record.num_row_groups, column, record.num_rows, codec)
        place = mine.pack()
        expected = record.before(
            place,
            kind=int(RecordKind.CHUNK),
            offset=at,
            previous=record.offset,
            newest_footer=record.offset if record.kind in FOOTER_KINDS else record.newest_footer,
            number=record.number + 1,
        )
        there = yield from self.window.read(at, self.limit, CHUNK_RECORD_SIZE)
        pairs = zip(expected.pack() + place, there, strict=False)
        remains = sum(wanted == found and wanted != 0 for wanted, found in pairs)
        if (missing is None and remains < _REMAINS) or _tells_of_another(there, mine):
            return None
        return expected if (yield from self._chain(expected.end)) else None
