"""A web server that opens to a secret in the query of a GET alone, as stores do for presigned URLs, and can misbehave.

It runs in a thread of its own, so that whatever runs an event loop can be tested with it. Every place of its URLs holds a
secret; `secrets` has them all.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from resilient_pq.io import RetryPolicy

#: Each once in a URL, where only it can be meant.
USER, PASSWORD, SIGNATURE, FRAGMENT = "plantedUser", "plantedPa55", "plantedSignature", "plantedFragment"
#: In what the server says by itself.
ELSEWHERE = "plantedRedirect"


@dataclass
class GuardedSite:
    """The server."""

    port: int  # Where it listens, on 127.0.0.1
    files: dict[str, bytes] = field(default_factory=dict)  # Its files, by name
    # Method, path and Range header of every request
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    secrets: ClassVar[tuple[str, ...]] = (USER, PASSWORD, SIGNATURE, FRAGMENT, ELSEWHERE)

    def url(self, name: str, *, scheme: str = "http", port: int | None = None, query: str = "") -> str:
        """The URL of a file, with a secret in every place."""
        query = query or f"X-Amz-Expires=60&X-Amz-Signature={SIGNATURE}"
        return f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:{port or self.port}/bucket/{name}?{query}#{FRAGMENT}"

    def signed(self, name: str) -> str:
        """The URL of a file, with a signature alone."""
        return f"http://127.0.0.1:{self.port}/bucket/{name}?X-Amz-Signature={SIGNATURE}"

    def put(self, name: str, data: bytes) -> str:
        """Add a file; gives its URL."""
        self.files[name] = data
        return self.url(name)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: GuardedSite

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        """Signed for GET."""
        self.site.asked.append(("HEAD", self.path, None))
        self._answer(403, b"")

    def do_GET(self) -> None:
        """A file or a part of it, or what its name asks for."""
        asked = self.headers.get("Range")
        self.site.asked.append(("GET", self.path, asked))
        name, _, query = self.path.rpartition("/")[2].partition("?")
        if SIGNATURE not in query:
            self._answer(403, b"")
        elif name == "loop":
            self._answer(302, b"", Location=f"{self.path}&token={ELSEWHERE}")
        elif name == "elsewhere":
            self._answer(302, b"", Location=f"ftp://{ELSEWHERE}:{ELSEWHERE}@host/x?sig={ELSEWHERE}")
        elif name == "cut":
            self._answer(200, b"PAR1", length=4000)
        elif name == "garbled":
            self.wfile.write(f"HTTP/1.1 what {self.path}\r\n\r\n".encode())
            self.close_connection = True
        elif name.isdecimal():
            self._answer(int(name), b"")
        elif name not in self.site.files:
            self._answer(404, b"")
        else:
            self._file(self.site.files[name], asked)

    def _file(self, data: bytes, asked: str | None) -> None:
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", asked or "")
        if match is None:
            self._answer(200, data)
            return
        size = len(data)
        begin = int(match[1]) if match[1] else max(0, size - int(match[2]))
        end = min(int(match[2]) + 1, size) if match[1] and match[2] else size
        if begin >= end:
            self._answer(416, b"", **{"Content-Range": f"bytes */{size}"})
        else:
            self._answer(206, data[begin:end], **{"Content-Range": f"bytes {begin}-{end - 1}/{size}"})

    def _answer(self, status: int, body: bytes, *, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"ETag": '"v1"', **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)
        if length is not None:
            self.close_connection = True


@pytest.fixture
def guarded_site() -> Iterator[GuardedSite]:
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {})) as server:
        server.daemon_threads = True
        site = GuardedSite(server.server_address[1])
        server.RequestHandlerClass.site = site  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def two_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can be tried again is tried once more, at once: what is said of that is looked at, too."""

    def next_delay(_: RetryPolicy, error: Any, *, failures: int, **__: Any) -> float | None:
        return 0.0 if getattr(error, "retryable", False) and failures < 2 else None

    monkeypatch.setattr(RetryPolicy, "next_delay", next_delay)
