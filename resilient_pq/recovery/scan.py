"""Records found in bytes, wherever they lie. Sans-io."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final

from resilient_pq.format import kernels
from resilient_pq.format.records import HEADER_SIZE, RECORD_MAGIC, RecordHeader, parse_header
from resilient_pq.io.ranges import ByteRange

#: Bytes that are read and looked through at a time.
_WINDOW: Final = 8 * 1024 * 1024


def all_headers(size: int) -> Generator[ByteRange, memoryview, list[tuple[int, RecordHeader]]]:
    """Read an object of `size` bytes from front to back, a window at a time, for the record headers in it.

    Returns:
        As `headers_in` gives them.
    """
    found: list[tuple[int, RecordHeader]] = []
    for start in range(0, size, _WINDOW):
        end = min(start + _WINDOW, size)
        # A header that begins before `end` may reach beyond it.
        data = yield ByteRange(start, min(end + HEADER_SIZE - 1, size))
        found += [(at, header) for at, header in headers_in(data, start) if at < end]
    return found


def headers_in(data: Any, base: int) -> Iterator[tuple[int, RecordHeader]]:
    """Every record header that begins in `data` and is whole there.

    Args:
        data: Bytes.
        base: Absolute offset of the first of them.

    Yields:
        Absolute offset of the header, and the header. What it says of its own offset is not compared: see
        `in_place`.
    """
    view = memoryview(data)
    for at in kernels.find_all(view, RECORD_MAGIC).tolist():
        header = parse_header(view[at : at + HEADER_SIZE])
        if header is not None:
            yield base + at, header


def in_place(found: Iterable[tuple[int, RecordHeader]]) -> list[RecordHeader]:
    """The headers that lie where they say they do."""
    return [header for offset, header in found if header.offset == offset]


def majority(headers: Iterable[RecordHeader]) -> bytes | None:
    """The file id of most of the headers; None where there are none."""
    counts = Counter(header.file_id for header in headers)
    return counts.most_common(1)[0][0] if counts else None
