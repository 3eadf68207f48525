"""Schemas as text: the papers' examples, what other tools print, back and forth, and errors that name the line."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_of_others import of_corpus
from hypothesis import given, settings
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.errors import ResilientPQError, SchemaError, UnsupportedError
from resilient_pq.format import compact_protocol, logical
from resilient_pq.format.annotations import GeographyType, LogicalType, TimeType
from resilient_pq.format.annotations import TimeUnitUnion as ThriftTimeUnit
from resilient_pq.format.file_metadata import ConvertedType, FileMetaData, Repetition, SchemaElement, Type
from resilient_pq.format.logical import Decimal, Integer, Logical, Plain, Time, Timestamp, TimeUnit, Uninterpreted
from resilient_pq.format.schema_tree import Group, Node, Primitive, Schema

REQUIRED, OPTIONAL, REPEATED = Repetition.REQUIRED, Repetition.OPTIONAL, Repetition.REPEATED

ADDRESS_BOOK = """\
message AddressBook {
  required binary owner (STRING);
  repeated binary ownerPhoneNumbers (STRING);
  repeated group contacts {
    required binary name (STRING);
    optional binary phoneNumber (STRING);
  }
}"""

DOCUMENT = """\
message Document {
  required int64 DocId;
  optional group Links {
    repeated int64 Backward;
    repeated int64 Forward;
  }
  repeated group Name {
    repeated group Language {
      required binary Code;
      optional binary Country;
    }
    optional binary Url;
  }
}"""


def levels(schema: Schema) -> dict[str, tuple[int, int]]:
    return {leaf.column_path: (leaf.max_repetition_level, leaf.max_definition_level) for leaf in schema.leaves}


def leaf(text: str) -> Primitive:
    """The one field of a schema."""
    (child,) = Schema.parse(f"message m {{ {text} }}").root.children
    assert isinstance(child, Primitive)
    return child


# --- examples -------------------------------------------------------------------------------------------


def test_the_address_book() -> None:
    schema = Schema.parse(ADDRESS_BOOK)
    assert levels(schema) == {
        "owner": (0, 0),
        "ownerPhoneNumbers": (1, 1),
        "contacts.name": (1, 1),
        "contacts.phoneNumber": (1, 2),
    }
    assert all(column.node.logical == logical.STRING for column in schema.leaves)
    assert str(schema) == ADDRESS_BOOK
    # As the article that it comes from wrote it.
    assert Schema.parse(ADDRESS_BOOK.replace(" (STRING)", "").replace("binary", "string")) == schema


def test_the_document_of_dremel() -> None:
    schema = Schema.parse(DOCUMENT)
    assert levels(schema) == {
        "DocId": (0, 0),
        "Links.Backward": (1, 2),
        "Links.Forward": (1, 2),
        "Name.Language.Code": (2, 2),
        "Name.Language.Country": (2, 3),
        "Name.Url": (1, 2),
    }
    assert str(schema) == DOCUMENT
    assert Schema.parse(" ".join(DOCUMENT.split())) == schema
    assert Schema.parse(DOCUMENT.replace(" ", "\t").replace("\n", "\r\n").upper()).names == [
        "DOCID",
        "LINKS",
        "NAME",
    ]


EVERYTHING = """\
message spark_schema {
  required boolean a = 1;
  optional int32 b (DATE) = 2;
  optional int32 c (INTEGER(8,false));
  optional int64 d (TIMESTAMP(NANOS,false));
  optional int32 e (TIME(MILLIS,true));
  optional int96 f;
  optional float g;
  optional double h;
  optional binary i (JSON);
  optional binary j (DECIMAL(40,10));
  optional fixed_len_byte_array(16) k (UUID);
  optional fixed_len_byte_array(12) l (INTERVAL) = -7;
  optional fixed_len_byte_array(0) m;
  optional binary n (GEOMETRY(srid:4326));
  optional binary o (GEOGRAPHY(OGC:CRS84,KARNEY));
  optional group p (LIST) {
    repeated group list {
      optional binary element (ENUM);
    }
  }
  required group q (MAP) = 9 {
    repeated group key_value {
      required binary key (STRING);
      optional int32 value (UNKNOWN);
    }
  }
  optional group r (VARIANT(1)) {
    required binary metadata;
    optional binary value;
  }
  optional group s (FILE) {
    optional binary uri (STRING);
  }
  optional group t {
  }
}"""


def test_everything_that_can_be_said() -> None:
    schema = Schema.parse(EVERYTHING)
    assert str(schema) == EVERYTHING
    nodes = {child.name: child for child in schema.root.children}
    assert nodes["c"] == Primitive("c", OPTIONAL, Type.INT32, None, Integer(8, False))
    assert nodes["d"] == Primitive("d", OPTIONAL, Type.INT64, None, Timestamp(TimeUnit.NANOS, False))
    assert nodes["e"] == Primitive("e", OPTIONAL, Type.INT32, None, Time(TimeUnit.MILLIS, True))
    assert nodes["j"] == Primitive("j", OPTIONAL, Type.BYTE_ARRAY, None, Decimal(40, 10))
    assert nodes["l"] == Primitive("l", OPTIONAL, Type.FIXED_LEN_BYTE_ARRAY, 12, logical.INTERVAL, -7)
    assert nodes["m"] == Primitive("m", OPTIONAL, Type.FIXED_LEN_BYTE_ARRAY, 0)
    assert nodes["o"].logical == Uninterpreted("GEOGRAPHY", ("OGC:CRS84", "KARNEY"))
    assert nodes["q"].field_id == 9 and nodes["q"].logical == logical.MAP
    assert nodes["r"].logical == Uninterpreted("VARIANT", ("1",))
    assert nodes["t"] == Group("t", OPTIONAL, ())


OLDER = {
    "binary c (UTF8)": logical.STRING,
    "binary c (utf8)": logical.STRING,
    "int32 c (TIME_MILLIS)": Time(TimeUnit.MILLIS, True),
    "int64 c (TIME_MICROS)": Time(TimeUnit.MICROS, True),
    "int64 c (TIMESTAMP_MILLIS)": Timestamp(TimeUnit.MILLIS, True),
    "int64 c (TIMESTAMP_MICROS)": Timestamp(TimeUnit.MICROS, True),
    "int32 c (UINT_8)": Integer(8, False),
    "int64 c (INT_64)": Integer(64, True),
    "int32 c (INT(16,true))": Integer(16, True),
    "int32 c (INTEGER(32))": Integer(32, True),
    "int32 c (DECIMAL(9))": Decimal(9, 0),
    "int32 c (DECIMAL(9, 2))": Decimal(9, 2),
    "fixed_len_byte_array ( 5 ) c (DECIMAL(11,2))": Decimal(11, 2),
    "byte_array c": None,
    "string c": logical.STRING,
    "string c (JSON)": logical.JSON,
}


@pytest.mark.parametrize("text", OLDER)
def test_older_and_shorter_ways(text: str) -> None:
    node = leaf(f"required {text};")
    assert node.name == "c"
    assert node.logical == OLDER[text]


def test_old_maps() -> None:
    old = "optional group c (MAP_KEY_VALUE) { repeated group map (MAP_KEY_VALUE) { required binary key; } }"
    (found,) = Schema.parse(f"message m {{ {old} }}").root.children
    assert found == Group(
        "c", OPTIONAL, (Group("map", REPEATED, (Primitive("key", REQUIRED, Type.BYTE_ARRAY),)),), logical.MAP
    )


def test_comments_and_names_that_are_words_of_the_language() -> None:
    schema = Schema.parse(
        """
        // A message, whose name is a word, too.
        message message {  // and has
          required int32 required;
          // optional int32 left_out;
          repeated group group { optional boolean optional; }   // end
        } // and behind it"""
    )
    assert schema.root.name == "message"
    assert list(levels(schema)) == ["required", "group.optional"]
    assert Schema.parse(str(schema)) == schema


