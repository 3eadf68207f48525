"""Conversions between the schemas of Arrow and of Parquet, with the mapping of pyarrow's writer and reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, Final

from resilient_pq.arrow.decimals import WIDEST
from resilient_pq.arrow.intervals import INTERVAL_WIDTH
from resilient_pq.arrow.types.field import (
    EXTENSION_METADATA_KEY,
    EXTENSION_NAME_KEY,
    MAX_NESTING,
    Field,
    in_utf8,
    normalise,
    renamed,
)
from resilient_pq.arrow.types.group_nesting import ListShape, MapShape, shape_of
from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY, StoredFields, encode_arrow_schema, refined
from resilient_pq.errors import SchemaError, UnsupportedError, Where
from resilient_pq.format import logical
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.logical import Decimal, Integer, Logical, Time, Timestamp, TimeUnit
from resilient_pq.format.schema_tree import Group, Node, Primitive, Schema

__all__ = [
    "ColumnFields",
    "arrow_field_of",
    "arrow_schema_of",
    "decimal_width",
    "encode_arrow_schema",
    "schema_from_arrow",
    "schema_to_arrow",
]

FIELD_ID_KEY: Final = b"PARQUET:field_id"  # pyarrow keeps a column's field id under this key of the field's metadata

_Physical = tuple[Type, int | None, Logical | None]

_TO_PARQUET: dict[str, _Physical] = {
    "b": (Type.BOOLEAN, None, None),
    "c": (Type.INT32, None, Integer(8, True)),
    "C": (Type.INT32, None, Integer(8, False)),
    "s": (Type.INT32, None, Integer(16, True)),
    "S": (Type.INT32, None, Integer(16, False)),
    "i": (Type.INT32, None, None),
    "I": (Type.INT32, None, Integer(32, False)),
    "l": (Type.INT64, None, None),
    "L": (Type.INT64, None, Integer(64, False)),
    "e": (Type.FIXED_LEN_BYTE_ARRAY, 2, logical.FLOAT16),
    "f": (Type.FLOAT, None, None),
    "g": (Type.DOUBLE, None, None),
    "n": (Type.INT32, None, logical.UNKNOWN),
    "tdD": (Type.INT32, None, logical.DATE),
    "tdm": (Type.INT32, None, logical.DATE),
    "tD": (Type.INT64, None, None),
    **dict.fromkeys(("u", "U", "vu"), (Type.BYTE_ARRAY, None, logical.STRING)),
    **dict.fromkeys(("z", "Z", "vz"), (Type.BYTE_ARRAY, None, None)),
}
_EXTENSIONS: dict[tuple[bytes, str], _Physical] = {
    (b"arrow.uuid", "w:16"): (Type.FIXED_LEN_BYTE_ARRAY, 16, logical.UUID),
    **{(b"arrow.json", kind): (Type.BYTE_ARRAY, None, logical.JSON) for kind in ("u", "U", "vu")},
}
_TIME_UNITS = {"s": TimeUnit.MILLIS, "ms": TimeUnit.MILLIS, "us": TimeUnit.MICROS, "ns": TimeUnit.NANOS}
_UNIT_LETTERS = {TimeUnit.MILLIS: "m", TimeUnit.MICROS: "u", TimeUnit.NANOS: "n"}
_INTEGERS = {
    (Type.INT32, Integer(8, True)): "c",
    (Type.INT32, Integer(8, False)): "C",
    (Type.INT32, Integer(16, True)): "s",
    (Type.INT32, Integer(16, False)): "S",
    (Type.INT32, Integer(32, False)): "I",
    (Type.INT64, Integer(64, False)): "L",
}
_MOST_DIGITS: Final = 76  # Of Arrow's widest decimals
#: The largest schemas whose fields are kept for other files: by their columns, and by what ``ARROW:schema`` holds.
_MOST_SHARED_COLUMNS: Final = 2000
_MOST_SHARED_STORED: Final = 256 * 1024
_UNANNOTATED = {
    Type.BOOLEAN: "b",
    Type.INT32: "i",
    Type.INT64: "l",
    Type.FLOAT: "f",
    Type.DOUBLE: "g",
    Type.BYTE_ARRAY: "z",
}


def schema_from_arrow(arrow: object) -> Schema:
    """The Parquet schema of an Arrow schema.

    Args:
        arrow: Anything with ``__arrow_c_schema__`` that describes a struct of columns.

    Raises:
        SchemaError: `arrow` is not the schema of a table.
        UnsupportedError: A column has a type that Parquet, or this version, has no form for: unions,
            run-end encoding, intervals of months or of days and milliseconds alone, decimals of negative scale, structs
            without fields.
    """
    root = Field.of(arrow)
    if root.kind != "+s":
        raise SchemaError(f"the schema of a table is a struct, not {root}")
    return Schema(Group("schema", Repetition.REQUIRED, tuple(_node_of(child, ()) for child in root.children)))


def schema_to_arrow(schema: Schema) -> Any:
    """The Arrow schema of a Parquet schema, by its Parquet types alone, with ``__arrow_c_schema__``.

    Raises:
        UnsupportedError: A column is nested too deeply.
    """
    return arrow_schema_of(schema, {})


def _node_of(field: Field, parents: tuple[str, ...]) -> Node:
    path = (*parents, field.name)
    if field.dictionary is not None:
        if field.dictionary.children:
            raise _unwritable(path, field)
        field = normalise(field)
    nullable = field.nullable or field.kind == "n"
    repetition = Repetition.OPTIONAL if nullable else Repetition.REQUIRED
    field_id = _field_id(field)
    match field.kind:
        case "+s" if field.children:
            children = tuple(_node_of(child, path) for child in field.children)
            return Group(field.name, repetition, children, None, field_id)
        case "+l" | "+L" | "+w" | "+vl" | "+vL":
            element = _node_of(replace(field.children[0], name="element"), path)
            repeated = Group("list", Repetition.REPEATED, (element,))
            return Group(field.name, repetition, (repeated,), logical.LIST, field_id)
        case "+m":
            key, value = field.children[0].children
            if normalise(key).kind == "n":
                column = ".".join(path)
                raise SchemaError(
                    f"column {column!r}: the keys of a map are never null, but have the type null",
                    where=Where(column=column),
                    hint="cast the map to one whose keys have another type",
                )
            entry = (
                _node_of(replace(key, name="key", nullable=False), path),
                _node_of(replace(value, name="value"), path),
            )
            repeated = Group("key_value", Repetition.REPEATED, entry)
            return Group(field.name, repetition, (repeated,), logical.MAP, field_id)
        case _:
            return Primitive(field.name, repetition, *_primitive_of(field, path), field_id)


def _primitive_of(field: Field, path: tuple[str, ...]) -> _Physical:
    extension = _EXTENSIONS.get((field.extension, field.format))
    if extension is not None:
        return extension
    if field.kind in _TO_PARQUET:
        return _TO_PARQUET[field.kind]
    match field.kind:
        case "w" if field.width > 0:
            return Type.FIXED_LEN_BYTE_ARRAY, field.width, None
        case "ts":
            unit = _TIME_UNITS[field.unit]
            return Type.INT64, None, Timestamp(unit, utc=bool(field.parameter))
        case "tt":
            unit = _TIME_UNITS[field.unit]
            return Type.INT32 if unit is TimeUnit.MILLIS else Type.INT64, None, Time(unit, utc=False)
        case "ti" if field.format == "tin":
            return Type.FIXED_LEN_BYTE_ARRAY, INTERVAL_WIDTH, logical.INTERVAL
        case "d":
            precision, scale, _ = field.decimal
            if 0 <= scale <= precision:
                return Type.FIXED_LEN_BYTE_ARRAY, decimal_width(precision), Decimal(precision, scale)
    raise _unwritable(path, field)


def _unwritable(path: tuple[str, ...], field: Field) -> UnsupportedError:
    column = ".".join(path)
    return UnsupportedError(
        f"column {column!r}: {field} cannot be written to Parquet",
        where=Where(column=column),
        hint="cast it to a plain type, or leave it out",
    )


def decimal_width(precision: int) -> int:
    """The fewest bytes whose two's complement holds every unscaled integer of `precision` digits."""
    return (int(10**precision - 1).bit_length() + 8) // 8


