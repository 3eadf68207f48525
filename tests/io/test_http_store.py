"""Web servers of every kind: those that do ranges, those that do not, and those that change under a reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from resilient_pq.errors import (
    AccessDeniedError,
    NotFoundError,
    ObjectChangedError,
    StoreError,
    ThrottledError,
    TransientError,
    UnsupportedError,
)
from resilient_pq.io import FetchCounters, HttpStore, RetryPolicy, counting, resolve

DATA = bytes(range(256)) * 400
QUICK = RetryPolicy(attempts=3, base_delay=0.001, max_delay=0.01)


@pytest.fixture
async def store() -> AsyncIterator[HttpStore]:
    async with HttpStore(retry=QUICK) as store:
        yield store


async def test_opening_is_one_get_and_reads_are_pinned(site: Any, store: HttpStore) -> None:
    tail = await store.read_tail(site.url, 1000)
    assert (bytes(tail.data), tail.offset, tail.info.size) == (DATA[-1000:], len(DATA) - 1000, len(DATA))
    assert bytes(await store.read_range(site.url, 10, 300, pin=tail.info)) == DATA[10:300]
    assert [method for method, _ in site.asked] == ["GET", "GET"]
    (_, first), (_, second) = site.asked
    assert first["Range"] == "bytes=-1000"
    assert (second["Range"], second["If-Match"]) == ("bytes=10-299", '"v1"')
    assert {headers["Accept-Encoding"] for _, headers in site.asked} == {"identity"}


async def test_head(site: Any, store: HttpStore) -> None:
    info = await store.head(site.url)
    assert (info.size, info.etag) == (len(DATA), '"v1"')


@pytest.mark.parametrize("status", [400, 401, 403, 405, 501])
async def test_a_server_that_refuses_head_is_asked_for_the_first_byte(site: Any, store: HttpStore, status: int) -> None:
    site.statuses = [status]
    with counting(FetchCounters()) as counters:
        info = await store.head(site.url)
        assert (info.size, info.etag) == (len(DATA), '"v1"')
        assert bytes(await store.read_range(site.url, 5, 9, pin=info)) == DATA[5:9]
        await store.head(site.url)  # this host is not asked so again
    assert counters.requests == len(site.asked) - 3  # who calls counts each call
    assert [(method, headers.get("Range")) for method, headers in site.asked] == [
        ("HEAD", None), ("GET", "bytes=0-0"), ("GET", "bytes=5-8"), ("GET", "bytes=0-0"),
    ]  # fmt: skip
    assert await store.exists(site.url)


async def test_sizes_without_head(site: Any, store: HttpStore) -> None:
    """An empty file has no first byte; who ignores ranges announces all of it; who tells no size is refused."""
    site.statuses = [403]
    site.data = b""
    assert (await store.head(site.url)).size == 0
    site.data, site.ranges = DATA, False
    assert (await store.head(site.url)).size == len(DATA)
    site.ranges, site.content_range = True, "bytes {begin}-{last}/*"
    with pytest.raises(UnsupportedError, match="how large"):
        await store.head(site.url)
    site.content_range, site.statuses = "bytes {begin}-{last}/{size}", [404]
    with pytest.raises(NotFoundError):
        await store.head(site.url)
    assert not await store.exists(site.url.replace("a.parquet", "none"))


async def test_a_body_that_nobody_wants_is_not_received(store: HttpStore) -> None:
    """A server without HEAD that ignores ranges begins to send all of the file to who asks for its size."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"HEAD"):
            writer.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\nPAR1")
            assert await reader.read() == b""
            left.set()
        writer.close()

    left = asyncio.Event()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        _, port = server.sockets[0].getsockname()
        assert (await store.head(f"http://127.0.0.1:{port}/a")).size == 999_999
        await asyncio.wait_for(left.wait(), 5)


async def test_an_empty_file(site: Any, store: HttpStore) -> None:
    site.data = b""
    assert (await store.read_tail(site.url, 10)).info.size == 0


async def test_a_replaced_file(site: Any, store: HttpStore) -> None:
    info = await store.head(site.url)
    site.etag = '"v2"'
    with pytest.raises(ObjectChangedError):
        await store.read_range(site.url, 0, 10, pin=info)
    site.conditions = False  # a server that ignores If-Match: the ETag of its answer tells
    with pytest.raises(ObjectChangedError):
        await store.read_range(site.url, 0, 10, pin=info)


async def test_a_replaced_file_of_another_size_on_a_server_without_versions(site: Any, store: HttpStore) -> None:
    site.etag = None
    info = await store.head(site.url)
    assert info.etag is None
    for data in (DATA + b"x", DATA[:-1], DATA[:5]):
        site.data = data
        with pytest.raises(ObjectChangedError):
            await store.read_range(site.url, 10, 20, pin=info)


async def test_a_file_named_by_its_time_of_change(site: Any, store: HttpStore) -> None:
    site.etag, site.last_modified = None, "Wed, 21 Oct 2015 07:28:00 GMT"
    info = await store.head(site.url)
    await store.read_range(site.url, 0, 10, pin=info)
    assert site.asked[-1][1]["If-Unmodified-Since"] == site.last_modified
    site.last_modified = "Wed, 21 Oct 2025 07:28:00 GMT"
    with pytest.raises(ObjectChangedError):
        await store.read_range(site.url, 0, 10, pin=info)


async def test_a_weak_etag_is_compared_but_never_sent(site: Any, store: HttpStore) -> None:
    site.etag = 'W/"v1"'
    info = await store.head(site.url)
    assert bytes(await store.read_range(site.url, 0, 10, pin=info)) == DATA[:10]
    assert "If-Match" not in site.asked[-1][1]
    site.etag = 'W/"v2"'
    with pytest.raises(ObjectChangedError):
        await store.read_range(site.url, 0, 10, pin=info)


