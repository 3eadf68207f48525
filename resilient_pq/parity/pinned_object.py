"""An object at one version, read by ranges. An async shell."""

from __future__ import annotations

from dataclasses import dataclass

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.io import ObjectInfo, ReadStore


@dataclass(frozen=True, slots=True)
class PinnedObject:
    """One version of an object; the store is the caller's."""

    store: ReadStore
    key: str
    info: ObjectInfo

    @classmethod
    async def find(cls, store: ReadStore, key: str) -> PinnedObject:
        """The version that is there now.

        Raises:
            NotFoundError: No such object.
        """
        return cls(store, key, await store.head(key))

    @property
    def url(self) -> str:
        """Its name for people."""
        return self.store.url_of(self.key)

    @property
    def address(self) -> str:
        """Its name that no other object has; not to be shown."""
        return self.store.address_of(self.key)

    async def read(self, place: ByteRange) -> memoryview:
        """The bytes of a range."""
        if not place.size:
            return memoryview(b"")
        return memoryview(await self.store.read_range(self.key, place.start, place.end, pin=self.info))
