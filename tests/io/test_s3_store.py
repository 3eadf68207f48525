"""S3 on real servers, behind a proxy that counts the requests and breaks them."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from s3_errors import error_body

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    NotFoundError,
    ObjectChangedError,
    StoreError,
    TransientError,
    UnsupportedError,
)
from resilient_pq.io import (
    FetchCounters,
    FetchOptions,
    MergeOptions,
    ObjectInfo,
    Part,
    RetryPolicy,
    S3Store,
    SinkOptions,
    counting,
    fetch,
)
from resilient_pq.io.s3.object_etags import multipart_etag
from resilient_pq.io.s3.s3_client import retry_policy_from
from resilient_pq.units import MiB

DATA = bytes(range(256)) * 4096  # 1 MiB
QUICK = RetryPolicy(attempts=6, base_delay=0.001, max_delay=0.01, hedge_after=None)
PARTS = SinkOptions(part_bytes=5 * MiB)


@asynccontextmanager
async def store_of(s3: Any, **options: Any) -> AsyncIterator[S3Store]:
    async with S3Store({**s3.storage_options, **options}, retry=QUICK) as store:
        yield store


def verbs(proxy: Any) -> list[str]:
    """What came in, without the names that differ from run to run."""
    return [
        f"{request.method} {re.sub('uploadId=[^&]*', 'uploadId', request.target.partition('?')[2])}".strip()
        for request in proxy.requests
    ]


# --- how many requests


async def test_opening_is_one_get(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="a", Body=DATA)
    async with store_of(s3) as store:
        tail = await store.read_tail(f"{s3.bucket}/a", 1000)
        assert bytes(tail.data) == DATA[-1000:]
        whole = await store.read_tail(f"{s3.bucket}/a", 2 * MiB)
        assert bytes(whole.data) == DATA
        await store.read_range(f"{s3.bucket}/a", 10, 20, pin=tail.info)
    assert verbs(proxy) == ["GET"] * 3
    ranges = [request.headers["range"] for request in proxy.requests]
    assert ranges == ["bytes=-1000", f"bytes=-{2 * MiB}", "bytes=10-19"]
    assert proxy.requests[2].headers["if-match"] == tail.info.etag


async def test_a_wave_is_the_merged_requests(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="a", Body=DATA)
    wanted = [ByteRange(at, at + 1000) for at in range(0, MiB, 100_000)]
    async with store_of(s3) as store:
        info = await store.head(f"{s3.bucket}/a")
        proxy.requests.clear()
        options = FetchOptions(MergeOptions(always_gap=0, wide_gap=0))
        found = {index: bytes(data) async for index, data in fetch(store, info, wanted, options=options)}
    assert found == {index: DATA[one.start : one.end] for index, one in enumerate(wanted)}
    assert verbs(proxy) == ["GET"] * len(wanted)


async def test_a_small_object_is_one_put(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    async with store_of(s3) as store:
        sink = await store.create(f"{s3.bucket}/a", PARTS)
        await sink.write(DATA)
        await sink.complete()
    assert verbs(proxy) == ["PUT"]
    assert s3.read("a") == DATA


async def test_a_large_object_is_its_parts(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    async with store_of(s3) as store:
        sink = await store.create(f"{s3.bucket}/a", PARTS)
        for _ in range(11):
            await sink.write(DATA)
        await sink.complete()
    found = verbs(proxy)
    listing = "GET uploadId&part-number-marker=0"
    assert (found[0], *found[-3:]) == ("POST uploads", listing, "POST uploadId", "HEAD")
    assert sorted(found[1:-3]) == [f"PUT uploadId&partNumber={number}" for number in (1, 2, 3)]
    assert s3.read("a") == DATA * 11
    parts = [request for request in proxy.requests if "partNumber" in request.target]
    assert sorted(request.size for request in parts) == [MiB, 5 * MiB, 5 * MiB]
    for request in parts:
        assert request.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
        assert "expect" not in request.headers, "a part asks for no leave"
        sums = {name for name in request.headers if "checksum" in name or "trailer" in name}
        assert sums <= {"x-amz-checksum-crc32"}, "a trailer is refused by R2, GCS and Ceph"


# --- faults


async def test_faults_pass_and_the_read_succeeds(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="a", Body=DATA)
    proxy.on("GET", status=500)
    proxy.on("GET", reset=True)
    proxy.on("GET", lose_reply=True)
    proxy.on("GET", status=503, headers={"Retry-After": "0.05"}, body=error_body("SlowDown"))
    counters = FetchCounters()
    async with store_of(s3) as store:
        with counting(counters):
            tail = await store.read_tail(f"{s3.bucket}/a", 100)
    assert bytes(tail.data) == DATA[-100:]
    assert proxy.count("GET") == 5
    assert (counters.retries, counters.resumed) == (4, 0)


async def test_a_body_cut_short_goes_on_where_it_broke(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="a", Body=DATA)
    counters = FetchCounters()
    async with store_of(s3) as store:
        info = await store.head(f"{s3.bucket}/a")
        proxy.on("GET", cut_after=300_000)
        proxy.on("GET", cut_after=400_000)
        async for _, data in fetch(store, info, [ByteRange(5, MiB)], counters=counters):
            assert bytes(data) == DATA[5:]
    ranges = [request.headers["range"] for request in proxy.requests[1:]]
    assert ranges == [f"bytes={at}-{MiB - 1}" for at in (5, 300_005, 700_005)]
    assert all(request.headers["if-match"] == info.etag for request in proxy.requests[1:])
    assert (counters.requests, counters.retries, counters.resumed) == (1, 2, 2)


async def test_a_tail_cut_short_goes_on_too(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="a", Body=DATA)
    proxy.on("GET", cut_after=1000)
    async with store_of(s3) as store:
        tail = await store.read_tail(f"{s3.bucket}/a", 5000)
    assert bytes(tail.data) == DATA[-5000:]
    assert tail.offset == MiB - 5000
    assert [request.headers["range"] for request in proxy.requests] == [
        "bytes=-5000",
        f"bytes={MiB - 4000}-{MiB - 1}",
    ]


async def test_a_body_that_is_always_cut(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="a", Body=DATA)
    proxy.on("GET", times=1000, cut_after=0)
    async with store_of(s3) as store:
        with pytest.raises(TransientError):
            await store.read_tail(f"{s3.bucket}/a", 5000)
    assert proxy.count("GET") == 6


async def test_a_body_that_comes_in_pieces(moto_proxy: Any) -> None:
    """What brings bytes is not given up, however often it breaks off."""
    s3, proxy = moto_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="a", Body=DATA)
    proxy.on("GET", times=1000, cut_after=500)
    async with S3Store(s3.storage_options, retry=RetryPolicy(base_delay=0.001, seconds=0.5)) as store:
        tail = await store.read_tail(f"{s3.bucket}/a", 5000)
    assert bytes(tail.data) == DATA[-5000:]
    assert proxy.count("GET") == 10


def replacing(old: bytes, new: bytes) -> Any:
    """An edit of the answer's head, for `HttpProxy.on`."""

    def edit(head: bytes, body: bytes) -> tuple[bytes, bytes]:
        assert re.search(old, head, re.IGNORECASE), head
        return re.sub(old, new, head, flags=re.IGNORECASE), body

    return edit


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (rb"etag: [^\r]*", b'ETag: "another"'),
        (rb"content-range: bytes ([0-9-]+)/[0-9]+", rb"Content-Range: bytes \1/999999"),
    ],
)
async def test_a_server_that_ignores_if_match(s3_proxy: Any, old: bytes, new: bytes) -> None:
    """What the answer says of itself is compared, whatever the server made of the condition."""
    s3, proxy = s3_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="a", Body=DATA)
    async with store_of(s3) as store:
        info = await store.head(f"{s3.bucket}/a")
        proxy.on("GET", edit=replacing(old, new))
        with pytest.raises(ObjectChangedError):
            await store.read_range(f"{s3.bucket}/a", 10, 20, pin=info)
    assert proxy.count("GET") == 1


