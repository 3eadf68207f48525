"""An object at one version, read by ranges. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

import xxhash

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import Where, located
from resilient_pq.io import ObjectInfo, ReadStore
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.sidecar_index import SidecarIndex, padded
from resilient_pq.units import MiB

#: Bytes of an object that are read at a time; the next are read while the caller has these.
_PIECE_BYTES = 8 * MiB


@dataclass(frozen=True, slots=True)
class PinnedObject:
    """One version of an object; the store is the caller's."""

    store: ReadStore
    key: str
    info: ObjectInfo

    @classmethod
    async def find(cls, store: ReadStore, key: str) -> PinnedObject:
        """The version that is there now."""
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

    async def pieces(self) -> AsyncGenerator[memoryview, None]:
        """All bytes in order; the next are read while the caller has the last."""
        size = self.info.size
        ranges = [ByteRange(at, min(at + _PIECE_BYTES, size)) for at in range(0, size, _PIECE_BYTES)]
        following = asyncio.ensure_future(self.read(ranges[0])) if ranges else None
        try:
            for number in range(len(ranges)):
                assert following is not None
                with located(Where(key=self.url)):
                    piece = await following
                if number + 1 < len(ranges):
                    following = asyncio.ensure_future(self.read(ranges[number + 1]))
                yield piece
        finally:
            if following is not None:
                following.cancel()

    async def digest(self) -> str:
        """The xxh3-128 of all bytes."""
        digest = xxhash.xxh3_128()
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                await asyncio.to_thread(digest.update, piece)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class ProtectedBytes:
    """The files of a sidecar, one behind the other; None stands for a file that is missing."""

    index: SidecarIndex
    files: Sequence[PinnedObject | None]

    @property
    def has_moved(self) -> bool:
        """Whether bytes may lie nearer to the end of a file, or farther from it, than they were written."""
        return any(
            file is not None and file.info.size != member.size
            for file, member in zip(self.files, self.index.members, strict=True)
        )

    async def read(self, place: ByteRange, *, from_end: bool = False) -> memoryview:
        """Exactly these bytes; zeros stand for those that are not there.

        Args:
            place: A place among the protected bytes.
            from_end: Count from the end of each file: bytes behind others that are missing are found so.
        """
        parts: list[memoryview] = []
        for number, start, size in self._parts(place):
            file, member = self.files[number], self.index.members[number]
            there = memoryview(b"")
            if file is not None and start < member.size:
                moved = file.info.size - member.size if from_end else 0
                wanted = min(size, member.size - start)
                first, last = max(0, start + moved), min(start + moved + wanted, file.info.size)
                if first < last:
                    there = await file.read(ByteRange(first, last))
                    if missing := first - (start + moved):
                        there = memoryview(bytes(missing) + bytes(there))
            if len(there) < size:
                there = memoryview(bytes(there) + bytes(size - len(there)))
            parts.append(there)
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _parts(self, place: ByteRange) -> Iterator[tuple[int, int, int]]:
        """The files that a range lies in: their number, and the first byte and the bytes of each, with its zeros."""
        for number, whole in enumerate(self.index.places):
            end = whole.start + padded(whole.size)
            first, last = max(place.start, whole.start), min(place.end, end)
            if first < last:
                yield number, first - whole.start, last - first
