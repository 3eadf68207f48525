"""Errors and cancellation: nothing is published, what is stored is kept, nothing is left running."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import os
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_store import Fault, FaultyStore
from parts_in_memory import InParts

import resilient_pq as rpq
from resilient_pq import StoreError, WriteOptions, WriterFailedError
from resilient_pq.format import kernels
from resilient_pq.io import ObjectInfo
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.io.partial_file import PartialFile
from resilient_pq.writer import file_encoder, pipeline

#: What is tested here is what threads do.
pytestmark = pytest.mark.usefixtures("threads_for_small_chunks")

Look = Callable[..., Awaitable[Any]]


class BrokenError(Exception):
    pass


async def _break(url: Any, *, checkpoint: bool = False, opened: list[rpq.Writer] | None = None, **options: Any) -> None:
    """Write five rows, and fail in the block."""
    async with rpq.create(url, **options) as writer:
        if opened is not None:
            opened.append(writer)
        await writer.write({"a": range(5)})
        if checkpoint:
            await writer.checkpoint()
        raise BrokenError


async def test_an_exception_in_the_block_publishes_nothing(slow_store: Any, is_there: Look) -> None:
    opened: list[rpq.Writer] = []
    with pytest.raises(BrokenError):
        await _break((slow_store, "file"), opened=opened, row_group_rows=2)
    assert slow_store.sinks[0].ended == ["abort"], "nothing was stored that could be lost"
    assert opened[0].closed and not await is_there(slow_store)


async def test_stored_rows_are_kept_and_the_error_says_where(
    slow_store: Any, is_there: Look, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[rpq.Writer] = []
    with pytest.raises(BrokenError) as caught, caplog.at_level(logging.ERROR, "resilient_pq"):
        await _break((slow_store, "file"), opened=opened, checkpoint=True)
    assert slow_store.sinks[0].ended == ["keep"] and not await is_there(slow_store)
    assert caught.value.__notes__ == ["5 rows are kept in a slow place"]
    assert "not published" in caplog.text and "5 rows are kept in a slow place" in caplog.text
    assert opened[0].num_rows_stored == 5


async def test_stored_rows_are_removed_on_request(slow_store: Any, is_there: Look) -> None:
    with pytest.raises(BrokenError):
        await _break((slow_store, "file"), checkpoint=True, on_error="abort")
    assert slow_store.sinks[0].ended == ["abort"] and not await is_there(slow_store)


async def test_what_was_there_before_stays(store: MemoryStore) -> None:
    await store.put("file", b"what was there")
    with pytest.raises(BrokenError):
        await _break((store, "file"))
    assert bytes((await store.read_tail("file", 99)).data) == b"what was there"


# --- a store that fails -------------------------------------------------------------------------------------


async def _write_and_checkpoint(url: Any, opened: list[rpq.Writer]) -> None:
    async with rpq.create(url, row_group_rows=2) as writer:
        opened.append(writer)
        for _ in range(4):
            await writer.write({"a": range(3)})
            await writer.checkpoint()


@pytest.mark.parametrize(("verb", "skip"), [("write", 0), ("write", 3), ("commit", 0), ("commit", 2), ("complete", 0)])
async def test_a_store_that_fails(store: MemoryStore, is_there: Look, verb: str, skip: int) -> None:
    faulty = FaultyStore(store, [Fault(verb, StoreError("the disk is full"), skip=skip)])
    opened: list[rpq.Writer] = []
    with pytest.raises(StoreError, match="the disk is full") as caught:
        await _write_and_checkpoint((faulty, "file"), opened)
    assert caught.value.where.key == "memory:file"
    assert opened[0].closed and not await is_there(store)


async def _swallow_the_failure(url: Any) -> None:
    async with rpq.create(url, row_group_rows=2) as writer:
        with pytest.raises(StoreError, match="the disk is full"):
            await writer.write({"a": range(3)})
        for call in (lambda: writer.write({"a": [1]}), writer.checkpoint, writer.close):
            with pytest.raises(WriterFailedError) as failed:
                await call()
            assert failed.value.num_rows_stored == 0
            assert isinstance(failed.value.__cause__, StoreError)
            assert failed.value.where.key == "memory:file" and failed.value.hint


async def test_nothing_is_taken_after_a_failure(store: MemoryStore, is_there: Look) -> None:
    """And an error that was swallowed does not end in a file."""
    faulty = FaultyStore(store, [Fault("write", StoreError("the disk is full"), skip=1)])
    with pytest.raises(WriterFailedError, match="the writer has failed: the disk is full") as caught:
        await _swallow_the_failure((faulty, "file"))
    assert isinstance(caught.value.__cause__, StoreError)
    assert not await is_there(store)


async def test_a_failed_writer_says_what_survives(slow_store: Any, is_there: Look) -> None:
    faulty = FaultyStore(slow_store, [Fault("write", StoreError("gone"), skip=6)])
    writer = await rpq.create((faulty, "file"), row_group_rows=2)
    await writer.write({"a": range(2)})
    await writer.checkpoint()
    with pytest.raises(StoreError, match="gone"):
        await writer.write({"a": range(20)})
    with pytest.raises(WriterFailedError) as caught:
        await writer.write({"a": [1]})
    assert caught.value.num_rows_stored == writer.num_rows_stored == 2
    await writer.abort()
    assert not await is_there(slow_store)


async def test_closing_a_failed_writer_keeps_what_is_stored_and_lets_go(slow_store: Any) -> None:
    """Who awaits a writer instead of entering it has only `close` to end it with."""
    broken = StoreError("gone", hint="look at the network")
    faulty = FaultyStore(slow_store, [Fault("write", broken, skip=6)])
    writer = await rpq.create((faulty, "file"), row_group_rows=2)
    await writer.write({"a": range(2)})
    await writer.checkpoint()
    with pytest.raises(StoreError, match="gone"):
        await writer.write({"a": range(20)})
    assert not writer.closed
    for _ in range(2):
        with pytest.raises(WriterFailedError) as caught:
            await writer.close()
        assert writer.closed
        assert (caught.value.message, caught.value.hint) == ("the writer has failed: gone", broken.hint)
        assert caught.value.num_rows_stored == 2
    assert slow_store.sinks[0].ended == ["keep"]


async def test_a_failing_store_does_not_hide_the_error_of_the_block(slow_store: Any) -> None:
    faulty = FaultyStore(slow_store, [Fault("abort", StoreError("cannot abort"))])
    with pytest.raises((BrokenError, StoreError)) as caught:
        await _break((faulty, "file"))
    error: BaseException | None = caught.value
    chain = []
    while error is not None:
        chain.append(type(error))
        error = error.__context__
    assert BrokenError in chain


# --- cancellation -------------------------------------------------------------------------------------------


async def _write_much(store: Any, url: Any, opened: list[rpq.Writer]) -> None:
    async with rpq.create(url, row_group_rows=3, checkpoint_every=2, checkpoint_overhead=100.0) as writer:
        opened.append(writer)
        for step in range(12):
            await writer.write({"a": range(10 * step, 10 * step + 4), "b": ["x"] * 4})
            if step % 5 == 4:
                await writer.checkpoint()


async def _cancelled_after(turns: int, work: Any) -> bool:
    """Run, and cancel after so many turns of the loop; whether it was cancelled before its end."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        if task.done():
            break
        await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