def _field_id(field: Field) -> int | None:
    text = dict(field.metadata).get(FIELD_ID_KEY, b"")
    # Negative ones stand for none, and an i32 has no more than ten digits.
    value = int(text) if text.isdigit() and len(text) <= 10 else None
    return value if value is not None and value < 2**31 else None


def arrow_schema_of(schema: Schema, key_value: Mapping[str, str | None]) -> Any:
    """The Arrow schema of a file, as a nanoarrow `CSchema` of a struct; see `ColumnFields`."""
    return ColumnFields(schema, key_value).struct().to_c()


class ColumnFields:
    """The Arrow fields of a file's columns, each made when it is asked for, once for all that share a `Schema`."""

    def __init__(
        self, schema: Schema, key_value: Mapping[str, str | None], *, int96_unit: str = "ns", restore_types: bool = True
    ) -> None:
        """Refine types by ``ARROW:schema`` where it is whole; without `restore_types` give them as `normalise` does."""
        self._schema = schema
        self._key_value = key_value
        self._int96_unit = int96_unit
        self._form: Callable[[Field], Field] = (lambda field: field) if restore_types else normalise
        # What is shared is found by this, which may not become another while it is: mappings may change.
        self._stored = stored = key_value.get(ARROW_SCHEMA_KEY) or ""
        self.told: tuple[str, str, bool] | None = None  # what shared fields depend on besides the schema
        if len(stored) > _MOST_SHARED_STORED or len(schema.columns) > _MOST_SHARED_COLUMNS:
            self._found: dict[int, Field] = {}
        else:
            self.told = stored, int96_unit, restore_types
            self._found = _shared_fields(_ThisSchema(schema), stored, int96_unit, restore_types=restore_types)

    def struct(self, columns: Sequence[int] | None = None) -> Field:
        """The struct that columns are, of the top-level columns by position, None for all."""
        positions = range(len(self._schema.root.children)) if columns is None else columns
        missing = [position for position in positions if position not in self._found]
        if missing:
            self._find(missing)
        return Field("", "+s", False, tuple(map(self._found.__getitem__, positions)), metadata=self.metadata)

    def _find(self, positions: Sequence[int]) -> None:
        names, alike = self._schema.names, self._schema.alike
        stored = StoredFields(self._stored, names)
        for first, *others in [[each] for each in positions] if alike is None else stored.alike(positions, alike):
            self._found[first] = found = self._field(first, stored)
            if others and not found.children:  # those of lists have names, too
                self._found.update(zip(others, renamed(found, [names[each] for each in others]), strict=True))
            else:
                self._found.update((each, self._field(each, stored)) for each in others)

    def _field(self, position: int, stored: StoredFields) -> Field:
        derived = arrow_field_of(self._schema.root.children[position], int96_unit=self._int96_unit)
        hint = stored.of(position)
        return self._form(derived if hint is None else refined(derived, hint) or derived)

    @cached_property
    def metadata(self) -> tuple[tuple[bytes, bytes], ...]:
        """The metadata of the struct: the file's, without ``ARROW:schema`` and without our own ``rpq.*``."""
        return tuple(
            (key.encode("utf-8", "replace"), value.encode("utf-8", "replace"))
            for key, value in self._key_value.items()
            if value is not None and key != ARROW_SCHEMA_KEY and not key.startswith("rpq.")
        )


