"""What `Ingest` gives the encoder: exact levels and values, no copies where none are needed, errors that say where."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.arrow.batch_ingest import Batch, Ingest
from resilient_pq.arrow.types.arrow_schema import schema_from_arrow
from resilient_pq.errors import SchemaError, UnsupportedError
from resilient_pq.format.physical_values import ByteArrays, LeafData, check_values


def only_batch(data: object, schema: pa.Schema | None = None) -> tuple[Ingest, Batch]:
    if schema is None:
        ingest, data = Ingest.infer(data)
    else:
        ingest = Ingest.from_schema(schema)
    (batch,) = ingest.batches(data)
    for leaf, values in zip(ingest.schema.leaves, batch.leaves, strict=True):
        check_values(leaf, values)
    return ingest, batch


def plain(leaf: LeafData) -> list[Any]:
    if isinstance(leaf.values, ByteArrays):
        return [leaf.values.value(at) for at in range(len(leaf.values))]
    return leaf.values.tolist()


def levels(leaf: LeafData) -> tuple[list[int] | None, list[int] | None]:
    both = leaf.repetition_levels, leaf.definition_levels
    return both[0] if both[0] is None else both[0].tolist(), both[1] if both[1] is None else both[1].tolist()


# --- exact output ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([-1, 127], pa.int8()), [-1, 127]),
        (pa.array([255], pa.uint8()), [255]),
        (pa.array([65535], pa.uint16()), [65535]),
        (pa.array([2**32 - 1], pa.uint32()), [-1]),
        (pa.array([2**64 - 1], pa.uint64()), [-1]),
        (pa.array([np.float16(1.5)], pa.float16()), [[0x00, 0x3E]]),
        (pa.array([True, False]), [True, False]),
        (pa.array(["a", "é"]), [b"a", "é".encode()]),
        (pa.array([b"ab"], pa.binary(2)), [list(b"ab")]),
        (pa.array([dt.date(1969, 12, 31)]), [-1]),
        (pa.array([dt.date(1969, 12, 31)], pa.date64()), [-1]),
        (pa.array([dt.time(0, 0, 1)], pa.time32("s")), [1000]),
        (pa.array([dt.datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("s")), [1000]),
        (pa.array([-1], pa.duration("ns")), [-1]),
        (
            pa.array([decimal.Decimal("-0.01"), decimal.Decimal("2.55")], pa.decimal128(3, 2)),
            [[255, 255], [0, 255]],
        ),
        (pa.array([decimal.Decimal("-0.01")], pa.decimal256(3, 2)), [[255, 255]]),
        (pa.array([decimal.Decimal("1")], pa.decimal32(2, 0)), [[1]]),
        (pa.nulls(1), []),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_physical_values(array: pa.Array, expected: list[Any]) -> None:
    _, batch = only_batch(pa.table({"c": array}))
    assert plain(batch.leaves[0]) == expected


def test_nulls_take_a_level_and_no_value() -> None:
    _, batch = only_batch(pa.table({"n": [1, None, 3], "s": ["a", None, None]}))
    assert [levels(leaf) for leaf in batch.leaves] == [(None, [1, 0, 1]), (None, [1, 0, 0])]
    assert [plain(leaf) for leaf in batch.leaves] == [[1, 3], [b"a"]]
    assert batch.num_rows == 3
    # Levels, then values with those of nulls; of strings offsets, bytes and the bitmap.
    assert batch.num_bytes == sum([3 + 3 * 8, 3 + 4 * 4 + 1 + 1])


def test_required_columns_have_no_levels() -> None:
    schema = pa.schema([pa.field("n", pa.int32(), nullable=False)])
    _, batch = only_batch(pa.table({"n": pa.array([1, 2], pa.int32())}), schema)
    assert levels(batch.leaves[0]) == (None, None)


def test_address_book() -> None:
    """The records of "Dremel made simple with Parquet", in today's list layout."""
    person = pa.struct([pa.field("name", pa.string(), nullable=False), ("phoneNumber", pa.string())])
    schema = pa.schema(
        [
            pa.field("owner", pa.string(), nullable=False),
            pa.field("ownerPhoneNumbers", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
            pa.field("contacts", pa.list_(pa.field("item", person, nullable=False)), nullable=False),
        ]
    )
    records = [
        {
            "owner": "Julien Le Dem",
            "ownerPhoneNumbers": ["555 123 4567", "555 666 1337"],
            "contacts": [
                {"name": "Dmitriy Ryaboy", "phoneNumber": "555 987 6543"},
                {"name": "Chris Aniszczyk", "phoneNumber": None},
            ],
        },
        {"owner": "A. Nonymous", "ownerPhoneNumbers": [], "contacts": []},
    ]
    ingest, batch = only_batch(pa.Table.from_pylist(records, schema))
    assert {leaf.column_path: levels(data) for leaf, data in zip(ingest.schema.leaves, batch.leaves, strict=True)} == {
        "owner": (None, None),
        "ownerPhoneNumbers.list.element": ([0, 1, 0], [1, 1, 0]),
        "contacts.list.element.name": ([0, 1, 0], [1, 1, 0]),
        "contacts.list.element.phoneNumber": ([0, 1, 0], [2, 1, 0]),
    }
    assert plain(batch.leaves[3]) == [b"555 987 6543"]


def record_levels(
    value: Any, kind: pa.DataType, nullable: bool, r: int, d: int, depth: int
) -> dict[str, list[tuple[int, int, Any]]]:
    """Repetition and definition level and value of each leaf of one record, as the Dremel paper writes them."""
    if nullable:
        if value is None:
            return {path: [(r, d, None)] for path in leaf_paths(kind)}
        d += 1
    if pa.types.is_struct(kind):
        return {
            f".{field.name}{path}": entries
            for field in kind
            for path, entries in record_levels(value[field.name], field.type, field.nullable, r, d, depth).items()
        }
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        out: dict[str, list[tuple[int, int, Any]]] = {path: [] for path in leaf_paths(kind)}
        for index, element in enumerate(value):
            first = r if index == 0 else depth + 1
            field = kind.value_field
            below = record_levels(element, field.type, field.nullable, first, d + 1, depth + 1)
            for path, entries in below.items():
                out[f".list.element{path}"] += entries
        return out if value else {path: [(r, d, None)] for path in out}
    return {"": [(r, d, value)]}


def leaf_paths(kind: pa.DataType) -> list[str]:
    if pa.types.is_struct(kind):
        return [f".{field.name}{path}" for field in kind for path in leaf_paths(field.type)]
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [f".list.element{path}" for path in leaf_paths(kind.value_type)]
    return [""]


KINDS = st.recursive(
    st.just(pa.int32()),
    lambda inner: st.one_of(
        st.tuples(inner, st.booleans()).map(lambda two: pa.list_(pa.field("item", *two))),
        inner.map(lambda kind: pa.list_(kind, 2)),
        st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=2).map(
            lambda fields: pa.struct([pa.field(f"f{at}", *two) for at, two in enumerate(fields)])
        ),
    ),
    max_leaves=3,
)


