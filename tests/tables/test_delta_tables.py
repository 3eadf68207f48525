"""What is in a Delta table of our files: partitions, statistics and rows, as other readers see them."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import json
import math
from pathlib import Path
from typing import Any

import datafusion
import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest

import resilient_pq as rpq
from resilient_pq import sync

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("day", pa.date32()),
        ("country", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("ratio", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float64()), ("y", pa.int32())])),
        ("raw", pa.binary()),
        ("ok", pa.bool_()),
    ]
)


def row(at: int) -> dict[str, Any]:
    time = dt.datetime(2026, 8, 1) + dt.timedelta(hours=at, microseconds=at)
    return {
        "id": at,
        "day": dt.date(2026, 8, 1) + dt.timedelta(at % 3) if at % 7 else None,
        "country": ("F R/é%", "Ö=b", None)[at % 3],
        "price": decimal.Decimal(at) / 100 if at % 5 else None,
        "at": time.replace(tzinfo=dt.UTC),
        "local": time,
        "ratio": (at / 7, math.nan, math.inf)[at % 3],
        "tags": None if at % 4 == 0 else ["t", None][: at % 3],
        "place": {"x": at / 7, "y": None if at % 2 else at} if at % 6 else None,
        "raw": bytes([at % 256]) * 20,
        "ok": None if at % 11 == 0 else at % 2 == 0,
    }


TABLE = pa.Table.from_pylist([row(at) for at in range(200)], SCHEMA)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partitioned table, written blocking."""
    folder = tmp_path_factory.mktemp("delta")
    with sync.create_dataset(
        folder, table=rpq.DeltaTable(), partition_by=["day", "country"], row_group_rows=8
    ) as writer:
        for start in range(0, 200, 50):
            writer.write(TABLE.slice(start, 50))
    return folder


def test_readers_see_every_row(folder: Path) -> None:
    expected = [json.dumps(each, default=str) for each in TABLE.to_pylist()]
    table = deltalake.DeltaTable(folder)
    session = datafusion.SessionContext()
    session.register_table("events", table)
    files = [f"'{path}'" for path in table.file_uris()]
    for found in (
        table.to_pyarrow_table(),
        pl.read_delta(str(folder)).to_arrow(),
        session.sql("select * from events").to_arrow_table(),
    ):
        rows = sorted(found.select(SCHEMA.names).to_pylist(), key=lambda each: int(each["id"]))
        assert [json.dumps(each, default=str) for each in rows] == expected
    assert duckdb.sql(f"select count(distinct id) from read_parquet([{', '.join(files)}])").fetchall() == [(200,)]


def test_filters_leave_files_out(folder: Path) -> None:
    session = datafusion.SessionContext()
    session.register_table("events", deltalake.DeltaTable(folder))
    for condition, wanted in (
        (
            "day = '2026-08-02' and country = 'Ö=b'",
            lambda each: str(each["day"]) == "2026-08-02" and each["country"] == "Ö=b",
        ),
        ("country is null", lambda each: each["country"] is None),
        ("id >= 190", lambda each: each["id"] >= 190),
        ("at < timestamp '2026-08-01T05:00:00Z'", lambda each: each["id"] < 5),
        ("local < timestamp '2026-08-01T05:00:00'", lambda each: each["id"] < 5),
        ("price > 1.95", lambda each: each["price"] is not None and each["price"] > decimal.Decimal("1.95")),
        ("ratio > 1e9", lambda each: each["ratio"] == math.inf),
    ):
        found = session.sql(f"select id from events where {condition}").to_arrow_table()["id"].to_pylist()
        expected = sorted(each["id"] for each in TABLE.to_pylist() if wanted(each))
        if "ratio" in condition:  # DataFusion orders NaN above all
            found = [each for each in found if each % 3 == 2]
        assert sorted(found) == expected, condition


def test_statistics_are_those_of_the_rows(folder: Path) -> None:
    added = []
    for log in sorted(folder.glob("_delta_log/*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        added += [action["add"] for action in actions if "add" in action]
    assert len(added) == len(list(folder.glob("*/*/*.parquet")))
    by_id = {each["id"]: each for each in TABLE.to_pylist()}
    for each in added:
        stats = json.loads(each["stats"])
        day, country = (each["partitionValues"][name] for name in ("day", "country"))
        rows = [r for r in by_id.values() if str(r["day"] or "None") == str(day) and r["country"] == country]
        assert stats["numRecords"] == len(rows)
        for name in ("id", "price"):
            known = [r[name] for r in rows if r[name] is not None]
            assert (stats["minValues"][name], stats["maxValues"][name]) == (float(min(known)), float(max(known)))
        assert stats["nullCount"]["price"] == sum(r["price"] is None for r in rows)
        inner = [None if r["place"] is None else r["place"]["y"] for r in rows]
        assert stats["nullCount"]["place"]["y"] == inner.count(None)
        assert stats["maxValues"]["at"] == max(r["at"] for r in rows).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        assert "raw" not in stats["minValues"] and "ok" not in stats["minValues"] and "tags" not in stats["minValues"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"id": [1], "more": [1]}, "'more' is not in the table"),
        ({"id": ["text"]}, "'id' is of the type .*string"),
        (pa.table({"id": pa.array([1], pa.uint32())}), "which Delta does not have"),
        (pa.table({"id": pa.array([1], pa.time32("ms"))}), "Delta does not have"),
    ],
)
async def test_rows_that_do_not_fit_the_table_are_refused(data: Any, said: str, tmp_path: Path) -> None:
    async with rpq.create_dataset(tmp_path, table=rpq.DeltaTable()) as writer:
        await writer.write({"id": [0]})
    with pytest.raises(rpq.SchemaError, match=said):
        async with rpq.create_dataset(tmp_path, table=rpq.DeltaTable(), name="more") as writer:
            await writer.write(data)


async def test_the_data_set_is_in_the_folder_of_the_table(tmp_path: Path) -> None:
    with pytest.raises(rpq.OptionError, match="not within the table's folder"):
        async with rpq.create_dataset(tmp_path / "events", table=rpq.DeltaTable(tmp_path / "lake")):
            pass


async def test_folders_without_a_schema_do_not_make_a_table(tmp_path: Path) -> None:
    async with rpq.create_dataset(tmp_path, partition_by="day") as writer:
        await writer.write({"id": [1], "day": [1]})
    with pytest.raises(rpq.SchemaError, match="the type of 'day' is not known"):
        async with rpq.resume_dataset(tmp_path, partition_by="day", table=rpq.DeltaTable()):
            pass
    schema = pa.schema([("id", pa.int64()), ("day", pa.int64())])
    async with rpq.resume_dataset(tmp_path, schema, partition_by="day", table=rpq.DeltaTable()):
        pass
    assert deltalake.DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == [{"id": 1, "day": 1}]


async def test_a_log_that_cannot_be_read_for_a_while_is_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, away = tmp_path / "events" / "_delta_log", tmp_path / "away"
    async with rpq.create_dataset(tmp_path / "events", table=rpq.DeltaTable(), roll_rows=10) as writer:
        await writer.write({"id": range(10)})
        while not log.exists() or writer.files_not_committed:
            await asyncio.sleep(0.01)
            await writer.write({"id": []})
        log.rename(away)
        await writer.write({"id": range(10, 20)})
        while "tried again" not in caplog.text:
            await asyncio.sleep(0.01)
            await writer.write({"id": []})  # raises what ended the commits
        away.rename(log)
    table = deltalake.DeltaTable(tmp_path / "events")
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == list(range(20))
