"""A program that is killed while it appends: the file is as it was, and every row that it said to be stored is there."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import either

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io.memory_store import MemoryStore

SCRIPT = Path(__file__).with_name("killed_appender.py")
spec = importlib.util.spec_from_file_location("killed_appender", SCRIPT)
assert spec is not None and spec.loader is not None
killed_appender = importlib.util.module_from_spec(spec)
spec.loader.exec_module(killed_appender)
BASE = 200


@dataclass(frozen=True)
class Place:
    """A file to append to, on disk or in a bucket."""

    url: str
    options: dict[str, Any] | None
    get: Callable[[], bytes]
    put: Callable[[bytes], None]

    def begin(self, *, theirs: bool) -> bytes:
        """A file of `BASE` rows."""
        table = pa.table(killed_appender.rows(0, BASE, 30_000))
        data = made_by_pyarrow(table) if theirs else made_by_us(table)
        self.put(data)
        return data

    def rescue(self, stored: int) -> int:
        """Go on with what was left, and append once more; how many rows of the killed one came back."""
        try:
            with sync.resume(self.url, storage_options=self.options) as writer:
                found = writer.num_rows_stored
        except (rpq.RecoveryError, rpq.NotFoundError):  # no row was stored, or all of the file was
            with sync.open(self.url, storage_options=self.options) as file:
                found = file.num_rows
        assert found >= stored
        with sync.append(self.url, storage_options=self.options) as writer:
            assert writer.num_rows == found
            writer.write(killed_appender.rows(found, found + 10))
        table = pq.read_table(pa.BufferReader(self.get()))
        assert table["id"].to_pylist() == list(range(found + 10))
        report = sync.check(self.url, storage_options=self.options)
        assert (report.outcome, report.findings) == ("sound", ())
        return found - BASE


def made_by_pyarrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="none", use_dictionary=False)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def made_by_us(table: pa.Table) -> bytes:
    store = MemoryStore()
    sync.write((store, "a"), table, compression="none")
    return bytes(asyncio.run(store.read_tail("a", 1 << 30)).data)


@pytest.fixture
def on_disk(tmp_path: Path) -> Place:
    path = tmp_path / "day.parquet"
    return Place(str(path), None, path.read_bytes, lambda data: path.write_bytes(data) and None)


@pytest.fixture
def in_bucket(seaweedfs: Any, empty_bucket: Any) -> Any:
    with empty_bucket(seaweedfs) as s3:
        put = lambda data: s3.client.put_object(Bucket=s3.bucket, Key="day.parquet", Body=data)  # noqa: E731
        yield Place(s3.url("day.parquet"), s3.storage_options, lambda: s3.read("day.parquet"), put)


def kill(place: Place, step: int = -1, when: str = "before", lines: int | None = None) -> tuple[bool, int]:
    """Whether it was killed, at a step or when it had said so many lines, and how many rows it said to be stored."""
    arguments = [place.url, json.dumps(place.options), 9, step, when]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    heard = [process.stdout.readline() for _ in range(lines or 0)]
    if lines is not None:
        process.kill()
    said = [line.split() for line in [*heard, *process.stdout.readlines()] if line.endswith("\n")]
    wrong = process.stderr.read()
    code = process.wait()
    assert code in (0, -signal.SIGKILL), wrong
    stored = max((int(words[1]) for words in said if words[0] == "stored"), default=BASE)
    return code != 0, stored


def at_step(place: Place, step: int, when: str, *, theirs: bool) -> int | None:
    """How many rows came back; None where the program ended before that step."""
    data = place.begin(theirs=theirs)
    killed, stored = kill(place, step, when)
    now = place.get()
    if not killed or now != data:
        # It was replaced in one step.
        assert now[: len(data)] == data
        assert pq.read_table(pa.BufferReader(now))["id"].to_pylist() == list(range(BASE + 9 * killed_appender.GROUP))
    if not killed:
        return None
    return place.rescue(stored)


def at_every_step(place: Place, when: str, *, theirs: bool) -> list[int]:
    found: list[int] = []
    while (rows := at_step(place, len(found), when, theirs=theirs)) is not None:
        found.append(rows)
    return found


@pytest.mark.parametrize(("step", "when", "theirs"), [(14, "behind", True)])
def test_killed_at_a_step(step: int, when: str, theirs: bool, on_disk: Place) -> None:
    assert at_step(on_disk, step, when, theirs=theirs) is not None


@pytest.mark.thorough
def test_killed_at_a_request(in_bucket: Place) -> None:
    assert at_step(in_bucket, 16, "before", theirs=False) is not None


@pytest.mark.parametrize(("when", "theirs"), either([], [("before", True), ("behind", False)], seconds=1800))
def test_killed_at_every_step(when: str, theirs: bool, on_disk: Place) -> None:
    found = at_every_step(on_disk, when, theirs=theirs)
    assert len(found) > 20
    assert min(found) == 0 and max(found) == 9 * killed_appender.GROUP


@pytest.mark.parametrize(("when", "theirs"), either([], [("before", False), ("behind", True)], seconds=1800))
def test_killed_at_every_request(when: str, theirs: bool, in_bucket: Place) -> None:
    found = at_every_step(in_bucket, when, theirs=theirs)
    assert len(found) > 20
    assert min(found) == 0 and max(found) == 9 * killed_appender.GROUP


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("place", ["on_disk", "in_bucket"])
def test_killed_sixty_times(place: str, request: pytest.FixtureRequest) -> None:
    rng, found = random.Random(7), []
    where: Place = request.getfixturevalue(place)
    for number in range(60):
        data = where.begin(theirs=number % 2 == 0)
        killed, stored = kill(where, lines=rng.randrange(1, 50))
        assert where.get()[: len(data)] == data
        if killed:
            found.append(where.rescue(stored))
    assert len(set(found)) > 2
