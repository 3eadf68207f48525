"""Whether ten times as much takes ten times as long, and no more memory: rows, row groups, columns, and two threads.

Run it as ``python scripts/bench/scaling.py [--rows 200000]``. Batches are made in passing, so that the memory that is
seen is the writer's and the reader's, which reads batch by batch. Small and large take turns, each run in a process
of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from measured import first_run

from resilient_pq import ReadOptions, WriteOptions
from resilient_pq import sync as rpq

#: Rows of the batches that are written again and again.
BATCH_ROWS = 50_000
REPEAT = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """What is written and read back.

    Attributes:
        rows: Of the file.
        row_group_rows: Of each row group.
        columns: How many; None for the twelve of taxi, else so many of integers and floats in turn.
        threads: That encode and decode.
    """

    rows: int
    row_group_rows: int
    columns: int | None = None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds of wall and CPU time, and bytes above what there was at the start."""

    write_seconds: float
    write_cpu: float
    write_peak: int
    read_seconds: float
    read_cpu: float
    read_peak: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two shapes, and what time of the second is expected, in times of the first."""

    name: str
    small: Shape
    large: Shape
    expected: float


def comparisons(rows: int) -> list[Comparison]:
    few, group = Shape(rows, rows), rows // 2
    return [
        Comparison("rows x 10, row groups alike", Shape(rows * 4, group), Shape(rows * 40, group), 10),
        Comparison("rows x 10, one row group", few, Shape(rows * 10, rows * 10), 10),
        Comparison("row groups x 10, rows alike", Shape(rows * 4, rows * 2), Shape(rows * 4, rows // 5), 1),
        Comparison("row groups x 10, 1000 rows each", Shape(20_000, 1000), Shape(200_000, 1000), 10),
        Comparison("columns x 10", Shape(rows, rows, 20), Shape(rows, rows, 200), 10),
        Comparison("columns x 10, 1000 rows", Shape(1000, 1000, 200), Shape(1000, 1000, 2000), 10),
        Comparison("2 threads", Shape(rows * 8, rows), Shape(rows * 8, rows, threads=2), 0.5),
    ]


def batch_of(shape: Shape) -> pa.Table:
    rows = min(BATCH_ROWS, shape.rows)
    taxi = pa.Table.from_batches(list(datasets.taxi(rows)))
    if shape.columns is None:
        return taxi
    names = ("trip_id", "distance", "dropoff_zone", "fare")
    return pa.table({f"c{i}": taxi.column(names[i % 4]) for i in range(shape.columns)})


def measure(shape: Shape, path: Path) -> Taken:
    """Write and read back, after something small that starts what is started once."""
    batch = batch_of(shape)

    def batches(rows: int) -> Iterator[pa.Table]:
        for start in range(0, rows, batch.num_rows):
            yield batch.slice(0, min(batch.num_rows, rows - start))

    def write(rows: int = shape.rows) -> None:
        options = WriteOptions(max_threads=shape.threads)
        settings: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "row_group_bytes": 1 << 34}
        with rpq.create(str(path), row_group_rows=shape.row_group_rows, options=options, **settings) as writer:
            for one in batches(rows):
                writer.write(one)

    def read() -> None:
        with rpq.open(str(path), options=ReadOptions(max_threads=shape.threads)) as file:
            for one in file.batches():
                del one

    written = timed(write, lambda: write(1000))
    return Taken(*written, *timed(read, lambda: None))


def timed(work: Callable[[], None], warm_up: Callable[[], None]) -> tuple[float, float, int]:
    """Least seconds of wall time and of CPU time, and the most memory in the first run."""
    _, _, peak = first_run(work, warm_up)
    runs = []
    for _ in range(REPEAT):
        gc.collect()
        cpu, started = time.process_time(), time.perf_counter()
        work()
        runs.append((time.perf_counter() - started, time.process_time() - cpu))
    seconds, cpu_seconds = (min(column) for column in zip(*runs, strict=True))
    return seconds, cpu_seconds, peak


def measured_apart(shape: Shape, path: Path) -> Taken:
    """The same in a process of its own."""
    text = json.dumps(dataclasses.asdict(shape))
    command = [sys.executable, str(Path(__file__)), "--shape", text, "--path", str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    return Taken(**json.loads(process.stdout.splitlines()[-1]))


def line_of(comparison: Comparison, small: list[Taken], large: list[Taken]) -> str:
    """Of each measure, the small one and how many times that the large one takes."""
    cells = [comparison.name, f"{comparison.expected:g}"]
    for what, unit in (("write_seconds", 1e3), ("write_cpu", 1e3), ("write_peak", 1e-6)):
        for name in (what, what.replace("write", "read")):
            first, second = (statistics.median(getattr(taken, name) for taken in side) for side in (small, large))
            cells.append(f"{first * unit:,.0f} x {second / max(first, 1e-9):.2f}")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="of the small side")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="comparisons whose name holds this")
    parser.add_argument("--out", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    parser.add_argument("--shape", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.shape:
        print(json.dumps(dataclasses.asdict(measure(Shape(**json.loads(arguments.shape)), arguments.path))))
        return
    print("| | expected | write ms | read ms | write CPU ms | read CPU ms | write peak MB | read peak MB |")
    print("|---|---:|" + "---:|" * 6)
    with tempfile.TemporaryDirectory(dir=arguments.out, prefix="bench-") as folder:
        path = Path(folder) / "file.parquet"
        for comparison in comparisons(arguments.rows):
            if arguments.only and arguments.only not in comparison.name:
                continue
            small, large = [], []
            for _ in range(arguments.rounds):
                small.append(measured_apart(comparison.small, path))
                large.append(measured_apart(comparison.large, path))
            print(line_of(comparison, small, large), flush=True)


if __name__ == "__main__":
    main()
