"""A bounded number of jobs under way: nothing is lost, nothing goes on when it is left, and what fails is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from resilient_pq.bulk.bounded_jobs import JobBounds, fetch_ahead, in_flight
from resilient_pq.errors import StoreError

closed: list[str] = []


async def numbers(count: int, *, fail: bool = False) -> AsyncGenerator[int, None]:
    try:
        for number in range(count):
            await asyncio.sleep(0)
            yield number
        if fail:
            raise StoreError("the listing broke off")
    finally:
        closed.append("numbers")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    closed.clear()
    yield
    assert closed == ["numbers"], "the source is closed, once"


def bounds(jobs: int = 4, weight: int = 1 << 30) -> JobBounds[int]:
    return JobBounds(jobs, weight, lambda number: number)


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


@pytest.mark.parametrize("jobs", [1, 3, 1000])
async def test_every_job_is_done_once(jobs: int) -> None:
    async with aclosing(in_flight(numbers(100), double, bounds(jobs))) as results:
        assert sorted([each async for each in results]) == list(range(0, 200, 2))
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_heavy_jobs_wait_for_each_other() -> None:
    held: list[int] = []

    async def weighed(number: int) -> int:
        held.append(number)
        assert sum(held) <= 100 or len(held) == 1
        await asyncio.sleep(0)
        held.remove(number)
        return number

    async with aclosing(in_flight(numbers(150), weighed, bounds(50, 100))) as results:
        assert len([each async for each in results]) == 150


async def test_a_job_that_fails_ends_the_others() -> None:
    async def failing(number: int) -> int:
        if number == 7:
            raise StoreError("no")
        return await double(number)

    with pytest.raises(StoreError, match="no"):
        async with aclosing(in_flight(numbers(100), failing, bounds())) as results:
            async for _ in results:
                pass
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_listing_that_breaks_off_is_told_behind_what_it_gave() -> None:
    found = []
    with pytest.raises(StoreError, match="broke off"):
        async with aclosing(in_flight(fetch_ahead(numbers(10, fail=True), 3), double, bounds(1))) as results:
            async for each in results:
                found.append(each)
    assert len(found) >= 9
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_items_before_a_failure_are_given_in_order() -> None:
    async def breaking() -> AsyncGenerator[int, None]:
        try:
            for number in range(3):
                yield number
            raise StoreError("the listing broke off")
        finally:
            closed.append("numbers")

    found = []
    with pytest.raises(StoreError, match="broke off"):
        async with aclosing(fetch_ahead(breaking(), 5)) as given:
            async for each in given:
                found.append(each)
    assert found == [0, 1, 2]


@pytest.mark.parametrize("taken", [1, 5, 50])
async def test_leaving_early_cancels_what_is_under_way(taken: int) -> None:
    async with aclosing(in_flight(fetch_ahead(numbers(100), 2), double, bounds())) as results:
        for _ in range(taken):
            await anext(results)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancelled_caller_cancels_what_is_under_way() -> None:
    begun = asyncio.Event()

    async def forever(_: int) -> int:
        begun.set()
        await asyncio.Event().wait()
        return 0

    async def run() -> None:
        async with aclosing(in_flight(fetch_ahead(numbers(100), 2), forever, bounds())) as results:
            async for _ in results:
                pass

    task = asyncio.ensure_future(run())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
