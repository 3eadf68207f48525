"""Values that share a prefix with the one before, against `zip` and slices."""

from __future__ import annotations

from itertools import pairwise, takewhile
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels import reference

pytestmark = pytest.mark.ways_in_quick(6)

alike = st.lists(st.sampled_from([b"", b"a", b"b", b"ab" * 5, b"\x00", bytes(40)]), max_size=6).map(b"".join)
strings = st.lists(st.one_of(alike, st.binary(max_size=70)), max_size=20)
offset_types = pytest.mark.parametrize("dtype", [np.int32, np.int64])
LARGEST = 2**31 - 1


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


def arrow(values: list[bytes], dtype: type[Any], before: bytes = b"") -> tuple[np.ndarray[Any, Any], bytes]:
    """Offsets and data as Arrow keeps them, sliced so that the first value does not start at 0."""
    ends = np.cumsum([len(before), *map(len, values)])
    return ends.astype(dtype), before + b"".join(values)


def shared(values: list[bytes]) -> list[int]:
    pairs = (takewhile(lambda pair: pair[0] == pair[1], zip(*two, strict=False)) for two in pairwise(values))
    return [0, *(len(list(equal)) for equal in pairs)][: len(values)]


@offset_types
@settings(deadline=None, max_examples=150)
@given(values=strings, before=alike, behind=alike)
def test_shared_prefixes_are_the_longest(
    kernels: ModuleType, dtype: type[Any], values: list[bytes], before: bytes, behind: bytes
) -> None:
    offsets, data = arrow(values, dtype, before)
    found = kernels.shared_prefixes(offsets, data + behind)
    assert found.dtype == np.int32
    assert found.tolist() == shared(values)


@pytest.mark.parametrize("length", [*range(20), 31, 32, 33, 64, 1000])
def test_a_difference_in_any_byte(kernels: ModuleType, length: int) -> None:
    value = bytes(range(length % 256)) * (1 + length // 255)
    others = [value[:at] + bytes([value[at] ^ 0x80]) + value[at + 1 :] for at in range(min(len(value), 70))]
    for at, other in enumerate(others):
        assert kernels.shared_prefixes(*arrow([value, other], np.int32)).tolist() == [0, at]
    assert kernels.shared_prefixes(*arrow([value, value], np.int64)).tolist() == [0, len(value)]


@offset_types
@pytest.mark.parametrize("offsets", [[], [0, 7], [-1, 3], [0, 4, 3], [0, 7, 6], [0, -1, 3], [7]])
def test_offsets_must_rise_within_the_data(kernels: ModuleType, dtype: type[Any], offsets: list[int]) -> None:
    with pytest.raises(EncodingError):
        kernels.shared_prefixes(np.array(offsets, dtype), b"abcdef")


@settings(deadline=None, max_examples=150)
@given(values=strings, previous=alike, tail=alike, data=st.data())
def test_joins_what_was_split(
    kernels: ModuleType,
    guarded: Any,
    *,
    values: list[bytes],
    previous: bytes,
    tail: bytes,
    data: st.DataObject,
) -> None:
    longest = shared([previous, *values])[1:]
    chosen = [data.draw(st.integers(0, most)) for most in longest]  # any prefix that is shared will do
    suffixes = [value[prefix:] for value, prefix in zip(values, chosen, strict=True)]
    with guarded(len(values), np.int32) as lengths:
        sizes = ints(*map(len, suffixes))
        joined = kernels.join_prefixes(ints(*chosen), sizes, b"".join(suffixes) + tail, lengths, previous)
        assert joined.dtype == np.uint8
        assert joined.tobytes() == b"".join(values)
        assert lengths.tolist() == list(map(len, values))


def test_nothing_is_nothing(kernels: ModuleType) -> None:
    assert kernels.shared_prefixes(np.zeros(1, np.int64), b"").size == 0
    assert kernels.shared_prefixes(np.array([3, 5], np.int32), b"abcde").tolist() == [0]
    assert kernels.join_prefixes(ints(), ints(), b"", ints()).size == 0
    assert kernels.join_prefixes(ints(0, 0), ints(0, 0), b"", ints(9, 9)).size == 0


@pytest.mark.parametrize(
    ("prefixes", "sizes"),
    [
        ([1], [1]),  # nothing stands before the first value
        ([0, 3], [2, 1]),
        ([0, 2, 3], [2, 0, 1]),
        ([0, -1], [2, 1]),
        ([-1], [1]),
        ([0, 1], [2, -1]),
        ([0, 1], [3, -2]),
        ([0], [7]),
        ([0, 0], [3, 4]),
        ([0, 0], [LARGEST, LARGEST]),
        ([LARGEST], [LARGEST]),
        ([-(2**31)], [-(2**31)]),
        ([0, 5], [LARGEST, 0]),
        ([0, -(2**31)], [6, 0]),
    ],
)
def test_no_number_is_believed(kernels: ModuleType, guarded: Any, prefixes: list[int], sizes: list[int]) -> None:
    with guarded(len(prefixes), np.int32) as lengths, pytest.raises(EncodingError):
        kernels.join_prefixes(ints(*prefixes), ints(*sizes), b"abcdef", lengths)


def test_values_that_grow_without_end(kernels: ModuleType) -> None:
    # A hundred thousand values that each add a byte are 5 GB together, of 100 kB.
    count = 100_000
    prefixes, sizes = np.arange(count, dtype=np.int32), np.ones(count, np.int32)
    with pytest.raises(EncodingError, match=r"2\*\*31"):
        kernels.join_prefixes(prefixes, sizes, bytes(count), np.empty(count, np.int32))
    few = 1000
    joined = kernels.join_prefixes(prefixes[:few], sizes[:few], bytes(range(250)) * 4, np.empty(few, np.int32))
    assert joined.size == few * (few + 1) // 2
    assert joined[-few:].tobytes() == bytes(range(250)) * 4


@pytest.mark.parametrize(
    "arguments",
    [
        (ints(0), ints(1, 1), b"ab", ints(0)),
        (ints(0, 0), ints(1, 1), b"ab", ints(0)),
        (np.zeros(1, np.int64), ints(1), b"ab", ints(0)),
        (ints(0), ints(1), np.zeros(4, np.uint8)[::2], ints(0)),
        (ints(0), ints(1), "ab", ints(0)),
    ],
)
def test_wrong_arrays_are_the_callers_mistake(kernels: ModuleType, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        kernels.join_prefixes(*arguments)
    assert not isinstance(raised.value, EncodingError)


numbers = st.lists(st.tuples(st.integers(-1, 9), st.integers(-1, 9)), max_size=8)


@settings(deadline=None, max_examples=300)
@given(pairs=numbers, data=alike, previous=alike, offsets=st.lists(st.integers(-2, 12), max_size=6))
def test_garbage_is_met_in_agreement(
    native: ModuleType,
    outcome: Any,
    guarded: Any,
    *,
    pairs: list[tuple[int, int]],
    data: bytes,
    previous: bytes,
    offsets: list[int],
) -> None:
    prefixes, sizes = (ints(*column) for column in (list(zip(*pairs, strict=True)) or [(), ()]))

    def joined(kernels: ModuleType) -> Any:
        with guarded(len(pairs), np.int32) as lengths:
            return kernels.join_prefixes(prefixes, sizes, data, lengths, previous), lengths.copy()

    assert outcome(lambda: joined(native)) == outcome(lambda: joined(reference))
    for dtype in (np.int32, np.int64):
        some = np.array(offsets, dtype)
        own = outcome(lambda some=some: native.shared_prefixes(some, data))
        assert own == outcome(lambda some=some: reference.shared_prefixes(some, data))
