"""What wakes a writer at a time, though nobody calls it. An async shell."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Callable, Coroutine
from typing import Any


class Alarm:
    """Calls a method at a time. It keeps neither the object nor the event loop alive, and has no task before.

    Attributes:
        when: The time by the event loop's clock; infinity where it is not set.
    """

    def __init__(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Not set; `call` is not called where its object is gone, or while it is still at work."""
        self.when = math.inf
        self._call = weakref.WeakMethod(call)
        self._handle: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def set(self, when: float | None) -> None:
        """Call then instead; None not to call."""
        if self._handle is not None:
            self._handle.cancel()
        self.when = math.inf if when is None else when
        self._handle = None if when is None else asyncio.get_running_loop().call_at(when, self._ring)

    def _ring(self) -> None:
        self._handle, self.when = None, math.inf
        call = self._call()
        if call is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(call())

    async def stop(self) -> None:
        """Call no more, and wait for the end of what was called."""
        self.set(None)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


async def acquired(lock: asyncio.Lock, seconds: float) -> bool:
    """Wait for a lock for so long; whether it was to be had."""
    try:
        async with asyncio.timeout(seconds):
            return await lock.acquire()
    except TimeoutError:
        return False
