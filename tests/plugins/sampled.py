"""What a test tries in the quick suite, and what in the thorough one."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., Any])
#: The count of a test that tries all that there is.
ALL = 1 << 40


def either(quick: Iterable[Any], thorough: Iterable[Any], seconds: float = 600) -> list[Any]:
    """Values for `parametrize`: those of the quick suite, and those of the thorough one, which may take so long."""
    marks = [pytest.mark.thorough, pytest.mark.timeout(seconds)]
    many = [pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=marks) for each in thorough]
    return [*quick, *many]


def sampled(quick: int, thorough: int, seconds: float = 600) -> pytest.MarkDecorator:
    """The argument `count` of a test, in either suite."""
    return pytest.mark.parametrize("count", either([quick], [thorough], seconds))


def in_both_suites(test: Test) -> Test:
    """A property of which the quick suite draws few examples, and the thorough one many."""
    marked: Test = pytest.mark.parametrize("suite", either(["quick"], ["thorough"], 1800), indirect=True)(test)
    return pytest.mark.usefixtures("suite")(marked)


@pytest.fixture
def suite() -> None:
    """Which of the suites a property is drawn for: the profile of hypothesis says how often."""


def seeded(*parts: object) -> random.Random:
    """What draws the same for the same parts, in every process."""
    return random.Random(zlib.crc32(repr(parts).encode()))
