"""Any store of obstore's (S3, GCS, Azure, HTTP, files, memory) as one of ours: its client costs a fifth of the CPU.

What its client cannot do, this store cannot: there are no handles of uploads, so an object is spooled to a local file
and sent when it is complete, and nothing of it can be resumed or salvaged; no request to a server that answers 200 to a
range succeeds; and it must not be used after a fork. Its own retries are turned off, where it was made without any
said, for there is one layer of retries, ours.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError as ObstoreAlreadyExistsError
from obstore.exceptions import BaseError, NotSupportedError, PermissionDeniedError, UnauthenticatedError
from obstore.exceptions import PreconditionError as ObstorePreconditionError
from obstore.store import AzureStore

from resilient_pq.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    NotFoundError,
    ObjectChangedError,
    PreconditionError,
    RangeError,
    StoreError,
    ThrottledError,
    TransientError,
    UnsupportedError,
)
from resilient_pq.io.local_store import in_thread
from resilient_pq.io.location import Address, cause_to_show, scrubbed, shown
from resilient_pq.io.object_sink import Buffer, pieces_of
from resilient_pq.io.protocols import Capabilities
from resilient_pq.io.stored_object import LISTED_AT_ONCE, ListedObject, ObjectInfo, folder_prefix
from resilient_pq.io.transfer.ranged_answer import Answer, AskTheSize
from resilient_pq.io.transfer.ranged_get import RangedGetStore
from resilient_pq.io.transfer.request_log import RequestLine
from resilient_pq.io.transfer.retry import NO_RETRIES, WRITING, RetryPolicy, retrying
from resilient_pq.io.upload.spooled_upload import SpooledStore
from resilient_pq.units import KiB, MiB

if TYPE_CHECKING:
    from obstore import GetOptions

Result = TypeVar("Result")

# Every chunk crosses from Rust to the event loop by itself, which costs some 50 us.
_CHUNK = 256 * KiB
# A larger file is sent in parts, side by side.
_SINGLE_PUT = 64 * MiB
# Its runtime may still be handing over results when the interpreter ends, and aborts the process then: 4 of 25 short
# scripts ended so, and none of those that waited this long (seconds).
_GRACE = 0.1

_SUFFIX = re.compile(r"bytes=-(\d+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_STATUS = re.compile(r"status code: (\d{3})\b")


#: What the exceptions of obstore are here; of the many others the text tells.
_KINDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], type[StoreError]], ...] = (
    (FileNotFoundError, NotFoundError),
    (ObstoreAlreadyExistsError, AlreadyExistsError),
    (ObstorePreconditionError, PreconditionError),
    ((PermissionDeniedError, UnauthenticatedError, PermissionError), AccessDeniedError),
)


class ObstoreStore(RangedGetStore, SpooledStore):
    """The objects of an obstore store.

    Args:
        store: What obstore made: ``obstore.store.S3Store("bucket", region="eu-central-1")``. Keys are paths in it.
        prefix: What stands before a key in its URL, such as ``"s3://bucket/"``.
        retry: When a request is sent again.
    """

    def __init__(self, store: Any, *, prefix: str | None = None, retry: RetryPolicy = WRITING) -> None:
        super().__init__(retry)
        self._store = _without_retries(store)
        self._kind = type(store).__name__
        self._prefix = f"obstore {self._kind}:" if prefix is None else prefix
        self._suffix_works = not isinstance(store, AzureStore)  # Azure has no suffix ranges
        self._asked = False

    @property
    def name(self) -> str:
        """What to call the store in messages."""
        return f"obstore {self._kind}"

    @property
    def capabilities(self) -> Capabilities:
        """What obstore's interface reaches."""
        return Capabilities(suffix_range=self._suffix_works, if_match=True, if_none_match=True, list_names=True)

    def url_of(self, key: str) -> str:
        """The prefix and the key, without secrets."""
        return shown(self._prefix + key)

    def address_of(self, key: str) -> str:
        """The prefix and the key."""
        return Address(self._prefix + key)

    async def list_objects(self, folder: str) -> AsyncGenerator[Sequence[ListedObject], None]:
        """Every object below the folder."""
        start = folder_prefix(folder).lstrip("/")
        last: str | None = None
        listing = self._list_from(folder, last)

        async def following() -> Sequence[Any]:
            nonlocal listing
            try:
                batch: Sequence[Any] = await anext(listing)  # with a default, it fails at the end
                return batch
            except StopAsyncIteration:
                return ()
            except (BaseError, OSError, ValueError):
                # A listing that failed does not go on. The stores that fail so list by name.
                listing = self._list_from(folder, last)
                raise

        while batch := await self._attempts.of(lambda: self._request("list", folder, following())):
            last = batch[-1]["path"]
            found = [_listed_object(meta, start) for meta in batch if meta["path"].startswith(start)]
            if found:
                yield found

    def _list_from(self, folder: str, last: str | None) -> AsyncIterator[Any]:
        """What is below a folder, behind a key if one is given."""
        options: dict[str, Any] = {} if last is None else {"offset": last}
        listing: AsyncIterator[Any] = obstore.list(
            self._store, folder.strip("/") or None, chunk_size=LISTED_AT_ONCE, **options
        )
        return listing

    async def put(self, key: str, data: Sequence[Buffer] | Buffer, *, if_none_match: bool = False) -> ObjectInfo:
        """Write a whole object in one request."""
        # With `if_none_match` it is sent once: sent again, it could be refused because of its own success.
        pieces = pieces_of(data)
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return await self._put(key, body, len(body), exclusive=if_none_match, use_multipart=False)

    async def publish(self, path: str, key: str, *, exclusive: bool) -> ObjectInfo:
        """Send a local file, so that the object is there entirely or not at all."""
        size = await in_thread(lambda: os.path.getsize(path))
        if size <= _SINGLE_PUT:
            return await self._put(key, Path(path), size, exclusive=exclusive, use_multipart=False)
        if exclusive:
            await self._refuse_existing(key)
        return await self._put(key, Path(path), size, exclusive=False, use_multipart=True)

    async def delete(self, key: str) -> None:
        """Remove the object, if there is one."""
        try:
            await self._attempts.of(lambda: self._request("delete", key, obstore.delete_async(self._store, key)))
        except NotFoundError:
            return

    async def close(self) -> None:
        """Wait a tenth of a second, if anything was asked, so that the process can end after it."""
        if self._asked:
            self._asked = False
            await asyncio.sleep(_GRACE)

    async def _put(self, key: str, body: Any, size: int, *, exclusive: bool, use_multipart: bool) -> ObjectInfo:
        async def send() -> ObjectInfo:
            mode: Literal["create", "overwrite"] = "create" if exclusive else "overwrite"
            request = obstore.put_async(self._store, key, body, mode=mode, use_multipart=use_multipart)
            answer = await self._request("put", key, request, size)
            return ObjectInfo(key, size, answer["e_tag"], answer["version"])

        return await (retrying(send, NO_RETRIES) if exclusive else self._attempts.of(send))

    async def _get(self, key: str, byte_range: str, *, pin: ObjectInfo | None) -> Answer:
        options: GetOptions = {"range": _parse_range(byte_range)}
        if pin is not None and pin.etag is not None:
            options["if_match"] = pin.etag
        self._asked = True
        try:
            found = await obstore.get_async(self._store, key, options=options)
        except (BaseError, OSError, ValueError) as error:
            if "non-partial response" in str(error):
                raise self._unranged_error(key, pin) from cause_to_show(error)
            ours = self._store_error("get", key, error)
            if isinstance(ours, PreconditionError):
                ours = ObjectChangedError("the object was replaced while it was read", where=ours.where)
                ours.status = 412
            raise ours from cause_to_show(error)
        start, end = found.range
        size = int(found.meta["size"])
        return Answer(
            body=_ObstoreBody(self, key, found),
            status=200 if start == end else 206,
            content_range=None if start == end else f"bytes {start}-{end - 1}/{size}",
            content_length=end - start,
            etag=found.meta["e_tag"],
            version=found.meta["version"],
        )

    def _unranged_error(self, key: str, pin: ObjectInfo | None) -> Exception:
        """obstore refuses a status of 200, whatever comes with it: an empty object, all of it, or even a part."""
        if pin is None:
            return AskTheSize(for_good=False)
        return UnsupportedError(
            "the server answers 200 to a range, which obstore does not take",
            where=self._where(key),
            hint="read it by an s3:// or http:// URL instead",
        )

    async def _head(self, key: str) -> ObjectInfo:
        found = await self._request("head", key, obstore.head_async(self._store, key))
        return ObjectInfo(key, int(found["size"]), found["e_tag"], found["version"])

    async def _request(self, verb: str, key: str, request: Coroutine[Any, Any, Result], size: int = 0) -> Result:
        """The answer to a request that is no GET, its errors as ours."""
        self._asked = True
        line = RequestLine(verb, self.url_of(key))
        try:
            answer = await request
        except (BaseError, OSError, ValueError) as error:
            ours = self._store_error(verb, key, error)
            line.end(None, size, ours)
            raise ours from cause_to_show(error)
        line.end(None, size)
        return answer

    def _store_error(self, doing: str, key: str, error: Exception) -> StoreError | UnsupportedError:
        """The error of this package for an exception of obstore."""
        said, _, source = str(error).partition("\n\nDebug source:")
        message, where = f"{doing}: {scrubbed(said)}", self._where(key)
        match = _STATUS.search(said)
        status = int(match[1]) if match else None
        if isinstance(error, NotSupportedError | NotImplementedError):
            return UnsupportedError(message, where=where)
        kind = next((ours for theirs, ours in _KINDS if isinstance(error, theirs)), None)
        if kind is AlreadyExistsError:
            message = "the object exists already"
        ours = (kind or _kind_by_text(said, source, status))(message, where=where)
        ours.status = status
        return ours


