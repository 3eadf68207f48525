"""From URLs and paths to stores."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest

from resilient_pq.errors import StoreError, UnsupportedError
from resilient_pq.io import (
    FsspecStore,
    HttpStore,
    LocalStore,
    MultipartStore,
    ReadStore,
    S3Store,
    WriteStore,
    resolve,
)


@pytest.mark.parametrize(
    ("url", "kind", "key"),
    [
        ("a.parquet", LocalStore, "a.parquet"),
        ("/data/a b.parquet", LocalStore, "/data/a b.parquet"),
        ("./a:b", LocalStore, "./a:b"),
        ("C:\\data\\a.parquet", LocalStore, "C:\\data\\a.parquet"),
        (Path("/data/a"), LocalStore, "/data/a"),
        (Path("s3://not-a-url"), LocalStore, "s3:/not-a-url"),
        ("file:///data/a%20b", LocalStore, "/data/a%20b"),
        ("s3://bucket/a/b c?d#e%20", S3Store, "bucket/a/b c?d#e%20"),
        ("s3a://bucket/a", S3Store, "bucket/a"),
        ("S3://bucket/a", S3Store, "bucket/a"),
        ("http://host/a?b=c", HttpStore, "http://host/a?b=c"),
        ("https://host/a", HttpStore, "https://host/a"),
        ("memory://folder/a", FsspecStore, "/folder/a"),
    ],
)
async def test_urls(url: Any, kind: type, key: str) -> None:
    store, found = resolve(url)
    async with store:
        assert type(store) is kind
        assert found == key
        assert isinstance(store, ReadStore)
        assert isinstance(store, WriteStore)
        assert isinstance(store, MultipartStore) == (kind is S3Store)


async def test_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert resolve("~/a")[1] == "/home/somebody/a"


async def test_urls_lead_back(tmp_path: Path) -> None:
    for url in ("s3://bucket/a b", "http://host/a", "memory://folder/a", str(tmp_path / "a")):
        store, key = resolve(url)
        async with store:
            assert store.url_of(key) == url


async def test_memory_is_the_one_that_pandas_sees() -> None:
    store, key = resolve("memory://resolve/a")
    await store.put(key, b"shared")
    with fsspec.open("memory://resolve/a", "rb") as file:
        assert file.read() == b"shared"


async def test_options_reach_s3(moto_server: Any) -> None:
    store, key = resolve(f"s3://{moto_server.bucket}/resolved", moto_server.storage_options)
    async with store:
        await store.put(key, b"found")
    assert moto_server.read("resolved") == b"found"


async def test_local_files_ignore_options(tmp_path: Path) -> None:
    store, key = resolve(tmp_path / "a", {"key": "for another store"})
    await store.put(key, b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("", StoreError, "empty path"),
        ("s3://", StoreError, "names no object"),
        ("s3://bucket", StoreError, "names no object"),
        ("s3:///name", StoreError, "names no object"),
        ("nonsense://a", UnsupportedError, "nonsense"),
        ("simplecache::nonsense://a", UnsupportedError, "nonsense"),
    ],
)
def test_urls_that_lead_nowhere(url: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        resolve(url)


def test_a_scheme_whose_package_is_missing() -> None:
    with pytest.raises(UnsupportedError, match=r"(?i)install") as caught:
        resolve("abfs://container/a")
    assert "adlfs" in str(caught.value)


def test_clients_are_imported_only_when_they_are_needed() -> None:
    script = (
        "import sys, resilient_pq.io as io; io.resolve('a.parquet'); io.S3Store, io.HttpStore; "
        "io.resolve('s3://bucket/a', {'key': 'k', 'region': 'r', 'client_kwargs': {}}); io.resolve('http://host/a'); "
        "print([name for name in ('s3fs', 'botocore', 'aiohttp', 'fsspec') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_a_name_that_is_not_there() -> None:
    import resilient_pq.io

    with pytest.raises(AttributeError, match="NoSuchStore"):
        _ = resilient_pq.io.NoSuchStore
    assert all(hasattr(resilient_pq.io, name) for name in resilient_pq.io.__all__)
