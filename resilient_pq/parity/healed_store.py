"""A damaged file read through its parity, as it was written, and parity held against bytes. An async shell."""

from __future__ import annotations

import asyncio
import logging

import numpy as np
from numpy.typing import NDArray

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32
from resilient_pq.errors import FormatError, StoreError
from resilient_pq.io import ObjectInfo, ReadStore
from resilient_pq.io.substitute_store import SubstituteStore
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.group_encoder import GroupEncoder
from resilient_pq.parity.group_record import GroupRecord
from resilient_pq.parity.group_shape import SMALL_BLOCK_BYTES
from resilient_pq.parity.inline_parity import find_inline
from resilient_pq.parity.pinned_object import PinnedObject, ProtectedBytes
from resilient_pq.parity.protected_file import ProtectedFile
from resilient_pq.parity.sidecar import Sidecar
from resilient_pq.units import MiB

log = logging.getLogger("resilient_pq.parity")


@dataclass(frozen=True, slots=True)
class ExaminedBlocks:
    """Blocks that were compared, those not whole in their place, those of them that can be had, and if that is all."""

    num_blocks: int
    num_damaged: int
    num_repairable: int
    may_be_repaired: bool = False


class HealedStore(SubstituteStore):
    """A store in which damaged blocks of one object are rebuilt as they are read, as far as parity allows."""

    def __init__(self, store: ReadStore, info: ObjectInfo, file: ProtectedFile) -> None:
        """`find` is the way to get one."""
        super().__init__(store, info, file.parity.index.members[file.number].size)
        self.is_bound = file.is_of(info)
        self.file = file

    @classmethod
    async def find(
        cls, store: ReadStore, info: ObjectInfo, *, inside: bool = True, thorough: bool = False
    ) -> HealedStore | None:
        """An object through a sidecar of this version, its own parity, or another sidecar; None without any."""
        source = PinnedObject(store, info.key, info)
        beside = await cls._beside(store, info, source)
        if beside is not None and beside.is_bound:
            return beside
        found = await find_inline(source, thorough=thorough) if inside else None
        return beside if found is None else cls(store, info, ProtectedFile.inside(found))

    @classmethod
    async def _beside(cls, store: ReadStore, info: ObjectInfo, source: PinnedObject) -> HealedStore | None:
        try:
            sidecar = await Sidecar.beside(store, info.key)
            if sidecar is None:
                return None
            return cls(store, info, await ProtectedFile.beside(sidecar, store, info.key, source))
        except (FormatError, StoreError) as error:  # what is damaged is the error then
            if isinstance(error, StoreError) and error.status not in range(400, 500):
                raise  # a server that refuses the name, as of a presigned URL, says that nothing can be had
            log.info("%s: no sidecar can be used: %s", store.url_of(info.key), error.message)
            return None

    async def examine(self) -> ExaminedBlocks:
        """Compare all blocks of the object with their checksums, or with the copy in a sidecar."""
        if self.file.mirror is not None:
            size, mirror = SMALL_BLOCK_BYTES, self.file.mirror
            data = await self._store.read_range(self._info.key, 0, self._info.size, pin=self._info)
            places = range(0, max(len(mirror), len(data)), size)
            damaged = sum(mirror[at : at + size] != data[at : at + size] for at in places)
            return ExaminedBlocks(len(places), damaged, damaged, True)
        await self.file.examine()
        has_end = not self.file.parity.is_inline or await self.file.remake_last_parity()
        damaged, lost = self.file.num_damaged, self.file.num_not_rebuilt
        num_blocks = sum(len(group.lost) for group in self.file.groups)
        return ExaminedBlocks(num_blocks, damaged, damaged - lost, has_end and not lost)

    def rebuilds(self, examined: ExaminedBlocks) -> bool:
        """Whether parity rebuilds damaged blocks, and what it gives is the object as it was written, not as it lies."""
        is_right = self.file.mirror is None and all(group.is_proven for group in self.file.groups)
        return (self.is_bound or is_right) and examined.num_repairable > 0

    @property
    def num_blocks_rebuilt(self) -> int:
        """Blocks that were rebuilt so far."""
        return self.file.num_rebuilt

    async def close(self) -> None:
        """Close the store that this stands for."""
        await self._store.close()

    async def _read(self, key: str, start: int, end: int) -> memoryview:
        return await self.file.read(ByteRange(self.file.place.start + start, self.file.place.start + end))


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
