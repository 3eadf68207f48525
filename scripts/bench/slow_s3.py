"""A small S3 with a network: every answer waits, and every connection has its own bandwidth.

Run it as ``python scripts/bench/slow_s3.py [--port 9000] [--latency-ms 30] [--bandwidth 50e6] [--keep] [--md5]
[--serve FOLDER]``. It speaks as much of S3 as writers and readers need: PutObject, multipart uploads, HEAD, GET with
ranges and If-Match, conditional PUT and DELETE, lists. Any bucket exists and any credentials are good. Without
``--keep`` it drops the bytes of long bodies and remembers their sizes, so that it takes little of the machine it shares
with what is measured; then they cannot be read back. The files of a folder are served as objects of the bucket
``bench``, from mapped memory.

``GET /-/stats`` answers with JSON: what was asked for since the last ``POST /-/reset``.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import mmap
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

KiB = 1024
_SCRATCH = 256 * KiB
# What the kernel takes in for a connection that is not read is bandwidth nobody asked for.
_SOCKET_BUFFER = 256 * KiB
# Seconds of bandwidth that are sent at once: timers of event loops are no finer than a millisecond.
_PIECE_SECONDS = 0.002
# Bodies of so many bytes are always kept.
_KEPT = 4 * KiB
_BUCKET = "bench"
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


@contextmanager
def running(*options: str) -> Iterator[str]:
    """The endpoint of a server in a process of its own, with these options of the command line."""
    command = [sys.executable, __file__, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@dataclass(slots=True)
class Blob:
    """A part or an object; `data` is None where only sizes are kept."""

    size: int
    etag: str
    data: memoryview | None
    modified: float = 1577836800.0


@dataclass(slots=True)
class Upload:
    path: str
    parts: dict[int, Blob] = field(default_factory=dict)


@dataclass(slots=True)
class Stats:
    requests: Counter[str] = field(default_factory=Counter)
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_replaced: int = 0
    in_flight: int = 0
    most_in_flight: int = 0

    def to_json(self, objects: dict[str, Blob]) -> bytes:
        found = {
            "requests": dict(self.requests),
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "bytes_replaced": self.bytes_replaced,
            "most_in_flight": self.most_in_flight,
            "objects": {path: blob.size for path, blob in objects.items()},
        }
        return json.dumps(found).encode()


class Chunks:
    """HTTP's chunks (RFC 9112, section 7.1), taken apart while they come."""

    def __init__(self) -> None:
        self.ended = False
        self._left = 0  # of the chunk, the line break after it included
        self._line = bytearray()
        self._trailer = False

    def take(self, data: memoryview) -> list[memoryview]:
        """The content of `data`."""
        content: list[memoryview] = []
        while len(data):
            if self._left:
                taken, data = data[: self._left], data[self._left :]
                self._left -= len(taken)
                # The last two bytes of a chunk are its line break.
                content.append(taken[: max(0, len(taken) - max(0, 2 - self._left))])
                continue
            self._line.append(data[0])
            data = data[1:]
            if self._line.endswith(b"\r\n"):
                self._end_line(bytes(self._line[:-2]))
                self._line.clear()
        return content

    def _end_line(self, line: bytes) -> None:
        if self._trailer:
            self.ended = self.ended or not line
        elif size := int(line.partition(b";")[0], 16):
            self._left = size + 2
        else:
            self._trailer = True