def test_the_name_of_the_message_may_be_left_out() -> None:
    assert Schema.parse("message { required int32 a; }").root.name == "schema"
    assert Schema.parse("message m { }").leaves == ()
    assert str(Schema.parse("message{}")) == "message schema {\n}"


ODD = [
    "",
    " ",
    "a b",
    "a;b",
    '"',
    'say "yes"',
    "\\",
    "\n",
    "a\tb",
    "//",
    "// no comment",
    "{",
    "a=b",
    "\x00",
]
PLAIN_LOOKING = [
    "a.b",
    "a-b",
    "a:b",
    "1",
    "-1",
    "#CHROM",
    "naïve",
    "列",
    "a//b",
    "\\",
    "a\\b",
    "'",
    "$",
    "😀",
]


@pytest.mark.parametrize("name", [*ODD, *PLAIN_LOOKING])
def test_odd_names_stand_in_quotes_where_they_must(name: str) -> None:
    schema = Schema(Group(name, REQUIRED, (Primitive(name, OPTIONAL, Type.INT32),)))
    assert Schema.parse(str(schema)) == schema
    line = str(schema).splitlines()[1]
    assert (f" {name};" in line) == (name in PLAIN_LOOKING)


# --- back and forth -------------------------------------------------------------------------------------

names = st.one_of(st.sampled_from([*ODD, *PLAIN_LOOKING, "a", "list", "key_value"]), st.text(max_size=8))
repetitions = st.sampled_from([REQUIRED, OPTIONAL, REPEATED])
field_ids = st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))
units = st.sampled_from(TimeUnit)
crs = st.text(max_size=12)
algorithms = st.sampled_from(["SPHERICAL", "VINCENTY", "THOMAS", "ANDOYER", "KARNEY"])
SIMPLE: list[tuple[Type, int | None, Logical]] = [
    *((Type.BYTE_ARRAY, None, Plain(name)) for name in ("STRING", "ENUM", "JSON", "BSON", "UNKNOWN")),
    (Type.FIXED_LEN_BYTE_ARRAY, 16, logical.UUID),
    (Type.FIXED_LEN_BYTE_ARRAY, 2, logical.FLOAT16),
    (Type.FIXED_LEN_BYTE_ARRAY, 12, logical.INTERVAL),
    (Type.INT32, None, logical.DATE),
    *((Type.INT32, None, Integer(bits, signed)) for bits in (8, 16, 32) for signed in (True, False)),
    *((Type.INT64, None, Integer(64, signed)) for signed in (True, False)),
    (Type.BYTE_ARRAY, None, Uninterpreted("GEOMETRY")),
    (Type.BYTE_ARRAY, None, Uninterpreted("GEOGRAPHY")),
]


