"""Bytes that came damaged, read again: a transfer can go wrong as well as a disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

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
