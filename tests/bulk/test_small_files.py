"""A small file that is read by one request is told of as one that is read bit by bit."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_wrapper import Call, RecordingStore

import resilient_pq as rpq
from resilient_pq.bulk.file_task import RecoverOptions, check_one, recover_one
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.damaged_object import SmallObject

#: The ways of the fixture `files`, and the sound files.
WAYS = [
    "ours",
    "theirs",
    "ours torn in the third row group",
    "ours without its footer",
    "ours with a bad page",
    "ours with a hole",
    "ours torn in the first",
    "theirs without its footer",
    "theirs torn in the third",
    "theirs with a hole",
    "empty",
    "no Parquet",
]


def data_of(files: Any, way: str) -> bytes:
    position = WAYS.index(way)
    data: bytes = files.sound[position] if position < len(files.sound) else files.ways[way].data
    return data


@pytest.mark.parametrize("way", WAYS)
async def test_the_same_reports(files: Any, tmp_path: Path, way: str) -> None:
    data = data_of(files, way)
    path = tmp_path / "file.parquet"
    path.write_bytes(data)
    assert WAYS[2:] == list(files.ways)
    assert (await check_one(path, size=len(data))).report == await rpq.check(path)
    for on_damage in ("drop", "null"):
        options = RecoverOptions(on_damage, overwrite=True)
        small = await recover_one(path, tmp_path / "small", options, size=len(data))
        large = await recover_one(path, tmp_path / "large", options)
        assert small.report is not None and large.report is not None
        assert small.report.kept is not None and large.report.kept is not None
        assert small.report.kept.ledger == large.report.kept.ledger
        kept = replace(large.report.kept, output=small.report.kept.output)
        assert small.report == replace(large.report, kept=kept, next=small.report.next)
        assert os.path.exists(tmp_path / "small") == os.path.exists(tmp_path / "large")


async def test_what_was_damaged_on_the_way_is_read_once_more(files: Any) -> None:
    store = MemoryStore()
    await store.put("file", files.sound[0])

    class Flipping(RecordingStore):
        async def _do(self, call: Call, action: Any) -> Any:
            found = await super()._do(call, action)
            if call.verb != "read_tail" or len(self.calls) > 1:
                return found
            damaged = bytearray(found.data)
            damaged[len(damaged) // 2] ^= 1
            return replace(found, data=bytes(damaged))

    flipping = Flipping(store)
    result = await check_one((flipping, "file"), size=len(files.sound[0]))
    assert result.is_sound and flipping.calls[0].verb == "read_tail" and len(flipping.calls) > 2


async def test_a_summary_is_checked_with_its_files(files: Any, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(files.sound[0])
    await rpq.write_metadata(tmp_path)
    summary = tmp_path / "_metadata"
    result = await check_one(summary, size=summary.stat().st_size)
    assert result.report == await rpq.check(summary) and result.is_sound
    assert result.report is not None and result.report.num_rows == 400


async def test_a_file_that_grew_is_read_as_what_it_is(files: Any, tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(files.sound[0])
    os.truncate(path, 5 << 20)  # the listing may be older
    assert (await check_one(path, size=len(files.sound[0]))).report == await rpq.check(path)


async def test_one_request_for_all_that_is_asked_of_it_and_each_for_others() -> None:
    store = RecordingStore(MemoryStore())
    info, other = await store.put("small", bytes(range(200))), await store.put("other", b"other")
    store.calls.clear()
    small = await SmallObject.read(store, "small")
    assert small is not None
    assert await small.head("small") == info
    assert bytes((await small.read_tail("small", 7)).data) == bytes(range(193, 200))
    assert bytes(await small.read_range("small", 3, 9, pin=info)) == bytes(range(3, 9))
    assert [call.verb for call in store.calls] == ["read_tail"]
    assert await small.head("other") == other
    assert bytes((await small.read_tail("other", 2)).data) == b"er"
    assert bytes(await small.read_range("other", 1, 3, pin=other)) == b"th"
    assert [call.verb for call in store.calls] == ["read_tail", "head", "read_tail", "read_range"]
