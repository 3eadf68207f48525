"""`write`: every partition of a Dask DataFrame becomes a file, then a summary names them all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self, Unpack

import dask
import dask.dataframe as dd
from distributed import Client, Event, Future, LocalCluster, default_client

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.bulk.name_pattern import is_data_file
from resilient_pq.dask.partition_write import PartitionTarget, Types, WrittenPart, schema_of, write_part
from resilient_pq.dask.serialized_row_group import Location, location_of
from resilient_pq.dask.workers import Workers
from resilient_pq.dataset.summary.write_summary import WrittenMetadata, write_metadata
from resilient_pq.errors import AlreadyExistsError, FormatError, OptionError, SchemaError, StoreError, Where
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io import WRITING, LocalStore, RetryPolicy, WriteStore, resolve, with_retry
from resilient_pq.io.location import shown
from resilient_pq.io.partial_file import SUFFIX as PARTIAL
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.loop_portal import portal
from resilient_pq.reader.data_file import COMMON_METADATA_NAME, METADATA_NAME, data_file
from resilient_pq.tables.committer import PublishedFile, commit_rewrite, fit_to_table
from resilient_pq.tables.file_table import TableSettings, check_table
from resilient_pq.writer.option_keywords import PartitionKeywords, known_options, takes_options
from resilient_pq.writer.write_options import EncoderOptions


@dataclass(frozen=True, slots=True)
class WrittenFrame:
    """What `write` wrote.

    Attributes:
        url: The folder.
        files: Names of the files in it, in the order of the partitions, which is that of the names.
        num_rows: Rows of all files.
        num_bytes: Bytes of all files.
        metadata: The summary; None where none was wanted.
    """

    url: str
    files: tuple[str, ...]
    num_rows: int
    num_bytes: int
    metadata: WrittenMetadata | None


@takes_options(PartitionKeywords)
def write(
    frame: dd.DataFrame,
    dst: str | os.PathLike[str],
    *,
    name: str = "part",
    schema: Types | None = None,
    write_index: bool | None = None,
    write_metadata: bool = True,
    overwrite: bool = False,
    table: TableSettings | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    client: Client | None = None,
    workers_timeout: float | None = None,
    **options_given: Unpack[PartitionKeywords],
) -> WrittenFrame:
    """Write a Dask DataFrame into a folder: a resilient file of every partition, and a summary of them.

    Files are called ``part-00000-1f0c9a3e.parquet`` and so on, in the order of the partitions; what stands behind the
    number is chosen anew for each call. A worker that dies costs the time that its partitions take: they are computed
    again, what the dead one left half written is removed, and a file that it had completed is kept. A partition
    without rows is a file without rows.

    Where a partition fails for good, the call ends with its error when those under way have ended, and removes all
    files that it has written; those that were there before are as they were. Where this process itself dies, its files
    stay, without a summary, and on S3 uploads may: `rpq uploads` finds them.

    Args:
        frame: What to write; all of it is computed.
        dst: The folder: a URL or a path, which all workers must reach. A folder of this machine is made.
        name: What the names of files begin with.
        schema: Types of some columns by name, or the schema of all files. Columns of objects that are not named are
            text.
        write_index: Write the index as a column. None does so where it has a name. `read` makes it the index again.
        write_metadata: Write the summary, ``_metadata`` and ``_common_metadata``, when all files are there.
        overwrite: Replace the Parquet files of the folder. Those that are there are removed when the new ones and
            their summary are complete: until then, whoever goes by ``_metadata`` reads the old ones, and whoever lists
            the folder may see both.
        table: An `IcebergTable` or a `DeltaTable` that all files are added to in one commit when they are there; it is
            made when it does not exist. `overwrite` cannot be beside it.
        **options_given: How each file is written: `PartitionKeywords`, as of `resilient_pq.create`.
        metadata: Key-value metadata for the footer of each file.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them; workers get them too.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.
        client: Where to compute. None is the client of this thread; where there is none, threads of this process.
        workers_timeout: Seconds without any worker after which the call ends with an error; None waits for ever. After
            30 seconds without workers a warning is logged in any case.

    Returns:
        What was written.

    Raises:
        SchemaError: A setting is out of range, a column cannot be written, or its values are not of the type stated.
        AlreadyExistsError: There are Parquet files in the folder, and `overwrite` is False.
        StoreError: A store refused, or there were no workers for `workers_timeout`.
        Exception: What computing a partition failed with; distributed's KilledWorker among them, when too many workers
            died of it.
    """
    storage_options = with_retry(storage_options, retry)
    # Workers have all rows of a partition at once: no timer stores them, and what fails is computed again.
    encoding = EncoderOptions(
        **known_options(write, options_given), max_unstored_seconds=None, on_error="abort", fencing="none"
    )
    if not isinstance(frame, dd.DataFrame):
        raise SchemaError(f"frame is {type(frame).__name__}", hint="it is a Dask DataFrame; a series has to_frame()")
    check_table(table, encoding)
    if table is not None and overwrite:
        raise OptionError("overwrite would remove files of the table", hint="write the rows into another folder")
    run = WriteRun.of(frame.npartitions, dst, name, storage_options)
    file_schema = schema_of(frame, schema, write_index=write_index)
    locations, old = portal.run(run.prepare(overwrite=overwrite))
    columns = None if table is None else portal.run(run.fit(table, Ingest.from_schema(file_schema)))
    parts = [
        PartitionTarget(location, file_schema, run.stop, encoding, storage_options, columns) for location in locations
    ]
    partitions = frame.to_delayed()
    with _client_of(client) as computing, _undo_on_failure(run, computing, workers_timeout) as futures:
        tasks = [dask.delayed(write_part)(*pair) for pair in zip(partitions, parts, strict=True)]
        futures.extend(computing.compute(tasks))
        written = _gather_results(futures, Workers(computing, workers_timeout))
    with _note_complete_files(run):
        summary = portal.run(run.complete(old, with_summary=write_metadata))
        if table is not None:
            portal.run(run.commit(table))
    num_rows, num_bytes = sum(part.num_rows for part in written), sum(part.size for part in written)
    return WrittenFrame(shown(os.fspath(dst)), run.names, num_rows, num_bytes, summary)


@contextmanager
def _client_of(client: Client | None) -> Iterator[Client]:
    """The client that is given; else that of this thread; else one to a cluster in this process, closed at the end."""
    with ExitStack() as closing:
        if client is None:
            try:
                client = default_client()
            except ValueError:
                cluster = LocalCluster(processes=False, n_workers=1, dashboard_address="127.0.0.1:0")
                client = closing.enter_context(Client(closing.enter_context(cluster), set_as_default=False))
        # Waiting for futures asks for the client of this thread, whoever made them.
        closing.enter_context(client.as_current())
        yield client


def _gather_results(futures: list[Future], workers: Workers) -> list[WrittenPart]:
    """The results, when all are there; the first error as soon as it is."""
    found: dict[str, WrittenPart] = {}
    for future in _as_ended(futures, workers):
        found[future.key] = future.result()
    return [found[future.key] for future in futures]


def _as_ended(futures: list[Future], workers: Workers) -> Iterator[Future]:
    """The futures as they end."""
    ended: SimpleQueue[Future] = SimpleQueue()
    for future in futures:
        future.add_done_callback(ended.put)
    left = len(futures)
    while left:
        try:
            future = ended.get(timeout=workers.look_seconds)
        except Empty:
            workers.look()
        else:
            left -= 1
            yield future


@contextmanager
def _undo_on_failure(run: WriteRun, client: Client, workers_timeout: float | None) -> Iterator[list[Future]]:
    """Room for the tasks of a run; none of them writes any more at the end, and where it fails, no file is left."""
    futures: list[Future] = []
    try:
        yield futures
    except BaseException as error:
        with suppress(StoreError):  # without workers nobody writes
            _stop(run, client, futures, Workers(client, workers_timeout))
        portal.run(run.undo())
        error.add_note(f"the files that were written into {shown(os.fspath(run.dst))!r} are removed again")
        raise
    # Of a worker that dies now the results are known already, but the scheduler would have them computed once more.
    _stop(run, client, futures, Workers(client, workers_timeout))


def _stop(run: WriteRun, client: Client, futures: list[Future], workers: Workers) -> None:
    """Have no task begin any more, and wait for those that have begun: they cannot be stopped."""
    Event(run.stop, client=client).set()
    under_way = {key for keys in client.processing().values() for key in keys}
    try:
        for _ in _as_ended([future for future in futures if future.key in under_way], workers):
            pass
    finally:
        client.cancel(futures)


@contextmanager
def _note_complete_files(run: WriteRun) -> Iterator[None]:
    """Say that the rows are there, whatever fails now."""
    try:
        yield
    except BaseException as error:
        error.add_note(
            f"all {len(run.names):,} files of {run.names[0]!r} to {run.names[-1]!r} are complete; what was there before"
            " may not be removed yet, and the summary may be missing: write_metadata(..., files=[...], overwrite=True)"
        )
        raise


#: Digits of the number of a partition, at least; as many as it takes for names to be in the order of partitions.
_DIGITS = 5


@dataclass(frozen=True, slots=True)
class WriteRun:
    """A folder, and the files that one call writes into it."""

    dst: Location  # the folder, as workers find it
    names: tuple[str, ...]  # of its files, in the order of the partitions
    number: str  # what no other run has; it is in every name
    storage_options: Mapping[str, Any] | None = field(repr=False)

    @classmethod
    def of(
        cls,
        num_partitions: int,
        dst: str | os.PathLike[str],
        name: str,
        storage_options: Mapping[str, Any] | None,
    ) -> Self:
        """A run that nobody has begun yet."""
        if not isinstance(dst, str | os.PathLike) or not os.fspath(dst):
            raise SchemaError(f"dst is {dst!r}", hint="it is the URL or the path of a folder")
        number = secrets.token_hex(4)
        digits = max(_DIGITS, len(str(num_partitions - 1)))
        names = tuple(f"{name}-{i:0{digits}}-{number}.parquet" for i in range(num_partitions))
        try:
            usable = "/" not in name and data_file(names[0]) == names[0] and is_data_file(names[0])
        except FormatError:
            usable = False
        if not usable:
            raise SchemaError(f"name is {name!r}, which no data file's name begins with", hint='such as name="part"')
        return cls(dst, names, number, storage_options)

    @property
    def stop(self) -> str:
        """The name of the event that ends the run."""
        return f"resilient-pq-stop-{self.number}"

    def _resolved(self) -> tuple[WriteStore, str]:
        """The store, and the key of the summary in it; of a folder itself there may be no key."""
        if not isinstance(self.dst, str):
            return resolve(Path(self.dst) / METADATA_NAME, self.storage_options, retry=WRITING)
        return resolve(f"{self.dst.rstrip('/') or self.dst}/{METADATA_NAME}", self.storage_options, retry=WRITING)

    async def prepare(self, *, overwrite: bool) -> tuple[tuple[Location, ...], list[str]]:
        """Make the folder; gives where workers put the files, and the names of those that are there already."""
        store, key = self._resolved()
        async with store:
            listed = await store.list_names(key.removesuffix(METADATA_NAME))
            old = [name for name in listed if is_data_file(name) or name in (METADATA_NAME, COMMON_METADATA_NAME)]
            if old and not overwrite:
                raise AlreadyExistsError(
                    f"there are Parquet files in the folder already: {', '.join(old[:3])}{', ...' * (len(old) > 3)}",
                    where=Where(key=store.url_of(key).removesuffix(METADATA_NAME)),
                    hint="overwrite=True replaces them when the new ones are complete",
                )
            await store.make_folder(store.beside(key, ""))
            return tuple(location_of(store, store.beside(key, name)) for name in self.names), old

    async def fit(self, table: TableSettings, ingest: Ingest) -> Schema:
        """The columns as files of a table have them; it is made where there is none."""
        store, key = self._resolved()
        async with store:
            folder = key.removesuffix(METADATA_NAME).removesuffix("/")
            return (await fit_to_table(table, store, folder, ingest, self.storage_options)).schema

    async def commit(self, table: TableSettings) -> None:
        """Add all files to a table at once."""
        store, key = self._resolved()
        async with store:
            folder = key.removesuffix(METADATA_NAME).removesuffix("/")
            files = [PublishedFile(store.beside(key, name)) for name in self.names]
            await commit_rewrite(
                table, store, (), files, self.number, folder=folder, storage_options=self.storage_options
            )

    async def complete(self, old: Sequence[str], *, with_summary: bool) -> WrittenMetadata | None:
        """Write the summary of the files, then remove those that were there before."""
        store, key = self._resolved()
        async with store:
            summary = None
            if with_summary:
                beside: Any = (store, key.removesuffix(METADATA_NAME).removesuffix("/"))
                summary = await write_metadata(beside, files=self.names, overwrite=bool(old))
            # One of old files is worth nothing without them, so it goes first.
            gone = sorted(set(old) - ({METADATA_NAME, COMMON_METADATA_NAME} if with_summary else set()))
            for name in sorted(gone, key=lambda name: name not in (METADATA_NAME, COMMON_METADATA_NAME)):
                await store.delete(store.beside(key, name))
        return summary

    async def undo(self) -> None:
        """Remove whatever this run has written: complete files, open uploads, and what is partial."""
        store, key = self._resolved()
        async with store:
            keys = [store.beside(key, name) for name in self.names]
            for mine in keys:
                await store.discard_unfinished(mine)
            listed = {store.beside(key, name) for name in await store.list_names(key.removesuffix(METADATA_NAME))}
            for mine in keys:
                if mine in listed:
                    await store.delete(mine)
                if isinstance(store, LocalStore):
                    await store.delete(f"{mine}{PARTIAL}")
