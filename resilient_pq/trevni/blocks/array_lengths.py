"""Arrays as blocks have them: the length of each, and its values behind it (Trevni, "trevni.array").

In files of the last version a negative length begins a run: it stands for itself and for ``(1 - L) >> 1`` lengths to
come, all of them ``(L + 1) & 1``. Booleans begin a new byte behind each length.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.physical_values import Values
from resilient_pq.trevni.blocks.block_values import (
    STRINGS,
    Position,
    between,
    empty,
    fixed_width,
    read_values,
    read_varint,
)
from resilient_pq.trevni.blocks.file_header import Version
from resilient_pq.trevni.blocks.trevni_metadata import ValueType

_LONGEST_LENGTH: Final = 2**31 - 1


def read_arrays(
    kind: ValueType, version: Version, data: NDArray[np.uint8], position: Position, count: int
) -> tuple[NDArray[np.int64], Values, Position]:
    """Lengths and values of consecutive arrays of a block, and the position behind them."""
    view, size = data.data, len(data)
    skip = _skipper(kind, view)
    at, left, length = position.at, position.run_left, position.run_value
    lengths: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    try:
        while len(lengths) < count:
            if not left:
                left, length, at = _read_length(version, view, at)
            if length and kind is not ValueType.NULL:
                lengths.append(length)
                left -= 1
                starts.append(at)
                at = skip(at, length)
                if at > size:
                    raise EncodingError(f"an array of {length:,} values begins at {starts[-1]:,} of {size:,} bytes")
                ends.append(at)
            else:
                alike = min(left, count - len(lengths))
                lengths += [length] * alike
                left -= alike
    except IndexError:
        raise EncodingError("the block ends within an array") from None
    found = np.array(lengths, np.int64)
    return found, _values_of(kind, data, found, starts, ends), Position(at, 0, left, length if left else 0)


def _read_length(version: Version, view: memoryview, at: int) -> tuple[int, int, int]:
    """Read a length: how often it comes, the length, and the position behind it."""
    length, at = read_varint(view, at)
    shortest = ~_LONGEST_LENGTH if version is Version.FINAL else 0
    if not shortest <= length <= _LONGEST_LENGTH:
        raise EncodingError(f"the length of an array is {length}")
    if length < 0:
        return ((1 - length) >> 1) + 1, (length + 1) & 1, at
    return 1, length, at


def _skipper(kind: ValueType, view: memoryview) -> Callable[[int, int], int]:
    """The function that finds the end of values; it may return a position behind the block."""
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


def _values_of(
    kind: ValueType, data: NDArray[np.uint8], lengths: NDArray[np.int64], starts: list[int], ends: list[int]
) -> Values:
    """The values of arrays, one behind the other."""
    if not starts:
        return empty(kind)
    first = starts[0]
    places, places_end = np.array(starts) - first, np.array(ends) - first
    values = between(data[first : ends[-1]], places, places_end).data
    if kind is ValueType.BOOLEAN:
        return _booleans_of(values, lengths[lengths > 0], places_end - places)
    return read_values(kind, values, Position(), int(lengths.sum()))[0]


def _booleans_of(data: NDArray[np.uint8], counts: NDArray[np.int64], widths: NDArray[np.int64]) -> Values:
    """The booleans of arrays that begin a byte each."""
    bits = np.unpackbits(data, bitorder="little").view(np.bool_)
    before = 8 * (np.cumsum(widths) - widths) - (np.cumsum(counts) - counts)
    found: NDArray[np.bool_] = bits[np.arange(int(counts.sum())) + np.repeat(before, counts)]
    return found
