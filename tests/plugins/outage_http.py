"""Requests and answers of HTTP as the proxy of the outages passes them on, or makes them up."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field

_NOT_PASSED_ON = frozenset({"connection", "expect", "keep-alive"})
PIECE = 16 * 1024


@dataclass
class Seen:
    """A request, and what became of it."""

    at: float  # When it came, by `time.monotonic`
    kind: str  # What it is for
    line: str  # Its method and target
    fate: str = ""  # What was done to it; "" is nothing
    status: int = 0  # What the server answered; 0 where it was not asked, or not heard
    upload_id: str = ""  # Of the upload it began
    delivered: bool = False  # Whether its whole reply was given to the client
    asked_at: float = 0.0  # When the server got it last

    def __str__(self) -> str:
        """As a line of a report."""
        told = "" if self.delivered else ", reply not delivered"
        return f"{self.at:.2f} {self.kind}: {self.line} -> {self.status}{told} {self.fate}"


@dataclass
class Message:
    """A request, taken apart."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = field(default=b"", repr=False)

    @property
    def size(self) -> int:
        """Bytes of the body that its head announces."""
        return int(self.headers.get("content-length", 0))

    def head(self) -> bytes:
        kept = [f"{name}: {value}" for name, value in self.headers.items() if name not in _NOT_PASSED_ON]
        return "\r\n".join([f"{self.method} {self.target} HTTP/1.1", *kept, "Connection: close", "", ""]).encode(
            "latin-1"
        )


def kind_of(method: str, target: str, headers: dict[str, str]) -> str:
    """What a request of S3 is for, one of `outage_schedule.REQUESTS`."""
    path, _, query = target.partition("?")
    names = {part.partition("=")[0] for part in query.split("&")}
    if method == "PUT" and "partNumber" in names:
        return "copy" if "x-amz-copy-source" in headers else "part"
    if method == "POST":
        return "create" if "uploads" in names else "complete" if "uploadId" in names else "delete"
    if method == "DELETE":
        return "abort" if "uploadId" in names else "delete"
    if method == "GET":
        if "uploads" in names or "uploadId" in names:
            return "list uploads" if "uploads" in names else "list parts"
        return "list" if "list-type" in names or not path.strip("/").count("/") else "get"
    return method.lower()


async def take_body(
    message: Message,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    size: int | None = None,
    seconds: float = 0.0,
) -> None:
    """Read the body of a request, or so many bytes of it, in about so many seconds."""
    if "expect" in message.headers:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    wanted = message.size if size is None else size
    if not seconds:
        message.body = await reader.readexactly(wanted)
        return
    pieces = []
    for at in range(0, wanted, PIECE):
        pieces.append(await reader.readexactly(min(PIECE, wanted - at)))
        await asyncio.sleep(seconds * PIECE / max(wanted, PIECE))
    message.body = b"".join(pieces)


async def until_gone(reader: asyncio.StreamReader) -> None:
    """Answer nothing until the client gives up."""
    while await reader.read(PIECE):
        pass


def joined(body: bytes) -> bytes:
    """A body that came in chunks."""
    pieces, at = [], 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].split(b";")[0], 16)
        if not size:
            return b"".join(pieces)
        pieces.append(body[end + 2 : end + 2 + size])
        at = end + 4 + size


def made_up(status: int, code: str, headers: dict[str, str] | None = None) -> bytes:
    """An answer of S3 with an error, or without a code one of a load balancer."""
    if code:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    else:
        body = b"<html><body>upstream connect error</body></html>"
    rows = [f"HTTP/1.1 {status} Broken", f"Content-Length: {len(body)}", "Content-Type: application/xml"]
    rows += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*rows, "", ""]).encode() + body


def reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other side sees a reset, not an end."""
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
