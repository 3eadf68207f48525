"""How checking a folder scales with Dask workers: the time of one worker over that of two.

Run it as ``python scripts/bench/dask_scaling.py [--files 300] [--megabytes 4] [--rounds 3] [--workers 1 2]``. Workers
are processes of this machine, each held to a processor of its own, as if they were machines; the files are pyarrow's,
without checksums, so that every page is decoded. Numbers of workers take turns, and the least time of each counts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

import resilient_pq.dask as rpqd


def write_files(folder: Path, files: int, num_bytes: int) -> None:
    """Files of three columns, as pyarrow writes them."""
    numbers = np.arange(num_bytes // 24)
    for number in range(files):
        noise = np.random.default_rng(number).integers(0, 1 << 40, len(numbers))
        table = pa.table({"n": numbers, "noise": noise, "text": [f"row {n}" for n in numbers]})
        pq.write_table(table, folder / f"{number:05}.parquet")


def seconds(work: Callable[[], Any]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--megabytes", type=float, default=4.0, help="of each file, about, before compression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_files(folder, asked.files, int(asked.megabytes * 1e6))
        size = sum(path.stat().st_size for path in folder.iterdir())
        load = os.getloadavg()[0]
        print(f"{asked.files:,} files, {size / 1e6:,.0f} MB; {os.cpu_count()} processors, load {load:.1f} before")
        best: dict[int, float] = {}
        for _ in range(asked.rounds):
            for workers in asked.workers:
                best[workers] = min(best.get(workers, float("inf")), measured(folder, workers))
    for workers, least in sorted(best.items()):
        rate = f"{asked.files / least:6,.0f} files/s, {size / least / 1e6:5,.0f} MB/s"
        print(f"{workers} workers: {least:6.2f} s, {rate}, {best[asked.workers[0]] / least:.2f} times as fast")


def measured(folder: Path, workers: int) -> float:
    """Seconds of a check by so many workers, that are there already and have checked something."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        for number, worker in enumerate(client.scheduler_info()["workers"]):
            client.run(hold_to, number % (os.cpu_count() or 1), workers=[worker])
            client.run(import_everything, workers=[worker])
        some = sorted(folder.iterdir())[: 4 * workers]
        rpqd.check(some, client).finish()
        return seconds(lambda: rpqd.check(folder, client).finish())


def hold_to(processor: int) -> None:
    """In a worker: use one processor."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {processor})


def import_everything() -> None:
    """In a worker: what the first file would import."""
    import resilient_pq.dask.one_batch  # noqa: F401, PLC0415


if __name__ == "__main__":
    sys.exit(main())
