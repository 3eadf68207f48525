"""The object that is checked or recovered: its store, its pinned version, and what can be understood of it.

An async shell: it drives the sans-io `survey` and fetches what is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from operator import attrgetter
from typing import Any, Self, TypeAlias, TypeVar, cast

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.encryption.decrypted_store import DecryptedStore
from resilient_pq.errors import (
    FormatError,
    KeyMissingError,
    NotParquetError,
    TornFileError,
    UnsupportedError,
    Where,
    located,
)
from resilient_pq.format.footer import ENCRYPTED_MAGIC, MAGIC
from resilient_pq.io import FetchCounters, FetchOptions, ObjectInfo, ReadStore
from resilient_pq.io.resolve import Location, reach
from resilient_pq.io.transfer.rereads import read_again
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.off_event_loop import off_loop
from resilient_pq.parity.healed_store import HealedStore
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.opening import read_contents
from resilient_pq.recovery.evidence.byte_remap import ByteRemap, RemapSegment
from resilient_pq.recovery.evidence.records import survey as surveying
from resilient_pq.recovery.evidence.records.survey import Survey
from resilient_pq.recovery.evidence.remapped_store import BytesStore, RemappedStore
from resilient_pq.units import KiB, MiB

T = TypeVar("T")

#: Objects up to this size are read whole: what is too small to be copied by a store is in memory then.
SMALL_BYTES = 4 * MiB
#: The bytes at the end of an object that are read first: footers are rarely longer.
TAIL_BYTES = 256 * KiB
#: Bytes that are a piece of work (`off_loop`) for a search.
_PIECE = 256
#: Bytes requested for a small read of a remote object, and the most where such reads follow one another.
_FIRST_WINDOW = 64 * KiB
_LARGEST_WINDOW = 2 * MiB
#: Windows kept of an object: data, indexes, filters and records are read in turn.
_NUM_WINDOWS = 8


class _Windows:
    """The newest windows of one object: small reads that are near each other share requests."""

    __slots__ = ("_kept", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: list[tuple[ByteRange, memoryview]] = []  # the last one used is the last

    def find(self, place: ByteRange) -> memoryview | None:
        """A copy of the bytes of a range that lies in one window: it keeps no window in memory."""
        for i, (window, data) in enumerate(self._kept):
            if window.start <= place.start and place.end <= window.end:
                self._kept.append(self._kept.pop(i))
                return memoryview(bytes(data[place.start - window.start : place.end - window.start]))
        return None

    def around(self, place: ByteRange) -> ByteRange:
        """What to request for a range: twice as much as for the window that it continues, and of no other window."""
        windows = [window for window, _ in self._kept]
        before = max((one for one in windows if one.start <= place.start), key=_end, default=None)
        behind = min((one for one in windows if one.start > place.start), key=_start, default=None)
        last = self._size if behind is None else max(behind.start, place.end)
        if before is not None and place.start <= before.end + before.size:
            return ByteRange(place.start, max(place.end, min(place.start + _larger(before), last)))
        if behind is not None and behind.start <= place.end + behind.size:
            first = 0 if before is None else min(before.end, place.start)
            return ByteRange(min(place.start, max(place.end - _larger(behind), first)), place.end)
        return ByteRange(place.start, max(place.end, min(place.start + _FIRST_WINDOW, last)))

    def keep(self, window: ByteRange, data: memoryview) -> None:
        """Keep a window in place of the one that was not used for longest."""
        self._kept = [*self._kept[1 - _NUM_WINDOWS :], (window, data)]

    def forget(self, place: ByteRange) -> None:
        """Drop the windows that have bytes of a range."""
        self._kept = [one for one in self._kept if one[0].end <= place.start or place.end <= one[0].start]


_start, _end = attrgetter("start"), attrgetter("end")


def _larger(window: ByteRange) -> int:
    return min(max(2 * window.size, _FIRST_WINDOW), _LARGEST_WINDOW)


#: Gives an encrypted object as it is in the clear.
Decrypt: TypeAlias = Callable[..., Awaitable["DamagedObject"]]


@dataclass(slots=True)
class DamagedObject:
    """One object at one version.

    `file_id` names the file that is meant, where several lie in it; `rebuilt` are the bytes that parity has made;
    `decrypt` is how it was opened where it is encrypted, and read in the clear.
    """

    store: ReadStore
    key: str
    url: str
    info: ObjectInfo
    counters: FetchCounters
    owns_store: bool
    file_id: bytes | None = None
    rebuilt: tuple[ByteRange, ...] = ()
    decrypt: Decrypt | None = None
    _objects: ChunkObjects | None = None
    _beneath: DamagedObject | None = None
    _view: ByteRemap | None = None
    _windows: _Windows = field(init=False)

    def __post_init__(self) -> None:
        self._windows = _Windows(self.info.size)

    @property
    def address(self) -> str:
        """Its name that no other object has; not to be shown."""
        return self.store.address_of(self.key)

    @property
    def origin(self) -> DamagedObject:
        """The object as it lies, whatever this is read through."""
        return self if self._beneath is None else self._beneath.origin

    @property
    def opened(self) -> DecryptedStore:
        """The view in the clear that an encrypted object is read through."""
        if isinstance(self.store, DecryptedStore):
            return self.store
        assert self._beneath is not None
        return self._beneath.opened

    @property
    def stored(self) -> DamagedObject:
        """The ciphertext of an encrypted object that is read in the clear."""
        assert self._beneath is not None
        return self._beneath if isinstance(self.store, DecryptedStore) else self._beneath.stored

    @property
    def is_view(self) -> bool:
        """Whether a remap says where its bytes lie."""
        return self._view is not None

    @property
    def is_changed(self) -> bool:
        """Whether its bytes differ from those of `origin`, so that their places are unknown."""
        return self._beneath is not None and (self._view is None or self._beneath.is_changed)

    def lies_at(self, place: ByteRange) -> Iterator[ByteRange]:
        """Where bytes lie in `origin`, piece by piece; those that are nowhere are left out."""
        if self._beneath is None:
            end = min(place.end, self.info.size)
            if place.start < end:
                yield ByteRange(place.start, end)
        elif self._view is not None:
            for _, piece in self._view.places(place):
                yield from self._beneath.lies_at(piece)

    async def read(self, place: ByteRange, *, again: bool = False) -> memoryview:
        """The bytes of a range."""
        if not place.size:
            return memoryview(b"")
        # What opens for threads is local: a request costs nothing there, and a neighbour may be on a bad sector.
        if place.size >= _LARGEST_WINDOW or self.origin.store.opener is not None:
            return await self._requested(place)
        if again:
            self._windows.forget(place)
        found = self._windows.find(place)
        if found is None:
            window = self._windows.around(place)
            self._windows.keep(window, await self._requested(window))
            found = self._windows.find(place)
            assert found is not None
        return found

    async def read_alike(self, place: ByteRange) -> memoryview:
        """The bytes of a range that are written elsewhere as they are: what came wrong once would stay wrong."""
        if self.origin.store.opener is not None:  # of this machine: nothing is on the way
            return await self.read(place)
        read = partial(self.read, place, again=True)
        alike = await read_again(self.origin.store, read, is_whole=None, before=await read())
        assert alike is not None
        return alike

    async def _requested(self, place: ByteRange) -> memoryview:
        data = await self.store.read_range(self.key, place.start, place.end, pin=self.info)
        self.counters.requests += 1
        self.counters.bytes += place.size
        return memoryview(data)

    def objects(self, contents: Contents) -> ChunkObjects:
        """The objects that the chunks of a footer lie in, the same ones each time: their versions stay pinned."""
        if self._objects is None or self._objects.contents is not contents:
            options = FetchOptions()
            self._objects = ChunkObjects(self.store, self.info, contents, options=options, counters=self.counters)
        return self._objects

    async def contents(self) -> Contents | FormatError:
        """The footer at the object's end, understood; or what is wrong with it."""
        try:
            with located(Where(key=self.url)):
                _, contents = await read_contents(self.store, self.key, tail_bytes=TAIL_BYTES, counters=self.counters)
                record = contents.footer.record
                if self.file_id is not None and (record is None or record.file_id != self.file_id):
                    return FormatError("the footer at the end is of another file", where=Where(offset=self.info.size))
                return contents
        except TornFileError as error:
            head = bytes(await self.read(ByteRange(0, min(len(MAGIC), self.info.size))))
            if head != MAGIC:
                await self._refuse_encrypted()
                where = Where(key=self.url, offset=0)
                return NotParquetError("no Parquet magic, neither at the beginning nor at the end", where=where)
            return error
        except FormatError as error:
            await self._refuse_encrypted()
            return error
        except UnsupportedError:
            if (await self.survey()).footer is None:
                raise
            # A damaged footer can look like one that is too new: our records decide.
            return FormatError("the footer is damaged", where=Where(key=self.url, offset=self.info.size))

    async def _refuse_encrypted(self) -> None:
        """Raise where a footer that cannot be used is that of an encrypted file."""
        size = self.info.size
        ends = [ByteRange(0, min(len(MAGIC), size)), ByteRange(max(size - len(MAGIC), 0), size)]
        if ENCRYPTED_MAGIC in [bytes(await self.read(end)) for end in ends] and (await self.survey()).footer is None:
            raise KeyMissingError("the footer is encrypted", where=Where(key=self.url))

    async def begins_with_magic(self) -> bool:
        """Whether its first bytes are those of a Parquet file."""
        return bytes(await self.read(ByteRange(0, min(len(MAGIC), self.info.size)))) == MAGIC

    async def survey(self) -> Survey:
        """What the records of the object say."""
        return await self.drive(surveying.survey(self.info.size, self.file_id))

    async def drive(self, asking: Generator[ByteRange, memoryview, T]) -> T:
        """Give a sans-io search the bytes that it asks for, and its answer to the caller."""
        num_pieces = self.info.size // _PIECE
        wanted, answer = await off_loop(num_pieces, _asked, asking, None)
        while wanted is not None:
            wanted, answer = await off_loop(num_pieces, _asked, asking, await self.read(wanted))
        return cast(T, answer)

    async def with_bytes(self, data: bytes) -> DamagedObject:
        """The same object with other bytes, in memory; the caller closes this one."""
        store = BytesStore(self.store, self.info, data)
        return self._read_from(store, await store.head(self.key), decrypt=self.decrypt)

    async def rebuilt_by(self, healed: HealedStore) -> DamagedObject:
        """The same object with the bytes that parity rebuilds; the caller closes this one."""
        info = await healed.head(self.key)
        there = ByteRemap(info.size, (RemapSegment(0, min(info.size, self.info.size), 0),))
        rebuilt = tuple(ByteRange(at, at + len(data)) for at, data in healed.file.changed())
        return self._read_from(healed, info, rebuilt=rebuilt, _view=None if healed.file.has_moved else there)

    async def decrypted(self, view: DecryptedStore, decrypt: Decrypt) -> DamagedObject:
        """The same object in the clear; the caller closes this one."""
        info = await view.head(self.key)
        same = ByteRemap.in_place(min(info.size, self.info.size))
        return self._read_from(view, info, rebuilt=self.rebuilt, decrypt=decrypt, _view=same)

    def through(self, view: ByteRemap) -> DamagedObject:
        """The same object, its bytes where they were written; the caller closes this one."""
        info = replace(self.info, size=view.size)
        return self._read_from(RemappedStore(self.store, self.info, view), info, decrypt=self.decrypt, _view=view)

    def _read_from(self, store: ReadStore, info: ObjectInfo, **seen: Any) -> DamagedObject:
        """The same object through a store that stands for its own."""
        common = (self.key, self.url, info, self.counters, False, self.file_id)
        return DamagedObject(store, *common, _beneath=self, **seen)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.owns_store:
            await self.store.close()


