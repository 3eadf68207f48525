"""Stores that read one object from other bytes: remapped, or in memory. Async shells."""

from __future__ import annotations

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.io import ObjectInfo, ReadStore
from resilient_pq.io.substitute_store import SubstituteStore
from resilient_pq.recovery.evidence.byte_remap import ByteRemap


class BytesStore(SubstituteStore):
    """Has bytes in memory for an object."""

    def __init__(self, store: ReadStore, info: ObjectInfo, data: bytes | memoryview) -> None:
        super().__init__(store, info, len(data))
        self._data = memoryview(data)

    async def _read(self, key: str, start: int, end: int) -> memoryview:
        return self._data[start:end]


class RemappedStore(SubstituteStore):
    """Reads an object through a remap; missing bytes are zeros."""

    def __init__(self, store: ReadStore, info: ObjectInfo, view: ByteRemap) -> None:
        super().__init__(store, info, view.size)
        self._view = view

    async def _read(self, key: str, start: int, end: int) -> memoryview:
        data = bytearray(end - start)
        for at, place in self._view.places(ByteRange(start, end)):
            piece = await self._store.read_range(key, place.start, place.end, pin=self._info)
            data[at : at + place.size] = piece
        return memoryview(data)
