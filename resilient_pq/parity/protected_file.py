"""A file read through its parity groups, as it was written: those of a sidecar, or those inside it. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format import kernels
from resilient_pq.format.resilience_records import (
    HEADER_SIZE,
    RECORD_MAGIC,
    RecordChain,
    RecordHeader,
    RecordKind,
    parse_header,
)
from resilient_pq.io import ObjectInfo, ReadStore
from resilient_pq.parity.group_encoder import GroupEncoder
from resilient_pq.parity.group_record import LAST_FLAG
from resilient_pq.parity.group_repair import GroupRepair, ReadParity
from resilient_pq.parity.pinned_object import PinnedObject, ProtectedBytes
from resilient_pq.parity.sidecar import Sidecar
from resilient_pq.parity.sidecar_index import padded
from resilient_pq.units import MiB

#: Bytes outside of groups that are given at a time.
_PIECE_BYTES = 8 * MiB
#: Bytes before the last parity that are searched for the record before it.
_MAX_RECORD = 64 * MiB


class ProtectedFile:
    """One of the files that groups protect. Blocks are compared as they are read, and rebuilt where they are lost."""

    def __init__(self, parity: Sidecar, data: ProtectedBytes, number: int) -> None:
        """Read nothing yet; `number` is that of the file in the sidecar."""
        self.parity = parity
        self.data = data
        self.number = number
        self.place = parity.index.places[number]
        self.mirror = parity.index.mirror
        whole = ByteRange(self.place.start, self.place.start + padded(self.place.size))
        reads: list[ReadParity] = [parity.source.read]
        if parity.is_inline:
            reads = [self.read, partial(data.read, from_end=True)]
        self.groups = [
            GroupRepair(record, data, reads)
            for record in parity.groups
            if any(extent.start < whole.end and whole.start < extent.end for extent in record.extents)
        ]
        self._last_parity: bytes | None = None
        self._last_damaged = 0

    @classmethod
    def inside(cls, parity: Sidecar) -> ProtectedFile:
        """A file with the parity that lies in it."""
        return cls(parity, ProtectedBytes(parity.index, [parity.source]), 0)

    @classmethod
    async def beside(
        cls, sidecar: Sidecar, store: ReadStore, key: str, source: PinnedObject | None = None
    ) -> ProtectedFile:
        """A file with its sidecar; `source` is the file where its version is known."""
        return cls(sidecar, await sidecar.members(store, key, source), sidecar.member_number(key))

    def is_of(self, info: ObjectInfo) -> bool:
        """Whether the parity was made of this version of the file, as far as ETag and size tell."""
        return self.parity.is_inline or self.parity.index.members[self.number].is_of(info)

    @property
    def digest(self) -> str:
        """The xxh3-128 of the file as a sidecar has it; empty of parity inside the file."""
        return self.parity.index.members[self.number].digest

    @property
    def num_damaged(self) -> int:
        """Blocks that are not whole in their place, of those that were compared."""
        return sum(group.num_damaged for group in self.groups) + self._last_damaged

    @property
    def num_rebuilt(self) -> int:
        """Blocks that were made from parity."""
        return sum(len(group.rebuilt) for group in self.groups) + self._last_damaged

    @property
    def num_not_rebuilt(self) -> int:
        """Lost blocks that cannot be rebuilt."""
        return sum(group.num_not_rebuilt for group in self.groups)

    @property
    def has_moved(self) -> bool:
        """Whether blocks were found in other places than they were written."""
        return any(group.moved.any() for group in self.groups)

    async def examine(self) -> None:
        """Compare all blocks, and rebuild those that are lost, as far as the parity allows."""
        for group in reversed(self.groups):  # the parity inside a file lies in the groups behind
            await group.examine()

    async def read(self, place: ByteRange) -> memoryview:
        """A range of the protected bytes."""
        parts = [piece async for piece in self.pieces(place)]
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    async def pieces(self, place: ByteRange) -> AsyncGenerator[memoryview, None]:
        """A range of the protected bytes, piece by piece; bytes of no group as they lie."""
        if self.mirror is not None:
            yield memoryview(self.mirror)[place.start : place.end]
            return
        for part, group, at in self._parts(place):
            if group is None:
                for start in range(part.start, part.end, _PIECE_BYTES):
                    yield await self._read_outside(ByteRange(start, min(start + _PIECE_BYTES, part.end)))
                continue
            async with aclosing(group.pieces(ByteRange(at, at + part.size))) as pieces:
                async for piece in pieces:
                    yield piece

    def _parts(self, place: ByteRange) -> Iterator[tuple[ByteRange, GroupRepair | None, int]]:
        """A range cut where groups begin and end, with the group and the place in it; None for bytes of no group."""
        extents = []
        for group in self.groups:
            at = 0
            for extent in group.record.extents:
                extents.append((extent.start, extent, at, group))
                at += extent.size
        end = place.start
        for _, extent, at, group in sorted(extents, key=lambda found: found[0]):
            start, stop = max(extent.start, end), min(extent.end, place.end)  # bytes may be in two groups
            if start < stop:
                if end < start:
                    yield ByteRange(end, start), None, 0
                yield ByteRange(start, stop), group, at + start - extent.start
                end = stop
        if end < place.end:
            yield ByteRange(end, place.end), None, 0

    def changed(self) -> Iterator[tuple[int, bytes]]:
        """What of the file was made anew: offsets in it, and bytes."""
        if self.mirror is not None:
            yield 0, self.mirror
        for group in self.groups:
            at = 0
            for extent in group.record.extents:
                start, end = max(extent.start, self.place.start), min(extent.end, self.place.end)
                if start < end:
                    there = ByteRange(at + start - extent.start, at + end - extent.start)
                    yield from ((start - self.place.start + i, data) for i, data in group.rebuilt_in(there))
                at += extent.size
        if self._last_parity is not None and self.last_place is not None and self._last_damaged:
            yield self.last_place.start, self._last_parity

    # -- the parity of the last group inside a file, which no group has --------------------------------

    @property
    def last_place(self) -> ByteRange | None:
        """Where the parity of the group lies that ends the file; None where that is not known."""
        last = self.groups[-1].record if self.groups else None
        # Before rows were appended the file had another last group.
        if last is None or not last.flags & LAST_FLAG or last.extents[-1].end != self.place.end:
            return None
        start = last.extents[0].end
        return ByteRange(start, start + last.shape.framed_bytes)

    async def _read_outside(self, place: ByteRange) -> memoryview:
        last, made = self.last_place, self._last_parity
        if made is None or last is None or not last.start <= place.start <= place.end <= last.end:
            return await self.data.read(place)
        return memoryview(made)[place.start - last.start : place.end - last.start]

    async def remake_last_parity(self) -> bool:
        """Make the parity of the last group from its bytes, which is read from then on; whether that can be done."""
        place = self.last_place
        header = None if place is None else await self._last_header(place)
        if place is None or header is None:
            return False
        group = self.groups[-1]
        encoder = GroupEncoder(group.record.shape)
        async with aclosing(group.pieces(ByteRange(0, group.record.shape.num_bytes))) as pieces:
            async for piece in pieces:
                await asyncio.to_thread(encoder.add, piece)
        made = await asyncio.to_thread(encoder.finish)
        if made.digest != group.record.digest:
            return False
        chain = RecordChain(header.file_id, header.epoch, header.number, header.previous, header.newest_footer)

        def record(offset: int, payload: bytes) -> bytes:
            rows, row_groups = header.num_rows, header.num_row_groups
            return chain.record(RecordKind.PARITY, offset, payload, num_rows=rows, num_row_groups=row_groups)

        framed = made.framed(group.record.number, group.record.extents, place.start, LAST_FLAG, record)
        self._last_parity = b"".join(framed)
        there, size = await self.data.read(place), group.record.shape.block_bytes
        self._last_damaged = sum(
            there[at : at + size] != self._last_parity[at : at + size] for at in range(0, place.size, size)
        )
        return True

    async def _last_header(self, place: ByteRange) -> RecordHeader | None:
        """The header of the first copy of the last record, as it was written."""
        second = place.end - self.groups[-1].record.shape.record_bytes
        for offset in (place.start, second):
            for from_end in (False, True):
                there = ByteRange(offset, offset + HEADER_SIZE)
                header = parse_header(await self.data.read(there, from_end=from_end))
                if header is not None and (header.kind, header.offset) == (RecordKind.PARITY, offset):
                    return header if offset == place.start else await self._header_before(header, place.start)
        return None

    async def _header_before(self, second: RecordHeader, offset: int) -> RecordHeader | None:
        """The header of the first copy, which lies at an offset directly behind another record, from the second's."""
        for end in range(offset, max(0, offset - _MAX_RECORD), -_PIECE_BYTES):
            window = await self.read(ByteRange(max(0, end - _PIECE_BYTES), min(offset, end + HEADER_SIZE)))
            for at in kernels.find_all(window, RECORD_MAGIC).tolist():
                header = parse_header(window[at : at + HEADER_SIZE])
                if header is not None and (header.end, header.number) == (offset, second.number - 2):
                    return replace(second, offset=offset, number=second.number - 1, previous=header.offset)
        return None
