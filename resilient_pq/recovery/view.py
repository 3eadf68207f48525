"""Bytes of a damaged file as if each stood where it was written. Pure.

Records name their own offsets. Where parts of a file were swapped, repeated, moved or left out, a view says for each
offset of the file as it was written where its byte lies now, if anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from resilient_pq.io.ranges import ByteRange


@dataclass(frozen=True, slots=True)
class Segment:
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
class View:
    """Where the bytes of a file lie now.

    Attributes:
        size: Bytes of the file as far as it is known.
        segments: In order, without overlaps; what is between them is nowhere.
    """

    size: int
    segments: tuple[Segment, ...]

    @classmethod
    def in_place(cls, size: int) -> View:
        """The view of a file in which nothing was moved."""
        return cls(size, (Segment(0, size, 0),))

    @property
    def is_in_place(self) -> bool:
        """Whether nothing was moved."""
        return all(segment.shift == 0 for segment in self.segments)

    def places(self, wanted: ByteRange) -> Iterator[tuple[int, ByteRange]]:
        """Where the bytes of a range lie.

        Yields:
            Offset within the range of the first byte of each piece, and where the piece lies now; bytes that are
            nowhere are left out.
        """
        for segment in self.segments:
            start, end = max(segment.start, wanted.start), min(segment.end, wanted.end)
            if start < end:
                yield start - wanted.start, ByteRange(start + segment.shift, end + segment.shift)
