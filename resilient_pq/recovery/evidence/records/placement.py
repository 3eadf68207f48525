"""Where the bytes of a file lie whose parts were swapped, repeated or left out, or that is in something else. Sans-io.

Every record names its own offset, and every page header is copied in the record of its row group. One that is found
elsewhere tells by how far the bytes around it were moved (a *mark*). Where two marks that follow one another were moved
differently, the border between the two pieces is in the page or the record that reaches from one into the other: it is
where its CRC32 comes to hold when the bytes before are taken from the one piece and the bytes behind from the other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32, unsigned
from resilient_pq.errors import FormatError
from resilient_pq.format import compact_protocol
from resilient_pq.format.pages.page import read_header
from resilient_pq.format.resilience_records import (
    HEADER_SIZE,
    ChunkCopies,
    RecordHeader,
    RecordKind,
    RowGroupRecord,
    parse_header,
)
from resilient_pq.recovery.evidence.byte_remap import ByteRemap, RemapSegment
from resilient_pq.recovery.evidence.records.crc_seam import BORDERS, find_seam
from resilient_pq.recovery.evidence.records.record_scan import outermost_file
from resilient_pq.units import KiB, MiB

#: Bytes that are read and looked through at a time.
_WINDOW: Final = 8 * MiB
#: Read for the header of a page.
_HEADER_WINDOW: Final = 16 * KiB
#: By so many of their first bytes the copies of page headers are looked up; none is shorter: type, sizes, a CRC32 and
#: what the type has for a header take 15 bytes at least.
_KEY_BYTES: Final = 12
#: How often records that could not be read are looked at again, when more is known of the pieces.
_ROUNDS: Final = 2
#: Metadata and pages larger than this are not read into memory, whatever their headers say.
_MAX_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class _Item:
    """Bytes with a CRC32 of their own: the body of a page, or the payload of a record.

    Attributes:
        offset: Where what it belongs to begins in the file as it was written.
        start: Where the bytes themselves begin.
        end: Where they end.
        crc: Their CRC32.
        head: The page header before them; empty for a record.
    """

    offset: int
    start: int
    end: int
    crc: int
    head: bytes = b""


@dataclass(frozen=True, slots=True)
class _Mark:
    """Bytes of which it is known where they lay and where they lie.

    Attributes:
        offset: In the file as it was written.
        end: Offset just after what was recognised, there.
        shift: What is added to have the place where they lie now.
    """

    offset: int
    end: int
    shift: int


def place(
    size: int,
    found: Iterable[tuple[int, RecordHeader]],
    file_id: bytes | None = None,
    *,
    search_pages: bool = False,
) -> Generator[ByteRange, memoryview, ByteRemap]:
    """Where the bytes of a file lie.

    Where all records were moved by the same distance nothing is read. Otherwise the bytes are read once or twice from
    front to back, for page headers, and pages around the borders of pieces besides.
    """
    everything = sorted(found, key=lambda place: place[0])
    wanted = file_id or outermost_file(everything)
    mine = [(at, header) for at, header in everything if header.file_id == wanted]
    if not mine:
        return ByteRemap(0, ())
    pieces = _Pieces(size, mine)
    if len(pieces.shifts) == 1 and not search_pages:
        return pieces.view([pieces.marks[0], pieces.marks[-1]], [])
    yield from pieces.read_records(_payloads_behind(size))
    view = yield from pieces.put_together()
    for _ in range(_ROUNDS):
        # The record of a row group may reach across a border: it is read again as it was put together.
        if not (yield from pieces.read_records(_payloads_in(view))):
            break
        view = yield from pieces.put_together()
    return view


def _bytes(size: int, start: int, length: int) -> Generator[ByteRange, memoryview, memoryview]:
    """So many bytes from a place, which may lie outside of what is at hand: zeros there."""
    first, last = min(max(start, 0), size), min(max(start + length, 0), size)
    data = memoryview(b"") if first >= last else (yield ByteRange(first, last))
    if len(data) == length:
        return data
    padded = bytearray(length)
    padded[first - start : first - start + len(data)] = data
    return memoryview(padded)


PayloadOf = Callable[[RecordHeader, int], Generator[ByteRange, memoryview, memoryview]]


def _payloads_behind(size: int) -> PayloadOf:
    """The payloads of records, right behind their headers."""
    return lambda header, at: _bytes(size, at + HEADER_SIZE, header.payload_size)


def _payloads_in(view: ByteRemap) -> PayloadOf:
    """The payloads of records, as a view has them."""

    def payload(header: RecordHeader, _: int) -> Generator[ByteRange, memoryview, memoryview]:
        return (yield from view.read(ByteRange(header.payload_offset, header.end)))

    return payload


@dataclass(slots=True)
class _Pieces:
    """What is known of the pieces of one file.

    Attributes:
        size: Bytes at hand.
        headers: The record headers of the file, and where they lie, in the order of these places.
        marks: What they tell, in the order of the file as it was written.
        shifts: How many records were moved by each distance.
        items: What can be held against a CRC32, by where it begins.
        tried: Row-group records whose payload was whole.
    """

    size: int
    headers: Sequence[tuple[int, RecordHeader]]
    marks: list[_Mark] = field(init=False)
    shifts: Counter[int] = field(init=False)
    items: dict[int, _Item] = field(init=False)
    tried: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.marks = sorted(
            (_Mark(header.offset, header.offset + HEADER_SIZE, at - header.offset) for at, header in self.headers),
            key=lambda mark: mark.offset,
        )
        self.shifts = Counter(mark.shift for mark in self.marks)
        self.items = {
            header.offset: _Item(header.offset, header.payload_offset, header.end, header.payload_crc)
            for _, header in self.headers
            if header.payload_size <= _MAX_BYTES
        }

    # -- what the records of row groups tell of pages ---------------------------------------------

    def read_records(self, payload_of: PayloadOf) -> Generator[ByteRange, memoryview, bool]:
        """Note the pages that row-group records name whose payloads are whole; whether there were any new ones."""
        found = False
        for at, header in self.headers:
            if header.kind != RecordKind.ROW_GROUP or header.offset in self.tried:
                continue
            if header.payload_size > min(_MAX_BYTES, self.size):
                continue
            payload = yield from payload_of(header, at)
            if header.holds(payload):
                self.tried.add(header.offset)
                self.items |= {item.offset: item for item in _pages(payload)}
                found = True
        return found

    # -- where page headers lie --------------------------------------------------------------------

    def _page_marks(self) -> Generator[ByteRange, memoryview, list[_Mark]]:
        """Read everything from front to back for the page headers that are known."""
        pages: dict[bytes, list[_Item]] = defaultdict(list)
        for item in self.items.values():
            if len(item.head) >= _KEY_BYTES:
                pages[item.head[:_KEY_BYTES]].append(item)
        if not pages:
            return []
        longest = max(len(item.head) for items in pages.values() for item in items)
        copies = [
            ByteRange(at, at + HEADER_SIZE + header.payload_size)
            for at, header in self.headers
            if header.kind == RecordKind.ROW_GROUP
        ]
        marks: list[_Mark] = []
        shift = 0
        for start in range(0, self.size, _WINDOW):
            end = min(start + _WINDOW, self.size)
            raw = bytes((yield ByteRange(start, min(end + longest - 1, self.size))))
            places = _header_places(raw, end - start)
            for at in _outside(places, start, copies):
                fitting = pages.get(raw[at : at + _KEY_BYTES], ())
                known = [item for item in fitting if raw.startswith(item.head, at)]
                # Pages that are alike have the same header: then it is the one that goes on with what is before it.
                chosen = [item for item in known if start + at - item.offset == shift] or known
                if len(chosen) == 1:
                    shift = start + at - chosen[0].offset
                    marks.append(_Mark(chosen[0].offset, chosen[0].start, shift))
        return marks

    def _is_whole(self, item: _Item, shift: int) -> Generator[ByteRange, memoryview, bool]:
        data = yield from self._read(item.start, item.end, shift)
        return crc32(data) == item.crc

    def _read(self, start: int, end: int, shift: int) -> Generator[ByteRange, memoryview, memoryview]:
        data = yield from _bytes(self.size, start + shift, end - start)
        return data

    # -- putting them together ---------------------------------------------------------------------

    def put_together(self) -> Generator[ByteRange, memoryview, ByteRemap]:
        """The view that all marks make."""
        marks = yield from self._chosen([*self.marks, *(yield from self._page_marks())])
        borders: list[tuple[int, int]] = []
        for mark, following in pairwise(marks):
            if mark.shift != following.shift:
                rivals = yield from self._rivals(mark, following)
                if rivals is None:
                    border = yield from self._border(mark, following)
                    rivals = border, border
                borders.append(rivals)
        return self.view(marks, borders)

    def _chosen(self, marks: list[_Mark]) -> Generator[ByteRange, memoryview, list[_Mark]]:
        """One mark for each offset: a whole one if there is, else one moved as records, and as most, were."""
        by_offset: dict[int, list[_Mark]] = defaultdict(list)
        for mark in marks:
            if mark.shift not in {other.shift for other in by_offset[mark.offset]}:
                by_offset[mark.offset].append(mark)
        usual = Counter(mark.shift for mark in marks)
        chosen: list[_Mark] = []
        end = 0
        for offset in sorted(by_offset):
            if offset < end:
                continue  # within what was recognised before it: not of this version of the file
            alike = sorted(by_offset[offset], key=lambda mark: (mark.shift not in self.shifts, -usual[mark.shift]))
            if len(alike) > 1 and offset in self.items:
                whole = []
                for mark in alike:
                    if (yield from self._is_whole(self.items[offset], mark.shift)):
                        whole.append(mark)
                alike = whole or alike
            chosen.append(alike[0])
            end = chosen[-1].end
        return chosen

    def view(self, marks: Sequence[_Mark], borders: Iterable[tuple[int, int]]) -> ByteRemap:
        """The segments between borders; the last ends with the file's final record, or where the bytes do."""
        segments: list[RemapSegment] = []
        places = iter(borders)
        start = max(0, -marks[0].shift)
        for mark, following in pairwise(marks):
            if mark.shift != following.shift:
                end, following_start = next(places)
                segments.append(RemapSegment(start, end, mark.shift))
                start = following_start
        last = marks[-1]
        segments.append(RemapSegment(start, self._last_end(last), last.shift))
        return ByteRemap(segments[-1].end, tuple(_within(segments, self.size)))

    def _last_end(self, last: _Mark) -> int:
        finals = [
            header
            for at, header in self.headers
            if header.kind == RecordKind.FINAL and at - header.offset == last.shift
        ]
        if finals and finals[-1].offset >= last.offset:
            return min(finals[-1].end, self.size - last.shift)
        behind = (at for at, header in self.headers if at >= last.end + last.shift)
        return min(behind, default=self.size) - last.shift

    # -- borders -----------------------------------------------------------------------------------

    def _rivals(self, before: _Mark, behind: _Mark) -> Generator[ByteRange, memoryview, tuple[int, int] | None]:
        """Where one piece ends and the next begins, where whole pages that no record has a copy of stand in both.

        Those are right that follow on each other up to the next record. Where all of them do, or none, nobody can tell:
        the bytes in between are in no piece.
        """
        at = next((item.end for item in (self.items.get(before.offset),) if item is not None), before.end)
        if at >= behind.offset or at in self.items:
            return None
        first = yield from self._item(at, before.shift)
        second = yield from self._item(at, behind.shift)
        if first is None or second is None:
            return None
        here = yield from self._read(first.offset, first.end, before.shift)
        there = yield from self._read(second.offset, second.end, behind.shift)
        alike = bytes(here) == bytes(there)
        rivals = crc32(here[first.start - at :]) == first.crc and crc32(there[second.start - at :]) == second.crc
        if alike or not rivals:
            return None
        reached = []
        for shift in (before.shift, behind.shift):
            reached.append((yield from self._chained(at, behind.offset, shift)) == behind.offset)
        match reached:
            case [False, True]:
                return at, at
            case [True, False]:
                return behind.offset, behind.offset
        return at, behind.offset

    def _chained(self, at: int, limit: int, shift: int) -> Generator[ByteRange, memoryview, int]:
        """Where pages end that follow on each other from an offset on, each with the CRC32 that its header has."""
        while at < limit:
            item = yield from self._item(at, shift)
            if item is None or item.end > limit or not (yield from self._is_whole(item, shift)):
                break
            at = item.end
        return at

    def _border(self, before: _Mark, behind: _Mark) -> Generator[ByteRange, memoryview, int]:
        """The offset from which on bytes lie where those of `behind` do, and no longer where those of `before` do."""
        shifts = before.shift, behind.shift
        least, most = before.end, behind.offset
        at = before.offset
        while at < behind.offset:
            item = yield from self._item(at, before.shift)
            if item is None or item.end > behind.offset:
                break
            first = yield from self._read(item.offset, item.end, before.shift)
            second = yield from self._read(item.offset, item.end, behind.shift)
            body = item.start - item.offset
            if crc32(first[body:]) == item.crc:
                least = at = item.end
                continue
            if crc32(second[body:]) == item.crc:
                cut = _cut_in_head(first, second, item.head)
                if cut is not None:
                    return at + cut
                most = at if second[:body] == item.head else item.start
                break
            cut = find_seam(first[body:], second[body:], item.crc, item.start, shifts)
            if cut is not None:
                return item.start + cut
            at = item.end
        cut = _cut_in_record(
            (yield from self._read(at, at + HEADER_SIZE, before.shift)),
            (yield from self._read(at, at + HEADER_SIZE, behind.shift)),
            at,
        )
        return _aligned(least, max(most, least), shifts) if cut is None else at + cut

    def _item(self, offset: int, shift: int) -> Generator[ByteRange, memoryview, _Item | None]:
        """What begins at an offset: as a record has it, or as the page header there says."""
        if offset in self.items:
            return self.items[offset]
        data = yield from self._read(offset, offset + _HEADER_WINDOW, shift)
        try:
            header, start = read_header(data, 0)
        except FormatError:
            return None
        if header.crc is None or header.compressed_page_size > _MAX_BYTES:
            return None
        end = offset + start + header.compressed_page_size
        return _Item(offset, offset + start, end, unsigned(header.crc))


