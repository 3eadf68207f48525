"""What is particular to stores of obstore's; the rest is in the contract."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore.store
import pytest

import resilient_pq as rpq
from resilient_pq.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    NotFoundError,
    StoreError,
    ThrottledError,
    TransientError,
    UnsupportedError,
)
from resilient_pq.io import FetchCounters, ObstoreStore, RetryPolicy, SinkOptions, counting, obstore_store

DATA = bytes(range(256)) * 400
ATTEMPTS = 3
QUICK = RetryPolicy(attempts=ATTEMPTS, base_delay=0.001, max_delay=0.01)


def s3_of(s3: Any, **options: Any) -> obstore.store.S3Store:
    return obstore.store.S3Store(
        s3.bucket,
        endpoint=s3.endpoint_url,
        access_key_id=s3.key,
        secret_access_key=s3.secret,
        region=s3.region,
        client_options={"allow_http": True},
        **options,
    )


async def test_opening_is_one_request_and_reads_are_pinned(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="o", Body=DATA)
    async with ObstoreStore(s3_of(s3)) as store:
        tail = await store.read_tail("o", 1000)
        assert (bytes(tail.data), tail.info.size) == (DATA[-1000:], len(DATA))
        assert bytes(await store.read_range("o", 10, 300, pin=tail.info)) == DATA[10:300]
    first, second = (request.headers for request in proxy.requests)
    assert first["range"] == "bytes=-1000"
    assert (second["range"], second["if-match"]) == ("bytes=10-299", tail.info.etag)


VERBS: dict[str, tuple[Callable[[ObstoreStore, Any], Any], str]] = {
    "tail": (lambda store, info: store.read_tail("o", 10), "GET"),
    "range": (lambda store, info: store.read_range("o", 0, 9, pin=info), "GET"),
    "head": (lambda store, info: store.head("o"), "HEAD"),
    "put": (lambda store, info: store.put("o", DATA), "PUT"),
    "names": (lambda store, info: store.list_names(""), "GET"),
}


@pytest.mark.parametrize(
    ("fault", "error"),
    [({"status": 500}, TransientError), ({"status": 503}, ThrottledError), ({"reset": True}, TransientError)],
)
async def test_attempts_never_multiply(moto_proxy: Any, fault: dict[str, Any], error: type[Exception]) -> None:
    """obstore tries nothing again below us."""
    s3, proxy = moto_proxy
    sent: dict[str, int] = {}
    async with ObstoreStore(s3_of(s3), retry=QUICK) as store:
        info = await store.put("o", DATA)
        for verb, (act, method) in VERBS.items():
            proxy.requests.clear()
            proxy.on(method, times=1000, **fault)
            with pytest.raises(error):
                await act(store, info)
            proxy.mend()
            sent[verb] = len(proxy.requests)
    assert sent == dict.fromkeys(VERBS, ATTEMPTS)


async def test_retries_that_its_maker_asked_for_are_left(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    proxy.on("HEAD", times=1000, status=500)
    async with ObstoreStore(s3_of(s3, retry_config={"max_retries": 1}), retry=RetryPolicy(attempts=1)) as store:
        with pytest.raises(TransientError):
            await store.head("o")
    assert proxy.count("HEAD") == 2


@pytest.mark.parametrize(("status", "error"), [(404, NotFoundError), (403, AccessDeniedError), (400, StoreError)])
async def test_definite_answers_are_final(moto_proxy: Any, status: int, error: type[StoreError]) -> None:
    s3, proxy = moto_proxy
    proxy.on("GET", times=1000, status=status)
    async with ObstoreStore(s3_of(s3), prefix=f"s3://{s3.bucket}/", retry=QUICK) as store:
        with pytest.raises(error) as caught:
            await store.read_tail("o", 10)
    assert caught.value.where.key == f"s3://{s3.bucket}/o"
    assert "Debug source" not in str(caught.value)
    assert proxy.count("GET") == 1


async def test_a_body_cut_short(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    async with ObstoreStore(s3_of(s3), retry=QUICK) as store:
        info = await store.put("o", DATA)
        proxy.on("GET", cut_after=50_000)
        with counting(FetchCounters()) as counters:
            assert bytes(await store.read_range("o", 5, len(DATA), pin=info)) == DATA[5:]
    assert counters.retries == 1


async def test_an_exclusive_put_is_sent_once(moto_proxy: Any) -> None:
    """The answer is lost: sent again, it would be refused because of its own success."""
    s3, proxy = moto_proxy
    async with ObstoreStore(s3_of(s3), retry=QUICK) as store:
        proxy.on("PUT", lose_reply=True)
        with pytest.raises(TransientError):
            await store.put("once", DATA, if_none_match=True)
        assert proxy.count("PUT") == 1
        with pytest.raises(AlreadyExistsError):
            await store.put("once", DATA, if_none_match=True)


async def test_a_large_object_goes_in_parts(moto_proxy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resilient_pq.io.obstore_store._SINGLE_PUT", 1000)
    s3, proxy = moto_proxy
    async with ObstoreStore(s3_of(s3), retry=QUICK) as store:
        sink = await store.create("large", SinkOptions(mode="x"))
        await sink.write(DATA)
        assert (await sink.complete()).size == len(DATA)
        assert proxy.count("PUT", "partNumber=1") == 1
        with pytest.raises(AlreadyExistsError):
            await store.create("large", SinkOptions(mode="x"))
        assert bytes((await store.read_tail("large", 10)).data) == DATA[-10:]


async def test_a_server_that_answers_200_to_ranges(rclone_s3: Any) -> None:
    """It is obstore that refuses: the error says so, and what to do."""
    rclone_s3.client.put_object(Bucket=rclone_s3.bucket, Key="o", Body=DATA)
    async with ObstoreStore(s3_of(rclone_s3), retry=QUICK) as store:
        with pytest.raises(UnsupportedError, match="200 to a range") as caught:
            await store.read_tail("o", 10)
    assert "s3://" in str(caught.value)


def test_a_store_without_suffix_ranges() -> None:
    azure = obstore.store.AzureStore("container", account_name="a", account_key="YWJj")
    assert not ObstoreStore(azure).capabilities.suffix_range
    assert ObstoreStore(obstore.store.MemoryStore()).capabilities.suffix_range


async def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    async with ObstoreStore(obstore.store.LocalStore(tmp_path)) as store:
        async with rpq.create((store, "a/b.parquet")) as writer:
            await writer.write({"a": [1, 2, 3]})
        async with rpq.open((store, "a/b.parquet")) as file:
            assert (await file.read()).num_rows == 3
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["b.parquet"]


def test_a_short_script_ends_well(tmp_path: Path) -> None:
    """Threads of obstore's that still hand over results when the interpreter ends would abort it."""
    script = """
import asyncio, sys, obstore.store
from resilient_pq.io import ObstoreStore
async def main():
    async with ObstoreStore(obstore.store.LocalStore(sys.argv[1])) as store:
        await store.put("a", b"data")
        await store.read_tail("a", 2)
asyncio.run(main())
"""
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == 0


async def test_a_listing_goes_on_behind_what_it_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that fails is asked for again, behind the last name that came."""
    asked: list[str | None] = []

    async def pages(_: object, __: object, *, offset: str | None = None, chunk_size: int = 0) -> Any:
        asked.append(offset)
        names = [name for name in "abcd" if offset is None or name > offset]
        for at in range(0, len(names), 2):
            if len(asked) == 1 and at == 2:
                raise OSError("HTTP error: 500 Internal Server Error, reqwest::Error")
            yield [{"path": name, "size": 1, "e_tag": f"e{name}"} for name in names[at : at + 2]]

    monkeypatch.setattr(obstore_store.obstore, "list", pages)
    monkeypatch.setattr(ObstoreStore, "_store_error", lambda *_: TransientError("once"))
    async with ObstoreStore(obstore.store.MemoryStore(), retry=QUICK) as store:
        assert await store.list_names("") == ["a", "b", "c", "d"]
    assert asked == [None, "b"]
