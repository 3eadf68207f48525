"""Reading by HTTP range requests, from servers that follow the standard and from those that do not.

One place for what S3 and plain HTTP have in common: the suffix request that opens an object, pinning, the
checks of every answer, the body that is resumed where it broke off, and the retries around it all. A store
supplies `_get`, one request and no more. Servers are met that answer 200 to a range, that ignore If-Match,
that refuse a suffix longer than the object or send other bytes than were asked for: each is served right or
refused, never believed.
"""

from __future__ import annotations

import logging
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from resilient_pq.errors import (
    ObjectChangedError,
    RangeError,
    StoreError,
    TransientError,
    UnsupportedError,
    Where,
    located,
)
from resilient_pq.io.concurrency import RequestLimiter
from resilient_pq.io.counters import count_retry
from resilient_pq.io.protocols import ObjectInfo, ObjectTail, ReadStore, bare_etag
from resilient_pq.io.retry import DEFAULT_RETRY_POLICY, RetryPolicy, retrying

log = logging.getLogger("resilient_pq.io")

Result = TypeVar("Result")

_CONTENT_RANGE = re.compile(r"\s*bytes\s+(\d{1,19})-(\d{1,19})/(\d{1,19})\s*\Z", re.ASCII | re.IGNORECASE)
# Large enough to be cheap, small enough that what is skipped or comes in excess stays small.
_CHUNK = 256 * 1024
# More than one wave of reads and one sink use at a time; above it requests would queue inside the client,
# unseen.
MAX_REQUESTS = 64


class Body(Protocol):
    """The bytes of an answer, as they arrive."""

    async def read(self, size: int) -> bytes:
        """At most `size` bytes, at least one; none at the end.

        Raises:
            StoreError: Retryable where asking again may help: a cut, a reset, no progress.
        """

    def close(self) -> None:
        """Drop the rest."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer to a GET, its body still unread.

    Attributes:
        body: The bytes.
        content_range: The header as sent, or None.
        content_length: Bytes of the body as announced, or None.
        etag: The version that was sent, or None.
        version: The version id in a versioned bucket, or None.
    """

    body: Body
    content_range: str | None
    content_length: int | None
    etag: str | None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class _Extent:
    """What an answer holds: the bytes from `start` up to `end` of `total`."""

    start: int
    end: int
    total: int


class _NoSuffix(Exception):  # noqa: N818 - never leaves this module
    """The server did not answer the suffix request with a suffix."""


class RangedGetStore(ReadStore):
    """The reading half of a store that speaks HTTP.

    Args:
        retry: When a request is sent again.
        max_requests: Requests under way at one time; fewer for a while after the store asked to slow down.
    """

    def __init__(
        self, retry: RetryPolicy = DEFAULT_RETRY_POLICY, *, max_requests: int = MAX_REQUESTS
    ) -> None:
        """Retry as the policy says."""
        self._retry = retry
        self._limiter = RequestLimiter(max_requests)
        self._suffix_works = True

    @abstractmethod
    async def _get(self, key: str, byte_range: str, *, pin: ObjectInfo | None) -> Answer:
        """Send one GET with this Range header, and If-Match when there is a pin with an ETag."""

    @abstractmethod
    async def _head(self, key: str) -> ObjectInfo:
        """Send one HEAD."""

    async def head(self, key: str) -> ObjectInfo:
        """What the object is."""
        return await self._retrying(lambda: self._head(key))

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """The last `size` bytes in one suffix request; in two from servers that have no suffixes."""
        if size < 1:
            raise ValueError("a tail has at least 1 byte")
        if self._suffix_works:
            try:
                with located(self._where(key)):
                    return await _TailRead(self, key, size).run()
            except (_NoSuffix, RangeError):
                # An empty object has no last byte, so some servers refuse; others refuse a suffix that is
                # longer than the object. The size tells.
                log.debug("%s: asking for the size first", self.url_of(key))
        info = await self.head(key)
        offset = max(0, info.size - size)
        data = await self.read_range(key, offset, info.size, pin=info) if info.size else b""
        return ObjectTail(info, offset, data)

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        """The bytes from `start` up to `end` of the pinned version."""
        if not 0 <= start <= end <= pin.size:
            raise RangeError(f"{start}..{end} is not within {pin.size:,} bytes", where=self._where(key))
        if start == end:
            return b""
        with located(self._where(key)):
            return await _RangeRead(self, key, pin, start, end).run()

    def _where(self, key: str, offset: int | None = None) -> Where:
        return Where(key=self.url_of(key), offset=offset)

    async def _retrying(
        self, operation: Callable[[], Awaitable[Result]], *, resumes: Callable[[], bool] = lambda: False
    ) -> Result:
        """One operation with its retries, counted and logged; each attempt waits for its turn."""

        async def attempt() -> Result:
            async with self._limiter.turn():
                return await operation()

        def note(error: StoreError, delay: float) -> None:
            count_retry(resumed=resumes())
            log.debug("%s: again in %.2f s after: %s", self.name, delay, error.message)

        return await retrying(attempt, self._retry, on_retry=note)