def values_of(kind: pa.DataType, nullable: bool) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        values = st.fixed_dictionaries({field.name: values_of(field.type, field.nullable) for field in kind})
    elif pa.types.is_list(kind):
        values = st.lists(values_of(kind.value_type, kind.value_field.nullable), max_size=3)
    elif pa.types.is_fixed_size_list(kind):
        values = st.lists(values_of(kind.value_type, True), min_size=2, max_size=2)
    else:
        values = st.integers(0, 9)
    return st.one_of(st.none(), values) if nullable else values


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_nested_levels_are_those_of_the_record_at_a_time_algorithm(data: st.DataObject) -> None:
    kind = data.draw(KINDS)
    rows = data.draw(st.lists(values_of(kind, True), min_size=1, max_size=6))
    skipped = data.draw(st.integers(0, len(rows) - 1))
    array = pa.array(rows, kind)[skipped:]
    ingest, batch = only_batch(pa.table({"c": array}))
    expected: dict[str, list[tuple[int, int, Any]]] = {f"c{path}": [] for path in leaf_paths(kind)}
    for row in rows[skipped:]:
        for path, entries in record_levels(row, kind, True, 0, 0, 0).items():
            expected[f"c{path}"] += entries
    for leaf, found in zip(ingest.schema.leaves, batch.leaves, strict=True):
        entries = expected[leaf.column_path]
        assert found.definition_levels is not None
        assert found.definition_levels.tolist() == [d for _, d, _ in entries]
        if leaf.max_repetition_level:
            assert found.repetition_levels is not None
            assert found.repetition_levels.tolist() == [r for r, _, _ in entries]
        assert plain(found) == [value for _, d, value in entries if d == leaf.max_definition_level]


