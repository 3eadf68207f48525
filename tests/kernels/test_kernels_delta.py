"""DELTA_BINARY_PACKED against an encoder and a decoder in plain integers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from varints import varint

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels import reference
from resilient_pq.format.kernels.integers import varint as read_varint
from resilient_pq.format.kernels.integers import varint_bytes

pytestmark = pytest.mark.ways_in_quick(6)

types = pytest.mark.parametrize("dtype", [np.int32, np.int64])


def zigzag(value: int) -> bytes:
    return varint(2 * value if value >= 0 else -2 * value - 1)


@given(st.integers(0, 64), st.integers(-1, 1))
def test_integers_of_variable_length(bits: int, more: int) -> None:
    value = max((1 << bits) + more, 0)
    data = varint_bytes(value)
    assert data == varint(value)
    assert read_varint(memoryview(b"x" + data + b"x"), 1, 65) == (value, 1 + len(data))


def wrapped(value: int, bits: int) -> int:
    half: int = 2 ** (bits - 1)
    return (value + half) % (2 * half) - half


def encode(
    values: list[int], bits: int, *, block: int = 128, miniblocks: int = 4, slack: int = 0, unused: int = 0
) -> bytes:
    """As the specification has it; `slack` more bits than needed, `unused` as width where nothing stands."""
    out = varint(block) + varint(miniblocks) + varint(len(values)) + zigzag(values[0] if values else 0)
    deltas = [wrapped(b - a, bits) for a, b in pairwise(values)]
    size = block // miniblocks
    for begin in range(0, len(deltas), block):
        own = deltas[begin : begin + block]
        out += zigzag(min(own))
        above = [(delta - min(own)) % 2**bits for delta in own]
        parts = [above[at : at + size] for at in range(0, block, size)]
        widths = [min(max(part).bit_length() + slack, bits) if part else unused for part in parts]
        out += bytes(widths)
        for part, width in zip(parts, widths, strict=True):
            number = sum(value << (place * width) for place, value in enumerate(part))
            out += number.to_bytes(size * width // 8, "little") if part else b""
    return out


def header(block: int, miniblocks: int, count: int) -> bytes:
    return varint(block) + varint(miniblocks) + varint(count) + zigzag(0)


def decode(data: bytes, bits: int) -> tuple[list[int], int]:
    """All values and the bytes they take, of input that is known to be right."""
    position = 0

    def number() -> int:
        nonlocal position
        value = power = 0
        while True:
            position += 1
            value += data[position - 1] % 128 << power
            power += 7
            if data[position - 1] < 128:
                return value

    def signed() -> int:
        value = number()
        return value // 2 if value % 2 == 0 else -(value // 2) - 1

    block, miniblocks, count = number(), number(), number()
    values = [signed()][:count]
    while len(values) < count:
        least, widths = signed(), data[position : position + miniblocks]
        position += miniblocks
        for width in widths:
            if len(values) == count:
                break
            size = block // miniblocks * width // 8
            packed = int.from_bytes(data[position : position + size], "little")
            position += size
            for place in range(min(block // miniblocks, count - len(values))):
                delta = least + (packed >> (place * width) & (2**width - 1))
                values.append(wrapped(values[-1] + delta, bits))
    return values, position


@st.composite
def integers(draw: st.DrawFn, bits: int) -> list[int]:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    near = st.integers(-5, 5)
    value = draw(st.sampled_from([near, st.integers(least, most), st.sampled_from([least, most, 0])]))
    count = draw(st.sampled_from([0, 1, 2, 31, 32, 33, 34, 64, 65, 127, 128, 129, 130, 257, 300]))
    some = draw(st.lists(value, min_size=1, max_size=20))
    return [some[(place * place) % len(some)] for place in range(count)]


def bits_of(dtype: type[Any]) -> int:
    return np.dtype(dtype).itemsize * 8


@types
@settings(deadline=None, max_examples=80)
@given(data=st.data(), tail=st.binary(max_size=9))
def test_decodes_what_is_encoded(
    kernels: ModuleType, guarded: Any, dtype: type[Any], data: st.DataObject, tail: bytes
) -> None:
    bits = bits_of(dtype)
    values = data.draw(integers(bits))
    shapes = [(128, 4), (128, 1), (128, 2), (256, 8), (1024, 4), (2**20, 1)]
    block, miniblocks = data.draw(st.sampled_from(shapes))
    slack, unused = data.draw(st.sampled_from([0, 1, 7])), data.draw(st.sampled_from([0, 1, 255]))
    encoded = encode(values, bits, block=block, miniblocks=miniblocks, slack=slack, unused=unused)
    with guarded(len(values), dtype) as out:
        assert kernels.delta_binary_decode(encoded + tail, out) == len(encoded)
        assert out.tolist() == values


@types
@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_encoded_values_come_back(kernels: ModuleType, dtype: type[Any], data: st.DataObject) -> None:
    values = data.draw(integers(bits_of(dtype)))
    encoded = kernels.delta_binary_encode(np.array(values, dtype))
    assert encoded.dtype == np.uint8
    assert encoded.tobytes() == encode(values, bits_of(dtype))
    assert decode(encoded.tobytes(), bits_of(dtype)) == (values, len(encoded))


@types
@pytest.mark.parametrize("width", range(65))
def test_every_width(kernels: ModuleType, guarded: Any, dtype: type[Any], width: int) -> None:
    bits = bits_of(dtype)
    if width > bits:
        return  # nobody needs to write those
    steps = np.random.default_rng(width).integers(0, 2**width - 1, 300, np.uint64, endpoint=True)
    values = np.cumsum(steps).astype(f"u{bits // 8}").view(dtype)
    encoded = kernels.delta_binary_encode(values)
    assert encoded.tobytes() == encode(values.tolist(), bits)
    with guarded(300, dtype) as out:
        assert kernels.delta_binary_decode(encoded, out) == len(encoded)
        assert (out == values).all()


@types
def test_no_miniblock_is_wider_than_64_bits(kernels: ModuleType, guarded: Any, dtype: type[Any]) -> None:
    for width in (65, 66, 128, 255):
        too_wide = header(128, 4, 33) + zigzag(0) + bytes([width, 0, 0, 0]) + bytes(4 * width)
        with guarded(33, dtype) as out, pytest.raises(EncodingError):
            kernels.delta_binary_decode(too_wide, out)


@pytest.mark.parametrize("width", range(33, 65))
def test_differences_that_did_not_wrap_around(kernels: ModuleType, guarded: Any, width: int) -> None:
    # DuckDB takes those of int32 in 64 bits: from one end to the other they have 33.
    least, most = -(2**31), 2**31 - 1
    values = [0, most, least, most, -1, least, 0, 1] * 6
    deltas = [b - a for a, b in pairwise(values)]
    above = [delta - min(deltas) for delta in deltas]
    data = varint(128) + varint(4) + varint(len(values)) + zigzag(values[0]) + zigzag(min(deltas))
    data += bytes([width, width, 0, 0])
    for part in (above[:32], above[32:]):
        data += sum(value << (place * width) for place, value in enumerate(part)).to_bytes(4 * width, "little")
    with guarded(len(values), np.int32) as out:
        assert kernels.delta_binary_decode(data, out) == len(data)
        assert out.tolist() == values


@types
def test_the_last_miniblock_may_be_cut_short(kernels: ModuleType, guarded: Any, dtype: type[Any]) -> None:
    values = [0, 1000, 3, 500, 7]
    encoded = encode(values, bits_of(dtype))
    needed = len(encoded) - (32 * 11 - 4 * 11) // 8
    with guarded(5, dtype) as out:
        assert kernels.delta_binary_decode(encoded[:needed], out) == needed
        assert out.tolist() == values
    with guarded(5, dtype) as out, pytest.raises(EncodingError):
        kernels.delta_binary_decode(encoded[: needed - 1], out)


@types
@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        header(128, 4, 3),
        header(128, 4, 4) + bytes(20),
        header(0, 4, 3) + bytes(20),
        header(128, 0, 3) + bytes(20),
        header(100, 4, 3) + bytes(20),
        header(128, 3, 3) + bytes(20),
        header(128, 8, 3) + bytes(20),
        header(2**31, 4, 3) + bytes(20),
        header(2**32, 4, 3) + bytes(20),
        header(2**30, 2**25, 3) + bytes(20),  # widths that are not there
        header(128, 4, 3) + b"\x80" * 12 + bytes(20),
        header(128, 4, 3) + zigzag(0) + bytes(3),
        header(128, 4, 3) + zigzag(0) + b"\xff\x00\x00\x00" + bytes(2000),
        header(2**30, 1, 3) + zigzag(0) + b"\x20" + bytes(7),
        varint(128) + varint(4) + varint(3) + b"\xff" * 9 + b"\x02" + bytes(20),  # 65 bits
    ],
)
def test_malformed_blocks_are_refused(kernels: ModuleType, guarded: Any, dtype: type[Any], encoded: bytes) -> None:
    with guarded(3, dtype) as out, pytest.raises(EncodingError):
        kernels.delta_binary_decode(encoded, out)


def test_a_huge_miniblock_is_read_as_far_as_wanted(kernels: ModuleType, guarded: Any) -> None:
    encoded = header(2**31 - 128, 1, 3) + zigzag(5) + b"\x08" + b"\x01\x02"
    with guarded(3, np.int64) as out:
        assert kernels.delta_binary_decode(encoded, out) == len(encoded)
        assert out.tolist() == [0, 6, 13]


@types
def test_damage_is_met_in_agreement(native: ModuleType, outcome: Any, guarded: Any, dtype: type[Any]) -> None:
    values = [place * place % 97 - 40 for place in range(150)]
    encoded = encode(values, bits_of(dtype))

    def decoded(kernels: ModuleType, data: bytes) -> Callable[[], Any]:
        def call() -> Any:
            with guarded(150, dtype) as out:
                return kernels.delta_binary_decode(data, out), out.copy()

        return call

    cut = [encoded[:size] for size in range(len(encoded))]
    flipped = [
        encoded[:at] + bytes([encoded[at] ^ flip]) + encoded[at + 1 :]
        for at in range(len(encoded))
        for flip in (1, 4, 32, 128)
    ]
    answers = [outcome(decoded(native, data)) for data in cut + flipped]
    assert answers == [outcome(decoded(reference, data)) for data in cut + flipped]
    assert EncodingError in answers
    assert len(set(map(str, answers))) > 100


@types
@settings(deadline=None, max_examples=200)
@given(body=st.binary(max_size=80), count=st.integers(0, 70), shape=st.sampled_from([(128, 4), (256, 8)]))
def test_garbage_is_met_in_agreement(
    native: ModuleType,
    outcome: Any,
    guarded: Any,
    *,
    dtype: Any,
    body: bytes,
    count: int,
    shape: tuple[int, int],
) -> None:
    def decoded(kernels: ModuleType, data: bytes) -> Any:
        with guarded(count, dtype) as out:
            return kernels.delta_binary_decode(data, out), out.copy()

    for data in (body, header(*shape, count)[:-1] + body):
        answers = [outcome(lambda k=k, data=data: decoded(k, data)) for k in (native, reference)]
        assert answers[0] == answers[1]
