"""BYTE_STREAM_SPLIT: rows of bytes, and streams of the first bytes of all rows, the second ones, and so on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def split_streams(rows: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """The bytes of values, stream by stream.

    Args:
        rows: Two-dimensional uint8, the bytes of a value a row.
        out: Two-dimensional uint8, a stream a row, with a byte for each value; it is filled.
    """
    if rows.shape != out.shape[::-1]:
        raise ValueError("there must be a stream for each byte of a row, and a byte in it for each row")
    out[...] = rows.T


def join_streams(streams: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """The values of streams.

    Args:
        streams: Two-dimensional uint8, a stream a row, each with at least as many bytes as there are values.
        out: Two-dimensional uint8, the bytes of a value a row; it is filled.
    """
    if streams.shape[0] != out.shape[1] or streams.shape[1] < out.shape[0]:
        raise ValueError("there must be a stream for each byte of a row, and a byte in it for each row")
    for byte, stream in enumerate(streams):
        out[:, byte] = stream[: len(out)]
