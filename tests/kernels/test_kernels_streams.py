"""Rows of bytes to streams and back, against Python's own slices."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

WIDTHS = [1, 2, 3, 4, 5, 8, 12, 16]
COUNTS = [0, 1, 7, 8, 9, 16, 23, 64, 1001]


def _rows(count: int, width: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([count, width]).integers(0, 256, (count, width), np.uint8)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", COUNTS)
def test_rows_become_streams(kernels: ModuleType, guarded: Any, count: int, width: int) -> None:
    rows = _rows(count, width)
    with guarded((width, count), np.uint8) as out:
        kernels.split_streams(rows, out)
        assert out.tobytes() == b"".join(rows.tobytes()[byte::width] for byte in range(width))


@pytest.mark.parametrize("more", [0, 1, 8])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", COUNTS)
def test_streams_become_rows(kernels: ModuleType, guarded: Any, count: int, width: int, more: int) -> None:
    rows = _rows(count + more, width)
    streams = np.frombuffer(b"".join(rows.tobytes()[byte::width] for byte in range(width)), np.uint8)
    with guarded((count, width), np.uint8) as out:
        kernels.join_streams(streams.reshape(width, count + more), out)
        assert out.tobytes() == rows[:count].tobytes()


def test_other_shapes_are_refused(kernels: ModuleType) -> None:
    def empty(*shape: int) -> np.ndarray[Any, Any]:
        return np.empty(shape, np.uint8)

    for rows, out in [((8, 4), (4, 7)), ((8, 4), (4, 9)), ((8, 4), (3, 8)), ((8, 4), (8, 4)), ((0, 4), (0, 4))]:
        with pytest.raises(ValueError, match="a stream for each byte"):
            kernels.split_streams(empty(*rows), empty(*out))
    for streams, out in [((4, 7), (8, 4)), ((3, 8), (8, 4)), ((5, 8), (8, 4))]:
        with pytest.raises(ValueError, match="a stream for each byte"):
            kernels.join_streams(empty(*streams), empty(*out))
