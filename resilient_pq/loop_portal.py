"""The event loop of `resilient_pq.sync`: one for the process, in a thread of its own.

So blocking calls work in a script, in a notebook with a running loop, and from several threads at once.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import concurrent.futures
import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Protocol

from resilient_pq.errors import UnsupportedError

#: Threads of the loop, at most; they are started on demand.
_MAX_THREADS: Final = 128


class Timer(Protocol):
    """Something that is to be done at a time."""

    when: float  # by the clock of event loops; infinity where nothing is

    def ring(self) -> None:
        """Do it."""


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tell of an error that nobody handles, unless two close one generator, as when a whole stream became garbage."""
    error = context.get("exception")
    if not (isinstance(error, RuntimeError) and "asynchronous generator is already running" in str(error)):
        loop.default_exception_handler(context)


class _Threads(ThreadPoolExecutor):
    """When no more can be started, as from Python 3.12 on when the interpreter ends, those that are there do it all."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped."""
    loop.run_forever()
    loop.close()


class Portal:
    """One event loop in a thread, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # finalizers may run amid anything
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._inherited: list[object] = []  # by forked processes, which must not let go of it
        self._leaving = False
        self._left: deque[Coroutine[Any, Any, Any]] = deque()  # by `end_later`, not begun yet
        self._ending: set[asyncio.Task[Any]] = set()  # tasks need a reference
        self._timers: weakref.WeakSet[Timer] = weakref.WeakSet()
        self._next_ring = math.inf

    def begin_anew(self) -> None:
        """Begin with another loop in a forked process, where the thread of the loop is missing."""
        self._lock = threading.RLock()
        # Closing the old loop would remove its files from the poll that the parent process waits at; tasks that nobody
        # has any more would say that they never ended.
        self._inherited.append((self._loop, self._ending))
        self._loop, self._ending = None, set()
        self._timers, self._next_ring = weakref.WeakSet(), math.inf
        while self._left:
            self._left.pop().close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                loop.set_exception_handler(_tell)
                # More than the loop's own choice: a writer that is given a stream holds a thread while that reads.
                threads = _Threads(_MAX_THREADS, thread_name_prefix="resilient_pq")
                threads.submit(int)  # begins one, for the end of the interpreter
                loop.set_default_executor(threads)
                thread = threading.Thread(target=_serve, args=(loop,), name="resilient_pq", daemon=True)
                thread.start()
                if self._loop is None:
                    self._loop, self._thread = loop, thread
                    loop.call_soon_threadsafe(self._begin_to_end)
                else:  # a finalizer that ran amid this has begun another one
                    loop.call_soon_threadsafe(loop.stop)
            return self._loop

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine, which an interrupt cancels; an UnsupportedError in the thread of the loop itself."""
        try:
            loop = self._running()
            if self._is_here():
                raise UnsupportedError(
                    "what blocks cannot be asked where something of resilient_pq.sync is at work already",
                    hint="ask in a thread of its own",
                )
        except BaseException:
            coroutine.close()
            raise
        tasks: list[asyncio.Task[Any] | None] = []

        async def supervised() -> Any:
            tasks.append(asyncio.current_task())
            return await coroutine

        future = asyncio.run_coroutine_threadsafe(supervised(), loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks if task is not None])
            concurrent.futures.wait([future])
            raise

    def end(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine that closes something; asked for in the thread of the loop, later."""
        if self._leaving or self._is_here():
            self.end_later(coroutine)
        else:
            self.run(coroutine)

    def end_later(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Have the loop run a coroutine that closes something, and wait for nothing, as a finalizer must not wait.

        The garbage collector calls finalizers amid any code, which may hold locks that the loop would need.
        """
        if self._leaving:
            coroutine.close()
            return
        self._left.append(coroutine)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_to_end)
            return
        # They begin with the loop, whose own thread is waited for when it begins: not here.
        with suppress(RuntimeError):  # the interpreter ends
            _thread.start_new_thread(self._running, ())

    def _begin_to_end(self) -> None:
        """Begin what was left by `end_later`, in the loop."""
        while self._left:
            ending = asyncio.get_running_loop().create_task(self._left[0])
            self._ending.add(ending)
            del self._left[0]  # only now: another thread may look whether there are any
            ending.add_done_callback(self._ending.discard)

    def wait_for_ends(self) -> None:
        """Wait for all that was left by `end_later`, also of what ends meanwhile. Their errors are told of there."""
        if self._left or self._ending:
            self.run(self._all_ended())

    async def _all_ended(self) -> None:
        while self._left or self._ending:
            self._begin_to_end()
            await asyncio.wait(self._ending)

    def watch(self, timer: Timer) -> None:
        """Ring a timer at its time, as long as somebody has it; the loop is asked only where it would be too late."""
        with self._lock:
            self._timers.add(timer)
            asks = timer.when < self._next_ring
            if asks:
                self._next_ring = timer.when
        if asks:
            self._running().call_soon_threadsafe(self._ring_all)

    def _ring_all(self) -> None:
        """Ring the timers that are due, and come back for the next."""
        loop = self._running()
        with self._lock:
            waiting = [timer for timer in self._timers if timer.when < math.inf]
            self._next_ring = min([timer.when for timer in waiting if timer.when > loop.time()], default=math.inf)
            if self._next_ring < math.inf:
                loop.call_at(self._next_ring, self._ring_all)
        for timer in waiting:
            if timer.when <= loop.time():
                timer.ring()

    def leave(self) -> None:
        """Close nothing any more: the interpreter ends, and the thread with it."""
        self._leaving = True

    def _is_here(self) -> bool:
        """Whether this is the loop's own thread."""
        return self._thread is threading.current_thread()


#: The loop of this process.
portal = Portal()
atexit.register(portal.leave)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=portal.begin_anew)
