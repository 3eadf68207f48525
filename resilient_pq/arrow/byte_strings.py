"""Choosing values out of byte strings: nulls left out, dictionaries looked up, views made into offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import INLINE_VIEW, Part
from resilient_pq.format import kernels
from resilient_pq.format.values import ByteArrays

_LARGEST_INT32 = 2**31 - 1


def byte_arrays_of(part: Part, positions: NDArray[Any] | None) -> ByteArrays:
    """The values of a string or binary array of any layout.

    Args:
        part: The array.
        positions: The slots wanted, in order, or for each slot whether it is; None is all, and copies only views.
    """
    if part.field.kind in ("vu", "vz"):
        views = part.views() if positions is None else part.views()[positions]
        return _from_views(part, views)
    whole = ByteArrays(part.offsets(), part.data())
    if positions is None:
        return whole
    if positions.dtype != np.bool_:
        return take(whole, positions)
    # Nulls have no bytes most of the time, and then the others are back to back as they lie.
    offsets = kernels.compact_offsets(whole.offsets, positions)
    return take(whole, np.flatnonzero(positions)) if offsets is None else ByteArrays(offsets, whole.data)


def take(values: ByteArrays, positions: NDArray[Any]) -> ByteArrays:
    """The values at `positions`, back to back."""
    return _gather(values.offsets, values.data, positions)


def _gather(offsets: NDArray[Any], data: NDArray[np.uint8], positions: NDArray[Any]) -> ByteArrays:
    indices = np.ascontiguousarray(positions, np.int32)
    lengths = np.empty(len(indices), np.int32)
    total = kernels.byte_array_gather_lengths(offsets, indices, lengths)
    out = np.empty(total, np.uint8)
    kernels.byte_array_gather(offsets, data, indices, out)
    return ByteArrays(_offsets_of(lengths, total), out)


def _offsets_of(lengths: NDArray[Any], total: int) -> NDArray[Any]:
    offsets = np.zeros(len(lengths) + 1, np.int32 if total <= _LARGEST_INT32 else np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _gather_spans(starts: NDArray[Any], lengths: NDArray[Any], data: NDArray[np.uint8]) -> ByteArrays:
    """The values that begin at `starts` of `data`: its spans need not touch, and may overlap."""
    # The kernel looks only at the offsets of the values that it is asked for, so every second pair is a span.
    bounds = np.empty(2 * len(starts), np.int64)
    bounds[0::2] = starts
    bounds[1::2] = bounds[0::2] + lengths
    return _gather(bounds, data, np.arange(0, len(bounds), 2, dtype=np.int32))


def _from_views(part: Part, views: NDArray[np.int32]) -> ByteArrays:
    """Views are length, prefix, buffer and offset, or the length and up to twelve bytes of value."""
    views = np.ascontiguousarray(views)
    lengths = views[:, 0]
    inline = lengths <= INLINE_VIEW
    # The views themselves are the source of short values; they come first.
    source = np.where(inline, 0, views[:, 2] + 1)
    starts = np.where(inline, 16 * np.arange(len(views), dtype=np.int64) + 4, views[:, 3])
    sources = np.unique(source)
    if len(sources) <= 1:
        data = _view_source(part, views, int(sources[0])) if len(sources) else np.empty(0, np.uint8)
        return _gather_spans(starts, lengths, data)
    order = np.argsort(source, kind="stable")
    bounds = np.searchsorted(source[order], sources, side="left").tolist()
    gathered = []
    for number, first, last in zip(sources.tolist(), bounds, [*bounds[1:], len(order)], strict=True):
        rows = order[first:last]
        gathered.append(_gather_spans(starts[rows], lengths[rows], _view_source(part, views, number)).data)
    by_source = np.concatenate(gathered)
    offsets = np.zeros(len(order) + 1, np.int64)
    np.cumsum(lengths[order], out=offsets[1:])
    back = np.empty(len(order), np.int32)
    back[order] = np.arange(len(order), dtype=np.int32)
    return _gather(offsets, by_source, back)


def _view_source(part: Part, views: NDArray[np.int32], number: int) -> NDArray[np.uint8]:
    return views.view(np.uint8).ravel() if number == 0 else part.data(1 + number)