async def test_cancelled_at_any_point_publishes_nothing(make_slow_store: Any, is_there: Look) -> None:
    rng = random.Random(11)
    cancelled = 0
    for turns in [*range(30), *(rng.randrange(30, 1500) for _ in range(60))]:
        store = make_slow_store()
        opened: list[rpq.Writer] = []
        if await _cancelled_after(turns, _write_much(store, (store, "file"), opened)):
            cancelled += 1
            assert not await is_there(store), turns
            if opened:
                sink = store.sinks[0]
                assert opened[0].closed
                # Nothing can be lost before a row is stored; after that it is kept.
                assert sink.ended == (["keep"] if opened[0].num_rows_stored else ["abort"]), turns
        else:
            assert store.sinks[0].ended == ["complete"]
        assert asyncio.all_tasks() == {asyncio.current_task()}, turns
    # How far a writer gets in so many turns is the threads' affair; that some were cancelled is not.
    assert cancelled > 30


async def test_a_cancelled_abort_removes_what_is_stored_all_the_same(slow_store: Any) -> None:
    writer = await rpq.create((slow_store, "file"))
    await writer.write({"a": range(5)})
    assert await _cancelled_after(1, writer.abort())
    assert slow_store.sinks[0].ended == ["abort"]


async def _cancelled_at(num_rows: int, work: Any, opened: list[rpq.Writer]) -> bool:
    """Run, and cancel when the writer has taken so many rows; whether it was cancelled before its end."""
    task = asyncio.ensure_future(work)
    while not task.done() and not (opened and opened[0].num_rows >= num_rows):  # noqa: ASYNC110 (any turn may be it)
        await asyncio.sleep(0.0001)
    task.cancel()
    await asyncio.wait([task])
    return bool(task.cancelled())


