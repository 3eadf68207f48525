"""The deprecated BIT_PACKED levels against numbers in base two."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels import reference


def pack(values: list[int], width: int) -> bytes:
    """The values as digits, one behind the other, cut into bytes; the last one is filled up with zeros."""
    digits = "".join(f"{value:0{width}b}" for value in values) if width else ""
    digits += "0" * (-len(digits) % 8)
    return int(digits or "0", 2).to_bytes(len(digits) // 8, "big")


def test_the_example_of_the_specification(kernels: ModuleType) -> None:
    encoded = bytes([0b00000101, 0b00111001, 0b01110111])
    assert pack(list(range(8)), 3) == encoded
    out = np.empty(8, np.uint8)
    assert kernels.unpack_bits_msb(encoded, 3, out) == 3
    assert out.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


@st.composite
def packed_values(draw: st.DrawFn) -> tuple[int, type[Any], list[int]]:
    width = draw(st.one_of(st.integers(0, 32), st.integers(1, 3)))
    dtype = draw(st.sampled_from([np.uint8, np.int32]))
    top = min(2**width - 1, int(np.iinfo(dtype).max))
    return width, dtype, draw(st.lists(st.one_of(st.integers(0, top), st.just(top)), max_size=60))


@settings(deadline=None, max_examples=200)
@given(case=packed_values(), tail=st.binary(max_size=9))
def test_unpacks_what_is_packed(
    kernels: ModuleType, guarded: Any, case: tuple[int, type[Any], list[int]], tail: bytes
) -> None:
    width, dtype, values = case
    encoded = pack(values, width)
    with guarded(len(values), dtype) as out:
        assert kernels.unpack_bits_msb(encoded + tail, width, out) == len(encoded)
        assert out.tolist() == values


def test_no_byte_too_few(kernels: ModuleType, guarded: Any) -> None:
    for width in (1, 2, 3, 8, 13, 31):
        encoded = pack([1] * 21, width)
        for dtype in (np.uint8, np.int32):
            with guarded(21, dtype) as out, pytest.raises(EncodingError):
                kernels.unpack_bits_msb(encoded[:-1], width, out)


def test_width_zero_needs_no_bytes(kernels: ModuleType) -> None:
    out = np.full(5, 7, np.int32)
    assert kernels.unpack_bits_msb(b"", 0, out) == 0
    assert out.tolist() == [0] * 5
    assert kernels.unpack_bits_msb(b"", 9, out[:0]) == 0


@pytest.mark.parametrize(("width", "dtype"), [(9, np.uint8), (32, np.uint8), (32, np.int32)])
def test_values_too_large_for_their_type(kernels: ModuleType, guarded: Any, width: int, dtype: type[Any]) -> None:
    encoded = pack([0, 2 ** (width - 1), 0], width)
    with guarded(3, dtype) as out, pytest.raises(EncodingError):
        kernels.unpack_bits_msb(encoded, width, out)


@pytest.mark.parametrize("width", [-1, 33, 2**31 - 1])
def test_impossible_widths(kernels: ModuleType, width: int) -> None:
    with pytest.raises(EncodingError):
        kernels.unpack_bits_msb(bytes(99), width, np.empty(1, np.int32))


@settings(deadline=None, max_examples=200)
@given(data=st.binary(max_size=60), width=st.integers(-1, 33), count=st.integers(0, 60))
def test_garbage_is_met_in_agreement(
    native: ModuleType, outcome: Any, guarded: Any, *, data: bytes, width: int, count: int
) -> None:
    for dtype in (np.uint8, np.int32):

        def unpacked(kernels: ModuleType, dtype: type[Any] = dtype) -> Any:
            with guarded(count, dtype) as out:
                return kernels.unpack_bits_msb(data, width, out), out.copy()

        assert outcome(lambda: unpacked(native)) == outcome(lambda: unpacked(reference))


@pytest.mark.parametrize("out", [np.zeros(4, np.int64), np.zeros((2, 2), np.uint8), np.zeros(8, np.uint8)[::2]])
def test_wrong_arrays_are_the_callers_mistake(kernels: ModuleType, out: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        kernels.unpack_bits_msb(b"1234", 3, out)
    assert not isinstance(raised.value, EncodingError)
