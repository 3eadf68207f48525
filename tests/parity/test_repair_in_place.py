"""Local files are repaired in place, and a crash at any moment leaves them as they were, or repaired."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import resilient_pq as rpq
from resilient_pq.io import LocalStore, MemoryStore
from resilient_pq.io.stored_object import file_info
from resilient_pq.parity.in_place import finish_in_place, write_in_place

BLOCKS = [(3, b"abc"), (4096, b"d" * 700), (9_990, b"the end of it")]
SIZE = 10_003


class CrashError(Exception):
    """The process dies here."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "day.parquet"
    file.write_bytes(bytes(10_100))
    return file


def written(path: Path) -> None:
    digest = xxhash.xxh3_128_digest(repaired())
    write_in_place(str(path), file_info(str(path), os.stat(path)), SIZE, digest, BLOCKS)


def repaired() -> bytes:
    data = bytearray(SIZE)
    for offset, block in BLOCKS:
        data[offset : offset + len(block)] = block
    return bytes(data)


def test_blocks_are_written(path: Path) -> None:
    written(path)
    assert path.read_bytes() == repaired()
    assert os.listdir(path.parent) == ["day.parquet"]


@pytest.mark.parametrize(
    "call", ["open", "write", "torn write", "flush", "fsync", "seek", "truncate", "utime", "remove"]
)
def test_a_crash_leaves_the_file_as_it_was_or_is_made_good(
    path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls of one kind are let through one by one, and the next is the crash."""
    before, crashes = path.read_bytes(), 0
    for allowed in range(20):
        path.write_bytes(before)
        with monkeypatch.context() as patch:
            _crash_after(patch, call, allowed)
            try:
                written(path)
            except CrashError:
                crashes += 1
        finish_in_place(str(path))
        assert path.read_bytes() in (before, repaired())
        assert os.listdir(path.parent) == ["day.parquet"]
    assert crashes


def _crash_after(patch: pytest.MonkeyPatch, call: str, allowed: int) -> None:
    left = [allowed]

    def counted() -> None:
        if left[0] == 0:
            raise CrashError
        left[0] -= 1

    if call in ("fsync", "utime", "remove"):
        original = getattr(os, call)
        counting = lambda *arguments, **how: (counted(), original(*arguments, **how))[1]  # noqa: E731
        patch.setattr(os, call, counting)
        patch.setattr(os, "supports_fd", {*os.supports_fd, counting})
        return

    class File:
        def __init__(self, file: object) -> None:
            self._file = file

        def __getattr__(self, name: str) -> object:
            if name == call:
                counted()
            return getattr(self._file, name)

        def write(self, data: bytes) -> None:
            if left[0] == 0 and call == "torn write":
                self._file.write(data[: len(data) // 2])  # type: ignore[attr-defined]
            if call in ("write", "torn write"):
                counted()
            self._file.write(data)  # type: ignore[attr-defined]

        def __enter__(self) -> File:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()  # type: ignore[attr-defined]

    def opened(*arguments: Any) -> File:
        if call == "open":
            counted()
        return File(open(*arguments))

    patch.setattr("resilient_pq.parity.in_place.open", opened, raising=False)


def test_a_journal_that_is_cut_or_changed_is_not_carried_out(path: Path) -> None:
    before = path.read_bytes()
    journal = path.parent / "day.parquet.rpqrepair"
    with pytest.MonkeyPatch.context() as patch:
        _crash_after(patch, "remove", 0)
        with pytest.raises(CrashError):
            written(path)
    whole = journal.read_bytes()
    for cut in [*range(0, len(whole), 37), len(whole) - 1]:
        for text in (whole[:cut], whole[:cut] + bytes([whole[cut] ^ 1]) + whole[cut + 1 :]):
            path.write_bytes(before)
            journal.write_bytes(text)
            finish_in_place(str(path))
            assert path.read_bytes() == before and not journal.exists()
    journal.write_bytes(whole)
    finish_in_place(str(path))
    assert path.read_bytes() == repaired()


@pytest.mark.parametrize("size", [9_000, 300_000])
async def test_a_damaged_file_is_repaired_in_place(tmp_path: Path, size: int) -> None:
    file, data = tmp_path / "a.parquet", np.random.default_rng(size).bytes(size)
    file.write_bytes(data)
    await rpq.protect(file)
    for damaged in [b"?" * 500 + data[500:], data[:-2000], data + b"more", data]:
        file.write_bytes(damaged)
        done = await rpq.repair(file, in_place=True)
        assert file.read_bytes() == data and done.output == done.url == str(file)
    assert sorted(os.listdir(tmp_path)) == ["a.parquet", "a.parquet.rpqparity"]


async def test_what_cannot_be_repaired_in_place_is_not_touched(tmp_path: Path) -> None:
    file, data = tmp_path / "a.parquet", np.random.default_rng(1).bytes(100_000)
    file.write_bytes(data)
    await rpq.protect(file)
    for damaged in [data[:5000] + data[5777:], bytes(100_000)]:
        file.write_bytes(damaged)
        with pytest.raises(rpq.RepairError):
            await rpq.repair(file, in_place=True)
        assert file.read_bytes() == damaged
    with pytest.raises(rpq.SchemaError, match="a new file or in_place"):
        await rpq.repair(file)
    with pytest.raises(rpq.SchemaError):
        await rpq.repair(file, tmp_path / "b", in_place=True)
    with pytest.raises(rpq.UnsupportedError, match="only local files"):
        await rpq.repair((MemoryStore(), "a"), in_place=True)


def test_the_journal_of_another_file_is_not_carried_out(path: Path) -> None:
    """The file was written anew between the crash and the next repair."""
    with pytest.MonkeyPatch.context() as patch:
        _crash_after(patch, "remove", 0)
        with pytest.raises(CrashError):
            written(path)
    path.write_bytes(b"newer" * 2_500)
    finish_in_place(str(path))
    assert path.read_bytes() == b"newer" * 2_500 and os.listdir(path.parent) == ["day.parquet"]


def test_a_file_that_changed_meanwhile_is_not_touched(path: Path) -> None:
    pin = file_info(str(path), os.stat(path))
    path.write_bytes(b"newer" * 2_500)
    with pytest.raises(rpq.ObjectChangedError):
        write_in_place(str(path), pin, SIZE, bytes(16), BLOCKS)
    assert path.read_bytes() == b"newer" * 2_500 and os.listdir(path.parent) == ["day.parquet"]


async def test_a_repaired_file_is_the_version_that_was_protected(tmp_path: Path) -> None:
    """Below the root of a store; rot does not change the time of a file, and its repair does not either."""
    file, data, store = tmp_path / "a.parquet", np.random.default_rng(3).bytes(100_000), LocalStore(tmp_path)
    file.write_bytes(data)
    await rpq.protect((store, "a.parquet"))
    before = await store.head("a.parquet")
    file.write_bytes(data[:5000] + b"rot" + data[5003:])
    times = int(before.etag.split("-")[2], 16) if before.etag else 0
    os.utime(file, ns=(times, times))
    await rpq.repair((store, "a.parquet"), in_place=True)
    assert file.read_bytes() == data and await store.head("a.parquet") == before
