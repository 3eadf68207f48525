"""Arrow's string and binary views: four words of 32 bits for each value.

They are the length, then up to twelve bytes of value filled up with zeros; or, where it has more, its first four, the
number of a buffer and the offset therein (Arrow columnar format, "Variable-size Binary View Layout").
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels.reference.arrays import LARGEST_LENGTH, BytesLike, Offsets, octets
from resilient_pq.format.kernels.reference.byte_arrays import check_offsets

INLINE_VIEW = 12  # A value of at most so many bytes stands in its view

_SHORT = struct.Struct("<i12s")
_LONG = struct.Struct("<i4sii")


def views_of(offsets: Offsets, data: BytesLike, buffer: int, out: NDArray[np.int32]) -> None:
    """Fill `out` with views, four words each, of values ``data[offsets[i]:offsets[i + 1]]`` in buffer `buffer`."""
    source = octets(data)
    _require_views(out)
    if len(out) != offsets.size - 1:
        raise ValueError("there must be a view of four words for each value")
    check_offsets(offsets, source.size)
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first > LARGEST_LENGTH:
        raise EncodingError("values of 2**31 bytes or more do not fit one buffer of views")
    raw = source[first:last].tobytes()
    views = bytearray()
    for start, end in pairwise((offsets - offsets[0]).tolist()):
        if end - start <= INLINE_VIEW:
            views += _SHORT.pack(end - start, raw[start:end])
        else:
            views += _LONG.pack(end - start, raw[start : start + 4], buffer, start)
    out[:] = np.frombuffer(bytes(views), "<i4").reshape(-1, 4)


def views_join(views: NDArray[np.int32], buffers: Sequence[BytesLike]) -> tuple[Offsets, NDArray[np.uint8]]:
    """The values of views back to back: their offsets, int64 where int32 do not suffice, and their bytes."""
    sources = [octets(buffer) for buffer in buffers]
    _require_views(views)
    raw = views.tobytes()
    values = [_value(raw[at : at + 16], sources) for at in range(0, len(raw), 16)]
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    data = np.frombuffer(b"".join(values), np.uint8)
    return (offsets.astype(np.int32) if data.size <= LARGEST_LENGTH else offsets), data


def _value(view: bytes, sources: Sequence[NDArray[np.uint8]]) -> bytes:
    size, _, buffer, offset = _LONG.unpack(view)
    if 0 <= size <= INLINE_VIEW:
        return view[4 : 4 + size]
    if size < 0 or not 0 <= buffer < len(sources) or offset < 0 or offset + size > sources[buffer].size:
        raise EncodingError("a view leads out of its buffers")
    value: bytes = sources[buffer][offset : offset + size].tobytes()
    return value


def _require_views(views: NDArray[np.int32]) -> None:
    if views.dtype != np.int32 or views.shape[1:] != (4,) or not views.flags.c_contiguous:
        raise ValueError("views must be rows of four int32")
