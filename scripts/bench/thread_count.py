"""Where a second thread begins to pay: chunks of several sizes, read and written by one thread and by two.

The library decides by itself (`format/pages/thread_count.py`), and this shows what that brings.
With ``--forced`` two threads are at work where it would have one. Numbers are milliseconds: the least of several turns,
the two counts by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import resilient_pq as rpq
from resilient_pq.reader import row_groups
from resilient_pq.writer import file_encoder

COLUMNS = 50
ROWS = 300_000
TURNS = 5


async def write(path: Path, table: pa.Table, codec: str, rows: int, threads: int) -> None:
    """A file with row groups of so many rows."""
    options = rpq.WriteOptions(max_threads=threads)
    async with rpq.create(path, compression=codec, row_group_rows=rows, options=options) as writer:
        await writer.write(table)


async def read(path: Path, threads: int) -> None:
    """All of a file."""
    async with rpq.open(path, options=rpq.ReadOptions(max_threads=threads)) as file:
        await file.read()


def least(works: list[Callable[[], Awaitable[None]]]) -> list[float]:
    """Milliseconds of each, by turns."""
    best = [float("inf")] * len(works)
    for _ in range(TURNS):
        for i, work in enumerate(works):
            start = time.perf_counter()
            asyncio.run(work())  # type: ignore[arg-type]
            best[i] = min(best[i], (time.perf_counter() - start) * 1e3)
    return best


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--forced", action="store_true", help="have two threads at work whatever the size")
    if parser.parse_args().forced:
        row_groups.threads_worth = lambda _: 2
        file_encoder.threads_worth = lambda _: 2
    rng = np.random.default_rng(1)
    print("| codec | KiB a chunk | write, 1 thread | 2 | read, 1 thread | 2 |\n|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        path = Path(folder) / "chunks.parquet"
        for codec in ("none", "snappy", "zstd"):
            for rows in (1_000, 10_000, 20_000, 50_000, 100_000):
                count = max(ROWS // 5 if rows == 1_000 else ROWS, rows)
                table = pa.table({f"c{i}": rng.standard_normal(count) for i in range(COLUMNS)})
                written = least([partial(write, path, table, codec, rows, threads) for threads in (1, 2)])
                found = least([partial(read, path, threads) for threads in (1, 2)])
                numbers = " | ".join(f"{number:.0f}" for number in (*written, *found))
                print(f"| {codec} | {rows * 8 // 1024} | {numbers} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