def test_values_without_nulls_are_not_copied() -> None:
    numbers = np.arange(1000)
    table = pa.table({"n": numbers, "s": pa.array(["text"] * 1000)}).slice(10, 500)
    ingest = Ingest.from_schema(table.schema)
    (batch,) = ingest.batches(table)
    values = batch.leaves[0].values
    assert isinstance(values, np.ndarray)
    assert np.shares_memory(values, numbers)
    strings = batch.leaves[1].values
    assert isinstance(strings, ByteArrays)
    address = strings.data.__array_interface__["data"][0]
    assert address == table["s"].chunk(0).buffers()[2].address
    assert strings.value(0) == b"text"


def test_arrays_are_kept_alive_by_their_values() -> None:
    def values() -> Any:
        _, batch = only_batch(pa.table({"n": pa.array(np.arange(100_000))}))
        return batch.leaves[0].values

    assert np.array_equal(values(), np.arange(100_000))


def test_large_arrays_are_cut_between_rows() -> None:
    table = pa.table({"n": range(1000), "s": [f"row {i}" for i in range(1000)]})
    ingest = Ingest.from_schema(table.schema)
    batches = list(ingest.batches(table, batch_bytes=2000))
    assert sum(batch.num_rows for batch in batches) == 1000
    assert all(batch.num_bytes < 4000 for batch in batches)
    assert [value for batch in batches for value in plain(batch.leaves[0])] == list(range(1000))
    # However large its rows are, a batch has one.
    assert [batch.num_rows for batch in ingest.batches(table[:3], batch_bytes=1)] == [1, 1, 1]


def test_batches_without_rows_are_left_out() -> None:
    schema = pa.schema({"n": pa.int64(), "l": pa.list_(pa.string())})
    ingest = Ingest.from_schema(schema)
    for empty in (schema.empty_table(), pa.record_batch([[], []], schema=schema), [], {"n": [], "l": []}):
        assert list(ingest.batches(empty)) == []


def test_the_schema_of_a_parquet_file_will_do() -> None:
    schema = schema_from_arrow(pa.schema({"a": pa.int32(), "b": pa.list_(pa.string())}))
    assert Ingest.from_schema(schema).schema == schema


def test_metadata_of_the_source() -> None:
    schema = pa.schema({"a": pa.int8()}, metadata={"pandas": "{}", b"bytes": b"\xff"})
    assert Ingest.from_schema(schema).metadata == {"pandas": "{}"}


# --- forms of the same values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (pa.string(), pa.large_string()),
        (pa.string(), pa.string_view()),
        (pa.large_string(), pa.dictionary(pa.int16(), pa.string_view())),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.binary(), pa.binary_view()),
    ],
    ids=str,
)
def test_strings_of_every_form_are_taken(expected: pa.DataType, found: pa.DataType) -> None:
    text = pa.types.is_binary(expected)
    values: list[Any] = (
        [b"a", None, b"a long one, not in its view"] if text else ["a", None, "a long one, not in its view"]
    )
    schema = pa.schema({"c": expected})
    array = pa.array(values, found.value_type if pa.types.is_dictionary(found) else found)
    array = array.dictionary_encode() if pa.types.is_dictionary(found) else array
    _, batch = only_batch(pa.table({"c": array}), schema)
    assert plain(batch.leaves[0]) == [b"a", b"a long one, not in its view"]


