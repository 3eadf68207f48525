"""Calls made ahead in threads: in order, as many as there may be at one time, and none that nobody takes."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable

import pytest

from resilient_pq.writer.ahead import Ahead


async def _all(ahead: Ahead[int], count: int) -> list[int]:
    taken: list[int] = []
    while len(taken) < count:
        taken += await ahead.take(count - len(taken))
    return taken


@pytest.mark.parametrize("max_threads", [1, 2, 5])
@pytest.mark.parametrize("max_waiting", [0, 7, 10**9])
async def test_results_come_in_the_order_of_the_calls(max_threads: int, max_waiting: int) -> None:
    ahead: Ahead[int] = Ahead(max_threads, max_waiting, lambda number: number)
    for number in range(40):
        ahead.add(lambda number=number: [number], 3)
    assert await _all(ahead, 40) == list(range(40))
    assert ahead.left_bytes == 0
    ahead.add(lambda: [40], 3)
    assert await _all(ahead, 1) == [40]
    await ahead.join()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_no_more_are_taken_than_asked_for() -> None:
    ahead: Ahead[int] = Ahead(2, 10**9, lambda _: 1)
    for number in range(9):
        ahead.add(lambda number=number: [number], 0)
    await ahead.join()
    assert await ahead.take(4) == [0, 1, 2, 3]
    assert await ahead.take(100) == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("max_threads", [1, 3])
async def test_nothing_is_begun_while_too_much_waits(max_threads: int) -> None:
    begun: list[int] = []

    def call(number: int) -> Callable[[], list[int]]:
        def called() -> list[int]:
            begun.append(number)
            return [number]

        return called

    ahead: Ahead[int] = Ahead(max_threads, 250, lambda _: 100)
    for number in range(30):
        ahead.add(call(number), 1)
    await ahead.join()
    # Those that run may end after the limit is reached, one for each thread.
    assert 3 <= len(begun) < 3 + max_threads
    assert ahead.left_bytes == 30 - len(begun)
    taken = await ahead.take(2)
    await ahead.join()
    assert len(begun) < 3 + max_threads, "what was taken counts until the next are asked for"
    assert taken + await _all(ahead, 28) == list(range(30))


async def test_a_single_thread_is_the_only_one() -> None:
    ahead: Ahead[int] = Ahead(1, 10, lambda _: 1)
    for _ in range(50):
        ahead.add(lambda: [1], 0)
    count = 0
    while count < 50:
        count += len(await ahead.take(50))
        assert ahead._running == 0


async def test_the_results_of_a_call_are_not_parted() -> None:
    ahead: Ahead[int] = Ahead(2, 10**9, lambda _: 1)
    for results in ([1, 2], [3], [4, 5, 6], [7]):
        ahead.add(lambda results=results: list(results), 1)
    await ahead.join()
    assert await ahead.take(1) == [1, 2]
    assert await ahead.take(3) == [3]
    assert await ahead.take(4) == [4, 5, 6, 7]


async def test_an_error_comes_when_it_is_its_turn() -> None:
    def broken() -> list[int]:
        raise ValueError("broken on purpose")

    ahead: Ahead[int] = Ahead(2, 10**9, lambda _: 1)
    for call in (lambda: [1], broken, lambda: [3]):
        ahead.add(call, 1)
    await ahead.join()
    assert await ahead.take(3) == [1]
    with pytest.raises(ValueError, match="on purpose"):
        await ahead.take(3)
    await ahead.stop()


async def test_stopping_waits_for_what_runs_and_begins_nothing_else() -> None:
    begun, gate = asyncio.Event(), threading.Event()
    loop, ended = asyncio.get_running_loop(), []

    def held() -> list[int]:
        loop.call_soon_threadsafe(begun.set)
        assert gate.wait(60)
        ended.append(1)
        return [1]

    ahead: Ahead[int] = Ahead(1, 10**9, lambda _: 1)
    for _ in range(3):
        ahead.add(held, 1)
    await begun.wait()
    stopping = asyncio.create_task(ahead.stop())
    for _ in range(3):
        await asyncio.sleep(0)
        stopping.cancel()
    assert not stopping.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert ended == [1]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_where_no_thread_can_be_had_nobody_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(asyncio, "to_thread", refused)
    unseen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    ahead: Ahead[int] = Ahead(2, 10**9, lambda _: 1)
    ahead.add(lambda: [1], 1)
    with pytest.raises(RuntimeError, match="cannot schedule"):
        await ahead.take(1)
    await ahead.stop()
    gc.collect()
    assert not unseen, "the error was told, and is nobody's else"
