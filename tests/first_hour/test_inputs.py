"""Rows and files in the forms that people have them in."""

from __future__ import annotations

import io
import sqlite3
from collections import namedtuple
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import resilient_pq
from resilient_pq import sync as rpq

ROWS = 20_000
Point = namedtuple("Point", ["a", "b"])


@dataclass
class Reading:
    a: int
    b: str


def dicts() -> Iterator[dict[str, Any]]:
    return ({"a": i, "b": f"row {i}"} for i in range(ROWS))


def batches() -> Iterator[Any]:
    for start in range(0, ROWS, 5000):
        numbers = range(start, start + 5000)
        yield pa.record_batch({"a": list(numbers), "b": [f"row {i}" for i in numbers]})


async def later() -> AsyncIterator[dict[str, Any]]:
    for record in dicts():
        yield record


SOURCES: dict[str, Callable[[], Any]] = {
    "generator of dicts": dicts,
    "generator of batches": batches,
    "generator of columns": lambda: (
        {"a": np.arange(i, i + 5000), "b": [f"row {j}" for j in range(i, i + 5000)]} for i in range(0, ROWS, 5000)
    ),
    "generator of dataclasses": lambda: (Reading(i, f"row {i}") for i in range(ROWS)),
    "list of dataclasses": lambda: [Reading(i, f"row {i}") for i in range(ROWS)],
    "list of named tuples": lambda: [Point(i, f"row {i}") for i in range(ROWS)],
    "asynchronous generator": later,
    "LazyFrame": lambda: pl.LazyFrame(pa.Table.from_batches(batches())),
    "DuckDB relation": lambda: duckdb.sql("select i as a, 'row ' || i as b from range(20000) r(i) order by i"),
    "RecordBatchReader": lambda: pa.Table.from_batches(batches()).to_reader(),
}


@pytest.mark.parametrize("name", SOURCES)
def test_rows_are_taken(tmp_path: Path, name: str) -> None:
    rpq.write(tmp_path / "a", SOURCES[name]())
    assert rpq.read(tmp_path / "a").to_pydict() == {"a": list(range(ROWS)), "b": [f"row {i}" for i in range(ROWS)]}


@pytest.mark.parametrize("name", ["generator of dicts", "asynchronous generator", "LazyFrame"])
async def test_rows_are_taken_asynchronously(tmp_path: Path, name: str) -> None:
    await resilient_pq.write(tmp_path / "a", SOURCES[name]())
    assert (await resilient_pq.read(tmp_path / "a", ["a"])).to_pydict() == {"a": list(range(ROWS))}
    async with resilient_pq.create_dataset(tmp_path / "set", roll_rows=ROWS // 2) as sink:
        await sink.write(SOURCES[name]())
    async with resilient_pq.open_many(tmp_path / "set") as dataset:
        assert dataset.num_rows == ROWS


def test_a_generator_runs_in_the_thread_of_its_caller(tmp_path: Path) -> None:
    """Connections of sqlite3 refuse any other."""
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t as select 1 as a union all select 2")
    with rpq.create(tmp_path / "a") as writer:
        writer.write({"a": row[0]} for row in connection.execute("select a from t"))
    assert rpq.read(tmp_path / "a").to_pydict() == {"a": [1, 2]}


def test_what_a_generator_raises_is_an_error_of_the_source(tmp_path: Path) -> None:
    def failing() -> Iterator[dict[str, int]]:
        yield {"a": 1}
        raise ValueError("the sensor is gone")

    with pytest.raises(rpq.SourceError, match="the sensor is gone"):
        rpq.write(tmp_path / "a", failing())
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([Reading(1, "x"), 5], "row 1 of the list is of type int"),
        ([1, 2], "row 0 of the list is of type int"),
        (5, "type int"),
        ("text", "type str"),
        ({"a": [1, "x"]}, "a"),
    ],
)
def test_what_is_not_taken_says_why(tmp_path: Path, data: Any, said: str) -> None:
    with pytest.raises(rpq.SchemaError, match=said):
        rpq.write(tmp_path / "a", data)


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    rpq.write(tmp_path / "file.parquet", {"a": [1, 2, 3]})
    return (tmp_path / "file.parquet").read_bytes()


def test_open_files_and_bytes_are_read(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file.parquet"
    for source in (data, bytearray(data), memoryview(data), io.BytesIO(data), fsspec.open(str(path)), path):
        assert rpq.read(source).to_pydict() == {"a": [1, 2, 3]}
    with open(path, "rb") as file, fsspec.open(str(path), "rb") as other:
        for source in (file, other):
            assert rpq.read(source).num_rows == 3
            assert rpq.check(source).outcome == "sound"


def test_bytes_are_recovered(tmp_path: Path, data: bytes) -> None:
    report = rpq.recover(io.BytesIO(data[:-20]), tmp_path / "saved.parquet")
    assert report.num_rows == 3 and "BytesIO" in report.url


def test_open_files_are_written(tmp_path: Path) -> None:
    memory = io.BytesIO()
    rpq.write(memory, {"a": [1, 2]})
    with open(tmp_path / "b", "wb") as file:
        rpq.write(file, {"a": [1, 2]})
    rpq.write(fsspec.open(str(tmp_path / "c"), "wb"), {"a": [1, 2]})
    for written in (memory.getvalue(), tmp_path / "b", tmp_path / "c"):
        assert rpq.read(written).to_pydict() == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("target", "said"), [(b"abc", "cannot be written"), (5, "type int"), (io.StringIO(), "cannot write|text|bytes")]
)
def test_what_cannot_be_written(target: Any, said: str) -> None:
    with pytest.raises((rpq.ResilientPQError, TypeError), match=said):
        rpq.write(target, {"a": [1]})


def test_text_is_no_file() -> None:
    with pytest.raises(rpq.SchemaError, match="gives text"):
        rpq.read(io.StringIO("a,b"))  # type: ignore[arg-type]
