"""Fields inside of columns, read without the rest of the column; pyarrow reads the same files the same way."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import SchemaError
from resilient_pq import sync as rpq
from resilient_pq.arrow.assemble import branch_of, projected
from resilient_pq.arrow.types.arrow_schema import arrow_field_of
from resilient_pq.format.schema_tree import Schema

POINT = pa.struct({"x": pa.int32(), "y": pa.list_(pa.int8())})
NESTED = pa.table(
    {
        "n": pa.array([1, 2, 3, 4]),
        "m": pa.array(
            [[("a", {"x": 1, "y": [1, None]}), ("b", None)], None, [], [("c", {"x": None, "y": None})]],
            pa.map_(pa.string(), POINT),
        ),
        "l": pa.array([[{"p": 1, "q": [{"r": "s", "t": 2}, None]}], [], None, [None, {"p": None, "q": []}]]),
        "f": pa.array([[[1, 2], None], None, [[3, 4], [5, 6]], [None, None]], pa.list_(pa.list_(pa.int16(), 2), 2)),
        "s": pa.array([{"a": {"b": {"c": 1, "d": "x"}}, "e": [True]}, None, {"a": None, "e": None}, {"a": {"b": None}}]),
    }
)  # fmt: skip
LEAVES = [
    "n",
    "m.key_value.key",
    "m.key_value.value.x",
    "m.key_value.value.y.list.element",
    "l.list.element.p",
    "l.list.element.q.list.element.r",
    "l.list.element.q.list.element.t",
    "f.list.element.list.element",
    "s.a.b.c",
    "s.a.b.d",
    "s.e.list.element",
]
GROUPS = ["m", "m.key_value", "m.key_value.value", "l.list", "l.list.element.q", "s.a", "s.a.b", "s"]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("projection") / "theirs.parquet"
    pq.write_table(NESTED, path, row_group_size=3)
    return path


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("projection") / "ours.parquet"
    with rpq.create(path, row_group_rows=3) as writer:
        writer.write(NESTED)
    return path


def _read(path: Path, columns: list[str]) -> pa.Table:
    with rpq.open(path) as file:
        table = pa.table(file.read(columns=columns))
        batches = [pa.table(batch) for batch in file.batches(2, columns=columns)]
    assert pa.concat_tables(batches).equals(table)
    table.validate(full=True)
    return table


def _assert_like_pyarrow(path: Path, columns: list[str]) -> None:
    found = _read(path, columns)
    expected = pq.ParquetFile(path).read(columns=columns).select(found.column_names)
    assert found.equals(expected)
    assert found.schema.equals(expected.schema)


@pytest.mark.parametrize("path", LEAVES + GROUPS)
def test_one_path(path: str, ours: Path, theirs: Path) -> None:
    _assert_like_pyarrow(theirs, [path])
    _assert_like_pyarrow(ours, [path])


@pytest.mark.parametrize("pair", list(itertools.combinations(LEAVES, 2)), ids="+".join)
def test_two_leaves(pair: tuple[str, str], theirs: Path) -> None:
    _assert_like_pyarrow(theirs, list(pair))


def test_columns_come_in_the_order_asked_for_and_fields_in_that_of_the_file(theirs: Path) -> None:
    found = _read(theirs, ["s.e", "n", "s.a.b.d"])
    assert found.column_names == ["s", "n"]
    assert str(found.schema.field("s").type) == ("struct<a: struct<b: struct<d: string>>, e: list<item: bool>>")
    assert found["s"].to_pylist()[0] == {"a": {"b": {"d": "x"}}, "e": [True]}


def test_only_the_chunks_of_the_leaves_are_fetched(theirs: Path) -> None:
    metadata = pq.ParquetFile(theirs).metadata
    sizes = [
        metadata.row_group(group).column(LEAVES.index("s.a.b.d")).total_compressed_size
        for group in range(metadata.num_row_groups)
    ]
    with rpq.open(theirs) as file:
        before = file.counters.useful_bytes
        file.read(columns=["s.a.b.d"])
        assert file.counters.useful_bytes - before == sum(sizes)


def test_a_path_that_is_not_there_names_those_that_are(ours: Path) -> None:
    with rpq.open(ours) as file, pytest.raises(SchemaError, match=r"there is no column 's\.a\.x'") as caught:
        file.read(columns=["s.a.x"])
    assert caught.value.hint == "columns: s.a.b.c, s.a.b.d, s.e.list.element"


#: A list whose repeated group has two fields is a list of that group, also when one of them is wanted (rule 2 of
#: LogicalTypes.md, "Nested Types"); the field alone would make it a list of its own (rule 5).
LEGACY = "message m { optional group l (LIST) { repeated group pair { required int32 a; optional int32 b; } } }"


def test_what_a_list_stands_for_is_decided_by_all_of_its_fields() -> None:
    node = Schema.parse(LEGACY).root.children[0]
    whole = arrow_field_of(node)
    assert str(projected(whole, branch_of(node, {0}))) == "list<pair: struct<a: int32 not null> not null>"
    assert str(projected(whole, branch_of(node, {1}))) == "list<pair: struct<b: int32> not null>"
    assert projected(whole, branch_of(node)) == whole
    with pytest.raises(ValueError, match="no leaf"):
        branch_of(node, {2})
