"""Retries on a clock that is ours: when, how long, and when no more."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest
from faulty_store import Fault, FaultyStore
from hypothesis import given
from hypothesis import strategies as st
from store_wrapper import RecordingStore

from resilient_pq.errors import (
    AccessDeniedError,
    NotFoundError,
    ObjectChangedError,
    StoreError,
    ThrottledError,
    TransientError,
)
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.io.transfer.attempts import Attempts
from resilient_pq.io.transfer.request_limiter import RequestLimiter
from resilient_pq.io.transfer.retry import READING, WRITING, RetryPolicy, retry_after, retrying


class Clock:
    """Time that passes only by sleeping, and by what an attempt takes."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def delay(policy: RetryPolicy, error: BaseException, failures: int = 1, elapsed: float = 0.0) -> float | None:
    return policy.next_delay(error, failures=failures, elapsed=elapsed, rng=lambda: 1.0)


def test_delays_double_up_to_the_longest() -> None:
    found = [delay(RetryPolicy(), TransientError("x"), failures) for failures in range(1, 9)]
    assert found == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert delay(RetryPolicy(), TransientError("x"), failures=10**5) == 5.0


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 50))
def test_jitter_is_full(draw: float, failures: int) -> None:
    policy = RetryPolicy()
    found = policy.next_delay(TransientError("x"), failures=failures, elapsed=0, rng=lambda: draw)
    longest = delay(policy, TransientError("x"), failures)
    assert found is not None
    assert longest is not None
    assert found == pytest.approx(draw * longest)


@pytest.mark.parametrize(
    "error",
    [
        AccessDeniedError("403"),
        NotFoundError("404"),
        ObjectChangedError("412"),
        StoreError("400"),
        ValueError("bug"),
    ],
)
def test_what_asking_again_cannot_change_is_final(error: BaseException) -> None:
    assert delay(RetryPolicy(), error) is None


def test_the_wish_of_the_store_is_kept() -> None:
    assert delay(RetryPolicy(), ThrottledError("slow down", retry_after=7.0)) == 7.0
    assert delay(RetryPolicy(), ThrottledError("slow down", retry_after=0.0)) == 0.1
    assert delay(RetryPolicy(), ThrottledError("slow down")) == 0.1


def test_a_wish_beyond_the_time_is_final() -> None:
    assert delay(RetryPolicy(seconds=60), ThrottledError("slow down", retry_after=61.0)) is None
    assert delay(RetryPolicy(seconds=60), ThrottledError("slow down", retry_after=60.0)) == 60


def test_the_last_attempt_begins_when_the_time_is_over() -> None:
    policy = RetryPolicy(seconds=60)
    assert delay(policy, TransientError("x"), failures=50, elapsed=59.0) == 1.0
    assert delay(policy, TransientError("x"), failures=50, elapsed=60.0) is None


def test_attempts_are_a_limit_beside_the_time() -> None:
    policy = RetryPolicy(attempts=3)
    assert delay(policy, TransientError("x"), failures=2) is not None
    assert delay(policy, TransientError("x"), failures=3) is None
    assert policy.next_delay(TransientError("x"), failures=1, attempts=3, elapsed=0, rng=lambda: 1.0) is None
    assert delay(RetryPolicy(seconds=0), TransientError("x")) is None


@pytest.mark.parametrize(
    "setting",
    [
        {"attempts": 0},
        {"base_delay": -1},
        {"max_delay": -1},
        {"seconds": -1},
        {"seconds": float("nan")},
        {"hedge_after": -1},
    ],
)
def test_policies_that_cannot_be_meant(setting: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"attempts|time or delay"):
        RetryPolicy(**setting)


async def test_faults_pass_and_the_read_succeeds() -> None:
    store = FaultyStore(MemoryStore())
    info = await store.put("a", b"0123456789")
    store.faults = [Fault("read_range", times=3)]
    recording, clock, told = RecordingStore(store), Clock(), []
    data = await retrying(
        lambda: recording.read_range("a", 2, 5, pin=info),
        on_retry=lambda error, delay: told.append((type(error), delay)),
        sleep=clock.sleep,
        clock=clock,
        rng=lambda: 0.5,
    )
    assert bytes(data) == b"234"
    assert recording.count("read_range") == 4
    assert clock.slept == [0.05, 0.1, 0.2]
    assert told == [(TransientError, 0.05), (TransientError, 0.1), (TransientError, 0.2)]


@pytest.mark.parametrize("seconds", [2.0, 6.0, 20.0, 29.9, 119.0])
@given(draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=1))
def test_an_outage_shorter_than_the_time_is_survived(seconds: float, draws: list[float]) -> None:
    """Whatever is drawn: no number of attempts ends before the time does."""
    policy = READING if seconds < READING.seconds else WRITING
    clock, drawn = Clock(), itertools.cycle(draws)

    async def ask() -> float:
        clock.now += 0.001
        if clock.now < seconds:
            raise TransientError("connection refused")
        return clock.now

    answered = asyncio.run(retrying(ask, policy, sleep=clock.sleep, clock=clock, rng=lambda: max(next(drawn), 0.01)))
    assert seconds <= answered < seconds + policy.max_delay + 0.1


