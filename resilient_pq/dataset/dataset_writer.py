"""`DatasetWriter`: one stream of rows in, files out, each published when it is full. An async shell."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from resilient_pq.arrow.batch_ingest import Batch, Ingest
from resilient_pq.arrow.handed_over import copy_mutable
from resilient_pq.dataset import sink_state
from resilient_pq.dataset.naming import FilePlace
from resilient_pq.dataset.partitions import Partitioning
from resilient_pq.dataset.rolling import Filled
from resilient_pq.dataset.sink_state import Begun, DatasetCheckpoint, DatasetFile, OpenFile, Partition, SinkSettings
from resilient_pq.errors import (
    FileFullError,
    ResilientPQError,
    SchemaError,
    StoreError,
    Where,
    WriterClosedError,
    located,
)
from resilient_pq.io import StoredState, WriteStore
from resilient_pq.io.cancellation import all_or_none, finish_in_thread
from resilient_pq.tables.committer import Committer
from resilient_pq.writer.file_writer import Writer
from resilient_pq.writer.lifecycle import WriterLifecycle, failing

log = logging.getLogger("resilient_pq.dataset")

T = TypeVar("T")

#: Begins a file: given its place in the data set, and what takes its rows.
BeginFile = Callable[[FilePlace, Ingest], Awaitable[Writer]]


class DatasetWriter(WriterLifecycle):
    """Writes the files of a data set from one stream of rows; made by `create_dataset` and by `resume_dataset`.

    Attributes:
        url: The folder of the data set.
    """

    _CALLED = "the data set's writer"
    _AFTER_FAILURE = "close the writer, then resume with rpq.resume_dataset"

    def __init__(
        self,
        store: WriteStore,
        url: str,
        settings: SinkSettings,
        begin_file: BeginFile,
        *,
        owns_store: bool,
        begun: Begun,
        committer: Committer | None = None,
    ) -> None:
        """Use `create_dataset` or `resume_dataset` instead."""
        super().__init__(store, url, owns_store=owns_store)
        self._settings = settings
        self._begin_file = begin_file
        self._partitions = begun.partitions
        self._files = begun.files
        self._open: OrderedDict[str, Partition] = OrderedDict()  # the least recently written first
        self._partitioning: Partitioning | None = None
        self._most_buffered = 0  # no less than `num_bytes_buffered`, which is not asked of many files for each piece
        self._share = 1.0  # bytes of the last file for each byte that its rows took in memory
        self._opened = asyncio.Event()
        self._timer: asyncio.Task[None] | None = None
        self._committer = committer

    # -- what a caller can ask -------------------------------------------------------------------

    @property
    def num_rows(self) -> int:
        """Rows that `write` has taken, and those that were stored when the data set was resumed."""
        return sum(partition.num_rows for partition in self._partitions.values())

    @property
    def num_rows_stored(self) -> int:
        """Rows that survive this process, of all partitions."""
        return sum(partition.num_rows_stored for partition in self._partitions.values())

    @property
    def num_rows_stored_by_partition(self) -> dict[str, int]:
        """The same of each partition, by its folder below the data set; always the first rows of each."""
        return {name: partition.num_rows_stored for name, partition in self._partitions.items()}

    @property
    def files(self) -> tuple[DatasetFile, ...]:
        """The files that were published, in that order; first those that `resume_dataset` completed."""
        return tuple(self._files)

    @property
    def files_not_committed(self) -> tuple[str, ...]:
        """The published files that are not known to be in the table yet; empty without a table."""
        return () if self._committer is None else self._committer.pending

    @property
    def num_open_files(self) -> int:
        """Files that are being written."""
        return len(self._open)

    @property
    def num_bytes_buffered(self) -> int:
        """About what the rows of all open row groups take in memory; between calls no more than `row_group_bytes`."""
        return sum(each.open_file.writer.num_bytes_buffered for each in self._open.values())

    # -- writing ---------------------------------------------------------------------------------

    async def _write(self, data: object) -> None:
        async with self._lock:
            self._check_open()
            with located(Where(key=self.url)):
                if self._partitioning is None:
                    ingest, data = await finish_in_thread(_infer, data)
                    await self._learn(ingest)
                batches = await finish_in_thread(self._prepare, data)
            async with failing(self, but=SchemaError):  # which is of a batch of which no row was taken
                while (pieces := await finish_in_thread(_next, batches)) is not None:
                    async with failing(self):
                        # Those of open files first: they would be the next to be published early.
                        for name, rows in sorted(pieces, key=lambda piece: piece[0] not in self._open):
                            await self._take(self._partition(name), rows)

    def _prepare(self, data: object) -> Iterator[list[tuple[str, Batch]]]:
        """Rows by partition."""
        assert self._partitioning is not None
        batches = self._partitioning.whole.batches(copy_mutable(data))
        return (pieces for batch in batches for pieces in self._partitioning.split(batch))

    async def _learn(self, ingest: Ingest) -> None:
        """Take rows of this schema, which fits the table."""
        settings = self._settings
        partitioning = Partitioning(ingest, settings.partition_by, keep=settings.keep_keys)
        if self._committer is not None:
            ingest = await self._committer.fitted(ingest)
            partitioning = Partitioning(ingest, settings.partition_by, keep=settings.keep_keys)
        self._partitioning = partitioning

    def _partition(self, name: str) -> Partition:
        if name not in self._partitions:
            self._partitions[name] = Partition(name)
        return self._partitions[name]

    async def _take(self, partition: Partition, rows: Batch) -> None:
        start = min(partition.num_rows_known, rows.num_rows)
        partition.num_rows_known -= start
        while start < rows.num_rows:
            file = partition.file or await self._begin(partition)
            self._open.move_to_end(partition.name)
            rest = rows.num_rows - start
            count = self._settings.roll.rows_that_fit(rest, rows.num_bytes * rest // rows.num_rows, self._filled(file))
            before, buffered = file.writer.num_rows, file.writer.num_bytes_buffered
            piece = rows.slice(start, start + count)
            try:
                await file.writer._write(piece)  # the rows of all files are kept together
            except FileFullError:
                start += file.writer.num_rows - before
                self._note_published(partition)
                continue
            start += count
            file.bytes_taken += piece.num_bytes
            self._most_buffered += max(0, file.writer.num_bytes_buffered - buffered)
            if count < rest or self._settings.roll.full(self._filled(file)):
                await self._publish_file(partition)
            await self._bound_memory()

    def _filled(self, file: OpenFile) -> Filled:
        writer = file.writer
        written = file.bytes_taken - writer.num_bytes_buffered
        share = _share(writer.num_bytes, written) if written > 0 else self._share
        return Filled(writer.num_rows, writer.num_bytes, writer.num_bytes_buffered, share)

    async def _begin(self, partition: Partition) -> OpenFile:
        """The next file of a partition; the one that was written least recently makes room for it."""
        while len(self._open) >= self._settings.max_open:
            await self._publish_file(next(iter(self._open.values())))
        assert self._partitioning is not None
        place = FilePlace(partition.name, partition.sequence, partition.num_rows_before)
        if self._committer is not None:
            await self._committer.begin(place.partition, place.sequence)
        writer = await self._begin_file(place, self._partitioning.files)
        seconds = self._settings.roll.seconds
        partition.file = OpenFile(writer, None if seconds is None else sink_state.now() + seconds)
        self._open[partition.name] = partition
        if seconds is not None:
            self._opened.set()
            self._timer = self._timer or asyncio.create_task(self._watch())
        return partition.file

    async def _bound_memory(self) -> None:
        """All open row groups share the memory that one may take: the largest is closed when it is used up."""
        while self._most_buffered > self._settings.open_bytes:
            self._most_buffered = self.num_bytes_buffered
            if self._most_buffered <= self._settings.open_bytes:
                return
            writers = [each.open_file.writer for each in self._open.values()]
            await max(writers, key=lambda writer: writer.num_bytes_buffered).flush()

    async def checkpoint(self) -> DatasetCheckpoint:
        """Write a checkpoint to every open file, and make all rows as durable as the store can.

        Returns:
            The rows before it, by partition. Its state is "stored" or "visible" when they survive this process; a
            store that cannot promise that yet says "accepted".

        Raises:
            StoreError: The store refused; the writer has failed.
            WriterFencedError: Another sink has taken over; this one has failed.
            WriterClosedError: The writer has ended.
            WriterFailedError: An earlier call failed.
        """
        async with self._lock:
            self._check_open()
            async with failing(self):
                made = await all_or_none(each.open_file.writer.checkpoint() for each in self._open.values())
            states = {checkpoint.state for checkpoint in made}
            order = (StoredState.ACCEPTED, StoredState.STORED)
            state = next((known for known in order if known in states), StoredState.VISIBLE)
            rows = {name: partition.num_rows_given for name, partition in self._partitions.items()}
            return DatasetCheckpoint(sum(rows.values()), rows, state)

    # -- files that are complete -----------------------------------------------------------------

    def _notice(self) -> None:
        if self._committer is not None and self._failure is None and (failure := self._committer.failure) is not None:
            self._failure, self._untold = failure, failure
        for each in self._open.values():
            if (untold := each.open_file.writer._take_untold()) is not None:
                self._failure, self._untold = self._failure or untold, self._untold or untold

    async def _publish_file(self, partition: Partition) -> None:
        await partition.open_file.writer.close()
        self._note_published(partition)

    def _note_published(self, partition: Partition) -> None:
        file, name, first_row = partition.open_file, partition.name, partition.num_rows_before
        num_rows, size = file.writer.num_rows, file.writer.num_bytes
        self._files.append(DatasetFile(file.writer.url, name, partition.sequence, first_row, num_rows, size))
        if file.bytes_taken:
            self._share = _share(size, file.bytes_taken)
        if self._committer is not None:
            self._committer.publish(name, partition.sequence)
        partition.num_rows_before += num_rows
        partition.sequence += 1
        partition.file = None
        del self._open[partition.name]

    async def _watch(self) -> None:
        """Publish files when their time has come, though nothing may be written any more."""
        try:
            while True:
                times = [due for each in self._open.values() if (due := each.open_file.due) is not None]
                if not times:
                    self._opened.clear()
                    await self._opened.wait()
                    continue
                # What is opened meanwhile is due later.
                await sink_state.sleep_until(min(times))
                async with self._lock:
                    if self._closed or self._failure is not None:
                        return
                    async with failing(self):
                        await self._publish_due()
        except Exception as error:  # the next call raises it
            log.error("%s: a file that was due was not published: %s", self.url, error)

    async def _publish_due(self) -> None:
        now = sink_state.now()
        for partition in list(self._open.values()):
            due = partition.open_file.due
            if due is not None and due <= now:
                await self._publish_file(partition)

    # -- ending ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Publish all open files.

        A writer that has failed publishes none of them, and ends here as it would at the end of ``async with``.

        Raises:
            StoreError: The store refused; files that are in `files` were published.
            WriterFailedError: An earlier call failed; what is stored was kept or removed, as `on_error` says.
        """
        await self._close()

    async def _publish(self) -> None:
        """All open files, side by side; when one fails, the others are published all the same."""
        async with failing(self):
            failures = await _failures(map(self._publish_file, list(self._open.values())))
            self._raise_first(failures, "published")
            if self._committer is not None:
                await self._committer.finish()
        await self._let_go()

    def _raise_first(self, failures: Sequence[BaseException], done: str) -> None:
        for another in failures[1:]:
            log.error("%s: one more file was not %s: %s", self.url, done, another)
        if failures:
            raise failures[0]

    async def abort(self) -> None:
        """End, and remove what is stored of the open files; those that were published stay.

        Raises:
            StoreError: The store refused for one of them; the others were removed.
        """
        await self._abort()

    async def _remove(self) -> None:
        failures = await _failures(each.open_file.writer.abort() for each in self._open.values())
        await self._let_go()
        self._raise_first(failures, "removed")

    async def _keep_or_abort(self, error: BaseException) -> None:
        failures = await _failures(_end_unpublished(each.open_file.writer) for each in self._open.values())
        await self._let_go()
        for failure in failures:
            note = f"one file was not left as it should be: {failure}"
            log.error("%s: %s", self.url, note)
            error.add_note(note)
        note = self._kept()
        if note and isinstance(error, ResilientPQError) and error.hint is None:
            error.hint = note
        elif note:
            error.add_note(note)

    def _kept(self) -> str:
        """What is left of a writer that has failed, for people; empty where there is nothing."""
        left = [stored for each in self._open.values() if (stored := each.open_file.writer.num_rows_stored)]
        kept = [f"{len(self._files):,} files are published"] if self._files else []
        if left:
            kept.append(f"{sum(left):,} rows are kept in {len(left):,} unfinished files")
        if self._committer is not None and (uncommitted := self._committer.uncommitted()):
            kept.append(uncommitted)
        return "; ".join([*kept, "resume them with rpq.resume_dataset"]) if kept else ""

    async def _let_go(self) -> None:
        self._closed = True  # which the timer looks at
        if self._committer is not None:
            await self._committer.stop()
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            await asyncio.wait([timer])
        await super()._let_go()


def _share(num_bytes: int, bytes_taken: int) -> float:
    """Bytes of a file for each byte that its rows take in memory: never more, what is beyond is not of its rows."""
    return min(1.0, num_bytes / bytes_taken)


async def _end_unpublished(writer: Writer) -> None:
    """End a file unpublished: what is kept of it the caller's error is told once, of all files together."""
    ended = WriterClosedError("the data set's writer has ended")
    await writer.__aexit__(type(ended), ended, None)
    if writer._left is not None:
        raise StoreError(writer._left)


async def _failures(work: Iterable[Awaitable[None]]) -> list[BaseException]:
    """What went wrong with some files, which are worked on side by side: none is left out for another's error."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    return [outcome for outcome in outcomes if outcome is not None]


def _infer(data: object) -> tuple[Ingest, object]:
    return Ingest.infer(copy_mutable(data))


def _next(values: Iterator[T]) -> T | None:
    return next(values, None)
