"""How values and levels of a leaf column lie in memory, between the bytes of pages and anything else.

Physical types map to NumPy so: BOOLEAN bool; INT32, INT64 int32, int64 (unsigned integers share the bits);
FLOAT, DOUBLE float32, float64; INT96 and FIXED_LEN_BYTE_ARRAY uint8 of shape (n, width); BYTE_ARRAY `ByteArrays`,
or `ByteViews` or `ByteCodes` on the way out.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.errors import SchemaError
from resilient_pq.format import kernels
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.schema_tree import Leaf, Primitive
from resilient_pq.lazy_dataclass import dataclass

Levels: TypeAlias = NDArray[np.uint8]
INT96_WIDTH = 12  # INT96 timestamps: eight bytes of nanoseconds in the day, then four of the Julian day
JULIAN_DAY_OF_EPOCH = 2_440_588
NANOS_PER_DAY = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class ByteArrays:
    """Byte strings back to back: value i is ``data[offsets[i]:offsets[i + 1]]``."""

    offsets: NDArray[Any]  # int32 or int64, one more than there are values, never falling; need not begin at 0
    data: NDArray[np.uint8]  # uint8
    #: Whether each value was found to be well-formed UTF-8, which is cheap where a dictionary is decoded.
    #: False says nothing: `is_utf8` looks.
    known_utf8: bool = False

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_bytes(self) -> int:
        """Bytes of the values themselves, without their lengths."""
        return int(self.offsets[-1] - self.offsets[0])

    def __getitem__(self, key: slice) -> ByteArrays:
        """A run of values, sharing memory."""
        start, stop, _ = key.indices(len(self))
        if start == 0 and stop == len(self):
            return self
        return ByteArrays(self.offsets[start : max(start, stop) + 1], self.data, self.known_utf8)

    def is_utf8(self) -> bool:
        """Whether each value is well-formed UTF-8 by itself: none ends within a character."""
        return self.known_utf8 or kernels.utf8_valid(self.offsets, self.data)

    def value(self, index: int) -> bytes:
        """One value as bytes."""
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()


MAX_SMALL_OFFSET = 2**31 - 1  # The largest offset of 32 bits, and so the bytes that a buffer of views may have


@lru_cache(maxsize=64)  # all columns without nulls have the same, which are read-only
def uniform_levels(level: int, count: int) -> Levels:
    """`count` times the same level, in the memory of one: what all entries of a column without nulls have."""
    return np.ndarray((count,), np.uint8, bytes([level]), strides=(0,))


def is_uniform(levels: Levels) -> bool:
    """Whether levels are those of `uniform_levels`, or a slice of them, and not empty: then all are the first."""
    return levels.strides == (0,) and len(levels) > 0


@dataclass(frozen=True, slots=True)
class ByteViews:
    """Byte strings as Arrow's views have them: short ones in the views, long ones where they were found."""

    #: int32, four for each value: the length, then the value of up to twelve bytes itself; or its first four
    #: bytes, the position of a buffer in `buffers`, and the offset of the value therein.
    views: NDArray[np.int32]
    buffers: tuple[NDArray[np.uint8], ...]  # uint8; what views lead into
    known_utf8: bool = False  # as of `ByteArrays`

    @classmethod
    def of(cls, values: ByteArrays, most_in_buffer: int = MAX_SMALL_OFFSET) -> ByteViews:
        """Views of byte arrays into their own memory, cut between values into buffers of at most so many bytes."""
        offsets, data = values.offsets, values.data
        views = np.empty((len(values), 4), np.int32)
        buffers: list[NDArray[np.uint8]] = []
        start = 0
        while start < len(values):
            most = int(offsets[start]) + most_in_buffer
            stop = int(np.searchsorted(offsets, most, side="right")) - 1 if offsets[-1] > most else len(values)
            stop = max(stop, start + 1)
            run = offsets[start : stop + 1]
            kernels.views_of(run, data, len(buffers), views[start:stop])
            if run[-1] > run[0]:
                buffers.append(data[run[0] : run[-1]])
            start = stop
        return cls(views, tuple(buffers), values.known_utf8)

    def __len__(self) -> int:
        return len(self.views)

    def to_byte_arrays(self) -> ByteArrays:
        """The same values back to back, copied."""
        return ByteArrays(*kernels.views_join(self.views, self.buffers), self.known_utf8)

    def is_utf8(self) -> bool:
        """Whether each value is well-formed UTF-8 by itself."""
        return self.known_utf8 or self.to_byte_arrays().is_utf8()