async def test_cancelled_local_writers_leave_a_partial_file_that_is_readable(tmp_path: Path) -> None:
    kept = 0
    for num_rows in range(0, 48, 2):
        path = tmp_path / f"{num_rows}.parquet"
        opened: list[rpq.Writer] = []
        cancelled = await _cancelled_at(num_rows, _write_much(None, path, opened), opened)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        partial = path.with_name(f"{path.name}.partial")
        if not cancelled:
            assert pq.read_metadata(path).num_rows == 48 and not partial.exists()
            continue
        assert not path.exists()
        assert partial.exists() == bool(opened and opened[0].num_rows_stored)
        if partial.exists():
            kept += 1
            checkpoint = opened[0].last_checkpoint
            head = io.BytesIO(partial.read_bytes()[: checkpoint.offset])
            if checkpoint.ordinal:
                assert pq.read_table(head, page_checksum_verification=True).num_rows == checkpoint.num_rows
    assert kept


async def _cancel_a_write(url: Any) -> None:
    async with rpq.create(url, row_group_rows=1) as writer:
        assert await _cancelled_after(200, writer.write({"a": range(500)}))
        with pytest.raises(WriterFailedError, match="the writer has failed: CancelledError"):
            await writer.write({"a": [1]})


async def test_a_write_that_was_cancelled_fails_the_writer(slow_store: Any, is_there: Look) -> None:
    """Whether its rows were taken is in doubt: going on might lose or repeat them."""
    with pytest.raises(WriterFailedError):
        await _cancel_a_write((slow_store, "file"))
    assert not await is_there(slow_store)


async def test_waiting_for_another_write_may_be_cancelled(slow_store: Any, is_there: Look) -> None:
    """A call that never began has done nothing."""
    async with rpq.create((slow_store, "file"), row_group_rows=1) as writer:
        first = asyncio.create_task(writer.write({"a": range(20)}))
        await asyncio.sleep(0)
        second = asyncio.create_task(writer.write({"a": [99]}))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await first
        await writer.write({"a": [20]})
    async with rpq.open((slow_store, "file")) as file:
        assert (await file.read()).to_pydict() == {"a": list(range(21))}
    assert await is_there(slow_store)


async def test_an_interrupt_in_the_block_keeps_what_is_stored(slow_store: Any, is_there: Look) -> None:
    writer = await rpq.create((slow_store, "file"))
    await writer.write({"a": [1]})
    await writer.checkpoint()
    await writer.__aexit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert slow_store.sinks[0].ended == ["keep"] and not await is_there(slow_store)


