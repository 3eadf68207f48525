"""HTTP/1.1 connections that send GETs, of the standard library alone: an HTTP client takes longer to import than NumPy.

An answer is taken only as RFC 9112 has it. What is not clear ends the connection, with an error that is tried again.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from resilient_pq.units import KiB, MiB

#: Seconds after which a connection that nobody used is not used again.
_IDLE_SECONDS: Final = 15.0
#: Bytes of the headers of an answer, at most; and of what arrived and nobody asked for yet.
_MOST_HEAD: Final = 64 * KiB
_MOST_AHEAD: Final = 512 * KiB
#: Bytes of a body that ends with its connection.
_ENDLESS: Final = 1 << 62

_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: .*)?")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_NOT_IN_HEADERS: Final = re.compile("[\r\n\0]")


class Endpoint(NamedTuple):
    """Where connections go to, encrypted where there are certificates."""

    host: str
    port: int
    certificates: ssl.SSLContext | None


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, endpoint: Endpoint, progress_seconds: float | None) -> None:
        self.endpoint = endpoint
        self.is_open = self.is_used = True
        self._kept_at = 0.0
        self._progress_seconds = progress_seconds
        self._pieces: deque[bytes | memoryview] = deque()
        self._ahead = 0
        self._error: Exception | None = None
        self._arrival: asyncio.Future[None] | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._put(data, first=False)
        self._wake()

    def eof_received(self) -> None:
        self.is_open = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open, self._error = False, exc
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _put(self, data: bytes | memoryview, *, first: bool) -> None:
        (self._pieces.appendleft if first else self._pieces.append)(data)
        self._ahead += len(data)
        if self._ahead > _MOST_AHEAD:
            self.transport.pause_reading()

    def keep(self) -> None:
        """Have the next request use it, unless something comes that nobody asked for."""
        self.is_used, self._kept_at = False, time.monotonic()

    @property
    def is_fresh(self) -> bool:
        """Whether another request can use it."""
        return self.is_open and not self._pieces and time.monotonic() - self._kept_at < _IDLE_SECONDS

    async def piece(self, most: int) -> bytes | memoryview:
        """The next bytes, at least one; none where the other side ended the connection."""
        while not self._pieces:
            if self._error is not None:
                raise ConnectionError(str(self._error)) from self._error
            if not self.is_open:
                return b""
            self._arrival = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(self._progress_seconds):
                await self._arrival
        piece = self._pieces.popleft()
        self._ahead -= len(piece)
        if len(piece) > most:
            whole = memoryview(piece)
            piece = whole[:most]
            self._put(whole[most:], first=True)
        if self._ahead <= _MOST_AHEAD and self.is_open:
            self.transport.resume_reading()
        return piece

    async def up_to(self, end: bytes) -> bytes:
        """The bytes before the next `end`, which is taken, too."""
        found = bytearray()
        while (at := found.find(end)) < 0:
            if len(found) > _MOST_HEAD or not (piece := await self.piece(_MOST_HEAD)):
                raise ConnectionError("the answer ends, or does not end, within its headers")
            found += piece
        if rest := found[at + len(end) :]:
            self._put(bytes(rest), first=True)
        return bytes(found[:at])

    def close(self) -> None:
        """Drop it, and what is on its way."""
        self.is_open = False
        self.transport.abort()


class HttpAnswer:
    """An answer, whose body is read as it comes; a ConnectionError where it is none.

    Attributes:
        status: Its HTTP status.
        headers: By names in lower case.
    """

    def __init__(self, head: bytes, connection: _Connection) -> None:
        """Take the headers apart; the connection is kept when the body ends."""
        first, *lines = head.split(b"\r\n")
        status, fields = _STATUS.fullmatch(first), [_HEADER.fullmatch(line) for line in lines]
        named = [(field[1].decode().lower(), field[2].decode()) for field in fields if field is not None]
        if status is None or len(named) < len(lines):
            raise ConnectionError("the answer is not HTTP/1.1")
        self.status = int(status[2])
        self.headers: dict[str, str] = dict(named)
        length = 0 if self.status in (204, 304) else _body_length(named)
        #: Bytes that are still to come of the body, or of its chunk; more than ever come where that ends nothing.
        self._left = length or 0
        self._chunked = length is None
        self._sized = self._left < _ENDLESS
        self._keeps = self._sized and status[1] == b"1" and "close" not in self.headers.get("connection", "").lower()
        self._connection: _Connection | None = connection
        self._end_if_read()

    async def read(self, size: int) -> bytes | memoryview:
        """The next bytes of the body, none at its end; a ConnectionError where it is cut short."""
        if self._chunked and not self._left and self._connection is not None:
            await self._begin_chunk(self._connection)
        if (connection := self._connection) is None:
            return b""
        piece = await connection.piece(min(size, self._left))
        if not piece:
            self.close()
            if self._sized:
                raise ConnectionError(f"the connection ended {self._left:,} bytes before the end of the body")
            return b""
        self._left -= len(piece)
        if self._chunked and not self._left and await connection.up_to(b"\r\n"):
            raise ConnectionError("a chunk of the body is longer than it says")
        self._end_if_read()
        return piece

    async def _begin_chunk(self, connection: _Connection) -> None:
        line = _CHUNK.fullmatch(await connection.up_to(b"\r\n"))
        if line is None:
            raise ConnectionError("the body has a chunk of no length")
        self._left = int(line[1], 16)
        if not self._left:
            self._chunked = False
            if await connection.up_to(b"\r\n"):
                self._keeps = False  # there are trailers, which nobody reads
            self._end_if_read()

    def _end_if_read(self) -> None:
        if self._left != 0 or self._chunked or self._connection is None:
            return
        if self._keeps:
            self._connection.keep()
            self._connection = None
        self.close()

    async def read_all(self) -> bytes:
        """The body, of which more than 1 MiB is not read."""
        found = bytearray()
        while len(found) < MiB and (piece := await self.read(MiB)):
            found += piece
        self.close()
        return bytes(found)

    def close(self) -> None:
        """Drop the rest, and the connection with it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _body_length(named: Sequence[tuple[str, str]]) -> int | None:
    """How many bytes a body has; None where it comes in chunks."""
    framing = {field for field in named if field[0] in ("content-length", "transfer-encoding")}
    if not framing:
        return _ENDLESS
    (name, value), *others = framing
    if others or not (_LENGTH.fullmatch(value) if name == "content-length" else value.lower() == "chunked"):
        raise ConnectionError("the answer does not say clearly where its body ends")
    return int(value) if name == "content-length" else None