def _asked(asking: Generator[ByteRange, memoryview, T], data: memoryview | None) -> tuple[ByteRange | None, T | None]:
    """What a search wants after it was given some bytes, None at first; or its answer."""
    try:
        return (next(asking) if data is None else asking.send(data)), None
    except StopIteration as stop:
        return None, stop.value


async def open_source(
    location: Location, storage_options: Mapping[str, Any] | None, file_id: bytes | None = None
) -> DamagedObject:
    """Find the object and pin its version."""
    owns_store = not isinstance(location, tuple)
    store, key = await reach(location, storage_options)
    url = store.url_of(key)
    try:
        with located(Where(key=url)):
            info = await store.head(key)
    except BaseException:
        if owns_store:
            await store.close()
        raise
    return DamagedObject(store, key, url, info, FetchCounters(), owns_store, file_id)


class SmallObject(BytesStore):
    """Stands for a store, which the caller closes, and has one of its objects in memory; others are read there."""

    def __init__(self, store: ReadStore, info: ObjectInfo, data: memoryview) -> None:
        """`read` is the way to get one."""
        super().__init__(store, info, data)
        self.data = data

    @classmethod
    async def read(cls, store: ReadStore, key: str) -> SmallObject | None:
        """Read an object; None where it is not small after all."""
        tail = await store.read_tail(key, SMALL_BYTES)
        return None if tail.offset else cls(store, tail.info, memoryview(tail.data))
