"""RLE: runs and bit-packed groups, for levels, dictionary indices and booleans (parquet-format, Encodings.md)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.kernels.integers import varint, varint_bytes
from resilient_pq.format.physical_values import Levels, Values, is_uniform
from resilient_pq.format.schema_tree import Primitive

_LENGTH = 4


def bit_width(maximum: int) -> int:
    """Bits that hold the numbers 0 to `maximum`."""
    return int(maximum).bit_length()


def encode_levels(levels: Levels, maximum: int) -> NDArray[np.uint8]:
    """Levels without a length before them, as data pages v2 have them."""
    if is_uniform(levels):
        return _one_run(len(levels), int(levels[0]), bit_width(maximum), prefixed=False)
    return kernels.rle_encode(levels, bit_width(maximum))


@lru_cache(maxsize=256)  # all columns without nulls have the same
def _one_run(count: int, level: int, width: int, *, prefixed: bool) -> NDArray[np.uint8]:
    """A run of the same level, as the kernel encodes it too, which would look at each."""
    encoded = varint_bytes(count << 1) + level.to_bytes((width + 7) // 8, "little")
    length = len(encoded).to_bytes(_LENGTH, "little") if prefixed else b""
    return np.frombuffer(length + encoded, np.uint8)


def encode_prefixed(levels: Levels, maximum: int) -> NDArray[np.uint8]:
    """Levels behind their length, as data pages v1 have them."""
    if is_uniform(levels):
        return _one_run(len(levels), int(levels[0]), bit_width(maximum), prefixed=True)
    encoded = kernels.rle_encode(levels, bit_width(maximum), _LENGTH)
    encoded[:_LENGTH] = np.frombuffer((len(encoded) - _LENGTH).to_bytes(_LENGTH, "little"), np.uint8)
    return encoded


def take_prefixed(data: memoryview, what: str) -> tuple[memoryview, memoryview]:
    """Split a length-prefixed run of bytes from what follows it."""
    if len(data) < _LENGTH:
        raise EncodingError(f"the page ends before the length of its {what}")
    length = int.from_bytes(data[:_LENGTH], "little")
    if length > len(data) - _LENGTH:
        raise EncodingError(f"the {what} take {length} bytes, but the page has {len(data) - _LENGTH} left")
    return data[_LENGTH : _LENGTH + length], data[_LENGTH + length :]


def decode_levels(data: memoryview, maximum: int, out: Levels) -> None:
    """Fill `out` with levels."""
    kernels.rle_decode(data, bit_width(maximum), out)
    check_maximum(out, maximum)


def check_maximum(levels: Levels, maximum: int) -> None:
    """Raise `EncodingError` where a level is greater than `maximum`."""
    if levels.max(initial=0) > maximum:
        raise EncodingError(f"a level of {levels.max()} stands where the greatest is {maximum}")


def ends_with(data: memoryview, bit_width: int, count: int, *, zeros: bool = False) -> bool:
    """Whether runs of exactly `count` values take all of `data`, as far as their headers tell."""
    # The last bit-packed run is filled up to whole groups, with zeros alone if `zeros` asks for that, or cut short
    # behind the last value, as old writers left it. Run by run in Python: it is asked of damaged chunks alone.
    if not bit_width and not data:
        return True  # some writers leave out what would tell nothing
    position = filled = padded = whole = 0
    while filled < count and position < len(data):
        header, position = varint(data, position, 32)
        if header < 2:
            return False  # a run of no values, which no writer makes, and at which readers stop
        if header & 1:
            filled += 8 * (header >> 1)
            needed = -(-(8 * (header >> 1) - max(filled - count, 0)) * bit_width // 8)
            if position + needed > len(data):
                return False
            whole = position + (header >> 1) * bit_width
            position, padded = min(whole, len(data)), 7
        else:
            filled += header >> 1
            position += (bit_width + 7) // 8
            padded = 0
    last = data[len(data) - bit_width :] if zeros and padded and whole == position else b""
    ends = position == len(data) and 0 <= filled - count <= padded
    return ends and not int.from_bytes(last, "little") >> (8 - filled + count) * bit_width


def encode(node: Primitive, values: Values) -> NDArray[np.uint8]:
    """BOOLEAN values: one bit each, behind their length in both versions of data pages."""
    del node
    assert isinstance(values, np.ndarray)
    return encode_prefixed(values.view(np.uint8), 1)


def decode(node: Primitive, data: memoryview, out: NDArray[Any]) -> None:
    """Fill `out` with BOOLEAN values."""
    del node
    packed, _ = take_prefixed(data, "RLE booleans")
    kernels.rle_decode(packed, 1, out.view(np.uint8))
