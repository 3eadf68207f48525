"""Parity held against the bytes that it was made of, or against its own checksums. An async shell."""

from __future__ import annotations

import asyncio

import numpy as np
from numpy.typing import NDArray

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32
from resilient_pq.io import ObjectInfo, ReadStore
from resilient_pq.parity.group_encoder import GroupEncoder
from resilient_pq.parity.group_record import GroupRecord
from resilient_pq.parity.healed_store import ExaminedBlocks
from resilient_pq.parity.inline_parity import find_inline
from resilient_pq.parity.pinned_object import PinnedObject, ProtectedBytes
from resilient_pq.parity.sidecar import Sidecar
from resilient_pq.units import MiB

_WINDOW_BYTES = 8 * MiB


async def recompute_parity(store: ReadStore, info: ObjectInfo) -> ExaminedBlocks:
    """The blocks of all parity of an object, beside it and in it, and those that are not what its bytes give."""
    source, found = PinnedObject(store, info.key, info), list[ExaminedBlocks]()
    if (beside := await Sidecar.beside(store, info.key)) is not None:
        found.append(await examine_parity(beside, await beside.members(store, info.key, source)))
    if (inside := await find_inline(source)) is not None:
        found.append(await examine_parity(inside, ProtectedBytes(inside.index, [source])))
    return ExaminedBlocks(sum(each.num_blocks for each in found), sum(each.num_damaged for each in found), 0)


async def examine_parity(parity: Sidecar, data: ProtectedBytes | None = None) -> ExaminedBlocks:
    """The blocks of parity, and those that are not what `data` gives; without data, those that fail their checksum."""
    num_blocks = num_damaged = 0
    for record in parity.groups:
        shape = record.shape
        expected, known = record.block_crcs, record.known_shards
        if data is not None:
            expected, known = await _recomputed(record, data), np.ones_like(known)
        for shard in range(shape.num_parity):
            start = record.shards_offset + shard * shape.shard_bytes
            stored = await parity.source.read(ByteRange(start, start + shape.shard_bytes))
            sums = await asyncio.to_thread(_sums, stored, shape.block_bytes)
            row = shape.num_data + shard
            num_damaged += int((sums != expected[row]).sum()) if known[row] else shape.num_columns
            num_blocks += shape.num_columns
    return ExaminedBlocks(num_blocks, num_damaged, 0)


async def _recomputed(record: GroupRecord, data: ProtectedBytes) -> NDArray[np.uint32]:
    """The CRC32 of each block, data and parity, as the data give them."""
    encoder = GroupEncoder(record.shape)
    for extent in record.extents:
        for start in range(extent.start, extent.end, _WINDOW_BYTES):
            piece = await data.read(ByteRange(start, min(start + _WINDOW_BYTES, extent.end)))
            await asyncio.to_thread(encoder.add, piece)
    return (await asyncio.to_thread(encoder.finish)).block_crcs


def _sums(data: memoryview, size: int) -> NDArray[np.uint32]:
    return np.array([crc32(data[at : at + size]) for at in range(0, len(data), size)], np.uint32)
