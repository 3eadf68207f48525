"""Arrow arrays as one NumPy array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import DTYPES, BufferPart
from resilient_pq.arrow.to_python import python_values
from resilient_pq.arrow.types.field import Field
from resilient_pq.arrow.types.widening import decoded


def numpy_values(field: Field, parts: Sequence[BufferPart]) -> NDArray[Any]:
    """The slots of all parts, which are of the type `field`, as `Table.__getitem__` documents it."""
    if field.dictionary is not None and _dtype(field.dictionary) is not None:
        field, parts = field.dictionary, [BufferPart.of(decoded(part)) for part in parts]
    dtype = _dtype(field)
    if dtype is None:
        return _objects(field, parts)
    arrays = [_stored(part).view(dtype) for part in parts]
    values = arrays[0] if len(arrays) == 1 else np.concatenate([np.empty(0, dtype), *arrays])
    masks = [part.valid() for part in parts]
    if all(mask is None for mask in masks):
        return values
    valid = [np.ones(part.length, np.bool_) if mask is None else mask for part, mask in zip(parts, masks, strict=True)]
    return np.ma.MaskedArray(values, mask=~np.concatenate(valid))


def _dtype(field: Field) -> np.dtype[Any] | None:
    """NumPy's type for the values; None where only Python objects will do."""
    match field.kind:
        case "b":
            return np.dtype(np.bool_)
        case "tdD":
            return np.dtype("M8[D]")
        case "tdm":
            return np.dtype("M8[ms]")
        case "ts":
            return np.dtype(f"M8[{field.unit}]")
        case "tt" | "tD":
            return np.dtype(f"m8[{field.unit}]")
    return DTYPES.get(field.kind)


def _stored(part: BufferPart) -> NDArray[Any]:
    if part.field.kind == "b":
        return part.booleans()
    stored = part.fixed()
    # NumPy's dates and times of day have 64 bits.
    return stored.astype(np.int64) if part.field.kind in ("tdD", "tt") else stored


def _objects(field: Field, parts: Sequence[BufferPart]) -> NDArray[Any]:
    out = np.empty(sum(part.length for part in parts), np.object_)
    start = 0
    for part in parts:
        # One by one: NumPy would take lists of equal length for further dimensions.
        for index, value in enumerate(python_values(part, field.name, "numpy"), start):
            out[index] = value
        start += part.length
    return out
