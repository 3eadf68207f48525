"""Many small files in one run, against as many single ones; and the memory of ten times as many.

Run it as ``python scripts/bench/many_files.py [--files 2000] [--times-ten] [--recover]``. One file in ten is cut in its
middle, so that it has to be searched. Single runs are calls of `resilient_pq.check` in one process, which leaves out
what starting `rpq` for each would cost. With ``--times-ten`` the peak of resident memory is taken in a process of
its own for each number of files.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

import numpy as np

import resilient_pq as rpq

ROWS = 200
#: Files of a folder.
FOLDER = 200


async def make(folder: Path, count: int) -> None:
    """Write the files: ten different ones, again and again."""
    rng = np.random.default_rng(7)
    contents: list[bytes] = []
    for _ in range(10):
        path = folder / "one"
        async with rpq.create(path, row_group_rows=ROWS // 2) as writer:
            words = [f"word-{word}" for word in rng.integers(0, 50, ROWS)]
            await writer.write({"id": np.arange(ROWS), "value": rng.random(ROWS), "word": words})
        contents.append(path.read_bytes())
        path.unlink()
    for number in range(count):
        day = folder / f"day={number // FOLDER:04}"
        day.mkdir(exist_ok=True)
        data = contents[number // 10 % 10]
        (day / f"{number:06}.parquet").write_bytes(data[: len(data) // 2] if number % 10 == 0 else data)


def files_of(folder: Path) -> list[Path]:
    """All files, by name."""
    return sorted(folder.rglob("*.parquet"))


async def timed(label: str, work: Awaitable[object]) -> float:
    """Wall and processor seconds of something, printed."""
    wall, processor = time.perf_counter(), time.process_time()
    await work
    wall = time.perf_counter() - wall
    print(f"{label:<24} {wall:8.2f} s  {time.process_time() - processor:8.2f} s of a processor")
    return wall


async def one_by_one(paths: list[Path]) -> None:
    """Check each by itself."""
    for path in paths:
        await rpq.check(path)


async def recovered_one_by_one(paths: list[Path], out: Path) -> None:
    """Recover each by itself, side by side in one folder."""
    await asyncio.to_thread(out.mkdir)
    for path in paths:
        await rpq.recover(path, out / path.name)


async def compare(folder: Path, count: int, *, recover: bool) -> None:
    """A run of all files, and a run of each."""
    await make(folder, count)
    paths = files_of(folder)
    together = await timed("check, one run", rpq.check_many(folder).finish())
    apart = await timed("check, single runs", one_by_one(paths))
    print(f"{'':<24} {together / apart:8.2f} times their wall time")
    if recover:
        with tempfile.TemporaryDirectory() as out:
            together = await timed("recover, one run", rpq.recover_many(folder, Path(out) / "a").finish())
            apart = await timed("recover, single runs", recovered_one_by_one(paths, Path(out) / "b"))
            print(f"{'':<24} {together / apart:8.2f} times their wall time")


PEAK = """
import asyncio, resource, sys
import resilient_pq as rpq

asyncio.run(rpq.check_many(sys.argv[1]).finish())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def peak_mib(folder: Path) -> float:
    """Peak resident memory of a process that checks a folder, in MiB."""
    done = subprocess.run([sys.executable, "-c", PEAK, str(folder)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--recover", action="store_true", help="compare recoveries, too")
    parser.add_argument("--times-ten", action="store_true", help="measure memory, of ten times as many files too")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(Path(folder), chosen.files, recover=chosen.recover))
        if chosen.times_ten:
            print(f"{chosen.files:,} files: {peak_mib(Path(folder)):.1f} MiB at its peak")
            with tempfile.TemporaryDirectory() as larger:
                asyncio.run(make(Path(larger), 10 * chosen.files))
                print(f"{10 * chosen.files:,} files: {peak_mib(Path(larger)):.1f} MiB at its peak")


if __name__ == "__main__":
    main()
