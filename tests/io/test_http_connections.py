"""Connections of our own that send GETs: answers in any pieces, and answers that are none."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.io.s3.http_connections import Endpoint, HttpAnswer, HttpConnections

BODY = bytes(range(256)) * 3
OK = b"HTTP/1.1 200 OK\r\n"
SIZED = OK + b'ETag: "a"\r\nContent-Length: 768\r\n\r\n' + BODY
CHUNKED = OK + b"transfer-encoding:chunked \r\n\r\n2;x=1\r\n%b\r\n2FE\r\n%b\r\n0\r\n\r\n" % (BODY[:2], BODY[2:])
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"


class Server:
    """Answers each request with the next of its answers, in pieces; None ends the connection."""

    def __init__(self, answers: Sequence[Sequence[bytes] | None]) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self.answers.pop(0)
                if answer is None:
                    break
                for piece in answer:
                    writer.write(piece)
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


@asynccontextmanager
async def serving(
    *answers: Sequence[bytes] | None, progress: float | None = 5.0, encrypted: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Server, Any]]:
    """A server with these answers, and what asks it."""
    served = Server(answers)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=encrypted)
    port = server.sockets[0].getsockname()[1]
    connections = HttpConnections(connect_seconds=5, progress_seconds=progress)

    async def get(
        target: str = "/a", place: tuple[str, ssl.SSLContext | None] = ("127.0.0.1", None), **headers: str
    ) -> HttpAnswer:
        return await connections.get(Endpoint(place[0], port, place[1]), target, {"host": "h", **headers})

    try:
        yield served, get
    finally:
        connections.close()
        server.close()


async def whole(answer: HttpAnswer, size: int = 100) -> bytes:
    found = b""
    while piece := await answer.read(size):
        assert len(piece) <= size
        found += piece
    return found


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({0, len(data), *(place % len(data) for place in places)})
    return [data[begin:end] for begin, end in itertools.pairwise(ends)]


@given(
    st.lists(st.integers(0, 2000), max_size=12), st.integers(1, 900), st.sampled_from([SIZED, CHUNKED, EARLY + SIZED])
)
def test_answers_come_in_any_pieces(places: list[int], size: int, answer: bytes) -> None:
    async def run() -> None:
        async with serving(cut(answer, places), [SIZED]) as (server, get):
            first = await get()
            assert first.status == 200
            assert await whole(first, size) == BODY
            assert await whole(await get("/b", range="bytes=1-2")) == BODY
            assert server.connections == 1, "the connection is used again"
            assert server.heads[1].split(b"\r\n")[:3] == [b"GET /b HTTP/1.1", b"host: h", b"range: bytes=1-2"]

    asyncio.run(run())


CLOSING = {
    "asked for": OK + b"Content-Length: 768\r\nConnection: close\r\n\r\n" + BODY,
    "HTTP/1.0": SIZED.replace(b"1.1", b"1.0"),
    "more than was asked for": SIZED + SIZED,
    "a trailer": CHUNKED[:-2] + b"A: b\r\n\r\n",
}


@pytest.mark.parametrize("how", CLOSING)
async def test_connections_that_are_not_used_again(how: str) -> None:
    async with serving([CLOSING[how]], [SIZED]) as (server, get):
        for _ in range(2):
            assert await whole(await get()) == BODY
        assert server.connections == 2


async def test_a_body_ends_with_its_connection_where_nothing_says_its_length() -> None:
    async with serving([OK + b"\r\n" + BODY]) as (_, get):
        assert await whole(await get()) == BODY


async def test_a_body_that_is_dropped_takes_its_connection_with_it() -> None:
    async with serving([SIZED], [SIZED]) as (server, get):
        answer = await get()
        await answer.read(1)
        answer.close()
        assert await answer.read(1) == b""
        assert await whole(await get()) == BODY
        assert server.connections == 2


NO_ANSWERS = {
    "nothing": None,
    "another protocol": [b"SSH-2.0-OpenSSH_9.2\r\n\r\n"],
    "a status of no number": [b"HTTP/1.1 2x0 OK\r\n\r\n"],
    "a header without a name": [OK + b": b\r\n\r\n"],
    "a folded header": [OK + b"A: b\r\n c\r\n\r\n"],
    "a name with a space": [OK + b"Content-Length : 3\r\n\r\nabc"],
    "two lengths": [OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"],
    "a length and chunks": [OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    "a coding that nobody asked for": [OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"],
    "a length below 0": [OK + b"Content-Length: -3\r\n\r\nabc"],
    "a length of too many digits": [OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\nabc"],
    "headers without an end": [OK, b"A: b\r\n" * 40_000],
    "headers that break off": [OK + b"A: b\r\n"],
    "a body that breaks off": [SIZED[:-1]],
    "a chunk without a length": [OK + b"Transfer-Encoding: chunked\r\n\r\nx\r\nabc\r\n0\r\n\r\n"],
    "a chunk that is longer": [OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n"],
    "chunks that break off": [OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"],
}


@pytest.mark.parametrize("what", NO_ANSWERS)
async def test_what_is_no_answer_is_an_error_of_the_connection(what: str) -> None:
    async with serving(NO_ANSWERS[what]) as (_, get):
        with pytest.raises(ConnectionError):
            await whole(await get())


async def test_a_server_that_stops_is_given_up() -> None:
    async with serving([SIZED[:-9], b""], [], progress=0.05) as (server, get):
        server.answers.append([])  # so that it waits for another request
        with pytest.raises(TimeoutError):
            await whole(await get())


async def test_no_header_has_two_lines() -> None:
    async with serving() as (server, get):
        with pytest.raises(ValueError, match="line break"):
            await get(etag="a\r\nX: y")
        assert not server.heads


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What serves as ``localhost``, and what trusts that."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    kept = made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    file = tmp_path_factory.mktemp("tls") / "all.pem"
    file.write_bytes(kept + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    serves, trusts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cadata=kept.decode())
    serves.load_cert_chain(file)
    return serves, trusts


async def test_certificates_are_looked_at(certified: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    serves, trusts = certified
    others = ssl.create_default_context()
    async with serving(cut(CHUNKED, range(0, 800, 7)), [SIZED], encrypted=serves) as (server, get):
        assert await whole(await get(place=("localhost", trusts))) == BODY
        assert await whole(await get(place=("localhost", trusts))) == BODY
        assert (server.connections, server.answers) == (1, [])
        for host, certificates in (("localhost", others), ("127.0.0.1", trusts)):
            with pytest.raises(ssl.SSLError):
                await get(place=(host, certificates))
        assert len(server.heads) == 2
