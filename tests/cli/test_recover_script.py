"""scripts/recover.py: the same as `rpq recover`, also where nothing is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "recover.py"


def _run(*arguments: object, isolated: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" or not isolated}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False, env=environment,
    )  # fmt: skip


def test_it_recovers(torn: Path, tmp_path: Path) -> None:
    done = _run(torn, tmp_path / "saved.parquet", "--json", isolated=True)
    assert done.returncode == 1
    assert json.loads(done.stdout)["rows_kept"] == 500
    assert pyarrow.parquet.read_metadata(tmp_path / "saved.parquet").num_rows == 500


def test_help() -> None:
    done = _run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: recover.py [OPTIONS]")
    assert "Exit status:" in done.stdout


def test_usage_as_json() -> None:
    done = _run("only-one", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["verb"] == "recover"
