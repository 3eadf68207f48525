"""The smallest and the largest of numbers, against Python's own comparisons."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

TYPES = ("<i4", "<u4", "<i8", "<u8", "<f4", "<f8")
#: On both sides of what is compared side by side, and of where NumPy's loops take over.
COUNTS = (1, 2, 31, 32, 33, 63, 64, 65, 1000, 16_383, 16_384, 16_385)


def random_numbers(rng: np.random.Generator, kind: str, count: int) -> NDArray[Any]:
    """Any bits there are, but those of NaN."""
    dtype = np.dtype(kind)
    numbers = rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
    return np.where(np.isnan(numbers), dtype.type(0), numbers)


@pytest.mark.parametrize("kind", TYPES)
def test_smallest_and_largest(kernels: ModuleType, kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    for count in COUNTS:
        values = random_numbers(rng, kind, count)
        numbers = values.tolist()
        found = kernels.number_min_max(values)
        assert found == (min(numbers), max(numbers), 0)
        assert type(found[0]) is type(found[1]) is type(numbers[0])


@pytest.mark.parametrize("kind", TYPES)
def test_wherever_they_stand(kernels: ModuleType, kind: str) -> None:
    for count in (1, 33, 70):
        for at in range(count):
            values = np.full(count, 7, kind)
            values[at] = 3
            assert kernels.number_min_max(values) == (3, 7 if count > 1 else 3, 0)
            values[at] = 9
            assert kernels.number_min_max(values) == (7 if count > 1 else 9, 9, 0)


@pytest.mark.parametrize("kind", ["<f4", "<f8"])
def test_nans_are_counted_and_left_out(kernels: ModuleType, kind: str) -> None:
    rng = np.random.default_rng(7)
    for count in COUNTS[1:]:
        values = random_numbers(rng, kind, count)
        for nans in (rng.random(count) < 0.5, np.arange(count) < count - 1, np.arange(count) > 0):
            mixed = np.where(nans, np.float32(math.nan), values).astype(kind)
            low, high, found = kernels.number_min_max(mixed)
            left = values[~nans].tolist()
            assert found == np.count_nonzero(nans)
            if left:
                assert (low, high) == (min(left), max(left))
            else:
                assert math.isnan(low)
                assert math.isnan(high)


@pytest.mark.parametrize("kind", ["<f4", "<f8"])
def test_nothing_but_nan_and_infinity(kernels: ModuleType, kind: str) -> None:
    for count in (1, 40, 20_000):
        low, high, nans = kernels.number_min_max(np.full(count, math.nan, kind))
        assert math.isnan(low)
        assert math.isnan(high)
        assert nans == count
    infinite = np.array([math.nan, math.inf, -math.inf, math.nan], kind)
    assert kernels.number_min_max(infinite) == (-math.inf, math.inf, 2)


def test_what_is_refused(kernels: ModuleType) -> None:
    with pytest.raises(ValueError, match="no values"):
        kernels.number_min_max(np.zeros(0))
    wrong = [np.zeros(3, np.int16), np.zeros(3, np.bool_), np.zeros(3, "M8[s]"), np.zeros((2, 2)), np.zeros(6)[::2]]
    for values in wrong:
        with pytest.raises(ValueError, match=r"dimension|contiguous|numbers"):
            kernels.number_min_max(values)
