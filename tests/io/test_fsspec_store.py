"""File systems of fsspec: what they raise, how they publish, and the sessions they bring."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import fsspec
import pytest
import s3fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from resilient_pq.errors import (
    AccessDeniedError,
    NotFoundError,
    ObjectChangedError,
    StoreError,
    TransientError,
    UnsupportedError,
)
from resilient_pq.io import FsspecStore, RetryPolicy, StoredState, resolve
from resilient_pq.io.transfer.retry import NO_RETRIES


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where spool files go: nothing may be left in it that was not kept."""
    folder = tmp_path / "spool"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def memory() -> MemoryFileSystem:
    found = fsspec.filesystem("memory", skip_instance_cache=True)
    found.store.clear()
    return found


class Failing(MemoryFileSystem):
    """Raises what it is told to, in place of one method."""

    cachable = False
    protocol = "failing"

    def __init__(self, method: str, error: Exception) -> None:
        super().__init__()
        self.store = {}

        def fail(*_: Any, **__: Any) -> None:
            raise error

        setattr(self, method, fail)


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (FileNotFoundError("x"), NotFoundError),
        (PermissionError("x"), AccessDeniedError),
        (TimeoutError(), TransientError),
        (ConnectionResetError("x"), TransientError),
        (NotImplementedError("x"), UnsupportedError),
        (OSError("x"), StoreError),
        (RuntimeError("the vendor's own"), StoreError),
    ],
)
async def test_what_file_systems_raise(raised: Exception, error: type[Exception]) -> None:
    store = FsspecStore(Failing("info", raised), retry=NO_RETRIES)
    with pytest.raises(error) as caught:
        await store.head("/a")
    assert type(caught.value) is error
    assert "/a" in str(caught.value)
    assert type(caught.value.__cause__) is type(raised)


class Vendor(Exception):  # noqa: N818
    """What a vendor's library raises, whatever went wrong."""


