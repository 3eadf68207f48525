"""Chunks that are opened as a whole, and held until all parts of them have been given. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from resilient_pq.encryption.plain_regions import SealedChunk
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.machine_limits import share_of_memory
from resilient_pq.units import MiB

#: Bytes that are held before the oldest chunk is dropped, of which parts may never be asked for.
_MOST_BYTES: Final = share_of_memory(16, 256 * MiB)


@dataclass(slots=True)
class _Held:
    """A chunk that is being opened, or was, and the bytes of it that nobody has taken yet."""

    opening: asyncio.Future[memoryview]
    size: int
    left: int


class HeldChunks:
    """The chunks of one file in the clear, each opened once for all who ask for parts of it."""

    def __init__(self, open_chunk: Callable[[SealedChunk], Awaitable[memoryview]]) -> None:
        self._open = open_chunk
        self._held: dict[int, _Held] = {}

    async def content(self, chunk: SealedChunk, num_bytes: int) -> memoryview:
        """All of a chunk, for somebody who takes so many bytes of it."""
        at, size = chunk.start, chunk.end - chunk.start
        if at not in self._held:
            while self._held and sum(held.size for held in self._held.values()) + size > _MOST_BYTES:
                del self._held[next(iter(self._held))]
            self._held[at] = _Held(asyncio.ensure_future(self._open(chunk)), size, size)
            # Nobody may be waiting for its error any more.
            self._held[at].opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        held = self._held[at]
        try:
            content = await asyncio.shield(held.opening)
            held.left -= num_bytes
        except Exception:
            held.left = 0
            raise
        finally:
            if held.left <= 0 and self._held.get(at) is held:
                del self._held[at]
        return content

    def drop(self) -> None:
        """Hold nothing any more."""
        for held in self._held.values():
            held.opening.cancel()
        self._held.clear()
