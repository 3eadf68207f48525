"""Checking and recovering many files: found, done side by side, counted, and remembered. An async shell.

How one file is done is an argument, `RunFile`: ``async (FileTask) -> FileResult``. `run_here` does it in this process;
another one names the same places to `check_one` or `recover_one` in a worker and awaits the answer. It is called for as
many files at a time as ``max_files`` says, it is cancelled when the run ends early, and it gives errors of a file as
results: what it raises ends the run. Listing, bounds, the journal and the counting stay here, whoever does the work.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from resilient_pq.bulk.bounded_jobs import JobBounds, ahead, in_flight
from resilient_pq.bulk.file_result import ERROR, FileError, FileResult
from resilient_pq.bulk.journal import Journal, Remembered
from resilient_pq.bulk.name_pattern import PARTIAL_SUFFIX, SUFFIX
from resilient_pq.bulk.run_listing import ListedFile, Wishes, find, scopes_of
from resilient_pq.bulk.run_summary import FileEntry, RunSummary, Tally
from resilient_pq.bulk.scope import Place, Scope, shown_place
from resilient_pq.bulk.task import FileTask, RunFile, run_here
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.errors import AlreadyExistsError, RecoveryError, SchemaError, StoreError, Where
from resilient_pq.io import WRITING, LocalStore, RetryPolicy, Stores, WriteStore, with_retry
from resilient_pq.io.local_store import in_thread
from resilient_pq.io.location import Address, shown
from resilient_pq.recovery.damaged_object import Location
from resilient_pq.recovery.recover import RecoverOptions
from resilient_pq.units import MiB

#: Files under way at one time: as many as a store answers requests at one time.
DEFAULT_MAX_FILES = 16
#: A file is taken to hold so many bytes of memory while it is looked at, or its size if that is less: what is fetched
#: ahead (`FetchOptions.memory_budget`), and what is decoded of it.
_MOST_OF_A_FILE = 96 * MiB
#: And all files under way together no more than this, but one always is.
_MOST_OF_ALL = 256 * MiB

#: Pages that are listed ahead, so that a progress bar knows early how many files there are: some 4,000 files.
_PAGES_AHEAD = 4

#: Called after each file with what was counted so far.
RunProgress: TypeAlias = Callable[[RunSummary], None]


class FileResults(AsyncIterator[FileResult]):
    """What becomes of many files, each as soon as it is done; iterate it, or await `finish`.

    It belongs to one task. Left before its end, files that are under way are cancelled, and leave nothing behind.

    Attributes:
        verb: "check" or "recover".
    """

    def __init__(self, verb: str, tasks: _Tasks, *, max_files: int, run: RunFile, progress: RunProgress | None) -> None:
        """`check_many` and `recover_many` are the ways to get one."""
        if max_files < 1:
            raise SchemaError(f"max_files is at least 1, and {max_files} is not")
        self.verb = verb
        self._tasks = tasks
        self._run = run
        # The memory of others is not ours to count.
        self._bounds: JobBounds[FileTask] = JobBounds(
            max_files, _MOST_OF_ALL, _weight if run is run_here else lambda _: 0
        )
        self._progress = progress
        self._results = self._all()

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
        """Cancel what is under way, and let go of stores and journal. A second call does nothing."""
        await self._results.aclose()
        await self._tasks.close()  # also where nothing was begun

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """As `aclose`."""
        await self.aclose()

    async def _all(self) -> AsyncGenerator[FileResult, None]:
        try:
            await self._tasks.open()
            async with aclosing(in_flight(self._tasks.all(), self._one, self._bounds)) as ended:
                async for task, result in ended:
                    self._tasks.note(task, result)
                    if self._progress is not None:
                        self._progress(self.summary)
                    yield result
        finally:
            await self._tasks.close()

    async def _one(self, task: FileTask) -> tuple[FileTask, FileResult]:
        ready = await self._tasks.prepared(task)
        return ready, await (run_here if ready.refused is not None else self._run)(ready)


def _weight(task: FileTask) -> int:
    """The memory that a file may take; of one whose size nobody asked, the most."""
    return _MOST_OF_A_FILE if task.size is None else min(task.size, _MOST_OF_A_FILE)


def check_many(
    urls: Location | Sequence[Location],
    *,
    max_files: int = DEFAULT_MAX_FILES,
    resume: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
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
    return each_of_many(
        "check", urls, run, max_files=max_files, resume=resume, storage_options=storage_options, progress=progress
    )


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
    tasks = _Tasks(verb, scopes_of(urls, stores), (stores,), resume)
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
    output = _folder(dst, dst_stores)
    if len(scopes) > 1 and not all(scope.is_one_file for scope in scopes):
        raise SchemaError("src is a list with folders in it", hint="recover them one by one, or name their files")
    given = isinstance(dst, tuple) or isinstance(src, tuple)
    for scope in scopes:
        _refuse_inside(output, scope, same_names=not given and dst_stores is stores)
    tasks = _Tasks("recover", scopes, (stores, dst_stores), resume, _Outputs(output, options))
    return FileResults("recover", tasks, max_files=max_files, run=run, progress=progress)


def _folder(dst: Location, stores: Stores) -> Scope:
    """The scope of a folder, whatever is in its name."""
    if isinstance(dst, tuple):
        store, key = dst
        store.check_writable(key)
        return Scope(store, f"{key.rstrip('/')}/" if key else "")
    text = os.fspath(dst)
    if not text:
        raise StoreError("an empty path names no folder", hint='the folder that one is in is "."')
    store, key = stores.resolve(f"{text.rstrip('/') or text}/_")
    store.check_writable(key.removesuffix("_"))
    return Scope(store, Address(key.removesuffix("_")))


def _refuse_inside(output: Scope, scope: Scope, *, same_names: bool) -> None:
    """Refuse outputs that would be among the inputs.

    Above them they may be, too: from ``a/b`` to ``a``, the file ``a/b/b/c`` would become ``a/b/c``. Not where no name
    has a folder in it: what one file and ``a/b/*.parquet`` mean stays above.
    """
    if scope.is_one_file:
        return  # it is compared with its own output
    if isinstance(output.store, LocalStore) and isinstance(scope.store, LocalStore):
        here, there = _real_folder(output), _real_folder(scope)
    elif output.store is scope.store or same_names:
        here, there = output.address, scope.address
    else:
        return
    if here.startswith(there):
        raise RecoveryError(
            f"the outputs would lie below {scope.url}, among what is recovered",
            where=Where(key=output.url),
            hint="name a folder outside of it",
        )
    if there.startswith(here) and _has_folders(scope):
        raise RecoveryError(
            f"the outputs would lie above {scope.url}, and may fall among what is recovered",
            where=Where(key=output.url),
            hint="name a folder beside it",
        )


def _has_folders(scope: Scope) -> bool:
    """Whether names of what is recovered may have folders in them."""
    if scope.pattern is not None:
        return "/" in scope.pattern
    if scope.may_be_file is None:
        return True
    if isinstance(scope.store, LocalStore):
        return os.path.isdir(scope.store.url_of(scope.may_be_file))
    return not scope.may_be_file.endswith((SUFFIX, SUFFIX + PARTIAL_SUFFIX))  # nobody has asked the store yet


def _real_folder(scope: Scope) -> str:
    """The path of a local folder, the same whatever links lead to it."""
    return os.path.join(os.path.realpath(scope.url or os.curdir), "")


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Where recoveries write, and how."""

    folder: Scope
    options: RecoverOptions


class _Tasks:
    """What is to be done, and what is done: the listing, the journal, and the counting."""

    def __init__(
        self,
        verb: str,
        scopes: Sequence[Scope],
        stores: Iterable[Stores],
        journal: str | os.PathLike[str] | None,
        outputs: _Outputs | None = None,
    ) -> None:
        self.tally = Tally(verb)
        self._verb = verb
        self._scopes = scopes
        self._stores = tuple(dict.fromkeys(stores))
        self._journal_path = journal
        self._journal: Journal | None = None
        self._outputs = outputs
        self._begun: set[str] = set()
        self._interrupted: set[str] = set()
        self._named: dict[str, tuple[str, str]] = {}

    async def open(self) -> None:
        """Read the journal, where there is one."""
        if self._journal_path is not None:
            self._journal = await in_thread(Journal, self._journal_path, self._described())

    async def close(self) -> None:
        """Let go of the journal and the stores. A second call does nothing."""
        if self._journal is not None:
            self._journal.close()
        for stores in self._stores:
            await stores.close()

    def _described(self) -> dict[str, Any]:
        """What a run does, so that its journal is taken for no other's."""
        described: dict[str, Any] = {
            "verb": self._verb,
            "source": list(dict.fromkeys(_described(scope) for scope in self._scopes)),
        }
        places: list[Place] = [(scope.store, scope.may_be_file or scope.folder) for scope in self._scopes]
        if self._outputs is not None:
            places.append((self._outputs.folder.store, self._outputs.folder.folder))
        if any(isinstance(store, LocalStore) and not os.path.isabs(store.url_of(key)) for store, key in places):
            described["current folder"] = os.getcwd()  # the same names mean other files elsewhere
        if self._outputs is not None:
            options = self._outputs.options
            described["output"] = self._outputs.folder.url
            described |= {"on_damage": str(options.on_damage), "only_damaged": options.only_damaged}
            described |= {"repair_bits": options.repair_bits, "keep_unplaced": options.keep_unplaced}
            described["schema"] = None if options.schema is None else str(options.schema)
            sibling = options.schema_from
            described["schema_from"] = None if sibling is None else shown(str(sibling))
        return described

    async def all(self) -> AsyncGenerator[FileTask, None]:
        """What is left to do."""
        async with aclosing(ahead(self._pages(), _PAGES_AHEAD)) as pages:
            async for page in pages:
                names = {found.name for found in page}
                for found in page:
                    remembered = None if self._journal is None else self._journal.remembered(found.address)
                    if remembered is not None and _is_done(remembered, found):
                        assert remembered.entry is not None
                        self.tally.add(remembered.entry, resumed=True)
                        continue
                    yield await self._task(found, names, remembered)

    async def _pages(self) -> AsyncGenerator[Sequence[ListedFile], None]:
        """What is found, counted."""
        wishes = Wishes(versions=self._journal is not None, near=self._outputs is not None)
        async with aclosing(find(self._scopes, wishes)) as pages:
            async for page in pages:
                self.tally.num_found += len(page)
                yield page
        self.tally.all_found = True

    async def _task(self, found: ListedFile, names: set[str], remembered: Remembered | None) -> FileTask:
        if self._outputs is None:
            return FileTask(self._verb, found.place, found.size, found.version, refused=found.error)
        target = self._outputs.folder.place(found.name.removesuffix(PARTIAL_SUFFIX))
        options = self._outputs.options
        near: tuple[Place, ...] = found.near
        if options.schema is not None or options.schema_from is not None:
            near = ()
        if remembered is not None and remembered.begun:
            self._begun.add(found.address)
            options = replace(options, overwrite=True)
            if remembered.entry is None:
                self._interrupted.add(found.address)
        refused = found.error or await self._refused(found, names, target)
        return FileTask(self._verb, found.place, found.size, found.version, target, near, options, refused)

    async def _refused(self, found: ListedFile, names: set[str], target: Place) -> FileError | None:
        """Why a file is not recovered: its output would be that of another, too."""
        output: str = target[0].address_of(target[1])
        other: str | None = None
        if found.scope.is_one_file:
            address, name = self._named.setdefault(output, (found.address, found.url))
            other = None if address == found.address else name
        elif found.name.endswith(PARTIAL_SUFFIX):
            whole = found.name.removesuffix(PARTIAL_SUFFIX)
            store, key = found.scope.place(whole)
            if whole in names or await store.exists(key):
                other = store.url_of(key)
        if other is None:
            return None
        return FileError.of(
            RecoveryError(
                f"its output would be {shown_place(target)}, and so would that of {other}",
                where=Where(key=found.url),
                hint="recover it by itself",
            )
        )

    async def prepared(self, task: FileTask) -> FileTask:
        """A task that may begin: the journal says so, where there will be no output there but its own."""
        if self._journal is None or task.target is None or task.refused is not None:
            return task
        store, key = task.target
        assert isinstance(store, WriteStore)
        try:
            if task.url in self._interrupted:
                self._interrupted.discard(task.url)
                await store.discard_unfinished(key)
            if task.url in self._begun:
                return task
            if task.options.on_damage == OnDamage.COLUMNS:
                return task  # its outputs have names of their own, and which is known when they are written
            if not task.options.overwrite and await store.exists(key):
                return task  # none of ours: if something is to be written, that is refused
        except StoreError as error:
            return replace(task, refused=FileError.of(error))
        self._journal.begin(task.url, task.version)
        self._begun.add(task.url)
        return task

    def note(self, task: FileTask, result: FileResult) -> None:
        """Count a file that is done, and remember it."""
        entry = FileEntry.of(result)
        self.tally.add(entry)
        refused = result.error is not None and result.error.type == AlreadyExistsError.__name__
        begun = task.url in self._begun and not (refused and not task.options.overwrite)
        begun = begun or entry.output is not None
        self._begun.discard(task.url)
        if self._journal is not None:
            self._journal.done(task.url, task.version, entry, begun=begun)


def _described(scope: Scope) -> str:
    """A folder or a pattern; of files in a list nothing, since there may be others when it goes on."""
    return "a list" if scope.is_one_file else scope.store.url_of(scope.folder + (scope.pattern or ""))


def _is_done(remembered: Remembered, found: ListedFile) -> bool:
    """Whether a file was done, and is the same still; one that was an error is tried again."""
    if remembered.entry is None or remembered.entry.outcome == ERROR:
        return False
    return found.version is not None and remembered.version == found.version
