"""Any file system that fsspec knows, as a store: reads by range and compared, writes through a local spool file."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import islice
from typing import Any

import fsspec
from fsspec.core import url_to_fs

from resilient_pq.errors import (
    NotFoundError,
    ObjectChangedError,
    RangeError,
    ResilientPQError,
    StoreError,
    TransientError,
    UnsupportedError,
    Where,
)
from resilient_pq.io.local_store import in_thread
from resilient_pq.io.location import Address, cause_to_show, is_web, scrubbed, shown
from resilient_pq.io.object_sink import Buffer, SinkOptions, pieces_of
from resilient_pq.io.os_errors import from_os_error
from resilient_pq.io.partial_file import SUFFIX
from resilient_pq.io.protocols import Capabilities
from resilient_pq.io.stored_object import LISTED_AT_ONCE, ListedObject, ObjectInfo, folder_prefix
from resilient_pq.io.transfer.attempts import Attempts
from resilient_pq.io.transfer.ranged_get import MAX_REQUESTS
from resilient_pq.io.transfer.request_limiter import RequestLimiter
from resilient_pq.io.transfer.request_log import RequestLine
from resilient_pq.io.transfer.retry import WRITING, RetryPolicy
from resilient_pq.io.upload.spooled_upload import SpooledStore

# What file systems call the things that change with the content; all that are there name the version.
_VERSION_FIELDS = (
    "ETag",
    "etag",
    "md5Hash",
    "generation",
    "version_id",
    "VersionId",
    "content_md5",
    "LastModified",
    "last_modified",
    "updated",
    "modified",
    "mtime",
    "created",
)


class FsspecStore(SpooledStore):
    """The files of one fsspec file system.

    Most file systems can neither pin a read nor throw away what was begun. So a version is compared after
    every read (one more request for its metadata), and an object being written gathers in a local temporary
    file, which is sent when it is complete. Their own retries are left as they are: ours are above them.

    Args:
        filesystem: The file system. An asynchronous one is awaited, any other is called in threads.
        prefix: What stands before a key in its URL, such as ``"memory://"``.
        retry: When a request is sent again that found no connection, or lost it.
    """

    capabilities = Capabilities(list_names=True)

    def __init__(self, filesystem: Any, *, prefix: str | None = None, retry: RetryPolicy = WRITING) -> None:
        self._filesystem = filesystem
        limiter = RequestLimiter(MAX_REQUESTS)
        self._attempts = Attempts(retry, lambda: limiter, lambda: self.name)
        self._asynchronous = bool(getattr(filesystem, "async_impl", False) and filesystem.asynchronous)
        self._prefix = prefix
        # The wrapper of pyarrow's file systems opens files that cannot seek where a range begins at 0.
        of_pyarrow = hasattr(getattr(filesystem, "fs", None), "open_input_file")
        self._read_options = {"seekable": True} if of_pyarrow else {}
        self._session: Any = None

    @classmethod
    def from_url(
        cls, url: str, storage_options: Mapping[str, Any] | None = None, *, retry: RetryPolicy = WRITING
    ) -> tuple[FsspecStore, str]:
        """The store that a URL leads into, and the key in it; chains such as ``simplecache::s3://`` work.

        Raises:
            UnsupportedError: The scheme is not known, or its package is not installed.
            StoreError: The file system connects when it is made, as FTP does, and cannot.
        """
        options = dict(storage_options or {})
        chained = "::" in url
        try:
            scheme = fsspec.utils.get_protocol(url)
            if not chained and fsspec.get_filesystem_class(scheme).async_impl:
                options |= {"asynchronous": True, "skip_instance_cache": True}
            filesystem, key = url_to_fs(url, **options)
        except Exception as error:  # drivers raise what their vendors' libraries raise
            refused, cause = _connect_error(error, url), cause_to_show(error)
        else:
            prefix = url[: -len(key)] if key and url.endswith(key) else None
            return cls(filesystem, prefix=prefix, retry=retry), Address(key)
        raise refused from cause

    @property
    def name(self) -> str:
        """What to call the store in messages."""
        protocol = self._filesystem.protocol
        return f"fsspec {protocol if isinstance(protocol, str) else protocol[0]}"

    def url_of(self, key: str) -> str:
        """The URL of a file, without secrets."""
        return shown(self.address_of(key))

    def address_of(self, key: str) -> str:
        """The URL of a file."""
        if self._prefix is not None:
            return Address(self._prefix + key)
        return Address(self._filesystem.unstrip_protocol(key))

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        """The bytes from `start` up to `end`; asks afterwards whether the object is still the pinned one."""
        if not 0 <= start <= end <= pin.size:
            raise RangeError(f"{start}..{end} is not within {pin.size:,} bytes", where=self._where(key))
        if start == end:
            return b""
        options = {"start": start, "end": end, **self._read_options}
        data: bytes = await self._call_retrying("cannot read", "cat_file", key, **options)
        info = await self.head(key)
        if (info.size, info.etag) != (pin.size, pin.etag):
            raise ObjectChangedError("the object was replaced while it was read", where=self._where(key))
        if len(data) != end - start:
            raise TransientError(f"{len(data):,} bytes came for a range of {end - start:,}", where=self._where(key))
        return data

    async def head(self, key: str) -> ObjectInfo:
        """What the object is."""
        found: dict[str, Any] = await self._call_retrying("cannot read", "info", key)
        if found.get("type") == "directory":
            raise StoreError("it is a folder", where=self._where(key), hint="name a file in it")
        if not isinstance(found.get("size"), int):
            raise UnsupportedError(f"{self.name} does not say how large it is", where=self._where(key))
        return ObjectInfo(Address(key), found["size"], _version(found))

    async def list_objects(self, folder: str) -> AsyncGenerator[Sequence[ListedObject], None]:
        """Every file below the folder, asked for anew: file systems remember listings, and give each as a whole."""
        prefix = folder_prefix(folder)
        self._filesystem.invalidate_cache()
        try:
            found: dict[str, dict[str, Any]] = await self._call_retrying("cannot list", "find", folder, detail=True)
        except NotFoundError:
            return
        keys = iter(sorted(key for key in found if key.startswith(prefix)))
        while page := list(islice(keys, LISTED_AT_ONCE)):
            yield [_listed_object(key.removeprefix(prefix), found[key]) for key in page]

    async def make_folder(self, folder: str) -> None:
        """Make the folder; a file system that has none of its own does nothing."""
        if path := folder.rstrip("/"):
            await self._call_retrying("cannot make the folder", "makedirs", path, exist_ok=True)

    def check_writable(self, key: str) -> None:
        """Refused where a chain leads to a web server."""
        if is_web(self.address_of(key)):
            raise UnsupportedError(
                "a web server can only be read", where=self._where(key), hint="write to a path, or to s3://"
            )

    async def put(self, key: str, data: Sequence[Buffer] | Buffer, *, if_none_match: bool = False) -> ObjectInfo:
        """Write a whole object."""
        sink = await self.create(key, SinkOptions(mode="x" if if_none_match else "w"))
        try:
            await sink.write(*pieces_of(data))
            return await sink.complete()
        finally:
            await sink.abort()

    async def delete(self, key: str) -> None:
        """Remove the object, if there is one."""
        try:
            await self._call_retrying("cannot delete", "rm_file", key)
        except NotFoundError:
            return

    async def close(self) -> None:
        """Close the session of an asynchronous file system."""
        session, self._session = self._session, None
        if session is not None and hasattr(session, "close"):
            await session.close()

    async def publish(self, path: str, key: str, *, exclusive: bool) -> ObjectInfo:
        """Send a local file, so that the object is there entirely or not at all."""
        if exclusive:
            await self._refuse_existing(key)
        if self._writes_whole_objects():
            await self._call_retrying("cannot write", "put_file", path, key)
        else:
            await self._call_retrying("cannot write", "put_file", path, key + SUFFIX)
            # Once: after a lost reply there is nothing to move.
            await self._call_once("cannot write", "mv", key + SUFFIX, key)
        return await self.head(key)

    def _writes_whole_objects(self) -> bool:
        """Whether an interrupted upload leaves nothing: object stores do, and those are the asynchronous ones."""
        inner = getattr(self._filesystem, "fs", None) or self._filesystem
        return bool(getattr(inner, "async_impl", False)) or "memory" in getattr(inner, "protocol", ())

    async def _call_retrying(self, doing: str, method: str, *args: Any, **options: Any) -> Any:
        """What a method gives that may be called again; the last of its arguments is the key."""
        return await self._attempts.of(lambda: self._call_once(doing, method, *args, **options))

    async def _call(self, method: str, *args: Any, **options: Any) -> Any:
        """What a method of the file system gives; the last of its arguments is the key."""
        byte_range = f"bytes={options['start']}-{options['end'] - 1}" if "start" in options else ""
        filesystem = self._filesystem
        with RequestLine(method, self.url_of(args[-1]), byte_range) as line:
            if self._asynchronous and self._session is None:
                connect = getattr(filesystem, "set_session", None) or getattr(filesystem, "_set_session", None)
                self._session = object() if connect is None else await connect()
            if self._asynchronous:
                found = await getattr(filesystem, f"_{method}")(*args, **options)
            else:
                found = await in_thread(lambda: getattr(filesystem, method)(*args, **options))
        line.end(None, len(found) if isinstance(found, bytes) else 0)
        return found

    async def _call_once(self, doing: str, method: str, *args: Any, **options: Any) -> Any:
        """What a method gives; what any file system raises, as an error of ours. The last argument is the key."""
        try:
            return await self._call(method, *args, **options)
        except ResilientPQError:
            raise
        except Exception as error:  # drivers raise what their vendors' libraries raise
            failed, cause = self._store_error(error, doing, args[-1]), cause_to_show(error)
        raise failed from cause  # out here it does not come from an error that is not to be shown

    def _store_error(self, error: Exception, doing: str, key: str) -> ResilientPQError:
        where, reason = self._where(key), scrubbed(str(error))
        if isinstance(error, NotImplementedError):
            return UnsupportedError(f"{self.name} {doing}: {reason}", where=where)
        if _is_of_connections(error):
            return TransientError(f"{doing}: {reason or type(error).__name__}", where=where)
        if isinstance(error, OSError):
            return from_os_error(error, doing, self.url_of(key))
        return StoreError(f"{doing}: {type(error).__name__}: {reason}", where=where)

    def _where(self, key: str) -> Where:
        return Where(key=self.url_of(key))


def _is_of_connections(error: BaseException | None) -> bool:
    """Whether a connection failed or broke, also where the driver raised another error from that."""
    kinds: tuple[type[BaseException], ...] = (TimeoutError, ConnectionError)
    if (aiohttp := sys.modules.get("aiohttp")) is not None:  # it is slow to import, and raises nothing before
        kinds += (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError)
    while error is not None:
        if isinstance(error, kinds):
            return True
        error = error.__cause__ or error.__context__
    return False


def _version(found: Mapping[str, Any]) -> str | None:
    """What names the version of a file."""
    return " ".join(f"{name}={found[name]}" for name in _VERSION_FIELDS if found.get(name) is not None) or None


def _listed_object(name: str, found: Mapping[str, Any]) -> ListedObject:
    """A file as a listing describes it."""
    size = found.get("size")
    return ListedObject(name, size if isinstance(size, int) else None, _version(found))


def _connect_error(error: Exception, url: str) -> ResilientPQError:
    """Why no file system could be made for a URL."""
    name, reason = shown(url), scrubbed(str(error))
    if isinstance(error, ImportError):
        return UnsupportedError(reason, where=Where(key=name))
    if isinstance(error, ValueError):
        return UnsupportedError(f"cannot tell what {name} leads to: {reason}")
    if isinstance(error, TypeError):
        return UnsupportedError(f"storage_options do not fit {name}: {reason}")
    if isinstance(error, OSError):
        return from_os_error(error, "cannot connect", name)
    return StoreError(f"cannot connect: {type(error).__name__}: {reason}", where=Where(key=name))