def test_other_forms_that_are_taken() -> None:
    schema = pa.schema(
        {
            "zone": pa.timestamp("us", "UTC"),
            "list": pa.list_(pa.int8()),
            "decimal": pa.decimal128(5, 2),
            "nothing": pa.list_(pa.struct({"a": pa.int8(), "b": pa.list_(pa.string())})),
            "map": pa.map_(pa.string(), pa.int8()),
        }
    )
    found = pa.table(
        {
            "map": pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.int8())),
            "nothing": pa.nulls(1),
            "decimal": pa.array([decimal.Decimal("1.50")], pa.decimal256(5, 2)),
            "list": pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
            "zone": pa.array([7], pa.timestamp("us", "Asia/Tokyo")),
        }
    )
    ingest, batch = only_batch(found, schema)
    columns = dict(zip((leaf.column_path for leaf in ingest.schema.leaves), batch.leaves, strict=True))
    assert {path: plain(leaf) for path, leaf in columns.items()} == {
        "zone": [7],
        "list.list.element": [1, 2],
        "decimal": [[0, 0, 150]],
        "nothing.list.element.a": [],
        "nothing.list.element.b.list.element": [],
        "map.key_value.key": [b"k"],
        "map.key_value.value": [1],
    }
    assert levels(columns["nothing.list.element.a"]) == ([0], [0])
    assert levels(columns["nothing.list.element.b.list.element"]) == ([0], [0])


def test_nulls_of_arrows_null_type_inside_of_nested_columns() -> None:
    schema = pa.schema({"c": pa.list_(pa.struct({"a": pa.list_(pa.int8()), "b": pa.string()}))})
    found = pa.table({"c": pa.array([[None, None], None, []], pa.list_(pa.null()))})
    ingest, batch = only_batch(found, schema)
    whole = pa.table({"c": pa.array([[None, None], None, []], schema.field("c").type)})
    (expected,) = ingest.batches(whole)
    assert [levels(leaf) for leaf in batch.leaves] == [levels(leaf) for leaf in expected.leaves]
    assert [plain(leaf) for leaf in batch.leaves] == [[], []]


def test_columns_and_fields_go_by_name() -> None:
    schema = pa.schema({"a": pa.int8(), "s": pa.struct({"x": pa.int8(), "y": pa.string()})})
    found = pa.table(
        {
            "s": pa.array([{"y": "text", "x": 2}], pa.struct({"y": pa.string(), "x": pa.int8()})),
            "a": pa.array([1], pa.int8()),
        }
    )
    _, batch = only_batch(found, schema)
    assert [plain(leaf) for leaf in batch.leaves] == [[1], [2], [b"text"]]


def test_columns_whose_names_repeat_go_by_position() -> None:
    schema = pa.schema([("a", pa.int8()), ("a", pa.string())])
    _, batch = only_batch(pa.table([pa.array([1], pa.int8()), ["text"]], schema=schema), schema)
    assert [plain(leaf) for leaf in batch.leaves] == [[1], [b"text"]]


