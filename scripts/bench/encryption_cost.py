"""What encryption costs: the same rows written with zstd, in the clear and encrypted by turns; CPU and wall time.

    python scripts/bench/encryption_cost.py [--rows 2000000] [--rounds 7]

The ratio of the medians counts; it may be 1.15 at most.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
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


def timed(path: Path, rows: pa.Table, encryption: Any) -> tuple[float, float]:
    """CPU and wall seconds of one write."""
    cpu, wall = time.process_time(), time.perf_counter()
    with sync.create(path, encryption=encryption) as writer:
        writer.write(rows)
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    rows = table(given.rows)
    contestants: dict[str, Any] = {"in the clear": None, "in the clear, again": None}
    contestants |= {name: rpq.Encryption(key) for name, key in KEYS.items()}
    contestants["AES-128, CTR"] = rpq.Encryption(KEYS["AES-128"], algorithm="AES_GCM_CTR_V1")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(given.rounds + 1):
            for name, encryption in contestants.items():
                found = timed(Path(folder) / "a.parquet", rows, encryption)
                if turn:  # the first one warms up
                    times[name].append(found)
    cpu = {name: statistics.median(each[0] for each in found) for name, found in times.items()}
    wall = {name: statistics.median(each[1] for each in found) for name, found in times.items()}
    print(f"{'':20} {'CPU s':>7} {'ratio':>6} {'wall s':>7} {'ratio':>6}")
    for name in contestants:
        base = "in the clear"
        print(
            f"{name:20} {cpu[name]:7.3f} {cpu[name] / cpu[base]:6.2f} {wall[name]:7.3f} {wall[name] / wall[base]:6.2f}"
        )


if __name__ == "__main__":
    main()
