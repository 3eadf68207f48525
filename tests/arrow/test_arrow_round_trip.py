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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resilient_pq.arrow.table import Table

RoundTrip = Callable[..., Table]

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

_INTEGERS = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint8(): (0, 2**8 - 1),
    pa.uint16(): (0, 2**16 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.uint64(): (0, 2**64 - 1),
}
_INSTANTS = {
    # Whatever fits into the milliseconds, microseconds or nanoseconds that Parquet stores.
    "s": (-(2**63) // 1000 + 1, (2**63) // 1000 - 1),
    "ms": (-(2**63), 2**63 - 1),
    "us": (-(2**63), 2**63 - 1),
    "ns": (-(2**63), 2**63 - 1),
}


_NARROW_DECIMALS = ((pa.decimal32, 1), (pa.decimal32, 9), (pa.decimal64, 10), (pa.decimal64, 18))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    largest = 10**precision - 1
    context = decimal.Context(prec=100)
    return st.integers(-largest, largest).map(lambda n: decimal.Decimal(n).scaleb(-scale, context))


def _flat_types() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """A flat type and its values, integers standing for times."""
    text = st.text(max_size=20)
    octets = st.binary(max_size=20)
    choices: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
        (pa.null(), st.none()),
        (pa.bool_(), st.booleans()),
        *((kind, st.integers(*bounds)) for kind, bounds in _INTEGERS.items()),
        (pa.float16(), st.floats(width=16).map(np.float16)),
        (pa.float32(), st.floats(width=32)),
        (pa.float64(), st.floats()),
        *((kind, text) for kind in (pa.string(), pa.large_string(), pa.string_view())),
        *((kind, octets) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
        (pa.binary(5), st.binary(min_size=5, max_size=5)),
        (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
        (pa.date64(), st.integers(-(2**31), 2**31 - 1).map(lambda days: days * 86_400_000)),
        (pa.time32("s"), st.integers(0, 86_399)),
        (pa.time32("ms"), st.integers(0, 86_399_999)),
        (pa.time64("us"), st.integers(0, 86_399_999_999)),
        (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
        *((pa.timestamp(unit), st.integers(*bounds)) for unit, bounds in _INSTANTS.items()),
        *((pa.timestamp(unit, "Europe/Berlin"), st.integers(*bounds)) for unit, bounds in _INSTANTS.items()),
        *((pa.duration(unit), st.integers(-(2**63), 2**63 - 1)) for unit in _INSTANTS),
        *((pa.decimal128(p, s), _decimals(p, s)) for p, s in ((1, 0), (9, 2), (18, 18), (38, 10))),
        *((pa.decimal256(p, s), _decimals(p, s)) for p, s in ((20, 3), (39, 0), (76, 38))),
        (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "bb", "", "a longer value"])),
        (pa.dictionary(pa.uint32(), pa.large_binary()), st.sampled_from([b"a", b"\xff"])),
        (pa.dictionary(pa.int64(), pa.timestamp("us", "UTC")), st.integers(0, 3)),
        (pa.dictionary(pa.uint64(), pa.large_string()), st.sampled_from(["a", "b", "c"])),
        (pa.dictionary(pa.int16(), pa.int64(), ordered=True), st.integers(0, 3)),
        *((kind(precision, 1), _decimals(precision, 1)) for kind, precision in _NARROW_DECIMALS),
    ]
    return st.sampled_from(choices)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of `values`; times are made from their integers, which reach further than Python's types."""
    if pa.types.is_dictionary(kind):
        encoded = _array(values, kind.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            encoded.indices.cast(kind.index_type), encoded.dictionary, ordered=kind.ordered
        )
    if pa.types.is_time32(kind) or pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)


@st.composite
def flat_columns(draw: st.DrawFn, length: int) -> tuple[pa.Field, pa.ChunkedArray]:
    """A column of `length` rows, cut out of larger arrays, in one chunk or several."""
    kind, values = draw(_flat_types())
    nullable = kind == pa.null() or draw(st.booleans())
    slots = st.lists(st.one_of(st.none(), values) if nullable else values, min_size=length, max_size=length)
    whole = draw(slots)
    # What stands before and behind a slice must not leak in.
    margin = draw(st.lists(values, min_size=1, max_size=9))
    cut = draw(st.integers(0, length))
    chunks = [
        _array([*margin, *piece, *margin], kind).slice(len(margin), len(piece)) for piece in (whole[:cut], whole[cut:])
    ]
    return pa.field("c", kind, nullable), pa.chunked_array(chunks, kind)


@st.composite
def flat_tables(draw: st.DrawFn) -> pa.Table:
    length = draw(st.integers(0, 40))
    columns = draw(st.lists(flat_columns(length), min_size=1, max_size=4))
    fields = [field.with_name(f"c{at}") for at, (field, _) in enumerate(columns)]
    return pa.table([column for _, column in columns], schema=pa.schema(fields))


