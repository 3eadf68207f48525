"""Many small jobs, a bounded number of them under way. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Bounds(Generic[Job]):
    """How much may be under way: jobs, and what they weigh together, though one job may weigh more."""

    jobs: int
    weight: int
    weigh: Callable[[Job], int]


async def in_flight(
    jobs: AsyncGenerator[Job, None], do: Callable[[Job], Coroutine[Any, Any, Result]], bounds: Bounds[Job]
) -> AsyncGenerator[Result, None]:
    """What becomes of jobs, as they end; the next ones begin meanwhile, as far as the bounds allow.

    When it is closed, when the caller is cancelled, or when a job fails, all that are under way are cancelled, and
    waited for.
    """
    running: dict[asyncio.Task[Result], int] = {}
    ended: asyncio.Queue[asyncio.Task[Any]] = asyncio.Queue()
    freed = asyncio.Event()

    async def begin() -> None:
        async with aclosing(jobs):
            async for job in jobs:
                weight = bounds.weigh(job)
                while running and (len(running) >= bounds.jobs or sum(running.values()) + weight > bounds.weight):
                    freed.clear()
                    await freed.wait()
                task = asyncio.ensure_future(do(job))
                running[task] = weight
                task.add_done_callback(ended.put_nowait)

    beginning = asyncio.ensure_future(begin())
    beginning.add_done_callback(ended.put_nowait)
    try:
        while running or not beginning.done():
            task = await ended.get()
            result = task.result()
            if task is not beginning:
                del running[task]  # only now: what nobody has taken yet counts as well
                freed.set()
                yield result
        beginning.result()
    finally:
        left = [beginning, *running]
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def ahead(source: AsyncGenerator[Job, None], most: int) -> AsyncGenerator[Job, None]:
    """What a generator gives, asked for while what came before, `most` at most, is not used yet."""
    ready: asyncio.Queue[Job | None] = asyncio.Queue(most)

    async def ask() -> None:
        async with aclosing(source):
            async for each in source:
                await ready.put(each)
        await ready.put(None)

    asking = asyncio.ensure_future(ask())
    waiting: asyncio.Future[Job | None] | None = None
    try:
        while True:
            waiting = asyncio.ensure_future(ready.get())
            await asyncio.wait([waiting, asking], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                asking.result()  # it failed, and there will be no more
            each = await waiting
            if each is None:
                return
            yield each
    finally:
        left: list[asyncio.Future[Any]] = [asking] if waiting is None else [asking, waiting]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