@pytest.mark.parametrize("policy", [READING, WRITING])
async def test_it_gives_up_when_the_time_is_over(policy: RetryPolicy) -> None:
    store = RecordingStore(FaultyStore(MemoryStore(), [Fault("head", times=1000)]))
    clock = Clock()
    with pytest.raises(TransientError) as caught:
        await retrying(lambda: store.head("a"), policy, sleep=clock.sleep, clock=clock, rng=lambda: 1.0)
    assert clock.now == policy.seconds
    count = store.count("head")
    assert caught.value.__notes__ == [f"gave up after {count} attempts in {policy.seconds:.1f} s"]


async def test_no_attempt_begins_after_the_time() -> None:
    clock = Clock()
    begun: list[float] = []

    async def slow() -> None:
        begun.append(clock.now)
        clock.now += 25  # what the attempt itself takes
        raise TransientError("no answer")

    with pytest.raises(TransientError):
        await retrying(slow, RetryPolicy(seconds=60), sleep=clock.sleep, clock=clock, rng=lambda: 0.0)
    assert begun == [0, 25, 50]


async def test_what_makes_progress_is_not_given_up() -> None:
    """A body that breaks off again and again, but never in the same place."""
    clock = Clock()
    received = 0

    async def cut() -> str:
        nonlocal received
        clock.now += 8
        if clock.now > 400:
            return "whole"
        received += clock.now < 300
        raise TransientError("cut short")

    policy = RetryPolicy(seconds=30)
    with pytest.raises(TransientError, match="cut short"):
        await retrying(cut, policy, progress=lambda: received, sleep=clock.sleep, clock=clock, rng=lambda: 1.0)
    assert 320 < clock.now < 350, "the time begins anew with the last bytes"
    assert max(clock.slept[:30]) == policy.base_delay, "and so do the waits"


async def test_a_final_error_is_raised_at_once() -> None:
    clock = Clock()
    with pytest.raises(NotFoundError):
        await retrying(lambda: MemoryStore().head("none"), sleep=clock.sleep, clock=clock)
    assert clock.slept == []


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("2", 2.0),
        ("0.5", 0.5),
        ("-3", None),
        ("inf", None),
        ("nan", None),
        ("Wed", None),
    ],
)
def test_retry_after_header(header: str | None, seconds: float | None) -> None:
    assert retry_after(header) == seconds


# -- what the log says ---------------------------------------------------------------------------


class Failing:
    """Operations of a store that fails until a time."""

    def __init__(self, until: float) -> None:
        self.clock = Clock()
        self.until = until
        limiter = RequestLimiter(1)
        self.attempts = Attempts(
            RetryPolicy(seconds=60), lambda: limiter, lambda: "S3", clock=self.clock, sleep=self.clock.sleep
        )

    async def ask(self) -> float:
        async def answer() -> float:
            self.clock.now += 0.01
            if self.clock.now < self.until:
                raise TransientError("connection refused")
            return self.clock.now

        return await self.attempts.of(answer)


async def test_an_outage_is_told_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "resilient_pq.io")
    store = Failing(until=20.0)
    for _ in range(3):
        await store.ask()
    began, ended = [record.getMessage() for record in caplog.records]
    assert began.startswith("S3: no request has succeeded for ")
    assert began.endswith("trying again, each for up to 60 s: connection refused")
    assert ended.startswith("S3: answers again, after 2")


async def test_nothing_is_told_of_a_failure_that_passes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "resilient_pq.io")
    await Failing(until=0.05).ask()
    assert not caplog.records


async def test_a_definite_refusal_ends_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "resilient_pq.io")
    store = Failing(until=20.0)

    async def refuse() -> None:
        store.clock.now += 0.01
        if store.clock.now < store.until:
            raise TransientError("connection refused")
        raise NotFoundError("no such object")

    with pytest.raises(NotFoundError):
        await store.attempts.of(refuse)
    assert "answers again" in caplog.records[-1].getMessage()


async def test_waiting_for_a_turn_is_no_time_of_the_operation() -> None:
    """Where many requests wait for each other, each has the whole time for itself."""
    clock = Clock()
    limiter = RequestLimiter(1)
    attempts = Attempts(RetryPolicy(seconds=30), lambda: limiter, lambda: "S3", clock=clock, sleep=clock.sleep)
    tried = 0

    async def fail_once() -> str:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise TransientError("reset")
        return "done"

    async with limiter.turn():
        waiting = asyncio.ensure_future(attempts.of(fail_once))
        await asyncio.sleep(0)
        clock.now += 1000
    assert await waiting == "done"
