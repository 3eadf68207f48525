"""The newest whole footer of a file that is still being written: its last checkpoint, or its end. Sans-io and pure."""

from __future__ import annotations

from collections.abc import Generator

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import NotParquetError, Where
from resilient_pq.format.footer import MAGIC, Footer, NeedBytes, read_footer
from resilient_pq.format.resilience_records import (
    FOOTER_KINDS,
    HEADER_SIZE,
    RECORD_MAGIC,
    RecordHeader,
    RecordKind,
    parse_header,
)
from resilient_pq.units import KiB, MiB

#: Bytes looked through for records at first, when going back from the end; doubled up to the larger one.
_FIRST_WINDOW = 256 * KiB
_LARGEST_WINDOW = 8 * MiB
#: A footer larger than this is not read into memory, whatever its header says.
_MAX_FOOTER = 1 << 30

Asking = Generator[ByteRange, memoryview, Footer | None]


def newest_footer(size: int, since: int = 0) -> Asking:
    """Find the newest footer after offset `since` in a file of ours that still grows, asking for bytes from its end."""
    head = yield ByteRange(0, min(size, len(MAGIC) + HEADER_SIZE))
    anchor = parse_header(head[len(MAGIC) :])
    if anchor is None or (anchor.kind, anchor.offset) != (RecordKind.ANCHOR, len(MAGIC)):
        if len(head) == len(MAGIC) + HEADER_SIZE:
            raise NotParquetError("it does not begin as a file that can be followed", where=Where(offset=0))
        return None
    end = size
    while (header := (yield from _last_record(anchor, end, size, since))) is not None:
        at = header.offset if header.kind in FOOTER_KINDS else header.newest_footer
        if at <= since:
            return None
        found = yield from _footer_at(anchor, at, size)
        if found is not None:
            return found
        end = min(at, header.offset)  # it is being written: the one before it is looked for
    return None


def _last_record(
    anchor: RecordHeader, end: int, size: int, since: int
) -> Generator[ByteRange, memoryview, RecordHeader | None]:
    """The last record header of the file that begins before `end`, in its place; None where that is before `since`."""
    window = _FIRST_WINDOW
    while end > since:
        start = max(end - window, since)
        data = bytes((yield ByteRange(start, min(end + HEADER_SIZE - 1, size))))
        at = len(data)
        while (at := data.rfind(RECORD_MAGIC, 0, at)) >= 0:
            header = parse_header(data[at : at + HEADER_SIZE])
            if header is not None and header.offset == start + at < end and header.file_id == anchor.file_id:
                return header
        end, window = start, min(2 * window, _LARGEST_WINDOW)
    return None


def _footer_at(anchor: RecordHeader, at: int, size: int) -> Generator[ByteRange, memoryview, Footer | None]:
    """The footer whose record lies at an offset; None where that is not whole yet."""
    if at + HEADER_SIZE > size:
        return None
    header = parse_header((yield ByteRange(at, at + HEADER_SIZE)))
    if header is None or header.offset != at or header.kind not in FOOTER_KINDS or header.file_id != anchor.file_id:
        return None
    if header.end > size or header.payload_size > _MAX_FOOTER:
        return None
    data = yield ByteRange(at, header.end)
    if not header.holds(data[HEADER_SIZE:]):
        return None  # not all of it may have been there when it was read
    found = read_footer(data, at)
    assert not isinstance(found, NeedBytes)  # its record begins where the bytes do
    return found
