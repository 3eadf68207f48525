"""No row waits for being stored for longer than `max_unstored_seconds`, whoever calls or does not."""

from __future__ import annotations

import asyncio
import gc
import io
import math
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parts_in_memory import InParts

import resilient_pq as rpq
from resilient_pq.io import MemoryStore, Part
from resilient_pq.io.local_sink import LocalSink
from resilient_pq.io.partial_file import PartialFile
from resilient_pq.units import MiB
from resilient_pq.writer import cut_policy

SMALL = {"part_bytes": MiB, "max_part_bytes": MiB, "max_bytes_in_flight": 4 * MiB}


class UploadStore(InParts, MemoryStore):
    """Memory that takes files in parts, each when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.taking = asyncio.Event()
        self.taking.set()
        self.failing: Exception | None = None

    async def put_part(self, *arguments: Any) -> Part:
        await self.taking.wait()
        if self.failing is not None:
            raise self.failing
        return await super().put_part(*arguments)


def rows(start: int, stop: int, size: int = 1_000) -> dict[str, list[Any]]:
    return {"id": list(range(start, stop)), "noise": [random.Random(i).randbytes(size) for i in range(start, stop)]}


async def completed_by_the_rule(store: MemoryStore) -> pa.Table:
    (upload,) = await store.list_uploads("")
    parts = await store.list_parts(upload.key, upload.upload_id)
    await store.complete_upload(upload.key, upload.upload_id, by_the_rule(parts))
    return pq.read_table(io.BytesIO(bytes((await store.read_tail(upload.key, 1 << 40)).data)))


def by_the_rule(parts: list[Part]) -> list[Part]:
    """Up to and including the first part whose size is no whole number of MiB."""
    last = next(at for at, part in enumerate(parts) if part.size % MiB)
    return parts[: last + 1]


def place(where: str, store: UploadStore, folder: Path) -> Any:
    return (store, "f") if where == "upload" else folder / "f.parquet"


async def found(where: str, store: UploadStore, folder: Path) -> int:
    """Rows that are there when the writer is gone."""
    if where == "upload":
        return (await completed_by_the_rule(store)).num_rows
    await rpq.recover(folder / "f.parquet.partial", folder / "saved.parquet", overwrite=True)
    return int(pq.read_metadata(folder / "saved.parquet").num_rows)


@pytest.mark.parametrize("where", ["upload", "local"])
async def test_rows_are_stored_though_nobody_calls(where: str, clock: Any, tmp_path: Path) -> None:
    store = UploadStore()
    writer = await rpq.create(place(where, store, tmp_path))
    await writer.write(rows(0, 10))
    await clock.skip(20)
    assert writer.num_rows_stored == 0, "not before it has to be"
    await clock.skip(9)
    await clock.until(lambda: writer.num_rows_stored == 10)
    await writer.write(rows(10, 15))
    await clock.skip(29)
    await clock.until(lambda: writer.num_rows_stored == 15)
    size, resent = writer.num_bytes, writer.num_bytes_resent
    await clock.skip(3600)
    assert (writer.num_bytes, writer.num_bytes_resent) == (size, resent), "nothing is new"
    assert await found(where, store, tmp_path) == 15
    await writer.abort() if where == "local" else None


@pytest.mark.parametrize("where", ["upload", "local"])
async def test_without_a_bound_they_wait(where: str, clock: Any, tmp_path: Path) -> None:
    writer = await rpq.create(place(where, UploadStore(), tmp_path), max_unstored_seconds=None)
    await writer.write(rows(0, 10))
    await clock.skip(3600)
    assert writer.num_rows_stored == 0
    await writer.abort()


async def test_local_rows_are_on_the_disk_and_no_footer_is(
    clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    sync = PartialFile.sync
    monkeypatch.setattr(PartialFile, "sync", lambda file: (synced.append(file.size()), sync(file))[1])
    writer = await rpq.create(tmp_path / "f.parquet")
    await writer.write(rows(0, 10))
    await writer.flush()
    assert writer.num_rows_stored == 10 and not synced, "a kill does not take it along, a loss of power may"
    await clock.skip(29)
    await clock.until(lambda: bool(synced))
    assert synced == [writer.num_bytes]
    assert writer.last_checkpoint.ordinal == 0, "the record of the row group is enough"
    await writer.write(rows(10, 20))
    await clock.skip(29)
    await clock.until(lambda: len(synced) == 2)
    assert synced[-1] == writer.num_bytes and writer.num_rows_stored == 20
    await writer.close()


async def test_by_checkpoint_seconds_a_local_file_gets_checkpoints(clock: Any, tmp_path: Path) -> None:
    """Those who follow the file see its rows by them."""
    options = rpq.WriteOptions(checkpoint_seconds=5.0)
    writer = await rpq.create(tmp_path / "f.parquet", options=options, checkpoint_every=None, max_unstored_seconds=None)
    for start in range(0, 30, 10):
        await writer.write(rows(start, start + 10))
        await clock.skip(4.9)
        await clock.until(lambda expected=start + 10: writer.last_checkpoint.num_rows == expected)  # type: ignore[misc]
    assert writer.last_checkpoint.ordinal == 3
    async with rpq.open(tmp_path / "f.parquet.partial") as file:
        assert file.num_rows == 30
    await writer.close()


@pytest.mark.parametrize("where", ["upload", "local"])
@pytest.mark.parametrize("seed", range(3))
async def test_no_row_is_ever_too_old(where: str, seed: int, clock: Any, tmp_path: Path) -> None:
    """Rows come at any times and in any numbers, some close row groups of their own; each two seconds are looked at."""
    rng, bound, loop = random.Random(seed), 100.0, asyncio.get_running_loop()
    store = UploadStore()
    options: dict[str, Any] = {"row_group_rows": rng.choice((40, 1000)), "options": rpq.WriteOptions(**SMALL)}
    writer = await rpq.create(place(where, store, tmp_path), max_unstored_seconds=bound, **options)
    taken: list[float] = []

    def age() -> float:
        safe = writer._num_rows_safe
        return loop.time() - taken[safe] if len(taken) > safe else 0.0

    oldest, often = 0.0, 0.5
    for _ in range(300):
        often = rng.choice((0.9, 0.1, 0.01)) if rng.random() < 0.05 else often
        if rng.random() < often:
            count, now = rng.choice((1, 5, 60)), loop.time()
            await writer.write(rows(len(taken), len(taken) + count, 100))
            taken += [now] * count
        if rng.random() < 0.02:
            await rng.choice((writer.flush, writer.checkpoint))()
        await clock.skip(2)
        if age() > 80:  # threads are given the time that they need
            due = writer._unstored.due_at or math.inf
            await clock.until(lambda due=due: loop.time() < due or not 80 < age() < bound)  # type: ignore[misc]
        oldest = max(oldest, age())
    assert len(taken) > 200 and 70 < oldest < bound
    stored = writer.num_rows_stored
    assert await found(where, store, tmp_path) >= stored > 0
    await writer.abort() if where == "local" else None


@pytest.mark.parametrize("where", ["upload", "local"])
async def test_row_groups_that_fill_in_time_stay_whole(where: str, clock: Any, tmp_path: Path) -> None:
    """Where they close by themselves within the bound, they wait for a checkpoint, and none is closed early."""
    store = UploadStore()
    options = {"row_group_rows": 70, "compression": "none", "options": rpq.WriteOptions(**SMALL)}
    at = place(where, store, tmp_path)
    async with rpq.create(at, checkpoint_every=None, **options) as writer:
        ages, loop, taken = [], asyncio.get_running_loop(), []
        for start in range(0, 1000, 5):
            await writer.write(rows(start, start + 5))
            taken += [loop.time()] * 5
            await clock.skip(1.5)
            if len(taken) > writer._num_rows_safe:
                ages.append(loop.time() - taken[writer._num_rows_safe])
        assert writer._num_rows_safe > 800 and max(ages) < 30
    async with rpq.open(at) as file:
        sizes = [file.metadata.row_groups[ordinal].num_rows for ordinal in range(file.num_row_groups)]
        assert sizes[:-1] == [70] * (len(sizes) - 1)
        assert len(file.checkpoints) > 7 if where == "upload" else not file.checkpoints


def waiting_source(going_on: threading.Event) -> pa.RecordBatchReader:
    """Three rows, and one more when it may go on."""
    schema = pa.schema([("n", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1, 2, 3]}, schema)
        assert going_on.wait(60)
        yield pa.record_batch({"n": [4]}, schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


async def test_while_a_write_waits_for_its_source(clock: Any, tmp_path: Path) -> None:
    going_on = threading.Event()
    writer = await rpq.create(tmp_path / "f.parquet")
    writing = asyncio.create_task(writer.write(waiting_source(going_on)))
    await clock.until(lambda: writer.num_rows == 3)
    await clock.skip(29)
    await clock.until(lambda: writer.num_rows_stored == 3)
    assert not writing.done()
    going_on.set()
    await writing
    await clock.skip(29)
    await clock.until(lambda: writer.num_rows_stored == 4)
    await writer.close()
    assert pq.read_table(tmp_path / "f.parquet").to_pydict() == {"n": [1, 2, 3, 4]}


async def test_what_goes_wrong_while_a_write_waits_ends_it(
    clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = threading.Event()

    async def full(*_: object, **__: object) -> None:
        raise rpq.StoreError("the disk is full")

    writer = await rpq.create(tmp_path / "f.parquet")
    writing = asyncio.create_task(writer.write(waiting_source(going_on)))
    await clock.until(lambda: writer.num_rows == 3)
    monkeypatch.setattr(LocalSink, "commit", full)
    await clock.skip(29)
    await clock.until(lambda: writer._failure is not None)
    going_on.set()
    with pytest.raises(rpq.StoreError, match="the disk is full"):
        await writing
    with pytest.raises(rpq.WriterFailedError, match="the disk is full"):
        await writer.close()


@pytest.mark.parametrize("call", ["write", "flush", "checkpoint", "close", "leave"])
async def test_an_error_found_between_calls_is_that_of_the_next_one(
    call: str, clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object, **__: object) -> None:
        raise rpq.StoreError("the disk is full")

    writer = await rpq.create(tmp_path / "f.parquet")
    await writer.write(rows(0, 3))
    monkeypatch.setattr(LocalSink, "commit", full)
    await clock.skip(29)
    await clock.until(lambda: writer._failure is not None)
    with pytest.raises(rpq.StoreError, match="the disk is full"):
        if call == "write":
            await writer.write(rows(3, 4))
        elif call == "leave":
            async with writer:
                pass
        else:
            await getattr(writer, call)()
    if call in ("close", "leave"):
        assert writer.closed
    else:
        with pytest.raises(rpq.WriterFailedError, match="the disk is full"):
            await writer.write(rows(3, 4))
        with pytest.raises(rpq.WriterFailedError):
            await writer.close()


async def test_a_writer_that_lost_its_upload_hears_so(clock: Any) -> None:
    """Also where that shows behind a commit that nobody waited for."""
    store = UploadStore()
    writer = await rpq.create((store, "f"))
    await writer.write(rows(0, 3))
    await clock.skip(29)
    await clock.until(lambda: writer.num_rows_stored == 3)
    (upload,) = await store.list_uploads("")
    await store.abort_upload("f", upload.upload_id)
    await writer.write(rows(3, 6))
    await clock.skip(29)
    await clock.until(lambda: writer._sink._failure is not None)  # type: ignore[attr-defined]
    await clock.skip(29)
    await clock.until(lambda: writer._failure is not None)
    with pytest.raises(rpq.WriterFencedError):
        await writer.write(rows(6, 9))
    with pytest.raises(rpq.WriterFailedError):
        await writer.close()


async def test_a_store_that_does_not_answer_is_told_of(clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    store = UploadStore()
    writer = await rpq.create((store, "f"))
    store.taking.clear()
    await writer.write(rows(0, 3))
    await clock.skip(29)
    await clock.until(lambda: bool(writer._commit_under_way))
    await writer.write(rows(3, 6))
    assert "have waited" not in caplog.text
    await clock.skip(2)
    await clock.until(lambda: "rows have waited for" in caplog.text)
    store.taking.set()
    await clock.until(lambda: writer.num_rows_stored == 3)
    await clock.skip(26)
    await clock.until(lambda: writer.num_rows_stored == 6)
    await writer.close()


async def test_the_time_that_storing_took_is_measured(clock: Any) -> None:
    """Also of what nobody waited for, and not by when somebody looks."""
    store = UploadStore()
    writer = await rpq.create((store, "f"))
    store.taking.clear()
    await writer.write(rows(0, 3))
    await clock.skip(24.5)
    await clock.until(lambda: bool(writer._commit_under_way))
    await clock.skip(2)
    store.taking.set()
    await clock.until(lambda: writer.num_rows_stored == 3)
    assert 2 <= writer._sink.commit_seconds < 3
    await clock.skip(10)
    await writer.write(rows(3, 6))
    await clock.skip(23)
    assert writer.num_rows_stored == 3, "it begins half as much earlier again, and a tenth of the bound"
    await clock.skip(2)
    await clock.until(lambda: writer.num_rows_stored == 6)
    await writer.close()


async def test_the_timer_leaves_nothing_behind(clock: Any, tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with rpq.create(tmp_path / "f.parquet") as writer:
        await writer.write(rows(0, 3))
        assert asyncio.all_tasks() == before, "a timer is no task before it goes off"
        await clock.skip(29)
    assert asyncio.all_tasks() == before
    assert writer._alarm._handle is None

    forgotten = await rpq.create(tmp_path / "g.parquet")
    await forgotten.write(rows(0, 3))
    gone = weakref.ref(forgotten)
    del forgotten
    await clock.until(lambda: gc.collect() >= 0 and gone() is None)  # a thread may hold its last call for a moment
    await clock.skip(29)
    await clock.until(lambda: asyncio.all_tasks() == before)  # its rows are kept by a task


async def test_ending_while_the_timer_is_at_work(clock: Any) -> None:
    for turns in range(40):
        store = UploadStore()
        writer = await rpq.create((store, "f"))
        await writer.write(rows(0, 3))
        clock.seconds += 29
        for _ in range(turns):
            await asyncio.sleep(0)
        await (writer.close() if turns % 2 else writer.abort())
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not await store.list_uploads("")


BLOCKING = """
import sys, time
from resilient_pq import sync as rpq