async def test_a_server_that_ignores_ranges(site: Any, store: HttpStore) -> None:
    """Answers of 200 hold the whole file: what was asked for is taken out of them."""
    site.ranges = False
    tail = await store.read_tail(site.url, 1000)
    assert (bytes(tail.data), tail.info.size) == (DATA[-1000:], len(DATA))
    assert bytes(await store.read_range(site.url, 50_000, 50_010, pin=tail.info)) == DATA[50_000:50_010]
    whole = await store.read_tail(site.url, len(DATA))
    assert bytes(whole.data) == DATA


async def test_a_server_without_suffixes_is_asked_only_once(site: Any, store: HttpStore) -> None:
    site.suffixes = "whole"
    for _ in range(2):
        assert bytes((await store.read_tail(site.url, 1000)).data) == DATA[-1000:]
    assert [method for method, _ in site.asked] == ["GET", "HEAD", "GET", "HEAD", "GET"]


async def test_a_body_cut_short_goes_on_where_it_broke(site: Any, store: HttpStore) -> None:
    site.cut_to = [400, 300]
    counters = FetchCounters()
    with counting(counters):
        tail = await store.read_tail(site.url, 1000)
    assert bytes(tail.data) == DATA[-1000:]
    size = len(DATA)
    assert [headers["Range"] for _, headers in site.asked] == [
        "bytes=-1000",
        f"bytes={size - 600}-{size - 1}",
        f"bytes={size - 300}-{size - 1}",
    ]
    assert (counters.retries, counters.resumed) == (2, 2)


async def test_a_server_that_does_not_say_how_large_the_file_is(site: Any, store: HttpStore) -> None:
    site.ranges = site.length = False
    for act in (store.read_tail(site.url, 10), store.head(site.url)):
        with pytest.raises(UnsupportedError, match="how large"):
            await act


async def test_a_server_that_compresses(site: Any, store: HttpStore) -> None:
    site.encoding = "gzip"
    with pytest.raises(UnsupportedError, match="gzip"):
        await store.read_tail(site.url, 10)


@pytest.mark.parametrize(
    ("status", "error", "requests"),
    [
        (404, NotFoundError, 1),
        (410, NotFoundError, 1),
        (401, AccessDeniedError, 2),  # HEAD may be refused where GET is not
        (403, AccessDeniedError, 2),
        (400, StoreError, 2),
        (429, ThrottledError, 3),
        (503, ThrottledError, 3),
        (500, TransientError, 3),
    ],
)
async def test_statuses(site: Any, store: HttpStore, status: int, error: type[StoreError], requests: int) -> None:
    site.statuses = [status] * 10
    with pytest.raises(error) as caught:
        await store.head(site.url)
    assert type(caught.value) is error
    assert caught.value.where.key == site.url
    assert len(site.asked) == requests
    site.statuses = [500, 503]
    assert bytes((await store.read_tail(site.url, 10)).data) == DATA[-10:]


async def test_headers_of_the_user_are_sent(site: Any) -> None:
    async with HttpStore({"headers": {"Authorization": "Bearer x"}}) as store:
        await store.read_tail(site.url, 10)
    assert site.asked[0][1]["Authorization"] == "Bearer x"


async def test_options_for_another_store(site: Any) -> None:
    async with HttpStore({"endpoint_url": "http://s3"}) as store:
        with pytest.raises(UnsupportedError, match=r"storage_options do not fit.*endpoint_url"):
            await store.head(site.url)


async def test_a_content_range_that_means_nothing(site: Any, store: HttpStore) -> None:
    site.content_range = "bytes 5-3/9"
    with pytest.raises(StoreError, match="bytes 5-3/9") as caught:
        await store.read_tail(site.url, 10)
    assert caught.value.where.key == site.url


async def test_nobody_listens(store: HttpStore) -> None:
    with pytest.raises(TransientError):
        await store.head("http://127.0.0.1:1/a")


async def test_what_no_parser_takes_for_a_url(store: HttpStore) -> None:
    with pytest.raises(StoreError, match="not a URL that can be read"):
        await store.read_tail("http://[x/a.parquet", 10)


async def test_it_can_only_be_read(site: Any) -> None:
    store, key = resolve(site.url)
    async with store:
        assert bytes((await store.read_tail(key, 10)).data) == DATA[-10:]
        for act in (store.put(key, b""), store.create(key), store.delete(key)):
            with pytest.raises(UnsupportedError, match="only be read"):
                await act


async def test_names_beside_a_file_are_quoted(store: HttpStore) -> None:
    for url, found in (
        ("http://h/f/_metadata", "http://h/f/a%20b/c%3Fd%23e%2525.parquet"),
        ("http://h/_metadata?token=x%20y", "http://h/a%20b/c%3Fd%23e%2525.parquet?token=x%20y"),
    ):
        assert store.beside(url, "a b/c?d#e%25.parquet") == found


async def test_a_web_server_has_no_listing(site: Any, store: HttpStore) -> None:
    with pytest.raises(UnsupportedError, match="the web server cannot list"):
        await store.list_names(site.url)


async def test_a_closed_store_and_one_of_another_loop(site: Any) -> None:
    store = HttpStore()
    await store.head(site.url)
    with pytest.raises(StoreError, match="another event loop"):
        await asyncio.to_thread(asyncio.run, store.head(site.url))  # type: ignore[arg-type]
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.head(site.url)


async def test_the_site_itself(site: Any) -> None:
    """What the tests above rest on."""
    site.data = b"0123456789"
    assert site.range_of("bytes=2-4") == (2, 5, 206)
    assert site.range_of("bytes=-3") == (7, 10, 206)
    assert site.range_of("bytes=10-12") == (0, 0, 416)
