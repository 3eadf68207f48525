"""What encryption costs: the same rows with zstd, written and read in the clear and encrypted, by turns.

    python scripts/bench/encryption_cost.py [--rows 2000000] [--rounds 7]

The ratio of the medians counts; it may be 1.15 at most.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import resilient_pq as rpq
from resilient_pq import sync

KEYS = {"AES-128": bytes(range(16)), "AES-256": bytes(range(32))}


def table(num_rows: int) -> pa.Table:
    """Numbers, prices, names of few kinds and texts, as an everyday table has them."""
    rng = np.random.default_rng(5)
    return pa.table(
        {
            "id": np.arange(num_rows),
            "price": rng.lognormal(3, 1, num_rows).round(2),
            "count": rng.poisson(8, num_rows),
            "measure": rng.normal(size=num_rows),
            "city": rng.choice([f"city {i}" for i in range(200)], num_rows),
            "note": [f"note {i} of {i * 7919 % 10007}" for i in range(num_rows)],
        }
    )


def write(path: Path, rows: pa.Table, encryption: Any) -> None:
    """Write a file."""
    with sync.create(path, encryption=encryption) as writer:
        writer.write(rows)


def read(path: Path, encryption: Any) -> None:
    """Read all of it."""
    with sync.open(path, **({} if encryption is None else encryption.reading())) as file:
        file.read()


def timed(work: Callable[..., None], *arguments: Any) -> tuple[float, float]:
    """CPU and wall seconds of a call."""
    cpu, wall = time.process_time(), time.perf_counter()
    work(*arguments)
    return time.process_time() - cpu, time.perf_counter() - wall


def show(title: str, times: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Print the medians, and their ratios to the first contestant."""
    medians = {name: [statistics.median(each) for each in zip(*found, strict=True)] for name, found in times.items()}
    base_cpu, base_wall = next(iter(medians.values()))
    print(f"{title:20} {'CPU s':>7} {'ratio':>6} {'wall s':>7} {'ratio':>6}")
    for name, (cpu, wall) in medians.items():
        print(f"{name:20} {cpu:7.3f} {cpu / base_cpu:6.2f} {wall:7.3f} {wall / base_wall:6.2f}")


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    rows = table(given.rows)
    contestants: dict[str, Any] = {"in the clear": None, "in the clear, again": None}
    contestants |= {name: rpq.Encryption(key) for name, key in KEYS.items()}
    contestants["AES-128, CTR"] = rpq.Encryption(KEYS["AES-128"], algorithm="AES_GCM_CTR_V1")
    written: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(given.rounds + 1):
            for name, encryption in contestants.items():
                path = Path(folder) / f"{name}.parquet"
                writing, reading = timed(write, path, rows, encryption), timed(read, path, encryption)
                if turn:  # the first one warms up
                    written[name].append(writing)
                    found[name].append(reading)
    show("written", written)
    show("read", found)


if __name__ == "__main__":
    main()
