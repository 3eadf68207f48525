"""A proxy before an HTTP server that counts what passes through it, and breaks what it is told to.

It runs in a thread with an event loop of its own, so that blocking and asynchronous clients can use it alike. The
fixture `http_proxy` begins one before any server.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import botocore.session
import pytest

#: What changes a store: `HttpProxy.refuse_after` counts these.
CHANGING = ("PUT", "POST", "DELETE")


@dataclass(frozen=True)
class ProxiedRequest:
    """One request as it came in; of its body, only what is smaller than 64 KiB."""

    method: str
    target: str
    headers: dict[str, str]
    size: int
    body: bytes = field(repr=False)


@dataclass
class ProxyFault:
    """What happens to requests of this method whose target contains `match`: see `HttpProxy.on`."""

    method: str
    match: str
    times: int
    skip: int = 0
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    reset: bool = False
    hang: bool = False
    cut_request: int | None = None
    flip_bit: int | None = None
    late: bool = False
    duplicate: bool = False
    drop_headers: tuple[str, ...] = ()
    lose_reply: bool = False
    hang_reply: bool = False
    cut_after: int | None = None
    edit: Callable[[bytes, bytes], tuple[bytes, bytes]] | None = None


@dataclass
class _Message:
    """A request, as it is passed on."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def method(self) -> str:
        return self.line.split(" ", 2)[0]

    @property
    def target(self) -> str:
        return self.line.split(" ", 2)[1]

    def without(self, names: tuple[str, ...]) -> _Message:
        """The same request without these headers, signed again if it was signed."""
        dropped = {name.lower() for name in names}
        kept = {name: value for name, value in self.headers.items() if name not in dropped}
        return _Message(self.line, _signed_again(self, kept) if "authorization" in kept else kept, self.body)

    def head(self) -> bytes:
        kept = {name: value for name, value in self.headers.items() if name not in ("connection", "expect")}
        rows = [self.line, *(f"{name}: {value}" for name, value in kept.items()), "Connection: close", "", ""]
        return "\r\n".join(rows).encode("latin-1")