@pytest.mark.parametrize("raised", [Vendor, FileNotFoundError])
@pytest.mark.parametrize("method", ["info", "cat_file", "find", "put_file", "rm_file"])
async def test_a_server_that_cannot_be_reached_for_a_while(
    raised: type[Exception], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a driver calls a connection that failed something else."""

    filesystem = fsspec.filesystem("memory", skip_instance_cache=True)
    filesystem.store.clear()
    filesystem.pipe_file("/a", b"0123456789")
    whole, failures = getattr(filesystem, method), [ConnectionRefusedError(), ConnectionResetError(), TimeoutError()]

    def failing(*args: Any, **options: Any) -> Any:
        if failures:
            raise raised("no") from failures.pop()
        return whole(*args, **options)

    monkeypatch.setattr(filesystem, method, failing)
    store = FsspecStore(filesystem, retry=RetryPolicy(base_delay=0.001))
    assert bytes((await store.read_tail("/a", 5)).data) == b"56789"
    await store.list_names("/")
    await store.put("/b", b"new")
    await store.delete("/a")
    assert filesystem.find("/") == ["/b"]
    assert not failures


async def test_a_file_that_changes_while_it_is_read(memory: MemoryFileSystem) -> None:
    class Changing(FsspecStore):
        async def _call(self, method: str, *args: Any, **options: Any) -> Any:
            found = await super()._call(method, *args, **options)
            if method == "cat_file":
                memory.pipe_file("/a", b"another content")
            return found

    memory.pipe_file("/a", b"0123456789")
    with pytest.raises(ObjectChangedError):
        await Changing(memory).read_tail("/a", 5)


async def test_a_file_system_that_reads_short(memory: MemoryFileSystem) -> None:
    memory.pipe_file("/a", b"0123456789")
    memory.cat_file = lambda *_, **__: b"012"  # type: ignore[method-assign]
    with pytest.raises(TransientError, match="3 bytes came for a range of 5"):
        await FsspecStore(memory).read_tail("/a", 5)


async def test_folders_and_unknown_sizes(memory: MemoryFileSystem) -> None:
    memory.pipe_file("/folder/a", b"x")
    with pytest.raises(StoreError, match="folder"):
        await FsspecStore(memory).head("/folder")
    memory.info = lambda path: {"name": path, "size": None, "type": "file"}  # type: ignore[method-assign]
    with pytest.raises(UnsupportedError, match="how large"):
        await FsspecStore(memory).head("/a")


async def test_nothing_is_sent_before_it_is_complete(memory: MemoryFileSystem, temporary_folder: Path) -> None:
    sink = await FsspecStore(memory).create("/a.parquet")
    await sink.write(b"0123")
    await sink.write(b"456789")
    assert await sink.commit() is StoredState.ACCEPTED
    assert memory.store == {}
    (spool,) = temporary_folder.iterdir()
    assert sink.describe() == str(spool)
    assert spool.name.startswith("a.parquet.")
    assert spool.read_bytes() == b"0123456789"
    await sink.complete()
    assert memory.cat_file("/a.parquet") == b"0123456789"
    assert list(temporary_folder.iterdir()) == []


async def test_an_upload_that_fails_can_be_kept(temporary_folder: Path) -> None:
    store = FsspecStore(Failing("put_file", RuntimeError("no more quota")))
    sink = await store.create("/a")
    await sink.write(b"0123456789")
    with pytest.raises(StoreError, match="no more quota"):
        await sink.complete()
    await sink.keep()
    assert Path(sink.describe()).read_bytes() == b"0123456789"


async def test_files_get_their_name_when_they_are_whole(tmp_path: Path) -> None:
    """An interrupted upload to a server of files leaves ``NAME.partial``, never half a NAME."""

    class Interrupted(LocalFileSystem):
        cachable = False

        def put_file(self, lpath: str, rpath: str, *_: Any, **__: Any) -> None:
            with open(rpath, "wb") as file:
                file.write(b"half")
            raise ConnectionResetError("gone")

    (tmp_path / "a").write_bytes(b"before")
    sink = await FsspecStore(Interrupted(), retry=NO_RETRIES).create(f"{tmp_path}/a")
    await sink.write(b"whole content")
    with pytest.raises(TransientError):
        await sink.complete()
    await sink.abort()
    assert (tmp_path / "a").read_bytes() == b"before"


async def test_s3fs_is_opened_and_closed_in_this_loop(moto_server: Any) -> None:
    filesystem = s3fs.S3FileSystem(
        asynchronous=True, skip_instance_cache=True, use_listings_cache=False, **moto_server.storage_options
    )
    key = f"{moto_server.bucket}/over-s3fs"
    async with FsspecStore(filesystem) as store:
        sink = await store.create(key)
        await sink.write(b"0123456789")
        info = await sink.complete()
        assert bytes(await store.read_range(key, 2, 5, pin=info)) == b"234"
        moto_server.client.put_object(Bucket=moto_server.bucket, Key="over-s3fs", Body=b"9876543210")
        with pytest.raises(ObjectChangedError):
            await store.read_range(key, 2, 5, pin=info)
        with pytest.raises(NotFoundError):
            await store.head(f"{moto_server.bucket}/none")
        assert store.name == "fsspec s3"
    assert filesystem._s3._endpoint.http_session._sessions is None, "closed"


async def test_a_file_system_whose_methods_are_coroutines_by_its_url(
    moto_server: Any,
) -> None:
    class Like(s3fs.S3FileSystem):  # type: ignore[misc]
        protocol = ("rpqlike",)

    fsspec.register_implementation("rpqlike", Like, clobber=True)
    options = {**moto_server.storage_options, "use_listings_cache": False}
    url = f"rpqlike://{moto_server.bucket}/by-url"
    store, key = resolve(url, options)
    async with store:
        assert type(store) is FsspecStore
        assert store.url_of(key) == url
        await store.put(key, b"awaited")
        await store.delete(key)
        await store.delete(key)
        with pytest.raises(NotFoundError):
            await store.head(key)


def test_options_that_a_file_system_does_not_take() -> None:
    class Strict(MemoryFileSystem):
        protocol = "rpqstrict"

        def __init__(self) -> None:
            super().__init__()

    fsspec.register_implementation("rpqstrict", Strict, clobber=True)
    with pytest.raises(UnsupportedError, match="storage_options do not fit rpqstrict://a"):
        resolve("rpqstrict://a", {"no_such_option": 1})


@pytest.mark.parametrize("raised", [OSError("the vendor's reason"), RuntimeError("the vendor's reason")])
def test_a_file_system_that_cannot_connect_when_it_is_made(raised: Exception) -> None:
    class Unreachable(MemoryFileSystem):
        protocol = "rpqunreachable"

        def __init__(self) -> None:
            raise raised

    fsspec.register_implementation("rpqunreachable", Unreachable, clobber=True)
    with pytest.raises(StoreError, match=r"cannot connect: .*the vendor's reason") as caught:
        resolve("rpqunreachable://a")
    assert type(caught.value.__cause__) is type(raised)
    assert "rpqunreachable://a" in str(caught.value)


async def test_a_chain_over_s3(moto_server: Any, tmp_path: Path) -> None:
    options = {"s3": moto_server.storage_options, "simplecache": {"cache_storage": str(tmp_path / "cache")}}
    url = f"simplecache::s3://{moto_server.bucket}/chained"
    moto_server.client.put_object(Bucket=moto_server.bucket, Key="chained", Body=b"0123456789")
    store, key = resolve(url, options)
    async with store:
        tail = await store.read_tail(key, 4)
        assert (bytes(tail.data), tail.info.size) == (b"6789", 10)
        assert store.url_of(key) == url
    assert len(os.listdir(tmp_path / "cache")) == 1
    store, key = resolve(f"simplecache::s3://{moto_server.bucket}/written", options)
    async with store:
        sink = await store.create(key)
        await sink.write(b"through the chain")
        await sink.complete()
    assert moto_server.read("written") == b"through the chain"