@st.composite
def primitives(draw: st.DrawFn) -> Primitive:
    kind: Any = draw(st.sampled_from(["bare", "simple", "decimal", "time", "timestamp", "geo"]))
    physical: Type
    length: int | None = None
    annotation: Logical | None = None
    if kind == "bare":
        physical = draw(st.sampled_from(Type))
        length = draw(st.integers(0, 2**31 - 1)) if physical is Type.FIXED_LEN_BYTE_ARRAY else None
    elif kind == "simple":
        physical, length, annotation = draw(st.sampled_from(SIMPLE))
    elif kind == "decimal":
        carriers = [(Type.INT32, None, 9), (Type.INT64, None, 18), (Type.BYTE_ARRAY, None, 500)]
        fixed = [(Type.FIXED_LEN_BYTE_ARRAY, size, len(str(2 ** (8 * size - 1) - 1)) - 1) for size in (1, 5, 16, 40)]
        physical, length, most = draw(st.sampled_from(carriers + fixed))
        precision = draw(st.integers(1, most))
        annotation = Decimal(precision, draw(st.integers(0, precision)))
    elif kind == "time":
        annotation = Time(draw(units), draw(st.booleans()))
        physical = Type.INT32 if annotation.unit is TimeUnit.MILLIS else Type.INT64
    elif kind == "timestamp":
        physical, annotation = Type.INT64, Timestamp(draw(units), draw(st.booleans()))
    else:
        physical = Type.BYTE_ARRAY
        parameters = draw(st.one_of(st.tuples(crs), st.tuples(crs, algorithms)))
        annotation = Uninterpreted(
            "GEOMETRY" if len(parameters) == 1 and draw(st.booleans()) else "GEOGRAPHY", parameters
        )
    return Primitive(draw(names), draw(repetitions), physical, length, annotation, draw(field_ids))


def groups(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Group]:
    said: list[Logical | None] = [
        None,
        logical.LIST,
        logical.MAP,
        Plain("FILE"),
        Uninterpreted("VARIANT"),
        Uninterpreted("VARIANT", ("-3",)),
    ]
    several = st.lists(children, max_size=4).map(tuple)
    return st.builds(Group, names, repetitions, several, st.sampled_from(said), field_ids)


nodes: st.SearchStrategy[Node] = st.recursive(primitives(), groups, max_leaves=12)
schemas = st.builds(
    lambda name, children: Schema(Group(name, REQUIRED, tuple(children))), names, st.lists(nodes, max_size=4)
)


