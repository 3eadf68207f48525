"""Files, tables and reports go to other processes: pickled, as multiprocessing, joblib and Dask do it."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import pickle
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import resilient_pq
from resilient_pq import sync as rpq
from resilient_pq.io.memory_store import MemoryStore

ROWS = {
    "i": pa.array([1, None, 3, 4]),
    "b": pa.array([True, None, False, True]),
    "s": pa.array(["a", None, "a longer text than fits", ""]),
    "z": pa.array([b"1", b"", None, b"\x00"], pa.large_binary()),
    "d": pa.array([Decimal("1.10"), None, Decimal("3.30"), Decimal("4.40")]),
    "t": pa.array([datetime(2026, 1, 1), None, datetime(2026, 1, 3), datetime(2026, 1, 4)]),
    "day": pa.array([date(2026, 1, 1), None, date(2026, 1, 3), date(2026, 1, 4)]),
    "w": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    "l": pa.array([[1, 2], None, [], [3]]),
    "m": pa.array([[("k", 1)], None, [], [("x", 2), ("y", None)]], pa.map_(pa.string(), pa.int32())),
    "r": pa.array([{"x": 1, "y": ["q"]}, None, {"x": None, "y": None}, {"x": 4, "y": []}]),
    "n": pa.nulls(4),
    "lw": pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], pa.list_(pa.int32(), 2)),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with rpq.create(tmp_path / "f.parquet", row_group_rows=2) as writer:
        writer.write(pa.table(ROWS))
    return tmp_path / "f.parquet"


@pytest.fixture
def file(path: Path) -> Iterator[Any]:
    with rpq.open(path) as opened:
        yield opened


def _copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("strings", ["plain", "view"])
def test_a_table(file: Any, strings: Any) -> None:
    table = file.read(strings=strings)
    copied = _copied(table)
    assert pa.table(copied).equals(pa.table(table)) and copied.to_pydict() == table.to_pydict()
    pa.table(copied).validate(full=True)
    for offset, length in ((1, 2), (3, 1), (0, 0), (4, 1)):
        part = table.slice(offset, length)
        assert pa.table(_copied(part)).equals(pa.table(part))
    assert _copied(file.read(columns=[])).num_rows == 4


def test_a_slice_takes_only_its_rows_along(tmp_path: Path) -> None:
    rpq.write(tmp_path / "f.parquet", {"a": range(100_000), "s": [str(i) for i in range(100_000)]})
    table = rpq.read(tmp_path / "f.parquet")
    assert len(pickle.dumps(table)) > 800_000
    assert len(pickle.dumps(table.slice(50_000, 10))) < 5_000


def test_reports(path: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(path.read_bytes()[:-100])
    report = rpq.check(torn)
    assert report.findings and _copied(report) == report and _copied(report.findings[0]) == report.findings[0]
    protection = rpq.protect(path)
    assert _copied(protection) == protection
    repair = rpq.repair(path, tmp_path / "repaired.parquet")
    assert _copied(repair) == repair


def _work(file: Any, table: Any) -> tuple[list[int], Any]:
    with file:
        return file.read(columns=["i"], row_groups=[1]).to_pydict()["i"], table.slice(2)


def test_a_worker_that_multiprocessing_spawned(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with rpq.open(path.name, verify=False) as file, multiprocessing.get_context("spawn").Pool(1) as pool:
        ints, part = pool.apply(_work_elsewhere, (str(path.parent.parent), file, file.read()))
    assert ints == [3, 4] and part.num_rows == 2


def _work_elsewhere(folder: str, file: Any, table: Any) -> tuple[list[int], Any]:
    import os

    os.chdir(folder)
    return _work(file, table)


def test_a_file_is_opened_again_when_it_is_used(path: Path) -> None:
    with rpq.open(path) as file:
        pickled = pickle.dumps(file)
    again = pickle.loads(pickled)
    assert "_target" not in vars(again)
    assert pickle.loads(pickle.dumps(again)).num_rows == again.num_rows == 4
    again.close()


def test_an_object_that_was_replaced_is_refused(path: Path) -> None:
    with rpq.open(path) as file:
        again = _copied(file)
    rpq.write(path, {"a": [1]})
    with pytest.raises(rpq.ObjectChangedError, match="replaced after the file was pickled"):
        again.read()


def test_what_cannot_be_pickled_says_so(path: Path) -> None:
    with rpq.open(io.BytesIO(path.read_bytes())) as file, pytest.raises(rpq.UnsupportedError, match="URL or path"):
        pickle.dumps(file)
    writer = rpq.create((MemoryStore(), "f"))
    with pytest.raises(rpq.UnsupportedError, match="a Writer cannot"):
        pickle.dumps(writer)
    writer.abort()

    async def asynchronous() -> None:
        async with resilient_pq.open(path) as file:
            pickle.dumps(file)

    with pytest.raises(rpq.UnsupportedError, match="an asynchronous file cannot be pickled"):
        asyncio.run(asynchronous())
