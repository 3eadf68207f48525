"""Unscaled integers of decimals: Arrow's little-endian rows, and Parquet's integers and big-endian rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def decimals_widen(values: NDArray[Any], out: NDArray[np.uint8]) -> bool:
    """Integers as little-endian two's complement of more bytes; whether all fit, else `out` is not defined."""
    # From int32, int64 or big-endian rows of any width, 0 for rows without bytes, to rows of 16 or 32 bytes.
    size = out.shape[1]
    if size not in (16, 32):
        raise ValueError("decimals have rows of 16 or 32 bytes")
    if len(values) != len(out):
        raise ValueError("there must be one row per value")
    if values.ndim == 1:
        low = _integers(values).astype("<i8")
        words = out.view("<i8")
        words[:, 0] = low
        words[:, 1:] = (low >> 63)[:, None]
        return True
    width = values.shape[1]
    if width == 0:
        out[...] = 0
        return True
    padding = max(width - size, 0)
    kept = values[:, padding:]
    sign = np.where(kept[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0))
    big_endian = np.empty((len(values), size), np.uint8)
    big_endian[:, : size - kept.shape[1]] = sign
    big_endian[:, size - kept.shape[1] :] = kept
    # Words are swapped, and then the bytes in them: far faster than to turn each row around byte by byte.
    out[...] = big_endian.view("<i8")[:, ::-1].byteswap().view(np.uint8).reshape(out.shape)
    return not (values[:, :padding] != sign).any()


def decimals_narrow(rows: NDArray[np.uint8], out: NDArray[Any]) -> int:
    """Little-endian two's complement as integers, or as big-endian rows, of fewer bytes or more."""
    # From rows of 4, 8, 16 or 32 bytes to int32, int64 or rows of any width but 0. Returns the first row whose value
    # does not fit, and then `out` is not defined; or -1 if all do.
    count, size = rows.shape
    if size not in (4, 8, 16, 32):
        raise ValueError("decimals have rows of 4, 8, 16 or 32 bytes")
    width = out.shape[1] if out.ndim == 2 else _integers(out).itemsize
    if len(out) != count or width == 0:
        raise ValueError("there must be one place of at least a byte per row")
    if size < width:
        sign = np.where(rows[:, -1:] & 0x80, np.uint8(0xFF), np.uint8(0))
        rows = np.concatenate([rows, np.repeat(sign, 8 * -(-width // 8) - size, axis=1)], axis=1)
    step = min(rows.shape[1], 8)
    words = rows.view(f"<i{step}")
    top = (width - 1) // step
    # Shifting out what lies beyond the width, and back with the sign, must change nothing.
    beyond = 8 * (step * (top + 1) - width)
    highest = words[:, top]
    too_wide = (highest << beyond) >> beyond != highest
    for above in range(top + 1, words.shape[1]):
        too_wide |= words[:, above] != highest >> (8 * step - 1)
    if too_wide.any():
        return int(np.argmax(too_wide))
    whole = step * (top + 1)
    big_endian = words[:, top::-1].byteswap().view(np.uint8).reshape(count, whole)[:, whole - width :]
    out.view(np.uint8).reshape(count, width)[...] = big_endian[:, ::-1] if out.ndim == 1 else big_endian
    return -1


def _integers(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype not in (np.int32, np.int64):
        raise ValueError("integers of decimals are int32 or int64")
    return values
