"""Small files of this machine, opened and read many to a hop: the same rows, errors and order as one by one."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.arrow.flat_columns import FlatChunks
from resilient_pq.dataset import dataset_opening, rows_of_files
from resilient_pq.reader import row_groups

ROWS = 50


def _table(number: int, rows: int = ROWS) -> pa.Table:
    ids = np.arange(rows) + number * ROWS
    return pa.table(
        {
            "id": ids,
            "text": pa.array([None if n % 5 == 0 else f"text {n}" for n in ids.tolist()]),
            "day": pa.array(ids.astype("datetime64[D]")),
            "lists": pa.array([[n] * (n % 3) for n in ids.tolist()]),
        }
    )


#: Flat files of ours and of others, such as want another path in places, and one that is large.
WRITTEN: dict[int, Callable[[Path], object]] = {
    1: lambda path: sync.write(path, _table(1), compression="zstd"),
    3: lambda path: pq.write_table(
        _table(3),
        path,
        compression="none",
        use_dictionary=False,
        row_group_size=20,
        write_page_checksum=True,
        write_statistics=False,
    ),
    5: lambda path: pq.write_table(_table(5).select(["day", "id", "lists", "text"]), path),
    7: lambda path: pq.write_table(_table(7).slice(0, 0), path),
    9: lambda path: pq.write_table(_table(9, 60_000), path, compression="none", use_dictionary=False),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    for number in range(12):
        path = tmp_path / "files" / f"{number:02}.parquet"
        WRITTEN.get(number, lambda path, number=number: pq.write_table(_table(number), path))(path)
    return tmp_path / "files"


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Has files and row groups take the path that is for all, from then on."""

    def call() -> None:
        for module in (dataset_opening, rows_of_files, row_groups):
            monkeypatch.setattr(module, "ONE_HOP_BYTES", 0)
        monkeypatch.setattr(FlatChunks, "decode", lambda self, chunks: [None] * len(chunks))

    return call


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"columns": ["text", "id"]},
        {"columns": ["id", "day"], "strings": "view"},
        {"filters": [("id", "<", 120)]},
        {"limit": 333},
    ],
    ids=str,
)
async def test_rows_come_as_from_files_read_one_by_one(
    folder: Path, query: dict[str, Any], one_by_one: Callable[[], None]
) -> None:
    async def found() -> list[pa.Table]:
        async with rpq.open_many(folder) as dataset:
            whole = pa.table(await dataset.read(**query))
            batches = [pa.table(batch) async for batch in dataset.batches(70, **query)]
            assert pa.concat_tables(batches).equals(whole.combine_chunks())
            return [whole, *batches]

    together = await found()
    one_by_one()
    apart = await found()
    assert together == apart
    assert together[0].schema.equals(apart[0].schema, check_metadata=True)
    if not query:
        assert together[0].equals(pq.read_table(folder))


async def test_small_files_take_few_hops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        pq.write_table(_table(number).drop_columns("lists"), tmp_path / f"{number:02}.parquet")
    hops, loop = [], asyncio.get_running_loop()
    run = loop.run_in_executor

    def counted(*args: Any) -> Any:
        hops.append(args)
        return run(*args)

    monkeypatch.setattr(loop, "run_in_executor", counted)
    monkeypatch.setattr(dataset_opening, "_WAITS", float("inf"))
    async with rpq.open_many(tmp_path) as dataset:
        assert len(hops) <= 4
        hops.clear()
        assert (await dataset.read()).num_rows == 40 * ROWS
        assert len(hops) == 1


@pytest.mark.parametrize(("name", "group", "rows_before"), [("01", 0, ROWS), ("03", 1, 3 * ROWS + 20)])
@pytest.mark.parametrize("on_damage", ["raise", "drop"])
async def test_damage_in_one_of_them(
    folder: Path, on_damage: Any, one_by_one: Callable[[], None], name: str, group: int, rows_before: int
) -> None:
    path = folder / f"{name}.parquet"  # its pages have checksums
    data = bytearray(path.read_bytes())
    with sync.open(path) as file:
        at = file.metadata.row_groups[group].columns[0].meta_data.data_page_offset
    data[at + 40] ^= 1
    path.write_bytes(data)

    async def outcome() -> tuple[Any, list[int]]:
        lost: list[Any] = []
        rows: list[int] = []
        async with rpq.open_many(folder, on_damage=on_damage, on_lost=lost.append) as dataset:
            try:
                async for batch in dataset.batches(columns=["id"]):
                    rows += pa.table(batch)["id"].to_pylist()
            except rpq.ChecksumError as error:
                return (str(error), error.where), rows
        return lost, rows

    found = await outcome()
    assert found[1][:rows_before] == list(range(rows_before))
    assert len(found[1]) == rows_before if on_damage == "raise" else len(found[1]) > 10 * ROWS
    assert str(path) in str(found[0])
    one_by_one()
    assert await outcome() == found


