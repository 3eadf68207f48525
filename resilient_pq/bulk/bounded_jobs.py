"""Bounded concurrency: jobs under way, and items fetched ahead. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from resilient_pq.lazy_dataclass import dataclass

Job = TypeVar("Job")
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class JobBounds(Generic[Job]):
    """How many jobs may be under way, and how much they may weigh together; one job may weigh more."""

    jobs: int
    weight: int
    weigh: Callable[[Job], int]


async def in_flight(
    jobs: AsyncGenerator[Job, None], do: Callable[[Job], Coroutine[Any, Any, Result]], bounds: JobBounds[Job]
) -> AsyncGenerator[Result, None]:
    """Do jobs concurrently, and give their results as they end; closing it cancels and awaits all jobs under way."""
    running: dict[asyncio.Task[Result], int] = {}
    ended, freed = asyncio.Event(), asyncio.Event()

    async def begin() -> None:
        async with aclosing(jobs):
            async for job in jobs:
                weight = bounds.weigh(job)
                while running and (len(running) >= bounds.jobs or sum(running.values()) + weight > bounds.weight):
                    freed.clear()
                    await freed.wait()
                task = asyncio.ensure_future(do(job))
                running[task] = weight
                task.add_done_callback(lambda _: ended.set())

    beginning = asyncio.ensure_future(begin())
    beginning.add_done_callback(lambda _: ended.set())
    try:
        while running or not beginning.done():
            ended.clear()
            task = next((each for each in running if each.done()), None)
            if task is not None:
                result = task.result()
                del running[task]  # only now: results that were not taken yet count as well
                freed.set()
                yield result
            elif beginning.done() and beginning.exception() is not None:
                break
            else:
                await ended.wait()
        beginning.result()
    finally:
        unfinished = [beginning, *running]
        for each in unfinished:
            each.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)


async def fetch_ahead(source: AsyncGenerator[Item, None], most: int) -> AsyncGenerator[Item, None]:
    """Give the items of a generator in order, while up to `most` following ones are fetched."""
    fetched: asyncio.Queue[tuple[Item] | Exception | None] = asyncio.Queue(most)

    async def fetch() -> None:
        end: Exception | None = None
        try:
            async with aclosing(source):
                async for item in source:
                    await fetched.put((item,))
        except Exception as error:
            end = error
        await fetched.put(end)

    fetching = asyncio.ensure_future(fetch())
    try:
        while isinstance(item := await fetched.get(), tuple):
            yield item[0]
        if item is not None:
            raise item
    finally:
        fetching.cancel()
        await asyncio.gather(fetching, return_exceptions=True)
