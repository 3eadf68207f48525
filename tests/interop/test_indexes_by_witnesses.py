"""Bloom filters, statistics and sort orders of ours, as other libraries understand them."""

from __future__ import annotations

import asyncio
import datetime as dt
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import WriteOptions
from resilient_pq import sync as rpq
from resilient_pq.io.memory_store import MemoryStore

COUNT = 300
START = dt.date(2000, 1, 1)
#: For each column a value that is in the second row group alone, and some that are in none, as DuckDB writes them.
PROBES: dict[str, tuple[str, list[str]]] = {
    "i64": ("1050", [str(7 * i + 3) for i in range(400, 460)]),
    "i32": ("150::INT", [f"{i}::INT" for i in range(1000, 1060)]),
    "u32": ("150::UINTEGER", [f"{i}::UINTEGER" for i in range(1000, 1060)]),
    "f32": ("37.5::FLOAT", [f"{i}.125::FLOAT" for i in range(60)]),
    "f64": ("75.0::DOUBLE", [f"{i}.125::DOUBLE" for i in range(60)]),
    "text": ("'v150'", [f"'w{i}'" for i in range(60)]),
    "blob": ("'x150'::BLOB", [f"'y{i}'::BLOB" for i in range(60)]),
    "day": ("DATE '2000-05-30'", [f"DATE '1990-01-{i:02}'" for i in range(1, 29)]),
}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rows = range(COUNT)
    return pa.table(
        {
            "i64": pa.array([i * 7 for i in rows]),
            "i32": pa.array(rows, pa.int32()),
            "u32": pa.array(rows, pa.uint32()),
            "f32": pa.array([i / 4 for i in rows], pa.float32()),
            "f64": pa.array([i / 2 for i in rows]),
            "text": pa.array([None if i % 9 == 0 else f"v{i}" for i in rows]),
            "blob": pa.array([b"x%d" % i for i in rows]),
            "day": pa.array([START + dt.timedelta(i) for i in rows]),
        }
    )


@pytest.fixture(scope="module", params=["dictionaries", "plain"])
def path(
    request: pytest.FixtureRequest,
    table: pa.Table,
    tmp_path_factory: pytest.TempPathFactory,
    write_file: Callable[..., Any],
) -> Path:
    options = WriteOptions(
        bloom_filter_options={name: {"fpp": 0.01} for name in table.column_names},
        sorting_columns=[("i64", "ascending"), ("text", "descending", "at_start")],
    )
    encodings = "auto" if request.param == "dictionaries" else "PLAIN"
    found = tmp_path_factory.mktemp("indexes") / "file.parquet"
    found.write_bytes(write_file(table, row_group_rows=100, options=options, encodings=encodings).data)
    return found


@pytest.mark.parametrize("column", PROBES)
def test_duckdb_probes_our_bloom_filters(path: Path, column: str) -> None:
    def excluded(value: str) -> list[bool]:
        query = f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{path}', '{column}', {value})"
        return [row[0] for row in duckdb.sql(query).fetchall()]

    inside, outside = PROBES[column]
    assert excluded(inside)[1] is False
    answers = [answer for value in outside for answer in excluded(value)]
    assert sum(answers) > 0.9 * len(answers)


def test_duckdb_uses_them(path: Path, table: pa.Table) -> None:
    for number in (0, 7 * 150, 7 * 299, 8):
        found = duckdb.sql(f"SELECT i32 FROM '{path}' WHERE i64 = {number}").fetchall()
        assert found == ([(number // 7,)] if number % 7 == 0 else [])


def test_duckdb_and_pyarrow_see_where_they_lie(path: Path) -> None:
    query = (
        "SELECT path_in_schema, row_group_id, bloom_filter_offset, bloom_filter_length, min_is_exact,"
        f" stats_null_count FROM parquet_metadata('{path}') ORDER BY row_group_id, column_id"
    )
    rows = duckdb.sql(query).fetchall()
    metadata = pq.read_metadata(path)
    with rpq.open(path) as file:
        for name, group, offset, length, exact, nulls in rows:
            theirs = metadata.row_group(group).column(file.schema.names.index(name))
            assert (theirs.bloom_filter_offset, theirs.bloom_filter_length) == (offset, length)
            assert theirs.has_column_index and theirs.has_offset_index
            ours = file.statistics(group, name)
            assert (ours.is_min_exact, ours.null_count) == (exact, nulls)
            assert (ours.min, ours.max) == (theirs.statistics.min, theirs.statistics.max)
    assert len(rows) == 3 * len(PROBES)


def test_sort_orders(path: Path) -> None:
    metadata = pq.read_metadata(path)
    for group in range(3):
        assert metadata.row_group(group).sorting_columns == (
            pq.SortingColumn(0, False, False),
            pq.SortingColumn(5, True, True),
        )
    with rpq.open(path) as file:
        assert file.sorting_columns == (rpq.SortingColumn("i64"), rpq.SortingColumn("text", True, True))


def test_everyone_reads_the_rows(path: Path, table: pa.Table) -> None:
    assert pq.read_table(path).equals(table)
    assert pl.read_parquet(path).to_arrow().cast(table.schema).equals(table)
    found = pl.scan_parquet(path).filter(pl.col("text") == "v150").collect()
    assert found["i32"].to_list() == [150]
    assert duckdb.sql(f"SELECT count(*), sum(i32) FROM '{path}'").fetchall() == [(COUNT, sum(range(COUNT)))]


def test_we_ask_filters_of_pyarrow_and_duckdb(table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "pa.parquet", bloom_filter_options=dict.fromkeys(table.column_names, True))
    repeated = pa.concat_tables([table] * 20)  # DuckDB writes filters of columns with a dictionary only
    duckdb.register("repeated", repeated)
    duckdb.sql(f"COPY repeated TO '{tmp_path / 'duck.parquet'}' (FORMAT parquet)")
    duckdb.unregister("repeated")
    for name in ("pa", "duck"):
        with rpq.open(tmp_path / f"{name}.parquet") as file:
            for column in table.column_names:
                found = file.bloom_filter(0, column)
                assert found is not None and found.may_contain(table[column]).all()
                assert found.may_contain(table[column].to_pylist()).all()
            others = file.bloom_filter(0, "i64").may_contain(range(1_000_000, 1_001_000))
            assert others.mean() < 0.1


def test_sort_orders_of_pyarrow(table: pa.Table) -> None:
    out = io.BytesIO()
    order = [pq.SortingColumn(1, descending=True), pq.SortingColumn(5, nulls_first=True)]
    pq.write_table(table, out, sorting_columns=order)
    store = rpq_store(out.getvalue())
    with rpq.open(store) as file:
        assert file.sorting_columns == (
            rpq.SortingColumn("i32", descending=True),
            rpq.SortingColumn("text", nulls_first=True),
        )


def rpq_store(data: bytes) -> Any:
    store = MemoryStore()
    asyncio.run(store.put("file", data))
    return store, "file"
