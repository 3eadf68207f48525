"""The event loop of `resilient_pq.sync`: one for the process, in a thread of its own.

So blocking calls work in a script, in a notebook with a running loop, and from several threads at once.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import math
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from resilient_pq.errors import UnsupportedError

#: Threads of the loop, at most; they are started on demand.
_MAX_THREADS: Final = 128


class Timer(Protocol):
    """Something that is to be done at a time."""

    when: float  # by the clock of event loops; infinity where nothing is

    def ring(self) -> None:
        """Do it."""


class Portal:
    """One event loop in a thread, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._inherited: asyncio.AbstractEventLoop | None = None
        self._leaving = False
        self._closing: set[asyncio.Task[Any]] = set()  # tasks need a reference
        self._timers: weakref.WeakSet[Timer] = weakref.WeakSet()
        self._next_ring = math.inf

    def begin_anew(self) -> None:
        """Begin with another loop in a forked process, where the thread of the loop is missing."""
        self._lock = threading.Lock()
        # Closing the old loop would remove its files from the poll that the parent process waits at.
        self._inherited, self._loop = self._loop, None
        self._timers, self._next_ring = weakref.WeakSet(), math.inf

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # More than the loop's own choice: a writer that is given a stream holds a thread while that reads.
                threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="resilient_pq")
                self._loop.set_default_executor(threads)
                self._thread = threading.Thread(target=self._loop.run_forever, name="resilient_pq", daemon=True)
                self._thread.start()
            return self._loop

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine, which an interrupt cancels; an UnsupportedError in the thread of the loop itself."""
        loop = self._running()
        if self._is_here():
            coroutine.close()
            raise UnsupportedError(
                "what blocks cannot be asked where something of resilient_pq.sync is at work already",
                hint="ask in a thread of its own",
            )
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
        """Run a coroutine that closes something; in the thread of the loop, as by the garbage collector, later."""
        if self._leaving:
            coroutine.close()
        elif self._is_here():
            closing = self._running().create_task(coroutine)
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        else:
            self.run(coroutine)

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
