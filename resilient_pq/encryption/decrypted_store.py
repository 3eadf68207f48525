"""An encrypted file as it would be in the clear, with everything at the same offsets. An async shell."""

from __future__ import annotations

import asyncio
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from resilient_pq.encryption.keys import DecryptionKeys
from resilient_pq.encryption.opened_footer import FileKeys, OpenedFooter
from resilient_pq.encryption.plain_regions import Patch, PlainRegion, SealedChunk, SealedIndex, opened, regions_of
from resilient_pq.errors import FormatError, StoreError, Where, located
from resilient_pq.format import footer
from resilient_pq.format.crypto.modules import CTR_OVERHEAD, GCM_OVERHEAD, WrongTagError, module_size
from resilient_pq.format.crypto.page_view import SealedPage
from resilient_pq.format.resilience_records import HEADER_SIZE
from resilient_pq.io import ObjectInfo, ObjectTail, ReadStore
from resilient_pq.io.protocols import OpenObject
from resilient_pq.io.shared_clients import new_connections
from resilient_pq.io.substitute_store import SubstituteStore
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.machine_limits import share_of_memory
from resilient_pq.off_event_loop import PIECE_BYTES, off_loop
from resilient_pq.parity.healed_store import HealedStore
from resilient_pq.units import MiB

#: Bytes that are held before the oldest chunk is dropped, of which parts may never be asked for.
_MOST_BYTES: Final = share_of_memory(16, 256 * MiB)


@dataclass(slots=True)
class _Held:
    """A chunk that is being opened, or was, and the bytes of it that nobody has taken yet."""

    opening: asyncio.Future[memoryview]
    size: int
    left: int


#: Bytes that are read of a page to learn the sizes of its two modules.
_PAGE_START: Final = 1024
#: Bytes of a chunk that is read as a whole where only a part is asked for, as nothing says where its pages begin.
_MOST_HELD: Final = 64 * MiB
#: Bytes of a request for a part of such a chunk.
_REQUEST: Final = 8 * MiB


#: Reads the stored bytes from one offset to another.
_ReadStored: TypeAlias = Callable[[int, int], Awaitable[memoryview]]


class UnverifiedPagesWarning(UserWarning):
    """Pages of an encrypted file have neither a tag nor a CRC32: nothing tells whether they were changed."""


