"""Rows as a stream: read ahead in order, within a budget of bytes, and handed out in batches. An async shell."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import nanoarrow

from resilient_pq.arrow.buffers import BufferPart, num_bytes
from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.field import Field
from resilient_pq.errors import OptionError, ResilientPQError, UnsupportedError
from resilient_pq.io import FetchOptions
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.decoder import RowGroupArrays
from resilient_pq.reader.read_batches import ReadBatch
from resilient_pq.reader.read_plan import RowGroupRead

if TYPE_CHECKING:
    from resilient_pq.damage.lost_region import LostRegion

#: Reads row groups of one file, and gives the rows of each.
ReadRowGroups = Callable[[Sequence[RowGroupRead]], Coroutine[Any, Any, list[RowGroupArrays]]]


#: The rows of one row group after the other, in order.
Arriving: TypeAlias = AsyncGenerator[RowGroupArrays, None]


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A batch of a stream, and what reads it."""

    batch: ReadBatch  # What to read; without row groups where reading it can only fail
    read: ReadRowGroups  # Reads row groups of it


#: The jobs of a stream, in order; planning the next one may read indexes.
Jobs: TypeAlias = AsyncGenerator[BatchJob, None]


class Batches(AsyncIterator[Table]):
    """A stream of tables; ``async for`` takes them, and leaving it early cancels what is read ahead.

    That happens when the stream is let go of, or there and then: with `aclose`, ``async with`` or
    `contextlib.aclosing`. A stream that was ended before its last row, by that, by an error or because a wait for it
    was cancelled, says so to whoever asks for more: only after the last row it just ends.
    """

    def __init__(self, field: Callable[[], Field], tables: AsyncGenerator[Table, None]) -> None:
        """Use `File.batches` instead."""
        self._field = field
        self._tables = tables
        self._ending = asyncio.Lock()  # a generator refuses to be closed while it is being closed
        self._stopped: Exception | None = None

    @classmethod
    def of(
        cls,
        field: Callable[[], Field],
        arriving: Arriving,
        batch_rows: int,
        report: Callable[[Sequence[LostRegion]], None],
        *,
        limit: int | None = None,
    ) -> Self:
        """The rows of row groups, in their order; the arguments are those of `batches_of`."""
        return cls(field, batches_of(field, arriving, batch_rows=batch_rows, report=report, limit=limit))

    @property
    def schema(self) -> nanoarrow.Schema:
        """The Arrow schema of the batches; one may have a wider form of a type, where its values need it."""
        return nanoarrow.Schema(self._field().to_c())

    def __arrow_c_schema__(self) -> object:
        """The schema as a capsule of the Arrow C data interface."""
        return self._field().to_c().__arrow_c_schema__()

    async def __anext__(self) -> Table:
        """The next batch; an error where the stream was ended before its last one."""
        self.refuse_stopped()
        try:
            return await anext(self._tables)
        except StopAsyncIteration:
            self.refuse_stopped()  # it may have been closed by another task meanwhile
            raise
        except Exception as error:
            if _has_ended(self._tables):  # else it goes on, as when two wait for a batch at one time
                self._stopped = error
            raise
        except BaseException:
            self._stop("a wait for a batch was cancelled, and ended the stream before its last row")
            raise

    def refuse_stopped(self) -> None:
        """Raise what ended the stream before its last row, if anything did.

        Raises:
            UnsupportedError: It was closed, or a wait for a batch was cancelled; or else the error that was raised.
        """
        if self._stopped is not None:
            raise self._stopped

    def _stop(self, why: str) -> None:
        if self._stopped is None:
            self._stopped = UnsupportedError(why, hint="begin another stream: batches() or records()")

    async def aclose(self) -> None:
        """Read no more. A second call only waits for the first, where that is not done yet."""
        if not _has_ended(self._tables):
            self._stop("the stream was closed before its last row")
        async with self._ending:
            await self._tables.aclose()

    async def __aenter__(self) -> Self:
        """The stream itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Read no more."""
        await self.aclose()


def _has_ended(tables: AsyncGenerator[Table, None]) -> bool:
    """Whether a generator gives nothing more, whatever ended it."""
    return getattr(tables, "ag_frame", None) is None  # typeshed knows it of `types.AsyncGeneratorType` alone


def check_batch_rows(batch_rows: int) -> None:
    """Refuse a number of rows that no batch can have."""
    count: object = batch_rows
    if not isinstance(count, Integral) or count < 1:
        raise OptionError(f"batch_rows is {batch_rows!r}; it is a whole number, at least 1")


