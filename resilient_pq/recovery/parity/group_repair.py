"""The blocks of a parity group that are lost, found and rebuilt. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format.parity.group_record import GroupRecord
from resilient_pq.format.parity.lost_blocks import ColumnRun, column_runs, damaged_blocks, rebuild_run, whole_parity
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.parity.protected_bytes import ProtectedBytes
from resilient_pq.units import MiB

#: Bytes that are compared at a time, and bytes of all shards that are in memory while blocks are rebuilt.
_WINDOW_BYTES = 8 * MiB
#: Requests under way at one time.
_AT_ONCE = 16


@dataclass(slots=True)
class GroupRepair:
    """One group: which of its blocks are whole in their place, which lie elsewhere in their file, and which are lost.

    Attributes:
        record: The record of the group.
        lost: For each data block, in order, whether it is nowhere.
        moved: For each data block whether it is found when its place is counted from the end of its file.
        rebuilt: The bytes of blocks that were rebuilt, by their number.
    """

    record: GroupRecord
    data: ProtectedBytes
    lost: NDArray[np.bool_] = field(init=False)
    moved: NDArray[np.bool_] = field(init=False)
    rebuilt: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing was looked at."""
        num_blocks = -(-self.record.shape.num_bytes // self.record.shape.block_bytes)
        self.lost = np.zeros(num_blocks, np.bool_)
        self.moved = np.zeros(num_blocks, np.bool_)

    @property
    def num_damaged(self) -> int:
        """Blocks that are not whole in their place."""
        return int(self.lost.sum() + self.moved.sum())

    @property
    def num_not_rebuilt(self) -> int:
        """Lost blocks that were not rebuilt."""
        return int(self.lost.sum()) - len(self.rebuilt)

    async def find_lost(self) -> None:
        """Compare every block with its checksum."""
        for first, place in self._windows():
            damaged = await self._damaged(first, place, from_end=False)
            if damaged.any() and self.data.has_moved:
                elsewhere = damaged & ~await self._damaged(first, place, from_end=True)
                self.moved[first : first + len(damaged)] = elsewhere
                damaged &= ~elsewhere
            self.lost[first : first + len(damaged)] = damaged

    async def rebuild(self, sidecar: DamagedObject) -> None:
        """Rebuild the blocks that are lost, as far as the parity in a sidecar allows."""
        shape = self.record.shape
        if not shape.num_parity or not self.lost.any():
            return
        table = np.zeros(shape.num_data * shape.num_columns, np.bool_)
        table[: len(self.lost)] = self.lost
        most = max(1, _WINDOW_BYTES // (shape.num_data * shape.block_bytes))
        for run in column_runs(table.reshape(shape.num_data, shape.num_columns), most):
            if len(run.lost) > shape.num_parity:
                continue
            parity = await self._parity(sidecar, run)
            whole = await asyncio.to_thread(whole_parity, self.record, run, parity)
            data = await self._shards(run)
            rows, possible = await asyncio.to_thread(rebuild_run, shape, run, data, parity, whole)
            self._keep(run, rows, possible)

    async def pieces(self, place: ByteRange) -> AsyncGenerator[memoryview, None]:
        """What of the group lies in a range of the protected bytes, piece by piece, lost blocks rebuilt."""
        for first, window in self._windows():
            start, end = max(window.start, place.start), min(window.end, place.end)
            if start < end:
                data = await self._read(first, first + -(-window.size // self.record.shape.block_bytes))
                yield data[start - window.start : end - window.start]

    def rebuilt_in(self, place: ByteRange) -> Iterator[tuple[int, bytes]]:
        """The rebuilt blocks that lie in a range of the protected bytes: their offset in it, and their bytes there."""
        for number, data in sorted(self.rebuilt.items()):
            block = self._place(number, number + 1)
            start, end = max(block.start, place.start), min(block.end, place.end)
            if start < end:
                yield start - place.start, data[start - block.start : end - block.start]

    async def _read(self, first: int, end: int) -> memoryview:
        """The bytes of blocks, those of lost ones rebuilt."""
        shape = self.record.shape
        found = await self._whole_blocks(first, end)
        if not self.lost[first:end].any():
            return found
        data = bytearray(found)
        for number in range(first, end):
            if number in self.rebuilt:
                at = (number - first) * shape.block_bytes
                room = len(data) - at
                data[at : at + shape.block_bytes] = self.rebuilt[number][:room]
        return memoryview(data)

    def _place(self, first: int, end: int) -> ByteRange:
        """Where blocks lie among the protected bytes; the last block of the group may be shorter."""
        extent, size = self.record.extents[0], self.record.shape.block_bytes
        return ByteRange(min(extent.start + first * size, extent.end), min(extent.start + end * size, extent.end))

    def _windows(self) -> list[tuple[int, ByteRange]]:
        """All blocks in windows: the number of the first block, and where they lie."""
        step = _WINDOW_BYTES // self.record.shape.block_bytes
        return [(first, self._place(first, first + step)) for first in range(0, len(self.lost), step)]

    async def _damaged(self, first: int, place: ByteRange, *, from_end: bool) -> NDArray[np.bool_]:
        data = await self.data.read(place, from_end=from_end)
        return await asyncio.to_thread(damaged_blocks, self.record, first, data)

    async def _whole_blocks(self, first: int, end: int) -> memoryview:
        """The bytes of blocks where they were found."""
        moved = self.moved[first:end]
        if not moved.any() or moved.all():
            return await self.data.read(self._place(first, end), from_end=bool(moved.any()))
        borders = [first, *(first + 1 + np.flatnonzero(moved[1:] != moved[:-1])).tolist(), end]
        parts = [await self._whole_blocks(*each) for each in pairwise(borders)]
        return memoryview(b"".join(parts))

    async def _shards(self, run: ColumnRun) -> NDArray[np.uint8]:
        """The bytes of a run of columns in each data shard, zeros where they are lost."""
        shape, limit = self.record.shape, asyncio.Semaphore(_AT_ONCE)
        data = np.zeros((shape.num_data, (run.end - run.start) * shape.block_bytes), np.uint8)

        async def fill(shard: int) -> None:
            first = shard * shape.num_columns
            start, end = (min(first + column, len(self.lost)) for column in (run.start, run.end))
            if start < end:
                async with limit:
                    found = await self._whole_blocks(start, end)
                data[shard, : len(found)] = np.frombuffer(found, np.uint8)

        await asyncio.gather(*(fill(shard) for shard in range(shape.num_data) if shard not in run.lost))
        return data

    async def _parity(self, sidecar: DamagedObject, run: ColumnRun) -> NDArray[np.uint8]:
        """The bytes of a run of columns in each parity shard."""
        shape = self.record.shape
        parity = np.zeros((shape.num_parity, (run.end - run.start) * shape.block_bytes), np.uint8)
        for shard, row in enumerate(parity):
            start = self.record.shards_offset + shard * shape.shard_bytes + run.start * shape.block_bytes
            row[:] = np.frombuffer(await sidecar.read(ByteRange(start, start + len(row))), np.uint8)
        return parity

    def _keep(self, run: ColumnRun, rows: NDArray[np.uint8], possible: NDArray[np.bool_]) -> None:
        """Keep the rebuilt blocks of a run that are as they were written."""
        shape = self.record.shape
        for shard, row in zip(run.lost, rows, strict=True):
            first = shard * shape.num_columns + run.start
            bad = damaged_blocks(self.record, first, memoryview(row).cast("B"))
            trusted = ~bad if self.record.known_shards[shard] else np.ones_like(bad)
            for column in np.flatnonzero(possible & trusted).tolist():
                at = column * shape.block_bytes
                self.rebuilt[first + column] = row[at : at + shape.block_bytes].tobytes()