class DecryptedStore(SubstituteStore):
    """Stands for a store: one encrypted object reads as the plaintext file that it holds."""

    def __init__(
        self,
        store: ReadStore,
        info: ObjectInfo,
        size: int,
        regions: Sequence[PlainRegion],
        keys: FileKeys,
        tail: ObjectTail | None = None,
        *,
        shows_damage: bool,
        damaged: Set[int] = frozenset(),
        heals: bool = False,
    ) -> None:
        """`open` is the way to get one, unless other regions than its own are known, and where some are `damaged`."""
        super().__init__(store, info, size)
        self.encrypted_footer = keys.sealed.module is not None  # Whether its footer is encrypted, too
        self.state: str | None = None  # What the footer says of the file's state; None in files of others
        self.missing_keys, self.encryption = keys.missing, keys.encryption
        self.on_healed: Callable[[Where, int], None] = lambda where, num_blocks: None
        self._tail = tail or ObjectTail(info, info.size, b"")
        self._held: dict[int, _Held] = {}  # Chunks in the clear, each opened once for all who ask for parts of it
        self._warned, self._shows_damage, self._heals = False, shows_damage, heals
        #: Offsets of regions of which it is known that something in them does not open, and that it is shown so.
        self._damaged = {*damaged}
        self._healed: HealedStore | None = None
        self._regions = sorted(regions, key=lambda region: region.start)
        _check_places(self._regions, size)
        for chunk in self.chunks:
            chunk.with_crc = shows_damage

    @classmethod
    async def open(
        cls,
        store: ReadStore,
        key: str,
        keys: DecryptionKeys,
        *,
        aad_prefix: bytes | None = None,
        tail_bytes: int,
        shows_damage: bool = False,
        heals: bool = False,
    ) -> DecryptedStore:
        """A view of an encrypted object.

        With `shows_damage` a page that does not open is shown so that its CRC32 does not hold, and is no error. With
        `heals` what does not open is read through the parity of the object, where it has any.

        Raises:
            AuthenticationError: It is not encrypted, or its footer was changed.
            KeyMissingError: There is no key for the footer.
            WrongKeyError: The key of the footer opens nothing.
        """
        found = await OpenedFooter.read(store, key, keys, aad_prefix=aad_prefix, tail_bytes=tail_bytes)
        with located(Where(key=store.url_of(key))):
            chunks = await off_loop(len(found.metadata.row_groups) * 8, found.open_chunks)
            around = [*found.around()]
            regions = [*around, *(region for chunk in chunks for region in regions_of(chunk))]
            info, size, known = found.tail.info, around[-1].end, found.keys
            view = cls(store, info, size, regions, known, found.tail, shows_damage=shows_damage, heals=heals)
        view.state = footer.key_values(found.metadata.key_value_metadata).get(footer.STATE_KEY)
        return view

    @property
    def opener(self) -> Callable[[ObjectInfo], DecryptedObject] | None:
        """What opens the object for a thread, where the store can be read so."""
        open_stored = self._store.opener
        loop = asyncio._get_running_loop()
        if open_stored is None or loop is None or self._shows_damage:
            return None
        return lambda _: DecryptedObject(self, open_stored(self._info), loop)

    def read_through(self, stored: OpenObject, start: int, end: int) -> memoryview | None:
        """The bytes of a range in the clear, read in this thread; None where more has to be read first."""
        touched = self._touched(start, end)
        low, high = _stored_place(touched, start, end)
        torn = any(isinstance(region, SealedChunk) and region.is_torn_by(start, end) for region in touched)
        if torn or high > self._info.size:
            return None
        content = opened(stored.read(low, high), low, touched, start, end)
        self._warn_of_unverified(touched)
        return content

    @property
    def chunks(self) -> list[SealedChunk]:
        """The column chunks that can be opened, in order."""
        return [region for region in self._regions if isinstance(region, SealedChunk)]

    @property
    def _indexes(self) -> list[SealedIndex]:
        return [region for region in self._regions if isinstance(region, SealedIndex)]

    @property
    def mended(self) -> list[Where]:
        """Where pages are shown that are damaged in their places, by copies of their bytes."""
        return [replace(chunk.where, offset=at) for chunk in self.chunks for at in chunk.instead]

    async def damaged_indexes(self) -> list[Where]:
        """The page indexes and bloom filters that do not open."""
        found = []
        for index in self._indexes:
            try:
                data = await self._stored(index.start, index.end)
                await off_loop(len(data) // PIECE_BYTES, index.contents, data, index.start)
            except FormatError as error:
                found.append(error.where)
        return found

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """What stands behind the last column chunk, of so many bytes at most; no index where one is damaged."""
        if key != self._info.key:
            return await self._store.read_tail(key, size)
        start = max(self._size - size, max([chunk.end for chunk in self.chunks], default=0), 0)
        info = await self.head(key)
        try:
            return ObjectTail(info, start, await self._read(key, start, self._size))
        except FormatError:
            # Nobody asked for indexes: rows can be read without them, and who needs one reads it by itself.
            start = max([start, *(index.end - HEADER_SIZE for index in self._indexes)])
            return ObjectTail(
                info, start, await self._read(key, start, self._size, {index.start for index in self._indexes})
            )

    async def close(self) -> None:
        """Close the store that this stands for."""
        for held in self._held.values():
            held.opening.cancel()
        self._held.clear()
        await self._store.close()

    async def _read(self, key: str, start: int, end: int, lenient: Set[int] = frozenset()) -> memoryview:
        touched = [await self._located(region, start, end) for region in self._touched(start, end)]
        first = touched[0] if touched else None
        if isinstance(first, Patch) and first.start <= start and end <= first.end:
            return memoryview(first.content)[start - first.start : end - first.start]
        return await self._opened(touched, start, end, self._stored, lenient)

    async def _opened(
        self, touched: Sequence[PlainRegion], start: int, end: int, read: _ReadStored, lenient: Set[int] = frozenset()
    ) -> memoryview:
        """What the regions have from `start` to `end`, from what is stored for them."""
        low, high = _stored_place(touched, start, end)
        lenient = lenient or self._damaged
        try:
            return await self._opened_of(await read(low, high), low, touched, start, end, lenient)
        except FormatError:
            pass
        try:
            async with new_connections():  # a transfer can go wrong as well as a disk
                data = await read(low, high)
            return await self._opened_of(data, low, touched, start, end, lenient)
        except FormatError:
            found = await self._opened_through_parity(touched, start, end, low, high)
            if found is not None:
                return found
            if not self._shows_damage:
                raise
        self._damaged |= {region.start for region in touched}
        return await self._opened_of(data, low, touched, start, end, self._damaged)

    async def _opened_through_parity(
        self, touched: Sequence[PlainRegion], start: int, end: int, low: int, high: int
    ) -> memoryview | None:
        """The same read through the parity of the object; None where that has none, or does not help."""
        if self._heals and self._healed is None:
            self._healed = await HealedStore.find(self._store, self._info, thorough=True)
        self._heals = self._healed is not None
        if self._healed is None:
            return None
        before = self._healed.num_blocks_rebuilt
        try:
            data = memoryview(await self._healed.read_range(self._info.key, low, high, pin=self._info))
            found = await self._opened_of(data, low, touched, start, end)
        except (FormatError, StoreError):
            return None
        where = next((region.where for region in touched if isinstance(region, SealedChunk)), Where())
        self.on_healed(where, self._healed.num_blocks_rebuilt - before)
        return found

    async def _located(self, region: PlainRegion, start: int, end: int) -> PlainRegion:
        """A region of which all is asked for, or it is known where its pages lie; else what it holds."""
        if not isinstance(region, SealedChunk) or not region.is_torn_by(start, end) or await self._find_pages(region):
            return region
        content = await self._held_content(region, min(end, region.end) - max(start, region.start))
        return Patch(region.start, region.end, content)

    async def _opened_of(
        self,
        data: memoryview,
        base: int,
        touched: Sequence[PlainRegion],
        start: int,
        end: int,
        lenient: Set[int] = frozenset(),
    ) -> memoryview:
        found = await off_loop(len(data) // PIECE_BYTES, opened, data, base, touched, start, end, lenient)
        self._warn_of_unverified(touched)
        return found

    def _warn_of_unverified(self, touched: Sequence[PlainRegion]) -> None:
        """Warn, once, where nothing verifies pages that were read."""
        chunks = (region for region in touched if isinstance(region, SealedChunk))
        if not self._warned and any(chunk.opener.cipher.num_unverified > 0 for chunk in chunks):
            self._warned = True
            text = f"{self.url_of(self._info.key)} has pages that nothing verifies: AES_GCM_CTR_V1 without page CRC32"
            warnings.warn(text, UnverifiedPagesWarning, stacklevel=2)

    def _touched(self, start: int, end: int) -> list[PlainRegion]:
        first = bisect_right(self._regions, start, key=lambda region: region.end)
        last = bisect_left(self._regions, end, key=lambda region: region.start)
        return self._regions[first:last]

    async def _stored(self, start: int, end: int) -> memoryview:
        """Stored bytes; those behind the end of the object are in no region but the footer in the clear."""
        end = min(end, self._info.size)
        if start >= self._tail.offset:
            return memoryview(self._tail.data)[start - self._tail.offset : end - self._tail.offset]
        return memoryview(await self._store.read_range(self._info.key, start, end, pin=self._info))

    async def _held_content(self, chunk: SealedChunk, num_bytes: int) -> memoryview:
        """All of a chunk, for somebody who takes so many bytes of it."""
        at, size = chunk.start, chunk.end - chunk.start
        if at not in self._held:
            while self._held and sum(held.size for held in self._held.values()) + size > _MOST_BYTES:
                del self._held[next(iter(self._held))]
            self._held[at] = _Held(asyncio.ensure_future(self._whole(chunk)), size, size)
            # Nobody may be waiting for its error any more.
            self._held[at].opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        held = self._held[at]
        try:
            content = await asyncio.shield(held.opening)
            held.left -= num_bytes
        except Exception:
            held.left = 0
            raise
        finally:
            if held.left <= 0 and self._held.get(at) is held:
                del self._held[at]
        return content

    async def _whole(self, chunk: SealedChunk) -> memoryview:
        """All of a chunk, by requests of a few MiB side by side."""

        async def read(start: int, end: int) -> memoryview:
            places = range(start, end, _REQUEST)
            parts = await asyncio.gather(*(self._stored(at, min(at + _REQUEST, end)) for at in places))
            return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

        return await self._opened([chunk], chunk.start, chunk.end, read)

    async def _find_pages(self, chunk: SealedChunk) -> bool:
        """Whether it was found where the pages of a chunk lie, which need not be read as a whole then."""
        has_index_at_hand = chunk.offset_index is not None and chunk.offset_index[0] >= self._tail.offset
        is_large = has_index_at_hand or chunk.end - chunk.start > _MOST_HELD
        if not is_large or self._shows_damage:
            return False
        try:
            chunk.pages = await self._pages_of(chunk)
        except FormatError:
            if not self._heals:
                raise
        return chunk.pages is not None

    async def _pages_of(self, chunk: SealedChunk) -> list[SealedPage]:
        """The pages of a chunk of which only a part is read: by its offset index, or from page to page."""
        if chunk.offset_index is not None:
            start, size = chunk.offset_index
            try:
                if chunk.pages_by_index(memoryview(await self._stored(start, start + size))) and chunk.pages:
                    return chunk.pages
            except (FormatError, WrongTagError):
                pass  # the pages themselves tell, too
        pages: list[SealedPage] = []
        at, ordinal = chunk.start, -1 if chunk.has_dictionary else 0
        while at < chunk.end:
            size = await self._module_sizes(at, chunk.end)
            pages.append(SealedPage(at, size, None if ordinal < 0 else ordinal))
            at, ordinal = at + size, ordinal + 1
        return pages

    async def _module_sizes(self, at: int, end: int) -> int:
        """The size of the two modules of the page at an offset."""
        start = memoryview(await self._stored(at, min(at + _PAGE_START, end)))
        header = module_size(start, 0, end - at, GCM_OVERHEAD)
        behind = start[header:]
        if len(behind) < CTR_OVERHEAD:
            behind = memoryview(await self._stored(at + header, min(at + header + CTR_OVERHEAD, end)))
        return header + module_size(behind, 0, end - at - header, CTR_OVERHEAD)


class DecryptedObject(OpenObject):
    """Reads and decrypts in the thread that asks; what does not open is left to the event loop."""

    def __init__(self, view: DecryptedStore, stored: OpenObject, loop: asyncio.AbstractEventLoop) -> None:
        """Read through `stored`; `loop` runs while threads read."""
        self._view, self._stored, self._loop = view, stored, loop

    def read(self, start: int, end: int) -> memoryview:
        """The bytes from `start` up to, not including, `end`."""
        with suppress(FormatError):  # the loop reads it again, heals it, or says what is wrong
            if (found := self._view.read_through(self._stored, start, end)) is not None:
                return found
        return asyncio.run_coroutine_threadsafe(self._view._read(self._view._info.key, start, end), self._loop).result()

    def close(self) -> None:
        """Close what is stored."""
        self._stored.close()


def _stored_place(touched: Sequence[PlainRegion], start: int, end: int) -> tuple[int, int]:
    """Where what is stored for a range begins and ends: pages, and regions without, are opened as a whole."""
    low, high = start, end
    for region in touched:
        parts: Sequence[PlainRegion | SealedPage] = [] if isinstance(region, Patch) else [region]
        if isinstance(region, SealedChunk) and region.pages is not None:
            parts = region.pages
        for part in parts:
            if part.start < start < part.end:
                low = part.start
            if part.start < end < part.end:
                high = part.end
    return low, high


def _check_places(regions: Sequence[PlainRegion], size: int) -> None:
    """Refuse a footer that has things lie one in the other, or behind the end."""
    at = 0
    for region in regions:
        if not at <= region.start <= region.end <= size:
            raise FormatError("the footer has two things in one place, or one behind the end", where=Where(offset=at))
        at = region.end
