"""Borders between parts of a file that were moved differently, found by checksums that hold across them. Sans-io."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32, unsigned
from resilient_pq.errors import FormatError
from resilient_pq.format.pages.page import read_header
from resilient_pq.format.resilience_records import HEADER_SIZE, parse_header
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.evidence.records.crc_seam import BORDERS, find_seam
from resilient_pq.recovery.evidence.records.moved_marks import MAX_BYTES, ChecksummedBytes, Mark, read_bytes
from resilient_pq.units import KiB

#: Read for the header of a page.
_HEADER_WINDOW: Final = 16 * KiB


@dataclass(frozen=True, slots=True)
class PieceBorders:
    """The search for borders, in so many bytes, with all that has a checksum by the offset at which it was written."""

    size: int
    items: Mapping[int, ChecksummedBytes]

    def find(self, before: Mark, behind: Mark) -> Generator[ByteRange, memoryview, tuple[int, int]]:
        """Where the part of one mark ends and that of the next begins; bytes between are in neither."""
        rivals = yield from self._rivals(before, behind)
        if rivals is not None:
            return rivals
        border = yield from self._border(before, behind)
        return border, border

    def is_whole(self, item: ChecksummedBytes, shift: int) -> Generator[ByteRange, memoryview, bool]:
        """Whether bytes have their checksum where a shift has them."""
        data = yield from self.read(item.start, item.end, shift)
        return crc32(data) == item.crc

    def read(self, start: int, end: int, shift: int) -> Generator[ByteRange, memoryview, memoryview]:
        """Bytes from where a shift has them."""
        return (yield from read_bytes(self.size, start + shift, end - start))

    def _rivals(self, before: Mark, behind: Mark) -> Generator[ByteRange, memoryview, tuple[int, int] | None]:
        """Where one part ends and the next begins, if both have whole pages in between of which no record has copies.

        The pages that follow each other up to the next record are right. Where all or none do, the bytes are in neither
        part.
        """
        at = next((item.end for item in (self.items.get(before.offset),) if item is not None), before.end)
        if at >= behind.offset or at in self.items:
            return None
        first = yield from self._item(at, before.shift)
        second = yield from self._item(at, behind.shift)
        if first is None or second is None:
            return None
        here = yield from self.read(first.offset, first.end, before.shift)
        there = yield from self.read(second.offset, second.end, behind.shift)
        alike = bytes(here) == bytes(there)
        rivals = crc32(here[first.start - at :]) == first.crc and crc32(there[second.start - at :]) == second.crc
        if alike or not rivals:
            return None
        reached = []
        for shift in (before.shift, behind.shift):
            reached.append((yield from self._chained(at, behind.offset, shift)) == behind.offset)
        match reached:
            case [False, True]:
                return at, at
            case [True, False]:
                return behind.offset, behind.offset
        return at, behind.offset

    def _chained(self, at: int, limit: int, shift: int) -> Generator[ByteRange, memoryview, int]:
        """Where pages end that follow each other from an offset on and match the CRC32 in their headers."""
        while at < limit:
            item = yield from self._item(at, shift)
            if item is None or item.end > limit or not (yield from self.is_whole(item, shift)):
                break
            at = item.end
        return at

    def _border(self, before: Mark, behind: Mark) -> Generator[ByteRange, memoryview, int]:
        """The first offset whose byte lies where the second mark has it, and not where the first one does."""
        shifts = before.shift, behind.shift
        least, most = before.end, behind.offset
        at = before.offset
        while at < behind.offset:
            item = yield from self._item(at, before.shift)
            if item is None or item.end > behind.offset:
                break
            first = yield from self.read(item.offset, item.end, before.shift)
            second = yield from self.read(item.offset, item.end, behind.shift)
            body = item.start - item.offset
            if crc32(first[body:]) == item.crc:
                least = at = item.end
                continue
            if crc32(second[body:]) == item.crc:
                cut = _cut_in_head(first, second, item.head)
                if cut is not None:
                    return at + cut
                most = at if second[:body] == item.head else item.start
                break
            cut = find_seam(first[body:], second[body:], item.crc, item.start, shifts)
            if cut is not None:
                return item.start + cut
            at = item.end
        cut = _cut_in_record(
            (yield from self.read(at, at + HEADER_SIZE, before.shift)),
            (yield from self.read(at, at + HEADER_SIZE, behind.shift)),
            at,
        )
        return _aligned(least, max(most, least), shifts) if cut is None else at + cut

    def _item(self, offset: int, shift: int) -> Generator[ByteRange, memoryview, ChecksummedBytes | None]:
        """What begins at an offset, by a record or by the page header there."""
        if offset in self.items:
            return self.items[offset]
        data = yield from self.read(offset, offset + _HEADER_WINDOW, shift)
        try:
            header, start = read_header(data, 0)
        except FormatError:
            return None
        if header.crc is None or header.compressed_page_size > MAX_BYTES:
            return None
        end = offset + start + header.compressed_page_size
        return ChecksummedBytes(offset, offset + start, end, unsigned(header.crc))


def _cut_in_head(first: memoryview, second: memoryview, head: bytes) -> int | None:
    """How many bytes of a page header lie in the first part and the rest in the second; None for all or none."""
    for cut in range(1, len(head)):
        if first[:cut] == head[:cut] and second[cut : len(head)] == head[cut:]:
            return cut
    return None


def _cut_in_record(first: memoryview, second: memoryview, offset: int) -> int | None:
    """How many bytes of the header of a record at `offset` do so."""
    for cut in range(1, HEADER_SIZE):
        header = parse_header(bytes(first[:cut]) + bytes(second[cut:]))
        if header is not None and header.offset == offset:
            return cut
    return None


def _aligned(least: int, most: int, shifts: tuple[int, int]) -> int:
    """The likeliest offset for a border from `least` to `most`."""
    for size in BORDERS:
        for shift in (*shifts, 0):
            at = least + -(least + shift) % size
            if at <= most:
                return at
    return most
