"""Unscaled integers of decimals: Arrow's little-endian rows of bytes from Parquet's four physical types."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import FormatError
from resilient_pq.format.values import ByteArrays, Values

#: Some writers pad decimals with sign bytes; a value longer than this is no decimal.
_LONGEST: Final = 64
#: Bytes of Arrow's widest decimals.
WIDEST: Final = 32


class _TooWideError(Exception):
    """A value has more bytes than a row."""


def decimal_rows(values: Values, size: int) -> NDArray[np.uint8]:
    """Little-endian two's complement of the values of a DECIMAL leaf, a row of bytes each.

    Rows have `size` bytes, 16 or 32; or 32 where a value needs more than its precision lets expect, as some
    writers leave them.

    Raises:
        FormatError: A value does not fit into 32 bytes.
    """
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return _from_integers(values, size)
    convert: Callable[[Any, int], NDArray[np.uint8]] = (
        _from_byte_arrays if isinstance(values, ByteArrays) else _from_big_endian
    )
    for width in (size, WIDEST):
        with suppress(_TooWideError):
            return convert(values, width)
    raise FormatError(f"a decimal does not fit into {WIDEST} bytes")


def _from_integers(values: NDArray[Any], size: int) -> NDArray[np.uint8]:
    low = values.astype("<i8")
    words = np.empty((len(values), size // 8), "<i8")
    words[:, 0] = low
    words[:, 1:] = (low >> 63)[:, None]
    return words.view(np.uint8)


def _from_big_endian(rows: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    count, width = rows.shape
    if width == 0:
        return np.zeros((count, size), np.uint8)
    padding = max(width - size, 0)
    kept = rows[:, padding:]
    sign = np.where(kept[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0))
    if padding and (rows[:, :padding] != sign).any():
        raise _TooWideError
    big_endian = np.empty((count, size), np.uint8)
    big_endian[:, : size - kept.shape[1]] = sign
    big_endian[:, size - kept.shape[1] :] = kept
    # Words are swapped, and then the bytes in them: far faster than to turn each row around byte by byte.
    return big_endian.view("<i8")[:, ::-1].byteswap().view(np.uint8).reshape(count, size)


def _from_byte_arrays(values: ByteArrays, size: int) -> NDArray[np.uint8]:
    """Values of the same length are converted at once; an empty one is 0."""
    out = np.zeros((len(values), size), np.uint8)
    lengths = np.diff(values.offsets)
    starts = values.offsets[:-1]
    for length in np.unique(lengths).tolist():
        if length > _LONGEST:
            raise FormatError(f"a decimal has {length:,} bytes")
        alike = np.flatnonzero(lengths == length)
        places = starts[alike].astype(np.int64)[:, None] + np.arange(length)
        out[alike] = _from_big_endian(values.data[places], size)
    return out