@dataclass(slots=True)
class Request:
    """A request whose body is being taken.

    Attributes:
        missing: Bytes of the body that are still to come; 1 while a chunked one, which does not say, goes on.
        size: Bytes of the content, without the framing of aws-chunked.
        chunked: The state of a body that comes in HTTP's chunks; None where its length is known.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    missing: int
    size: int
    chunked: Chunks | None
    body: list[bytes] | None
    md5: hashlib._Hash | None = None


@dataclass(slots=True)
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""


class Buckets:
    """What the server holds, and what each request does to it."""

    def __init__(self, *, keep: bool, served: Path | None = None) -> None:
        self.keep = keep
        self._served = {} if served is None else _mapped(served)
        self.objects: dict[str, Blob] = dict(self._served)
        self.uploads: dict[str, Upload] = {}
        self.stats = Stats()
        self._made = 0

    def reset(self) -> None:
        """Count anew, and keep nothing but what is served from files."""
        self.stats = Stats(in_flight=self.stats.in_flight)
        self.objects = dict(self._served)

    def answer(self, request: Request) -> Answer:
        """Do what was asked for."""
        operation, act = self._operation(request)
        self.stats.requests[operation] += 1
        return act(request)

    def _operation(self, request: Request) -> tuple[str, Callable[[Request], Answer]]:
        query, is_object = request.query, "/" in request.path.strip("/")
        known: dict[tuple[str, bool], tuple[str, Callable[[Request], Answer]]] = {
            ("PUT", True): ("UploadPart", self._put_part) if "uploadId" in query else ("PutObject", self._put),
            ("POST", True): ("CreateMultipartUpload", self._begin)
            if "uploads" in query
            else ("CompleteMultipartUpload", self._complete),
            ("DELETE", True): ("AbortMultipartUpload", self._abort)
            if "uploadId" in query
            else ("DeleteObject", self._delete),
            ("GET", True): ("ListParts", self._list_parts) if "uploadId" in query else ("GetObject", self._get),
            ("HEAD", True): ("HeadObject", self._head),
            ("HEAD", False): ("HeadBucket", lambda _: Answer()),
            ("GET", False): ("ListMultipartUploads", self._list_uploads)
            if "uploads" in query
            else ("ListObjects", self._list_objects),
        }
        return known.get((request.method, is_object), ("unknown", lambda _: _error(501, "NotImplemented")))

    def _blob(self, request: Request) -> Blob:
        if request.md5 is not None:
            etag = request.md5.hexdigest()
        else:
            self._made += 1
            etag = f"{self._made:032x}"
        self.stats.bytes_in += request.size
        return Blob(request.size, f'"{etag}"', None if request.body is None else memoryview(b"".join(request.body)))

    def _refused(self, request: Request) -> Answer | None:
        """Why a condition of the request does not hold."""
        blob = self.objects.get(request.path)
        expected = request.headers.get("if-match")
        if expected is not None and (blob is None or blob.etag != expected):
            return _error(412, "PreconditionFailed")
        if request.headers.get("if-none-match") == "*" and blob is not None:
            return _error(412, "PreconditionFailed")
        return None

    def _put(self, request: Request) -> Answer:
        if (refused := self._refused(request)) is not None:
            return refused
        blob = self.objects[request.path] = self._blob(request)
        return Answer(headers={"ETag": blob.etag})

    def _begin(self, request: Request) -> Answer:
        self._made += 1
        upload_id = f"upload{self._made}"
        self.uploads[upload_id] = Upload(request.path)
        bucket, _, key = request.path.strip("/").partition("/")
        return _xml(
            "InitiateMultipartUploadResult",
            f"<Bucket>{bucket}</Bucket><Key>{key}</Key><UploadId>{upload_id}</UploadId>",
        )

    def _put_part(self, request: Request) -> Answer:
        upload = self.uploads.get(request.query["uploadId"])
        if upload is None:
            return _error(404, "NoSuchUpload")
        number, blob = int(request.query["partNumber"]), self._blob(request)
        if (replaced := upload.parts.get(number)) is not None:
            self.stats.bytes_replaced += replaced.size
        upload.parts[number] = blob
        return Answer(headers={"ETag": blob.etag})

    def _complete(self, request: Request) -> Answer:
        upload = self.uploads.get(request.query.get("uploadId", ""))
        if upload is None:
            return _error(404, "NoSuchUpload")
        named = [int(number) for number in re.findall(rb"<PartNumber>(\d+)<", b"".join(request.body or ()))]
        if not named or any(number not in upload.parts for number in named):
            return _error(400, "InvalidPart")
        blobs = [upload.parts[number] for number in named]
        data = memoryview(b"".join(blob.data or b"" for blob in blobs)) if self.keep else None
        self._made += 1
        made = Blob(sum(blob.size for blob in blobs), f'"{self._made:032x}-{len(blobs)}"', data)
        self.objects[request.path] = made
        del self.uploads[request.query["uploadId"]]
        return _xml("CompleteMultipartUploadResult", f"<ETag>{made.etag}</ETag>")

    def _abort(self, request: Request) -> Answer:
        found = self.uploads.pop(request.query["uploadId"], None)
        return _error(404, "NoSuchUpload") if found is None else Answer(204)

    def _delete(self, request: Request) -> Answer:
        if (refused := self._refused(request)) is not None:
            return refused
        self.objects.pop(request.path, None)
        return Answer(204)

    def _head(self, request: Request) -> Answer:
        blob = self.objects.get(request.path)
        if blob is None:
            return Answer(404)
        return Answer(headers={**_headers_of(blob), "Content-Length": str(blob.size)})

    def _get(self, request: Request) -> Answer:
        blob = self.objects.get(request.path)
        if blob is None:
            return _error(404, "NoSuchKey")
        if blob.data is None:
            return _error(501, "NotImplemented")
        if request.headers.get("if-match", blob.etag) != blob.etag:
            return _error(412, "PreconditionFailed")
        headers = _headers_of(blob)
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if wanted is None:
            return Answer(headers=headers, body=blob.data)
        first, last = wanted[1], wanted[2]
        start = int(first) if first else max(0, blob.size - int(last))
        end = min(int(last) + 1, blob.size) if first and last else blob.size
        if start >= blob.size:
            return _error(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{blob.size}"
        return Answer(206, headers, blob.data[start:end])

    def _list_parts(self, request: Request) -> Answer:
        upload = self.uploads.get(request.query["uploadId"])
        if upload is None:
            return _error(404, "NoSuchUpload")
        after, most = int(request.query.get("part-number-marker") or 0), 1000
        numbers = sorted(number for number in upload.parts if number > after)
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{upload.parts[number].etag}</ETag>"
            f"<Size>{upload.parts[number].size}</Size></Part>"
            for number in numbers[:most]
        )
        cut = str(len(numbers) > most).lower()
        return _xml("ListPartsResult", f"<IsTruncated>{cut}</IsTruncated>{parts}")

    def _list_uploads(self, request: Request) -> Answer:
        bucket, prefix = request.path.strip("/"), request.query.get("prefix", "")
        found = "".join(
            f"<Upload><Key>{upload.path[len(bucket) + 2 :]}</Key><UploadId>{upload_id}</UploadId></Upload>"
            for upload_id, upload in self.uploads.items()
            if upload.path.startswith(f"/{bucket}/{prefix}")
        )
        return _xml("ListMultipartUploadsResult", f"<IsTruncated>false</IsTruncated>{found}")

    def _list_objects(self, request: Request) -> Answer:
        bucket, prefix = request.path.strip("/"), request.query.get("prefix", "")
        found = "".join(
            f"<Contents><Key>{path[len(bucket) + 2 :]}</Key><ETag>{blob.etag}</ETag><Size>{blob.size}</Size>"
            "<LastModified>2020-01-01T00:00:00Z</LastModified></Contents>"
            for path, blob in self.objects.items()
            if path.startswith(f"/{bucket}/{prefix}")
        )
        return _xml("ListBucketResult", f"<IsTruncated>false</IsTruncated>{found}")


def _mapped(folder: Path) -> dict[str, Blob]:
    """The files of a folder as objects."""
    found = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        status = path.stat()
        etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
        found[f"/{_BUCKET}/{path.name}"] = Blob(status.st_size, etag, data, status.st_mtime)
    return found


def _headers_of(blob: Blob) -> dict[str, str]:
    return {
        "ETag": blob.etag,
        "Last-Modified": formatdate(blob.modified, usegmt=True),
        "Accept-Ranges": "bytes",
        "Content-Type": "application/octet-stream",
    }


def _xml(name: str, inside: str) -> Answer:
    text = f'{_XML}<{name} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inside}</{name}>'
    return Answer(headers={"Content-Type": "application/xml"}, body=text.encode())


def _error(status: int, code: str) -> Answer:
    text = f"{_XML}<Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return Answer(status, {"Content-Type": "application/xml"}, text.encode())


class Connection(asyncio.BufferedProtocol):
    """One connection: requests one after the other, their bodies no faster than the bandwidth."""

    _scratch = memoryview(bytearray(_SCRATCH))  # one for all: what is received is used up at once

    def __init__(self, buckets: Buckets, *, latency: float, bandwidth: float, md5: bool) -> None:
        self._buckets = buckets
        self._latency = latency
        self._bandwidth = bandwidth
        self._md5 = md5
        self._head = bytearray()
        self._request: Request | None = None
        self._free_at = 0.0  # when the bytes taken so far are through the wire
        self._unsent = memoryview(b"")  # of the answer's body
        self._writable = True
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._free_at = max(self._free_at, self._loop.time())  # no haste for a client that did not take it
        if self._request is not None:
            self._send_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unsent = self._unsent[:0]
        if self._request is not None:
            self._buckets.stats.in_flight -= 1
            self._request = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        data = self._scratch[:nbytes]
        if self._request is None or not self._request.missing:
            self._head += data
            self._begin()
        else:
            self._take(data)

    def _begin(self) -> None:
        """Begin the request whose head is complete."""
        end = self._head.find(b"\r\n\r\n")
        if self._request is not None or end < 0:
            return
        rest = bytes(self._head[end + 4 :])
        request = _parsed(bytes(self._head[:end]))
        self._head.clear()
        self._request = request
        if request.path.startswith("/-/"):
            self._answer_about_self(request)
            return
        stats = self._buckets.stats
        stats.in_flight += 1
        stats.most_in_flight = max(stats.most_in_flight, stats.in_flight)
        small = request.size <= _KEPT  # such as an epoch object, which is read back
        if small or request.method == "POST" or self._buckets.keep:
            request.body = []
        if self._md5 and request.method == "PUT":
            request.md5 = hashlib.md5(usedforsecurity=False)
        if "expect" in request.headers:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._take(memoryview(rest))

    def _take(self, data: memoryview) -> None:
        request = self._request
        assert request is not None
        content = [data]
        if request.chunked is None:
            request.missing -= len(data)
        else:
            content = request.chunked.take(data)
            request.missing = 0 if request.chunked.ended else 1
        for piece in content:
            if request.body is not None:
                request.body.append(bytes(piece))
            if request.md5 is not None:
                request.md5.update(piece)
        now = self._loop.time()
        wait = 0.0
        if self._bandwidth:
            self._free_at = max(now, self._free_at) + len(data) / self._bandwidth
            wait = self._free_at - now
        if request.missing <= 0:
            self._transport.pause_reading()
            self._loop.call_later(wait + self._latency, self._answer)
        elif wait > 0.002:
            self._transport.pause_reading()
            self._loop.call_later(wait, self._go_on)

    def _go_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _answer(self) -> None:
        request = self._request
        if request is None:  # the client went away
            return
        if request.body and "aws-chunked" in request.headers.get("content-encoding", ""):
            request.body = list(_unframed(b"".join(request.body)))
        answer = self._buckets.answer(request)
        self._send_head(answer)
        if request.method != "HEAD":
            self._unsent = memoryview(answer.body)
        self._free_at = self._loop.time()
        self._send_later()

    def _send_head(self, answer: Answer) -> None:
        size = str(len(answer.body))
        headers = {"Content-Length": size, "x-amz-request-id": "0", "Server": "slow_s3", **answer.headers}
        rows = [f"HTTP/1.1 {answer.status} Answer", *(f"{key}: {value}" for key, value in headers.items())]
        self._transport.write("\r\n".join([*rows, "", ""]).encode())

    def _send_later(self) -> None:
        """Send the next piece when it would have come through the wire."""
        if self._bandwidth and len(self._unsent):
            self._free_at += min(_PIECE_SECONDS, len(self._unsent) / self._bandwidth)
            self._loop.call_at(self._free_at, self._send_on)
        else:
            self._send_on()

    def _send_on(self) -> None:
        """Send what is due of the body; what comes after it is the next request."""
        if self._request is None or not self._writable:
            return  # the client went away, or has not taken what it was sent
        if len(self._unsent):
            due = int(self._bandwidth * _PIECE_SECONDS) or len(self._unsent)
            piece, self._unsent = self._unsent[:due], self._unsent[due:]
            self._buckets.stats.bytes_out += len(piece)
            self._transport.write(piece)
        if len(self._unsent):
            if self._writable:
                self._send_later()
            return
        self._buckets.stats.in_flight -= 1
        self._request = None
        self._go_on()

    def _answer_about_self(self, request: Request) -> None:
        if request.path == "/-/reset":
            self._buckets.reset()
        self._request = None
        body = self._buckets.stats.to_json(self._buckets.objects)
        self._send_head(Answer(body=body))
        self._transport.write(body)


def _parsed(head: bytes) -> Request:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    url = urlsplit(target)
    headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
    missing = int(headers.get("content-length", 0))
    size = int(headers.get("x-amz-decoded-content-length", missing))
    chunked = Chunks() if headers.get("transfer-encoding") == "chunked" else None
    missing = missing if chunked is None else 1
    return Request(method, unquote(url.path), query, headers, missing, size, chunked, None)


def _unframed(data: bytes) -> list[bytes]:
    """The chunks of an aws-chunked body, without their lengths, signatures and trailers."""
    chunks: list[bytes] = []
    at = 0
    while True:
        end = data.index(b"\r\n", at)
        size = int(data[at:end].partition(b";")[0], 16)
        if not size:
            return chunks
        chunks.append(data[end + 2 : end + 2 + size])
        at = end + 4 + size


async def serve(
    port: int, *, latency: float, bandwidth: float, keep: bool, md5: bool, served: Path | None = None
) -> None:
    """Serve on 127.0.0.1 until cancelled; the first line printed is the port."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if bandwidth:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
    listening.bind(("127.0.0.1", port))
    buckets = Buckets(keep=keep, served=served)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(buckets, latency=latency, bandwidth=bandwidth, md5=md5), sock=listening, backlog=256
    )
    print(listening.getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    parser.add_argument("--latency-ms", type=float, default=30.0, help="before every answer")
    parser.add_argument("--bandwidth", type=float, default=50e6, help="bytes/s of each connection; 0 for no limit")
    parser.add_argument("--keep", action="store_true", help="keep the bytes, so that they can be read")
    parser.add_argument("--serve", type=Path, help="a folder whose files are objects of the bucket `bench`")
    parser.add_argument("--md5", action="store_true", help="ETags as S3 makes them; costs much")
    arguments = parser.parse_args()
    asyncio.run(
        serve(
            arguments.port,
            latency=arguments.latency_ms / 1000,
            bandwidth=arguments.bandwidth,
            keep=arguments.keep,
            md5=arguments.md5,
            served=arguments.serve,
        )
    )


if __name__ == "__main__":
    main()
