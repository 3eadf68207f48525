"""The tasks of a run: the files that are found, less those that its journal has, and their results. An async shell."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, ClassVar

from resilient_pq.bulk.bounded_jobs import fetch_ahead
from resilient_pq.bulk.file_result import ERROR, FileError, FileResult
from resilient_pq.bulk.file_task import FileTask
from resilient_pq.bulk.keyed_lines import KeyedLines
from resilient_pq.bulk.name_pattern import PARTIAL_SUFFIX, SUFFIX
from resilient_pq.bulk.run_listing import ListedFile, Wishes, find
from resilient_pq.bulk.run_summary import FileEntry, Tally
from resilient_pq.bulk.scope import Place, Scope, shown_place
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.errors import AlreadyExistsError, RecoveryError, StoreError, Where
from resilient_pq.io import LocalStore, Stores, WriteStore
from resilient_pq.io.local_store import in_thread
from resilient_pq.io.location import Address, shown
from resilient_pq.io.resolve import Location
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.recover_options import RecoverOptions


@dataclass(frozen=True, slots=True)
class Remembered:
    """The entry of an earlier run for a file; `begun` if an output of its own may exist."""

    entry: FileEntry | None
    version: str | None
    begun: bool


class Journal(KeyedLines):
    """An open journal, locked against other runs."""

    NOUN: ClassVar[str] = "journal"
    FORMAT: ClassVar[str] = "resilient_pq journal 1"
    OPTION: ClassVar[str] = "--resume"

    def remembered(self, address: str) -> Remembered | None:
        """The entry of an earlier run for a file, if there is one."""
        line = self.newest(address)
        if line is None:
            return None
        try:
            entry = None if line.get("entry") is None else FileEntry.from_json(line["entry"])
        except (KeyError, TypeError):
            return None
        if entry is not None and entry.url != line["url"]:
            return None  # nothing that a run writes: the file is done once more
        return Remembered(entry, line.get("version"), line.get("begun") is True)

    def begin(self, address: str, version: str | None) -> None:
        """Note that the output of a file may exist from now on, and that there was none before."""
        self.append(address, {"version": version, "begun": True})

    def done(self, address: str, version: str | None, entry: FileEntry, *, begun: bool = False) -> None:
        """Note the result of a file, and whether its output was begun."""
        self.append(address, {"version": version, "begun": begun, "entry": entry.to_json()})


@dataclass(frozen=True, slots=True)
class Outputs:
    """The folder of the recovered files, and the options of their recoveries."""

    folder: Scope
    options: RecoverOptions


def resolve_folder(dst: Location, stores: Stores) -> Scope:
    """The scope of a folder, whose name is never a pattern."""
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


def refuse_overlap(output: Scope, scope: Scope, *, same_names: bool) -> None:
    """Refuse outputs among or above the inputs: from ``a/b`` to ``a`` the file ``a/b/b/c`` would become ``a/b/c``."""
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
            f"the outputs would lie below {scope.url}, among what is read",
            where=Where(key=output.url),
            hint="name a folder outside of it",
        )
    if there.startswith(here) and _has_folders(scope):
        raise RecoveryError(
            f"the outputs would lie above {scope.url}, and may fall among what is read",
            where=Where(key=output.url),
            hint="name a folder beside it",
        )


def _has_folders(scope: Scope) -> bool:
    """Whether the names of the inputs may contain folders."""
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


#: Pages of the listing that are fetched ahead, some 4,000 files: a progress bar knows the number of files early.
_PAGES_AHEAD = 4


class RunTasks:
    """The listing, the journal and the summary of a run."""

    def __init__(
        self,
        verb: str,
        scopes: Sequence[Scope],
        stores: Iterable[Stores],
        journal: str | os.PathLike[str] | None,
        outputs: Outputs | None = None,
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
        """Open the journal, if there is one."""
        if self._journal_path is not None:
            self._journal = await in_thread(Journal, self._journal_path, self._describe_run())

    async def close(self) -> None:
        """Close the journal and the stores. A second call does nothing."""
        if self._journal is not None:
            self._journal.close()
        for stores in self._stores:
            await stores.close()

    def _describe_run(self) -> dict[str, Any]:
        """The description in the journal, by which it belongs to this run alone."""
        described: dict[str, Any] = {
            "verb": self._verb,
            "source": list(dict.fromkeys(_describe_scope(scope) for scope in self._scopes)),
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

    async def pending(self) -> AsyncGenerator[FileTask, None]:
        """The tasks that the journal does not have as done."""
        async with aclosing(fetch_ahead(self._pages(), _PAGES_AHEAD)) as pages:
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
        """The pages of the listing, counted."""
        wishes = Wishes(versions=self._journal is not None, near=self._outputs is not None)
        async with aclosing(find(self._scopes, wishes)) as pages:
            async for page in pages:
                self.tally.find(len(page))
                yield page
        self.tally.end_listing()

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
        """The error of a file whose output would be that of another file, too."""
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

    async def begin(self, task: FileTask) -> FileTask:
        """Note in the journal that a task begins, unless a file that is not its own is at its output."""
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
                return task  # the names of its outputs are known only when they are written
            if not task.options.overwrite and await store.exists(key):
                return task  # another run wrote it: an output there will be refused
        except StoreError as error:
            return replace(task, refused=FileError.of(error))
        self._journal.begin(task.url, task.version)
        self._begun.add(task.url)
        return task

    def record(self, task: FileTask, result: FileResult) -> None:
        """Count a file that is done, and note it in the journal."""
        entry = FileEntry.of(result)
        self.tally.add(entry)
        refused = result.error is not None and result.error.type == AlreadyExistsError.__name__
        begun = task.url in self._begun and not (refused and not task.options.overwrite)
        begun = begun or entry.output is not None
        self._begun.discard(task.url)
        if self._journal is not None:
            self._journal.done(task.url, task.version, entry, begun=begun)


def _describe_scope(scope: Scope) -> str:
    """A folder or a pattern; files of a list are not named, since the list of a later run may have more."""
    return "a list" if scope.is_one_file else scope.store.url_of(scope.folder + (scope.pattern or ""))


def _is_done(remembered: Remembered, found: ListedFile) -> bool:
    """Whether a file was done and did not change since; one with an error is tried again."""
    if remembered.entry is None or remembered.entry.outcome == ERROR:
        return False
    return found.version is not None and remembered.version == found.version
