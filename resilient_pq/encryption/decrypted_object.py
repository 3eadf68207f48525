"""An encrypted object read in the clear from any thread, where its store can be read so."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from resilient_pq.encryption.plain_regions import PlainRegion, opened
from resilient_pq.errors import FormatError
from resilient_pq.io.protocols import OpenObject


class DecryptedView(Protocol):
    """What `DecryptedStore` has for it."""

    def at_hand(self, start: int, end: int) -> tuple[list[PlainRegion], int, int] | None:
        """The regions in a range, and where what is stored for them lies; None where more has to be read first."""

    def read(self, start: int, end: int) -> Coroutine[Any, Any, memoryview]:
        """The bytes of a range in the clear, through parity too."""

    def warn_of_unverified(self, touched: Sequence[PlainRegion]) -> None:
        """Warn where nothing verifies pages that were read."""


class DecryptedObject(OpenObject):
    """Reads and decrypts in the thread that asks; what does not open is left to the event loop."""

    def __init__(self, view: DecryptedView, stored: OpenObject, loop: asyncio.AbstractEventLoop) -> None:
        """Read through `stored`; `loop` runs while threads read."""
        self._view = view
        self._stored = stored
        self._loop = loop

    def read(self, start: int, end: int) -> memoryview:
        """The bytes from `start` up to, not including, `end`."""
        found = self._view.at_hand(start, end)
        if found is not None:
            touched, low, high = found
            try:
                content = opened(self._stored.read(low, high), low, touched, start, end)
            except FormatError:
                pass  # the loop reads it again, heals it, or says what is wrong
            else:
                self._view.warn_of_unverified(touched)
                return content
        return asyncio.run_coroutine_threadsafe(self._view.read(start, end), self._loop).result()

    def close(self) -> None:
        """Close what is stored."""
        self._stored.close()
