"""Arrays of one column that came with different forms of its type, brought to one type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import (
    DTYPES,
    LARGE_OFFSETS,
    VIEW_KINDS,
    BufferPart,
    Valid,
    byte_arrays_of,
    make_array,
    make_dictionary_array,
    make_null_array,
    make_view_array,
    row_width,
    storage_dtype,
)
from resilient_pq.arrow.int96 import micros_of
from resilient_pq.arrow.types.field import Field
from resilient_pq.errors import UnsupportedError
from resilient_pq.format.encodings.dictionary import strings_at
from resilient_pq.format.physical_values import MAX_SMALL_OFFSET, ByteArrays, ByteViews

#: What an array of the first form can be made into, by their kinds.
_WIDER = {
    ("+l", "+L"), ("+w", "+l"), ("+w", "+L"), ("+vl", "+vL"), ("+vl", "+l"), ("+vl", "+L"), ("+vL", "+L")
}  # fmt: skip
_STRINGS = ("u", "U", "vu", "z", "Z", "vz")
_TEXTS = ("u", "U", "vu")
_BINARIES = ("z", "Z", "vz")


def widest(fields: Sequence[Field]) -> Field:
    """The first of some types, in the form that arrays of all of them can be brought to, or a ValueError."""
    first = widest_so_far = fields[0]
    if any(field.dictionary is not None for field in fields):
        return _widest_dictionary(fields)
    for field in fields:
        if field.kind != widest_so_far.kind and field.kind in _STRINGS and widest_so_far.kind in _STRINGS:
            widest_so_far = replace(first, format=_widest_string(widest_so_far.kind, field.kind))
        elif _is_wider(widest_so_far, field):
            widest_so_far = field
        elif field.format != widest_so_far.format and not _is_wider(field, widest_so_far):
            raise ValueError(f"arrays of {field} do not go with arrays of {first}")
    children = zip(*(field.children for field in fields), strict=True)
    format = widest_so_far.format
    if format in _BINARIES and first.kind in _TEXTS:
        first = first.without_extension()
    return replace(first, format=format, children=tuple(widest(below) for below in children))


def _widest_dictionary(fields: Sequence[Field]) -> Field:
    """A dictionary where all are, and ordered where all are; else the type of the values."""
    first, values = fields[0], [field.dictionary or field for field in fields]
    if any(field.dictionary is None for field in fields):
        plain = widest(values)
        return replace(first, format=plain.format, dictionary=None, ordered=False)
    same = all(field.format == first.format for field in fields)
    ordered = all(field.ordered for field in fields)
    return replace(first, format=first.format if same else "i", dictionary=widest(values), ordered=ordered)


def _widest_string(first: str, other: str) -> str:
    """A view where the first is; else large where one is. Binary where one is: then not all is text."""
    widest = "z" if first in _BINARIES or other in _BINARIES else "u"
    if first in VIEW_KINDS:
        return f"v{widest}"
    return widest.upper() if {first, other} & LARGE_OFFSETS else widest


def _is_wider(one: Field, other: Field) -> bool:
    """Whether arrays of `one` can be made into arrays of `other`, but not the other way round."""
    match one.kind, other.kind:
        case "n", kind:
            return kind != "n" and not other.children
        case "d", "d":
            (_, scale, bits), (_, other_scale, other_bits) = one.decimal, other.decimal
            return scale == other_scale and bits < other_bits
        case "ts", "ts":
            return (one.unit, other.unit) == ("ns", "us") and one.parameter == other.parameter
    return (one.kind, other.kind) in _WIDER


def widen(array: Any, target: Field) -> Any:
    """A `CArray` as one of the type `target`; the same array where it has it already."""
    part = BufferPart.of(array)
    return array if _same_form(part.field, target) else _widened(part, target)


def _same_form(one: Field, other: Field) -> bool:
    """Whether the types are equal but for the names and whatever else no buffer depends on."""
    pairs = zip(one.children, other.children, strict=True)
    if one.format != other.format or (one.dictionary is None) != (other.dictionary is None):
        return False
    values = one.dictionary is None or other.dictionary is None or _same_form(one.dictionary, other.dictionary)
    return values and all(_same_form(*pair) for pair in pairs)


def _widened(part: BufferPart, target: Field) -> Any:
    if part.field.dictionary is not None and target.dictionary is None:
        return widen(decoded(part), target)
    if target.dictionary is not None:
        values = _widened(part.dictionary(), target.dictionary)
        indices = part.indices().astype(DTYPES[target.format])
        return make_dictionary_array(target, indices, values, part.valid())
    if target.kind == "n":
        return make_null_array(target, part.length)
    if part.field.kind == "n":
        return _nulls(target, part.length)
    if part.field.kind in _STRINGS and (part.field.kind in VIEW_KINDS) != (target.kind in VIEW_KINDS):
        return _string_array(target, byte_arrays_of(part, None), part.valid())
    if target.kind in VIEW_KINDS:
        return make_view_array(target, part.views(), part.view_buffers(), part.valid())
    if target.kind.startswith("+"):
        buffers, children = _widened_children(part, target)
    else:
        buffers, children = _widened_buffers(part, target), []
    return make_array(target, part.length, buffers, part.valid(), children)


def decoded(part: BufferPart) -> Any:
    """The `CArray` of the values that a dictionary array refers to; an UnsupportedError where they are too large."""
    values, valid = part.dictionary(), part.valid()
    field, indices = values.field, part.indices().astype(np.int64)
    if not values.length:
        return _nulls(field, part.length)
    if valid is not None:
        indices[~valid] = 0
    if field.kind in _STRINGS:
        return _string_array(field, strings_at(byte_arrays_of(values, None), indices), valid)
    rows = values.rows() if field.kind in ("d", "w", "ti") else values.fixed()
    return make_array(field, part.length, [rows.take(indices, axis=0).ravel()], valid)


def _string_array(target: Field, values: ByteArrays, valid: Valid | None) -> Any:
    if target.kind in VIEW_KINDS:
        views = ByteViews.of(values)
        return make_view_array(target, views.views, views.buffers, valid)
    if values.num_bytes > MAX_SMALL_OFFSET and target.kind not in LARGE_OFFSETS:
        raise UnsupportedError("the strings of one row group take more than 2 GiB", hint="read it with strings='view'")
    offsets = values.offsets.astype(np.int64 if target.kind in LARGE_OFFSETS else np.int32, copy=False)
    return make_array(target, len(values), [offsets, values.data], valid)


def _widened_children(part: BufferPart, target: Field) -> tuple[list[Any], list[Any]]:
    """The buffers and the children of nested types."""
    if target.kind == "+s":
        return [], [_widened(part.child(at), child) for at, child in enumerate(target.children)]
    if target.kind == "+w":
        first, length = part.start * target.width, part.length * target.width
        return [], [_widened(part.elements(first, length), target.children[0])]
    starts, lengths = part.list_extents()
    if target.kind == "+vL":
        return [starts - part.element_range()[0], lengths], [
            _widened(part.elements(*part.element_range()), target.children[0])
        ]
    offsets = np.zeros(part.length + 1, np.int64 if target.kind == "+L" else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    first = int(starts[0]) if part.length else 0
    return [offsets], [_widened(part.elements(first, int(offsets[-1])), target.children[0])]


def _widened_buffers(part: BufferPart, target: Field) -> list[Any]:
    match target.kind:
        case "u" | "z" | "U" | "Z":
            return [part.offsets().astype(np.int64 if target.kind in ("U", "Z") else np.int32), part.data()]
        case "b":
            return [np.packbits(part.booleans(), bitorder="little")]
        case "d":
            return [_sign_extended(part.rows(), row_width(target)).ravel()]
        case "w" | "ti":
            return [part.rows().ravel()]
        case "ts" if part.field.unit != target.unit:
            return [micros_of(part.field, part.fixed(), part.valid())]
    return [part.fixed().astype(storage_dtype(target), copy=False)]


def _nulls(target: Field, length: int) -> Any:
    """An array of nulls of a type without children."""
    match target.kind:
        case "u" | "z" | "U" | "Z":
            dtype = np.int64 if target.kind in ("U", "Z") else np.int32
            buffers = [np.zeros(length + 1, dtype), np.zeros(0, np.uint8)]
        case "vu" | "vz":
            return make_view_array(target, np.zeros((length, 4), np.int32), [], np.zeros(length, np.bool_))
        case "b":
            buffers = [np.zeros((length + 7) // 8, np.uint8)]
        case "w" | "d" | "ti":
            buffers = [np.zeros(length * row_width(target), np.uint8)]
        case _:
            buffers = [np.zeros(length, storage_dtype(target))]
    return make_array(target, length, buffers, np.zeros(length, np.bool_))


def _sign_extended(rows: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    if rows.shape[1] == width:
        return rows
    sign = np.where(rows[:, -1:] & 0x80, np.uint8(0xFF), np.uint8(0))
    return np.hstack([rows, np.repeat(sign, width - rows.shape[1], axis=1)])
