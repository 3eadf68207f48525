"""Arrow types to Parquet and back, pyarrow's writer and reader being the witnesses."""

from __future__ import annotations

import base64
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.arrow.types.arrow_schema import (
    ColumnFields,
    arrow_field_of,
    arrow_schema_of,
    decimal_width,
    encode_arrow_schema,
    schema_from_arrow,
)
from resilient_pq.arrow.types.field import Field
from resilient_pq.errors import SchemaError, UnsupportedError
from resilient_pq.format import logical
from resilient_pq.format.compact_protocol import encode
from resilient_pq.format.file_metadata import FileMetaData, Repetition, Type
from resilient_pq.format.logical import Decimal, Integer, Logical, Time, Timestamp, TimeUnit, Uninterpreted
from resilient_pq.format.schema_tree import Group, Node, Primitive, Schema

REQUIRED, OPTIONAL, REPEATED = Repetition.REQUIRED, Repetition.OPTIONAL, Repetition.REPEATED

FLAT = [
    pa.null(),
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()),
    pa.binary(7),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Tokyo")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.decimal128(precision, 2) for precision in (2, 9, 10, 18, 19, 38)),
    *(pa.decimal32(9, 0), pa.decimal64(18, 18), pa.decimal256(30, 5), pa.decimal256(76, 76)),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint64(), pa.int16()),
    *(pa.uuid(), pa.json_()),
]
NESTED = [
    pa.list_(pa.int8()),
    pa.large_list(pa.field("anything", pa.string(), nullable=False)),
    pa.list_(pa.float32(), 3),
    pa.map_(pa.string(), pa.int64()),
    pa.map_(pa.int32(), pa.list_(pa.string())),
    pa.list_view(pa.int8()),
    pa.map_(pa.string(), pa.list_view(pa.string_view())),
    pa.list_(pa.dictionary(pa.int8(), pa.string_view(), ordered=True)),
    pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.list_(pa.struct({"c": pa.bool_()})))]),
]

#: What types are when they are read back without their forms, where they are not themselves.
PLAIN = {
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.decimal32(9, 0): pa.decimal128(9, 0),
    pa.decimal64(18, 18): pa.decimal128(18, 18),
    pa.dictionary(pa.int8(), pa.string()): pa.string(),
    pa.dictionary(pa.uint64(), pa.int16()): pa.int16(),
    pa.list_view(pa.int8()): pa.list_(pa.int8()),
    pa.map_(pa.string(), pa.list_view(pa.string_view())): pa.map_(pa.string(), pa.list_(pa.string())),
    pa.list_(pa.dictionary(pa.int8(), pa.string_view(), ordered=True)): pa.list_(pa.string()),
}

#: Types that pyarrow does not give back as they were written, but we do.
RESTORED_BY_US_ALONE = {
    pa.time32("s"),
    pa.date64(),
    *(pa.timestamp("s", zone) for zone in (None, "UTC", "Asia/Tokyo")),
    pa.dictionary(pa.uint64(), pa.int16()),
    pa.list_(pa.dictionary(pa.int8(), pa.string_view(), ordered=True)),
}


def file_of(schema: Schema, key_value: Any = None) -> pq.ParquetFile:
    """An empty file with our schema, as pyarrow sees it."""
    metadata = encode(FileMetaData(version=2, schema=schema.to_elements(), num_rows=0, row_groups=[]))
    tail = len(metadata).to_bytes(4, "little") + b"PAR1"
    return pq.ParquetFile(io.BytesIO(b"PAR1" + metadata + tail))


def theirs(schema: pa.Schema) -> pq.ParquetFile:
    sink = io.BytesIO()
    pq.write_metadata(schema, sink)
    return pq.ParquetFile(io.BytesIO(sink.getvalue()))


def read_back(schema: Schema, **key_value: str | None) -> pa.Schema:
    return pa.schema(arrow_schema_of(schema, key_value))


def leaf(
    name: str,
    physical: Type,
    annotation: Logical | None = None,
    *,
    length: int | None = None,
    repetition: Repetition = OPTIONAL,
) -> Primitive:
    return Primitive(name, repetition, physical, length, annotation)


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("kind", [*FLAT, *NESTED], ids=str)
def test_the_parquet_schema_is_that_of_pyarrow(kind: pa.DataType, nullable: bool) -> None:
    # pyarrow writes a null type that is not nullable as required, though all its values are null.
    nullable = nullable or kind == pa.null()
    schema = pa.schema([pa.field("column", kind, nullable)])
    ours = file_of(schema_from_arrow(schema)).schema
    assert ours.equals(theirs(schema).schema), f"{ours}\n{theirs(schema).schema}"


