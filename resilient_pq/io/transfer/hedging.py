"""A second request beside one that has no first byte for longer than is usual: whichever answers first is taken."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from resilient_pq.errors import StoreError
from resilient_pq.io.cancellation import finish_first
from resilient_pq.io.transfer.fetch_counters import add_counts
from resilient_pq.io.transfer.request_limiter import RequestLimiter
from resilient_pq.io.transfer.request_log import attempt
from resilient_pq.units import MiB

log = logging.getLogger("resilient_pq.io")

Result = TypeVar("Result")

#: Requests for more bytes are not hedged. It is the size of a block of merged ranges: nearly every request is smaller,
#: and of the one that loses hardly more than what the sockets hold was sent when it is given up.
MOST_BYTES: Final = 8 * MiB
#: Hedges under way at one time, per store: half as many as a wave has requests (`FetchOptions.max_requests`). Where
#: more of them stall, it is the store that is slow or gone, and yet more requests would only add to that.
MOST_HEDGES: Final = 8
_REMEMBERED: Final = 200  # First-byte times that are remembered; the 95th percentile rests on ten of them then
#: Parts of the time that a first byte is waited for: an event loop that stood still has used up one of them.
_STEPS: Final = 8
_ENOUGH: Final = 20  # With fewer than these nothing is known of the slowest twentieth


class FirstByteTimes:
    """How long the first byte of an answer usually takes: the 95th percentile of the last 200."""

    def __init__(self, floor: float) -> None:
        self._floor = floor
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

    def record(self, seconds: float) -> None:
        """Note one; the oldest is forgotten."""
        if len(self._latest) == _REMEMBERED:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]
        self._latest.append(seconds)
        insort(self._sorted, seconds)

    @property
    def patience(self) -> float:
        """Seconds to wait for a first byte before another request is sent."""
        count = len(self._sorted)
        if count < _ENOUGH:
            return self._floor
        return max(self._floor, self._sorted[-(-count * 95 // 100) - 1])


class Hedging(Generic[Result]):
    """Sends requests, and for one that stalls a second."""

    def __init__(
        self, floor: float | None, limiter: Callable[[], RequestLimiter], discard: Callable[[Result], None]
    ) -> None:
        self._times = None if floor is None else FirstByteTimes(floor)
        self._limiter = limiter
        self._discard = discard
        self._under_way = 0

    async def answer(self, request: Callable[[], Coroutine[Any, Any, Result]], *, size: int, name: str) -> Result:
        """The answer that comes first, of one request or of two."""
        # An error that asking again may mend is no answer while the other request is still under way; any other is.
        if self._times is None or size > MOST_BYTES:
            return await request()
        times, loop = self._times, asyncio.get_running_loop()

        async def timed() -> Result:
            begun = loop.time()
            answer = await request()
            times.record(loop.time() - begun)
            return answer

        async def second() -> Result:
            log.debug("%s: no first byte in %.2f s; asking once more", name, times.patience)
            attempt.set("hedge")
            async with self._limiter().turn():
                return await timed()

        race = _Race(timed, lambda: self._hedge(second), self._discard)
        alarm = _Alarm(times.patience, race.stalls)
        try:
            return await race.run()
        finally:
            alarm.cancel()

    def _hedge(self, second: Callable[[], Coroutine[Any, Any, Result]]) -> asyncio.Task[Result] | None:
        if self._under_way >= MOST_HEDGES or not self._limiter().has_room:
            return None

        def ended(_: asyncio.Task[Result]) -> None:
            self._under_way -= 1

        add_counts(hedged=1)
        self._under_way += 1
        task = asyncio.create_task(second())
        task.add_done_callback(ended)  # what is cancelled before its first step runs no `finally`
        return task


class _Alarm:
    """Calls after some seconds of a running event loop: while it stands still, no answer can be seen either."""

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._call = call
        self._step = seconds / _STEPS
        self._left = _STEPS
        self._timer = self._loop.call_later(self._step, self._tick)

    def _tick(self) -> None:
        self._left -= 1
        if self._left:
            self._timer = self._loop.call_later(self._step, self._tick)
        else:
            self._call()

    def cancel(self) -> None:
        self._timer.cancel()


class _Race(Generic[Result]):
    """One request, in the task of the caller, as nearly always it is alone, and perhaps a second one beside it."""

    def __init__(
        self,
        first: Callable[[], Coroutine[Any, Any, Result]],
        hedge: Callable[[], asyncio.Task[Result] | None],
        discard: Callable[[Result], None],
    ) -> None:
        self._first = first
        self._hedge = hedge
        self._discard = discard
        self._second: asyncio.Task[Result] | None = None
        self._in_first = asyncio.timeout(None)  # expires when the second has answered
        self._listening = True

    def stalls(self) -> None:
        """Send the second, where one may be sent."""
        self._second = self._hedge()
        if self._second is not None:
            self._second.add_done_callback(self._answered)

    def _answered(self, second: asyncio.Task[Result]) -> None:
        if self._listening and not (second.cancelled() or _may_be_mended(second.exception())):
            self._in_first.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> Result:
        """What answers first."""
        try:
            async with self._in_first:
                answer = await self._first()
        except BaseException as error:
            second = self._stop_listening()
            if second is None:
                raise
            if _may_be_mended(error):
                await self._ended(second)
            elif not (isinstance(error, TimeoutError) and self._in_first.expired()):
                await self._drop(second)
                raise
            if _may_be_mended(second.exception()):
                raise
            return second.result()
        if (second := self._stop_listening()) is not None:
            await self._drop(second, instead=answer)
        return answer

    def _stop_listening(self) -> asyncio.Task[Result] | None:
        self._listening = False
        return self._second

    async def _ended(self, second: asyncio.Task[Result]) -> None:
        try:
            await asyncio.wait([second])
        except BaseException:
            await self._drop(second)
            raise

    async def _drop(self, second: asyncio.Task[Result], *, instead: Result | None = None) -> None:
        """End the second request, and let go of its answer if it has one; of both, if the caller is cancelled."""

        async def drop() -> None:
            second.cancel()
            await asyncio.wait([second])
            if not second.cancelled() and second.exception() is None:
                self._discard(second.result())

        try:
            await finish_first(drop())
        except asyncio.CancelledError:
            if instead is not None:
                self._discard(instead)
            raise


def _may_be_mended(error: BaseException | None) -> bool:
    return isinstance(error, StoreError) and error.retryable
