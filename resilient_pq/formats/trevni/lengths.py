"""Arrays as blocks have them: the length of each, and its values behind it (Trevni, "trevni.array").

In files of the last version a negative length begins a run: it stands for itself and for ``(1 - L) >> 1`` lengths to
come, all of them ``(L + 1) & 1``. Booleans begin a new byte behind each length.
"""

from __future__ import annotations

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
    reader = _ArrayReader(kind, version, data, position)
    lengths = np.array([reader.next_array() for _ in range(count)], np.int64)
    return lengths, reader.values(), reader.position


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


class _ArrayReader:
    """Reads arrays that have values, array by array; the values themselves are decoded together at last."""

    def __init__(self, kind: ValueType, version: Version, data: NDArray[np.uint8], position: Position) -> None:
        self._kind = kind
        self._version = version
        self._data = data
        self._view = data.data
        self._width = fixed_width(kind)
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._counts: list[int] = []
        self.position = position

    def next_array(self) -> int:
        """The length of the next array; where its values are is kept.

        Raises:
            EncodingError: It is none, or the block ends before it does.
        """
        before = self.position
        try:
            if before.run_left:
                length, at, left, value = before.run_value, before.at, before.run_left - 1, before.run_value
            else:
                length, at, left, value = self._length(before.at)
            end = self._end(at, length)
        except IndexError:
            raise EncodingError("the block ends within an array") from None
        if end > len(self._data):
            raise EncodingError(f"an array of {length:,} values begins at {at:,} of {len(self._data):,} bytes")
        if length:
            self._starts.append(at)
            self._ends.append(end)
            self._counts.append(length)
        self.position = Position(end, 0, left, value)
        return length

    def _length(self, at: int) -> tuple[int, int, int, int]:
        """The length that begins at a byte, where its values begin, and the run that it begins."""
        length, at = read_varint(self._view, at)
        if not ~_LONGEST_LENGTH <= length <= _LONGEST_LENGTH or (length < 0 and self._version is not Version.FINAL):
            raise EncodingError(f"the length of an array is {length}")
        if length >= 0:
            return length, at, 0, 0
        value = (length + 1) & 1
        return value, at, (1 - length) >> 1, value

    def _end(self, at: int, length: int) -> int:
        """Where the values of an array end."""
        if self._width is not None:
            return at + length * self._width
        if self._kind is ValueType.BOOLEAN:
            return at + (length + 7) // 8
        view = self._view
        if self._kind in STRINGS:
            for _ in range(length):
                size, at = read_varint(view, at)
                if size < 0:
                    raise EncodingError(f"a string has {size} bytes")
                at += size
            return at
        for _ in range(length):
            while view[at] >= 0x80:
                at += 1
            at += 1
        return at

    def values(self) -> Values:
        """The values of all arrays, one behind the other.

        Raises:
            EncodingError: One of them does not decode.
        """
        if not self._starts:
            return empty(self._kind)
        first = self._starts[0]
        starts, ends = np.array(self._starts) - first, np.array(self._ends) - first
        data = between(self._data[first : self._ends[-1]], starts, ends).data
        if self._kind is ValueType.BOOLEAN:
            return _booleans_of(data, np.array(self._counts), ends - starts)
        return read_values(self._kind, data, Position(), sum(self._counts))[0]


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
    ends = np.cumsum(lengths)
    out: list[bytes] = []
    run_value, run_length = -1, 0

    def end_run() -> None:
        nonlocal run_length, run_value
        if run_length:
            out.append(write_varint(run_value if run_length == 1 else 3 - run_value - 2 * run_length))
        run_value, run_length = -1, 0

    for length, end in zip(lengths.tolist(), ends.tolist(), strict=True):
        if length == run_value:
            run_length += 1
            continue
        end_run()
        if length > 1:
            out.append(write_varint(length))
        else:
            run_value, run_length = length, 1
        if length and kind is not ValueType.NULL:
            end_run()
            out.append(write_values(kind, values[end - length : end]).tobytes())
    end_run()
    return np.frombuffer(b"".join(out), np.uint8)
