"""Values as blocks have them, and as Parquet's physical types have them in memory (see `format.physical_values`).

A boolean is a bit, the lowest of a byte first. Ints and longs are zig-zag integers of variable length: seven bits in
each byte, the lowest first, and the highest bit says that another byte follows. Strings and bytes have their length
before them, as an int; everything else has a fixed width, its lowest byte first (Trevni, "Primitive Values").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.physical_values import INT96_WIDTH, ByteArrays, Values
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.trevni.blocks.trevni_metadata import ValueType

#: How values of a fixed width are stored, and what they become.
_STORED: Final[dict[ValueType, Any]] = {
    ValueType.FIXED8: np.dtype("i1"),
    ValueType.FIXED16: np.dtype("<i2"),
    ValueType.FIXED32: np.dtype("<i4"),
    ValueType.FIXED64: np.dtype("<i8"),
    ValueType.FLOAT: np.dtype("<f4"),
    ValueType.DOUBLE: np.dtype("<f8"),
}
_IN_MEMORY: Final[dict[ValueType, Any]] = _STORED | {
    ValueType.BOOLEAN: np.dtype(np.bool_),
    ValueType.FIXED8: np.dtype("<i4"),
    ValueType.FIXED16: np.dtype("<i4"),
    ValueType.INT: np.dtype("<i4"),
    ValueType.LONG: np.dtype("<i8"),
}
STRINGS: Final = (ValueType.STRING, ValueType.BYTES)
VARINTS: Final = (ValueType.INT, ValueType.LONG)
#: The longest string: its length is an int.
_MAX_STRING: Final = 2**31 - 1
#: Bytes of the longest int and of the longest long.
MAX_INT_BYTES: Final = 5
_MAX_LONG_BYTES: Final = 10
_MORE: Final = 0x80


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a block, between two values."""

    at: int = 0
    bit: int = 0  # Bits of the byte before `at` that are booleans already
    run_left: int = 0  # Lengths to come of the last run
    run_value: int = 0


def fixed_width(kind: ValueType) -> int | None:
    """Bytes of a value where all have as many; None of varints, strings, booleans and nulls."""
    if kind is ValueType.TIMESTAMP:
        return INT96_WIDTH
    return _STORED[kind].itemsize if kind in _STORED else None


