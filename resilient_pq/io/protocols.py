"""What a store is: named bytes with ranges, uploads and conditions. It knows no Parquet.

The protocols build on each other (`ReadStore` < `WriteStore` < `MultipartStore`), so that a consumer names
exactly the powers it needs. Each method is one operation with its retries inside: whatever it raises is final
and is one of the `StoreError` family. Offsets and sizes are bytes, ranges exclude their end.

A store belongs to the event loop that first uses it, and is closed with `close()` or ``async with``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias, runtime_checkable

from resilient_pq.errors import NotFoundError, StoreError, UnsupportedError, Where
from resilient_pq.io.upload.epoch import LeaseTerms
from resilient_pq.units import GiB, MiB

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What may be written: contiguous bytes, which must not change until the object is published."""


#: Objects in a page of a listing, at most, where that is not the store's choice.
LISTED_AT_ONCE = 1_000

#: Every part but the last has at least this size (Amazon S3 User Guide, "Amazon S3 multipart upload limits").
MIN_PART_BYTES = 5 * MiB


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One version of one object; later reads are pinned to it.

    Attributes:
        key: The name within its store.
        size: Bytes of the whole object.
        etag: What the store calls this version, compared on every later read; None where it has no such name.
        version: The id of this version in a versioned bucket, or None.
        permissions: Of a local file: what its owner, its group and others may do with it, as `os.chmod` takes it.
    """

    key: str
    size: int
    etag: str | None
    version: str | None = None
    permissions: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object as a listing tells of it.

    Attributes:
        name: Relative to the folder that was listed, with slashes; `ReadStore.beside` makes a key of it.
        size: Bytes of the whole object; None where the listing does not tell.
        etag: What the listing calls this version; None where it does not. A `head` may call it otherwise.
        error: Why nothing can be told of what is in a folder below; `name` is that folder's then, with a slash at its
            end. None of objects.
    """

    name: str
    size: int | None = None
    etag: str | None = None
    error: StoreError | None = None


def names_of(page: Iterable[ListedObject]) -> list[str]:
    """The names in a page of a listing.

    Raises:
        StoreError: A folder could not be looked into.
    """
    names = []
    for found in page:
        if found.error is not None:
            raise found.error
        names.append(found.name)
    return names


