"""Whether byte strings are text, against Python's own decoder."""

from __future__ import annotations

from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels import reference

#: The ends of all ranges of bytes that the well-formed sequences are made of (Unicode, table 3-7), and beyond.
ENDS = bytes.fromhex("00 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")

offset_types = pytest.mark.parametrize("dtype", [np.int32, np.int64])
pieces = st.one_of(
    st.text(max_size=40).map(str.encode),
    st.text("aß€😀", max_size=9).map(str.encode),
    st.integers(0, 80).map(lambda size: b"x" * size),
    st.sampled_from([b"\x80", b"\xe2\x82", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff"]),
)
values_of_text = st.lists(st.one_of(pieces, pieces, st.lists(pieces, max_size=3).map(b"".join)), max_size=8)


def is_text(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def valid(kernels: ModuleType, values: list[bytes], dtype: type[Any] = np.int32, before: bytes = b"") -> bool:
    offsets = np.cumsum([len(before), *map(len, values)]).astype(dtype)
    answer: bool = kernels.utf8_valid(offsets, before + b"".join(values) + b"\xff")
    assert isinstance(answer, bool)
    return answer


@offset_types
@settings(deadline=None, max_examples=30)
@given(values=values_of_text, before=st.sampled_from([b"", b"\xff", b"abc"]))
def test_each_value_is_text(kernels: ModuleType, dtype: type[Any], values: list[bytes], before: bytes) -> None:
    assert valid(kernels, values, dtype, before) is all(map(is_text, values))


@pytest.mark.parametrize("size", [1, 2, pytest.param(3, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("before", [b"", b"seven b"])
def test_every_end_of_a_range(kernels: ModuleType, size: int, before: bytes) -> None:
    for sequence in product(ENDS, repeat=size):
        value = before + bytes(sequence)
        assert valid(kernels, [value]) is is_text(value), value.hex()


@pytest.mark.thorough
def test_every_end_of_a_range_in_four_bytes(native: ModuleType) -> None:
    for sequence in product(ENDS, repeat=4):
        assert valid(native, [bytes(sequence)]) is is_text(bytes(sequence)), bytes(sequence).hex()


@pytest.mark.parametrize("at", range(0, 72, 5))
@pytest.mark.parametrize("character", ["ß", "€", "😀"])
def test_a_character_may_not_be_cut(kernels: ModuleType, at: int, character: str) -> None:
    encoded = b"a" * at + character.encode() + b"b" * 40
    for cut in range(len(encoded) + 1):
        within = at < cut < at + len(character.encode())
        assert valid(kernels, [encoded[:cut], encoded[cut:]]) is not within
        # What follows the last value is nobody's.
        assert valid(kernels, [encoded[:cut], b""]) is not within


def test_no_values_are_text(kernels: ModuleType) -> None:
    assert kernels.utf8_valid(np.zeros(1, np.int32), b"")
    assert kernels.utf8_valid(np.full(4, 2, np.int64), b"\xff\xff\xff")


@offset_types
@pytest.mark.parametrize("offsets", [[], [0, 5], [-1, 2], [2, 1], [0, 3, 2]])
def test_offsets_that_lead_astray(kernels: ModuleType, dtype: type[Any], offsets: list[int]) -> None:
    with pytest.raises(EncodingError):
        kernels.utf8_valid(np.array(offsets, dtype), b"abcd")


@settings(deadline=None, max_examples=30)
@given(data=st.binary(max_size=60), offsets=st.lists(st.integers(-2, 70), max_size=6), in_order=st.booleans())
def test_native_answers_as_the_reference(
    native: ModuleType, outcome: Any, *, data: bytes, offsets: list[int], in_order: bool
) -> None:
    bounds = np.array(sorted(offsets) if in_order else offsets, np.int32)
    assert outcome(lambda: native.utf8_valid(bounds, data)) == outcome(lambda: reference.utf8_valid(bounds, data))


def test_other_types_are_refused(kernels: ModuleType) -> None:
    with pytest.raises((TypeError, ValueError)):
        kernels.utf8_valid(np.zeros(2, np.uint32), b"")
