"""A Parquet schema as an Avro schema, and the columns that Avro's writer makes of that: `avro_schema` the other way."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

from resilient_pq.arrow.nesting import ListShape, MapShape, shape_of
from resilient_pq.errors import SchemaError, UnsupportedError, Where
from resilient_pq.format import logical
from resilient_pq.format.logical import Decimal, Integer, Time, Timestamp, TimeUnit
from resilient_pq.format.metadata import Repetition, Type
from resilient_pq.format.schema import Node, Primitive, Schema
from resilient_pq.formats.trevni.avro_schema import VALUE_TYPES
from resilient_pq.formats.trevni.metadata import ColumnMetadata, ValueType

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNITS: Final = {TimeUnit.MILLIS: "millis", TimeUnit.MICROS: "micros", TimeUnit.NANOS: "nanos"}
_SIMPLE: Final = {
    Type.BOOLEAN: "boolean",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT: "float",
    Type.DOUBLE: "double",
    Type.BYTE_ARRAY: "bytes",
}
#: The name of the record that a row is.
ROOT_NAME: Final = "Row"


@dataclass(frozen=True, slots=True)
class WrittenColumn:
    """A column of a file to write.

    Attributes:
        metadata: What it says of itself.
        leaf: The ordinal of the first leaf at or below it.
        lengths: How many optional and repeated nodes lead to its lengths, its own among them; 0 where it has none.
        has_values: Whether the leaf's values are its own.
        parent: Position of the column whose elements it lies in; None where it lies in rows.
    """

    metadata: ColumnMetadata
    leaf: int
    lengths: int
    has_values: bool
    parent: int | None


class Columns:
    """The Avro schema of a Parquet schema, and the columns of both.

    Attributes:
        columns: The columns, in order.
        avro: The Avro schema, as JSON has it.
    """

    def __init__(self, schema: Schema) -> None:
        """Walk a schema.

        Raises:
            SchemaError: A name is none that Avro takes.
            UnsupportedError: A column has a type that Avro has no form for.
        """
        self.columns: list[WrittenColumn] = []
        self._leaf = 0
        self._names: dict[str, str] = {"": ROOT_NAME}
        fields = [self._field(child, None, None, 0) for child in schema.root.children]
        self.avro: dict[str, Any] = {"type": "record", "name": ROOT_NAME, "fields": fields}

    def _field(self, node: Node, path: str | None, parent: int | None, depth: int) -> dict[str, Any]:
        """A field of a record."""
        if _NAME.fullmatch(node.name) is None:
            hint = "letters, digits and _ make a name, and a digit does not begin it"
            raise SchemaError(f"the name {node.name!r} is none that Avro takes", hint=hint)
        below = node.name if path is None else f"{path}#{node.name}"
        return {"name": node.name, "type": self._node(node, below, parent, depth)}

    def _node(self, node: Node, path: str, parent: int | None, depth: int) -> Any:
        """The Avro schema of a node."""
        if node.repetition is Repetition.REPEATED:
            return self._array(replace(node, repetition=Repetition.REQUIRED), path, parent, depth)
        if node.repetition is Repetition.OPTIONAL and not _is_null(node):
            return self._union(replace(node, repetition=Repetition.REQUIRED), path, parent, depth)
        return self._required(node, path, parent, depth)

    def _required(self, node: Node, path: str, parent: int | None, depth: int) -> Any:
        if isinstance(node, Primitive):
            simple = self._simple(node, path)
            self._column(path, VALUE_TYPES[_kind(simple)], parent, 0, has_values=True)
            self._leaf += 1
            return simple
        match shape_of(node):
            case ListShape(repeated, None):
                element: Node = replace(repeated, repetition=Repetition.REQUIRED)
                return self._array(element, path, parent, depth)
            case ListShape(_, element_node) if element_node is not None:
                return self._array(element_node, path, parent, depth)
            case MapShape(_, key, value):
                return self._map(key, value, path, parent, depth)
        fields = [self._field(child, path, parent, depth) for child in node.children]
        return {"type": "record", "name": self._named(path), "fields": fields}

    def _union(self, node: Node, path: str, parent: int | None, depth: int) -> Any:
        """A union of null and a branch; its column comes before those of the branch, whose name it has."""
        branch = f"{path}/{self._branch_name(node, path)}"
        return ["null", self._elements(node, branch, parent, depth)]

    def _array(self, element: Node, path: str, parent: int | None, depth: int) -> Any:
        return {"type": "array", "items": self._elements(element, f"{path}[]", parent, depth)}

    def _elements(self, element: Node, path: str, parent: int | None, depth: int) -> Any:
        """What lies in a column with lengths: its own values where these are simple, else columns."""
        if isinstance(element, Primitive) and (element.repetition is Repetition.REQUIRED or _is_null(element)):
            simple = self._simple(element, path)
            self._column(path, VALUE_TYPES[_kind(simple)], parent, depth + 1, has_values=True)
            self._leaf += 1
            return simple
        position = self._column(path, ValueType.NULL, parent, depth + 1, has_values=False)
        return self._node(element, path, position, depth + 1)

    def _map(self, key: Node, value: Node, path: str, parent: int | None, depth: int) -> Any:
        if not isinstance(key, Primitive) or _kind(self._simple(key, path)) != "string":
            raise UnsupportedError("the keys of a map are not text, as Avro's are", where=Where(column=path))
        path = f"{path}>"
        position = self._column(path, ValueType.NULL, parent, depth + 1, has_values=False)
        self._column(f"{path}key", ValueType.STRING, position, 0, has_values=True)
        self._leaf += 1
        return {"type": "map", "values": self._node(value, f"{path}value", position, depth + 1)}

    def _column(self, name: str, kind: ValueType, parent: int | None, lengths: int, *, has_values: bool) -> int:
        above = None if parent is None else self.columns[parent].metadata.name
        metadata = ColumnMetadata(name, kind, is_array=lengths > 0, parent=above)
        self.columns.append(WrittenColumn(metadata, self._leaf, lengths, has_values, parent))
        return len(self.columns) - 1

    def _named(self, path: str) -> str:
        """A name for a type that has none: that of its place, unlike all others."""
        head, _, tail = path.rpartition("/")
        place = head if self._names.get(head) == tail else path  # a branch of a union is called by its type's name
        if place not in self._names:
            name, taken = re.sub(r"[^A-Za-z0-9_]+", "_", place), set(self._names.values())
            self._names[place] = next(
                each for number in count() if (each := f"{name}_{number}" if number else name) not in taken
            )
        return self._names[place]

    def _branch_name(self, node: Node, path: str) -> str:
        """What Avro calls the branch of a union: the name of a named type, or that of the type."""
        if isinstance(node, Primitive):
            kind = _kind(self._simple(node, path))
            return self._named(path) if kind == "fixed" else kind
        match shape_of(node):
            case ListShape():
                return "array"
            case MapShape():
                return "map"
        return self._named(path)

    def _simple(self, node: Primitive, path: str) -> Any:
        """The Avro schema of a leaf.

        Raises:
            UnsupportedError: Avro has no form for it.
        """
        if _is_null(node):
            return "null"
        physical, meant = node.physical_type, node.logical
        named: dict[str, Any]
        if physical is Type.FIXED_LEN_BYTE_ARRAY:
            named = {"type": "fixed", "name": self._named(path), "size": node.type_length}
        elif physical in _SIMPLE:
            named = {"type": _SIMPLE[physical]}
        else:
            raise UnsupportedError(f"{physical.name} has no form in Avro", where=Where(column=path))
        match meant:
            case logical.STRING | logical.JSON | logical.ENUM:
                return "string"
            case Decimal(precision, scale) if physical in (Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY):
                return {**named, "logicalType": "decimal", "precision": precision, "scale": scale}
            case logical.DATE:
                return {**named, "logicalType": "date"}
            case logical.UUID:
                return {**named, "logicalType": "uuid"}
            case Time(TimeUnit.MILLIS | TimeUnit.MICROS as unit, _):
                return {**named, "logicalType": f"time-{_UNITS[unit]}"}
            case Timestamp(unit, utc):
                return {**named, "logicalType": f"{'' if utc else 'local-'}timestamp-{_UNITS[unit]}"}
            case None | Integer(_, True):
                return named if physical is Type.FIXED_LEN_BYTE_ARRAY else named["type"]
        raise UnsupportedError(f"{physical.name} ({meant}) has no form in Avro", where=Where(column=path))


def _is_null(node: Node) -> bool:
    return isinstance(node, Primitive) and node.logical == logical.UNKNOWN


def _kind(simple: Any) -> str:
    return simple if isinstance(simple, str) else str(simple["type"])
