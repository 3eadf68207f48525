"""How fast damaged files are searched, as a ratio to reading their bytes and computing one CRC32 of them.

Run it as ``python scripts/bench/scan.py [--megabytes 1024] [--rounds 5]``. A file of ours and two of pyarrow are made,
and lose their footers; ours has no checkpoints. The contenders take turns, in one process. Each turn is taken twice:
without the file in the page cache (``posix_fadvise``), where reading counts as it does when somebody has a file to
recover, and with it, where only our own work is measured. Ratios are of medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

from resilient_pq import sync as rpq
from resilient_pq.damage.page_search import FoundPage, finding_pages
from resilient_pq.format.resilience_records import HEADER_SIZE
from resilient_pq.recovery.evidence.records.record_scan import scan_headers
from resilient_pq.units import MiB

BLOCK = 8 * MiB
BASE = "read, one CRC32"
BATCH_ROWS = 1 << 20


def batches(num_bytes: int) -> Generator[pa.Table, None, None]:
    """Rows until there are so many bytes: what hardly compresses, what does well, and what is in between."""
    rng = np.random.default_rng(1)
    for _ in range(max(num_bytes // (BATCH_ROWS * 22), 1)):
        yield pa.table(
            {
                "score": rng.random(BATCH_ROWS),
                "number": np.arange(BATCH_ROWS) + rng.integers(0, 1000, BATCH_ROWS),
                "kind": pa.array(rng.integers(0, 50, BATCH_ROWS)).cast(pa.string()),
                "key": rng.integers(0, 1 << 62, BATCH_ROWS),
            }
        )


def make_ours(path: Path, num_bytes: int) -> None:
    """A file of ours without its footer."""
    with rpq.create(str(path), checkpoint_every=None) as writer:
        for batch in batches(num_bytes):
            writer.write(batch)
    cut_footer(path)


def cut_footer(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.truncate(path.stat().st_size - 8 - length)


def make_theirs(path: Path, num_bytes: int, *, checksums: bool) -> None:
    """A file of pyarrow's without its footer."""
    sizes = {"compression": "zstd", "write_page_checksum": checksums}
    rows = iter(batches(num_bytes))
    first = next(rows)
    with pq.ParquetWriter(path, first.schema, **sizes) as writer:
        writer.write_table(first)
        for batch in rows:
            writer.write_table(batch)
    cut_footer(path)


def read_and_sum(path: Path) -> str:
    """The bytes once through memory, and through CRC32."""
    buffer, total = memoryview(bytearray(BLOCK)), 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            total = isal_zlib.crc32(buffer[:count], total)
    return f"{total:08x}"


def drive(path: Path, asking: Generator[Any, memoryview, Any]) -> Any:
    """Give a scan the ranges that it asks for."""
    with path.open("rb", buffering=0) as file:
        try:
            wanted = next(asking)
            while True:
                wanted = asking.send(memoryview(os.pread(file.fileno(), wanted.stop - wanted.start, wanted.start)))
        except StopIteration as stop:
            return stop.value


def search_records(path: Path) -> str:
    """Every header of a record, wherever it lies."""
    size, found = path.stat().st_size, 0

    def blocks() -> Generator[range, memoryview, None]:
        nonlocal found
        for start in range(0, size, BLOCK):
            data = yield range(start, min(start + BLOCK + HEADER_SIZE - 1, size))
            found += sum(1 for _ in scan_headers(data, start))

    drive(path, blocks())
    return f"{found} records"


def search_pages(path: Path) -> str:
    """Every page, by the shape of its header."""
    found: list[FoundPage] = []
    drive(path, finding_pages(0, path.stat().st_size, found))
    return f"{len(found)} pages"


def check(path: Path) -> str:
    """The whole check: records searched, and every page that is known of verified."""
    report = rpq.check(str(path))
    return f"{report.outcome}, {report.num_rows:,} rows"


def timed(work: Callable[[Path], str], path: Path, *, cached: bool) -> tuple[float, str]:
    """Seconds that it took, and what it said."""
    if not cached:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    started = time.perf_counter()
    said = work(path)
    return time.perf_counter() - started, said


def main() -> None:
    """Make the files, take turns, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        names = ("ours", "pyarrow's", "pyarrow's, page CRCs")
        paths = dict(zip(names, (Path(folder) / f"{i}.parquet" for i in range(3)), strict=True))
        make_ours(paths[names[0]], arguments.megabytes * MiB)
        make_theirs(paths[names[1]], arguments.megabytes * MiB, checksums=False)
        make_theirs(paths[names[2]], arguments.megabytes * MiB, checksums=True)
        contenders = [
            *((name, BASE, read_and_sum) for name in names),
            ("ours", "search for records", search_records),
            *((name, "search for pages", search_pages) for name in names),
            ("ours", "check", check),
        ]
        times: dict[tuple[bool, str, str], list[float]] = {}
        said: dict[tuple[str, str], str] = {}
        for _ in range(arguments.rounds):
            for name, what, work in contenders:
                for cached in (False, True):  # the first fills the cache for the second
                    seconds, said[name, what] = timed(work, paths[name], cached=cached)
                    times.setdefault((cached, name, what), []).append(seconds)
        print("| file | MiB | work | found | from the disk: GB/s | ratio | from memory: GB/s | ratio |")
        print("|---|---:|---|---|---:|---:|---:|---:|")
        for name, what, _ in contenders:
            size = paths[name].stat().st_size
            cells = [name, str(size // MiB), what, said[name, what]]
            for cached in (False, True):
                median = statistics.median(times[cached, name, what])
                ratio = median / statistics.median(times[cached, name, BASE])
                cells += [f"{size / median / 1e9:.1f}", f"{ratio:.2f}"]
            print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
