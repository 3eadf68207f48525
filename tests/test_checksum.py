"""CRC32 by every implementation at hand, against zlib's."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.checksum import combine, combine_in_python, crc32, signed, unsigned

COMBINES = [combine, combine_in_python]


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_sum_is_zlibs_and_goes_on(first: bytes, second: bytes) -> None:
    assert crc32(first) == zlib.crc32(first)
    assert crc32(second, crc32(first)) == zlib.crc32(first + second)


@pytest.mark.parametrize("combining", COMBINES)
@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_two_sums_make_the_sum_of_both(combining: Callable[[int, int, int], int], first: bytes, second: bytes) -> None:
    assert combining(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 5 * 2**40))
def test_both_ways_of_combining_agree_on_any_size(first: int, second: int, size: int) -> None:
    assert combine(first, second, size) == combine_in_python(first, second, size)


@given(st.lists(st.binary(max_size=50), max_size=8))
def test_many_parts_in_turn(parts: list[bytes]) -> None:
    total = 0
    for part in parts:
        total = combine_in_python(total, zlib.crc32(part), len(part))
    assert total == zlib.crc32(b"".join(parts))


@given(st.integers(0, 2**32 - 1))
def test_thrift_stores_it_with_a_sign(crc: int) -> None:
    assert -(2**31) <= signed(crc) < 2**31
    assert unsigned(signed(crc)) == crc
