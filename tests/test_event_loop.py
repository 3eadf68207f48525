"""No callback of ours keeps the event loop busy for long, whatever the number of columns: other tasks go on meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from loop_watch import LIMIT, LoopWatch, watched

import resilient_pq as rpq
from resilient_pq.io import MemoryStore
from resilient_pq.off_event_loop import AT_ONCE, Turns, off_loop

#: Times are measured, which a tracer of lines would change.
pytestmark = pytest.mark.no_cover

ROWS = 20
#: Names are imported when they are first asked for: here, and not where the loop runs.
NAMES = [getattr(rpq, name) for name in rpq.__all__]
Place = Callable[[str], Any]


@pytest.fixture(params=["local", pytest.param("memory", marks=pytest.mark.thorough)])
def place(request: Any, tmp_path: Path) -> Place:
    """Where files are: read by threads, or through the event loop."""
    store = MemoryStore()
    return (lambda name: str(tmp_path / name)) if request.param == "local" else (lambda name: (store, name))


def wide(num_columns: int) -> dict[str, Any]:
    texts = [f"v{row % 7}" for row in range(ROWS)]
    return {f"c{i}": np.arange(ROWS) * i if i % 3 else texts for i in range(num_columns)}


async def bytes_of(at: Any) -> bytes:
    if isinstance(at, str):
        return Path(at).read_bytes()
    store, key = at
    info = await store.head(key)
    return bytes(await store.read_range(key, 0, info.size, pin=info))


async def put(at: Any, data: bytes) -> None:
    if isinstance(at, str):
        Path(at).write_bytes(data)
    else:
        await at[0].put(at[1], data)


async def calm(watch: LoopWatch, what: str, work: Callable[[], Awaitable[Any]]) -> Any:
    """Do something of which no callback may be slow."""
    found = await asyncio.create_task(work())  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert not watch.slow, f"{what}:\n" + "\n".join(map(str, watch.slow))
    return found


async def written(at: Any, data: object, num_row_groups: int) -> None:
    async with rpq.create(at, row_group_rows=ROWS) as writer:
        for number in range(num_row_groups):
            await writer.write(data)
            if number == 1:
                await writer.checkpoint()


async def read(at: Any, **how: Any) -> int:
    async with rpq.open(at) as file:
        await file.plan(**how)
        async for _ in file.batches(ROWS // 2, **how):
            pass
        table = await file.read(**how)
        return table.num_rows


async def dataset(folder: Any, data: object) -> None:
    async with rpq.create_dataset(folder, roll_rows=2 * ROWS) as sink:
        for _ in range(4):
            await sink.write(data)
        await sink.checkpoint()
    await rpq.write_metadata(folder)
    async with rpq.open_many(folder) as found:
        assert (await found.read()).num_rows == 4 * ROWS


@pytest.mark.parametrize(
    ("num_columns", "num_row_groups"), [(400, 2), pytest.param(2000, 8, marks=pytest.mark.thorough)]
)
async def test_many_columns_keep_no_callback_long(place: Place, num_columns: int, num_row_groups: int) -> None:
    data, rows = wide(num_columns), ROWS * num_row_groups
    whole, torn, bad = place("whole.parquet"), place("torn.parquet"), place("bad.parquet")
    with watched() as watch:
        await calm(watch, "write", lambda: written(whole, data, num_row_groups))
        assert await calm(watch, "read", lambda: read(whole)) == rows
        assert await calm(watch, "filter and limit", lambda: read(whole, filters=[("c1", ">=", 0)], limit=5)) == 5
        content = await bytes_of(whole)
        await put(torn, content[: len(content) * 2 // 3])
        middle = len(content) // 2
        await put(bad, content[:middle] + bytes(8) + content[middle + 8 :])
        await asyncio.sleep(0)
        watch.slow.clear()  # the test's own, which has just ended
        for at in (whole, bad) if num_row_groups > 2 else (whole,):
            await calm(watch, "check", lambda at=at: rpq.check(at))
        report = await calm(watch, "recover", lambda: rpq.recover(torn, place("out.parquet")))
        assert report.kept is not None
        folder = place("folder/") if isinstance(whole, tuple) else place("folder")
        if isinstance(folder, str):
            os.mkdir(folder)
        await calm(watch, "data set", lambda: dataset(folder, data))


async def test_a_stream_of_very_many_columns_is_typed_in_a_thread(place: Place) -> None:
    at, written = place("wide.parquet"), BytesIO()
    pq.write_table(pa.table({f"c{i}": [1] for i in range(5000)}), written)
    await put(at, written.getvalue())

    async def stream() -> None:
        async with rpq.open(at) as file:
            assert [batch.num_rows async for batch in file.batches()] == [1]

    with watched() as watch:
        await calm(watch, "batches", stream)


async def test_the_watch_sees_who_is_slow() -> None:
    def spin() -> None:
        end = time.thread_time() + 2 * LIMIT
        while time.thread_time() < end:
            pass

    async def slow() -> None:
        spin()

    async def waits() -> None:
        await asyncio.sleep(2 * LIMIT)
        await asyncio.to_thread(spin)

    with watched() as watch:
        await asyncio.create_task(waits())
        assert not watch.slow
        await asyncio.create_task(slow())
    assert len(watch.slow) == 1
    assert "slow, calling" in str(watch.slow[0])


async def test_what_is_little_is_done_at_once() -> None:
    here = threading.get_ident()
    assert await off_loop(AT_ONCE, threading.get_ident) == here
    assert await off_loop(AT_ONCE + 1, threading.get_ident) != here


async def test_others_have_their_turn() -> None:
    ran = 0

    async def other() -> None:
        nonlocal ran
        while True:
            ran += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    turns = Turns()
    for _ in range(AT_ONCE - 1):
        await turns.give_way()
    assert ran == 0
    for _ in range(2 * AT_ONCE + 1):
        await turns.give_way()
    assert ran == 3
    task.cancel()


#: The first file of a process is where clients are imported and made.
_FIRST = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
import pytest
from loop_watch import watched
import resilient_pq as rpq
from resilient_pq import check, check_many, open, recover_many  # here, not where the loop runs

url, options = sys.argv[1], {}
if url.startswith("s3"):
    options = {"key": "k", "secret": "s", "endpoint_url": sys.argv[3]}

async def opened():
    async with rpq.open(url, storage_options=options):
        pass

async def of_many(results):
    async with results:
        async for result in results:
            print(result.error.type)

BEGIN = {
    "check": lambda: rpq.check(url, storage_options=options),
    "open": opened,
    "check_many": lambda: of_many(rpq.check_many([url], storage_options=options)),
    "recover_many": lambda: of_many(
        rpq.recover_many([url], sys.argv[5], storage_options=options, dst_storage_options={})
    ),
}

async def main():
    for name in sorted(BEGIN, key=lambda name: name != sys.argv[4]):
        try:
            await asyncio.create_task(begun(name))
        except rpq.NotFoundError as error:
            print(type(error).__name__)

async def begun(name):
    await BEGIN[name]()

with watched() as watch:
    asyncio.run(main())
print(len(watch.slow), *map(str, watch.slow), sep="\\n")
"""


class Nothing(BaseHTTPRequestHandler):
    """Has no object."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815 (as the standard library wants it)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def nothing() -> Iterator[str]:
    """The address of a server without objects."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


S3, HTTP, FSSPEC = "s3://bucket/a.parquet", "{}/a.parquet", "memory://a/b.parquet"


@pytest.mark.parametrize(
    ("url", "first"),
    [
        (S3, "check"),
        (HTTP, "open"),
        *[
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in [(FSSPEC, "check"), *product((S3, HTTP, FSSPEC), ("recover_many", "check_many"))]
        ],
    ],
)
def test_the_first_file_of_a_process_keeps_no_callback_long(url: str, first: str, nothing: str, tmp_path: Path) -> None:
    """Clients are imported, and made, in a thread."""
    plugins = str(Path(__file__).parent / "plugins")
    command = [
        sys.executable,
        "-c",
        _FIRST,
        url.format(nothing),
        plugins,
        nothing,
        first,
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    lines = done.stdout.splitlines()
    assert [line in ("NotFoundError", "BucketNotFoundError") for line in lines[:4]] == [True] * 4, done.stderr
    assert lines[4] == "0", done.stdout