class _RangeRead:
    """One pinned range, read in as many attempts as it takes; each goes on where the last one broke off."""

    def __init__(self, store: RangedGetStore, key: str, pin: ObjectInfo, start: int, end: int) -> None:
        self._store = store
        self._key = key
        self._pin = pin
        self._start = start
        self._data = bytearray(end - start)
        self._received = 0

    async def run(self) -> memoryview:
        """The bytes."""
        await self._store._retrying(self._attempt, resumes=lambda: self._received > 0)
        return memoryview(self._data).toreadonly()

    async def _attempt(self) -> None:
        start, end = self._start + self._received, self._start + len(self._data)
        try:
            answer = await self._store._get(self._key, f"bytes={start}-{end - 1}", pin=self._pin)
        except RangeError as error:
            raise self._changed("it is shorter now") from error
        try:
            extent = _extent_of(answer, self._pin)
            if extent.total != self._pin.size:
                raise self._changed(f"it has {extent.total:,} bytes instead of {self._pin.size:,}")
            if not _same_version(answer.etag, self._pin.etag):
                raise self._changed("its ETag is another")
            if not extent.start <= start < extent.end:
                raise StoreError(
                    f"the server sent bytes {extent.start}..{extent.end} when asked for {start}..{end}",
                    where=self._store._where(self._key, start),
                )
            await self._skip(answer.body, start - extent.start)
            await self.fill(answer.body)
        finally:
            answer.body.close()

    async def fill(self, body: Body) -> None:
        """Read what is missing; what arrived is kept even when the body breaks off.

        A server may also send less than was asked for: that is a body which ends early.
        """
        view = memoryview(self._data)
        while missing := len(self._data) - self._received:
            chunk = await body.read(min(missing, _CHUNK))
            if not chunk:
                raise self._cut()
            view[self._received : self._received + len(chunk)] = chunk
            self._received += len(chunk)

    async def _skip(self, body: Body, count: int) -> None:
        """Read over what was not asked for: a server that ignores ranges sends the whole object."""
        while count:
            chunk = await body.read(min(count, _CHUNK))
            if not chunk:
                raise self._cut()
            count -= len(chunk)

    def _cut(self) -> TransientError:
        return TransientError(
            "the body was cut short", where=self._store._where(self._key, self._start + self._received)
        )

    def _changed(self, how: str) -> ObjectChangedError:
        return ObjectChangedError(
            f"the object was replaced while it was read: {how}", where=self._store._where(self._key)
        )


class _TailRead:
    """The suffix request that opens an object; after its headers came it is a pinned range like any other."""

    def __init__(self, store: RangedGetStore, key: str, size: int) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._info: ObjectInfo | None = None
        self._rest: _RangeRead | None = None

    async def run(self) -> ObjectTail:
        """The tail."""
        read = await self._store._retrying(self._attempt, resumes=self._resumes)
        assert self._info is not None
        return ObjectTail(self._info, self._info.size - len(read), read)

    def _resumes(self) -> bool:
        return self._rest is not None and self._rest._received > 0

    async def _attempt(self) -> memoryview:
        if self._rest is not None:
            await self._rest._attempt()
            return memoryview(self._rest._data).toreadonly()
        answer = await self._store._get(self._key, f"bytes=-{self._size}", pin=None)
        try:
            extent = _extent_of(answer, None)
            offset = max(0, extent.total - self._size)
            if (extent.start, extent.end) != (offset, extent.total):
                # The whole of a large object, or other bytes than asked for: not worth reading on, and not
                # again.
                self._store._suffix_works = False
                raise _NoSuffix
            self._info = ObjectInfo(self._key, extent.total, answer.etag, answer.version)
            self._rest = _RangeRead(self._store, self._key, self._info, offset, extent.total)
            await self._rest.fill(answer.body)
            return memoryview(self._rest._data).toreadonly()
        finally:
            answer.body.close()


def _extent_of(answer: Answer, pin: ObjectInfo | None) -> _Extent:
    """What an answer says it holds; without a Content-Range it is the whole object, whatever was asked for."""
    if answer.content_range is not None:
        match = _CONTENT_RANGE.match(answer.content_range)
        first, last, total = (int(number) for number in match.groups()) if match else (0, 0, 0)
        if not first <= last < total:
            raise StoreError(f"the server sent a Content-Range that means nothing: {answer.content_range!r}")
        return _Extent(first, last + 1, total)
    if answer.content_length is not None:
        return _Extent(0, answer.content_length, answer.content_length)
    if pin is not None:
        return _Extent(0, pin.size, pin.size)
    raise UnsupportedError(
        "the server does not say how large the object is",
        hint="it needs range requests or a Content-Length; download the file first",
    )


def _same_version(etag: str | None, pinned: str | None) -> bool:
    """Whether two ETags, where both are known, name the same bytes."""
    return etag is None or pinned is None or bare_etag(etag) == bare_etag(pinned)
