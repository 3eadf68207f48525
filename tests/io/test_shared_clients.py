"""Stores of the same options share a client in each event loop; what differs in anything shares nothing."""

from __future__ import annotations

import asyncio
import copy
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq.io import FetchCounters, HttpStore, S3Store, counting
from resilient_pq.io.shared_clients import Borrowed, ClientKey

CREDENTIALS = {"key": "AKIDEXAMPLE", "secret": "wJalrXUtnFEMI-SECRET"}


class Server(ThreadingHTTPServer):
    """Answers ranges of one object, whatever its name, and keeps connections open."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, data: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data = data  # The object
        self.connected = self.connections = 0  # Connections so far
        self.keys: list[str] = []  # The access key of each request
        self.spoils = False  # What makes the bytes that are sent over the first connection wrong
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def wait_until_left(self, most: int = 0) -> None:
        """Block until no more are connected, half a minute at most."""
        deadline = time.monotonic() + 30
        while self.connections > most and time.monotonic() < deadline:
            time.sleep(0.005)


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        self.server.connected += 1
        self.is_first = self.server.connected == 1
        self.server.connections += 1
        try:
            super().handle()
        except ConnectionError:
            pass  # a client that aborts a connection closes it, too
        finally:
            self.server.connections -= 1

    def do_GET(self) -> None:
        data, found = self.server.data, re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
        self.server.keys.append(found[1] if found else "")
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        start = int(first) if first else max(0, len(data) - int(last))
        end = min(len(data), int(last) + 1) if first else len(data)
        self.send_response(206)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.send_header("ETag", '"e"')
        self.end_headers()
        spoiled = bytearray(data[start:end])
        spoiled[len(spoiled) // 3] ^= self.server.spoils and self.is_first
        self.wfile.write(spoiled)

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture(scope="module")
def file_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("shared") / "a.parquet"
    rpq.sync.write(path, {"x": list(range(100))})
    return path.read_bytes()


@pytest.fixture
def server(file_bytes: bytes) -> Iterator[Server]:
    with Server(file_bytes) as found:
        threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
        yield found
        found.shutdown()


def options_of(server: Server) -> dict[str, Any]:
    return {**CREDENTIALS, "endpoint_url": server.url}


async def read(server: Server, *, name: str = "s3://bucket/a.parquet", **options: Any) -> int:
    """The rows of a file that is opened for this alone."""
    async with rpq.open(name, storage_options={**options_of(server), **options}) as file:
        return len((await file.read()).to_pydict()["x"])


async def test_one_open_after_the_other_needs_one_connection(server: Server) -> None:
    for _ in range(3):
        assert await read(server) == 100
    async with HttpStore() as one, HttpStore() as another:
        for store in (one, another):
            await store.read_tail(f"{server.url}/a", 10)
    assert server.connected == 2, "one to S3, one to the web server"


async def test_many_at_once_share_a_client_and_its_limit(server: Server) -> None:
    limited = {"config_kwargs": {"max_pool_connections": 8}}
    with counting(FetchCounters()) as counters:
        found = await asyncio.gather(*(read(server, **limited) for _ in range(60)))
    assert found == [100] * 60
    assert server.connected <= 8
    assert (counters.hedged, counters.retries) == (0, 0)


@pytest.mark.parametrize("scheme", ["s3", "http"])
async def test_what_comes_damaged_is_read_again_over_a_new_connection(server: Server, scheme: str) -> None:
    server.spoils = True
    options = options_of(server) if scheme == "s3" else {}
    name = "s3://bucket/a" if scheme == "s3" else f"{server.url}/a"
    async with rpq.open(name, options=rpq.ReadOptions(tail_bytes=300), storage_options=options) as file:
        assert len((await file.read()).to_pydict()["x"]) == 100
    await asyncio.to_thread(server.wait_until_left, 1)
    assert server.connected > 2, "one for the damaged footer, one for the damaged chunk"


def test_several_loops_and_threads(server: Server) -> None:
    """Each loop has a client of its own, and closes it."""

    async def some() -> None:
        assert await asyncio.gather(*(read(server) for _ in range(4))) == [100] * 4

    for _ in range(2):
        threads = [threading.Thread(target=asyncio.run, args=(some(),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.wait_until_left()
        assert server.connections == 0
    assert len(server.keys) == 24


SHARING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "credentials": ({"key": "A", "secret": "s"}, {"key": "B", "secret": "s"}),
    "a secret": ({"key": "A", "secret": "s"}, {"key": "A", "secret": "t"}),
    "a token": ({"token": "s"}, {"token": "t"}),
    "a region": ({"client_kwargs": {"region_name": "a"}}, {"client_kwargs": {"region_name": "b"}}),
    "an endpoint": ({"endpoint_url": "http://h:1"}, {"endpoint_url": "http://h:2"}),
    "who is anonymous": ({"anon": True}, {}),
    "a limit": ({"config_kwargs": {"max_pool_connections": 1}}, {"config_kwargs": {"max_pool_connections": 2}}),
}


@pytest.mark.parametrize("what", SHARING)
async def test_what_differs_is_not_shared(what: str) -> None:
    options, others = SHARING[what]
    same = {name: dict(value) if isinstance(value, dict) else value for name, value in options.items()}
    stores = [S3Store(each) for each in (options, same, others)]
    first, second, third = (store._client.connection for store in stores)
    assert first is second, "options are compared by their values"
    assert first is not third
    for store in stores:
        await store.close()


async def test_another_environment_is_another_client(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("FIRST", "SECOND", "FIRST"):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        async with S3Store({"endpoint_url": server.url}) as store:
            await store.read_tail("bucket/a", 10)
    assert server.keys == ["FIRST", "SECOND", "FIRST"]
    assert server.connected == 2


async def test_a_changed_profile_is_another_client(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    for key in ("FIRST", "ANOTHER"):
        path.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=s\n")
        async with S3Store({"endpoint_url": server.url}) as store:
            await store.read_tail("bucket/a", 10)
    assert server.keys == ["FIRST", "ANOTHER"]


async def test_few_clients_stay_that_no_store_uses(server: Server) -> None:
    used = S3Store({**options_of(server), "key": "used"})
    await used.read_tail("bucket/a", 10)
    for number in range(12):
        async with S3Store({**options_of(server), "key": f"K{number}"}) as store:
            await store.read_tail("bucket/a", 10)
    await asyncio.to_thread(server.wait_until_left, 9)
    assert server.connections == 9
    await used.read_tail("bucket/a", 10)
    assert server.connected == 13, "what is used stays"
    await used.close()


class SlowToClose:
    """A client that takes a while to be closed."""

    def __init__(self, *, turns: int) -> None:
        self.turns = turns  # Of the event loop
        self.closed = False

    async def close(self) -> None:
        for _ in range(self.turns):
            await asyncio.sleep(0)
        self.closed = True

    def abandon(self) -> None:
        raise AssertionError("the loop has not ended without its generators")


def test_the_end_of_a_loop_waits_for_clients_that_are_being_closed() -> None:
    made: list[SlowToClose] = []

    def make() -> SlowToClose:
        made.append(SlowToClose(turns=0 if made else 1000))
        return made[-1]

    async def use_many() -> None:
        for number in range(12):
            borrowed = Borrowed(partial(ClientKey, "slow", number), make)
            assert not borrowed.client.closed
            borrowed.give_back()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(use_many())
    assert not made[0].closed
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert all(client.closed for client in made)
    loop.close()


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=2),
    max_leaves=4,
)


@given(values, values)
def test_keys_are_equal_where_their_values_are(one: Any, another: Any) -> None:
    """Of the same types, too: a proxy of "1" is not the number."""
    equal = repr(_sorted(one)) == repr(_sorted(another))
    keys = ClientKey("s3", one), ClientKey("s3", another)
    assert (keys[0] == keys[1]) == equal
    assert not equal or hash(keys[0]) == hash(keys[1])
    assert keys[0] == ClientKey("s3", copy.deepcopy(one))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sorted(each) for each in value]
    return value + 0.0 if isinstance(value, float) else value


def test_what_cannot_be_compared_is_equal_to_itself_alone() -> None:
    class Session:
        __hash__ = None  # type: ignore[assignment]

    session = Session()
    assert ClientKey({"session": session}) == ClientKey({"session": session})
    assert ClientKey({"session": session}) != ClientKey({"session": Session()})


async def test_secrets_are_shown_nowhere(server: Server) -> None:
    async with S3Store(options_of(server)) as store:
        await store.read_tail("bucket/a", 10)
        client = store._client
        shown = repr([store, client, client.connection, client._borrowed, client._borrowed._key()])
    assert CREDENTIALS["secret"] not in shown
    assert CREDENTIALS["key"] not in shown


# -- ends, each in an interpreter of its own -----------------------------------------------------------

BEGIN = """
import asyncio, os, sys
import resilient_pq as rpq
import resilient_pq.io, resilient_pq.sync
options = {{"key": "k", "secret": "s", "endpoint_url": "{url}"}}
async def read():
    async with rpq.open("s3://bucket/a.parquet", storage_options=options) as file:
        assert len((await file.read()).to_pydict()["x"]) == 100
    async with rpq.io.HttpStore() as store:
        await store.read_tail("{url}/a", 10)
"""
ENDS = {
    "loops of every kind": """
asyncio.run(read())
for _ in range(2):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(read())
    loop.close()
asyncio.run(read())
for _ in range(2):
    with rpq.sync.open("s3://bucket/a.parquet", storage_options=options) as file:
        file.read()
asyncio.Runner().__enter__().run(read())
""",
    "a fork": """
runner = asyncio.Runner()
runner.run(read())
with rpq.sync.open("s3://bucket/a.parquet", storage_options=options) as file:
    file.read()
child = os.fork()
asyncio.run(read()) if not child else runner.run(read())
with rpq.sync.open("s3://bucket/a.parquet", storage_options=options) as file:
    file.read()
if not child:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
runner.run(read())
runner.close()
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_open(server: Server, end: str) -> None:
    script = BEGIN.format(url=server.url) + ENDS[end]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    server.wait_until_left()
    assert server.connections == 0
