"""The schema tree: built from the footer's list, its levels, its text, and lists that are no tree."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import FormatError, ResilientPQError, SchemaError, UnsupportedError
from resilient_pq.format import compact_protocol, logical
from resilient_pq.format.file_metadata import FileMetaData, Repetition, SchemaElement, Type
from resilient_pq.format.schema_tree import MAX_LEVEL, Group, Node, Primitive, Schema

REQUIRED, OPTIONAL, REPEATED = Repetition.REQUIRED, Repetition.OPTIONAL, Repetition.REPEATED


def _leaf(name: str, repetition: Repetition = REQUIRED, **rest: object) -> SchemaElement:
    return SchemaElement(**{"type": 1, "name": name, "repetition_type": int(repetition), **rest})  # type: ignore[arg-type]


def _group(name: str, children: int, repetition: Repetition | None = REQUIRED) -> SchemaElement:
    repetition_type = None if repetition is None else int(repetition)
    return SchemaElement(name=name, num_children=children, repetition_type=repetition_type)


#: The example of the Dremel paper, as parquet-format's README has it.
DOCUMENT = [
    _group("Document", 3, None),
    _leaf("DocId"),
    _group("Links", 2, OPTIONAL),
    _leaf("Backward", REPEATED),
    _leaf("Forward", REPEATED),
    _group("Name", 2, REPEATED),
    _group("Language", 2, REPEATED),
    _leaf("Code"),
    _leaf("Country", OPTIONAL),
    _leaf("Url", OPTIONAL),
]


def test_levels_of_the_dremel_paper() -> None:
    leaves = Schema.from_elements(DOCUMENT).leaves
    found = [(leaf.column_path, leaf.max_repetition_level, leaf.max_definition_level) for leaf in leaves]
    assert found == [
        ("DocId", 0, 0),
        ("Links.Backward", 1, 2),
        ("Links.Forward", 1, 2),
        ("Name.Language.Code", 2, 2),
        ("Name.Language.Country", 2, 3),
        ("Name.Url", 1, 2),
    ]
    assert [leaf.ordinal for leaf in leaves] == list(range(6))
    assert [leaf.slot_definition_level for leaf in leaves] == [0, 2, 2, 2, 2, 1]


def test_levels_agree_with_pyarrow() -> None:
    kind = pa.list_(pa.struct({"m": pa.map_(pa.string(), pa.list_(pa.int8())), "x": pa.float32()}))
    fields = [pa.field("a", kind), pa.field("b", pa.int64(), nullable=False), pa.field("c", pa.string())]
    out = io.BytesIO()
    pq.write_table(pa.table({f.name: pa.array([], f.type) for f in fields}, schema=pa.schema(fields)), out)
    data = out.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    ours = Schema.from_elements(compact_protocol.decode(FileMetaData, data[-8 - length : -8])[0].schema)
    theirs = pq.ParquetFile(io.BytesIO(data)).schema
    assert len(ours.leaves) == len(theirs)
    for leaf in ours.leaves:
        column = theirs.column(leaf.ordinal)
        assert leaf.column_path == column.path
        assert leaf.max_definition_level == column.max_definition_level
        assert leaf.max_repetition_level == column.max_repetition_level
        assert leaf.node.physical_type.name == column.physical_type


def test_elements_that_were_read_are_given_back_as_they_were() -> None:
    elements = [
        _group("root", 1, None),
        SchemaElement(type=6, name="c", repetition_type=1, converted_type=77, field_id=-1, precision=3),
    ]
    assert Schema.from_elements(elements).to_elements() == elements


def test_a_schema_of_nodes_becomes_elements_and_comes_back() -> None:
    inner = Group("list", REPEATED, (Primitive("element", OPTIONAL, Type.INT64),))
    root = Group("schema", REQUIRED, (
        Primitive("a", REQUIRED, Type.FIXED_LEN_BYTE_ARRAY, 16, logical.UUID, field_id=7),
        Group("b", OPTIONAL, (inner,), logical.LIST),
        Primitive("c", OPTIONAL, Type.BYTE_ARRAY, None, logical.STRING),
    ))  # fmt: skip
    elements = Schema(root).to_elements()
    assert [element.name for element in elements] == ["schema", "a", "b", "list", "element", "c"]
    assert elements[0].repetition_type is None and elements[0].num_children == 3
    assert (elements[1].type_length, elements[1].field_id) == (16, 7)
    assert Schema.from_elements(elements).root == root


def test_text_is_that_of_other_parquet_tools() -> None:
    root = Group("schema", REQUIRED, (
        Primitive("id", REQUIRED, Type.INT64, field_id=1),
        Primitive("price", OPTIONAL, Type.FIXED_LEN_BYTE_ARRAY, 5, logical.Decimal(9, 2)),
        Group("tags", OPTIONAL, (
            Group("list", REPEATED, (Primitive("element", OPTIONAL, Type.BYTE_ARRAY, None, logical.STRING),)),
        ), logical.LIST),
    ))  # fmt: skip
    assert str(Schema(root)) == (
        "message schema {\n"
        "  required int64 id = 1;\n"
        "  optional fixed_len_byte_array(5) price (DECIMAL(9,2));\n"
        "  optional group tags (LIST) {\n"
        "    repeated group list {\n"
        "      optional binary element (STRING);\n"
        "    }\n"
        "  }\n"
        "}"
    )


def positions(schema: Schema, columns: list[str] | None) -> list[int]:
    return [selected.position for selected in schema.select(columns)]


def test_columns_are_selected_by_name() -> None:
    names = ["a", "b", "a", "c"]
    schema = Schema(Group("schema", REQUIRED, tuple(Primitive(name, REQUIRED, Type.INT32) for name in names)))
    assert positions(schema, None) == [0, 1, 2, 3]
    assert positions(schema, ["c", "b"]) == [3, 1]
    assert positions(schema, ["a"]) == [0, 2]
    assert positions(schema, ["b", "b", "a", "b"]) == [1, 0, 2]
    assert positions(schema, []) == []
    with pytest.raises(SchemaError, match="there is no column 'A'") as caught:
        schema.select(["b", "A"])
    assert caught.value.hint == "columns: a, b, a, c"


def test_fields_inside_of_columns_are_selected_by_path() -> None:
    schema = Schema.from_elements(DOCUMENT)

    def leaves(*columns: str) -> list[list[str]]:
        return [[leaf.column_path for leaf in selected.leaves] for selected in schema.select(columns)]

    assert leaves("Name.Language.Country") == [["Name.Language.Country"]]
    assert leaves("Name.Language") == [["Name.Language.Code", "Name.Language.Country"]]
    assert leaves("Name.Url", "DocId", "Name.Language.Code") == [["Name.Language.Code", "Name.Url"], ["DocId"]]
    assert leaves("Name.Url", "Name", "Name.Url") == [["Name.Language.Code", "Name.Language.Country", "Name.Url"]]
    for name in ("Name.Lang", "Name.", ".Name", "Name.Language.Country.x", "Nam", "", "DocId."):
        with pytest.raises(SchemaError, match="there is no column"):
            schema.select([name])
    with pytest.raises(SchemaError) as caught:
        schema.select(["Links.Backwards"])
    assert caught.value.hint == "columns: Links.Backward, Links.Forward"
    with pytest.raises(SchemaError, match="1 is no name of a column"):
        schema.select([1])  # type: ignore[list-item]


def test_a_name_with_dots_is_a_column_before_it_is_a_path() -> None:
    inner = Group("a", REQUIRED, (Primitive("b", REQUIRED, Type.INT32),))
    schema = Schema(Group("schema", REQUIRED, (inner, Primitive("a.b", REQUIRED, Type.INT32))))
    assert positions(schema, ["a.b"]) == [1] and positions(schema, ["a"]) == [0]


def test_leaves_of_top_level_columns() -> None:
    schema = Schema.from_elements(DOCUMENT)
    assert schema.names == ["DocId", "Links", "Name"]
    paths = [[leaf.column_path for leaf in column.leaves] for column in schema.columns]
    assert paths[0] == ["DocId"] and paths[1] == ["Links.Backward", "Links.Forward"] and len(paths[2]) == 3


@pytest.mark.parametrize("children", [None, 0])
def test_old_writers_say_that_a_leaf_has_no_children(children: int | None) -> None:
    elements = [_group("root", 2, None), _leaf("a", num_children=children), _leaf("b")]
    assert [leaf.column_path for leaf in Schema.from_elements(elements).leaves] == ["a", "b"]


# --- lists that are no tree ---------------------------------------------------------------------------------


BROKEN: dict[str, tuple[Sequence[SchemaElement], str]] = {
    "nothing": ([], "no elements"),
    "too few children": ([_group("root", 3), _leaf("a")], "more children than there are elements"),
    "too many elements": ([_group("root", 1), _leaf("a"), _leaf("b")], "its tree ends after 2"),
    "a leaf as root": ([_leaf("root")], "root is not a group"),
    "two billion children": ([_group("root", 2**31 - 1), _leaf("a")], "more children than there are elements"),
    "an unknown physical type": ([_group("root", 1), _leaf("a", type=8)], "'a': unknown physical type 8"),
    "a negative physical type": ([_group("root", 1), _leaf("a", type=-1)], "unknown physical type -1"),
    "an unknown repetition": ([_group("root", 1), _leaf("a", repetition_type=3)], "'a': unknown repetition 3"),
    "fixed without a length": ([_group("root", 1), _leaf("a", type=7)], "'a': FIXED_LEN_BYTE_ARRAY without a length"),
    "fixed of negative length": ([_group("root", 1), _leaf("a", type=7, type_length=-1)], "without a length"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_lists_that_are_no_tree(name: str) -> None:
    elements, message = BROKEN[name]
    with pytest.raises(FormatError, match=message):
        Schema.from_elements(elements)


def test_a_negative_number_of_children_is_none() -> None:
    elements = [_group("root", 2), _group("empty", -5), _leaf("a")]
    schema = Schema.from_elements(elements)
    assert [leaf.column_path for leaf in schema.leaves] == ["a"]


@pytest.mark.parametrize("depth", [MAX_LEVEL + 1, 5_000])
def test_nesting_without_end_is_refused(depth: int) -> None:
    elements = [_group("root", 1), *(_group("g", 1, OPTIONAL) for _ in range(depth)), _leaf("a")]
    with pytest.raises(UnsupportedError, match="levels deep"):
        Schema.from_elements(elements)


def test_nesting_up_to_the_limit_is_read() -> None:
    elements = [_group("root", 1), *(_group("g", 1, OPTIONAL) for _ in range(MAX_LEVEL)), _leaf("a")]
    (leaf,) = Schema.from_elements(elements).leaves
    assert leaf.max_definition_level == MAX_LEVEL


_ELEMENTS = st.builds(
    SchemaElement,
    type=st.none() | st.integers(-1, 9),
    type_length=st.none() | st.integers(-1, 20),
    repetition_type=st.none() | st.integers(-1, 3),
    name=st.text(max_size=3),
    num_children=st.none() | st.integers(-2, 4),
    converted_type=st.none() | st.integers(-1, 23),
    precision=st.none() | st.integers(-1, 80),
    scale=st.none() | st.integers(-1, 80),
)


@given(st.lists(_ELEMENTS, max_size=8))
@settings(max_examples=200, deadline=None)
def test_any_list_is_a_tree_or_one_of_our_errors(elements: list[SchemaElement]) -> None:
    try:
        schema = Schema.from_elements(elements)
    except ResilientPQError:
        return
    assert schema.to_elements() == elements
    assert str(schema).count("\n") >= len(elements) - 1
    for leaf in schema.leaves:
        assert 0 <= leaf.max_repetition_level <= leaf.max_definition_level <= len(leaf.path)


def _nodes() -> st.SearchStrategy[Node]:
    names = st.text(min_size=1, max_size=4)
    repetitions = st.sampled_from(list(Repetition))
    annotations = st.sampled_from([None, logical.STRING, logical.Decimal(5, 2), logical.Integer(8, False)])
    leaves = st.builds(
        Primitive, names, repetitions, st.sampled_from([Type.INT32, Type.BYTE_ARRAY]), st.none(), annotations,
        st.none() | st.integers(0, 9),
    )  # fmt: skip
    return st.recursive(
        leaves,
        lambda inner: st.builds(
            Group, names, repetitions, st.lists(inner, min_size=1, max_size=3).map(tuple), st.none()
        ),
        max_leaves=8,
    )


@given(st.lists(_nodes(), max_size=4))
@settings(max_examples=100, deadline=None)
def test_any_tree_survives_its_list(children: list[Node]) -> None:
    schema = Schema(Group("schema", REQUIRED, tuple(children)))
    again = Schema.from_elements(schema.to_elements())
    assert again.root == schema.root and again.leaves == schema.leaves and str(again) == str(schema)


# --- one schema for files that have the same ------------------------------------------------------------------------


def _as_read(elements: Sequence[SchemaElement]) -> Sequence[SchemaElement]:
    """The elements as they come out of a footer: in bytes of their own each time."""
    footer = FileMetaData(version=2, schema=list(elements), num_rows=0, row_groups=[])
    return compact_protocol.decode(FileMetaData, compact_protocol.encode(footer))[0].schema


def test_files_with_the_same_schema_share_it() -> None:
    elements = [_group("schema", 2), _leaf("a"), _leaf("b", OPTIONAL)]
    first = Schema.from_elements(_as_read(elements))
    assert Schema.from_elements(_as_read(elements)) is first
    assert first.to_elements() == elements
    other = Schema.from_elements(_as_read([_group("schema", 2), _leaf("a"), _leaf("b", REPEATED)]))
    assert other != first and other.leaves[1].max_repetition_level == 1


def test_elements_that_somebody_has_changed_are_read_as_they_are() -> None:
    read = _as_read([_group("schema", 1), _leaf("a")])
    read[1].name = "b"
    assert Schema.from_elements(read).names == ["b"]
    assert Schema.from_elements(_as_read([_group("schema", 1), _leaf("a")])).names == ["a"]


def test_of_the_schemas_read_only_some_are_kept() -> None:
    named = [[_group("schema", 1), _leaf(f"column {i}")] for i in range(30)]
    schemas = [Schema.from_elements(_as_read(elements)) for elements in named]
    assert [schema.names for schema in schemas] == [[f"column {i}"] for i in range(30)]
    assert Schema.from_elements(_as_read(named[-1])) is schemas[-1]
    assert Schema.from_elements(_as_read(named[0])) is not schemas[0]
    large = [_group("schema", 1), _leaf("x" * 100_000)]
    first = Schema.from_elements(_as_read(large))
    assert first == Schema.from_elements(_as_read(large)) and Schema.from_elements(_as_read(large)) is not first
