"""Leaf columns of any writer as Arrow arrays: every physical form of a type, nesting of every age, contradictions."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal as Number
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from resilient_pq import CutTimestampWarning
from resilient_pq.arrow import leaf_arrays
from resilient_pq.arrow.assemble import branch_of, to_arrow
from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.arrow_schema import arrow_field_of
from resilient_pq.arrow.types.field import Field
from resilient_pq.errors import FormatError
from resilient_pq.format import logical
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.logical import Decimal, Integer, Logical, Time, Timestamp, TimeUnit
from resilient_pq.format.physical_values import ByteArrays, LeafColumn
from resilient_pq.format.schema_tree import Group, Node, Primitive, Schema

REQUIRED, OPTIONAL, REPEATED = Repetition.REQUIRED, Repetition.OPTIONAL, Repetition.REPEATED


def byte_arrays(*values: bytes, offset_type: type = np.int32) -> ByteArrays:
    ends = np.cumsum([0, *map(len, values)], dtype=offset_type)
    return ByteArrays(ends, np.frombuffer(b"".join(values), np.uint8))


def rows(*values: bytes) -> Any:
    return np.frombuffer(b"".join(values), np.uint8).reshape(len(values), -1)


def columns_of(node: Node, *leaves: dict[str, Any]) -> list[LeafColumn]:
    """Leaf columns; each dict has values, and where they apply present, definition, repetition, num_rows."""
    found = []
    schema = Schema(Group("schema", REQUIRED, (node,)))
    for leaf, given in zip(schema.leaves, leaves, strict=True):
        values = given["values"]
        found.append(
            LeafColumn(
                leaf,
                given.get("num_rows", len(values)),
                values,
                None if given.get("present") is None else np.array(given["present"], np.bool_),
                None if given.get("definition") is None else np.array(given["definition"], np.uint8),
                None if given.get("repetition") is None else np.array(given["repetition"], np.uint8),
            )
        )
    return found


def assembled(node: Node, *leaves: dict[str, Any], field: Field | None = None) -> pa.Array:
    array = pa.array(to_arrow((field or arrow_field_of(node)).to_c(), branch_of(node), columns_of(node, *leaves)))
    array.validate(full=True)
    return array


def leaf(
    physical: Type,
    annotation: Logical | None = None,
    length: int | None = None,
    repetition: Repetition = REQUIRED,
    name: str = "c",
) -> Primitive:
    return Primitive(name, repetition, physical, length, annotation)


# --- flat columns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "values", "expected"),
    [
        (leaf(Type.INT32, Decimal(9, 2)), np.array([150, -1], "<i4"), [Number("1.50"), Number("-0.01")]),
        (leaf(Type.INT64, Decimal(18, 0)), np.array([10**17, -1], "<i8"), [Number(10**17), Number(-1)]),
        (
            leaf(Type.FIXED_LEN_BYTE_ARRAY, Decimal(4, 1), 2),
            rows(b"\x00\x0f", b"\xff\xff"),
            [Number("1.5"), Number("-0.1")],
        ),
        # Padded with sign bytes beyond the sixteen of a decimal128, as Drill does.
        (
            leaf(Type.FIXED_LEN_BYTE_ARRAY, Decimal(4, 1), 20),
            rows(bytes(19) + b"\x0f", b"\xff" * 20),
            [Number("1.5"), Number("-0.1")],
        ),
        (
            leaf(Type.BYTE_ARRAY, Decimal(38, 0)),
            byte_arrays(b"", b"\x80", b"\x00\x80", b"\xff" * 17, b"\x01" + bytes(8)),
            [Number(0), Number(-128), Number(128), Number(-1), Number(2**64)],
        ),
        (
            leaf(Type.FIXED_LEN_BYTE_ARRAY, Decimal(76, 0), 32),
            rows((10**75).to_bytes(32), (-1).to_bytes(32, signed=True)),
            [Number(10**75), Number(-1)],
        ),
        (leaf(Type.INT32, Integer(8, True)), np.array([-128, 127], "<i4"), [-128, 127]),
        (leaf(Type.INT32, Integer(16, False)), np.array([65535], "<i4"), [65535]),
        (leaf(Type.INT32, Integer(32, False)), np.array([-1], "<i4"), [2**32 - 1]),
        (leaf(Type.INT64, Integer(64, False)), np.array([-1], "<i8"), [2**64 - 1]),
        (
            leaf(Type.FIXED_LEN_BYTE_ARRAY, logical.UUID, 16),
            rows(bytes(range(16))),
            [uuid.UUID(bytes=bytes(range(16)))],
        ),
        (leaf(Type.FIXED_LEN_BYTE_ARRAY, logical.FLOAT16, 2), rows(b"\x00\x3e"), [1.5]),
        (leaf(Type.BYTE_ARRAY, logical.JSON), byte_arrays(b"{}"), ["{}"]),
        (
            leaf(Type.BYTE_ARRAY, logical.STRING),
            byte_arrays(b"a", b"\xc3\xa9", offset_type=np.int64),
            ["a", "é"],
        ),
        (leaf(Type.INT32, Time(TimeUnit.MILLIS, True)), np.array([1], "<i4"), [dt.time(0, 0, 0, 1000)]),
        (
            leaf(Type.INT64, Timestamp(TimeUnit.MILLIS, True)),
            np.array([-1], "<i8"),
            [dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, dt.UTC)],
        ),
        (leaf(Type.BOOLEAN), np.array([True, False, True]), [True, False, True]),
    ],
    ids=lambda value: f"{value.physical_type.name} {value.logical}" if isinstance(value, Primitive) else "",
)
def test_physical_forms(node: Primitive, values: Any, expected: list[Any]) -> None:
    assert assembled(node, {"values": values}).to_pylist() == expected


def int96(nanos: int, julian_day: int) -> bytes:
    return nanos.to_bytes(8, "little", signed=True) + julian_day.to_bytes(4, "little", signed=True)


def test_int96_timestamps() -> None:
    day = 86_400 * 10**9
    node = leaf(Type.INT96, repetition=OPTIONAL)
    values = rows(
        int96(0, 2_440_588),
        int96(1, 2_440_587),
        bytes(12),  # a null slot, whose day 0 is far out of reach
        # Nanoseconds that are negative or more than a day, as Impala's out_of_range_time_of_day has them.
        int96(-1, 2_440_588),
        int96(day + 5, 2_440_588),
        int96(0, 2_440_588 + 106_750),
        int96(0, 2_440_588 - 106_751),
    )
    array = assembled(node, {"values": values, "present": [True, True, False, True, True, True, True]})
    assert array.type == pa.timestamp("ns")
    assert array.view(pa.int64()).to_pylist() == [
        0,
        1 - day,
        None,
        -1,
        day + 5,
        106_750 * day,
        -106_751 * day,
    ]


LAST, FIRST = 2**63 - 1, -(2**63)
DAY = 86_400 * 10**9


def since_1970(nanos: int) -> bytes:
    return int96(nanos % DAY, nanos // DAY + 2_440_588)


def test_int96_timestamps_at_the_ends_of_nanoseconds() -> None:
    array = assembled(leaf(Type.INT96), {"values": rows(since_1970(LAST), since_1970(FIRST))})
    assert array.type == pa.timestamp("ns")
    assert array.view(pa.int64()).to_pylist() == [LAST, FIRST]


@pytest.mark.parametrize("micros", [LAST // 1000 + 1, FIRST // 1000, LAST, FIRST])
def test_int96_timestamps_beyond_nanoseconds_come_as_microseconds(micros: int) -> None:
    node = leaf(Type.INT96)
    array = assembled(node, {"values": rows(since_1970(5000), since_1970(micros * 1000))})
    assert array.type == pa.timestamp("us")
    assert array.view(pa.int64()).to_pylist() == [5, micros]


def test_int96_timestamps_beyond_microseconds_wrap_around() -> None:
    # int96_from_spark.parquet ends with one: the year 290000, which Spark wrapped around when it wrote it.
    array = assembled(leaf(Type.INT96), {"values": rows(int96(53_890_448_384_000, -108_302_821 + 2_440_588))})
    assert array.type == pa.timestamp("us")
    assert array.view(pa.int64()).to_pylist() == [9_089_380_393_200_000_000]


def test_int96_timestamps_beyond_nanoseconds_beside_some_of_nanoseconds() -> None:
    values = rows(since_1970(LAST + 1001), since_1970(1999), since_1970(-1))
    with pytest.warns(CutTimestampWarning, match=r"column 'c': some INT96 timestamps are beyond nanoseconds"):
        array = assembled(leaf(Type.INT96), {"values": values})
    assert array.type == pa.timestamp("us")
    assert array.view(pa.int64()).to_pylist() == [(LAST + 1001) // 1000, 1, -1]


@pytest.mark.parametrize(("unit", "divisor"), [("us", 10**3), ("ms", 10**6), ("s", 10**9)])
def test_int96_timestamps_of_a_unit(unit: str, divisor: int) -> None:
    node = leaf(Type.INT96)
    nanos = [7, -7, LAST + 12_345, 999_999_999]
    field = arrow_field_of(node, int96_unit=unit)
    array = assembled(node, {"values": rows(*map(since_1970, nanos))}, field=field)
    assert array.type == pa.timestamp(unit)
    assert array.view(pa.int64()).to_pylist() == [value // divisor for value in nanos]


def test_chunks_of_int96_timestamps_of_which_one_is_beyond_nanoseconds() -> None:
    node = leaf(Type.INT96, repetition=OPTIONAL)
    field = arrow_field_of(node)

    def table(*chunks: list[int]) -> Table:
        arrays = [
            [to_arrow(field, branch_of(node), columns_of(node, {"values": rows(*map(since_1970, [0, *chunk])),
                                                     "present": [False, *[True] * len(chunk)]}))]
            for chunk in chunks
        ]  # fmt: skip
        return Table([field], arrays, sum(map(len, chunks)) + len(chunks))

    with pytest.warns(CutTimestampWarning, match="lost digits"):
        found = pa.table(table([1999], [LAST + 1000 - LAST % 1000], [-1]))
    found.validate(full=True)
    assert found["c"].type == pa.timestamp("us")
    expected = [None, 1, None, LAST // 1000 + 1, None, -1]
    assert found["c"].cast(pa.int64()).to_pylist() == expected


def test_values_are_not_copied_where_layouts_agree() -> None:
    numbers = np.arange(1000)
    text = byte_arrays(*(b"text" for _ in range(1000)))
    array = assembled(leaf(Type.INT64), {"values": numbers})
    assert array.buffers()[1].address == numbers.__array_interface__["data"][0]
    array = assembled(leaf(Type.BYTE_ARRAY, logical.STRING), {"values": text[10:20]})
    assert array.to_pylist() == ["text"] * 10
    assert array.buffers()[2].address == text.data.__array_interface__["data"][0]


def test_offsets_that_begin_anywhere() -> None:
    far = ByteArrays(np.array([2**40, 2**40 + 1, 2**40 + 3]) - 2**40 + 5, np.frombuffer(b"xxxxxabcyyy", np.uint8))
    assert assembled(leaf(Type.BYTE_ARRAY, logical.STRING), {"values": far}).to_pylist() == ["a", "bc"]


@pytest.mark.parametrize(
    ("node", "values", "message"),
    [
        (
            leaf(Type.FIXED_LEN_BYTE_ARRAY, Decimal(4, 1), 33),
            rows(b"\x01" + bytes(32)),
            "a decimal does not fit into 32 bytes",
        ),
        (leaf(Type.BYTE_ARRAY, Decimal(4, 1)), byte_arrays(bytes(65)), "a decimal has 65 bytes"),
    ],
    ids=["wide decimal", "long decimal"],
)
def test_values_that_their_type_does_not_have(node: Primitive, values: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        assembled(node, {"values": values})
    assert caught.value.where.column == "c"


def test_values_that_the_stored_schema_does_not_have() -> None:
    seconds = Field("c", "tss:", False)
    node = leaf(Type.INT64, Timestamp(TimeUnit.MILLIS, False))
    assert assembled(node, {"values": np.array([-2000])}, field=seconds).view(pa.int64()).to_pylist() == [-2]
    with pytest.raises(FormatError, match="1999 ms is not a whole second, as ARROW:schema says"):
        assembled(node, {"values": np.array([1000, 1999])}, field=seconds)


def test_a_column_of_nulls() -> None:
    node = leaf(Type.INT32, logical.UNKNOWN, repetition=OPTIONAL)
    array = assembled(node, {"values": np.zeros(3, "<i4"), "present": [False] * 3})
    assert array.equals(pa.nulls(3))
    # What is always null is so also where there is nothing.
    inside = Group("c", OPTIONAL, (Group("list", REPEATED, (node,)),), logical.LIST)
    empty = {"values": np.zeros(0, "<i4"), "definition": [1, 0], "repetition": [0, 0], "num_rows": 2}
    assert assembled(inside, empty).to_pylist() == [[], None]


# --- nested columns -------------------------------------------------------------------------------------------

#: The schema of the Dremel paper's documents, without any annotation.
NAME = Group(
    "Name",
    REPEATED,
    (
        Group(
            "Language",
            REPEATED,
            (
                leaf(Type.BYTE_ARRAY, logical.STRING, name="Code"),
                leaf(Type.BYTE_ARRAY, logical.STRING, repetition=OPTIONAL, name="Country"),
            ),
        ),
        leaf(Type.BYTE_ARRAY, logical.STRING, repetition=OPTIONAL, name="Url"),
    ),
)
LINKS = Group(
    "Links",
    OPTIONAL,
    (
        leaf(Type.INT64, repetition=REPEATED, name="Backward"),
        leaf(Type.INT64, repetition=REPEATED, name="Forward"),
    ),
)
NAME_LEAVES: Sequence[dict[str, Any]] = (
    {
        "values": byte_arrays(b"en-us", b"en", b"en-gb"),
        "definition": [2, 2, 1, 2, 1],
        "repetition": [0, 2, 1, 1, 0],
        "num_rows": 2,
    },
    {
        "values": byte_arrays(b"us", b"", b"gb"),
        "present": [True, False, True],
        "definition": [3, 2, 1, 3, 1],
        "repetition": [0, 2, 1, 1, 0],
        "num_rows": 2,
    },
    {
        "values": byte_arrays(b"http://A", b"http://B", b"", b"http://C"),
        "present": [True, True, False, True],
        "definition": [2, 2, 1, 2],
        "repetition": [0, 1, 1, 0],
        "num_rows": 2,
    },
)


def test_the_documents_of_the_dremel_paper() -> None:
    assert assembled(NAME, *NAME_LEAVES).to_pylist() == [
        [
            {
                "Language": [{"Code": "en-us", "Country": "us"}, {"Code": "en", "Country": None}],
                "Url": "http://A",
            },
            {"Language": [], "Url": "http://B"},
            {"Language": [{"Code": "en-gb", "Country": "gb"}], "Url": None},
        ],
        [{"Language": [], "Url": "http://C"}],
    ]
    links = assembled(
        LINKS,
        {"values": np.array([10, 30]), "definition": [1, 2, 2], "repetition": [0, 0, 1], "num_rows": 2},
        {
            "values": np.array([20, 40, 60, 80]),
            "definition": [2] * 4,
            "repetition": [0, 1, 1, 0],
            "num_rows": 2,
        },
    )
    assert links.to_pylist() == [
        {"Backward": [], "Forward": [20, 40, 60]},
        {"Backward": [10, 30], "Forward": [80]},
    ]


INT = leaf(Type.INT32, repetition=REQUIRED, name="x")


@pytest.mark.parametrize(
    ("node", "leaves", "expected"),
    [
        pytest.param(
            Group("c", OPTIONAL, (leaf(Type.INT32, repetition=REPEATED, name="array"),), logical.LIST),
            [
                {
                    "values": np.array([1, 2], "<i4"),
                    "definition": [2, 2, 0, 1],
                    "repetition": [0, 1, 0, 0],
                    "num_rows": 3,
                }
            ],
            [[1, 2], None, []],
            id="rule 1",
        ),
        pytest.param(
            Group("c", OPTIONAL, (Group("array", REPEATED, (INT,)),), logical.LIST),
            [
                {
                    "values": np.array([1, 2], "<i4"),
                    "definition": [2, 2, 0, 1],
                    "repetition": [0, 1, 0, 0],
                    "num_rows": 3,
                }
            ],
            [[{"x": 1}, {"x": 2}], None, []],
            id="rule 4",
        ),
        pytest.param(
            Group(
                "c",
                OPTIONAL,
                (Group("bag", REPEATED, (leaf(Type.INT32, repetition=OPTIONAL),)),),
                logical.LIST,
            ),
            [
                {
                    "values": np.array([1, 0], "<i4"),
                    "present": [True, False],
                    "definition": [3, 2, 0, 1],
                    "repetition": [0, 1, 0, 0],
                    "num_rows": 3,
                }
            ],
            [[1, None], None, []],
            id="rule 5",
        ),
        pytest.param(
            Group(
                "c",
                OPTIONAL,
                (
                    Group(
                        "array",
                        REPEATED,
                        (leaf(Type.INT32, repetition=REPEATED, name="array"),),
                        logical.LIST,
                    ),
                ),
                logical.LIST,
            ),
            [
                {
                    "values": np.array([1, 2, 3], "<i4"),
                    "definition": [3, 3, 2, 3, 0],
                    "repetition": [0, 2, 1, 1, 0],
                    "num_rows": 2,
                }
            ],
            [[[1, 2], [], [3]], None],
            id="two levels in two levels",
        ),
        pytest.param(
            Group(
                "c",
                REQUIRED,
                (Group("map", REPEATED, (INT, leaf(Type.INT32, repetition=OPTIONAL, name="v")), logical.MAP),),
                logical.MAP,
            ),
            [
                {
                    "values": np.array([1, 2], "<i4"),
                    "definition": [1, 1, 0],
                    "repetition": [0, 1, 0],
                    "num_rows": 2,
                },
                {
                    "values": np.array([9, 0], "<i4"),
                    "present": [True, False],
                    "definition": [2, 1, 0],
                    "repetition": [0, 1, 0],
                    "num_rows": 2,
                },
            ],
            [[(1, 9), (2, None)], []],
            id="map",
        ),
        pytest.param(
            Group("c", OPTIONAL, (Group("kv", REPEATED, (INT,)),), logical.MAP),
            [{"values": np.array([1], "<i4"), "definition": [2, 0], "repetition": [0, 0], "num_rows": 2}],
            [[1], None],
            id="a map without values",
        ),
        pytest.param(
            Group("c", REQUIRED, (INT, leaf(Type.INT32, repetition=OPTIONAL, name="y"))),
            [
                {"values": np.array([1, 2], "<i4"), "num_rows": 2},
                {
                    "values": np.array([3, 0], "<i4"),
                    "present": [True, False],
                    "definition": [1, 0],
                    "num_rows": 2,
                },
            ],
            [{"x": 1, "y": 3}, {"x": 2, "y": None}],
            id="a required struct",
        ),
        pytest.param(
            Group("c", OPTIONAL, (Group("d", OPTIONAL, (INT,)),)),
            [
                {
                    "values": np.array([0, 0, 7], "<i4"),
                    "present": [False, False, True],
                    "definition": [0, 1, 2],
                    "num_rows": 3,
                }
            ],
            [None, {"d": None}, {"d": {"x": 7}}],
            id="structs in structs",
        ),
    ],
)
def test_nesting_of_other_writers(node: Group, leaves: list[dict[str, Any]], expected: list[Any]) -> None:
    assert assembled(node, *leaves).to_pylist() == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({0: {"repetition": [0, 2, 1, 0, 0]}}, "3 slots, where there are 2"),
        ({1: {"repetition": [0, 2, 2, 1, 0]}}, "Code and Name.Language.Country have levels that differ"),
        ({1: {"definition": [3, 2, 0, 3, 1]}}, "have levels that differ"),
        (
            {2: {"definition": [2, 2, 0, 2], "values": byte_arrays(b"", b"", b""), "present": None}},
            "levels that differ",
        ),
        (
            {1: {"values": byte_arrays(b"us", b""), "present": [True, False]}},
            "2 slots, where its levels have 3",
        ),
        ({0: {"repetition": [1, 2, 1, 1, 0]}}, "first repetition level is 1"),
    ],
    ids=["rows", "repetition", "definition", "lists", "values", "start"],
)
def test_leaves_that_contradict_each_other(changes: dict[int, dict[str, Any]], message: str) -> None:
    leaves = [{**given, **changes.get(at, {})} for at, given in enumerate(NAME_LEAVES)]
    with pytest.raises(FormatError, match=message):
        to_arrow(arrow_field_of(NAME), branch_of(NAME), columns_of(NAME, *leaves))


def test_mistakes_of_the_caller() -> None:
    node = Group("c", OPTIONAL, (Group("d", OPTIONAL, (INT,)),))
    with pytest.raises(ValueError, match="is nested, but has no definition levels"):
        assembled(node, {"values": np.zeros(1, "<i4"), "present": [True]})
    with pytest.raises(ValueError, match=r"1 leaves of column .x. are wanted, 0 given"):
        to_arrow(arrow_field_of(INT), branch_of(INT), [])


# --- types that give way --------------------------------------------------------------------------------------

LIST = Group(
    "c",
    OPTIONAL,
    (Group("list", REPEATED, (leaf(Type.INT32, repetition=OPTIONAL, name="element"),)),),
    logical.LIST,
)
PAIRS = Field("c", "+w:2", True, (Field("element", "i"),))


def list_leaf(*lists: list[int] | None) -> dict[str, Any]:
    definition: list[int] = []
    repetition: list[int] = []
    for each in lists:
        definition += [3] * len(each) if each else [0 if each is None else 1]
        repetition += [0, *[1] * (len(each or "?") - 1)]
    values = np.array([value for each in lists for value in each or ()], "<i4")
    return {"values": values, "definition": definition, "repetition": repetition, "num_rows": len(lists)}


def test_fixed_size_lists() -> None:
    array = assembled(LIST, list_leaf([1, 2], None, [3, 4]), field=PAIRS)
    assert array.type == pa.list_(pa.field("element", pa.int32()), 2)
    assert array.to_pylist() == [[1, 2], None, [3, 4]]


def test_fixed_size_lists_of_required_fixed_size_lists() -> None:
    inner = Group("element", REQUIRED, (Group("list", REPEATED, (INT,)),), logical.LIST)
    node = Group("c", OPTIONAL, (Group("list", REPEATED, (inner,)),), logical.LIST)
    field = Field("c", "+w:1", True, (Field("element", "+w:2", False, (Field("x", "i", False),)),))
    given = {
        "values": np.array([1, 2], "<i4"),
        "definition": [3, 3, 0],
        "repetition": [0, 2, 0],
        "num_rows": 2,
    }
    array = assembled(node, given, field=field)
    assert str(array.type) == "fixed_size_list<element: fixed_size_list<x: int32 not null>[2] not null>[1]"
    assert array.to_pylist() == [[[1, 2]], None]


def test_required_fixed_size_lists_of_null_structs() -> None:
    inner = Group("f", REQUIRED, (Group("list", REPEATED, (INT,)),), logical.LIST)
    node = Group("c", OPTIONAL, (inner,))
    field = Field("c", "+s", True, (Field("f", "+w:2", False, (Field("x", "i", False),)),))
    given = {
        "values": np.array([1, 2], "<i4"),
        "definition": [0, 2, 2],
        "repetition": [0, 0, 1],
        "num_rows": 2,
    }
    array = assembled(node, given, field=field)
    assert str(array.type) == "struct<f: fixed_size_list<x: int32 not null>[2] not null>"
    assert array.to_pylist() == [None, {"f": [1, 2]}]


def test_lists_that_are_not_of_the_stored_size_come_as_lists() -> None:
    even = to_arrow(PAIRS, branch_of(LIST), columns_of(LIST, list_leaf([1, 2], None)))
    odd = to_arrow(PAIRS, branch_of(LIST), columns_of(LIST, list_leaf([3], [], None)))
    table = Table([PAIRS], [[even], [odd]], 5)
    found = pa.table(table)
    found.validate(full=True)
    assert found.schema.field("c").type == pa.list_(pa.field("element", pa.int32()))
    assert found["c"].to_pylist() == [[1, 2], None, [3], [], None]


@pytest.mark.parametrize(
    ("annotation", "kind", "value", "expected"),
    [
        (Integer(8, False), pa.uint8(), -1, 255),
        (Integer(8, False), pa.uint8(), -128, 128),
        (Integer(16, False), pa.uint16(), -2, 65_534),
        (Integer(8, True), pa.int8(), 255, -1),
        (Integer(8, True), pa.int8(), 300, 44),
        (Integer(16, True), pa.int16(), 2**31 - 1, -1),
    ],
    ids=str,
)
def test_integers_are_the_lowest_bits_of_what_is_stored(
    annotation: Integer, kind: pa.DataType, value: int, expected: int
) -> None:
    # uint_types.parquet of Drill has such, and all libraries read it so.
    array = assembled(leaf(Type.INT32, annotation), {"values": np.array([1, value], "<i4")})
    assert array.type == kind
    assert array.to_pylist() == [1, expected]


def chunks_of(node: Primitive, *chunks: Any) -> pa.Table:
    """A table of one column with a chunk for each array of values."""
    field = arrow_field_of(node)
    arrays = [
        [to_arrow(field, branch_of(node), columns_of(node, chunk if isinstance(chunk, dict) else {"values": chunk}))]
        for chunk in chunks
    ]
    table = Table([field], arrays, sum(array.length for (array,) in arrays))
    found = pa.table(table)
    found.validate()
    return found


@pytest.mark.parametrize(
    "values",
    [
        [b"a", b"\xff"],
        [b"", b"\xc3", b"\xa9", b""],  # a character in two values
        [b"\xed\xa0\x80"],  # a surrogate
        [b"\xc0\xaf"],  # longer than it has to be
        [b"x" * (2**18 - 1) + b"\xc3"],  # a character cut short
        [b"\xc3\xa9" * 2**17, b"\xa9"],
    ],
    ids=["byte", "halves", "surrogate", "overlong", "cut", "second half"],
)
def test_text_that_is_not_utf8_comes_as_binary(values: list[bytes]) -> None:
    node = leaf(Type.BYTE_ARRAY, logical.STRING)
    found = chunks_of(node, byte_arrays(b"\xc3\xa9"), byte_arrays(*values))
    found.validate(full=True)
    assert found["c"].type == pa.binary()
    assert found["c"].to_pylist() == [b"\xc3\xa9", *values]


def test_text_that_is_utf8_stays_text() -> None:
    node = leaf(Type.BYTE_ARRAY, logical.STRING, repetition=OPTIONAL)
    values = ["", "é" * (2**17 + 1), "x", "", "€😀", ""]
    found = chunks_of(node, byte_arrays(*(value.encode() for value in values)))
    assert found["c"].type == pa.string()
    assert found["c"].to_pylist() == values
    within = byte_arrays(b"\xff", "é".encode(), b"\xff")[1:2]  # what is not shown does not matter
    assert chunks_of(node, within)["c"].to_pylist() == ["é"]


@pytest.mark.usefixtures("small_offsets")
def test_large_text_beside_text_that_is_not_utf8() -> None:
    much = byte_arrays(b"x" * 100, b"y" * 100)
    found = chunks_of(leaf(Type.BYTE_ARRAY, logical.STRING), much, byte_arrays(b"\xff"))
    assert found["c"].type == pa.large_binary()
    assert found["c"].to_pylist() == [b"x" * 100, b"y" * 100, b"\xff"]


def test_decimals_that_128_bits_do_not_hold_come_as_wider_ones() -> None:
    # parquet_logical_types_simple.parquet of Drill has such, in a column of 20 digits.
    digits = rows(b"12345678901234567890", b"\xff" * 19 + b"\x0f")
    found = chunks_of(leaf(Type.FIXED_LEN_BYTE_ARRAY, Decimal(20, 2), 20), rows(b"\xff" * 20, bytes(20)), digits)
    assert found["c"].type == pa.decimal256(76, 2)
    unscaled = [-1, 0, int.from_bytes(b"12345678901234567890"), -241]
    assert found["c"].to_pylist() == [Number(f"{value}E-2") for value in unscaled]


@pytest.mark.parametrize(
    ("node", "values", "expected"),
    [
        (leaf(Type.BOOLEAN), np.array([True, False]), [True, False]),
        (leaf(Type.INT32), np.array([1, -2], "<i4"), [1, -2]),
        (leaf(Type.DOUBLE), np.array([1.5, 2.5]), [1.5, 2.5]),
        (leaf(Type.BYTE_ARRAY), byte_arrays(b"a", b""), [b"a", b""]),
        (leaf(Type.FIXED_LEN_BYTE_ARRAY, length=2), rows(b"ab", b"cd"), [b"ab", b"cd"]),
        (
            leaf(Type.INT96),
            rows(since_1970(0), since_1970(DAY)),
            [dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 2)],
        ),
    ],
    ids=lambda value: value.physical_type.name if isinstance(value, Primitive) else "",
)
def test_values_under_the_annotation_of_nulls_are_what_they_are_without_it(
    node: Primitive, values: Any, expected: list[Any]
) -> None:
    node = replace(node, repetition=OPTIONAL, logical=logical.UNKNOWN)
    nulls = {"values": values, "present": [False, False]}
    assert chunks_of(node, nulls, nulls)["c"].type == pa.null()
    assert chunks_of(node, nulls, values, nulls)["c"].to_pylist() == [None, None, *expected, None, None]


def test_fixed_length_values_of_no_bytes() -> None:
    # all_nulls_no_booleans.parquet of DuckDB has such a column.
    node = leaf(Type.FIXED_LEN_BYTE_ARRAY, length=0, repetition=OPTIONAL)
    found = chunks_of(node, {"values": np.zeros((3, 0), np.uint8), "present": [True, False, True]})
    assert found["c"].type == pa.binary()
    assert found["c"].to_pylist() == [b"", None, b""]
    decimals = replace(node, logical=Decimal(3, 1))
    assert chunks_of(decimals, np.zeros((2, 0), np.uint8))["c"].to_pylist() == [Number("0.0")] * 2


def test_a_stored_size_beyond_all_measure_takes_no_memory() -> None:
    huge = Field("c", f"+w:{2**31 - 1}", True, (Field("element", "i"),))
    array = assembled(LIST, list_leaf(None, None), field=huge)
    assert array.type == pa.list_(pa.field("element", pa.int32()))
    assert array.to_pylist() == [None, None]


@pytest.fixture
def small_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of eight bits instead of 32, so that a few bytes are too many."""
    monkeypatch.setattr(leaf_arrays, "MAX_SMALL_OFFSET", 2**7 - 1)


