"""An Arrow type as a plain value: what an `ArrowSchema` of the C data interface says, with its format string."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import nanoarrow
from nanoarrow._schema import CSchema

from resilient_pq.arrow.handed_over import taking
from resilient_pq.errors import SchemaError
from resilient_pq.format import kernels
from resilient_pq.lazy_dataclass import dataclass

#: Fields nested deeper than this are refused: with four calls for a level, Python's own limit is near. pyarrow takes
#: 63 levels from another library, and reads about 90 of a file.
MAX_NESTING: Final = 150

EXTENSION_NAME_KEY: Final = b"ARROW:extension:name"  # Where the C data interface keeps the name of an extension type
EXTENSION_METADATA_KEY: Final = b"ARROW:extension:metadata"
_EXTENSION_KEYS = (EXTENSION_NAME_KEY, EXTENSION_METADATA_KEY)

_ORDERED, _NULLABLE, _KEYS_SORTED = 1, 2, 4
_BLANK = nanoarrow.c_schema(nanoarrow.null())
PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # How many of each unit are a second
_UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns"}
_NAMES = {
    "n": "null",
    "b": "bool",
    "c": "int8",
    "C": "uint8",
    "s": "int16",
    "S": "uint16",
    "i": "int32",
    "I": "uint32",
    "l": "int64",
    "L": "uint64",
    "e": "float16",
    "f": "float",
    "g": "double",
    "z": "binary",
    "Z": "large_binary",
    "vz": "binary_view",
    "u": "string",
    "U": "large_string",
    "vu": "string_view",
    "tdD": "date32[day]",
    "tdm": "date64[ms]",
    "tiM": "month_interval",
    "tiD": "day_time_interval",
    "tin": "month_day_nano_interval",
    "+l": "list",
    "+L": "large_list",
    "+vl": "list_view",
    "+vL": "large_list_view",
    "+s": "struct",
    "+m": "map",
    "+r": "run_end_encoded",
    "+us": "sparse_union",
    "+ud": "dense_union",
}


class _Kept:
    """What is made of a field once: neither compared nor pickled, as the dataclass has it not."""

    __slots__ = ("_c", "_ingest")
    _c: Any  # `shared_c`
    _ingest: Any  # `Ingest.from_schema`


@dataclass(frozen=True, slots=True)
class Field(_Kept):
    """A named Arrow type."""

    name: str  # name within its parent; may be empty, and need not be unique
    format: str  # the type as the C data interface spells it; that of the indices where there is a dictionary
    nullable: bool = True  # whether slots may be null
    children: tuple[Field, ...] = ()  # the fields of a struct, the element of a list, the entries of a map
    dictionary: Field | None = None  # the values of a dictionary type, else None
    metadata: tuple[tuple[bytes, bytes], ...] = ()  # key-value metadata in order
    keys_sorted: bool = False  # whether the keys of a map are sorted
    ordered: bool = False  # whether the order of a dictionary's values means something
    #: Whether it is a list for being a repeated field of a Parquet schema, outside of any LIST: where a record
    #: leaves it out it occurs no times. Nothing that Arrow knows.
    repeated: bool = dataclasses.field(default=False, compare=False)
    #: The format without its parameters: ``ts`` of ``tsu:UTC``, ``tD`` of ``tDs``, ``d`` of ``d:9,2``.
    kind: str = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Find the kind, which is asked for several times for every array that is made."""
        object.__setattr__(self, "kind", "dictionary" if self.dictionary is not None else _kind(self.format))

    @classmethod
    def of(cls, arrow: object) -> Field:
        """The field that anything with ``__arrow_c_schema__`` describes; a `Field` is itself."""
        if isinstance(arrow, Field):
            return arrow
        if not hasattr(arrow, "__arrow_c_schema__"):
            raise SchemaError(
                f"an object of type {type(arrow).__name__} is no Arrow schema",
                hint="pass something with __arrow_c_schema__, such as pyarrow.schema([...])",
            )
        with taking("a schema", arrow):
            schema = nanoarrow.c_schema(arrow)
        return _KNOWN.field(schema)

    def to_c(self) -> Any:
        """The same as a nanoarrow `CSchema` of the caller's own."""
        flags = (_NULLABLE if self.nullable else 0) | (_KEYS_SORTED if self.keys_sorted else 0)
        flags |= _ORDERED if self.ordered else 0
        return _BLANK.modify(
            name=in_utf8(self.name),
            format=self.format,
            flags=flags,
            children=[shared_c(child) for child in self.children],
            dictionary=None if self.dictionary is None else shared_c(self.dictionary),
            metadata=dict(self.metadata) if self.metadata else None,
        )

    @property
    def parameter(self) -> str:
        """What stands behind the colon of the format: a zone, a width, precision and scale."""
        return self.format.partition(":")[2]

    @property
    def unit(self) -> str:
        """The unit of a time, a timestamp or a duration: ``s``, ``ms``, ``us`` or ``ns``."""
        return _UNITS[self.format[2]]

    @property
    def width(self) -> int:
        """The width of a fixed-size binary in bytes, or the length of a fixed-size list."""
        return int(self.parameter)

    @property
    def decimal(self) -> tuple[int, int, int]:
        """Precision, scale and width in bits of a decimal."""
        precision, scale, *bits = (int(part) for part in self.parameter.split(","))
        return precision, scale, bits[0] if bits else 128

    def with_children(self, *children: Field) -> Field:
        """The same field over other children."""
        return replace(self, children=children)

    @property
    def extension(self) -> bytes:
        """The name of the extension type that this is the storage of; empty where it is none."""
        return dict(self.metadata).get(EXTENSION_NAME_KEY, b"")

    def without_extension(self) -> Field:
        """The storage alone."""
        return replace(self, metadata=tuple(pair for pair in self.metadata if pair[0] not in _EXTENSION_KEYS))

    def __str__(self) -> str:
        """The type as pyarrow prints it, for messages."""
        return _type_name(self)


