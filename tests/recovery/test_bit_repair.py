"""The flipped bit that a CRC32 names: every one is found, and what is taken for one is as rare as it is said to be."""

from __future__ import annotations

import random
import zlib

import pytest
from file_bytes import with_flips
from hypothesis import example, given
from hypothesis import strategies as st

from resilient_pq.checksum import crc32
from resilient_pq.recovery.verification.bit_repair import MAX_BYTES, flipped_bit, with_bit_turned_back

#: Bytes up to which two flipped bits never look like one: the sum has Hamming distance 4 there.
DISTANCE_4_BYTES = 11_446


def found_in(data: bytes, stored_crc: int) -> int | None:
    return flipped_bit(crc32(data) ^ stored_crc, len(data))


def false_odds(num_bytes: int) -> float:
    """How likely it is that random damage to so many bytes, or to their sum, looks like one flipped bit."""
    return (8 * num_bytes + 32) / 2**32


@given(st.binary(min_size=1, max_size=200), st.data())
def test_every_single_flip_is_found_and_turned_back(data: bytes, draw: st.DataObject) -> None:
    bit = draw.draw(st.integers(0, len(data) * 8 - 1))
    read = with_flips(data, bit)
    assert found_in(read, zlib.crc32(data)) == bit
    assert with_bit_turned_back(memoryview(read), zlib.crc32(data)) == data


def test_every_bit_of_a_page() -> None:
    page = random.Random(1).randbytes(40)
    for bit in range(len(page) * 8):
        assert found_in(with_flips(page, bit), zlib.crc32(page)) == bit


def test_a_bit_of_a_large_chunk() -> None:
    chunk = random.Random(2).randbytes(8 << 20)
    for bit in (0, 12_345_677, len(chunk) * 8 - 1):
        assert found_in(with_flips(chunk, bit), zlib.crc32(chunk)) == bit


@given(st.binary(max_size=100), st.integers(0, 31))
def test_a_bit_of_the_stored_sum_leaves_the_bytes_as_they_are(data: bytes, bit: int) -> None:
    stored = zlib.crc32(data) ^ 1 << bit
    assert found_in(data, stored) == 8 * len(data) + bit
    assert with_bit_turned_back(data, stored) == data


@given(st.binary(max_size=100))
def test_where_nothing_is_wrong_there_is_no_flip(data: bytes) -> None:
    assert found_in(data, zlib.crc32(data)) is None
    assert with_bit_turned_back(data, zlib.crc32(data)) is None


@given(st.integers(1, DISTANCE_4_BYTES), st.data())
def test_two_flips_in_a_small_page_are_never_taken_for_one(size: int, draw: st.DataObject) -> None:
    first, second = draw.draw(st.sets(st.integers(0, size * 8 - 1), min_size=2, max_size=2))
    page = bytes(size)
    assert found_in(with_flips(page, first, second), crc32(page)) is None


def test_up_to_that_size_no_three_bits_of_page_and_sum_cancel_out() -> None:
    power, seen = 1 << 31, {1 << 31}
    for _ in range(DISTANCE_4_BYTES * 8 + 31):
        power = power >> 1 ^ (0xEDB88320 if power & 1 else 0)
        assert power ^ 1 << 31 not in seen
        seen.add(power)


def test_of_random_damage_as_much_is_taken_for_a_flip_as_is_said() -> None:
    """Differences drawn at random, as damage of many bits makes them, of as many bytes as there can be."""
    rng = random.Random(3)
    drawn = 300
    size = MAX_BYTES // 4
    taken = sum(flipped_bit(rng.randrange(1, 2**32), size) is not None for _ in range(drawn))
    assert false_odds(size) == pytest.approx(0.25, rel=1e-6)
    assert taken == pytest.approx(drawn * false_odds(size), rel=0.3)


@given(st.binary(min_size=64, max_size=2000), st.binary(min_size=8, max_size=60), st.floats(0, 1))
@example(bytes(64), b"\x10" + bytes(7), 0.5)  # as if a bit had been turned
def test_a_burst_is_not_repaired_into_what_it_was_not(data: bytes, burst: bytes, place: float) -> None:
    at = int(place * (len(data) - len(burst)))
    read = data[:at] + burst + data[at + len(burst) :]
    turned = with_bit_turned_back(read, zlib.crc32(data))
    bits = (int.from_bytes(read) ^ int.from_bytes(data)).bit_count()
    assert (turned is not None) or bits != 1
    # One chance in 268,000 at this size, of more bits: then the sum holds, and what the page says has to tell.
    assert turned is None or turned == read or zlib.crc32(turned) == zlib.crc32(data)


def test_of_more_than_it_can_tell_apart_it_says_nothing() -> None:
    assert flipped_bit(1 << 31, MAX_BYTES) == 8 * MAX_BYTES + 31
    assert flipped_bit(1 << 31, MAX_BYTES + 1) is None
    assert false_odds(64 * 1024) == pytest.approx(1 / 8192, rel=1e-3)
