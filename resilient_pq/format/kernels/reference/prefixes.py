"""Byte arrays that share prefixes with their neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels.reference.arrays import LARGEST_LENGTH, BytesLike, Offsets, octets, require_types
from resilient_pq.format.kernels.reference.byte_arrays import check_offsets


def shared_prefixes(offsets: Offsets, data: BytesLike) -> NDArray[np.int32]:
    """How many bytes each value ``data[offsets[i]:offsets[i + 1]]`` shares with the front of the one before."""
    source = octets(data)
    check_offsets(offsets, source.size)
    shared = np.zeros(offsets.size - 1, np.int32)
    if shared.size < 2:
        return shared
    lengths = np.diff(offsets).astype(np.int64)
    limits = np.minimum(lengths[1:], lengths[:-1])
    ends = np.cumsum(limits)  # of each comparison among all of them, back to back
    within = np.arange(ends[-1]) - np.repeat(ends - limits, limits)
    here = source[within + np.repeat(offsets[1:-1], limits)]
    before = source[within + np.repeat(offsets[:-2], limits)]
    different = np.append(np.flatnonzero(here != before), ends[-1])
    first = different[np.searchsorted(different, ends - limits)]
    shared[1:] = np.minimum(first - (ends - limits), limits)
    return shared


def join_prefixes(
    prefixes: NDArray[np.int32],
    suffix_lengths: NDArray[np.int32],
    suffixes: BytesLike,
    lengths: NDArray[np.int32],
    previous: BytesLike = b"",
) -> NDArray[np.uint8]:
    """Put the values of DELTA_BYTE_ARRAY together (Encodings.md, 7), set their lengths, and return them in a row."""
    # Each takes over as many bytes as its prefix says from the front of the one before, the first from `previous`, and
    # then has its own from `suffixes`.
    data = octets(suffixes).tobytes()
    value = octets(previous).tobytes()
    for array in (prefixes, suffix_lengths, lengths):
        require_types(array, np.int32)
    if not prefixes.shape == suffix_lengths.shape == lengths.shape:
        raise ValueError("there must be as many lengths as prefixes")
    found = prefixes.astype(np.int64) + suffix_lengths
    if min(prefixes.min(initial=0), suffix_lengths.min(initial=0)) < 0:
        raise EncodingError("a prefix or a suffix has a negative length")
    if (prefixes > np.append(len(value), found[:-1])[: prefixes.size]).any():
        raise EncodingError("a prefix is longer than the value before")
    if suffix_lengths.sum(dtype=np.int64) > len(data):
        raise EncodingError("the suffixes end behind the end of their buffer")
    if found.sum() > LARGEST_LENGTH:
        raise EncodingError("the values of a page have 2**31 bytes or more")
    lengths[:] = found
    values = []
    position = 0
    for prefix, size in zip(prefixes.tolist(), suffix_lengths.tolist(), strict=True):
        value = value[:prefix] + data[position : position + size]
        position += size
        values.append(value)
    return np.frombuffer(bytearray().join(values), dtype=np.uint8)
