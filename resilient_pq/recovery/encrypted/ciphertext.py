"""What of an encrypted file is as it was written, by what its records say in the clear; no key is needed. Sans-io."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import field
from operator import attrgetter
from typing import Final

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32
from resilient_pq.format.footer import ENCRYPTED_MAGIC, MAGIC
from resilient_pq.format.resilience_records import (
    FOOTER_KINDS,
    HEADER_SIZE,
    BytesBehind,
    RecordHeader,
    RecordKind,
    has_span,
    parse_header,
)
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.group_record import GroupRecord
from resilient_pq.recovery.evidence.records.record_scan import in_place, outermost_file, scan_headers
from resilient_pq.recovery.verification.checksum_checks import has_parity
from resilient_pq.units import KiB, MiB

_PIECE: Final = 8 * MiB  # Bytes that are read at a time
_MOST_ALIGNMENT: Final = 4 * KiB  # Zero bytes that may stand before a footer (docs/format.md)
_MAX_PAYLOAD: Final = 1 << 30  # Payloads that are larger are not read into memory, whatever their header says


@dataclass(frozen=True, slots=True)
class DamagedStretch:
    """Bytes that are not as they were written, or of which nothing is known."""

    place: ByteRange  # Where they lie
    message: str  # What is wrong with them
    holds_rows: bool = True  # Whether pages may be among them
    is_chunk: bool = False  # Whether they are the pages of a chunk, and nothing else
    is_beside: bool = False  # Whether what follows is as sound without them: the first magic, and parity


@dataclass(slots=True)
class Ciphertext:
    """The records of an encrypted file, and the bytes that no checksum vouches for."""

    size: int  # Bytes of the object
    file_id: bytes | None = None  # Of the file; None where no record was found
    damaged: list[DamagedStretch] = field(default_factory=list)  # What is not as it was written, in order
    # The headers of all whole anchors, checkpoints and final records in their places, in order
    footers: list[RecordHeader] = field(default_factory=list)
    # The headers of whole records of row groups in their places, in order
    row_groups: list[RecordHeader] = field(default_factory=list)
    end: int = 0  # Offset behind the last record that was found in its place, and what it vouches for
    newest_named: int = 0  # Offset of the newest footer that a record behind it names

    @property
    def first_damage(self) -> int:
        """The offset before which no page is damaged."""
        return min([stretch.place.start for stretch in self.damaged if stretch.holds_rows], default=self.size)

    @property
    def newest(self) -> RecordHeader | None:
        """The newest footer before which no page is damaged: the file can be cut behind it."""
        before = [header for header in self.footers if header.end <= self.first_damage]
        return max(before, key=attrgetter("offset"), default=None)

    @property
    def later_row_groups(self) -> list[RecordHeader]:
        """The records of row groups behind that footer, before which no page is damaged either."""
        start = 0 if self.newest is None else self.newest.offset
        return [header for header in self.row_groups if start < header.offset and header.end <= self.first_damage]

    @property
    def unbroken(self) -> list[RecordHeader]:
        """The footers and the records of row groups before which every byte is as it was written, in order."""
        end = min([stretch.place.start for stretch in self.damaged if not stretch.is_beside], default=self.size)
        whole = [header for header in (*self.footers, *self.row_groups) if header.end <= end]
        return sorted(whole, key=attrgetter("offset"))

    def count_row_groups(self, end: int) -> int:
        """Row groups before an offset, as far as their records are whole."""
        return sum(header.end <= end for header in self.row_groups)

    @property
    def is_whole(self) -> bool:
        """Whether every byte is as it was written, and the file ends in a footer."""
        return not self.damaged and self.newest is not None and self.newest.end == self.size

    @property
    def is_finished(self) -> bool:
        """Whether the writer came to the end of the file, as far as its last record tells."""
        return bool(self.footers) and self.footers[-1].kind == RecordKind.FINAL and self.footers[-1].end == self.size


def survey_ciphertext(size: int, file_id: bytes | None = None) -> Generator[ByteRange, memoryview, Ciphertext]:
    """Read an object of `size` bytes from front to back, and compare all checksums that stand in it in the clear."""
    return (yield from _Walk(Ciphertext(size, file_id)).walk())


class _Walk:
    """Goes from record to record."""

    def __init__(self, found: Ciphertext) -> None:
        self._found = found
        #: Number of the next record, and offset of the one before it; None behind damage.
        self._expected: tuple[int, int] | None = (0, 0)
        self._before: RecordHeader | None = None  # The last record

    def walk(self) -> Generator[ByteRange, memoryview, Ciphertext]:
        found, at = self._found, len(MAGIC)
        head = yield ByteRange(0, min(at, found.size))
        if bytes(head) not in (MAGIC, ENCRYPTED_MAGIC):
            self._damage(0, at, "the magic at the beginning is damaged", holds_rows=False, is_beside=True)
        while at < found.size:
            header = yield from self._header_at(at)
            if header is None:
                at = yield from self._unknown(at)
                continue
            if header.newest_footer < header.offset:
                found.newest_named = max(found.newest_named, header.newest_footer)
            end = max(header.offset, found.end + HEADER_SIZE)  # its own header where nothing is between
            if self._expected not in (None, (header.number, header.previous)):
                self._damage(found.end, end, "a record is missing here")
            elif self._is_of_another_writer(header):
                self._damage(found.end, end, "what follows is of another writer of the file")
            self._expected, self._before = (header.number + 1, header.offset), header
            at = yield from self._record(header)
            found.end = at
        return found

    def _is_of_another_writer(self, header: RecordHeader) -> bool:
        """Whether the epoch falls, or rises within a row group, which no writer goes on with."""
        if self._before is None:
            return False
        within = self._expected is not None and self._before.kind in (RecordKind.CHUNK, RecordKind.SPAN)
        return header.epoch < self._before.epoch or (within and header.epoch > self._before.epoch)

    def _damage(self, start: int, end: int, message: str, **marks: bool) -> None:
        place = ByteRange(start, min(end, self._found.size))
        if place.size:
            self._expected = self._expected if marks.get("is_beside") else None
            self._found.damaged.append(DamagedStretch(place, message, **marks))

    def _header_at(self, at: int) -> Generator[ByteRange, memoryview, RecordHeader | None]:
        """The header of a record of the file that lies at an offset, in its place."""
        found = self._found
        if at + HEADER_SIZE > found.size:
            return None
        header = parse_header((yield ByteRange(at, at + HEADER_SIZE)))
        if header is None or header.offset != at:
            return None
        if found.file_id is None:
            found.file_id = header.file_id
        return header if header.file_id == found.file_id else None

    def _unknown(self, at: int) -> Generator[ByteRange, memoryview, int]:
        """Pass over bytes that are no record; those before a footer may be zero."""
        following = yield from self._next_header(at)
        between = memoryview(b"")
        if following - at <= _MOST_ALIGNMENT and following < self._found.size:
            between = yield ByteRange(at, following)
        if len(between) and not any(between):
            return following
        message = "no whole record vouches for these bytes"
        if following == self._found.size:
            message = "the object ends without a whole record"
        self._damage(at, following, message)
        return following

    def _next_header(self, at: int) -> Generator[ByteRange, memoryview, int]:
        """Where the next record of the file lies, the end of the object where there is none."""
        found = self._found
        for start in range(at, found.size, _PIECE):
            data = yield ByteRange(start, min(start + _PIECE + HEADER_SIZE - 1, found.size))
            here = in_place(scan_headers(data, start))
            if found.file_id is None:
                found.file_id = outermost_file((header.offset, header) for header in here)
            mine = [header.offset for header in here if header.file_id == found.file_id]
            if mine:
                return mine[0]
        return found.size

    def _record(self, header: RecordHeader) -> Generator[ByteRange, memoryview, int]:
        """Compare a record and what it vouches for; gives the offset behind both."""
        found, payload = self._found, None
        if header.end <= found.size and header.payload_size <= _MAX_PAYLOAD:
            payload = yield ByteRange(header.payload_offset, header.end)
        if payload is None or not header.holds(payload):
            end = yield from self._next_header(header.payload_offset)
            message, holds_rows = "the payload of a record is damaged", header.kind == RecordKind.CHUNK
            self._damage(header.offset, end, message, holds_rows=holds_rows or end != header.end)
            return end
        if header.kind in FOOTER_KINDS:
            found.footers.append(header)
        elif header.kind == RecordKind.ROW_GROUP:
            found.row_groups.append(header)
        elif header.kind == RecordKind.PARITY:
            return (yield from self._parity(header, payload))
        elif has_span(header):
            return (yield from self._span(header, BytesBehind.unpack(payload)))
        return header.end

    def _span(self, header: RecordHeader, span: BytesBehind) -> Generator[ByteRange, memoryview, int]:
        """Compare the bytes that a record vouches for."""
        start, end, crc = header.end, header.end + span.size, 0
        for at in range(start, min(end, self._found.size), _PIECE):
            crc = crc32((yield ByteRange(at, min(at + _PIECE, end, self._found.size))), crc)
        is_chunk = header.kind == RecordKind.CHUNK
        what = "a column chunk" if is_chunk else "an index or a bloom filter"
        if end > self._found.size or crc != span.crc:
            following = yield from self._next_header(start)
            cut = " and cut short" if end > self._found.size and following == self._found.size else ""
            message = f"{what} is damaged{cut}: the CRC32 does not match"
            self._damage(start, following, message, holds_rows=is_chunk, is_chunk=is_chunk)
            return following
        return end

    def _parity(self, header: RecordHeader, payload: memoryview) -> Generator[ByteRange, memoryview, int]:
        """Compare the parity of a group, and its second record."""
        record = GroupRecord.unpack(payload)
        end = header.end if record is None else header.offset + record.shape.framed_bytes
        data = memoryview(b"")
        if record is not None and end <= self._found.size and end - header.offset <= _MAX_PAYLOAD:
            data = yield ByteRange(header.offset, end)
        if record is not None and len(data) and has_parity(header, data, header.file_id):
            self._expected = header.number + 2, record.other_copy
            return end
        following = yield from self._next_header(header.end)
        behind = yield from self._header_at(following)
        is_beside, expected = behind is None, None
        if behind is not None and behind.kind == RecordKind.PARITY and behind.previous == header.offset:
            is_beside, following, expected = True, behind.end, (behind.number + 1, behind.offset)
        elif behind is not None and behind.number == header.number + 2:  # the second record alone is missing
            is_beside, expected = True, (behind.number, behind.previous)
        message = "parity is damaged: no row is lost with it" if is_beside else "parity and what follows it are damaged"
        self._damage(header.offset, following, message, holds_rows=not is_beside, is_beside=is_beside)
        self._expected = expected
        return following
