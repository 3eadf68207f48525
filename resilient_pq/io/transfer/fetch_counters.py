"""What reading cost: counters that follow a read down into the store without being handed along."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from resilient_pq.lazy_dataclass import dataclass


@dataclass(slots=True)
class FetchCounters:
    """What a reader asked of its store so far.

    Attributes:
        requests: Reads asked of the store, and questions what an object is; those sent again are counted in
            `retries`.
        bytes: Bytes that came back.
        useful_bytes: Bytes of those that were wanted; the rest are the gaps read over.
        retries: Requests sent again after a failure.
        resumed: Those of the retries that went on in the middle of a body that had broken off.
        hedged: Second requests, sent beside one whose first byte was longer in coming than is usual.
    """

    requests: int = 0
    bytes: int = 0
    useful_bytes: int = 0
    retries: int = 0
    resumed: int = 0
    hedged: int = 0


_current: ContextVar[FetchCounters | None] = ContextVar("resilient_pq_fetch_counters", default=None)


@contextmanager
def counting(counters: FetchCounters) -> Iterator[FetchCounters]:
    """Make these the counters that stores add to, within the block."""
    token = _current.set(counters)
    try:
        yield counters
    finally:
        _current.reset(token)


def add_counts(*, requests: int = 0, retries: int = 0, resumed: int = 0, hedged: int = 0) -> None:
    """Add to the counters of the read that is under way; `requests` are those beyond the one that a read is."""
    counters = _current.get()
    if counters is not None:
        counters.requests += requests
        counters.retries += retries
        counters.resumed += resumed
        counters.hedged += hedged
