"""When to try again, and for how long to wait: one layer, above every request and below every store's methods."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from resilient_pq.errors import StoreError, ThrottledError
from resilient_pq.lazy_dataclass import dataclass

Result = TypeVar("Result")


#: Times that bytes are read again which do not fit their checksum, before they are taken to be stored so.
MOST_REREADS: Final = 5


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long one operation is tried while the store does not answer as it should.

    An attempt under way is not cut off: it ends when the store refuses it, when nothing answers within the 5 s that
    connecting may take, or when nothing moved for 15 s. So an operation may last so much longer than `seconds`.

    Attributes:
        seconds: How long an operation is tried again, from the beginning of its first attempt, or from the last bytes
            that came of it. Waiting for other requests to end does not count. 0 means never again.
        base_delay: Seconds; the wait after the first failure is drawn from 0 up to this, and doubles with each.
        max_delay: Seconds; the longest wait that is drawn. A store that asks for more (Retry-After) is waited for.
        attempts: How many times in all, if `seconds` allows so many; None for no such limit.
        hedge_after: Seconds that the first byte of an answer is waited for at least before a second request for it is
            sent; None never to send one.

    Raises:
        ValueError: No attempt at all, or a time below zero.
    """

    seconds: float = 120.0
    base_delay: float = 0.1
    max_delay: float = 5.0
    attempts: int | None = None
    hedge_after: float | None = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.attempts is not None and self.attempts < 1:
            raise ValueError("attempts is at least 1")
        if not min(self.seconds, self.base_delay, self.max_delay, self.hedge_after or 0.0) >= 0:
            raise ValueError("a time or delay is not below 0 seconds")

    @property
    def rereads(self) -> int:
        """How many times bytes that came damaged are asked for again: as many as there are attempts, but not many."""
        return MOST_REREADS if self.attempts is None else min(MOST_REREADS, max(1, self.attempts - 1))

    def next_delay(
        self,
        error: BaseException,
        *,
        failures: int,
        elapsed: float,
        rng: Callable[[], float],
        attempts: int | None = None,
    ) -> float | None:
        """Seconds to wait before the next attempt, or None when the error is final.

        The last attempt begins when the time is over, not a drawn wait before it: an outage that is a little shorter
        is survived.

        Args:
            error: What the last attempt raised; only a retryable `StoreError` is tried again.
            failures: Attempts that failed since any made progress, this one counted.
            elapsed: Seconds since the operation began, or made progress.
            rng: Draws from 0 up to 1: the jitter is full, so that clients which failed together do not return
                together.
            attempts: All attempts that failed, where that is more than `failures`.
        """
        if not isinstance(error, StoreError) or not error.retryable or elapsed >= self.seconds:
            return None
        if self.attempts is not None and (attempts or failures) >= self.attempts:
            return None
        # Beyond 2**60 the cap has long been reached, and a float would overflow.
        delay = rng() * min(self.max_delay, self.base_delay * 2.0 ** min(failures - 1, 60))
        if isinstance(error, ThrottledError) and error.retry_after is not None:
            if elapsed + error.retry_after > self.seconds:
                return None
            delay = max(delay, error.retry_after)
        return min(delay, self.seconds - elapsed)


#: Of what writes: a writer that gives up has lost rows of which there may be no other copy.
WRITING: Final = RetryPolicy()
READING: Final = RetryPolicy(seconds=30.0)  # Of what only reads: somebody waits for it, and can ask again
NO_RETRIES: Final = RetryPolicy(seconds=0.0, hedge_after=None)


async def retrying(
    operation: Callable[[], Awaitable[Result]],
    policy: RetryPolicy = WRITING,
    *,
    on_retry: Callable[[StoreError, float], None] | None = None,
    progress: Callable[[], int] = lambda: 0,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
    rng: Callable[[], float] = random.random,
) -> Result:
    """The result of the first attempt that succeeds."""
    begun = since = clock()
    attempts = failures = 0
    achieved = progress()
    while True:
        try:
            return await operation()
        except StoreError as error:
            now = clock()
            attempts, failures = attempts + 1, failures + 1
            if progress() > achieved:
                achieved, since, failures = progress(), now, 1
            delay = policy.next_delay(error, failures=failures, elapsed=now - since, rng=rng, attempts=attempts)
            if delay is None:
                if attempts > 1:
                    error.add_note(f"gave up after {attempts} attempts in {now - begun:.1f} s")
                raise
            if on_retry is not None:
                on_retry(error, delay)
        await sleep(delay)


def retry_after(header: str | None) -> float | None:
    """Seconds of a Retry-After header; its other form, a date, is not used by any store known."""
    try:
        seconds = float(header) if header else -1.0
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
