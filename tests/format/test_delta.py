"""DELTA encodings: the specification's examples, what is encoded comes back, and nothing hostile is believed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.encodings import delta
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.physical_values import ByteArrays
from resilient_pq.format.schema_tree import Primitive

STRINGS = Primitive("c", Repetition.REQUIRED, Type.BYTE_ARRAY)
INT32 = Primitive("c", Repetition.REQUIRED, Type.INT32)
INT64 = Primitive("c", Repetition.REQUIRED, Type.INT64)

alike = st.lists(st.sampled_from([b"", b"a", b"ab", b"b" * 9, b"\x00"]), max_size=5).map(b"".join)
strings = st.lists(st.one_of(alike, st.binary(max_size=40)), max_size=150)


def fixed(width: int) -> Primitive:
    return Primitive("c", Repetition.REQUIRED, Type.FIXED_LEN_BYTE_ARRAY, width)


def ints(*values: int) -> bytes:
    """DELTA_BINARY_PACKED of 32-bit integers."""
    return kernels.delta_binary_encode(np.array(values, np.int32)).tobytes()


def byte_arrays(values: list[bytes], dtype: Any = np.int64, before: bytes = b"") -> ByteArrays:
    offsets = np.cumsum([len(before), *map(len, values)]).astype(dtype)
    return ByteArrays(offsets, np.frombuffer(before + b"".join(values), np.uint8))


Decode = Callable[..., tuple[int, delta.ConsecutiveStrings]]


def decoded(decode: Decode, data: bytes, count: int, *previous: bytes) -> list[bytes]:
    lengths = np.empty(count, np.int32)
    total, found = decode(memoryview(data), lengths, *previous)
    assert total == lengths.sum()
    out = np.empty(total, np.uint8)
    found.copy_to(out)
    ends = np.cumsum(lengths)
    return [out[end - length : end].tobytes() for end, length in zip(ends, lengths, strict=True)]


# --- the specification's examples -----------------------------------------------------------------------


def test_lengths_then_bytes() -> None:
    values = [b"Hello", b"World", b"Foobar", b"ABCDEF"]
    encoded = delta.encode_lengths(STRINGS, byte_arrays(values)).tobytes()
    assert encoded == ints(5, 5, 6, 6) + b"HelloWorldFoobarABCDEF"
    assert decoded(delta.decode_lengths, encoded, 4) == values


def test_prefixes_then_suffixes() -> None:
    values = [b"axis", b"axle", b"babble", b"babyhood"]
    encoded = delta.encode_prefixes(STRINGS, byte_arrays(values)).tobytes()
    assert encoded == ints(0, 2, 0, 3) + ints(4, 2, 6, 5) + b"axislebabbleyhood"
    assert decoded(delta.decode_prefixes, encoded, 4) == values


# --- what is encoded comes back -------------------------------------------------------------------------


@pytest.mark.parametrize(("node", "dtype"), [(INT32, np.int32), (INT64, np.int64)])
@settings(deadline=None)
@given(data=st.data(), tail=st.binary(max_size=3))
def test_numbers_come_back(node: Primitive, dtype: Any, data: st.DataObject, tail: bytes) -> None:
    info = np.iinfo(dtype)
    values = np.array(data.draw(st.lists(st.integers(int(info.min), int(info.max)), max_size=200)), dtype)
    out = np.empty_like(values)
    delta.decode_binary(node, memoryview(delta.encode_binary(node, values).tobytes() + tail), out)
    assert (out == values).all()
    every_third = values[::3]  # what is written need not be contiguous
    assert delta.encode_binary(node, every_third).tobytes() == kernels.delta_binary_encode(every_third.copy()).tobytes()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@settings(deadline=None)
@given(values=strings, before=st.binary(max_size=9), tail=st.binary(max_size=9))
def test_strings_come_back(dtype: Any, values: list[bytes], before: bytes, tail: bytes) -> None:
    sliced = byte_arrays(values, dtype, before)
    for encode, decode in (
        (delta.encode_lengths, delta.decode_lengths),
        (delta.encode_prefixes, delta.decode_prefixes),
    ):
        encoded = encode(STRINGS, sliced).tobytes()
        assert decoded(decode, encoded + tail, len(values)) == values


@pytest.mark.parametrize("width", [0, 1, 2, 16, 70])
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_fixed_values_come_back(width: int, data: st.DataObject) -> None:
    value = st.binary(min_size=width, max_size=width)
    few = data.draw(st.lists(value, min_size=1, max_size=3))
    values = data.draw(st.lists(st.one_of(value, st.sampled_from(few)), max_size=50))
    rows = np.frombuffer(b"".join(values), np.uint8).reshape(len(values), width)
    encoded = delta.encode_prefixes(fixed(width), rows).tobytes()
    assert encoded == delta.encode_prefixes(STRINGS, byte_arrays(values)).tobytes()  # lengths stand there, too
    out = np.empty_like(rows)
    delta.decode_fixed_prefixes(fixed(width), memoryview(encoded), out)
    assert (out == rows).all()


def test_sorted_strings_become_small() -> None:
    values = [f"https://example.org/articles/{number:08}".encode() for number in range(2000)]
    plain = sum(len(value) + 4 for value in values)
    assert delta.encode_prefixes(STRINGS, byte_arrays(values)).size < plain / 10


def test_the_first_value_may_go_on_from_the_page_before() -> None:
    # PARQUET-246: parquet-mr before 1.8 did not forget the last value at the end of a page.
    encoded = ints(5, 7) + ints(2, 0) + b"ed"
    assert decoded(delta.decode_prefixes, encoded, 2, b"talking") == [b"talkied", b"talkied"]
    out = np.empty((2, 7), np.uint8)
    delta.decode_fixed_prefixes(fixed(7), memoryview(encoded), out, b"talking")
    assert out.tobytes() == b"talkiedtalkied"
    for previous in ((), (b"talk",)):
        with pytest.raises(EncodingError):
            decoded(delta.decode_prefixes, encoded, 2, *previous)


# --- hostile bytes --------------------------------------------------------------------------------------

TOP = 2**31 - 1


@pytest.mark.parametrize(
    ("decode", "count", "data"),
    [
        (delta.decode_lengths, 2, b""),
        (delta.decode_lengths, 2, ints(1, 1) + b"a"),
        (delta.decode_lengths, 2, ints(1, 1, 1) + b"abc"),  # more values than the page has
        (delta.decode_lengths, 2, ints(1) + b"a"),
        (delta.decode_lengths, 2, ints(3, -1) + b"ab"),
        (delta.decode_lengths, 2, ints(TOP, TOP) + b"ab"),
        (delta.decode_lengths, 3, ints(TOP, 1, -TOP) + b"a"),
        (delta.decode_prefixes, 1, ints(0)),
        (delta.decode_prefixes, 1, ints(1) + ints(1) + b"a"),
        (delta.decode_prefixes, 2, ints(0, 2) + ints(1, 1) + b"ab"),
        (delta.decode_prefixes, 2, ints(0, -1) + ints(1, 1) + b"ab"),
        (delta.decode_prefixes, 2, ints(0, 1) + ints(1, -1) + b"ab"),
        (delta.decode_prefixes, 2, ints(0, 1) + ints(1, 1) + b"a"),
        (delta.decode_prefixes, 2, ints(0, 1) + ints(TOP, TOP) + b"ab"),
        (delta.decode_prefixes, 2, ints(0, 1) + ints(1) + b"ab"),
    ],
)
def test_no_number_is_believed(decode: Decode, count: int, data: bytes) -> None:
    with pytest.raises(EncodingError):
        decoded(decode, data, count)


@pytest.mark.parametrize(
    ("prefixes", "suffixes"),
    [([0, 1], [3, 1]), ([0, 0], [3, 4]), ([0, 0], [2, 3]), ([0, TOP], [3, TOP]), ([0, -1], [3, 4])],
)
def test_fixed_values_have_the_width_of_their_column(prefixes: list[int], suffixes: list[int]) -> None:
    data = ints(*prefixes) + ints(*suffixes) + b"abcdefgh"
    with pytest.raises(EncodingError):
        delta.decode_fixed_prefixes(fixed(3), memoryview(data), np.empty((2, 3), np.uint8))


def test_values_that_grow_without_end_take_no_memory() -> None:
    count = 100_000  # 5 GB of strings, each a byte longer than the one before, in 100 kB
    hostile = ints(*range(count)) + ints(*[1] * count) + bytes(count)
    tracemalloc.start()
    try:
        with pytest.raises(EncodingError):
            decoded(delta.decode_prefixes, hostile, count)
        with pytest.raises(EncodingError):
            delta.decode_fixed_prefixes(fixed(1), memoryview(hostile), np.empty((count, 1), np.uint8))
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


def test_damage_is_an_error_or_a_value() -> None:
    values = [b"axis", b"axle", b"", b"babble", b"babyhood", b"babyhood and more"] * 8
    rows = np.frombuffer(b"".join(value.ljust(17) for value in values), np.uint8).reshape(-1, 17)

    def fixed_rows(data: bytes, count: int) -> list[bytes]:
        out = np.empty((count, 17), np.uint8)
        delta.decode_fixed_prefixes(fixed(17), memoryview(data), out)
        return [row.tobytes() for row in out]

    cases: list[tuple[bytes, Callable[[bytes, int], list[bytes]]]] = [
        (
            delta.encode_lengths(STRINGS, byte_arrays(values)).tobytes(),
            lambda data, count: decoded(delta.decode_lengths, data, count),
        ),
        (
            delta.encode_prefixes(STRINGS, byte_arrays(values)).tobytes(),
            lambda data, count: decoded(delta.decode_prefixes, data, count),
        ),
        (delta.encode_prefixes(fixed(17), rows).tobytes(), fixed_rows),
    ]
    for encoded, decode in cases:
        refused = 0
        for size in range(len(encoded)):
            with pytest.raises(EncodingError):
                decode(encoded[:size], len(values))
        for at in range(len(encoded)):
            for flip in (0x01, 0x80, 0xFF):
                try:
                    found = decode(encoded[:at] + bytes([encoded[at] ^ flip]) + encoded[at + 1 :], len(values))
                except EncodingError:
                    refused += 1
                else:
                    assert len(found) == len(values)
        assert refused > 20


def test_a_value_has_less_than_two_gib() -> None:
    never_touched = np.empty(2**31, np.uint8)
    with pytest.raises(EncodingError):
        delta.encode_lengths(STRINGS, ByteArrays(np.array([0, 2**31]), never_touched))
    with pytest.raises(EncodingError):
        delta.encode_prefixes(STRINGS, ByteArrays(np.array([0, 2**31]), never_touched))