@settings(deadline=None, max_examples=80)
@given(schema=schemas)
def test_every_schema_comes_back(schema: Schema) -> None:
    text = str(schema)
    parsed = Schema.parse(text)
    assert parsed == schema
    assert str(parsed) == text
    assert parsed.to_elements() == schema.to_elements()
    stored = compact_protocol.encode(FileMetaData(version=1, schema=schema.to_elements(), num_rows=0, row_groups=[]))
    footer, _ = compact_protocol.decode(FileMetaData, stored)
    again = Schema.from_elements(footer.schema)
    assert again == schema
    assert again.to_elements() == schema.to_elements()
    assert str(again) == text


@settings(deadline=None, max_examples=80)
@given(text=st.one_of(st.text(max_size=60), st.text('{}();=,"\\/ \nabm1-', max_size=60)), at=st.integers(0, 700))
def test_damaged_text_is_an_error_of_ours(text: str, at: int) -> None:
    for damaged in (text, EVERYTHING[:at] + text + EVERYTHING[at:], EVERYTHING[:at]):
        try:
            schema = Schema.parse(damaged)
        except SchemaError as error:
            found = str(error)
        else:
            assert Schema.parse(str(schema)) == schema
            continue
        assert found.startswith("schema text, line ")


def test_pyarrow_sees_what_we_say() -> None:
    # But for FILE, which it does not know yet, and nodes without a child or a byte, which it refuses.
    text = EVERYTHING.replace(" (FILE)", "").replace("optional group t {\n  }\n", "")
    text = text.replace("optional fixed_len_byte_array(0) m;\n", "")
    metadata = compact_protocol.encode(
        FileMetaData(version=1, schema=Schema.parse(text).to_elements(), num_rows=0, row_groups=[])
    )
    file = pq.ParquetFile(io.BytesIO(b"PAR1" + metadata + len(metadata).to_bytes(4, "little") + b"PAR1"))
    seen = {file.schema.column(i).path: str(file.schema.column(i).logical_type) for i in range(len(file.schema))}
    assert seen["b"] == "Date"
    assert seen["c"] == "Int(bitWidth=8, isSigned=false)"
    assert seen["j"] == "Decimal(precision=40, scale=10)"
    assert seen["k"] == "UUID"
    assert seen["l"] == "Interval"
    assert seen["n"] == "Geometry(crs=srid:4326)"
    assert seen["o"] == "Geography(crs=OGC:CRS84, algorithm=karney)"
    assert "optional group field_id=-1 r (Variant(1))" in str(file.schema)
    assert "optional group field_id=-1 p (List)" in str(file.schema)


# --- what is kept and not understood --------------------------------------------------------------------


def test_what_is_left_out_has_its_default() -> None:
    for annotation, text in [
        (LogicalType(GEOGRAPHY=GeographyType(None, 2)), "GEOGRAPHY(OGC:CRS84,THOMAS)"),
        (LogicalType(GEOGRAPHY=GeographyType("a", None)), "GEOGRAPHY(a)"),
        (LogicalType(GEOGRAPHY=GeographyType(None, None)), "GEOGRAPHY"),
        (LogicalType(GEOGRAPHY=GeographyType("a, b", 77)), 'GEOGRAPHY("a, b",77)'),
    ]:
        elements = [
            SchemaElement(name="m", num_children=1),
            SchemaElement(name="c", type=int(Type.BYTE_ARRAY), repetition_type=0, logicalType=annotation),
        ]
        schema = Schema.from_elements(elements)
        assert f"c ({text});" in str(schema)
        assert Schema.parse(str(schema)) == schema
        assert schema.to_elements() == elements  # as it was read, whatever is left out


def test_unknown_annotations_are_read_and_not_written() -> None:
    # An empty union is what is left of a member that is not known; Java readers stumble over one in a file.
    for unknown, text in [
        (LogicalType(), "UNKNOWN_ANNOTATION"),
        (LogicalType(TIMESTAMP=TimeType(True, ThriftTimeUnit())), "UNKNOWN_ANNOTATION(TIMESTAMP)"),
    ]:
        column = SchemaElement(name="c", type=int(Type.INT64), repetition_type=1, field_id=3, logicalType=unknown)
        schema = Schema.from_elements([SchemaElement(name="m", num_children=1), column])
        assert str(schema) == f"message m {{\n  optional int64 c ({text}) = 3;\n}}"
        assert Schema.parse(str(schema)).to_elements() == schema.to_elements()
        assert schema.to_elements()[1] == SchemaElement(name="c", type=2, repetition_type=1, field_id=3)


