"""How the rows of a file are stored: by checkpoints, and before they are too old, within calls and between them.

An async shell around `UnstoredRows`, which knows the times.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from resilient_pq.io import ObjectSink, StoredState, WriteStore
from resilient_pq.io.cancellation import finish_in_thread, in_loop, in_one_hop
from resilient_pq.off_event_loop import AT_ONCE, ONE_HOP_BYTES
from resilient_pq.writer.checkpoint_history import CheckpointHistory
from resilient_pq.writer.checkpoint_log import CheckpointLog
from resilient_pq.writer.file_encoder import ClosedRowGroup, FileEncoder
from resilient_pq.writer.lifecycle import WriterLifecycle, failing
from resilient_pq.writer.pipeline import BatchFeeder, Pipeline
from resilient_pq.writer.write_options import EncoderOptions
from resilient_pq.writer.writer_timer import WriterTimer

log = logging.getLogger("resilient_pq.writer")

T = TypeVar("T")

#: Seconds that the timer waits for a call before it looks whether that only waits for its source.
_LOOK_AGAIN = 0.05
#: Looks at rows that are too old, within the time of the bound.
_LOOKS = 10


class UnstoredDeadline(WriterLifecycle):
    """A writer of one file, as far as its rows have to be stored before they are too old."""

    def __init__(
        self,
        store: WriteStore,
        key: str,
        sink: ObjectSink,
        options: EncoderOptions,
        checkpoint_log: CheckpointLog | None,
        *,
        owns_store: bool,
    ) -> None:
        """Begin without rows."""
        super().__init__(store, store.url_of(key), owns_store=owns_store)
        self._sink = sink
        self._checkpoints = CheckpointHistory(self.url, sink, checkpoint_log)
        self._options = options
        loop = asyncio._get_running_loop()
        self._clock = time.monotonic if loop is None else loop.time
        self._encoder: FileEncoder | None = None
        self._pipeline: Pipeline | None = None
        self._unstored: UnstoredRows | None = None  # where there is a bound that can be kept
        self._alarm = WriterTimer(self._store_in_time)
        self._incoming: BatchFeeder | None = None  # of the `write` that is at work
        self._rows_safe = 0  # rows that the newest commit stored of those that were waited for
        self._warned = False
        self._aimed = 0  # bytes of the file that the newest commit is to store
        self._storing: float | None = None  # seconds before the newest commit, while it is under way
        self._late = False  # whether rows are too old, which was told
        self._stays_in_thread = False
        self._checkpoint_time = self._commit_time = 0.0

    def _begins_without_loop(self, watch: Callable[[WriterTimer], None]) -> bool:
        """As of every writer: those of sinks that need none."""
        self._alarm.watch = watch
        return not self._sink.needs_loop

    def _stay_in_thread(self) -> None:
        """However much it is, unless several threads are at work for it already."""
        self._stays_in_thread = True
        if self._pipeline is not None and not self._pipeline.needs_loop:
            self._pipeline.use_one_thread()

    def _begin(self, encoder: FileEncoder) -> None:
        """Begin with the bytes that an encoder has laid out."""
        self._encoder = encoder
        self._checkpoints.begin(encoder.layout)
        self._checkpoint_time = self._commit_time = self._clock()
        bound = self._options.max_unstored
        if bound is not None and self._sink.can_store:
            self._unstored = UnstoredRows(bound, self._clock)

    async def _hop(self, work: Coroutine[Any, Any, T], num_bytes: int | None) -> T:
        """Have work done in one hop to a thread, where it is about few bytes and needs no event loop before its end."""
        needs_loop = self._sink.needs_loop if self._pipeline is None else self._pipeline.needs_loop
        if needs_loop or not (self._stays_in_thread or (num_bytes is not None and num_bytes < ONE_HOP_BYTES)):
            await in_loop()
            return await work
        try:
            return await in_one_hop(work)
        finally:
            self._alarm.rewind()

    @contextmanager
    def _taking(self, rows: BatchFeeder) -> Iterator[BatchFeeder]:
        """While rows are taken, the timer may use the encoder where their source keeps the call waiting."""
        self._incoming = rows
        try:
            yield rows
        finally:
            self._incoming = None

    def _note_taken(self, num_rows: int) -> None:
        """In any thread: rows are taken behind so many."""
        if self._unstored is not None:
            self._unstored.take(num_rows)

    async def _commit(self, *, wait: bool) -> None:
        assert self._encoder is not None
        num_rows = self._encoder.layout.num_rows
        if wait or not self._commit_under_way:  # else the sink begins nothing
            self._aimed = self._sink.position
        if await self._sink.commit(wait=wait) is StoredState.STORED:
            self._rows_safe = num_rows

    @property
    def _commit_under_way(self) -> bool:
        return not self._sink.stored_as_written and self._sink.num_bytes_stored < self._aimed

    async def _row_group_ended(self, closed: ClosedRowGroup, footer_follows: bool) -> None:
        if not closed.in_order:
            log.warning("%s: the rows of row group %d are not sorted as declared", self.url, closed.ordinal)
        if not footer_follows:
            await self._write_checkpoint_if_due()

    async def _write_checkpoint_if_due(self) -> None:
        """Between row groups: one that is due now."""
        assert self._encoder is not None
        if self._encoder.checkpoint_due(self._seconds_since_checkpoint):
            await self._known_pipeline.pushed()
            await self._write_checkpoint()
        self._checkpoints.log_stored()

    @property
    def _known_pipeline(self) -> Pipeline:
        assert self._pipeline is not None
        return self._pipeline

    async def _write_checkpoint(self, *, asked: bool = False, wait: bool = True) -> None:
        """Write a checkpoint; one that nobody waits for is made durable in the background, if that is worth it."""
        encoder, sink = self._encoder, self._sink
        assert encoder is not None
        seconds_since, self._checkpoint_time = self._seconds_since_checkpoint, self._clock()
        worth_it = encoder.commit_due(
            seconds_since,
            cost=sink.commit_cost,
            resent=sink.num_bytes_resent,
            seconds_since_commit=self._clock() - self._commit_time,
        )
        layout = encoder.layout
        large = len(layout.row_groups) * len(layout.schema.leaves) > AT_ONCE
        buffers = await finish_in_thread(encoder.checkpoint) if large else encoder.checkpoint()
        await self._known_pipeline.push(buffers)
        self._checkpoints.add(layout)
        if asked or worth_it:
            self._commit_time = self._clock()
            self._checkpoints.log_written()
            await self._commit(wait=asked and wait)
        log.debug("%s: %s", self.url, self._checkpoints.newest_stored)

    @property
    def _seconds_since_checkpoint(self) -> float:
        return self._clock() - self._checkpoint_time

    async def _store_in_time(self) -> None:
        """Store rows that become too old between calls, or in one that waits for its source."""
        try:
            while self._failure is None and not self._closed and self._alarm.when == math.inf:
                if (rows := self._incoming) is not None and rows.pause():
                    try:
                        return await self._keep_bound()
                    finally:
                        rows.resume()
                if await self._lock.acquire_within(_LOOK_AGAIN):
                    try:
                        return await self._keep_bound()
                    finally:
                        self._lock.release()
        except Exception as error:
            self._untold = error
            log.error("%s: rows that had waited for long were not stored: %s", self.url, error)

    async def _keep_bound_while_taking(self) -> None:
        """Before rows are taken: store those that become too old."""
        if (unstored := self._unstored) is None or self._encoder is None:
            return
        if not unstored.clock() < self._alarm.when < math.inf:
            await self._keep_bound()

    async def _keep_bound(self) -> None:
        """Have rows stored that would become too old, and wake up for the next. Nothing else may use the encoder."""
        unstored = self._unstored
        if unstored is None or self._closed or self._failure is not None:
            return
        self._late = self._late and unstored.oldest is not None
        if unstored.oldest is not None:
            async with failing(self):
                await self._store_if_due(unstored)
        self._alarm.set(self._next_look(unstored))

    async def _store_if_due(self, unstored: UnstoredRows) -> None:
        self._note_stored(unstored)
        self._warn_if_late(unstored)
        if unstored.due_at is None or unstored.due_at > unstored.clock():
            return
        if self._commit_under_way:
            await self._sink.commit(wait=False)  # which raises what went wrong
        else:
            await self._store_now(unstored)
        self._note_stored(unstored)

    def _next_look(self, unstored: UnstoredRows) -> float | None:
        """When to look again whether rows become too old; None where there are none."""
        now, oldest = unstored.clock(), unstored.oldest
        if oldest is None:
            return None if self._incoming is None else now + unstored.bound - unstored.lead
        if self._commit_under_way:
            return max(oldest + unstored.bound, now + unstored.bound / _LOOKS)
        return max(oldest + unstored.bound - unstored.lead, now + _LOOK_AGAIN)

    def _warn_if_late(self, unstored: UnstoredRows) -> None:
        """Say so once when rows are too old, until they are stored."""
        age = 0.0 if unstored.oldest is None else unstored.clock() - unstored.oldest
        if age >= unstored.bound and not self._late:
            log.warning("%s: rows have waited for %.1f s for being stored", self.url, age)
        self._late = age >= unstored.bound

    async def _store_now(self, unstored: UnstoredRows) -> None:
        """Store what was taken, and no more than that needs: small row groups and many footers cost every reader."""
        encoder, pipeline, sink = self._encoder, self._pipeline, self._sink
        assert encoder is not None and pipeline is not None
        begun = unstored.clock()
        footer = not sink.stored_as_written or self._options.write.checkpoint_seconds is not None
        if encoder.has_open_rows and self._open_rows_are_due(unstored, encoder):
            self._warn_before_it_is_full(unstored, encoder)
            await pipeline.close_row_group(ending=footer)
        await pipeline.push_row_groups(ending=footer)
        if footer and encoder.changed_since_checkpoint:
            await self._write_checkpoint(asked=True, wait=False)
        else:
            await self._commit(wait=False)
        seconds = unstored.clock() - begun
        self._storing = seconds if self._commit_under_way else None
        if self._storing is None:
            unstored.took(seconds)

    def _warn_before_it_is_full(self, unstored: UnstoredRows, encoder: FileEncoder) -> None:
        if encoder.soon_full and not self._warned:
            self._warned = True
            log.warning(
                "%s: a quarter of the row groups that all readers take is there, some of them small to be stored within"
                " %g s: with a larger max_unstored_seconds it takes more rows; a data set goes on in new files",
                self.url,
                unstored.bound,
            )

    def _open_rows_are_due(self, unstored: UnstoredRows, encoder: FileEncoder) -> bool:
        """Whether the open row group is to be stored with those before it, instead of a little later and fuller."""
        num_closed = encoder.num_rows_taken - encoder.num_open_rows
        taken_at = unstored.taken_at(num_closed)
        half_way = taken_at is not None and unstored.clock() >= taken_at + unstored.bound / 2
        return half_way or self._num_rows_safe >= num_closed

    def _note_stored(self, unstored: UnstoredRows) -> None:
        assert self._encoder is not None
        if self._storing is not None and not self._commit_under_way:
            unstored.took(self._storing + self._sink.commit_seconds)
            self._storing = None
        unstored.stored(self._num_rows_safe, self._encoder.num_rows_taken)
        self._checkpoints.log_stored()

    @property
    def _num_rows_safe(self) -> int:
        """Rows that survive a loss of power, too."""
        return self._rows_safe if self._sink.stored_as_written else max(self._rows_safe, self.num_rows_stored)


#: Before anything was measured, a store is taken to need this part of the bound for what waits: one fifteenth.
_FIRST_LEAD: Final = 15
#: Times that storing took of which the longest is expected again.
_REMEMBERED: Final = 5
#: What is kept free besides, of the bound: one tenth.
_SLACK: Final = 10
#: Ages are known to this part of the bound, so that few moments have to be remembered: one sixty-fourth.
_GRAIN: Final = 64


class UnstoredRows:
    """The rows of one file that are not stored.

    Attributes:
        bound: Seconds that a row may wait for being stored.
        clock: Tells the seconds.
    """

    def __init__(self, bound: float, clock: Callable[[], float]) -> None:
        """Know of no rows yet."""
        self.bound = bound
        self.clock = clock
        self._lock = threading.Lock()
        self._marks: deque[tuple[int, float]] = deque()  # a row, and when it was taken: with those behind it, or before
        self._took: deque[float] = deque(maxlen=_REMEMBERED)

    def take(self, num_rows: int) -> None:
        """Rows are about to be taken; `num_rows` were before."""
        now = self.clock()
        with self._lock:
            if not self._marks or now - self._marks[-1][1] >= self.bound / _GRAIN:
                self._marks.append((num_rows, now))

    def stored(self, num_rows: int, num_rows_taken: int) -> None:
        """The first `num_rows` of those taken are stored. No rows may be taken meanwhile."""
        with self._lock:
            while len(self._marks) > 1 and self._marks[1][0] <= num_rows:
                self._marks.popleft()
            if num_rows >= num_rows_taken:
                self._marks.clear()

    def taken_at(self, row: int) -> float | None:
        """When a row was taken that is not stored, or a little earlier; None where there is none."""
        with self._lock:
            known = [time for first, time in self._marks if first <= row]
            return known[-1] if known else None

    @property
    def oldest(self) -> float | None:
        """When the oldest of them was taken, or a little earlier; None where all are stored."""
        with self._lock:
            return self._marks[0][1] if self._marks else None

    @property
    def lead(self) -> float:
        """Seconds before the bound at which storing has to begin: half as much again as it took lately."""
        expected = max(self._took, default=self.bound / _FIRST_LEAD)
        return min(1.5 * expected + self.bound / _SLACK, self.bound / 2)

    @property
    def due_at(self) -> float | None:
        """When storing the oldest has to begin; None where all are stored."""
        return None if (oldest := self.oldest) is None else oldest + self.bound - self.lead

    def took(self, seconds: float) -> None:
        """What waited was stored in so many seconds."""
        self._took.append(seconds)
