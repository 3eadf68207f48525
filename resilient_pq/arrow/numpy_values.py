"""NumPy arrays as Arrow arrays, without a copy where their layouts agree."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import DTYPES, make_array
from resilient_pq.arrow.field import Field
from resilient_pq.arrow.python_values import array_of
from resilient_pq.errors import SchemaError, Where

_FORMATS = {DTYPES[kind]: kind for kind in ("c", "C", "s", "S", "i", "I", "l", "L", "e", "f", "g")}
_UNIT_LETTERS = {"s": "s", "ms": "m", "us": "u", "ns": "n"}


def array_of_numpy(name: str, array: NDArray[Any], field: Field | None = None) -> tuple[Field, Any]:
    """An Arrow array of a one-dimensional NumPy array; masked values and NaT are null, NaN is a value."""
    if array.ndim != 1:
        raise _misfit(name, f"it has {array.ndim} dimensions, not one")
    mask = np.ma.getmaskarray(array) if isinstance(array, np.ma.MaskedArray) else None
    values = np.asarray(array)
    if values.dtype.kind in "OUST":
        objects = values.tolist()
        if mask is not None:
            pairs = zip(objects, mask.tolist(), strict=True)
            objects = [None if masked else value for value, masked in pairs]
        return array_of(name, objects, field)
    if values.dtype.kind in "mM":
        nat = np.isnat(values)
        mask = nat if mask is None else mask | nat
    valid = None if mask is None or not mask.any() else ~mask
    found, stored = _stored(name, values)
    return found, make_array(found, len(values), [np.ascontiguousarray(stored)], valid)


def _stored(name: str, values: NDArray[Any]) -> tuple[Field, NDArray[Any]]:
    """The Arrow type, and the values as its data buffer has them."""
    native = values.astype(values.dtype.newbyteorder("<"), copy=False)
    if values.dtype.kind == "b":
        return Field(name, "b"), np.packbits(values, bitorder="little")
    if native.dtype in _FORMATS:
        return Field(name, _FORMATS[native.dtype]), native
    if values.dtype.kind in "mM":
        unit, count = np.datetime_data(values.dtype)
        if count == 1 and unit in _UNIT_LETTERS:
            letter = _UNIT_LETTERS[unit]
            kind = f"ts{letter}:" if values.dtype.kind == "M" else f"tD{letter}"
            return Field(name, kind), native.view("<i8")
        if count == 1 and unit == "D" and values.dtype.kind == "M":
            return Field(name, "tdD"), _days(name, native)
    raise _misfit(name, f"there is no Arrow type for NumPy's {values.dtype}")


def _days(name: str, values: NDArray[Any]) -> NDArray[Any]:
    days = np.where(np.isnat(values), 0, values.view("<i8"))
    if len(days) and (days.min() < -(2**31) or days.max() >= 2**31):
        raise _misfit(name, "a date is too far from 1970")
    return days.astype("<i4")


def _misfit(name: str, what: str) -> SchemaError:
    return SchemaError(f"column {name!r}: {what}", where=Where(column=name))
