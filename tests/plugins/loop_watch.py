"""How long single callbacks keep an event loop busy, in seconds of the processor.

asyncio's own `slow_callback_duration` reads the wall clock, so on a busy machine every callback is slow at some time. What
is counted here is what the loop's thread has used itself: neither waiting for other processes nor for the interpreter's
lock counts, and a full garbage collection, which goes through whatever the tests before have left, is put off.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from types import FrameType
from typing import Any

import pytest

#: Seconds of the processor that a callback may take.
LIMIT = 0.05
#: Seconds after which a callback is asked where it is; that is told of those that are too slow.
_ASKED_AFTER = 0.02
_COROUTINE = CO_COROUTINE | CO_ASYNC_GENERATOR


@dataclass
class SlowCallback:
    """A callback that took longer than it may."""

    what: str
    seconds: float
    seen: Counter[str] = field(repr=False)

    def __str__(self) -> str:
        seen = [f"    {times} x {place}" for place, times in self.seen.most_common(5)]
        return "\n".join([f"{self.seconds * 1000:.0f} ms: {self.what}", *seen])


class LoopWatch:
    """What the callbacks of all event loops took, while it is at work."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.slow: list[SlowCallback] = []  # Those that took longer than the limit, in order
        self.longest = 0.0  # Seconds of the longest one
        self._limit = limit
        self._running: dict[int, tuple[float, Counter[str]]] = {}
        self._ended = threading.Event()

    def run(self, original: Callable[[asyncio.Handle], None], handle: asyncio.Handle) -> None:
        """Run a callback as the loop would, and count."""
        thread = threading.get_ident()
        seen: Counter[str] = Counter()
        outer = self._running.get(thread)
        self._running[thread] = (time.monotonic(), seen)
        began = time.thread_time()
        try:
            original(handle)
        finally:
            seconds = time.thread_time() - began
            if outer is None:
                del self._running[thread]
            else:
                self._running[thread] = outer
            self.longest = max(self.longest, seconds)
            if seconds > self._limit:
                self.slow.append(SlowCallback(repr(handle)[:300], seconds, seen))

    def ask(self) -> None:
        """Look every few milliseconds where a slow callback is."""
        while not self._ended.wait(_ASKED_AFTER / 2):
            now = time.monotonic()
            for thread, (began, seen) in list(self._running.items()):
                if now - began > _ASKED_AFTER and (frame := sys._current_frames().get(thread)) is not None:
                    seen[_call_in_coroutine(frame)] += 1

    def end(self) -> None:
        """Ask no more."""
        self._ended.set()


def _call_in_coroutine(frame: FrameType) -> str:
    """Where the innermost coroutine is, and which function it has called: that should have been called in a thread."""
    called, here = "", frame
    while not here.f_code.co_flags & _COROUTINE and here.f_back is not None:
        called, here = here.f_code.co_qualname, here.f_back
    return f"{here.f_code.co_filename}:{here.f_lineno} in {here.f_code.co_qualname}, calling {called}"


@contextmanager
def watched(limit: float = LIMIT) -> Iterator[LoopWatch]:
    """Watch all callbacks of all loops of this process."""
    watch = LoopWatch(limit)
    original = asyncio.Handle._run
    asker = threading.Thread(target=watch.ask, daemon=True)
    asker.start()
    gc.collect()
    gc.freeze()

    def run(handle: Any) -> None:
        watch.run(original, handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", run)
        gc.disable()
        try:
            yield watch
        finally:
            gc.enable()
            gc.unfreeze()
            watch.end()
            asker.join()
