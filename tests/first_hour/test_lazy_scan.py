"""`rpq.scan`: Polars and DuckDB fetch what a query needs, and get the rows that they would get of a whole table."""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq
from resilient_pq import sync as rpq

ROWS = 40_000
START = dt.datetime(2026, 1, 1)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orders of two files, with nulls, NaN, and a wide column that no query needs."""
    rng = np.random.default_rng(22)
    number = np.arange(ROWS)
    price = np.round(rng.random(ROWS) * 100, 2)
    price[::97] = math.nan
    table = pa.table(
        {
            "id": number,
            "qty": pa.array(rng.integers(0, 50, ROWS).astype(np.int32), mask=number % 13 == 0),
            "price": pa.array(price, mask=number % 17 == 0),
            "city": pa.array([None if i % 11 == 0 else ("Oslo", "Bergen", "Rome")[i % 3] for i in range(ROWS)]),
            "seen": pa.array([START + dt.timedelta(seconds=i) for i in range(ROWS)], pa.timestamp("us")),
            "zoned": pa.array(number * 1_000_000, pa.timestamp("us", "UTC")),
            "ns": pa.array(number * 1_000_000_001, pa.timestamp("ns")),
            "day": pa.array([dt.date(2026, 1, 1) + dt.timedelta(days=i // 1000) for i in range(ROWS)]),
            "paid": pa.array([None if i % 7 == 0 else i % 2 == 0 for i in range(ROWS)]),
            "line": pa.array([{"sku": i % 5} for i in range(ROWS)]),
            "note": [rng.bytes(60).hex() for _ in range(ROWS)],
        }
    )
    folder = tmp_path_factory.mktemp("orders")
    with rpq.create(folder / "a.parquet", row_group_rows=5000) as writer:
        writer.write(table.slice(0, ROWS // 2))
    pq.write_table(table.slice(ROWS // 2), folder / "b.parquet", row_group_size=5000, write_page_index=True)
    return folder


@pytest.fixture(scope="module")
def whole(orders: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(orders / "a.parquet"), pl.read_parquet(orders / "b.parquet")])


c = pl.col
QUERIES: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "sum": lambda f: f.select(c("qty").sum()),
    "len": lambda f: f.select(pl.len()),
    "all": lambda f: f,
    "and": lambda f: f.filter((c("id") > 31_000) & (c("city") == "Oslo")).select("price", "id"),
    "or": lambda f: f.filter((c("qty") < 3) | (c("city") == "Rome") & (c("id") <= 700)),
    "or with a part that is not pushed": lambda f: f.filter((c("id") < 3) | c("note").str.starts_with("ab")),
    "not equal": lambda f: f.filter(c("qty") != 7).select("id"),
    "NaN is more": lambda f: f.filter(c("price") > 99.0).select("id"),
    "NaN equals": lambda f: f.filter(c("price").is_in([math.nan, 1.5])).select("id"),
    "NaN is not less": lambda f: f.filter(c("price") <= 1.5).select("id", "price"),
    "in": lambda f: f.filter(c("city").is_in(["Rome", "Paris"]), c("id").is_in([1, 2, 39_999])),
    "in with null": lambda f: f.filter(c("city").is_in(["Rome", None], nulls_equal=True)).select("id"),
    "between": lambda f: f.filter(c("id").is_between(10_000, 10_003)),
    "between, open": lambda f: f.filter(c("id").is_between(10_000, 10_003, closed="none")),
    "null": lambda f: f.filter(c("city").is_null()).select("id"),
    "not null": lambda f: f.filter(c("qty").is_not_null() & (c("id") < 100)),
    "time": lambda f: f.filter(c("seen") >= START + dt.timedelta(seconds=39_990)).select("id"),
    "time in a zone": lambda f: f.filter(c("zoned") < dt.datetime(1970, 1, 1, 0, 0, 9, tzinfo=dt.UTC)).select("id"),
    "nanoseconds": lambda f: f.filter(c("ns") == pl.lit(3_000_000_003).cast(pl.Datetime("ns"))).select("id"),
    "date": lambda f: f.filter(c("day") == dt.date(2026, 2, 3)).select("id"),
    "bool": lambda f: f.filter(c("paid")).select("id"),
    "not": lambda f: f.filter(~c("paid")).select("id"),
    "struct": lambda f: f.filter(c("line").struct.field("sku") == 3).select("id"),
    "column with column": lambda f: f.filter(c("qty") > c("price")).select("id"),
    "head": lambda f: f.head(7).select("id"),
    "head, then filter": lambda f: f.head(5010).filter(c("id") > 5000),
    "filter, then head": lambda f: f.filter(c("id") > 5000).head(3),
    "slice": lambda f: f.slice(19_998, 4).select("id"),
    "tail": lambda f: f.tail(2),
    "self join": lambda f: f.filter(c("id") < 9).join(f.filter(c("id") > 5), on="id").select("id").sort("id"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_polars_gets_the_rows_of_its_query(orders: Path, whole: pl.DataFrame, name: str) -> None:
    query = QUERIES[name]
    expected = query(whole.lazy()).collect()
    assert expected.height, "the query shows nothing"
    with rpq.scan(orders) as scan:
        assert query(scan.to_polars()).collect().equals(expected, null_equal=True)


SQL = [
    "select sum(qty), count(*) from orders",
    "select * exclude (zoned) from orders order by id limit 5",
    "select id from orders where ns = '1970-01-01 00:00:03.000000003' or ns > timestamp '1970-01-01 11:06:38'",
    "select count(*), min(note) from orders where city = 'Oslo' and id > 31000",
    "select count(*) from orders where price > 99.5 or qty < 2",
    "select id from orders where price <= 1.5 order by id",
    "select id from orders where isnan(price) order by id",
    "select id from orders where city in ('Rome', 'Paris') and id in (2, 5, 39998) order by id",
    "select count(*) from orders where city is null",
    "select count(*) from orders where not (city is null) and qty <> 7",
    "select id from orders where seen >= timestamp '2026-01-01 11:06:30' order by id",
    "select id from orders where zoned < timestamptz '1970-01-01 00:00:09+00' order by id",
    "select id from orders where day = date '2026-02-03' and paid order by id",
    "select count(*) from orders where line.sku = 3 and id < 1000",
    "select count(*) from orders where note like 'ab%' or id between 10000 and 10003",
    "select a.id from orders a join (select 39999 as id) b using (id)",
    "select id from orders order by price desc, id limit 3",
]


@pytest.mark.parametrize("sql", SQL)
def test_duckdb_gets_the_rows_of_its_query(orders: Path, sql: str) -> None:
    connection = duckdb.connect()
    connection.register("truth", pa.concat_tables(pq.read_table(path) for path in sorted(orders.iterdir())))
    expected = connection.sql(sql.replace("orders", "truth")).fetchall()
    assert expected
    with rpq.scan(orders) as scan:
        scan.to_duckdb(connection).create_view("orders")
        assert repr(connection.sql(sql).fetchall()) == repr(expected)


@pytest.mark.parametrize("int96", [False, True])
def test_conditions_of_every_type(tmp_path: Path, int96: bool) -> None:
    """Whatever is not compared as the engine does it is left to the engine."""
    count = 60
    table = pa.table(
        {
            "ts": pa.array([START + dt.timedelta(seconds=i) for i in range(count)], pa.timestamp("ns")),
            "u8": pa.array(range(count), pa.uint64()),
            "i8": pa.array(range(count), pa.int8()),
            "a.b": range(count),
            "a": [{"b": -i} for i in range(count)],
            "f4": pa.array([i / 10 for i in range(count)], pa.float32()),
            "dec": [Decimal(i) for i in range(count)],
            "cat": pa.array([str(i % 3) for i in range(count)]).dictionary_encode(),
            "bin": [str(i).encode() for i in range(count)],
            "time": pa.array(range(count), pa.time64("us")),
            "list": [[i] for i in range(count)],
            "d64": pa.array([i * 86_400_000 for i in range(count)], pa.date64()),
        }
    )
    path = tmp_path / "types.parquet"
    pq.write_table(table, path, row_group_size=10, use_deprecated_int96_timestamps=int96)
    frame, scanned = pl.read_parquet(path), rpq.scan(path).to_polars()
    for condition in (
        c("ts") < START + dt.timedelta(seconds=5),
        c("ts").dt.date() == START.date(),
        c("u8") > 2**63,
        c("u8") > -1,
        c("i8").is_in([3, 300]),
        c("i8") < 1000,
        ~c("i8").is_in([1]),
        c("a.b") == 3,
        c("f4") < 0.3,
        c("f4") == 0.3,
        c("dec") > Decimal("57.5"),
        c("cat") == "1",
        c("bin") == b"7",
        c("time") < dt.time(0, 0, 0, 5),
        c("list").is_null(),
    ):
        assert scanned.filter(condition).collect().equals(frame.filter(condition)), condition
    connection = duckdb.connect()
    connection.register("truth", table)
    rpq.scan(path).to_duckdb(connection).create_view("scanned")
    for condition_sql in (
        "ts < timestamp '2026-01-01 00:00:05'",
        "ts is distinct from timestamp '2026-01-01 00:00:05'",
        "u8 > 9223372036854775808",
        "i8 in (3, 30) or i8 is null",
        '"a.b" = 3',
        "a.b = -3",
        "f4 = 0.3::float",
        "dec > 57.5",
        "cat = '1'",
        "bin = '7'::blob",
        "time < time '00:00:00.000005'",
        "d64 = date '1970-01-03'",
        "i8 is not distinct from 4",
    ):
        query = f"select count(*), sum(i8) from truth where {condition_sql}"
        found = connection.sql(query.replace("truth", "scanned")).fetchall()
        assert found == connection.sql(query).fetchall(), condition_sql


def fetched(url: Path, query: Callable[[rpq.Scan], object]) -> int:
    """Bytes that a query fetches after the opening, with tails too short to have data."""
    with rpq.scan(url, options=rpq.ReadOptions(tail_bytes=8, merge_gap=0)) as scan:
        assert scan.arrow_schema is not None
        before = scan.counters.bytes
        query(scan)
        return scan.counters.bytes - before


def column_bytes(folder: Path, *names: str) -> int:
    chunks = [
        pq.ParquetFile(path).metadata.row_group(group).column(column)
        for path in folder.glob("*.parquet")
        for group in range(4)
        for column in range(11)
    ]
    return sum(chunk.total_compressed_size for chunk in chunks if not names or chunk.path_in_schema in names)


def sql(text: str) -> Callable[[rpq.Scan], object]:
    def run(scan: rpq.Scan) -> object:
        orders = scan.to_duckdb()
        assert orders is not None
        return duckdb.sql(text).fetchall()

    return run


def test_a_query_fetches_its_columns_and_row_groups_only(orders: Path) -> None:
    most = 1.05 * column_bytes(orders, "qty")
    everything = column_bytes(orders)
    assert most < everything / 20
    assert 0 < fetched(orders, sql("select sum(qty) from orders")) < most
    assert 0 < fetched(orders, lambda scan: scan.to_polars().select(c("qty").sum()).collect()) < most
    few = 1.05 * (column_bytes(orders, "note", "id") / 8 + column_bytes(orders, "id") / 8)
    assert 0 < fetched(orders, sql("select min(note) from orders where id >= 10000 and id < 15000")) < few
    wanted = c("id").is_between(10_000, 14_999)
    assert 0 < fetched(orders, lambda scan: scan.to_polars().filter(wanted).select("id", "note").collect()) < few
    assert 0 < fetched(orders, lambda scan: scan.to_polars().head(3).collect()) < everything / 3


def test_one_file_a_pattern_and_a_partitioned_folder(orders: Path, tmp_path: Path) -> None:
    assert rpq.scan is resilient_pq.scan
    assert rpq.scan(orders / "a.parquet").to_polars().select(pl.len()).collect().item() == ROWS // 2
    assert rpq.scan(f"{orders}/*.parquet").to_polars().select(pl.len()).collect().item() == ROWS
    (tmp_path / "year=2026").mkdir()
    (tmp_path / "year=2026" / "a.parquet").write_bytes((orders / "a.parquet").read_bytes())
    (tmp_path / "year=2027").mkdir()
    (tmp_path / "year=2027" / "b.parquet").write_bytes((orders / "b.parquet").read_bytes())
    scan = rpq.scan(tmp_path, partitioning="hive")
    found = scan.to_polars().filter(c("year") == 2027, c("id") < 20_003).select("id", "year").collect()
    assert found.rows() == [(20_000, 2027), (20_001, 2027), (20_002, 2027)]
    orders_by_year = scan.to_duckdb()
    assert orders_by_year is not None
    assert duckdb.sql("select year, count(*) from orders_by_year group by all order by 1").fetchall() == [
        (2026, ROWS // 2),
        (2027, ROWS // 2),
    ]


def test_damage_is_an_error_or_left_out(orders: Path, tmp_path: Path) -> None:
    data = bytearray((orders / "a.parquet").read_bytes())
    note = pq.ParquetFile(orders / "a.parquet").metadata.row_group(1).column(10)
    data[note.data_page_offset + note.total_compressed_size // 2] ^= 1
    (tmp_path / "bad.parquet").write_bytes(data)
    bad = rpq.scan(tmp_path / "bad.parquet")
    with pytest.raises(rpq.ChecksumError):
        bad.to_polars().collect()
    orders_of = bad.to_duckdb()
    with pytest.raises(Exception, match="ChecksumError"):
        orders_of.aggregate("min(note)").fetchall()
    lost: list[rpq.LostRegion] = []
    kept = rpq.scan(tmp_path, on_damage="drop", on_lost=lost.append).to_polars().collect()
    assert 0 < ROWS // 2 - kept.height == sum(region.num_rows or 0 for region in lost)


def test_duckdb_without_pyarrow(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars does without."""
    monkeypatch.delitem(sys.modules, "resilient_pq.engines.duckdb_source", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    scan = rpq.scan(orders)
    assert scan.to_polars().filter(c("id") == 7).select("id").collect().item() == 7
    with pytest.raises(rpq.UnsupportedError, match="this needs duckdb and pyarrow: import of pyarrow") as caught:
        scan.to_duckdb()
    assert caught.value.hint == "pip install --upgrade duckdb pyarrow"


async def test_in_a_running_loop(orders: Path) -> None:
    frame: Any = resilient_pq.scan(orders).to_polars().select(c("id").max())
    assert (await frame.collect_async()).item() == ROWS - 1