# --- data that does not fit -----------------------------------------------------------------------------------

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pa.table({"n": [1]}), r"column 's' \(string\) is missing from the data\nhint: it may be null, but"),
        (pa.table({"s": ["a"]}), r"column 'n' \(int64\) is missing from the data$"),
        (
            pa.table({"n": [1], "s": ["a"], "x": [1]}),
            "there is no column 'x' in the schema\nhint: columns: n, s",
        ),
        (pa.table([[1], ["a"], ["b"]], names=["n", "s", "s"]), "column names repeat"),
        (
            pa.table({"n": pa.array([1], pa.int32()), "s": ["a"]}),
            "column 'n' is int64, but the data has int32",
        ),
        (pa.table({"n": [1.0], "s": ["a"]}), "column 'n' is int64, but the data has double"),
        (pa.table({"n": [1], "s": [b"a"]}), "column 's' is string, but the data has binary"),
        (pa.table({"n": [1], "s": [["a"]]}), "column 's' is string, but the data has list<item: string>"),
        ({"n": np.array([1], np.uint64), "s": ["a"]}, "column 'n' is int64, but the data has uint64"),
        ([{"n": 1, "t": "a"}], "record 0 has a key 't' that is no column"),
        (pa.array([1, 2]), "rows come as a struct of columns, not as int64"),
        (7, "rows cannot be taken from an object of type int"),
        ([1, 2], "row 0 of the list is of type int"),
        ({"n": 7, "s": ["a"]}, "column 'n': values cannot be taken from an object of type int"),
        ({"n": [1, 2], "s": ["a"]}, "the columns have different numbers of rows: 'n' 2, 's' 1"),
        ({"n": np.zeros((2, 2)), "s": ["a"]}, "column 'n': it has 2 dimensions, not one"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_data_of_another_shape_is_refused_at_once(data: object, message: str) -> None:
    ingest = Ingest.from_schema(SCHEMA)
    with pytest.raises(SchemaError, match=message):
        # Without a look at the values: before the first batch is asked for.
        ingest.batches(data)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.time32("ms"), pa.time32("s")),
        (pa.duration("s"), pa.int64()),
        (pa.decimal128(5, 2), pa.decimal128(6, 2)),
        (pa.decimal128(5, 2), pa.decimal128(5, 1)),
        (pa.binary(2), pa.binary(3)),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int8())),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3)),
        (pa.list_(pa.int8()), pa.list_(pa.int16())),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int16())),
        (pa.string(), pa.dictionary(pa.int8(), pa.int8())),
        (pa.struct({"a": pa.int8()}), pa.struct({"b": pa.int8()})),
        (pa.date32(), pa.date64()),
        (pa.null(), pa.int8()),
        (pa.int8(), pa.dictionary(pa.int8(), pa.struct({"a": pa.int8()}))),
    ],
    ids=str,
)
def test_other_types_are_refused(expected: pa.DataType, found: pa.DataType) -> None:
    ingest = Ingest.from_schema(pa.schema({"column": expected}))
    with pytest.raises(SchemaError, match="column"):
        ingest.batches(pa.schema({"column": found}).empty_table())


def test_a_null_in_a_required_column_names_its_row() -> None:
    ingest = Ingest.from_schema(SCHEMA)
    batches = ingest.batches(pa.table({"n": pa.chunked_array([[1, 2], [3, None]]), "s": ["a"] * 4}))
    assert next(batches).num_rows == 2
    with pytest.raises(SchemaError, match="column 'n' may not be null, but row 3 is") as caught:
        next(batches)
    assert caught.value.where.column == "n"


def test_nothing_of_an_array_is_taken_when_a_later_row_does_not_fit() -> None:
    values = [*range(10_000), None]
    ingest = Ingest.from_schema(SCHEMA)
    batches = ingest.batches({"n": values, "s": ["text"] * len(values)}, batch_bytes=1000)
    with pytest.raises(SchemaError, match="row 10000 is"):
        next(batches)
    seconds = pa.array([0] * 10_000 + [2**62], pa.timestamp("s"))
    batches = Ingest.from_schema(pa.schema({"t": seconds.type})).batches(pa.table({"t": seconds}), batch_bytes=1000)
    with pytest.raises(SchemaError, match="column 't', row 10000: 4611686018427387904 seconds are too many"):
        next(batches)


