"""``struct ArrowArray``, for what nanoarrow does not know: dictionaries, list views and narrow decimals.

https://arrow.apache.org/docs/format/CDataInterface.html
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any, Final

import numpy as np
from nanoarrow.c_array import CArray
from numpy.typing import NDArray

from resilient_pq.arrow.types.field import Field, shared_c


class CArrayStruct(ctypes.Structure):
    """``struct ArrowArray``."""

    _fields_ = (
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.POINTER(ctypes.c_void_p)),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def put_dictionary(array: Any, values: Any) -> None:
    """Move the `CArray` of a dictionary's values into one of its indices, in the place of the empty one there."""
    source, target = values._addr(), CArrayStruct.from_address(array._addr()).dictionary
    _Release(CArrayStruct.from_address(target).release)(target)
    ctypes.memmove(target, source, ctypes.sizeof(CArrayStruct))
    CArrayStruct.from_address(source).release = None  # it was moved


def view_of(array: Any, field: Field) -> Any:
    """What shows the buffers of a `CArray` of a type: nanoarrow, or a `ListViewParts` where that cannot."""
    if not _is_unknown(field):
        return array.view()
    if _has_list_views(field):
        return ListViewParts(array, array._addr(), field)
    return _stored_view(array, array._addr(), field)


def _is_unknown(field: Field) -> bool:
    """Whether there may be something in a type that nanoarrow does not know, or not as others make it."""
    if field.dictionary is not None:
        return _is_unknown(field.dictionary)
    return field.kind in _UNKNOWN or any(map(_is_unknown, field.children))


def _stored_view(owner: Any, address: int, field: Field) -> Any:
    """nanoarrow's view of an array without list views."""
    _drop_buffers_of_nulls(address, field)
    return CArray(owner, address, shared_c(_storage(field))).view()


def _drop_buffers_of_nulls(address: int, field: Field) -> None:
    """Arrays of nulls have no buffers, and nanoarrow takes no others; those of Polars have one."""
    struct = CArrayStruct.from_address(address)
    if field.kind == "n":
        struct.n_buffers = 0  # whoever releases the array goes by its private data
    for position, child in enumerate(field.children):
        if _is_unknown(child):
            _drop_buffers_of_nulls(int(struct.children[position] or 0), child)


def _storage(field: Field) -> Field:
    """The type with decimals of 32 and 64 bits as binaries of as many bytes, in the same memory."""
    narrow = field.kind == "d" and field.decimal[2] < 128
    return replace(
        field,
        format=f"w:{field.decimal[2] // 8}" if narrow else field.format,
        children=tuple(map(_storage, field.children)),
        dictionary=None if field.dictionary is None else _storage(field.dictionary),
    )


def _has_list_views(field: Field) -> bool:
    return field.kind in LIST_VIEW_KINDS or any(map(_has_list_views, field.children))


#: The kinds of list views.
LIST_VIEW_KINDS: Final = frozenset({"+vl", "+vL"})
_UNKNOWN: Final = LIST_VIEW_KINDS | {"d", "n"}
#: For each buffer of a nested type but the first: bytes of an item, and items beyond the slots.
_BUFFERS: Final = {"+vl": ((4, 0),) * 2, "+vL": ((8, 0),) * 2, "+l": ((4, 1),), "+m": ((4, 1),), "+L": ((8, 1),)}


class _Bytes(np.ndarray[Any, np.dtype[np.uint8]]):
    """A buffer as nanoarrow shows it."""

    @property
    def size_bytes(self) -> int:
        return self.nbytes


class ListViewParts:
    """The buffers of an array with list views in it, as nanoarrow's views of other arrays show them."""

    def __init__(self, owner: Any, address: int, field: Field) -> None:
        """Show what lies at an address, as long as `owner` lives."""
        struct = CArrayStruct.from_address(address)
        self._owner, self._struct, self._field = owner, struct, field
        self.length, self.offset, self.null_count = int(struct.length), int(struct.offset), int(struct.null_count)
        self.n_buffers = int(struct.n_buffers)

    def child(self, position: int) -> Any:
        """A child, in the same way."""
        field, address = self._field.children[position], int(self._struct.children[position] or 0)
        if _has_list_views(field):
            return ListViewParts(self._owner, address, field)
        return _stored_view(self._owner, address, field)

    def buffer(self, number: int) -> NDArray[np.uint8]:
        """The bytes of a buffer."""
        slots, address = self.length + self.offset, self._struct.buffers[number]
        if number:
            item, more = _BUFFERS[self._field.kind][number - 1]
            size = item * (slots + more)
        else:
            size = (slots + 7) // 8
        if not address or not size:
            return np.empty(0, np.uint8).view(_Bytes)
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).view(_Bytes)
