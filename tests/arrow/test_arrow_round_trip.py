"""Arrow data of every type and maker goes through leaves and comes back equal, pyarrow being the witness."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resilient_pq.arrow.table import Table

RoundTrip = Callable[..., Table]

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

#: Types that no other writer takes, and indices of every width.
LEAVES = [
    (pa.dictionary(pa.uint32(), pa.large_binary()), st.sampled_from([b"a", b"\xff"])),
    (pa.dictionary(pa.int64(), pa.timestamp("us", "UTC")), st.integers(0, 3)),
    (pa.dictionary(pa.uint64(), pa.large_string()), st.sampled_from(["a", "b", "c"])),
    (pa.dictionary(pa.int16(), pa.int64(), ordered=True), st.integers(0, 3)),
]


@given(draw=st.data())
@settings(quick, max_examples=150)
def test_columns_of_every_type(round_trip: RoundTrip, tables: Any, assert_same: Any, draw: st.DataObject) -> None:
    table = draw.draw(tables(40, max_columns=4) | tables(40, depth=1, leaves=LEAVES))
    found = pa.table(round_trip(table))
    found.validate(full=True)
    assert_same(found, table)


@given(draw=st.data())
@quick
def test_slices_in_batches_cut_anywhere(
    round_trip: RoundTrip, tables: Any, assert_same: Any, draw: st.DataObject
) -> None:
    table = draw.draw(tables(40)).slice(draw.draw(st.integers(0, 40)), draw.draw(st.integers(0, 40)))
    found = pa.table(round_trip(table, batch_bytes=draw.draw(st.integers(1, 300))))
    found.validate(full=True)
    assert_same(found, table)


@pytest.mark.parametrize("form", [pa.list_view, pa.large_list_view], ids=lambda form: form.__name__)
@given(draw=st.data())
@quick
def test_list_views(round_trip: RoundTrip, draw: st.DataObject, form: Any) -> None:
    """In lists and structs, too, and of elements in any order."""
    texts = pa.array(draw.draw(st.lists(st.none() | st.text(max_size=3), min_size=4, max_size=8)))
    places = draw.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=8))
    offsets, sizes, nulls = zip(*places, strict=True) if places else ((), (), ())
    width = pa.int32() if form is pa.list_view else pa.int64()
    array_of = pa.ListViewArray if form is pa.list_view else pa.LargeListViewArray
    views = array_of.from_arrays(
        pa.array(offsets, width), pa.array(sizes, width), texts, form(texts.type), mask=pa.array(nulls, pa.bool_())
    )
    ends = pa.array(range(len(views) + 1), pa.int32())
    inside = pa.StructArray.from_arrays([pa.ListArray.from_arrays(ends, views)], names=["lists"])
    table = pa.table({"views": views, "inside": inside})
    found = pa.table(round_trip(table, batch_bytes=draw.draw(st.integers(1, 300))))
    found.validate(full=True)
    assert found.schema.equals(table.schema)
    assert found.to_pylist() == table.to_pylist()


def test_garbage_below_null_slots_never_matters(round_trip: RoundTrip) -> None:
    valid = pa.py_buffer(b"\x05")  # slots 0 and 2 of 3
    seconds = pa.Array.from_buffers(pa.timestamp("s"), 3, [valid, pa.py_buffer(np.array([1, 2**62, 3], "<i8"))])
    indices = pa.Array.from_buffers(pa.int8(), 3, [valid, pa.py_buffer(np.array([0, 99, 1], "i1"))])
    coded = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)
    inner = pa.Array.from_buffers(pa.int32(), 3, [None, pa.py_buffer(np.array([7, -1, 8], "<i4"))])
    struct = pa.StructArray.from_buffers(pa.struct([pa.field("x", pa.int32(), False)]), 3, [valid], children=[inner])
    found = round_trip(pa.table({"t": seconds, "d": coded, "s": struct}))
    assert pa.table(found).to_pydict() == {
        "t": [dt.datetime(1970, 1, 1, 0, 0, 1), None, dt.datetime(1970, 1, 1, 0, 0, 3)],
        "d": ["a", None, "b"],
        "s": [{"x": 7}, None, {"x": 8}],
    }


def test_a_required_dictionary_without_values_below_a_null(round_trip: RoundTrip) -> None:
    dictionary = pa.DictionaryArray.from_arrays(pa.array([None], pa.int8()), pa.array([], pa.string()))
    element = pa.StructArray.from_arrays(
        [dictionary], fields=[pa.field("a", dictionary.type, nullable=False)], mask=pa.array([True])
    )
    column = pa.FixedSizeListArray.from_arrays(element, type=pa.list_(pa.field("element", element.type), 1))
    found = pa.table(round_trip(pa.table({"c": pa.StructArray.from_arrays([column], names=["b"])})))
    found.validate(full=True)
    assert found.column("c").to_pylist() == [{"b": [None]}]


def test_dictionaries_with_nulls_among_their_values(round_trip: RoundTrip) -> None:
    values = pa.array(["a", None, "c"])
    array = pa.DictionaryArray.from_arrays(pa.array([2, 1, None, 0, 1], pa.uint16()), values)
    assert pa.table(round_trip(pa.table({"c": array})))["c"].to_pylist() == ["c", None, None, "a", None]


def test_views_out_of_several_buffers(round_trip: RoundTrip) -> None:
    text = ["short", "this one is longer than twelve bytes", None, "", "exactly 12 b"]
    chunks = [pl.Series("s", text, pl.String), pl.Series("s", [value and value * 2 for value in text])]
    series = pl.concat(chunks, rechunk=True).gather([9, 1, 0, 6, 5, 2, 3, 4, 8, 7])
    frame = pl.DataFrame({"s": series})
    assert pa.table(round_trip(frame))["s"].to_pylist() == series.to_list()


def test_polars(round_trip: RoundTrip) -> None:
    frame = pl.DataFrame(
        {
            "text": ["a", None, "a text that is not inlined in its view"],
            "category": pl.Series(["x", None, "x"], dtype=pl.Categorical),
            "enum": pl.Series(["lo", "hi", None], dtype=pl.Enum(["lo", "hi"])),
            "binary": [b"\x00", b"", None],
            "date": [dt.date(1969, 12, 31), None, dt.date(2024, 2, 29)],
            "instant": pl.Series([dt.datetime(2024, 1, 1), None, None], dtype=pl.Datetime("ns", "UTC")),
            "time": [dt.time(23, 59, 59, 999_999), None, dt.time(0)],
            "duration": [dt.timedelta(days=-1), None, dt.timedelta(microseconds=1)],
            "decimal": pl.Series(["1.50", None, "-99.99"]).cast(pl.Decimal(4, 2)),
            "small": pl.Series([1, None, 255], dtype=pl.UInt8),
            "list": [[1, None], None, []],
            "array": pl.Series([[1.5, 2.5], None, [0.0, -0.0]], dtype=pl.Array(pl.Float32, 2)),
            "struct": [{"a": 1, "b": ["x"]}, {"a": None, "b": []}, None],
        }
    )
    found = round_trip(frame)
    back = found.to_polars()
    # Categories and enums are text in the file.
    assert back.equals(frame.cast({"category": pl.String, "enum": pl.String}))
    assert back.schema["instant"] == pl.Datetime("ns", "UTC")
    assert back.schema["array"] == pl.Array(pl.Float32, 2)


def test_polars_slices_and_filters(round_trip: RoundTrip) -> None:
    frame = pl.DataFrame({"n": range(1000), "s": [f"value number {i}" if i % 3 else None for i in range(1000)]})
    part = frame.filter(pl.col("n") % 7 == 0)[10:90]
    assert round_trip(part).to_polars().equals(part)


def test_duckdb(round_trip: RoundTrip) -> None:
    query = """
        select i::integer as n, case when i % 3 = 0 then null else 'text ' || i end as s, i::decimal(9, 2) as d,
               timestamp '2024-01-01' + interval (i) second as t, timestamptz '2024-01-01 00:00:00+00' as z,
               date '2024-01-01' + i::integer as day, [i, null] as l, {'a': i, 'b': [i::varchar]} as st,
               map {'k': i} as m, (i % 2 = 0) as b, 'x'::enum('x', 'y') as e, i::hugeint as h, '\\xAA'::blob as o
        from range(3000) as r(i)
    """
    expected = duckdb.sql(query).to_arrow_table()
    found = pa.table(round_trip(duckdb.sql(query)))
    assert found.num_rows == 3000
    assert found.drop_columns("e").to_pylist() == expected.drop_columns("e").to_pylist()
    assert set(found["e"].to_pylist()) == {"x"}


def test_pandas(round_trip: RoundTrip) -> None:
    frame = pd.DataFrame(
        {
            "n": [1, 2, 3],
            "f": [0.5, None, -0.0],
            "s": ["a", None, "c"],
            "t": pd.to_datetime(["2024-01-01", None, "2024-01-03"]),
            "c": pd.Categorical(["x", "y", "x"]),
        },
        index=pd.Index([10, 20, 30], name="key"),
    )
    back = round_trip(frame).to_pandas()
    # pandas' own metadata came along, and with it the index.
    pd.testing.assert_frame_equal(back, frame)


def test_dict_of_columns(round_trip: RoundTrip) -> None:
    found = round_trip(
        {
            "list": [1, None, 3],
            "numpy": np.array([1.5, np.nan, -2], np.float32),
            "masked": np.ma.MaskedArray([1, 2, 3], [False, True, False], np.uint16),
            "datetime": np.array(["2024-01-01", "NaT", "2024-01-03"], "M8[ms]"),
            "text": np.array(["a", "bc", ""]),
            "arrow": pa.array([b"x", None, b"z"]),
            "chunked": pa.chunked_array([["a"], ["b", "c"]]),
            "decimal": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("-9.9")], pa.decimal64(2, 1)),
            "polars": pl.Series([True, None, False]),
            "pandas": pd.Series([1, 2, 3], dtype="int8"),
            "range": range(3),
        }
    )
    columns = pa.table(found).to_pydict()
    assert np.isnan(columns.pop("numpy")[1])
    assert columns == {
        "list": [1, None, 3],
        "masked": [1, None, 3],
        "datetime": [dt.datetime(2024, 1, 1), None, dt.datetime(2024, 1, 3)],
        "text": ["a", "bc", ""],
        "arrow": [b"x", None, b"z"],
        "chunked": ["a", "b", "c"],
        "decimal": [decimal.Decimal("1.5"), None, decimal.Decimal("-9.9")],
        "polars": [True, None, False],
        "pandas": [1, 2, 3],
        "range": [0, 1, 2],
    }
    assert pa.schema(found).field("masked").type == pa.uint16()


def test_records(round_trip: RoundTrip) -> None:
    records = [
        {"id": 1, "when": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "tags": ["a"], "at": {"x": 1.5}},
        {"id": 2, "price": decimal.Decimal("1.25"), "day": dt.date(2024, 1, 1), "tags": []},
        {
            "id": 3,
            "took": dt.timedelta(seconds=1),
            "clock": dt.time(1, 2, 3),
            "raw": b"\xff",
            "at": {"y": True},
        },
    ]
    names = list(dict.fromkeys(key for record in records for key in record))
    expected = [{name: record.get(name) for name in names} for record in records]
    expected[0]["at"] = {"x": 1.5, "y": None}
    expected[2]["at"] = {"x": None, "y": True}
    assert pa.table(round_trip(records)).to_pylist() == expected


def test_a_table_without_columns_keeps_its_rows(round_trip: RoundTrip) -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}, {}, {}], pa.struct([])))
    found = round_trip(batch)
    assert (len(found), found.num_columns, found.column_names) == (3, 0, [])
    assert found.to_pylist() == [{}, {}, {}]


def test_streams_are_read_once_and_in_order(round_trip: RoundTrip) -> None:
    batches = [pa.record_batch({"n": [i, i + 1]}) for i in range(0, 10, 2)]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches))
    assert pa.table(round_trip(reader))["n"].to_pylist() == list(range(10))