class _ObstoreBody:
    """The body of a GET, with its errors as ours."""

    def __init__(self, store: ObstoreStore, key: str, found: Any) -> None:
        self._store = store
        self._key = key
        self._stream: AsyncIterator[bytes] | None = found.stream(min_chunk_size=_CHUNK)
        self._rest = b""

    async def read(self, size: int) -> bytes:
        """The next bytes, none at the end."""
        if not self._rest and self._stream is not None:
            try:
                self._rest = bytes(await anext(self._stream, b""))
            except (BaseError, OSError, ValueError) as error:
                raise self._store._store_error("get", self._key, error) from cause_to_show(error)
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def close(self) -> None:
        """Drop the rest."""
        self._stream = None


def _kind_by_text(said: str, source: str, status: int | None) -> type[StoreError]:
    """Which error of ours a message of obstore is, with the source that it names and the status in it."""
    if status == 416 or "Invalid range" in said or "StartTooLarge" in source:
        return RangeError
    if status in (429, 503):
        return ThrottledError
    if status == 408 or (status or 0) >= 500 or (status is None and "reqwest::Error" in source):
        return TransientError
    return StoreError


def _listed_object(meta: Any, start: str) -> ListedObject:
    return ListedObject(meta["path"].removeprefix(start), int(meta["size"]), meta["e_tag"])


def _parse_range(header: str) -> Any:
    """A Range header as an option of obstore."""
    if (suffix := _SUFFIX.fullmatch(header)) is not None:
        return {"suffix": int(suffix[1])}
    match = _RANGE.fullmatch(header)
    assert match is not None, header
    return int(match[1]), int(match[2]) + 1


def _without_retries(store: Any) -> Any:
    """The same store without retries of its own, if its maker said nothing about them."""
    if getattr(store, "retry_config", True) is not None:
        return store
    args, options = store.__getnewargs_ex__()  # what it is made of, as pickle asks for it
    return type(store)(*args, **options, retry_config={"max_retries": 0})