@pytest.mark.usefixtures("small_offsets")
def test_more_text_than_small_offsets_reach_comes_as_large_text() -> None:
    node = leaf(Type.BYTE_ARRAY, logical.STRING, repetition=OPTIONAL)
    field = arrow_field_of(node)
    little = columns_of(node, {"values": byte_arrays(b"a", b""), "present": [True, False]})
    much = columns_of(node, {"values": byte_arrays(b"x" * 100, b"y" * 100)})
    found = pa.table(Table([field], [[to_arrow(field, branch_of(node), part)] for part in (little, much, little)], 6))
    found.validate(full=True)
    assert found.schema.field("c").type == pa.large_string()
    assert found["c"].to_pylist() == ["a", None, "x" * 100, "y" * 100, "a", None]


@pytest.mark.usefixtures("small_offsets")
def test_large_offsets_over_little_text_are_made_small() -> None:
    values = byte_arrays(b"x" * 100, b"y" * 100, b"z" * 10)[1:]
    array = assembled(leaf(Type.BYTE_ARRAY), {"values": values})
    assert array.type == pa.binary()
    assert array.to_pylist() == [b"y" * 100, b"z" * 10]


@pytest.mark.usefixtures("small_offsets")
def test_everything_around_a_large_array_follows_it() -> None:
    """Nested columns of every kind, one of whose chunks holds more than small offsets reach."""
    text = leaf(Type.BYTE_ARRAY, logical.STRING, name="t")
    others = (
        leaf(Type.BOOLEAN, repetition=OPTIONAL, name="b"),
        leaf(Type.FIXED_LEN_BYTE_ARRAY, Decimal(4, 0), 2, name="d"),
        leaf(Type.INT32, logical.UNKNOWN, repetition=OPTIONAL, name="n"),
        leaf(Type.INT32, name="i"),
    )
    node = Group("c", REPEATED, (text, *others))
    field = arrow_field_of(node)

    def chunk(length: int, size: int) -> Any:
        shared = {"repetition": [0, *[1] * (length - 1)], "num_rows": 1}
        known = {**shared, "definition": [1] * length}
        nulls = [at % 2 == 0 for at in range(length)]
        leaves = (
            {**known, "values": byte_arrays(*(b"x" * size for _ in range(length)))},
            {
                **shared,
                "values": np.ones(length, np.bool_),
                "present": nulls,
                "definition": [1 + n for n in nulls],
            },
            {**known, "values": rows(*(b"\x00\x07" for _ in range(length)))},
            {**known, "values": np.zeros(length, "<i4"), "present": [False] * length},
            {**known, "values": np.arange(length, dtype="<i4")},
        )
        return to_arrow(field, branch_of(node), columns_of(node, *leaves))

    def expected(length: int, size: int) -> list[dict[str, Any]]:
        return [
            {"t": "x" * size, "b": True if at % 2 == 0 else None, "d": Number(7), "n": None, "i": at}
            for at in range(length)
        ]

    table = Table([field], [[chunk(2, 1)], [chunk(3, 100)], [chunk(200, 0)]], 3)
    found = pa.table(table)
    found.validate(full=True)
    element = found.schema.field("c").type.value_type
    assert pa.types.is_large_list(found.schema.field("c").type)
    assert element.field("t").type == pa.large_string()
    assert found["c"].to_pylist() == [expected(2, 1), expected(3, 100), expected(200, 0)]
    assert pa.table(table.slice(1, 1))["c"].to_pylist() == [expected(3, 100)]


