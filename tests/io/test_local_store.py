"""Files: partial names, locks, what is stored and what a full disk leaves, and readers of growing files."""

# ruff: noqa: ASYNC220, ASYNC230 - files are looked at directly here, while nothing else runs

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from resilient_pq.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    NotFoundError,
    ObjectChangedError,
    StoreError,
    WriterClosedError,
)
from resilient_pq.io import ListedObject, LocalStore, SinkOptions, StoredState, names_of
from resilient_pq.io.partial_file import PartialFile, make_folders

OVERWRITE = SinkOptions(overwrite_partial=True)


@pytest.fixture
def store() -> LocalStore:
    return LocalStore()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "day.parquet")


def names(tmp_path: Path) -> list[str]:
    return sorted(os.listdir(tmp_path))


# --- the partial file


async def test_bytes_are_in_the_partial_file_until_it_is_complete(store: LocalStore, path: str, tmp_path: Path) -> None:
    sink = await store.create(path)
    await sink.write(b"PAR1", b"", b"data")
    assert names(tmp_path) == ["day.parquet.partial"]
    assert Path(path + ".partial").read_bytes() == b"PAR1data"
    assert sink.describe() == path + ".partial"
    assert await sink.commit() is StoredState.STORED
    await sink.complete()
    assert names(tmp_path) == ["day.parquet"]


async def test_kept_bytes_are_where_it_says(store: LocalStore, path: str, tmp_path: Path) -> None:
    sink = await store.create(path)
    await sink.write(b"data")
    await sink.keep()
    assert Path(sink.describe()).read_bytes() == b"data"
    assert names(tmp_path) == ["day.parquet.partial"]


async def test_a_left_over_partial_file_is_never_lost(store: LocalStore, path: str) -> None:
    sink = await store.create(path)
    await sink.write(b"data")
    await sink.keep()
    with pytest.raises(AlreadyExistsError) as caught:
        await store.create(path)
    hint = str(caught.value.hint)
    assert "rpq recover " in hint
    assert f"rpq recover {path}.partial" in hint
    assert "overwrite_partial=True" in hint
    assert Path(path + ".partial").read_bytes() == b"data"


async def test_a_left_over_partial_file_is_replaced_when_asked(store: LocalStore, path: str) -> None:
    Path(path + ".partial").write_bytes(b"left by somebody long dead")
    sink = await store.create(path, OVERWRITE)
    await sink.write(b"new")
    await sink.complete()
    assert Path(path).read_bytes() == b"new"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files cannot be counted here")
