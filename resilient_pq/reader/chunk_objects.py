"""The objects that a file's chunks lie in, and their bytes. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import located
from resilient_pq.format.footer import PARITY_KEY
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.io import (
    FetchCounters,
    FetchOptions,
    ObjectInfo,
    ObjectRange,
    ObjectTail,
    OpenObject,
    ReadStore,
    fetch_groups,
    fetch_places,
)
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.pinned_files import PinnedFiles
from resilient_pq.units import KiB

if TYPE_CHECKING:
    from resilient_pq.reader.healing import Healer

#: Small chunks that arrive together are given together up to this size: to hand one to a thread takes as long as to
#: decode some ten KiB.
_TOGETHER = 256 * KiB


class ChunkObjects:
    """The file itself, and the data files that it names when it is a summary.

    Attributes:
        contents: The footer that names them.
        options: How many requests and bytes may be under way, and what is read together.
        healer: What rebuilds damaged chunks from parity; None until one is damaged.
    """

    def __init__(
        self,
        store: ReadStore,
        info: ObjectInfo,
        contents: Contents,
        *,
        options: FetchOptions,
        counters: FetchCounters,
        requests: asyncio.Semaphore | None = None,
        tail: ObjectTail | None = None,
    ) -> None:
        """Send no request yet.

        Args:
            store: Where the file is; data files are in the same store.
            info: The version of the file itself.
            contents: Its footer.
            options: How many requests and bytes may be under way, over all objects.
            counters: Added to.
            requests: Limits the requests under way where other files share the limit.
            tail: The last bytes of the file itself, as far as they are at hand: chunks in them are not fetched.
        """
        self.healer: Healer | None = None
        self._tail = tail
        self._store = store
        self._info = info
        self.contents = contents
        if PARITY_KEY in contents.key_value:  # parity is of no use to a read without damage
            options = replace(options, merge=replace(options.merge, never_over=contents.parity))
        self.options = options
        self._counters = counters
        # Several reads go on at one time, each a wave by itself: of requests they have so many together.
        self._requests = requests or asyncio.Semaphore(options.max_requests)

    @property
    def info(self) -> ObjectInfo:
        """The version of the file itself."""
        return self._info

    @property
    def store(self) -> ReadStore:
        """Where the file is."""
        return self._store

    @property
    def opener(self) -> Callable[[ObjectInfo], OpenObject] | None:
        """Opens one of the objects for reading in threads; None where the store needs the event loop."""
        return self._store.opener

    def count(self, counters: FetchCounters) -> None:
        """Add the requests and bytes of reading in threads."""
        self._counters.requests += counters.requests
        self._counters.bytes += counters.bytes
        self._counters.useful_bytes += counters.useful_bytes

    def at_hand(self, start: int, end: int) -> memoryview | None:
        """Bytes of the file itself, where opening it has brought them."""
        return None if self._tail is None else self._tail.part(start, end)

    @property
    def num_bytes(self) -> int:
        """Bytes of the file itself and of all data files that were wanted so far."""
        return self._info.size + sum(info.size for info in self.data_files.pinned.values())

    def url_of(self, file: str | None) -> str:
        """The URL or path of a data file; of the file itself for None."""
        return self._store.url_of(self._info.key) if file is None else self.data_files.url_of(file)

    @cached_property
    def data_files(self) -> PinnedFiles:
        """The data files that the footer names, where the file is a summary."""
        return PinnedFiles(self._store, self._info.key, self.contents, self._counters, self._requests)

    async def pin(self, files: Iterable[str | None]) -> None:
        """Pin the data files among the files of chunks; None is the file itself, which is pinned already."""
        named = [file for file in files if file is not None]
        if named:
            await self.data_files.pin(named)

    def places_of(self, chunk: ChunkRead | ByteRange) -> tuple[ObjectRange, ...]:
        """The ranges that are read of a chunk in their object, which is pinned already; see `fetch`."""
        if isinstance(chunk, ByteRange):
            return (ObjectRange(self._info, chunk),)
        if chunk.pages is None:
            return (self.place_of(chunk),)
        with located(chunk.where):
            return tuple(self.place_in(chunk.file, wanted) for wanted in chunk.ranges)

    def place_of(self, chunk: ChunkRead) -> ObjectRange:
        """All bytes of a chunk in their object, which is pinned already."""
        if chunk.file is None:
            return ObjectRange(self._info, chunk.range)  # which is known to lie in the file
        with located(chunk.where):
            return self.place_in(chunk.file, chunk.range, slack=chunk.slack)

    def place_in(self, file: str | None, wanted: ByteRange, *, slack: int = 0) -> ObjectRange:
        """Bytes of a pinned data file, or the file itself for None; the last `slack` of them may be missing there."""
        if file is None:
            return ObjectRange(self._info, wanted)
        return self.data_files.place_in(file, wanted, slack)

    async def fetch(
        self, chunks: Sequence[ChunkRead | ByteRange]
    ) -> AsyncGenerator[list[tuple[int, list[memoryview]]], None]:
        """The positions of chunks and the bytes of their ranges, as they arrive in one parallel wave.

        A chunk of the file itself may be given as the range of all its bytes.
        """
        await self.pin(chunk.file for chunk in chunks if isinstance(chunk, ChunkRead))
        places = await off_loop(len(chunks), lambda: [self.places_of(chunk) for chunk in chunks])
        wave = fetch_groups(
            self._store,
            [place for ranges in places for place in ranges],
            group_bytes=_TOGETHER,
            options=self.options,
            counters=self._counters,
            requests=self._requests,
            tail=self._tail,
        )
        joined = _JoinedRanges([len(ranges) for ranges in places])
        async with aclosing(wave) as arriving:
            async for group in arriving:
                if whole := joined.add(group):
                    yield whole

    def fetch_places(
        self, places: Sequence[ObjectRange], *, in_order: bool = False
    ) -> AsyncGenerator[tuple[int, memoryview], None]:
        """The positions of places and their bytes, in one parallel wave that does not use the tail."""
        return fetch_places(
            self._store,
            places,
            options=self.options,
            counters=self._counters,
            in_order=in_order,
            requests=self._requests,
        )

    async def read(self, chunk: ChunkRead) -> memoryview:
        """All bytes of one chunk."""
        await self.pin([chunk.file])
        return await self.read_place(self.place_of(chunk))

    async def read_range(self, file: str | None, wanted: ByteRange, *, slack: int = 0) -> memoryview:
        """Any bytes of a data file, or of the file itself for None; the last `slack` of them may be missing there."""
        await self.pin([file])
        return await self.read_place(self.place_in(file, wanted, slack=slack))

    async def read_place(self, place: ObjectRange) -> memoryview:
        """The bytes of a place that `place_of` or `place_in` gave."""
        data = memoryview(b"")
        async with aclosing(self.fetch_places([place])) as arriving:
            async for _, found in arriving:
                data = found
        return data


class _JoinedRanges:
    """Ranges of several chunks that arrive in any order, joined chunk by chunk."""

    def __init__(self, num_ranges: Sequence[int]) -> None:
        self._owners = [(chunk, part) for chunk, count in enumerate(num_ranges) for part in range(count)]
        self._num_ranges = num_ranges
        self._arrived: dict[int, dict[int, memoryview]] = {}

    def add(self, group: Iterable[tuple[int, memoryview]]) -> list[tuple[int, list[memoryview]]]:
        """Add ranges by their positions; gives the chunks that are complete now, with all their ranges in order."""
        complete = []
        for position, data in group:
            chunk, part = self._owners[position]
            parts = self._arrived.setdefault(chunk, {})
            parts[part] = data
            if len(parts) == self._num_ranges[chunk]:
                del self._arrived[chunk]
                complete.append((chunk, [parts[at] for at in sorted(parts)]))
        return complete
