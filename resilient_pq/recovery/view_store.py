"""A store in which one object reads as if its parts stood where they were written. An async shell around `View`."""

from __future__ import annotations

from dataclasses import replace

from resilient_pq.errors import RangeError, Where
from resilient_pq.io import ObjectInfo, ReadStore
from resilient_pq.io.protocols import Capabilities, ObjectTail
from resilient_pq.io.ranges import ByteRange
from resilient_pq.recovery.view import View


class ViewStore(ReadStore):
    """Reads an object through a view; bytes that are nowhere are zeros."""

    def __init__(self, store: ReadStore, info: ObjectInfo, view: View) -> None:
        """Nothing is read yet.

        Args:
            store: Where the object is; the caller closes it.
            info: The version of it that every read is pinned to.
            view: Where its bytes lie.
        """
        self._store = store
        self._info = info
        self._view = view

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

    async def head(self, key: str) -> ObjectInfo:
        """The object with the size that it has through the view."""
        return replace(self._info, size=self._view.size)

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """The last bytes through the view."""
        start = max(self._view.size - size, 0)
        info = await self.head(key)
        data = await self.read_range(key, start, self._view.size, pin=info)
        return ObjectTail(info, start, data)

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        """Bytes through the view, zeros where there are none."""
        if not 0 <= start <= end <= self._view.size:
            raise RangeError(f"bytes {start:,} to {end:,} lie outside of it", where=Where(key=self.url_of(key)))
        data = bytearray(end - start)
        for at, place in self._view.places(ByteRange(start, end)):
            piece = await self._store.read_range(key, place.start, place.end, pin=self._info)
            data[at : at + place.size] = piece
        return memoryview(data)

    async def close(self) -> None:
        """Nothing: the store is the caller's."""
