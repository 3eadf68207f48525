"""Byte arrays: their lengths, bytes, order and text."""

from __future__ import annotations

import codecs
import struct
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels.reference.arrays import LARGEST_LENGTH, BytesLike, Offsets, octets, require_types

_LENGTH = struct.Struct("<I")
_BITE = 1 << 18  # How many bytes are decoded at one time, to see whether they can be


def byte_array_lengths(buffer: BytesLike, lengths: NDArray[np.int32]) -> int:
    """Fill `lengths` with the lengths of as many PLAIN BYTE_ARRAY values, and return their sum."""
    data = octets(buffer).data
    require_types(lengths, np.int32)
    size = len(data)
    position = 0
    found = []
    for _ in range(lengths.size):
        length = _LENGTH.unpack_from(data, position)[0] if size - position >= 4 else size
        position += 4 + length
        if position > size or length > LARGEST_LENGTH:
            raise EncodingError("a BYTE_ARRAY value ends behind the end of its buffer")
        found.append(length)
    lengths[:] = found
    return position - 4 * lengths.size


def byte_array_join(offsets: Offsets, data: BytesLike, out: NDArray[np.uint8]) -> None:
    """Encode the values ``data[offsets[i]:offsets[i + 1]]`` as PLAIN BYTE_ARRAY into `out`, which they fill."""
    source = octets(data)
    require_types(out, np.uint8)
    check_offsets(offsets, source.size)
    lengths = np.diff(offsets)
    if out.size != int(offsets[-1]) - int(offsets[0]) + 4 * lengths.size:
        raise EncodingError("the values do not fill the output exactly")
    body = np.ones(out.size, np.bool_)
    prefixes = prefix_positions(lengths)
    body[prefixes] = False
    out[prefixes] = lengths.astype("<u4").view(np.uint8)
    out[body] = source[offsets[0] : offsets[-1]]


def byte_array_min_max(offsets: Offsets, data: BytesLike) -> tuple[int, int]:
    """Positions of the smallest and the largest value, compared bytewise and unsigned; of equals, the first."""
    values = byte_arrays(offsets, data)
    if not values:
        raise ValueError("there are no values to compare")
    positions = range(len(values))
    return min(positions, key=values.__getitem__), max(positions, key=values.__getitem__)


def check_offsets(offsets: Offsets, size: int) -> None:
    """Refuse offsets that are not ``0 <= offsets[i] <= offsets[i + 1] <= size`` throughout."""
    require_types(offsets, np.int32, np.int64)
    if not offsets.size:
        raise EncodingError("there must be one offset more than values")
    if offsets[0] < 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any():
        raise EncodingError("offsets fall or lead out of the data")
    if np.diff(offsets).max(initial=0) > LARGEST_LENGTH:
        raise EncodingError("a value has 2**31 bytes or more")


def byte_arrays(offsets: Offsets, data: BytesLike) -> list[bytes]:
    """The values themselves."""
    source = octets(data)
    check_offsets(offsets, source.size)
    raw = source.tobytes()
    bounds = offsets.tolist()
    return [raw[start:end] for start, end in pairwise(bounds)]


def prefix_positions(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Where the four bytes of each value's length stand among PLAIN BYTE_ARRAY values."""
    starts: NDArray[np.int64] = np.cumsum(lengths, dtype=np.int64) - lengths + 4 * np.arange(lengths.size)
    return (starts[:, None] + np.arange(4)).ravel()


def row_min_max(rows: NDArray[np.uint8], signed: bool) -> tuple[int, int]:
    """The first of the smallest rows of bytes and of the largest; `signed` ones are big-endian two's complement."""
    if not rows.size:
        raise ValueError("there must be a row of at least a byte")
    return _extreme_row(rows, signed, largest=False), _extreme_row(rows, signed, largest=True)


def _extreme_row(rows: NDArray[np.uint8], signed: bool, *, largest: bool) -> int:
    """Narrow the rows down byte by byte; after the first byte few are left."""
    left = np.arange(len(rows))
    for position in range(rows.shape[1]):
        column = rows[left, position]
        if signed and position == 0:
            column = column ^ 0x80
        left = left[column == (column.max() if largest else column.min())]
        if len(left) == 1:
            break
    return int(left[0])


def utf8_valid(offsets: Offsets, data: BytesLike) -> bool:
    """Whether each of the values ``data[offsets[i]:offsets[i + 1]]`` is well-formed UTF-8 by itself."""
    source = octets(data)
    check_offsets(offsets, source.size)
    first, last = int(offsets[0]), int(offsets[-1])
    text = source[first:last]
    if text.max(initial=0) < 0x80:
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, text.size, _BITE):
            decoder.decode(text[start : start + _BITE].data)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    # All of it is. So is each value, unless one begins within a character: with one of its further bytes.
    starts = offsets[:-1]
    beginnings = source[starts[starts < last]]
    return not bool(((beginnings & 0xC0) == 0x80).any())