@pytest.mark.parametrize(
    ("kind", "rows", "path"),
    [
        (pa.list_(pa.field("item", pa.int8(), False)), [[1, 2], [], None, [3, None]], "c.element"),
        (
            pa.struct([pa.field("x", pa.struct([pa.field("y", pa.int8(), False)]))]),
            [None, {"x": None}, None, {"x": {"y": None}}],
            "c.x.y",
        ),
        (
            pa.map_(pa.string(), pa.field("v", pa.int8(), False)),
            [[("k", 1)], None, [], [("a", 1), ("b", None)]],
            "c.value",
        ),
    ],
    ids=["list", "struct", "map"],
)
def test_a_null_in_a_required_field_names_its_row(kind: pa.DataType, rows: list[Any], path: str) -> None:
    def nullable(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct({field.name: nullable(field.type) for field in kind})
        if pa.types.is_map(kind):
            return pa.map_(kind.key_type, kind.item_type)
        return pa.list_(kind.value_type) if pa.types.is_list(kind) else kind

    ingest = Ingest.from_schema(pa.schema({"c": kind}))
    assert [batch.num_rows for batch in ingest.batches(pa.table({"c": pa.array(rows[:3], nullable(kind))}))] == [3]
    batches = ingest.batches(pa.table({"c": pa.array(rows, nullable(kind))}))
    with pytest.raises(SchemaError, match=f"column '{path}' may not be null, but row 3 is"):
        next(batches)


def test_a_row_that_is_null_as_a_whole() -> None:
    rows = pa.array([{"n": 1}, None], pa.struct({"n": pa.int64()}))
    with pytest.raises(SchemaError, match="row 1 is null as a whole"):
        next(Ingest.from_schema(pa.schema({"n": pa.int64()})).batches(rows))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            pa.array([1, 2**62], pa.timestamp("s")),
            "row 1: 4611686018427387904 seconds are too many in milliseconds",
        ),
        (
            pa.array([1, -(2**63)], pa.timestamp("s", "UTC")),
            "row 1: -9223372036854775808 seconds are too many",
        ),
        (pa.array([0, 5_000_000], pa.int32()).view(pa.time32("s")), "row 1: 5000000 seconds are too many"),
        (pa.array([0, 1], pa.int64()).view(pa.date64()), "row 1: date64 1 ms is not a whole day"),
        (
            pa.array([0, 86_400_000 * 2**31], pa.int64()).view(pa.date64()),
            "row 1: a date64 is too far from 1970",
        ),
        (
            pa.Array.from_buffers(
                pa.decimal128(2, 0),
                2,
                [None, pa.py_buffer((1).to_bytes(16, "little") + (128).to_bytes(16, "little"))],
            ),
            "row 1: a decimal has more digits than its type",
        ),
        (
            pa.DictionaryArray.from_arrays(pa.array([0, 2], pa.int8()), pa.array(["a", "b"]), safe=False),
            "row 1: index 2 leads out of a dictionary of 2",
        ),
        (
            pa.DictionaryArray.from_arrays(pa.array([0, 0, 1], pa.int8()), pa.array([1, 2**62], pa.timestamp("s"))),
            "row 2: 4611686018427387904 seconds are too many",
        ),
    ],
    ids=str,
)
def test_values_that_parquet_cannot_hold_name_their_row(array: pa.Array, message: str) -> None:
    ingest, data = Ingest.infer(pa.table({"c": array}))
    with pytest.raises(SchemaError, match=f"column 'c', {message}") as caught:
        list(ingest.batches(data))
    assert caught.value.where.column == "c"


def test_rows_of_nested_values_that_parquet_cannot_hold() -> None:
    rows = [[1], None, [2, 3], [4, 2**62]]
    array = pa.array(rows, pa.list_(pa.timestamp("s")))
    ingest, data = Ingest.infer(pa.table({"c": array[1:]}))
    with pytest.raises(SchemaError, match=r"column 'c.element', row 2: 4611686018427387904 seconds"):
        list(ingest.batches(data))


def test_nothing_to_infer_a_schema_from() -> None:
    with pytest.raises(SchemaError, match="there are no records to take a schema from"):
        Ingest.infer([])
    with pytest.raises(SchemaError, match="the keys of a record are names of columns, but one is 1"):
        Ingest.infer([{1: "a"}])
    with pytest.raises(UnsupportedError, match="column 'c': struct cannot be written to Parquet"):
        Ingest.infer([{"c": {}}])
