"""The line that the log has for every request: what it says, and what it never says."""

from __future__ import annotations

import logging
import re
from typing import Any

import fsspec
import obstore.store
import pytest

from resilient_pq.errors import NotFoundError, StoreError, TransientError
from resilient_pq.io import FsspecStore, HttpStore, ObstoreStore, RetryPolicy, S3Store
from resilient_pq.io.location import shown
from resilient_pq.io.transfer.request_log import RequestLine
from resilient_pq.units import MiB

QUICK = RetryPolicy(attempts=3, base_delay=0.001, max_delay=0.01)
DATA = bytes(range(256)) * 400


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """The lines so far, their milliseconds as ``T ms``."""
    caplog.set_level(logging.DEBUG, "resilient_pq.io.requests")

    def found() -> list[str]:
        records = [record for record in caplog.records if record.name == "resilient_pq.io.requests"]
        caplog.clear()
        return [re.sub(r"\d+\.\d ms", "T ms", record.getMessage()) for record in records]

    return found


async def test_reads_of_a_web_server(site: Any, lines: Any) -> None:
    async with HttpStore(retry=QUICK) as store:
        info = (await store.read_tail(site.url, 1000)).info
        await store.head(site.url)
        site.statuses, site.cut_to = [503], [7]
        await store.read_range(site.url, 5, 105, pin=info)
        site.etag = '"v2"'
        with pytest.raises(StoreError):
            await store.read_range(site.url, 5, 105, pin=info)
    told = [line.removeprefix("GET ").removeprefix(site.url).strip() for line in lines()]
    assert told[:2] == ["bytes=-1000 206 1000 bytes T ms attempt 1", f"HEAD {site.url} - 200 0 bytes T ms attempt 1"]
    assert told[2].startswith("bytes=5-104 503 0 bytes T ms attempt 1 GET: the web server said 503")
    assert told[3].startswith("bytes=5-104 206 7 bytes T ms attempt 2 the body broke off")
    assert told[4] == "bytes=12-104 206 93 bytes T ms attempt 3"
    assert told[5].startswith("bytes=5-104 412 0 bytes T ms attempt 1 the file was replaced")
    assert len(told) == 6


async def test_the_end_of_an_empty_object_of_obstore(lines: Any) -> None:
    async with ObstoreStore(obstore.store.MemoryStore()) as store:
        await store.put("a", b"")
        lines()
        assert (await store.read_tail("a", 10)).info.size == 0
    assert lines() == ["GET obstore MemoryStore:a bytes=-10 200 0 bytes T ms attempt 1"]


async def test_what_is_asked_of_s3(moto_proxy: Any, lines: Any) -> None:
    s3, proxy = moto_proxy
    key = f"{s3.bucket}/logged"
    async with S3Store(s3.storage_options, retry=QUICK) as store:
        info = await store.put(key, DATA)
        proxy.on("GET", status=500)
        await store.read_range(key, 5, 105, pin=info)
        with pytest.raises(NotFoundError):
            await store.head(f"{s3.bucket}/none")
        upload_id = await store.create_upload(key)
        await store.put_part(key, upload_id, 1, bytes(MiB))
        await store.abort_upload(key, upload_id)
        await store.list_names(f"{s3.bucket}/nowhere")
    told = [re.sub(r"(attempt \d) .+", r"\1 WHY", line) for line in lines()]
    assert told == [
        f"put_object s3://{key} - 200 {len(DATA)} bytes T ms attempt 1",
        f"GET s3://{key} bytes=5-104 500 0 bytes T ms attempt 1 WHY",
        f"GET s3://{key} bytes=5-104 206 100 bytes T ms attempt 2",
        f"head_object s3://{s3.bucket}/none - 404 0 bytes T ms attempt 1 WHY",
        f"create_multipart_upload s3://{key} - 200 0 bytes T ms attempt 1",
        f"upload_part s3://{key} - 200 {MiB} bytes T ms attempt 1",
        f"abort_multipart_upload s3://{key} - 204 0 bytes T ms attempt 1",
        f"list_objects_v2 s3://{s3.bucket}/nowhere - 200 0 bytes T ms attempt 1",
    ]


async def test_a_request_without_an_answer_and_one_beside_it(moto_proxy: Any, lines: Any) -> None:
    s3, proxy = moto_proxy
    key = f"{s3.bucket}/stalls"
    async with S3Store(s3.storage_options, retry=RetryPolicy(attempts=1, hedge_after=0.05)) as store:
        info = await store.put(key, DATA)
        lines()
        proxy.on("GET", hang=True)
        await store.read_range(key, 5, 105, pin=info)
    assert sorted(lines()) == [
        f"GET s3://{key} bytes=5-104 - 0 bytes T ms attempt 1 CancelledError",
        f"GET s3://{key} bytes=5-104 206 100 bytes T ms hedge",
    ]


async def test_calls_of_a_file_system(lines: Any) -> None:
    memory = fsspec.filesystem("memory", skip_instance_cache=True)
    async with FsspecStore(memory, prefix="memory://user:se4ret@host") as store:
        info = await store.put("/logged/a", DATA)
        lines()
        await store.read_range("/logged/a", 5, 105, pin=info)
        with pytest.raises(NotFoundError):
            await store.head("/logged/none")
    assert lines() == [
        "cat_file memory://host/logged/a bytes=5-104 - 100 bytes T ms attempt 1",
        "info memory://host/logged/a - - 0 bytes T ms attempt 1",
        "info memory://host/logged/none - - 0 bytes T ms attempt 1 FileNotFoundError",
    ]


async def test_no_secret_is_told(site: Any, moto_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "resilient_pq")
    url = f"{site.url}?X-Amz-Signature=se4ret&token=se4ret"
    options = {"headers": {"Authorization": "Bearer se4ret"}}
    async with HttpStore(options, retry=QUICK) as store:
        site.suffixes = "whole"
        await store.read_tail(url, 10)
        site.statuses = [500, 401, 401]
        with pytest.raises(StoreError):
            await store.read_tail(url, 10)
    async with S3Store(moto_server.storage_options, retry=QUICK) as s3:
        await s3.put(f"{moto_server.bucket}/secret", DATA)
        await s3.read_tail(f"{moto_server.bucket}/secret", 10)
    assert shown(url) in caplog.text
    for secret in ("se4ret", moto_server.secret, moto_server.key, "Signature"):
        assert secret not in caplog.text


def test_urls_in_the_messages_of_libraries(lines: Any) -> None:
    error = TransientError("GET: 400, message='no brotli', url='http://me:se4ret@host/a?sig=se4ret'")
    RequestLine("GET", "http://host/a").end(None, 0, error)
    assert lines() == [
        "GET http://host/a - - 0 bytes T ms attempt 1 GET: 400, message='no brotli', url='http://host/a?~d0b594ae'"
    ]
