"""A writer killed with SIGKILL while its program waits for rows: the timer has stored those that it had."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq

#: By the blocking names: no call is under way, and no loop of the program's own is there.
WAITING = """
import json, sys, time
from resilient_pq import sync as rpq

writer = rpq.create(sys.argv[1], storage_options=json.loads(sys.argv[2]), max_unstored_seconds=0.5)
for number in range(20):
    writer.write({"n": [number], "noise": [f"{number:09d}" * 100]})
    time.sleep(0.02)
while writer.num_rows_stored < 20:
    time.sleep(0.01)
print("stored", flush=True)
time.sleep(3600)
"""
NUMBERS = list(range(20))


def kill_when_stored(url: str, options: dict[str, Any], errors: Path) -> None:
    """Run the program until it says that all rows are stored, while it writes none."""
    command = [sys.executable, "-c", WAITING, url, json.dumps(options)]
    with (
        errors.open("wb") as told,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True) as process,
    ):
        try:
            assert process.stdout is not None and process.stdout.readline() == "stored\n", errors.read_text()
        finally:
            process.kill()
    assert "Traceback" not in errors.read_text()


@pytest.mark.timeout(100)
async def test_on_a_local_disk(tmp_path: Path) -> None:
    path, saved = tmp_path / "f.parquet", tmp_path / "saved.parquet"
    kill_when_stored(str(path), {}, tmp_path / "errors")
    assert not path.exists()
    report = await rpq.recover(tmp_path / "f.parquet.partial", saved)
    assert report.num_rows == 20
    assert pq.read_table(saved)["n"].to_pylist() == NUMBERS


@pytest.mark.timeout(100)
def test_on_s3(s3: Any, complete_by_the_rule: Callable[..., Any], tmp_path: Path) -> None:
    """Completed by the hand of a stranger."""
    kill_when_stored(s3.url("f"), s3.storage_options, tmp_path / "errors")
    assert "f" not in s3.object_names()
    (upload_id,) = s3.upload_ids()
    data = complete_by_the_rule(s3, "f", upload_id)
    assert pq.read_table(io.BytesIO(data))["n"].to_pylist() == NUMBERS