@dataclass(frozen=True, slots=True)
class ObjectTail:
    """The last bytes of an object, and what it is.

    Attributes:
        info: The version that `data` belongs to; pin later reads to it.
        offset: Absolute offset of ``data[0]``; 0 when `data` is the whole object.
        data: The last bytes, ``info.size - offset`` of them.
    """

    info: ObjectInfo
    offset: int
    data: bytes | memoryview

    def part(self, start: int, end: int) -> memoryview | None:
        """The bytes from `start` up to `end`, absolute offsets; None where they do not all lie in `data`."""
        if not self.offset <= start <= end <= self.offset + len(self.data):
            return None
        return memoryview(self.data)[start - self.offset : end - self.offset]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a multipart upload, as the store acknowledged or lists it.

    Attributes:
        number: From 1.
        size: Bytes.
        etag: The store's name for these bytes, needed to complete.
        crc32: CRC32 of the bytes where the store keeps it, unsigned.
        undecided: An earlier attempt to send these very bytes was sent whole and never answered: it may still
            arrive, and would replace other bytes that were sent under this number meanwhile.
        undecided_for: Seconds since the last such attempt was given up.
    """

    number: int
    size: int
    etag: str
    crc32: int | None = None
    undecided: bool = False
    undecided_for: float = 0.0


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """An upload that was begun and neither completed nor aborted.

    Attributes:
        key: The object it would become.
        upload_id: Its id; with the key, all that is needed to complete or abort it.
        initiated: When it was begun, as the store tells it.
    """

    key: str
    upload_id: str
    initiated: datetime | None


class StoredState(StrEnum):
    """How safe bytes are that were given to a sink."""

    ACCEPTED = "accepted"
    """In memory: lost with the process."""
    STORED = "stored"
    """In the store: they survive the process, but nobody sees them before the object is completed."""
    VISIBLE = "visible"
    """Part of a completed object."""


class Fencing(StrEnum):
    """What keeps two writers from both being told that their bytes of one object are stored."""

    LOCK = "lock"
    """A lock on the local file, held until its writer ends."""
    LEASE = "lease"
    """An epoch object, which the store replaces only for those who know its newest version."""
    ADVISORY = "advisory"
    """An epoch object in a store that heeds no conditions: of writers that begin at one moment several are told so."""
    NONE = "none"
    """Nothing."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do beyond the plain verbs; False where it is not known.

    Attributes:
        suffix_range: The tail costs one request; otherwise its size is asked first.
        if_match: Reads are pinned by the store itself, not only by comparing afterwards.
        if_none_match: ``mode="x"`` is decided by the store at the moment of publishing, without a race.
        multipart: It is a `MultipartStore`.
        list_parts: Uploads and parts can be listed, so orphans can be found.
        equal_parts: All parts but the last must have the same size.
        server_side_copy: Bytes can be copied between objects without passing through the client.
        durable_commit: `ObjectSink.commit` makes every byte survive the process.
        list_names: `ReadStore.list_objects` and `list_names` tell what is below a folder.
    """

    suffix_range: bool = False
    if_match: bool = False
    if_none_match: bool = False
    multipart: bool = False
    list_parts: bool = False
    equal_parts: bool = False
    server_side_copy: bool = False
    durable_commit: bool = False
    list_names: bool = False


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How an object is written.

    Attributes:
        mode: ``"w"`` replaces what is there when the object is completed, ``"x"`` fails if it exists.
        if_match: Replace this version only, by its ETag, where the store can tell at the moment of publishing.
        part_bytes: Size of the first parts of an upload, a whole number of MiB. An object smaller than one
            part is a single request.
        max_part_bytes: Parts double every 500 parts up to this size, if it is above `part_bytes`. 10,000
            parts of the default reach 0.5 TiB, 1 GiB reaches 5 TiB.
        equal_parts: Keep all parts at `part_bytes`, for stores that ask for it (Cloudflare R2). An object can
            then have at most 10,000 times `part_bytes`.
        max_bytes_in_flight: Bytes of parts being sent at one time, twelve parts at first; at least one part is,
            whatever its size.
        undecided_grace: Seconds that an upload waits after a part was sent whole and not answered before other
            bytes are sent under that number, unless the store lists it: a store is taken to have dropped by then
            what has not arrived.
        private_partial: Local files: write to ``NAME.<random>.partial`` instead of ``NAME.partial``, so that neither
            stands in the way of the other.
        overwrite_partial: Local files: replace a ``NAME.partial`` that a dead writer left. One that a living
            writer holds is never replaced.
        lease: Uploads: what the epoch object beside the object is to say, so that bytes are stored for its holder
            alone (`io.upload.lease`); None for no such object.
        permissions: Local files: what others than the owner may do with it, at most, as `os.chmod` takes it; None for
            what the umask leaves.

    Raises:
        ValueError: A size that no upload could have.
    """

    mode: Literal["w", "x"] = "w"
    if_match: str | None = None
    part_bytes: int = 5 * MiB
    max_part_bytes: int = 64 * MiB
    equal_parts: bool = False
    max_bytes_in_flight: int = 60 * MiB
    undecided_grace: float = 60.0
    private_partial: bool = False
    overwrite_partial: bool = False
    lease: LeaseTerms | None = None
    permissions: int | None = None

    def __post_init__(self) -> None:
        """Refuse what could only fail later, in the middle of an upload."""
        if self.mode not in ("w", "x"):
            raise ValueError(f'mode is "w" or "x", not {self.mode!r}')
        for name in ("part_bytes", "max_part_bytes"):
            size = getattr(self, name)
            if size % MiB or not MiB <= size <= 5 * GiB:
                raise ValueError(f"{name} is a whole number of MiB, at most 5 GiB, not {size:,} bytes")
        if self.max_bytes_in_flight < 1:
            raise ValueError(f"max_bytes_in_flight is at least 1, not {self.max_bytes_in_flight:,}")
        if not self.undecided_grace >= 0:
            raise ValueError(f"undecided_grace is not below 0 seconds, and {self.undecided_grace} is not that")


DEFAULT_SINK_OPTIONS = SinkOptions()


