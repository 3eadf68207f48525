"""File metadata of which the end is missing or a part is damaged: the fields that can still be read.

Thrift writes the fields of `FileMetaData` in their order: schema, rows, row groups, and then what is known of the
file as a whole. So of a footer that was cut the schema is the last to be lost, and every row group before the cut is
named in full.
"""

from __future__ import annotations

import re
from dataclasses import field
from enum import StrEnum
from typing import Any, TypeVar

from resilient_pq.errors import ThriftError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import (
    ColumnChunk,
    ColumnOrder,
    FileMetaData,
    KeyValue,
    RowGroup,
    SchemaElement,
)
from resilient_pq.lazy_dataclass import dataclass

T = TypeVar("T")

#: How file metadata begin: field 1 is the version, an i32 of one byte, and field 2 a list of structs.
SHAPE = re.compile(rb"\x15[\x00-\x7e]\x19[\x1c\x2c\x3c\x4c\x5c\x6c\x7c\x8c\x9c\xac\xbc\xcc\xdc\xec\xfc]", re.DOTALL)

# Wire types of the Thrift compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)
_VARINTS = (_I16, _I32, _I64)
_FIXED = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8, _UUID: 16}
_LONG_LIST = 15
#: Elements of a list at most: columns, row groups and keys of real files are far fewer, and each costs a
#: hundred times the byte that it can be made of.
_MOST_ELEMENTS = 1 << 20


class MetadataEnd(StrEnum):
    """How bytes that begin with file metadata end."""

    WHOLE = "whole"
    """The metadata are whole; other bytes may follow."""
    CUT = "cut"
    """The bytes end before the metadata do, and all of them are of the metadata."""
    DAMAGED = "damaged"
    """Something stands there that is no metadata."""


@dataclass(slots=True)
class PartialMetaData:
    """The front of file metadata."""

    ending: MetadataEnd = MetadataEnd.WHOLE  # How the bytes end
    end: int = 0  # Offset just after the last field, or element of a list, that is whole
    version: int | None = None  # None where the bytes end before it
    schema: list[SchemaElement] = field(default_factory=list)  # Its elements that are whole
    num_schema_elements: int | None = None  # How many there should be; None where the bytes end before that
    num_rows: int | None = None  # Rows of the file as the metadata have it; None where the bytes end before that
    row_groups: list[RowGroup] = field(default_factory=list)  # The row groups that are whole
    num_row_groups: int | None = None  # How many there should be; None where the bytes end before that
    # The column chunks that are whole of the row group after these
    columns: list[ColumnChunk] = field(default_factory=list)
    key_value_metadata: list[KeyValue] = field(default_factory=list)  # Of the file, those that are whole
    created_by: str | None = None  # None where the bytes end before it, or there is none
    column_orders: list[ColumnOrder] | None = None  # None where they are not whole, or there are none
    encrypted: bool = False  # Whether the metadata speak of encryption

    @property
    def has_schema(self) -> bool:
        """Whether all elements of the schema are there."""
        return bool(self.schema) and len(self.schema) == self.num_schema_elements

    @property
    def names_all_row_groups(self) -> bool:
        """Whether no row group of the file is missing."""
        return len(self.row_groups) == self.num_row_groups

    def metadata(self) -> FileMetaData:
        """File metadata with the row groups that are whole, and their rows."""
        return FileMetaData(
            self.version or 1,
            self.schema,
            sum(row_group.num_rows for row_group in self.row_groups),
            self.row_groups,
            self.key_value_metadata or None,
            self.created_by,
            self.column_orders,
        )


class _CutError(Exception):
    """The bytes end before the value does."""


class _DamagedError(Exception):
    """The bytes are no such value."""


def begins_metadata(data: Any) -> bool:
    """Whether a KiB of bytes with the shape of file metadata goes on with the root of a schema."""
    view = memoryview(data)
    try:
        count, at = _list_header(view, 3)
        root, _ = compact_protocol.decode(SchemaElement, view, at)
    except (_CutError, _DamagedError, ThriftError):
        return False
    # Files without columns have a root with no children.
    return bool(root.name or root.num_children) and (root.num_children or 0) < count


def partial_metadata(data: Any, offset: int = 0, *, after: int = 0) -> PartialMetaData:
    """Read as much of file metadata as there is, from an offset, where field number `after` ends."""
    # Nothing is allocated by a count alone, and each element is checked: hostile bytes cost no more than reading them.
    view = memoryview(data)
    found = PartialMetaData(end=offset)
    number, at = after, offset
    try:
        while True:
            number, kind, at = _field_header(view, at, number)
            if kind == 0:
                if not after and (not found.has_schema or None in (found.num_rows, found.num_row_groups)):
                    raise _DamagedError
                found.end = at
                return found
            at = _take_field(found, view, at, number, kind)
            found.end = at
    except _CutError:
        found.ending = MetadataEnd.CUT
    except _DamagedError:
        found.ending = MetadataEnd.DAMAGED
    return found


