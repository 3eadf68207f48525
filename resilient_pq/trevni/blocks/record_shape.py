"""What records look like: which nodes of a Parquet schema the columns of a Trevni file are.

Whatever tells it (`avro_schema`, `column_names` or `dremel`), it ends in a `Layout`: the schema, and for each of its
leaves where values and levels come from.

=====================  ==========================================================================================
Trevni                 Parquet
=====================  ==========================================================================================
array column           group (LIST) of a repeated group ``list`` of ``element``
Avro's map             group (MAP) of a repeated group ``key_value`` of ``key`` and ``value``
union with null alone  the branch, optional
other unions           group of the branches, each optional, by their names: one of them is there, or none for null
record without fields  group of a column ``empty``, which is always null
null                   INT32 (UNKNOWN), always null
fixed8, fixed16        INT32 (INTEGER) of as many bits
int, fixed32           INT32
long, fixed64          INT64
timestamp              INT96
string, bytes          BYTE_ARRAY, the former with STRING
=====================  ==========================================================================================
"""

from __future__ import annotations

from typing import Final, NamedTuple

from resilient_pq.errors import UnsupportedError
from resilient_pq.format import logical
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.logical import Integer, Logical
from resilient_pq.format.schema_tree import MAX_LEVEL, Group, Node, Primitive, Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.trevni.blocks.trevni_metadata import ValueType

#: Shapes nested deeper than this are refused; each level of Arrow takes two of Parquet's.
MAX_DEPTH: Final = 64


class LeafType(NamedTuple):
    """The type of a leaf: physical, its length, and what it means."""

    physical: Type
    length: int | None = None
    logical: Logical | None = None


#: The leaf of each type of values, where nothing else says more of it.
LEAF_TYPES: Final[dict[ValueType, LeafType]] = {
    ValueType.NULL: LeafType(Type.INT32, None, logical.UNKNOWN),
    ValueType.BOOLEAN: LeafType(Type.BOOLEAN),
    ValueType.INT: LeafType(Type.INT32),
    ValueType.LONG: LeafType(Type.INT64),
    ValueType.FIXED8: LeafType(Type.INT32, None, Integer(8, True)),
    ValueType.FIXED16: LeafType(Type.INT32, None, Integer(16, True)),
    ValueType.FIXED32: LeafType(Type.INT32),
    ValueType.FIXED64: LeafType(Type.INT64),
    ValueType.FLOAT: LeafType(Type.FLOAT),
    ValueType.DOUBLE: LeafType(Type.DOUBLE),
    ValueType.TIMESTAMP: LeafType(Type.INT96),
    ValueType.STRING: LeafType(Type.BYTE_ARRAY, None, logical.STRING),
    ValueType.BYTES: LeafType(Type.BYTE_ARRAY),
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """Values of a column, or None where all are null; ints stand for symbols where there are some."""

    column: int | None
    type: LeafType
    symbols: tuple[bytes, ...] = ()
    is_null: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """Named values, which need no column of their own."""

    fields: tuple[tuple[str, Shape], ...]


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of values, by the lengths of a column."""

    lengths: int
    element: Shape


@dataclass(frozen=True, slots=True)
class Map:
    """Any number of keys with their values, by the lengths of a column."""

    lengths: int
    key: Scalar
    value: Shape


@dataclass(frozen=True, slots=True)
class Maybe:
    """A branch of a union: there or not, by the lengths of a column, which are 1 or 0."""

    lengths: int
    value: Shape


Shape = Scalar | Record | Array | Map | Maybe

NULL: Final = Scalar(None, LEAF_TYPES[ValueType.NULL], is_null=True)


@dataclass(frozen=True, slots=True)
class Step:
    """An optional or repeated node on the way to a leaf; the lengths are those of a column."""

    lengths: int
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class LeafSource:
    """The source of a leaf: a column, None if it is always null, and the steps to it."""

    column: int | None
    steps: tuple[Step, ...] = ()
    symbols: tuple[bytes, ...] = ()
    is_null: bool = False

    @property
    def columns(self) -> tuple[int, ...]:
        """Every column that it needs, each after those whose elements it lies in."""
        own = () if self.column is None else (self.column,)
        return tuple(dict.fromkeys((*(step.lengths for step in self.steps), *own)))


@dataclass(frozen=True, slots=True)
class Layout:
    """The schema of the records of a file, and the source of each of its leaves."""

    schema: Schema
    sources: tuple[LeafSource, ...]


def layout_of(record: Record) -> Layout:
    """The schema of records, and where its leaves come from."""
    builder = _Builder()
    schema = Schema(Group("schema", Repetition.REQUIRED, builder.children(record, (), 0)))
    if any(leaf.max_definition_level > MAX_LEVEL for leaf in schema.leaves):
        raise UnsupportedError(f"the records are nested more than {MAX_LEVEL} levels deep")
    return Layout(schema, tuple(builder.sources))


class _Builder:
    """Makes nodes of shapes, and notes the sources of their leaves."""

    def __init__(self) -> None:
        self.sources: list[LeafSource] = []

    def children(self, record: Record, steps: tuple[Step, ...], depth: int) -> tuple[Node, ...]:
        """The nodes of the fields of a record."""
        fields = record.fields or (("empty", NULL),)
        return tuple(self.node(shape, name, steps, depth) for name, shape in fields)

    def node(
        self,
        shape: Shape,
        name: str,
        steps: tuple[Step, ...],
        depth: int,
        repetition: Repetition = Repetition.REQUIRED,
    ) -> Node:
        """The node of a shape."""
        if depth > MAX_DEPTH:
            raise UnsupportedError(f"the records are nested more than {MAX_DEPTH} levels deep")
        match shape:
            case Scalar():
                return self._leaf(shape, name, steps, repetition)
            case Record():
                return Group(name, repetition, self.children(shape, steps, depth + 1))
            case Array(lengths, element):
                below = (*steps, Step(lengths, True))
                child = self.node(element, "element", below, depth + 1)
                return Group(name, repetition, (Group("list", Repetition.REPEATED, (child,)),), logical.LIST)
            case Map(lengths, key, value):
                below = (*steps, Step(lengths, True))
                pair = (self.node(key, "key", below, depth + 1), self.node(value, "value", below, depth + 1))
                return Group(name, repetition, (Group("key_value", Repetition.REPEATED, pair),), logical.MAP)
            case Maybe(lengths, value):
                below = (*steps, Step(lengths, False))
                return self.node(value, name, below, depth + 1, Repetition.OPTIONAL)

    def _leaf(self, scalar: Scalar, name: str, steps: tuple[Step, ...], repetition: Repetition) -> Primitive:
        if scalar.is_null:
            if repetition is Repetition.OPTIONAL:
                steps = steps[:-1]  # there or not, it is null
            repetition = Repetition.OPTIONAL
        self.sources.append(LeafSource(scalar.column, steps, scalar.symbols, scalar.is_null))
        return Primitive(name, repetition, *scalar.type)