def _pages(payload: memoryview) -> Iterator[_Item]:
    """The pages of a row group, by its record; of a chunk that contradicts itself only those before that."""
    try:
        record, _ = compact_protocol.decode(RowGroupRecord, payload)
    except FormatError:
        return
    for column, copies in zip(record.row_group.columns, record.chunks, strict=False):
        metadata = column.meta_data
        if metadata is not None:
            yield from _pages_of(metadata.dictionary_page_offset or metadata.data_page_offset, copies)


def _pages_of(offset: int, copies: ChunkCopies) -> Iterator[_Item]:
    headers = memoryview(copies.page_headers)
    at = 0
    while at < len(headers):
        try:
            header, end = read_header(headers, at)
        except FormatError:
            return
        start = offset + end - at
        if header.crc is None or header.compressed_page_size > _MAX_BYTES:
            return
        yield _Item(offset, start, start + header.compressed_page_size, unsigned(header.crc), bytes(headers[at:end]))
        offset, at = start + header.compressed_page_size, end


def _header_places(raw: bytes, end: int) -> list[int]:
    """Where a page header may begin before `end`: with its type, one of three, and two fields of the same kind."""
    data = np.frombuffer(raw, np.uint8)
    if len(data) < _KEY_BYTES:
        return []
    kinds = data[1:-1]
    shape = (data[:-2] == 0x15) & (data[2:] == 0x15) & ((kinds == 0) | (kinds == 4) | (kinds == 6))
    places: list[int] = np.flatnonzero(shape[:end]).tolist()
    return places


