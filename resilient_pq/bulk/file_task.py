"""What is done with one file of many: a plain function of its arguments, which can be pickled. An async shell.

`check_one` and `recover_one` raise nothing for a file that is damaged, missing or cannot be reached: they say so. So
they are what runs in another process, or on another machine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from resilient_pq.bulk.file_result import FileError, FileResult
from resilient_pq.bulk.scope import shown_place
from resilient_pq.errors import NothingToRecoverError
from resilient_pq.io import READING, WRITING, ReadStore, RetryPolicy, Stores
from resilient_pq.io.location import shown
from resilient_pq.recovery.check import check, check_if_sound
from resilient_pq.recovery.damaged_object import SMALL_BYTES, Location, SmallObject
from resilient_pq.recovery.recover import RecoverOptions, salvage, salvage_if_sound
from resilient_pq.recovery.report import Report

DEFAULT_RECOVER_OPTIONS = RecoverOptions(make_folder=True)


async def check_one(url: Location, *, size: int | None = None, stores: Stores | None = None) -> FileResult:
    """Check a file, of which a known small size saves requests, and say what was found, or why nothing could be."""
    name = _name(url)
    async with _reached(stores, READING) as reached:
        try:
            place = await reached.reach(url)
            name = shown_place(place)
            small = await _small(place, size)
            if small is not None:
                report = await check_if_sound((small, place[1]))
                if report is not None:
                    return FileResult("check", name, report)
            return FileResult("check", name, await check(place))
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
    """Recover a file to a new one, whose folder is made, and say what was kept, or why nothing could be.

    Where it does not tell its schema, and the options name none, `schema_from` are asked, the likeliest first.
    Stores are left open; those of `url` are those of `dst` as well where there are no others.
    """
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


async def _small(place: tuple[ReadStore, str], size: int | None) -> SmallObject | None:
    """The file in memory, where it is small."""
    return None if size is None or size > SMALL_BYTES else await SmallObject.read(*place)


def _name(location: Location) -> str:
    """What to call a place before its store is known."""
    return shown_place(location) if isinstance(location, tuple) else shown(str(location))


@asynccontextmanager
async def _reached(stores: Stores | None, retry: RetryPolicy) -> AsyncIterator[Stores]:
    """The stores that are given, or some of their own that are closed at the end."""
    if stores is not None:
        yield stores
        return
    own = Stores(None, retry)
    try:
        yield own
    finally:
        await own.close()
