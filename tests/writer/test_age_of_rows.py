"""The ages of rows that are not stored, and when storing them has to begin: by simulation, on a clock of their own."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.writer.unstored import MiB, Unstored


class Times:
    """A clock that is set, and the ages that it makes."""

    def __init__(self, bound: float = 30.0) -> None:
        self.now = 0.0
        self.unstored = Unstored(bound, lambda: self.now)


@given(
    steps=st.lists(st.tuples(st.floats(0, 7), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=80),
    bound=st.floats(0.5, 100),
)
def test_the_oldest_is_known(steps: list[tuple[float, int, int]], bound: float) -> None:
    """To a 64th of the bound, and never taken for younger than it is."""
    times = Times(bound)
    taken: list[float] = []
    stored = 0
    for seconds, more, of_them in steps:
        times.now += seconds
        if more:
            times.unstored.take(len(taken))
            taken += [times.now] * more
        stored = min(len(taken), stored + of_them)
        times.unstored.stored(stored, len(taken))
        oldest = times.unstored.oldest
        if stored == len(taken):
            assert oldest is None and times.unstored.due_at is None
            continue
        assert oldest is not None and times.unstored.due_at is not None
        assert taken[stored] - bound / 64 <= oldest <= taken[stored]
        assert oldest < times.unstored.due_at < oldest + bound
        for row in range(stored, len(taken)):
            at = times.unstored.taken_at(row)
            assert at is not None and taken[row] - bound / 64 <= at <= taken[row]


def test_it_begins_earlier_where_storing_takes_longer() -> None:
    times = Times(30.0)
    times.unstored.take(0)
    assert times.unstored.due_at == 30 - 3 - 3, "nothing is known: a fifteenth, and half as much again"
    times.unstored.took(0.2, MiB)
    assert times.unstored.due_at == pytest.approx(30 - 3 - 0.3)
    times.unstored.took(4.0, MiB)
    assert times.unstored.due_at == pytest.approx(30 - 3 - 6)
    times.unstored.took(400.0, MiB)
    assert times.unstored.due_at == 15, "no earlier than after half of the bound"
    for _ in range(5):
        times.unstored.took(0.2, MiB)
    assert times.unstored.due_at == pytest.approx(30 - 3 - 0.3), "an outage is forgotten"


class Line:
    """A store to which bytes go at a rate, one after the other."""

    def __init__(self, rate: float, bound: float) -> None:
        self.now = 0.0
        self.rate = rate
        self.held = 0.0
        self.waiting: deque[tuple[float, float]] = deque()  # bytes, and when they were accepted
        self.unstored = Unstored(bound, lambda: self.now)
        self.ages: list[tuple[float, float]] = []

    def accept(self, num_bytes: float) -> None:
        self.waiting.append((num_bytes, self.now))
        self.held += num_bytes

    def store_all(self) -> None:
        """Wait until all of it is there; nothing is accepted meanwhile."""
        held, begun = self.held, self.now
        while self.waiting:
            num_bytes, accepted = self.waiting.popleft()
            self.now += num_bytes / self.rate
            self.ages.append((self.now, self.now - accepted))
        self.held = 0
        self.unstored.took(self.now - begun + 0.05, int(held))


@pytest.mark.parametrize("rate", [0.3, 1, 5, 50, 500])
def test_a_source_that_is_faster_than_the_network_waits_for_it(rate: float) -> None:
    """What is accepted is no more than what the network carries in time, as soon as that was measured once."""
    line, rng = Line(rate * MiB, 30.0), random.Random(1)
    stores = 0
    for _ in range(20_000):
        line.now += 0.001
        line.accept(rng.uniform(0.1, 1) * MiB)
        if line.unstored.too_many(int(line.held)) or line.held > 70 * MiB:
            line.store_all()
            stores += 1
    late = [at for at, age in line.ages if age > 30]
    assert all(at < 30 / rate + 70 / rate for at in late), "only what was accepted before"
    assert rate < 5 or not late
    assert max(age for at, age in line.ages if at > 300 / rate) < 20


def test_an_outage_does_not_make_small_steps_for_ever() -> None:
    times = Times(30.0)
    times.unstored.took(120.0, 5 * MiB)
    assert times.unstored.too_many(MiB + 1)
    times.unstored.took(0.1, MiB)
    assert not times.unstored.too_many(60 * MiB)