async def batches_of(
    field: Callable[[], Field],
    arriving: Arriving,
    *,
    batch_rows: int,
    report: Callable[[Sequence[LostRegion]], None],
    limit: int | None = None,
) -> AsyncGenerator[Table, None]:
    """Rows in batches; `report` is called with what is lost of a row group before its rows are given."""
    left = limit
    async with aclosing(arriving):
        while left != 0 and (rows := await anext(arriving, None)) is not None:
            report(rows.lost)
            num_arrays = len(rows.arrays)
            table = await off_loop(num_arrays, Table, field(), [rows.arrays], rows.num_rows)
            if left is not None:
                table = await off_loop(num_arrays, table.slice, 0, left)
                left -= table.num_rows
            for start in range(0, table.num_rows, batch_rows):
                yield await off_loop(num_arrays, table.slice, start, batch_rows)


async def read_ahead(jobs: Jobs, fetch: FetchOptions) -> Arriving:
    """The rows of each row group, in order, while others behind them are fetched and decoded within a budget."""
    # The next job is under way whatever its size; further ones while the bytes requested and the rows that wait stay
    # within the budget. A job begins only when the consumer asks for rows, but its plan may be asked for before.
    ahead = _Ahead(jobs, fetch.memory_budget, fetch.max_requests)
    try:
        while True:
            await ahead.begin()
            if not ahead.running:
                return
            job = ahead.running[0].job
            try:
                found = (await ahead.running[0].task)[0]
            except ResilientPQError:
                if len(job.batch.row_groups) <= 1:
                    raise
                found = None
            ahead.running.popleft()
            if found is not None:
                await ahead.begin(also_none=True)
                for rows in found:
                    yield rows
                continue
            # One of several row groups failed: the rows before it are given all the same.
            for group in job.batch.row_groups:
                yield (await job.read([group]))[0]
    finally:
        await ahead.cancel()


class _Ahead:
    """The jobs under way or done whose rows were not taken yet, in order."""

    def __init__(self, jobs: Jobs, budget: int, most: int) -> None:
        self.running: deque[_Running] = deque()
        self._jobs = jobs
        self._following: asyncio.Task[BatchJob | None] | None = None
        self._budget = budget
        self._most = most
        self._growth = 0.0  # decoded bytes for each one fetched, the most of any job so far

    async def begin(self, *, also_none: bool = False) -> None:
        """Begin as many jobs as the budget allows; waits for the first one to be planned, but not with `also_none`."""
        while True:
            if self._following is None:
                self._following = asyncio.ensure_future(_next_job(self._jobs))
                await asyncio.sleep(0)  # what need not read anything is known then
            if (self.running or also_none) and not _succeeded(self._following):
                return
            job = await self._following
            if job is None:
                return
            if self.running and self._is_full(job):
                return
            self.running.append(_Running(job, asyncio.ensure_future(_read_and_measure(job))))
            self._following = None

    def _is_full(self, following: BatchJob) -> bool:
        held = sum(self._size(one) for one in self.running)
        return len(self.running) >= self._most or held + self._expected(following.batch) > self._budget

    def _size(self, one: _Running) -> int:
        """Bytes that a job holds; until it is done, those that it is expected to."""
        if not _succeeded(one.task):
            return self._expected(one.job.batch)
        size = one.task.result()[1]
        self._growth = max(self._growth, size / max(one.job.batch.num_bytes, 1))
        return size

    def _expected(self, batch: ReadBatch) -> int:
        """Bytes of the fetched chunks and of their decoded rows, which are in memory together for a while."""
        return batch.num_bytes + max(batch.num_decoded, int(batch.num_bytes * self._growth))

    async def cancel(self) -> None:
        """Cancel all jobs, and wait until they have ended."""
        tasks: list[asyncio.Task[Any]] = [one.task for one in self.running]
        if self._following is not None:
            tasks.append(self._following)
        self.running.clear()
        for task in tasks:
            task.cancel()
        # Their errors are dropped: nobody asked for these rows.
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._jobs.aclose()


@dataclass(slots=True)
class _Running:
    """A job under way; its task gives the rows, and the bytes that they hold."""

    job: BatchJob
    task: asyncio.Task[tuple[list[RowGroupArrays], int]]


async def _read_and_measure(job: BatchJob) -> tuple[list[RowGroupArrays], int]:
    found = await job.read(job.batch.row_groups)

    def size() -> int:
        return sum(num_bytes(BufferPart.of(array)) for rows in found for array in rows.arrays)

    return found, await off_loop(sum(len(rows.arrays) for rows in found), size)


async def _next_job(jobs: Jobs) -> BatchJob | None:
    return await anext(jobs, None)


def _succeeded(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
