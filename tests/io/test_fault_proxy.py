"""The proxy that breaks requests for other tests does to them what it says."""

from __future__ import annotations

import http.client
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from resilient_pq.errors import AlreadyExistsError
from resilient_pq.io import SinkOptions
from resilient_pq.io.s3.s3_store import S3Store
from resilient_pq.io.transfer.retry import NO_RETRIES, RetryPolicy
from resilient_pq.units import MiB

QUICK = RetryPolicy(attempts=6, base_delay=0.001, max_delay=0.01)


class Server(http.server.ThreadingHTTPServer):
    """Answers every request with its body, and remembers it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, bytes, dict[str, str]]] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((self.path, body, headers))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = do_PUT  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    thread = threading.Thread(target=found.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


@pytest.fixture
def proxy(server: Server, http_proxy: Callable[[str], Any]) -> Any:
    return http_proxy(f"http://127.0.0.1:{server.server_port}")


def send(
    proxy: Any, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """The status and body of an answer; `ConnectionError` for a reset."""
    connection = http.client.HTTPConnection(proxy.endpoint_url.removeprefix("http://"), timeout=5)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def paths(server: Server) -> list[str]:
    return [path for path, _, _ in server.seen]


def test_what_is_not_broken_passes(proxy: Any, server: Server) -> None:
    assert send(proxy, "PUT", "/a?x=1", b"body", {"X-Name": "value"}) == (200, b"body")
    (seen,) = server.seen
    assert seen[:2] == ("/a?x=1", b"body") and seen[2]["x-name"] == "value"
    assert [(request.method, request.target, request.size) for request in proxy.requests] == [("PUT", "/a?x=1", 4)]
    assert proxy.num_in_flight == 0


def test_bytes_of_bodies_are_counted_both_ways(proxy: Any) -> None:
    send(proxy, "PUT", "/a", b"body")
    proxy.on("PUT", status=503, body=b"slow down")
    send(proxy, "PUT", "/a", b"more")
    proxy.on("PUT", lose_reply=True)
    with pytest.raises(ConnectionError):
        send(proxy, "PUT", "/a", b"lost")
    proxy.wait_until_idle()
    assert (proxy.num_bytes_sent, proxy.num_bytes_received) == (12, 13)
    assert proxy.num_bytes_moved == 25


def test_faults_hit_the_requests_they_name(proxy: Any, server: Server) -> None:
    proxy.on("PUT", match="/b", skip=1, times=2, status=503, headers={"Retry-After": "7"}, body=b"slow")
    assert send(proxy, "PUT", "/a")[0] == send(proxy, "GET", "/b")[0] == 200
    assert [send(proxy, "PUT", "/b")[0] for _ in range(4)] == [200, 503, 503, 200]
    assert paths(server) == ["/a", "/b", "/b", "/b"]
    assert proxy.count("PUT", "/b") == 4


@pytest.mark.parametrize(
    ("fault", "passed"), [({"reset": True}, 0), ({"lose_reply": True}, 1)], ids=["before", "after"]
)
def test_a_reset_before_and_after_passing_on(fault: dict[str, Any], passed: int, proxy: Any, server: Server) -> None:
    proxy.on("PUT", **fault)
    with pytest.raises(ConnectionError):
        send(proxy, "PUT", "/a", b"body")
    assert len(server.seen) == passed


@pytest.mark.parametrize(("fault", "passed"), [({"hang": True}, 0), ({"hang_reply": True}, 1)], ids=["before", "after"])
def test_no_answer_before_and_after_passing_on(fault: dict[str, Any], passed: int, proxy: Any, server: Server) -> None:
    proxy.on("PUT", **fault)
    connection = http.client.HTTPConnection(proxy.endpoint_url.removeprefix("http://"), timeout=0.2)
    connection.request("PUT", "/a", b"body")
    with pytest.raises(TimeoutError):
        connection.getresponse()
    assert len(server.seen) == passed
    assert proxy.num_in_flight == 1
    connection.close()
    assert send(proxy, "PUT", "/b")[0] == 200


def test_a_late_request_arrives_when_it_is_released(proxy: Any, server: Server) -> None:
    proxy.on("PUT", match="/a", times=2, late=True)
    for body in (b"first", b"second"):
        with pytest.raises(ConnectionError):
            send(proxy, "PUT", "/a", body)
    assert send(proxy, "PUT", "/a", b"third") == (200, b"third")
    assert proxy.release() == [200, 200]
    assert [body for _, body, _ in server.seen] == [b"third", b"first", b"second"]
    assert proxy.release() == []


def test_a_request_arrives_twice(proxy: Any, server: Server) -> None:
    proxy.on("PUT", duplicate=True)
    assert send(proxy, "PUT", "/a", b"body") == (200, b"body")
    assert [body for _, body, _ in server.seen] == [b"body", b"body"]


def test_headers_are_dropped(proxy: Any, server: Server) -> None:
    proxy.on("PUT", drop_headers=("If-Match", "If-None-Match"))
    for _ in range(2):
        send(proxy, "PUT", "/a", b"", {"If-Match": '"1"', "If-None-Match": "*", "X-Other": "1"})
    first, second = (set(headers) for _, _, headers in server.seen)
    assert second - first == {"if-match", "if-none-match"}


def test_answers_are_cut_and_edited(proxy: Any) -> None:
    proxy.on("GET", cut_after=3)
    with pytest.raises(http.client.IncompleteRead) as caught:
        send(proxy, "GET", "/a", b"body")
    assert caught.value.partial == b"bod"
    proxy.on("GET", edit=lambda head, body: (head, body.upper()))
    assert send(proxy, "GET", "/a", b"body") == (200, b"BODY")


def test_a_request_is_cut_in_its_body(proxy: Any) -> None:
    """The server gets the head and the first bytes, and then the end of the connection."""
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        proxy._upstream = upstream.getsockname()
        proxy.on("PUT", cut_request=6)
        received = bytearray()

        def receive() -> None:
            connection, _ = upstream.accept()
            with connection:
                while data := connection.recv(1000):
                    received.extend(data)

        thread = threading.Thread(target=receive)
        thread.start()
        with pytest.raises(ConnectionError):
            send(proxy, "PUT", "/a", b"0123456789")
        thread.join()
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    assert body == b"012345"
    assert b"content-length: 10" in head


def test_a_client_that_crashed_sends_nothing_more(proxy: Any, server: Server) -> None:
    proxy.refuse_after(2)
    assert [send(proxy, method, f"/{method}")[0] for method in ("PUT", "GET", "POST")] == [200] * 3
    assert proxy.refused
    for method in ("PUT", "GET", "DELETE"):
        with pytest.raises(ConnectionError):
            send(proxy, method, "/late")
    assert paths(server) == ["/PUT", "/GET", "/POST"]


async def test_signed_requests_hold_without_a_header(s3_proxy: Any) -> None:
    """A store that does not know If-None-Match, on a server that knows it and checks signatures."""
    s3, proxy = s3_proxy
    async with S3Store(s3.storage_options, retry=NO_RETRIES) as store:
        await store.put(f"{s3.bucket}/a", b"first")
        proxy.on("PUT", drop_headers=("If-None-Match",))
        await store.put(f"{s3.bucket}/a", b"second", if_none_match=True)
        assert s3.read("a") == b"second"
        with pytest.raises(AlreadyExistsError):
            await store.put(f"{s3.bucket}/a", b"third", if_none_match=True)


async def test_a_part_that_arrives_late_replaces_what_came_meanwhile(s3_proxy: Any) -> None:
    """What makes reusing the number of a part dangerous; a store may list every version instead."""
    s3, proxy = s3_proxy
    key = f"{s3.bucket}/a"
    async with S3Store(s3.storage_options, retry=NO_RETRIES) as store:
        upload_id = await store.create_upload(key)
        proxy.on("PUT", late=True)
        with pytest.raises(OSError, match="a"):
            await store.put_part(key, upload_id, 1, b"short")
        await store.put_part(key, upload_id, 1, b"longer")
        assert proxy.release() == [200]
        listed = [part.size for part in await store.list_parts(key, upload_id)]
        assert listed == ([5] if s3.server == "moto" else [5, 6])


async def test_a_part_that_is_cut_is_no_part(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    key = f"{s3.bucket}/a"
    async with S3Store(s3.storage_options, retry=QUICK) as store:
        proxy.on("PUT", match="partNumber=1", cut_request=MiB)
        sink = await store.create(key, SinkOptions(part_bytes=5 * MiB))
        await sink.write(bytes(6 * MiB))
        await sink.complete()
    assert s3.read("a") == bytes(6 * MiB)
    assert proxy.count("PUT") == 3


def test_the_rule(chosen_by_the_rule: Callable[..., Any]) -> None:
    def sizes(*parts: tuple[int, int]) -> list[int] | None:
        chosen = chosen_by_the_rule([(number, size, "etag") for number, size in parts])
        return None if chosen is None else [size for _, size, _ in chosen]

    assert sizes() is None
    assert sizes((1, 5 * MiB), (2, 5 * MiB)) is None
    assert sizes((2, 7)) is None
    assert sizes((1, 5 * MiB), (3, 7)) is None
    assert sizes((1, 7)) == [7]
    assert sizes((2, 7), (1, 5 * MiB), (3, 8)) == [5 * MiB, 7]
    assert sizes((1, 9), (1, 5 * MiB), (2, 7), (2, 8), (3, 5)) == [5 * MiB, 8]


def test_the_rule_completes_what_anyone_sent(s3: Any, complete_by_the_rule: Callable[..., Any]) -> None:
    upload = {"Bucket": s3.bucket, "Key": "a"}
    upload_id = s3.client.create_multipart_upload(**upload)["UploadId"]
    for number, body in ((2, b"tail"), (1, b"open"), (1, bytes(5 * MiB)), (2, b"tail, longer"), (3, b"more")):
        s3.client.upload_part(**upload, UploadId=upload_id, PartNumber=number, Body=body)
    assert complete_by_the_rule(s3, "a", upload_id) == bytes(5 * MiB) + b"tail, longer"
    upload_id = s3.client.create_multipart_upload(**upload)["UploadId"]
    s3.client.upload_part(**upload, UploadId=upload_id, PartNumber=1, Body=bytes(5 * MiB))
    assert complete_by_the_rule(s3, "a", upload_id) is None
