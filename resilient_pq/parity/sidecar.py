"""A sidecar, found and read: its index, and the records of its groups. An async shell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, NotFoundError, Where
from resilient_pq.format.kernels import find_all
from resilient_pq.format.resilience_records import HEADER_SIZE, RECORD_MAGIC, RecordHeader, RecordKind, parse_header
from resilient_pq.io import ReadStore
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.group_record import GroupRecord
from resilient_pq.parity.pinned_object import PinnedObject, ProtectedBytes
from resilient_pq.parity.sidecar_index import SUFFIX, TRAILER_SIZE, SidecarIndex, padded, parse_trailer
from resilient_pq.units import MiB

#: Bytes that are searched for records at a time where a sidecar is damaged.
_SEARCHED_BYTES = 8 * MiB
#: More than the largest record and the index of a hundred thousand files have.
_MAX_PAYLOAD = 64 * MiB


#: The sidecar of all files of a folder.
_ACROSS_NAME = f"_folder{SUFFIX}"


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A sidecar: where it is read from, its index, and a record for each group; or those inside a file."""

    source: PinnedObject
    index: SidecarIndex
    groups: tuple[GroupRecord, ...]
    is_inline: bool = False

    @classmethod
    async def read(cls, store: ReadStore, key: str) -> Sidecar:
        """Read the index and the records of a sidecar.

        Raises:
            FormatError: It is no sidecar, or too little of it is left.
            NotFoundError: There is none.
        """
        source = await PinnedObject.find(store, key)
        where, size = Where(key=source.url), source.info.size
        tail = await source.read(ByteRange(max(0, size - TRAILER_SIZE), size))
        headers = [await _header(source, place) for place in parse_trailer(tail) or ()]
        index = await _index(source, headers) or await _index(source, await _search(source))
        if index is None:
            hint = "rpq protect --overwrite makes it anew, of a file that rpq check finds sound"
            raise FormatError("it is no sidecar, or its index is lost", where=where, hint=hint)
        groups: list[GroupRecord] = []
        for copies in index.groups:
            group = await _group(source, *copies)
            if group is None or group.number != len(groups):
                raise FormatError("both records of a parity group are damaged", where=where)
            groups.append(group)
        _check_extents(index, groups, where)
        return cls(source, index, tuple(groups))

    @classmethod
    async def beside(cls, store: ReadStore, key: str) -> Sidecar | None:
        """The sidecar of a file, or that of its folder if the file is in it; None where there is neither."""
        for across in (False, True):
            with suppress(NotFoundError):
                found = await cls.read(store, sidecar_key(store, key, across=across))
                found.member_number(key)
                return found
        return None

    def member_number(self, key: str) -> int:
        """Which of the files of the sidecar is meant: the only one, whatever it is called, or the one of this name."""
        names = [member.name for member in self.index.members]
        if len(names) == 1:
            return 0
        name = file_name(key)
        if name not in names:
            where = Where(key=self.source.url)
            raise NotFoundError(f"the sidecar protects {len(names):,} files, and none called {name}", where=where)
        return names.index(name)

    async def members(self, store: ReadStore, key: str, known: PinnedObject | None = None) -> ProtectedBytes:
        """The files of the sidecar, as far as they are there."""
        number, files = self.member_number(key), []
        for i, member in enumerate(self.index.members):
            found = known if i == number else None
            with suppress(NotFoundError):
                found = found or await PinnedObject.find(store, key if i == number else store.beside(key, member.name))
            files.append(found)
        return ProtectedBytes(self.index, files)


def sidecar_key(store: ReadStore, key: str, *, across: bool = False) -> str:
    """Where the sidecar of a file, or that of all files in its folder, lies where nothing else is said."""
    return store.beside(key, _ACROSS_NAME) if across else key + SUFFIX


def file_name(key: str) -> str:
    """The name of a file in its folder."""
    return key.replace(os.sep, "/").rpartition("/")[2]


async def _header(source: PinnedObject, offset: int) -> RecordHeader | None:
    """The header of the record at a place; None where none is, or where its payload would not fit into the sidecar."""
    if not 0 <= offset <= source.info.size - HEADER_SIZE:
        return None
    return _fitting(parse_header(await source.read(ByteRange(offset, offset + HEADER_SIZE))), offset, source)


def _fitting(header: RecordHeader | None, offset: int, source: PinnedObject) -> RecordHeader | None:
    if header is None or header.offset != offset or header.payload_size > _MAX_PAYLOAD:
        return None
    return header if header.end <= source.info.size else None


async def _index(source: PinnedObject, headers: list[RecordHeader | None]) -> SidecarIndex | None:
    """The first index that is whole."""
    left = 2 * source.info.size  # both copies; hostile headers may name the same bytes again and again
    for header in headers:
        if header is not None and header.kind == RecordKind.SIDECAR_INDEX and header.payload_size <= left:
            left -= header.payload_size
            payload = await source.read(ByteRange(header.payload_offset, header.end))
            if header.holds(payload):
                return SidecarIndex.unpack(bytes(payload))
    return None


async def _group(source: PinnedObject, *copies: int) -> GroupRecord | None:
    """What both copies of a record say of a group."""
    found: GroupRecord | None = None
    for offset in copies:
        header = await _header(source, offset)
        if header is None or header.kind != RecordKind.PARITY:
            continue
        record = GroupRecord.unpack(await source.read(ByteRange(header.payload_offset, header.end)))
        if record is not None and record.shards_offset + record.shape.parity_bytes <= source.info.size:
            found = record if found is None else found.merged(record)
    return found


async def _search(source: PinnedObject) -> list[RecordHeader | None]:
    """The headers of all records of a sidecar, wherever they lie."""
    found: list[RecordHeader | None] = []
    for start in range(0, source.info.size, _SEARCHED_BYTES):
        end = min(start + _SEARCHED_BYTES + HEADER_SIZE - 1, source.info.size)
        window = await source.read(ByteRange(start, end))
        places = find_all(window, RECORD_MAGIC).tolist()
        found += [_fitting(parse_header(window[at : at + HEADER_SIZE]), start + at, source) for at in places]
    return found


def _check_extents(index: SidecarIndex, groups: Sequence[GroupRecord], where: Where) -> None:
    """Refuse groups that do not cover the files that the index names, one behind the other."""
    total = sum(padded(member.size) for member in index.members)
    ends = [0]
    for group in groups:
        if group.extents != (ByteRange(ends[-1], ends[-1] + group.shape.num_bytes),):
            raise FormatError("the parity groups do not follow each other", where=where)
        ends.append(group.extents[0].end)
    if index.mirror is None and ends[-1] != total:
        raise FormatError(f"the parity groups cover {ends[-1]:,} bytes, not {total:,}", where=where)
