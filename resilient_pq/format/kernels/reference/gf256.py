"""Sums of products in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), of whole arrays."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL: Final = 0x11D


def _products() -> NDArray[np.uint8]:
    """The product of each two elements: a table of 256 rows of 256."""
    powers = [1]
    while len(powers) < 255:
        doubled = powers[-1] << 1
        powers.append(doubled ^ POLYNOMIAL if doubled > 0xFF else doubled)
    logarithms = np.zeros(256, np.int64)
    logarithms[powers] = np.arange(255)
    table: NDArray[np.uint8] = np.array(powers, np.uint8)[(logarithms[:, None] + logarithms) % 255]
    table[0] = table[:, 0] = 0
    return table


PRODUCTS: Final = _products()  # ``PRODUCTS[a, b]`` is a times b


def gf256_accumulate(
    factors: NDArray[np.uint8], sources: NDArray[np.uint8], out: NDArray[np.uint8], offset: int
) -> None:
    """Add to each row of `out`, from column `offset` on, the sum of the sources, each times its factor for that row."""
    # `factors` has a row for each row of `out`, and a column for each source, a row of `sources`.
    if factors.shape != (len(out), len(sources)):
        raise ValueError("there must be a row of factors for each sum, and a factor in it for each source")
    width = sources.shape[1]
    if not 0 <= offset <= out.shape[1] - width:
        raise ValueError("the sources must lie within the sums")
    for row, of_row in zip(out, factors, strict=True):
        for source, factor in zip(sources, of_row, strict=True):
            row[offset : offset + width] ^= PRODUCTS[factor, source]
