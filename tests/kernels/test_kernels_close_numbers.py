"""Dictionaries of integers that lie close together, which are found by their distance and not by a hash."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels import reference

INTEGERS = ["i4", "u4", "i8", "u8"]


def assert_same(kernels: ModuleType, values: NDArray[Any], limit: int) -> None:
    found, wanted = kernels.dictionary_build(values, limit), reference.dictionary_build(values, limit)
    assert (found is None) == (wanted is None)
    if found is not None and wanted is not None:
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", INTEGERS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_distance_agrees(kernels: ModuleType, dtype: str, data: st.DataObject) -> None:
    """The reference knows no distances: around the largest that a table has places for, and anywhere in the type."""
    bounds = np.iinfo(dtype)
    low = data.draw(st.integers(int(bounds.min), int(bounds.max)))
    count = data.draw(st.integers(1, 400))
    spread = data.draw(st.sampled_from([0, 1, 255, 2 * count - 1, 2 * count, 2 * count + 1, 10**7]))
    high = min(low + spread, int(bounds.max))
    some = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = some.integers(low, high, count, dtype, endpoint=True)
    values[data.draw(st.integers(0, count - 1))] = high
    values[data.draw(st.integers(0, count - 1))] = low
    distinct = len(np.unique(values))
    for limit in (distinct, distinct - 1, distinct + 1, 0):
        assert_same(kernels, values, limit)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_ends_of_the_type(kernels: ModuleType, dtype: str) -> None:
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    for first in (least, most - 3, 0):
        assert_same(kernels, np.array([first + 3, first, first + 1, first + 3, first], dtype), 9)
    assert_same(kernels, np.array([least, most, least], dtype), 9)


@pytest.mark.parametrize("distinct", [127, 128, 255, 256, 257, 65_535, 65_536, 65_537, 300_000])
def test_many_that_are_close(kernels: ModuleType, distinct: int) -> None:
    values = np.random.default_rng(distinct).permutation(np.arange(distinct)).astype(np.int64) - distinct // 2
    assert_same(kernels, np.concatenate([values, values[::-1]]), distinct)
    assert_same(kernels, values, distinct - 1)


def test_a_column_that_begins_close_and_ends_far_away(kernels: ModuleType) -> None:
    values = np.concatenate([np.arange(5_000), [2**40, -(2**40), 7]])
    assert_same(kernels, values, 6_000)


@pytest.mark.parametrize("width", range(1, 9))
def test_rows_are_numbers_with_a_sign(kernels: ModuleType, width: int) -> None:
    """As decimals are stored, the highest byte first."""
    some = np.random.default_rng(width)
    near = range(-128, 128)
    rows = [int(number).to_bytes(width, "big", signed=True) for number in some.choice(near, 3_000)]
    rows += [bytes([0x80, *bytes(width - 1)]), bytes([0x7F] + [0xFF] * (width - 1)), bytes(width)]
    for keys in (rows, rows[:3_000], rows[:5], rows[-1:], [*rows[-3:], *rows[:7]]):
        values = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), width)
        assert_same(kernels, values, len(set(keys)))
        assert_same(kernels, values, len(set(keys)) - 1)


def test_values_that_change_meanwhile_are_not_written_beside_the_table(
    native: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns them may change them in another thread: here when room for the table is asked for."""
    values = np.arange(100, dtype=np.int64)

    def changing(shape: tuple[int, ...], dtype: Any) -> Any:
        values[0] = 10**9
        return memory_pool.empty(shape, dtype)

    monkeypatch.setattr(sys.modules[native.dictionary_build.__module__], "empty", changing)
    with pytest.raises(EncodingError, match="has changed"):
        native.dictionary_build(values, 100)