@pytest.mark.parametrize("kind", [*FLAT, *NESTED], ids=str)
def test_types_come_back_through_the_stored_schema(kind: pa.DataType) -> None:
    schema = pa.schema([pa.field("column", kind, metadata={"k": "v"})])
    found = read_back(schema_from_arrow(schema), **{"ARROW:schema": encode_arrow_schema(schema)})
    assert found.field(0).equals(schema.field(0), check_metadata=True)
    key_value = {"ARROW:schema": encode_arrow_schema(schema)}
    plain = ColumnFields(schema_from_arrow(schema), key_value, restore_types=False).struct().to_c()
    assert pa.schema(plain).field(0).type == PLAIN.get(kind, kind)


@pytest.mark.parametrize("kind", [*FLAT, *NESTED], ids=str)
def test_types_without_a_stored_schema_are_those_of_pyarrow(kind: pa.DataType) -> None:
    schema = schema_from_arrow(pa.schema([pa.field("column", kind)]))
    expected = file_of(schema).schema_arrow
    # pyarrow makes an extension type of JSON, too, which Polars does not take for text.
    if expected.field(0).type == pa.json_():
        expected = expected.set(0, expected.field(0).with_type(pa.string()))
    # Its maps name their entries after the column; ours call them "entries", as Arrow does.
    assert read_back(schema).equals(expected)


@pytest.mark.parametrize("kind", [*FLAT, *NESTED], ids=str)
def test_pyarrow_reads_our_stored_schema(kind: pa.DataType) -> None:
    schema = pa.schema([pa.field("column", kind, metadata={"k": "v"})], metadata={"pandas": "index"})
    found = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encode_arrow_schema(schema))))
    expected = kind if pa.types.is_dictionary(kind) else PLAIN.get(kind, kind)
    assert found.field(0).type == expected
    assert found.field(0).metadata[b"k"] == b"v"
    assert found.metadata == {b"pandas": b"index"}  # where pyarrow looks for the index of a DataFrame


@pytest.mark.parametrize("kind", [*FLAT, *NESTED], ids=str)
def test_we_read_the_stored_schema_of_pyarrow(kind: pa.DataType) -> None:
    file = theirs(pa.schema([pa.field("column", kind)]))
    stored = file.metadata.metadata[b"ARROW:schema"].decode()
    schema = schema_from_arrow(pa.schema([pa.field("column", kind)]))
    found = read_back(schema, **{"ARROW:schema": stored}).field(0).type
    assert found == kind
    if kind not in RESTORED_BY_US_ALONE:
        assert found == file.schema_arrow.field(0).type


def test_list_views_in_the_stored_schema_of_pyarrow() -> None:
    kinds = pa.schema({"small": pa.list_view(pa.int8()), "large": pa.large_list_view(pa.duration("s"))})
    file = theirs(kinds)
    stored = file.metadata.metadata[b"ARROW:schema"].decode()
    assert read_back(schema_from_arrow(kinds), **{"ARROW:schema": stored}) == kinds


@pytest.mark.parametrize(
    "kind",
    [
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.sparse_union([pa.field("a", pa.int8())]),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.struct([]),
        pa.binary(0),
        pa.decimal128(5, -2),
        pa.dictionary(pa.int8(), pa.struct({"a": pa.int8()})),
    ],
    ids=str,
)
def test_types_that_cannot_be_written(kind: pa.DataType) -> None:
    schema = pa.schema([pa.field("outer", pa.struct([pa.field("inner", kind)]))])
    with pytest.raises(UnsupportedError, match=r"column 'outer.inner'.* cannot be written") as caught:
        schema_from_arrow(schema)
    assert caught.value.where.column == "outer.inner"


@pytest.mark.parametrize("key", [pa.null(), pa.dictionary(pa.int8(), pa.null())], ids=str)
def test_maps_whose_keys_could_only_be_null_are_refused(key: pa.DataType) -> None:
    nothing = pa.array([], pa.int32())
    made = pa.MapArray.from_arrays(pa.array([0], pa.int32()), pa.array([], pa.null()).cast(key), nothing)
    with pytest.raises(SchemaError, match="column 'm': the keys of a map are never null"):
        schema_from_arrow(pa.schema({"m": made.type}))


def test_what_is_no_schema_of_a_table() -> None:
    with pytest.raises(SchemaError, match="the schema of a table is a struct, not int32"):
        schema_from_arrow(pa.int32())
    with pytest.raises(SchemaError, match="an object of type int is no Arrow schema"):
        schema_from_arrow(7)


