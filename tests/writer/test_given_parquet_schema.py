"""Files of a Parquet schema that was given: kept as it is, whatever comes as rows."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import resilient_pq as rpq
from resilient_pq.errors import SchemaError, UnsupportedError
from resilient_pq.io.memory_store import MemoryStore


async def _read(store: MemoryStore, key: str = "file") -> tuple[rpq.Schema, Any]:
    async with rpq.open((store, key)) as file:
        return file.schema, await file.read()


async def _write(store: MemoryStore, schema: Any, *rows: object, key: str = "file") -> None:
    async with rpq.create((store, key), schema) as writer:
        for each in rows:
            await writer.write(each)


CARRIERS = """message carriers {
  optional int32 small (DECIMAL(9,2));
  optional int64 middle (DECIMAL(9,2));
  optional binary free (DECIMAL(9,2));
  optional fixed_len_byte_array(4) tight (DECIMAL(9,2));
  optional fixed_len_byte_array(9) loose (DECIMAL(9,2));
  optional fixed_len_byte_array(20) long (DECIMAL(9,2));
}"""


@pytest.mark.parametrize("bits", [32, 64, 128, 256])
async def test_decimals_of_any_width_into_any_carrier(store: MemoryStore, bits: int) -> None:
    kind = getattr(pa, f"decimal{bits}")(9, 2)
    texts = ["9999999.99", "-9999999.99", "0.00", None, "-0.01", "1.27", "1.28", "-1.28", "-1.29", "327.68"]
    values = [None if text is None else decimal.Decimal(text) for text in texts]
    schema = rpq.Schema.parse(CARRIERS)
    table = pa.table({name: pa.array(values, kind) for name in schema.names})
    await _write(store, schema, table)
    found_schema, found = await _read(store)
    assert found_schema == schema
    assert found.to_pydict() == dict.fromkeys(schema.names, values)


async def test_a_decimal_that_its_carrier_has_no_room_for(store: MemoryStore) -> None:
    schema = rpq.Schema.parse("message m { optional int32 d (DECIMAL(9,0)); }")
    # Arrow checks no precision: ten digits in a decimal of nine.
    wide = pa.array([1, 2**31], pa.decimal128(19, 0)).view(pa.binary(16))
    array = pa.Array.from_buffers(pa.decimal128(9, 0), 2, wide.buffers())
    with pytest.raises(SchemaError, match="'d', row 1: a decimal has more digits than its type"):
        await _write(store, schema, pa.table({"d": array}))


async def test_old_nanoseconds(store: MemoryStore, table_of: Callable[..., Any]) -> None:
    counts = [0, 1, -1, 2**63 - 1, -(2**63), None, 86_400 * 10**9 - 1, -86_400 * 10**9]
    schema = rpq.Schema.parse("message m { optional int96 t; repeated int96 ts; }")
    moments = pa.array(counts, pa.int64()).cast(pa.timestamp("ns"))
    lists = pa.array([[], *[[0]] * 7], pa.list_(pa.timestamp("ns")))
    await _write(store, schema, pa.table({"t": moments, "ts": lists}))
    found_schema, found = await _read(store)
    assert found_schema == schema
    assert pa.table(found)["t"].cast(pa.int64()).to_pylist() == counts
    theirs = await table_of(store)
    assert theirs["t"].combine_chunks() == moments and theirs["ts"].to_pylist() == lists.to_pylist()


async def test_old_nanoseconds_below_a_group_that_is_null(store: MemoryStore) -> None:
    schema = rpq.Schema.parse("message m { optional group g { required int96 t; } }")
    records = [{"g": None}, {"g": {"t": dt.datetime(2020, 1, 2, 3, 4, 5, 6)}}]
    await _write(store, schema, records)
    _, found = await _read(store)
    assert found.to_pylist() == records


async def test_annotations_that_arrow_does_not_know(store: MemoryStore) -> None:
    schema = rpq.Schema.parse(
        """message m {
          required binary kind (ENUM);
          required binary data (JSON);
          optional binary more (BSON);
          required fixed_len_byte_array(16) id (UUID);
          required fixed_len_byte_array(12) span (INTERVAL);
          required int32 clock (TIME(MILLIS,true)) = 7;
          optional binary place (GEOMETRY);
        }"""
    )
    record = {
        "kind": "a", "data": "{}", "more": b"\x05\0\0\0\0", "id": uuid.UUID(int=7), "span": bytes(12),
        "clock": dt.time(1, 2, 3), "place": b"\1\1\0\0\0" + np.array([1.0, 2.0]).tobytes(),
    }  # fmt: skip
    await _write(store, schema, [record, {**record, "more": None, "place": None}])
    found_schema, found = await _read(store)
    assert found_schema == schema
    record["span"] = (0, 0, 0)
    assert found.to_pylist() == [record, {**record, "more": None, "place": None}]


async def test_the_schema_of_another_file(store: MemoryStore) -> None:
    """A copy of a file: its schema and its rows, whatever the rows come as."""
    schema = rpq.Schema.parse(
        """message m {
          optional group words (LIST) { repeated binary array (STRING); }
          repeated group pairs { required int32 a; optional int64 b (TIMESTAMP(NANOS,true)); }
          optional group map (MAP) { repeated group map { required binary key (STRING); optional int32 value; } }
          optional group odd (MAP) { repeated group map { optional binary key (STRING); required int32 value; } }
        }"""
    )
    records = [
        {"words": ["a", "b"], "pairs": [{"a": 1, "b": None}], "map": [("k", 1)], "odd": [{"key": None, "value": 2}]},
        {"words": None, "pairs": [], "map": None, "odd": None},
        {"words": [], "pairs": [{"a": 1, "b": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}] * 2, "map": [], "odd": []},
    ]  # fmt: skip
    await _write(store, schema, records)
    async with rpq.open((store, "file")) as file:
        table = await file.read()
        assert file.schema == schema and table.to_pylist() == records
        await _write(store, file.schema, table, key="copy")
        await _write(store, file.schema, table.to_pylist(), key="records")
        await _write(store, file.schema, table.to_pydict(), key="columns")
    for key in ("copy", "records", "columns"):
        found_schema, found = await _read(store, key)
        assert found_schema == schema and found.to_pylist() == records, key


async def test_arrow_data_of_other_forms_into_repeated_fields(store: MemoryStore) -> None:
    schema = rpq.Schema.parse("message m { repeated binary s (STRING); repeated group g { required int32 x; } }")
    strings = pa.array([["a"], [], ["b", "c"]], pa.large_list(pa.field("item", pa.dictionary(pa.int8(), pa.string()))))
    groups = pa.array([[{"x": 1}], [{"x": 2}], [{"x": 3}]], pa.list_(pa.struct({"x": pa.int32()}), 1))
    await _write(store, schema, pa.table({"s": strings, "g": groups}))
    _, found = await _read(store)
    assert found.to_pydict() == {"s": strings.to_pylist(), "g": groups.to_pylist()}


async def test_what_records_leave_out(store: MemoryStore) -> None:
    schema = rpq.Schema.parse(
        "message m { repeated int32 many; optional group one { repeated int32 deep; optional int32 x; } }"
    )
    await _write(store, schema, [{}, {"one": {}}, {"one": None, "many": [1]}])
    _, found = await _read(store)
    assert found.to_pylist() == [
        {"many": [], "one": None},
        {"many": [], "one": {"deep": [], "x": None}},
        {"many": [1], "one": None},
    ]


LISTS = "message m { required int64 n; repeated int32 many; required group l (LIST) { repeated group list { required int32 element; } } }"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"n": 1, "l": [], "many": None}, "column 'many' may not be null, but row 0 is"),
        ({"n": 1, "l": [], "many": [1, None]}, "column 'many.element' may not be null, but row 0 is"),
        ({"n": 1}, "column 'l' may not be null, but row 0 is"),
        ({"l": []}, "column 'n' may not be null, but row 0 is"),
        ({"n": 1, "l": [], "more": 1}, "record 0 has a key 'more'"),
        ({"n": 1, "l": [], "many": 5}, "column 'many': it is list<many: int32 not null>, but a value is 5"),
    ],
)
async def test_records_that_do_not_fit(store: MemoryStore, row: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        await _write(store, rpq.Schema.parse(LISTS), [row])


async def test_arrow_nulls_in_a_repeated_field(store: MemoryStore) -> None:
    schema = rpq.Schema.parse("message m { repeated group g { repeated int32 x; } }")
    for nulls in (pa.nulls(3), pa.array([[], None, []], pa.list_(pa.struct({"x": pa.list_(pa.int32())})))):
        with pytest.raises(SchemaError, match="'g' may not be null"):
            await _write(store, schema, pa.table({"g": nulls}))
    await _write(store, schema, pa.table({"g": pa.nulls(0)}), [{"g": [{"x": [1]}]}, {}])
    _, found = await _read(store)
    assert found.to_pylist() == [{"g": [{"x": [1]}]}, {"g": []}]


async def test_a_column_of_nulls_for_groups_of_repeated_fields(store: MemoryStore) -> None:
    schema = rpq.Schema.parse("message m { optional group g { repeated group h { required int32 x; } } }")
    await _write(store, schema, pa.table({"g": pa.nulls(2)}), [{"g": {"h": [{"x": 1}]}}])
    _, found = await _read(store)
    assert found.to_pylist() == [{"g": None}, {"g": None}, {"g": {"h": [{"x": 1}]}}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message m { required fixed_len_byte_array(0) nothing; }", "'nothing': values of no bytes"),
        ("message m { optional group empty { } }", "'empty': a group without children"),
    ],
)
async def test_schemas_that_cannot_be_written(store: MemoryStore, text: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        await _write(store, rpq.Schema.parse(text), [{}])


async def test_no_rows_at_all(store: MemoryStore) -> None:
    schema = rpq.Schema.parse(CARRIERS)
    await _write(store, schema)
    found_schema, found = await _read(store)
    assert found_schema == schema and found.num_rows == 0