@pytest.mark.parametrize("content_range", [b"bytes 9-19/1048576", b"bytes 11-20/1048576", b"rubbish", b"bytes 9-3/4"])
async def test_a_server_that_sends_other_bytes(moto_proxy: Any, content_range: bytes) -> None:
    s3, proxy = moto_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="a", Body=DATA)
    async with store_of(s3) as store:
        info = await store.head(f"{s3.bucket}/a")
        proxy.on("GET", times=100, edit=replacing(rb"content-range: [^\r]*", b"Content-Range: " + content_range))
        try:
            found = await store.read_range(f"{s3.bucket}/a", 10, 20, pin=info)
        except StoreError:
            return
        # It said that one byte came before: then those were the bytes after it.
        assert content_range.startswith(b"bytes 9-19")
        assert bytes(found) != DATA[10:20], "the proxy lied, so the bytes are wrong, and only a checksum can tell"


async def test_a_server_without_suffix_ranges(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="a", Body=DATA)
    proxy.on("GET", status=416, body=error_body("InvalidRange"))
    async with store_of(s3) as store:
        tail = await store.read_tail(f"{s3.bucket}/a", 100)
    assert bytes(tail.data) == DATA[-100:]
    assert verbs(proxy) == ["GET", "GET", "HEAD", "GET"]


