"""Checking and recovering many files concurrently, with a summary and a journal. An async shell.

The function that does one file is an argument, `RunFile`: ``async (FileTask) -> FileResult``. `run_here` does it in
this process; others call `check_one` or `recover_one` with the same places in a worker. It is called for up to
``max_files`` files at a time, and cancelled when the run ends early. It gives errors of a file as results; what it
raises ends the run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal, Self, TypeAlias

from resilient_pq.bulk.bounded_jobs import JobBounds, in_flight
from resilient_pq.bulk.file_result import FileResult
from resilient_pq.bulk.file_task import FileTask, RunFile, run_here
from resilient_pq.bulk.run_listing import scopes_of
from resilient_pq.bulk.run_summary import RunSummary
from resilient_pq.bulk.run_tasks import Outputs, RunTasks, refuse_overlap, resolve_folder
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.errors import SchemaError
from resilient_pq.io import WRITING, RetryPolicy, Stores, with_retry
from resilient_pq.io.resolve import Location
from resilient_pq.machine_limits import share_of_memory
from resilient_pq.recovery.check import with_checksums_required
from resilient_pq.recovery.recover_options import RecoverOptions
from resilient_pq.units import MiB

#: Files under way at one time: as many as a store answers requests at one time.
DEFAULT_MAX_FILES = 16
#: Assumed bytes of memory of a file under way, or its size if that is less: fetched ahead
#: (`FetchOptions.memory_budget`), and decoded.
_MOST_OF_A_FILE = 96 * MiB
#: The same of all files under way together; one file is always allowed.
MOST_OF_ALL = share_of_memory(8, 256 * MiB)

#: Called after each file with what was counted so far.
RunProgress: TypeAlias = Callable[[RunSummary], None]


class FileResults(AsyncIterator[FileResult]):
    """What becomes of many files, each as soon as it is done; iterate it, or await `finish`.

    It belongs to one task. Left before its end, files that are under way are cancelled, and leave nothing behind.

    Attributes:
        verb: "check" or "recover".
        require_checksums: Whether pages without a checksum are damage.
        deep: Whether parity is computed again.
    """

    def __init__(
        self, verb: str, tasks: RunTasks, *, max_files: int, run: RunFile, progress: RunProgress | None
    ) -> None:
        """`check_many` and `recover_many` are the ways to get one."""
        if max_files < 1:
            raise SchemaError(f"max_files is at least 1, and {max_files} is not")
        self.verb = verb
        self.require_checksums = False
        self.deep = False
        self._tasks = tasks
        self._run = run
        # Other machines have their own memory.
        self._bounds: JobBounds[FileTask] = JobBounds(
            max_files, MOST_OF_ALL, (lambda task: memory_of(task.size)) if run is run_here else lambda _: 0
        )
        self._progress = progress
        self._results = self._run_all()
        self._ending = asyncio.Lock()  # a generator refuses to be closed while it is being closed

    @property
    def summary(self) -> RunSummary:
        """What was counted so far; all of it when the last result was given."""
        return self._tasks.tally.summary

    async def finish(self) -> RunSummary:
        """Do all files that are left, and give the summary of all.

        Raises:
            StoreError: What was to be listed could not be.
            RecoveryError: The journal is of another run.
        """
        async for _ in self:
            pass
        return self.summary

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> FileResult:
        """The next file that is done."""
        return await anext(self._results)

    async def aclose(self) -> None:
        """Cancel what is under way, and let go of stores and journal. A second call only waits for the first."""
        async with self._ending:
            await self._results.aclose()
            await self._tasks.close()  # also where nothing was begun

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """As `aclose`."""
        await self.aclose()

    async def _run_all(self) -> AsyncGenerator[FileResult, None]:
        try:
            await self._tasks.open()
            async with aclosing(in_flight(self._tasks.pending(), self._run_one, self._bounds)) as ended:
                async for task, result in ended:
                    self._tasks.record(task, result)
                    if self._progress is not None:
                        self._progress(self.summary)
                    yield result
        finally:
            await self._tasks.close()

    async def _run_one(self, task: FileTask) -> tuple[FileTask, FileResult]:
        ready = replace(await self._tasks.begin(task), deep=self.deep)
        result = await (run_here if ready.refused is not None else self._run)(ready)
        if self.require_checksums and result.report is not None:
            result = replace(result, report=with_checksums_required(result.report))
        return ready, result


def memory_of(size: int | None) -> int:
    """The memory that a file of so many bytes may take; the most if its size is unknown."""
    return _MOST_OF_A_FILE if size is None else min(size, _MOST_OF_A_FILE)


def check_many(
    urls: Location | Sequence[Location],
    *,
    max_files: int = DEFAULT_MAX_FILES,
    resume: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    require_checksums: bool = False,
    deep: bool = False,
    progress: RunProgress | None = None,
    run: RunFile = run_here,
) -> FileResults:
    """Check the files of a folder, as `check` does each; nothing is written.

    Args:
        urls: A folder or a prefix, which means its ``*.parquet`` files at any depth and the ``*.parquet.partial`` of
            dead writers; a pattern such as ``s3://bucket/events/**/*.parquet``; a file; or a list of such, in which a
            prefix ends with a slash. What several of a list mean is looked at once. Below folders names that begin with
            ``.`` or ``_`` are passed over.
        max_files: Files that are looked at at one time; fewer of large ones, so that memory stays bounded.
        resume: A journal. What it says is done and unchanged is not done again; it is made where it is missing. Errors
            are tried again.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        require_checksums: Count pages without a checksum as damage, as `check` does.
        deep: Compute parity again, as `check` does.
        progress: Called after each file with what was counted so far.
        run: How one file is done, see `resilient_pq.bulk.many_files`.

    Returns:
        An asynchronous iterator of a `FileResult` for each file, in the order in which they are done, and its
        `FileResults.summary`. Errors that concern a file are in its result. To be used with ``async with`` where it
        may be left early.

    Raises:
        SchemaError: `urls` names nothing, or `max_files` is below 1.
        NotFoundError: When the first result is asked for: there is no such file in the folder.
        RecoveryError: The same; the journal is of another run.
        StoreError: A store could not list.
    """
    storage_options = with_retry(storage_options, retry)
    results = each_of_many(
        "check", urls, run, max_files=max_files, resume=resume, storage_options=storage_options, progress=progress
    )
    results.require_checksums, results.deep = require_checksums, deep
    return results


def each_of_many(
    verb: str,
    urls: Location | Sequence[Location],
    run: RunFile,
    *,
    max_files: int = DEFAULT_MAX_FILES,
    resume: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: RunProgress | None = None,
) -> FileResults:
    """Do something that writes nothing with each file of many; as `check_many`, which see."""
    stores = Stores(storage_options)
    tasks = RunTasks(verb, scopes_of(urls, stores), (stores,), resume)
    return FileResults(verb, tasks, max_files=max_files, run=run, progress=progress)


def recover_many(
    src: Location | Sequence[Location],
    dst: Location,
    *,
    only_damaged: bool = False,
    on_damage: Literal["drop", "null", "columns", "raise"] = "drop",
    schema: object | None = None,
    schema_from: Location | None = None,
    repair_bits: bool = False,
    keep_unplaced: bool = False,
    verify: bool = False,
    overwrite: bool = False,
    max_files: int = DEFAULT_MAX_FILES,
    resume: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: RunProgress | None = None,
    run: RunFile = run_here,
) -> FileResults:
    """Recover the files of a folder into another one, as `recover` does each; the tree of folders stays.

    Sound files are copied as they are, by the store itself where it can. A file that does not tell its schema gets that
    of a file listed near it, of its own folder first, if its pages fit; `Report.schema_from` says of which.

    Args:
        src: As `urls` of `check_many`, but a list is one of files, whose outputs lie side by side. Of a pattern the
            folder before its first ``*`` is the top of the tree.
        dst: The folder of the outputs. Neither `src` itself, nor below it; nor above it, but for one file and for
            a pattern without folders in it.
        only_damaged: Write nothing of sound files.
        on_damage: As of `recover`.
        schema: As of `recover`, for all files that do not tell theirs; others near them are not asked then.
        schema_from: The same.
        repair_bits: As of `recover`.
        keep_unplaced: As of `recover`.
        verify: As of `recover`.
        overwrite: Replace outputs that are there.
        max_files: Files under way at one time; fewer of large ones, so that memory stays bounded.
        resume: A journal, as of `check_many`. Outputs that it tells of are no obstacle.
        storage_options: Credentials, endpoint and so on for `src`.
        dst_storage_options: The same for `dst`; None means those of `src`.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.
        progress: Called after each file with what was counted so far.
        run: How one file is done, see `resilient_pq.bulk.many_files`.

    Returns:
        As of `check_many`. The output of ``NAME.parquet.partial`` is ``NAME.parquet``; where both are there, and in a
        list where two files have one name, only one is done and the other is an error.

    Raises:
        SchemaError: `src` names nothing, `max_files` is below 1, or there is no such `on_damage`.
        RecoveryError: `dst` is `src`, or below or above it; when the first result is asked for, the journal is of
            another run.
        NotFoundError: When the first result is asked for: there is no such file in the folder.
        StoreError: A store could not list.
    """
    storage_options = with_retry(storage_options, retry)
    if dst_storage_options is not None:
        dst_storage_options = with_retry(dst_storage_options, retry)
    OnDamage.named(on_damage, list(OnDamage))
    options = RecoverOptions(
        on_damage, schema, schema_from, repair_bits, keep_unplaced, None, verify, overwrite, only_damaged, True
    )
    stores = Stores(storage_options, WRITING)
    dst_stores = stores if dst_storage_options is None else Stores(dst_storage_options, WRITING)
    scopes = scopes_of(src, stores)
    output = resolve_folder(dst, dst_stores)
    if len(scopes) > 1 and not all(scope.is_one_file for scope in scopes):
        raise SchemaError("src is a list with folders in it", hint="recover them one by one, or name their files")
    given = isinstance(dst, tuple) or isinstance(src, tuple)
    for scope in scopes:
        refuse_overlap(output, scope, same_names=not given and dst_stores is stores)
    tasks = RunTasks("recover", scopes, (stores, dst_stores), resume, Outputs(output, options))
    return FileResults("recover", tasks, max_files=max_files, run=run, progress=progress)
