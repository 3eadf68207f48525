"""Bytes searched for bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resilient_pq.format.kernels.reference.arrays import BytesLike, octets


def find_all(buffer: BytesLike, needle: bytes) -> NDArray[np.int64]:
    """The offsets where at least two bytes stand in others, also where they overlap; Python's search is slower."""
    length = len(needle)
    if length < 2:
        raise ValueError("what is searched for has at least two bytes")
    data = octets(buffer)
    starts = data.size - length + 1
    if starts <= 0:
        return np.zeros(0, np.int64)
    # Two bytes at once are compared in words, at even offsets and then at odd ones.
    word = np.frombuffer(needle, np.uint16, 1)[0]
    found = [
        2 * np.flatnonzero(data[odd : odd + (starts + 1 - odd) // 2 * 2].view(np.uint16) == word) + odd
        for odd in (0, 1)
    ]
    offsets = np.sort(np.concatenate(found)).astype(np.int64, copy=False)
    for i in range(2, length):
        offsets = offsets[data[offsets + i] == needle[i]]
    return offsets
