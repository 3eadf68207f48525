"""The attempts of a store's operations: each waits for its turn, is counted and logged; outages are logged once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from resilient_pq.errors import StoreError
from resilient_pq.io.location import let_go, scrubbed
from resilient_pq.io.transfer.fetch_counters import add_counts
from resilient_pq.io.transfer.request_limiter import RequestLimiter
from resilient_pq.io.transfer.request_log import attempt
from resilient_pq.io.transfer.retry import RetryPolicy, retrying

log = logging.getLogger("resilient_pq.io")

Result = TypeVar("Result")

_WORTH_TELLING: Final = 1.0  # A store that fails for fewer seconds is not worth a line: single requests fail every day


class Outage:
    """Detects that every request to a store fails; logs the begin and the end of such an outage once."""

    def __init__(self, name: Callable[[], str], seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self._since: float | None = None
        self._told = False

    def failed(self, error: StoreError, *, begun: float, now: float) -> None:
        """Note an attempt that is tried again, which began at that time."""
        if self._since is None:
            self._since = begun
        if not self._told and now - self._since >= _WORTH_TELLING:
            self._told = True
            log.warning(
                "%s: no request has succeeded for %.0f s; trying again, each for up to %g s: %s",
                self._name(),
                now - self._since,
                self._seconds,
                scrubbed(error.message),
            )

    def answered(self, now: float) -> None:
        """Note an answer, whichever it is."""
        if self._since is None:
            return
        since, self._since = self._since, None
        if self._told:
            self._told = False
            log.warning("%s: answers again, after %.0f s", self._name(), now - since)


class Attempts:
    """Operations with their retries, under one policy and one limit of requests under way."""

    def __init__(
        self,
        policy: RetryPolicy,
        limiter: Callable[[], RequestLimiter],
        name: Callable[[], str],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.policy = policy
        self._limiter = limiter
        self._name = name
        self._clock = clock
        self._sleep = sleep
        self._outage = Outage(name, policy.seconds)

    async def of(
        self, operation: Callable[[], Awaitable[Result]], *, received: Callable[[], int] = lambda: 0
    ) -> Result:
        """One operation."""
        failures, waited = 0, 0.0

        async def send() -> Result:
            nonlocal waited
            asked = self._clock()
            async with self._limiter().turn():
                begun = self._clock()
                waited += begun - asked
                try:
                    result = await operation()
                except StoreError as error:
                    if error.retryable:
                        self._outage.failed(error, begun=begun, now=self._clock())
                    else:
                        self._outage.answered(self._clock())
                    raise
                self._outage.answered(self._clock())
                return result

        def note(error: StoreError, delay: float) -> None:
            nonlocal failures
            failures += 1
            attempt.set(f"attempt {1 + failures}")
            add_counts(retries=1, resumed=received() > 0)
            log.debug("%s: again in %.2f s after: %s", self._name(), delay, scrubbed(error.message))

        token = attempt.set("attempt 1")
        try:
            return await retrying(
                send,
                self.policy,
                on_retry=note,
                progress=received,
                sleep=self._sleep,
                clock=lambda: self._clock() - waited,
            )
        except StoreError as error:
            let_go(error)
            raise
        finally:
            attempt.reset(token)
