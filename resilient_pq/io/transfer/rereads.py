"""Bytes that came damaged, read again: a transfer can go wrong as well as a disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from resilient_pq.errors import TransientError
from resilient_pq.io.protocols import ReadStore
from resilient_pq.io.shared_clients import new_connections

T = TypeVar("T")


async def read_again(
    store: ReadStore,
    read: Callable[[], Awaitable[T]],
    is_whole: Callable[[T], Awaitable[bool]] | None,
    before: T | None = None,
) -> T | None:
    """Read until the bytes are whole, and give None; else those that came twice alike, or every time damaged."""
    # TransientError where there is no `is_whole`, for want of a checksum, and the bytes came differently each time.
    found = [] if before is None else [before]
    for _ in range(max(2, store.rereads) if is_whole is None else store.rereads):
        async with new_connections():
            data = await read()
        if data in found:
            return data
        if is_whole is not None and await is_whole(data):
            return None
        found.append(data)
    if is_whole is None:
        raise TransientError("the same bytes came differently each time they were read", hint="try again")
    return found[-1] if found else None
