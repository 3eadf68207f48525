"""The Thrift compact protocol: structs as objects of slotted classes."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Any

from resilient_pq.errors import ThriftError
from resilient_pq.format.kernels.integers import varint
from resilient_pq.format.kernels.reference.arrays import BytesLike, octets
from resilient_pq.format.kernels.structs import InnerLists, KeptStructs, StructField

_LARGEST_DEPTH = 128
_LARGEST_NUMBER = 63

_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)
_INTEGER_BITS = {_I16: 16, _I32: 32, _I64: 64}
_FIXED_SIZES = {_TRUE: 1, _FALSE: 1, _I8: 1, _DOUBLE: 8, _UUID: 16}

_CUT = "a struct ends behind the end of its buffer"
_NO_TYPE = "the Thrift compact protocol has no such type"


class StructReader:
    """Reads the structs of one class, and skips fields that it does not have, or not with this wire type."""

    def __init__(self, cls: type[Any], fields: Sequence[StructField]) -> None:
        """Read structs into a class with a slot for each field, without calling its constructor."""
        for one in fields:
            if not 1 <= one.number <= _LARGEST_NUMBER:
                raise ValueError(
                    f"{cls.__name__}.{one.name} has number {one.number}; it must be 1 to {_LARGEST_NUMBER}"
                )
            if one.name not in cls.__slots__:
                raise ValueError(f"{cls.__name__} has no slot {one.name}")
        self._cls = cls
        self._fields = {one.number: one for one in fields}

    def decode(self, buffer: BytesLike, start: int, max_depth: int, lasting: bool = False) -> tuple[Any, int]:
        """The struct at `start`, and the offset behind it; structs, lists and maps lie `max_depth` deep at most."""
        # `lasting` says whether `KeptStructs` may hold on to the buffer, because it never changes. Otherwise they copy
        # what they are read from, unless that is most of a `bytes` object.
        data = octets(buffer).data
        if not 1 <= max_depth <= _LARGEST_DEPTH:
            raise ValueError(f"max_depth must be 1 to {_LARGEST_DEPTH}")
        if not 0 <= start <= len(data):
            raise ThriftError("a struct starts outside of its buffer")
        return self._read(_Source(data, buffer, lasting), start, max_depth)

    def decode_kept(self, buffer: Any, start: int, end: int, inner_at: int, inner_starts: memoryview | None) -> Any:
        """A struct of `KeptStructs`, whose kept list at `inner_at`, -1 for none, has elements at `inner_starts`."""
        data = octets(buffer).data
        if not 0 <= start <= end <= len(data):
            raise ThriftError("a struct starts outside of its buffer")
        return self._read(_Source(data[:end], buffer, True, inner_at, inner_starts), start, _LARGEST_DEPTH)[0]

    def _read(self, source: _Source, at: int, depth: int) -> tuple[Any, int]:
        """A struct that may be `depth` levels deep, and the offset behind it."""
        found: dict[str, Any] = {}
        data = source.data
        if depth == 0:
            raise ThriftError("structs lie too deep within each other")
        number = 0
        while True:
            header, at = _byte(data, at)
            if header == 0:
                break
            number, at = _field_number(data, at, header, number)
            kind = header & 0x0F
            one = self._fields.get(number)
            if one is None or (kind if kind != _FALSE else _TRUE) != one.kind:
                # The type of a field says all of a bool, that of an element does not.
                at = at if kind in (_TRUE, _FALSE) else value_end(data, at, kind, depth - 1)
            elif one.kind == _TRUE:
                found[one.name] = kind == _TRUE
            elif one.kept:
                found[one.name], at = source.kept(one, at, depth - 1)
            else:
                found[one.name], at = _value(source, at, one.kind, one, depth - 1)
        made = object.__new__(self._cls)
        for one in self._fields.values():
            if one.required and one.name not in found:
                raise ThriftError(f"it lacks {self._cls.__name__}.{one.name}")
            setattr(made, one.name, found.get(one.name, one.default))
        return made, at


class _Source:
    """The bytes that a struct is read from, and the kept lists that were found in them."""

    def __init__(
        self, data: memoryview, buffer: Any, lasting: bool, inner_at: int = -1, inner_starts: memoryview | None = None
    ) -> None:
        self.data = data
        self._buffer = buffer
        self._lasting = lasting
        self._inner_at = inner_at
        self._inner_starts = inner_starts
        #: Kept lists within the elements of the one that is being read; None outside of such a list.
        self._inner: dict[int, list[int]] | None = None

    def kept(self, one: StructField, at: int, depth: int) -> tuple[KeptStructs[Any] | None, int]:
        """A kept list, its elements checked, and the offset behind it; None for a list in one of these elements."""
        assert one.nested is not None
        if at == self._inner_at and self._inner_starts is not None:
            return KeptStructs(one.nested, self._buffer, self._inner_starts), self._inner_starts[-1]
        count, header_end = _list_header(self.data, at, one, depth)
        position, starts, within = header_end, array("q"), self._inner
        inner_at, first, inner_starts = array("q"), array("q"), array("q")
        for _ in range(count):
            starts.append(position)
            self._inner = {}
            position = one.nested._read(self, position, depth - 1)[1]
            found = self._inner.popitem() if self._inner else (-1, [])
            first.append(len(inner_starts))
            inner_at.append(found[0])
            inner_starts.extend(found[1])
        starts.append(position)
        first.append(len(inner_starts))
        self._inner = within
        if within is not None:
            within.clear()  # of a field that stands twice the last one counts
            within[at] = starts.tolist()
            return None, position
        data, base = self.held(at, position)
        moved = [_moved(offsets, base) for offsets in (starts, inner_at, inner_starts)]
        has_inner = any(field.kept for field in one.nested._fields.values())
        inner = InnerLists(moved[1], memoryview(first), moved[2]) if has_inner else None
        return KeptStructs(one.nested, data, moved[0], inner), position

    def held(self, start: int, end: int) -> tuple[Any, int]:
        """Bytes that never change with what lies from `start` to `end`, and the offset that is their first."""
        if self._lasting or (type(self._buffer) is bytes and 2 * (end - start) >= len(self.data)):
            return self._buffer, 0
        return bytes(self.data[start:end]), start


def _moved(offsets: array[int], base: int) -> memoryview:
    return memoryview(array("q", [offset - base if offset >= 0 else offset for offset in offsets]))


def _value(source: _Source, at: int, kind: int, one: StructField, depth: int) -> tuple[Any, int]:
    """A value of a field or of one of its elements, and the offset behind it; it may be `depth` levels deep."""
    data = source.data
    if kind in _INTEGER_BITS:
        value, at = _integer(data, at)
        if value + (1 << _INTEGER_BITS[kind] - 1) >> _INTEGER_BITS[kind]:
            raise ThriftError("an integer is beyond the range of its type")
        return value, at
    if kind == _BINARY:
        size, at = varint(data, at, 64, ThriftError)
        end = _advance(data, at, size)
        return (str(data[at:end], "utf-8", "replace") if one.text else bytes(data[at:end])), end
    if kind == _STRUCT:
        assert one.nested is not None
        return one.nested._read(source, at, depth)
    if kind == _LIST:
        count, at = _list_header(data, at, one, depth)
        values = []
        for _ in range(count):
            value, at = _value(source, at, one.element, one, depth - 1)
            values.append(value)
        return values, at
    end = _advance(data, at, _FIXED_SIZES[kind])
    if kind == _DOUBLE:
        return struct.unpack_from("<d", data, at)[0], end
    if kind == _I8:
        return int.from_bytes(data[at:end], "little", signed=True), end
    return data[at] == _TRUE, end


def _list_header(data: memoryview, at: int, one: StructField, depth: int) -> tuple[int, int]:
    """How many elements a field's list has, and the offset of the first."""
    count, kind, at = _any_list_header(data, at, depth)
    if count and (kind if kind != _FALSE else _TRUE) != one.element:
        raise ThriftError("a list has elements of another type than it should")
    return count, at