class ObjectSink(Protocol):
    """The bytes of one object, appended in order; nobody sees them before `complete`.

    One task uses a sink. It ends with exactly one of `complete`, `abort` and `keep`; `abort` and `keep` may
    also follow a `complete` that failed, and do nothing after one that succeeded. None of the three leaves a
    task behind, and a cancellation that arrives while one of them runs is raised when it is done.
    """

    @property
    @abstractmethod
    def position(self) -> int:
        """Bytes accepted so far: the absolute offset of the next one."""

    @property
    @abstractmethod
    def num_bytes_stored(self) -> int:
        """Bytes from the beginning, without a gap, that survive a kill of this process; none after `abort`."""

    @abstractmethod
    async def write(self, *buffers: Buffer) -> None:
        """Append the buffers, waiting while too many bytes are in flight.

        Every buffer is accepted, in `position`, even when the call is cancelled while it waits. The sink may
        keep the buffers, uncopied, until it ends: they must not change.

        Raises:
            StoreError: This or an earlier write failed; every later call fails likewise.
            WriterClosedError: The sink has ended.
        """

    def mark(self) -> None:
        """Note that what was written so far is whole by itself: if anything is stored, that much of it is.

        To be called once, before anything was committed. A sink whose bytes are stored as they come needs no mark.
        """
        return

    @abstractmethod
    async def commit(self, *, wait: bool = True) -> StoredState:
        """Make all that was written as durable as this store can, and say how durable that is.

        What was written so far becomes what anyone would find who completed the object now.

        Args:
            wait: Return only when it is done. Otherwise a sink that has to wait for a store goes on by itself, and
                `num_bytes_stored` tells when it is done; while it is at work, further calls that do not wait ask
                for nothing.
        """

    @property
    def num_bytes_resent(self) -> int:
        """Bytes that were sent more than once so far, since commits needed them; retries are not counted."""
        return 0

    @property
    def can_store(self) -> bool:
        """Whether `commit` makes bytes survive this process before the object is complete."""
        return True

    @property
    def stored_as_written(self) -> bool:
        """Whether all bytes that were written can be found again as they are; a commit is against a loss of power then.

        Otherwise nothing can be read of an object that is not complete, and a commit belongs behind something whole.
        """
        return False

    @property
    def commit_seconds(self) -> float:
        """Seconds that the newest commit took of those that were not waited for and are done."""
        return 0.0

    @property
    def commit_cost(self) -> int:
        """Bytes of what is written now that a commit would cause to be sent once more."""
        return 0

    @abstractmethod
    async def complete(self) -> ObjectInfo:
        """Publish the object.

        Raises:
            AlreadyExistsError: ``mode="x"``, and the object exists.
            StoreError: Nothing was published; `abort` or `keep` is still to be called.
        """

    @abstractmethod
    async def abort(self) -> None:
        """Leave nothing behind."""

    @abstractmethod
    async def keep(self) -> None:
        """Publish nothing, but leave what is stored where `describe` says, and let go of files and tasks."""

    @abstractmethod
    def describe(self) -> str:
        """Where what was kept can be found: the path of ``NAME.partial``, or the key and upload id."""

    @property
    def published(self) -> ObjectInfo | None:
        """What `complete` published, even where it could not say so since it was cancelled; None until then."""
        return None

    @property
    def in_doubt(self) -> bool:
        """Whether the store may have published the object without saying so: what was sent is never removed then."""
        return False

    @property
    def upload_id(self) -> str | None:
        """The id of the open upload that the bytes go to; None where there is none."""
        return None

    @property
    def fencing(self) -> Fencing:
        """What keeps others from being told that their bytes of this object are stored."""
        return Fencing.NONE

    def rescue_command(self) -> str | None:
        """The command that makes an object of what was kept; None where nothing is."""
        return None


