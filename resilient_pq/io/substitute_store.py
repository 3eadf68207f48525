"""A store that stands for another one, and has other bytes for one of its objects. An async shell."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from resilient_pq.errors import RangeError, Where
from resilient_pq.io.protocols import Capabilities, ReadStore
from resilient_pq.io.stored_object import ObjectInfo, ObjectTail


class SubstituteStore(ReadStore):
    """A store with other bytes for one object of another store, which the caller closes; others are read there."""

    def __init__(self, store: ReadStore, info: ObjectInfo, size: int) -> None:
        """Stand for a store; the object has `size` bytes here."""
        self._store = store
        self._info = info
        self._size = size

    @property
    def name(self) -> str:
        """That of the store."""
        return self._store.name

    @property
    def capabilities(self) -> Capabilities:
        """Those of the store."""
        return self._store.capabilities

    def url_of(self, key: str) -> str:
        """As in the store."""
        return self._store.url_of(key)

    def address_of(self, key: str) -> str:
        """As in the store."""
        return self._store.address_of(key)

    async def head(self, key: str) -> ObjectInfo:
        """What an object is; the one that is stood for has the size that it has here."""
        return replace(self._info, size=self._size) if key == self._info.key else await self._store.head(key)

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """The last bytes."""
        if key != self._info.key:
            return await self._store.read_tail(key, size)
        return await super().read_tail(key, size)

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        """Bytes of an object."""
        if key != self._info.key:
            return await self._store.read_range(key, start, end, pin=pin)
        if not 0 <= start <= end <= self._size:
            raise RangeError(f"bytes {start:,} to {end:,} lie outside of it", where=Where(key=self.url_of(key)))
        return await self._read(key, start, end)

    @abstractmethod
    async def _read(self, key: str, start: int, end: int) -> memoryview:
        """The bytes of a range, which lies within the object."""

    async def close(self) -> None:
        """Nothing: the store is the caller's."""
