"""Rows appended to files of any writer: everybody reads both parts, and what was there is there unchanged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import either

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io.memory_store import MemoryStore

FILES = ["ours", "ours-gzip-v2", "pyarrow", "pyarrow-v2", "pyarrow-old", "duckdb", "polars", "fastparquet"]
each_file = pytest.mark.parametrize("name", either(["ours", "pyarrow", "duckdb", "polars"], FILES))


def read_by_all(path: Path) -> dict[str, pa.Table]:
    with sync.open(path) as file:
        ours = pa.table(file.read())
    frame = polars.read_parquet(path).to_arrow()
    return {
        "pyarrow": pq.read_table(path),
        "resilient_pq": ours,
        "polars": frame.cast(pa.schema([(f.name, pa.string() if f.name == "name" else f.type) for f in frame.schema])),
        "duckdb": duckdb.sql(f"from '{path}'").to_arrow_table(),
    }


@each_file
def test_everybody_reads_both_parts(name: str, original: Callable[[str], Path], rows_of: Any) -> None:
    path = original(name)
    before = path.read_bytes()
    with sync.append(path, row_group_rows=700) as writer:
        assert writer.num_rows == writer.num_rows_stored == 3000
        writer.write(rows_of(3000, 4000))
        writer.write(rows_of(4000, 5000).to_pydict())
        assert path.read_bytes() == before
    assert path.read_bytes()[: len(before)] == before
    assert os.listdir(path.parent) == [path.name]
    for reader, table in read_by_all(path).items():
        assert table.select(["id", "name", "price"]).to_pydict() == rows_of(0, 5000).to_pydict(), reader
    report = sync.check(path)
    assert report.outcome == "sound", report.findings
    assert not report.findings


@each_file
def test_what_was_there_stays(name: str, original: Callable[[str], Path], rows_of: Any) -> None:
    """Metadata of row groups, indexes, filters and keys."""
    path = original(name)
    before, pages = pq.read_metadata(path), sync.open(path)
    with sync.append(path) as writer:
        writer.write(rows_of(3000, 3500))
    after = pq.read_metadata(path)
    for i in range(before.num_row_groups):
        for column in range(before.num_columns):
            assert after.row_group(i).column(column).to_dict() == before.row_group(i).column(column).to_dict()
    assert after.schema.equals(before.schema)
    assert after.created_by == before.created_by
    kept = {key: value for key, value in (before.metadata or {}).items() if not key.startswith(b"rpq.")}
    assert kept.items() <= (after.metadata or {}).items()
    with pages, sync.open(path) as file:
        for group in range(pages.num_row_groups):
            for column in ("id", "name"):
                assert str(file.column_index(group, column)) == str(pages.column_index(group, column))
        found = file.read(filters=[("id", ">=", 2990), ("id", "<", 3010)])
        assert pa.table(found)["id"].to_pylist() == list(range(2990, 3010))


@pytest.mark.parametrize("name", either(["ours", "pyarrow"], FILES))
def test_appended_again_and_again(name: str, original: Callable[[str], Path], rows_of: Any) -> None:
    path = original(name)
    for start in range(3000, 3400, 100):
        with sync.append(path) as writer:
            writer.write(rows_of(start, start + 100))
    assert pq.read_table(path, columns=["id"])["id"].to_pylist() == list(range(3400))
    report = sync.check(path, deep=True)
    assert (report.outcome, report.findings) == ("sound", ())
    with sync.open(path) as file:
        assert [known.num_rows for known in file.checkpoints][-4:] == [3000, 3100, 3200, 3300]


async def test_parts_are_copied_by_the_store(original: Callable[[str], Path], rows_of: Any) -> None:
    """Of a large object less than a MiB is read, and what is sent is that and the new rows."""
    store = MemoryStore()
    table = pa.table({"noise": [os.urandom(1000) for _ in range(12_000)]})
    async with rpq.create((store, "a"), compression="none") as writer:
        await writer.write(table)
    info = await store.head("a")
    read: list[int] = []
    sent: list[int] = []
    real_read, real_put = store.read_range, store.put_part

    async def read_range(key: str, start: int, end: int, *, pin: Any) -> Any:
        read.append(end - start)
        return await real_read(key, start, end, pin=pin)

    async def put_part(key: str, upload_id: str, number: int, data: Any) -> Any:
        part = await real_put(key, upload_id, number, data)
        sent.append(part.size)
        return part

    store.read_range, store.put_part = read_range, put_part  # type: ignore[method-assign, assignment]
    copied = []

    async def copy_part(*args: Any) -> Any:
        copied.append(args[5] - args[4])
        size, store.read_range, store.put_part = len(sent), real_read, real_put  # type: ignore[method-assign]
        part = await MemoryStore.copy_part(store, *args)
        store.read_range, store.put_part = read_range, put_part  # type: ignore[method-assign, assignment]
        assert len(sent) == size
        return part

    store.copy_part = copy_part  # type: ignore[method-assign, assignment]
    async with rpq.append((store, "a")) as writer:
        await writer.write(table.slice(0, 100))
    assert sum(copied) == info.size // 2**20 * 2**20
    assert sum(read) < 3 * 2**20
    assert sum(sent) < 4 * 2**20
    del store.read_range, store.put_part, store.copy_part
    async with rpq.open((store, "a")) as file:
        assert file.num_rows == 12_100
    assert await store.list_uploads("a") == []


@pytest.mark.parametrize("size", [4 * 2**20 - 1, 5 * 2**20, 6 * 2**20])
async def test_an_object_of_another_that_ends_on_a_border_of_parts(size: int, tmp_path: Path) -> None:
    """The last part of a small object may be small, and one that ends on a whole MiB ends a part."""
    path = tmp_path / "a.parquet"
    table = pa.table({"noise": [os.urandom(1000)] * 4, "id": range(4)})

    def write(padding: int) -> int:
        pq.write_table(table.replace_schema_metadata({"padding": "x" * padding}), path, store_schema=False)
        return path.stat().st_size

    write(size - write(0) - 10)
    write(size - path.stat().st_size + size - write(0) - 10)
    store = MemoryStore()
    data = path.read_bytes()
    await store.put("a", data)
    async with rpq.append((store, "a")) as writer:
        await writer.write(table)
        await writer.checkpoint()
    got = bytes((await store.read_tail("a", 1 << 30)).data)
    assert got[: len(data)] == data
    assert pq.read_table(pa.BufferReader(got)).num_rows == 8


def test_to_a_file_without_rows_and_one_of_no_row_groups(tmp_path: Path, rows_of: Any) -> None:
    for name, write in {"ours": sync.write, "theirs": lambda path, table: pq.write_table(table, path)}.items():
        path = tmp_path / name
        write(path, rows_of(0, 0))
        with sync.append(path) as writer:
            writer.write(rows_of(0, 10))
        assert pq.read_table(path).equals(rows_of(0, 10))
        assert sync.check(path).outcome == "sound"


def test_nothing_appended_leaves_the_file_as_it_is(original: Callable[[str], Path], rows_of: Any) -> None:
    path = original("pyarrow")
    before, inode = path.read_bytes(), path.stat().st_ino
    with sync.append(path) as writer:
        writer.write(rows_of(0, 0))
    assert (path.read_bytes(), path.stat().st_ino) == (before, inode)
    assert os.listdir(path.parent) == [path.name]
    with sync.append(path) as writer:
        writer.add_key_value_metadata({"who": "me"})
    assert pq.read_metadata(path).metadata[b"who"] == b"me"
    assert pq.read_table(path).equals(rows_of(0, 3000))


def test_rows_have_to_fit(original: Callable[[str], Path], rows_of: Any) -> None:
    path = original("polars")
    before = path.read_bytes()
    with pytest.raises(rpq.SchemaError), sync.append(path) as writer:
        writer.write({"id": ["text"], "name": ["a"], "price": [1.0]})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_the_order_of_rows_is_declared_of_each_row_group(tmp_path: Path, rows_of: Any) -> None:
    path = tmp_path / "a.parquet"
    order = rpq.WriteOptions(sorting_columns=["id"])
    sync.write(path, rows_of(0, 100), options=order)
    with sync.append(path) as writer:
        writer.write(rows_of(50, 60))
    with sync.append(path, options=order) as writer:
        writer.write(rows_of(60, 70))
    metadata = pq.read_metadata(path)
    assert [len(metadata.row_group(i).sorting_columns) for i in range(3)] == [1, 0, 1]


@pytest.mark.thorough
def test_more_row_groups_than_all_readers_count(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(32_766)}), path, row_group_size=1, write_statistics=False)
    with sync.append(path, row_group_rows=1, checkpoint_every=None) as writer:
        writer.write({"a": [32_766, 32_767, 32_768]})
    with sync.open(path) as file:
        assert file.num_row_groups == 32_769
        assert pa.table(file.read(row_groups=[0, 32_768]))["a"].to_pylist() == [0, 32_768]
        assert all(group.ordinal is None for group in (file.metadata.row_groups[i] for i in (0, 32_767, 32_768)))
