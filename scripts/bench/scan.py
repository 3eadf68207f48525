"""How fast damaged files are searched, as a ratio to reading their bytes and computing one CRC32 of them.

Run it as ``python scripts/bench/scan.py [--megabytes 1024] [--rounds 5]``. Two files of that size are made, one of ours
and one of pyarrow's, and both lose their footer; ours has no checkpoints and loses a piece of its middle too, so that
the chain of records is broken and the whole file is looked through. The contenders take turns, in one process, and the
files are in the page cache: what is measured is our work, not the disk's. Ratios are of medians.
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
from resilient_pq.format.page_search import FoundPage, finding_pages
from resilient_pq.recovery.survey import survey

MiB = 1024 * 1024
BLOCK = 8 * MiB
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
    """A file of ours without its end and a piece of its middle."""
    with rpq.create(str(path), checkpoint_every=None) as writer:
        for batch in batches(num_bytes):
            writer.write(batch)
    size = path.stat().st_size
    with path.open("r+b") as file:
        for start, end in ((size // 2, size // 2 + 24 * MiB), (size - 64 * 1024, size)):
            file.seek(start)
            file.write(bytes(end - start))


def make_theirs(path: Path, num_bytes: int, *, checksums: bool) -> None:
    """A file of pyarrow's without its footer."""
    sizes = {"compression": "zstd", "write_page_checksum": checksums}
    rows = iter(batches(num_bytes))
    first = next(rows)
    with pq.ParquetWriter(path, first.schema, **sizes) as writer:
        writer.write_table(first)
        for batch in rows:
            writer.write_table(batch)
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.truncate(path.stat().st_size - 8 - length)


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
    """Every record that is whole."""
    found = drive(path, ranges_of(survey(path.stat().st_size)))
    return f"{len(found.row_groups)} row groups behind the newest footer"


def ranges_of(asking: Generator[Any, memoryview, Any]) -> Generator[range, memoryview, Any]:
    """The ranges a survey asks for, as Python's."""
    wanted = next(asking)
    while True:
        data = yield range(wanted.start, wanted.end)
        try:
            wanted = asking.send(data)
        except StopIteration as stop:
            return stop.value


def search_pages(path: Path) -> str:
    """Every page, by the shape of its header."""
    found: list[FoundPage] = []
    drive(path, finding_pages(0, path.stat().st_size, found))
    return f"{len(found)} pages"


def check(path: Path) -> str:
    """The whole check: records searched, and every page that is known of verified."""
    report = rpq.check(str(path))
    return f"{report.outcome}, {report.num_rows:,} rows"


def timed(work: Callable[[Path], str], path: Path) -> tuple[float, str]:
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
            *((name, "read, one CRC32", read_and_sum) for name in names),
            ("ours", "search for records", search_records),
            ("ours", "check", check),
            *((name, "search for pages", search_pages) for name in names),
        ]
        times: dict[tuple[str, str], list[float]] = {}
        said: dict[tuple[str, str], str] = {}
        for _ in range(arguments.rounds + 1):  # the first one fills the page cache, and is left out
            for name, what, work in contenders:
                seconds, said[name, what] = timed(work, paths[name])
                times.setdefault((name, what), []).append(seconds)
        print(f"{'file':22}{'MiB':>7}  {'work':22}{'seconds':>8}{'GB/s':>7}{'ratio':>7}  found")
        for (name, what), seconds in times.items():
            size, median = paths[name].stat().st_size, statistics.median(seconds[1:])
            ratio = median / statistics.median(times[name, "read, one CRC32"][1:])
            print(
                f"{name:22}{size // MiB:>7}  {what:22}{median:>8.2f}{size / median / 1e9:>7.1f}{ratio:>7.2f}"
                f"  {said[name, what]}"
            )


if __name__ == "__main__":
    main()
