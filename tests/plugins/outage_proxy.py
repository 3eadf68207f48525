"""A proxy before a real S3 server that does to it, or to its clients, what `outage_schedule` has drawn.

It runs in a thread with an event loop of its own. Connections to clients are kept open between requests, as S3 does:
that a pooled connection has died is then found by the next request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from outage_http import PIECE, Message, Seen, joined, kind_of, made_up, reset, take_body, until_gone
from outage_schedule import SINGLES, WINDOWS, Plan, Trouble
from outage_server import free_ports

_UPLOAD_ID = re.compile(rb"<UploadId>([^<]+)</UploadId>")


class Server(Protocol):
    """What is behind the proxy."""

    port: int

    def kill(self) -> None:
        """End it at once."""

    def start(self) -> None:
        """Begin it again; comes back when it answers."""


class OutageProxy:
    """Passes requests on to a server, as long as nothing goes wrong."""

    def __init__(self, server: Server, *, scale: float, credentials: Path) -> None:
        """Prepare it."""
        self.seen: list[Seen] = []  # Every request so far
        self.windows: list[tuple[float, float, str]] = []
        self._server, self._scale, self._credentials = server, scale, credentials
        self._plan = Plan((), lambda _: None)
        self._rng = random.Random(0)
        self._state: str | None = None
        self._token = 0
        self._windows: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._over, self._mended = asyncio.Event(), asyncio.Event()
        self._listener: asyncio.Server | None = None
        self._hole: list[socket.socket] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._port, self._num_asked = free_ports(1)[0], 0
        self._run(self._listen())
        self.endpoint_url = f"http://127.0.0.1:{self._port}"  # Where it listens
        self._write_credentials()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # What its owner calls.

    def begin(self, troubles: Sequence[Trouble], *, seed: int, blow: Callable[[Trouble], None]) -> None:
        """Let these troubles come, in place of those before; counting begins anew."""

        async def begin() -> None:
            self._rng = random.Random(seed)
            self._plan = Plan(troubles, blow)
            self._mended.clear()

        self._run(begin())

    def mend(self) -> None:
        """Let nothing go wrong any more: outages end, what was late arrives, and the server has done what it was asked."""

        async def mend() -> None:
            self._plan = Plan((), lambda _: None)
            self._mended.set()
            await asyncio.gather(*self._windows, *self._late)
            while self._num_asked:  # noqa: ASYNC110 (it ends soon)
                await asyncio.sleep(0.01)

        self._run(mend())

    def stop(self) -> None:
        """Close everything."""

        async def end() -> None:
            tasks = [*self._windows, *self._late, *self._connections]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close_listener()

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # The listening socket.

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    async def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for each in self._hole:
            each.close()
        self._hole.clear()

    async def _swallow_connections(self) -> None:
        """Listen with a full queue: the system drops every further request for a connection."""
        await self._close_listener()
        hole = socket.socket()
        hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hole.bind(("127.0.0.1", self._port))
        hole.listen(0)
        self._hole.append(hole)
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(("127.0.0.1", self._port))
            self._hole.append(filler)

    # Outages.

    def _open_window(self, trouble: Trouble) -> None:
        if not self._windows:  # one at a time: of two the first goes on
            self._state, self._over = trouble.kind, asyncio.Event()
            self._token += trouble.kind == "expired"
            task = self._loop.create_task(self._window(trouble))
            self._windows.add(task)
            task.add_done_callback(self._windows.discard)

    async def _window(self, trouble: Trouble) -> None:
        begun, kind = time.monotonic(), trouble.kind
        try:
            if kind in ("refused", "server killed"):
                await self._close_listener()
                self._break_connections()
            if kind == "server killed":
                self._server.kill()
            if kind == "black hole" or (kind == "frozen" and self._rng.random() < 0.5):
                await self._swallow_connections()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._mended.wait(), trouble.seconds * self._scale)
        finally:
            if kind == "server killed":
                if self._rng.random() < 0.5:  # what it answers while it begins, clients see
                    await self._close_listener()
                    await self._listen()
                    self._state = None
                await asyncio.to_thread(self._server.start)
            if kind == "expired":
                self._write_credentials()
            if self._listener is None:
                await self._close_listener()
                await self._listen()
            self._state = None
            self._over.set()
            self.windows.append((begun, time.monotonic(), kind))

    def _flipped(self, data: bytes) -> bytes:
        """The same but for one bit."""
        spoiled = bytearray(data)
        if spoiled:
            spoiled[self._rng.randrange(len(spoiled))] ^= 1 << self._rng.randrange(8)
        return bytes(spoiled)

    def _break_connections(self) -> None:
        for writer in tuple(self._writers):
            reset(writer)

    @property
    def _accepted(self) -> str:
        return f"token-{self._token}"

    def _write_credentials(self) -> None:
        made = {
            "Version": 1,
            "AccessKeyId": "key",
            "SecretAccessKey": "secret",
            "SessionToken": self._accepted,
        }
        fresh = self._credentials.with_suffix(".new")
        fresh.write_text(json.dumps(made))
        fresh.replace(self._credentials)

    # Requests.

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._writers.add(writer)
        try:
            while await self._serve(reader, writer):
                pass
            reset(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, TimeoutError):
            pass  # one of the two went away, or the proxy is stopped
        finally:
            self._connections.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False breaks the connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").rstrip().split("\r\n")
        method, target, _ = line.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in lines)}
        message = Message(method, target, headers)
        seen = Seen(time.monotonic(), kind_of(method, target, headers), f"{method} {target}")
        self.seen.append(seen)
        single = None
        for trouble in self._plan.due(seen.kind):
            if trouble.kind in WINDOWS:
                self._open_window(trouble)
            elif trouble.kind in SINGLES:
                single = trouble
            else:
                self._loop.call_later(self._rng.choice((0, 0, 0.01, 0.1)), self._plan.blow, trouble)
        state = self._state
        if state is None and message.headers.get("x-amz-security-token", self._accepted) != self._accepted:
            state = "expired"  # for good, though there is a new one
        if state is not None:
            return await self._serve_in_window(state, message, seen, reader, writer)
        if single is not None:
            return await self._serve_in_trouble(single, message, seen, reader, writer)
        await take_body(message, reader, writer)
        return await self._pass_on(message, seen, writer)

    async def _serve_in_window(
        self,
        state: str,
        message: Message,
        seen: Seen,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        seen.fate = state
        if state in ("refused", "server killed"):
            return False
        if state == "reset":
            if self._rng.random() < 0.5:
                await reader.read(self._rng.randint(1, 1 + message.size // 2))
            return False
        if state == "black hole":
            await until_gone(reader)
            return False
        if state == "frozen":
            await self._over.wait()
        await take_body(message, reader, writer)
        refusal = self._refusal(state, message)
        if refusal is None:
            return await self._pass_on(message, seen, writer)
        seen.status = int(refusal.split(b" ", 2)[1])
        writer.write(refusal if message.method != "HEAD" else refusal.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        await writer.drain()
        seen.delivered = True
        return True

    def _refusal(self, state: str, message: Message) -> bytes | None:
        """What is answered in place of the server; None where the server is asked."""
        if state == "unavailable":
            return made_up(*self._rng.choice((
                (503, "ServiceUnavailable"), (503, "SlowDown"), (500, "InternalError"), (502, ""), (503, ""),
            )))  # fmt: skip
        if state == "throttled" and self._rng.random() < 0.8:
            wait = max(self._rng.uniform(1, 8) * self._scale, 0.05)
            return made_up(self._rng.choice((503, 429)), "SlowDown", {"Retry-After": f"{wait:.2f}"})
        if state == "expired" and message.headers.get("x-amz-security-token") != self._accepted:
            return made_up(self._rng.choice((403, 400)), "ExpiredToken")
        return None

    async def _serve_in_trouble(
        self,
        trouble: Trouble,
        message: Message,
        seen: Seen,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        kind = seen.fate = trouble.kind
        if kind == "half request":
            await take_body(message, reader, writer, self._rng.randint(0, max(message.size - 1, 0)))
            await self._send_half(message)
            return False
        seconds = trouble.seconds * self._scale
        await take_body(message, reader, writer, seconds=seconds / 2 if kind == "trickle" else 0.0)
        if kind == "hang before":
            await until_gone(reader)
        if kind == "late":
            task = self._loop.create_task(self._pass_on_late(message, seen, seconds))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        if kind in ("lost before", "hang before", "late"):
            return False
        if kind == "flipped" and seen.kind in ("part", "put"):
            message.body = self._flipped(message.body)
        if kind == "error in 200" and seen.kind in ("complete", "copy") and self._rng.random() < 0.5:
            answer: bytes | None = b""  # not done
        else:
            answer = await self._asked(message, seen)
        if answer is None or kind == "lost after":
            return False
        if kind == "hang after":
            await until_gone(reader)
            return False
        if kind in ("half reply", "hang in reply"):
            body = answer.index(b"\r\n\r\n") + 4
            writer.write(answer[: self._rng.randint(body, max(body, len(answer) - 1))])
            await writer.drain()
            if kind == "hang in reply":
                await until_gone(reader)
            return False
        await self._send(self._changed(kind, message, seen, answer), writer, seconds / 2 if kind == "trickle" else 0.0)
        seen.delivered = kind != "failed after"
        return True

    def _changed(self, kind: str, message: Message, seen: Seen, answer: bytes) -> bytes:
        """What the client is told in place of the server's answer."""
        head, _, body = answer.partition(b"\r\n\r\n")
        if kind == "failed after":
            told = made_up(self._rng.choice((502, 504)), "")
            return told if message.method != "HEAD" else told.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        if kind == "error in 200" and seen.kind in ("complete", "copy"):
            return made_up(200, "InternalError")
        if kind == "flipped" and seen.kind == "get" and message.target.partition("?")[0].endswith(".parquet"):
            return head + b"\r\n\r\n" + self._flipped(body)
        return answer

    async def _send(self, answer: bytes, writer: asyncio.StreamWriter, seconds: float = 0.0) -> None:
        """Give the client an answer, in about so many seconds."""
        size = PIECE if seconds else max(len(answer), 1)
        for at in range(0, len(answer), size):
            writer.write(answer[at : at + size])
            await writer.drain()
            if at + size < len(answer):
                await asyncio.sleep(seconds * size / len(answer))

    async def _pass_on(self, message: Message, seen: Seen, writer: asyncio.StreamWriter) -> bool:
        answer = await self._asked(message, seen)
        if answer is None:
            return False
        writer.write(answer)
        await writer.drain()
        seen.delivered = True
        return True

    async def _pass_on_late(self, message: Message, seen: Seen, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._asked(message, seen)

    async def _send_half(self, message: Message) -> None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
            writer.write(message.head() + message.body)
            await writer.drain()
            writer.close()

    async def _asked(self, message: Message, seen: Seen) -> bytes | None:
        """The server's answer, with its length said; None where it has none."""
        self._num_asked += 1
        seen.asked_at = time.monotonic()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
            try:
                writer.write(message.head() + message.body)
                await writer.drain()
                answer = await reader.read(-1)
            finally:
                writer.close()
        except OSError:
            return None
        finally:
            self._num_asked -= 1
        head, found, body = answer.partition(b"\r\n\r\n")
        if not found:
            return None
        seen.status = int(head.split(b" ", 2)[1])
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (row.partition(":") for row in lines)}
        if headers.pop("transfer-encoding", "") == "chunked":
            body = joined(body)
        elif message.method != "HEAD" and len(body) < int(headers.get("content-length", 0)):
            return None  # the server was killed in the middle
        headers.pop("connection", None)
        if message.method != "HEAD" and seen.status not in (204, 304):
            headers["content-length"] = str(len(body))
        if seen.kind == "create" and (created := _UPLOAD_ID.search(body)):
            seen.upload_id = created[1].decode()
        rows = [line, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(rows).encode("latin-1") + body