@dataclass(frozen=True, slots=True)
class ByteCodes:
    """Byte strings as their numbers in a dictionary."""

    codes: NDArray[Any]  # int32 or int64: 0 for a slot without a value, else the number of its entry, from 1 on
    entries: ByteArrays

    def __len__(self) -> int:
        return len(self.codes)

    def to_byte_arrays(self) -> ByteArrays:
        """The same values back to back."""
        # What stands for none is empty, and comes before the others.
        starts = np.concatenate([self.entries.offsets[:1], self.entries.offsets])
        wide = kernels.chosen_size(starts, self.codes) > MAX_SMALL_OFFSET
        offsets: NDArray[Any] = memory_pool.empty((len(self.codes) + 1,), np.int64 if wide else np.int32)
        offsets[0], offsets[1:] = 0, self.codes
        data = memory_pool.empty((kernels.chosen_size(starts, offsets[1:]),), np.uint8)
        kernels.copy_chosen_byte_arrays(starts, self.entries.data, offsets[1:], data, 0)
        return ByteArrays(offsets, data, self.entries.known_utf8)


class ByteLayout(Enum):
    """How byte arrays come out of pages."""

    ARRAYS = auto()  # `ByteArrays`
    VIEWS = auto()  # `ByteViews`
    CODES = auto()  # `ByteCodes`, where all pages refer to a dictionary, else `ByteArrays`


Values: TypeAlias = NDArray[Any] | ByteArrays
DecodedStrings: TypeAlias = ByteViews | ByteCodes
"""Byte arrays in forms that they have on the way out alone."""


@dataclass(frozen=True, slots=True)
class LeafData:
    """A leaf column over some rows as it goes into pages: levels, and only the values that are there."""

    num_rows: int  # rows covered
    definition_levels: Levels | None  # one per entry; None where the maximum is 0. They may be `uniform_levels`.
    repetition_levels: Levels | None  # one per entry; None where the maximum is 0, and every entry is a row
    values: Values  # the values of the entries whose definition level is the maximum, in order
    #: The values that a dictionary is to begin with, in this order, used or not; None for no such wish.
    entries: Values | None = None

    @property
    def num_bytes(self) -> int:
        """About what it takes in memory."""
        levels = sum(len(each) for each in (self.definition_levels, self.repetition_levels) if each is not None)
        if isinstance(self.values, ByteArrays):
            return levels + self.values.num_bytes + self.values.offsets.nbytes
        return levels + self.values.nbytes


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A leaf column over some rows as it comes out of pages: every slot of the leaf's array has a place."""

    leaf: Leaf
    num_rows: int  # rows covered
    #: One per slot; slots without a value hold zeros or an empty string. Byte arrays have the `ByteLayout` that was
    #: asked for.
    values: Values | DecodedStrings
    present: NDArray[np.bool_] | None  # true where the slot has a value; None where all have
    definition_levels: Levels | None  # one per entry; None unless the column is nested (below a group or repeated)
    repetition_levels: Levels | None  # one per entry; None where the maximum is 0
    #: The dictionary that some of the values came from, where that was asked for and `values` do not have it.
    entries: Values | None = None


_DTYPES: dict[Type, Any] = {
    Type.BOOLEAN: np.dtype(np.bool_),
    Type.INT32: np.dtype("<i4"),
    Type.INT64: np.dtype("<i8"),
    Type.FLOAT: np.dtype("<f4"),
    Type.DOUBLE: np.dtype("<f8"),
}


_WIDTHS: dict[Type, int] = {
    Type.INT32: 4,
    Type.INT64: 8,
    Type.INT96: INT96_WIDTH,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
}


def fixed_width(node: Primitive) -> int | None:
    """Bytes of a value in its PLAIN encoding; None for BYTE_ARRAY, and for BOOLEAN, which takes a bit."""
    if node.physical_type is Type.FIXED_LEN_BYTE_ARRAY:
        return node.type_length
    return _WIDTHS.get(node.physical_type)


def empty_fixed(node: Primitive, count: int) -> NDArray[Any]:
    """Zeroed room for `count` values of any physical type but BYTE_ARRAY."""
    if node.physical_type in _DTYPES:
        return np.zeros(count, _DTYPES[node.physical_type])
    return np.zeros((count, fixed_width(node) or 0), np.uint8)


def room_for(node: Primitive, count: int) -> NDArray[Any]:
    """Room for `count` values of any physical type but BYTE_ARRAY, which is not set to anything."""
    if node.physical_type in _DTYPES:
        return memory_pool.empty((count,), _DTYPES[node.physical_type])
    return memory_pool.empty((count, fixed_width(node) or 0), np.uint8)


def check_values(leaf: Leaf, data: LeafData) -> None:
    """Raise `SchemaError` where the array's kind is not that of the leaf's physical type."""
    node, values = leaf.node, data.values
    if node.physical_type is Type.BYTE_ARRAY or not isinstance(values, np.ndarray):
        fits = node.physical_type is Type.BYTE_ARRAY and isinstance(values, ByteArrays)
    elif node.physical_type in _DTYPES:
        fits = values.dtype == _DTYPES[node.physical_type] and values.ndim == 1
    else:
        fits = values.dtype == np.uint8 and values.shape[1:] == (fixed_width(node) or 0,)
    if not fits:
        raise SchemaError(f"column {leaf.column_path!r}: values do not fit {node.physical_type.name}")
