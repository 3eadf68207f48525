"""Levels become validity and offsets: as a walk over the entries finds them, one by one."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from resilient_pq.format.kernels import reference


def levels(*of_entries: int) -> np.ndarray:
    return np.array(of_entries, np.uint8)


def walked(definition: np.ndarray, repetition: np.ndarray, depth: int, slot_level: int, level: int) -> Any:
    """Validity and offsets, entry by entry."""
    valid, offsets, elements = [], [], 0
    for there, list_of in zip(definition.tolist(), repetition.tolist(), strict=True):
        if list_of <= depth and there >= slot_level:
            valid.append(there >= level)
            offsets.append(elements)
        elements += list_of <= depth + 1 and there >= level
    return valid, [*offsets, elements]


def test_rows_of_lists(kernels: ModuleType) -> None:
    # [1, None], null, [], [2]: an optional list (1) with elements (2) that may be null (3)
    definition, repetition = levels(3, 2, 0, 1, 3), levels(0, 1, 0, 0, 0)
    assert kernels.slot_validity(definition, repetition, 0, 0, 1).tolist() == [True, False, True, True]
    offsets = kernels.list_offsets(definition, repetition, 0, 0, 2)
    assert offsets.tolist() == [0, 2, 2, 2, 3] and offsets.dtype == np.int32
    assert kernels.slot_validity(definition, repetition, 1, 2, 3).tolist() == [True, False, True]


def test_no_entries(kernels: ModuleType) -> None:
    assert kernels.slot_validity(levels(), levels(), 0, 0, 1).tolist() == []
    assert kernels.list_offsets(levels(), levels(), 0, 0, 1).tolist() == [0]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_levels_are(kernels: ModuleType, seed: int) -> None:
    """Also those that no rows could have."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 200))
    definition, repetition = (random.integers(0, 6, count).astype(np.uint8) for _ in range(2))
    if seed % 3 == 0:
        definition[:] = random.choice([0, 255])
    for depth, slot_level, level in [(0, 0, 1), (1, 2, 3), (2, 4, 5), (4, 0, 0), (255, 0, 255)]:
        arguments = (definition, repetition, depth, slot_level, level)
        valid, offsets = walked(*arguments)
        found = kernels.slot_validity(*arguments)
        assert found.dtype == np.bool_ and found.tolist() == valid
        assert kernels.list_offsets(*arguments).tolist() == offsets


@pytest.mark.parametrize("name", ["slot_validity", "list_offsets"])
def test_levels_that_do_not_belong_together_are_refused(kernels: ModuleType, name: str) -> None:
    kernel = getattr(kernels, name)
    with pytest.raises(ValueError, match="as many"):
        kernel(levels(1, 2), levels(0), 0, 0, 1)
    for wrong in (np.zeros(2, np.int32), np.zeros((2, 1), np.uint8), np.zeros(4, np.uint8)[::2]):
        with pytest.raises((TypeError, ValueError)):
            kernel(wrong, levels(0, 0), 0, 0, 1)
        with pytest.raises((TypeError, ValueError)):
            kernel(levels(0, 0), wrong, 0, 0, 1)


def test_both_agree_on_many_entries(kernels: ModuleType) -> None:
    random = np.random.default_rng(5)
    definition, repetition = (random.integers(0, 4, 50_000).astype(np.uint8) for _ in range(2))
    for name in ("slot_validity", "list_offsets"):
        arguments = (definition, repetition, 1, 1, 3)
        ours, theirs = getattr(kernels, name)(*arguments), getattr(reference, name)(*arguments)
        assert ours.dtype == theirs.dtype and (ours == theirs).all()


@pytest.mark.parametrize("count", [0, 1, 254, 255, 256, 3000])
def test_entries_at_which_rows_begin(kernels: ModuleType, count: int) -> None:
    repetition = np.random.default_rng(count).integers(0, 3, count).astype(np.uint8)
    starts = [at for at, level in enumerate(repetition.tolist()) if level == 0]
    rows = sorted({0, 1, 83, 84, len(starts) // 2, len(starts) - 1, len(starts), len(starts) + 9} - {-1})
    found = kernels.row_entries(repetition, np.array([*rows, rows[-1]], np.int64))
    assert found.dtype == np.int64
    assert found.tolist() == [starts[row] if row < len(starts) else count for row in [*rows, rows[-1]]]
    for wrong in ([1, 0], [-1]):
        with pytest.raises(ValueError, match="not in order"):
            kernels.row_entries(repetition, np.array(wrong, np.int64))


@pytest.mark.parametrize("count", [0, 1, 254, 255, 256, 3000])
def test_levels_are_counted(kernels: ModuleType, count: int) -> None:
    some = np.random.default_rng(count).integers(0, 5, count).astype(np.uint8)
    for maximum in (1, 4, 6):
        assert kernels.level_counts(some, maximum) == tuple(some.tolist().count(level) for level in range(maximum + 1))
    assert kernels.level_counts(np.full(count, 255, np.uint8), 255)[255] == count
