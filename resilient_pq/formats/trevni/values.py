"""Values as blocks have them, and as Parquet's physical types have them in memory (see `format.values`).

A boolean is a bit, the lowest of a byte first; ints and longs are zig-zag varints; strings and bytes have their length
before them, as an int; everything else has a fixed width, its lowest byte first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.values import INT96_WIDTH, ByteArrays, Values
from resilient_pq.formats.trevni.metadata import ValueType
from resilient_pq.formats.trevni.varints import read_varint, read_varints, write_varints

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


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a block, between two values.

    Attributes:
        at: The byte that comes next.
        bit: Bits of the byte before `at` that are booleans already; 0 where the next boolean begins a byte.
        run_left: Lengths still to come of the run that was read last.
        run_value: What they are, 0 or 1.
    """

    at: int = 0
    bit: int = 0
    run_left: int = 0
    run_value: int = 0


def fixed_width(kind: ValueType) -> int | None:
    """Bytes of a value where all have as many; None of varints, strings, booleans and nulls."""
    if kind is ValueType.TIMESTAMP:
        return INT96_WIDTH
    return _STORED[kind].itemsize if kind in _STORED else None


def position_of(kind: ValueType, count: int) -> Position | None:
    """The place in a block behind its first `count` values; None where these have to be read to find it."""
    if kind is ValueType.NULL:
        return Position()
    if kind is ValueType.BOOLEAN:
        return Position((count + 7) // 8, count % 8)
    width = fixed_width(kind)
    return None if width is None else Position(count * width)


def empty(kind: ValueType) -> Values:
    """No values of a type."""
    if kind in STRINGS:
        return ByteArrays(np.zeros(1, np.int64), np.zeros(0, np.uint8))
    if kind is ValueType.TIMESTAMP:
        return np.zeros((0, INT96_WIDTH), np.uint8)
    return np.zeros(0, _IN_MEMORY.get(kind, np.dtype(np.int32)))


def read_values(kind: ValueType, data: NDArray[np.uint8], position: Position, count: int) -> tuple[Values, Position]:
    """Values one behind the other.

    Args:
        kind: Their type.
        data: A block.
        position: Where the first begins.
        count: How many; where the type is null, they take no bytes, and there is nothing to give.

    Returns:
        The values, and where the next thing begins.

    Raises:
        EncodingError: There are not so many.
    """
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
    return fixed_values(kind, data[position.at : end]), Position(end)


def fixed_values(kind: ValueType, data: NDArray[np.uint8]) -> NDArray[Any]:
    """Values of a fixed width, one behind the other in all of `data`."""
    if kind is ValueType.TIMESTAMP:
        return data.reshape(-1, INT96_WIDTH)
    stored: NDArray[Any] = np.ascontiguousarray(data).view(_STORED[kind])
    return stored.astype(_IN_MEMORY[kind], copy=False)


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
    """Values of one type, one behind the other.

    Args:
        pieces: At least one.
    """
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


def write_values(kind: ValueType, values: Values) -> NDArray[np.uint8]:
    """The bytes of values, one behind the other; a boolean begins a byte.

    Args:
        kind: Their type.
        values: As `read_values` gives them.

    Raises:
        ValueError: One is too large for its type.
    """
    if kind is ValueType.NULL:
        return np.zeros(0, np.uint8)
    if isinstance(values, ByteArrays):
        return _write_strings(values)[0]
    if kind is ValueType.BOOLEAN:
        return np.packbits(values, bitorder="little")
    if kind in VARINTS:
        return write_varints(values)[0]
    if kind is ValueType.TIMESTAMP:
        return np.ascontiguousarray(values).ravel()
    return np.ascontiguousarray(values.astype(_STORED[kind], casting="same_kind")).view(np.uint8)


def _write_strings(values: ByteArrays) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of strings with their lengths, and how many each takes."""
    sizes = np.diff(values.offsets).astype(np.int64)
    lengths, widths = write_varints(sizes)
    spans = sizes + widths
    ends = np.cumsum(spans)
    total = int(ends[-1]) if len(ends) else 0
    marks = np.zeros(total + 1, np.int8)
    marks[ends - spans] += 1
    marks[ends - sizes] -= 1
    is_length = np.cumsum(marks[:-1], dtype=np.int8).view(np.bool_)
    out = np.empty(total, np.uint8)
    out[is_length] = lengths
    out[~is_length] = values.data[int(values.offsets[0]) : int(values.offsets[-1])]
    return out, spans


def value_sizes(kind: ValueType, values: Values) -> NDArray[np.int64]:
    """Bytes that each value takes among others; of booleans and nulls 0."""
    if isinstance(values, ByteArrays):
        return _write_strings(values)[1]
    if kind in VARINTS:
        return write_varints(values)[1]
    return np.full(len(values), fixed_width(kind) or 0, np.int64)
