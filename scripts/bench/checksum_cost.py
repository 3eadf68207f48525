"""What checksums cost ourselves: writing with CRCs and without, reading with them compared and not.

Run it as ``python scripts/bench/checksum_cost.py [--sets taxi wide] [--codecs none zstd:1]``. With and without take
turns in one process, and the least CPU time of all its threads is compared: what else the machine does can only add
to it. Only this process writes without: every CRC32 is replaced by a function that returns 0. Statistics and
checkpoints are on in both; ``--no-checkpoints`` leaves the latter out where the CRCs are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from resilient_pq import ReadOptions, WriteOptions, checksum
from resilient_pq import sync as rpq

Work = Callable[[], Any]


def no_crc32(data: Any, start: int = 0) -> int:
    """Instead of `checksum.crc32`."""
    return 0


def no_combine(first: int, second: int, second_size: int) -> int:
    """Instead of `checksum.combine`."""
    return 0


@contextlib.contextmanager
def no_checksums() -> Iterator[None]:
    """Nothing in this process computes a CRC32; files that are written have none that holds."""
    instead: dict[Any, Any] = {checksum.crc32: no_crc32, checksum.combine: no_combine}
    changed = [
        (module, name, value)
        for key, module in list(sys.modules.items())
        if key.split(".")[0] == "resilient_pq"
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value in instead
    ]
    for module, name, value in changed:
        setattr(module, name, instead[value])
    try:
        yield
    finally:
        for module, name, value in changed:
            setattr(module, name, value)


def cpu_seconds(work: Work) -> float:
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def ratio(with_sums: Work, without: Work, turns: int) -> tuple[float, float, float]:
    """CPU seconds with and without, the least of each, and their ratio."""
    with_sums(), without()
    pairs = []
    for turn in range(turns):  # who goes first changes, so that neither always finds what the other left
        pair = [(with_sums, 0), (without, 1)]
        taken = [0.0, 0.0]
        for work, place in pair if turn % 2 else reversed(pair):
            taken[place] = cpu_seconds(work)
        pairs.append(taken)
    first, second = (min(column) for column in zip(*pairs, strict=True))
    return first, second, first / second


def writing(table: pa.Table, path: Path, settings: dict[str, Any], without: dict[str, Any]) -> tuple[Work, Work]:
    """Two functions that write the table: as always, and without CRCs."""

    def write(**more: Any) -> None:
        with rpq.create(str(path), **settings, **more) as writer:
            writer.write(table)

    def write_without() -> None:
        with no_checksums():
            write(**without)

    write_without()
    with contextlib.suppress(OSError):
        pq.read_table(path, page_checksum_verification=True)
        raise AssertionError("the file has CRCs that hold: what is to be left out is not left out any more")
    return write, write_without


def reading(path: Path, threads: int) -> tuple[Work, Work]:
    """Two functions that read the file: comparing its CRCs, and not."""
    options = ReadOptions(max_threads=threads)

    def read(*, verify: bool) -> Any:
        with rpq.open(str(path), verify=verify, options=options) as file:
            return file.read()

    return lambda: read(verify=True), lambda: read(verify=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[*datasets.DATA_SETS], default=["taxi", "wide", "logs"])
    parser.add_argument("--codecs", nargs="+", default=["none", "snappy", "zstd:1"], metavar="CODEC[:LEVEL]")
    parser.add_argument("--scale", type=float, default=0.25, help="rows, as a multiple of each set's own number")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-checkpoints", action="store_true")
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER, help="where data sets are kept")
    parser.add_argument("--out", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    arguments = parser.parse_args()
    print("| CPU ms | writing | without | ratio | reading, compared | not | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory(dir=arguments.out, prefix="bench-") as folder:
        for name in arguments.sets:
            rows = round(datasets.DATA_SETS[name].rows * arguments.scale)
            table = datasets.load(datasets.source(name, rows, arguments.data))
            for codec in arguments.codecs:
                kind, _, level = codec.partition(":")
                path = Path(folder) / "file.parquet"
                settings = {
                    "compression": kind,
                    "compression_level": int(level) if level else None,
                    "options": WriteOptions(max_threads=arguments.threads),
                }
                without = {"checkpoint_every": None} if arguments.no_checkpoints else {}
                both = writing(table, path, settings, without)
                written = ratio(*both, arguments.turns)
                both[0]()
                read = ratio(*reading(path, arguments.threads), arguments.turns)
                cells = [f"{part * 1000:,.1f}" if i % 3 < 2 else f"{part:.3f}" for i, part in enumerate(written + read)]
                print("| " + " | ".join([f"{name} {codec}", *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
