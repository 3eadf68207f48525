"""What a test tries in the quick suite, and what in the thorough one."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from typing import Any

import pytest


def either(quick: Iterable[Any], thorough: Iterable[Any], seconds: float = 600) -> list[Any]:
    """Values for `parametrize`: those of the quick suite, and those of the thorough one, which may take so long."""
    marks = [pytest.mark.thorough, pytest.mark.timeout(seconds)]
    many = [pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=marks) for each in thorough]
    return [*quick, *many]


def sampled(quick: int, thorough: int) -> pytest.MarkDecorator:
    """The argument `count` of a test, in either suite."""
    return pytest.mark.parametrize("count", either([quick], [thorough]))


def seeded(*parts: object) -> random.Random:
    """What draws the same for the same parts, in every process."""
    return random.Random(zlib.crc32(repr(parts).encode()))
