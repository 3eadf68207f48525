"""What is to be done with one file, as data, and doing it here. An async shell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from resilient_pq.bulk.file_result import FileError, FileResult
from resilient_pq.bulk.file_task import DEFAULT_RECOVER_OPTIONS, check_one, recover_one
from resilient_pq.bulk.scope import Place, shown_place
from resilient_pq.recovery.recover import RecoverOptions


@dataclass(frozen=True, slots=True)
class FileTask:
    """One file, and what is to be done with it, or why it is not; `near` have likely the same columns."""

    verb: str
    source: Place
    size: int | None = None
    version: str | None = None
    target: Place | None = None
    near: tuple[Place, ...] = ()
    options: RecoverOptions = DEFAULT_RECOVER_OPTIONS
    refused: FileError | None = None

    @property
    def url(self) -> str:
        """The file by a name that leads to it from anywhere, where its store has one; to be sent, not to be shown."""
        store, key = self.source
        return store.address_of(key)

    @property
    def name(self) -> str:
        """The file by its name for people, which is that of its result."""
        return shown_place(self.source)


#: Does what is to be done with a file, here or elsewhere; raises only what ends the whole run.
RunFile: TypeAlias = Callable[[FileTask], Awaitable[FileResult]]


async def run_here(task: FileTask) -> FileResult:
    """Do it in this process, with the stores that the file was found in."""
    if task.refused is not None:
        return FileResult(task.verb, task.name, error=task.refused)
    if task.target is None:
        return await check_one(task.source, size=task.size)
    return await recover_one(task.source, task.target, task.options, schema_from=task.near, size=task.size)
