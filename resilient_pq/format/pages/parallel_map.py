"""Calls that may be made in any order, and in several threads: whoever has threads says how. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class SideBySide(Protocol):
    """Makes calls that do not depend on one another."""

    def __call__(self, calls: Sequence[Callable[[], T]], /) -> list[T]:
        """Their results in their order, when all have ended."""


def one_by_one(calls: Sequence[Callable[[], T]], /) -> list[T]:
    """In the caller's thread, one after the other."""
    return [call() for call in calls]
