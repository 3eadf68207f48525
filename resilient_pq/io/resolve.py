"""From what a user writes, a URL or a path, to a store and a key in it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from resilient_pq.errors import NOWHERE, SchemaError, StoreError, Where
from resilient_pq.io.local_store import LocalStore
from resilient_pq.io.location import Address, is_shown, mistyped, shown
from resilient_pq.io.protocols import ReadStore, WriteStore
from resilient_pq.io.transfer.retry import READING, RetryPolicy

S = TypeVar("S", bound=ReadStore)
#: What a user names an object with: a URL, a path, or a pair of a store and a key in it.
Location: TypeAlias = str | os.PathLike[str] | tuple[Any, str]
Opened_co = TypeVar("Opened_co", bound=AbstractAsyncContextManager[Any, None], covariant=True)

# What a policy is called among storage options, where it travels with them to whoever makes a store.
_RETRY = "retry"

# One letter is a drive of Windows.
_SCHEME = re.compile(r"([a-z][a-z0-9+.\-_]+)(::|://)", re.IGNORECASE | re.ASCII)
#: The modules of the schemes that have stores of their own, which import their clients when they connect.
_OURS = {
    **dict.fromkeys(("file", "local"), "resilient_pq.io.local_store"),
    **dict.fromkeys(("s3", "s3a"), "resilient_pq.io.s3.s3_store"),
    **dict.fromkeys(("http", "https"), "resilient_pq.io.http_store"),
}


def resolve(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    bucket_alone: bool = False,
    retry: RetryPolicy = READING,
) -> tuple[WriteStore, str]:
    """A new store for the URL, and the key of the object in it.

    The caller closes the store. A path, ``file://`` and ``s3://bucket/name`` have stores of their own, and so
    have ``http://`` and ``https://``, which can only be read; everything else is left to fsspec, chained URLs
    such as ``simplecache::s3://`` included. No existence is checked, and nothing connected yet but by the few file
    systems of fsspec that connect when they are made.
    """
    return Stores(storage_options, retry).resolve(url, bucket_alone=bucket_alone)


class Opening(Generic[Opened_co]):
    """What `open`, `create` and their like give: ``async with`` or ``await`` it to have the file or the writer."""

    def __init__(self, opening: Callable[[], Coroutine[Any, Any, Opened_co]], *, is_local: bool = False) -> None:
        """Keep what opens it until it is asked for; of a local file that needs no event loop."""
        self._opening = opening
        self.is_local = is_local
        self._opened: Opened_co | None = None

    if not TYPE_CHECKING:  # for type checkers there are no such names

        def __getattr__(self, name: str) -> Any:
            """Say what is missing where somebody uses this as what it opens."""
            raise AttributeError(
                f"{name!r} is there when it is open: use `async with ... as opened`, or `opened = await ...`;"
                " resilient_pq.sync has the same functions for code without await",
                name=name,
                obj=self,
            )

    def __await__(self) -> Generator[Any, None, Opened_co]:
        """Open it; the caller closes it."""
        return (yield from self._opening().__await__())

    async def __aenter__(self) -> Opened_co:
        # Not `await self`: a warning is to name the caller's line, and counts the frames between.
        self._opened = await self._opening()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it; a writer publishes on success, and keeps what is stored after an exception."""
        assert self._opened is not None
        await self._opened.__aexit__(kind, error, traceback)