class HttpConnections:
    """Connections to any hosts, kept for the next request."""

    def __init__(self, *, connect_seconds: float, progress_seconds: float | None) -> None:
        """Nothing is opened yet."""
        self._connect_seconds = connect_seconds
        self._progress_seconds = progress_seconds
        self._connections: list[_Connection] = []

    async def get(self, endpoint: Endpoint, target: str, headers: Mapping[str, str]) -> HttpAnswer:
        """The answer to a GET, its body still to come; the message of a TimeoutError begins with "connect" or not."""
        lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if any(_NOT_IN_HEADERS.search(line) for line in lines):
            raise ValueError("a header of a request has a line break")
        connection = self._kept(endpoint) or await self._connect(endpoint)
        try:
            connection.transport.write("\r\n".join([*lines, "", ""]).encode())
            head = await connection.up_to(b"\r\n\r\n")
            while head[8:10] == b" 1":  # what is said before the answer
                head = await connection.up_to(b"\r\n\r\n")
            return HttpAnswer(head, connection)
        except BaseException:
            connection.close()
            raise

    def _kept(self, endpoint: Endpoint) -> _Connection | None:
        for connection in self._connections:
            if not connection.is_used and not connection.is_fresh:
                connection.close()
        self._connections = [each for each in self._connections if each.is_open]
        found = next((each for each in self._connections if not each.is_used and each.endpoint == endpoint), None)
        if found is not None:
            found.is_used = True
        return found

    async def _connect(self, endpoint: Endpoint) -> _Connection:
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, made = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(endpoint, self._progress_seconds),
                    endpoint.host,
                    endpoint.port,
                    ssl=endpoint.certificates,
                    happy_eyeballs_delay=0.25,
                )
        except TimeoutError as error:
            raise TimeoutError(f"connecting to {endpoint.host} takes too long") from error
        self._connections.append(made)
        return made

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()
        self.abandon()

    def abandon(self) -> None:
        """Let go of connections that nothing can close any more."""
        self._connections = []
