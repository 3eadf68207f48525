"""PLAIN byte arrays, gathers of them and their order, against `struct`, slices and `sorted`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels import reference

pytestmark = pytest.mark.ways_in_quick(6)

short = st.binary(max_size=12)
strings = st.lists(st.one_of(short, short, st.binary(min_size=28, max_size=70)), max_size=20)
offset_types = pytest.mark.parametrize("dtype", [np.int32, np.int64])


def plain(values: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def arrow(values: list[bytes], dtype: type[Any], before: bytes = b"") -> tuple[np.ndarray[Any, Any], bytes]:
    """Offsets and data as Arrow keeps them, sliced so that the first value does not start at 0."""
    ends = np.cumsum([len(before), *map(len, values)])
    return ends.astype(dtype), before + b"".join(values)


@settings(deadline=None, max_examples=150)
@given(values=strings, tail=short)
def test_lengths_are_found(kernels: ModuleType, guarded: Any, values: list[bytes], tail: bytes) -> None:
    encoded = plain(values)
    with guarded(len(values), np.int32) as lengths:
        total = kernels.byte_array_lengths(encoded + tail, lengths)
        assert lengths.tolist() == list(map(len, values))
        assert total == sum(map(len, values))


@offset_types
@settings(deadline=None, max_examples=100)
@given(values=strings, before=short, behind=short)
def test_join_encodes_the_values(
    kernels: ModuleType, guarded: Any, dtype: type[Any], values: list[bytes], before: bytes, behind: bytes
) -> None:
    offsets, data = arrow(values, dtype, before)
    with guarded(len(plain(values)), np.uint8) as out:
        kernels.byte_array_join(offsets, data + behind, out)
        assert out.tobytes() == plain(values)


@offset_types
@pytest.mark.parametrize("size", [0, 12, 14])
def test_join_fills_its_output(kernels: ModuleType, guarded: Any, dtype: type[Any], size: int) -> None:
    offsets, data = arrow([b"abc", b"de"], dtype, b"")
    with guarded(size, np.uint8) as out, pytest.raises(EncodingError):
        kernels.byte_array_join(offsets, data, out)


pieces = st.sampled_from([b"", b"\x00", b"a", b"a\x00", b"\xff", b"abcdefgh"])
near = st.lists(pieces, max_size=4).map(b"".join)


@offset_types
@settings(deadline=None, max_examples=200)
@given(values=st.lists(st.one_of(short, near), min_size=1, max_size=20), before=short)
def test_min_max_are_the_ends_of_the_order(
    kernels: ModuleType, dtype: type[Any], values: list[bytes], before: bytes
) -> None:
    smallest, largest = kernels.byte_array_min_max(*arrow(values, dtype, before))
    ordered = sorted(values)
    assert smallest == values.index(ordered[0])
    assert largest == values.index(ordered[-1])


def test_min_max_of_nothing(kernels: ModuleType) -> None:
    with pytest.raises(ValueError, match="no values") as raised:
        kernels.byte_array_min_max(np.zeros(1, np.int32), b"abc")
    assert not isinstance(raised.value, EncodingError)


def test_nothing_is_nothing(kernels: ModuleType) -> None:
    none, no_bytes = np.empty(0, np.int32), np.empty(0, np.uint8)
    assert kernels.byte_array_lengths(b"", none) == 0
    kernels.byte_array_join(np.zeros(1, np.int64), b"", no_bytes)
    assert kernels.chosen_size(np.zeros(1, np.int32), none) == 0
    assert kernels.chosen_size(np.zeros(0, np.int32), none) == 0
    assert kernels.copy_chosen_byte_arrays(np.zeros(1, np.int64), b"", none, no_bytes, 0) == 0


@pytest.mark.parametrize(
    ("encoded", "count"),
    [
        (b"", 1),
        (b"\x00\x00\x00", 1),
        (b"\x01\x00\x00\x00", 1),
        (plain([b"abc", b"de"])[:-1], 2),
        (plain([b"abc", b"de"]), 3),
        (struct.pack("<I", 2**31) + b"x" * 40, 1),
        (struct.pack("<I", 2**32 - 1) + b"x" * 40, 1),
        (struct.pack("<I", 2**32 - 4) + b"x" * 40, 2),
    ],
)
def test_values_must_end_within_the_buffer(kernels: ModuleType, guarded: Any, encoded: bytes, count: int) -> None:
    with guarded(count, np.int32) as lengths, pytest.raises(EncodingError):
        kernels.byte_array_lengths(encoded, lengths)


def joined(kernels: ModuleType, offsets: NDArray[Any], data: bytes) -> NDArray[np.uint8]:
    """What `byte_array_join` makes, in as much room as the offsets ask for."""
    num_bytes = int(offsets[-1]) - int(offsets[0]) if len(offsets) else 0
    out = np.zeros(min(max(num_bytes + 4 * max(len(offsets) - 1, 0), 0), 1000), np.uint8)
    kernels.byte_array_join(offsets, data, out)
    return out


TAKES_OFFSETS_AND_DATA: list[Callable[..., Any]] = [
    joined,
    lambda kernels, offsets, data: kernels.byte_array_min_max(offsets, data),
    lambda kernels, offsets, data: kernels.dictionary_build_byte_arrays(offsets, data, 9, 999),
]


@offset_types
@pytest.mark.parametrize("call", TAKES_OFFSETS_AND_DATA)
@pytest.mark.parametrize("offsets", [[], [0, 7], [-1, 3], [0, 4, 3], [0, 7, 6], [2, 1], [0, -1, 3], [7]])
def test_offsets_must_rise_within_the_data(
    kernels: ModuleType, dtype: type[Any], call: Callable[..., Any], offsets: list[int]
) -> None:
    with pytest.raises(EncodingError):
        call(kernels, np.array(offsets, dtype), b"abcdef")


@pytest.mark.parametrize("call", TAKES_OFFSETS_AND_DATA)
@pytest.mark.parametrize("offsets", [[0, 2**40], [-(2**63), 2**63 - 1], [0, 2**63 - 1, 6]])
def test_huge_offsets_do_not_wrap(kernels: ModuleType, call: Callable[..., Any], offsets: list[int]) -> None:
    with pytest.raises(EncodingError):
        call(kernels, np.array(offsets, np.int64), b"abcdef")


@pytest.mark.parametrize("call", TAKES_OFFSETS_AND_DATA)
def test_a_value_has_less_than_two_gib(kernels: ModuleType, call: Callable[..., Any]) -> None:
    never_touched = np.empty(2**31, np.uint8)
    with pytest.raises(EncodingError):
        call(kernels, np.array([0, 2**31]), never_touched)


@pytest.mark.parametrize(
    ("offsets", "indices"),
    [
        ([0, 3, 6], [0, 2]),
        ([0, 3, 6], [-1]),
        ([0, 3, 6], [2**31 - 1]),
        ([0, 3, 6], [-(2**31)]),
        ([0], [0]),
        ([], [0]),
        ([0, 3, 2], [0, 1]),
        ([-1, 3], [0]),
        ([0, 2**31], [0]),
        ([-(2**63), 2**63 - 1], [0]),
    ],
)
def test_choosing_believes_no_indices_and_no_offsets(
    kernels: ModuleType, guarded: Any, offsets: list[int], indices: list[int]
) -> None:
    wide, chosen = np.array(offsets, np.int64), np.array(indices, np.int32)
    with pytest.raises(EncodingError):
        kernels.chosen_size(wide, chosen)
    with guarded(3, np.uint8) as out, pytest.raises(EncodingError):
        kernels.copy_chosen_byte_arrays(wide, b"abcdef", chosen, out, 0)


@offset_types
@pytest.mark.parametrize(
    ("offsets", "size"), [([0, 3, 7], 7), ([3, 6, 9], 6), ([0, 3, 6], 5), ([2**31 - 2, 2**31 - 1], 1)]
)
def test_chosen_values_must_stay_in_the_data_and_the_output(
    kernels: ModuleType, guarded: Any, dtype: type[Any], offsets: list[int], size: int
) -> None:
    indices = np.arange(len(offsets) - 1, dtype=np.int32)
    with guarded(size, np.uint8) as out, pytest.raises(EncodingError):
        kernels.copy_chosen_byte_arrays(np.array(offsets, dtype), b"abcdef", indices, out, 0)


def test_offsets_that_nobody_chose_are_not_looked_at(kernels: ModuleType) -> None:
    offsets = np.array([0, 2, -5, 99, 3, 6], np.int32)
    indices, out = np.array([4, 0, 4], np.int32), np.empty(8, np.uint8)
    assert kernels.chosen_size(offsets, indices) == 8
    kernels.copy_chosen_byte_arrays(offsets, b"abcdef", indices, out, 0)
    assert out.tobytes() == b"defabdef"


def test_damaged_values_are_met_in_agreement(native: ModuleType, outcome: Any, guarded: Any) -> None:
    encoded = plain([b"one", b"", b"a somewhat longer string, of more than 32 bytes", b"four"])

    def split(kernels: ModuleType, data: bytes) -> Callable[[], Any]:
        def call() -> Any:
            lengths = np.empty(4, np.int32)
            ends = np.empty(5, np.int64)
            with guarded(kernels.byte_array_lengths(data, lengths), np.uint8) as out:
                span = np.array([[0, len(data), 4, 4]])
                kernels.plain_byte_arrays(data, span, np.empty(0, np.bool_), 0, ends, out, 0, False)
                return lengths, ends, out.copy()

        return call

    cut = [encoded[:size] for size in range(len(encoded))]
    flipped = [
        encoded[:at] + bytes([encoded[at] ^ flip]) + encoded[at + 1 :]
        for at in range(len(encoded))
        for flip in (1, 2, 8, 128)
    ]
    answers = [outcome(split(native, data)) for data in cut + flipped]
    assert answers == [outcome(split(reference, data)) for data in cut + flipped]
    assert len(set(map(str, answers))) > 10


@settings(deadline=None, max_examples=200)
@given(
    offsets=st.lists(st.integers(-2, 9), max_size=6),
    indices=st.lists(st.integers(-2, 6), max_size=6),
    data=short,
)
def test_garbage_is_met_in_agreement(
    native: ModuleType, outcome: Any, guarded: Any, *, offsets: list[int], indices: list[int], data: bytes
) -> None:
    chosen = np.array(indices, np.int32)
    for dtype in (np.int32, np.int64):
        some = np.array(offsets, dtype)

        def gathered(kernels: ModuleType, some: Any = some) -> Any:
            codes = chosen.copy()
            with guarded(kernels.chosen_size(some, codes), np.uint8) as out:
                kernels.copy_chosen_byte_arrays(some, data, codes, out, 0)
                return codes, out.copy()

        for call in (
            gathered,
            lambda kernels, some=some: joined(kernels, some, data),
            lambda kernels, some=some: kernels.dictionary_build_byte_arrays(some, data, 3, 30),
        ):
            assert outcome(lambda call=call: call(native)) == outcome(lambda call=call: call(reference))