def test_what_a_file_says_beyond_the_annotations_is_kept() -> None:
    # Lengths and scales where they mean nothing, a converted type without a logical one, one that nobody knows.
    elements = [
        SchemaElement(name="m", num_children=3, repetition_type=0, field_id=-1),
        SchemaElement(name="a", type=1, type_length=4, repetition_type=0, num_children=0, converted_type=77),
        SchemaElement(name="b", type=6, repetition_type=1, converted_type=int(ConvertedType.UTF8), scale=0),
        SchemaElement(name="c", repetition_type=1, num_children=0),
    ]
    schema = Schema.from_elements(elements)
    assert schema.to_elements() == elements
    assert str(schema) == (
        "message m {\n  required int32 a;\n  optional binary b (STRING);\n  optional group c {\n  }\n}"
    )


@pytest.mark.parametrize(
    "name",
    [
        "parquet-testing/data/geospatial/crs-projjson.parquet",
        "parquet-testing/data/geospatial/crs-geography.parquet",
        "parquet-testing/data/nested_structs.rust.parquet",
        "parquet-testing/data/data_index_bloom_encoding_stats.parquet",
        "parquet-testing/shredded_variant/case-001.parquet",
    ],
)
def test_schemas_of_other_files(name: str) -> None:
    with sync.open(str(of_corpus(name))) as file:
        assert Schema.parse(str(file.schema)) == file.schema
        assert Schema.from_elements(Schema(file.schema.root).to_elements()) == file.schema


# --- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the text ends where 'message' is expected"),
        ("  // nothing\n\n", "line 1: the text ends where 'message' is expected"),
        ("massage m { }", "line 1: 'message' is expected, not 'massage'"),
        ("message", "line 1: the text ends where a name is expected"),
        ("message m\n\n", "line 1: the text ends where '{' is expected"),
        ("message m {", "line 1: the text ends where one of required, optional, repeated is expected"),
        ("message m {\n}\n}", "line 3: the message is at its end, but '}' follows"),
        (
            "message m {\n  int32 a;\n}",
            "line 2: one of required, optional, repeated is expected, not 'int32'",
        ),
        ("message m {\n\n  required integer a;\n}", "line 3: one of group, boolean, int32, int64,"),
        ("message m {\n  required int32 a\n}", "line 3: ';' is expected, not '}'"),
        ("message m {\n  required group a\n;\n}", "line 3: '{' is expected, not ';'"),
        ("message m {\n  required int32 a\n  (STRING);\n}", "line 3: STRING cannot be said of int32"),
    ],
)
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.parse(text)
    assert caught.value.message.startswith(f"schema text, {message}")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("int32;", "a name is expected, not ';'"),
        ("int32 a b;", "';' is expected, not 'b'"),
        ('int32 "a;', "a name in quotes does not end"),
        ('int32 "a\\q";', '"a\\q" is no JSON string'),
        ("fixed_len_byte_array a;", "'(' is expected, not 'a'"),
        ("fixed_len_byte_array(x) a;", "a number of 32 bits is expected, not 'x'"),
        ("fixed_len_byte_array(-1) a;", "a number of 32 bits is expected, not '-1'"),
        ("int32 a = 2147483648;", "a number of 32 bits is expected, not '2147483648'"),
        ("int32 a = \u0661;", "a number of 32 bits is expected, not '\u0661'"),
        ("int32 a = " + "9" * 5000 + ";", "a number of 32 bits is expected, not '999"),
        ("int32 a (DECIMAL(" + "9" * 5000 + "));", "there is no annotation DECIMAL(999"),
        ("int32 a = ;", "a number of 32 bits is expected, not ';'"),
        ("binary a ();", "a name is expected, not ')'"),
        ("binary a (STRING;", "')' is expected, not ';'"),
        ("int32 a (DECIMAL());", "a name is expected, not ')'"),
        ("binary a (STRNG);", "there is no annotation STRNG"),
        ("int64 a (TIMESTAMP);", "there is no annotation TIMESTAMP: it is TIMESTAMP(unit,utc)"),
        ("int64 a (TIME(HOURS,true));", "there is no annotation TIME(HOURS,true): it is TIME(unit,utc)"),
        ("int64 a (TIME(NANOS,maybe));", "there is no annotation TIME(NANOS,maybe): it is TIME(unit,utc)"),
        ("int32 a (DECIMAL);", "there is no annotation DECIMAL: it is DECIMAL(precision,scale)"),
        (
            "int32 a (DECIMAL(1,2,3));",
            "there is no annotation DECIMAL(1,2,3): it is DECIMAL(precision,scale)",
        ),
        ("int32 a (DATE(1));", "there is no annotation DATE(1)"),
        ("group a (VARIANT(128)) { }", "there is no annotation VARIANT(128): it is VARIANT(version)"),
        ("binary a (GEOGRAPHY(x,FLAT));", "there is no annotation GEOGRAPHY(x,FLAT)"),
        ("binary a (GEOMETRY(x,y));", "there is no annotation GEOMETRY(x,y): it is GEOMETRY(crs)"),
        ("fixed_len_byte_array(3) a (UUID);", "UUID cannot be said of fixed_len_byte_array(3)"),
        ("group a (DATE) { }", "DATE cannot be said of a group"),
        ("int32 a (LIST);", "LIST cannot be said of int32"),
    ],
)
def test_errors_say_what_is_wrong(field: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.parse(f"message m {{\n  required {field}\n}}")
    assert caught.value.message.startswith(f"schema text, line 2: {message}")


@pytest.mark.parametrize(
    ("annotation", "physical", "length"),
    [
        (Decimal(10, 0), Type.INT32, None),
        (Decimal(19, 0), Type.INT64, None),
        (Decimal(3, 0), Type.FIXED_LEN_BYTE_ARRAY, 1),
        (Decimal(39, 0), Type.FIXED_LEN_BYTE_ARRAY, 16),
        (Decimal(1, 0), Type.FIXED_LEN_BYTE_ARRAY, 0),
        (Decimal(0, 0), Type.INT32, None),
        (Decimal(3, 4), Type.INT32, None),
        (Decimal(3, -1), Type.INT32, None),
        (Decimal(3, 0), Type.DOUBLE, None),
        (Decimal(3, 0), None, None),
        (Integer(64, True), Type.INT32, None),
        (Integer(32, True), Type.INT64, None),
        (Integer(7, True), Type.INT32, None),
        (Time(TimeUnit.MILLIS, True), Type.INT64, None),
        (Time(TimeUnit.MICROS, True), Type.INT32, None),
        (Timestamp(TimeUnit.MILLIS, True), Type.INT32, None),
        (Timestamp(TimeUnit.MILLIS, True), Type.INT96, None),
        (logical.FLOAT16, Type.FLOAT, None),
        (logical.STRING, Type.FIXED_LEN_BYTE_ARRAY, 5),
        (logical.MAP, Type.BYTE_ARRAY, None),
        (Uninterpreted("VARIANT"), Type.BYTE_ARRAY, None),
        (Uninterpreted("GEOMETRY"), None, None),
    ],
)
def test_annotations_stand_where_they_may(annotation: Logical, physical: Type | None, length: int | None) -> None:
    assert not logical.may_annotate(annotation, physical, length)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 9, 16, 17, 100])
