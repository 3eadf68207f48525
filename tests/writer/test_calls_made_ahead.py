"""Calls made ahead in threads: in order, as many as there may be at one time, and none that nobody takes."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable

import pytest

from resilient_pq.format.side_by_side import SideBySide
from resilient_pq.writer.encode_pool import EncodePool

#: What is tested here is what threads do.
pytestmark = pytest.mark.usefixtures("threads_for_small_chunks")


async def _all(ahead: EncodePool[int], count: int) -> list[int]:
    taken: list[int] = []
    while len(taken) < count:
        taken += await ahead.take(count - len(taken))
    return taken


@pytest.mark.parametrize("max_threads", [1, 2, 5])
@pytest.mark.parametrize("max_waiting", [0, 7, 10**9])
async def test_results_come_in_the_order_of_the_calls(max_threads: int, max_waiting: int) -> None:
    ahead: EncodePool[int] = EncodePool(max_threads, max_waiting, lambda number: number)
    for number in range(40):
        ahead.add((lambda _, number=number: [number], 3))
    assert await _all(ahead, 40) == list(range(40))
    assert ahead.left_bytes == 0
    ahead.add((lambda _: [40], 3))
    assert await _all(ahead, 1) == [40]
    await ahead.join()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_no_more_are_taken_than_asked_for() -> None:
    ahead: EncodePool[int] = EncodePool(2, 10**9, lambda _: 1)
    for number in range(9):
        ahead.add((lambda _, number=number: [number], 0))
    await ahead.join()
    assert await ahead.take(4) == [0, 1, 2, 3]
    assert await ahead.take(100) == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("max_threads", [1, 3])
async def test_nothing_is_begun_while_too_much_waits(max_threads: int) -> None:
    begun: list[int] = []

    def call(number: int) -> Callable[[SideBySide], list[int]]:
        def called(_: SideBySide) -> list[int]:
            begun.append(number)
            return [number]

        return called

    ahead: EncodePool[int] = EncodePool(max_threads, 250, lambda _: 100)
    for number in range(30):
        ahead.add((call(number), 1))
    await ahead.join()
    # Those that run may end after the limit is reached, one for each thread.
    assert 3 <= len(begun) < 3 + max_threads
    assert ahead.left_bytes == 30 - len(begun)
    taken = await ahead.take(2)
    await ahead.join()
    assert len(begun) < 3 + max_threads, "what was taken counts until the next are asked for"
    assert taken + await _all(ahead, 28) == list(range(30))


@pytest.mark.parametrize(
    ("max_threads", "sizes", "order"),
    [
        (1, [1, 1, 9], [0, 1, 2]),  # a single thread ends no sooner by another order
        (2, [1, 1, 9], [2, 0, 1]),
        (2, [5, 6, 5, 7], [3, 1, 0, 2]),
        (2, [5] * 8, [*range(8)]),
        (4, [1, 20, 2, 30, 1, 3], [3, 1, 0, 2, 4, 5]),
    ],
)
async def test_the_longest_call_is_begun_first(max_threads: int, sizes: list[int], order: list[int]) -> None:
    """Begun last, it would leave the other threads with nothing to do."""
    begun: list[int] = []
    ahead: EncodePool[int] = EncodePool(max_threads, 10**9, lambda _: 1)
    ahead.add(*((lambda _, number=number: begun.append(number) or [number], size) for number, size in enumerate(sizes)))
    assert [unit.num_bytes for unit in ahead._to_call] == [sizes[number] for number in order]
    assert await _all(ahead, len(sizes)) == [*range(len(sizes))]
    await ahead.join()
    assert sorted(begun) == [*range(len(sizes))] and ahead.left_bytes == 0


@pytest.mark.parametrize("max_threads", [2, 4])
async def test_what_was_begun_first_does_not_keep_back_what_is_taken_first(max_threads: int) -> None:
    """However much waits for it: else nothing would ever go on."""
    most = now = 0

    def call(number: int) -> Callable[[SideBySide], list[int]]:
        def called(_: SideBySide) -> list[int]:
            nonlocal most, now
            now += 100
            most = max(most, now)
            return [number]

        return called

    ahead: EncodePool[int] = EncodePool(max_threads, 250, lambda _: 100)
    ahead.add(*((call(number), 1 + 100 * (number >= 20)) for number in range(30)))
    await ahead.join()
    taken: list[int] = []
    async with asyncio.timeout(60):
        while len(taken) < 30:
            found = await ahead.take(30)
            now -= 100 * len(found)
            taken += found
    assert taken == [*range(30)]
    assert most <= 100 * (4 + 2 * max_threads), "more was begun than what has to be taken next"


async def test_a_single_thread_is_the_only_one() -> None:
    ahead: EncodePool[int] = EncodePool(1, 10, lambda _: 1)
    for _ in range(50):
        ahead.add((lambda _: [1], 0))
    count = 0
    while count < 50:
        count += len(await ahead.take(50))
        assert ahead._running == 0


async def test_the_results_of_a_call_are_not_parted() -> None:
    ahead: EncodePool[int] = EncodePool(2, 10**9, lambda _: 1)
    for results in ([1, 2], [3], [4, 5, 6], [7]):
        ahead.add((lambda _, results=results: list(results), 1))
    await ahead.join()
    assert await ahead.take(1) == [1, 2]
    assert await ahead.take(3) == [3]
    assert await ahead.take(4) == [4, 5, 6, 7]


async def test_whoever_waits_gets_what_is_worth_it() -> None:
    """As long as threads go on: what is left at the end is taken, too."""
    ahead: EncodePool[int] = EncodePool(2, 10**9, lambda _: 1, worth_taking=10)
    go_on = threading.Event()
    for number in range(35):
        ahead.add((lambda _, number=number: [number] if number != 20 or go_on.wait(60) else [], 1))
    taken = await ahead.take(100)
    assert 10 <= len(taken) <= 20
    go_on.set()
    rest = await _all(ahead, 35 - len(taken))
    assert taken + rest == list(range(35))


async def test_whoever_waits_hears_of_what_is_free() -> None:
    """Where little comes of much: as soon as enough is free, more may be taken in."""
    ahead: EncodePool[int] = EncodePool(2, 10**9, lambda _: 1, worth_taking=10)
    go_on = threading.Event()
    for number in range(12):
        ahead.add((lambda _, number=number: [number] if number != 8 or go_on.wait(60) else [], 5))
    taken = await asyncio.wait_for(ahead.take(100), 30)
    assert 4 <= len(taken) <= 8
    assert ahead.left_bytes >= 5
    go_on.set()
    assert taken + await _all(ahead, 12 - len(taken)) == list(range(12))
    assert ahead._freed_bytes == 0


async def test_an_error_is_told_while_others_go_on() -> None:
    """It is not worth any bytes, and there is no use in waiting for more."""
    go_on = threading.Event()

    def broken(_: SideBySide) -> list[int]:
        raise ValueError("broken on purpose")

    ahead: EncodePool[int] = EncodePool(2, 10**9, lambda _: 1, worth_taking=10)
    ahead.add((broken, 1))
    ahead.add((lambda _: [2] if go_on.wait(60) else [], 1))
    with pytest.raises(ValueError, match="on purpose"):
        await asyncio.wait_for(ahead.take(2), 30)
    go_on.set()
    await ahead.stop()


async def test_an_error_comes_when_it_is_its_turn() -> None:
    def broken(_: SideBySide) -> list[int]:
        raise ValueError("broken on purpose")

    ahead: EncodePool[int] = EncodePool(2, 10**9, lambda _: 1)
    for call in (lambda _: [1], broken, lambda _: [3]):
        ahead.add((call, 1))
    await ahead.join()
    assert await ahead.take(3) == [1]
    with pytest.raises(ValueError, match="on purpose"):
        await ahead.take(3)
    await ahead.stop()


async def test_what_can_be_taken_is_no_longer_left() -> None:
    """Else there seems to be more to take when all has been taken."""
    too_early: list[bool] = []

    def size_of(_: int) -> int:  # called in the midst of counting a result
        too_early.append(ahead._to_take[0].ended and ahead.left_bytes > 0)
        return 1

    ahead: EncodePool[int] = EncodePool(2, 10**9, size_of)
    ahead.add((lambda _: [1], 7))
    await ahead.join()
    assert too_early == [False] and ahead.left_bytes == 0


async def test_stopping_waits_for_what_runs_and_begins_nothing_else() -> None:
    begun, gate = asyncio.Event(), threading.Event()
    loop, ended = asyncio.get_running_loop(), []

    def held(_: SideBySide) -> list[int]:
        loop.call_soon_threadsafe(begun.set)
        assert gate.wait(60)
        ended.append(1)
        return [1]

    ahead: EncodePool[int] = EncodePool(1, 10**9, lambda _: 1)
    for _ in range(3):
        ahead.add((held, 1))
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


async def test_stopping_waits_for_every_thread_where_the_event_loop_has_cancelled_all_tasks() -> None:
    begun, gates, ended = asyncio.Semaphore(0), [threading.Event(), threading.Event()], []
    loop = asyncio.get_running_loop()

    def held(number: int) -> list[int]:
        loop.call_soon_threadsafe(begun.release)
        assert gates[number].wait(60)
        ended.append(number)
        return [number]

    ahead: EncodePool[int] = EncodePool(2, 10**9, lambda _: 1)
    for number in range(2):
        ahead.add((lambda _, number=number: held(number), 1))
    await begun.acquire()
    await begun.acquire()
    workers = asyncio.all_tasks() - {asyncio.current_task()}
    stopping = asyncio.create_task(ahead.stop())
    await asyncio.sleep(0)
    for worker in workers:
        worker.cancel()
    gates[0].set()
    await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
    for _ in range(5):
        await asyncio.sleep(0)
    found = list(ended), stopping.done()
    gates[1].set()  # before anything fails: the end of the event loop waits for its threads
    assert found == ([0], False)
    await stopping
    assert ended == [0, 1]


async def test_where_no_thread_can_be_had_nobody_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    loop, unseen = asyncio.get_running_loop(), []
    monkeypatch.setattr(loop, "run_in_executor", refused)
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    ahead: EncodePool[int] = EncodePool(2, 10**9, lambda _: 1)
    ahead.add((lambda _: [1], 1))
    with pytest.raises(RuntimeError, match="cannot schedule"):
        await ahead.take(1)
    await ahead.stop()
    gc.collect()
    assert not unseen, "the error was told, and is nobody's else"


@pytest.mark.parametrize("then", [1, 2])
async def test_fewer_threads_while_more_are_at_work(then: int) -> None:
    """Those at work are counted until they end: else nobody is seen to be the only one."""
    gate, at_work, most, lock = threading.Event(), 0, 0, threading.Lock()
    all_begun = threading.Barrier(5)

    def held(_: SideBySide) -> list[int]:
        all_begun.wait(60)
        assert gate.wait(60)
        return [1]

    def counted(_: SideBySide) -> list[int]:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        with lock:
            at_work -= 1
        return [2]

    ahead: EncodePool[int] = EncodePool(4, 10**9, lambda _: 1)
    for _ in range(4):
        ahead.add((held, 1))
    await asyncio.to_thread(all_begun.wait, 60)
    ahead.max_threads = then
    ahead.add((counted, 1))
    gate.set()
    async with asyncio.timeout(60):
        assert await _all(ahead, 5) == [1, 1, 1, 1, 2]
        await ahead.join()
    for _ in range(100):
        ahead.add((counted, 1))
        assert ahead._running <= then
    async with asyncio.timeout(60):
        assert await _all(ahead, 100) == [2] * 100
    await ahead.join()
    assert ahead._running == 0 and most <= then


# -- calls that share what they have to do ---------------------------------------------------------


@pytest.mark.parametrize("max_threads", [1, 2, 4])
async def test_what_is_shared_comes_back_in_its_order(max_threads: int) -> None:
    def shared(side_by_side: SideBySide, number: int) -> list[int]:
        return side_by_side([lambda at=at: 10 * number + at for at in range(number)])

    ahead: EncodePool[int] = EncodePool(max_threads, 10**9, lambda _: 1)
    for number in range(1, 9):
        ahead.add((lambda side_by_side, number=number: shared(side_by_side, number), 1))
    assert await _all(ahead, 36) == [10 * number + at for number in range(1, 9) for at in range(number)]
    await ahead.join()
    assert ahead._running == 0 and not ahead._in_pieces


@pytest.mark.parametrize("ended", [EncodePool.join, EncodePool.stop])
async def test_helpers_are_waited_for_as_well(
    monkeypatch: pytest.MonkeyPatch, ended: Callable[[EncodePool[int]], Awaitable[None]]
) -> None:
    """One that is slow to begin finds nothing left to do, and may not be met by whoever comes next."""
    loop, threads = asyncio.get_running_loop(), 0
    run_in_executor = loop.run_in_executor
    begun = asyncio.Event()

    async def slow_to_begin(call: Callable[..., None]) -> None:
        nonlocal threads
        threads += 1
        for _ in range(0 if threads == 1 else 50):
            await asyncio.sleep(0.001)
        await run_in_executor(None, call)

    monkeypatch.setattr(loop, "run_in_executor", lambda _, call: loop.create_task(slow_to_begin(call)))

    def look() -> int:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.001), loop).result(60)
        return 1

    def shared(side_by_side: SideBySide) -> list[int]:
        loop.call_soon_threadsafe(begun.set)
        look()  # by now it is waited for
        return side_by_side([look, look])

    ahead: EncodePool[int] = EncodePool(2, 10**9, lambda _: 1)
    ahead.add((shared, 1))
    await begun.wait()
    await ended(ahead)
    assert threads == 2 and ahead._running == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("max_threads", [1, 2, 5])
async def test_a_call_knows_how_many_threads_have_time_for_it(max_threads: int) -> None:
    """Those that have no calls of their own; none while a call waits for a thread."""
    waiting = threading.Event()

    def counted(side_by_side: SideBySide) -> list[int]:
        waiting.wait(60)
        return [side_by_side.num_threads]

    def last(side_by_side: SideBySide) -> list[int]:
        return [side_by_side.num_threads]

    ahead: EncodePool[int] = EncodePool(max_threads, 10**9, lambda _: 1)
    for _ in range(max_threads):
        ahead.add((counted, 1))
    ahead.add((lambda _: [0], 1))
    assert ahead.num_idle == 0
    waiting.set()
    found = await _all(ahead, max_threads + 1)
    assert found[-1] == 0 and set(found[:-1]) <= set(range(1, max_threads + 1))
    await ahead.join()
    assert ahead.num_idle == max_threads
    ahead.add((last, 1))
    await ahead.join()
    assert await ahead.take(1) == [max_threads]


async def test_threads_that_are_allowed_later_help_as_well() -> None:
    """A thread that was the only one when it began is not for ever."""
    begun, gate, together = threading.Event(), threading.Event(), threading.Barrier(2, timeout=60)

    def first(_: SideBySide) -> list[int]:
        begun.set()
        assert gate.wait(60)
        return [0]

    ahead: EncodePool[int] = EncodePool(1, 10**9, lambda _: 1)
    ahead.add((first, 1))
    assert await asyncio.to_thread(begun.wait, 60)
    ahead.add((lambda side_by_side: side_by_side([together.wait] * 2), 1))
    ahead.max_threads = 2
    gate.set()
    assert sorted(await _all(ahead, 3)) == [0, 0, 1]


@pytest.mark.parametrize("max_threads", [2, 3])
async def test_threads_without_a_call_of_their_own_help(max_threads: int) -> None:
    """Each piece waits for the others: one thread alone would not go on."""
    together = threading.Barrier(max_threads, timeout=60)
    threads: set[int] = set()

    def piece() -> int:
        together.wait()
        threads.add(threading.get_ident())
        return 1

    ahead: EncodePool[int] = EncodePool(max_threads, 10**9, lambda _: 1)
    ahead.add((lambda side_by_side: side_by_side([piece] * (2 * max_threads)), 1))
    assert await ahead.take(10) == [1] * (2 * max_threads)
    assert len(threads) == max_threads


async def test_a_thread_helps_only_when_it_has_no_call_of_its_own() -> None:
    order: list[str] = []
    begun, other = threading.Event(), threading.Event()

    def first(side_by_side: SideBySide) -> list[int]:
        begun.set()
        assert other.wait(60)
        return side_by_side([lambda: order.append("piece") or 1] * 3)

    def named(name: str) -> Callable[[SideBySide], list[int]]:
        def call(_: SideBySide) -> list[int]:
            assert begun.wait(60)
            order.append(name)
            if name == "c":
                other.set()
            return [0]

        return call

    ahead: EncodePool[int] = EncodePool(2, 10**9, lambda _: 1)
    for call in (first, named("a"), named("b"), named("c")):
        ahead.add((call, 1))
    assert await _all(ahead, 6) == [1, 1, 1, 0, 0, 0]
    assert order == ["a", "b", "c", "piece", "piece", "piece"]


@pytest.mark.parametrize("max_threads", [1, 2])
async def test_the_first_piece_that_fails_is_told_when_all_have_ended(max_threads: int) -> None:
    running, begun = 0, []

    def piece(at: int) -> int:
        nonlocal running
        running += 1
        begun.append(at)
        try:
            if at in (3, 5):
                raise ValueError(f"piece {at}")
            return at
        finally:
            running -= 1

    def shared(side_by_side: SideBySide) -> list[int]:
        try:
            return side_by_side([lambda at=at: piece(at) for at in range(1000)])
        finally:
            assert running == 0

    ahead: EncodePool[int] = EncodePool(max_threads, 10**9, lambda _: 1)
    ahead.add((shared, 1))
    with pytest.raises(ValueError, match="piece 3"):
        await ahead.take(1)
    await ahead.stop()
    assert len(begun) < 1000, "pieces were begun long after one had failed"
    assert not ahead._in_pieces
