"""The sink of a data set killed with SIGKILL again and again: the files hold each row once, and every row promised."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sampled import either

SCRIPT = Path(__file__).with_name("killed_sink.py")


def _module() -> Any:
    spec = importlib.util.spec_from_file_location("killed_sink", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Runs:
    """Runs the program until it is killed, again from what it said last, and in the end until it is done."""

    def __init__(self, url: str, storage_options: Any, *, num_rows: int, size: int, errors: Path) -> None:
        self.arguments = [url, json.dumps(storage_options)]
        self.num_rows, self.size, self.errors = num_rows, size, errors
        self.state: dict[str, Any] = {}  # What it said last behind ``checkpoint``
        self.num_promised = 0  # How often it was killed with rows promised that were stored by no run before

    def run(self, seed: int, *, kill_after: int | None) -> bool:
        """Whether it came to its end before it was killed."""
        more = [json.dumps(self.state), self.num_rows, self.size, seed]
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *self.arguments, *map(str, more)],
            stdout=subprocess.PIPE,
            stderr=self.errors.open("wb"),
            text=True,
        )
        assert process.stdout is not None
        before = sum(self.state.get("rows", {}).values())
        said: list[str] = []
        try:
            while kill_after is None or len(said) < kill_after:
                if not (line := process.stdout.readline()):
                    break
                said.append(line)
            if kill_after is not None:
                time.sleep(random.Random(seed).choice([0, 0, random.Random(seed).uniform(0, 0.2)]))
        finally:
            process.kill() if kill_after is not None else None
            said += process.stdout.readlines()
            process.wait()
        assert process.returncode in (0, -signal.SIGKILL), self.errors.read_text()
        for line in said:
            if line.endswith("\n"):
                self._heed(*line.split(" ", 1))
        self.num_promised += sum(self.state.get("rows", {}).values()) > before
        return process.returncode == 0

    def _heed(self, word: str, value: str) -> None:
        if word == "checkpoint":
            self.state = json.loads(value)
        elif word == "resumed":
            stored = json.loads(value)
            assert all(stored[name] >= rows for name, rows in self.state.get("rows", {}).items())


def check(files: dict[str, bytes], num_rows: int) -> None:
    """Each row is there once, in its partition, in order."""
    module = _module()
    wanted: dict[str, list[int]] = defaultdict(list)
    for number in range(num_rows):
        wanted[module.partition_of(number)].append(number)
    found: dict[str, list[int]] = defaultdict(list)
    for name in sorted(files):
        table = pq.read_table(io.BytesIO(files[name]))
        assert table.column_names == ["n", "noise"]
        numbers = table["n"].to_pylist()
        assert table["noise"].to_pylist() == [
            module.row(number, len(table["noise"][0].as_py()))["noise"] for number in numbers
        ]
        found[name.rpartition("/")[0]] += numbers
    assert {name: rows for name, rows in found.items() if rows} == wanted


def kill_again_and_again(runs: Runs, kills: int) -> int:
    """How often it was killed before it came to its end; then it is let come to it."""
    rng = random.Random(kills)
    killed = 0
    while killed < kills and not runs.run(killed, kill_after=rng.choice((0, 1, 1, 2, 3, 5))):
        killed += 1
    assert runs.run(99, kill_after=None)
    return killed


def local_files(folder: Path) -> dict[str, bytes]:
    """All that is below a folder."""
    paths = [Path(root) / name for root, _, names in os.walk(folder) for name in names]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def local_runs(tmp_path: Path) -> Callable[..., Runs]:
    return lambda **sizes: Runs(str(tmp_path / "set"), None, errors=tmp_path / "errors", **sizes)


@pytest.fixture
def s3_runs(seaweedfs: Any, tmp_path: Path) -> Callable[..., Runs]:
    url = seaweedfs.url(f"set-{os.urandom(6).hex()}")
    return lambda **sizes: Runs(url, seaweedfs.storage_options, errors=tmp_path / "errors", **sizes)


def objects(s3: Any, url: str) -> dict[str, bytes]:
    """All that is below a prefix; no upload is left there."""
    prefix = url.removeprefix(f"s3://{s3.bucket}/") + "/"
    uploads = s3.client.list_multipart_uploads(Bucket=s3.bucket).get("Uploads", [])
    assert [upload for upload in uploads if upload["Key"].startswith(prefix)] == []
    pages = s3.client.get_paginator("list_objects_v2").paginate(Bucket=s3.bucket, Prefix=prefix)
    names = [found["Key"] for page in pages for found in page.get("Contents", [])]
    return {name.removeprefix(prefix): s3.read(name) for name in names}


@pytest.mark.parametrize(("num_rows", "size", "kills"), either([(600, 300, 2)], [(12_000, 2_000, 20)], 1800))
def test_killed_locally(local_runs: Any, tmp_path: Path, num_rows: int, size: int, kills: int) -> None:
    runs = local_runs(num_rows=num_rows, size=size)
    assert kill_again_and_again(runs, kills) == kills
    assert runs.num_promised >= kills * 2 // 5
    check(local_files(tmp_path / "set"), num_rows)


@pytest.mark.parametrize(("num_rows", "size", "kills"), either([(120, 3_000, 1)], [(6_000, 60_000, 20)], 1800))
def test_killed_on_s3(s3_runs: Any, seaweedfs: Any, num_rows: int, size: int, kills: int) -> None:
    """Twenty times in files of up to several parts: each has 37 or 100 rows of 60 kB."""
    runs = s3_runs(num_rows=num_rows, size=size)
    assert kill_again_and_again(runs, kills) == kills
    assert runs.num_promised >= kills * 2 // 5
    check(objects(seaweedfs, runs.arguments[0]), num_rows)