def test_decimals_take_what_surely_fits(size: int) -> None:
    most = len(str(2 ** (8 * size - 1) - 1)) - 1
    for precision in (most, most + 1):
        fits = logical.may_annotate(Decimal(precision, 0), Type.FIXED_LEN_BYTE_ARRAY, size)
        assert fits == (precision == most)


@pytest.mark.parametrize(("physical", "most"), [(Type.INT32, 9), (Type.INT64, 18)])
def test_decimals_take_what_surely_fits_an_integer(physical: Type, most: int) -> None:
    assert logical.may_annotate(Decimal(most, 0), physical)
    assert not logical.may_annotate(Decimal(most + 1, 0), physical)


def test_schemas_that_are_too_deep() -> None:
    def deep(levels: int, word: str) -> str:
        return "message m {" + f" {word} group g {{" * levels + " required int32 a;" + " }" * (levels + 1)

    assert Schema.parse(deep(255, "optional")).leaves[0].max_definition_level == 255
    assert Schema.parse(str(Schema.parse(deep(300, "required")))).leaves[0].max_definition_level == 0
    for text in (deep(256, "repeated"), deep(600, "required"), deep(10_000, "required")):
        with pytest.raises(UnsupportedError, match="nested more than"):
            Schema.parse(text)
    with pytest.raises(ResilientPQError):
        Schema.parse("message m " + "{" * 10_000)


def test_schemas_from_arrow_and_back() -> None:
    arrow = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("at", pa.date32()),
        ]
    )
    schema = rpq.schema_from_arrow(arrow)
    assert schema == Schema.parse(
        "message schema { required int64 id; optional group tags (LIST) { repeated group list "
        "{ optional binary element (STRING); } } optional int32 at (DATE); }"
    )
    assert Schema.parse(str(schema)) == schema
    assert pa.schema(rpq.schema_to_arrow(schema)).equals(arrow)
