"""Unscaled integers of decimals between Arrow's rows and Parquet's, against Python's own integers."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

WIDTHS = [1, 3, 4, 7, 8, 9, 12, 15, 16, 17, 23, 24, 31, 32, 33, 40]


def edges(width: int) -> list[int]:
    """Integers of at most `width` bytes, at and beside the limits of all the widths."""
    limits = [1 << (8 * at - 1) for at in range(1, width + 1)]
    near = {sign * limit + step for limit in limits for sign in (-1, 1) for step in (-1, 0, 1)}
    largest = limits[-1]
    return sorted(value for value in near | {0, 1, -1} if -largest <= value < largest)


def rows_of(values: list[int], width: int, order: Any) -> NDArray[np.uint8]:
    joined = b"".join(value.to_bytes(width, order, signed=True) for value in values)
    return np.frombuffer(joined, np.uint8).reshape(len(values), width)


def fits(value: int, width: int) -> bool:
    return -(1 << (8 * width - 1)) <= value < 1 << (8 * width - 1)


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("width", WIDTHS)
def test_widen_rows(kernels: ModuleType, guarded: Any, width: int, size: int) -> None:
    values = [value for value in edges(width) if fits(value, size)]
    for some in (values, values[:1], values[-2:], []):
        with guarded((len(some), size), np.uint8) as out:
            assert kernels.decimals_widen(rows_of(some, width, "big"), out)
            assert out.tobytes() == rows_of(some, size, "little").tobytes()


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("width", [17, 24, 33, 40])
def test_widen_refuses_what_does_not_fit(kernels: ModuleType, width: int, size: int) -> None:
    wrong = [value for value in edges(width) if not fits(value, size)]
    assert wrong or width <= size
    for value in wrong:
        rows = rows_of([1, value, -1], width, "big")
        assert not kernels.decimals_widen(rows, np.empty((3, size), np.uint8))


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_widen_integers(kernels: ModuleType, guarded: Any, dtype: type, size: int) -> None:
    values = edges(np.dtype(dtype).itemsize)
    with guarded((len(values), size), np.uint8) as out:
        assert kernels.decimals_widen(np.array(values, dtype), out)
        assert out.tobytes() == rows_of(values, size, "little").tobytes()


def test_rows_without_bytes_are_zeros(kernels: ModuleType) -> None:
    out = np.full((3, 16), 7, np.uint8)
    assert kernels.decimals_widen(np.empty((3, 0), np.uint8), out)
    assert not out.any()


@pytest.mark.parametrize("size", [4, 8, 16, 32])
@pytest.mark.parametrize("width", WIDTHS)
def test_narrow_rows(kernels: ModuleType, guarded: Any, width: int, size: int) -> None:
    values = [value for value in edges(size) if fits(value, width)]
    for some in (values, values[:1], values[-2:], []):
        with guarded((len(some), width), np.uint8) as out:
            assert kernels.decimals_narrow(rows_of(some, size, "little"), out) == -1
            assert out.tobytes() == rows_of(some, width, "big").tobytes()


@pytest.mark.parametrize("size", [4, 8, 16, 32])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_narrow_integers(kernels: ModuleType, guarded: Any, dtype: type, size: int) -> None:
    values = [value for value in edges(size) if fits(value, np.dtype(dtype).itemsize)]
    with guarded(len(values), dtype) as out:
        assert kernels.decimals_narrow(rows_of(values, size, "little"), out) == -1
        assert out.tolist() == values


@pytest.mark.parametrize("size", [4, 8, 16, 32])
@pytest.mark.parametrize("width", WIDTHS)
def test_narrow_names_the_first_that_does_not_fit(kernels: ModuleType, width: int, size: int) -> None:
    wrong = [value for value in edges(size) if not fits(value, width)]
    assert wrong or size <= width
    for value in wrong:
        rows = rows_of([0, -1, value, 1, value], size, "little")
        assert kernels.decimals_narrow(rows, np.empty((5, width), np.uint8)) == 2
        if width in (4, 8):
            assert kernels.decimals_narrow(rows, np.empty(5, f"i{width}")) == 2


def test_mistakes_of_the_caller(kernels: ModuleType) -> None:
    rows = np.zeros((2, 16), np.uint8)
    for values, out, message in [
        (rows, np.zeros((3, 16), np.uint8), "one row per value"),
        (rows, np.zeros((2, 8), np.uint8), "16 or 32"),
        (np.zeros(2, np.int16), rows, "int32 or int64"),
        (np.zeros(2, np.float64), rows, "int32 or int64"),
    ]:
        with pytest.raises(ValueError, match=message):
            kernels.decimals_widen(values, out)
    for source, to, message in [
        (rows, np.zeros((3, 4), np.uint8), "one place"),
        (rows, np.zeros((2, 0), np.uint8), "one place"),
        (rows, np.zeros(2, np.uint32), "int32 or int64"),
        (rows[:, :5].copy(), np.zeros((2, 4), np.uint8), "4, 8, 16 or 32"),
    ]:
        with pytest.raises(ValueError, match=message):
            kernels.decimals_narrow(source, to)
