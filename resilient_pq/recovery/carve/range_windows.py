"""Ranges of bytes that are read a few MiB at a time. Sans-io."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.page_header_checks import SearchLimits
from resilient_pq.damage.page_search import FoundPage, finding_pages
from resilient_pq.units import MiB

_WINDOW = 8 * MiB

T = TypeVar("T")
#: What carving is: it yields the ranges it wants, and is sent their bytes.
RangeRequests = Generator[ByteRange, memoryview, T]


def search_pages(start: int, end: int, limits: SearchLimits) -> RangeRequests[list[FoundPage]]:
    """All pages between two offsets."""
    found: list[FoundPage] = []
    asking = finding_pages(start, end, found, limits)
    try:
        wanted = next(asking)
        while True:
            wanted = asking.send((yield ByteRange(wanted.start, wanted.stop)))
    except StopIteration:
        return found


class RangeWindow:
    """Bytes that are read forwards, with those that follow."""

    def __init__(self, end: int) -> None:
        """Read up to `end`."""
        self._end = end
        self._base, self._view = 0, memoryview(b"")

    def read(self, start: int, end: int) -> RangeRequests[memoryview]:
        """Some bytes; fewer where they go beyond the end."""
        end = min(end, self._end)
        if end <= start:
            return memoryview(b"")
        if start < self._base or end > self._base + len(self._view):
            self._base = start
            self._view = yield ByteRange(start, min(max(end, start + _WINDOW), self._end))
        return self._view[start - self._base : end - self._base]
