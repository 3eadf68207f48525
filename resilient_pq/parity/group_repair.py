"""The blocks of a parity group as they were written: compared, and rebuilt where they are lost. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.group_record import GroupRecord
from resilient_pq.parity.group_shape import GroupShape
from resilient_pq.parity.pinned_object import ProtectedBytes
from resilient_pq.parity.reed_solomon import rebuild_shards
from resilient_pq.units import MiB

#: Bytes that are compared at a time, and bytes of all shards that are in memory while blocks are rebuilt.
_WINDOW_BYTES = 8 * MiB
#: Requests under way at one time.
_AT_ONCE = 16

#: Gives a range of the object in which the parity lies.
ReadParity: TypeAlias = Callable[[ByteRange], Awaitable[memoryview]]


class GroupRepair:
    """One group. Blocks are compared when they are first read, and columns rebuilt when one of their blocks is lost."""

    def __init__(self, record: GroupRecord, data: ProtectedBytes, parity: Sequence[ReadParity]) -> None:
        """Read nothing yet; `parity` are the ways to read parity shards, by their offsets."""
        num_blocks = -(-record.shape.num_bytes // record.shape.block_bytes)
        self.record = record
        self.lost = np.zeros(num_blocks, np.bool_)
        self.moved = np.zeros(num_blocks, np.bool_)  # Found where its place is counted from the end of its file
        self.rebuilt: dict[int, bytes] = {}
        self.is_proven = False  # Whether `examine` found the digest of all bytes to hold
        self._compared = np.zeros(num_blocks, np.bool_)
        self._mended = np.zeros(record.shape.num_columns, np.bool_)
        self._data = data
        self._read_parity = parity

    @property
    def num_damaged(self) -> int:
        """Blocks that are not whole in their place."""
        return int(self.lost.sum() + self.moved.sum())

    @property
    def num_not_rebuilt(self) -> int:
        """Lost blocks that cannot be rebuilt."""
        return int(self.lost.sum()) - len(self.rebuilt)

    async def examine(self) -> None:
        """Compare all blocks, and rebuild those that are lost, as far as the parity allows."""
        digest = xxhash.xxh3_128()
        for first, end in self._windows():
            digest.update(await self._read_blocks(first, end))
        self.is_proven = digest.digest() == self.record.digest

    async def pieces(self, place: ByteRange) -> AsyncGenerator[memoryview, None]:
        """A range of the bytes of the group; blocks that cannot be rebuilt stay as they are."""
        for first, end in self._windows():
            window = self._place(first, end)
            start, stop = max(window.start, place.start), min(window.end, place.end)
            if start < stop:
                size = self.record.shape.block_bytes
                wanted = first + (start - window.start) // size
                data = await self._read_blocks(wanted, first - (window.start - stop) // size)
                begin = start - self._place(wanted, end).start
                yield data[begin : begin + stop - start]

    def rebuilt_in(self, place: ByteRange) -> Iterator[tuple[int, bytes]]:
        """The rebuilt blocks that lie in a range of the group: their offset in it, and their bytes there."""
        for number, data in sorted(self.rebuilt.items()):
            block = self._place(number, number + 1)
            start, end = max(block.start, place.start), min(block.end, place.end)
            if start < end:
                yield start - place.start, data[start - block.start : end - block.start]

    def _place(self, first: int, end: int) -> ByteRange:
        """Where blocks lie in the group; the last block may be shorter."""
        size, num_bytes = self.record.shape.block_bytes, self.record.shape.num_bytes
        return ByteRange(min(first * size, num_bytes), min(end * size, num_bytes))

    async def _read(self, place: ByteRange, *, from_end: bool = False) -> memoryview:
        """A range of the group as it lies among the protected bytes."""
        parts, at = [], 0
        for extent in self.record.extents:
            start, end = max(place.start, at), min(place.end, at + extent.size)
            if start < end:
                there = ByteRange(extent.start + start - at, extent.start + end - at)
                parts.append(await self._data.read(there, from_end=from_end))
            at += extent.size
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _windows(self) -> Iterator[tuple[int, int]]:
        step = _WINDOW_BYTES // self.record.shape.block_bytes
        return ((first, min(first + step, len(self.lost))) for first in range(0, len(self.lost), step))

    async def _read_blocks(self, first: int, end: int) -> memoryview:
        """The bytes of blocks as they were written, as far as they can be had."""
        found = await self._compare(first, end)
        if not self.lost[first:end].any():
            return found
        await self._mend(first, end)
        data, size = bytearray(found), self.record.shape.block_bytes
        for number in range(first, end):
            if number in self.rebuilt:
                at = (number - first) * size
                data[at : at + size] = self.rebuilt[number][: len(data) - at]
        return memoryview(data)

    async def _compare(self, first: int, end: int) -> memoryview:
        """The bytes of blocks where they are found; those of lost ones are what lies in their place."""
        if self._compared[first:end].all():
            return await self._found(first, end)
        place = self._place(first, end)
        data = await self._read(place)
        damaged = await asyncio.to_thread(damaged_blocks, self.record, first, data)
        if damaged.any() and self._data.has_moved:
            shifted = await self._read(place, from_end=True)
            elsewhere = damaged & ~await asyncio.to_thread(damaged_blocks, self.record, first, shifted)
            self.moved[first:end], damaged = elsewhere, damaged & ~elsewhere
        self.lost[first:end] = damaged
        self._compared[first:end] = True
        return await self._found(first, end) if self.moved[first:end].any() else data

    async def _found(self, first: int, end: int) -> memoryview:
        """The bytes of blocks that were compared."""
        moved = self.moved[first:end]
        if not moved.any() or moved.all():
            return await self._read(self._place(first, end), from_end=bool(moved.any()))
        borders = [first, *(first + 1 + np.flatnonzero(moved[1:] != moved[:-1])).tolist(), end]
        parts = [await self._found(*each) for each in pairwise(borders)]
        return memoryview(b"".join(parts))

    async def _mend(self, first: int, end: int) -> None:
        """Rebuild the columns of lost blocks that were not rebuilt before."""
        shape = self.record.shape
        columns = {int(number) % shape.num_columns for number in first + np.flatnonzero(self.lost[first:end])}
        wanted = np.zeros((1, shape.num_columns), np.bool_)
        wanted[0, [column for column in columns if not self._mended[column]]] = shape.num_parity > 0
        most = max(1, _WINDOW_BYTES // (shape.num_data * shape.block_bytes))
        for run in column_runs(wanted, most):
            data = await self._shards(run)
            parity = await self._parity(run)
            self._mended[run.start : run.end] = True
            await asyncio.to_thread(self._rebuild, run, data, parity)

    async def _shards(self, run: ColumnRun) -> NDArray[np.uint8]:
        """The bytes of some columns in each data shard."""
        shape, limit = self.record.shape, asyncio.Semaphore(_AT_ONCE)
        data = np.zeros((shape.num_data, (run.end - run.start) * shape.block_bytes), np.uint8)

        async def fill(shard: int) -> None:
            first = shard * shape.num_columns
            start, end = (min(first + column, len(self.lost)) for column in (run.start, run.end))
            if start < end:
                async with limit:
                    found = await self._compare(start, end)
                data[shard, : len(found)] = np.frombuffer(found, np.uint8)

        await asyncio.gather(*(fill(shard) for shard in range(shape.num_data)))
        return data

    async def _parity(self, run: ColumnRun) -> NDArray[np.uint8]:
        """The bytes of some columns in each parity shard, by the way of reading that has each block whole."""
        shape, size = self.record.shape, (run.end - run.start) * self.record.shape.block_bytes
        parity = np.zeros((shape.num_parity, size), np.uint8)
        starts = [
            self.record.shards_offset + shard * shape.shard_bytes + run.start * shape.block_bytes
            for shard in range(shape.num_parity)
        ]
        for read in self._read_parity:
            bad = ~whole_parity(self.record, run, parity)
            wanted = np.flatnonzero(bad.any(axis=1)).tolist()
            reads = [read(ByteRange(starts[shard], starts[shard] + size)) for shard in wanted]
            for shard, found in zip(wanted, await asyncio.gather(*reads), strict=True):
                taken = np.repeat(bad[shard], shape.block_bytes)
                parity[shard] = np.where(taken, np.frombuffer(found, np.uint8), parity[shard])
        return parity

    def _rebuild(self, columns: ColumnRun, data: NDArray[np.uint8], parity: NDArray[np.uint8]) -> None:
        """Rebuild the lost blocks of some columns."""
        shape, size = self.record.shape, self.record.shape.block_bytes
        table = np.zeros(shape.num_data * shape.num_columns, np.bool_)
        table[: len(self.lost)] = self.lost
        lost = table.reshape(shape.num_data, shape.num_columns)[:, columns.start : columns.end]
        for run in column_runs(lost, lost.shape[1]):
            if len(run.lost) > shape.num_parity:
                continue
            part = slice(run.start * size, run.end * size)
            placed = ColumnRun(columns.start + run.start, columns.start + run.end, run.lost)
            sources, parity_part = np.ascontiguousarray(data[:, part]), np.ascontiguousarray(parity[:, part])
            sources[list(run.lost)] = 0
            whole = whole_parity(self.record, placed, parity_part)
            self._keep(placed, *rebuild_run(shape, placed, sources, parity_part, whole))

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


@dataclass(frozen=True, slots=True)
class ColumnRun:
    """The columns from `start` up to, not including, `end`, in which the same data shards lost their blocks."""

    start: int
    end: int
    lost: tuple[int, ...]


def column_runs(lost: NDArray[np.bool_], max_columns: int) -> Iterator[ColumnRun]:
    """Runs of columns that lost blocks, at most `max_columns` long; `lost` has a row for each data shard."""
    columns = np.flatnonzero(lost.any(axis=0))
    start = 0
    while start < len(columns):
        first, pattern = int(columns[start]), lost[:, columns[start]]
        end = start + 1
        while (
            end < len(columns)
            and end - start < max_columns
            and columns[end] == first + end - start
            and np.array_equal(lost[:, columns[end]], pattern)
        ):
            end += 1
        yield ColumnRun(first, first + end - start, tuple(int(row) for row in np.flatnonzero(pattern)))
        start = end


def damaged_blocks(record: GroupRecord, first: int, data: memoryview) -> NDArray[np.bool_]:
    """Of the data blocks from number `first` on that `data` holds, those without the CRC32 that they were written with.

    The last block counts as filled up with zeros. Blocks of a shard whose checksums are not known count as damaged.
    """
    size = record.shape.block_bytes
    sums = [crc32(data[at : at + size]) for at in range(0, len(data), size)]
    if rest := len(data) % size:
        sums[-1] = crc32(bytes(size - rest), sums[-1])
    expected = record.block_crcs[: record.shape.num_data].reshape(-1)[first : first + len(sums)]
    known = np.repeat(record.known_shards[: record.shape.num_data], record.shape.num_columns)
    damaged: NDArray[np.bool_] = (np.array(sums, np.uint32) != expected) | ~known[first : first + len(sums)]
    return damaged


def whole_parity(record: GroupRecord, run: ColumnRun, parity: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """For each parity shard and each column of a run whether the block is as it was written."""
    shape = record.shape
    blocks = parity.reshape(shape.num_parity, run.end - run.start, shape.block_bytes)
    sums = np.array([[crc32(block) for block in row] for row in blocks], np.uint32)
    known = record.known_shards[shape.num_data :, None]
    whole: NDArray[np.bool_] = known & (sums == record.block_crcs[shape.num_data :, run.start : run.end])
    return whole


def rebuild_run(
    shape: GroupShape, run: ColumnRun, data: NDArray[np.uint8], parity: NDArray[np.uint8], whole: NDArray[np.bool_]
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The lost blocks of a run."""
    size, num_lost = shape.block_bytes, len(run.lost)
    rebuilt = np.zeros((num_lost, data.shape[1]), np.uint8)
    possible = whole.sum(axis=0) >= num_lost
    for start, end, rows in _alike(whole, num_lost):
        if len(rows) == num_lost:
            part = slice(start * size, end * size)
            sources = np.ascontiguousarray(data[:, part])
            rebuilt[:, part] = rebuild_shards(sources, np.ascontiguousarray(parity[rows, part]), run.lost, rows)
    return rebuilt, possible


def _alike(whole: NDArray[np.bool_], wanted: int) -> Iterator[tuple[int, int, Sequence[int]]]:
    """Columns one behind the other whose first `wanted` whole parity shards are the same, and these shards."""
    start, rows = 0, _first_whole(whole, 0, wanted)
    for column in range(1, whole.shape[1] + 1):
        following = _first_whole(whole, column, wanted) if column < whole.shape[1] else None
        if following != rows:
            yield start, column, rows
            start, rows = column, following or []


def _first_whole(whole: NDArray[np.bool_], column: int, wanted: int) -> list[int]:
    return [int(row) for row in np.flatnonzero(whole[:, column])[:wanted]]
