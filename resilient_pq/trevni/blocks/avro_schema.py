"""Records by the Avro schema that a file has in its metadata, compared with the columns that it should have.

Avro's writer walks the schema, depth first, and makes a column of every simple value, and one of every array, map and
branch of a union that is more than that; records have none. Names are ``a#b`` for field b of record a, ``x[]`` for
the elements of an array, ``m>``, ``m>key`` and ``m>value`` for a map, and ``u/int`` for a branch of a union.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from resilient_pq.format import logical
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.logical import Decimal, Logical, Time, Timestamp, TimeUnit
from resilient_pq.trevni.blocks.record_shape import LEAF_TYPES, NULL, Array, LeafType, Map, Maybe, Record, Scalar, Shape
from resilient_pq.trevni.blocks.trevni_metadata import ColumnMetadata, ValueType

#: How values of the types that have no others inside are stored.
_SIMPLE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
VALUE_TYPES: Final = {name: ValueType(name) for name in _SIMPLE} | {
    "enum": ValueType.INT,
    "fixed": ValueType.BYTES,
}
_NAMED: Final = ("record", "error", "enum", "fixed")
_TIMES: Final[dict[tuple[str, str], Logical]] = {
    ("int", "date"): logical.DATE,
    ("int", "time-millis"): Time(TimeUnit.MILLIS, True),
    ("long", "time-micros"): Time(TimeUnit.MICROS, True),
    **{
        ("long", f"{local}timestamp-{name}"): Timestamp(unit, not local)
        for local in ("", "local-")
        for name, unit in zip(("millis", "micros", "nanos"), TimeUnit, strict=True)
    },
}
#: Of a fixed that is a decimal, as wide as Parquet's readers take them.
_MOST_DIGITS: Final = 76
#: What a schema that is no record is the only column of.
ROOT_COLUMN: Final = "value"


class MismatchError(Exception):
    """The schema is none, or not that of the columns; says why."""


def record_of(text: bytes, columns: Sequence[ColumnMetadata]) -> Record:
    """The records of a file by its schema, as JSON; a MismatchError where it is none, or not that of the columns."""
    walk = _Walk(columns)
    try:
        shape = walk.shape(json.loads(text), "", None, "")
    except ValueError as error:
        raise MismatchError(f"it is no JSON: {error}") from None
    except RecursionError:
        raise MismatchError("it is nested too deeply, or a record contains itself") from None
    if walk.next != len(columns):
        raise MismatchError(f"the column {columns[walk.next].name!r} is none of its own")
    return shape if isinstance(shape, Record) else Record(((ROOT_COLUMN, shape),))


class _Walk:
    """Walks a schema, column by column."""

    def __init__(self, columns: Sequence[ColumnMetadata]) -> None:
        self._columns = columns
        self._named: dict[str, dict[str, Any]] = {}
        self.next = 0

    def shape(self, schema: Any, path: str, parent: str | None, namespace: str) -> Shape:
        """The shape of a value that lies in an element of `parent`, or in a row."""
        if isinstance(schema, list):
            return self._union(schema, path, parent, namespace)
        kind, schema, namespace, name = self._resolved(schema, namespace)
        if kind in VALUE_TYPES:
            return self._scalar(kind, schema, self._column(path or name, VALUE_TYPES[kind], parent, False))
        match kind:
            case "record" | "error":
                fields = []
                for field, inside in _fields(schema):
                    below = f"{path}#{field}" if path else field
                    fields.append((field, self.shape(inside, below, parent, namespace)))
                return Record(tuple(fields))
            case "array":
                return Array(*self._elements(schema.get("items"), f"{path}[]", parent, namespace))
            case "map":
                path = f"{path}>"
                lengths = self._column(path, ValueType.NULL, parent, True)
                key = Scalar(self._column(f"{path}key", ValueType.STRING, path, False), LEAF_TYPES[ValueType.STRING])
                return Map(lengths, key, self.shape(schema.get("values"), f"{path}value", path, namespace))
        raise MismatchError(f"there is no type {kind!r}")

    def _union(self, branches: list[Any], path: str, parent: str | None, namespace: str) -> Shape:
        found: list[tuple[str, Shape]] = []
        for branch in branches:
            if isinstance(branch, list):
                raise MismatchError("a union lies in a union")
            kind, _, _, name = self._resolved(branch, namespace)
            if kind != "null":
                below = f"{path}/{name}" if path else name
                found.append((name, Maybe(*self._elements(branch, below, parent, namespace))))
        if len(found) > 1:
            return Record(tuple(found))
        return found[0][1] if found else NULL

    def _elements(self, element: Any, path: str, parent: str | None, namespace: str) -> tuple[int, Shape]:
        """The column with the lengths of an array, and the shape of its elements."""
        if not isinstance(element, list):
            kind, schema, _, _ = self._resolved(element, namespace)
            if kind in VALUE_TYPES:
                column = self._column(path, VALUE_TYPES[kind], parent, True)
                return column, self._scalar(kind, schema, column)
        column = self._column(path, ValueType.NULL, parent, True)
        return column, self.shape(element, path, path, namespace)

    def _column(self, name: str, kind: ValueType, parent: str | None, is_array: bool) -> int:
        """The position of the next column, which has to be this one."""
        if self.next == len(self._columns):
            raise MismatchError(f"there is no column {name!r}")
        column = self._columns[self.next]
        if (column.name, column.type, column.parent, column.is_array) != (name, kind, parent, is_array):
            raise MismatchError(f"the column {column.name!r} is not the {name!r} that should be there")
        self.next += 1
        return self.next - 1

    def _resolved(self, schema: Any, namespace: str) -> tuple[str, dict[str, Any], str, str]:
        """The type of a schema, the schema itself, the namespace within it, and its full name."""
        if isinstance(schema, str):
            if (schema in VALUE_TYPES and schema not in _NAMED) or schema in ("array", "map"):
                return schema, {}, namespace, schema
            known = self._named.get(_full(schema, namespace)) or self._named.get(schema)
            if known is None:
                raise MismatchError(f"there is no type {schema!r}")
            schema = known
        if not isinstance(schema, dict):
            raise MismatchError(f"{schema!r} is no schema")
        kind = schema.get("type")
        if isinstance(kind, (dict, list)):
            raise MismatchError("a type has a schema within its type")
        if kind not in _NAMED:
            if isinstance(kind, str) and kind not in VALUE_TYPES and kind not in ("array", "map"):
                return self._resolved(kind, namespace)
            return str(kind), schema, namespace, str(kind)
        name = schema.get("name")
        if not isinstance(name, str):
            raise MismatchError("a named type has no name")
        full = _full(name, schema.get("namespace", namespace))
        self._named.setdefault(full, {**schema, "name": full, "namespace": ""} if "." not in full else schema)
        return kind, schema, full.rpartition(".")[0], full

    def _scalar(self, kind: str, schema: dict[str, Any], column: int) -> Scalar:
        if kind == "null":
            return Scalar(column, LEAF_TYPES[ValueType.NULL], is_null=True)
        if kind == "enum":
            symbols = schema.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
                raise MismatchError("an enumeration has no symbols")
            encoded = tuple(symbol.encode("utf-8", "backslashreplace") for symbol in symbols)
            return Scalar(column, LeafType(Type.BYTE_ARRAY, None, logical.ENUM), encoded)
        physical = LEAF_TYPES[VALUE_TYPES[kind]]
        if kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or not 0 <= size < 2**31:
                raise MismatchError(f"a fixed has {size!r} bytes")
            if size:  # Parquet's writers have no values of no bytes
                physical = LeafType(Type.FIXED_LEN_BYTE_ARRAY, size)
        meant = _logical(kind, schema, physical)
        return Scalar(column, physical if meant is None else physical._replace(logical=meant))


def _logical(kind: str, schema: dict[str, Any], physical: LeafType) -> Logical | None:
    """The logical type of values; None if there is none that is known."""
    name = schema.get("logicalType")
    if not isinstance(name, str):
        return None
    if kind in ("bytes", "fixed") and name == "decimal":
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 1 <= precision <= _MOST_DIGITS:
            return None
        return Decimal(precision, scale) if 0 <= scale <= precision else None
    if name == "uuid" and physical.length == 16:
        return logical.UUID
    return _TIMES.get((kind, name))


def _fields(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    fields = schema.get("fields")
    if not isinstance(fields, list):
        raise MismatchError("a record has no fields")
    found = []
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
            raise MismatchError("a field has no name or no type")
        found.append((field["name"], field["type"]))
    if len({name for name, _ in found}) < len(found):
        raise MismatchError("two fields have the same name")
    return found


def _full(name: str, namespace: object) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