def _take_field(found: PartialMetaData, view: memoryview, at: int, number: int, kind: int) -> int:
    """Read one field into `found`; elements of lists count one by one."""
    if (number == 2 and found.schema) or (number == 4 and found.row_groups):
        raise _DamagedError  # what stands twice cannot both be right
    match number, kind:
        case 1, 5:
            found.version, at = _number(view, at)
        case 2, 9:
            found.num_schema_elements, at = _list_header(view, at)
            at = _take_list(found, view, at, SchemaElement, found.schema, found.num_schema_elements)
        case 3, 6:
            found.num_rows, at = _number(view, at)
        case 4, 9:
            found.num_row_groups, at = _list_header(view, at)
            at = _take_row_groups(found, view, at)
        case 5, 9:
            count, at = _list_header(view, at)
            at = _take_list(found, view, at, KeyValue, found.key_value_metadata, count)
        case 6, 8:
            size, start = _varint(view, at)
            at = _advance(view, start, size)
            found.created_by = str(view[start:at], "utf-8", "replace")
        case 7, 9:
            count, at = _list_header(view, at)
            orders: list[ColumnOrder] = []
            at = _take_list(found, view, at, ColumnOrder, orders, count)
            found.column_orders = orders
        case _:
            found.encrypted = found.encrypted or number == 8
            at = _skip(view, at, kind, compact_protocol.MAX_DEPTH - 1, inside=False)
    return at


def _take_list(found: PartialMetaData, view: memoryview, at: int, cls: type[T], into: list[T], count: int) -> int:
    for _ in range(count):
        value, at = _struct(view, at, cls)
        into.append(value)
        found.end = at
    return at


def _take_row_groups(found: PartialMetaData, view: memoryview, at: int) -> int:
    for _ in range(found.num_row_groups or 0):
        try:
            row_group, at = _struct(view, at, RowGroup)
        except (_CutError, _DamagedError):
            found.columns = _columns_of_torn(view, at)
            raise
        found.row_groups.append(row_group)
        found.end = at
    return at


def _columns_of_torn(view: memoryview, at: int) -> list[ColumnChunk]:
    """The whole column chunks of a row group that is not whole; they are its first field."""
    columns: list[ColumnChunk] = []
    try:
        number, kind, at = _field_header(view, at, 0)
        if (number, kind) == (1, _LIST):
            count, at = _list_header(view, at)
            for _ in range(count):
                column, at = _struct(view, at, ColumnChunk)
                columns.append(column)
    except (_CutError, _DamagedError):
        pass  # these are all that there are
    return columns


def _struct(view: memoryview, at: int, cls: type[T]) -> tuple[T, int]:
    try:
        return compact_protocol.decode(cls, view, at)
    except ThriftError:
        # It does not say whether the bytes ended too early or are wrong; that is worth a walk of our own.
        _skip(view, at, _STRUCT, compact_protocol.MAX_DEPTH, inside=True)
        raise _DamagedError from None


def _field_header(view: memoryview, at: int, before: int) -> tuple[int, int, int]:
    """Number and wire type of a field, and the offset after its header; type 0 ends the struct."""
    header = _byte(view, at)
    at += 1
    if header == 0:
        return 0, 0, at
    if header >> 4:
        return before + (header >> 4), header & 0x0F, at
    number, at = _number(view, at)
    return number, header & 0x0F, at


def _list_header(view: memoryview, at: int) -> tuple[int, int]:
    """Elements of a list of structs, and the offset of the first."""
    header = _byte(view, at)
    at += 1
    count = header >> 4
    if count == _LONG_LIST:
        count, at = _varint(view, at)
    if count > _MOST_ELEMENTS or (count and header & 0x0F != _STRUCT):
        raise _DamagedError
    return count, at


def _skip(view: memoryview, at: int, kind: int, depth: int, *, inside: bool) -> int:
    """The offset after a value of a wire type; a bool takes a byte only `inside` of a list or a map."""
    if kind in (_TRUE, _FALSE) and not inside:
        return at
    if kind in _VARINTS:
        return _varint(view, at)[1]
    if kind in _FIXED:
        return _advance(view, at, _FIXED[kind])
    if kind == _BINARY:
        size, at = _varint(view, at)
        return _advance(view, at, size)
    if depth <= 0:
        raise _DamagedError
    if kind == _STRUCT:
        return _skip_struct(view, at, depth)
    return _skip_elements(view, at, kind, depth)


def _skip_elements(view: memoryview, at: int, kind: int, depth: int) -> int:
    """The offset after a list, a set or a map."""
    if kind in (_LIST, _SET):
        header = _byte(view, at)
        count, at = (header >> 4, at + 1) if header >> 4 != _LONG_LIST else _varint(view, at + 1)
        kinds: tuple[int, ...] = (header & 0x0F,)
    elif kind == _MAP:
        count, at = _varint(view, at)
        header = _byte(view, at) if count else 0
        at += 1 if count else 0
        kinds = (header >> 4, header & 0x0F)
    else:
        raise _DamagedError
    if count > _MOST_ELEMENTS:
        raise _DamagedError
    for _ in range(count):
        for each in kinds:
            at = _skip(view, at, each, depth - 1, inside=True)
    return at


def _skip_struct(view: memoryview, at: int, depth: int) -> int:
    number = 0
    while True:
        number, kind, at = _field_header(view, at, number)
        if kind == 0:
            return at
        at = _skip(view, at, kind, depth - 1, inside=False)


def _byte(view: memoryview, at: int) -> int:
    if at >= len(view):
        raise _CutError
    return view[at]


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = _byte(view, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise _DamagedError
            return value, at
    raise _DamagedError


def _number(view: memoryview, at: int) -> tuple[int, int]:
    """A signed integer, which is stored zigzag."""
    value, at = _varint(view, at)
    return (value >> 1) ^ -(value & 1), at


def _advance(view: memoryview, at: int, size: int) -> int:
    if size > len(view) - at:
        raise _CutError
    return at + size
