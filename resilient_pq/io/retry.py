"""When to try again, and for how long to wait: one layer, above every request and below every store's
methods.

`RetryPolicy.next_delay` is pure, its randomness is given to it; `retrying` is the small shell that sleeps.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from resilient_pq.errors import StoreError, ThrottledError

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long one operation is tried.

    Attributes:
        attempts: How many times in all; 1 means never again.
        base_delay: Seconds; the wait after the first failure is drawn from 0 up to this, and doubles with
            each.
        max_delay: Seconds; the longest wait that is drawn.
        deadline: Seconds since the operation began after which no new attempt begins. An attempt that still
            makes progress is not cut off.

    Raises:
        ValueError: No attempt at all, or a time below zero.
    """

    attempts: int = 6
    base_delay: float = 0.1
    max_delay: float = 5.0
    deadline: float = 60.0
    hedge_after: float | None = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.attempts < 1:
            raise ValueError("attempts is at least 1")
        if min(self.base_delay, self.max_delay, self.deadline, self.hedge_after or 0.0) < 0:
            raise ValueError("a delay or deadline is not below 0 seconds")

    def next_delay(
        self, error: BaseException, *, failures: int, elapsed: float, rng: Callable[[], float]
    ) -> float | None:
        """Seconds to wait before the next attempt, or None when the error is final.

        Args:
            error: What the last attempt raised; only a retryable `StoreError` is tried again.
            failures: Attempts that failed so far, this one counted.
            elapsed: Seconds since the operation began.
            rng: Draws from 0 up to 1: the jitter is full, so that clients which failed together do not return
                together.
        """
        if not isinstance(error, StoreError) or not error.retryable or failures >= self.attempts:
            return None
        # Beyond 2**60 the cap has long been reached, and a float would overflow.
        delay = rng() * min(self.max_delay, self.base_delay * 2.0 ** min(failures - 1, 60))
        if isinstance(error, ThrottledError) and error.retry_after is not None:
            delay = max(delay, error.retry_after)
        return delay if elapsed + delay <= self.deadline else None


NO_RETRIES = RetryPolicy(attempts=1, hedge_after=None)
DEFAULT_RETRY_POLICY = RetryPolicy()


async def retrying(
    operation: Callable[[], Awaitable[Result]],
    policy: RetryPolicy = DEFAULT_RETRY_POLICY,
    *,
    on_retry: Callable[[StoreError, float], None] | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
    rng: Callable[[], float] = random.random,
) -> Result:
    """The result of the first attempt that succeeds.

    Args:
        operation: Begins one attempt; called again for each.
        policy: When to stop.
        on_retry: Told of every failure that will be tried again, and the wait in seconds.
        sleep: Waits; injected by tests.
        clock: Seconds, only ever rising; injected by tests.
        rng: Draws from 0 up to 1; injected by tests.

    Raises:
        StoreError: What the last attempt raised, with a note of how many there were.
    """
    begun = clock()
    failures = 0
    while True:
        try:
            return await operation()
        except StoreError as error:
            failures += 1
            elapsed = clock() - begun
            delay = policy.next_delay(error, failures=failures, elapsed=elapsed, rng=rng)
            if delay is None:
                if failures > 1:
                    error.add_note(f"gave up after {failures} attempts in {elapsed:.1f} s")
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
