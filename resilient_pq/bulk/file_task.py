"""One file of a run, as a task that can be pickled, and the functions that do it. An async shell.

`check_one` and `recover_one` return errors of a file as results, so that they can run in another process or on another
machine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from resilient_pq.bulk.file_result import FileError, FileResult
from resilient_pq.bulk.proof import ProofOrder
from resilient_pq.bulk.scope import Place, shown_place
from resilient_pq.errors import NothingToRecoverError
from resilient_pq.io import READING, WRITING, ReadStore, RetryPolicy, Stores
from resilient_pq.io.location import shown
from resilient_pq.io.resolve import Location
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.check import check, check_if_sound
from resilient_pq.recovery.damaged_object import SMALL_BYTES, SmallObject
from resilient_pq.recovery.recover import salvage, salvage_if_sound
from resilient_pq.recovery.recover_options import RecoverOptions
from resilient_pq.recovery.report import Report

DEFAULT_RECOVER_OPTIONS = RecoverOptions(make_folder=True)


@dataclass(frozen=True, slots=True)
class FileTask:
    """A file of a run, or why it is refused; files `near` it probably have the same columns."""

    verb: str
    source: Place
    size: int | None = None
    version: str | None = None
    target: Place | None = None
    near: tuple[Place, ...] = ()
    options: RecoverOptions = DEFAULT_RECOVER_OPTIONS
    refused: FileError | None = None
    proof: ProofOrder | None = None
    deep: bool = False

    @property
    def url(self) -> str:
        """The address of the file for other machines, which may hold secrets."""
        store, key = self.source
        return store.address_of(key)

    @property
    def name(self) -> str:
        """The name of the file for people, as in its result."""
        return shown_place(self.source)


async def check_one(
    url: Location, *, size: int | None = None, deep: bool = False, stores: Stores | None = None
) -> FileResult:
    """Check a file; a `size` that is known to be small saves requests."""
    name = _name(url)
    async with _reached(stores, READING) as reached:
        try:
            place = await reached.reach(url)
            name = shown_place(place)
            small = None if deep else await _small(place, size)
            if small is not None:
                report = await check_if_sound((small, place[1]))
                if report is not None:
                    return FileResult("check", name, report)
            return FileResult("check", name, await check(place, deep=deep))
        except Exception as error:
            return FileResult("check", name, error=FileError.of(error))


async def recover_one(
    url: Location,
    dst: Location,
    options: RecoverOptions = DEFAULT_RECOVER_OPTIONS,
    *,
    schema_from: Sequence[Location] = (),
    size: int | None = None,
    stores: Stores | None = None,
    dst_stores: Stores | None = None,
) -> FileResult:
    """Recover a file to a new one; without a schema it gets that of the first of `schema_from` that fits."""
    name = _name(url)
    async with _reached(stores, WRITING) as reached:
        try:
            place = await reached.reach(url)
            name = shown_place(place)
            siblings = [await reached.reach(each) for each in schema_from]
            target = await (reached if dst_stores is None else dst_stores).reach(dst)
            small = await _small(place, size)
            if small is not None:
                sound = await salvage_if_sound((small, place[1]), target, options)
                if sound is not None:
                    return FileResult("recover", name, sound)
            report = await salvage([place], target, options, siblings=siblings)
            return FileResult("recover", name, report)
        except NothingToRecoverError as error:
            nothing = error.report if isinstance(error.report, Report) else None
            return FileResult("recover", name, nothing, None if nothing else FileError.of(error))
        except Exception as error:
            return FileResult("recover", name, error=FileError.of(error))


#: Does a task, here or elsewhere; what it raises ends the whole run.
RunFile: TypeAlias = Callable[[FileTask], Awaitable[FileResult]]


async def run_here(task: FileTask) -> FileResult:
    """Do a task in this process, with the stores that listed the file."""
    if task.refused is not None:
        return FileResult(task.verb, task.name, error=task.refused)
    if task.target is None:
        return await check_one(task.source, size=task.size, deep=task.deep)
    return await recover_one(task.source, task.target, task.options, schema_from=task.near, size=task.size)


async def _small(place: tuple[ReadStore, str], size: int | None) -> SmallObject | None:
    """The whole file in memory if it is small."""
    return None if size is None or size > SMALL_BYTES else await SmallObject.read(*place)


def _name(location: Location) -> str:
    """The name of a place for people, before its store is known."""
    return shown_place(location) if isinstance(location, tuple) else shown(str(location))


@asynccontextmanager
async def _reached(stores: Stores | None, retry: RetryPolicy) -> AsyncIterator[Stores]:
    """The given stores, or new ones that are closed at the end."""
    if stores is not None:
        yield stores
        return
    own = Stores(None, retry)
    try:
        yield own
    finally:
        await own.close()
