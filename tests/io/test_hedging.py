"""Requests that stall: when a second one is sent, which of them is taken, and what becomes of the other.

Time is made up: a loop that has nothing to do until a later time is at that time at once.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resilient_pq.errors import NotFoundError, ThrottledError, TransientError
from resilient_pq.io import FetchCounters, ObjectInfo, RetryPolicy, S3Store, counting
from resilient_pq.io.transfer.hedging import MOST_BYTES, MOST_HEDGES, FirstByteTimes, Hedging
from resilient_pq.io.transfer.ranged_answer import Answer
from resilient_pq.io.transfer.ranged_get import RangedGetStore
from resilient_pq.io.transfer.request_limiter import RequestLimiter

DATA = bytes(range(256)) * 40

# -- the decision ------------------------------------------------------------------------------------


def test_the_floor_holds_until_enough_is_known() -> None:
    times = FirstByteTimes(1.0)
    for _ in range(19):
        times.record(7.0)
        assert times.patience == 1.0
    times.record(7.0)
    assert times.patience == 7.0


def test_a_quick_store_is_given_the_floor() -> None:
    times = FirstByteTimes(1.0)
    for _ in range(200):
        times.record(0.03)
    assert times.patience == 1.0


@given(st.lists(st.integers(0, 1000), min_size=20, max_size=500), st.integers(0, 300))
@example([*range(1, 21), 500], 7)  # it is above the floor
@example([1] * 20, 7)  # it is the floor
def test_it_is_the_95th_percentile_of_the_last_200(seconds: list[int], floor: int) -> None:
    times = FirstByteTimes(floor)
    for one in seconds:
        times.record(one)
    latest = seconds[-200:]
    found = times.patience
    assert found >= floor
    assert sum(one <= found for one in latest) >= 0.95 * len(latest)
    assert found == floor or (found in latest and sum(one < found for one in latest) < 0.95 * len(latest))


# -- the shell ---------------------------------------------------------------------------------------


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for a time to come, goes there."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout:
            self.skipped += timeout
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _Selector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.skipped

    def stand_still(self, seconds: float) -> None:
        """Do nothing else meanwhile."""
        self._skipping.skipped += seconds


def run(work: Coroutine[Any, Any, Any]) -> Any:
    failed: list[dict[str, Any]] = []  # what is raised where nobody awaits it
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: failed.append(context))
        result = runner.run(work)
    assert not failed
    return result


class Requests:
    """Requests whose answers come when the script says, and what became of them."""

    def __init__(self, *script: tuple[float, str | Exception], floor: float | None = 1.0, most: int = 64) -> None:
        self.script = list(script)  # Of each request, after how many seconds which answer comes: a name, or an error
        self.sent: list[float] = []
        self.ended: list[str] = []  # Those that were cancelled, and the answers that were dropped
        self.limiter = RequestLimiter(most)
        self.hedging = Hedging[str](floor, lambda: self.limiter, lambda answer: self.ended.append(f"dropped {answer}"))

    async def send(self) -> str:
        number = len(self.sent)
        self.sent.append(asyncio.get_running_loop().time())
        seconds, answer = self.script[min(number, len(self.script) - 1)]
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.ended.append(f"cancelled {number}")
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask(self, size: int = 100) -> tuple[str, float]:
        """As the store does: within a turn; the answer, and when it came."""
        async with self.limiter.turn():
            answer = await self.hedging.answer(self.send, size=size, name="a")
        assert len(asyncio.all_tasks()) == 1, "nothing is left running"
        return answer, asyncio.get_running_loop().time()


def test_a_request_that_is_answered_in_time() -> None:
    requests = Requests((0.9, "first"))
    assert run(requests.ask()) == ("first", pytest.approx(0.9))
    assert (requests.sent, requests.ended) == ([0], [])


def test_a_request_that_stalls() -> None:
    requests = Requests((60, "first"), (0.03, "second"))
    with counting(FetchCounters()) as counters:
        assert run(requests.ask()) == ("second", pytest.approx(1.03))
    assert (requests.sent, requests.ended) == ([0, pytest.approx(1)], ["cancelled 0"])
    assert (counters.hedged, counters.requests, counters.retries) == (1, 0, 0)


def test_the_first_may_still_be_the_first() -> None:
    requests = Requests((1.5, "first"), (5, "second"))
    assert run(requests.ask()) == ("first", pytest.approx(1.5))
    assert requests.ended == ["cancelled 1"]


def test_both_answer_at_once() -> None:
    """One is taken, and the other let go of."""
    requests = Requests((2, "first"), (1, "second"))
    assert run(requests.ask())[0] == "first"
    assert requests.ended == ["dropped second"]


def test_no_more_than_two() -> None:
    requests = Requests((60, "first"), (60, "second"))
    assert run(requests.ask()) == ("first", pytest.approx(60))
    assert len(requests.sent) == 2


def test_none_is_sent_for_time_in_which_the_loop_stood_still() -> None:
    """The answer may have come long ago: nobody could see it."""
    requests = Requests((0.5, "first"), (0, "second"))

    async def ask() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SkippingLoop)
        loop.call_later(0.2, loop.stand_still, 30.0)
        return await requests.ask()

    assert run(ask())[0] == "first"
    assert len(requests.sent) == 1


@pytest.mark.parametrize("given", [{"floor": None}, {"most": 1}])
def test_none_is_sent(given: dict[str, Any]) -> None:
    requests = Requests((60, "first"), (0, "second"), **given)
    assert run(requests.ask())[0] == "first"


def test_none_is_sent_for_many_bytes() -> None:
    requests = Requests((60, "first"), (0, "second"))
    assert run(requests.ask(MOST_BYTES + 1))[0] == "first"
    assert run(Requests((60, "first"), (0, "second")).ask(MOST_BYTES))[0] == "second"


def test_none_is_sent_to_a_store_that_throttles() -> None:
    requests = Requests((60, "first"), (0, "second"))

    async def throttled_before() -> str:
        with pytest.raises(ThrottledError):
            async with requests.limiter.turn():
                raise ThrottledError("slow down")
        return (await requests.ask())[0]

    assert run(throttled_before()) == "first"


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        ((2, TransientError("1")), (3, "second"), ("second", 4)),
        ((60, "first"), (3, TransientError("2")), ("first", 60)),
        ((2, TransientError("1")), (3, TransientError("2")), "1"),
        ((60, "first"), (3, NotFoundError("gone")), "gone"),
        ((2, NotFoundError("gone")), (3, "second"), "gone"),
        ((0.5, TransientError("1")), (0, "never sent"), "1"),
    ],
)
def test_errors(first: Any, second: Any, answer: Any) -> None:
    """What asking again may mend is no answer while the other may have one; everything else is."""
    requests = Requests(first, second)
    if isinstance(answer, str):
        with pytest.raises(OSError, match=answer):
            run(requests.ask())
    else:
        assert run(requests.ask()) == (answer[0], pytest.approx(answer[1]))


def test_not_more_than_so_many_at_one_time() -> None:
    requests = Requests((60, "late"))

    async def ask_all() -> None:
        async def ask() -> None:
            async with requests.limiter.turn():
                await requests.hedging.answer(requests.send, size=1, name="a")

        await asyncio.gather(*(ask() for _ in range(40)))

    run(ask_all())
    assert len(requests.sent) == 40 + MOST_HEDGES


def test_a_store_that_is_slow_as_a_whole_is_waited_for() -> None:
    """Once it is known how slow it is, nothing is sent twice."""
    requests = Requests(*((3 - number / 1000, "slow") for number in range(100)))

    async def ask_often() -> list[int]:
        found = []
        for _ in range(50):
            await requests.ask()
            found.append(len(requests.sent))
        return found

    sent = run(ask_often())
    assert sent[19] == 40
    assert sent[49] - sent[19] == 30


@pytest.mark.parametrize("seconds", [0.5, 1.5])
def test_a_reader_that_is_cancelled(seconds: float) -> None:
    requests = Requests((60, "first"), (60, "second"))

    async def ask_and_leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(requests.ask(), seconds)
        assert len(asyncio.all_tasks()) == 1

    run(ask_and_leave())
    assert sorted(requests.ended) == [f"cancelled {number}" for number in range(len(requests.sent))]
    assert len(requests.sent) == (1 if seconds < 1 else 2)


# -- in a store --------------------------------------------------------------------------------------


class StallingBody:
    def __init__(self, data: bytes, seconds: float) -> None:
        self.data, self.seconds, self.closed = data, seconds, False

    async def read(self, size: int) -> bytes:
        await asyncio.sleep(self.seconds)
        self.seconds = 0.0
        data, self.data = self.data[:size], self.data[size:]
        return data

    def close(self) -> None:
        self.closed = True


class StallingStore(RangedGetStore):
    """Answers to GETs come after so many seconds, their bodies after so many more; then nothing stalls."""

    def __init__(self, *stalls: tuple[float, float]) -> None:
        super().__init__(RetryPolicy(attempts=1))
        self.stalls = list(stalls)
        self.asked: list[tuple[str, str | None]] = []
        self.bodies: list[StallingBody] = []

    name = "stalling"
    capabilities = None  # type: ignore[assignment]

    def url_of(self, key: str) -> str:
        return key

    async def _get(self, key: str, byte_range: str, *, pin: ObjectInfo | None) -> Answer:
        self.asked.append((byte_range, pin and pin.etag))
        before, within = self.stalls.pop(0) if self.stalls else (0.01, 0.01)
        await asyncio.sleep(before)
        begin, _, last = byte_range.removeprefix("bytes=").partition("-")
        start, end = (int(begin), int(last) + 1) if begin else (len(DATA) - int(last), len(DATA))
        self.bodies.append(StallingBody(DATA[start:end], within))
        said = f"bytes {start}-{end - 1}/{len(DATA)}"
        return Answer(self.bodies[-1], 206, said, end - start, "v1")

    async def _head(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, len(DATA), "v1")

    async def close(self) -> None:
        return


Read = Callable[[StallingStore], Coroutine[Any, Any, Any]]


@pytest.mark.parametrize("stall", [(60, 0), (0, 60)], ids=["before the head", "before the body"])
def test_a_stalled_read_is_sent_again_pinned_alike(stall: tuple[float, float]) -> None:
    store = StallingStore(stall)

    async def read() -> float:
        data = await store.read_range("a", 5, 500, pin=ObjectInfo("a", len(DATA), "v1"))
        assert bytes(data) == DATA[5:500]
        return asyncio.get_running_loop().time()

    with counting(FetchCounters()) as counters:
        assert run(read()) == pytest.approx(1.02)
    assert store.asked == [("bytes=5-499", "v1")] * 2
    assert all(body.closed for body in store.bodies)
    assert (counters.hedged, counters.retries) == (1, 0)


def test_a_stalled_opening_is_sent_again() -> None:
    store = StallingStore((60, 0))

    async def read() -> float:
        tail = await store.read_tail("a", 100)
        assert bytes(tail.data) == DATA[-100:]
        return asyncio.get_running_loop().time()

    assert run(read()) == pytest.approx(1.02)
    assert store.asked == [("bytes=-100", None)] * 2


async def test_a_request_to_s3_that_hangs(moto_proxy: Any) -> None:
    """The one that is given up is closed, and nothing of it disturbs the requests that follow."""
    s3, proxy = moto_proxy
    policy = RetryPolicy(attempts=1, hedge_after=0.05)
    async with S3Store(s3.storage_options, retry=policy) as store:
        key = f"{s3.bucket}/hedged"
        await store.put(key, DATA)
        info = await store.head(key)
        for fault in ({"hang": True}, {"hang_reply": True}):
            proxy.requests.clear()
            proxy.on("GET", **fault)
            with counting(FetchCounters()) as counters:
                assert bytes(await store.read_range(key, 5, 500, pin=info)) == DATA[5:500]
            assert counters.hedged == 1
            sent = [(request.headers["range"], request.headers["if-match"]) for request in proxy.requests]
            assert sent == [("bytes=5-499", info.etag)] * 2
            await asyncio.to_thread(proxy.wait_until_idle)
            assert proxy.num_in_flight == 0
        found = await asyncio.gather(*(store.read_range(key, at, at + 9, pin=info) for at in range(50)))
        assert [bytes(data) for data in found] == [DATA[at : at + 9] for at in range(50)]
