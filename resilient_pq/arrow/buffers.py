"""The buffers of Arrow arrays as NumPy sees them: reading them without a copy, and building arrays from them.

Layouts are those of the Arrow columnar format; bitmaps have the least significant bit first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field as dataclass_field
from typing import Any

import nanoarrow
import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.arrow.c_arrays import LIST_VIEW_KINDS, put_dictionary, view_of
from resilient_pq.arrow.intervals import MONTH_DAY_NANO
from resilient_pq.arrow.types.field import Field, shared_c
from resilient_pq.format import kernels
from resilient_pq.format.encodings.dictionary import strings_at
from resilient_pq.format.physical_values import ByteArrays
from resilient_pq.lazy_dataclass import dataclass

Valid = NDArray[np.bool_]

#: NumPy's type of the values of each kind that it has one for.
DTYPES: dict[str, np.dtype[Any]] = {
    "c": np.dtype("i1"),
    "C": np.dtype("u1"),
    "s": np.dtype("<i2"),
    "S": np.dtype("<u2"),
    "i": np.dtype("<i4"),
    "I": np.dtype("<u4"),
    "l": np.dtype("<i8"),
    "L": np.dtype("<u8"),
    "e": np.dtype("<f2"),
    "f": np.dtype("<f4"),
    "g": np.dtype("<f8"),
    "tdD": np.dtype("<i4"),
    "tdm": np.dtype("<i8"),
    "ts": np.dtype("<i8"),
    "tD": np.dtype("<i8"),
}

#: A view of at most this many bytes holds them itself.
INLINE_VIEW = 12

#: The kinds of string and binary views.
VIEW_KINDS = frozenset({"vu", "vz"})

LARGE_OFFSETS = frozenset({"U", "Z", "+L", "+vL"})
_HAVE_OFFSETS = {"U", "Z", "+L", "u", "z", "+l", "+m"}


def storage_dtype(field: Field) -> np.dtype[Any]:
    """NumPy's type of the values in the data buffer; decimals and fixed-size binaries have rows of bytes."""
    if field.kind == "tt":
        return np.dtype("<i4") if field.unit in ("s", "ms") else np.dtype("<i8")
    return DTYPES[field.kind]


def row_width(field: Field) -> int:
    """Bytes of a value of a decimal, an interval or a fixed-size binary."""
    if field.kind == "ti":
        return MONTH_DAY_NANO.itemsize
    return field.decimal[2] // 8 if field.kind == "d" else field.width


@dataclass(frozen=True, slots=True)
class _Owned:
    """Memory for NumPy to look at, and what keeps it alive."""

    __array_interface__: dict[str, Any]
    owner: Any


