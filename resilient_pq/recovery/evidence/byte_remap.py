"""The bytes of a damaged file at the offsets at which they were written. Pure."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeVar

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.lazy_dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RemapSegment:
    """Bytes that lie together, `shift` bytes behind the offsets from `start` to `end` at which they were written."""

    start: int
    end: int
    shift: int


@dataclass(frozen=True, slots=True)
class ByteRemap:
    """Where each byte of a file lies now; `segments` are in order without overlaps, bytes between them missing."""

    size: int
    segments: tuple[RemapSegment, ...]

    @classmethod
    def in_place(cls, size: int) -> ByteRemap:
        """The remap of a file in which nothing was moved."""
        return cls(size, (RemapSegment(0, size, 0),))

    @property
    def is_in_place(self) -> bool:
        """Whether nothing was moved."""
        return all(segment.shift == 0 for segment in self.segments)

    def places(self, wanted: ByteRange) -> Iterator[tuple[int, ByteRange]]:
        """Where the bytes of a range lie: the offset of each piece in the range, and its place now."""
        for segment in self.segments:
            start, end = max(segment.start, wanted.start), min(segment.end, wanted.end)
            if start < end:
                yield start - wanted.start, ByteRange(start + segment.shift, end + segment.shift)

    def read(self, wanted: ByteRange) -> Generator[ByteRange, memoryview, memoryview]:
        """The bytes of a range of the file as it was written; missing bytes are zeros."""
        pieces = list(self.places(wanted))
        if len(pieces) == 1 and pieces[0][1].size == wanted.size:
            return (yield pieces[0][1])
        data = bytearray(wanted.size)
        for at, there in pieces:
            data[at : at + there.size] = yield there
        return memoryview(data)

    def through(self, asking: Generator[ByteRange, memoryview, T]) -> Generator[ByteRange, memoryview, T]:
        """Run a search for ranges of the file as it was written, with the bytes from where they lie now."""
        try:
            wanted = next(asking)
            while True:
                wanted = asking.send((yield from self.read(wanted)))
        except StopIteration as stop:
            result: T = stop.value
            return result