class HttpProxy:
    """Passes HTTP requests on to one server, one connection for each."""

    def __init__(self, upstream: str) -> None:
        host, port = upstream.removeprefix("http://").split(":")
        self._upstream = (host, int(port))
        self._faults: list[ProxyFault] = []
        self._changes_left: int | None = None
        self._held: list[_Message] = []
        self.requests: list[ProxiedRequest] = []  # All that came in, in order; those that were broken too
        self.arrived: Callable[[], object] = lambda: None
        self.hanging: Callable[[], object] = lambda: None
        self.num_in_flight = 0  # Requests that came in and were neither answered nor given up by the client
        self.num_bytes_sent = 0  # Bytes of the bodies that clients sent so far
        self.num_bytes_received = 0  # Bytes of the bodies that clients were given so far
        self.endpoint_url = ""  # Where it listens
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    def on(self, method: str, *, match: str = "", times: int = 1, skip: int = 0, **what: Any) -> None:
        """Break the next requests of this method; faults are used up in the order they were given."""
        self._faults.append(ProxyFault(method, match, times, skip, **what))

    def mend(self) -> None:
        """Break nothing more."""
        self._faults.clear()

    @property
    def num_bytes_moved(self) -> int:
        """Bytes of the bodies that passed through so far, either way."""
        return self.num_bytes_sent + self.num_bytes_received

    def count(self, method: str, match: str = "") -> int:
        """How many such requests came in."""
        return sum(request.method == method and match in request.target for request in self.requests)

    def wait_for(self, method: str, match: str = "", *, count: int = 1, seconds: float = 30) -> None:
        """Block, but not longer than that, until so many such requests came in."""
        deadline = time.monotonic() + seconds
        while self.count(method, match) < count and time.monotonic() < deadline:
            time.sleep(0.01)

    def wait_until_idle(self, *, seconds: float = 30) -> None:
        """Block, but not longer than that, until every request was answered, or its client seen to have gone."""
        deadline = time.monotonic() + seconds
        while self.num_in_flight and time.monotonic() < deadline:
            time.sleep(0.01)

    def refuse_after(self, changes: int) -> None:
        """Let so many more requests pass that change something; then every request is reset.

        To the server this is a client that crashed.
        """
        self._changes_left = changes

    @property
    def refused(self) -> bool:
        """Whether `refuse_after` has let pass what it was to."""
        return self._changes_left == 0

    def release(self) -> list[int]:
        """Pass on the requests that were held as `late`, in the order they came; gives the server's answers."""
        return asyncio.run_coroutine_threadsafe(self._release(), self._loop).result()

    def start(self) -> None:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.endpoint_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._server = server

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=2**26)

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away, as some tests mean it to
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").rstrip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in lines)}
        message = _Message(line, headers, b"")
        self.num_in_flight += 1
        try:
            answer = await self._answer(message, reader, writer)
        finally:
            self.num_in_flight -= 1
        if answer is None:
            _reset(writer)
        else:
            self.num_bytes_received += len(answer) - answer.index(b"\r\n\r\n") - 4
            writer.write(answer)
            await writer.drain()

    async def _answer(
        self, message: _Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes | None:
        """What the client gets to see; None for a reset."""
        if "expect" in message.headers:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        size = int(message.headers.get("content-length", 0))
        fault = self._fault_for(message.method, message.target)
        cut = fault.cut_request is not None
        message.body = await reader.readexactly(min(size, fault.cut_request or 0) if cut else size)
        self.num_bytes_sent += len(message.body)
        body = message.body if len(message.body) < 2**16 else b""
        request = ProxiedRequest(message.method, message.target, message.headers, len(message.body), body)
        self.requests.append(request)
        self.arrived()
        if self.refused or fault.reset:
            return None
        if fault.late:
            self._held.append(message)
            return None
        if fault.hang:
            self.hanging()
            await reader.read()  # until the client gives up
            return None
        if fault.status is not None:
            return _made_up(fault)
        if self._changes_left is not None and message.method in CHANGING:
            self._changes_left -= 1
        return await self._answer_of_the_server(message, fault, reader)

    async def _answer_of_the_server(
        self, message: _Message, fault: ProxyFault, reader: asyncio.StreamReader
    ) -> bytes | None:
        if fault.drop_headers:
            message = message.without(fault.drop_headers)
        if fault.cut_request is not None:
            await self._pass_on(message, answered=False)
            return None
        if fault.flip_bit is not None:
            spoiled = bytearray(message.body)
            spoiled[fault.flip_bit // 8] ^= 1 << fault.flip_bit % 8
            message.body = bytes(spoiled)
        if fault.duplicate:
            await self._pass_on(message)
        head, body = await self._pass_on(message)
        if fault.hang_reply:
            self.hanging()
            await reader.read()
            return None
        if fault.lose_reply:
            return None
        if fault.edit is not None:
            head, body = fault.edit(head, body)
        return head + body[: fault.cut_after]

    async def _pass_on(self, message: _Message, *, answered: bool = True) -> tuple[bytes, bytes]:
        """The answer's head, with its blank line, and body."""
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            writer.write(message.head() + message.body)
            await writer.drain()
            answer = await reader.read(-1) if answered else b""
        finally:
            writer.close()
        head, _, rest = answer.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n", rest

    async def _release(self) -> list[int]:
        answers = []
        while self._held:
            head, _ = await self._pass_on(self._held.pop(0))
            answers.append(int(head.split(b" ", 2)[1]))
        return answers

    def _fault_for(self, method: str, target: str) -> ProxyFault:
        for fault in self._faults:
            if not fault.times or fault.method != method or fault.match not in target:
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.times -= 1
            return fault
        return ProxyFault("", "", 0)


def _made_up(fault: ProxyFault) -> bytes:
    rows = [f"HTTP/1.1 {fault.status} Broken", f"Content-Length: {len(fault.body)}", "Connection: close"]
    rows += [f"{name}: {value}" for name, value in fault.headers.items()]
    return "\r\n".join([*rows, "", ""]).encode() + fault.body


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other side sees a reset, not an end."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _signed_again(message: _Message, headers: dict[str, str]) -> dict[str, str]:
    """Headers with a signature that holds for them, by the key that had signed the request before."""
    # AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/s3/aws4_request, SignedHeaders=a;b, Signature=...
    fields = dict(part.strip().partition("=")[::2] for part in headers["authorization"].split(" ", 1)[1].split(","))
    access_key, _, region, service, _ = fields["Credential"].split("/")
    signed = {name for name in fields["SignedHeaders"].split(";") if name in headers} - {"host"}
    request = botocore.awsrequest.AWSRequest(
        message.method,
        f"http://{headers['host']}{message.target}",
        headers={name: headers[name] for name in sorted(signed)},
        data=message.body,
    )
    secret = botocore.session.Session().get_credentials().secret_key
    credentials = botocore.credentials.Credentials(access_key, secret)
    botocore.auth.S3SigV4Auth(credentials, service, region).add_auth(request)
    return {**headers, **{name.lower(): value for name, value in request.headers.items()}}


@pytest.fixture
def http_proxy() -> Iterator[Callable[[str], HttpProxy]]:
    """Begins a proxy before any HTTP server, given its URL."""
    with contextlib.ExitStack() as stack:

        def begin(upstream: str) -> HttpProxy:
            proxy = HttpProxy(upstream)
            proxy.start()
            stack.callback(proxy.stop)
            return proxy

        yield begin
