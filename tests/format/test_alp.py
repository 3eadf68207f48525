"""ALP: the specification's worked example, pages of an encoder in plain Python, and hostile bytes."""

from __future__ import annotations

import math
import struct
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError, UnsupportedError
from resilient_pq.format.encodings import alp, encode_values
from resilient_pq.format.file_metadata import Encoding, Repetition, Type
from resilient_pq.format.schema_tree import Primitive

FLOAT = Primitive("c", Repetition.REQUIRED, Type.FLOAT)
DOUBLE = Primitive("c", Repetition.REQUIRED, Type.DOUBLE)
NAN = struct.pack("<Q", 0x7FF8_0000_DEAD_BEEF)  # with a payload

#: Of the four values 1500.0, NaN, 2500.0 and 333.5, which AlpEncoding.md writes down field by field.
WORKED_EXAMPLE = (
    bytes([4, 3])  # exponent, factor
    + struct.pack("<H", 1)  # exceptions
    + struct.pack("<q", 3335)  # frame of reference
    + bytes([15])  # bits of each delta
    + (11665 | 11665 << 15 | 21665 << 30 | 0 << 45).to_bytes(8, "little")
    + struct.pack("<H", 1)  # where the exception stands
    + NAN
)


def page(vectors: Sequence[bytes], count: int, *, log2_size: int = 10, mode: int = 0, integers: int = 0) -> bytes:
    offsets, at = [], 4 * len(vectors)
    for vector in vectors:
        offsets.append(struct.pack("<I", at))
        at += len(vector)
    return struct.pack("<BBBi", mode, integers, log2_size, count) + b"".join([*offsets, *vectors])


def decode(node: Primitive, data: bytes, count: int) -> np.ndarray[Any, Any]:
    out = np.full(count, 7.0, np.float32 if node is FLOAT else np.float64)
    alp.decode(node, memoryview(data), out)
    return out


def test_the_worked_example() -> None:
    assert len(WORKED_EXAMPLE) == 31
    found = decode(DOUBLE, page([WORKED_EXAMPLE], 4), 4)
    assert found.tobytes() == struct.pack("<d", 1500.0) + NAN + struct.pack("<dd", 2500.0, 333.5)


def test_it_is_only_read() -> None:
    with pytest.raises(UnsupportedError, match="ALP is only read"):
        encode_values(Encoding.ALP, DOUBLE, np.zeros(1))


# --- an encoder in plain Python -------------------------------------------------------------------------


class Kind:
    """The arithmetic of a type, a value at a time."""

    def __init__(self, node: Primitive) -> None:
        self.real: Any = np.float32 if node is FLOAT else np.float64
        self.bits, self.largest = (32, 10) if node is FLOAT else (64, 18)
        self.pack = "<f" if node is FLOAT else "<d"

    def decoded(self, number: int, e: int, f: int) -> Any:
        return self.real(number) * self.real(f"1e{f}") * self.real(f"1e-{e}")

    def encoded(self, value: Any, e: int, f: int) -> int | None:
        """The integer that decodes to the value, bit by bit; None where there is none at hand."""
        with np.errstate(over="ignore"):
            scaled = self.real(value) * self.real(f"1e{e}") * self.real(f"1e-{f}")
        if not np.isfinite(scaled) or abs(scaled) >= 2 ** (self.bits - 1) * 0.99:
            return None
        number = round(float(scaled))
        return number if self.decoded(number, e, f).tobytes() == self.real(value).tobytes() else None


