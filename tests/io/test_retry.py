"""Retries on a clock that is ours: when, how long, and when no more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.errors import (
    AccessDeniedError,
    NotFoundError,
    ObjectChangedError,
    StoreError,
    ThrottledError,
    TransientError,
)
from resilient_pq.io.memory import MemoryStore
from resilient_pq.io.retry import RetryPolicy, retry_after, retrying
from resilient_pq.io.testing import Fault, FaultyStore, RecordingStore


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
    policy = RetryPolicy(attempts=100)
    found = [delay(policy, TransientError("x"), failures) for failures in range(1, 9)]
    assert found == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert delay(RetryPolicy(attempts=10**6), TransientError("x"), failures=10**5) == 5.0


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 50))
def test_jitter_is_full(draw: float, failures: int) -> None:
    policy = RetryPolicy(attempts=100)
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


def test_a_wish_beyond_the_deadline_is_final() -> None:
    assert delay(RetryPolicy(deadline=60), ThrottledError("slow down", retry_after=61.0)) is None
    assert delay(RetryPolicy(deadline=60), TransientError("x"), elapsed=59.95) is None


@pytest.mark.parametrize(
    "setting",
    [{"attempts": 0}, {"base_delay": -1}, {"max_delay": -1}, {"deadline": -1}, {"hedge_after": -1}],
)
def test_policies_that_cannot_be_meant(setting: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"attempts|delay"):
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


async def test_it_gives_up_after_the_last_attempt() -> None:
    store = RecordingStore(FaultyStore(MemoryStore(), [Fault("head", times=100)]))
    clock = Clock()
    with pytest.raises(TransientError) as caught:
        await retrying(lambda: store.head("a"), sleep=clock.sleep, clock=clock, rng=lambda: 1.0)
    assert store.count("head") == 6
    assert caught.value.__notes__ == ["gave up after 6 attempts in 3.1 s"]


async def test_no_attempt_begins_after_the_deadline() -> None:
    clock = Clock()
    begun: list[float] = []

    async def slow() -> None:
        begun.append(clock.now)
        clock.now += 25  # what the attempt itself takes
        raise TransientError("no answer")

    with pytest.raises(TransientError):
        await retrying(slow, RetryPolicy(attempts=100), sleep=clock.sleep, clock=clock, rng=lambda: 0.0)
    assert begun == [0, 25, 50]


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
