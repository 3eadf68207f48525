"""In each open file of a data set no row waits for being stored for longer than `max_unstored_seconds`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import resilient_pq as rpq
from resilient_pq.io.local_sink import LocalSink
from resilient_pq.io.partial_file import PartialFile


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that were stored, each time."""
    found: list[str] = []
    sync = PartialFile.sync

    def noted(file: PartialFile) -> None:
        sync(file)
        found.append(Path(file.path).parent.name)

    monkeypatch.setattr(PartialFile, "sync", noted)
    return found


async def test_each_open_file_is_stored_in_time(clock: Any, tmp_path: Path, synced: list[str]) -> None:
    writer = await rpq.create_dataset(tmp_path, partition_by="p")
    await writer.write({"n": [1], "p": ["a"]})
    await clock.skip(15)
    await writer.write({"n": [2, 3], "p": ["b", "b"]})
    assert writer.num_rows_stored == 0
    await clock.skip(14)
    await clock.until(lambda: synced == ["p=a"])
    assert writer.num_rows_stored_by_partition == {"p=a": 1, "p=b": 0}
    await clock.skip(15)
    await clock.until(lambda: synced == ["p=a", "p=b"])
    assert writer.num_rows_stored_by_partition == {"p=a": 1, "p=b": 2}
    await writer.__aexit__(ConnectionError, ConnectionError(), None)  # as after a crash

    again = await rpq.resume_dataset(tmp_path, partition_by="p")
    assert again.num_rows_stored_by_partition == {"p=a": 1, "p=b": 2}
    await again.write({"n": [4], "p": ["a"]})
    synced.clear()
    await clock.skip(29)
    await clock.until(lambda: synced == ["p=a"])
    assert again.num_rows_stored_by_partition == {"p=a": 2, "p=b": 2}
    await again.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_without_a_bound_they_wait(clock: Any, tmp_path: Path, synced: list[str]) -> None:
    async with rpq.create_dataset(tmp_path, max_unstored_seconds=None) as writer:
        await writer.write({"n": [1]})
        await clock.skip(3600)
        assert not synced and writer.num_rows_stored == 0


@pytest.mark.parametrize("call", ["write", "checkpoint", "close"])
async def test_an_error_in_any_file_is_that_of_the_next_call(
    call: str, clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that has to do with other files."""

    async def full(*_: object, **__: object) -> None:
        raise rpq.StoreError("the disk is full")

    writer = await rpq.create_dataset(tmp_path, partition_by="p")
    await writer.write({"n": [1], "p": ["a"]})
    file = writer._open["p=a"].file
    assert file is not None
    monkeypatch.setattr(LocalSink, "commit", full)
    await clock.skip(29)
    await clock.until(lambda: file.writer._untold is not None)
    monkeypatch.undo()
    with pytest.raises(rpq.StoreError, match="the disk is full"):
        await (writer.write({"n": [2], "p": ["b"]}) if call == "write" else getattr(writer, call)())
    with pytest.raises(rpq.WriterFailedError, match="the disk is full"):
        await writer.close()
    assert writer.closed and not writer.files
