"""Calls made ahead in threads, side by side, whose results are taken in the order in which the calls were given.

A call that has much to do may share it: threads that have no call of their own to make help it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any, Generic, TypeVar

from resilient_pq.format.side_by_side import SideBySide, one_by_one
from resilient_pq.io.cancellation import finish_first, finish_in_thread
from resilient_pq.lazy_dataclass import dataclass

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True, eq=False)
class _Unit(Generic[T]):
    """A call, then its result."""

    call: Callable[[SideBySide], list[T]] | None
    num_bytes: int
    begun: bool = False
    results: list[T] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def ended(self) -> bool:
        return bool(self.results) or self.error is not None


class _Pieces:
    """What a call has to do in pieces, and what came of them; any thread may take the next piece.

    They are begun in their order, so the one that failed first is the first of those that failed.
    """

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self._to_begin = len(calls)  # as many as there are, or as were begun when one failed
        self._begun = self._ended = 0
        self._results: list[Any] = [None] * len(calls)
        self._errors: dict[int, BaseException] = {}
        self._all_ended = threading.Event()

    @property
    def left(self) -> int:
        """Pieces that are to be begun."""
        return self._to_begin - self._begun

    def work_off(self) -> None:
        """Do piece after piece until none is left to begin."""
        while (at := self._next()) is not None:
            try:
                self._results[at] = self._calls[at]()
            except BaseException as error:
                self._errors[at] = error
            with self._lock:
                if at in self._errors:
                    self._to_begin = self._begun
                self._ended += 1
                if self._ended == self._to_begin:
                    self._all_ended.set()

    def _next(self) -> int | None:
        with self._lock:
            if not self.left:
                return None
            self._begun += 1
            return self._begun - 1

    def results(self) -> list[Any]:
        """The results of all, when those that others have begun have ended, too."""
        self._all_ended.wait()
        if self._errors:
            raise self._errors[min(self._errors)]
        return self._results


@dataclass(frozen=True, slots=True)
class _Sharing:
    """What has the threads of a pool help with what a call has to do."""

    pool: EncodePool[Any]
    loop: asyncio.AbstractEventLoop

    @property
    def num_threads(self) -> int:
        """More than one where threads have no calls of their own."""
        return self.pool.num_idle + 1

    def __call__(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        return self.pool.share(self.loop, calls)


class EncodePool(Generic[T]):
    """Makes calls in threads before their results are asked for, as far as memory allows.

    A thread goes on with the next call by itself, so that the event loop is no part of the way from one to the
    next. It does not wait where too much is finished: it ends, and another goes on when there is room, so that writers
    that wait for a store do not take threads away from the store.
    """

    def __init__(
        self, max_threads: int, max_waiting_bytes: int, size_of: Callable[[T], int], *, worth_taking: int = 0
    ) -> None:
        self.max_threads = max_threads
        # No call begins while finished ones that wait to be taken, or whose results are dealt with, have more.
        self._max_waiting_bytes = max_waiting_bytes
        self._size_of = size_of
        # Bytes for which whoever waits is woken while threads are at work, which costs them the interpreter's lock;
        # twice as many where they are free then.
        self._worth_taking = worth_taking
        self._lock = threading.Lock()
        self._to_call: deque[_Unit[T]] = deque()
        self._to_take: deque[_Unit[T]] = deque()
        self._in_pieces: list[_Pieces] = []  # what threads at work have shared, and not ended
        self._waiting_bytes = self._taken_bytes = self._left_bytes = 0
        self._freed_bytes = 0  # of calls whose results wait
        self._workers: set[asyncio.Task[None]] = set()
        self._running = 0  # threads at work, which are more than `max_threads` for a while after that was made less
        self._taker_waits = self._failed = False
        self._no_thread: BaseException | None = None
        self._changed = asyncio.Event()

    @property
    def left_bytes(self) -> int:
        """What the calls that have not ended were said to hold."""
        return self._left_bytes

    @property
    def num_idle(self) -> int:
        """Threads that there may be besides those at work, and that no call waits for."""
        return 0 if self._to_call else max(self.max_threads - self._running, 0)

    def add(self, *calls: tuple[Callable[[SideBySide], list[T]], int]) -> None:
        """Make calls as soon as threads are free, the longest first; so many bytes are free when each has ended."""
        units = [_Unit(*call) for call in calls]
        num_bytes = sum([unit.num_bytes for unit in units])
        # What takes a good part of the time of all, and is begun last, is what all other threads wait for at the end.
        long = num_bytes / (2 * self.max_threads) if self.max_threads > 1 else num_bytes
        with self._lock:
            self._to_call += sorted(units, key=lambda unit: -unit.num_bytes if unit.num_bytes > long else 0)
            self._to_take += units
            self._left_bytes += num_bytes
        self._start()

    async def take(self, most: int) -> list[T]:
        """The next results in order: of one call at least, and of those behind it that have ended already.

        Those of a call are not parted; there are no more than `most`, unless the first call alone gave more.

        Until the next `take`, they count as waiting. There must be calls whose results have not been taken.
        """
        with self._lock:
            self._waiting_bytes -= self._taken_bytes
            self._taken_bytes = 0
        self._start()
        while self._must_wait():
            if self._no_thread is not None:
                raise self._no_thread
            await self._changed.wait()
            self._changed.clear()
        results: list[T] = []
        while self._to_take and self._to_take[0].ended:
            if results and len(results) + len(self._to_take[0].results) > most:
                break
            if (error := self._to_take[0].error) is not None:
                if results:
                    break
                raise error
            with self._lock:
                unit = self._to_take.popleft()
                self._freed_bytes -= unit.num_bytes
            results += unit.results
        self._taken_bytes = sum(map(self._size_of, results))
        return results

    async def stop(self) -> None:
        """Make no more calls, and wait for the end of those that are being made, even when cancelled."""
        with self._lock:
            self._to_call.clear()
        await self.join()
        self._to_take.clear()

    async def join(self) -> None:
        """Wait until no thread is at work: to the end of all calls, unless too much waits to be taken."""
        while self._workers:  # those that end may have had others begin, to help them
            await finish_first(_all_of(self._workers))

    def _start(self) -> None:
        """Have as many threads at work as there may be, and are calls for."""
        with self._lock:
            calls = len(self._to_call) if self._has_room else self._next_is_missing
            wanted = calls + sum([pieces.left for pieces in self._in_pieces])
            # None where `max_threads` has become less: those at work go on, and count until they end.
            more = max(min(self.max_threads - self._running, wanted), 0)
            self._running += more
        for _ in range(more):
            worker = asyncio.create_task(self._have_work_done())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _have_work_done(self) -> None:
        try:
            await finish_in_thread(self._work, asyncio.get_running_loop())
        except BaseException as error:  # the calls' own are kept with them: no thread could be had
            self._no_thread = error
            self._changed.set()
            if not isinstance(error, Exception):
                raise  # a cancellation; anything else is for whoever asks for results, and for nobody where none lack

    @property
    def _has_room(self) -> bool:
        return self._waiting_bytes <= self._max_waiting_bytes

    @property
    def _next_is_missing(self) -> bool:
        """Whether all that has ended waits for a call that was not begun, as longer ones were."""
        return bool(self._to_call) and self._waiting_bytes > self._taken_bytes and not self._to_take[0].begun

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make calls, one after the other, while there are any and may be made; then help those of others."""
        side_by_side: SideBySide = _Sharing(self, loop)
        while (unit := self._next()) is not None:
            if isinstance(unit, _Pieces):
                unit.work_off()
                continue
            assert unit.call is not None
            try:
                results, error = unit.call(side_by_side), None
            except BaseException as raised:
                results, error = [], raised
            with self._lock:
                self._waiting_bytes += sum(map(self._size_of, results))
                self._left_bytes -= unit.num_bytes
                self._freed_bytes += unit.num_bytes
                self._failed = self._failed or error is not None  # which stays in front, once it is there
                # Last, as whoever takes results looks at them without the lock: what has ended is counted as that.
                unit.call, unit.results, unit.error = None, results, error
            del unit, results, error  # they are the taker's
            self._tell_taker(loop)
        self._tell_taker(loop)

    def _must_wait(self) -> bool:
        """Whether there is nothing to be taken yet; if so, the event tells when there is."""
        with self._lock:
            self._taker_waits = not self._may_take
            return self._taker_waits

    @property
    def _may_take(self) -> bool:
        results = self._waiting_bytes - self._taken_bytes
        enough = results >= self._worth_taking or self._freed_bytes >= 2 * self._worth_taking
        return self._to_take[0].ended and (not self._running or (self.max_threads > 1 and (enough or self._failed)))

    def _tell_taker(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if not (self._taker_waits and self._may_take):
                return
            self._taker_waits = False
        loop.call_soon_threadsafe(self._changed.set)

    def _next(self) -> _Unit[T] | _Pieces | None:
        with self._lock:
            if self._to_call and (self._has_room or self._next_is_missing):
                unit = self._to_call[0] if self._has_room else self._to_take[0]
                self._to_call.remove(unit)
                unit.begun = True
                return unit
            for pieces in self._in_pieces:
                if pieces.left:
                    return pieces
            self._running -= 1
            return None

    def share(self, loop: asyncio.AbstractEventLoop, calls: Sequence[Callable[[], R]], /) -> list[R]:
        """Make calls together with threads that have none of their own, now or before these are all begun."""
        if len(calls) == 1 or self.max_threads == 1:
            return one_by_one(calls)
        pieces = _Pieces(calls)
        with self._lock:
            self._in_pieces.append(pieces)
            idle = self._running < self.max_threads
        if idle:
            loop.call_soon_threadsafe(self._start)
        pieces.work_off()
        with self._lock:
            self._in_pieces.remove(pieces)
        return pieces.results()


async def _all_of(tasks: Iterable[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
