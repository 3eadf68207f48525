"""A data set that is read while it is written: each row comes once, as soon as it is stored, whatever happens to files."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.cli.main import run
from resilient_pq.io.memory_store import MemoryStore

SETTINGS: dict[str, Any] = {"row_group_rows": 10, "checkpoint_every": 1, "checkpoint_overhead": 1000.0}


def follow(**given: Any) -> rpq.FollowOptions:
    """Looks without waiting, but for the other tasks."""
    return rpq.FollowOptions(wait=lambda _: asyncio.sleep(0), idle_seconds=3, **given)


async def ids(dataset: Any, **query: Any) -> list[int]:
    return [each for batch in [b async for b in dataset.batches(**query)] for each in pa.table(batch)["id"].to_pylist()]


async def test_each_row_comes_once_from_open_files_and_complete_ones(tmp_path: Path) -> None:
    given: list[int] = []

    async def read() -> None:
        options = rpq.FollowOptions(poll_seconds=0.01)
        async with rpq.open_many(tmp_path, follow=options) as dataset:
            async for batch in dataset.batches():
                given.extend(pa.table(batch)["id"].to_pylist())

    reading = asyncio.create_task(read())
    async with rpq.create_dataset(tmp_path / "events", roll_rows=35, **SETTINGS) as writer:
        for start in range(0, 100, 20):
            await writer.write({"id": range(start, start + 20)})
            await writer.checkpoint()
            while len(given) < start + 20:
                await asyncio.sleep(0.01)
                assert not reading.done()
    await asyncio.sleep(0.03)
    reading.cancel()
    assert given == list(range(100))


async def test_filters_columns_and_the_last_rows(tmp_path: Path) -> None:
    async with rpq.create_dataset(tmp_path, roll_rows=30, **SETTINGS) as writer:
        await writer.write({"id": range(100), "more": range(100)})
    async with rpq.open_many(tmp_path, follow=follow()) as dataset:
        assert dataset.num_rows == 100
        assert await ids(dataset, columns=["id"], filters=[("more", ">=", 95)]) == [95, 96, 97, 98, 99]
        assert await ids(dataset, limit=3) == [0, 1, 2]
    async with rpq.open_many(tmp_path, follow=follow(last_rows=15)) as dataset:
        assert await ids(dataset) == list(range(80, 100))  # in whole row groups
    async with rpq.open(tmp_path / "part-00000001.parquet", follow=follow(last_rows=15)) as file:
        assert await ids(file) == list(range(40, 60))


async def test_files_that_a_writer_left_come_again_no_more(tmp_path: Path) -> None:
    """Rows before the crash, then what resuming adds."""
    with pytest.raises(KeyError):
        async with rpq.create_dataset(tmp_path, **SETTINGS) as writer:
            await writer.write({"id": range(20)})
            await writer.checkpoint()
            raise KeyError
    async with rpq.open_many(tmp_path, follow=follow()) as dataset:
        batches = dataset.batches()
        first = [await anext(batches) for _ in range(2)]
        async with rpq.resume_dataset(tmp_path, **SETTINGS) as writer:
            await writer.write({"id": range(20, 30)})
        rest = [batch async for batch in batches]
    assert [i for batch in [*first, *rest] for i in pa.table(batch)["id"].to_pylist()] == list(range(30))


async def test_rows_of_a_file_that_took_the_place_of_another_are_not_given_for_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(20)}), tmp_path / "a.parquet")  # nothing in it tells one file from another
    pq.write_table(pa.table({"id": range(100, 105)}), tmp_path / "other")
    async with rpq.open_many(tmp_path, follow=follow()) as dataset:
        (tmp_path / "other").replace(tmp_path / "a.parquet")
        with pytest.raises(rpq.ObjectChangedError, match="another file took the place"):
            await ids(dataset)


async def test_objects_are_seen_when_they_are_complete() -> None:
    store = MemoryStore()
    async with rpq.create_dataset((store, "events"), roll_rows=10) as writer:
        await writer.write({"id": range(25)})
        async with rpq.open_many((store, "events/"), follow=follow()) as dataset:
            assert await ids(dataset) == list(range(20))


@pytest.mark.parametrize("setting", [{"last_rows": -1}, {"idle_seconds": "1"}])
def test_settings_are_checked(setting: Any) -> None:
    with pytest.raises(rpq.SchemaError, match=next(iter(setting))):
        rpq.FollowOptions(**setting)


def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rpq.SchemaError, match="partitioning"):
        rpq.open_many(tmp_path, follow=True, partitioning="hive")


def test_duckdb_takes_what_comes(tmp_path: Path) -> None:
    from resilient_pq import sync

    with sync.create_dataset(tmp_path, **SETTINGS) as writer:
        writer.write({"id": range(30)})
        writer.checkpoint()
        options = rpq.FollowOptions(poll_seconds=0.01, idle_seconds=0.02)
        with sync.open_many(tmp_path, follow=options) as dataset, duckdb.connect() as connection:
            stream = dataset.batches()  # noqa: F841 (DuckDB finds it by its name)
            found = connection.sql("select sum(id) from stream").fetchall()
            assert found == [(sum(range(30)),)]


def test_the_command_prints_the_last_rows_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from resilient_pq import sync

    with sync.create_dataset(tmp_path / "events", roll_rows=30, **SETTINGS) as writer:
        writer.write({"id": range(100)})
    folder = str(tmp_path / "events")
    for arguments, expected in (
        ([folder, "-n", "3"], [97, 98, 99]),
        ([folder, "-n", "12", "--where", "id = 99"], [99]),
        ([folder, "-f", "-n", "12", "--idle", "0.01", "--poll", "0.01"], list(range(88, 100))),
        ([f"{folder}/part-00000001.parquet", "-f", "-n", "all", "--poll", "0.01"], list(range(30, 60))),
    ):
        assert run(["tail", *arguments]) == 0
        assert [json.loads(line)["id"] for line in io.StringIO(capsys.readouterr().out)] == expected
    assert run(["tail", folder, "-n", "x"]) == 2
