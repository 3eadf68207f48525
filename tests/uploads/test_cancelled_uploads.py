"""A writer that is cancelled at any await leaves nothing running, publishes nothing, and loses nothing that is stored."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import either

import resilient_pq as rpq
from resilient_pq.io.s3.s3_store import S3Store
from resilient_pq.units import MiB

pytestmark = pytest.mark.usefixtures("one_thread")


class Scene:
    """A writer to an `UploadStore` that does the same for the same seed, and is cancelled by chance."""

    def __init__(self, seed: int, store: Any, batches: Callable[..., Any], promised: Callable[..., int]) -> None:
        self.seed = seed
        self.store = store
        self.store.events = self._count  # Requests that were begun and parts that landed so far
        self.events = 0
        self.tables: list[pa.Table] = []
        self.writer: Any = None
        self.error: BaseException | None = None  # What the writer raised
        self.num_rows_before = 0  # Rows that it had promised when it was cancelled
        self.completing = False
        self._batches = batches
        self._promised = promised
        self._due = asyncio.Event()
        self._cancel_at = -1

    @property
    def num_rows_promised(self) -> int:
        return 0 if self.writer is None else self._promised(self.writer)

    async def write(self, on_error: Any) -> None:
        """Write all, and remember the error, since a cancelled task does not tell its own."""
        try:
            await self._write(on_error)
        except BaseException as error:
            self.error = error
            raise

    async def _write(self, on_error: Any) -> None:
        rng = random.Random(self.seed)
        options = rpq.WriteOptions(part_bytes=MiB, max_part_bytes=MiB, max_bytes_in_flight=3 * MiB)
        async with rpq.create(
            (self.store, "a"),
            compression="none",
            row_group_bytes=rng.choice((200_000, 3 * MiB)),
            checkpoint_every=rng.choice((None, 2)),
            checkpoint_overhead=100.0,
            on_error=on_error,
            options=options,
        ) as writer:
            self.writer = writer
            for table in self._batches(rng, 6 * MiB):
                self.tables.append(table)
                await writer.write(table)
                if rng.random() < 0.3:
                    await writer.checkpoint()

    async def cancelled(self, at: int, turns: int, on_error: str, *, again: int = 0) -> None:
        """Cancel the writer some turns of the loop after an event, and then again; wait for its end."""
        self._cancel_at = at
        task = asyncio.create_task(self.write(on_error))
        due = asyncio.create_task(self._due.wait())
        await asyncio.wait([task, due], return_when=asyncio.FIRST_COMPLETED)
        due.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        self.num_rows_before = self.num_rows_promised
        task.cancel()
        for _ in range(again):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])

    def _count(self, event: str) -> None:
        self.completing = self.completing or event in ("complete", "put")
        self.events += 1
        if self.events == self._cancel_at:
            self._due.set()


def all_notes(error: BaseException | None) -> str:
    """The notes of an error and of those that it has as context: of two cancellations the first has what is kept."""
    notes = []
    while error is not None:
        notes += getattr(error, "__notes__", [])
        error = error.__context__
    return "\n".join(notes)


@pytest.fixture
def scene(upload_store: Any, random_batches: Any, rows_promised: Any) -> Callable[[int], Scene]:
    return lambda seed: Scene(seed, upload_store(seed), random_batches, rows_promised)


@pytest.fixture
def cancel(
    scene: Callable[[int], Scene], rescuer: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> Callable[..., Any]:
    """Cancels a writer and looks at what is left; says what became of it: "published", "kept" or "aborted"."""

    async def run(seed: int, at: int, turns: int, on_error: str, again: int) -> str:
        place = (seed, at, turns, on_error, again)
        before = asyncio.all_tasks()
        found = scene(seed)
        await found.cancelled(at, turns, on_error, again=again)
        assert asyncio.all_tasks() == before, place
        assert found.store.num_active == 0, place
        assert found.store.active_at_abort in ([], [0]), place
        if await found.store.exists("a"):
            assert found.completing, place
            assert pa.table(await (await rpq.open((found.store, "a"))).read()).equals(
                pa.concat_tables(found.tables).combine_chunks()
            ), place
            assert "uploads complete" not in all_notes(found.error), place
            return "published"
        assert isinstance(found.error, asyncio.CancelledError), place
        uploads = await found.store.list_uploads("")
        if not uploads:
            assert on_error == "abort" or not found.num_rows_before, place
            assert found.num_rows_promised == 0, place
            return "aborted"
        assert on_error == "keep" and found.num_rows_promised >= found.num_rows_before, place
        assert caplog.messages, place
        for said in (all_notes(found.error), caplog.messages[-1]):
            for name in (
                "memory:a",
                uploads[0].upload_id,
                "rpq uploads complete",
                f"{found.num_rows_promised:,} rows",
            ):
                assert name in said, (place, said)
        rescue = rescuer(found.store, pa.concat_tables(found.tables).combine_chunks(), seed)
        moment = found.store.history[-1]
        assert not moment.pending, place
        assert rescue.num_rows(moment.landed) >= found.num_rows_promised, place
        return "kept"

    return run


async def cancel_often(count: int, seed: int, scene: Callable[[int], Scene], cancel: Callable[..., Any]) -> set[str]:
    rng = random.Random(seed)
    events, outcomes = {}, set()
    for number in range(count):
        which = rng.randrange(5)
        if which not in events:
            whole = scene(which)
            await whole.write("keep")
            events[which] = whole.events
        at, turns = rng.randint(1, events[which]), rng.choice((0, 1, 2, 3, 8, 30))
        on_error = "abort" if number % 4 == 0 else "keep"
        outcomes.add(await cancel(which, at, turns, on_error, rng.choice((0, 0, 1, 4, 20))))
    return outcomes


async def test_cancelled_while_it_is_published(scene: Any, cancel: Any) -> None:
    """It is published, and nobody is told to complete an upload that is no more."""
    whole = scene(0)
    await whole.write("keep")
    outcomes = [await cancel(0, whole.events - before, 0, "keep", 0) for before in range(4)]
    assert "published" in outcomes


@pytest.mark.parametrize(("count", "seed"), either([(8, 1)], [(20, seed) for seed in range(2, 12)]))
async def test_cancelled_anywhere(scene: Any, cancel: Any, count: int, seed: int) -> None:
    assert {"kept", "aborted"} <= await cancel_often(count, seed, scene, cancel)


@pytest.fixture
def cancel_on_server(
    s3_proxy: Any,
    random_batches: Callable[..., Any],
    rows_promised: Callable[[Any], int],
    complete_by_the_rule: Callable[..., Any],
) -> Callable[..., Any]:
    """The same on a real server, some turns of the loop after so many requests."""
    s3, proxy = s3_proxy

    async def write(store: S3Store, key: str, writers: list[Any], tables: list[pa.Table], on_error: Any) -> None:
        rng = random.Random(key)
        async with rpq.create(
            (store, f"{s3.bucket}/{key}"),
            compression="none",
            row_group_bytes=7 * MiB,
            on_error=on_error,
            options=rpq.WriteOptions(part_bytes=5 * MiB, max_bytes_in_flight=15 * MiB),
        ) as writer:
            writers.append(writer)
            for table in random_batches(rng, 25 * MiB):
                tables.append(table)
                await writer.write(table)
                if rng.random() < 0.4:
                    await writer.checkpoint()

    async def run(key: str, requests: int, turns: int, on_error: str) -> str:
        place = (key, requests, turns, on_error)
        before, seen = asyncio.all_tasks(), len(proxy.requests)
        writers: list[Any] = []
        tables: list[pa.Table] = []
        async with S3Store(s3.storage_options) as store:
            due, loop = asyncio.Event(), asyncio.get_running_loop()
            proxy.arrived = lambda: len(proxy.requests) - seen == requests and loop.call_soon_threadsafe(due.set)
            if not requests:
                due.set()
            task = asyncio.create_task(write(store, key, writers, tables, on_error))
            waiting = asyncio.create_task(due.wait())
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
            promised = rows_promised(writers[0]) if writers else 0
            task.cancel()
            await asyncio.wait([task])
            proxy.arrived = lambda: None
            assert proxy.num_in_flight == 0, place
        assert asyncio.all_tasks() == before, place
        if key in s3.object_names():
            found = pq.read_table(io.BytesIO(s3.read(key)))
            assert found.equals(pa.concat_tables(tables).combine_chunks()), place
            return "published"
        uploads = s3.upload_ids()
        if not uploads:
            assert on_error == "abort" or not promised, place
            assert not [name for name in s3.object_names() if name.endswith(f"_{key}.rpq-epoch")], place
            return "aborted"
        assert on_error == "keep", place
        (upload_id,) = uploads
        found = pq.read_table(io.BytesIO(complete_by_the_rule(s3, key, upload_id)))
        assert found.num_rows >= rows_promised(writers[0]) >= promised, place
        assert found.equals(pa.concat_tables(tables).slice(0, found.num_rows).combine_chunks()), place
        return "kept"

    return run


async def cancel_often_on_server(count: int, seed: int, cancel_on_server: Callable[..., Any]) -> set[str]:
    rng = random.Random(seed)
    return {
        await cancel_on_server(
            f"{seed} {number}",
            rng.randint(0, 24),
            rng.choice((0, 1, 3, 8, 30)),
            "abort" if number % 4 == 3 else "keep",
        )
        for number in range(count)
    }


@pytest.mark.parametrize(("count", "seed"), either([(4, 1)], [(40, 2)], 900))
async def test_cancelled_on_a_server(cancel_on_server: Any, count: int, seed: int) -> None:
    assert {"kept", "aborted"} <= await cancel_often_on_server(count, seed, cancel_on_server)
