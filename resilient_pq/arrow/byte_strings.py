"""Choosing values out of byte strings: nulls left out, dictionaries looked up, views made into offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq import room
from resilient_pq.arrow.buffers import VIEW_KINDS, Part
from resilient_pq.format import kernels
from resilient_pq.format.values import MAX_SMALL_OFFSET, ByteArrays


def byte_arrays_of(part: Part, positions: NDArray[Any] | None) -> ByteArrays:
    """Values of a string or binary array of any layout, of slots or a mask of them; None copies views alone."""
    if part.field.kind in VIEW_KINDS:
        views = part.views() if positions is None else part.views()[positions]
        return ByteArrays(*kernels.views_join(np.ascontiguousarray(views), part.view_buffers()))
    whole = ByteArrays(part.offsets(), part.data())
    if positions is None:
        return whole
    if positions.dtype != np.bool_:
        return take(whole, positions)
    # Nulls have no bytes most of the time, and then the others are back to back as they lie.
    offsets: NDArray[Any] = room.empty((int(np.count_nonzero(positions)) + 1,), whole.offsets.dtype)
    if kernels.compact_offsets(whole.offsets, positions, offsets):
        return ByteArrays(offsets, whole.data)
    return take(whole, np.flatnonzero(positions))


def take(values: ByteArrays, positions: NDArray[Any]) -> ByteArrays:
    """The values at `positions`, back to back."""
    indices = np.ascontiguousarray(positions, np.int32)
    lengths = room.empty((len(indices),), np.int32)
    total = kernels.byte_array_gather_lengths(values.offsets, indices, lengths)
    out = room.empty((total,), np.uint8)
    kernels.byte_array_gather(values.offsets, values.data, indices, out)
    return ByteArrays(_offsets_of(lengths, total), out, values.known_utf8)


def _offsets_of(lengths: NDArray[Any], total: int) -> NDArray[Any]:
    offsets = np.zeros(len(lengths) + 1, np.int32 if total <= MAX_SMALL_OFFSET else np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
