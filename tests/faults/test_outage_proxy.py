"""The proxy of the outages does to requests what a schedule says, and nothing else."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from outage_http import kind_of
from outage_proxy import OutageProxy
from outage_schedule import REQUESTS, SCENARIOS, SINGLES, WINDOWS, Case, Trouble

PART = "/bucket/key?partNumber=1&uploadId=u"
BODY = random.Random(1).randbytes(300_000)
ANSWER = random.Random(2).randbytes(200_000)


class Notebook:
    """A server that notes what it gets, and can be ended and begun again on its port."""

    def __init__(self) -> None:
        notes = self.got = list[tuple[str, bytes]]()
        self.port, self.starts = 0, 0

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                notes.append((f"{self.command} {self.path}", body))
                self.send_response(200)
                self.send_header("Content-Length", str(len(ANSWER)))
                self.end_headers()
                self.wfile.write(ANSWER)

            do_PUT = do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._handler = Handler
        self.start()

    def start(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler)
        self.port, self.starts = self._server.server_port, self.starts + 1
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def kill(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Notebook]:
    made = Notebook()
    yield made
    made.kill()


@pytest.fixture
def proxy(server: Notebook, tmp_path: Path) -> Iterator[OutageProxy]:
    made = OutageProxy(server, scale=1.0, credentials=tmp_path / "credentials")
    yield made
    made.stop()


class Client:
    """Sends requests over one connection, and says in a word what became of each."""

    def __init__(self, proxy: OutageProxy, seconds: float = 0.3) -> None:
        self._port = int(proxy.endpoint_url.rpartition(":")[2])
        self._seconds = seconds
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str = "PUT", target: str = PART, body: bytes = BODY, **headers: str) -> str:
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._seconds)
            self._connection.request(method, target, body, headers)
            answer = self._connection.getresponse()
            found = answer.read()
            return "answered" if answer.status == 200 and found == ANSWER else str(answer.status)
        except TimeoutError:
            word = "silence"
        except ConnectionRefusedError:
            word = "refused"
        except (ConnectionError, http.client.IncompleteRead, http.client.BadStatusLine):
            word = "broken"
        assert self._connection is not None
        self._connection.close()
        self._connection = None
        return word


def begin(proxy: OutageProxy, *troubles: Trouble, blow: Callable[[Trouble], None] = lambda _: None) -> Client:
    proxy.begin(troubles, seed=3, blow=blow)
    return Client(proxy)


def test_nothing_is_done_without_troubles(proxy: OutageProxy, server: Notebook) -> None:
    client = begin(proxy)
    assert [client.ask() for _ in range(3)] == ["answered"] * 3
    assert server.got == [(f"PUT {PART}", BODY)] * 3
    deadline = time.monotonic() + 30
    while not all(seen.delivered for seen in proxy.seen) and time.monotonic() < deadline:
        time.sleep(0.01)  # the client may have read the answer before the proxy notes that it has
    assert [seen.fate for seen in proxy.seen] == [""] * 3 and all(seen.delivered for seen in proxy.seen)


@pytest.mark.parametrize(
    ("kind", "becomes", "reaches"),
    [
        ("lost before", "broken", 0),
        ("lost after", "broken", 1),
        ("hang before", "silence", 0),
        ("hang after", "silence", 1),
        ("failed after", {"502", "504"}, 1),
        ("half request", "broken", 0),
        ("half reply", "broken", 1),
        ("hang in reply", "silence", 1),
    ],
)
def test_a_single_trouble(
    proxy: OutageProxy, server: Notebook, kind: str, becomes: str | set[str], reaches: int
) -> None:
    client = begin(proxy, Trouble(kind, "part", 2))
    assert client.ask("GET", "/bucket/key", b"") == "answered"  # another kind of request does not count
    answers = [client.ask() for _ in range(3)]
    assert answers[0] == answers[2] == "answered"
    assert answers[1] in ({becomes} if isinstance(becomes, str) else becomes)
    assert [body for line, body in server.got if line.startswith("PUT")].count(BODY) == 2 + reaches
    assert [seen.fate for seen in proxy.seen] == ["", "", kind, ""]
    assert not proxy.seen[2].delivered


@pytest.mark.parametrize(("method", "target", "got"), [("PUT", PART, BODY), ("GET", "/bucket/key.parquet", ANSWER)])
def test_one_bit_is_another(proxy: OutageProxy, server: Notebook, method: str, target: str, got: bytes) -> None:
    client = begin(proxy, Trouble("flipped", "any", 1))
    answer = client.ask(method, target, BODY if method == "PUT" else b"")
    assert answer == ("answered" if method == "PUT" else "200")
    if method == "PUT":
        changed = [was ^ now for was, now in zip(got, server.got[0][1], strict=True) if was != now]
        assert [value.bit_count() for value in changed] == [1]


def test_an_error_may_come_with_200(proxy: OutageProxy, server: Notebook) -> None:
    client = begin(proxy, Trouble("error in 200", "any", 1, times=20))
    assert {client.ask("POST", "/bucket/key?uploadId=u", b"") for _ in range(20)} == {"200"}
    assert 0 < len(server.got) < 20
    assert client.ask() == "answered"


def test_a_trouble_comes_several_times(proxy: OutageProxy) -> None:
    client = begin(proxy, Trouble("lost before", "any", 2, times=2))
    assert [client.ask() for _ in range(4)] == ["answered", "broken", "broken", "answered"]


def test_a_late_request_arrives_when_others_have(proxy: OutageProxy, server: Notebook) -> None:
    client = begin(proxy, Trouble("late", "any", 1, seconds=0.3))
    assert client.ask(body=b"first") == "broken"
    assert client.ask(body=b"second") == "answered"
    proxy.mend()
    assert [body for _, body in server.got] == [b"second", b"first"]


def test_a_slow_request_is_answered(proxy: OutageProxy) -> None:
    begin(proxy, Trouble("trickle", "any", 1, seconds=0.8))
    client, begun = Client(proxy, 10), time.monotonic()
    assert client.ask() == "answered"
    assert time.monotonic() - begun > 0.5


@pytest.mark.parametrize(
    ("kind", "connected", "new"),
    [
        ("refused", {"broken"}, {"refused"}),
        ("reset", {"broken"}, {"broken"}),
        ("unavailable", {"500", "502", "503"}, {"500", "502", "503"}),
        ("black hole", {"silence"}, {"silence"}),
        ("server killed", {"broken"}, {"refused"}),
    ],
)
def test_an_outage(proxy: OutageProxy, server: Notebook, kind: str, connected: set[str], new: set[str]) -> None:
    client = begin(proxy, Trouble(kind, "any", 2, seconds=0.4))
    assert client.ask() == "answered"
    assert client.ask() in connected
    assert Client(proxy, 0.1).ask() in new
    wait_for_the_end(proxy)
    assert client.ask() == "answered"
    assert len(server.got) == 2
    assert server.starts == 1 + (kind == "server killed")
    (begun, ended, what), *_ = proxy.windows
    assert what == kind and ended - begun >= 0.4


def test_what_was_frozen_goes_on(proxy: OutageProxy, server: Notebook) -> None:
    begin(proxy, Trouble("frozen", "any", 2, seconds=0.3))
    client = Client(proxy, 10)
    assert [client.ask(), client.ask()] == ["answered", "answered"]
    assert len(server.got) == 2 and proxy.seen[1].fate == "frozen"


def test_slowing_down_says_how_long(proxy: OutageProxy) -> None:
    begin(proxy, Trouble("throttled", "any", 1, seconds=5))
    statuses = []
    for _ in range(10):
        connection = http.client.HTTPConnection("127.0.0.1", int(proxy.endpoint_url.rpartition(":")[2]))
        connection.request("GET", "/bucket/key")
        answer = connection.getresponse()
        statuses.append(answer.status)
        assert answer.status == 200 or float(answer.headers["Retry-After"]) > 0
        answer.read()
        connection.close()
    assert set(statuses) > {200} and {503, 429} & set(statuses)


def test_a_token_expires_and_the_next_one_is_taken(proxy: OutageProxy, tmp_path: Path) -> None:
    def token() -> str:
        made = json.loads((tmp_path / "credentials").read_text())
        return str(made["SessionToken"])

    client, old = begin(proxy, Trouble("expired", "any", 2, seconds=0.2)), token()
    assert client.ask(**{"x-amz-security-token": old}) == "answered"
    assert client.ask(**{"x-amz-security-token": old}) in ("403", "400")
    wait_for_the_end(proxy)
    assert token() != old
    assert client.ask(**{"x-amz-security-token": token()}) == "answered"


def test_a_blow_is_told(proxy: OutageProxy) -> None:
    told = list[Trouble]()
    client = begin(proxy, Trouble("kill", "any", 2), blow=told.append)
    client.ask()
    assert not told
    client.ask()
    proxy.mend()
    deadline = time.monotonic() + 5
    while not told and time.monotonic() < deadline:
        time.sleep(0.01)
    assert told == [Trouble("kill", "any", 2)]


def test_mending_ends_an_outage(proxy: OutageProxy) -> None:
    client = begin(proxy, Trouble("refused", "any", 1, seconds=600))
    assert client.ask() == "broken"
    proxy.mend()
    assert client.ask() == "answered"


def wait_for_the_end(proxy: OutageProxy) -> None:
    deadline = time.monotonic() + 10
    while not proxy.windows and time.monotonic() < deadline:
        time.sleep(0.01)
    assert proxy.windows


def test_requests_are_told_apart() -> None:
    asked = {
        "create": ("POST", "/b/k?uploads"),
        "part": ("PUT", "/b/k?partNumber=3&uploadId=u"),
        "complete": ("POST", "/b/k?uploadId=u"),
        "abort": ("DELETE", "/b/k?uploadId=u"),
        "list uploads": ("GET", "/b?uploads&prefix=k"),
        "list parts": ("GET", "/b/k?uploadId=u&max-parts=1000"),
        "put": ("PUT", "/b/folder/k"),
        "get": ("GET", "/b/folder/k"),
        "head": ("HEAD", "/b/k"),
        "list": ("GET", "/b?list-type=2&prefix=k"),
        "delete": ("DELETE", "/b/k"),
    }
    assert {kind: kind_of(*request, {}) for kind, request in asked.items()} == {kind: kind for kind in asked}
    assert kind_of("PUT", "/b/k?partNumber=3&uploadId=u", {"x-amz-copy-source": "b/j"}) == "copy"
    assert {*asked, "copy"} == set(REQUESTS)


def test_every_kind_of_trouble_is_drawn() -> None:
    cases = [Case.drawn(seed) for seed in range(400)]
    assert cases == [Case.drawn(seed) for seed in range(400)]
    troubles = [trouble for case in cases for run in case.runs for trouble in run.dealt.troubles]
    assert {trouble.kind for trouble in troubles} == {*WINDOWS, *SINGLES}
    outages = [trouble.seconds for trouble in troubles if trouble.kind in WINDOWS and trouble.seconds]
    assert min(outages) < 1.5 and max(outages) > 85
    blows = {run.blow.kind for case in cases for run in case.runs if run.blow}
    assert blows == {"kill", "freeze"} and {run.subjects for case in cases for run in case.runs} == {1, 2}
    assert {case.scenario for case in cases} == set(SCENARIOS)


def test_ports_that_swallow_connections_are_given_back(proxy: OutageProxy) -> None:
    client = begin(proxy, Trouble("black hole", "any", 1, seconds=0.2))
    client.ask()
    wait_for_the_end(proxy)
    with socket.create_connection(("127.0.0.1", int(proxy.endpoint_url.rpartition(":")[2])), timeout=5):
        pass
