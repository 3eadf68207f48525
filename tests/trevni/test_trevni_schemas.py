"""What records Avro schemas, names and parents of columns make: by columns as Avro's writer makes them of a schema."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trevni_bytes import assembled, body, in_memory, string, zint

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore


def text(*values: str) -> bytes:
    return b"".join(string(value.encode()) for value in values)


def ints(*values: int) -> bytes:
    return b"".join(map(zint, values))


#: A column: its name, type, parent, whether it is an array, and its one block.
Column = tuple[str, str, str | None, bool, bytes]


async def stored(
    num_rows: int, columns: list[Column], schema: Any = None, version: int = 2, behind: bytes = b""
) -> tuple[MemoryStore, str]:
    meta = {} if schema is None else {"avro.schema": json.dumps(schema).encode()}
    bodies = []
    for name, kind, parent, is_array, data in columns:
        described = {"trevni.name": name.encode(), "trevni.type": kind.encode()}
        if parent is not None:
            described["trevni.parent"] = parent.encode()
        if is_array:
            described["trevni.array"] = b""
        bodies.append((described, body([(num_rows, len(data), len(data))], [data])))
    return await in_memory(assembled(version, num_rows, meta, bodies) + behind)


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Row", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


#: Name: the schema, the columns, the rows, and the rows where the schema is not there.
CASES: dict[str, tuple[Any, list[Column], list[Any], list[Any] | None]] = {
    "a map": (
        record(m={"type": "map", "values": "int"}),
        [
            ("m>", "null", None, True, ints(2, -2, 0)),
            ("m>key", "string", "m>", False, text("a", "b", "c", "d")),
            ("m>value", "int", "m>", False, ints(1, 2, 3, 4)),
        ],
        [{"m": [("a", 1), ("b", 2)]}, {"m": [("c", 3)]}, {"m": [("d", 4)]}, {"m": []}],
        None,
    ),
    "a map of maps of unions": (
        record(m={"type": "map", "values": {"type": "map", "values": ["null", "long"]}}),
        [
            ("m>", "null", None, True, ints(1, 1)),
            ("m>key", "string", "m>", False, text("a", "b")),
            ("m>value>", "null", "m>", True, ints(2, 0)),
            ("m>value>key", "string", "m>value>", False, text("x", "y")),
            ("m>value>value/long", "long", "m>value>", True, ints(0, 1, 7)),
        ],
        [{"m": [("a", [("x", None), ("y", 7)])]}, {"m": [("b", [])]}],
        None,
    ),
    "a union of several": (
        record(u=["null", "int", "string", {"type": "record", "name": "ns.R", "fields": [{"name": "x", "type": "int"}]}]),
        [
            ("u/int", "int", None, True, ints(1, 5, -3)),
            ("u/string", "string", None, True, ints(0, 1) + text("s") + ints(-1)),
            ("u/ns.R", "null", None, True, ints(-1, 1, 0)),
            ("u/ns.R#x", "int", "u/ns.R", False, ints(9)),
        ],
        [
            {"u": {"int": 5, "string": None, "ns.R": None}},
            {"u": {"int": None, "string": "s", "ns.R": None}},
            {"u": {"int": None, "string": None, "ns.R": {"x": 9}}},
            {"u": {"int": None, "string": None, "ns.R": None}},
        ],
        None,
    ),
    "records in records": (
        record(a={"type": "record", "name": "A", "fields": [{"name": "b", "type": "int"}, {"name": "c", "type": {"type": "record", "name": "C", "fields": [{"name": "d", "type": "boolean"}]}}]}),
        [("a#b", "int", None, False, ints(1, 2)), ("a#c#d", "boolean", None, False, b"\x02")],
        [{"a": {"b": 1, "c": {"d": False}}}, {"a": {"b": 2, "c": {"d": True}}}],
        None,
    ),
    "arrays of arrays of booleans": (
        record(a={"type": "array", "items": {"type": "array", "items": "boolean"}}),
        [
            ("a[]", "null", None, True, ints(2, 1)),
            ("a[][]", "boolean", "a[]", True, ints(3) + b"\x05" + ints(0) + ints(9) + b"\xff\x01"),
        ],
        [{"a": [[True, False, True], []]}, {"a": [[True] * 9]}],
        None,
    ),
    "an array of a union": (
        record(a={"type": "array", "items": ["int", "null"]}),
        [("a[]", "null", None, True, ints(3)), ("a[]/int", "int", "a[]", True, ints(1, 4, 0, 1, 6))],
        [{"a": [4, None, 6]}],
        None,
    ),
    "nulls": (
        record(n="null", l={"type": "array", "items": "null"}, u=["null"]),
        [("n", "null", None, False, b""), ("l[]", "null", None, True, ints(3, 0))],
        [{"n": None, "l": [None] * 3, "u": None}, {"n": None, "l": [], "u": None}],
        [{"n": None, "l": [None] * 3}, {"n": None, "l": []}],
    ),
    "a record without fields": (
        record(a=["null", {"type": "record", "name": "E", "fields": []}]),
        [("a/E", "null", None, True, ints(1, 0))],
        [{"a": {"empty": None}}, {"a": None}],
        [{"a": None}, {"a": None}],
    ),
    "a fixed and an enumeration": (
        record(f={"type": "fixed", "name": "F", "size": 3}, e={"type": "enum", "name": "E", "symbols": ["X", "Y"]}, again="E"),
        [
            ("f", "bytes", None, False, ints(3) + b"abc" + ints(3) + b"xyz"),
            ("e", "int", None, False, ints(1, 0)),
            ("again", "int", None, False, ints(0, 0)),
        ],
        [{"f": b"abc", "e": "Y", "again": "X"}, {"f": b"xyz", "e": "X", "again": "X"}],
        [{"f": b"abc", "e": 1, "again": 0}, {"f": b"xyz", "e": 0, "again": 0}],
    ),
    "names in namespaces": (
        {
            "type": "record", "name": "Row", "namespace": "one",
            "fields": [
                {"name": "a", "type": ["null", {"type": "fixed", "name": "F", "size": 1}]},
                {"name": "b", "type": ["null", "two.F", "one.F"][::2]},
                {"name": "c", "type": ["null", {"type": "fixed", "name": "two.F", "size": 2}]},
                {"name": "d", "type": ["null", "F"]},
            ],
        },
        [
            ("a/one.F", "bytes", None, True, ints(1, 1) + b"x"),
            ("b/one.F", "bytes", None, True, ints(0)),
            ("c/two.F", "bytes", None, True, ints(1, 2) + b"yz"),
            ("d/one.F", "bytes", None, True, ints(1, 1) + b"w"),
        ],
        [{"a": b"x", "b": None, "c": b"yz", "d": b"w"}],
        None,
    ),
    "no record": (
        {"type": "array", "items": "int"},
        [("[]", "int", None, True, ints(2, 1, 2, 1, 3))],
        [{"value": [1, 2]}, {"value": [3]}],
        [{"[]": [1, 2]}, {"[]": [3]}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_by_its_schema(name: str) -> None:
    schema, columns, rows, _ = CASES[name]
    place = await stored(len(rows), columns, schema)
    async with rpq.open_trevni(place) as file:
        assert file.notes == ()
        assert (await file.read()).to_pylist() == rows
        for column in file.schema.names:
            assert (await file.read(columns=[column], offset=1)).to_pylist() == [
                {column: row[column]} for row in rows[1:]
            ]
    report = await rpq.convert(place, (place[0], "new.parquet"))
    assert report.exit_code == 0
    async with rpq.open((place[0], "new.parquet")) as new:
        assert (await new.read()).to_pylist() == rows
        assert new.schema == file.schema


@pytest.mark.parametrize("name", CASES)
async def test_by_the_names_of_its_columns(name: str) -> None:
    _, columns, rows, bare = CASES[name]
    async with rpq.open_trevni(await stored(len(rows), columns)) as file:
        assert (await file.read()).to_pylist() == (rows if bare is None else bare)


async def test_names_that_are_not_those_of_avro() -> None:
    """As the example of the specification has them: parents, and names of their own."""
    columns: list[Column] = [
        ("id", "int", None, False, ints(7, 8)),
        ("to/", "string", None, True, ints(2) + text("x", "y") + ints(0)),
        ("received", "null", None, True, ints(1, 2)),
        ("date", "long", "received", False, ints(1, 2, 3)),
        ("sigs", "null", "received", True, ints(1, 0, 1)),
        ("algo", "string", "sigs", False, text("a", "b")),
        ("[odd]", "int", None, False, ints(1, 2)),
    ]
    async with rpq.open_trevni(await stored(2, columns)) as file:
        assert (await file.read()).to_pylist() == [
            {"id": 7, "to/": ["x", "y"], "received": [{"date": 1, "sigs": [{"algo": "a"}]}], "[odd]": 1},
            {
                "id": 8,
                "to/": [],
                "received": [{"date": 2, "sigs": []}, {"date": 3, "sigs": [{"algo": "b"}]}],
                "[odd]": 2,
            },
        ]


@pytest.mark.parametrize("version", [0, 1])
async def test_earlier_files_of_avro(version: int) -> None:
    """Nothing but runs of lengths is new in the last version; blocks that have no bytes are empty in all of them."""
    columns: list[Column] = [
        ("id", "int", None, False, ints(7, 8, 9)),
        ("n", "null", None, False, b""),
        ("to[]", "string", None, True, ints(2) + text("x", "y") + ints(0, 0)),
        ("u/long", "long", None, True, ints(0, 1, -4, 0)),
    ]
    async with rpq.open_trevni(await stored(3, columns, version=version)) as file:
        assert file.notes == ()
        assert (await file.read()).to_pydict() == {
            "id": [7, 8, 9], "n": [None] * 3, "to": [["x", "y"], [], []], "u": [None, -4, None]
        }  # fmt: skip


async def test_bytes_that_belong_to_no_column_are_told() -> None:
    place = await stored(1, [("a", "int", None, False, ints(1))], behind=b"1234")
    async with rpq.open_trevni(place) as file:
        assert file.notes == ("4 bytes behind the column 'a' belong to none",)
        assert (await file.read()).to_pydict() == {"a": [1]}
    assert (await rpq.convert(place, (place[0], "new.parquet"))).outcome == "recovered"


LOGICAL = {
    "date": ({"type": "int", "logicalType": "date"}, "int", pa.date32()),
    "time-millis": ({"type": "int", "logicalType": "time-millis"}, "int", pa.time32("ms")),
    "time-micros": ({"type": "long", "logicalType": "time-micros"}, "long", pa.time64("us")),
    "timestamp-millis": ({"type": "long", "logicalType": "timestamp-millis"}, "long", pa.timestamp("ms", "UTC")),
    "timestamp-micros": ({"type": "long", "logicalType": "timestamp-micros"}, "long", pa.timestamp("us", "UTC")),
    "local-timestamp-millis": ({"type": "long", "logicalType": "local-timestamp-millis"}, "long", pa.timestamp("ms")),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "bytes", pa.decimal128(9, 2)),
    "of another type": ({"type": "long", "logicalType": "date"}, "long", pa.int64()),
    "unknown": ({"type": "int", "logicalType": "epoch"}, "int", pa.int32()),
    "no decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, "bytes", pa.binary()),
}


@pytest.mark.parametrize("name", LOGICAL)
async def test_what_values_mean(name: str, tmp_path: Any) -> None:
    schema, kind, arrow = LOGICAL[name]
    data = ints(2) + b"\x01\x02" if kind == "bytes" else ints(1000)
    place = await stored(1, [("a", kind, None, False, data)], record(a=schema))
    await rpq.convert(place, tmp_path / "new.parquet")
    found = pq.read_table(tmp_path / "new.parquet")
    assert found.schema.field("a").type == arrow
    expected = pa.array([b"\x01\x02"]) if arrow == pa.binary() else pa.array([1000], arrow) if kind != "bytes" else None
    if expected is not None:
        assert found["a"].combine_chunks().equals(expected)
    else:
        assert str(found["a"][0].as_py()) == "2.58"


@pytest.mark.parametrize(
    ("schema", "columns", "words"),
    [
        (
            record(e={"type": "enum", "name": "E", "symbols": ["X"]}),
            [("e", "int", None, False, ints(1))],
            "an enumeration of 1 symbols has no number 1",
        ),
        (
            record(f={"type": "fixed", "name": "F", "size": 3}),
            [("f", "bytes", None, False, ints(2) + b"ab")],
            "has not the 3 bytes",
        ),
    ],
)
async def test_values_that_are_none_of_their_type(schema: Any, columns: list[Column], words: str) -> None:
    async with rpq.open_trevni(await stored(1, columns, schema)) as file:
        with pytest.raises(rpq.EncodingError, match=words):
            await file.read()
