"""How often each request to S3 is sent, when again, and how many at a time."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from s3_errors import error_body

from resilient_pq.errors import ThrottledError, TransientError
from resilient_pq.io import ObjectInfo, Part, RetryPolicy, S3Store

ATTEMPTS = 3
QUICK = RetryPolicy(attempts=ATTEMPTS, base_delay=0.001, max_delay=0.01)
BYTES = bytes(range(256))


#: Each verb, how it is asked for, and by which requests a server knows it. `a` is an object, `b` an upload.
VERBS: dict[str, tuple[Callable[[S3Store, str, str, str], Awaitable[Any]], str, str]] = {
    "put": (lambda store, at, upload, etag: store.put(f"{at}/new", BYTES), "PUT", "/new"),
    "put if new": (
        lambda store, at, upload, etag: store.put(f"{at}/new", BYTES, if_none_match=True),
        "PUT",
        "/new",
    ),
    "put nothing": (lambda store, at, upload, etag: store.put(f"{at}/new", b""), "PUT", "/new"),
    "head": (lambda store, at, upload, etag: store.head(f"{at}/a"), "HEAD", "/a"),
    "tail": (lambda store, at, upload, etag: store.read_tail(f"{at}/a", 10), "GET", "/a"),
    "range": (
        lambda store, at, upload, etag: store.read_range(f"{at}/a", 0, 9, pin=ObjectInfo(f"{at}/a", 256, etag)),
        "GET",
        "/a",
    ),
    "delete": (lambda store, at, upload, etag: store.delete(f"{at}/a"), "DELETE", "/a"),
    "names": (lambda store, at, upload, etag: store.list_names(at), "GET", "list-type=2"),
    "create": (lambda store, at, upload, etag: store.create_upload(f"{at}/new"), "POST", "?uploads"),
    "part": (lambda store, at, upload, etag: store.put_part(f"{at}/b", upload, 1, BYTES), "PUT", "/b?"),
    "copy": (
        lambda store, at, upload, etag: store.copy_part(f"{at}/b", upload, 1, f"{at}/a", 0, 9, etag),
        "PUT",
        "/b?",
    ),
    "parts": (lambda store, at, upload, etag: store.list_parts(f"{at}/b", upload), "GET", "/b?"),
    "uploads": (lambda store, at, upload, etag: store.list_uploads(f"{at}/"), "GET", "?uploads"),
    "complete": (
        lambda store, at, upload, etag: store.complete_upload(f"{at}/b", upload, [Part(1, 256, etag)]),
        "POST",
        "/b?",
    ),
    "complete if it is that version": (
        lambda store, at, upload, etag: store.complete_upload(f"{at}/a", upload, [Part(1, 256, etag)], if_match=etag),
        "POST",
        "/a?",
    ),
    "abort": (lambda store, at, upload, etag: store.abort_upload(f"{at}/b", upload), "DELETE", "/b?"),
}


@pytest.mark.parametrize("fault", [{"status": 500}, {"reset": True}], ids=["500", "reset"])
async def test_attempts_never_multiply(moto_proxy: Any, fault: dict[str, Any]) -> None:
    """Neither s3fs nor botocore nor aiohttp tries again below us: the server sees exactly our attempts."""
    s3, proxy = moto_proxy
    sent: dict[str, int] = {}
    async with S3Store(s3.storage_options, retry=QUICK) as store:
        for verb, (act, method, match) in VERBS.items():
            at = f"{s3.bucket}/{uuid.uuid4().hex}"
            info = await store.put(f"{at}/a", BYTES)
            upload_id = await store.create_upload(f"{at}/b")
            proxy.requests.clear()
            proxy.on(method, match=match, times=1000, **fault)
            with pytest.raises(TransientError) as caught:
                await act(store, at, upload_id, str(info.etag))
            proxy.mend()
            sent[verb] = proxy.count(method, match)
            assert caught.value.__notes__[0].startswith(f"gave up after {ATTEMPTS} attempts")
            assert s3.bucket in str(caught.value)
    assert sent == dict.fromkeys(VERBS, ATTEMPTS)


@pytest.mark.parametrize("status", [503, 429])
async def test_a_store_that_throttles(moto_proxy: Any, status: int) -> None:
    s3, proxy = moto_proxy
    proxy.on("GET", times=1000, status=status)
    async with S3Store(s3.storage_options, retry=QUICK) as store:
        with pytest.raises(ThrottledError):
            await store.read_tail(f"{s3.bucket}/a", 10)
    assert proxy.count("GET") == ATTEMPTS


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (429, "TooManyRequests"), (503, "")])
async def test_the_wish_of_the_server_is_kept(
    moto_proxy: Any, caplog: pytest.LogCaptureFixture, status: int, code: str
) -> None:
    """Through botocore and s3fs the header arrives, and the wait is what it says."""
    s3, proxy = moto_proxy
    caplog.set_level(logging.DEBUG, "resilient_pq.io")
    body = error_body(code) if code else b""
    proxy.on("PUT", status=status, headers={"Retry-After": "0.25"}, body=body)
    async with S3Store(s3.storage_options, retry=QUICK) as store:
        await store.put(f"{s3.bucket}/wish", BYTES)
        assert "again in 0.25 s" in caplog.text
        proxy.requests.clear()
        proxy.on("PUT", status=status, headers={"Retry-After": "1000"}, body=body)
        with pytest.raises(ThrottledError) as caught:
            await store.put(f"{s3.bucket}/wish", BYTES)
    assert caught.value.retry_after == 1000
    assert proxy.count("PUT") == 1, "the wish goes beyond the deadline"


async def test_fewer_requests_are_sent_to_a_store_that_throttles(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    options = {**s3.storage_options, "config_kwargs": {"max_pool_connections": 8}}
    async with S3Store(options, retry=QUICK) as store:
        await store.put(f"{s3.bucket}/slow", BYTES)
        assert store._client.connection.limiter.limit == 8
        proxy.on("HEAD", times=2, status=503)
        await store.head(f"{s3.bucket}/slow")
        assert store._client.connection.limiter.limit == 2
        for _ in range(6):
            await store.head(f"{s3.bucket}/slow")
        assert store._client.connection.limiter.limit == 4, "what goes well raises it again"


@pytest.mark.thorough
async def test_what_hangs_is_given_up_and_asked_again(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    options = {**s3.storage_options, "config_kwargs": {"read_timeout": 1.5}}
    async with S3Store(options, retry=QUICK) as store:
        upload_id = await store.create_upload(f"{s3.bucket}/hung")
        for method, match in (("PUT", "partNumber"), ("GET", "uploadId"), ("POST", "uploadId")):
            proxy.on(method, match=match, hang=True)
        part = await store.put_part(f"{s3.bucket}/hung", upload_id, 1, BYTES)
        assert len(await store.list_parts(f"{s3.bucket}/hung", upload_id)) == 1
        await store.complete_upload(f"{s3.bucket}/hung", upload_id, [part])
    assert s3.read("hung") == BYTES
    # Before the part is sent again the store is asked for it: once it hangs, then it says five times that it has none.
    assert [proxy.count(method, "uploadId") for method in ("PUT", "GET", "POST")] == [2, 7, 2]


async def test_patience_without_end(moto_proxy: Any) -> None:
    """botocore takes no `read_timeout` for a wait without end."""
    s3, _ = moto_proxy
    options = {**s3.storage_options, "config_kwargs": {"read_timeout": None}}
    async with S3Store(options, retry=QUICK) as store:
        await store.put(f"{s3.bucket}/patient", BYTES)
    assert s3.read("patient") == BYTES


async def test_a_listing_that_is_cut_is_asked_for_again(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    async with S3Store(s3.storage_options, retry=QUICK) as store:
        upload_id = await store.create_upload(f"{s3.bucket}/cut")
        await asyncio.gather(*(store.put_part(f"{s3.bucket}/cut", upload_id, number, BYTES) for number in (1, 2)))
        proxy.on("GET", match="uploadId", cut_after=200)
        assert len(await store.list_parts(f"{s3.bucket}/cut", upload_id)) == 2
        await store.abort_upload(f"{s3.bucket}/cut", upload_id)
    assert proxy.count("GET", "uploadId") == 2
