"""Types come back as they were: any table of pyarrow, Polars or pandas has an equal schema and equal values."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from polars.testing.parametric import dataframes

from resilient_pq import ReadOptions
from resilient_pq import sync as rpq
from resilient_pq.io.memory_store import MemoryStore

#: Polars' own, for which Parquet has no form: integers of 128 bits, and structs without fields among the others.
_NOT_IN_PARQUET = [pl.Int128, pl.UInt128, pl.Object, pl.Unknown]

Column = Callable[[np.random.Generator, int], Any]


@given(
    frame=dataframes(max_cols=4, max_size=12, excluded_dtypes=_NOT_IN_PARQUET, allow_time_zones=True),
    row_group_rows=st.sampled_from([3, 100]),
)
@settings(max_examples=60)
def test_any_frame_of_polars(frame: pl.DataFrame, row_group_rows: int) -> None:
    place = (MemoryStore(), "frame.parquet")
    rpq.write(place, frame, row_group_rows=row_group_rows)
    found = rpq.read(place).to_polars()
    assert found.schema == frame.schema
    assert_frame_equal(found, frame)
    with rpq.scan(place) as scan:
        assert_frame_equal(scan.to_polars().collect(), frame)


def _categories(values: list[Any], *more: Any, ordered: bool = False) -> Column:
    """A categorical of some values, with categories in this order of which not all are used."""
    kind = pd.CategoricalDtype([*more, *reversed(values)], ordered=ordered)

    def column(random: np.random.Generator, length: int) -> Any:
        return pd.Categorical.from_codes(random.integers(-1, len(kind.categories) - len(more), length), dtype=kind)

    return column


#: Columns of pandas, by what they are.
COLUMNS: dict[str, Column] = {
    "text": _categories(["a", "b", "c"], "unused"),
    "ordered": _categories(["low", "high", "higher"], "unused", ordered=True),
    "numbers": _categories([3, 1, 2], 77),
    "floats": _categories([0.5, -1.5, float("inf")]),
    "times": _categories(list(pd.to_datetime(["2026-01-01", "1999-12-31"])), pd.Timestamp("2000-01-01")),
    "spans": _categories(list(pd.to_timedelta([5, 1], "s"))),
    "many": _categories([f"category {number}" for number in range(400)]),
    "strings": lambda random, length: pd.array(random.choice(["a", "bc", ""], length), "string"),
    "integers": lambda random, length: pd.array(random.integers(0, 9, length), "Int16"),
    "zone": lambda random, length: pd.to_datetime(random.integers(0, 1 << 60, length), utc=True).tz_convert(
        "Asia/Tokyo"
    ),
    "period": lambda random, length: pd.period_range("2020-01", periods=length, freq="M"),
    "interval": lambda random, length: pd.interval_range(0, length),
}


@pytest.mark.parametrize("length", [0, 1, 50])
@pytest.mark.parametrize("row_group_rows", [7, 1000])
def test_frames_of_pandas(length: int, row_group_rows: int) -> None:
    random = np.random.default_rng(length)
    place = (MemoryStore(), "frame.parquet")
    # Without rows there is no row group, which is where categories are.
    columns = {name: make(random, length) for name, make in COLUMNS.items() if length or name not in _CATEGORIES}
    frame = pd.DataFrame(columns)
    rpq.write(place, frame, row_group_rows=row_group_rows)
    pd.testing.assert_frame_equal(rpq.read(place).to_pandas(), frame)


_CATEGORIES = ("text", "ordered", "numbers", "floats", "times", "spans", "many")


def _dictionary(values: list[Any], indices: list[Any], *, ordered: bool = False) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(values), ordered=ordered)


#: Tables whose types Parquet does not have, or which few have.
TABLES = {
    "entries that are null or come twice": pa.table({"c": _dictionary(["a", None, "a", "b"], [0, 1, None, 2, 3, 0])}),
    "no entries": pa.table({"c": _dictionary([], [None, None])}).cast(
        pa.schema({"c": pa.dictionary(pa.int8(), pa.string())})
    ),
    "as many as the index tells apart": pa.table({"c": _dictionary([str(i) for i in range(128)], list(range(128)))}),
    "chunks with other entries": pa.table(
        {"c": pa.chunked_array([_dictionary(["a", "b"], [0, 1, 1]), _dictionary(["c", "b"], [0, None, 1])])}
    ),
    "in lists, structs and maps": pa.table(
        {
            "list": pa.ListArray.from_arrays([0, 2, 2, 3], _dictionary(["a", "b"], [1, None, 0], ordered=True)),
            "struct": pa.StructArray.from_arrays([_dictionary([1.5, 2.5], [1, 0, 0])], ["x"]),
            "map": pa.MapArray.from_arrays(
                [0, 1, 1, 3], _dictionary(["k", "l"], [0, 1, 0]), _dictionary([1], [0, None, 0])
            ),
            "array": pa.FixedSizeListArray.from_arrays(_dictionary(["a", "b"], [0, 1, None, 0, 1, 1]), 2),
        }
    ),
    "list views out of order": pa.table(
        {"c": pa.ListViewArray.from_arrays([4, 0, 0, 2], [1, 2, 0, 2], pa.array(["a", "b" * 20, None, "d", "e"]))}
    ),
    "list views of dictionaries": pa.table(
        {"c": pa.LargeListViewArray.from_arrays([1, 0], [2, 1], _dictionary(["a", "b"], [0, None, 1]))}
    ),
    "narrow decimals": pa.table(
        {
            "d32": pa.array([Decimal("-1.25"), None], pa.decimal32(9, 2)),
            "d64": pa.array([Decimal("1.25"), None], pa.decimal64(5, 2)),
            "entries": pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array([Decimal(1)], pa.decimal32(3, 0))),
        }
    ),
    "intervals": pa.table({"i": pa.array([pa.MonthDayNano([1, 2, 3_000_000]), None], pa.month_day_nano_interval())}),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("row_group_rows", [2, 100])
def test_tables_of_pyarrow(name: str, row_group_rows: int) -> None:
    table, place = TABLES[name], (MemoryStore(), "table.parquet")
    rpq.write(place, table, row_group_rows=row_group_rows)
    read = rpq.read(place)
    copied = pickle.loads(pickle.dumps(read.slice(1)))
    for found, expected in ((read, table), (read.slice(1), table.slice(1)), (copied, table.slice(1))):
        arrow = pa.table(found)
        arrow.validate(full=True)
        assert arrow.schema.equals(table.schema)
        assert arrow.to_pylist() == found.to_pylist() == expected.to_pylist()
    plain = pa.table(rpq.read(place, options=ReadOptions(restore_types=False)))
    assert plain.to_pylist() == table.to_pylist()
    assert not any(word in str(plain.schema) for word in ("dictionary", "view", "decimal32", "decimal64"))
    with rpq.open(place) as file:  # a stream has one type, which old versions of pyarrow know, too
        whole = pa.RecordBatchReader.from_stream(file.batches(1)).read_all()
    assert whole.to_pylist() == table.to_pylist()


def test_more_values_than_the_index_of_a_dictionary_tells_apart() -> None:
    """A row group joins the dictionaries of its batches: its indices are wider, in streams all are from the start."""
    chunks = [
        _dictionary([str(number) for number in range(first, first + 100)], list(range(100))) for first in (0, 100)
    ]
    table, place = pa.table({"c": pa.chunked_array(chunks)}), (MemoryStore(), "wide.parquet")
    rpq.write(place, table)
    wide = pa.dictionary(pa.int32(), pa.string())
    assert pa.table(rpq.read(place)).schema.field("c").type == wide
    with rpq.open(place) as file:
        streamed = pa.RecordBatchReader.from_stream(file.batches(60)).read_all()
    assert streamed.schema.field("c").type == wide and streamed.to_pylist() == table.to_pylist()
    with rpq.scan(place) as scan:
        assert scan.to_polars().collect()["c"].to_list() == table["c"].to_pylist()
        assert scan.to_duckdb().count("*").fetchall() == [(200,)]


def test_files_that_have_a_column_in_different_forms_are_read_as_one(tmp_path: Path) -> None:
    rpq.write(
        tmp_path / "0.parquet", pd.DataFrame({"c": pd.Categorical(["a", None, "b"]), "same": pd.Categorical([1, 2, 1])})
    )
    rpq.write(tmp_path / "1.parquet", pd.DataFrame({"c": ["x", None], "same": pd.Categorical([3, None])}))
    rpq.write(tmp_path / "2.parquet", pl.DataFrame({"c": ["y" * 20, None], "same": [4, 5]}).cast({"same": pl.Int64}))
    values = ["a", None, "b", "x", None, "y" * 20, None]
    with rpq.open_many(tmp_path) as dataset:
        assert dataset.read(["c"]).to_pydict() == {"c": values}
        assert dataset.read(["same"])["same"].tolist() == [1, 2, 1, 3, None, 4, 5]
        for strings in ("stored", "plain", "view"):
            stream = pa.RecordBatchReader.from_stream(dataset.batches(2, ["c"], strings=strings))
            assert stream.read_all()["c"].to_pylist() == values
        assert dataset.read(filters=[("c", ">", "c")])["c"].tolist() == ["x", "y" * 20]
    with rpq.open_many([tmp_path / "0.parquet", tmp_path / "1.parquet"]) as dataset:
        assert pa.types.is_dictionary(pa.table(dataset.read(["same"])).schema.field("same").type)


@pytest.mark.parametrize("on_damage", ["drop", "null"])
def test_the_order_of_categories_outlives_damage(tmp_path: Path, on_damage: Any) -> None:
    kind = pd.CategoricalDtype(["z", "unused", "b", "a"], ordered=True)
    frame = pd.DataFrame({"c": pd.Categorical(["a", "b", None, "z"] * 300, dtype=kind), "n": range(1200)})
    path = tmp_path / "f.parquet"
    rpq.write(path, frame, row_group_rows=400)
    with rpq.open(path) as file:
        damaged = file.metadata.row_groups[1].columns[1].meta_data
        assert damaged is not None
        at = damaged.data_page_offset + damaged.total_compressed_size // 2
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)
    rpq.recover(path, tmp_path / "saved.parquet", on_damage=on_damage)
    with rpq.open(path, on_damage=on_damage) as file:
        for found in (file.read().to_pandas(), rpq.read(tmp_path / "saved.parquet").to_pandas()):
            assert found["c"].dtype == kind
            assert found["c"].tolist() == (frame["c"].tolist() if on_damage == "null" else frame["c"].tolist()[:800])
