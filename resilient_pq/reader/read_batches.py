"""Batches of row groups that lie close together and are read together. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError
from resilient_pq.reader.read_plan import RowGroupRead
from resilient_pq.units import MiB

#: Row groups share a read up to this many bytes: more is fetched as fast by itself, and would keep first rows waiting.
_TOGETHER: Final = 1 * MiB
#: Of a small budget, they share one up to this part of it.
_SHARES: Final = 16


@dataclass(frozen=True)
class ReadBatch:
    """Row groups that are read by one call, in the order in which their rows are wanted."""

    row_groups: tuple[RowGroupRead, ...]  # What to read of each

    @cached_property
    def num_bytes(self) -> int:
        """Bytes that are fetched for it."""
        return sum(group.num_bytes for group in self.row_groups)

    @cached_property
    def num_decoded(self) -> int:
        """Bytes of its decompressed pages according to the footer."""
        return sum(group.num_decoded for group in self.row_groups)


def cut_into_batches(row_groups: Sequence[RowGroupRead], *, gap: int, budget: int) -> Iterator[ReadBatch]:
    """Cut a read into batches of row groups that lie at most `gap` bytes apart and take a small share of a budget."""
    most = min(_TOGETHER, budget // _SHARES)
    together: list[RowGroupRead] = []
    size = 0
    for group in row_groups:
        try:
            extent = group.extent
        except FormatError:
            if together:  # the rows before it are given all the same
                yield ReadBatch(tuple(together))
            raise
        more = 0 if extent is None else extent[1].size
        if together and not (size + more <= most and _near(together[-1].extent, extent, gap)):
            yield ReadBatch(tuple(together))
            together, size = [], 0
        together.append(group)
        size += more
    if together:
        yield ReadBatch(tuple(together))


def _near(before: tuple[str | None, ByteRange] | None, after: tuple[str | None, ByteRange] | None, gap: int) -> bool:
    """Whether a row group follows another one closely, in the same file."""
    if before is None or after is None:
        return before is after
    (file, one), (other_file, other) = before, after
    return file == other_file and 0 <= other.start - one.end <= gap
