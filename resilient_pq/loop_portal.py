"""The event loop of those who block: one for the process, in a thread of its own.

So what blocks works in a script, in a notebook whose loop is busy already, and from several threads at once.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from resilient_pq.errors import UnsupportedError

#: Threads of the loop, at most; they begin when they are needed.
_MAX_THREADS: Final = 128


class Portal:
    """One event loop in a thread, started when it is first needed."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._inherited: asyncio.AbstractEventLoop | None = None
        self._leaving = False
        self._closing: set[asyncio.Task[Any]] = set()  # what nobody else keeps

    def begin_anew(self) -> None:
        """Begin with another loop: in a forked process the thread is missing that ran the one at hand."""
        self._lock = threading.Lock()
        # It is kept as it is: to close it would take the files out of its poll, which the other process waits at.
        self._inherited, self._loop = self._loop, None

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
        """Run to the end; an interrupt cancels it, and is raised when it has ended.

        Raises:
            UnsupportedError: Called in the loop's own thread, which would wait for itself.
        """
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
        """Run to the end what closes something; from the loop's own thread, as by its garbage collector, later."""
        if self._leaving:
            coroutine.close()
        elif self._is_here():
            closing = self._running().create_task(coroutine)
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        else:
            self.run(coroutine)

    def leave(self) -> None:
        """The interpreter ends, and the thread with it: whatever is let go of from now on has nobody to close it."""
        self._leaving = True

    def _is_here(self) -> bool:
        """Whether this is the loop's own thread."""
        return self._thread is threading.current_thread()


#: The loop of this process.
portal = Portal()
atexit.register(portal.leave)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=portal.begin_anew)
