"""Arrays of one column that came with different forms of its type, brought to one type.

`assemble.to_arrow` widens an array where it must: 64-bit offsets where there is too much for 32 bits, a list
where fixed-size lists are not all of one size, 32 bits where an integer does not fit its 8 or 16. All chunks of
a table have one type, so the others follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from resilient_pq.arrow.buffers import Part, make_array, make_null_array, storage_dtype
from resilient_pq.arrow.field import Field

#: What an array of the first form can be made into.
_WIDER = {("u", "U"), ("z", "Z"), ("+l", "+L"), ("+w", "+l"), ("+w", "+L")}
_WIDER |= {("c", "i"), ("C", "i"), ("s", "i"), ("S", "i")}


def widest(fields: Sequence[Field]) -> Field:
    """The first of some types, in the form that arrays of all of them can be brought to.

    Raises:
        ValueError: They differ in more than such forms.
    """
    first = fields[0]
    format = first.format
    for field in fields:
        if (_kind(format), field.kind) in _WIDER:
            format = field.format
        elif field.format != format and (field.kind, _kind(format)) not in _WIDER:
            raise ValueError(f"arrays of {field} do not go with arrays of {first}")
    children = zip(*(field.children for field in fields), strict=True)
    return replace(first, format=format, children=tuple(widest(below) for below in children))


def _kind(format: str) -> str:
    return Field("", format).kind


def widened(array: Any, target: Field) -> Any:
    """A `CArray` as one of the type `target`; the same array where it has it already."""
    part = Part.of(array)
    return array if _same_form(part.field, target) else _widened(part, target)


def _same_form(one: Field, other: Field) -> bool:
    """Whether the types are equal but for the names and whatever else no buffer depends on."""
    pairs = zip(one.children, other.children, strict=True)
    return one.format == other.format and all(_same_form(*pair) for pair in pairs)


def _widened(part: Part, target: Field) -> Any:
    if target.kind == "n":
        return make_null_array(target, part.length)
    buffers: list[Any] = []
    children: list[Any] = []
    match target.kind:
        case "u" | "z" | "U" | "Z":
            buffers = [
                part.offsets().astype(np.int64 if target.kind in ("U", "Z") else np.int32),
                part.data(),
            ]
        case "+l" | "+L" | "+m":
            starts, lengths = part.list_extents()
            offsets = np.zeros(part.length + 1, np.int64 if target.kind == "+L" else np.int32)
            np.cumsum(lengths, out=offsets[1:])
            first = int(starts[0]) if part.length else 0
            buffers = [offsets]
            children = [_widened(part.elements(first, int(offsets[-1])), target.children[0])]
        case "+w":
            first = part.start * target.width
            children = [_widened(part.elements(first, part.length * target.width), target.children[0])]
        case "+s":
            children = [_widened(part.child(at), child) for at, child in enumerate(target.children)]
        case "b":
            buffers = [np.packbits(part.booleans(), bitorder="little")]
        case "w" | "d":
            buffers = [part.rows().ravel()]
        case _:
            buffers = [part.fixed().astype(storage_dtype(target), copy=False)]
    return make_array(target, part.length, buffers, part.valid(), children)