def _any_list_header(data: memoryview, at: int, depth: int) -> tuple[int, int, int]:
    if depth == 0:
        raise ThriftError("lists lie too deep within each other")
    header, at = _byte(data, at)
    count, kind = header >> 4, header & 0x0F
    if kind > _UUID:
        raise ThriftError(_NO_TYPE)
    if count == 0x0F:
        count, at = varint(data, at, 64, ThriftError)
    _advance(data, at, count)  # every element takes at least a byte
    return count, kind, at


def _field_number(data: memoryview, at: int, header: int, before: int) -> tuple[int, int]:
    """A field's number, and the offset behind it; without a difference to the last one it follows in full."""
    return _integer(data, at) if header >> 4 == 0 else (before + (header >> 4), at)


def _integer(data: memoryview, at: int) -> tuple[int, int]:
    value, at = varint(data, at, 64, ThriftError)
    return (value >> 1) ^ -(value & 1), at


def value_end(data: memoryview, at: int, kind: int, depth: int) -> int:
    """The offset behind a value that is skipped; it may lie `depth` levels deep."""
    if kind in _INTEGER_BITS:
        return varint(data, at, 64, ThriftError)[1]
    if kind in _FIXED_SIZES:
        return _advance(data, at, _FIXED_SIZES[kind])
    if kind == _BINARY:
        size, at = varint(data, at, 64, ThriftError)
        return _advance(data, at, size)
    if kind == _STRUCT:
        return struct_end(data, at, depth)
    if kind in (_LIST, _SET):
        count, kind, at = _any_list_header(data, at, depth)
        for _ in range(count):
            at = value_end(data, at, kind, depth - 1)
        return at
    if kind == _MAP:
        return _map_end(data, at, depth)
    raise ThriftError(_NO_TYPE)


def struct_end(data: memoryview, at: int, depth: int) -> int:
    """The offset behind a struct that is skipped; it may lie `depth` levels deep."""
    if depth == 0:
        raise ThriftError("structs lie too deep within each other")
    while True:
        header, at = _byte(data, at)
        if header == 0:
            return at
        _, at = _field_number(data, at, header, 0)
        if header & 0x0F not in (_TRUE, _FALSE):
            at = value_end(data, at, header & 0x0F, depth - 1)


def _map_end(data: memoryview, at: int, depth: int) -> int:
    if depth == 0:
        raise ThriftError("maps lie too deep within each other")
    count, at = varint(data, at, 64, ThriftError)
    if count == 0:
        return at
    kinds, at = _byte(data, at)
    _advance(data, at, count)
    for _ in range(count):
        at = value_end(data, at, kinds >> 4, depth - 1)
        at = value_end(data, at, kinds & 0x0F, depth - 1)
    return at


def _byte(data: memoryview, at: int) -> tuple[int, int]:
    if at >= len(data):
        raise ThriftError(_CUT)
    return data[at], at + 1


def _advance(data: memoryview, at: int, size: int) -> int:
    if size > len(data) - at:
        raise ThriftError(_CUT)
    return at + size