async def test_a_file_that_cannot_be_opened_is_named(folder: Path, one_by_one: Callable[[], None]) -> None:
    path = folder / "04.parquet"
    path.write_bytes(path.read_bytes()[:-5])
    for _ in range(2):
        with pytest.raises(rpq.TornFileError) as caught:
            await rpq.open_many(folder)
        assert caught.value.where.key == str(path)
        with pytest.raises(rpq.NotFoundError) as missing:
            await rpq.open_many([folder / "00.parquet", folder / "none.parquet"])
        assert missing.value.where.key == str(folder / "none.parquet")
        one_by_one()


async def test_a_cancelled_read_ends_with_its_thread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gate, threads = threading.Event(), threading.Event(), set()
    read_together = rows_of_files.rows_together

    def slow(*args: Any, **options: Any) -> Any:
        begun.set()
        threads.add(threading.get_ident())
        gate.wait(60)
        return read_together(*args, **options)

    async with rpq.open_many([folder / f"{number:02}.parquet" for number in (0, 2, 4)]) as dataset:
        monkeypatch.setattr(rows_of_files, "rows_together", slow)
        reading = asyncio.create_task(dataset.read(["id"]))
        assert await asyncio.to_thread(begun.wait, 60)
        reading.cancel()
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert len(threads) == 1
        assert (await dataset.read(["id"])).num_rows == 3 * ROWS


@pytest.mark.filterwarnings("error")
async def test_a_stream_that_is_left_early_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_of_files, "ONE_HOP_BYTES", 5_000)  # few files to a hop
    async with rpq.open_many(folder) as dataset:
        for taken in range(3):
            async with dataset.batches(7) as batches:
                for _ in range(taken):
                    await anext(batches)
            gc.collect()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_several_threads_read_one_blocking_file(folder: Path) -> None:
    found: list[pa.Table] = []
    with sync.open(folder / "00.parquet") as file:

        def read() -> None:
            for _ in range(20):
                found.append(pa.table(file.read(["id", "text"])))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = _table(0).select(["id", "text"])
        assert len(found) == 80 and all(table.equals(expected) for table in found)


@pytest.mark.parametrize("verify", [True, False])
async def test_alike_files_are_read_by_one_call(
    tmp_path: Path, verify: bool, monkeypatch: pytest.MonkeyPatch, one_by_one: Callable[[], None]
) -> None:
    """Flat files of one schema are; one among them that is damaged, or has more rows than others, changes nothing."""
    for number in range(8):
        table = _table(number).drop_columns("lists")
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=20, write_page_checksum=True)
    calls: list[list[bool]] = []
    together = rows_of_files.rows_together

    def counted(*args: Any, **options: Any) -> Any:
        found = together(*args, **options)
        calls.append([rows is not None for rows in found])
        return found

    monkeypatch.setattr(rows_of_files, "rows_together", counted)
    with sync.open_many(tmp_path, verify=verify) as dataset:
        whole = pa.table(dataset.read(["text", "id"]))
    assert calls == [[True] * 8]
    assert whole.equals(pq.read_table(tmp_path, columns=["text", "id"]))
    assert whole.column("id").num_chunks == 8 * 3

    damaged = tmp_path / "4.parquet"
    data = bytearray(damaged.read_bytes())
    chunk = pq.ParquetFile(damaged).metadata.row_group(1).column(0)
    data[chunk.dictionary_page_offset + chunk.total_compressed_size // 2] ^= 0x10
    damaged.write_bytes(data)

    def outcome() -> Any:
        with sync.open_many(tmp_path, verify=verify) as dataset:
            got = []
            try:
                for batch in dataset.batches(1000, ["text", "id"]):
                    got.append(pa.table(batch))
            except rpq.FormatError as error:
                return pa.concat_tables(got), type(error), error.where
            return pa.concat_tables(got)

    found = outcome()
    if verify:
        assert calls[1][:5] == [True] * 4 + [False]
        assert isinstance(found, tuple)
        assert found[0].num_rows == 4 * ROWS + 20
    one_by_one()
    monkeypatch.setattr(rows_of_files, "rows_together", lambda asked, verify: [None] * len(asked))
    apart = outcome()
    assert found == apart