def in_utf8(name: str) -> str:
    """A name as C can carry it: Parquet names that are not UTF-8 come with surrogates."""
    return name if name.isascii() else name.encode("utf-8", "replace").decode("utf-8")


def renamed(field: Field, names: Sequence[str]) -> list[Field]:
    """Fields that differ from one in nothing but their names."""
    names = [in_utf8(name) for name in names]
    if kernels.instances is None:
        return [replace(field, name=name) for name in names]
    values: dict[str, Any] = {slot: getattr(field, slot) for slot in Field.__slots__} | {"name": names}
    if not (field.children or field.dictionary or field.metadata):
        schemas = kernels.LeafSchemas(names, field.format, field.nullable)
        values["_c"] = [CSchema(schemas, schemas.address + i * schemas.size) for i in range(len(names))]
    made: list[Field] = kernels.instances(Field, len(names), values)
    return made


def _kind(format: str) -> str:
    head = format.partition(":")[0]
    return head[:2] if head[:2] in ("ts", "tt", "tD", "ti") else head


#: The plain form of each kind of view, and the other way round.
PLAIN_FORMATS = {"vu": "u", "vz": "z", "+vl": "+l", "+vL": "+L"}
_VIEW_FORMATS = {"u": "vu", "U": "vu", "z": "vz", "Z": "vz"}


def plain_format(field: Field) -> str:
    """The format without views, and with decimals of 128 bits at least, which every Arrow library knows."""
    if field.kind == "d" and field.decimal[2] < 128:
        return f"d:{field.decimal[0]},{field.decimal[1]}"
    return PLAIN_FORMATS.get(field.kind, field.format)


def normalise(field: Field) -> Field:
    """The plain type with the same values, to which all of its forms fit; extension types keep their names."""
    format = plain_format(field)
    children = tuple(normalise(child) for child in field.children)
    if field.dictionary is not None:
        values = normalise(field.dictionary)
        format, children = values.format, values.children
    if format == field.format and field.dictionary is None and children == field.children and not field.ordered:
        return field
    metadata = field.without_extension().metadata
    return replace(field, format=format, children=children, dictionary=None, ordered=False, metadata=metadata)


def with_views(field: Field) -> Field:
    """The same type, but for its strings and binaries, at any depth: they are views."""
    children = tuple(with_views(child) for child in field.children)
    return replace(field, format=_VIEW_FORMATS.get(field.kind, field.format), children=children)


