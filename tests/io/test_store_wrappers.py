"""The stores that tell and the stores that fail, and what must come to its end when it is cancelled."""

from __future__ import annotations

import asyncio

import pytest
from faulty_store import Fault, FaultyStore
from store_wrapper import Call, RecordingStore

from resilient_pq.errors import StoreError, TransientError, UnsupportedError
from resilient_pq.io import LocalStore, MemoryStore
from resilient_pq.io.cancellation import finish_first


async def test_every_call_is_recorded_in_order() -> None:
    store = RecordingStore(MemoryStore())
    info = await store.put("a", [b"0123", b"456789"])
    await store.read_tail("a", 4)
    await store.read_range("a", 2, 5, pin=info)
    sink = await store.create("b")
    await sink.write(b"xy", b"z")
    await sink.write(b"w")
    await sink.commit()
    await sink.complete()
    assert store.calls == [
        Call("put", "a", 0, 10),
        Call("read_tail", "a", -4),
        Call("read_range", "a", 2, 5),
        Call("create", "b"),
        Call("write", "b", 0, 3),
        Call("write", "b", 3, 4),
        Call("commit", "b", 4),
        Call("complete", "b", 4),
    ]
    assert store.calls[2] == ("read_range", "a", 2, 5)
    assert store.count("write") == 2


async def test_a_store_without_uploads_stays_without() -> None:
    store = RecordingStore(LocalStore())
    assert not store.capabilities.multipart
    with pytest.raises(UnsupportedError, match="no multipart uploads"):
        await store.create_upload("a")


async def test_faults_follow_the_script() -> None:
    store = FaultyStore(MemoryStore())
    info = await store.put("a", b"0123456789")
    store.faults = [
        Fault("read_range", skip=1),
        Fault("read_range", StoreError("broken"), times=2),
        Fault("read_range", flip_bit=9),
        Fault("read_range", cut_to=3),
        Fault("read_tail", flip_bit=0),
    ]

    async def read() -> bytes:
        return bytes(await store.read_range("a", 0, 10, pin=info))

    with pytest.raises(StoreError, match="broken"):
        await read()  # the first fault lets one pass, and the second takes it
    with pytest.raises(TransientError, match="scripted"):
        await read()
    with pytest.raises(StoreError, match="broken"):
        await read()
    assert await read() == b"0323456789"
    assert await read() == b"012"
    assert await read() == b"0123456789"
    tail = await store.read_tail("a", 2)
    assert (bytes(tail.data), tail.offset, tail.info) == (b"99", 8, info)


async def test_a_lost_reply_is_a_call_carried_out() -> None:
    store = FaultyStore(MemoryStore(), [Fault("complete", after=True)])
    sink = await store.create("a")
    await sink.write(b"data")
    with pytest.raises(TransientError):
        await sink.complete()
    assert bytes((await store.read_tail("a", 10)).data) == b"data"


async def test_a_disk_that_is_full_at_the_second_write() -> None:
    full = StoreError("No space left on device")
    store = FaultyStore(MemoryStore(), [Fault("write", full, skip=1)])
    sink = await store.create("a")
    await sink.write(b"fits")
    with pytest.raises(StoreError, match="No space left"):
        await sink.write(b"does not")
    assert sink.position == 4


# --- finish_first


async def test_finished_work_gives_its_result_or_its_error() -> None:
    async def work(error: Exception | None) -> int:
        await asyncio.sleep(0)
        if error is not None:
            raise error
        return 5

    assert await finish_first(work(None)) == 5
    with pytest.raises(ZeroDivisionError):
        await finish_first(work(ZeroDivisionError()))


@pytest.mark.parametrize("error", [None, ValueError("unseen")])
async def test_cancelled_work_ends_first(error: Exception | None) -> None:
    gate, undone, ended = asyncio.Event(), [], []

    async def work() -> str:
        await gate.wait()
        ended.append(True)
        if error is not None:
            raise error
        return "result"

    async def undo(result: str) -> None:
        undone.append(result)

    task = asyncio.create_task(finish_first(work(), undo=undo))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    assert ended == []
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
    assert undone == ([] if error else ["result"])


async def test_cancelled_work_that_does_not_end_is_broken_off() -> None:
    """What asks a store that is down would go on for minutes."""
    broken_off, begun = [], asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            broken_off.append(True)
            raise

    task = asyncio.create_task(finish_first(work(), patience=0.01))
    await begun.wait()
    await asyncio.sleep(0.02)
    assert not task.done(), "without a cancellation there is no hurry"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert broken_off == [True]
