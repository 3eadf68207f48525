"""A run of many files that is killed, or interrupted, and begun again with its journal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq


def command(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "resilient_pq", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )


def documents(process: subprocess.Popen[str], count: int) -> list[dict[str, Any]]:
    """So many lines of what a process says, as they come."""
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(count)]


def rest_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What else it says, and what it says of itself; `communicate` would leave out what was read ahead."""
    assert process.stdout is not None and process.stderr is not None
    out, err = process.stdout.read(), process.stderr.read()
    process.wait(timeout=60)
    return out, err


def rows_below(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): pq.read_metadata(path).num_rows for path in folder.rglob("*.parquet")}


@pytest.mark.parametrize("kills", [1, pytest.param(12, marks=[pytest.mark.thorough, pytest.mark.timeout(300)])])
def test_a_killed_recovery_goes_on_where_it_stopped(files: Any, tmp_path: Path, kills: int) -> None:
    src, dst, journal = tmp_path / "src", tmp_path / "dst", tmp_path / "journal"
    count = 30 + kills * 30
    files.write(src, count)
    whole = rpq.sync.recover_many(src, tmp_path / "whole").finish()
    told = []
    for _ in range(kills):
        with command("recover", src, dst, "--resume", journal, "--json") as process:
            told += [document["url"] for document in documents(process, 17)]
            process.send_signal(signal.SIGKILL)
    with command("recover", src, dst, "--resume", journal, "--json") as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (whole.exit_code, "")
    *each, summary = [json.loads(line) for line in out.splitlines()]
    told += [document["url"] for document in each]
    assert len(told) == len(set(told)), "what a journal says is done is not done again"
    assert summary["files"] == count and summary["files_resumed"] == count - len(each)
    assert (summary["outcomes"], summary["rows"], summary["size"]) == (whole.outcomes, whole.num_rows, whole.size)
    assert rows_below(dst) == rows_below(tmp_path / "whole")
    for name in rows_below(dst):
        original = (src / name).read_bytes()
        if original in files.sound:
            assert (dst / name).read_bytes() == original
    assert [path.name for path in dst.rglob("*") if path.is_file() and path.suffix != ".parquet"] == []


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_check_says_how_to_go_on(files: Any, tmp_path: Path, number: signal.Signals) -> None:
    files.write(tmp_path / "src", 80)
    journal = tmp_path / "journal"
    with command("check", tmp_path / "src", "--resume", journal, "--json", "--max-files", 2) as process:
        told = documents(process, 5)
        process.send_signal(number)
        out, err = rest_of(process)
    assert process.returncode == 128 + number
    *more, last = [json.loads(line) for line in out.splitlines()]
    assert last["outcome"] == "interrupted" and "the same command continues" in last["notes"][0]
    assert err.startswith("interrupted ")
    with command("check", tmp_path / "src", "--resume", journal, "--json") as process:
        out, _ = process.communicate(timeout=120)
    summary = json.loads(out.splitlines()[-1])
    assert summary["files"] == 80 and summary["files_resumed"] >= len(told) + len(more)
    assert process.returncode == 3


@pytest.mark.thorough
def test_what_an_interrupted_run_without_a_journal_says(files: Any, tmp_path: Path) -> None:
    files.write(tmp_path / "src", 60)
    with command("recover", tmp_path / "src", tmp_path / "dst", "--json", "--max-files", 1) as process:
        documents(process, 2)
        process.send_signal(signal.SIGINT)
        _, err = rest_of(process)
    assert process.returncode == 130 and "--resume FILE" in err
    assert not list((tmp_path / "dst").rglob("*.partial"))
