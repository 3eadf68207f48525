"""Commits the files of a sink to a table, beside the writing, each exactly once. An async shell."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.errors import (
    AccessDeniedError,
    NotFoundError,
    RecoveryError,
    ResilientPQError,
    SchemaError,
    StoreError,
    TransientError,
    Where,
    located,
)
from resilient_pq.io import WRITING, FetchCounters, ReadStore, RetryPolicy
from resilient_pq.io.cancellation import all_or_none, finish_in_thread
from resilient_pq.io.resolve import retry_of
from resilient_pq.io.transfer.retry import retrying
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.opening import read_contents
from resilient_pq.tables.file_table import FileTable, Marks, TableFile, TableSettings, location_of
from resilient_pq.tables.partition_key import PartitionKey

#: By the names of classes, so that no library is imported for its errors: what another attempt does not change.
_FINAL: Final[dict[str, type[ResilientPQError]]] = {
    **dict.fromkeys(("UnauthorizedError", "ForbiddenError", "AuthorizationExpiredError"), AccessDeniedError),
    **dict.fromkeys(("OAuthError", "PermissionError"), AccessDeniedError),
    **dict.fromkeys(("NoSuchTableError", "NoSuchNamespaceError", "TableNotFoundError"), NotFoundError),
    **dict.fromkeys(("SchemaMismatchError", "ResolveError", "DeltaProtocolError"), SchemaError),
    **dict.fromkeys(("BadRequestError", "NotInstalledError", "ArgumentError", "NoSuchModuleError"), StoreError),
    **dict.fromkeys(("ValidationException", "NotImplementedError", "AttributeError", "ImportError"), StoreError),
}
#: Characters of what a library says.
_MOST_TEXT: Final = 500
#: Where the library says of an argument that it is wrong; but a garbled answer is of these kinds, too.
_MAY_BE_ANSWERS: Final = (ValueError, TypeError, KeyError)


@contextmanager
def telling(table: str) -> Iterator[None]:
    """Raise what another library raises as an error of ours that names the table."""
    try:
        yield
    except (ResilientPQError, MemoryError):
        raise
    except Exception as error:  # catalogues are reached through any number of libraries
        raise _told(table, error).at(Where(key=table)) from error


def _told(table: str, error: Exception) -> ResilientPQError:
    text = " ".join(str(error).split())[:_MOST_TEXT] or type(error).__name__
    names = {kind.__name__ for kind in type(error).__mro__}
    final = next((kind for name, kind in _FINAL.items() if name in names), None)
    if final is None and isinstance(error, _MAY_BE_ANSWERS) and not isinstance(error, OSError):
        final = StoreError
    if final is not None:
        return final(f"the table refused: {text}")
    return TransientError(f"the table or its catalog did not do it: {text}")


log = logging.getLogger("resilient_pq.tables")

T = TypeVar("T")

#: Files of one commit: their footers are in memory.
_MAX_FILES: Final = 500
#: Footers that are read at one time.
_MAX_CONCURRENCY: Final = 16
_TAIL_BYTES: Final = 64 * 1024
#: Locations that an error names.
_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file that a sink has published."""

    key: str  # in its store
    partition: str = ""  # the folder of its partition below the data set
    sequence: int = 0  # its number among the files of its partition by the sink


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """Where a sink writes."""

    store: ReadStore  # where the data set is
    folder: str  # its key
    name: str  # of the sink in it
    partition_by: tuple[PartitionKey, ...]  # what names the folders of its partitions


