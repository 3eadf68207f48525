"""Rows as a stream: what is read ahead, what it may hold, and what is left of it when nobody wants more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.arrow.buffers import make_array
from resilient_pq.arrow.types.field import Field
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.io import FetchOptions
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.loop_portal import portal
from resilient_pq.reader.decoder import RowGroupArrays
from resilient_pq.reader.read_batches import ReadBatch, cut_into_batches
from resilient_pq.reader.read_plan import RowGroupRead
from resilient_pq.reader.streaming import Batches, BatchJob, Jobs, read_ahead
from resilient_pq.units import KiB


def group(ordinal: int, start: int, end: int, *, file: str | None = None, decoded: int = 0) -> RowGroupRead:
    """A row group with one chunk, of which no more is looked at."""
    metadata: Any = SimpleNamespace(total_uncompressed_size=decoded)
    leaf: Any = None
    chunk = ChunkRead(ordinal, leaf, metadata, ByteRange(start, end), 1, file=file)
    return RowGroupRead(ordinal, 1, ((chunk,),))


def ordinals(row_groups: Sequence[RowGroupRead], **options: int) -> list[list[int]]:
    chosen = {"gap": 64 * KiB, "budget": 64 * 1024 * KiB, **options}
    return [[one.ordinal for one in batch.row_groups] for batch in cut_into_batches(row_groups, **chosen)]


class TestPortions:
    def test_small_neighbours_share_one_up_to_a_mebibyte(self) -> None:
        groups = [group(i, 400 * KiB * i, 400 * KiB * (i + 1)) for i in range(5)]
        assert ordinals(groups) == [[0, 1], [2, 3], [4]]

    def test_large_ones_stand_alone(self) -> None:
        groups = [group(i, 2000 * KiB * i, 2000 * KiB * (i + 1)) for i in range(3)]
        assert ordinals(groups) == [[0], [1], [2]]

    def test_those_with_a_gap_between_them_stand_alone(self) -> None:
        groups = [group(0, 4, 10), group(1, 10 + 64 * KiB, 64 * KiB + 20), group(2, 200 * KiB, 201 * KiB)]
        assert ordinals(groups) == [[0, 1], [2]]

    def test_those_of_different_files_stand_alone(self) -> None:
        groups = [group(0, 4, 10, file="a"), group(1, 10, 20, file="b"), group(2, 20, 30, file="b")]
        assert ordinals(groups) == [[0], [1, 2]]

    def test_those_in_another_order_stand_alone(self) -> None:
        assert ordinals([group(1, 10, 20), group(0, 4, 10), group(1, 10, 20)]) == [[1], [0, 1]]

    def test_a_small_budget_makes_them_small(self) -> None:
        groups = [group(i, 100 * i, 100 * (i + 1)) for i in range(4)]
        assert ordinals(groups, budget=3200) == [[0, 1], [2, 3]]
        assert ordinals(groups, budget=1) == [[0], [1], [2], [3]]

    def test_those_without_columns_share_one(self) -> None:
        assert ordinals([RowGroupRead(i, 10, ()) for i in range(3)]) == [[0, 1, 2]]

    def test_what_a_footer_says_below_zero_is_not_believed(self) -> None:
        assert ReadBatch((group(0, 4, 14, decoded=-(1 << 60)),)).num_decoded == 0


class Reading:
    """Jobs that are done when they are told to be, with a row of `size` bytes each."""

    def __init__(self, *sizes: int, decoded: int = 0) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self._released = [asyncio.Event() for _ in sizes]
        self._sizes = sizes
        self._jobs = [BatchJob(ReadBatch((group(i, 4, 104, decoded=decoded),)), self._read) for i in range(len(sizes))]

    async def jobs(self) -> Jobs:
        for job in self._jobs:
            yield job

    async def _read(self, groups: Sequence[RowGroupRead]) -> list[RowGroupArrays]:
        (ordinal,) = [one.ordinal for one in groups]
        self.begun.append(ordinal)
        try:
            await self._released[ordinal].wait()
        except asyncio.CancelledError:
            self.cancelled.append(ordinal)
            raise
        if self._sizes[ordinal] < 0:
            raise FormatError(f"row group {ordinal} is damaged")
        return [_rows(self._sizes[ordinal])]

    async def finish(self, *ordinals: int) -> None:
        """Let jobs end, and everything happen that follows from it."""
        for ordinal in ordinals:
            self._released[ordinal].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def _rows(size: int) -> RowGroupArrays:
    field = Field("a", "l", False)
    return RowGroupArrays([make_array(field, size // 8, [np.zeros(size // 8, np.int64)], None)], size // 8)


class TestReadAhead:
    async def test_as_many_as_the_budget_has_room_for(self) -> None:
        reading = Reading(*[80] * 9, decoded=100)
        async with aclosing(read_ahead(reading.jobs(), FetchOptions(memory_budget=800, max_requests=16))) as arriving:
            first = asyncio.ensure_future(anext(arriving))
            await reading.settle()
            assert reading.begun == [0, 1, 2, 3]  # each is expected to hold its 100 bytes and 100 more
            await reading.finish(0)
            assert (await first).num_rows == 10
            assert reading.begun == [0, 1, 2, 3, 4]

    async def test_what_is_decoded_already_is_counted_as_it_is(self) -> None:
        reading = Reading(8, 8, 8, 8, 8, 8, 8, 8, 8, decoded=100)
        async with aclosing(read_ahead(reading.jobs(), FetchOptions(memory_budget=400, max_requests=16))) as arriving:
            first = asyncio.ensure_future(anext(arriving))
            await reading.finish(0, 1)
            await first
            await reading.settle()
            # The second waits with 8 bytes, so that one more of 200 has room beside it.
            assert reading.begun == [0, 1, 2]

    async def test_rows_that_grow_more_than_the_footer_says_are_expected_to_go_on_so(self) -> None:
        reading = Reading(*[8_000] * 6)
        async with aclosing(read_ahead(reading.jobs(), FetchOptions(memory_budget=300, max_requests=16))) as arriving:
            first = asyncio.ensure_future(anext(arriving))
            await reading.settle()
            await reading.finish(0, 1, 2)
            await first
            await reading.settle()
            assert reading.begun == [0, 1, 2]
            await anext(arriving)
            await reading.settle()
            assert reading.begun == [0, 1, 2]
            await anext(arriving)
            await reading.settle()
            assert reading.begun == [0, 1, 2, 3]  # one in any case

    async def test_no_more_than_so_many(self) -> None:
        reading = Reading(*[8] * 9)
        async with aclosing(
            read_ahead(reading.jobs(), FetchOptions(memory_budget=1 << 40, max_requests=3))
        ) as arriving:
            first = asyncio.ensure_future(anext(arriving))
            await reading.finish(0)
            await first
            await reading.settle()
            assert reading.begun == [0, 1, 2, 3]

    async def test_nothing_is_begun_while_nobody_comes_for_more(self) -> None:
        reading = Reading(*[8] * 4)
        async with aclosing(read_ahead(reading.jobs(), FetchOptions(memory_budget=1, max_requests=16))) as arriving:
            first = asyncio.ensure_future(anext(arriving))
            await reading.finish(0, 1)
            await first
            await reading.settle()
            assert reading.begun == [0, 1]

    async def test_closing_cancels_what_is_under_way(self) -> None:
        reading = Reading(*[8] * 4)
        async with aclosing(
            read_ahead(reading.jobs(), FetchOptions(memory_budget=1 << 40, max_requests=16))
        ) as arriving:
            first = asyncio.ensure_future(anext(arriving))
            await reading.finish(0)
            await first
        assert reading.cancelled == [1, 2, 3]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def test_an_error_comes_in_its_turn(self) -> None:
        reading = Reading(8, -1, 8)
        async with aclosing(
            read_ahead(reading.jobs(), FetchOptions(memory_budget=1 << 40, max_requests=16))
        ) as arriving:
            first = asyncio.ensure_future(anext(arriving))
            await reading.finish(1)
            assert not first.done()
            await reading.finish(0, 2)
            assert (await first).num_rows == 1
            with pytest.raises(FormatError, match="row group 1 is damaged"):
                await anext(arriving)
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_schema_is_there_before_the_first_batch(our_bytes: bytes, stored: Any, rows: pa.Table) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file, file.batches(columns=["s", "n"]) as batches:
        assert pa.schema(batches) == pa.schema(batches.schema) == rows.select(["s", "n"]).schema
        await batches.aclose()
        with pytest.raises(rpq.UnsupportedError, match="closed before its last row"):
            await anext(batches)


class TestAStreamThatWasEndedBeforeItsLastRow:
    """Whoever asks for more is told: silence would pass for its end."""

    async def test_a_wait_for_a_batch_was_cancelled(self, our_bytes: bytes, stored: Any) -> None:
        async with rpq.open((await stored(our_bytes), "file")) as file:
            batches = file.batches(8)
            waiting = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            for _ in range(2):
                with pytest.raises(rpq.UnsupportedError, match="cancelled"):
                    await anext(batches)

    async def test_an_error_was_raised(self, stored: Any) -> None:
        def tell(_: object) -> None:
            raise KeyError("theirs")

        async def arriving() -> Any:
            yield RowGroupArrays([], 3, [])

        batches = Batches.of(Field("", "+s", False), arriving(), 8, tell)
        for _ in range(2):
            with pytest.raises(KeyError, match="theirs"):
                await anext(batches)

    async def test_the_last_row_was_given(self, our_bytes: bytes, stored: Any) -> None:
        async with rpq.open((await stored(our_bytes), "file")) as file, file.batches(8) as batches:
            assert sum([batch.num_rows async for batch in batches]) == file.num_rows
            await batches.aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(batches)

    async def test_the_blocking_twin(self, our_bytes: bytes) -> None:
        def blocking() -> None:
            store = MemoryStore()
            portal.run(store.put("file", our_bytes))
            with sync.open((store, "file")) as file:
                with file.batches(8) as batches:
                    reader = pa.RecordBatchReader.from_stream(batches)
                    next(batches)
                with pytest.raises(rpq.UnsupportedError, match="closed before its last row"):
                    next(batches)
                with pytest.raises(OSError, match="closed before its last row"):
                    reader.read_all()
                whole = file.batches(8)
                assert sum(batch.num_rows for batch in whole) == file.num_rows
                assert list(whole) == []

        await asyncio.to_thread(blocking)


async def test_what_is_asked_wrongly_is_said_at_once(our_bytes: bytes, stored: Any) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        with pytest.raises(rpq.SchemaError, match="no column"):
            file.batches(columns=["nothing"])
        wrong: Any
        for wrong in (0, 1.5, "5", None, ["n"]):
            with pytest.raises(rpq.SchemaError, match="it is a whole number, at least 1"):
                file.batches(wrong)


async def test_streams_share_the_bound_of_requests(our_bytes: bytes, stored: Any) -> None:
    """However many row groups are read ahead, and however many streams go on."""
    store = Counting(await stored(our_bytes))
    options = rpq.ReadOptions(tail_bytes=8, merge_gap=0, max_requests=3)
    async with rpq.open((store, "file"), options=options) as file:

        async def walk() -> int:
            return sum([batch.num_rows async for batch in file.batches(columns=["n", "f"])])

        assert await asyncio.gather(walk(), walk(), walk()) == [90, 90, 90]
    assert store.most == 3


class Counting(MemoryStore):
    """Knows how many reads went on at one time."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__()
        self.__dict__.update(vars(inner))
        self.most = self._now = 0

    async def read_range(self, key: str, start: int, end: int, *, pin: Any) -> bytes | memoryview:
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(0)
            return await super().read_range(key, start, end, pin=pin)
        finally:
            self._now -= 1


@pytest.mark.parametrize("damaged", [b"\x1c\x15\x0b", b"\x3c\x15\x04"], ids=["another type", "no metadata"])
async def test_damage_in_the_footer_comes_behind_the_rows_before_it_each_time(damaged: bytes) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": pa.array(range(30))}), sink, row_group_size=10, store_schema=False)
    before, type_of_last, after = sink.getvalue().to_pybytes().rpartition(b"\x1c\x15\x04")  # a struct, of INT64
    assert type_of_last
    store = MemoryStore()
    await store.put("n.parquet", before + damaged + after)
    async with rpq.open((store, "n.parquet")) as file:
        for _ in range(2):
            rows = 0
            with pytest.raises(FormatError) as caught:
                async for batch in file.batches():
                    rows += batch.num_rows
            assert (rows, caught.value.where.key, caught.value.where.row_group) == (20, file.url, 2)
