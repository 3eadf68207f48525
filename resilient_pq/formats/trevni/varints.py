"""Zig-zag variable-length integers: what Trevni's ints, longs, lengths and counts are.

Seven bits in each byte, the lowest first; the highest bit says that another byte follows (Trevni, "Primitive Values").
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError

#: Bytes of the longest int and of the longest long.
MAX_INT_BYTES: Final = 5
MAX_LONG_BYTES: Final = 10
_MORE: Final = 0x80


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """One integer of at most 64 bits.

    Args:
        data: Bytes.
        at: Where it begins.

    Returns:
        The integer, and where the next thing begins.

    Raises:
        IndexError: It goes on behind the end of `data`.
        EncodingError: It has more than 64 bits.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            break
        shift += 7
        if shift >= 7 * MAX_LONG_BYTES:
            raise EncodingError("an integer has more than ten bytes")
    if value >> 64:
        raise EncodingError("an integer has more than 64 bits")
    return (value >> 1) ^ -(value & 1), at


def write_varint(value: int) -> bytes:
    """The bytes of an integer of at most 64 bits."""
    rest = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while rest >= _MORE:
        out.append(rest & 0x7F | _MORE)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_varints(data: NDArray[np.uint8], at: int, count: int, bits: int) -> tuple[NDArray[np.int64], int]:
    """Integers one behind the other.

    Args:
        data: Bytes.
        at: Where the first begins.
        count: How many.
        bits: Bits that each may have, 32 or 64.

    Returns:
        The integers, and where the next thing begins.

    Raises:
        EncodingError: There are not so many, or one has more bits.
    """
    if count > len(data) - at:
        raise EncodingError(f"{count:,} integers are said to be in {len(data) - at:,} bytes")
    longest = MAX_INT_BYTES if bits == 32 else MAX_LONG_BYTES
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


def write_varints(values: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of integers, one behind the other.

    Args:
        values: Integers of at most 64 bits with a sign.

    Returns:
        The bytes, and how many each integer has.
    """
    wide = values.astype(np.int64)
    rest = (wide << 1).view(np.uint64) ^ (wide >> 63).view(np.uint64)
    lengths = np.ones(len(wide), np.int64)
    for place in range(1, MAX_LONG_BYTES):
        lengths += rest >> np.uint64(7 * place) != 0
    ends = np.cumsum(lengths)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    starts = ends - lengths
    for place in range(int(lengths.max()) if len(lengths) else 0):
        there = lengths > place
        byte = (rest[there] >> np.uint64(7 * place)).astype(np.uint8) & np.uint8(0x7F)
        out[starts[there] + place] = byte | np.where(lengths[there] > place + 1, np.uint8(_MORE), np.uint8(0))
    return out, lengths
