"""A small object, read whole by one request: for the many that nothing is wrong with. An async shell.

What is found in bytes that were read once may have happened on the way. So only what is sound is believed here; any
other object is to be looked at as if nothing had been read.
"""

from __future__ import annotations

from resilient_pq.io import ObjectInfo, ReadStore
from resilient_pq.io.protocols import ObjectTail
from resilient_pq.recovery.evidence.remapped_store import BytesStore
from resilient_pq.units import MiB

#: Objects up to this size are read whole: what is too small to be copied by a store is in memory then.
SMALL_BYTES = 4 * MiB


class SmallObject(BytesStore):
    """Stands for a store, which the caller closes, and has one of its objects in memory; others are read there.

    Attributes:
        data: The bytes of the object.
    """

    def __init__(self, store: ReadStore, info: ObjectInfo, data: memoryview) -> None:
        """`read` is the way to get one."""
        super().__init__(store, info, data)
        self.data = data

    @classmethod
    async def read(cls, store: ReadStore, key: str) -> SmallObject | None:
        """Read an object; None where it is not small after all."""
        tail = await store.read_tail(key, SMALL_BYTES)
        return None if tail.offset else cls(store, tail.info, memoryview(tail.data))

    async def head(self, key: str) -> ObjectInfo:
        """What an object is."""
        return self._info if key == self._info.key else await self._store.head(key)

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """The last bytes."""
        if key != self._info.key:
            return await self._store.read_tail(key, size)
        return await super().read_tail(key, size)

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        """Bytes of an object."""
        if key != self._info.key:
            return await self._store.read_range(key, start, end, pin=pin)
        return await super().read_range(key, start, end, pin=pin)
