"""Columns in the names of folders: read with the rows, filtered by, and files left out by them before they are opened."""

from __future__ import annotations

import datetime as dt
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io import MemoryStore

ROWS = pa.table(
    {
        "n": pa.array(range(120)),
        "f": [i / 4 for i in range(120)],
        "day": pa.array([dt.date(2026, 8, 1 + i % 3) for i in range(120)]),
        "country": [["FR", "a b/c", None][i % 5 % 3] for i in range(120)],
        "hour": pa.array([i % 2 - 1 for i in range(120)], pa.int32()),
    }
)
KEYS = pa.schema([("day", pa.date32()), ("country", pa.string()), ("hour", pa.int32())])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pyarrow writes it."""
    path = tmp_path_factory.mktemp("hive=0") / "set"  # a folder above it does not count
    pq.write_to_dataset(ROWS, path, partition_cols=KEYS.names)
    return path


async def read(folder: Path, *, partitioning: Any = KEYS, **options: Any) -> pa.Table:
    async with rpq.open_many(folder, partitioning=partitioning) as dataset:
        return pa.table(await dataset.read(**options))


def same(found: pa.Table, wanted: pa.Table) -> bool:
    return bool(found.sort_by("n").equals(wanted.sort_by("n")))


async def test_what_pyarrow_wrote(folder: Path) -> None:
    assert same(await read(folder), ROWS)
    guessed = await read(folder, partitioning="hive")
    theirs = ds.dataset(folder, partitioning="hive").to_table()
    assert same(guessed, theirs)
    assert [str(guessed.schema.field(name).type) for name in KEYS.names] == ["string", "string", "int32"]


async def test_the_schema_and_the_rows_of_a_stream(folder: Path) -> None:
    async with rpq.open_many(folder, partitioning=KEYS) as dataset:
        assert pa.schema(dataset.arrow_schema).names == ROWS.column_names
        tables = [pa.table(batch) async for batch in dataset.batches(7)]
        records = [row async for row in dataset.records(filters=[("n", "<", 3)])]
    assert same(pa.concat_tables(tables), ROWS)
    assert sorted(records, key=lambda row: row["n"]) == ROWS.slice(0, 3).to_pylist()


@pytest.mark.parametrize(
    "columns", [["day", "n"], ["n", "hour", "f", "country"], ["country", "n", "n"], ["n"]], ids=str
)
async def test_columns_in_any_order(folder: Path, columns: list[str]) -> None:
    found = await read(folder, columns=columns)
    assert same(found, ROWS.select(list(dict.fromkeys(columns))))


async def test_columns_of_folders_alone(folder: Path) -> None:
    found = await read(folder, columns=["hour", "day"])
    assert found.num_rows == 120
    wanted = ROWS.select(["hour", "day"]).group_by(["hour", "day"]).aggregate([([], "count_all")])
    assert (
        found.group_by(["hour", "day"])
        .aggregate([([], "count_all")])
        .sort_by([("day", "ascending"), ("hour", "ascending")])
        .to_pylist()
        == wanted.sort_by([("day", "ascending"), ("hour", "ascending")]).to_pylist()
    )


DAY = dt.date(2026, 8, 2)
FILTERS: list[tuple[Any, Any]] = [
    ([("day", "=", DAY)], pc.field("day") == DAY),
    ([("day", ">", DAY), ("n", "<", 50)], (pc.field("day") > DAY) & (pc.field("n") < 50)),
    ([[("day", "<", DAY)], [("hour", "=", 0), ("n", ">", 100)]],
     (pc.field("day") < DAY) | ((pc.field("hour") == 0) & (pc.field("n") > 100))),
    ([("country", "in", ["FR", "DE"])], pc.field("country").isin(["FR", "DE"])),
    ([("country", "is null")], pc.field("country").is_null()),
    ([[("country", "=", "FR"), ("hour", "!=", 0)], [("n", "=", 7)]],
     ((pc.field("country") == "FR") & (pc.field("hour") != 0)) | (pc.field("n") == 7)),
    ([("country", "=", "nowhere")], pc.field("country") == "nowhere"),
    (("hour", ">=", 0), pc.field("hour") >= 0),
]  # fmt: skip


@pytest.mark.parametrize(("filters", "wanted"), FILTERS, ids=[str(filters) for filters, _ in FILTERS])
async def test_rows_and_files_that_filters_leave(folder: Path, filters: Any, wanted: Any) -> None:
    expected = ROWS.filter(wanted)
    assert same(await read(folder, filters=filters), expected)
    async with rpq.open_many(folder, partitioning=KEYS, filters=filters) as dataset:
        opened = len(dataset.files)
        assert same(pa.table(await dataset.read(filters=filters)), expected)
        limited = await dataset.read(["n"], filters=filters, limit=3)
        assert limited.num_rows == min(3, expected.num_rows)
    assert opened >= len(expected.select(KEYS.names).group_by(KEYS.names).aggregate([]))
    if not expected.num_rows:
        assert opened == 1  # which tells the schema


async def stored(*names: str) -> RecordingStore:
    store = RecordingStore(MemoryStore())
    for number, name in enumerate(names):
        out = io.BytesIO()
        pq.write_table(pa.table({"n": [number]}), out)
        await store.put(f"set/{name}", out.getvalue())
    store.calls.clear()
    return store


async def test_files_that_cannot_have_the_rows_are_not_asked_for() -> None:
    store = await stored(*(f"a={i}/b=x%20y/f.parquet" for i in range(50)))
    filters = [("a", "in", [7, 9]), ("b", "=", "x y")]
    async with rpq.open_many((store, "set"), partitioning="hive", filters=filters) as dataset:
        found = await dataset.read(filters=filters)
    assert found.to_pydict() == {"n": [7, 9], "a": [7, 9], "b": ["x y", "x y"]}
    assert {call.key for call in store.calls if call.verb == "read_tail"} == {
        "set/a=7/b=x%20y/f.parquet", "set/a=9/b=x%20y/f.parquet",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "type"),
    [
        (["1", "22"], "int32"),
        (["1", "3000000000"], "int64"),
        (["01", "2"], "string"),
        (["1", "99999999999999999999"], "string"),
        (["9223372036854775808", "1"], "string"),
        (["__HIVE_DEFAULT_PARTITION__", "-5"], "int32"),
        (["__HIVE_DEFAULT_PARTITION__"], "string"),
        (["", "x"], "string"),
    ],
)
async def test_types_that_are_found_out(values: list[str], type: str) -> None:
    store = await stored(*(f"k={value}/f.parquet" for value in values))
    async with rpq.open_many((store, "set"), partitioning="hive") as dataset:
        found = pa.table(await dataset.read()).sort_by("n")
    assert str(found.schema.field("k").type) == type
    texts = [None if value is None else str(value) for value in found["k"].to_pylist()]
    assert texts == [None if value == "__HIVE_DEFAULT_PARTITION__" else value for value in values]


async def test_types_that_are_told() -> None:
    store = await stored("k=1.5/t=2026-08-01%2010%3A00%3A00/b=true/f.parquet")
    schema = pa.schema([("k", pa.float64()), ("b", pa.bool_()), ("t", pa.timestamp("us"))])
    async with rpq.open_many((store, "set"), partitioning=schema) as dataset:
        found = pa.table(await dataset.read())
    assert found.to_pylist() == [{"n": 0, "k": 1.5, "b": True, "t": dt.datetime(2026, 8, 1, 10)}]
    assert found.schema.field("t").type == pa.timestamp("us")


WRONG: list[tuple[tuple[str, ...], Any, str]] = [
    (("k=1/f.parquet", "j=1/f.parquet"), "hive", "name 'j', those of .* 'k'"),
    (("k=1/f.parquet", "f.parquet"), "hive", "no columns"),
    (("k=1/f.parquet",), "directory", "partitioning is 'directory'"),
    (("k=1/f.parquet",), 3, "no Arrow schema"),
    (("k=1/f.parquet",), pa.schema([("j", pa.int32())]), "has 'j'; the folders name 'k'"),
    (("k=x/f.parquet",), pa.schema([("k", pa.int32())]), "'x' in the name of a folder is no int32"),
    (("k=300/f.parquet",), pa.schema([("k", pa.int8())]), "300"),
    (("k=x/f.parquet",), pa.schema([("k", pa.binary())]), "cannot hold binary"),
    (("n=1/f.parquet",), "hive", "in the files, and in the names"),
]


@pytest.mark.parametrize(("names", "partitioning", "said"), WRONG, ids=[said for _, _, said in WRONG])
async def test_what_is_refused(names: tuple[str, ...], partitioning: Any, said: str) -> None:
    store = await stored(*names)
    with pytest.raises(rpq.SchemaError, match=said):
        await rpq.open_many((store, "set"), partitioning=partitioning)


@pytest.mark.parametrize("url", ["{}", "{}/", "file://{}", "file://{}/", "file://{}/**/*.parquet"])
async def test_folders_of_what_is_opened_do_not_count(tmp_path: Path, url: str) -> None:
    folder = tmp_path / "j=1"
    async with rpq.create_dataset(folder, partition_by="k") as writer:
        await writer.write({"n": [1], "k": ["a"]})
    async with rpq.open_many(url.format(folder), partitioning="hive") as dataset:
        assert (await dataset.read()).to_pydict() == {"n": [1], "k": ["a"]}


async def test_filters_of_names_that_are_not_read(folder: Path) -> None:
    with pytest.raises(rpq.SchemaError, match="names of folders"):
        rpq.open_many(folder, filters=[("day", "=", DAY)])
    async with rpq.open_many(folder, partitioning=KEYS) as dataset:
        for filters in ([("day", "=", "x")], [("day", "~", DAY)], [("nothing", "=", 1)], "day", []):
            with pytest.raises(rpq.SchemaError):
                await dataset.read(filters=filters)  # type: ignore[arg-type]


async def test_a_summary_is_in_no_folder_of_its_own(tmp_path: Path) -> None:
    async with rpq.create_dataset(tmp_path, partition_by="k") as writer:
        await writer.write({"n": [1, 2], "k": ["a", "b"]})
    await rpq.write_metadata(tmp_path)
    with pytest.raises(rpq.UnsupportedError, match="summary"):
        await rpq.open_many(tmp_path, partitioning="hive")
    async with rpq.open_many(f"{tmp_path}/**/*.parquet", partitioning="hive") as dataset:
        assert (await dataset.read()).to_pydict() == {"n": [1, 2], "k": ["a", "b"]}


def test_the_sync_twin_is_an_arrow_stream_of_all_columns(folder: Path) -> None:
    with sync.open_many(folder, partitioning=KEYS) as dataset:
        assert same(pa.table(dataset), ROWS)


async def test_no_folders_that_name_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "f.parquet")
    async with rpq.open_many(tmp_path, partitioning="hive") as dataset:
        assert (await dataset.read(filters=[("n", ">", 0)])).to_pydict() == {"n": [1]}
