"""Rows that were taken and are not stored yet: how old they are, and when storing them has to begin. Pure.

Times are those of the clock that it is given. Threads may share it: one takes rows, the other looks at their age.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

#: Before anything was measured, a store is taken to need this part of the bound for what waits: one fifteenth.
_FIRST_LEAD: Final = 15
#: Times that storing took of which the longest is expected again.
_REMEMBERED: Final = 5
#: What is kept free besides, of the bound: one tenth.
_SLACK: Final = 10
#: Ages are known to this part of the bound, so that few moments have to be remembered: one sixty-fourth.
_GRAIN: Final = 64


class Unstored:
    """The rows of one file that are not stored.

    Attributes:
        bound: Seconds that a row may wait for being stored.
        clock: Tells the seconds.
    """

    def __init__(self, bound: float, clock: Callable[[], float]) -> None:
        """Know of no rows yet."""
        self.bound = bound
        self.clock = clock
        self._lock = threading.Lock()
        # A row, and when it was taken: with those behind it, or before.
        self._marks: deque[tuple[int, float]] = deque()
        self._took: deque[float] = deque(maxlen=_REMEMBERED)

    def take(self, num_rows: int) -> None:
        """Rows are about to be taken; `num_rows` were before."""
        now = self.clock()
        with self._lock:
            if not self._marks or now - self._marks[-1][1] >= self.bound / _GRAIN:
                self._marks.append((num_rows, now))

    def stored(self, num_rows: int, num_rows_taken: int) -> None:
        """The first `num_rows` of those taken are stored. No rows may be taken meanwhile."""
        with self._lock:
            while len(self._marks) > 1 and self._marks[1][0] <= num_rows:
                self._marks.popleft()
            if num_rows >= num_rows_taken:
                self._marks.clear()

    def taken_at(self, row: int) -> float | None:
        """When a row was taken that is not stored, or a little earlier; None where there is none."""
        with self._lock:
            known = [time for first, time in self._marks if first <= row]
            return known[-1] if known else None

    @property
    def oldest(self) -> float | None:
        """When the oldest of them was taken, or a little earlier; None where all are stored."""
        with self._lock:
            return self._marks[0][1] if self._marks else None

    @property
    def lead(self) -> float:
        """Seconds before the bound at which storing has to begin: half as much again as it took lately."""
        expected = max(self._took, default=self.bound / _FIRST_LEAD)
        return min(1.5 * expected + self.bound / _SLACK, self.bound / 2)

    @property
    def due_at(self) -> float | None:
        """When storing the oldest has to begin; None where all are stored."""
        oldest = self.oldest
        return None if oldest is None else oldest + self.bound - self.lead

    def took(self, seconds: float) -> None:
        """What waited was stored in so many seconds."""
        self._took.append(seconds)
