"""Ranges of bytes of an object, and the union of several."""

from __future__ import annotations

from collections.abc import Iterable

from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """The bytes from `start` up to, not including, `end`.

    Raises:
        ValueError: `start` is negative or lies behind `end`.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        """Refuse what is no range."""
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a byte range: {self.start}..{self.end}")

    @property
    def size(self) -> int:
        """How many bytes."""
        return self.end - self.start


def union(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """The same bytes as ranges that do not overlap, by offset; ranges that only touch stay apart."""
    found: list[ByteRange] = []
    for wanted in sorted(wanted for wanted in ranges if wanted.size):
        if found and wanted.start < found[-1].end:
            found[-1] = ByteRange(found[-1].start, max(found[-1].end, wanted.end))
        else:
            found.append(wanted)
    return found