async def reach(
    location: str | os.PathLike[str] | tuple[S, str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    bucket_alone: bool = False,
    retry: RetryPolicy = READING,
) -> tuple[S | WriteStore, str]:
    """As `resolve`, without keeping the event loop busy; a pair of a store and a key is given as it is."""
    return await Stores(storage_options, retry).reach(location, bucket_alone=bucket_alone)


def _is_made_at_once(url: str | os.PathLike[str]) -> bool:
    """Whether the store of a URL is one of ours, and imported."""
    match = None if isinstance(url, os.PathLike) else _SCHEME.match(url)
    return match is None or (match[2] == "://" and _OURS.get(match[1].lower()) in sys.modules)


def is_local(location: object) -> bool:
    """Whether a caller means a file of this machine, which `LocalStore` reads and writes."""
    if isinstance(location, tuple):
        return isinstance(location[0], LocalStore)
    match = _SCHEME.match(location) if isinstance(location, str) else None
    named = match is not None and match[2] == "://" and match[1].lower() in ("file", "local")
    return named or isinstance(location, os.PathLike) or (isinstance(location, str) and match is None)


@asynccontextmanager
async def place_of(
    location: str | os.PathLike[str] | tuple[S, str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    bucket_alone: bool = False,
    retry: RetryPolicy = READING,
) -> AsyncIterator[tuple[S | WriteStore, str]]:
    """The store and the key that a caller means; a store that was made for a URL is closed at the end."""
    store, key = await reach(location, storage_options, bucket_alone=bucket_alone, retry=retry)
    try:
        yield store, key
    finally:
        if not isinstance(location, tuple):
            await store.close()


def with_retry(storage_options: Mapping[str, Any] | None, retry: RetryPolicy | None) -> Mapping[str, Any] | None:
    """Storage options that bring a policy along to wherever a store is made of them, be it another process."""
    if retry is None:
        return storage_options
    return {**(storage_options or {}), _RETRY: _policy(retry)}


def retry_of(storage_options: Mapping[str, Any] | None, otherwise: RetryPolicy) -> RetryPolicy:
    """The policy that storage options bring along."""
    return _policy((storage_options or {}).get(_RETRY) or otherwise)


def _policy(retry: object) -> RetryPolicy:
    if isinstance(retry, RetryPolicy):
        return retry
    raise SchemaError(f"retry is {retry!r}", hint="it takes a RetryPolicy, such as RetryPolicy(seconds=300)")


def _misnamed(message: str, *, where: Where = NOWHERE, hint: str | None = None) -> StoreError:
    error = StoreError(message, where=where, hint=hint)
    error.misnamed = True
    return error


def refuse_mistyped(path: str) -> None:
    """Refuse a missing path that begins like a URL with a password: errors of files would show the password."""
    folder = mistyped(path)
    if folder is not None and not os.path.lexists(folder):
        raise _misnamed(
            "it has a user and a password like a URL, and no scheme before them that is known",
            where=Where(key=shown(path)),
            hint="write https://... or the like, or ./ before the name of a file",
        )


def _check_s3_url(text: str, rest: str, *, bucket_alone: bool) -> None:
    """Refuse a URL of S3 that has a user in it, or names no object."""
    bucket, _, name = rest.partition("/")
    if "@" in bucket or (":" in bucket and not bucket.startswith("arn:")):
        raise _misnamed(
            "the URL has a user and a password, which URLs of S3 have not",
            where=Where(key=shown(text)),
            hint="give `key` and `secret` in storage_options, or set AWS_ACCESS_KEY_ID and the rest",
        )
    if not bucket or not (name or bucket_alone):
        only = ", only a bucket" if bucket else ""
        raise _misnamed(f"the URL names no object{only}", where=Where(key=text), hint="write s3://bucket/name")


class Stores:
    """The stores that URLs lead into, closed together: one each for files, S3 and HTTP, and one for each other URL."""

    def __init__(self, storage_options: Mapping[str, Any] | None = None, retry: RetryPolicy = READING) -> None:
        """Nothing is connected yet."""
        self._storage_options = dict(storage_options or {})
        self._retry = _policy(self._storage_options.pop(_RETRY, None) or retry)
        self._shared: dict[str, WriteStore] = {}
        self._others: list[WriteStore] = []

    async def close(self) -> None:
        """Close all stores."""
        for store in (*self._shared.values(), *self._others):
            await store.close()

    async def reach(
        self, location: str | os.PathLike[str] | tuple[S, str], *, bucket_alone: bool = False
    ) -> tuple[S | WriteStore, str]:
        """As `resolve`; what imports much is made in a thread, as are file systems of fsspec, of which some connect."""
        if isinstance(location, tuple):
            return location
        if not isinstance(location, str | os.PathLike):
            from resilient_pq.io.file_object_store import store_of  # noqa: PLC0415 (most callers have a path)

            return store_of(location)
        if _is_made_at_once(location):
            return self.resolve(location, bucket_alone=bucket_alone)
        return await asyncio.to_thread(self.resolve, location, bucket_alone=bucket_alone)

    def resolve(self, url: str | os.PathLike[str], *, bucket_alone: bool = False) -> tuple[WriteStore, str]:
        """The store for a URL, and the key in it; as `resolve`, which see."""
        text = os.fspath(url)
        if not text:
            raise _misnamed("an empty path names no object")
        match = _SCHEME.match(text)
        if not isinstance(url, os.PathLike):
            refuse_mistyped(text)
        if match is None or isinstance(url, os.PathLike):
            return self._one("file", LocalStore), os.path.expanduser(text)
        # A chain of URLs begins with the name of a file system of fsspec.
        scheme, rest = match[1].lower() if match[2] == "://" else None, text[match.end() :]
        if scheme in ("file", "local"):
            return self._one("file", LocalStore), os.path.expanduser(rest)
        if scheme in ("s3", "s3a"):
            _check_s3_url(text, rest, bucket_alone=bucket_alone)
            from resilient_pq.io.s3.s3_store import S3Store  # noqa: PLC0415

            return self._one("s3", lambda: S3Store(self._storage_options, retry=self._retry)), rest
        if is_shown(text):
            raise _misnamed(
                "the URL stands here as it is shown, with a hash instead of its query, and leads nowhere",
                where=Where(key=text),
                hint="name it with its query",
            )
        if scheme in ("http", "https"):
            from resilient_pq.io.http_store import HttpStore  # noqa: PLC0415

            return self._one("http", lambda: HttpStore(self._storage_options, retry=self._retry)), Address(text)
        from resilient_pq.io.fsspec_store import FsspecStore  # noqa: PLC0415

        store, key = FsspecStore.from_url(text, self._storage_options, retry=self._retry)
        self._others.append(store)
        return store, key

    def _one(self, kind: str, make: Callable[[], WriteStore]) -> WriteStore:
        """The store of a kind, made when it is first needed."""
        if kind not in self._shared:
            self._shared[kind] = make()
        return self._shared[kind]