def empty(kind: ValueType) -> Values:
    """No values of a type."""
    if kind in STRINGS:
        return ByteArrays(np.zeros(1, np.int64), np.zeros(0, np.uint8))
    if kind is ValueType.TIMESTAMP:
        return np.zeros((0, INT96_WIDTH), np.uint8)
    return np.zeros(0, _IN_MEMORY.get(kind, np.dtype(np.int32)))


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """One integer of at most 64 bits, and where the next thing begins; IndexError where it goes on behind `data`."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            break
        shift += 7
        if shift >= 7 * _MAX_LONG_BYTES:
            raise EncodingError("an integer has more than ten bytes")
    if value >> 64:
        raise EncodingError("an integer has more than 64 bits")
    return (value >> 1) ^ -(value & 1), at


def read_varints(data: NDArray[np.uint8], at: int, count: int, bits: int) -> tuple[NDArray[np.int64], int]:
    """Integers of at most so many bits, 32 or 64, one behind the other, and where the next thing begins."""
    if count > len(data) - at:
        raise EncodingError(f"{count:,} integers are said to be in {len(data) - at:,} bytes")
    longest = MAX_INT_BYTES if bits == 32 else _MAX_LONG_BYTES
    window = data[at : at + count * longest]
    ends = np.flatnonzero(window < _MORE)[:count] + 1
    if len(ends) < count:
        raise EncodingError(f"{count:,} integers are said to be in {len(data) - at:,} bytes, of which one is too long")
    if not count:
        return np.zeros(0, np.int64), at
    starts = np.concatenate([[0], ends[:-1]])
    lengths = ends - starts
    if int(lengths.max()) > longest:
        raise EncodingError(f"an integer of {bits} bits has {int(lengths.max())} bytes")
    values = np.zeros(count, np.uint64)
    for place in range(int(lengths.max())):
        there = lengths > place
        byte = window[starts[there] + place].astype(np.uint64)
        values[there] |= (byte & np.uint64(0x7F)) << np.uint64(7 * place)
    _check_last_bytes(window, ends, lengths, longest, bits)
    signed = (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)
    return signed, at + int(ends[-1])


def _check_last_bytes(
    window: NDArray[np.uint8], ends: NDArray[Any], lengths: NDArray[Any], longest: int, bits: int
) -> None:
    """Refuse integers whose last byte has bits beyond those that fit."""
    last = window[ends[lengths == longest] - 1]
    if (last >> (bits - 7 * (longest - 1))).any():
        raise EncodingError(f"an integer has more than {bits} bits")


def read_values(kind: ValueType, data: NDArray[np.uint8], position: Position, count: int) -> tuple[Values, Position]:
    """Values one behind the other, and where the next thing begins; nulls take no bytes, and there are none to give."""
    if kind is ValueType.NULL or not count:
        return empty(kind), position
    if kind is ValueType.BOOLEAN:
        return _booleans(data, position, count)
    if kind in VARINTS:
        integers, at = read_varints(data, position.at, count, 32 if kind is ValueType.INT else 64)
        return integers.astype(_IN_MEMORY[kind], copy=False), Position(at)
    if kind in STRINGS:
        return _strings(data, position.at, count)
    width = fixed_width(kind) or 0
    end = position.at + count * width
    if end > len(data):
        raise EncodingError(f"{count:,} values of {width} bytes are said to be in {len(data) - position.at:,}")
    stored = data[position.at : end]
    if kind is ValueType.TIMESTAMP:
        return stored.reshape(-1, INT96_WIDTH), Position(end)
    return np.ascontiguousarray(stored).view(_STORED[kind]).astype(_IN_MEMORY[kind], copy=False), Position(end)


def _booleans(data: NDArray[np.uint8], position: Position, count: int) -> tuple[Values, Position]:
    start = position.at - (1 if position.bit else 0)
    end = start + (position.bit + count + 7) // 8
    if end > len(data):
        raise EncodingError(f"{count:,} booleans are said to be in {len(data) - position.at:,} bytes")
    bits = np.unpackbits(data[start:end], bitorder="little")
    found: NDArray[np.bool_] = bits[position.bit : position.bit + count].view(np.bool_)
    return found, Position(end, (position.bit + count) % 8)


def _strings(data: NDArray[np.uint8], at: int, count: int) -> tuple[Values, Position]:
    if count > len(data) - at:
        raise EncodingError(f"{count:,} strings are said to be in {len(data) - at:,} bytes")
    view, size, first = data.data, len(data), at
    ends = []
    starts = []
    try:
        for _ in range(count):
            length = view[at]
            if length < 0x80:
                length, at = (length >> 1) ^ -(length & 1), at + 1
            else:
                length, at = read_varint(view, at)
            starts.append(at)
            at += length
            if length < 0 or length > _MAX_STRING or at > size:
                raise EncodingError(f"a string of {length:,} bytes is said to begin at {starts[-1]:,} of {size:,}")
            ends.append(at)
    except IndexError:
        raise EncodingError(f"the last of {count:,} strings are missing") from None
    found = between(data[first:at], np.array(starts) - first, np.array(ends) - first)
    return found, Position(at)


def between(data: NDArray[np.uint8], starts: NDArray[Any], ends: NDArray[Any]) -> ByteArrays:
    """Byte strings that lie in order in `data`, with other bytes between them, as byte arrays."""
    marks = np.zeros(len(data) + 1, np.int8)
    marks[starts] += 1
    marks[ends] -= 1
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=offsets[1:])
    return ByteArrays(offsets, data[np.cumsum(marks[:-1], dtype=np.int8).view(np.bool_)])


def joined(pieces: Sequence[Values]) -> Values:
    """Values of one type, in one or more pieces, as one."""
    if len(pieces) == 1:
        return pieces[0]
    strings = [piece for piece in pieces if isinstance(piece, ByteArrays)]
    if not strings:
        arrays: list[Any] = list(pieces)
        return np.concatenate(arrays)
    ends = np.cumsum([0, *(piece.num_bytes for piece in strings)])
    offsets = [piece.offsets[:-1] - piece.offsets[0] + end for piece, end in zip(strings, ends[:-1], strict=True)]
    data = [piece.data[int(piece.offsets[0]) : int(piece.offsets[-1])] for piece in strings]
    return ByteArrays(np.concatenate([*offsets, ends[-1:]]), np.concatenate(data))
