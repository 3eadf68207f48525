"""Arrays as plain values that can be pickled: the slots that they show, and no others of their buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import (
    VIEW_KINDS,
    BufferPart,
    Valid,
    make_array,
    make_null_array,
    make_view_array,
)
from resilient_pq.arrow.types.field import Field
from resilient_pq.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Packed:
    """An array: its buffers behind the bitmap, and the slots that are not null."""

    field: Field
    length: int
    valid: Valid | None
    buffers: tuple[NDArray[Any], ...]
    children: tuple[Packed, ...] = ()

    @classmethod
    def of(cls, part: BufferPart) -> Packed:
        """The slots of a part of an array."""
        buffers: tuple[NDArray[Any], ...] = ()
        children: tuple[Packed, ...] = ()
        match part.field.kind:
            case "n":
                return cls(part.field, part.length, None, ())
            case "b":
                buffers = (np.packbits(part.booleans(), bitorder="little"),)
            case "u" | "U" | "z" | "Z":
                offsets = part.offsets()
                buffers = (offsets - offsets[0], part.data()[offsets[0] : offsets[-1]])
            case kind if kind in VIEW_KINDS:
                buffers = (part.views(), *part.view_buffers())
            case "d" | "w":
                buffers = (part.rows().ravel(),)
            case "+s":
                children = tuple(cls.of(part.child(position)) for position in range(len(part.field.children)))
            case "+l" | "+L" | "+m":
                offsets = part.offsets()
                buffers, children = (offsets - offsets[0],), (cls.of(part.elements(*part.element_range())),)
            case "+w":
                children = (cls.of(part.elements(*part.element_range())),)
            case "dictionary":
                raise UnsupportedError("a table with dictionary arrays cannot be pickled", hint="use to_pyarrow()")
            case _:
                buffers = (part.fixed(),)
        return cls(part.field, part.length, part.valid(), buffers, children)

    def array(self) -> Any:
        """The nanoarrow `CArray`."""
        if self.field.kind == "n":
            return make_null_array(self.field, self.length)
        if self.field.kind in VIEW_KINDS:
            views, *buffers = self.buffers
            return make_view_array(self.field, views, buffers, self.valid)
        children = [child.array() for child in self.children]
        return make_array(self.field, self.length, self.buffers, self.valid, children)
