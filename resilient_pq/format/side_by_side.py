"""Calls that do not depend on one another, made in several threads where there are any. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


class SideBySide(Protocol):
    """Makes calls that do not depend on one another, in any order and in several threads."""

    @property
    def num_threads(self) -> int:
        """How many threads would begin them now, the caller's included."""

    def __call__(self, calls: Sequence[Callable[[], T]], /) -> list[T]:
        """The results in the order of the calls, when all have ended."""


class _OneByOne:
    """Makes calls in the caller's thread, one after the other."""

    @property
    def num_threads(self) -> int:
        return 1

    def __call__(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        return [call() for call in calls]


one_by_one: Final[SideBySide] = _OneByOne()
