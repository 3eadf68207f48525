"""`open_many`: the files that a caller means, open as one data set. An async shell."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from resilient_pq.bulk.name_pattern import is_pattern
from resilient_pq.bulk.run_listing import scope_of
from resilient_pq.bulk.scope import Place
from resilient_pq.damage.lost_region import Damage, LostRegion
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.dataset.dataset import Dataset
from resilient_pq.dataset.file_listing import Source, find_files
from resilient_pq.dataset.folder_columns import FolderColumns
from resilient_pq.dataset.growing_dataset import open_growing
from resilient_pq.dataset.naming import find_ended_files
from resilient_pq.errors import FormatError, NotFoundError, NotParquetError, SchemaError, UnsupportedError, Where
from resilient_pq.io import FetchCounters, RetryPolicy, Stores, with_retry
from resilient_pq.io.cancellation import all_or_none, in_one_hop
from resilient_pq.io.resolve import Opening, is_local
from resilient_pq.off_event_loop import ONE_HOP_BYTES
from resilient_pq.reader.contents import FileState
from resilient_pq.reader.file import File
from resilient_pq.reader.opening import IncompleteFileWarning, open_file, warn_of_incomplete
from resilient_pq.reader.read_options import (
    FollowOptions,
    OnLost,
    ReadLimits,
    ReadOptions,
    ReadSettings,
    follow_options,
)
from resilient_pq.reader.read_plan import Filters

if TYPE_CHECKING:
    from resilient_pq.encryption.keys import KeysArgument


def open_many(
    urls: Source | Sequence[Source],
    *,
    verify: bool = True,
    on_damage: Literal["raise", "null", "drop"] = "raise",
    on_lost: OnLost | None = None,
    partitioning: object | None = None,
    filters: Filters | None = None,
    follow: bool | FollowOptions = False,
    options: ReadOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    keys: KeysArgument | None = None,
    aad_prefix: bytes | None = None,
    require_complete: bool | None = None,
) -> Opening[Dataset]:
    """Open several Parquet files of one schema, to be read as one.

    Their footers are read side by side. Rows come in the order of the files: as listed, or by name where they are found
    by a pattern or in a folder. Use it as ``async with rpq.open_many(urls) as dataset``.

    Values that stand only in the names of folders (``day=1/``) are columns where `partitioning` says so.

    Args:
        urls: One of these. A list of files, each a URL, a path, or a pair of a store and a key in it. A pattern such as
            "s3://bucket/2026/*.parquet", in which ``*`` and ``?`` stand for characters of one part of a name, ``[...]``
            for one of some, and ``**`` for any number of folders. A folder, with every ``*.parquet`` file below it at
            any depth; where it has a summary, ``_metadata``, that says which row groups there are, and no other footer
            is read. In patterns and folders, files and folders whose names begin with ``_`` or ``.`` are passed over.
        verify: As of `open`.
        on_damage: As of `open`. With "drop" and "null" a file of which nothing can be read is left out, too, with an
            IncompleteFileWarning, unless it is the only one.
        on_lost: As of `open`; the `where` of a region names its file.
        partitioning: "hive" takes the names of folders such as ``day=1/country=FR`` for columns, which come behind
            those of the files; integers where all values are, else text. An Arrow schema of these columns says their
            types instead. Folders of `urls` itself do not count. None takes them for names alone.
        filters: With `partitioning`, as of `Dataset.read`: files are left out, and not opened, whose folders say that
            no row of theirs is wanted. To choose rows, tell `read` too.
        follow: For a folder or a pattern to which files are still added: `Dataset.batches` goes on with the rows that
            become stored, in new files and, of local ones, in checkpoints of those that are still written. It waits
            for the first file, and ends as `FollowOptions.idle_seconds` says. A partition has its rows in their order
            where one writer of ours makes the files, one after the other.
        options: How to read; `memory_budget`, `max_requests` and `max_threads` hold for all files together.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them; for all files.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        keys: As of `open`, for all files.
        aad_prefix: As of `open`.
        require_complete: As of `open`.

    Raises:
        SchemaError: An argument is wrong. On entering: the schemas of two files differ; it names both, and the column.
        NotFoundError: On entering: a file is missing, the folder has none, or none matches the pattern.
        FormatError: On entering: the footer of a file is missing or damaged; it names the file.
        UnsupportedError: On entering: a store cannot list what is in a folder.

    Warns:
        IncompleteFileWarning: A file is a checkpoint of a writer that never finished, or what a recovery could keep
            of one.
    """
    storage_options = with_retry(storage_options, retry)
    how = ReadSettings.checked(
        verify=verify,
        on_damage=on_damage,
        on_lost=on_lost,
        options=options,
        keys=keys,
        aad_prefix=aad_prefix,
        require_complete=require_complete,
    )
    if filters is not None and partitioning is None:
        raise SchemaError(
            "filters of open_many are about the names of folders",
            hint='partitioning="hive"; or filters= of read',
        )

    following = follow_options(follow)
    if following is not None:
        if partitioning is not None:
            raise SchemaError("follow reads no columns from the names of folders", hint="leave partitioning out")
        return Opening(partial(open_growing, urls, storage_options, how, following))
    return Opening(partial(_opened, urls, storage_options, how, partitioning, filters))


async def _opened(
    urls: Source | Sequence[Source],
    storage_options: Mapping[str, Any] | None,
    how: ReadSettings,
    partitioning: object | None,
    filters: Filters | None,
) -> Dataset:
    stores = Stores(storage_options)
    try:
        counters = FetchCounters()
        places = await find_files(urls, stores)
        folders = None
        if partitioning is not None:
            folders = FolderColumns(_names_below(urls, places, stores), partitioning)
            wanted = folders.wanted_files(filters)
            places, folders = [places[at] for at in wanted], folders.of_files(wanted)
        files, found = await open_files(places, how, counters)
        folders = folders and folders.of_files(found)
        if folders is not None and any(file.data_files for file in files):
            raise UnsupportedError(
                "a summary is one file, which lies in no folder of its own",
                hint="partitioning takes the files themselves: a pattern such as folder/**/*.parquet",
            )
        dataset = Dataset(files, stores, how, counters, folders)
    except BaseException:
        await stores.close()
        raise
    for file in not_ended(files):
        warn_of_incomplete(file, stacklevel=3, required=how.require_complete)
    return dataset


def _names_below(urls: Source | Sequence[Source], places: Sequence[Place], stores: Stores) -> list[str]:
    """The names of files, from the folder on that a caller named."""
    names = [store.url_of(key) for store, key in places]
    scope = scope_of(urls, stores)
    return names if scope is None else [name.removeprefix(scope.url) for name in names]


def not_ended(files: Sequence[File]) -> list[File]:
    """The files but those that others go on with, though their writer never finished them."""
    ended = find_ended_files((file.url, file.key_value_metadata, file.num_rows) for file in files)
    return [file for file in files if file.state is not FileState.IN_PROGRESS or file.url not in ended]


#: Where opening takes so many times as long as the processor worked, it waited for a disk.
_WAITS: Final = 8.0


async def open_files(
    places: Sequence[Place], how: ReadSettings, counters: FetchCounters
) -> tuple[list[File], list[int]]:
    """The files that can be read, in order, with their positions; the first error cancels what is under way."""
    limits = ReadLimits.of(how.options)
    waiting = iter(enumerate(places))
    files: dict[int, File] = {}
    unreadable: dict[int, FormatError] = {}

    async def open_some(most_bytes: float = math.inf) -> bool:
        """Open files one after the other, until so many bytes of them were read; whether Python took the time."""
        begun, worked, before = time.monotonic(), time.thread_time(), counters.bytes
        for position, (store, key) in waiting:
            try:
                files[position] = await open_file(store, key, how, counters=counters, owns_store=False, limits=limits)
            except NotFoundError as error:
                if is_pattern(key):
                    error.hint = error.hint or "in a list, names are taken as they are; a pattern stands alone"
                raise
            except FormatError as error:
                if how.on_damage is OnDamage.RAISE:
                    raise
                unreadable[position] = error
            if counters.bytes - before >= most_bytes:
                break
        return time.monotonic() - begun < _WAITS * (time.thread_time() - worked)

    # Of this machine, so many that a hop to a thread is worth it: it is a disk that several threads make faster.
    is_quick = how.keys is None and all(map(is_local, places))
    while is_quick and len(files) + len(unreadable) < len(places):
        is_quick = await in_one_hop(open_some(ONE_HOP_BYTES))
    await all_or_none(open_some() for _ in range(min(how.options.max_requests, len(places))))
    if not files:
        raise unreadable[0]
    for position, error in sorted(unreadable.items()):
        await _tell(places[position], error, how)
    found = sorted(files)
    return [files[position] for position in found], found


async def _tell(place: Place, error: FormatError, how: ReadSettings) -> None:
    """Say that a file is left out: its bytes do not tell how many rows it had."""
    store, key = place
    url = store.url_of(key)
    warnings.warn(f"{url} is left out, since none of it can be read: {error.message}", IncompleteFileWarning, 5)
    if how.on_lost is not None:
        damage = Damage.FOREIGN if isinstance(error, NotParquetError) else Damage.TORN
        size = (await store.head(key)).size
        how.on_lost(LostRegion(0, size, None, damage, error.message, Where(key=url)))
