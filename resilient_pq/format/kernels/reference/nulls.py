"""Room for nulls among values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.format.kernels.reference.arrays import bits_of


def spread(values: NDArray[Any], present: NDArray[np.bool_] | NDArray[np.uint8]) -> None:
    """Move the first values, in their order, to where `present` is true, and put zeros everywhere else.

    Works in place, to make an array with room for nulls of one that was filled from the front.

    Args:
        values: One-dimensional with items of 1, 2, 4 or 8 bytes, or two-dimensional uint8, a value a row. As
            many at its front as `present` is true are taken.
        present: bool, or uint8 where everything but 0 is true; one per value.
    """
    slots = bits_of(values)
    mask = present.view(np.uint8) != 0
    if mask.shape != slots.shape[:1]:
        raise ValueError("there must be one flag per value")
    kept = slots[: np.count_nonzero(mask)].copy()
    slots[...] = 0
    slots[mask] = kept