class OpenObject(Protocol):
    """One version of an object, open to be read from any thread; its methods block, and need no event loop."""

    @abstractmethod
    def read(self, start: int, end: int) -> memoryview:
        """Exactly the bytes from `start` up to, not including, `end`.

        Raises:
            ObjectChangedError: The object is no longer the pinned version.
            RangeError: The range lies beyond its size.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of it; no thread may be reading it."""

    def __enter__(self) -> Self:
        """The object itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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

    @abstractmethod
    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """The last `size` bytes (at least 1), and what the object is, in one request where the store can.

        A smaller object comes whole; an empty one has ``info.size`` 0 and no data.

        Raises:
            NotFoundError: No such object.
        """

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
        """Every object below a folder, at any depth, a page at a time, so that there may be any number.

        Each is listed once; what is written or deleted meanwhile may be among them or not.

        Args:
            folder: A key, with a slash at its end or without.

        Returns:
            Pages of at least one and mostly at most 1,000 objects, in no order that all stores have; none where there
            is no such folder. To be closed when it is left before its end (`contextlib.aclosing`).

        Raises:
            UnsupportedError: The store cannot tell.
        """
        raise UnsupportedError(f"{self.name} cannot list what is in a folder", where=Where(key=self.url_of(folder)))

    async def list_names(self, folder: str) -> list[str]:
        """The names of all that `list_objects` tells of, sorted.

        Args:
            folder: A key, with a slash at its end or without.

        Returns:
            Names relative to `folder`, with slashes: `beside` makes keys of them. None where there is no such folder.

        Raises:
            UnsupportedError: The store cannot tell.
            StoreError: A folder below cannot be looked into.
        """
        async with aclosing(self.list_objects(folder)) as pages:
            return sorted([name async for page in pages for name in names_of(page)])

    @abstractmethod
    async def close(self) -> None:
        """Let go of connections. A second call does nothing."""

    async def __aenter__(self) -> Self:
        """The store itself."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the store."""
        await self.close()


@runtime_checkable
class GrowingStore(ReadStore, Protocol):
    """Objects can be read while they are written: what is there of one stays, and more comes behind it.

    Reads that are pinned to a version of such an object go on to give its bytes when it has grown.
    """

    @abstractmethod
    def unfinished_key(self, key: str) -> str:
        """Where the bytes of an object are before it is complete; `key` itself where that is the same."""

    @abstractmethod
    async def has_writer(self, key: str) -> bool | None:
        """Whether somebody is writing the object, which is not complete; None where that cannot be told.

        Raises:
            NotFoundError: No such object.
        """


@runtime_checkable
class WriteStore(ReadStore, Protocol):
    """Objects can be written and deleted. A store that only reads raises `UnsupportedError` here."""

    def check_writable(self, key: str) -> None:
        """See, before anything is done for it, that the store can write an object there at all.

        Raises:
            UnsupportedError: It only reads.
        """
        return

    @abstractmethod
    async def put(self, key: str, data: Sequence[Buffer] | Buffer, *, if_none_match: bool = False) -> ObjectInfo:
        """Write a whole object at once: it is there entirely or not at all.

        Raises:
            AlreadyExistsError: `if_none_match`, and the object exists.
        """

    async def make_folder(self, folder: str) -> None:
        """See that objects can be created in a folder, and in those above it: where a store has folders, they are made.

        Args:
            folder: A key, with a slash at its end or without.
        """
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
        """Remove what writers of this very object left that died before they completed it, where that is stored.

        For objects that nobody else writes: an upload that goes on would be lost. The ``NAME.partial`` of a local file
        stays, since its rows may be wanted.

        Args:
            key: The object.
            keep: What stays: ids of uploads, or paths of partial files.
        """
        return


