"""Chunks that are opened as a whole, and held until all parts of them have been given. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from resilient_pq.encryption.plain_regions import SealedChunk
from resilient_pq.machine_limits import share_of_memory
from resilient_pq.units import MiB

#: Bytes that are held before the oldest chunk is dropped, of which parts may never be asked for.
_MOST_BYTES: Final = share_of_memory(16, 256 * MiB)


class HeldChunks:
    """The chunks of one file in the clear, each opened once for all who ask for parts of it."""

    def __init__(self, open_chunk: Callable[[SealedChunk], Awaitable[memoryview]]) -> None:
        """Hold nothing yet."""
        self._open = open_chunk
        self._tasks: dict[int, asyncio.Future[memoryview]] = {}
        self._sizes: dict[int, int] = {}
        self._left: dict[int, int] = {}

    async def content(self, chunk: SealedChunk, num_bytes: int) -> memoryview:
        """All of a chunk, for somebody who takes so many bytes of it."""
        at, size = chunk.start, chunk.end - chunk.start
        if at not in self._tasks:
            while self._sizes and sum(self._sizes.values()) + size > _MOST_BYTES:
                self._forget(next(iter(self._sizes)))
            opening = asyncio.ensure_future(self._open(chunk))
            opening.add_done_callback(_take_error)
            self._tasks[at], self._sizes[at], self._left[at] = opening, size, size
        task = self._tasks[at]
        try:
            content = await asyncio.shield(task)
        except Exception:
            if self._tasks.get(at) is task:
                self._forget(at)
            raise
        if self._tasks.get(at) is task:
            self._left[at] -= num_bytes
            if self._left[at] <= 0:
                self._forget(at)
        return content

    def drop(self) -> None:
        """Hold nothing any more."""
        for task in self._tasks.values():
            task.cancel()
        for at in list(self._tasks):
            self._forget(at)

    def _forget(self, at: int) -> None:
        del self._tasks[at], self._sizes[at], self._left[at]


def _take_error(task: asyncio.Future[memoryview]) -> None:
    """Take the error of a task that nobody may be waiting for any more."""
    if not task.cancelled():
        task.exception()
