"""The search for records in bytes, wherever they lie. Sans-io."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator
from operator import attrgetter
from typing import Any, Final

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format import kernels
from resilient_pq.format.resilience_records import HEADER_SIZE, RECORD_MAGIC, RecordHeader, RecordKind, parse_header
from resilient_pq.lazy_dataclass import dataclass

#: Bytes that are read and looked through at a time.
_WINDOW: Final = 8 * 1024 * 1024


def scan_object(size: int) -> Generator[ByteRange, memoryview, list[tuple[int, RecordHeader]]]:
    """The record headers in an object of `size` bytes, which is read from front to back."""
    found: list[tuple[int, RecordHeader]] = []
    for start in range(0, size, _WINDOW):
        end = min(start + _WINDOW, size)
        # A header that begins before `end` may reach beyond it.
        data = yield ByteRange(start, min(end + HEADER_SIZE - 1, size))
        found += [(at, header) for at, header in scan_headers(data, start) if at < end]
    return found


def scan_headers(data: Any, base: int) -> Iterator[tuple[int, RecordHeader]]:
    """Every whole record header in `data`, with its absolute offset; it may state another one."""
    view = memoryview(data)
    for at in kernels.find_all(view, RECORD_MAGIC).tolist():
        header = parse_header(view[at : at + HEADER_SIZE])
        if header is not None:
            yield base + at, header


def in_place(found: Iterable[tuple[int, RecordHeader]]) -> list[RecordHeader]:
    """The headers that lie at the offsets that they state."""
    return [header for offset, header in found if header.offset == offset]


def drop_overwritten(found: Iterable[tuple[int, RecordHeader]]) -> list[tuple[int, RecordHeader]]:
    """Records of one file, by the offsets that they state, without those that a later writer wrote over.

    It does not matter where they lie: a record of a later epoch proves that its writer wrote there and behind.
    """
    records = sorted(found, key=lambda one: one[1].offset)
    first: dict[int, int] = {}
    for _, header in records:
        first.setdefault(header.epoch, header.offset)
    limits: dict[int, float] = {}
    limit = math.inf
    for epoch in sorted(first, reverse=True):
        limits[epoch] = limit
        limit = min(limit, first[epoch])
    return [(at, header) for at, header in records if header.end <= limits[header.epoch]]


def parity_spans(headers: Iterable[RecordHeader]) -> list[ByteRange]:
    """Where parity lies by headers of its records: both copies, and the shards between them; one alone counts, too."""
    spans: list[ByteRange] = []
    first: RecordHeader | None = None
    for header in sorted((h for h in headers if h.kind == RecordKind.PARITY), key=attrgetter("offset")):
        if first is not None and (header.previous, header.number) == (first.offset, first.number + 1):
            spans[-1], first = ByteRange(first.offset, max(header.end, first.end)), None
        else:
            spans.append(ByteRange(header.offset, header.end))
            first = header
    return spans


@dataclass(frozen=True, slots=True)
class FileSpan:
    """The records of one file."""

    file_id: bytes
    start: int  # Where the first of them lies
    end: int  # Offset just after the last of them
    base: int  # How far one of them lies from where it says, the one that lies nearest; 0 where it lies in its place
    complete: bool  # Whether its first and its last record are among them
    anchor: int | None = None  # Where its first record lies, if that was found: others before it are copies, or moved

    def encloses(self, other: FileSpan) -> bool:
        """Whether another file lies between records of this one, as in values of a column.

        Where the beginnings of both are missing, it lies behind the offset at which this one began.
        """
        begins_before = self.base < other.base < 0 or self.start < other.start
        if self.anchor is not None and other.anchor is not None:
            begins_before |= self.anchor < other.anchor
        return begins_before and other.end < self.end


def file_spans(found: Iterable[tuple[int, RecordHeader]]) -> list[FileSpan]:
    """The files of which records were found, the outermost first.

    A column may hold whole resilient files, with more records than the file around them. The outermost file encloses
    the others; else its records lie nearest to the offsets that they state, unless the beginnings of all files are
    missing; else it is the longest.
    """
    by_file: dict[bytes, list[tuple[int, RecordHeader]]] = {}
    for at, header in found:
        by_file.setdefault(header.file_id, []).append((at, header))
    spans = [
        FileSpan(
            file_id,
            min(at for at, _ in mine),
            max(at + header.end - header.offset for at, header in mine),
            min((at - header.offset for at, header in mine), key=abs),
            {RecordKind.ANCHOR, RecordKind.FINAL} <= {header.kind for _, header in mine},
            min((at for at, header in mine if header.kind == RecordKind.ANCHOR), default=None),
        )
        for file_id, mine in by_file.items()
    ]
    enclosed = {span.file_id: any(other.encloses(span) for other in spans) for span in spans}
    begun = any(span.base >= 0 for span in spans)
    return sorted(spans, key=lambda span: (enclosed[span.file_id], begun and abs(span.base), span.start - span.end))


def outermost_file(found: Iterable[tuple[int, RecordHeader]]) -> bytes | None:
    """The id of the outermost file that records were found of; None where there are none."""
    spans = file_spans(found)
    return spans[0].file_id if spans else None
