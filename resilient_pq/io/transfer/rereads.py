"""Bytes that came damaged, read again: a transfer can go wrong as well as a disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from resilient_pq.errors import TransientError
from resilient_pq.io.protocols import ReadStore
from resilient_pq.io.shared_clients import new_connections


async def read_again(
    store: ReadStore,
    read: Callable[[], Awaitable[memoryview]],
    is_whole: Callable[[memoryview], Awaitable[bool]],
    before: memoryview | None = None,
) -> memoryview | None:
    """Read until the bytes are whole, and return None; or the bytes that came twice alike, or every time damaged."""
    for _ in range(store.rereads):
        async with new_connections():
            data = await read()
        if before is not None and data == before:
            return data
        if await is_whole(data):
            return None
        before = data
    return before


async def read_alike(store: ReadStore, read: Callable[[], Awaitable[memoryview]]) -> memoryview:
    """Bytes for which no checksum is at hand, as they came twice over different connections."""
    found = [await read()]
    for _ in range(max(2, store.rereads)):
        async with new_connections():
            data = await read()
        if any(data == before for before in found):
            return data
        found.append(data)
    raise TransientError("the same bytes came differently each time they were read", hint="try again")
