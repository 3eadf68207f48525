"""Peak memory of streaming a large table: 2 GB of generated batches through a 32 MiB row group.

Run it as ``python scripts/bench/memory.py [--gib 2] [--row-group-mib 32] [--url PATH]``. It prints the resident
memory before the first batch, at its peak, and what was written; promise P7 is that the peak does not grow with
the size of the data.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import resilient_pq as rpq
from resilient_pq.units import MiB

BATCH_ROWS = 65_536


def batches(total_bytes: int) -> Iterator[dict[str, object]]:
    """Batches of mixed columns, about 3 MB each, until they add up to `total_bytes`."""
    rng = np.random.default_rng(7)
    words = np.array([f"word-{i:06d}" for i in range(50_000)], dtype=object)
    made = start = 0
    while made < total_bytes:
        numbers = np.arange(start, start + BATCH_ROWS)
        batch = {
            "id": numbers,
            "ts": (numbers * 1_000_003).astype("datetime64[us]"),
            "price": rng.normal(100, 15, BATCH_ROWS).round(2),
            "value": rng.random(BATCH_ROWS),
            "word": list(words[rng.integers(0, len(words), BATCH_ROWS)]),
        }
        yield batch
        made += BATCH_ROWS * (4 * 8 + 15)
        start += BATCH_ROWS


def resident_mib() -> float:
    """Resident memory of this process now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MiB


async def run(url: str, total_bytes: int, row_group_bytes: int) -> None:
    before = resident_mib()
    started = time.perf_counter()
    async with rpq.create(url, row_group_bytes=row_group_bytes) as writer:
        for batch in batches(total_bytes):
            await writer.write(batch)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"rows            {writer.num_rows:,}")
    print(f"streamed        {total_bytes / MiB:,.0f} MiB in {seconds:.1f} s")
    print(f"file            {writer.num_bytes / MiB:,.0f} MiB")
    print(f"row group       {row_group_bytes / MiB:.0f} MiB in memory")
    print(f"resident        {before:.0f} MiB before, {peak:.0f} MiB at the peak")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--row-group-mib", type=int, default=32)
    parser.add_argument("--url")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = arguments.url or os.path.join(folder, "memory.parquet")
        asyncio.run(run(url, int(arguments.gib * 1024 * MiB), arguments.row_group_mib * MiB))


if __name__ == "__main__":
    main()
