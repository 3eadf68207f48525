"""Room for nulls among values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.format.kernels.reference.arrays import bits_of


def spread(values: NDArray[Any], present: NDArray[np.bool_] | NDArray[np.uint8]) -> None:
    """Move the first values, in their order, to where `present` is not 0, and put zeros everywhere else, in place."""
    slots = bits_of(values)
    mask = present.view(np.uint8) != 0
    if mask.shape != slots.shape[:1]:
        raise ValueError("there must be one flag per value")
    kept = slots[: np.count_nonzero(mask)].copy()
    slots[...] = 0
    slots[mask] = kept
