"""How many requests a store is sent at one time: fewer when it asks to slow down, slowly more when it does not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from resilient_pq.errors import ThrottledError


class AdaptiveLimit:
    """A number of requests under way: additive increase, multiplicative decrease, as TCP does it."""

    # It grows by 1 for as many successes as the limit is, and is halved when the store throttles; of the requests that
    # were under way together only the first that is throttled counts.

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"at least 1 request is under way, not {most}")
        self._most = float(most)
        self._limit = self._most
        self._round = 0

    @property
    def value(self) -> int:
        """Requests that may be under way now."""
        return int(self._limit)

    @property
    def is_reduced(self) -> bool:
        """Whether the store asked to slow down, and has not had enough successes since."""
        return self._limit < self._most

    @property
    def round(self) -> int:
        """How often it was halved; a request remembers the round that it began in."""
        return self._round

    def succeed(self) -> None:
        """Note that a request went well."""
        self._limit = min(self._most, self._limit + 1 / self._limit)

    def throttle(self, begun_in: int) -> None:
        """Note that a request was throttled which began in this round."""
        if begun_in == self._round:
            self._limit = max(1.0, self._limit / 2)
            self._round += 1


class RequestLimiter:
    """Lets requests begin, in the order they came, while no more than the limit are under way."""

    def __init__(self, most: int) -> None:
        self._limit = AdaptiveLimit(most)
        self._under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """Requests that may be under way now."""
        return self._limit.value

    @property
    def has_room(self) -> bool:
        """Whether one more request could begin at once, and the store is not being spared."""
        return not (self._waiting or self._limit.is_reduced) and self._under_way < self._limit.value

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until one more request may be under way; how the block ends is how the request went."""
        # Turns do not nest: with a limit of 1 the inner one would wait for the outer.
        await self._begin()
        begun_in = self._limit.round
        try:
            yield
        except ThrottledError:
            self._limit.throttle(begun_in)
            raise
        else:
            self._limit.succeed()
        finally:
            self._end()

    async def _begin(self) -> None:
        if not self._waiting and self._under_way < self._limit.value:
            self._under_way += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(turn)
            else:
                self._end()  # the turn came, and nobody is there to take it
            raise

    def _end(self) -> None:
        self._under_way -= 1
        while self._under_way < self._limit.value:
            turn = next((turn for turn in self._waiting if not turn.done()), None)
            if turn is None:
                return
            self._waiting.remove(turn)
            self._under_way += 1
            turn.set_result(None)