writer = rpq.create(sys.argv[1], max_unstored_seconds=0.4)
writer.write({"n": [1, 2, 3]})
begun = time.monotonic()
while writer.num_rows_stored < 3:
    assert time.monotonic() - begun < 20
    time.sleep(0.01)
if sys.argv[2] == "close":
    writer.close()
else:
    writer.write({"n": [4]})
print("stored")
"""


@pytest.mark.parametrize("ending", ["close", "forget"])
def test_the_blocking_names_keep_it_too_and_the_process_ends(ending: str, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    ended = subprocess.run(
        [sys.executable, "-c", BLOCKING, path, ending], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "stored\n"), ended.stderr
    assert "Traceback" not in ended.stderr and "not stored" not in ended.stderr
    assert path.exists() == (ending == "close")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "5"])
async def test_bounds_that_are_none(seconds: Any) -> None:
    with pytest.raises(rpq.SchemaError, match="max_unstored_seconds is"):
        rpq.create("f.parquet", max_unstored_seconds=seconds)


async def test_a_resumed_writer_keeps_it(clock: Any, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    first = await rpq.create(path, row_group_rows=5)
    await first.write(rows(0, 12))
    await first.__aexit__(ConnectionError, ConnectionError(), None)
    again = await rpq.resume(path)
    assert again.num_rows_stored == 10
    await again.write(rows(10, 13))
    await clock.skip(29)
    await clock.until(lambda: again.num_rows_stored == 13)
    await again.close()
    assert pq.read_table(path).to_pydict() == rows(0, 13)


async def test_small_row_groups_are_told_of_before_the_file_is_full(
    clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cut_policy, "MAX_ROW_GROUPS", 20)
    async with rpq.create(tmp_path / "f.parquet") as writer:
        for number in range(8):
            assert ("a quarter of the row groups" in caplog.text) == (number > 5)
            await writer.write(rows(number, number + 1))
            await clock.skip(29)
            await clock.until(lambda stored=number + 1: writer.num_rows_stored == stored)  # type: ignore[misc]
    assert caplog.text.count("a quarter of the row groups") == 1


@pytest.mark.parametrize("where", ["upload", "local"])
async def test_streams_that_falter_and_calls_side_by_side(where: str, clock: Any, tmp_path: Path) -> None:
    """Whatever is stored in between, and by whom: each row is there once, and those of a call in their order."""
    rng, store = random.Random(5), UploadStore()
    schema = pa.schema([("call", pa.int64()), ("n", pa.int64())])
    going_on = threading.Semaphore(0)

    def stream(call: int, count: int) -> Iterator[pa.RecordBatch]:
        for number in range(count):
            going_on.acquire()
            yield pa.record_batch({"call": [call] * 3, "n": range(3 * number, 3 * number + 3)}, schema)

    options: dict[str, Any] = {"row_group_rows": 11, "options": rpq.WriteOptions(**SMALL)}
    calls = []
    async with rpq.create(place(where, store, tmp_path), schema, max_unstored_seconds=10, **options) as writer:
        for call in range(12):
            batches = pa.RecordBatchReader.from_batches(schema, stream(call, 10))
            calls.append(asyncio.create_task(writer.write(batches)))
            calls.append(asyncio.create_task(rng.choice((writer.flush, writer.checkpoint))()))
        while not all(task.done() for task in calls):
            if rng.random() < 0.3:
                going_on.release()
            await clock.skip(rng.choice((0.0, 1.0, 4.0)))
            await asyncio.sleep(0.001 * rng.random())
        await asyncio.gather(*calls)
        assert writer.num_rows_stored > 180
    async with rpq.open(place(where, store, tmp_path)) as file:
        found = await file.read()
        assert file.num_row_groups > 40, "many were closed by the timer"
    assert found["call"].tolist() == [call for call in range(12) for _ in range(30)]
    assert found["n"].tolist() == list(range(30)) * 12
