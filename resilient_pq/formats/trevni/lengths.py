"""Arrays as blocks have them: the length of each, and its values behind it (Trevni, "trevni.array").

In files of the last version a negative length begins a run: it stands for itself and for ``(1 - L) >> 1`` lengths to
come, all of them ``(L + 1) & 1``. Booleans begin a new byte behind each length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.values import Values
from resilient_pq.formats.trevni.header import Version
from resilient_pq.formats.trevni.metadata import ValueType
from resilient_pq.formats.trevni.values import (
    STRINGS,
    Position,
    between,
    empty,
    fixed_width,
    read_values,
    value_sizes,
    write_values,
)
from resilient_pq.formats.trevni.varints import MAX_INT_BYTES, read_varint, read_varints, write_varint

_LONGEST_LENGTH: Final = 2**31 - 1


def read_arrays(
    kind: ValueType, version: Version, data: NDArray[np.uint8], position: Position, count: int
) -> tuple[NDArray[np.int64], Values, Position]:
    """Arrays one behind the other.

    Args:
        kind: The type of their values.
        version: Of the file.
        data: A block.
        position: Where the first begins.
        count: How many.

    Returns:
        Their lengths, their values, and where the next thing begins.

    Raises:
        EncodingError: There are not so many, or they are longer than the block.
    """
    if kind is ValueType.NULL:
        lengths, position = _lengths_alone(version, data, position, count)
        return lengths, empty(kind), position
    found = _scan(kind, version, data, position, count)
    return np.array(found.lengths, np.int64), _values_of(kind, data, found), found.position


def _lengths_alone(
    version: Version, data: NDArray[np.uint8], position: Position, count: int
) -> tuple[NDArray[np.int64], Position]:
    """Lengths with nothing between them."""
    out = np.empty(count, np.int64)
    known = min(count, position.run_left)
    out[:known] = position.run_value
    if known == count:
        return out, Position(position.at, 0, position.run_left - known, position.run_value)
    window = data[position.at : position.at + (count - known) * MAX_INT_BYTES]
    there = min(int(np.count_nonzero(window < 0x80)), count - known)
    found, _ = read_varints(data, position.at, there, 32)
    is_run = found < 0
    if version is not Version.FINAL and is_run.any():
        raise EncodingError("a length is negative")
    spans = np.where(is_run, ((1 - found) >> 1) + 1, 1)
    ends = np.cumsum(spans)
    used = int(np.searchsorted(ends, count - known)) + 1
    if used > there:
        raise EncodingError(f"{count:,} arrays are said to begin in {len(data) - position.at:,} bytes")
    left = int(ends[used - 1]) - (count - known)
    spans = spans[:used]
    spans[-1] -= left
    values = np.where(is_run, (found + 1) & 1, found)[:used]
    out[known:] = np.repeat(values, spans)
    _, at = read_varints(data, position.at, used, 32)
    return out, Position(at, 0, left, int(values[-1]) if left else 0)


@dataclass(slots=True)
class _Arrays:
    """Arrays that have values, scanned: what their lengths are, and where their values.

    Attributes:
        lengths: Of all arrays.
        starts: Where the values of each begin that has some.
        ends: Where these end.
        position: Where the next thing begins.
    """

    lengths: list[int]
    starts: list[int]
    ends: list[int]
    position: Position


def _scan(kind: ValueType, version: Version, data: NDArray[np.uint8], position: Position, count: int) -> _Arrays:
    """Find the arrays of a block, one after the other: where one begins is told by what is before it.

    Raises:
        EncodingError: The block ends before they do, or a length is none.
    """
    view, size = data.data, len(data)
    skip = _skipper(kind, view)
    shortest = ~_LONGEST_LENGTH if version is Version.FINAL else 0
    at, left, value = position.at, position.run_left, position.run_value
    found = _Arrays([], [], [], position)
    lengths, starts, ends = found.lengths, found.starts, found.ends
    try:
        for _ in range(count):
            if left:
                left -= 1
                length = value
            else:
                byte = view[at]
                if byte < 0x80 and not byte & 1:
                    length, at = byte >> 1, at + 1
                else:
                    length, at = read_varint(view, at)
                    if not shortest <= length <= _LONGEST_LENGTH:
                        raise EncodingError(f"the length of an array is {length}")
                    if length < 0:
                        left, value = (1 - length) >> 1, (length + 1) & 1
                        length = value
            lengths.append(length)
            if length:
                starts.append(at)
                at = skip(at, length)
                if at > size:
                    raise EncodingError(f"an array of {length:,} values begins at {starts[-1]:,} of {size:,} bytes")
                ends.append(at)
    except IndexError:
        raise EncodingError("the block ends within an array") from None
    found.position = Position(at, 0, left, value if left else 0)
    return found


def _skipper(kind: ValueType, view: memoryview) -> Callable[[int, int], int]:
    """What tells where so many values end that begin at some byte; it may tell a place beyond the block."""
    width = fixed_width(kind)
    if width is not None:
        known = width
        return lambda at, count: at + count * known
    if kind is ValueType.BOOLEAN:
        return lambda at, count: at + (count + 7) // 8
    return partial(_skip_strings if kind in STRINGS else _skip_varints, view)


def _skip_strings(view: memoryview, at: int, count: int) -> int:
    for _ in range(count):
        size, at = read_varint(view, at)
        if size < 0:
            raise EncodingError(f"a string has {size} bytes")
        at += size
    return at


def _skip_varints(view: memoryview, at: int, count: int) -> int:
    for _ in range(count):
        while view[at] >= 0x80:
            at += 1
        at += 1
    return at


def _values_of(kind: ValueType, data: NDArray[np.uint8], found: _Arrays) -> Values:
    """The values of arrays, one behind the other.

    Raises:
        EncodingError: One of them does not decode.
    """
    if not found.starts:
        return empty(kind)
    first = found.starts[0]
    starts, ends = np.array(found.starts) - first, np.array(found.ends) - first
    lengths = np.array(found.lengths)
    values = between(data[first : found.ends[-1]], starts, ends).data
    if kind is ValueType.BOOLEAN:
        return _booleans_of(values, lengths[lengths > 0], ends - starts)
    return read_values(kind, values, Position(), int(lengths.sum()))[0]


def _booleans_of(data: NDArray[np.uint8], counts: NDArray[np.int64], widths: NDArray[np.int64]) -> Values:
    """The booleans of arrays that begin a byte each."""
    bits = np.unpackbits(data, bitorder="little").view(np.bool_)
    before = 8 * (np.cumsum(widths) - widths) - (np.cumsum(counts) - counts)
    found: NDArray[np.bool_] = bits[np.arange(int(counts.sum())) + np.repeat(before, counts)]
    return found


def write_arrays(kind: ValueType, lengths: NDArray[np.int64], values: Values) -> NDArray[np.uint8]:
    """The bytes of arrays: as Avro's writer has them, with runs of lengths where there is nothing between them.

    Args:
        kind: The type of their values.
        lengths: How many values each has.
        values: The values of all, one behind the other.
    """
    data, ends = _written_values(kind, lengths, values)
    out: list[bytes] = []
    start, run_value, run_length = 0, -1, 0
    for length, end in zip(lengths.tolist(), ends.tolist(), strict=True):
        if length == run_value:
            run_length += 1
            continue
        if run_length:
            out.append(_run(run_value, run_length))
        run_value, run_length = -1, 0
        if length > 1 or end > start:
            out.append(write_varint(length))
            out.append(data[start:end])
            start = end
        else:
            run_value, run_length = length, 1
    if run_length:
        out.append(_run(run_value, run_length))
    return np.frombuffer(b"".join(out), np.uint8)


def _run(value: int, count: int) -> bytes:
    """So many lengths of 0 or of 1."""
    return write_varint(value if count == 1 else 3 - value - 2 * count)


def _written_values(kind: ValueType, lengths: NDArray[np.int64], values: Values) -> tuple[bytes, NDArray[np.int64]]:
    """The bytes of the values of arrays, and where among them those of each array end."""
    if kind is ValueType.BOOLEAN:
        widths = (lengths + 7) // 8
        ends = np.cumsum(widths)
        before = 8 * (ends - widths) - (np.cumsum(lengths) - lengths)
        bits = np.zeros(8 * int(widths.sum()), np.bool_)
        bits[np.arange(int(lengths.sum())) + np.repeat(before, lengths)] = values
        return np.packbits(bits, bitorder="little").tobytes(), ends
    sizes = np.zeros(int(lengths.sum()), np.int64) if kind is ValueType.NULL else value_sizes(kind, values)
    ends = np.concatenate([[0], np.cumsum(sizes)])[np.cumsum(lengths)]
    return write_values(kind, values).tobytes(), ends
