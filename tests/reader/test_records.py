"""Rows one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pyarrow as pa
import pytest
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq import SchemaError, sync
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.loop_portal import portal
from resilient_pq.reader import file as reader_file

Stored = Callable[[bytes], Awaitable[MemoryStore]]


@pytest.mark.parametrize("at_once", [1, 7, 4096])
async def test_rows_in_order(
    our_bytes: bytes, stored: Stored, rows: pa.Table, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(reader_file, "ROWS_AT_ONCE", at_once)
    async with rpq.open((await stored(our_bytes), "file")) as file:
        assert [row async for row in file.records()] == rows.to_pylist()
        some = [row async for row in file.records(["l", "n"], [2, 0], filters=[("n", "in", [3, 41, 45])], limit=2)]
        assert some == [{"l": [41], "n": 41}, {"l": None, "n": 45}]
        assert [row async for row in file.records(limit=0)] == []
        assert [row async for row in file.records([], limit=3)] == [{}, {}, {}]


async def test_leaving_early_ends_the_reading(our_bytes: bytes, stored: Stored) -> None:
    store = RecordingStore(await stored(our_bytes))
    async with rpq.open((store, "file")) as file:
        async with aclosing(file.records()) as records:
            assert (await anext(records))["n"] == 0
            assert (await anext(records))["n"] == 1
        assert asyncio.all_tasks() == {asyncio.current_task()}
        with pytest.raises(rpq.UnsupportedError, match="closed before its last row"):
            await anext(records)
        assert len(store.calls) <= 3


async def test_requests_that_cannot_be_meant(our_bytes: bytes, stored: Stored) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        with pytest.raises(SchemaError, match="there is no column 'x'"):
            await anext(file.records(["x"]))
        with pytest.raises(SchemaError, match="limit is -1"):
            await anext(file.records(limit=-1))


def test_times_that_python_cannot_hold() -> None:
    store = MemoryStore()
    with sync.create((store, "file")) as writer:
        writer.write(pa.table({"t": pa.array([1], pa.timestamp("ns"))}))
    with sync.open((store, "file")) as file:
        with pytest.raises(SchemaError, match="t"):
            list(file.records())
        (row,) = file.records(inexact="numpy")
        assert str(row["t"]) == "1970-01-01T00:00:00.000000001"


async def test_no_row_is_skipped_when_a_wait_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the rows of a batch were being made that was taken already."""
    store = MemoryStore()
    async with rpq.create((store, "file"), row_group_rows=10) as writer:
        await writer.write({"n": list(range(30))})
    async with rpq.open((store, "file")) as file, file.records() as records:
        assert await anext(records) == {"n": 0}
        found = [(await anext(records))["n"] for _ in range(9)]
        monkeypatch.setattr(asyncio, "to_thread", _cancelled)
        with pytest.raises(asyncio.CancelledError):
            await anext(records)
        monkeypatch.undo()
        assert [0, *found, *[row["n"] async for row in records]] == list(range(30))


async def _cancelled(*_: object) -> None:
    raise asyncio.CancelledError


def test_the_sync_twin(our_bytes: bytes, rows: pa.Table) -> None:
    store = MemoryStore()
    with sync.create((store, "file"), row_group_rows=20) as writer:
        writer.write(rows)
    with sync.open((store, "file")) as file:
        assert list(file.records()) == rows.to_pylist()
        for row in file.records():
            assert row["n"] == 0
            break
        portal.wait_for_ends()
        loop = portal._running()
        left = asyncio.run_coroutine_threadsafe(_others(), loop).result()
    assert not left


async def _others() -> set[object]:
    return asyncio.all_tasks() - {asyncio.current_task()}