class _ThisSchema:
    """A schema, told from others by which one it is: not all that it holds is compared."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ThisSchema) and self._schema is other._schema

    def __hash__(self) -> int:
        return id(self._schema)


@lru_cache(maxsize=16)
def _shared_fields(schema: _ThisSchema, stored: str, int96_unit: str, *, restore_types: bool) -> dict[int, Field]:
    """The fields found so far for columns of a schema with that value of ``ARROW:schema``; callers add to it."""
    return {}


def arrow_field_of(node: Node, *, int96_unit: str = "ns") -> Field:
    """The Arrow field of a top-level column, by its Parquet type alone."""
    return _field_of(node, (), int96_unit)


def _field_of(node: Node, parents: tuple[str, ...], int96_unit: str) -> Field:
    if node.repetition is Repetition.REPEATED:
        field = _type_of(node, parents, int96_unit)
        # A repeated field outside of a LIST is a required list of required elements.
        return Field(in_utf8(node.name), "+l", False, (field,), metadata=_field_id_of(node), repeated=True)
    return _type_of(node, parents, int96_unit, nullable=node.repetition is Repetition.OPTIONAL)


def _type_of(node: Node, parents: tuple[str, ...], int96_unit: str, *, nullable: bool = False) -> Field:
    """The field of a node whose repetition is not looked at."""
    path = (*parents, node.name)
    name, metadata = in_utf8(node.name), _field_id_of(node)
    if isinstance(node, Primitive):
        return Field(name, _format_of(node, int96_unit), nullable, metadata=metadata + _extension_of(node))
    if len(path) >= MAX_NESTING:  # what is below has one more
        raise UnsupportedError(f"column {path[0]!r} is nested more than {MAX_NESTING} levels deep")
    match shape_of(node):
        case ListShape(repeated, None):
            return Field(name, "+l", nullable, (_type_of(repeated, path, int96_unit),), metadata=metadata)
        case ListShape(_, element) if element is not None:
            return Field(name, "+l", nullable, (_field_of(element, path, int96_unit),), metadata=metadata)
        case MapShape(_, key, value):
            pair = (_field_of(key, path, int96_unit), _field_of(value, path, int96_unit))
            entries = Field("entries", "+s", False, pair)
            return Field(name, "+m", nullable, (entries,), metadata=metadata)
    if not node.children:
        column = ".".join(path)
        raise UnsupportedError(
            f"column {column!r}: a group without children has no values to read", where=Where(column=column)
        )
    children = tuple(_field_of(child, path, int96_unit) for child in node.children)
    return Field(name, "+s", nullable, children, metadata=metadata)


def _field_id_of(node: Node) -> tuple[tuple[bytes, bytes], ...]:
    return () if node.field_id is None or node.field_id < 0 else ((FIELD_ID_KEY, str(node.field_id).encode()),)


def _extension_of(node: Primitive) -> tuple[tuple[bytes, bytes], ...]:
    """The metadata that make a UUID Arrow's canonical extension type of it, as pyarrow does."""
    # JSON stays text: as an extension type Polars would no longer take it for that.
    fixed = node.physical_type is Type.FIXED_LEN_BYTE_ARRAY and node.type_length == 16
    if node.logical != logical.UUID or not fixed:
        return ()
    return ((EXTENSION_NAME_KEY, b"arrow.uuid"), (EXTENSION_METADATA_KEY, b""))


