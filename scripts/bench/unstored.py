"""How old rows get before they are stored, and what `max_unstored_seconds` costs, for sources that give rows slowly.

Run it as ``python scripts/bench/unstored.py [--seconds 150] [--bounds 30,10,none] [--folder DIR]``. Streams of 3 MB/s,
0.5 MB/s and 10 rows a second go side by side into local files and into a SeaweedFS of their own, once with each bound.
Twice a second each tells how old its oldest row is that would not survive a loss of power. Afterwards each file is read
whole, and again when it was written anew as `rpq write` does it, which makes row groups of full size of small ones.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from upload import BUCKET, KEY, SECRET, seaweedfs

import resilient_pq as rpq

#: Seconds between batches, and between looks at the ages.
STEP = 0.1
LOOK = 0.5
#: Rows a second; a row takes 64 bytes in memory.
RATES = {"3 MB/s": 48_000, "0.5 MB/s": 8_000, "10 rows/s": 10}
NAMES = {"3 MB/s": "fast", "0.5 MB/s": "slow", "10 rows/s": "drops"}
READS = 5


@dataclass(slots=True)
class Stream:
    """One stream and what became of it.

    Attributes:
        place: "local" or "s3".
        rate: Its name.
        bound: Seconds, or None.
        ages: Of the oldest row that is not stored, at each look.
    """

    place: str
    rate: str
    bound: float | None
    url: str
    options: dict[str, Any]
    ages: list[float] = field(default_factory=list)
    first_stored: float | None = None
    resent: int = 0

    async def run(self, seconds: float) -> None:
        """Write for so long, and publish."""
        taken: deque[tuple[int, float]] = deque()
        begun, rng = time.monotonic(), np.random.default_rng(7)
        async with rpq.create(self.url, max_unstored_seconds=self.bound, storage_options=self.options) as writer:
            looking = asyncio.create_task(self._look(writer, taken, begun))
            num_rows = 0
            while (now := time.monotonic() - begun) < seconds:
                until = int(now * RATES[self.rate])
                if until > num_rows:
                    taken.append((num_rows, time.monotonic()))
                    await writer.write(batch(rng, num_rows, until))
                    num_rows = until
                await asyncio.sleep(STEP)
            looking.cancel()
        self.resent = writer.num_bytes_resent

    async def _look(self, writer: rpq.Writer, taken: deque[tuple[int, float]], begun: float) -> None:
        while True:
            safe = writer._num_rows_safe
            if safe and self.first_stored is None:
                self.first_stored = time.monotonic() - begun
            while len(taken) > 1 and taken[1][0] <= safe:
                taken.popleft()
            waiting = taken and safe < writer.num_rows
            self.ages.append(time.monotonic() - taken[0][1] if waiting else 0.0)
            await asyncio.sleep(LOOK)


def batch(rng: np.random.Generator, start: int, stop: int) -> pa.RecordBatch:
    """Rows of 64 bytes, a third of which is noise."""
    count = stop - start
    return pa.record_batch(
        {
            "ts": np.arange(start, stop) * 1_000_003,
            "user": rng.integers(0, 50_000, count),
            "kind": rng.integers(0, 40, count),
            "price": rng.normal(100, 15, count).round(2),
            "noise": rng.random(count),
            "load": rng.random(count),
            "size": rng.integers(0, 1 << 20, count),
            "flag": rng.integers(0, 2, count),
        }
    )


async def read_seconds(url: str, options: dict[str, Any]) -> float:
    """Of reading the whole file, the median."""
    times = []
    for _ in range(READS):
        begun = time.perf_counter()
        async with rpq.open(url, storage_options=options) as file:
            await file.read()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


async def written_anew(stream: Stream) -> str:
    """The rows of the file in row groups of full size, in another file."""
    url = stream.url + ".anew"
    async with (
        rpq.open(stream.url, storage_options=stream.options) as file,
        rpq.create(url, file.arrow_schema, storage_options=stream.options) as writer,
    ):
        async for rows in file.batches():
            await writer.write(rows)
    return url


async def told(stream: Stream) -> str:
    """A line of the table."""
    cells = [stream.place, stream.rate, "none" if stream.bound is None else f"{stream.bound:g} s"]
    first = "never" if stream.first_stored is None else f"{stream.first_stored:.1f}"
    cells += [first, f"{max(stream.ages):.1f}", f"{statistics.median(stream.ages):.1f}"]
    async with rpq.open(stream.url, storage_options=stream.options) as file:
        cells += [f"{file.num_rows:,}", f"{file.num_row_groups}", f"{len(file.checkpoints)}"]
        cells.append(f"{file.info.size / 1e6:.2f}")
    cells += [f"{stream.resent / 1e6:.1f}", f"{await read_seconds(stream.url, stream.options) * 1e3:.0f}"]
    anew = await written_anew(stream)
    async with rpq.open(anew, storage_options=stream.options) as file:
        cells += [f"{file.num_row_groups}", f"{file.info.size / 1e6:.2f}"]
    cells.append(f"{await read_seconds(anew, stream.options) * 1e3:.0f}")
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| where | source | bound | first stored after s | oldest s | median s | rows | row groups | checkpoints | file MB"
    " | sent again MB | read ms | anew: row groups | MB | read ms |\n|" + "---|" * 15
)


async def measure(streams: list[Stream], seconds: float) -> None:
    """All at once, then a table of them."""
    await asyncio.gather(*[stream.run(seconds) for stream in streams])
    print(HEAD)
    for stream in streams:
        print(await told(stream))


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--bounds", default="30,none")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    bounds = [None if each == "none" else float(each) for each in arguments.bounds.split(",")]
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        s3 = {"key": KEY, "secret": SECRET, "endpoint_url": stack.enter_context(seaweedfs())}
        streams = [
            Stream(place, rate, bound, f"{base}/{NAMES[rate]}-{bound}.parquet", options)
            for place, base, options in (("local", str(folder), {}), ("s3", f"s3://{BUCKET}", s3))
            for rate in RATES
            for bound in bounds
        ]
        asyncio.run(measure(streams, arguments.seconds))


if __name__ == "__main__":
    main()
