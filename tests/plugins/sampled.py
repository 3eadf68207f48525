"""How many examples a test tries: a few in the quick suite, many in the thorough one."""

from __future__ import annotations

import pytest


def sampled(quick: int, thorough: int) -> pytest.MarkDecorator:
    """The argument `count` of a test, in either suite."""
    many = pytest.param(thorough, marks=[pytest.mark.thorough, pytest.mark.timeout(600)])
    return pytest.mark.parametrize("count", [quick, many])