def test_names_may_repeat_or_be_empty() -> None:
    schema = pa.schema([pa.field("", pa.int8()), pa.field("a", pa.int8()), pa.field("a", pa.string())])
    parquet = schema_from_arrow(schema)
    assert parquet.names == ["", "a", "a"]
    assert parquet.root.name == "schema"
    stored = {"ARROW:schema": encode_arrow_schema(schema)}
    assert read_back(parquet, **stored).equals(schema)


def test_field_ids_go_both_ways() -> None:
    ids = [b"0", b"2147483647", b"2147483648", b"-1", b"x", b"99999999999"]
    schema = pa.schema(
        [pa.field(f"c{at}", pa.int8(), metadata={b"PARQUET:field_id": value}) for at, value in enumerate(ids)]
    )
    parquet = schema_from_arrow(schema)
    assert [child.field_id for child in parquet.root.children] == [0, 2**31 - 1, None, None, None, None]
    found = read_back(parquet)
    assert [found.field(at).metadata for at in (0, 2)] == [{b"PARQUET:field_id": b"0"}, None]


def test_metadata_of_the_file_becomes_that_of_the_schema() -> None:
    schema = schema_from_arrow(pa.schema({"a": pa.int8()}))
    found = read_back(schema, pandas="{}", empty=None, **{"rpq.state": "complete", "ARROW:schema": None})
    assert found.metadata == {b"pandas": b"{}"}


def test_columns_can_be_chosen() -> None:
    kinds = pa.schema({"a": pa.int8(), "b": pa.large_string(), "c": pa.date64()})
    schema = schema_from_arrow(kinds)
    found = pa.schema(ColumnFields(schema, {"ARROW:schema": encode_arrow_schema(kinds)}).struct([2, 1]).to_c())
    assert found == pa.schema({"c": pa.date64(), "b": pa.large_string()})


# --- stored schemas that are wrong ----------------------------------------------------------------------------


def test_a_stored_schema_that_does_not_match_is_passed_over_column_by_column() -> None:
    written = pa.schema(
        {
            "changed": pa.int32(),
            "kept": pa.large_string(),
            "zone": pa.timestamp("us", "UTC"),
            "naive": pa.timestamp("us"),
            "list": pa.list_(pa.string()),
            "struct": pa.struct({"a": pa.int8()}),
            "map": pa.map_(pa.string(), pa.int8()),
            "decimal": pa.decimal128(5, 2),
        }
    )
    lying = pa.schema(
        {
            "changed": pa.string(),
            "kept": pa.large_string(),
            "zone": pa.timestamp("ns", "Asia/Tokyo"),
            "naive": pa.timestamp("us", "UTC"),
            "list": pa.list_(pa.int8()),
            "struct": pa.struct({"b": pa.int8()}),
            "map": pa.map_(pa.string(), pa.float32()),
            "decimal": pa.decimal128(6, 2),
        }
    )
    found = read_back(schema_from_arrow(written), **{"ARROW:schema": encode_arrow_schema(lying)})
    expected = {field.name: field.type for field in written}
    # The file's own unit holds, with the writer's zone.
    expected["zone"] = pa.timestamp("us", "Asia/Tokyo")
    assert {field.name: field.type for field in found} == expected


def test_stored_columns_are_found_by_name_when_others_were_dropped() -> None:
    stored = encode_arrow_schema(
        pa.schema([("gone", pa.int8()), ("b", pa.large_string()), ("twice", pa.date64()), ("twice", pa.date64())])
    )
    schema = schema_from_arrow(pa.schema([("b", pa.string()), ("twice", pa.date32())]))
    found = read_back(schema, **{"ARROW:schema": stored})
    # Which of two columns of one name is meant nobody can tell.
    assert found == pa.schema([("b", pa.large_string()), ("twice", pa.date32())])


STORED = base64.b64decode(encode_arrow_schema(pa.schema({"a": pa.large_string(), "b": pa.list_(pa.int8(), 3)})))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not base64!",
        "QUJD",
        "é",
        base64.b64encode(STORED[:-9]).decode(),
        base64.b64encode(STORED[8:]).decode(),
    ],
)
def test_a_damaged_stored_schema_is_passed_over(text: str) -> None:
    schema = schema_from_arrow(pa.schema({"a": pa.string()}))
    assert read_back(schema, **{"ARROW:schema": text}) == pa.schema({"a": pa.string()})


