"""Reading by HTTP range requests, from servers that follow the standard and from those that do not.

One place for what S3 and plain HTTP have in common: the suffix request that opens an object, pinning, the
checks of every answer, the body that is resumed where it broke off, and the retries around it all. A store
supplies `_get`, one request and no more. Not all servers keep to the standard, and each is served right or
refused, never believed:

==================================================  ================================================================
what a server does                                  what comes of it
==================================================  ================================================================
answers 200 and says which range it is              believed as 206 is
answers 200 with the whole object                   what was asked for is taken out of it; refused where more than
                                                    64 MiB would be read over
sends other bytes than the suffix, or the whole     its size is asked for instead (HEAD), now and for every later
object, or a part and not which                     object of this store
refuses a suffix longer than the object (416)       the object is asked for from its first byte
refuses every range of an empty object (416)        its size is asked for
ignores If-Match                                    the ETag of the answer is compared
names no ETag with a range, though it has one       what the object is now is asked for afterwards (HEAD)
says that the object has another size               the object was replaced
says other lengths of body and range                refused
==================================================  ================================================================
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.errors import (
    ObjectChangedError,
    RangeError,
    StoreError,
    TransientError,
    UnsupportedError,
    Where,
    located,
)
from resilient_pq.io.protocols import ReadStore
from resilient_pq.io.stored_object import ObjectInfo, ObjectTail
from resilient_pq.io.transfer.attempts import Attempts
from resilient_pq.io.transfer.fetch_counters import add_counts
from resilient_pq.io.transfer.hedging import Hedging
from resilient_pq.io.transfer.ranged_answer import Answer, AskTheSize, Body, is_same_version, sent_range
from resilient_pq.io.transfer.request_limiter import RequestLimiter
from resilient_pq.io.transfer.request_log import RequestLine
from resilient_pq.io.transfer.retry import READING, RetryPolicy
from resilient_pq.units import KiB, MiB

log = logging.getLogger("resilient_pq.io")


Result = TypeVar("Result")

# Large enough to be cheap, small enough that what is skipped or comes in excess stays small.
_CHUNK = 256 * KiB

# What is read over of an answer that begins before the range asked for: as much as a wave of reads holds at most.
_MOST_READ_OVER = 64 * MiB

# More than one wave of reads and one sink use at a time; above it requests would queue inside the client,
# unseen.
MAX_REQUESTS = 64


class _LoggedBody:
    """The body of an answer, of which the first bytes are read before anybody asks, and which is in the log."""

    def __init__(self, answer: Answer, line: RequestLine) -> None:
        self._rest = answer.body
        self._status = answer.status
        self._line = line
        self._first = b""
        self._received = 0
        self._error: BaseException | None = None

    async def begin(self) -> None:
        """Wait for the first bytes."""
        try:
            self._first = await self._next(_CHUNK)
        except BaseException:
            self.close()
            raise

    async def read(self, size: int) -> bytes:
        """The next bytes, none at the end."""
        if not self._first:
            return await self._next(size)
        data, self._first = self._first[:size], self._first[size:]
        return data

    async def _next(self, size: int) -> bytes:
        try:
            data = await self._rest.read(size)
        except BaseException as error:
            self._error = error
            raise
        self._received += len(data)
        return data

    def close(self) -> None:
        """Drop the rest."""
        self._rest.close()
        self._line.end(self._status, self._received, self._error)


class RangedGetStore(ReadStore):
    """The reading half of a store that speaks HTTP."""

    def __init__(self, retry: RetryPolicy = READING, *, limiter: Callable[[], RequestLimiter] | None = None) -> None:
        """Retry as the policy says; stores that share connections share a limiter."""
        own = RequestLimiter(MAX_REQUESTS)
        limiter = limiter or (lambda: own)
        self._attempts = Attempts(retry, limiter, lambda: self.name)
        self._hedging = Hedging[Answer](retry.hedge_after, limiter, lambda answer: answer.body.close())
        self._suffix_works = True

    @property
    def rereads(self) -> int:
        """Those of the policy."""
        return self._attempts.policy.rereads

    @abstractmethod
    async def _get(self, key: str, byte_range: str, *, pin: ObjectInfo | None) -> Answer:
        """Send one GET with this Range header, and If-Match when there is a pin with an ETag."""

    @abstractmethod
    async def _head(self, key: str) -> ObjectInfo:
        """Send one HEAD."""

    async def head(self, key: str) -> ObjectInfo:
        """What the object is."""
        return await self._attempts.of(lambda: self._head(key))

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """The last `size` bytes in one suffix request; in two or three from servers that have no suffixes."""
        if size < 1:
            raise ValueError("a tail has at least 1 byte")
        if self._suffix_works:
            # Some servers refuse a suffix that is longer than the object. None refuses a range that only ends
            # behind it: that is all of the object then. Of an empty one there is no range at all.
            for asked in (f"bytes=-{size}", f"bytes=0-{size - 1}"):
                try:
                    with located(self._where(key)):
                        return await self._read_suffix(key, size, asked)
                except AskTheSize as why:
                    self._suffix_works = self._suffix_works and not why.for_good
                    add_counts(requests=1)
                    break
                except RangeError:
                    add_counts(requests=1)
            log.debug("%s: no tail of %d bytes; asking for the size first", self.url_of(key), size)
        info = await self.head(key)
        offset = max(0, info.size - size)
        if not info.size:
            return ObjectTail(info, 0, b"")
        add_counts(requests=1)
        return ObjectTail(info, offset, await self.read_range(key, offset, info.size, pin=info))

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        """The bytes from `start` up to `end` of the pinned version."""
        if not 0 <= start <= end <= pin.size:
            raise RangeError(f"{start}..{end} is not within {pin.size:,} bytes", where=self._where(key))
        if start == end:
            return b""
        with located(self._where(key)):
            return await _RangeRead(self, key, pin, start, end).run()

    async def _read_suffix(self, key: str, size: int, asked: str) -> ObjectTail:
        """The tail by the request that opens an object; after its headers came it is a pinned range like any other."""
        rest: _RangeRead | None = None

        async def attempt() -> None:
            nonlocal rest
            if rest is not None:
                await rest.attempt()
                return
            answer = await self._begin_get(key, asked, size, pin=None)
            try:
                sent = sent_range(answer, None, size)
                offset = max(0, sent.total - size)
                if (sent.start, sent.end) != (offset, sent.total):
                    # The whole of a large object, or other bytes than asked for: not worth reading on, and not again.
                    raise AskTheSize(for_good=True)
                info = ObjectInfo(key, sent.total, answer.etag, answer.version)
                rest = _RangeRead(self, key, info, offset, sent.total)
                await rest.fill(answer.body)
            finally:
                answer.body.close()

        await self._attempts.of(attempt, received=lambda: 0 if rest is None else rest.received)
        assert rest is not None
        return ObjectTail(rest.pin, rest.start, await rest.confirmed_bytes())

    def _where(self, key: str, offset: int | None = None) -> Where:
        return Where(key=self.url_of(key), offset=offset)

    async def _begin_get(self, key: str, byte_range: str, size: int, *, pin: ObjectInfo | None) -> Answer:
        """One GET up to its first byte; two, pinned alike, where that does not come."""

        async def send() -> Answer:
            with RequestLine("GET", self.url_of(key), byte_range) as line:
                answer = await self._get(key, byte_range, pin=pin)
            body = _LoggedBody(answer, line)
            await body.begin()
            return replace(answer, body=body)

        return await self._hedging.answer(send, size=size, name=self.url_of(key))


class _RangeRead:
    """One pinned range, read in as many attempts as it takes; each goes on where the last one broke off."""

    def __init__(self, store: RangedGetStore, key: str, pin: ObjectInfo, start: int, end: int) -> None:
        self._store = store
        self._key = key
        self.pin = pin
        self.start = start
        self._data: NDArray[np.uint8] = memory_pool.empty((end - start,), np.uint8)
        self.received = 0
        self._unnamed = False  # an answer did not say which version it is of

    async def run(self) -> memoryview:
        """The bytes."""
        await self._store._attempts.of(self.attempt, received=lambda: self.received)
        return await self.confirmed_bytes()

    async def confirmed_bytes(self) -> memoryview:
        """All bytes, once it is known that they are of the pinned version."""
        if self._unnamed:
            add_counts(requests=1)
            info = await self._store.head(self._key)
            if info.size != self.pin.size or info.etag is None or not is_same_version(info.etag, self.pin.etag):
                raise self._changed_error("its ETag is another, or it has none any more")
        return self._data.data.toreadonly()

    async def attempt(self) -> None:
        """Go on from what has arrived."""
        start, end = self.start + self.received, self.start + len(self._data)
        try:
            answer = await self._store._begin_get(self._key, f"bytes={start}-{end - 1}", end - start, pin=self.pin)
        except RangeError as error:
            raise self._changed_error("it is shorter now") from error
        try:
            sent = sent_range(answer, self.pin.size, end - start)
            if sent.total != self.pin.size:
                raise self._changed_error(f"it has {sent.total:,} bytes instead of {self.pin.size:,}")
            if not is_same_version(answer.etag, self.pin.etag):
                raise self._changed_error("its ETag is another")
            self._unnamed |= answer.etag is None and self.pin.etag is not None
            if not sent.start <= start < sent.end:
                raise StoreError(
                    f"the server sent bytes {sent.start}..{sent.end} when asked for {start}..{end}",
                    where=self._store._where(self._key, start),
                )
            if start - sent.start > _MOST_READ_OVER:
                raise UnsupportedError(
                    f"the server ignores ranges: it sends all {sent.total:,} bytes whatever is asked for",
                    where=self._store._where(self._key),
                    hint="download the file first; an fsspec URL that begins with simplecache:: does so",
                )
            await self._skip(answer.body, start - sent.start)
            await self.fill(answer.body)
        finally:
            answer.body.close()

    async def fill(self, body: Body) -> None:
        """Read what is missing; what arrived is kept even when the body breaks off."""
        # A server may also send less than was asked for: that is a body which ends early.
        view = self._data.data
        while missing := len(self._data) - self.received:
            chunk = await body.read(min(missing, _CHUNK))
            if not chunk:
                raise self._cut_error()
            view[self.received : self.received + len(chunk)] = chunk
            self.received += len(chunk)

    async def _skip(self, body: Body, count: int) -> None:
        """Read over what was not asked for: a server that ignores ranges sends the whole object."""
        while count:
            chunk = await body.read(min(count, _CHUNK))
            if not chunk:
                raise self._cut_error()
            count -= len(chunk)

    def _cut_error(self) -> TransientError:
        return TransientError("the body was cut short", where=self._store._where(self._key, self.start + self.received))

    def _changed_error(self, how: str) -> ObjectChangedError:
        return ObjectChangedError(
            f"the object was replaced while it was read: {how}", where=self._store._where(self._key)
        )
