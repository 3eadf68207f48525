"""The clock of the event loop, put forward: timers of hours go off at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest


class Clock:
    """The clock of the running event loop, which goes as always and can be put forward besides."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take over the clock of a loop."""
        self.seconds = 0.0  # By how many it was
        real = loop.time
        loop.time = lambda: real() + self.seconds  # type: ignore[method-assign]

    async def skip(self, seconds: float) -> None:
        """Put it forward, and begin what is due then."""
        self.seconds += seconds
        for _ in range(5):
            await asyncio.sleep(0)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for what threads do, for half a minute at most."""
        for _ in range(30_000):
            if happened():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it did not happen")


@pytest.fixture
async def clock() -> Clock:
    """Of the loop that the test runs in."""
    return Clock(asyncio.get_running_loop())