@given(st.integers(0, len(STORED) - 1), st.integers(1, 255))
@settings(deadline=None, max_examples=200)
def test_a_flipped_byte_of_the_stored_schema_never_breaks_the_reading(at: int, flip: int) -> None:
    changed = bytearray(STORED)
    changed[at] ^= flip
    schema = schema_from_arrow(pa.schema({"a": pa.string(), "b": pa.list_(pa.int8())}))
    found = Field.of(arrow_schema_of(schema, {"ARROW:schema": base64.b64encode(changed).decode()}))
    assert [child.name for child in found.children] == ["a", "b"]
    assert found.children[0].kind in ("u", "U", "vu", "dictionary")
    assert found.children[1].kind in ("+l", "+L", "+w", "+vl", "+vL")


# --- schemas of other writers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (leaf("c", Type.INT32, Decimal(9, 2)), pa.decimal128(9, 2)),
        (leaf("c", Type.INT64, Decimal(18, 0)), pa.decimal128(18, 0)),
        (leaf("c", Type.BYTE_ARRAY, Decimal(38, 38)), pa.decimal128(38, 38)),
        (leaf("c", Type.FIXED_LEN_BYTE_ARRAY, Decimal(39, 1), length=17), pa.decimal256(39, 1)),
        (leaf("c", Type.FIXED_LEN_BYTE_ARRAY, Decimal(77, 1), length=40), pa.binary(40)),
        (leaf("c", Type.INT32, Decimal(0, 0)), pa.int32()),
        (leaf("c", Type.INT32, Decimal(5, 6)), pa.int32()),
        (leaf("c", Type.DOUBLE, Decimal(5, 2)), pa.float64()),
        (leaf("c", Type.BYTE_ARRAY, logical.ENUM), pa.string()),
        (leaf("c", Type.BYTE_ARRAY, logical.JSON), pa.string()),
        (leaf("c", Type.BYTE_ARRAY, logical.BSON), pa.binary()),
        (leaf("c", Type.BYTE_ARRAY, Uninterpreted("GEOMETRY")), pa.binary()),
        (leaf("c", Type.INT32, logical.STRING), pa.int32()),
        (leaf("c", Type.FIXED_LEN_BYTE_ARRAY, logical.UUID, length=16), pa.uuid()),
        (leaf("c", Type.FIXED_LEN_BYTE_ARRAY, logical.INTERVAL, length=12), pa.month_day_nano_interval()),
        (leaf("c", Type.FIXED_LEN_BYTE_ARRAY, logical.FLOAT16, length=2), pa.float16()),
        (leaf("c", Type.FIXED_LEN_BYTE_ARRAY, logical.FLOAT16, length=3), pa.binary(3)),
        (leaf("c", Type.INT96), pa.timestamp("ns")),
        (leaf("c", Type.INT64, Timestamp(TimeUnit.NANOS, True)), pa.timestamp("ns", "UTC")),
        (leaf("c", Type.INT32, Timestamp(TimeUnit.MILLIS, True)), pa.int32()),
        (leaf("c", Type.INT32, Time(TimeUnit.MILLIS, True)), pa.time32("ms")),
        (leaf("c", Type.INT64, Time(TimeUnit.NANOS, False)), pa.time64("ns")),
        (leaf("c", Type.INT64, Time(TimeUnit.MILLIS, False)), pa.int64()),
        (leaf("c", Type.INT32, Integer(32, True)), pa.int32()),
        (leaf("c", Type.INT64, Integer(8, True)), pa.int64()),
        (leaf("c", Type.BOOLEAN, logical.UNKNOWN), pa.null()),
        (leaf("c", Type.INT64, logical.DATE), pa.int64()),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else f"{value.physical_type.name} {value.logical}",
)
def test_annotations_of_other_writers(node: Primitive, expected: pa.DataType) -> None:
    assert pa.field(arrow_field_of(node).to_c()).type == expected


def test_unknown_on_a_required_column_says_nothing() -> None:
    assert str(arrow_field_of(leaf("c", Type.INT32, logical.UNKNOWN, repetition=REQUIRED))) == "int32"


INT = leaf("x", Type.INT32, repetition=REQUIRED)
TEXT = leaf("str", Type.BYTE_ARRAY, logical.STRING, repetition=REQUIRED)


