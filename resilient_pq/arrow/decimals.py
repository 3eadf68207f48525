"""Unscaled integers of decimals: Arrow's little-endian rows of bytes from Parquet's four physical types."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.errors import FormatError
from resilient_pq.format import kernels
from resilient_pq.format.physical_values import ByteArrays, Values

#: Some writers pad decimals with sign bytes; a value longer than this is no decimal.
_LONGEST: Final = 64
#: Bytes of the decimals that are made first: narrower ones are cut from these.
_NARROWEST: Final = 16
#: Bytes of Arrow's widest decimals.
WIDEST: Final = 32


class _TooWideError(Exception):
    """A value has more bytes than a row."""


def decimal_rows(values: Values, size: int) -> NDArray[np.uint8]:
    """Little-endian two's complement of the values of a DECIMAL leaf, a row of bytes each.

    Rows have `size` bytes, 4 to 32; or 16 or 32 where a value needs more than its precision lets expect, as some
    writers leave them.
    """
    if size < _NARROWEST:
        rows = decimal_rows(values, _NARROWEST)
        sign = np.where(rows[:, size - 1 : size] & 0x80, np.uint8(0xFF), np.uint8(0))
        return np.ascontiguousarray(rows[:, :size]) if (rows[:, size:] == sign).all() else rows
    convert: Callable[[Any, int], NDArray[np.uint8]] = (
        _from_byte_arrays if isinstance(values, ByteArrays) else _from_fixed
    )
    for width in (size, WIDEST):
        with suppress(_TooWideError):
            return convert(values, width)
    raise FormatError(f"a decimal does not fit into {WIDEST} bytes")


def _from_fixed(values: NDArray[Any], size: int) -> NDArray[np.uint8]:
    rows = memory_pool.empty((len(values), size), np.uint8)
    if not kernels.decimals_widen(np.ascontiguousarray(values), rows):
        raise _TooWideError
    return rows


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
        out[alike] = _from_fixed(values.data[places], size)
    return out