def _bits(array: pa.ChunkedArray) -> pa.ChunkedArray:
    """NaN equals nothing: compare floats by their bits, nulls kept; dictionaries by the values that are meant."""
    if pa.types.is_dictionary(array.type):
        return pa.chunked_array([chunk.dictionary_decode() for chunk in array.chunks], array.type.value_type)
    kinds = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    if array.type not in kinds:
        return array
    return pa.chunked_array([chunk.view(kinds[array.type]) for chunk in array.chunks], kinds[array.type])


def _assert_equal(table: Table, expected: pa.Table) -> None:
    """Equal values of the types that are expected back; every array passes pyarrow's full validation."""
    found = pa.table(table)
    found.validate(full=True)
    assert found.schema.equals(expected.schema)
    for name in expected.column_names:
        assert _bits(found[name]).equals(_bits(expected[name])), name


@given(flat_tables())
@settings(quick, max_examples=150)
def test_flat_columns_of_every_type(round_trip: RoundTrip, table: pa.Table) -> None:
    _assert_equal(round_trip(table), table)


@given(flat_tables(), st.integers(0, 40), st.integers(0, 40))
@quick
def test_slices_of_tables(round_trip: RoundTrip, table: pa.Table, offset: int, length: int) -> None:
    _assert_equal(round_trip(table.slice(offset, length)), table.slice(offset, length))


@given(flat_tables(), st.integers(1, 300))
@quick
def test_batches_cut_anywhere(round_trip: RoundTrip, table: pa.Table, batch_bytes: int) -> None:
    _assert_equal(round_trip(table, batch_bytes=batch_bytes), table)


def _nested_types() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """Nested types and their values as Python objects."""
    leaves = st.sampled_from(
        [
            (pa.int32(), st.integers(-5, 5)),
            (pa.string(), st.text(max_size=3)),
            (pa.bool_(), st.booleans()),
            (pa.decimal128(5, 2), _decimals(5, 2)),
        ]
    )

    def deeper(
        inner: st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]],
    ) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
        return st.one_of(
            inner.flatmap(_list_of),
            inner.flatmap(_fixed_size_list_of),
            inner.flatmap(_map_of),
            _struct_of(inner),
        )

    return st.recursive(leaves, deeper, max_leaves=4)


_LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


def _list_of(
    inner: tuple[pa.DataType, st.SearchStrategy[Any]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    kind, values = inner

    def make(choice: tuple[Any, bool]) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
        maker, nullable = choice
        element = st.one_of(st.none(), values) if nullable else values
        return maker(pa.field("item", kind, nullable)), st.lists(element, max_size=3)

    return st.tuples(st.sampled_from(_LISTS), st.booleans()).map(make)


def _fixed_size_list_of(
    inner: tuple[pa.DataType, st.SearchStrategy[Any]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    kind, values = inner

    def make(size: int) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
        return pa.list_(kind, size), st.lists(st.one_of(st.none(), values), min_size=size, max_size=size)

    return st.integers(1, 3).map(make)


def _map_of(
    inner: tuple[pa.DataType, st.SearchStrategy[Any]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    kind, values = inner
    entry = st.tuples(st.text(max_size=2), st.one_of(st.none(), values))
    return st.just((pa.map_(pa.string(), kind), st.lists(entry, max_size=3)))


def _struct_of(
    inner: st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    def make(
        fields: list[tuple[tuple[pa.DataType, st.SearchStrategy[Any]], bool]],
    ) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
        kind = pa.struct([pa.field(f"f{at}", kind, nullable) for at, ((kind, _), nullable) in enumerate(fields)])
        values = {
            f"f{at}": st.one_of(st.none(), values) if nullable else values
            for at, ((_, values), nullable) in enumerate(fields)
        }
        return kind, st.fixed_dictionaries(values)

    return st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=2).map(make)


@st.composite
def nested_tables(draw: st.DrawFn) -> pa.Table:
    kind, values = draw(_nested_types())
    nullable = draw(st.booleans())
    rows = draw(st.lists(st.one_of(st.none(), values) if nullable else values, max_size=8))
    before, behind = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    array = pa.array(rows, kind)
    inside = array.slice(min(before, len(rows)), max(len(rows) - before - behind, 0))
    return pa.table([inside], schema=pa.schema([pa.field("c", kind, nullable)]))


@given(nested_tables())
@settings(quick, max_examples=150)
def test_nested_columns(round_trip: RoundTrip, table: pa.Table) -> None:
    found = pa.table(round_trip(table))
    found.validate(full=True)
    assert found.schema.equals(table.schema)
    assert found.to_pylist() == table.to_pylist()


@given(nested_tables(), st.integers(1, 60))
@quick
def test_nested_columns_in_small_batches(round_trip: RoundTrip, table: pa.Table, batch_bytes: int) -> None:
    found = pa.table(round_trip(table, batch_bytes=batch_bytes))
    found.validate(full=True)
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
