"""The ages of rows that are not stored, and when storing them has to begin: by simulation, on a clock of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.writer.unstored_deadline import UnstoredRows


class Times:
    """A clock that is set, and the ages that it makes."""

    def __init__(self, bound: float = 30.0) -> None:
        self.now = 0.0
        self.unstored = UnstoredRows(bound, lambda: self.now)


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
    times.unstored.took(0.2)
    assert times.unstored.due_at == pytest.approx(30 - 3 - 0.3)
    times.unstored.took(4.0)
    assert times.unstored.due_at == pytest.approx(30 - 3 - 6)
    times.unstored.took(400.0)
    assert times.unstored.due_at == 15, "no earlier than after half of the bound"
    for _ in range(5):
        times.unstored.took(0.2)
    assert times.unstored.due_at == pytest.approx(30 - 3 - 0.3), "an outage is forgotten"
