"""The answer to a range request: which bytes of which version of an object it holds."""

from __future__ import annotations

import re
from typing import Protocol

from resilient_pq.errors import StoreError, UnsupportedError
from resilient_pq.io.stored_object import bare_etag
from resilient_pq.lazy_dataclass import dataclass

_CONTENT_RANGE = re.compile(r"\s*bytes\s+(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)\s*\Z", re.ASCII | re.IGNORECASE)


class Body(Protocol):
    """The bytes of an answer, as they arrive."""

    async def read(self, size: int) -> bytes:
        """At most `size` bytes, at least one; none at the end."""

    def close(self) -> None:
        """Drop the rest."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer to a GET, its body still unread."""

    body: Body
    status: int  # 206 where the server says that it is a part, 200 otherwise
    content_range: str | None  # The header as sent, or None
    content_length: int | None  # Bytes of the body as announced, or None
    etag: str | None  # The version that was sent, or None
    version: str | None = None  # The version id in a versioned bucket, or None


@dataclass(frozen=True, slots=True)
class SentRange:
    """What an answer holds: the bytes from `start` up to `end` of `total`."""

    start: int
    end: int
    total: int


class AskTheSize(Exception):  # noqa: N818 - it is no error, and never leaves `RangedGetStore`
    """A request for a tail was not answered with one."""

    def __init__(self, *, for_good: bool) -> None:
        super().__init__()
        self.for_good = for_good


def sent_range(answer: Answer, size: int | None, asked: int) -> SentRange:
    """The bytes that an answer to a request for `asked` bytes holds, of an object of `size` bytes if that is known."""
    if answer.content_range is not None:
        return _named_range(answer.content_range, answer.content_length, size)
    length = answer.content_length
    if answer.status == 206 or (length == asked and size != asked):
        # A part that may be any. Or else the whole of an object that is just as large as the tail that was asked
        # for; its size tells.
        if size is None:
            raise AskTheSize(for_good=answer.status == 206)
        raise StoreError("the server sent a part of the object and does not say which")
    whole = size if length is None else length
    if whole is None:
        raise UnsupportedError(
            "the server does not say how large the object is",
            hint="it needs range requests or a Content-Length; download the file first",
        )
    return SentRange(0, whole, whole)


def _named_range(header: str, length: int | None, size: int | None) -> SentRange:
    """The bytes that a Content-Range header names, beside a body of `length` bytes."""
    match = _CONTENT_RANGE.match(header)
    if match is None:
        raise _meaningless(header)
    if match[3] == "*" and size is None:
        raise AskTheSize(for_good=True)
    start, end, total = int(match[1]), int(match[2]) + 1, size if match[3] == "*" else int(match[3])
    if total is None or not start < end <= total:
        raise _meaningless(header)
    if length not in (None, end - start):
        raise StoreError(f"the server sent {length:,} bytes and called them {header!r}")
    return SentRange(start, end, total)


def _meaningless(header: str) -> StoreError:
    return StoreError(f"the server sent a Content-Range that means nothing: {header!r}")


def is_same_version(etag: str | None, pinned: str | None) -> bool:
    """Whether two ETags, where both are known, name the same bytes."""
    return etag is None or pinned is None or bare_etag(etag) == bare_etag(pinned)
