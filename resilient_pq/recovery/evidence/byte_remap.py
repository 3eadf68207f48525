"""Bytes of a damaged file as if each stood where it was written. Pure.

Records name their own offsets. Where parts of a file were swapped, repeated, moved or left out, a view says for each
offset of the file as it was written where its byte lies now, if anywhere.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

from resilient_pq.byte_ranges import ByteRange

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RemapSegment:
    """Bytes that lie together.

    Attributes:
        start: Offset of the first in the file as it was written.
        end: Offset after the last.
        shift: What is added to such an offset to have the one where the byte lies now.
    """

    start: int
    end: int
    shift: int


@dataclass(frozen=True, slots=True)
class ByteRemap:
    """Where the bytes of a file lie now.

    Attributes:
        size: Bytes of the file as far as it is known.
        segments: In order, without overlaps; what is between them is nowhere.
    """

    size: int
    segments: tuple[RemapSegment, ...]

    @classmethod
    def in_place(cls, size: int) -> ByteRemap:
        """The view of a file in which nothing was moved."""
        return cls(size, (RemapSegment(0, size, 0),))

    @property
    def is_in_place(self) -> bool:
        """Whether nothing was moved."""
        return all(segment.shift == 0 for segment in self.segments)

    def places(self, wanted: ByteRange) -> Iterator[tuple[int, ByteRange]]:
        """Where the bytes of a range lie."""
        for segment in self.segments:
            start, end = max(segment.start, wanted.start), min(segment.end, wanted.end)
            if start < end:
                yield start - wanted.start, ByteRange(start + segment.shift, end + segment.shift)

    def read(self, wanted: ByteRange) -> Generator[ByteRange, memoryview, memoryview]:
        """The bytes of a range of the file as it was written; zeros where they are nowhere.

        Asks for the ranges where they lie now. A range that lies in one place is not copied.
        """
        pieces = list(self.places(wanted))
        if len(pieces) == 1 and pieces[0][1].size == wanted.size:
            return (yield pieces[0][1])
        data = bytearray(wanted.size)
        for at, there in pieces:
            data[at : at + there.size] = yield there
        return memoryview(data)

    def through(self, asking: Generator[ByteRange, memoryview, T]) -> Generator[ByteRange, memoryview, T]:
        """Let what asks for ranges of the file as it was written read them from where they lie now."""
        try:
            wanted = next(asking)
            while True:
                wanted = asking.send((yield from self.read(wanted)))
        except StopIteration as stop:
            result: T = stop.value
            return result