@dataclass(frozen=True, slots=True)
class BufferPart:
    """Some consecutive slots of an Arrow array, counted from the beginning of its buffers.

    `owner`, the outermost nanoarrow `CArray`, keeps the memory alive: views of children do not. All slices of an array
    share `known`, the buffers that were looked at, whole, by their number and type.
    """

    field: Field
    owner: Any
    view: Any
    start: int
    length: int
    known: dict[tuple[int, np.dtype[Any]], NDArray[Any]] = dataclass_field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(cls, array: Any, field: Field | None = None) -> BufferPart:
        """All slots of a nanoarrow `CArray`."""
        field = field or Field.of(array.schema)
        view = view_of(array, field)
        return cls(field, array, view, view.offset, view.length)

    def slice(self, start: int, length: int) -> BufferPart:
        """`length` slots from `start` on."""
        return BufferPart(self.field, self.owner, self.view, self.start + start, length, self.known)

    def child(self, position: int) -> BufferPart:
        """The same slots of a struct's child."""
        view = self.view.child(position)
        return BufferPart(self.field.children[position], self.owner, view, view.offset + self.start, self.length)

    def elements(self, start: int, length: int, position: int = 0) -> BufferPart:
        """`length` slots from `start` on of the child of a list, counted as the list's offsets count."""
        view = self.view.child(position)
        return BufferPart(self.field.children[position], self.owner, view, view.offset + start, length)

    def dictionary(self) -> BufferPart:
        """All values of the dictionary."""
        view = self.view.dictionary
        assert self.field.dictionary is not None
        return BufferPart(self.field.dictionary, self.owner, view, view.offset, view.length)

    def valid(self) -> Valid | None:
        """Which slots are not null; None where no slot of the array is."""
        if self.field.kind == "n":
            return np.zeros(self.length, np.bool_)
        if self.view.null_count == 0 or self.view.buffer(0).size_bytes == 0:
            return None
        valid = self._bits(0)
        return None if valid.all() else valid

    def booleans(self) -> Valid:
        """The values of a boolean array."""
        return self._bits(1)

    def fixed(self) -> NDArray[Any]:
        """The values of a fixed-width array in its `storage_dtype`; the memory is the array's."""
        return self._items(1, storage_dtype(self.field))

    def indices(self) -> NDArray[Any]:
        """The indices of a dictionary array."""
        return self._items(1, DTYPES[self.field.format])

    def rows(self) -> NDArray[np.uint8]:
        """The values of a decimal, interval or fixed-size binary array, a row of bytes each."""
        width = row_width(self.field)
        raw = self._items(1, np.dtype(np.uint8), width)
        return raw.reshape(self.length, width)

    def offsets(self) -> NDArray[Any]:
        """The offsets of a string, binary, list or map array, one more than there are slots."""
        dtype = np.dtype("<i8") if self.field.kind in LARGE_OFFSETS else np.dtype("<i4")
        if self.view.buffer(1).size_bytes == 0:
            return np.zeros(self.length + 1, dtype)  # an array without slots may have no offsets at all
        return self._raw(1, dtype)[self.start : self.start + self.length + 1]

    def list_extents(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the elements of each slot of a list or map begin, and how many there are."""
        if self.field.kind == "+w":
            size = self.field.width
            starts = np.arange(self.start, self.start + self.length, dtype=np.int64) * size
            return starts, np.full(self.length, size, np.int64)
        if self.field.kind in LIST_VIEW_KINDS:
            dtype = np.dtype("<i8") if self.field.kind in LARGE_OFFSETS else np.dtype("<i4")
            starts, lengths = self._items(1, dtype).astype(np.int64), self._items(2, dtype).astype(np.int64)
            first = int(starts.min(where=lengths > 0, initial=2**63 - 1)) if lengths.any() else 0
            return np.where(lengths, starts, first), lengths
        offsets = self.offsets().astype(np.int64)
        return offsets[:-1], np.diff(offsets)

    def element_range(self) -> tuple[int, int]:
        """The first element that the slots of a list or map take, and how many they take together."""
        if self.field.kind == "+w":
            return self.start * self.field.width, self.length * self.field.width
        if self.field.kind in LIST_VIEW_KINDS:
            starts, lengths = self.list_extents()
            first = int(starts.min(initial=2**63 - 1)) if len(starts) else 0
            return first, int((starts + lengths).max(initial=first)) - first
        offsets = self.offsets()
        return int(offsets[0]), int(offsets[-1] - offsets[0])

    def data(self, buffer: int = 2) -> NDArray[np.uint8]:
        """The bytes of a buffer, all of them: those that offsets or views point into."""
        return self._raw(buffer, np.dtype(np.uint8))

    def views(self) -> NDArray[np.int32]:
        """The views of a string or binary view array, four words each."""
        return self._items(1, np.dtype("<i4"), 4).reshape(self.length, 4)

    def view_buffers(self) -> list[NDArray[np.uint8]]:
        """The buffers that views lead into: those between the views and the last one, which has their sizes."""
        return [self.data(buffer) for buffer in range(2, int(self.view.n_buffers) - 1)]

    def _items(self, buffer: int, dtype: np.dtype[Any], per_slot: int = 1) -> NDArray[Any]:
        return self._raw(buffer, dtype)[self.start * per_slot : (self.start + self.length) * per_slot]

    def _raw(self, buffer: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        known = self.known.get((buffer, dtype))
        if known is not None:
            return known
        view = self.view.buffer(buffer)
        if not view.size_bytes:
            return np.empty(0, dtype)
        # A buffer's view does not keep the array alive that the buffer is a part of, so the memory would be
        # freed under an array that is made of it.
        raw = np.asarray(_Owned(np.frombuffer(view, dtype).__array_interface__, self.owner))
        self.known[buffer, dtype] = raw
        return raw

    def _bits(self, buffer: int) -> Valid:
        raw = self._raw(buffer, np.dtype(np.uint8))
        first = self.start // 8
        covering = raw[first : (self.start + self.length + 7) // 8]
        bits = np.unpackbits(covering, bitorder="little")
        return bits[self.start - 8 * first :][: self.length].view(np.bool_)


def num_bytes(part: BufferPart) -> int:
    """Bytes that the slots take in memory, their bitmaps included; values of a dictionary are not counted."""
    field, length = part.field, part.length
    match field.kind:
        case "n":
            return 0
        case "b":
            size = (length + 7) // 8
        case "u" | "U" | "z" | "Z":
            offsets = part.offsets()
            size = offsets.nbytes + int(offsets[-1]) - int(offsets[0])
        case kind if kind in VIEW_KINDS:
            lengths = part.views()[:, 0].astype(np.int64)
            size = 16 * length + int(lengths[lengths > INLINE_VIEW].sum())
        case "d" | "w" | "ti":
            size = length * row_width(field)
        case "dictionary":
            size = length * DTYPES[field.format].itemsize
        case "+s":
            size = sum(num_bytes(part.child(position)) for position in range(len(field.children)))
        case "+l" | "+L" | "+m" | "+w" | "+vl" | "+vL":
            size = 4 * length + num_bytes(part.elements(*part.element_range()))
        case _:
            size = length * storage_dtype(field).itemsize
    return size if part.view.null_count == 0 else size + (length + 7) // 8


def span(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[int, int]:
    """The first element that consecutive lists take, and the one behind their last."""
    return (int(starts[0]), int(starts[-1] + lengths[-1])) if len(starts) else (0, 0)


def make_array(
    field: Field, length: int, buffers: Sequence[Any], valid: Valid | None, children: Sequence[Any] = ()
) -> Any:
    """A nanoarrow `CArray` over NumPy arrays, which it keeps alive and does not copy."""
    bitmap = None if valid is None else np.packbits(valid, bitorder="little")
    return _from_buffers(field, length, [bitmap, *buffers], _null_count(valid), children)


def make_view_array(
    field: Field, views: NDArray[np.int32], buffers: Sequence[NDArray[np.uint8]], valid: Valid | None
) -> Any:
    """A nanoarrow `CArray` of strings or binaries over views, and buffers of at most 2**31 - 1 bytes each."""
    # The last buffer of such arrays has the sizes of those that views lead into (C data interface).
    sizes = np.array([buffer.size for buffer in buffers], np.int64)
    return make_array(field, len(views), [views.view(np.uint8).ravel(), *buffers, sizes.view(np.uint8)], valid)


def make_dictionary_array(field: Field, indices: NDArray[Any], values: Any, valid: Valid | None) -> Any:
    """A nanoarrow `CArray` of indices, into which that of the values is moved."""
    array = make_array(field, len(indices), [indices], valid)
    put_dictionary(array, values)
    return array


def make_null_array(field: Field, length: int) -> Any:
    """An array of Arrow's null type."""
    return _from_buffers(field, length, [], length, [])


def _null_count(valid: Valid | None) -> int:
    return 0 if valid is None else len(valid) - int(np.count_nonzero(valid))


def _from_buffers(
    field: Field,
    length: int,
    buffers: Sequence[Any],
    null_count: int,
    children: Sequence[Any],
    offset: int = 0,
) -> Any:
    # nanoarrow's copies of views write beyond their memory, wherever they are nested: what contains them is made
    # anew from its buffers, and moved to where it goes. And `move` of c_array_from_buffers sticks: among buffers
    # that are not nanoarrow's own, it would move children that are to be shared out of the arrays that they are in.
    # Without children only the buffers move, which are of this call: that saves half of its time.
    move = not children or any(has_views(child) for child in field.children)
    own = [None if buffer is None else nanoarrow.c_buffer(buffer) for buffer in buffers]
    return nanoarrow.c_array_from_buffers(
        shared_c(field),
        length,
        own,
        null_count=null_count,
        offset=offset,
        children=[_again(child) for child in children] if move else children,
        move=move,
    )


def has_views(field: Field) -> bool:
    """Whether strings or binaries in a field are views, those in dictionaries included."""
    if field.dictionary is not None:
        return has_views(field.dictionary)
    return field.kind in VIEW_KINDS or any(has_views(child) for child in field.children)


def has_dictionaries(field: Field) -> bool:
    """Whether a field is a dictionary, or has one in it."""
    return field.dictionary is not None or any(map(has_dictionaries, field.children))


def _again(array: Any) -> Any:
    """A second `CArray` over the memory of one."""
    return sliced(array, 0, array.length)


def sliced(array: Any, start: int, length: int) -> Any:
    """Some slots of a `CArray`, sharing its memory.

    nanoarrow's own slices keep the null count of the whole array, which makes pyarrow take them for unequal.
    """
    children = [array.child(position) for position in range(array.n_children)]
    return array_of_part(BufferPart.of(array).slice(start, length), children)


def array_of_part(part: BufferPart, children: Sequence[Any] = ()) -> Any:
    """The `CArray` of some slots, sharing their memory; `children` are the whole ones of the array."""
    if part.field.kind == "n":
        return make_null_array(part.field, part.length)
    valid = part.valid()
    buffers: list[Any] = [part.data(buffer) for buffer in range(int(part.view.n_buffers))]
    if valid is None:
        buffers[0] = None
    if part.field.kind in _HAVE_OFFSETS and not buffers[1].size:
        buffers[1] = part.offsets()  # of an array without slots nanoarrow does not see the only one there is
    array = _from_buffers(part.field, part.length, buffers, _null_count(valid), children, part.start)
    if part.field.dictionary is not None:
        put_dictionary(array, array_of_part(part.dictionary()))
    return array


def byte_arrays_of(part: BufferPart, positions: NDArray[Any] | None) -> ByteArrays:
    """Values of a string or binary array of any layout, of slots or a mask of them; None copies views alone."""
    if part.field.kind in VIEW_KINDS:
        views = part.views() if positions is None else part.views()[positions]
        return ByteArrays(*kernels.views_join(np.ascontiguousarray(views), part.view_buffers()))
    whole = ByteArrays(part.offsets(), part.data())
    if positions is None:
        return whole
    if positions.dtype != np.bool_:
        return strings_at(whole, positions)
    # Nulls have no bytes most of the time, and then the others are back to back as they lie.
    offsets: NDArray[Any] = memory_pool.empty((int(np.count_nonzero(positions)) + 1,), whole.offsets.dtype)
    if kernels.compact_offsets(whole.offsets, positions, offsets):
        return ByteArrays(offsets, whole.data)
    return strings_at(whole, np.flatnonzero(positions))