async def test_parts_are_sent_again(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    proxy.on("PUT", match="partNumber=1", status=500)
    proxy.on("PUT", match="partNumber=2", reset=True)
    proxy.on("PUT", match="partNumber=3", lose_reply=True)
    proxy.on("POST", match="uploads", status=503)
    async with store_of(s3) as store:
        sink = await store.create(f"{s3.bucket}/a", PARTS)
        for _ in range(11):
            await sink.write(DATA)
        await sink.complete()
    assert s3.read("a") == DATA * 11
    assert s3.upload_ids() == []
    assert proxy.count("PUT") == 5, "the third had arrived"


async def test_a_part_that_is_refused_fails_the_sink_and_publishes_nothing(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    proxy.on("PUT", match="partNumber=2", status=403, body=error_body("AccessDenied"))
    async with store_of(s3) as store:
        sink = await store.create(f"{s3.bucket}/a", PARTS)
        await sink.write(DATA * 11)
        for _ in range(2):
            with pytest.raises(AccessDeniedError, match=s3.bucket):
                await sink.complete()
        assert s3.object_names() == []
        await sink.abort()
    assert s3.upload_ids() == []


@asynccontextmanager
async def a_server_that_reads_nothing() -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def test_a_body_that_the_server_stops_taking() -> None:
    """aiohttp alone would wait for ever."""
    async with (
        a_server_that_reads_nothing() as url,
        S3Store({"endpoint_url": url, "config_kwargs": {"read_timeout": 0.3}}, retry=RetryPolicy(attempts=1)) as store,
    ):
        with pytest.raises(TransientError, match="upload_part"):
            await store.put_part("bucket/a", "upload", 1, bytes(64 * MiB))


# --- publishing


async def test_an_exclusive_put_whose_reply_was_lost(s3_proxy: Any) -> None:
    """Sent again it is refused, because of its own success."""
    s3, proxy = s3_proxy
    proxy.on("PUT", lose_reply=True)
    async with store_of(s3) as store:
        info = await store.put(f"{s3.bucket}/a", [b"our ", b"bytes"], if_none_match=True)
        assert info.size == 9
        assert proxy.count("PUT") == 2
        proxy.on("PUT", reset=True)
        with pytest.raises(AlreadyExistsError):
            await store.put(f"{s3.bucket}/a", b"other bytes", if_none_match=True)
    assert s3.read("a") == b"our bytes"


def answering_500(head: bytes, body: bytes) -> tuple[bytes, bytes]:
    """An edit for `HttpProxy.on`: the server did it, but does not say so."""
    return b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", b""


async def test_an_abort_that_was_done_without_saying_so(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    async with store_of(s3) as store:
        upload_id = await store.create_upload(f"{s3.bucket}/a")
        proxy.on("DELETE", edit=answering_500)
        await store.abort_upload(f"{s3.bucket}/a", upload_id)
        assert proxy.count("DELETE") == 2
        if s3.server == "moto":  # SeaweedFS is content with an upload that is not there
            with pytest.raises(NotFoundError, match="no such upload"):
                await store.abort_upload(f"{s3.bucket}/a", upload_id)


async def test_an_object_that_may_not_be_looked_at_is_not_taken_for_ours(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    proxy.on("PUT", edit=answering_500)
    proxy.on("HEAD", status=403)
    async with store_of(s3) as store:
        with pytest.raises(AlreadyExistsError):
            await store.put(f"{s3.bucket}/a", b"ours", if_none_match=True)


async def test_a_botocore_too_old_for_mode_x(monkeypatch: pytest.MonkeyPatch) -> None:
    """s3fs would drop the condition without a word, and the object would be replaced."""

    async def accepts(operation: str, parameter: str) -> bool:
        return False

    async with S3Store() as store:
        monkeypatch.setattr(store._client, "accepts", accepts)
        with pytest.raises(UnsupportedError, match="botocore"):
            await store.put("b/a", b"", if_none_match=True)


async def test_the_size_of_a_completed_object_is_compared(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    proxy.on("HEAD", edit=replacing(rb"content-length: [0-9]+", b"Content-Length: 5"))
    async with store_of(s3) as store:
        sink = await store.create(f"{s3.bucket}/a", PARTS)
        await sink.write(DATA * 5)
        with pytest.raises(StoreError, match="has 5 bytes instead of 5,242,880"):
            await sink.complete()


async def test_credentials_that_may_only_write(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    proxy.on("HEAD", status=403)
    async with store_of(s3) as store:
        sink = await store.create(f"{s3.bucket}/a", PARTS)
        await sink.write(DATA * 5)
        assert (await sink.complete()).size == 5 * MiB


# --- errors and settings


async def test_no_such_bucket(s3_server: Any) -> None:
    async with store_of(s3_server) as store:
        for act in (
            store.read_tail("no-such-bucket-here/a", 10),
            store.create_upload("no-such-bucket-here/a"),
            store.put("no-such-bucket-here/a", b"x"),
        ):
            with pytest.raises(NotFoundError, match="no such bucket: no-such-bucket-here"):
                await act


async def test_a_key_that_the_server_does_not_know(seaweedfs: Any) -> None:
    async with store_of(seaweedfs, key="nobody") as store:
        with pytest.raises(AccessDeniedError) as caught:
            await store.read_tail(f"{seaweedfs.bucket}/a", 10)
    assert "access key" in str(caught.value.hint)
    assert seaweedfs.bucket in caught.value.message
    async with store_of(seaweedfs, secret="wrong") as store:
        with pytest.raises(AccessDeniedError) as caught:
            await store.read_tail(f"{seaweedfs.bucket}/a", 10)
    assert "secret" in str(caught.value.hint)


async def test_no_credentials_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    async with S3Store({"endpoint_url": "http://127.0.0.1:1"}) as store:
        with pytest.raises(AccessDeniedError, match="no credentials for bucket b") as caught:
            await store.read_tail("b/a", 10)
        assert "AWS_ACCESS_KEY_ID" in str(caught.value.hint)
    async with S3Store({"profile": "none"}) as store:
        with pytest.raises(AccessDeniedError, match="none"):
            await store.read_tail("b/a", 10)


async def test_anonymous_requests_are_not_signed(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    proxy.on("GET", times=2, status=403, body=error_body("AccessDenied"))
    async with S3Store({"anon": True, "endpoint_url": s3.endpoint_url}) as store:
        with pytest.raises(AccessDeniedError, match="said so"):
            await store.read_tail(f"{s3.bucket}/a", 10)
    assert all("authorization" not in request.headers for request in proxy.requests)


async def test_nobody_listens() -> None:
    async with S3Store({"endpoint_url": "http://127.0.0.1:1"}, retry=RetryPolicy(attempts=2)) as store:
        with pytest.raises(TransientError) as caught:
            await store.head("b/a")
    assert "endpoint_url" in str(caught.value.hint)
    assert caught.value.__notes__[0].startswith("gave up after 2 attempts")


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
async def test_the_endpoint_of_the_environment(moto_server: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, moto_server.endpoint_url)
    async with S3Store() as store:
        await store.put(f"{moto_server.bucket}/{name}", b"found")
        assert store.name == "S3"
    assert moto_server.read(name) == b"found"


async def test_options_as_pandas_users_write_them(moto_server: Any) -> None:
    options = {
        "client_kwargs": {
            "endpoint_url": moto_server.endpoint_url,
            "aws_access_key_id": moto_server.key,
            "aws_secret_access_key": moto_server.secret,
        },
        "config_kwargs": {"s3": {"payload_signing_enabled": True, "addressing_style": "path"}},
    }
    async with S3Store(options) as store:
        assert store.name == f"S3 at {moto_server.endpoint_url}"
        await store.put(f"{moto_server.bucket}/signed", [b"a signed ", b"body", bytes(2 * MiB)])
    assert moto_server.read("signed") == b"a signed body" + bytes(2 * MiB)


@pytest.mark.parametrize(
    "options",
    [{"key": "a", "username": "b"}, {"config_kwargs": {"no_such_setting": 1}}],
)
async def test_options_that_s3fs_does_not_know(options: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="storage_options"):
        async with S3Store(options) as store:
            await store.head("b/a")


async def test_an_endpoint_that_is_no_url() -> None:
    async with S3Store({"endpoint_url": "localhost:9000"}) as store:
        with pytest.raises(StoreError, match="localhost:9000"):
            await store.head("b/a")


def test_retries_of_botocore_become_ours() -> None:
    def attempts(retries: dict[str, int]) -> int | None:
        return retry_policy_from({"config_kwargs": {"retries": retries}}, RetryPolicy()).attempts

    assert attempts({}) is None
    assert attempts({"total_max_attempts": 2}) == 2
    assert attempts({"max_attempts": 0}) == 1


async def test_equal_parts_where_the_store_wants_them() -> None:
    async with S3Store({"fixed_upload_size": True}) as store:
        assert store.capabilities.equal_parts
        sink = await store.create("b/a")
        assert sink._options.equal_parts  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", ["", "bucket", "bucket/", "/name"])
async def test_keys_that_name_no_object(key: str) -> None:
    async with S3Store() as store:
        with pytest.raises(StoreError, match="not an object on S3"):
            await store.head(key)


async def test_the_slash_in_an_access_point() -> None:
    async with S3Store() as store:
        asked: list[dict[str, Any]] = []

        async def call(operation: str, url: str, **parameters: Any) -> dict[str, Any]:
            asked.append(parameters)
            return {"ContentLength": 3}

        store._client.call = call  # type: ignore[method-assign]
        await store.head("arn:aws:s3:eu-west-1:123456789012:accesspoint/mine/folder/name")
    assert asked == [{"Bucket": "arn:aws:s3:eu-west-1:123456789012:accesspoint/mine", "Key": "folder/name"}]


async def test_a_closed_store_and_one_of_another_loop(moto_server: Any) -> None:
    store = S3Store(moto_server.storage_options)
    await store.put(f"{moto_server.bucket}/a", b"x")
    with pytest.raises(StoreError, match="another event loop"):
        await asyncio.to_thread(asyncio.run, store.head(f"{moto_server.bucket}/a"))  # type: ignore[arg-type]
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.head(f"{moto_server.bucket}/a")


def test_nothing_is_left_open_at_exit(moto_server: Any) -> None:
    script = f"""
import asyncio
from resilient_pq.io import S3Store
async def main():
    async with S3Store({moto_server.storage_options!r}) as store:
        info = await store.put("{moto_server.bucket}/exit", b"x" * 100_000)
        pin = await store.head("{moto_server.bucket}/exit")
        await asyncio.gather(*(store.read_range("{moto_server.bucket}/exit", n, n + 9, pin=pin) for n in
        range(40)))
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- listing


class Pages:
    """Answers of a server in pages, and what was asked for each."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        self.pages = list(pages)
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, operation: str, url: str, **parameters: Any) -> dict[str, Any]:
        self.asked.append(parameters)
        return self.pages.pop(0)


def listed(*parts: tuple[int, int, str]) -> list[dict[str, Any]]:
    return [{"PartNumber": number, "Size": size, "ETag": etag} for number, size, etag in parts]


async def test_versions_of_one_part_on_both_sides_of_a_page() -> None:
    """SeaweedFS lists every version of a part that was sent again, in any order."""
    async with S3Store() as store:
        store._client.call = pages = Pages(  # type: ignore[method-assign, assignment]
            {"Parts": listed((1, 10, "a"), (2, 7, "new")), "IsTruncated": True},
            {"Parts": listed((2, 7, "new"), (2, 5, "old")), "IsTruncated": True},
            {
                "Parts": [
                    *listed((3, 1, "c")),
                    {"PartNumber": 4, "Size": 1, "ETag": "d", "ChecksumCRC32": "AAAB/w=="},
                ]
            },
        )
        found = await store.list_parts("b/a", "upload")
    assert found == [
        Part(1, 10, "a"),
        Part(2, 5, "old"),
        Part(2, 7, "new"),
        Part(3, 1, "c"),
        Part(4, 1, "d", 0x1FF),
    ]
    assert [asked["PartNumberMarker"] for asked in pages.asked] == [0, 1, 2]


@pytest.mark.parametrize("checksum", ["", "AAAB", "AAAB/wAAAB/w", "no base64", "\u00e9"])
async def test_a_checksum_that_is_none_is_left_out(checksum: str) -> None:
    async with S3Store() as store:
        store._client.call = Pages(  # type: ignore[method-assign, assignment]
            {"Parts": [listed((1, 1, "a"))[0] | {"ChecksumCRC32": checksum}]}
        )
        assert await store.list_parts("b/a", "upload") == [Part(1, 1, "a")]


async def test_uploads_come_in_pages() -> None:
    async with S3Store() as store:
        store._client.call = pages = Pages(  # type: ignore[method-assign, assignment]
            {
                "Uploads": [{"Key": "a", "UploadId": "1"}],
                "IsTruncated": True,
                "NextKeyMarker": "a",
                "NextUploadIdMarker": "1",
            },
            {"Uploads": [{"Key": "b", "UploadId": "2"}], "IsTruncated": False},
        )
        found = await store.list_uploads("bucket/")
    assert [(upload.key, upload.upload_id) for upload in found] == [("bucket/a", "1"), ("bucket/b", "2")]
    assert pages.asked[1]["KeyMarker"] == "a"
    assert pages.asked[1]["UploadIdMarker"] == "1"


async def test_pages_that_are_told_apart_by_the_upload_alone() -> None:
    """SeaweedFS names no key to go on from."""
    async with S3Store() as store:
        store._client.call = pages = Pages(  # type: ignore[method-assign, assignment]
            {
                "Uploads": [{"Key": "b", "UploadId": "1"}],
                "IsTruncated": True,
                "NextKeyMarker": "",
                "NextUploadIdMarker": "1",
            },
            {"Uploads": [{"Key": "a", "UploadId": "2"}], "IsTruncated": False},
        )
        found = await store.list_uploads("bucket")
    assert [upload.key for upload in found] == ["bucket/b", "bucket/a"]
    assert pages.asked[0] == {"Bucket": "bucket", "Prefix": ""}
    assert pages.asked[1] == {"Bucket": "bucket", "Prefix": "", "UploadIdMarker": "1"}


@pytest.mark.parametrize("markers", [{}, {"NextKeyMarker": "a", "NextUploadIdMarker": "1"}])
async def test_a_listing_of_uploads_that_breaks_off_is_none(markers: dict[str, str]) -> None:
    page = {"Uploads": [{"Key": "a", "UploadId": "1"}], "IsTruncated": True, **markers}
    async with S3Store() as store:
        store._client.call = Pages(page, page)  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreError, match="ends before its end"):
            await store.list_uploads("bucket/")


async def test_a_store_that_ignores_the_prefix_of_uploads() -> None:
    every = [{"Key": key, "UploadId": key} for key in ("day/1", "night/1")]
    async with S3Store() as store:
        store._client.call = Pages({"Uploads": every})  # type: ignore[method-assign, assignment]
        found = await store.list_uploads("bucket/day/")
    assert [upload.key for upload in found] == ["bucket/day/1"]


@pytest.mark.parametrize("part", [{}, {"PartNumber": 1, "Size": 1}, {"PartNumber": "x", "Size": 1, "ETag": "a"}])
async def test_a_listing_of_parts_that_means_nothing(part: dict[str, Any]) -> None:
    async with S3Store() as store:
        store._client.call = Pages({"Parts": [part]})  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreError, match="means nothing"):
            await store.list_parts("b/a", "upload")


async def test_names_come_in_pages() -> None:
    async with S3Store() as store:
        store._client.call = pages = Pages(  # type: ignore[method-assign, assignment]
            {
                "Contents": [{"Key": "day/"}, {"Key": "day/b"}],
                "IsTruncated": True,
                "NextContinuationToken": "more",
            },
            {"Contents": [{"Key": "day/a/"}, {"Key": "day/a/c"}], "IsTruncated": False},
        )
        assert await store.list_names("bucket/day") == ["a/c", "b"]
    assert [asked.get("ContinuationToken") for asked in pages.asked] == [None, "more"]
    assert [(asked["Bucket"], asked["Prefix"]) for asked in pages.asked] == [("bucket", "day/")] * 2


@pytest.mark.parametrize("token", [{}, {"NextContinuationToken": "again"}])
async def test_a_listing_that_breaks_off_is_no_listing(token: dict[str, str]) -> None:
    page = {"Contents": [{"Key": "a"}], "IsTruncated": True, **token}
    async with S3Store() as store:
        store._client.call = Pages(page, page)  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreError, match="ends before its end"):
            await store.list_names("bucket/")


@pytest.mark.thorough
async def test_a_listing_of_more_names_than_a_page_has(moto_server: Any) -> None:
    s3 = moto_server
    for number in range(1_005):
        s3.client.put_object(Bucket=s3.bucket, Key=f"many/{number:04}", Body=b"")
    async with store_of(s3) as store:
        found = await store.list_names(f"{s3.bucket}/many")
        assert found == [f"{number:04}" for number in range(1_005)]
        with pytest.raises(NotFoundError, match="no such bucket"):
            await store.list_names("no-such-bucket-here/folder")


@pytest.mark.thorough
async def test_listings_of_more_uploads_and_parts_than_a_page_has(s3: Any) -> None:
    numbers = range(1, 1_006)
    async with store_of(s3) as store:
        keys = [f"{s3.bucket}/many/{number:04}" for number in numbers]
        upload_ids = await asyncio.gather(*map(store.create_upload, keys))
        for prefix in (f"{s3.bucket}/many/", f"{s3.bucket}/", s3.bucket):
            found = await store.list_uploads(prefix)
            assert sorted((upload.key, upload.upload_id) for upload in found) == sorted(
                zip(keys, upload_ids, strict=True)
            )
        sent = [store.put_part(keys[0], upload_ids[0], number, b"x" * number) for number in numbers]
        await asyncio.gather(*sent)
        again = [store.put_part(keys[0], upload_ids[0], number, b"y" * number) for number in range(995, 1_006)]
        newest = {part.number: part for part in await asyncio.gather(*again)}
        listed = await store.list_parts(keys[0], upload_ids[0])
        assert {part.number for part in listed} == set(numbers)
        assert {part.etag for part in newest.values()} <= {part.etag for part in listed}
        await asyncio.gather(*map(store.abort_upload, keys, upload_ids))


async def test_a_store_that_does_not_list_by_prefix() -> None:
    """MinIO finds nothing unless the prefix is a whole key."""
    every = [{"Key": key, "UploadId": key} for key in ("day/1", "day/2", "night/1")]
    async with S3Store() as store:
        store._client.call = pages = Pages({}, {"Uploads": every})  # type: ignore[method-assign, assignment]
        found = await store.list_uploads("bucket/day/")
    assert [upload.key for upload in found] == ["bucket/day/1", "bucket/day/2"]
    assert [asked["Prefix"] for asked in pages.asked] == ["day/", ""]


async def test_a_source_that_was_replaced_is_not_copied(seaweedfs: Any) -> None:
    bucket = seaweedfs.bucket
    async with store_of(seaweedfs) as store:
        pin: ObjectInfo = await store.put(f"{bucket}/source", DATA)
        await store.put(f"{bucket}/source", DATA[::-1])
        upload_id = await store.create_upload(f"{bucket}/copy")
        with pytest.raises(ObjectChangedError):
            await store.copy_part(f"{bucket}/copy", upload_id, 1, f"{bucket}/source", 0, 100, pin.etag)
        await store.abort_upload(f"{bucket}/copy", upload_id)


def test_the_etag_of_a_multipart_object() -> None:
    hello, world = "5d41402abc4b2a76b9719d911017c592", "7d793037a0760186574b0282f2f435e7"
    assert multipart_etag([Part(1, 5, f'"{hello}"'), Part(2, 5, world)]) == "065947336a2f2a95ba8899f3675c3be6-2"
    assert multipart_etag([Part(1, 5, '"not an md5"')]) is None
    assert multipart_etag([Part(1, 5, '"abcd"')]) is None
