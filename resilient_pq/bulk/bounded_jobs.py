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
class JobBounds(Generic[Job]):
    """How much may be under way: jobs, and what they weigh together, though one job may weigh more."""

    jobs: int
    weight: int
    weigh: Callable[[Job], int]


async def in_flight(
    jobs: AsyncGenerator[Job, None],
    do: Callable[[Job], Coroutine[Any, Any, Result]],
    bounds: JobBounds[Job],
    *,
    in_order: bool = False,
) -> AsyncGenerator[Result, None]:
    """What becomes of jobs, as they end; the next ones begin meanwhile, as far as the bounds allow.

    When it is closed, when the caller is cancelled, or when a job fails, all that are under way are cancelled, and
    waited for.
    """
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
            first = [*running][: 1 if in_order else None]
            task = next((each for each in first if each.done()), None)
            if task is not None:
                result = task.result()
                del running[task]  # only now: what nobody has taken yet counts as well
                freed.set()
                yield result
            elif not (in_order and running) and beginning.done() and beginning.exception() is not None:
                break
            else:
                await ended.wait()
        beginning.result()
    finally:
        left = [beginning, *running]
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def ahead(source: AsyncGenerator[Job, None], most: int) -> AsyncGenerator[Job, None]:
    """What a generator gives, asked for while what came before, `most` at most, is not used yet."""

    async def itself(each: Job) -> Job:
        return each

    return in_flight(source, itself, JobBounds(most, most, lambda _: 1), in_order=True)
