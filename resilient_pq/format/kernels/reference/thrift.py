"""The Thrift compact protocol."""

from __future__ import annotations

from resilient_pq.errors import ThriftError
from resilient_pq.format.kernels.reference.arrays import BytesLike, octets
from resilient_pq.format.kernels.reference.integers import varint

_LARGEST_DEPTH = 128

_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)
_VARINTS = (_I16, _I32, _I64)
_FIXED_SIZES = {_TRUE: 1, _FALSE: 1, _I8: 1, _DOUBLE: 8, _UUID: 16}


def thrift_end(buffer: BytesLike, start: int, max_depth: int) -> int:
    """Walk the Thrift compact-protocol struct at `start` and return the offset just behind its stop byte.

    Args:
        buffer: The struct, and whatever stands around it.
        start: Offset of the struct's first byte.
        max_depth: How deep structs, lists, sets and maps may lie within each other, 1 to 128; the struct
            itself counts as 1.

    Raises:
        ThriftError: The struct is not whole in `buffer`, lies deeper than `max_depth`, or has a type that the
            protocol does not know or an integer of more than 64 bits.
        ValueError: `max_depth` is not 1 to 128.
    """
    data = octets(buffer).data
    if not 1 <= max_depth <= _LARGEST_DEPTH:
        raise ValueError(f"max_depth must be 1 to {_LARGEST_DEPTH}")
    if not 0 <= start <= len(data):
        raise ThriftError("a struct starts outside of its buffer")
    return _struct_end(data, start, max_depth)


def _struct_end(data: memoryview, position: int, depth: int) -> int:
    """The offset behind a struct that may be `depth` levels deep."""
    if depth == 0:
        raise ThriftError("structs lie too deep within each other")
    while True:
        header, position = _byte(data, position)
        if header == 0:
            return position
        kind = header & 0x0F
        if header >> 4 == 0:  # no difference to the last field id: the id follows
            _, position = varint(data, position, 64, ThriftError)
        if kind not in (_TRUE, _FALSE):  # the type of a field says all of a bool, that of an element does not
            position = _value_end(data, position, kind, depth - 1)


def _value_end(data: memoryview, position: int, kind: int, depth: int) -> int:
    """The offset behind one value, which may lie `depth` levels deep."""
    if kind in _VARINTS:
        return varint(data, position, 64, ThriftError)[1]
    if kind in _FIXED_SIZES:
        return _advance(data, position, _FIXED_SIZES[kind])
    if kind == _BINARY:
        size, position = varint(data, position, 64, ThriftError)
        return _advance(data, position, size)
    if kind == _STRUCT:
        return _struct_end(data, position, depth)
    if kind in (_LIST, _SET):
        return _list_end(data, position, depth)
    if kind == _MAP:
        return _map_end(data, position, depth)
    raise ThriftError(f"the Thrift compact protocol has no type {kind}")


def _list_end(data: memoryview, position: int, depth: int) -> int:
    if depth == 0:
        raise ThriftError("lists lie too deep within each other")
    header, position = _byte(data, position)
    count = header >> 4
    if count == 0x0F:
        count, position = varint(data, position, 64, ThriftError)
    _advance(data, position, count)  # every element takes at least a byte
    for _ in range(count):
        position = _value_end(data, position, header & 0x0F, depth - 1)
    return position


def _map_end(data: memoryview, position: int, depth: int) -> int:
    if depth == 0:
        raise ThriftError("maps lie too deep within each other")
    count, position = varint(data, position, 64, ThriftError)
    if count == 0:
        return position
    kinds, position = _byte(data, position)
    _advance(data, position, count)
    for _ in range(count):
        position = _value_end(data, position, kinds >> 4, depth - 1)
        position = _value_end(data, position, kinds & 0x0F, depth - 1)
    return position


def _byte(data: memoryview, position: int) -> tuple[int, int]:
    if position >= len(data):
        raise ThriftError("a struct ends behind the end of its buffer")
    return data[position], position + 1


def _advance(data: memoryview, position: int, size: int) -> int:
    if size > len(data) - position:
        raise ThriftError("a struct ends behind the end of its buffer")
    return position + size
