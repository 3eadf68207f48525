"""Dictionaries of numbers, rows and strings, their gather, and room for nulls, against dict and loops."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError

pytestmark = pytest.mark.ways_in_quick(6)

NUMBERS = [np.int32, np.int64, np.float32, np.float64, np.uint64, "datetime64[us]"]


def numbered(keys: list[Any]) -> tuple[list[int], list[int]]:
    """The number of each key in order of first appearance, and where each number appears first."""
    first: dict[Any, int] = {}
    for position, key in enumerate(keys):
        first.setdefault(key, position)
    ranks = {key: rank for rank, key in enumerate(first)}
    return [ranks[key] for key in keys], list(first.values())


def check_numbered(answer: Any, keys: list[Any]) -> None:
    indices, first = answer
    assert indices.dtype == (np.uint8 if len(first) <= 256 else np.uint16 if len(first) <= 65_536 else np.int32)
    assert first.dtype == np.int64
    assert (indices.tolist(), first.tolist()) == numbered(keys)


@pytest.mark.parametrize("dtype", NUMBERS)
@settings(deadline=None, max_examples=50)
@given(
    pool=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8),
    picks=st.lists(st.integers(0, 7), max_size=50),
)
def test_numbers_are_told_apart_by_their_bits(
    kernels: ModuleType, dtype: Any, pool: list[int], picks: list[int]
) -> None:
    size = np.dtype(dtype).itemsize
    bits = np.array([pool[pick % len(pool)] for pick in picks], np.uint64).astype(f"u{size}")
    distinct = len(set(bits.tolist()))
    check_numbered(kernels.dictionary_build(bits.view(dtype), distinct), bits.tolist())
    if distinct:
        assert kernels.dictionary_build(bits.view(dtype), distinct - 1) is None


def test_zeros_and_nans_stay_themselves(kernels: ModuleType) -> None:
    values = np.array([0.0, -0.0, np.nan, -np.nan, np.nan, 0.0])
    check_numbered(kernels.dictionary_build(values, 9), ["+0", "-0", "+nan", "-nan", "+nan", "+0"])


@pytest.mark.parametrize("width", [0, 1, 3, 12, 16, 33])
def test_rows_are_values(kernels: ModuleType, width: int) -> None:
    rows = np.random.default_rng(width).integers(0, 2, (300, width)).astype(np.uint8)
    keys = [row.tobytes() for row in rows]
    check_numbered(kernels.dictionary_build(rows, 300), keys)
    assert kernels.dictionary_build(rows, len(set(keys)) - 1) is None


@pytest.mark.parametrize("count", [510, 511, 512, 513, 2047, 2048, 2049, 20_000])
@pytest.mark.parametrize("step", [1, 1 << 12, 1 << 40, 0x9E37_79B9_7F4A_7C15])
def test_many_numbers(kernels: ModuleType, count: int, step: int) -> None:
    distinct = np.arange(count, dtype=np.uint64) * np.uint64(step)
    values = np.concatenate([distinct, distinct[::-1]])
    check_numbered(kernels.dictionary_build(values, count), values.tolist())
    assert kernels.dictionary_build(values, count - 1) is None


@pytest.mark.parametrize("shift", [0, 16, 32])
def test_numbers_that_differ_in_some_bits_only(kernels: ModuleType, shift: int) -> None:
    values = np.random.default_rng(shift).integers(0, 2**32, 30_000, np.uint64) << np.uint64(shift)
    check_numbered(kernels.dictionary_build(values, 30_000), values.tolist())


def test_many_strings(kernels: ModuleType) -> None:
    values = [b"%d" % (number % 7001) * (number % 7) for number in range(20_000)]
    offsets = np.cumsum([0, *map(len, values)])
    check_numbered(kernels.dictionary_build_byte_arrays(offsets, b"".join(values), 20_000, 2**40), values)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@settings(deadline=None, max_examples=100)
@given(
    pool=st.lists(st.one_of(st.binary(max_size=5), st.binary(max_size=40)), min_size=1, max_size=8),
    picks=st.lists(st.integers(0, 7), max_size=50),
    before=st.binary(max_size=3),
)
def test_strings_are_told_apart(
    kernels: ModuleType, dtype: Any, pool: list[bytes], picks: list[int], before: bytes
) -> None:
    values = [pool[pick % len(pool)] for pick in picks]
    offsets = np.cumsum([len(before), *map(len, values)]).astype(dtype)
    data = before + b"".join(values)
    distinct = set(values)
    size = sum(4 + len(value) for value in distinct)
    check_numbered(kernels.dictionary_build_byte_arrays(offsets, data, len(distinct), size), values)
    if distinct:
        assert kernels.dictionary_build_byte_arrays(offsets, data, len(distinct) - 1, size) is None
        assert kernels.dictionary_build_byte_arrays(offsets, data, len(distinct), size - 1) is None


def test_strings_that_differ_only_at_one_place(kernels: ModuleType) -> None:
    values = [b"x" * at + b"y" + b"x" * (size - at - 1) for size in range(1, 70) for at in range(size)]
    values += [b"\x00" * size for size in range(70)]
    offsets = np.cumsum([0, *map(len, values)])
    check_numbered(kernels.dictionary_build_byte_arrays(offsets, b"".join(values), 10_000, 10**6), values)


def test_a_limit_stops_early(kernels: ModuleType) -> None:
    assert kernels.dictionary_build(np.arange(10), 0) is None
    indices, first = kernels.dictionary_build(np.empty(0), 0)
    assert (indices.size, first.size) == (0, 0)
    assert kernels.dictionary_build_byte_arrays(np.array([0, 0]), b"", 1, 3) is None
    indices, first = kernels.dictionary_build_byte_arrays(np.array([0, 0]), b"", 1, 4)
    assert (indices.tolist(), first.tolist()) == ([0], [0])


@pytest.mark.parametrize("values", [np.zeros(3, np.int16), np.zeros((3, 2), np.int32), np.zeros(6)[::2], np.zeros(())])
def test_other_arrays_are_the_callers_mistake(kernels: ModuleType, values: NDArray[Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        kernels.dictionary_build(values, 9)


GATHERED = [np.bool_, np.uint8, np.float16, np.int32, np.float32, np.int64, np.float64, "datetime64[ns]"]


@pytest.mark.parametrize("dtype", GATHERED)
@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 5000])
def test_gather_copies_numbers(kernels: ModuleType, guarded: Any, dtype: Any, count: int) -> None:
    generator = np.random.default_rng(count)
    raw = np.frombuffer(generator.bytes(99 * np.dtype(dtype).itemsize), np.uint8)
    dictionary = (raw & 1 if dtype is np.bool_ else raw).view(dtype)
    indices = generator.integers(0, 99, count).astype(np.int32)
    with guarded(count, np.uint64 if np.dtype(dtype).kind == "M" else dtype) as out:
        kernels.gather(dictionary, indices, out.view(dtype))
        assert out.tobytes() == b"".join(dictionary[index].tobytes() for index in indices)


@pytest.mark.parametrize("width", [0, 1, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 40])
def test_gather_copies_rows(kernels: ModuleType, guarded: Any, width: int) -> None:
    generator = np.random.default_rng(width)
    dictionary = generator.integers(0, 256, (20, width)).astype(np.uint8)
    indices = generator.integers(0, 20, 100).astype(np.int32)
    with guarded((100, width), np.uint8) as out:
        kernels.gather(dictionary, indices, out)
        assert out.tobytes() == b"".join(dictionary[index].tobytes() for index in indices)


@pytest.mark.parametrize("dictionary", [np.arange(5), np.zeros(0, np.int32), np.zeros((5, 16), np.uint8)])
@pytest.mark.parametrize("index", [-1, 5, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("position", [0, 1500, 2999])
def test_gather_believes_no_index(
    kernels: ModuleType, guarded: Any, dictionary: NDArray[Any], index: int, position: int
) -> None:
    indices = np.zeros(3000, np.int32)
    indices[position] = index
    with guarded(dictionary[:1].size * 3000 or 3000, dictionary.dtype) as out, pytest.raises(EncodingError):
        kernels.gather(dictionary, indices, out.reshape(3000, *dictionary.shape[1:]))


@pytest.mark.parametrize(
    ("dictionary", "out"),
    [
        (np.zeros(4, np.int32), np.zeros(3, np.float32)),
        (np.zeros(4, np.int32), np.zeros(2, np.int32)),
        (np.zeros(4, np.complex128), np.zeros(3, np.complex128)),
        (np.zeros((4, 2), np.uint8), np.zeros((3, 3), np.uint8)),
        (np.zeros((4, 2), np.uint8), np.zeros((3, 4), np.uint8)[:, ::2]),
        (np.zeros((4, 2), np.int32), np.zeros((3, 2), np.int32)),
        (np.zeros(4, np.int32), np.zeros(6, np.int32)[::2]),
        (np.zeros(4, np.int32), np.frombuffer(bytes(12), np.int32)),
    ],
)
def test_gather_into_another_array_is_the_callers_mistake(
    kernels: ModuleType, dictionary: NDArray[Any], out: NDArray[Any]
) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        kernels.gather(dictionary, np.zeros(3, np.int32), out)
    assert not isinstance(raised.value, EncodingError)


@pytest.mark.parametrize("dtype", [*GATHERED, "u1 x 3", "u1 x 5", "u1 x 12", "u1 x 16", "u1 x 17", "u1 x 0"])
@settings(deadline=None, max_examples=40)
@given(present=st.one_of(st.lists(st.booleans(), max_size=70), st.integers(0, 40).map(lambda n: [True] * n)))
def test_spread_makes_room_for_nulls(kernels: ModuleType, guarded: Any, dtype: Any, present: list[bool]) -> None:
    n, count = len(present), sum(present)
    rows = isinstance(dtype, str) and dtype.startswith("u1 x ")
    width = int(dtype[5:]) if rows else np.dtype(dtype).itemsize
    real = [bytes([place % 255 + 1] * width) for place in range(count)]
    if dtype is np.bool_:
        real = [b"\x01"] * count
    waiting = iter(real)
    expected = b"".join(next(waiting) if flag else bytes(width) for flag in present)
    for flags in (np.array(present, np.bool_), np.array([flag * 7 for flag in present], np.uint8)):
        with guarded(n * width, np.uint8) as memory:
            memory[: count * width] = np.frombuffer(b"".join(real), np.uint8)
            kernels.spread(memory.reshape(n, width) if rows else memory.view(dtype), flags)
            assert memory.tobytes() == expected


@pytest.mark.parametrize(
    ("values", "present"),
    [
        (np.zeros(3), np.zeros(2, np.bool_)),
        (np.zeros(3), np.zeros(3, np.int32)),
        (np.zeros(6)[::2], np.zeros(3, np.bool_)),
        (np.zeros(3, np.complex128), np.zeros(3, np.bool_)),
        (np.frombuffer(bytes(24)), np.zeros(3, np.bool_)),
    ],
)
def test_spread_of_other_arrays_is_the_callers_mistake(
    kernels: ModuleType, values: NDArray[Any], present: NDArray[Any]
) -> None:
    with pytest.raises((TypeError, ValueError)):
        kernels.spread(values, present)


def sample_of(keys: list[Any], starts: list[int], run: int, size_of: Any) -> tuple[int, int, int, int, int]:
    """What a sample shows: distinct values summed over its runs, in one run, in two, in any, and their bytes."""
    runs = [set(keys[start : start + run]) for start in starts]
    stands_in = {key: sum(key in run for run in runs) for run in runs for key in run}
    counts = list(stands_in.values())
    return sum(counts), counts.count(1), counts.count(2), len(counts), sum(map(size_of, stands_in))


@settings(deadline=None, max_examples=60)
@given(
    keys=st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"1234567", b"12345678", b"123456789" * 5]), max_size=60),
    places=st.lists(st.integers(0, 59), max_size=5),
    run=st.integers(0, 12),
    dtype=st.sampled_from([np.int32, np.int64]),
)
def test_a_sample_counts_its_distinct_values(
    kernels: ModuleType, keys: list[bytes], places: list[int], run: int, dtype: Any
) -> None:
    starts = [place for place in places if place + run <= len(keys)]
    starts = starts[: len(keys) // run] if run else starts
    offsets = np.cumsum([0, *map(len, keys)]).astype(dtype)
    at = np.array(starts, np.int64)
    found = kernels.distinct_in_runs_byte_arrays(offsets, b"".join(keys), at, run)
    assert found == sample_of(keys, starts, run, len)
    numbers = np.array([len(key) for key in keys], np.int64)
    assert kernels.distinct_in_runs(numbers, at, run) == sample_of(numbers.tolist(), starts, run, lambda key: 8)
    rows = numbers.astype(np.uint8).repeat(5).reshape(-1, 5)
    assert kernels.distinct_in_runs(rows, at, run) == sample_of(numbers.tolist(), starts, run, lambda key: 5)


def test_samples_of_many_values(kernels: ModuleType) -> None:
    values = np.random.default_rng(3).integers(0, 3000, 20_000)
    starts = np.arange(0, 20_000, 2000)
    expected = sample_of(values.tolist(), starts.tolist(), 500, lambda key: 8)
    assert kernels.distinct_in_runs(values, starts, 500) == expected
    assert kernels.distinct_in_runs(values.view(np.float64), starts, 500) == expected


@pytest.mark.parametrize(("starts", "run"), [([-1], 2), ([4], 2), ([0, 1, 2], 2), ([0], -1), ([0], 2**62)])
def test_samples_that_lie_outside(kernels: ModuleType, starts: list[int], run: int) -> None:
    at = np.array(starts, np.int64)
    with pytest.raises(ValueError, match=r"run"):
        kernels.distinct_in_runs(np.arange(5), at, run)
    with pytest.raises(ValueError, match=r"run"):
        kernels.distinct_in_runs_byte_arrays(np.arange(6), b"12345", at, run)


def test_samples_with_offsets_out_of_the_data(kernels: ModuleType) -> None:
    for offsets in ([0, 2, 1], [0, 1, 9], [-1, 1, 2]):
        with pytest.raises(EncodingError):
            kernels.distinct_in_runs_byte_arrays(np.array(offsets), b"12345", np.array([0]), 2)
    assert kernels.distinct_in_runs_byte_arrays(np.array([0, 1, 99]), b"12345", np.array([0]), 1) == (1, 1, 0, 1, 1)
    with pytest.raises(ValueError, match="one offset more"):
        kernels.distinct_in_runs_byte_arrays(np.array([], np.int64), b"", np.array([], np.int64), 0)


@pytest.mark.parametrize("distinct", [255, 256, 257, 65_535, 65_536, 65_537])
def test_indices_are_as_narrow_as_they_can_be(kernels: ModuleType, distinct: int) -> None:
    keys = [*range(5), *range(distinct), 3, distinct - 1]
    check_numbered(kernels.dictionary_build(np.array(keys, np.int32), distinct), keys)
    assert kernels.dictionary_build(np.array(keys, np.int32), distinct - 1) is None
    strings = [b"%x" % key for key in keys]
    offsets = np.cumsum([0, *map(len, strings)])
    check_numbered(kernels.dictionary_build_byte_arrays(offsets, b"".join(strings), distinct, 2**40), strings)
    assert kernels.dictionary_build_byte_arrays(offsets, b"".join(strings), distinct - 1, 2**40) is None


@pytest.mark.parametrize("longest", [7, 8, 9, 15, 16, 17, 31, 32, 33, 70])
def test_strings_that_differ_by_one_byte_or_by_zeros(kernels: ModuleType, longest: int) -> None:
    strings = [b"x" * size for size in range(longest + 1)]
    strings += [b"x" * size + b"\0" * (longest - size) for size in range(longest + 1)]
    strings += [b"x" * at + b"y" + b"x" * (longest - at - 1) for at in range(longest)]
    strings *= 3
    offsets = np.cumsum([0, *map(len, strings)])
    check_numbered(kernels.dictionary_build_byte_arrays(offsets, b"".join(strings), 999, 2**40), strings)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_used_entries_are_marked(kernels: ModuleType, guarded: Any, dtype: Any) -> None:
    indices = np.random.default_rng(5).integers(0, 120, 3000).astype(dtype)
    indices[indices == 7] = 8
    with guarded(121, np.uint8) as marks:
        marks[:] = 0
        kernels.mark_used(indices[:0], marks)
        assert not marks.any()
        kernels.mark_used(indices, marks)
        assert np.flatnonzero(marks).tolist() == sorted(set(indices.tolist()))
    with guarded(119, np.uint8) as marks, pytest.raises(EncodingError):
        kernels.mark_used(indices, marks)
    with pytest.raises(EncodingError):
        kernels.mark_used(np.array([-1], np.int32), np.zeros(9, np.uint8))


def test_an_index_behind_the_end_is_found_when_all_are_marked(kernels: ModuleType) -> None:
    indices = np.arange(5000, dtype=np.uint16) % 9
    marks = np.zeros(9, np.uint8)
    kernels.mark_used(indices, marks)
    assert marks.all()
    indices[-1] = 9
    with pytest.raises(EncodingError):
        kernels.mark_used(indices, marks)


@pytest.mark.parametrize("distinct", [3, 2000, 60_000])
def test_strings_are_the_same_whatever_stands_beside_them(kernels: ModuleType, distinct: int) -> None:
    """A string of each length stands among short ones, among longer ones and among long ones."""
    random = np.random.default_rng(distinct)
    short = [b"%d" % number for number in random.integers(0, distinct, 2 * distinct + 3000)]
    strings = short[:]
    for longest in (b"123456789", b"1" * 17, b"2" * 33, b"3" * 32, b"4" * 16, b"5" * 40):
        strings += [longest, *short[:3000], longest]
    offsets = np.cumsum([0, *map(len, strings)])
    check_numbered(kernels.dictionary_build_byte_arrays(offsets, b"".join(strings), 1 << 20, 2**40), strings)
