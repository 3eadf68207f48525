"""Work that would block the event loop for long, done in a thread.

Handing a call to a thread takes 50 to 100 µs, so short work is done at once. Work is counted in pieces of some ten µs,
about the work for a column chunk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

#: Pieces of work that are done at once: some milliseconds.
AT_ONCE: Final = 256
#: Fewer bytes are read or written sooner in one thread from end to end than by way of the event loop.
ONE_HOP_BYTES: Final = 1 << 20
#: Bytes of a footer that is parsed, or of what is decrypted, which take about the time of a piece.
PIECE_BYTES: Final = 4096


async def off_loop(num_pieces: int, call: Callable[..., T], *args: object) -> T:
    """The result of a call, in a thread if it has many pieces of work; it goes on if the caller is cancelled."""
    if num_pieces <= AT_ONCE or asyncio._get_running_loop() is None:
        return call(*args)
    return await asyncio.to_thread(call, *args)


class Turns:
    """Lets other callbacks run now and then, in a loop over pieces of work."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = AT_ONCE

    async def give_way(self) -> None:
        """Count a piece."""
        self._left -= 1
        if not self._left:
            self._left = AT_ONCE
            await asyncio.sleep(0)