def vector(kind: Kind, values: np.ndarray[Any, Any], e: int, f: int, slack: int = 0) -> bytes:
    numbers = [kind.encoded(value, e, f) for value in values]
    exceptions = [place for place, number in enumerate(numbers) if number is None]
    placeholder = next((number for number in numbers if number is not None), 0)
    filled = [placeholder if number is None else number for number in numbers]
    frame = min(filled)
    width = min((max(filled) - frame).bit_length() + slack, kind.bits)
    packed = sum((number - frame) << (place * width) for place, number in enumerate(filled))
    return b"".join(
        [
            struct.pack("<BBH", e, f, len(exceptions)),
            frame.to_bytes(kind.bits // 8, "little", signed=True),
            bytes([width]),
            packed.to_bytes((len(values) * width + 7) // 8, "little"),
            b"".join(struct.pack("<H", place) for place in exceptions),
            values[exceptions].tobytes(),
        ]
    )


def encode(node: Primitive, values: np.ndarray[Any, Any], log2_size: int, powers: Sequence[tuple[int, int]]) -> bytes:
    kind = Kind(node)
    parts = [values[at : at + 2**log2_size] for at in range(0, len(values), 2**log2_size)]
    chosen = [powers[place % len(powers)] for place in range(len(parts))]
    vectors = [
        vector(kind, part, e, f, place % 3) for place, (part, (e, f)) in enumerate(zip(parts, chosen, strict=True))
    ]
    return page(vectors, len(values), log2_size=log2_size)


@st.composite
def powers_of(draw: st.DrawFn, node: Primitive) -> list[tuple[int, int]]:
    exponent = st.integers(0, Kind(node).largest)
    return [(max(pair), min(pair)) for pair in draw(st.lists(st.tuples(exponent, exponent), min_size=1, max_size=4))]


@pytest.mark.parametrize("node", [FLOAT, DOUBLE], ids=["FLOAT", "DOUBLE"])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_every_bit_comes_back(node: Primitive, data: st.DataObject) -> None:
    width = Kind(node).bits
    decimals = st.builds(lambda number, places: number / 10**places, st.integers(-(10**6), 10**6), st.integers(0, 5))
    anything = st.floats(width=width, allow_nan=True)
    values = np.array(data.draw(st.lists(st.one_of(decimals, decimals, anything), max_size=40)), Kind(node).real)
    log2_size = data.draw(st.sampled_from([3, 4, 10, 15]))
    encoded = encode(node, values, log2_size, data.draw(powers_of(node)))
    assert decode(node, encoded, len(values)).tobytes() == values.tobytes()


@pytest.mark.parametrize("node", [FLOAT, DOUBLE], ids=["FLOAT", "DOUBLE"])
def test_every_power_and_every_width(node: Primitive) -> None:
    kind = Kind(node)
    generator = np.random.default_rng(1)
    for e in range(kind.largest + 1):
        for f in range(e + 1):
            width = (7 * e + 3 * f) % kind.bits
            frame = int(generator.integers(-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 2**width))
            numbers = [frame, *(frame + int(step) for step in generator.integers(0, 2**width, 12, np.uint64))]
            packed = sum((number - frame) << (place * width) for place, number in enumerate(numbers))
            data = struct.pack("<BBH", e, f, 0) + frame.to_bytes(kind.bits // 8, "little", signed=True)
            data += bytes([width]) + packed.to_bytes((13 * width + 7) // 8, "little")
            found = decode(node, page([data], 13, log2_size=4), 13)
            assert found.tobytes() == b"".join(kind.decoded(number, e, f).tobytes() for number in numbers)


def test_deltas_wrap_around() -> None:
    # From the least to the greatest integer: their distance has 64 bits.
    frame = struct.pack("<q", -(2**63))
    data = struct.pack("<BBH", 0, 0, 0) + frame + bytes([64]) + struct.pack("<QQ", 0, 2**64 - 1)
    assert decode(DOUBLE, page([data], 2), 2).tolist() == [-(2.0**63), 2.0**63]


def test_prices_are_small() -> None:
    prices = np.round(np.random.default_rng(2).uniform(1, 100, 4096), 2)
    encoded = encode(DOUBLE, prices, 10, [(14, 12)])
    assert len(encoded) < prices.nbytes / 4
    assert decode(DOUBLE, encoded, 4096).tobytes() == prices.tobytes()


def test_nothing_is_nothing() -> None:
    assert decode(DOUBLE, page([], 0), 0).size == 0
    assert math.isnan(decode(DOUBLE, encode(DOUBLE, np.array([math.nan]), 3, [(0, 0)]), 1)[0])


# --- hostile bytes --------------------------------------------------------------------------------------


def changed(at: int, value: int) -> bytes:
    return WORKED_EXAMPLE[:at] + bytes([value]) + WORKED_EXAMPLE[at + 1 :]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        page([WORKED_EXAMPLE], 4)[:6],
        page([WORKED_EXAMPLE], 4, log2_size=2),
        page([WORKED_EXAMPLE], 4, log2_size=16),
        page([WORKED_EXAMPLE], 4, log2_size=255),
        page([WORKED_EXAMPLE], 3),
        page([WORKED_EXAMPLE], -4),
        page([WORKED_EXAMPLE], 2**31 - 1),
        page([], 4),
        struct.pack("<BBBiI", 0, 0, 10, 4, 0) + WORKED_EXAMPLE,  # the vector would begin with its own offset
        struct.pack("<BBBiI", 0, 0, 10, 4, 5) + WORKED_EXAMPLE,
        struct.pack("<BBBiI", 0, 0, 10, 4, 2**32 - 1) + WORKED_EXAMPLE,
        page([changed(0, 19)], 4),  # exponent
        page([changed(1, 5)], 4),  # factor
        page([changed(2, 5)], 4),  # exceptions
        page([changed(3, 255)], 4),
        page([changed(12, 65)], 4),  # width
        page([changed(12, 64)], 4),
        page([changed(21, 4)], 4),  # position of the exception
        page([changed(22, 1)], 4),
    ],
)
def test_no_number_is_believed(data: bytes) -> None:
    with pytest.raises(EncodingError):
        decode(DOUBLE, data, 4)


def test_exponents_of_floats_are_smaller() -> None:
    for e, fits in ((10, True), (11, False)):
        data = page([struct.pack("<BBHiB", e, 0, 0, 5, 0)], 1)
        if fits:
            assert decode(FLOAT, data, 1)[0] == np.float32(5) * np.float32("1e-10")
        else:
            with pytest.raises(EncodingError):
                decode(FLOAT, data, 1)


@pytest.mark.parametrize("other", [{"mode": 1}, {"integers": 1}])
def test_modes_of_the_future_are_told_apart_from_damage(other: dict[str, int]) -> None:
    with pytest.raises(UnsupportedError, match="ALP mode"):
        decode(DOUBLE, page([WORKED_EXAMPLE], 4, **other), 4)


def test_damage_is_an_error_or_values() -> None:
    values = np.array([1.5, 2.25, math.nan, -0.0, 1e300, 7.125, 3.5, 4.0, 0.1, 0.2, 0.3])
    encoded = encode(DOUBLE, values, 3, [(3, 0), (14, 13)])
    assert decode(DOUBLE, encoded, 11).tobytes() == values.tobytes()
    for size in range(len(encoded)):
        with pytest.raises(EncodingError):
            decode(DOUBLE, encoded[:size], 11)
    refused = 0
    for at in range(len(encoded)):
        for flip in (0x01, 0x80, 0xFF):
            try:
                decode(DOUBLE, encoded[:at] + bytes([encoded[at] ^ flip]) + encoded[at + 1 :], 11)
            except (EncodingError, UnsupportedError):
                refused += 1
    assert refused > 30


def test_a_hostile_page_takes_no_memory() -> None:
    # All vectors are the same one, which is as wide as it can be.
    count, size = 2**15 * 8, 2**15
    widest = struct.pack("<BBHqB", 0, 0, 0, 0, 64) + bytes(8 * size)
    data = struct.pack("<BBBi", 0, 0, 15, count) + struct.pack("<8I", *[32] * 8) + widest
    out = np.empty(count)
    tracemalloc.start()
    try:
        alp.decode(DOUBLE, memoryview(data), out)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()
    assert not out.any()
