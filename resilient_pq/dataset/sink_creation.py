"""`create_dataset` and `resume_dataset`: what a caller says of a data set, checked, and the writer that comes of it.

An async shell.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.dataset import hive
from resilient_pq.dataset.dataset_writer import DatasetWriter
from resilient_pq.dataset.naming import FilePlace, Naming
from resilient_pq.dataset.rolling import Roll
from resilient_pq.dataset.sink_state import Begun, DatasetCheckpoint, Partition, SinkSettings
from resilient_pq.dataset.unfinished_files import DatasetFolder, complete_unfinished, refuse_existing
from resilient_pq.errors import AlreadyExistsError, RecoveryError, SchemaError, Where
from resilient_pq.io import WRITING, RetryPolicy, WriteStore, with_retry
from resilient_pq.io.resolve import Opening, reach
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.tables.committer import Committer, SinkPlace
from resilient_pq.tables.file_table import TableSettings, check_table
from resilient_pq.writer.creation import new_file, sink_options_of
from resilient_pq.writer.dictionary_use import KnownChoices
from resilient_pq.writer.file_writer import Writer
from resilient_pq.writer.option_keywords import CreateKeywords, known_options, takes_options
from resilient_pq.writer.write_options import EncoderOptions

#: Files that are open at one time where nothing is said. On S3 each may hold three parts of 5 MiB in memory.
MAX_OPEN = 32


@takes_options(CreateKeywords)
def create_dataset(
    dst: str | os.PathLike[str] | tuple[WriteStore, str],
    schema: object | None = None,
    *,
    partition_by: Sequence[str] | str | None = None,
    roll_rows: int | None = None,
    roll_bytes: int | None = None,
    roll_seconds: float | None = None,
    name: str = "part",
    max_open: int = MAX_OPEN,
    table: TableSettings | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[CreateKeywords],
) -> Opening[DatasetWriter]:
    """Begin to write a data set from one stream of rows: files in a folder, each published when it is full.

    Use it as ``async with rpq.create_dataset(folder, roll_rows=1_000_000) as writer``. Files are called
    ``{column=value/...}{name}-{sequence:08d}.parquet``; each appears under its name when it is complete, and nothing is
    ever replaced. A partition has one open file at a time, so what is stored of it is always its first rows.

    Args:
        dst: The folder: a URL, a path, or a pair of a store and a key in it. Local folders are made.
        schema: As of `create`, with the columns of `partition_by`; None takes it from the first batch.
        partition_by: Columns whose values become folders, as Hive, Arrow, Spark, DuckDB and Polars read them, in this
            order: integers, texts, dates or booleans. They are not in the files, but in those of an Iceberg table. Or
            transforms as Iceberg has them, of columns that stay in the files: ``"year(at)"``, ``"month(at)"``,
            ``"day(at)"``, ``"hour(at)"``, ``"bucket(16, id)"``, with folders such as ``at_day=2026-08-01``.
        roll_rows: Rows of a file, exactly.
        roll_bytes: Bytes of a file, about: how well rows compress is told from those before them.
        roll_seconds: Seconds after the first row of a file was written; a timer sees to it when nothing more is.
        name: What the files are called. Of several writers to one data set each has its own.
        max_open: Files that may be open at one time. Where rows come for one partition more, the file that was
            written least recently is completed early: too few make many small files. Memory is bounded by
            `row_group_bytes`, which the open row groups of all share (the largest is closed when it is used up), and on
            S3 by three parts of each open file.
        **options_given: How each file is written: `CreateKeywords`, as of `create`.
        row_group_bytes: Bytes in memory after which a row group is closed, and that all open ones share.
        max_unstored_seconds: Seconds after which a row that was taken is stored, in each open file; None for no such
            bound.
        on_error: What becomes of the stored rows of open files after an exception: "keep" them for `resume_dataset`,
            or "abort". Published files stay in any case.
        metadata: Key-value metadata for the footer of each file.
        fencing: "lease" or "none", as of `create`, for each file; with "none" a small one is a single request on S3,
            and nine otherwise.
        options: The less common settings. `checkpoint_log` and `overwrite_partial` are of single files;
            `max_bytes_in_flight` is shared by the open files where there are partitions.
        table: An `IcebergTable` or a `DeltaTable` that each file is committed to when it is published, exactly once. It
            is made when it does not exist. Commits go on beside the writing, and while a catalog does not answer,
            writing goes on; `close` waits for the last ones.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range; or on entering, a column of `partition_by` is none that can be.
        AlreadyExistsError: On entering: there are files of this name.
        StoreError: On entering: the store, or the catalog of the table, refuses.
    """
    storage_options = with_retry(storage_options, retry)
    sink = _Sink.checked(
        table=table,
        partition_by=partition_by,
        roll=Roll(roll_rows, roll_bytes, roll_seconds),
        name=name,
        max_open=max_open,
        options=EncoderOptions(**known_options(create_dataset, options_given)),
    )

    async def begun(folder: DatasetFolder) -> Begun:
        await refuse_existing(folder)
        return Begun()

    return sink.writer(dst, storage_options, schema, begun)


@takes_options(CreateKeywords)
def resume_dataset(
    dst: str | os.PathLike[str] | tuple[WriteStore, str],
    schema: object | None = None,
    *,
    replay_from: Mapping[str, int] | DatasetCheckpoint | None = None,
    partition_by: Sequence[str] | str | None = None,
    roll_rows: int | None = None,
    roll_bytes: int | None = None,
    roll_seconds: float | None = None,
    name: str = "part",
    max_open: int = MAX_OPEN,
    table: TableSettings | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[CreateKeywords],
) -> Opening[DatasetWriter]:
    """Go on with a data set whose writer crashed, or ended.

    Each file that was left open becomes a finished one with every row that was stored, without a copy: a local
    ``NAME.partial`` is cut behind its last whole record and gets its footer; on S3 the upload is completed up to its
    newest checkpoint, so that the object's `state` stays "in-progress" though nothing more will come. A file of which
    nothing was stored is removed. New rows go to new files. Where there is nothing yet, this begins as
    `create_dataset`.

    ``writer.num_rows_stored_by_partition`` says how many rows of each partition are stored, always its first ones.

    Args:
        dst: As of `create_dataset`, like all that follows but for `replay_from`.
        schema: Of the rows that come.
        replay_from: For a source that begins again at an earlier place than what is stored: the rows of each partition
            before that place, as a checkpoint told them; those of ``{}`` are all. The rows that come first and are
            stored already are passed over then. They have to be the same, in the same order within each partition.
            None passes nothing over.
        partition_by: As the first writer was given it.
        roll_rows: Rows of a file.
        roll_bytes: Bytes of a file, about.
        roll_seconds: Seconds after the first row of a file was written.
        name: As the first writer was given it: only its files are looked at.
        max_open: Files that may be open at one time.
        **options_given: As of `create_dataset`: `CreateKeywords`.
        row_group_bytes: Bytes in memory after which a row group is closed, and that all open ones share.
        metadata: Key-value metadata for the footer of each new file.
        table: As of `create_dataset`. Files that were published and not committed to it are committed first, also those
            of a sink that had no table.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range; or on entering, there is a file of this name and of other partitions.
        AlreadyExistsError: On entering, as all that follow: a living writer holds a file. On S3 that cannot be seen:
            its upload is taken from it, and it fails with WriterFencedError.
        RecoveryError: Two writers of this name have written; a file is damaged; the newest file of a partition is not
            as its writer left it; or `replay_from` lies behind what is stored, so that rows would be missing.
        UnsupportedError: The store cannot list what is in a folder.
        StoreError: The store, or the catalog of the table, refuses.
    """
    storage_options = with_retry(storage_options, retry)
    sink = _Sink.checked(
        table=table,
        partition_by=partition_by,
        roll=Roll(roll_rows, roll_bytes, roll_seconds),
        name=name,
        max_open=max_open,
        options=EncoderOptions(**known_options(resume_dataset, options_given)),
    )
    rows = replay_from.num_rows_by_partition if isinstance(replay_from, DatasetCheckpoint) else replay_from
    if rows is not None and not (isinstance(rows, Mapping) and all(_is_count(each, 0) for each in rows.values())):
        raise SchemaError(
            f"replay_from is {replay_from!r}; it is a checkpoint, or a dict of rows by the folder of a partition",
            hint="rows are whole numbers, 0 or more",
        )

    async def begun(folder: DatasetFolder) -> Begun:
        found = await complete_unfinished(folder)
        if rows is not None:
            _replay(folder, found.partitions, rows)
        return found

    return sink.writer(dst, storage_options, schema, begun)


def _replay(folder: DatasetFolder, partitions: Mapping[str, Partition], rows: Mapping[str, int]) -> None:
    """Note how many rows of each partition will come that are stored already."""
    for name in (name for name in rows if name not in partitions and rows[name]):
        raise _missing(folder, name, 0, rows[name])
    for name, partition in partitions.items():
        partition.num_rows_known = partition.num_rows_before - rows.get(name, 0)
        if partition.num_rows_known < 0:
            raise _missing(folder, name, partition.num_rows_before, rows[name])


def _missing(folder: DatasetFolder, name: str, stored: int, begins: int) -> RecoveryError:
    of = f" of {name}" if name else ""
    return RecoveryError(
        f"{stored:,} rows{of} are stored, and replay_from goes on behind {begins:,}: rows would be missing",
        where=Where(key=folder.url),
        hint="begin the source at an earlier place; or these are other files than those that were written",
    )


@dataclass(frozen=True, slots=True)
class _Sink:
    """What both are told, checked."""

    settings: SinkSettings  # how the data set is written
    naming: Naming  # what its files are called
    options: EncoderOptions  # how each is encoded
    table: TableSettings | None  # what they are committed to

    @classmethod
    def checked(
        cls,
        *,
        table: TableSettings | None,
        partition_by: Sequence[str] | str | None,
        roll: Roll,
        name: str,
        max_open: int,
        options: EncoderOptions,
    ) -> _Sink:
        keys = hive.check_keys(partition_by)
        if not _is_count(max_open, 1):
            raise SchemaError(f"max_open is {max_open!r}; it is a whole number, at least 1")
        write = options.write
        for option in ("checkpoint_log", "overwrite_partial"):
            if getattr(write, option):
                raise SchemaError(f"{option} is an option of a single file, not of a data set")
        if keys:
            # Parts that are on their way from one file stay there while others are written.
            share = max(1, write.max_bytes_in_flight // max_open)
            options = replace(options, options=replace(write, max_bytes_in_flight=share))
        # What no upload could have is refused before the first file is begun.
        sink_options_of(options.write, "x")
        check_table(table, options)
        keep_keys = table is not None and table.keeps_keys
        settings = SinkSettings(keys, roll, max_open, options.row_group_bytes, keep_keys)
        return cls(settings, Naming(name, tuple(key.name for key in keys)), options, table)

    def writer(
        self,
        dst: str | os.PathLike[str] | tuple[WriteStore, str],
        storage_options: Mapping[str, Any] | None,
        schema: object | None,
        begun: Callable[[DatasetFolder], Awaitable[Begun]],
    ) -> Opening[DatasetWriter]:
        """The writer to a folder, whichever way it is begun."""

        async def opening() -> DatasetWriter:
            owns_store = not isinstance(dst, tuple)
            store, key = await reach(dst, storage_options, bucket_alone=True, retry=WRITING)
            folder = DatasetFolder(store, key, self.naming, self.options.encryption)
            try:
                found = await begun(folder)
                ingest = None if schema is None else Ingest.from_schema(schema)
                committer = None
                if self.table is not None:
                    committer = Committer(
                        self.table,
                        SinkPlace(store, key, self.naming.name, self.settings.partition_by),
                        lambda *file: folder.key_of(self.naming.relative(*file)),
                        storage_options,
                    )
                    await committer.adopt([(each.partition, each.sequence) for each in found.published], ingest)
                writer = DatasetWriter(
                    store,
                    folder.url,
                    self.settings,
                    lambda place, ingest: self._begin_file(folder, place, ingest, found.choices),
                    owns_store=owns_store,
                    begun=found,
                    committer=committer,
                )
                if ingest is not None:
                    await writer._learn(ingest)
                return writer
            except BaseException:
                if owns_store:
                    await store.close()
                raise

        return Opening(opening)

    async def _begin_file(self, folder: DatasetFolder, place: FilePlace, ingest: Ingest, known: KnownChoices) -> Writer:
        store, key = folder.store, folder.key_of(self.naming.relative(place.partition, place.sequence))
        await store.make_folder(folder.key_of(place.partition) if place.partition else folder.key)
        own = replace(self.options, own_metadata=place.keys(self.naming.name), known_choices=known)
        try:
            return await new_file(
                (store, key),
                None,
                schema=ingest,
                options=own,
                mode="x",
                alone=True,
            )
        except AlreadyExistsError as error:
            error.hint = "each writer to a data set has a name= of its own; after a crash go on: resume_dataset"
            raise


def _is_count(value: object, least: int) -> bool:
    try:
        return operator.index(value) >= least  # type: ignore[arg-type]
    except TypeError:
        return False
