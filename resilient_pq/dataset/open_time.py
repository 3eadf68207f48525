"""The time that the files of a data set are open for."""

from __future__ import annotations

import asyncio


def now() -> float:
    """Seconds by the event loop's clock, which never goes back."""
    return asyncio.get_running_loop().time()


async def sleep_until(when: float) -> None:
    """Wait until that clock says so."""
    await asyncio.sleep(max(0.0, when - now()))