def _cut_in_head(first: memoryview, second: memoryview, head: bytes) -> int | None:
    """How much of a page header lies in the first piece, where the rest lies in the second; None for all or nothing."""
    for cut in range(1, len(head)):
        if first[:cut] == head[:cut] and second[cut : len(head)] == head[cut:]:
            return cut
    return None


def _cut_in_record(first: memoryview, second: memoryview, offset: int) -> int | None:
    """The same of the header of a record that stands at `offset`."""
    for cut in range(1, HEADER_SIZE):
        header = parse_header(bytes(first[:cut]) + bytes(second[cut:]))
        if header is not None and header.offset == offset:
            return cut
    return None


def _outside(places: Sequence[int], base: int, copies: Sequence[ByteRange]) -> Iterator[int]:
    """Those that do not lie in records of row groups, which have copies of page headers; both are in order."""
    following = 0
    for place in places:
        while following < len(copies) and copies[following].end <= base + place:
            following += 1
        if following == len(copies) or base + place < copies[following].start:
            yield place


def _aligned(least: int, most: int, shifts: tuple[int, int]) -> int:
    """The offset from `least` to `most` that a border is likeliest at."""
    for size in BORDERS:
        for shift in (*shifts, 0):
            at = least + -(least + shift) % size
            if at <= most:
                return at
    return most


def _within(segments: Sequence[RemapSegment], size: int) -> Iterator[RemapSegment]:
    """The segments without what would lie outside of the bytes at hand; neighbours that go on put together."""
    held: RemapSegment | None = None
    for segment in segments:
        start, end = max(segment.start, -segment.shift), min(segment.end, size - segment.shift)
        if start >= end:
            continue
        if held is not None and (held.end, held.shift) == (start, segment.shift):
            held = RemapSegment(held.start, end, held.shift)
            continue
        if held is not None:
            yield held
        held = RemapSegment(start, end, segment.shift)
    if held is not None:
        yield held
