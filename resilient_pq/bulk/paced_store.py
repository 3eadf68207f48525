"""Objects that are read no faster than a budget allows. An async shell."""

from __future__ import annotations

import asyncio

from resilient_pq.io import ObjectInfo, ReadStore
from resilient_pq.io.substitute_store import SubstituteStore


class Pace:
    """Lets `rate` bytes pass in a second, over all that share it; any number where that is None."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self._free = 0.0

    async def take(self, num_bytes: int) -> None:
        """Wait until these bytes may be read."""
        if self.rate is not None:
            now = asyncio.get_running_loop().time()
            turn = max(now, self._free)
            self._free = turn + num_bytes / self.rate
            await asyncio.sleep(turn - now)


class PacedStore(SubstituteStore):
    """Stands for a store, one object of which is read at a pace."""

    def __init__(self, store: ReadStore, info: ObjectInfo, pace: Pace) -> None:
        super().__init__(store, info, info.size)
        self._pace = pace

    async def _read(self, key: str, start: int, end: int) -> memoryview:
        await self._pace.take(end - start)
        return memoryview(await self._store.read_range(key, start, end, pin=self._info))
