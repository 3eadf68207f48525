"""Opening a file: its footer read and understood. An async shell."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, Literal

from resilient_pq.errors import FormatError, NotParquetError, SchemaError, Where, located
from resilient_pq.io import FetchCounters, ReadStore, RetryPolicy, with_retry
from resilient_pq.io.resolve import Opening, reach
from resilient_pq.reader.contents import FileState
from resilient_pq.reader.data_file import remedy
from resilient_pq.reader.file import File
from resilient_pq.reader.growing_file import FollowOptions, GrowingFile, Watch
from resilient_pq.reader.read_options import OnLost, ReadLimits, ReadOptions, ReadSettings
from resilient_pq.reader.reading import read_tail_and_contents


class IncompleteFileWarning(UserWarning):
    """The file is a checkpoint of a writer that never finished, or what a recovery could keep of one."""


async def open_file(
    store: ReadStore,
    key: str,
    how: ReadSettings,
    *,
    counters: FetchCounters,
    owns_store: bool,
    limits: ReadLimits | None = None,
) -> File:
    """Read the footer of an object, and give what reads its rows.

    Args:
        store: Where to read.
        key: What to read.
        how: As `open` was asked.
        counters: Added to.
        owns_store: Whether the file closes the store.
        limits: What it has a share in; its own where there are none.

    Raises:
        FormatError: There is no footer, or it is damaged; the hint says what may help.
        StoreError: The store could not give the bytes.
    """
    name = store.url_of(key)
    try:
        with located(Where(key=name)):
            tail, contents = await read_tail_and_contents(
                store, key, tail_bytes=how.options.tail_bytes, counters=counters, verify=how.verify
            )
    except FormatError as error:
        if not isinstance(error, NotParquetError):
            error.hint = error.hint or remedy(name)
        raise
    return File(
        store,
        tail,
        contents,
        how,
        counters=counters,
        owns_store=owns_store,
        limits=limits,
    )


def warn_of_incomplete(file: File, *, stacklevel: int) -> None:
    """Warn where the rows of a file may not be all that there were to be.

    Args:
        file: What was opened.
        stacklevel: As of `warnings.warn`, counted from the caller.
    """
    if file.state in (None, FileState.COMPLETE):
        return
    of_whom = "a file that it names was not finished" if file.data_files else "its writer did not finish it"
    warnings.warn(f"{file.url} is {file.state}: {of_whom}", IncompleteFileWarning, stacklevel=stacklevel + 1)


def open(
    url: str | os.PathLike[str] | tuple[ReadStore, str],
    *,
    verify: bool = True,
    on_damage: Literal["raise", "null", "drop"] = "raise",
    on_lost: OnLost | None = None,
    options: ReadOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    follow: bool | FollowOptions = False,
) -> Opening[File]:
    """Open a Parquet file, ours or anyone's, for reading columns by byte range.

    A summary of a folder (``_metadata``) reads as one file with the rows of all files that it names; they are
    found by its place. Values that stand only in the names of folders (``day=1/``) are no columns of it.

    Use it as ``async with rpq.open(url) as file``.

    Args:
        url: A URL ("s3://bucket/key", any fsspec URL), a path, or a pair of a store and a key in it.
        verify: Compare every checksum that the file has.
        on_damage: What is done with rows of which a value is lost, because its page is damaged and nothing else has
            its bytes. "raise" raises the error. "drop" leaves them out, in all columns that are read: other
            `columns=` may give other rows. "null" gives null, so that the columns that may be null keep one row for
            each row of the file; rows are left out where a required column, or one that is a list by repetition
            alone, has lost its value. What is whole costs nothing more than with "raise".
        on_lost: Called with each `LostRegion` when rows are left out or become null, before these rows are given: by
            `File.batches` before the first batch of their row group, by `File.read` when all is read; row group by
            row group, in the order of the bytes. What is read twice is told twice. It is called in the event loop
            (in `resilient_pq.sync` in a thread of ours), so it must not block, and what it raises ends the reading.
        options: How to read.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        follow: For a local file that a writer of ours is writing, under the name that it will have: `File.batches`
            gives the rows of each checkpoint as it appears, and ends when the file is complete. `FollowOptions` say
            how often to look. When the writer ends without completing the file, that is a TornFileError, after the
            rows of its last checkpoint. All else of the file is as of the newest checkpoint that was found. A
            complete file is read as ever.

    Raises:
        SchemaError: `options` are none, `on_lost` cannot be called, or there is no such `on_damage`.
        NotFoundError: On entering: no such object.
        NotParquetError: On entering: the object is no Parquet file.
        TornFileError: On entering: its footer is missing or cut short; `recover` may help.
        UnsupportedError: On entering: `follow`, and the store shows no object before it is complete.
        FormatError: On entering: its footer is damaged; `recover` may help.
    """
    storage_options = with_retry(storage_options, retry)
    how = ReadSettings.checked(verify=verify, on_damage=on_damage, on_lost=on_lost, options=options)
    if not isinstance(follow, bool | FollowOptions):
        raise SchemaError(f"follow is {follow!r}; it is True, False or FollowOptions")
    following = FollowOptions() if follow is True else follow or None

    async def opening() -> File:
        store, key = await reach(url, storage_options)
        owns_store = not isinstance(url, tuple)
        try:
            if following is not None:
                watch = Watch(store, key, how, following)
                return GrowingFile(watch, await watch.first(), how, owns_store=owns_store)
            file = await open_file(store, key, how, counters=FetchCounters(), owns_store=owns_store)
        except BaseException:
            if owns_store:
                await store.close()
            raise
        warn_of_incomplete(file, stacklevel=3)
        return file

    return Opening(opening)
