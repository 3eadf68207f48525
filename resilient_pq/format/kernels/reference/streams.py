"""BYTE_STREAM_SPLIT: rows of bytes, and streams of the first bytes of all rows, the second ones, and so on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def split_streams(rows: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Transpose the bytes of values, a value a row, to streams, a stream a row."""
    if rows.shape != out.shape[::-1]:
        raise ValueError("there must be a stream for each byte of a row, and a byte in it for each row")
    out[...] = rows.T


def join_streams(streams: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Transpose streams, a stream a row and at least as long as there are values, to values, a value a row."""
    if streams.shape[0] != out.shape[1] or streams.shape[1] < out.shape[0]:
        raise ValueError("there must be a stream for each byte of a row, and a byte in it for each row")
    for byte, stream in enumerate(streams):
        out[:, byte] = stream[: len(out)]
