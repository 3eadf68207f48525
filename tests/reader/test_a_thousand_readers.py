"""Very many files read at one time on one loop: each reader gets its rows, and nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import os
import re
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import ReadOptions
from resilient_pq.io import HttpStore, ReadStore, S3Store
from resilient_pq.io.transfer.ranged_get import MAX_REQUESTS

NUM_FILES = 40
BUCKET = "files"
#: Too few for the footer.
SHORT_TAIL = 64
#: Rounds after the first two; one of them at least has to leave nothing.
ROUNDS = 4
#: Bytes that a round may leave behind for each reader; a task or a connection is more than a thousand.
LEFT_FOR_EACH = 100

Make = Callable[["FileServer"], tuple[ReadStore, str]]


class FileServer:
    """Serves files by ranges over connections that stay open."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files  # By the last part of their names
        self.connections: set[asyncio.Transport] = set()  # Open now
        self.most_connections = 0  # Open at one time so far
        self.accepted = 0  # Connections so far
        self.requests = 0  # Answered so far
        self.url = ""

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield
            for connection in self.connections:
                connection.close()


class _Connection(asyncio.Protocol):
    def __init__(self, server: FileServer) -> None:
        self._server = server
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(transport)
        self._server.accepted += 1
        self._server.most_connections = max(self._server.most_connections, len(self._server.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            self._server.requests += 1
            self._transport.write(self._answer(head.decode("latin-1")))

    def _answer(self, head: str) -> bytes:
        name = head.split(" ", 2)[1].rpartition("/")[2]
        data, size = self._server.files[name], len(self._server.files[name])
        found = re.search(r"^range: bytes=(\d*)-(\d*)", head, re.IGNORECASE | re.MULTILINE)
        assert found is not None, "readers ask for ranges"
        start = int(found[1]) if found[1] else max(0, size - int(found[2]))
        end = min(int(found[2]) + 1, size) if found[1] else size
        rows = [
            "HTTP/1.1 206 Partial Content",
            f'ETag: "{name}"',
            f"Content-Range: bytes {start}-{end - 1}/{size}",
            f"Content-Length: {end - start}",
        ]
        return "\r\n".join([*rows, "", ""]).encode() + data[start:end]


def rows_of(number: int) -> list[int]:
    return [number * 1000 + row for row in range(20 + number)]


def files() -> dict[str, bytes]:
    found = {}
    for number in range(NUM_FILES):
        written = io.BytesIO()
        numbers = rows_of(number)
        columns = {"n": numbers, "s": [f"file {number}"] * len(numbers)}
        pq.write_table(pa.table(columns), written, write_page_checksum=True)
        found[f"{number}.parquet"] = written.getvalue()
    return found


@pytest.fixture
async def server() -> AsyncIterator[FileServer]:
    found = FileServer(files())
    async with found.listening():
        yield found


def http_store(server: FileServer) -> tuple[ReadStore, str]:
    return HttpStore(), server.url


def s3_store(server: FileServer) -> tuple[ReadStore, str]:
    return S3Store({"key": "key", "secret": "secret", "endpoint_url": server.url}), BUCKET


async def read_one(store: ReadStore, folder: str, number: int, options: ReadOptions) -> Counter[str]:
    """Open a file, and hold its rows to what it was given; gives how many requests it says it took.

    Those that were hedged, as a machine with other work may have them wait for a second, are counted apart.
    """
    async with rpq.open((store, f"{folder}/{number}.parquet"), options=options) as file:
        table = await file.read()
        requests = Counter(asked=file.counters.requests, hedged=file.counters.hedged)
    assert table["n"].tolist() == rows_of(number)
    assert set(table["s"].tolist()) == {f"file {number}"}
    return requests


async def read_all(store: ReadStore, folder: str, readers: int) -> Counter[str]:
    """So many readers at once; gives how many requests they say it took."""
    whole, short = ReadOptions(), ReadOptions(tail_bytes=SHORT_TAIL)
    found = await asyncio.gather(
        *(read_one(store, folder, i % NUM_FILES, short if i % 10 == 0 else whole) for i in range(readers))
    )
    return sum(found, Counter())


def num_open_files() -> int:
    return len(os.listdir("/dev/fd"))


def held_bytes() -> int:
    """Bytes of objects that were made since tracing began and are still used."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def check_rounds(server: FileServer, make: Make, readers: int, later: int, *, trace: bool) -> None:
    """Rounds by one store; after the second nothing grows any more, and only connections outlive the store."""
    async with opened(server, make) as (store, folder):
        await read_one(store, folder, 0, ReadOptions())  # threads and modules, which stay
    tasks, open_files = asyncio.all_tasks(), num_open_files()
    server.requests = server.most_connections = 0
    async with opened(server, make) as (store, folder):
        requests = await read_all(store, folder, readers)
        if trace:
            tracemalloc.start()
        try:
            requests += await read_all(store, folder, later)
            # What readers leave behind grows with every round; what else goes on in this process does not.
            for _ in range(ROUNDS):
                held, objects = held_bytes(), len(gc.get_objects())
                requests += await read_all(store, folder, later)
                grown = held_bytes() - held, len(gc.get_objects()) - objects
                if grown[0] < LEFT_FOR_EACH * later and grown[1] < later / 10:  # less than one for ten readers
                    break
            else:
                pytest.fail(
                    f"every round of {later} readers leaves more: {grown[0]:,} bytes, {grown[1]} objects at last"
                )
        finally:
            tracemalloc.stop()
        assert asyncio.all_tasks() == tasks
        in_vain = server.requests - requests["asked"]
        assert 0 <= in_vain <= requests["hedged"], "none is sent in vain, however long it waits for its turn"
        assert server.most_connections <= MAX_REQUESTS
        assert num_open_files() <= open_files + 2 * MAX_REQUESTS, "of both ends of each connection"
    assert asyncio.all_tasks() == tasks
    made = server.accepted
    async with opened(server, make) as (store, folder):
        await read_one(store, folder, 0, ReadOptions())
    assert server.accepted == made, "connections outlive the store: the next one of the same options uses them"
    assert num_open_files() <= open_files + 2 * MAX_REQUESTS


@contextlib.asynccontextmanager
async def opened(server: FileServer, make: Make) -> AsyncIterator[tuple[ReadStore, str]]:
    store, folder = make(server)
    async with store:
        yield store, folder


needs_descriptors = pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no list of open files here")


@needs_descriptors
@pytest.mark.parametrize(
    ("make", "readers"), [pytest.param(http_store, 1_000, marks=pytest.mark.thorough), (s3_store, 300)]
)
async def test_a_thousand_readers(server: FileServer, make: Make, readers: int) -> None:
    await check_rounds(server, make, readers, 100, trace=False)


@needs_descriptors
@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make", [http_store, s3_store])
async def test_thousands_of_readers(server: FileServer, make: Make) -> None:
    await check_rounds(server, make, 5_000, 1_000, trace=True)
