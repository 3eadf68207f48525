"""A file as a source for other libraries: one line each, row group by row group as they ask for it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from store_wrapper import RecordingStore

import resilient_pq as names
from resilient_pq import sync as rpq
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.loop_portal import portal

ROWS = pa.table({"n": list(range(600)), "s": [f"text {i}" for i in range(600)]})


@pytest.fixture
def file(tmp_path: Path) -> Iterator[rpq.File]:
    with rpq.create(tmp_path / "f.parquet", row_group_rows=100) as writer:
        writer.write(ROWS)
    with rpq.open(tmp_path / "f.parquet") as found:
        yield found


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param(pa.table, id="pyarrow"),
        pytest.param(lambda file: pa.RecordBatchReader.from_stream(file).read_all(), id="pyarrow-reader"),
        pytest.param(lambda file: pl.DataFrame(file).to_arrow(), id="polars"),
        pytest.param(lambda file: duckdb.sql("from file").to_arrow_table(), id="duckdb"),
        pytest.param(lambda file: pa.Table.from_pandas(pd.DataFrame.from_arrow(file)), id="pandas"),
        pytest.param(
            lambda file: ds.Scanner.from_batches(pa.RecordBatchReader.from_stream(file)).to_table(), id="dataset"
        ),
    ],
)
def test_files_and_streams_of_columns(file: Any, taken: Callable[[Any], pa.Table]) -> None:
    for _ in range(2):
        assert taken(file).to_pydict() == ROWS.to_pydict()
    assert taken(file.batches(columns=["s"])).to_pydict() == ROWS.select(["s"]).to_pydict()
    gc.collect()
    assert not portal.run(_other_tasks())


async def _other_tasks() -> set[Any]:
    await asyncio.sleep(0)
    return asyncio.all_tasks() - {asyncio.current_task()}


def test_a_query_over_a_file(file: Any) -> None:
    assert duckdb.sql("select sum(n), count(distinct s) from file where n >= 300").fetchall() == [(134_850, 300)]
    assert duckdb.sql("select n from file limit 3").fetchall() == [(0,), (1,), (2,)]


def test_a_reader_that_stops_early_reads_no_more(tmp_path: Path) -> None:
    inner = MemoryStore()
    with rpq.create((inner, "f"), row_group_rows=100, compression="none") as writer:
        writer.write(ROWS)
    store = RecordingStore(inner)
    options = names.ReadOptions(memory_budget=1)
    with rpq.open((store, "f"), options=options) as file:
        reader = pa.RecordBatchReader.from_stream(file.batches(columns=["n"]))
        assert len(store.calls) == 1
        assert reader.read_next_batch().num_rows == 100
        del reader
        gc.collect()
        portal.wait_for_ends()
        assert len(store.calls) <= 1 + 2
        assert not portal.run(_other_tasks())


def test_a_stream_is_taken_once(file: Any) -> None:
    batches = file.batches(50)
    assert next(batches).num_rows == 50
    assert pa.table(batches).num_rows == 550
    assert pa.table(batches).num_rows == 0
    assert pa.schema(batches) == pa.schema(batches.schema) == pa.schema(file) == ROWS.schema


def test_a_writer_takes_it(file: Any, tmp_path: Path) -> None:
    with rpq.create(tmp_path / "g.parquet") as writer:
        writer.write(file)
    with rpq.open(tmp_path / "g.parquet") as copy:
        assert pa.table(copy).equals(ROWS)


def test_many_writers_take_streams_at_one_time(file: Any, tmp_path: Path) -> None:
    """Each holds a thread of the loop while its stream needs others."""

    def copy(number: int) -> int:
        with rpq.create(tmp_path / f"{number}.parquet") as writer:
            writer.write(file.batches(20))
            return writer.num_rows

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(copy, range(16))) == [600] * 16


def test_an_error_of_the_file_names_its_place(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    with rpq.create(path, row_group_rows=100, compression="none") as writer:
        writer.write(ROWS)
    with rpq.open(path) as file:
        chunk = file.metadata.row_groups[3].columns[0].meta_data
        data = bytearray(path.read_bytes())
        data[chunk.data_page_offset + chunk.total_compressed_size - 2] ^= 0xFF
        path.write_bytes(data)
    with rpq.open(path) as file:
        reader = pa.RecordBatchReader.from_stream(file)
        assert [reader.read_next_batch().num_rows for _ in range(3)] == [100] * 3
        with pytest.raises(OSError, match=r"ChecksumError: .*row group 3.*column n"):
            reader.read_next_batch()


def test_what_the_loop_lets_go_of_is_closed_without_waiting_for_itself(file: Any) -> None:
    """As where its garbage collector comes upon a stream that somebody forgot."""
    held = [file.batches(10)]
    next(held[0])

    async def forget() -> None:
        held.clear()
        gc.collect()

    portal.run(forget())
    assert not portal.run(_other_tasks_soon())


async def _other_tasks_soon() -> set[Any]:
    for _ in range(20):
        if not (others := await _other_tasks()):
            break
        await asyncio.wait(others, timeout=10)
    return others


def test_blocking_calls_within_the_loop_are_refused(file: Any) -> None:
    async def inside() -> None:
        file.read()

    with pytest.raises(rpq.UnsupportedError, match="at work already"):
        portal.run(inside())