@pytest.mark.usefixtures("small_offsets")
def test_fixed_size_lists_and_maps_around_large_text() -> None:
    text = leaf(Type.BYTE_ARRAY, logical.STRING, name="element")
    node = Group("c", OPTIONAL, (Group("list", REPEATED, (text,)),), logical.LIST)
    field = Field("c", "+w:2", True, (Field("element", "u", False),))

    def chunk(size: int) -> Any:
        given = {
            "values": byte_arrays(b"x" * size, b"y"),
            "definition": [2, 2, 0],
            "repetition": [0, 1, 0],
            "num_rows": 2,
        }
        return to_arrow(field, branch_of(node), columns_of(node, given))

    found = pa.table(Table([field], [[chunk(1)], [chunk(200)]], 4))
    found.validate(full=True)
    assert found.schema.field("c").type == pa.list_(pa.field("element", pa.large_string(), False), 2)
    assert found["c"].to_pylist() == [["x", "y"], None, ["x" * 200, "y"], None]

    pair = Group("key_value", REPEATED, (leaf(Type.BYTE_ARRAY, logical.STRING, name="key"), INT))
    map_node = Group("c", OPTIONAL, (pair,), logical.MAP)
    map_field = arrow_field_of(map_node)

    def entries(size: int, count: int = 1) -> Any:
        shared = {"definition": [2] * count + [0], "repetition": [0, *[1] * (count - 1), 0], "num_rows": 2}
        keys = {**shared, "values": byte_arrays(*(b"k" * size for _ in range(count)))}
        values = {**shared, "values": np.arange(count, dtype="<i4")}
        return to_arrow(map_field, branch_of(map_node), columns_of(map_node, keys, values))

    found = pa.table(Table([map_field], [[entries(1)], [entries(200)]], 4))
    found.validate(full=True)
    assert found["c"].to_pylist() == [[("k", 0)], None, [("k" * 200, 0)], None]
    with pytest.raises(FormatError, match="200 entries are too many for one Arrow map array"):
        entries(0, 200)