def physical_format(node: Primitive, int96_unit: str = "ns") -> str:
    """The Arrow format of a leaf by its physical type alone, as if it had no annotation."""
    match node.physical_type:
        case Type.FIXED_LEN_BYTE_ARRAY:
            return f"w:{node.type_length}" if node.type_length else "z"  # nanoarrow refuses a width of 0
        case Type.INT96:
            return f"ts{int96_unit[0]}:"
    return _UNANNOTATED[node.physical_type]


def _format_of(node: Primitive, int96_unit: str) -> str:
    """The Arrow format of a leaf; an annotation that does not belong to its physical type is passed over."""
    physical, annotation = node.physical_type, node.logical
    format = physical_format(node, int96_unit)
    match physical, annotation:
        case _, logical.UNKNOWN if node.repetition is Repetition.OPTIONAL:
            format = "n"
        case _, Decimal(precision, scale) if _holds_decimal(node, precision, scale):
            width = "" if precision <= 38 else ",256"
            format = f"d:{min(precision, _MOST_DIGITS)},{scale}{width}"
        case ((Type.INT32 | Type.INT64), Integer()):
            format = _INTEGERS.get((physical, annotation), format)
        case Type.INT32, logical.DATE:
            format = "tdD"
        case Type.INT32, Time(TimeUnit.MILLIS, _):
            format = "ttm"
        case Type.INT64, Time(TimeUnit.MICROS | TimeUnit.NANOS as unit, _):
            format = f"tt{_UNIT_LETTERS[unit]}"
        case Type.INT64, Timestamp(unit, utc):
            format = f"ts{_UNIT_LETTERS[unit]}:{'UTC' if utc else ''}"
        case Type.BYTE_ARRAY, logical.STRING | logical.ENUM | logical.JSON:
            format = "u"
        case Type.FIXED_LEN_BYTE_ARRAY, logical.FLOAT16 if node.type_length == 2:
            format = "e"
        case Type.FIXED_LEN_BYTE_ARRAY, logical.INTERVAL if node.type_length == INTERVAL_WIDTH:
            format = "tin"
    return format


def _holds_decimal(node: Primitive, precision: int, scale: int) -> bool:
    """Whether Arrow has a decimal for it: of at most 76 digits, none of them beyond the scale."""
    # Numbers of 77 digits may fit into 256 bits, as those of BigQuery's BIGNUMERIC do.
    if not 0 <= scale <= min(precision, _MOST_DIGITS):
        return False
    match node.physical_type:
        case Type.FIXED_LEN_BYTE_ARRAY if (node.type_length or 0) <= WIDEST:
            return precision >= 1
        case Type.BYTE_ARRAY:
            return 1 <= precision <= _MOST_DIGITS + 1
        case Type.INT32 | Type.INT64 | Type.FIXED_LEN_BYTE_ARRAY:
            return 1 <= precision <= _MOST_DIGITS
    return False
