"""The smallest and the largest of rows of bytes, against Python's own comparisons."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 16, 33])
def test_first_smallest_and_largest(kernels: ModuleType, width: int, signed: bool) -> None:
    rng = np.random.default_rng(width)
    for count in (1, 2, 3, 7, 8, 9, 40):
        for digits in (2, 256):  # of two digits many rows are alike, at their beginnings or as a whole
            rows = (rng.integers(0, digits, (count, width)) * (255 // (digits - 1))).astype(np.uint8)
            if count % 2:
                rows[:, : width // 2] = 0x80
            values = [int.from_bytes(row.tobytes(), "big", signed=signed) for row in rows]
            smallest, largest = kernels.row_min_max(rows, signed)
            assert (smallest, largest) == (values.index(min(values)), values.index(max(values)))


def test_a_row_is_needed(kernels: ModuleType) -> None:
    for shape in ((0, 7), (3, 0)):
        with pytest.raises(ValueError, match="at least a byte"):
            kernels.row_min_max(np.zeros(shape, np.uint8), False)
