"""A log in Parquet: rows a second with a checkpoint every second, and the time to go on after a SIGKILL.

    python scripts/bench/write_ahead_log.py --seconds 10 --rounds 3

A child writes rows of a log (a number, a time, a level and a message) into a rolling data set, in batches of so many
rows, as fast as it can, and asks for a checkpoint every second. It is killed with SIGKILL; then it is measured how long
`rpq.resume_dataset` takes until new rows can be written, and whether every promised row is there.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import resilient_pq.sync as rpq

SETTINGS: dict[str, Any] = {"roll_bytes": 256 * 2**20, "compression": "zstd"}


def batch(first: int, rows: int) -> pa.Table:
    ids = np.arange(first, first + rows)
    return pa.table(
        {
            "id": ids,
            "time": pa.array(1_790_000_000_000_000 + ids * 137, pa.timestamp("us", "UTC")),
            "level": pa.array(np.array(["info", "warning", "error"])[(ids % 97 == 0) * 1 + (ids % 997 == 0)]),
            "message": pa.array([f"request {i * 7919 % 1_000_003} of customer {i % 4099}, {i % 877} ms" for i in ids]),
        }
    )


def write(folder: str, rows: int, every: float) -> None:
    """Write until it is killed; says after each checkpoint how many rows are stored."""
    batches = [batch(first, rows) for first in range(0, 200 * rows, rows)]
    start = due = time.perf_counter()
    count = checkpoints = 0
    with rpq.create_dataset(folder, **SETTINGS) as writer:
        while True:
            writer.write(batches[count % len(batches)])
            count += 1
            if time.perf_counter() - due >= every:
                before = time.perf_counter()
                assert writer.checkpoint().state in ("stored", "visible")
                due = time.perf_counter()
                checkpoints += 1
                said = {"rows": count * rows, "seconds": due - start, "checkpoint": due - before, "count": checkpoints}
                sys.stdout.write(f"{json.dumps(said)}\n")
                sys.stdout.flush()


def measure(folder: Path, rows: int, every: float, seconds: float) -> dict[str, float]:
    arguments = [sys.executable, __file__, "--child", str(folder), "--batch", str(rows), "--every", str(every)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said: list[dict[str, float]] = []
    while not said or said[-1]["seconds"] < seconds:
        said.append(json.loads(process.stdout.readline()))
    process.send_signal(signal.SIGKILL)
    process.wait()
    promised = said[-1]
    size = sum(path.stat().st_size for path in folder.iterdir())
    start = time.perf_counter()
    with rpq.resume_dataset(folder, **SETTINGS) as writer:
        recovered = time.perf_counter() - start
        stored = writer.num_rows_stored
    assert stored >= promised["rows"]
    found = duckdb.sql(f"select count(*) from read_parquet('{folder}/*.parquet')").fetchall()
    assert found == [(stored,)], found
    return {
        "rows a second": promised["rows"] / promised["seconds"],
        "checkpoint, ms": 1000 * statistics.median(each["checkpoint"] for each in said),
        "MiB": size / 2**20,
        "recovered in, s": recovered,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, action="append", help="rows of a batch; 10, 100, 1,000 and 10,000")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between checkpoints; 0 for each batch")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        write(given.child, given.batch[0], given.every)
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), 100, 0.1, 0.5)  # what is imported by then is not measured
    for rows in given.batch or (10, 100, 1000, 10_000):
        runs = []
        for _ in range(given.rounds):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(measure(Path(folder), rows, given.every, given.seconds))
        text = ", ".join(f"{name} {statistics.median(run[name] for run in runs):,.3g}" for name in runs[0])
        print(f"batches of {rows:,}: {text}")


if __name__ == "__main__":
    main()
