"""Records found in bytes, wherever they lie. Sans-io."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format import kernels
from resilient_pq.format.resilience_records import HEADER_SIZE, RECORD_MAGIC, RecordHeader, RecordKind, parse_header

#: Bytes that are read and looked through at a time.
_WINDOW: Final = 8 * 1024 * 1024


def scan_object(size: int) -> Generator[ByteRange, memoryview, list[tuple[int, RecordHeader]]]:
    """Read an object of `size` bytes from front to back, a window at a time, for the record headers in it."""
    found: list[tuple[int, RecordHeader]] = []
    for start in range(0, size, _WINDOW):
        end = min(start + _WINDOW, size)
        # A header that begins before `end` may reach beyond it.
        data = yield ByteRange(start, min(end + HEADER_SIZE - 1, size))
        found += [(at, header) for at, header in scan_headers(data, start) if at < end]
    return found


def scan_headers(data: Any, base: int) -> Iterator[tuple[int, RecordHeader]]:
    """Every record header that begins in `data` and is whole there."""
    view = memoryview(data)
    for at in kernels.find_all(view, RECORD_MAGIC).tolist():
        header = parse_header(view[at : at + HEADER_SIZE])
        if header is not None:
            yield base + at, header


def in_place(found: Iterable[tuple[int, RecordHeader]]) -> list[RecordHeader]:
    """The headers that lie where they say they do."""
    return [header for offset, header in found if header.offset == offset]


@dataclass(frozen=True, slots=True)
class FileSpan:
    """The records of one file among bytes.

    Attributes:
        file_id: Its id.
        start: Where the first of them lies.
        end: Offset just after the last of them.
        base: How far one of them lies from where it says, the one that lies nearest; 0 where it lies in its place.
        complete: Whether its first and its last record are among them.
    """

    file_id: bytes
    start: int
    end: int
    base: int
    complete: bool

    def encloses(self, other: FileSpan) -> bool:
        """Whether another file lies between records of this one, as within a column of it."""
        return self.start < other.start and other.end < self.end


def file_spans(found: Iterable[tuple[int, RecordHeader]]) -> list[FileSpan]:
    """The files that records were found of, the outermost first.

    A column may hold whole files of ours, of more records than the file around them has. Of two files the one is taken
    that encloses the other, then the one whose records lie nearest to where they say, then the longer one. Where the
    beginnings of both are missing, that nearness tells nothing.
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
