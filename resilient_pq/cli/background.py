"""Blocking iteration beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from typing import TypeVar

Item = TypeVar("Item")


async def in_background(items: Iterator[Item]) -> AsyncGenerator[Item, None]:
    """The items of a blocking iterator, made in a thread, the next one while the last is being used.

    The thread is a daemon: one that waits for a pipe on which nothing comes does not keep an interrupted process
    alive, as a thread of asyncio's pool would.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[tuple[Item] | Exception | None] = asyncio.Queue()
    room = threading.Semaphore(1)
    stopped = threading.Event()

    def hand_over(item: tuple[Item] | Exception | None) -> None:
        room.acquire()
        with suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            loop.call_soon_threadsafe(arrived.put_nowait, item)

    def read() -> None:
        try:
            for item in items:
                hand_over((item,))
                if stopped.is_set():
                    return
        except Exception as error:
            hand_over(error)
        else:
            hand_over(None)

    threading.Thread(target=read, name="rpq-input", daemon=True).start()
    try:
        while (item := await arrived.get()) is not None:
            if isinstance(item, Exception):
                raise item
            room.release()
            yield item[0]
    finally:
        stopped.set()
        room.release()
