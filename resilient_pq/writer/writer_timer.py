"""A time at which a writer is to do something, with or without an event loop. An async shell."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from resilient_pq.io.cancellation import in_loop


class WriterTimer:
    """Calls a method at a time. It keeps neither the object nor the event loop alive, and has no task before.

    Attributes:
        when: The time by the event loop's clock; infinity where it is not set.
    """

    def __init__(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Not set; the method `call` is not called where its object is gone, or while it is still at work."""
        self.when = math.inf
        self.watch: Callable[[WriterTimer], None] | None = None  # sees to it where no event loop runs
        self._call = weakref.WeakMethod(call)
        self._handle: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._unwound = False  # whether it was set without an event loop, and nothing calls then

    def set(self, when: float | None) -> None:
        """Call then instead; None not to call."""
        self.when = math.inf if when is None else when
        if (loop := asyncio._get_running_loop()) is None:
            self._unwound = True
            return  # until `rewind`, or until whoever drives the writer from outside says so
        if self._handle is not None:
            self._handle.cancel()
        self._unwound, self._handle = False, None if when is None else loop.call_at(when, self.ring)

    def rewind(self) -> None:
        """Call when it was set to, after it was set without an event loop."""
        if self._unwound and asyncio._get_running_loop() is not None:
            self.set(None if self.when == math.inf else self.when)
        elif self._unwound and self.watch is not None:
            self._unwound = False
            if self.when != math.inf:
                self.watch(self)

    def ring(self) -> None:
        """Call now, in the event loop."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle, self.when = None, math.inf
        call = self._call()
        if call is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(call())

    async def stop(self) -> None:
        """Call no more, and wait for the end of what was called."""
        self.set(None)
        task, self._task = self._task, None
        if task is not None:
            await in_loop()
            task.cancel()
            await asyncio.wait([task])
