"""Where the parts of a file lie that were swapped, repeated or left out, or of a file within other bytes. Sans-io.

Each record has its own offset, and each page header is copied in the record of its row group. One that is found
elsewhere shows how far the bytes around it were moved (a *mark*). Between two marks that were moved differently, the
border lies in the page or record whose CRC32 holds when its first bytes are taken from one part and the others from the
other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from operator import itemgetter
from typing import Final

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format.resilience_records import HEADER_SIZE, BytesBehind, RecordHeader, RecordKind, has_span
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.evidence.byte_remap import ByteRemap, RemapSegment
from resilient_pq.recovery.evidence.records.moved_marks import (
    KEY_BYTES,
    MAX_BYTES,
    ChecksummedBytes,
    Mark,
    copied_pages,
    find_header_places,
    outside,
    read_bytes,
)
from resilient_pq.recovery.evidence.records.piece_borders import PieceBorders
from resilient_pq.recovery.evidence.records.record_scan import drop_overwritten, outermost_file
from resilient_pq.units import MiB

#: Bytes that are read and looked through at a time.
_WINDOW: Final = 8 * MiB
#: How often records that could not be read are looked at again, when more is known of the pieces.
_ROUNDS: Final = 2


def place(
    size: int, found: Iterable[tuple[int, RecordHeader]], file_id: bytes | None = None, *, search_pages: bool = False
) -> Generator[ByteRange, memoryview, ByteRemap]:
    """Where the bytes of a file lie; parts of whose place nothing is known may be in the wrong one.

    Where all records were moved by the same distance nothing is read, unless parts without a record may have been moved
    and `search_pages` asks for them. Otherwise all bytes are read once or twice for page headers.
    """
    everything = sorted(found, key=lambda place: place[0])
    wanted = file_id or outermost_file(everything)
    mine = [(at, header) for at, header in everything if header.file_id == wanted]
    if not mine:
        return ByteRemap(0, ())
    pieces = _Pieces(size, mine, sorted(drop_overwritten(mine), key=itemgetter(0)))
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


PayloadOf = Callable[[RecordHeader, int], Generator[ByteRange, memoryview, memoryview]]


def _payloads_behind(size: int) -> PayloadOf:
    """The payloads that lie directly behind the headers of records."""
    return lambda header, at: read_bytes(size, at + HEADER_SIZE, header.payload_size)


def _payloads_in(view: ByteRemap) -> PayloadOf:
    """The payloads of records, read through a remap."""

    def payload(header: RecordHeader, _: int) -> Generator[ByteRange, memoryview, memoryview]:
        return (yield from view.read(ByteRange(header.payload_offset, header.end)))

    return payload


@dataclass(slots=True)
class _Pieces:
    """The parts of one file."""

    size: int  # Bytes at hand
    # The record headers of the file, and where they lie, in the order of these places: all, and those to go by
    found: Sequence[tuple[int, RecordHeader]]
    headers: Sequence[tuple[int, RecordHeader]]
    marks: list[Mark] = field(init=False)  # What they tell, in the order of the file as it was written
    shifts: Counter[int] = field(init=False)  # How many records were moved by each distance
    items: dict[int, ChecksummedBytes] = field(init=False)  # What can be held against a CRC32, by where it begins
    tried: set[int] = field(default_factory=set)  # Row-group records whose payload was whole

    def __post_init__(self) -> None:
        self.marks = sorted(
            (Mark(header.offset, header.offset + HEADER_SIZE, at - header.offset) for at, header in self.headers),
            key=lambda mark: mark.offset,
        )
        self.shifts = Counter(mark.shift for mark in self.marks)
        self.items = {
            header.offset: ChecksummedBytes(header.offset, header.payload_offset, header.end, header.payload_crc)
            for _, header in self.headers
            if header.payload_size <= MAX_BYTES
        }

    @property
    def _borders(self) -> PieceBorders:
        return PieceBorders(self.size, self.items)

    # -- what the records of row groups tell of pages ---------------------------------------------

    def read_records(self, payload_of: PayloadOf) -> Generator[ByteRange, memoryview, bool]:
        """Note the pages that whole records of row groups name, and sealed chunks; whether there are new ones."""
        found = False
        for at, header in self.headers:
            if not (header.kind == RecordKind.ROW_GROUP or has_span(header)) or header.offset in self.tried:
                continue
            if header.payload_size > min(MAX_BYTES, self.size):
                continue
            payload = yield from payload_of(header, at)
            if header.holds(payload):
                self.tried.add(header.offset)
                self.items |= {item.offset: item for item in _named_bytes(header, payload)}
                found = True
        return found

    # -- where page headers lie --------------------------------------------------------------------

    def _page_marks(self) -> Generator[ByteRange, memoryview, list[Mark]]:
        """Read all bytes from front to back for page headers that are known."""
        pages: dict[bytes, list[ChecksummedBytes]] = defaultdict(list)
        for item in self.items.values():
            if len(item.head) >= KEY_BYTES:
                pages[item.head[:KEY_BYTES]].append(item)
        if not pages:
            return []
        longest = max(len(item.head) for items in pages.values() for item in items)
        copies = [
            ByteRange(at, at + HEADER_SIZE + header.payload_size)
            for at, header in self.headers
            if header.kind == RecordKind.ROW_GROUP
        ]
        marks: list[Mark] = []
        shift = 0
        for start in range(0, self.size, _WINDOW):
            end = min(start + _WINDOW, self.size)
            raw = bytes((yield ByteRange(start, min(end + longest - 1, self.size))))
            places = find_header_places(raw, end - start)
            for at in outside(places, start, copies):
                fitting = pages.get(raw[at : at + KEY_BYTES], ())
                known = [item for item in fitting if raw.startswith(item.head, at)]
                # Pages that are alike have the same header: then it is the one that goes on with what is before it.
                chosen = [item for item in known if start + at - item.offset == shift] or known
                if len(chosen) == 1:
                    shift = start + at - chosen[0].offset
                    marks.append(Mark(chosen[0].offset, chosen[0].start, shift))
        return marks

    # -- putting them together ---------------------------------------------------------------------

    def put_together(self) -> Generator[ByteRange, memoryview, ByteRemap]:
        """The remap that all marks lead to."""
        marks = yield from self._chosen([*self.marks, *(yield from self._page_marks())])
        borders: list[tuple[int, int]] = []
        for mark, following in pairwise(marks):
            if mark.shift != following.shift:
                borders.append((yield from self._borders.find(mark, following)))
        return self.view(marks, borders)

    def _chosen(self, marks: list[Mark]) -> Generator[ByteRange, memoryview, list[Mark]]:
        """One mark for each offset: one whose bytes are whole, else one that was moved as most were."""
        by_offset: dict[int, list[Mark]] = defaultdict(list)
        for mark in marks:
            if mark.shift not in {other.shift for other in by_offset[mark.offset]}:
                by_offset[mark.offset].append(mark)
        usual = Counter(mark.shift for mark in marks)
        chosen: list[Mark] = []
        end = 0
        for offset in sorted(by_offset):
            if offset < end:
                continue  # within what was recognised before it: not of this version of the file
            alike = sorted(by_offset[offset], key=lambda mark: (mark.shift not in self.shifts, -usual[mark.shift]))
            if len(alike) > 1 and offset in self.items:
                whole = []
                for mark in alike:
                    if (yield from self._borders.is_whole(self.items[offset], mark.shift)):
                        whole.append(mark)
                alike = whole or alike
            chosen.append(alike[0])
            end = chosen[-1].end
        return chosen

    def view(self, marks: Sequence[Mark], borders: Iterable[tuple[int, int]]) -> ByteRemap:
        """The segments between borders; the last ends with the final record of the file, or where the bytes do."""
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

    def _last_end(self, last: Mark) -> int:
        finals = [
            header
            for at, header in self.headers
            if header.kind == RecordKind.FINAL and at - header.offset == last.shift
        ]
        if finals and finals[-1].offset >= last.offset:
            return min(finals[-1].end, self.size - last.shift)
        end = min((at for at, _ in self.found if at >= last.end + last.shift), default=self.size)
        if end < self.size and end not in (at for at, _ in self.headers):
            end += HEADER_SIZE  # the header of an overwritten record shows that what is before it may be overwritten
        return end - last.shift


def _named_bytes(header: RecordHeader, payload: memoryview) -> Iterator[ChecksummedBytes]:
    """What the payload of a record has the CRC32 of."""
    if header.kind == RecordKind.ROW_GROUP:
        yield from copied_pages(payload)
    elif (span := BytesBehind.unpack(payload)).size <= MAX_BYTES:
        yield ChecksummedBytes(header.end, header.end, header.end + span.size, span.crc)


def _within(segments: Sequence[RemapSegment], size: int) -> Iterator[RemapSegment]:
    """The segments within the bytes at hand, with neighbours joined that were moved alike."""
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