@runtime_checkable
class MultipartStore(WriteStore, Protocol):
    """Objects can be uploaded in parts that survive their writer, and be completed by anyone.

    The verbs are raw: parts are numbered from 1, need not arrive in order, and replace an earlier part of the
    same number.
    """

    @property
    def command_arguments(self) -> tuple[str, ...]:
        """What a command line needs to reach this very store, besides the URL and the credentials."""
        return ()

    def upload_options(self, options: SinkOptions) -> SinkOptions:
        """The options as an upload to this store has to keep them.

        Raises:
            SchemaError: The store takes no parts so small.
        """
        return options

    def copies_from(self, store: ReadStore) -> bool:
        """Whether `copy_part` takes objects of another store: one of the same endpoint, by the same credentials."""
        return store is self

    @abstractmethod
    async def create_upload(self, key: str) -> str:
        """Begin an upload; gives its id."""

    @abstractmethod
    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        """Send one part; when this returns, the part survives the process.

        Raises:
            NotFoundError: No such upload: it was completed or aborted.
        """

    @abstractmethod
    async def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Publish the object that the named parts make, in the order of their numbers; others are dropped.

        Args:
            key: The object.
            upload_id: The upload.
            parts: As `put_part` or `list_parts` gave them.
            if_none_match: Only if there is no such object.
            if_match: Only in place of the version with this ETag, where the store can tell.

        Raises:
            AlreadyExistsError: `if_none_match`, and the object exists.
            ObjectChangedError: `if_match`, and the object is another version, or gone.
            NotFoundError: No such upload.
        """

    @abstractmethod
    async def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop the upload and its parts.

        Raises:
            NotFoundError: No such upload; not every store tells.
        """

    @abstractmethod
    async def put(
        self,
        key: str,
        data: Sequence[Buffer] | Buffer,
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Write a whole object at once.

        Args:
            key: The object.
            data: Its bytes.
            if_none_match: Only if there is no such object.
            if_match: Only in place of the version with this ETag, where the store can tell (`heeds_conditions`).

        Raises:
            AlreadyExistsError: `if_none_match`, and the object exists.
            ObjectChangedError: `if_match`, and the object is another version, or gone.
            UnsupportedError: The store refuses the condition.
        """

    @abstractmethod
    async def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Remove the object; one that is not there is no error.

        Args:
            key: The object.
            if_match: Only the version with this ETag, where the store can tell.

        Raises:
            ObjectChangedError: `if_match`, and the object is another version, or gone.
        """

    async def heeds_conditions(self, key: str, data: bytes) -> bool:
        """Whether `put` keeps to its conditions: some servers pass over them without a word.

        Args:
            key: An object that is there.
            data: Its bytes: a store that heeds nothing will write them once more.
        """
        return True

    def begun_twice(self, upload_id: str) -> bool:
        """Whether the beginning of an upload was asked for again, as no answer came: there may be another, empty."""
        return False

    async def discard_unfinished(self, key: str, *, keep: Collection[str] = ()) -> None:
        """Abort every upload of this object but those to keep, by their ids, where uploads can be listed."""
        if self.capabilities.list_parts:
            for upload in await self.uploads_of(key):
                if upload.upload_id not in keep:
                    with suppress(NotFoundError):  # it ended meanwhile
                        await self.abort_upload(key, upload.upload_id)

    async def uploads_of(self, key: str) -> list[UploadInfo]:
        """The open uploads of this object: a listing has those of `day.parquet.old` beside those of `day.parquet`."""
        return [upload for upload in await self.list_uploads(key) if upload.key == key]

    @abstractmethod
    async def list_uploads(self, prefix: str) -> list[UploadInfo]:
        """Every open upload whose key begins with `prefix`."""

    @abstractmethod
    async def list_parts(self, key: str, upload_id: str) -> list[Part]:
        """Every part the store lists, by number; of a part sent again, every version the store still lists.

        Raises:
            NotFoundError: No such upload.
        """

    @abstractmethod
    async def copy_part(
        self,
        key: str,
        upload_id: str,
        number: int,
        source_key: str,
        start: int,
        end: int,
        source_etag: str | None,
    ) -> Part:
        """Make a part of the bytes from `start` up to `end` of another object, copied by the store itself.

        Not every store heeds `source_etag`: see `copied_upload`, which asks what the source is besides.

        Raises:
            ObjectChangedError: The source is no longer `source_etag`, and the store tells.
            UnsupportedError: The store does not copy.
        """


def pieces_of(data: Sequence[Buffer] | Buffer) -> list[memoryview]:
    """One or many buffers as flat views of bytes, empty ones left out, without copying."""
    buffers = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
    return [view for buffer in buffers if (view := memoryview(buffer).cast("B")).nbytes]


def folder_prefix(folder: str) -> str:
    """What every key below a folder begins with, where keys are names with slashes; nothing for the top."""
    trimmed = folder.rstrip("/")
    return f"{trimmed}/" if trimmed or folder else ""


def bare_etag(etag: str) -> str:
    """An ETag without its quotes: servers differ in whether they send them."""
    return etag.strip().strip('"')