class PublishingStore(InParts, MemoryStore):
    """Uploads in parts; what publishes waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.gate = asyncio.Event(), asyncio.Event()

    async def put(self, key: str, *args: Any, **options: Any) -> ObjectInfo:
        if key == "file":  # an epoch object publishes nothing
            await self._wait()
        return await super().put(key, *args, **options)

    async def complete_upload(self, *args: Any, **options: Any) -> ObjectInfo:
        await self._wait()
        return await super().complete_upload(*args, **options)

    async def _wait(self) -> None:
        self.begun.set()
        await self.gate.wait()


@pytest.mark.parametrize("checkpoint", [False, True], ids=["single", "upload"])
async def test_a_cancellation_that_came_too_late_says_so(
    checkpoint: bool, is_there: Look, caplog: pytest.LogCaptureFixture
) -> None:
    store = PublishingStore()
    opened: list[rpq.Writer] = []

    async def write() -> None:
        async with rpq.create((store, "file")) as writer:
            opened.append(writer)
            await writer.write({"a": range(5)})
            if checkpoint:
                await writer.checkpoint()

    task = asyncio.create_task(write())
    await store.begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    store.gate.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert await is_there(store)
    assert caught.value.__notes__ == ["the object was published before this, whole"]
    assert "not published" not in caplog.text
    assert opened[0].last_checkpoint.state is rpq.StoredState.VISIBLE and opened[0].num_rows_stored == 5


async def test_a_cancellation_that_came_too_late_for_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, gate, publish = threading.Event(), threading.Event(), PartialFile.publish

    def slowly(self: PartialFile, *, exclusive: bool, instead: str | None = None) -> os.stat_result:
        begun.set()
        gate.wait(10)
        return publish(self, exclusive=exclusive, instead=instead)

    monkeypatch.setattr(PartialFile, "publish", slowly)

    async def write() -> None:
        async with rpq.create(tmp_path / "file") as writer:
            await writer.write({"a": range(5)})

    task = asyncio.create_task(write())
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert caught.value.__notes__ == ["the object was published before this, whole"]
    assert "not published" not in caplog.text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no disk is full here")
async def test_a_log_on_a_full_disk_does_not_hide_how_the_writer_ended(
    slow_store: Any, is_there: Look, caplog: pytest.LogCaptureFixture
) -> None:
    options = rpq.WriteOptions(checkpoint_log="/dev/full")
    uploads = PublishingStore()
    uploads.gate.set()
    async with rpq.create(
        (uploads, "file"), row_group_rows=5, checkpoint_every=1, checkpoint_overhead=100.0, options=options
    ) as writer:
        await writer.write({"a": range(5)})
    assert await is_there(uploads) and writer.last_checkpoint.state is rpq.StoredState.VISIBLE
    assert "lacks the last ones" in caplog.text
    caplog.clear()

    with pytest.raises(BrokenError) as caught:
        async with rpq.create((slow_store, "other"), options=options) as writer:
            await writer.write({"a": range(5)})
            with pytest.raises(StoreError, match="log of checkpoints"):
                await writer.checkpoint()
            raise BrokenError
    assert caught.value.__notes__ == ["5 rows are kept in a slow place"]
    assert slow_store.sinks[0].ended == ["keep"]
    assert "lacks the last ones" in caplog.text


async def test_closing_a_failed_writer_lets_go_of_everything(slow_store: Any, is_there: Look) -> None:
    """Also without a block: what is stored is kept, and the error says where."""
    faulty = FaultyStore(slow_store, [Fault("write", StoreError("gone"), skip=3)])
    writer = await rpq.create((faulty, "file"))
    await writer.write({"a": range(2)})
    await writer.checkpoint()
    await writer.write({"a": range(2)})
    with pytest.raises(StoreError, match="gone") as caught:
        await writer.checkpoint()
    with pytest.raises(WriterFailedError):
        await writer.close()
    assert writer.closed and slow_store.sinks[0].ended == ["keep"]
    assert caught.value.hint == "2 rows are kept in a slow place"
    with pytest.raises(WriterFailedError):
        await writer.close()
    assert slow_store.sinks[0].ended == ["keep"] and not await is_there(slow_store)


@pytest.mark.parametrize("broken", [False, True])
async def test_a_block_that_is_cancelled_while_another_task_writes(
    slow_store: Any, is_there: Look, broken: bool
) -> None:
    """The writer ends when that task has had its turn, however often the block is cancelled."""
    left = asyncio.Event()
    turn: list[asyncio.Lock] = []

    async def block() -> None:
        async with rpq.create((slow_store, "file")) as writer:
            await writer.write({"a": range(5)})
            await writer.checkpoint()
            await writer._lock.acquire()
            turn.append(writer._lock)
            left.set()
            if broken:
                raise BrokenError

    task = asyncio.create_task(block())
    await left.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    turn[0].release()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert slow_store.sinks[0].ended == ["keep"] and not await is_there(slow_store)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelled_twice_it_waits_for_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a thread encodes must not change when the writer has ended, and its memory not be another's."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def held(function: Callable[..., Any], *arguments: Any) -> Any:
        begun.set()
        await gate.wait()
        return function(*arguments)

    async def write() -> None:
        async with rpq.create((MemoryStore(), "a")) as writer:
            await writer.write({"x": [1, 2, 3]})

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "run_in_executor", lambda _, *call: loop.create_task(held(*call)))
    before = asyncio.all_tasks()
    task = asyncio.create_task(write())
    await begun.wait()
    for _ in range(3):
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


async def test_cancelled_again_while_it_stops_it_leaves_nothing_behind(
    slow_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The push in the background fails late, and threads still encode, when cancellations follow one another."""
    encode, encoding, gate = file_encoder.encode_chunk, threading.Event(), threading.Event()

    def held(leaf: Any, *arguments: Any) -> Any:
        if leaf.column_path == "b":
            encoding.set()
            assert gate.wait(60)
        return encode(leaf, *arguments)

    pushing, stuck = asyncio.Event(), asyncio.Event()

    async def write(*_: Any) -> None:
        pushing.set()
        try:
            await asyncio.Event().wait()
        finally:
            await stuck.wait()
            raise StoreError("refused on purpose")

    async def work() -> None:
        async with rpq.create((slow_store, "file"), options=WriteOptions(max_threads=2)) as writer:
            await writer.write({"a": [1.5], "b": [2.5]})
            slow_store.sinks[0].write = write
            await writer.checkpoint()

    monkeypatch.setattr(kernels, "FlatWriter", None)
    monkeypatch.setattr(file_encoder, "encode_chunk", held)
    monkeypatch.setattr(pipeline, "_WORTH_PUSHING", 0)
    loop, unseen = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    task = asyncio.create_task(work())
    await pushing.wait()
    await asyncio.to_thread(encoding.wait, 60)
    for _ in range(3):
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    stuck.set()
    for _ in range(50):
        await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    del task
    gc.collect()
    assert not unseen


