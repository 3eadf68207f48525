"""What our keys cost in the footer: its size, and how long pyarrow takes to open it, with and without them.

Run it as ``python scripts/bench/footer.py [--columns 1000] [--row-groups 100]``. Both footers describe the same
file; one has ``rpq.crc32`` on every column chunk and ``rpq.record`` on the first of each row group, the other has
neither. Ratios are of medians, measured in turns in one run.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import resilient_pq as rpq
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.io import MemoryStore

ROUNDS = 15


async def write(num_columns: int, num_row_groups: int) -> bytes:
    """A file of `num_columns` columns, one row in each of `num_row_groups` row groups."""
    store = MemoryStore()
    names = [f"column_{i:04d}" for i in range(num_columns)]
    async with rpq.create((store, "wide.parquet"), row_group_rows=4, checkpoint_every=None) as writer:
        for group in range(num_row_groups):
            await writer.write({name: np.arange(4) + group + i for i, name in enumerate(names)})
    info = await store.head("wide.parquet")
    return bytes(await store.read_range("wide.parquet", 0, info.size, pin=info))


def stripped(metadata: bytes) -> bytes:
    """The same file metadata without our keys on column chunks."""
    decoded, _ = compact_protocol.decode(FileMetaData, metadata)
    for row_group in decoded.row_groups:
        for chunk in row_group.columns:
            if chunk.meta_data is not None:
                chunk.meta_data.key_value_metadata = None
    return compact_protocol.encode(decoded)


def open_seconds(file: bytes) -> float:
    started = time.perf_counter()
    pq.read_metadata(pa.BufferReader(file))
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--row-groups", type=int, default=100)
    arguments = parser.parse_args()
    file = asyncio.run(write(arguments.columns, arguments.row_groups))
    found = footer.read_footer(memoryview(file), 0)
    assert isinstance(found, footer.Footer)
    with_keys = file[found.start : found.start + found.length]
    without_keys = stripped(with_keys)
    files = {
        "with keys": b"PAR1" + footer.frame(with_keys),
        "without keys": b"PAR1" + footer.frame(without_keys),
    }
    times: dict[str, list[float]] = {name: [] for name in files}
    for _ in range(ROUNDS):
        for name, content in files.items():
            times[name].append(open_seconds(content))
    chunks = arguments.columns * arguments.row_groups
    print(f"{arguments.columns} columns x {arguments.row_groups} row groups = {chunks:,} column chunks")
    print(f"{'':14}{'footer bytes':>14}{'bytes/chunk':>13}{'pyarrow opens in':>18}")
    for name, content in files.items():
        median = statistics.median(times[name]) * 1000
        print(f"{name:14}{len(content):>14,}{len(content) / chunks:>13.1f}{median:>15.1f} ms")
    size = len(files["with keys"]) / len(files["without keys"])
    speed = statistics.median(times["with keys"]) / statistics.median(times["without keys"])
    print(f"{'ratio':14}{size:>14.2f}{'':13}{speed:>18.2f}")


if __name__ == "__main__":
    main()