def with_wide_indices(field: Field) -> Field:
    """The type in a stream, which cannot change: a row group may have more values than narrow indices tell apart."""
    children = tuple(map(with_wide_indices, field.children))
    narrow = field.dictionary is not None and field.format in "cCsS"
    return replace(field, format="i" if narrow else field.format, children=children)


def without_string_views(field: Field) -> Field:
    """The same type, but for its views of strings and binaries, at any depth: they are plain."""
    children = tuple(map(without_string_views, field.children))
    format = PLAIN_FORMATS.get(field.kind, field.format) if field.kind in ("vu", "vz") else field.format
    return replace(field, format=format, children=children)


def shared_c(field: Field) -> Any:
    """The same as a nanoarrow `CSchema`, which equal fields share as a rule, and which may not be moved."""
    try:
        return field._c
    except AttributeError:
        object.__setattr__(field, "_c", _c_of_equal(field))
        return field._c


@lru_cache(maxsize=4096)
def _c_of_equal(field: Field) -> Any:
    return field.to_c()


@lru_cache(maxsize=32)
def shared(field: Field) -> Field:
    """The field, or an equal one of which more is known already."""
    return field


class _KnownFields:
    """The fields of the schemas that came last: files are written by one schema again and again."""

    def __init__(self) -> None:
        self._fields: dict[bytes, Field] = {}
        self._lock = threading.Lock()

    def field(self, schema: Any) -> Field:
        """The field of a nanoarrow `CSchema`."""
        key = None if kernels.schema_key is None else kernels.schema_key(schema._addr(), MAX_NESTING)
        found = self._fields.get(key) if key is not None else None
        if found is None:
            found = _from_c(schema, depth=0)
            if key is not None:
                self._keep(key, found)
        return found

    def _keep(self, key: bytes, field: Field) -> None:
        with self._lock:
            while self._fields and sum(map(len, self._fields)) + len(key) > _MOST_KNOWN:
                del self._fields[next(iter(self._fields))]
            self._fields[key] = field


_MOST_KNOWN: Final = 256 * 1024  # Bytes of the keys of schemas that are kept, at most, unless one alone has more
_KNOWN: Final = _KnownFields()


def _from_c(schema: Any, depth: int) -> Field:
    if depth > MAX_NESTING:
        raise SchemaError(f"the Arrow schema is nested more than {MAX_NESTING} levels deep")
    metadata = schema.metadata
    return Field(
        name=schema.name or "",
        format=schema.format,
        nullable=bool(schema.flags & _NULLABLE),
        children=tuple(_from_c(child, depth + 1) for child in schema.children),
        dictionary=None if schema.dictionary is None else _from_c(schema.dictionary, depth + 1),
        metadata=() if metadata is None else tuple(metadata.items()),
        keys_sorted=bool(schema.flags & _KEYS_SORTED),
        ordered=schema.dictionary is not None and bool(schema.flags & _ORDERED),
    )


def _type_name(field: Field) -> str:
    name = _NAMES.get(field.format, field.format)
    match field.kind:
        case "dictionary":
            return f"dictionary<values={field.dictionary}, indices={name}{', ordered' if field.ordered else ''}>"
        case "ts":
            name = f"timestamp[{field.unit}{f', tz={field.parameter}' if field.parameter else ''}]"
        case "tt":
            name = f"time{32 if field.unit in ('s', 'ms') else 64}[{field.unit}]"
        case "tD":
            name = f"duration[{field.unit}]"
        case "d":
            precision, scale, bits = field.decimal
            name = f"decimal{bits}({precision}, {scale})"
        case "w":
            name = f"fixed_size_binary[{field.width}]"
        case "+w":
            name = f"fixed_size_list<{_children_names(field)}>[{field.width}]"
        case "+m":
            name = "map<" + ", ".join(str(child) for child in field.children[0].children) + ">"
        case kind if field.children:
            name = f"{_NAMES.get(kind, kind)}<{_children_names(field)}>"
    return name


def _children_names(field: Field) -> str:
    return ", ".join(f"{child.name}: {child}{'' if child.nullable else ' not null'}" for child in field.children)
