"""Sessions with `rpq` as a newcomer has them: in terminals of 80 and 120 columns, without colours, and in pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pseudo_terminal import said_in_terminal

from resilient_pq import sync as rpq

RPQ = [sys.executable, "-m", "resilient_pq"]
NUM_ROWS = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound file, and one that was cut."""
    folder = tmp_path_factory.mktemp("session")
    table = pa.table({f"column_{i}": [f"value {i} {n}" for n in range(100)] for i in range(12)})
    with rpq.create(folder / "wide.parquet") as writer:
        writer.write(table)
    with rpq.create(folder / "long.parquet", row_group_rows=2000) as writer:
        writer.write(pa.table({"n": range(NUM_ROWS), "city": ["Oslo", "Rome"] * (NUM_ROWS // 2)}))
    data = (folder / "long.parquet").read_bytes()
    (folder / "torn.parquet").write_bytes(data[: len(data) // 2])
    return folder


def in_terminal(folder: Path, columns: int, *commands: list[str], **environment: str) -> str:
    """What commands print, one after the other, where stdout and stderr are a terminal."""
    script = f"import sys\nfrom resilient_pq.cli.main import run\nfor each in {commands!r}: print(f'rc={{run(each)}}', flush=True)"
    said = said_in_terminal([sys.executable, "-c", script], columns=columns, folder=folder, **environment)
    return said.replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 120])
def test_a_session_in_a_terminal(columns: int, folder: Path) -> None:
    said = in_terminal(
        folder,
        columns,
        ["head", "wide.parquet", "-n", "2"],
        ["count", "long.parquet"],
        ["check", ".", "--quick"],
        ["diff", "long.parquet", "wide.parquet"],
        ["cat", "long.parquet", "--where", "n > 5 and", "--head", "1"],
        ["cat", "long.parquet", "--format", "parquet"],
    )
    assert [line for line in said.splitlines() if line.startswith("rc=")] == [
        "rc=0",
        "rc=0",
        "rc=1",
        "rc=1",
        "rc=2",
        "rc=2",
    ]
    head = said.split("rc=0")[0]
    table = [line for line in head.splitlines() if "column_0" in line or "value 0" in line]
    assert len(table) == 3
    plain = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in table]
    assert max(map(len, plain)) <= columns
    assert "not shown: " in head
    assert f"\n{NUM_ROWS}\n" in said
    assert "stdout is a terminal, and a Parquet file is binary" in said
    assert "Traceback" not in said
    assert "\x1b[1;31merror" in said


def test_without_colours(folder: Path) -> None:
    said = in_terminal(folder, 80, ["stats", "long.parquet"], ["count", "torn.parquet"], NO_COLOR="1")
    assert "optional int64" in said
    for color in range(30, 38):
        assert f"[{color}m" not in said
        assert f";{color}m" not in said


def test_pipes(folder: Path) -> None:
    """A file from a pipe to a pipe, and a reader of the output that has seen enough."""
    data = (folder / "long.parquet").read_bytes()
    run: dict[str, Any] = {"cwd": folder, "capture_output": True, "timeout": 120}
    kept = subprocess.run([*RPQ, "recover", "-", "-"], input=data[: len(data) // 2], check=False, **run)
    assert kept.returncode == 1
    assert b"kept" in kept.stderr
    assert b"\x1b" not in kept.stderr
    rows = subprocess.run([*RPQ, "count", "-"], input=kept.stdout, check=False, **run)
    assert 0 < int(rows.stdout) < NUM_ROWS
    first = subprocess.run(
        f"{sys.executable} -m resilient_pq cat long.parquet | head -n 1",
        shell=True,
        check=False,
        **run,
    )
    assert (first.stdout, first.stderr) == (b'{"n": 0, "city": "Oslo"}\n', b"")


@pytest.mark.parametrize(
    "arguments",
    [
        ["cat", "-"],
        pytest.param(["recover", "-", "out.parquet"], marks=pytest.mark.thorough),
        pytest.param(["count", "-"], marks=pytest.mark.thorough),
    ],
)
def test_ctrl_c_while_stdin_is_awaited(arguments: list[str], tmp_path: Path) -> None:
    begin, end = os.pipe()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*RPQ, *arguments]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=begin, stdout=-1, stderr=-1) as process:
        os.close(begin)
        os.write(end, b"PAR1")
        while not list(tmp_path.glob("rpq-stdin-*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    os.close(end)
    assert process.returncode == 130
    assert (out, b"Traceback" in err, len(err.splitlines())) == (b"", False, 1)
    assert not list(tmp_path.iterdir())
