"""Numbers: the smallest and the largest of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.format.kernels.reference.arrays import require_types


def number_min_max(values: NDArray[Any]) -> tuple[Any, Any, int]:
    """The smallest and the largest of some numbers, of which there is one, and how many are NaN, which are neither."""
    # Both are Python numbers, NaN where there is nothing else; which of two zeros does not matter.
    require_types(values, np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64)
    if not values.size:
        raise ValueError("there are no values to compare")
    if values.dtype.kind != "f":
        return values.min().item(), values.max().item(), 0
    nans = int(np.count_nonzero(np.isnan(values)))
    return float(np.fmin.reduce(values)), float(np.fmax.reduce(values)), nans
