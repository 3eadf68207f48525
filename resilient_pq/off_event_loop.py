"""Work that would keep the event loop busy for long: it is done in a thread.

To hand a call to a thread and to get its result takes as long as some calls, 50 to 100 µs; so what is little is done at
once. How much there is to do is counted in pieces, each of about the work that a column chunk makes: some ten µs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

#: Pieces of work that are done at once, which take some milliseconds.
AT_ONCE: Final = 256


async def off_loop(num_pieces: int, call: Callable[..., T], *args: object) -> T:
    """The result of a call that waits for nothing; made in a thread where it takes long.

    Args:
        num_pieces: About how many column chunks, or things like these, it goes through.
        call: What is called. Nobody else may use what it changes, even where whoever waits for it is cancelled.
        *args: Its arguments.
    """
    if num_pieces <= AT_ONCE:
        return call(*args)
    return await asyncio.to_thread(call, *args)


class Turns:
    """Gives other callbacks their turn now and then, in a loop over pieces of work that mostly waits for nothing."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        """All pieces are to come."""
        self._left = AT_ONCE

    async def give_way(self) -> None:
        """To be called with each piece."""
        self._left -= 1
        if not self._left:
            self._left = AT_ONCE
            await asyncio.sleep(0)
