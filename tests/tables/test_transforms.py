"""Partitions by transforms of columns: years to hours of times, and buckets, as Iceberg defines them."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampled import either

import resilient_pq as rpq
from resilient_pq.dataset.hive import murmur3
from resilient_pq.format.physical_values import ByteArrays

NUM_ROWS = 60
START = dt.datetime(1969, 12, 30, tzinfo=dt.UTC)
ROWS = [
    {
        "id": at - 30,
        "at": START + dt.timedelta(minutes=107 * at, microseconds=at) if at % 13 else None,
        "day": START.date() + dt.timedelta(at),
        "name": f"näme {at % 50}" if at % 9 else None,
    }
    for at in range(NUM_ROWS)
]
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("name", pa.string())])
TABLE = pa.Table.from_pylist(ROWS, SCHEMA)


@given(st.lists(st.binary(max_size=40)))
def test_hashes_are_those_of_murmur3(values: list[bytes]) -> None:
    offsets = np.array([0, *itertools.accumulate(map(len, values))], np.int32)
    found = murmur3(ByteArrays(offsets, np.frombuffer(b"".join(values), np.uint8)))
    assert found.tolist() == [mmh3.hash(value, signed=False) for value in values]


@pytest.mark.parametrize(
    ("key", "folder", "text"),
    [
        ("year(at)", "at_year", lambda row: row["at"] and f"{row['at']:%Y}"),
        ("months(at)", "at_month", lambda row: row["at"] and f"{row['at']:%Y-%m}"),
        ("day(at)", "at_day", lambda row: row["at"] and f"{row['at']:%Y-%m-%d}"),
        ("hour(at)", "at_hour", lambda row: row["at"] and f"{row['at']:%Y-%m-%d-%H}"),
        ("month(day)", "day_month", lambda row: f"{row['day']:%Y-%m}"),
    ],
)
async def test_folders_of_times(key: str, folder: str, text: Any, tmp_path: Path) -> None:
    async with rpq.create_dataset(tmp_path / "events", partition_by=key, max_open=200) as writer:
        await writer.write(TABLE)
    found = ds.dataset(
        tmp_path / "events", partitioning=ds.partitioning(pa.schema([(folder, pa.string())]), flavor="hive")
    )
    rows = sorted(found.to_table().to_pylist(), key=lambda row: row["id"])
    assert [{**row, folder: text(row)} for row in ROWS] == rows
    assert writer.num_rows_stored == NUM_ROWS


@pytest.mark.parametrize(
    "by",
    either(
        [["month(day)", "bucket(2, day)", "bucket(2, name)"]],
        [["day(at)", "bucket(4, id)", "bucket(3, name)"], ["hour(at)"], ["year(day)", "bucket(7, at)"]],
    ),
)
async def test_an_iceberg_table_has_the_values_of_its_transforms(by: list[str], iceberg_place: Any) -> None:
    async with rpq.create_dataset(
        iceberg_place.data, table=iceberg_place.settings(), partition_by=by, max_open=300
    ) as writer:
        await writer.write(TABLE)
    from table_places import loaded

    table = loaded(iceberg_place)
    assert len(list(table.scan().plan_files())) == len(writer.files)
    assert iceberg_place.ids() == [row["id"] for row in ROWS]
    schema = table.schema()
    for task in table.scan().plan_files():
        rows = pq.read_table(task.file.file_path.removeprefix("file://"), partitioning=None)
        for at, field in enumerate(table.spec().fields):
            transform = field.transform.transform(schema.find_type(field.source_id))
            column = rows[schema.find_column_name(field.source_id)]
            numbers = column.cast(pa.int32()).cast(pa.int64()) if column.type == pa.date32() else column
            numbers = numbers.cast(pa.int64()) if pa.types.is_timestamp(column.type) else numbers
            assert {transform(value) for value in numbers.to_pylist()} == {task.file.partition[at]}


async def test_a_delta_table_has_a_column_of_each_transform(tmp_path: Path) -> None:
    import deltalake

    async with rpq.create_dataset(
        tmp_path / "lake", table=rpq.DeltaTable(), partition_by=["day(at)", "bucket(4, id)"], max_open=100
    ) as writer:
        await writer.write(TABLE)
    found = deltalake.DeltaTable(tmp_path / "lake").to_pyarrow_table().to_pylist()
    assert len(found) == NUM_ROWS and {row["id_bucket"] for row in found} == {0, 1, 2, 3}
    assert all(row["at_day"] == (row["at"] and row["at"].date()) for row in found)


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("day(id)", "has no day"),
        ("hour(day)", "has no hour"),
        ("bucket(4, ok)", "has no bucket"),
        ("day(none)", "no column"),
    ],
)
async def test_what_has_no_such_transform(by: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(rpq.SchemaError, match=said):
        async with rpq.create_dataset(tmp_path / "events", partition_by=by) as writer:
            await writer.write({"id": [1], "day": pa.array([1], pa.date32()), "ok": [1.5]})
