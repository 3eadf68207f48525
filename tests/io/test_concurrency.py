"""How many requests are under way: what the store says lowers it, and what goes well raises it again."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.errors import ThrottledError, TransientError
from resilient_pq.io.transfer.request_limiter import AdaptiveLimit, RequestLimiter


def test_a_throttled_request_halves_it_once_a_round() -> None:
    limit = AdaptiveLimit(64)
    begun_in = limit.round
    for _ in range(10):  # sent together, refused together
        limit.throttle(begun_in)
    assert limit.value == 32
    limit.throttle(limit.round)
    assert limit.value == 16


def test_it_grows_by_one_for_as_many_successes_as_it_is() -> None:
    limit = AdaptiveLimit(64)
    for _ in range(3):
        limit.throttle(limit.round)
    assert limit.value == 8
    for _ in range(9):
        limit.succeed()
    assert limit.value == 9


@given(st.integers(1, 100), st.lists(st.booleans(), max_size=300))
def test_it_stays_between_one_and_the_most(most: int, throttled: list[bool]) -> None:
    limit = AdaptiveLimit(most)
    assert limit.value == most
    for one in throttled:
        if one:
            limit.throttle(limit.round)
        else:
            limit.succeed()
        assert 1 <= limit.value <= most


def test_a_limit_of_none_cannot_be_meant() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        AdaptiveLimit(0)


class Requests:
    """Requests that end when they are told to."""

    def __init__(self, limiter: RequestLimiter) -> None:
        self.limiter = limiter
        self.under_way: list[int] = []
        self.endings: dict[int, asyncio.Future[None]] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def begin(self, *numbers: int) -> None:
        for number in numbers:
            self.tasks[number] = asyncio.create_task(self._one(number))
        await self.settle()

    async def _one(self, number: int) -> None:
        async with self.limiter.turn():
            self.under_way.append(number)
            self.endings[number] = asyncio.get_running_loop().create_future()
            try:
                await self.endings[number]
            finally:
                self.under_way.remove(number)

    async def end(self, number: int, error: Exception | None = None) -> None:
        if error is None:
            self.endings[number].set_result(None)
        else:
            self.endings[number].set_exception(error)
        await asyncio.wait([self.tasks[number]])
        if error is not None:
            assert self.tasks[number].exception() is error
        await self.settle()

    async def settle(self) -> None:
        """Let every task run that can."""
        for _ in range(10):
            await asyncio.sleep(0)


async def test_requests_wait_for_their_turn_in_order() -> None:
    requests = Requests(RequestLimiter(2))
    await requests.begin(1, 2, 3, 4)
    assert requests.under_way == [1, 2]
    await requests.end(2)
    assert requests.under_way == [1, 3]
    await requests.end(1)
    await requests.end(3)
    assert requests.under_way == [4]
    await requests.end(4)


async def test_after_a_throttled_request_fewer_are_under_way() -> None:
    requests = Requests(RequestLimiter(4))
    await requests.begin(1, 2, 3, 4, 5, 6)
    await requests.end(1, ThrottledError("slow down"))
    assert requests.limiter.limit == 2
    assert requests.under_way == [2, 3, 4]
    await requests.end(2, ThrottledError("slow down"))  # begun before it was halved
    assert requests.limiter.limit == 2
    assert requests.under_way == [3, 4]
    await requests.end(3, TransientError("a reset says nothing of the load"))
    assert requests.limiter.limit == 2
    assert requests.under_way == [4, 5]
    for number in (4, 5, 6):
        await requests.end(number)


async def test_who_is_cancelled_while_waiting_holds_up_nobody() -> None:
    requests = Requests(RequestLimiter(1))
    await requests.begin(1, 2, 3, 4)
    requests.tasks[2].cancel()
    await requests.end(1)
    assert requests.under_way == [3]
    # Its turn comes in the moment that it is cancelled.
    requests.endings[3].set_result(None)
    await asyncio.wait([requests.tasks[3]])
    requests.tasks[4].cancel()
    await requests.settle()
    await requests.begin(5)
    assert requests.under_way == [5]
    await requests.end(5)
