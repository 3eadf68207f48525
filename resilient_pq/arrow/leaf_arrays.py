"""The values of a leaf column as an Arrow array: without a copy where the two agree on the layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import (
    DTYPES,
    VIEW_KINDS,
    Valid,
    has_dictionaries,
    has_views,
    make_array,
    make_dictionary_array,
    make_null_array,
    make_view_array,
    row_width,
    storage_dtype,
)
from resilient_pq.arrow.decimals import decimal_rows
from resilient_pq.arrow.int96 import int96_timestamps
from resilient_pq.arrow.intervals import from_intervals
from resilient_pq.arrow.types.arrow_schema import physical_format
from resilient_pq.arrow.types.field import Field
from resilient_pq.errors import FormatError, Where, located
from resilient_pq.format.encodings import dictionary
from resilient_pq.format.encodings.dictionary import entries_at
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.physical_values import (
    ByteArrays,
    ByteCodes,
    ByteLayout,
    ByteViews,
    DecodedStrings,
    LeafColumn,
    Values,
)

#: An Arrow array with its type, which is wider than was asked for where the offsets did not suffice.
TypedArray: TypeAlias = tuple[Field, Any]

#: For each slot of an array the slot of the leaf that it is, or -1 where the leaf has none.
Places: TypeAlias = NDArray[np.int64]

#: The largest offset of the types with small ones.
MAX_SMALL_OFFSET = 2**31 - 1

_LARGE_FORMATS = {"u": "U", "z": "Z"}
#: Of text that is not UTF-8: libraries may rely on it that what comes as text is.
_BINARY_FORMATS = {"u": "z", "U": "Z", "vu": "vz"}
_MILLIS_PER_DAY: Final = 86_400_000
#: Bytes of the distinct values of a chunk up to which they are told apart.
_LARGEST_DICTIONARY: Final = 1 << 30


def leaf_array(field: Field, column: LeafColumn, places: Places | None) -> TypedArray:
    """One leaf as an array of `field`'s type.

    It comes as a wider type where it must, see `assemble.to_arrow`. Integers of 8 or 16 bits are the lowest
    bits of what is stored, whatever the others are: so do all readers, as some writers extend the sign of
    unsigned ones.
    """
    if field.dictionary is not None:
        return _dictionary_array(field, field.dictionary, column, places)
    # A required leaf has slots without a value, too, below groups that are null.
    present = column.present
    valid = present if column.leaf.node.repetition is Repetition.OPTIONAL else None
    values = _byte_strings(field, column.values)
    if places is not None:
        present, valid = _placed_valid(present, places), _placed_valid(valid, places)
        values = _placed(values, places)
    length = len(values)
    if field.kind == "n":
        if not length or (valid is not None and not valid.any()):
            return field, make_null_array(field, length)
        field = replace(field, format=physical_format(column.leaf.node))
    if isinstance(values, ByteViews):
        return _view_array(field, values, valid)
    if field.kind == "d":
        field, data = _decimals(field, column, values)
    elif isinstance(values, ByteArrays):
        return _string_array(field, values, valid)
    elif field.kind == "ti":
        data = _intervals(column, values)
    elif column.leaf.node.physical_type is Type.INT96:
        field, data = int96_timestamps(field, values, present)
    else:
        data = _stored(field, column, values)
    return field, make_array(field, length, [data], valid)


def layout_of(field: Field) -> ByteLayout:
    """How the byte arrays of a column are best decoded: in the form that needs no more work, or the least."""
    if has_dictionaries(field):
        return ByteLayout.CODES
    return ByteLayout.VIEWS if has_views(field) else ByteLayout.ARRAYS


def _dictionary_array(field: Field, values: Field, column: LeafColumn, places: Places | None) -> TypedArray:
    """One leaf as a dictionary array over the dictionary of its chunk, and what was written behind that."""
    codes, entries = _codes_of(column)
    valid = column.present if column.leaf.node.repetition is Repetition.OPTIONAL else None
    if places is not None:
        valid = _placed_valid(valid, places)
        spread = np.zeros(len(places), codes.dtype)
        spread[places >= 0] = codes
        codes = spread
    values, array = leaf_array(values, LeafColumn(column.leaf, len(entries), entries, None, None, None), None)
    if not len(entries) and len(codes):
        valid = np.zeros(len(codes), np.bool_)  # none has a value, also where the leaf is required and its parent null
    if len(entries) > np.iinfo(DTYPES[field.format]).max + 1:
        field = replace(field, format="i")
    indices = np.maximum(codes - 1, 0).astype(DTYPES[field.format])
    field = replace(field, dictionary=values)
    return field, make_dictionary_array(field, indices, array, valid)


def _codes_of(column: LeafColumn) -> tuple[NDArray[Any], Values]:
    """For each slot 0, or the number of its value among the entries, from 1 on."""
    values, present = column.values, column.present
    if isinstance(values, ByteCodes):
        return values.codes, values.entries
    if isinstance(values, ByteViews):
        values = values.to_byte_arrays()
    there = np.arange(len(values)) if present is None else np.flatnonzero(present)
    chosen = values if present is None else entries_at(values, there)
    begun = chosen[:0] if column.entries is None else column.entries
    built = dictionary.build_on(column.leaf.node, begun, chosen, _LARGEST_DICTIONARY)
    codes = np.zeros(len(values), np.int32)
    codes[there] = np.arange(1, len(chosen) + 1) if built is None else built.indices + np.int32(1)
    return codes, chosen if built is None else built.values


def _byte_strings(field: Field, values: Values | DecodedStrings) -> Values | ByteViews:
    """The values of strings in the layout that `field` has; others are as they are."""
    if isinstance(values, ByteCodes):
        values = values.to_byte_arrays()
    if isinstance(values, np.ndarray):
        if field.kind not in _LARGE_FORMATS and field.kind not in VIEW_KINDS:
            return values
        # FIXED_LEN_BYTE_ARRAY(0), for which there is no type of fixed width.
        values = ByteArrays(np.zeros(len(values) + 1, np.int32), np.zeros(0, np.uint8))
    if field.kind in VIEW_KINDS and isinstance(values, ByteArrays):
        return ByteViews.of(values)
    if field.kind not in VIEW_KINDS and isinstance(values, ByteViews):
        return values.to_byte_arrays()
    return values


def _placed_valid(valid: Valid | None, places: Places) -> Valid:
    out = places >= 0
    if valid is not None:
        out[out] = valid
    return out


def _placed(values: Values | ByteViews, places: Places) -> Values | ByteViews:
    there = places >= 0
    if isinstance(values, ByteViews):
        views = np.zeros((len(places), 4), np.int32)
        views[there] = values.views
        return ByteViews(views, values.buffers, values.known_utf8)
    if isinstance(values, ByteArrays):
        lengths = np.zeros(len(places), np.int64)
        lengths[there] = np.diff(values.offsets)
        offsets = np.full(len(places) + 1, values.offsets[0], np.int64)
        offsets[1:] += np.cumsum(lengths)
        return ByteArrays(offsets, values.data, values.known_utf8)
    out = np.zeros((len(places), *values.shape[1:]), values.dtype)
    out[there] = values
    return out


def _text_or_binary(field: Field, values: ByteArrays | ByteViews) -> Field:
    if field.kind in _BINARY_FORMATS and not values.is_utf8():
        return replace(field.without_extension(), format=_BINARY_FORMATS[field.kind])
    return field


def _view_array(field: Field, values: ByteViews, valid: Valid | None) -> TypedArray:
    field = _text_or_binary(field, values)
    return field, make_view_array(field, values.views, values.buffers, valid)


def _string_array(field: Field, values: ByteArrays, valid: Valid | None) -> TypedArray:
    field = _text_or_binary(field, values)
    offsets, data = values.offsets, values.data
    if field.kind in _LARGE_FORMATS and offsets[-1] > MAX_SMALL_OFFSET:
        if values.num_bytes > MAX_SMALL_OFFSET:
            field = replace(field, format=_LARGE_FORMATS[field.kind])
        else:
            data = data[offsets[0] : offsets[-1]]
            offsets = offsets - offsets[0]
    dtype = np.int32 if field.kind in _LARGE_FORMATS else np.int64
    return field, make_array(field, len(values), [offsets.astype(dtype, copy=False), data], valid)


def _decimals(field: Field, column: LeafColumn, values: Values) -> tuple[Field, NDArray[Any]]:
    with located(Where(column=column.leaf.column_path)):
        rows = decimal_rows(values, row_width(field))
    if rows.shape[1] > row_width(field):
        wide = rows.shape[1] > 16
        field = replace(field, format=f"d:{76 if wide else 38},{field.decimal[1]}{',256' if wide else ''}")
    return field, rows.ravel()


def _stored(field: Field, column: LeafColumn, values: NDArray[Any]) -> NDArray[Any]:
    """The data buffer of a fixed-width array."""
    if field.kind == "b":
        return np.packbits(values, bitorder="little")
    if field.kind in ("w", "e"):
        return np.ascontiguousarray(values).ravel()
    convert = _CONVERSIONS.get(field.format[:3])
    stored = values if convert is None else convert(column, values)
    dtype = storage_dtype(field)
    return stored.astype(dtype) if dtype.itemsize < stored.itemsize else stored.view(dtype)


def _intervals(column: LeafColumn, values: NDArray[Any]) -> NDArray[Any]:
    intervals, wrong = from_intervals(values)
    if wrong is not None:
        raise _misfit(column, "an interval has more months or days than Arrow holds")
    return intervals.view(np.uint8)


def _millis_to_seconds(column: LeafColumn, values: NDArray[Any]) -> NDArray[Any]:
    seconds: NDArray[Any] = values // values.dtype.type(1000)
    rest = seconds * values.dtype.type(1000) != values
    if rest.any():
        raise _misfit(column, f"{values[int(np.argmax(rest))]} ms is not a whole second, as ARROW:schema says")
    return seconds


def _days_to_date64(column: LeafColumn, values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.int64) * _MILLIS_PER_DAY


_CONVERSIONS: dict[str, Callable[[LeafColumn, NDArray[Any]], NDArray[Any]]] = {
    "tss": _millis_to_seconds,
    "tts": _millis_to_seconds,
    "tdm": _days_to_date64,
}


def _misfit(column: LeafColumn, what: str) -> FormatError:
    path = column.leaf.column_path
    return FormatError(f"column {path!r}: {what}", where=Where(column=path))
