"""What is in an Iceberg table of our files: ids, partitions and statistics, as other readers see them."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_places import loaded

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io import MemoryStore

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("day", pa.date32()),
        ("country", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float64()), ("y", pa.int32())])),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("raw", pa.binary()),
        ("ok", pa.bool_()),
    ]
)


def row(at: int) -> dict[str, Any]:
    return {
        "id": at,
        "day": dt.date(2026, 8, 1) + dt.timedelta(at % 3) if at % 7 else None,
        "country": ("F R/é%", "Ö=b", None)[at % 3],
        "price": decimal.Decimal(at) / 100 if at % 5 else None,
        "at": dt.datetime(2026, 8, 1, tzinfo=dt.UTC) + dt.timedelta(hours=at, microseconds=at),
        "tags": None if at % 4 == 0 else [f"t{at % 5}", None][: at % 3],
        "place": {"x": at / 7 if at % 2 else None, "y": at} if at % 6 else None,
        "counts": [("a", at), ("b", None)],
        "raw": bytes([at % 256]) * 20,
        "ok": None if at % 11 == 0 else at % 2 == 0,
    }


TABLE = pa.Table.from_pylist([row(at) for at in range(200)], SCHEMA)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partitioned table, written blocking."""
    folder = tmp_path_factory.mktemp("iceberg")
    table = rpq.IcebergTable(catalog=folder, name="web.events")
    with sync.create_dataset(folder / "events", table=table, partition_by=["day", "country"], roll_rows=90) as writer:
        for start in range(0, 200, 50):
            writer.write(TABLE.slice(start, 50))
    return folder


@pytest.fixture
def table(folder: Path) -> Any:
    from types import SimpleNamespace

    return loaded(SimpleNamespace(folder=folder))


def by_id(found: pa.Table) -> pa.Table:
    return found.select(SCHEMA.names).sort_by("id").combine_chunks()


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_readers_see_every_row(table: Any) -> None:
    assert by_id(table.scan().to_arrow()).to_pylist() == TABLE.to_pylist()
    for reader in ("native", "pyiceberg"):
        found = pl.scan_iceberg(table, reader_override=reader).collect().to_arrow()  # type: ignore[arg-type]
        assert by_id(found).drop_columns("counts").to_pylist() == TABLE.drop_columns("counts").to_pylist()
    files = ", ".join(f"'{task.file.file_path}'" for task in table.scan().plan_files())
    assert duckdb.sql(f"select count(distinct id), count(*) from read_parquet([{files}])").fetchall() == [(200, 200)]


def test_files_carry_the_ids_of_the_table(table: Any, folder: Path) -> None:
    paths = sorted(folder.glob("events/*/*/*.parquet"))
    assert paths and len(paths) == len(list(table.scan().plan_files()))
    schema = pq.ParquetFile(paths[0]).schema_arrow
    assert [int(field.metadata[b"PARQUET:field_id"]) for field in schema] == [
        field.field_id for field in table.schema().fields
    ]
    element, key = schema.field("tags").type.value_field, schema.field("counts").type.key_field
    assert int(element.metadata[b"PARQUET:field_id"]) == table.schema().find_field("tags.element").field_id
    assert int(key.metadata[b"PARQUET:field_id"]) == table.schema().find_field("counts.key").field_id
    table.properties.pop("schema.name-mapping.default")  # which files without ids need
    assert table.scan().to_arrow().num_rows == 200


def test_filters_leave_files_out(table: Any) -> None:
    whole = len(list(table.scan().plan_files()))
    for condition, wanted in (
        (
            "day = '2026-08-02' and country = 'Ö=b'",
            lambda each: str(each["day"]) == "2026-08-02" and each["country"] == "Ö=b",
        ),
        ("country is null", lambda each: each["country"] is None),
        ("id >= 190", lambda each: each["id"] >= 190),
        ("at < '2026-08-01T05:00:00+00:00'", lambda each: each["id"] < 5),
        ("price > 1.95", lambda each: each["price"] is not None and each["price"] > decimal.Decimal("1.95")),
    ):
        scan = table.scan(row_filter=condition)
        assert 0 < len(list(scan.plan_files())) < whole, condition
        expected = sorted(each["id"] for each in TABLE.to_pylist() if wanted(each))
        assert sorted(scan.to_arrow()["id"].to_pylist()) == expected, condition