@pytest.mark.parametrize("max_threads", [1, 3])
async def test_what_came_before_a_source_failed_is_stored(tmp_path: Path, max_threads: int) -> None:
    """However many threads encode: what they have ahead is no reason to lose it."""

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 70, 10):
            yield pa.record_batch({"a": range(start, start + 10)})
        raise BrokenError

    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), batches())
    options = WriteOptions(max_threads=max_threads)
    writer = await rpq.create(tmp_path / "file.parquet", row_group_rows=30, options=options)
    with pytest.raises(Exception, match="BrokenError"):
        await writer.write(reader)
    assert writer.num_rows_stored == 60
    with pytest.raises(WriterFailedError):
        await writer.close()
    assert (tmp_path / "file.parquet.partial").exists()


async def test_a_failing_store_does_not_hide_the_error_of_the_source(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row group was still on its way when the source failed."""

    async def refuse(*_: object) -> None:
        raise StoreError("the disk is full")

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        raise BrokenError

    writer = await rpq.create((store, "file"), row_group_rows=1, options=WriteOptions(max_threads=2))
    await writer.write({"a": [0]})
    monkeypatch.setattr(writer._sink, "write", refuse)
    with pytest.raises(StoreError, match="full") as caught:
        await writer.write(pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), batches()))
    assert "BrokenError" in str(caught.value.__context__)
    await writer.abort()
