"""Sums of products in GF(2^8) against polynomials that are multiplied and divided bit by bit."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

#: Sums, sources, bytes of a source, bytes of a sum, and where the source is added.
SHAPES = [(1, 1, 1, 5, 2), (3, 5, 64, 64, 0), (10, 20, 2113, 4096, 7), (32, 224, 131, 200, 69), (5, 9, 63, 63, 0),
          (4, 8, 2048, 2048, 0), (2, 3, 0, 4, 4), (6, 17, 4224, 4300, 11)]  # fmt: skip


def product(a: int, b: int) -> int:
    """The product of two polynomials of bits, and its rest after x^8 + x^4 + x^3 + x^2 + 1."""
    total = 0
    for bit in range(8):
        total ^= a << bit if b >> bit & 1 else 0
    for bit in range(14, 7, -1):
        total ^= 0x11D << bit - 8 if total >> bit & 1 else 0
    return total


PRODUCTS = np.array([[product(a, b) for b in range(256)] for a in range(256)], np.uint8)


def drawn(shape: tuple[int, int, int, int, int]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    sums, sources, width, size, _ = shape
    draw = np.random.default_rng(list(shape))
    return tuple(draw.integers(0, 256, each, np.uint8) for each in [(sums, sources), (sources, width), (sums, size)])


def expected(
    factors: NDArray[np.uint8], sources: NDArray[np.uint8], out: NDArray[np.uint8], offset: int
) -> NDArray[np.uint8]:
    sums = out.copy()
    for row, of_row in zip(sums, factors, strict=True):
        products = [PRODUCTS[factor, source] for factor, source in zip(of_row, sources, strict=True)]
        row[offset : offset + sources.shape[1]] ^= np.bitwise_xor.reduce(products, axis=0)
    return sums


@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_added(kernels: ModuleType, guarded: Any, shape: tuple[int, int, int, int, int]) -> None:
    factors, sources, begun = drawn(shape)
    with guarded(begun.shape, np.uint8) as out:
        out[:] = begun
        kernels.gf256_accumulate(factors, sources, out, shape[-1])
        assert np.array_equal(out, expected(factors, sources, begun, shape[-1]))


@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_the_same_without_gfni(native: ModuleType, shape: tuple[int, int, int, int, int]) -> None:
    factors, sources, begun = drawn(shape)
    out = begun.copy()
    native._use_gfni(False)
    try:
        native.gf256_accumulate(factors, sources, out, shape[-1])
    finally:
        native._use_gfni(True)
    assert np.array_equal(out, expected(factors, sources, begun, shape[-1]))


def test_every_factor_times_every_byte(kernels: ModuleType) -> None:
    out = np.zeros((256, 256), np.uint8)
    kernels.gf256_accumulate(np.arange(256, dtype=np.uint8)[:, None], np.arange(256, dtype=np.uint8)[None], out, 0)
    assert np.array_equal(out, PRODUCTS)


@pytest.mark.parametrize(
    ("factors", "sources", "out", "offset"),
    [
        ((2, 3), (4, 8), (2, 8), 0),
        ((3, 4), (4, 8), (2, 8), 0),
        ((2, 4), (4, 8), (2, 8), 1),
        ((2, 4), (4, 8), (2, 8), -1),
        ((2, 4), (4, 8), (2, 7), 0),
        ((2, 4), (4, 0), (2, 8), 9),
        ((2, 4), (4, 8), (2, 8), 2**62),
    ],
)
def test_other_shapes_are_refused(
    kernels: ModuleType, factors: tuple[int, int], sources: tuple[int, int], out: tuple[int, int], offset: int
) -> None:
    arrays = [np.zeros(shape, np.uint8) for shape in (factors, sources, out)]
    with pytest.raises(ValueError, match=r"factor|within"):
        kernels.gf256_accumulate(*arrays, offset)
