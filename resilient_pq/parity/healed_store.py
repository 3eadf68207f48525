"""A damaged file read through its sidecar, as it was written. An async shell."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, StoreError
from resilient_pq.io import ObjectInfo, ReadStore
from resilient_pq.io.substitute_store import SubstituteStore
from resilient_pq.parity.group_repair import GroupRepair
from resilient_pq.parity.group_shape import SMALL_BLOCK_BYTES
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.parity.protected_bytes import ProtectedBytes
from resilient_pq.parity.sidecar import Sidecar
from resilient_pq.parity.sidecar_index import padded

log = logging.getLogger("resilient_pq.parity")


@dataclass(frozen=True, slots=True)
class ExaminedBlocks:
    """Blocks that were compared, those that are not whole in their place, and those of them that can be had anyway."""

    num_blocks: int
    num_damaged: int
    num_repairable: int


class HealedStore(SubstituteStore):
    """Stands for a store: blocks of one object that are damaged are rebuilt as they are read, as far as parity allows.

    Attributes:
        is_bound: Whether the sidecar was made of this version of the object, as far as ETag and size tell.
    """

    def __init__(self, store: ReadStore, info: ObjectInfo, sidecar: Sidecar, data: ProtectedBytes, number: int) -> None:
        """`find` is the way to get one."""
        member = sidecar.index.members[number]
        super().__init__(store, info, member.size)
        self.is_bound = info.etag is not None and (info.etag, info.size) == (member.etag, member.size)
        self._place = sidecar.index.places[number]
        self._mirror = sidecar.index.mirror
        self._groups = [GroupRepair(record, data, sidecar.source) for record in sidecar.groups]

    @classmethod
    async def find(cls, store: ReadStore, info: ObjectInfo) -> HealedStore | None:
        """A view of an object through the sidecar beside it; None where there is none that can be used."""
        try:
            sidecar = await Sidecar.beside(store, info.key)
            if sidecar is None:
                return None
            data = await sidecar.members(store, info.key, PinnedObject(store, info.key, info))
        except (FormatError, StoreError) as error:  # what is damaged is the error then
            log.info("%s: no parity can be used: %s", store.url_of(info.key), error.message)
            return None
        return cls(store, info, sidecar, data, sidecar.member_number(info.key))

    async def examine(self) -> ExaminedBlocks:
        """Compare all blocks of the object with the sidecar, or with the copy in it."""
        if self._mirror is not None:
            size, mirror = SMALL_BLOCK_BYTES, self._mirror
            data = await self._store.read_range(self._info.key, 0, self._info.size, pin=self._info)
            places = range(0, max(len(mirror), len(data)), size)
            damaged = sum(mirror[at : at + size] != data[at : at + size] for at in places)
            return ExaminedBlocks(len(places), damaged, damaged)
        end = self._place.start + padded(self._place.size)
        groups = [each for each in self._groups if each.extent.start < end and self._place.start < each.extent.end]
        for group in groups:
            await group.examine()
        damaged = sum(group.num_damaged for group in groups)
        num_blocks = sum(len(group.lost) for group in groups)
        return ExaminedBlocks(num_blocks, damaged, damaged - sum(group.num_not_rebuilt for group in groups))

    @property
    def num_blocks_rebuilt(self) -> int:
        """Blocks that were rebuilt so far."""
        return sum(len(group.rebuilt) for group in self._groups)

    async def close(self) -> None:
        """Close the store that this stands for."""
        await self._store.close()

    async def _read(self, key: str, start: int, end: int) -> memoryview:
        if self._mirror is not None:
            return memoryview(self._mirror)[start:end]
        place = ByteRange(self._place.start + start, self._place.start + end)
        parts = [
            piece
            for group in self._groups
            if group.extent.start < place.end and place.start < group.extent.end
            async for piece in group.pieces(place)
        ]
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
