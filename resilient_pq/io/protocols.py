"""What a store is: named bytes with ranges and conditions. It knows no Parquet.

The protocols build on each other (`ReadStore` < `WriteStore` < `MultipartStore`), so that a consumer names
exactly the powers it needs. Each method is one operation with its retries inside: whatever it raises is final
and is one of the `StoreError` family. Offsets and sizes are bytes, ranges exclude their end.

A store belongs to the event loop that first uses it, and is closed with `close()` or ``async with``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from typing import Protocol, Self, runtime_checkable

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import NotFoundError, UnsupportedError, Where
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS, Buffer, ObjectSink, SinkOptions
from resilient_pq.io.stored_object import ListedObject, ObjectInfo, ObjectTail, names_of
from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do beyond the plain verbs; False where it is not known."""

    suffix_range: bool = False  # The tail costs one request; otherwise its size is asked first
    if_match: bool = False  # Reads are pinned by the store itself, not only by comparing afterwards
    if_none_match: bool = False  # ``mode="x"`` is decided by the store at the moment of publishing, without a race
    multipart: bool = False  # It is a `MultipartStore`
    list_parts: bool = False  # Uploads and parts can be listed, so orphans can be found
    equal_parts: bool = False  # All parts but the last must have the same size
    server_side_copy: bool = False  # Bytes can be copied between objects without passing through the client
    durable_commit: bool = False  # `ObjectSink.commit` makes every byte survive the process
    list_names: bool = False  # `ReadStore.list_objects` and `list_names` tell what is below a folder


class OpenObject(Protocol):
    """One version of an object, open to be read from any thread; its methods block, and need no event loop."""

    @abstractmethod
    def read(self, start: int, end: int) -> memoryview:
        """Exactly the bytes from `start` up to, not including, `end`.

        Raises:
            ObjectChangedError: The object is no longer the pinned version.
            RangeError: The range lies beyond its size.
        """

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each of several ranges; raises what `read` does."""
        return [self.read(wanted.start, wanted.end) for wanted in ranges]

    @abstractmethod
    def close(self) -> None:
        """Let go of it; no thread may be reading it."""

    def __enter__(self) -> Self:
        """The object itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


@runtime_checkable
class ReadStore(Protocol):
    """Objects can be read."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What to call the store in messages."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What it can do beyond the plain verbs."""

    @abstractmethod
    def url_of(self, key: str) -> str:
        """The URL or path of this key, as it is shown to people and remembered: without secrets (`io.location`)."""

    def address_of(self, key: str) -> str:
        """The URL or path that leads back to this key from anywhere, secrets and all: to be sent, never shown."""
        return self.url_of(key)

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """The last `size` bytes (at least 1), and what the object is, in one request where the store can.

        A smaller object comes whole; an empty one has ``info.size`` 0 and no data.

        Raises:
            NotFoundError: No such object.
        """
        info = await self.head(key)
        start = max(0, info.size - size)
        return ObjectTail(info, start, await self.read_range(key, start, info.size, pin=info))

    @abstractmethod
    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        """Exactly the bytes from `start` up to, not including, `end`, of the version that `pin` names.

        Raises:
            ObjectChangedError: The object is no longer the pinned version.
            RangeError: The range lies beyond ``pin.size``.
        """

    @property
    def opener(self) -> Callable[[ObjectInfo], OpenObject] | None:
        """What opens a version of an object to be read from threads; None where waiting is best left to the loop.

        It blocks. It raises `ObjectChangedError` where the object is another version, and `NotFoundError`.
        """
        return None

    @property
    def rereads(self) -> int:
        """How many times bytes that do not fit their checksum are read again before they are taken to be damaged."""
        return 1

    @abstractmethod
    async def head(self, key: str) -> ObjectInfo:
        """What the object is, without its bytes.

        Raises:
            NotFoundError: No such object.
        """

    async def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        try:
            await self.head(key)
        except NotFoundError:
            return False
        return True

    def beside(self, key: str, name: str) -> str:
        """The key of the object `name`, a relative path with slashes, in the folder that `key` lies in."""
        folder, slash, _ = key.rpartition("/")
        return f"{folder}{slash}{name}"

    def list_objects(self, folder: str) -> AsyncGenerator[Sequence[ListedObject], None]:
        """Every object below a folder, at any depth, in pages of about 1,000 at most; none where there is no folder."""
        # Each is listed once; what is written or deleted meanwhile may be among them or not. To be closed when it is
        # left before its end (`contextlib.aclosing`). UnsupportedError where the store cannot tell.
        raise UnsupportedError(f"{self.name} cannot list what is in a folder", where=Where(key=self.url_of(folder)))

    async def list_names(self, folder: str) -> list[str]:
        """The names of all that `list_objects` tells of, relative to the folder, with slashes, sorted."""
        # `beside` makes keys of them. UnsupportedError where the store cannot tell, StoreError where it cannot look
        # into a folder below.
        async with aclosing(self.list_objects(folder)) as pages:
            return sorted([name async for page in pages for name in names_of(page)])

    @abstractmethod
    async def close(self) -> None:
        """Let go of connections. A second call does nothing."""

    async def __aenter__(self) -> Self:
        """The store itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the store."""
        await self.close()


@runtime_checkable
class GrowingStore(ReadStore, Protocol):
    """Objects can be read while they are written: pinned reads go on to give the bytes that come behind."""

    @abstractmethod
    def unfinished_key(self, key: str) -> str:
        """Where the bytes of an object are before it is complete; `key` itself where that is the same."""

    @abstractmethod
    async def has_writer(self, key: str) -> bool | None:
        """Whether somebody is writing the object, which is not complete; None where that cannot be told."""


@runtime_checkable
class WriteStore(ReadStore, Protocol):
    """Objects can be written and deleted. A store that only reads raises `UnsupportedError` here."""

    def check_writable(self, key: str) -> None:
        """See, before anything is done for it, that the store can write an object there; else UnsupportedError."""
        return

    @abstractmethod
    async def put(self, key: str, data: Sequence[Buffer] | Buffer, *, if_none_match: bool = False) -> ObjectInfo:
        """Write a whole object at once: it is there entirely or not at all.

        Raises:
            AlreadyExistsError: `if_none_match`, and the object exists.
        """

    async def make_folder(self, folder: str) -> None:
        """See that objects can be created in a folder, and in those above: where a store has folders, they are made."""
        return

    @abstractmethod
    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        """Begin an object whose size is not known yet.

        Raises:
            AlreadyExistsError: ``mode="x"`` and the object exists, or another writer's ``NAME.partial`` does.
        """

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Remove the object; one that is not there is no error."""

    async def discard_unfinished(self, key: str, *, keep: Collection[str] = ()) -> None:
        """Remove what writers of this very object left that died before they completed it, where that is stored."""
        # For objects that nobody else writes: an upload that goes on would be lost. Ids of uploads or paths of partial
        # files to `keep` stay, and the ``NAME.partial`` of a local file, since its rows may be wanted.
        return
