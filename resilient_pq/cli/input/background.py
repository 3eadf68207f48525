"""Blocking iterators in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing
from typing import Any, TypeVar

Item = TypeVar("Item")


def _nothing() -> None:
    """Nothing to stop."""


async def in_background(
    items: Generator[Item, Any, Any], stop: Callable[[], None] = _nothing
) -> AsyncGenerator[Item, None]:
    """Iterate in a thread that has ended when this is closed; `stop` ends whatever the thread waits for."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[tuple[Item] | Exception | None] = asyncio.Queue()
    room = threading.Semaphore(1)
    stopped = threading.Event()
    ended = asyncio.Event()

    def hand_over(item: tuple[Item] | Exception | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(arrived.put_nowait, item)

    def read() -> None:
        try:
            with closing(items):
                for item in items:
                    hand_over((item,))
                    if stopped.is_set():
                        return
        except Exception as error:
            hand_over(error)
        else:
            hand_over(None)
        finally:
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=read, name="rpq-input").start()
    try:
        while (item := await arrived.get()) is not None:
            if isinstance(item, Exception):
                raise item
            room.release()
            yield item[0]
    finally:
        stopped.set()
        stop()
        room.release()
        await ended.wait()
