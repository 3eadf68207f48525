"""The RLE/bit-packed hybrid against a decoder that goes bit by bit."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from varints import varint

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels import reference

pytestmark = pytest.mark.ways_in_quick(6)

Run = tuple[str, list[int]]


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for power in range(5):
        value += (data[position] % 128) * 128**power
        position += 1
        if data[position - 1] < 128:
            if value >= 2**32:
                raise ValueError("more than 32 bits")
            return value, position
    raise ValueError("more than five bytes")


def pack(values: list[int], width: int) -> bytes:
    number = sum(value << (place * width) for place, value in enumerate(values))
    return number.to_bytes((len(values) * width + 7) // 8, "little")


def encode(runs: list[Run], width: int) -> bytes:
    out = b""
    for kind, values in runs:
        if kind == "packed":
            padded = values + [0] * (-len(values) % 8)
            out += varint(len(padded) // 8 * 2 + 1) + pack(padded, width)
        else:
            out += varint(len(values) * 2) + values[0].to_bytes((width + 7) // 8, "little")
    return out


def decode(data: bytes, width: int, count: int, largest: int = 2**32) -> tuple[list[int], int]:
    """The first `count` values and the bytes their runs take; ValueError or IndexError without them."""
    largest = min(largest, 2**width - 1)
    values: list[int] = []
    position = 0
    while width and len(values) < count:
        header, position = read_varint(data, position)
        if header % 2:
            end = min(position + header // 2 * width, len(data))
            if header // 2 * width - (end - position) >= width:
                raise ValueError("a run that claims a group which is not there")
            for place in range(min(header // 2 * 8, count - len(values))):
                bits = range(position * 8 + place * width, position * 8 + (place + 1) * width)
                values.append(sum((data[bit // 8] >> (bit % 8) & 1) << n for n, bit in enumerate(bits)))
                if values[-1] > largest:
                    raise ValueError("a value that is too wide")
        else:
            end = position + (width + 7) // 8
            repeated = int.from_bytes(data[position:end], "little")
            if end > len(data) or repeated > largest:
                raise ValueError("an RLE run that is cut short or too wide")
            values += [repeated] * min(header // 2, count - len(values))
        position = end
    return values if width else [0] * count, position


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, list[Run]]:
    width = draw(st.integers(0, 32))
    value = st.integers(0, min(2**width - 1, 2**31 - 1))
    found: list[Run] = []
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            found.append(("packed", draw(st.lists(value, min_size=1, max_size=10)) * 8))
        else:
            found.append(("rle", [draw(value)] * draw(st.integers(1, 200))))
    return width, found


def test_the_example_of_the_specification(kernels: ModuleType) -> None:
    out = np.empty(8, np.int32)
    assert kernels.rle_decode(b"\x03\x88\xc6\xfa", 3, out) == 4
    assert out.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert kernels.rle_encode(out, 3).tobytes() == b"\x03\x88\xc6\xfa"


@settings(deadline=None, max_examples=150)
@given(case=runs(), missing=st.integers(0, 20), tail=st.binary(max_size=12))
def test_decodes_what_stands_in_the_runs(
    kernels: ModuleType, guarded: Any, case: tuple[int, list[Run]], missing: int, tail: bytes
) -> None:
    width, found = case
    values = [value for _, run in found for value in run]
    wanted = values[: max(len(values) - missing, 0)]
    encoded = encode(found, width)
    for dtype in [np.int32] + [np.uint8] * (max(wanted, default=0) < 256):
        with guarded(len(wanted), dtype) as out:
            consumed = kernels.rle_decode(encoded + tail, width, out)
            assert out.tolist() == wanted
        if width:
            assert consumed == decode(encoded, width, len(wanted))[1]


@pytest.mark.parametrize("width", range(1, 33))
def test_decodes_long_runs_of_every_width(kernels: ModuleType, guarded: Any, width: int) -> None:
    values = np.random.default_rng(width).integers(0, 2 ** min(width, 31), 1003)
    for count in (1003, 1000, 999, 33, 32, 8, 1):
        encoded = encode([("packed", values[: -(-count // 8) * 8].tolist())], width)
        stored = 1 + (count > 503) + (count * width + 7) // 8  # cut short behind the last value wanted
        with guarded(count, np.int32) as out:
            assert kernels.rle_decode(np.frombuffer(encoded, np.uint8)[:stored], width, out) == stored
            assert (out == values[:count]).all()
        with guarded(count, np.int32) as out, pytest.raises(EncodingError):
            kernels.rle_decode(encoded[: stored - 1], width, out)
        longer = encode([("packed", [0] * (-(-count // 8) * 8 + 8))], width)
        with guarded(count, np.int32) as out, pytest.raises(EncodingError):  # a group more, which is not there
            kernels.rle_decode(longer[:-width], width, out)


@pytest.mark.parametrize("width", [8, 9, 17, 32])
@pytest.mark.parametrize("kind", ["packed", "rle"])
def test_values_must_fit_the_output(kernels: ModuleType, width: int, kind: str) -> None:
    largest = 2**width - 1
    encoded = encode([(kind, [largest] * 8)], width)
    for dtype in (np.uint8, np.int32):
        out = np.empty(8, dtype)
        if largest > np.iinfo(dtype).max:
            with pytest.raises(EncodingError):
                kernels.rle_decode(encoded, width, out)
        else:
            kernels.rle_decode(encoded, width, out)
            assert out.tolist() == [largest] * 8


def test_padding_is_not_looked_at(kernels: ModuleType) -> None:
    out = np.empty(3, np.uint8)
    assert kernels.rle_decode(encode([("packed", [1, 2, 255, 256, 511])], 9), 9, out) == 10
    assert out.tolist() == [1, 2, 255]


@pytest.mark.parametrize("buffer", [b"", b"\x00", b"\xff\xff"])
def test_width_zero_needs_no_bytes(kernels: ModuleType, buffer: bytes) -> None:
    out = np.full(5, 7, np.int32)
    assert kernels.rle_decode(buffer, 0, out) == 0
    assert out.tolist() == [0] * 5


@pytest.mark.parametrize(
    ("buffer", "width"),
    [
        (b"", 1),
        (b"\x00" * 1000, 8),  # runs of no values, to the end
        (b"\x01" * 1000, 8),
        (b"\x80", 8),
        (b"\x80\x80\x80\x80\x80\x01\x05", 8),  # six bytes
        (b"\x80\x80\x80\x80\x10\x05", 8),  # 2**32
        (b"\x10\x04", 2),  # an RLE value wider than it may be
        (b"\xff\xff\xff\xff\x0f", 32),  # the longest bit-packed run, without its bytes
        (b"\x10\x00", 33),
        (b"\x10\x00", -1),
    ],
)
def test_malformed_runs_are_refused(kernels: ModuleType, guarded: Any, buffer: bytes, width: int) -> None:
    for dtype in (np.uint8, np.int32):
        with guarded(100, dtype) as out, pytest.raises(EncodingError):
            kernels.rle_decode(buffer, width, out)


@pytest.mark.parametrize("buffer", [b"\x00\x05\x10\x06", b"\x01\x10\x06", b"\x08\x06\x00\x05\x08\x06"])
def test_runs_of_no_values_are_refused(kernels: ModuleType, buffer: bytes) -> None:
    """No writer makes them, and other readers stop there: the bytes are those of something else, such as levels."""
    with pytest.raises(EncodingError, match="a run of no values"):
        kernels.rle_decode(buffer, 8, np.empty(8, np.int32))


@settings(deadline=None, max_examples=300)
@given(data=st.binary(max_size=60), width=st.integers(0, 32), count=st.integers(0, 100))
def test_garbage_is_refused_or_right(kernels: ModuleType, guarded: Any, data: bytes, width: int, count: int) -> None:
    for dtype in (np.uint8, np.int32):
        try:
            expected = decode(data, width, count, int(np.iinfo(dtype).max))
        except (ValueError, IndexError):
            expected = None
        with guarded(count, dtype) as out:
            try:
                consumed = kernels.rle_decode(data, width, out)
            except EncodingError:
                assert expected is None
            else:
                assert expected == (out.tolist(), consumed)


def damaged(encoded: bytes) -> list[bytes]:
    cut = [encoded[:size] for size in range(len(encoded))]
    places = [(at, flip) for at in range(len(encoded)) for flip in (0x01, 0x80, 0xFF)]
    return cut + [encoded[:at] + bytes([encoded[at] ^ flip]) + encoded[at + 1 :] for at, flip in places]


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 11, 20, 31, 32])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_damage_is_met_in_agreement(
    native: ModuleType, outcome: Any, guarded: Any, width: int, dtype: type[Any]
) -> None:
    top = 2 ** min(width, 31 if dtype is np.int32 else 8) - 1
    found: list[Run] = [("packed", [top, 0, 1, top] * 5), ("rle", [top] * 30), ("packed", [1, top] * 3)]

    def decoded(kernels: ModuleType, data: bytes) -> Callable[[], Any]:
        def call() -> Any:
            with guarded(54, dtype) as out:
                return kernels.rle_decode(data, width, out), out.copy()

        return call

    for data in damaged(encode(found, width)):
        assert outcome(decoded(native, data)) == outcome(decoded(reference, data))


@st.composite
def level_arrays(draw: st.DrawFn) -> tuple[int, np.ndarray[Any, Any]]:
    width = draw(st.one_of(st.integers(0, 32), st.integers(1, 3)))  # narrow ones decide most closely
    dtype = draw(st.sampled_from([np.uint8, np.uint16, np.int32]))
    top = min(2**width - 1, int(np.iinfo(dtype).max))
    some = draw(st.lists(st.integers(0, top), min_size=1, max_size=4))
    pieces = draw(st.lists(st.tuples(st.sampled_from(some), st.integers(1, 40)), max_size=12))
    mixed = draw(st.lists(st.sampled_from(some), max_size=40))
    values = [value for value, count in pieces for _ in range(count)]
    return width, np.array(values + mixed if draw(st.booleans()) else mixed + values, dtype)


@settings(deadline=None, max_examples=200)
@given(case=level_arrays())
def test_encoded_values_come_back(kernels: ModuleType, case: tuple[int, np.ndarray[Any, Any]]) -> None:
    width, values = case
    encoded = kernels.rle_encode(values, width)
    assert encoded.dtype == np.uint8
    assert decode(encoded.tobytes(), width, len(values)) == (values.tolist(), len(encoded) if width else 0)
    packed_at_once = len(encode([("packed", values.tolist())], width)) if len(values) else 0
    assert len(encoded) <= packed_at_once + 1
    out = np.empty(len(values), np.uint8 if values.dtype == np.uint8 else np.int32)
    assert kernels.rle_decode(encoded, width, out) == (len(encoded) if width else 0)
    assert (out == values).all()


@settings(deadline=None, max_examples=300)
@given(case=level_arrays())
def test_encoders_agree(native: ModuleType, case: tuple[int, np.ndarray[Any, Any]]) -> None:
    width, values = case
    assert native.rle_encode(values, width).tobytes() == reference.rle_encode(values, width).tobytes()
    assert native.rle_encode(values, width, 3).tobytes() == reference.rle_encode(values, width, 3).tobytes()


@pytest.mark.parametrize("width", range(33))
def test_encodes_every_width(kernels: ModuleType, width: int) -> None:
    generator = np.random.default_rng(width)
    values = generator.integers(0, 2 ** min(width, 31), 2000).astype(np.int32)
    values[300:700] = values[300]
    values[1500:1508] = values[1500]
    encoded = kernels.rle_encode(values, width)
    assert decode(encoded.tobytes(), width, 2000)[0] == values.tolist()
    if width <= 8:
        assert kernels.rle_encode(values.astype(np.uint8), width).tobytes() == encoded.tobytes()
    if width <= 16:
        assert kernels.rle_encode(values.astype(np.uint16), width).tobytes() == encoded.tobytes()


@pytest.mark.parametrize("front", [0, 1, 4, 8])
def test_room_is_left_in_front(kernels: ModuleType, front: int) -> None:
    values = np.arange(100, dtype=np.uint16)
    encoded = kernels.rle_encode(values, 7, front)
    assert encoded.tobytes() == bytes(front) + kernels.rle_encode(values, 7).tobytes()
    for wrong in (-1, 9):
        with pytest.raises(ValueError, match="left free"):
            kernels.rle_encode(values, 7, wrong)


def test_runs_are_compact(kernels: ModuleType) -> None:
    same = np.full(1_000_000, 3, np.int32)
    assert kernels.rle_encode(same, 20).tobytes() == varint(2_000_000) + b"\x03\x00\x00"
    different = np.arange(80, dtype=np.int32)
    assert kernels.rle_encode(different, 7).tobytes() == varint(21) + pack(list(range(80)), 7)
    assert kernels.rle_encode(np.array([5, 5, 5], np.int32), 20).tobytes() == b"\x06\x05\x00\x00"
    assert kernels.rle_encode(np.zeros(0, np.uint8), 1).tobytes() == b""
    few_nulls = np.ones(8000, np.uint8)
    few_nulls[::20] = 0  # runs of 19 that are cheaper bit-packed
    assert len(kernels.rle_encode(few_nulls, 1)) == 2 + 1000


@pytest.mark.parametrize(
    ("values", "width"),
    [([2], 1), ([1], 0), ([-1], 32), ([0, 0, -1], 4), ([2**31 - 1], 30), ([0], 33), ([0], -1)],
)
def test_values_that_are_too_wide_are_refused(kernels: ModuleType, values: list[int], width: int) -> None:
    with pytest.raises(EncodingError):
        kernels.rle_encode(np.array(values, np.int32), width)


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_any_buffer_of_bytes_will_do(kernels: ModuleType, buffer: Callable[[bytes], Any]) -> None:
    out = np.empty(4, np.uint8)
    assert kernels.rle_decode(buffer(b"\x08\x07"), 3, out) == 2
    assert out.tolist() == [7] * 4
    assert kernels.rle_decode(buffer(b""), 3, out[:0]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        (b"\x08\x07", 3, np.zeros(4, np.int64)),
        (b"\x08\x07", 3, np.zeros(4, np.int8)),
        (b"\x08\x07", 3, np.zeros(4, np.float32)),
        (b"\x08\x07", 3, np.zeros((2, 2), np.uint8)),
        (b"\x08\x07", 3, np.zeros(8, np.uint8)[::2]),
        (b"\x08\x07", 3, np.frombuffer(b"\x00" * 4, np.uint8)),  # read-only
        (np.zeros(8, np.uint8)[::2], 3, np.zeros(4, np.uint8)),
        (np.zeros(2, np.int32), 3, np.zeros(4, np.uint8)),
        (struct.calcsize, 3, np.zeros(4, np.uint8)),
    ],
)
def test_wrong_arrays_are_the_callers_mistake(kernels: ModuleType, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        kernels.rle_decode(*arguments)
    assert not isinstance(raised.value, EncodingError)
