"""Tables of native kernels grow in the midst of their loops: what comes of memory that cannot be had then."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from resilient_pq import memory_pool
from resilient_pq.format.kernels import reference

#: Values that stand in their slots, in their entries, in the rests of these, and nowhere but where they came from.
WIDTHS = (4, 8, 12, 20, 40)


def _values(width: int) -> np.ndarray:
    rng = np.random.default_rng(width)
    if width in (4, 8):
        return rng.integers(0, 2**30, 20_000).astype(f"i{width}")
    return rng.integers(0, 256, (20_000, width), dtype=np.uint8)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_dictionary_without_memory(native: ModuleType, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Whichever array is refused; and what is given has anything in it."""
    values, calls, refused = _values(width), 0, -1

    def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == refused:
            raise MemoryError
        array = memory_pool.empty(shape, dtype)
        array.view(np.uint8)[...] = 0xA5
        return array

    monkeypatch.setattr(sys.modules[native.dictionary_build.__module__], "empty", empty)
    found = native.dictionary_build(values, 1 << 20)
    expected = reference.dictionary_build(values, 1 << 20)
    assert expected is not None
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)
    needed = calls
    assert needed > 10, "it grew"
    for at in range(1, needed + 1):
        calls, refused = 0, at
        with pytest.raises(MemoryError):
            native.dictionary_build(values, 1 << 20)


def _unaligned(array: np.ndarray) -> np.ndarray:
    """The same values at an odd address, as buffers that another process sent may lie."""
    room = np.zeros(array.nbytes + 1, np.uint8)
    moved = room[1:].view(array.dtype)
    moved[...] = array
    return moved


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8", "f4", "f8"])
def test_arrays_that_are_not_aligned(native: ModuleType, dtype: str) -> None:
    values = np.random.default_rng(3).integers(0, 1000, 2_000).astype(dtype)
    moved = _unaligned(values)
    assert not moved.flags.aligned
    assert native.number_min_max(moved) == native.number_min_max(values)
    if dtype[0] in "iu":
        found, expected = native.dictionary_build(moved, 1 << 20), native.dictionary_build(values, 1 << 20)
        assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))