class Committer:
    """Commits what a sink publishes, in that order, while more is written; the last files at the end."""

    def __init__(
        self,
        settings: TableSettings,
        sink: SinkPlace,
        key_of: Callable[[str, int], str],
        storage_options: Mapping[str, Any] | None,
    ) -> None:
        """Prepare; `key_of` gives the key of a file, by its partition and its number there."""
        location = location_of(sink.store, sink.folder)
        self.table: FileTable = settings.connect(location, storage_options)
        self._retry = policy_of(settings, storage_options)
        self._sink = f"{location.rstrip('/')}/{sink.name}"
        self._store = sink.store
        self._partition_by = sink.partition_by
        self._key_of = key_of
        self._pending: list[PublishedFile] = []
        self._task: asyncio.Task[None] | None = None
        self._ending: float | None = None  # when the last file was published
        self._exists = False
        self._begun: set[str] = set()  # partitions of which files were begun

    # -- the table -------------------------------------------------------------------------------

    async def adopt(self, published: Sequence[tuple[str, int]], ingest: Ingest | None) -> None:
        """Commit those of the published files that are not in the table yet; makes it where their schema is known."""
        files = [PublishedFile(self._key_of(*each), *each) for each in published]
        self._exists = await self._told(self.table.load)
        if not self._exists and ingest is None and files:
            (newest,) = await read_footers(self._store, files[-1:])
            ingest = Ingest.from_file(newest.contents.schema, newest.contents.key_value)
            await self.fitted(ingest)
        elif not self._exists and ingest is not None:
            await self.fitted(ingest)
        if files:
            marks = self.table.committed(self._sink, {partition for partition, _ in published})
            self._add(left(files, marks))

    async def fitted(self, ingest: Ingest) -> Ingest:
        """What takes rows for files of the table, which is made where there is none."""
        if not self._exists and not await self._told(self.table.load):
            await self._told(self.table.create, ingest, self._partition_by)
        self._exists = True
        return await finish_in_thread(self.table.fitted, ingest, self._partition_by)

    async def _told(self, call: Callable[..., T], *args: Any) -> T:
        return await retrying(lambda: finish_in_thread(call, *args), self._retry, on_retry=self._note)

    # -- files -----------------------------------------------------------------------------------

    @property
    def pending(self) -> tuple[str, ...]:
        """The published files that are not known to be committed."""
        return tuple(self._store.url_of(file.key) for file in self._pending)

    @property
    def failure(self) -> BaseException | None:
        """Why no more is committed."""
        ended = self._task is not None and self._task.done() and not self._task.cancelled()
        return self._task.exception() if ended and self._task is not None else None

    async def begin(self, partition: str, sequence: int) -> None:
        """Raise where the table has files of the partition already that have this number, or larger ones."""
        if partition in self._begun:
            return
        marks = await finish_in_thread(self.table.committed, self._sink, (partition,))
        if marks.get(partition, 0) > sequence:
            raise RecoveryError(
                f"{self.table.name} has {marks[partition]:,} files of this writer, and the data set has {sequence:,}:"
                " the newest ones were removed, so it is not known which rows are stored",
                where=Where(key=self._store.url_of(self._key_of(partition, sequence))),
                hint="go on with another name=, behind the rows that are in the table",
            )
        self._begun.add(partition)

    def publish(self, partition: str, sequence: int) -> None:
        """Commit a file, sooner or later."""
        self._add([PublishedFile(self._key_of(partition, sequence), partition, sequence)])

    def _add(self, files: Sequence[PublishedFile]) -> None:
        self._pending += files
        if self._pending and (self._task is None or (self._task.done() and self.failure is None)):
            self._task = asyncio.create_task(self._commit_pending())

    async def _commit_pending(self) -> None:
        failures = 0
        while self._pending:
            batch = tuple(self._pending[:_MAX_FILES])
            try:
                files = await read_footers(self._store, batch)
                await finish_in_thread(commit_files, self.table, self._sink, files)
            except StoreError as error:
                failures += 1
                elapsed = 0.0 if self._ending is None else _now() - self._ending
                delay = self._retry.next_delay(error, failures=failures, elapsed=elapsed, rng=random.random)
                if delay is None:
                    raise
                if failures & (failures - 1) == 0:  # 1, 2, 4, ...: an outage may last
                    self._note(error, delay)
                await asyncio.sleep(delay)
            else:
                failures = 0
                del self._pending[: len(batch)]

    def _note(self, error: StoreError, delay: float) -> None:
        log.warning("%s: a commit is tried again in %.1f s: %s", self.table.name, delay, error.message)

    # -- the end ---------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Wait until all files are committed, or the time for that is over."""
        self._ending = _now()
        if self._task is None:
            return
        try:
            await asyncio.shield(self._task)
        except ResilientPQError as error:
            error.message = f"{self.uncommitted()}: {error.message}"
            error.hint = "rpq.resume_dataset(..., table=) commits them"
            raise

    def uncommitted(self) -> str:
        """The files that are published and not known to be committed, for people; empty where there are none."""
        files = self.pending
        if not files:
            return ""
        more = f" and {len(files) - _NAMED:,} more" if len(files) > _NAMED else ""
        count = f"{len(files):,} files are" if len(files) > 1 else "1 file is"
        return f"{count} published and not committed to {self.table.name}: {', '.join(files[:_NAMED])}{more}"

    async def stop(self) -> None:
        """Commit no more; a commit that is under way comes to its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def left(files: Sequence[PublishedFile], marks: Marks) -> list[PublishedFile]:
    """The files that are not committed, in the order of each partition."""
    new = (file for file in files if file.sequence >= marks.get(file.partition, 0))
    return sorted(new, key=lambda file: (file.partition, file.sequence))


def commit_files(table: FileTable, sink: str, files: Sequence[TableFile]) -> None:
    """Commit those of some files that are not in the newest version of the table; called in a thread."""
    with located(Where(key=table.name)):
        if not table.load():
            raise StoreError("the table was removed", hint="rpq.resume_dataset(..., table=) makes it anew")
        marks = table.committed(sink, {file.partition for file in files})
        new = [file for file in files if file.sequence >= marks.get(file.partition, 0)]
        if new:
            table.commit(sink, new)


async def commit_rewrite(
    settings: TableSettings,
    store: ReadStore,
    removed: Sequence[str],
    added: Sequence[PublishedFile],
    commit_id: str,
    *,
    folder: str,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Replace files of a table (keys) by others that hold the same rows; again with the same id it does nothing."""
    table = settings.connect(location_of(store, folder), storage_options)
    files = await read_footers(store, added)
    locations = [location_of(store, key) for key in removed]

    def rewrite() -> None:
        with located(Where(key=table.name)):
            if not table.load():
                raise StoreError("there is no such table", hint="files are rewritten in a table that has them")
            table.rewrite(locations, files, commit_id)

    await retrying(lambda: finish_in_thread(rewrite), policy_of(settings, storage_options))


async def fit_to_table(
    settings: TableSettings,
    store: ReadStore,
    folder: str,
    ingest: Ingest,
    storage_options: Mapping[str, Any] | None = None,
) -> Ingest:
    """What takes rows for files of a table in a folder; the table is made where there is none."""
    return await Committer(settings, SinkPlace(store, folder, "", ()), lambda *_: "", storage_options).fitted(ingest)


def policy_of(settings: TableSettings, storage_options: Mapping[str, Any] | None) -> RetryPolicy:
    """How long a commit is tried again."""
    return settings.retry or retry_of(storage_options, WRITING)


async def read_footers(store: ReadStore, files: Sequence[PublishedFile]) -> list[TableFile]:
    """Files as a table is told of them."""
    slots = asyncio.Semaphore(_MAX_CONCURRENCY)

    async def one(file: PublishedFile) -> TableFile:
        async with slots:
            with located(Where(key=store.url_of(file.key))):
                info, contents = await read_contents(store, file.key, tail_bytes=_TAIL_BYTES, counters=FetchCounters())
        return TableFile(location_of(store, file.key), info.size, contents, file.partition, file.sequence)

    return await all_or_none(map(one, files))


def _now() -> float:
    return asyncio.get_running_loop().time()