def list_group(repeated: Node, *, name: str = "my_list", annotation: Logical = logical.LIST) -> Group:
    return Group(name, OPTIONAL, (repeated,), annotation)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        # The examples of LogicalTypes.md, "Nested Types", in their order.
        pytest.param(
            list_group(Group("list", REPEATED, (leaf("element", Type.BYTE_ARRAY, logical.STRING),))),
            "list<element: string>",
            id="three levels",
        ),
        pytest.param(
            list_group(leaf("element", Type.INT32, repetition=REPEATED)),
            "list<element: int32 not null>",
            id="rule 1: a repeated primitive",
        ),
        pytest.param(
            list_group(Group("element", REPEATED, (TEXT, leaf("num", Type.INT32, repetition=REQUIRED)))),
            "list<element: struct<str: string not null, num: int32 not null> not null>",
            id="rule 2: several fields",
        ),
        pytest.param(
            list_group(Group("element", REPEATED, (leaf("inner", Type.INT32, repetition=REPEATED),))),
            "list<element: struct<inner: list<inner: int32 not null> not null> not null>",
            id="rule 3: one repeated field",
        ),
        pytest.param(
            list_group(Group("array", REPEATED, (TEXT,))),
            "list<array: struct<str: string not null> not null>",
            id="rule 4: named array",
        ),
        pytest.param(
            list_group(Group("my_list_tuple", REPEATED, (TEXT,))),
            "list<my_list_tuple: struct<str: string not null> not null>",
            id="rule 4: named after the list",
        ),
        pytest.param(
            list_group(Group("element", REPEATED, (TEXT,))),
            "list<str: string not null>",
            id="rule 5: the only child",
        ),
        pytest.param(
            list_group(Group("array", REPEATED, (leaf("array", Type.INT32, repetition=REPEATED),), logical.LIST)),
            "list<array: list<array: int32 not null> not null>",
            id="two levels in two levels",
        ),
        pytest.param(
            Group("g", OPTIONAL, (INT,), logical.LIST),
            "struct<x: int32 not null>",
            id="a LIST that repeats nothing",
        ),
        pytest.param(
            list_group(Group("map", REPEATED, (TEXT, leaf("num", Type.INT32)), logical.MAP), annotation=logical.MAP),
            "map<string, int32>",
            id="MAP_KEY_VALUE inside",
        ),
        pytest.param(
            list_group(Group("key_value", REPEATED, (TEXT,)), annotation=logical.MAP),
            "list<str: string not null>",
            id="a map without values",
        ),
        pytest.param(
            list_group(
                Group("key_value", REPEATED, (leaf("key", Type.INT32), leaf("value", Type.INT32))),
                annotation=logical.MAP,
            ),
            "list<key_value: struct<key: int32, value: int32> not null>",
            id="a map whose keys may be null",
        ),
        pytest.param(
            Group("g", REPEATED, (leaf("y", Type.INT32, repetition=REPEATED),)),
            "list<g: struct<y: list<y: int32 not null> not null> not null>",
            id="repeated without annotation",
        ),
        pytest.param(
            Group("g", REPEATED, (Group("list", REPEATED, (leaf("element", Type.INT32),)),), logical.LIST),
            "list<g: list<element: int32> not null>",
            id="a repeated LIST",
        ),
        pytest.param(
            Group("g", OPTIONAL, (INT,), logical.UNKNOWN),
            "struct<x: int32 not null>",
            id="UNKNOWN on a group",
        ),
    ],
)
def test_groups_of_other_writers(node: Group, expected: str) -> None:
    assert str(arrow_field_of(node)) == expected


def test_groups_that_hold_nothing() -> None:
    schema = Schema(Group("root", REQUIRED, (INT, Group("g", OPTIONAL, (Group("e", OPTIONAL, ()),)))))
    with pytest.raises(UnsupportedError, match=r"column 'g.e': a group without children"):
        arrow_schema_of(schema, {})
    assert pa.schema(ColumnFields(schema, {}).struct([0]).to_c()).names == ["x"]


def test_groups_nested_too_deeply() -> None:
    node: Node = INT
    for _ in range(200):
        node = Group("g", OPTIONAL, (node,))
    with pytest.raises(UnsupportedError, match="nested more than 150 levels deep"):
        arrow_field_of(node)


def test_types_nested_too_deeply() -> None:
    kind = pa.int8()
    for _ in range(160):
        kind = pa.struct({"a": kind})
    with pytest.raises(SchemaError, match="nested more than 150 levels deep"):
        schema_from_arrow(pa.schema({"a": kind}))


def test_names_that_are_not_utf8() -> None:
    name = b"\xff".decode("utf-8", "surrogateescape")
    found = arrow_schema_of(Schema(Group("root", REQUIRED, (leaf(name, Type.INT32),))), {"k": name})
    assert Field.of(found).children[0].name == "?"


@pytest.mark.parametrize("precision", range(1, 77))
def test_decimals_take_the_fewest_bytes(precision: int) -> None:
    width = decimal_width(precision)
    largest = 10**precision - 1
    assert -(2 ** (8 * width - 1)) <= -largest
    assert largest < 2 ** (8 * width - 1)
    assert largest >= 2 ** (8 * (width - 1) - 1)
