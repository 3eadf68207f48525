"""The parity groups inside a file, found by its footer or by their records. An async shell.

What is found is a `Sidecar` whose source is the file itself. The record of a group lies in the group behind it, so that
groups are read from the last to the first, each through those behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.format.footer import (
    ENCRYPTED_MAGIC,
    MAGIC,
    PARITY_KEY,
    PARITY_SHARE_KEY,
    NeedBytes,
    key_values,
    parity_places,
    read_footer,
)
from resilient_pq.format.kernels import find_all
from resilient_pq.format.resilience_records import HEADER_SIZE, RECORD_MAGIC, RecordHeader, RecordKind, parse_header
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.group_record import LAST_FLAG, SIDECAR_FLAG, GroupRecord
from resilient_pq.parity.group_repair import ReadParity
from resilient_pq.parity.group_shape import MAX_SHARD_BYTES
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.parity.protected_file import ProtectedFile
from resilient_pq.parity.reed_solomon import MAX_PARITY
from resilient_pq.parity.sidecar import Sidecar, file_name
from resilient_pq.parity.sidecar_index import Member, SidecarIndex
from resilient_pq.units import KiB, MiB

#: Bytes at the end that are searched for the last record where the footer is damaged: indexes and a footer are behind.
_TAIL_BYTES = 16 * MiB
#: Bytes that are searched at a time.
_WINDOW_BYTES = 8 * MiB
#: Bytes read at first for a footer.
_FOOTER_BYTES = 64 * KiB
#: More than the largest record has.
_MAX_RECORD = 2 * MiB
#: More bytes than a group can rebuild are not taken to be missing.
_MOST_MISSING = MAX_PARITY * MAX_SHARD_BYTES


async def find_inline(source: PinnedObject, *, thorough: bool = False) -> Sidecar | None:
    """The groups inside a file; None where there are none."""
    search = _Search(source)
    places = await _named_places(search.read, source.info.size)
    if not (thorough or await _is_begun_with_parity(source) if places is None else places):
        return None
    await search.take_all(places or [])
    if not search.knows_end:
        await search.scan(max(0, source.info.size - _TAIL_BYTES))
        if search.knows_end:
            await search.take_all(await _named_places(search.read, search.size) or [])
        elif thorough:
            await search.scan(0)
    return search.found()


async def _is_begun_with_parity(source: PinnedObject) -> bool:
    """Whether the anchor, or what is left of its place, allows that the file has parity."""
    start, end = len(MAGIC), min(len(MAGIC) + HEADER_SIZE, source.info.size)
    header = parse_header(await source.read(ByteRange(start, end))) if start < end else None
    if header is None or header.payload_size > _MAX_RECORD or header.end > source.info.size:
        return True
    payload = await source.read(ByteRange(header.payload_offset, header.end))
    is_known = header.holds(payload) and bytes(await source.read(ByteRange(0, start))) != ENCRYPTED_MAGIC
    return not is_known or PARITY_SHARE_KEY.encode() in bytes(payload)


async def _named_places(read: ReadParity, size: int) -> list[ByteRange] | None:
    """Where the footer of a file of so many bytes says that parity lies; None where it cannot be read."""
    start = max(0, size - _FOOTER_BYTES)
    try:
        while isinstance(found := read_footer(await read(ByteRange(start, size)), start), NeedBytes):
            start = found.start
    except (FormatError, UnsupportedError):
        return None
    text = key_values(found.metadata.key_value_metadata).get(PARITY_KEY)
    return parity_places(text or "", size + _MOST_MISSING)


@dataclass(frozen=True, slots=True)
class GroupsInPlace:
    """The groups of a file that is gone on with: where their parity lies, and where the last of them ends."""

    places: tuple[ByteRange, ...] = ()
    num_groups: int = 0
    end: int = 0


async def groups_in_place(source: PinnedObject, places: Sequence[ByteRange], ends: Sequence[int]) -> GroupsInPlace:
    """The groups whose parity lies in places that a footer names, or directly behind the ends of row groups."""
    found = list(places)
    last = await _record_at(source, places[-1].start) if places else None
    for end in ends:
        at = end
        while (record := await _record_at(source, at)) is not None:
            last = record
            found.append(ByteRange(at, at + record.shape.framed_bytes))
            at = found[-1].end
    if last is None:
        return GroupsInPlace(tuple(found), len(found), found[-1].end if found else 0)
    return GroupsInPlace(tuple(found), last.number + 1, last.extents[-1].end)


async def _record_at(source: PinnedObject, offset: int) -> GroupRecord | None:
    """What the first copy of a record says that lies at an offset."""
    end = min(offset + HEADER_SIZE, source.info.size)
    header = parse_header(await source.read(ByteRange(offset, end))) if offset < end else None
    if header is None or not _may_be(header) or header.end > source.info.size or header.offset != offset:
        return None
    record = GroupRecord.unpack(await source.read(ByteRange(header.payload_offset, header.end)))
    return record if record is not None and _fits(header, record) and record.shards_offset == header.end else None


class _Search:
    """What was found of the groups inside a file."""

    def __init__(self, source: PinnedObject) -> None:
        self.size = source.info.size
        self.knows_end = False
        self._source = source
        self._records: dict[int, GroupRecord] = {}
        # A file to which rows were appended has last groups that are not its last one: of an earlier epoch, and before
        # other parity.
        self._epoch = self._least = 0
        self._knows_epoch = False

    def found(self) -> Sidecar | None:
        """The groups that do not contradict each other, in order."""
        groups: list[GroupRecord] = []
        for _, record in sorted(self._records.items(), reverse=True):
            behind = groups[-1].extents[0].start if groups else self.size
            if record.extents[0].end <= behind and all(extent.end <= self.size for extent in record.extents):
                groups.append(record)
        info = self._source.info
        member = Member(file_name(info.key), self.size, info.etag, "")
        index = SidecarIndex(0.0, (member,), ())
        return Sidecar(self._source, index, tuple(reversed(groups)), is_inline=True) if groups else None

    async def read(self, place: ByteRange) -> memoryview:
        """A range of the file, through the groups that are known."""
        found = self.found()
        if found is None:
            return await self._source.read(ByteRange(min(place.start, self.size), min(place.end, self.size)))
        return await ProtectedFile.inside(found).read(place)

    async def take_all(self, places: Sequence[ByteRange]) -> None:
        """Read the records of the groups whose parity lies in these places."""
        self._least = max(self._least, places[-1].end if places else 0)
        for place in reversed(places):
            await self._take(place)

    async def _take(self, place: ByteRange) -> None:
        first = await self.read(ByteRange(place.start, place.start + HEADER_SIZE))
        header = parse_header(first)
        if header is not None and _may_be(header):
            payload = await self.read(ByteRange(header.payload_offset, min(header.end, place.end)))
            self._add(header, GroupRecord.unpack(payload))
            if any(found.shards_offset == header.end and found.is_whole for found in self._records.values()):
                return
        end = ByteRange(max(place.start, place.end - _MAX_RECORD), place.end)
        self._add_all(await self.read(end), end.start)

    async def scan(self, start: int) -> None:
        """Look for records from an offset of the object on."""
        size, found = self._source.info.size, []
        for at in range(start, size, _WINDOW_BYTES):
            window = ByteRange(at, min(at + _WINDOW_BYTES + HEADER_SIZE - 1, size))
            data = await self._source.read(window)
            for i in find_all(data, RECORD_MAGIC).tolist():
                header = parse_header(data[i : i + HEADER_SIZE])
                if header is not None and header.offset == at + i:
                    self._epoch = max(self._epoch, header.epoch)
                if header is not None and _may_be(header):
                    found.append((at + i, header))
        self._knows_epoch = True
        left = size  # hostile bytes may have a header every 96 bytes, each with a large payload
        for at, header in reversed(found):
            left -= header.payload_size
            if left > 0 and at + HEADER_SIZE + header.payload_size <= size:
                payload = ByteRange(at + HEADER_SIZE, at + HEADER_SIZE + header.payload_size)
                self._add(header, GroupRecord.unpack(await self._source.read(payload)), at - header.offset)

    def _add_all(self, data: memoryview, start: int) -> None:
        for at in find_all(data, RECORD_MAGIC).tolist():
            header = parse_header(data[at : at + HEADER_SIZE])
            if header is not None and _may_be(header):
                payload = data[at + HEADER_SIZE : at + HEADER_SIZE + header.payload_size]
                self._add(header, GroupRecord.unpack(payload), start + at - header.offset)

    def _add(self, header: RecordHeader, record: GroupRecord | None, shift: int = 0) -> None:
        """Take a record that lies so many bytes behind the place where it was written, if all of it fits together."""
        if record is None or record.flags & SIDECAR_FLAG or not _fits(header, record):
            return
        size = record.extents[-1].end
        if record.flags & LAST_FLAG and not self.knows_end and header.epoch >= self._epoch and size >= self._least:
            missing = size - self._source.info.size
            # Where the object ends elsewhere, a record of a later epoch may show that this is not its last group.
            if shift not in (0, -missing) or missing > _MOST_MISSING or (missing and not self._knows_epoch):
                return
            self.size, self.knows_end = size, True
        if shift in (0, self._source.info.size - self.size):
            known = self._records.get(record.number)
            self._records[record.number] = record if known is None else known.merged(record)


def _may_be(header: RecordHeader) -> bool:
    return header.kind == RecordKind.PARITY and header.payload_size <= _MAX_RECORD


def _fits(header: RecordHeader, record: GroupRecord) -> bool:
    """Whether a record lies where it says that its copies and its parity do, and its data around them."""
    first = record.shards_offset - record.shape.record_bytes
    second = record.shards_offset + record.shape.parity_bytes
    end = second + record.shape.record_bytes
    is_last = bool(record.flags & LAST_FLAG)
    places = {(first, second), (second, first)}
    if (header.offset, record.other_copy) not in places or len(record.extents) != 1 + is_last:
        return False
    before = record.extents[0].end
    return (before, record.extents[1].start) == (first, end) if is_last else before <= first