def test_statistics_are_those_of_the_rows(table: Any) -> None:
    for task in table.scan().plan_files():
        rows = pq.ParquetFile(task.file.file_path.removeprefix("file://")).read()
        ids = table.schema().find_field("price").field_id, table.schema().find_field("id").field_id
        assert task.file.record_count == rows.num_rows and not task.delete_files
        assert task.file.null_value_counts[ids[0]] == rows["price"].null_count
        low, high = (
            int.from_bytes(bound[ids[1]], "little") for bound in (task.file.lower_bounds, task.file.upper_bounds)
        )
        assert (low, high) == (min(rows["id"].to_pylist()), max(rows["id"].to_pylist()))
        assert task.file.file_size_in_bytes == Path(task.file.file_path.removeprefix("file://")).stat().st_size


def test_snapshots_name_the_sink_and_its_files(table: Any, folder: Path) -> None:
    for snapshot in table.snapshots():
        assert snapshot.summary["rpq.sink"] == f"file://{folder.resolve()}/events/part"
        assert "rpq.files" in snapshot.summary


async def test_nothing_is_committed_twice_when_old_snapshots_are_gone(iceberg_place: Any) -> None:
    async def write(start: int) -> None:
        async with rpq.resume_dataset(iceberg_place.data, table=iceberg_place.settings(), roll_rows=10) as writer:
            await writer.write({"id": list(range(start, start + 20))})

    await write(0)
    await write(20)
    table = loaded(iceberg_place)
    for snapshot in table.snapshots()[:-1]:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    with table.transaction() as transaction:  # the newest snapshot is somebody else's
        transaction.append(pa.table({"id": pa.array([1000])}))
    await write(40)
    assert iceberg_place.ids() == [*range(60), 1000]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"id": [1], "more": [1]}, "'more' is not in the table"),
        ({"id": ["text"]}, "'id' is of the type string, the table's long"),
    ],
)
async def test_rows_that_do_not_fit_the_table_are_refused(iceberg_place: Any, data: Any, said: str) -> None:
    async with rpq.create_dataset(iceberg_place.data, table=iceberg_place.settings()) as writer:
        await writer.write({"id": [0]})
    with pytest.raises(rpq.SchemaError, match=said):
        async with rpq.create_dataset(iceberg_place.data, table=iceberg_place.settings(), name="more") as writer:
            await writer.write(data)
    with pytest.raises(rpq.SchemaError, match="partitioned by"):
        async with rpq.create_dataset(
            iceberg_place.data, table=iceberg_place.settings(), name="more", partition_by="day"
        ) as writer:
            await writer.write({"id": [1], "day": [1]})


async def test_types_that_iceberg_does_not_have_are_refused(iceberg_place: Any) -> None:
    with pytest.raises(rpq.SchemaError, match="Iceberg does not have"):
        async with rpq.create_dataset(iceberg_place.data, table=iceberg_place.settings()) as writer:
            await writer.write(pa.table({"at": pa.array([0], pa.timestamp("ns"))}))


def test_a_name_without_a_namespace_is_refused() -> None:
    with pytest.raises(rpq.OptionError, match="namespace"):
        rpq.IcebergTable("events")


async def test_a_catalog_that_is_not_there(iceberg_place: Any, tmp_path: Path) -> None:
    away = {"type": "sql", "uri": f"sqlite:///{tmp_path}/away/catalog.db"}
    # The first attempt loads the libraries of a catalog, which must not take all of the time.
    retry = rpq.RetryPolicy(seconds=3, base_delay=0.01)
    with pytest.raises(rpq.StoreError, match="unable to open database file") as caught:
        async with rpq.create_dataset(
            iceberg_place.data, table=iceberg_place.settings(catalog=away, retry=retry)
        ) as writer:
            await writer.write({"id": [1]})
    assert any("gave up after" in note for note in caught.value.__notes__)
    with pytest.raises(rpq.OptionError, match="the catalog 'nowhere' cannot be used"):
        async with rpq.create_dataset(iceberg_place.data, table=iceberg_place.settings(catalog="nowhere")):
            pass
    with pytest.raises(rpq.OptionError, match="readers do not find them there"):
        async with rpq.create_dataset((MemoryStore(), "events"), table=iceberg_place.settings()):
            pass
