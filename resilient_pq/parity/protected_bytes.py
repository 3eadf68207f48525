"""The bytes that a sidecar protects, read from files that may be damaged, cut, or missing. An async shell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.parity.sidecar_index import SidecarIndex, padded


@dataclass(frozen=True, slots=True)
class ProtectedBytes:
    """The files of a sidecar, one behind the other; None stands for a file that is missing."""

    index: SidecarIndex
    files: Sequence[PinnedObject | None]

    @property
    def has_moved(self) -> bool:
        """Whether bytes may lie nearer to the end of a file, or farther from it, than they were written."""
        return any(
            file is not None and file.info.size != member.size
            for file, member in zip(self.files, self.index.members, strict=True)
        )

    async def read(self, place: ByteRange, *, from_end: bool = False) -> memoryview:
        """Exactly these bytes; zeros stand for those that are not there.

        Args:
            place: A place among the protected bytes.
            from_end: Count from the end of each file: bytes behind others that are missing are found so.
        """
        parts: list[memoryview] = []
        for number, start, size in self._parts(place):
            file, member = self.files[number], self.index.members[number]
            there = memoryview(b"")
            if file is not None and start < member.size:
                moved = file.info.size - member.size if from_end else 0
                wanted = min(size, member.size - start)
                first, last = max(0, start + moved), min(start + moved + wanted, file.info.size)
                if first < last:
                    there = await file.read(ByteRange(first, last))
                    if missing := first - (start + moved):
                        there = memoryview(bytes(missing) + bytes(there))
            if len(there) < size:
                there = memoryview(bytes(there) + bytes(size - len(there)))
            parts.append(there)
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _parts(self, place: ByteRange) -> Iterator[tuple[int, int, int]]:
        """The files that a range lies in: their number, and the first byte and the bytes of each, with its zeros."""
        for number, whole in enumerate(self.index.places):
            end = whole.start + padded(whole.size)
            first, last = max(place.start, whole.start), min(place.end, end)
            if first < last:
                yield number, first - whole.start, last - first
