"""The values of a leaf column as an Arrow array: without a copy where the two agree on the layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import Valid, make_array, make_null_array, row_width, storage_dtype
from resilient_pq.arrow.decimals import decimal_rows
from resilient_pq.arrow.field import Field
from resilient_pq.errors import FormatError, Where
from resilient_pq.format.metadata import Repetition, Type
from resilient_pq.format.values import ByteArrays, LeafColumn, Values

#: An Arrow array with its type, which is wider than was asked for where the offsets did not suffice.
TypedArray: TypeAlias = tuple[Field, Any]

#: For each slot of an array the slot of the leaf that it is, or -1 where the leaf has none.
Places: TypeAlias = NDArray[np.int64]

#: The largest offset of the types with small ones.
MAX_SMALL_OFFSET = 2**31 - 1

_LARGE_FORMATS = {"u": "U", "z": "Z"}
_NARROW_INTEGERS: Final = ("c", "C", "s", "S")
_JULIAN_DAY_OF_EPOCH: Final = 2_440_588
_NANOS_PER_DAY: Final = 86_400 * 10**9
_MILLIS_PER_DAY: Final = 86_400_000


def leaf_array(field: Field, column: LeafColumn, places: Places | None) -> TypedArray:
    """One leaf as an array of `field`'s type.

    It comes as a wider type where it must: strings and binaries of more than 2 GiB as their large type, and
    integers of 8 or 16 bits as int32 where a value has more, as some writers leave them.

    Args:
        field: The type wanted, one that `schema.arrow_schema_of` gives for the leaf.
        column: The leaf.
        places: Where its slots stand in the array; None is in their own order.

    Raises:
        FormatError: A value is none of the type that the file's schema says.
    """
    valid = column.present if column.leaf.node.repetition is Repetition.OPTIONAL else None
    values = column.values
    if places is not None:
        valid = _placed_valid(valid, places)
        values = _placed(values, places)
    length = len(values)
    if field.kind == "n":
        if length and (valid is None or valid.any()):
            raise _misfit(column, "its type is UNKNOWN, so all its values must be null, but some are not")
        return field, make_null_array(field, length)
    if isinstance(values, ByteArrays) and field.kind != "d":
        return _string_array(field, values, valid)
    data = _stored(field, column, values, valid)
    if field.kind in _NARROW_INTEGERS:
        field, data = _narrowed(field, data)
    return field, make_array(field, length, [data], valid)


def _placed_valid(valid: Valid | None, places: Places) -> Valid:
    out = places >= 0
    if valid is not None:
        out[out] = valid
    return out


def _placed(values: Values, places: Places) -> Values:
    there = places >= 0
    if isinstance(values, ByteArrays):
        lengths = np.zeros(len(places), np.int64)
        lengths[there] = np.diff(values.offsets)
        offsets = np.full(len(places) + 1, values.offsets[0], np.int64)
        offsets[1:] += np.cumsum(lengths)
        return ByteArrays(offsets, values.data)
    out = np.zeros((len(places), *values.shape[1:]), values.dtype)
    out[there] = values
    return out


def _string_array(field: Field, values: ByteArrays, valid: Valid | None) -> TypedArray:
    offsets, data = values.offsets, values.data
    if field.kind in _LARGE_FORMATS and offsets[-1] > MAX_SMALL_OFFSET:
        if values.num_bytes > MAX_SMALL_OFFSET:
            field = replace(field, format=_LARGE_FORMATS[field.kind])
        else:
            data = data[offsets[0] : offsets[-1]]
            offsets = offsets - offsets[0]
    dtype = np.int32 if field.kind in _LARGE_FORMATS else np.int64
    return field, make_array(field, len(values), [offsets.astype(dtype, copy=False), data], valid)


def _stored(field: Field, column: LeafColumn, values: Values, valid: Valid | None) -> NDArray[Any]:
    """The data buffer of a fixed-width array."""
    if field.kind == "d":
        try:
            return decimal_rows(values, row_width(field)).ravel()
        except FormatError as error:
            raise error.at(Where(column=column.leaf.column_path)) from None
    assert isinstance(values, np.ndarray)
    if column.leaf.node.physical_type is Type.INT96:
        return _int96_to_nanos(column, values, valid)
    if field.kind == "b":
        return np.packbits(values, bitorder="little")
    if field.kind in ("w", "e"):
        return np.ascontiguousarray(values).ravel()
    convert = _CONVERSIONS.get(field.format[:3])
    stored = values if convert is None else convert(column, values)
    return stored if field.kind in _NARROW_INTEGERS else stored.view(storage_dtype(field))


def _narrowed(field: Field, values: NDArray[Any]) -> tuple[Field, NDArray[Any]]:
    narrow = values.astype(storage_dtype(field))
    if (narrow == values).all():
        return field, narrow
    return replace(field, format="i"), values


def _millis_to_seconds(column: LeafColumn, values: NDArray[Any]) -> NDArray[Any]:
    seconds: NDArray[Any] = values // values.dtype.type(1000)
    rest = seconds * values.dtype.type(1000) != values
    if rest.any():
        raise _misfit(
            column, f"{values[int(np.argmax(rest))]} ms is not a whole second, as ARROW:schema says"
        )
    return seconds


def _days_to_date64(column: LeafColumn, values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.int64) * _MILLIS_PER_DAY


_CONVERSIONS: dict[str, Callable[[LeafColumn, NDArray[Any]], NDArray[Any]]] = {
    "tss": _millis_to_seconds,
    "tts": _millis_to_seconds,
    "tdm": _days_to_date64,
}


def _int96_to_nanos(column: LeafColumn, values: NDArray[Any], valid: Valid | None) -> NDArray[Any]:
    """Nanoseconds since 1970 of INT96: eight bytes of nanoseconds in the day, then four of the Julian day."""
    words = np.ascontiguousarray(values)
    nanos = words[:, :8].copy().view("<i8").ravel()
    days = words[:, 8:].copy().view("<i4").ravel().astype(np.int64) - _JULIAN_DAY_OF_EPOCH
    if valid is not None:
        nanos, days = np.where(valid, nanos, 0), np.where(valid, days, 0)
    # Nanoseconds may be negative or more than a day: bring them into the day before days are multiplied.
    days = days + nanos // _NANOS_PER_DAY
    limit = (2**63 - 1) // _NANOS_PER_DAY
    outside = (days >= limit) | (days < -limit)
    if outside.any():
        row = int(np.argmax(outside))
        date = f"day {int(days[row]):,} from 1970"
        raise _misfit(column, f"an INT96 timestamp ({date}) is beyond what nanoseconds reach, 1677 to 2262")
    since: NDArray[Any] = days * _NANOS_PER_DAY + nanos % _NANOS_PER_DAY
    return since


def _misfit(column: LeafColumn, what: str) -> FormatError:
    path = column.leaf.column_path
    return FormatError(f"column {path!r}: {what}", where=Where(column=path))