@pytest.mark.parametrize("size", [10, 32 << 20])
async def test_what_is_replaced_is_let_go_of(
    store: LocalStore, path: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a thread of its own where it is large: file systems take seconds to free many blocks."""

    def close(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == before:
            closed_by.append(threading.current_thread().name)
        close_it(descriptor)

    close_it, closed_by = os.close, list[str]()
    monkeypatch.setattr(os, "close", close)
    with open(path, "wb") as file:
        file.truncate(size)
    before = os.stat(path).st_ino
    sink = await store.create(path)
    await sink.write(b"new")
    await sink.complete()
    for thread in threading.enumerate():
        if thread.name == "free-replaced-file":
            thread.join()
    open_files = []
    for name in os.listdir("/proc/self/fd"):
        try:
            open_files.append(os.stat(f"/proc/self/fd/{name}").st_ino)
        except FileNotFoundError:
            continue
    assert before not in open_files
    assert [name == "free-replaced-file" for name in closed_by] == [size > 10]
    assert Path(path).read_bytes() == b"new"


async def test_a_folder_on_a_drive_that_is_not_there_is_not_looked_for_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of such a drive the root is missing as well, and is the folder above itself."""

    def isdir(_: object) -> bool:
        asked.append(None)
        assert len(asked) < 1000
        return False

    asked: list[None] = []
    monkeypatch.setattr(os.path, "isdir", isdir)
    make_folders(str(tmp_path / "a" / "b"))
    monkeypatch.undo()
    assert (tmp_path / "a" / "b").is_dir()


async def test_the_partial_file_of_a_living_writer_is_never_replaced(store: LocalStore, path: str) -> None:
    pytest.importorskip("fcntl")
    sink = await store.create(path)
    await sink.write(b"mine")
    for options in (OVERWRITE, SinkOptions()):
        with pytest.raises(AlreadyExistsError, match="another writer is writing") as caught:
            await store.create(path, options)
        assert "wait" in str(caught.value.hint)
    await sink.complete()
    assert Path(path).read_bytes() == b"mine"


async def test_the_lock_of_another_process_counts_and_ends_with_it(store: LocalStore, path: str) -> None:
    pytest.importorskip("fcntl")
    script = (
        "import sys, fcntl; f = open(sys.argv[1], 'wb'); f.write(b'x'); f.flush()\n"
        "fcntl.flock(f, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, path + ".partial"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(AlreadyExistsError, match="another writer is writing"):
            await store.create(path, OVERWRITE)
    finally:
        process.kill()
        process.communicate()
    sink = await store.create(path, OVERWRITE)
    await sink.abort()


async def test_a_sink_that_lost_its_file_does_not_remove_the_next_one(store: LocalStore, path: str) -> None:
    first = await store.create(path)
    os.unlink(path + ".partial")  # by hand
    second = await store.create(path)
    await second.write(b"second")
    await first.abort()
    await second.complete()
    assert Path(path).read_bytes() == b"second"


async def test_a_link_stays_a_link(store: LocalStore, path: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    real = tmp_path / "elsewhere" / "real.parquet"
    os.symlink(real, path)
    sink = await store.create(path)
    await sink.write(b"data")
    await sink.complete()
    assert os.path.islink(path)
    assert real.read_bytes() == b"data"
    await store.put(path, b"put")
    assert os.path.islink(path)
    assert real.read_bytes() == b"put"


async def test_a_file_system_without_locks(store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    sink = await store.create(path)
    await sink.write(b"data")
    await sink.complete()
    assert Path(path).read_bytes() == b"data"

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(StoreError, match="cannot create: Input/output error"):
        await store.create(path)


async def test_a_partial_file_taken_between_opening_and_locking(
    store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    real = fcntl.flock

    def slow(descriptor: int, operation: int) -> None:
        os.replace(path + ".other", path + ".partial")
        real(descriptor, operation)

    Path(path + ".other").write_bytes(b"of another writer")
    monkeypatch.setattr(fcntl, "flock", slow)
    with pytest.raises(AlreadyExistsError, match="another writer took this file"):
        await store.create(path)
    assert Path(path + ".partial").read_bytes() == b"of another writer"


async def test_a_system_that_writes_one_piece_at_a_time(
    store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.delattr(os, "writev")
    monkeypatch.setattr(os, "write", lambda descriptor, piece: real(descriptor, piece[:3]))
    sink = await store.create(path)
    await sink.write(b"0123456789", b"", b"abc")
    await sink.complete()
    monkeypatch.undo()
    assert Path(path).read_bytes() == b"0123456789abc"


async def test_a_file_system_whose_folders_are_not_synced(
    store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    sink = await store.create(path)
    await sink.complete()
    assert os.path.exists(path)


async def test_a_folder_that_is_a_file(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotFoundError, match="Not a directory"):
        await store.create(str(tmp_path / "file" / "a"))


# --- what an earlier writer left


async def left(store: LocalStore, path: str, data: bytes) -> None:
    sink = await store.create(path)
    await sink.write(data)
    await sink.keep()


async def test_reopened_where_it_was_cut(store: LocalStore, path: str, tmp_path: Path) -> None:
    await left(store, path, b"keep this, and not that")
    sink = await store.reopen(path)
    assert sink.position == sink.num_bytes_stored == 23
    await sink.truncate(9)
    assert sink.position == sink.num_bytes_stored == 9
    assert Path(path + ".partial").read_bytes() == b"keep this"
    await sink.write(b" too")
    info = await sink.complete()
    assert (Path(path).read_bytes(), info.size) == (b"keep this too", 13)
    assert names(tmp_path) == ["day.parquet"]


async def test_reopened_without_cutting_it_goes_on_at_the_end(store: LocalStore, path: str) -> None:
    await left(store, path, b"one")
    sink = await store.reopen(path)
    await sink.write(b"two")
    await sink.complete()
    assert Path(path).read_bytes() == b"onetwo"


async def test_cut_bytes_are_stored_before_the_next_are_written(
    store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await left(store, path, b"abcdef")
    sink = await store.reopen(path)
    stored: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISREG((status := os.fstat(descriptor)).st_mode):
            stored.append(status.st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    await sink.truncate(4)
    assert stored == [4]
    await sink.keep()


async def test_a_file_is_not_cut_longer(store: LocalStore, path: str) -> None:
    await left(store, path, b"abc")
    sink = await store.reopen(path)
    with pytest.raises(StoreError, match="shorter than 4 bytes"):
        await sink.truncate(4)
    await sink.keep()
    assert Path(path + ".partial").read_bytes() == b"abc"


async def test_nothing_to_reopen(store: LocalStore, path: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        await store.reopen(path)
    (tmp_path / "day.parquet.partial").mkdir()
    with pytest.raises(StoreError, match="folder"):
        await store.reopen(path)


async def test_a_living_writer_is_left_alone(store: LocalStore, path: str) -> None:
    sink = await store.create(path)
    await sink.write(b"mine")
    with pytest.raises(AlreadyExistsError, match="another writer is writing") as caught:
        await store.reopen(path)
    assert caught.value.hint is not None
    await sink.complete()
    assert Path(path).read_bytes() == b"mine"


async def test_reopened_for_a_name_that_is_taken(store: LocalStore, path: str) -> None:
    await left(store, path, b"new")
    Path(path).write_bytes(b"old")
    with pytest.raises(AlreadyExistsError):
        await store.reopen(path, SinkOptions(mode="x"))
    again = await store.reopen(path)  # the refusal let go of the lock
    await again.complete()
    assert Path(path).read_bytes() == b"new"


# --- publishing


async def test_mode_x_without_hard_links(
    store: LocalStore, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    exclusive = await store.create(path, SinkOptions(mode="x"))
    await exclusive.write(b"exclusive")
    await exclusive.complete()
    assert names(tmp_path) == ["day.parquet"]
    assert Path(path).read_bytes() == b"exclusive"
    file = PartialFile.create(path)
    with pytest.raises(AlreadyExistsError):
        file.publish(exclusive=True)
    file.discard()
    assert Path(path).read_bytes() == b"exclusive"


async def test_a_refused_publication_keeps_the_bytes(store: LocalStore, path: str) -> None:
    sink = await store.create(path, SinkOptions(mode="x"))
    await sink.write(b"ours")
    Path(path).write_bytes(b"theirs")
    with pytest.raises(AlreadyExistsError) as caught:
        await sink.complete()
    assert f"{path}.partial" in str(caught.value.hint)
    await sink.keep()
    assert Path(sink.describe()).read_bytes() == b"ours"


@pytest.mark.parametrize("commits", [0, 1, 2])
async def test_bytes_are_stored_before_the_name_that_is_told(
    store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """Without that order, a loss of power could leave a name and not the bytes, or bytes that have no name."""
    done: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        kind = "folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file"
        done.append(f"fsync {kind}")
        real_fsync(descriptor)

    def rename(source: str, target: str) -> None:
        done.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    sink = await store.create(path)
    for _ in range(commits):
        await sink.write(b"data")
        await sink.commit()
    await sink.complete()
    if sys.platform == "linux":
        committed = [["fsync file", "fsync folder"], ["fsync file"]][:commits]
        assert done == [*chain(*committed), "fsync file", "rename", "fsync folder"]


async def test_the_name_is_stored_where_the_file_is_and_not_where_the_process_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        stored.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with LocalStore() as store:
        sink = await store.create("day.parquet")
        await sink.write(b"data")
        monkeypatch.chdir(tmp_path / "elsewhere")
        monkeypatch.setattr(os, "fsync", fsync)
        assert await sink.commit() is StoredState.STORED
        await sink.keep()
    if sys.platform != "win32":
        assert stored[:2] == [(tmp_path / "day.parquet.partial").stat().st_ino, tmp_path.stat().st_ino]


async def test_a_folder_or_a_device_is_never_replaced(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="folder"):
        await store.create(str(tmp_path / "folder"))
    os.mkfifo(tmp_path / "pipe")
    for act in (store.create, store.head):
        with pytest.raises(StoreError, match="not a regular file"):
            await act(str(tmp_path / "pipe"))
    with pytest.raises(StoreError, match="not a regular file"):
        await store.put("/dev/null", b"")
    with pytest.raises(StoreError, match="folder"):
        await store.read_tail(str(tmp_path), 10)
    assert names(tmp_path) == ["folder", "pipe"]


# --- what goes wrong


async def test_a_missing_folder(store: LocalStore, tmp_path: Path) -> None:
    missing = tmp_path / "no" / "such"
    with pytest.raises(NotFoundError, match="no such folder") as caught:
        await store.create(str(missing / "a"))
    assert caught.value.hint == f"create it: mkdir -p {missing}"
    assert caught.value.where.key == str(missing)
    with pytest.raises(NotFoundError, match="no such folder") as caught:
        await store.create(f"{missing.parent}/")  # it is the folder itself that is missing, not the one around it
    assert caught.value.where.key == str(missing.parent)


async def test_a_path_that_may_not_be_written(store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def denied(name: Any, flags: int, *mode: int) -> int:
        if str(name).startswith(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real_open(name, flags, *mode)

    monkeypatch.setattr(os, "open", denied)
    for act in (store.create(path), store.put(path, b"")):
        with pytest.raises(AccessDeniedError, match="cannot create: Permission denied") as caught:
            await act
        assert "permissions" in str(caught.value.hint)


async def test_a_file_that_may_not_be_read(store: LocalStore, path: str) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    Path(path).write_bytes(b"secret")
    os.chmod(path, 0)
    with pytest.raises(AccessDeniedError):
        await store.read_tail(path, 10)


class FullDisk:
    """A disk with room for so many bytes more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self._writev = os.writev
        monkeypatch.setattr(os, "writev", self.writev)

    def writev(self, descriptor: int, pieces: list[memoryview]) -> int:
        data = b"".join(pieces)[: self.room]
        if not data:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(data)
        return self._writev(descriptor, [data])


async def test_a_full_disk(store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = await store.create(path)
    await sink.write(b"whole")
    assert await sink.commit() is StoredState.STORED
    assert sink.num_bytes_stored == 5
    FullDisk(monkeypatch, room=3)
    with pytest.raises(StoreError, match="No space left on device") as caught:
        await sink.write(b"too much")
    assert "free some space" in str(caught.value.hint)
    assert caught.value.where.key == path + ".partial"
    for act in (sink.write(b"again"), sink.commit(), sink.complete()):
        with pytest.raises(StoreError, match=r"an earlier write failed: .*No space left"):
            await act
    assert sink.num_bytes_stored == 5
    await sink.keep()
    assert Path(path + ".partial").read_bytes() == b"wholetoo"
    assert not os.path.exists(path)


async def test_a_put_on_a_full_disk_leaves_nothing(
    store: LocalStore, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(path, b"before")
    FullDisk(monkeypatch, room=3)
    with pytest.raises(StoreError, match="No space left on device"):
        await store.put(path, b"too much")
    assert names(tmp_path) == ["day.parquet"]
    assert Path(path).read_bytes() == b"before"


async def test_a_failing_fsync_is_final(store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = await store.create(path)
    await sink.write(b"data")

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StoreError, match="cannot store: Input/output error"):
        await sink.commit()
    monkeypatch.undo()
    with pytest.raises(StoreError, match="an earlier write failed"):
        await sink.complete()
    await sink.abort()


async def test_writes_that_the_system_takes_in_bits(
    store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda descriptor, pieces: real(descriptor, [b"".join(pieces)[:7]]))
    sink = await store.create(path)
    pieces = [bytes([n]) * n for n in range(60)]
    await sink.write(*pieces)
    await sink.complete()
    assert Path(path).read_bytes() == b"".join(pieces)


async def test_more_pieces_than_one_write_takes(store: LocalStore, path: str) -> None:
    sink = await store.create(path)
    await sink.write(*[b"ab"] * 5000)
    await sink.complete()
    assert Path(path).read_bytes() == b"ab" * 5000


# --- readers


async def test_a_growing_file_stays_the_pinned_version(store: LocalStore, path: str) -> None:
    sink = await store.create(path)
    await sink.write(b"0123456789")
    tail = await store.read_tail(path + ".partial", 4)
    assert bytes(tail.data) == b"6789"
    await sink.write(b"more")
    assert bytes(await store.read_range(path + ".partial", 0, 10, pin=tail.info)) == b"0123456789"
    await sink.abort()


async def test_a_file_changed_in_place_is_another_version(store: LocalStore, path: str) -> None:
    await store.put(path, b"0123456789")
    info = await store.head(path)
    changed = os.stat(path).st_mtime_ns + 1_000_000
    with open(path, "r+b") as file:
        file.write(b"x")
    os.utime(path, ns=(changed, changed))
    with pytest.raises(ObjectChangedError):
        await store.read_range(path, 0, 5, pin=info)


async def test_a_file_cut_in_place_is_another_version(store: LocalStore, path: str) -> None:
    await store.put(path, b"0123456789")
    info = await store.head(path)
    os.truncate(path, 5)
    with pytest.raises(ObjectChangedError):
        await store.read_range(path, 0, 5, pin=info)


async def test_a_file_cut_while_it_is_read(store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.put(path, b"0123456789")
    info = await store.head(path)
    monkeypatch.setattr("resilient_pq.io.local_store._Version.is_that_of", lambda *_: os.truncate(path, 5) is None)
    with pytest.raises(ObjectChangedError, match="shorter"):
        await store.read_range(path, 3, 8, pin=info)


# --- cancellation


async def test_a_cancelled_write_ends_before_its_file_is_closed(
    store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A descriptor closed under a thread that writes could by then be another file's."""
    begun, gate, real = threading.Event(), threading.Event(), os.writev

    def slow(descriptor: int, pieces: list[memoryview]) -> int:
        begun.set()
        gate.wait(10)
        return real(descriptor, pieces)

    sink = await store.create(path)
    monkeypatch.setattr(os, "writev", slow)

    async def write() -> None:
        try:
            await sink.write(b"data")
        except BaseException:
            await sink.keep()
            raise

    task = asyncio.create_task(write())
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert Path(path + ".partial").read_bytes() == b"data"


async def test_a_cancelled_create_leaves_no_partial_file(
    store: LocalStore, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate, real = threading.Event(), threading.Event(), os.ftruncate

    def slow(descriptor: int, size: int) -> None:
        begun.set()
        gate.wait(10)
        real(descriptor, size)

    monkeypatch.setattr(os, "ftruncate", slow)
    task = asyncio.create_task(store.create(path))
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert names(tmp_path) == []


async def test_a_sink_that_ended_says_so(store: LocalStore, path: str) -> None:
    sink = await store.create(path)
    await sink.abort()
    with pytest.raises(WriterClosedError):
        await sink.complete()


# --- listing


async def test_a_listing_follows_links_but_not_in_circles(store: LocalStore, tmp_path: Path) -> None:
    """What a link leads to belongs to the folder, also by two ways; a link back up does not."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b").touch()
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "a").touch()
    (tmp_path / "folder" / "one").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "folder" / "two").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "folder" / "deep" / "up").symlink_to(tmp_path / "folder")
    (tmp_path / "elsewhere" / "itself").symlink_to(tmp_path / "elsewhere")
    assert await store.list_names(str(tmp_path / "folder")) == ["a", "one/b", "two/b"]


async def test_a_listing_comes_in_pages_and_says_what_files_are(store: LocalStore, tmp_path: Path) -> None:
    for number in range(1_005):
        (tmp_path / f"{number:04}").write_bytes(b"1" * (number % 7))
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    async with aclosing(store.list_objects(str(tmp_path))) as listing:
        pages = [page async for page in listing]
    assert [len(page) for page in pages] == [1_000, 6]
    found = {each.name: each for page in pages for each in page}
    assert len(found) == 1_006
    assert (found["nowhere"].size, found["nowhere"].etag) == (None, None)
    info = await store.head(str(tmp_path / "0013"))
    assert (found["0013"].size, found["0013"].etag) == (info.size, info.etag) == (6, info.etag)


def test_names_are_not_given_where_one_cannot_be_looked_at() -> None:
    found = [ListedObject("a", 1), ListedObject("b", error=StoreError("cannot list"))]
    assert names_of(found[:1]) == ["a"]
    with pytest.raises(StoreError, match="cannot list"):
        names_of(found)


async def test_a_listing_of_a_file(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(StoreError, match="cannot list"):
        await store.list_names(str(tmp_path / "a"))


# --- pinned files


async def test_an_open_file_stays_where_another_takes_its_name(store: LocalStore, path: str) -> None:
    await store.put(path, b"0123456789")
    info = await store.head(path)
    with store.opener(info) as file:
        assert bytes(file.read(2, 5)) == b"234"
        await store.put(path, b"other bytes")
        assert bytes(file.read(0, 10)) == b"0123456789" and bytes(file.read(10, 10)) == b""
    with pytest.raises(ObjectChangedError, match="replaced"):
        store.opener(info)


async def test_an_open_file_that_is_written_to_is_noticed(store: LocalStore, path: str) -> None:
    await store.put(path, b"0123456789")
    info = await store.head(path)
    with store.opener(info) as file:
        os.utime(path, ns=(0, os.stat(path).st_mtime_ns + 1_000_000))
        with pytest.raises(ObjectChangedError, match="replaced"):
            file.read(2, 5)


async def test_an_open_file_that_is_cut_is_noticed(store: LocalStore, path: str) -> None:
    await store.put(path, b"0123456789")
    with store.opener(await store.head(path)) as file:
        os.truncate(path, 5)
        with pytest.raises(ObjectChangedError, match="shorter"):
            file.read(2, 8)


@pytest.mark.parametrize("positioned", [True, False], ids=["preadv", "seek"])
async def test_an_open_file_is_read_by_many_threads(
    store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch, positioned: bool
) -> None:
    if not positioned:
        monkeypatch.delattr(os, "preadv", raising=False)
    data = bytes(range(256)) * 2000
    await store.put(path, data)
    starts = range(0, len(data), 5_000)
    with store.opener(await store.head(path)) as file, ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda at: bytes(file.read(at, min(at + 9_000, len(data)))), starts))
    assert found == [data[start : start + 9_000] for start in starts]


async def test_a_file_that_grows_within_a_tick_of_its_clock_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    store = LocalStore()
    info = await store.head(str(path))
    status = path.stat()
    path.write_bytes(b"one, and more")
    for later, same in ((0, True), (1, True), (-1, False)):
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + later))
        with contextlib.nullcontext() if same else pytest.raises(ObjectChangedError):
            assert bytes(await store.read_range(str(path), 0, 3, pin=info)) == b"one"


async def test_an_open_file_is_closed_behind_its_block(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    store = LocalStore()
    with store.opener(await store.head(str(path))) as file:
        assert bytes(file.read(0, 3)) == b"one"
    with pytest.raises(ValueError, match="closed"):
        file.read(0, 3)
