"""Arrays as plain values that can be pickled: the slots that they show, and no others of their buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import (
    LARGE_OFFSETS,
    VIEW_KINDS,
    BufferPart,
    Valid,
    make_array,
    make_dictionary_array,
    make_null_array,
    make_view_array,
)
from resilient_pq.arrow.c_arrays import LIST_VIEW_KINDS
from resilient_pq.arrow.types.field import Field
from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Packed:
    """An array: its buffers behind the bitmap, and the slots that are not null."""

    field: Field
    length: int
    valid: Valid | None
    buffers: tuple[NDArray[Any], ...]
    children: tuple[Packed, ...] = ()
    dictionary: Packed | None = None

    @classmethod
    def of(cls, part: BufferPart) -> Packed:
        """The slots of a part of an array."""
        buffers: tuple[NDArray[Any], ...] = ()
        children: tuple[Packed, ...] = ()
        dictionary = None
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
            case "d" | "w" | "ti":
                buffers = (part.rows().ravel(),)
            case "+s":
                children = tuple(cls.of(part.child(position)) for position in range(len(part.field.children)))
            case "+l" | "+L" | "+m":
                offsets = part.offsets()
                buffers, children = (offsets - offsets[0],), (cls.of(part.elements(*part.element_range())),)
            case kind if kind in LIST_VIEW_KINDS:
                starts, lengths = part.list_extents()
                first, length = part.element_range()
                dtype = np.int64 if kind in LARGE_OFFSETS else np.int32
                buffers = ((starts - first).astype(dtype), lengths.astype(dtype))
                children = (cls.of(part.elements(first, length)),)
            case "+w":
                children = (cls.of(part.elements(*part.element_range())),)
            case "dictionary":
                buffers, dictionary = (part.indices(),), cls.of(part.dictionary())
            case _:
                buffers = (part.fixed(),)
        return cls(part.field, part.length, part.valid(), buffers, children, dictionary)

    def array(self) -> Any:
        """The nanoarrow `CArray`."""
        if self.field.kind == "n":
            return make_null_array(self.field, self.length)
        if self.field.kind in VIEW_KINDS:
            views, *buffers = self.buffers
            return make_view_array(self.field, views, buffers, self.valid)
        if self.dictionary is not None:
            return make_dictionary_array(self.field, self.buffers[0], self.dictionary.array(), self.valid)
        children = [child.array() for child in self.children]
        return make_array(self.field, self.length, self.buffers, self.valid, children)
