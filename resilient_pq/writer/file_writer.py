"""The async shell of the writer: asks the encoder for bytes and pushes them into a sink of a store.

Everything that takes time on the processor runs in a thread, so that the event loop stays free.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NoReturn, assert_never

from resilient_pq import memory_pool
from resilient_pq.arrow.batch_ingest import Batch, Ingest
from resilient_pq.arrow.handed_over import copy_mutable, num_bytes_at_hand
from resilient_pq.errors import FileFullError, ResilientPQError, SchemaError, Where, WriterFencedError, located
from resilient_pq.format.resilience_records import RecordChain
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io import Fencing, ObjectInfo, ObjectSink, StoredState, WriteStore
from resilient_pq.io.cancellation import finish_in_thread
from resilient_pq.io.upload.upload_start import abort_after
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.off_event_loop import off_loop
from resilient_pq.writer.checkpoint_history import Checkpoint
from resilient_pq.writer.checkpoint_log import CheckpointLog
from resilient_pq.writer.file_encoder import FileEncoder
from resilient_pq.writer.file_layout import FileLayout
from resilient_pq.writer.lifecycle import failing
from resilient_pq.writer.option_checks import check_key_values
from resilient_pq.writer.pipeline import BatchFeeder, Pipeline, Stop
from resilient_pq.writer.protected_layout import ProtectedLayout
from resilient_pq.writer.unstored_deadline import UnstoredDeadline
from resilient_pq.writer.write_options import DEFAULT_THREADS, EncoderOptions

log = logging.getLogger("resilient_pq.writer")

#: Errors that leave the file as it was: of a batch that does not fit nothing was taken, and a full file was completed.
_REFUSALS = (SchemaError, FileFullError)


@dataclass(frozen=True, slots=True)
class Resumed:
    """What goes on with a file: its layout lies behind the bytes in place, and rows are taken as they were before."""

    encoder: FileEncoder
    ingest: Ingest
    whole: ObjectInfo | None = None  # the file, where it is complete already


class Writer(UnstoredDeadline):
    """Writes one resilient Parquet file; made by `create` and by `resume`.

    Attributes:
        url: What is being written.
    """

    _CALLED = "the writer"
    _AFTER_FAILURE = "close the writer, then recover what it stored"

    def __init__(
        self,
        store: WriteStore,
        key: str,
        sink: ObjectSink,
        *,
        schema: object | None,
        options: EncoderOptions,
        owns_store: bool,
        checkpoint_log: CheckpointLog | None = None,
        resumed: Resumed | None = None,
        file_id: bytes | None = None,
    ) -> None:
        """Use `create` or `resume` instead."""
        super().__init__(store, key, sink, options, checkpoint_log, owns_store=owns_store)
        self._ingest: Ingest | None = None
        self._rows_in_place = self._rows_safe = resumed.encoder.layout.num_rows if resumed else 0
        self._given_schema = schema
        self._file_id = file_id or os.urandom(16)
        self._added_metadata: dict[str, str] = {}
        self._whole = resumed.whole if resumed else None
        if resumed:
            self._ingest = resumed.ingest
            self._use(resumed.encoder)
        self._info: ObjectInfo | None = None
        self._left: str | None = None  # what its end could not remove, in words

    @property
    def schema(self) -> Schema | None:
        """The schema, None until it is known from the first batch."""
        return self._encoder.layout.schema if self._encoder else None

    @property
    def num_rows(self) -> int:
        """Rows that `write` has taken, and those that were in place when the file was resumed."""
        return self._encoder.num_rows_taken if self._encoder else 0

    @property
    def num_rows_stored(self) -> int:
        """Rows that survive this process: those of the row groups that the store has for good."""
        if self._encoder is None:
            return 0
        if self._info is not None:
            return self._encoder.layout.num_rows
        row_groups = self._encoder.layout.row_groups
        whole = bisect_right([row_group.end for row_group in row_groups], self._sink.num_bytes_stored)
        return max(self._rows_in_place, sum(row_group.num_rows for row_group in row_groups[:whole]))

    @property
    def num_bytes(self) -> int:
        """Bytes of the file so far; rows of the open row group are not among them."""
        return self._encoder.layout.offset if self._encoder else 0

    @property
    def num_bytes_buffered(self) -> int:
        """About what the rows of the open row group take in memory; `flush` lets them go."""
        return self._encoder.open_bytes if self._encoder else 0

    @property
    def soon_full(self) -> bool:
        """Whether a quarter of the row groups is there that all readers take, or of the bytes of a footer."""
        return self._encoder is not None and self._encoder.soon_full

    @property
    def num_bytes_resent(self) -> int:
        """Bytes that durable checkpoints caused to be sent again to a store of parts, retries not counted."""
        return self._sink.num_bytes_resent

    @property
    def fencing(self) -> Fencing:
        """What keeps another writer of the file from being told that its rows are stored.

        "lock" for a local file, "lease" on S3. "advisory" where the store heeds no conditions of PUTs, which is known
        when the first part is sent, and logged; "none" where `create` was told so, or where the store keeps nothing of
        what is unfinished.
        """
        return self._sink.fencing

    @property
    def last_checkpoint(self) -> Checkpoint:
        """The newest checkpoint that is stored, automatic ones included; until one is, the newest that was accepted.

        Its state and its ordinal never go back while the writer lives. Ordinal 0 before the first.
        """
        known = self._checkpoints
        return known.newest_stored if self._info is None else replace(known.newest, state=StoredState.VISIBLE)

    async def _write(self, data: object) -> None:
        async with self._lock:
            self._check_open()
            await self._hop(self._take_rows_of(data), num_bytes_at_hand(data))

    async def _take_rows_of(self, data: object) -> None:
        with located(Where(key=self.url)):
            batches = await finish_in_thread(self._prepare, data)
        async with failing(self, but=_REFUSALS):
            if self._encoder is None:
                await self._start()
            assert self._encoder is not None
            with self._taking(BatchFeeder(batches, self._encoder, self._note_taken)) as rows:
                await self._take(rows)

    def _prepare(self, data: object) -> Iterator[Batch]:
        """The batches of `data`; learns the schema from it where it is not known yet."""
        data = copy_mutable(data)
        if self._ingest is None:
            if self._given_schema is not None:
                self._ingest = Ingest.from_schema(self._given_schema)
            else:
                self._ingest, data = Ingest.infer(data)
        return self._ingest.batches(data)

    def _use(self, encoder: FileEncoder) -> None:
        self._pipeline = Pipeline(
            encoder,
            self._sink,
            max_threads=self._options.write.max_threads or DEFAULT_THREADS,
            row_group_bytes=self._options.row_group_bytes,
            laid_out=self._row_group_ended,
        )
        self._begin(encoder)

    async def _start(self) -> None:
        assert self._ingest is not None
        encoder = await off_loop(len(self._ingest.schema.leaves), self._new_encoder, self._ingest)
        self._use(encoder)
        await self._known_pipeline.push(encoder.layout.start())
        self._sink.mark()

    def _new_encoder(self, ingest: Ingest) -> FileEncoder:
        """What encodes a new file; called in a thread where there are many columns."""
        source = {key: value for key, value in ingest.metadata.items() if not key.startswith("rpq.")}
        key_value = {
            **source,
            **(self._options.metadata or {}),
            **(self._options.own_metadata or {}),
            "ARROW:schema": ingest.encoded_schema,
        }
        groups = self._options.parity_groups()
        sealing = None
        if self._options.encryption is not None:
            from resilient_pq.encryption.encryption import Encryption  # noqa: PLC0415 (few files are encrypted)
            from resilient_pq.writer.file_sealing import FileSealing  # noqa: PLC0415

            assert isinstance(self._options.encryption, Encryption)  # `writer_of` has asked for keys
            sealing = FileSealing(self._options.encryption, ingest.schema, self._file_id, os.urandom)
        laid_out = ingest.schema, RecordChain(self._file_id), key_value, sealing
        layout = FileLayout(*laid_out) if groups is None else ProtectedLayout(*laid_out, groups=groups)
        return FileEncoder(layout, self._options)

    async def _take(self, rows: BatchFeeder) -> None:
        """Take all rows, and push the row groups that they fill; also before what the source raises is raised."""
        pipeline = self._known_pipeline
        while True:
            await self._keep_bound_while_taking()
            take = partial(rows.take, between_row_groups=not pipeline.busy)
            stop = await finish_in_thread(take, self._seconds_since_checkpoint)
            self._check_open()  # rows may have been stored meanwhile, while the source kept it waiting
            match stop:
                case Stop.ROW_GROUP_DUE:
                    await self._hop(pipeline.close_row_group(), self.num_bytes_buffered)
                case Stop.CHECKPOINT_DUE | Stop.TURN_OVER:
                    if not pipeline.busy:
                        await self._write_checkpoint_if_due()
                case Stop.FILE_FULL:
                    await self._complete_full(rows.num_rows_left)
                case Stop.ENDED | Stop.REFUSED:
                    break
                case _:
                    assert_never(stop)
        try:
            if rows.error is not None:
                raise rows.error
        finally:  # an error of the store is the graver one, and has that of the source as its context
            await pipeline.push_row_groups()
            self._checkpoints.log_stored()

    async def _complete_full(self, num_rows_left: int) -> NoReturn:
        """Complete the file, and say that not all rows of the batch are in it."""
        await self._finish()
        assert self._encoder is not None
        layout = self._encoder.layout
        raise FileFullError(
            f"the file is full: it was completed with {layout.num_rows:,} rows in {len(layout.row_groups):,} row"
            f" groups; {num_rows_left:,} rows of this batch are not in it",
            where=Where(key=self.url),
            hint="continue in a new file",
        )

    def add_key_value_metadata(self, metadata: Mapping[str, str]) -> None:
        """Add key-value metadata to the final footer; keys that are there are replaced.

        Raises:
            SchemaError: A key or a value is no text, or the key is the writer's own.
            WriterClosedError: The writer has ended.
        """
        self._check_open()
        check_key_values("metadata", metadata)
        self._added_metadata |= metadata

    async def flush(self) -> None:
        """Close the open row group before it is full, and give it to the store: its rows take no more memory.

        No checkpoint is written for it; many small row groups cost every reader more than they free.

        Raises:
            StoreError: The store refused; the writer has failed.
            WriterClosedError: The writer has ended.
            WriterFailedError: An earlier call failed.
        """
        async with self._lock:
            self._check_open()
            if self._encoder is not None and self._encoder.has_open_rows:
                async with failing(self, but=_REFUSALS):
                    await self._hop(self._known_pipeline.end_row_group(), self._encoder.open_bytes)

    async def checkpoint(self) -> Checkpoint:
        """Close the row group, write a checkpoint, and make it as durable as the store can.

        Returns:
            The checkpoint. Its state is "stored" when the rows before it survive this process; a store that
            cannot promise that yet says "accepted".

        Raises:
            StoreError: The store refused; the writer has failed.
            WriterClosedError: The writer has ended.
            WriterFailedError: An earlier call failed.
        """
        async with self._lock:
            self._check_open()
            if self._encoder is None and self._given_schema is not None:
                self._ingest = Ingest.from_schema(self._given_schema)
            async with failing(self, but=_REFUSALS):
                if self._encoder is None and self._ingest is not None:
                    await self._start()
                if self._encoder is None:
                    return self._checkpoints.newest
                await self._hop(self._store_all(self._encoder), self._encoder.open_bytes)
                return self._checkpoints.newest

    async def _store_all(self, encoder: FileEncoder) -> None:
        if encoder.has_open_rows:
            await self._known_pipeline.close_row_group(ending=True)
        if encoder.changed_since_checkpoint or not self._checkpoints.newest.ordinal:
            await self._write_checkpoint(asked=True)
        else:
            await self._commit(wait=True)
        self._checkpoints.log_stored()

    async def close(self) -> None:
        """Write what is left and publish the object; nothing was visible under its name before.

        A writer that has failed publishes nothing, and ends here as it would at the end of ``async with``.

        Raises:
            SchemaError: Nothing was written and no schema was given.
            StoreError: The store refused; nothing was published.
            WriterFailedError: An earlier call failed; nothing is published, and what is stored was kept or removed, as
                `on_error` says.
        """
        await self._close()

    async def _publish(self) -> None:
        await self._hop(self._complete(), self.num_bytes_buffered)

    async def _complete(self) -> None:
        async with failing(self, but=_REFUSALS):
            if self._encoder is None:
                if self._given_schema is None:
                    raise SchemaError("nothing was written and no schema was given", where=Where(key=self.url))
                self._ingest = self._ingest or Ingest.from_schema(self._given_schema)
                await self._start()
            await self._finish()

    async def _finish(self) -> None:
        encoder, pipeline = self._encoder, self._known_pipeline
        assert encoder is not None
        if self._whole is not None and encoder.num_rows_taken == self._rows_in_place and not self._added_metadata:
            self._info = self._whole  # nothing was appended: it stays as it is
            await self._sink.abort()
        else:
            if encoder.has_open_rows:
                await pipeline.close_row_group(ending=True)
            await pipeline.push_row_groups(ending=True)
            await pipeline.push(await finish_in_thread(partial(encoder.layout.finish, extra=self._added_metadata)))
            self._info = await self._sink.complete()
        await self._let_go()

    async def _let_go(self) -> None:
        """Of everything that a writer holds when it has ended."""
        self._closed = True
        await self._alarm.stop()
        memory_pool.give_back()
        self._checkpoints.close()
        await super()._let_go()

    async def abort(self) -> None:
        """End without publishing anything, and remove what was stored."""
        await self._abort()

    async def _remove(self) -> None:
        try:
            await self._sink.abort()
        finally:
            await self._let_go()

    async def _fail(self, error: BaseException) -> None:
        await super()._fail(error)
        if self._pipeline is not None:
            await self._pipeline.stop()

    async def _keep_or_abort(self, error: BaseException) -> None:
        try:
            if (published := self._sink.published) is not None:
                self._info, note = published, "the object was published before this, whole"
                log.warning("%s: %s", self.url, note)
                error.add_note(note)
            elif self._options.on_error == "keep" and self.num_rows_stored > bool(self._whole) * self._rows_in_place:
                await self._sink.keep()
                # What a fenced writer stored is somebody else's now, which its error says.
                if not any(isinstance(known, WriterFencedError) for known in (error, self._failure)):
                    self._tell_what_is_kept(error)
            else:
                self._left = await abort_after(self._sink, error)
        finally:
            await self._let_go()

    def _tell_what_is_kept(self, error: BaseException) -> None:
        note = f"{self.num_rows_stored:,} rows are kept in {self._sink.describe()}"
        if self._options.own_metadata is not None:
            note += "; resume them with rpq.resume_dataset"  # which believes only what its own writer left
        elif (command := self._sink.rescue_command()) is not None:
            note += f"; continue it with `rpq resume` (rpq.resume), or complete it: {command}"
        log.error("%s: not published; %s", self.url, note)
        if isinstance(error, ResilientPQError) and error.hint is None:
            error.hint = note
        else:
            error.add_note(note)
