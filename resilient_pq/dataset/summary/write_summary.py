"""`write_metadata`: read the footers of all files below a folder, and write one that names all their row groups.

An async shell.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from resilient_pq.bulk.name_pattern import is_data_file
from resilient_pq.bulk.scope import Scope
from resilient_pq.dataset.summary.summary_footer import Summary
from resilient_pq.errors import (
    AlreadyExistsError,
    FormatError,
    SchemaError,
    StoreError,
    Where,
    located,
)
from resilient_pq.io import (
    WRITING,
    FetchCounters,
    ObjectInfo,
    ReadStore,
    RetryPolicy,
    WriteStore,
    with_retry,
)
from resilient_pq.io.resolve import reach
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.reader.data_file import COMMON_METADATA_NAME, METADATA_NAME, data_file
from resilient_pq.reader.opening import IncompleteFileWarning, read_contents

#: Called with the files read so far and the files there are.
Progress = Callable[[int, int], None]

#: Footers being read at one time.
_MAX_REQUESTS = 16
_TAIL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class WrittenMetadata:
    """What `write_metadata` wrote.

    Attributes:
        url: The summary.
        common_url: The summary without row groups; None when it was not wanted.
        num_files: Files that the summary names.
        num_row_groups: Their row groups.
        num_rows: Their rows.
        size: Bytes of the summary.
    """

    url: str
    common_url: str | None
    num_files: int
    num_row_groups: int
    num_rows: int
    size: int


async def write_metadata(
    root_path: str | os.PathLike[str] | tuple[WriteStore, str],
    *,
    files: Sequence[str] | None = None,
    common_metadata: bool = True,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Progress | None = None,
) -> WrittenMetadata:
    """Write the summary of a folder, ``_metadata``: a footer with the row groups of all its files.

    Only footers are read. `open` reads the summary as one file; pyarrow, fastparquet and dask find in it what
    they would else read file by file. Write it again when a file was added, replaced or removed.

    Args:
        root_path: The folder: a URL, a path, or a pair of a store and a key in it.
        files: Names of files relative to the folder, with slashes, in the order their rows are to have. None means
            every ``*.parquet`` file below it, at any depth, by name; those and folders whose names begin with ``_``
            or ``.`` are passed over.
        common_metadata: Write ``_common_metadata`` too, which has the schema and no row groups.
        overwrite: Replace summaries that are there.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.
        progress: Called now and then with the files read and the files there are.

    Returns:
        What was written.

    Raises:
        SchemaError: The schemas of two files differ; it names the first column that does. Or `files` names none.
        NotFoundError: There is no file below the folder, or one of `files` is not there.
        AlreadyExistsError: There is a summary, and `overwrite` is False.
        FormatError: The footer of a file is missing or damaged.
        UnsupportedError: A file is encrypted, or the store cannot list what is in a folder.
        StoreError: The store refused; a summary that was there before still is.

    Warns:
        IncompleteFileWarning: A file is a checkpoint of a writer that never finished, or what a recovery could keep
            of one; the summary then says so of itself.
    """
    storage_options = with_retry(storage_options, retry)
    store, key = await _summary_key(root_path, storage_options)
    try:
        common_key = store.beside(key, COMMON_METADATA_NAME) if common_metadata else None
        if not overwrite:
            await _refuse_existing(store, *([key] if common_key is None else [key, common_key]))
        names = await _names(store, key) if files is None else _checked(files)
        summary = await _summary(store, key, names, progress)
        data = summary.metadata(os.urandom(16))
        if common_key is not None:
            await store.put(common_key, summary.common_metadata(os.urandom(16)), if_none_match=not overwrite)
        await store.put(key, data, if_none_match=not overwrite)
    finally:
        if not isinstance(root_path, tuple):
            await store.close()
    return WrittenMetadata(
        url=store.url_of(key),
        common_url=None if common_key is None else store.url_of(common_key),
        num_files=summary.num_files,
        num_row_groups=summary.num_row_groups,
        num_rows=summary.num_rows,
        size=len(data),
    )


async def _summary_key(
    root_path: str | os.PathLike[str] | tuple[WriteStore, str], storage_options: Mapping[str, Any] | None
) -> tuple[WriteStore, str]:
    """The store of a folder, and the key of its summary."""
    if isinstance(root_path, tuple):
        store, folder = root_path
        return store, f"{folder.rstrip('/')}/{METADATA_NAME}" if folder else METADATA_NAME
    if not isinstance(root_path, str):
        return await reach(Path(root_path) / METADATA_NAME, storage_options, retry=WRITING)
    if not root_path:
        raise StoreError("an empty path names no folder", hint='the folder that one is in is "."')
    slash = "" if root_path.endswith("/") else "/"
    return await reach(f"{root_path}{slash}{METADATA_NAME}", storage_options, retry=WRITING)


async def _refuse_existing(store: ReadStore, *keys: str) -> None:
    for key in keys:
        if await store.exists(key):
            raise AlreadyExistsError(
                "there is a summary already",
                where=Where(key=store.url_of(key)),
                hint="use --overwrite (overwrite=True) to replace it",
            )


async def _names(store: ReadStore, key: str) -> list[str]:
    folder = key.removesuffix(METADATA_NAME)
    names = await store.list_names(folder)
    found = [name for name in names if is_data_file(name)]
    if not found:
        raise Scope(store, folder).nothing_found(any_listed=bool(names))
    return found


def _checked(files: Sequence[str]) -> list[str]:
    if isinstance(files, str):
        raise SchemaError("files is one string; it is a list of names", hint=f"files=[{files!r}]")
    if not files:
        raise SchemaError("files names no file")
    for name in files:
        try:
            data_file(name)
        except FormatError:
            raise SchemaError(
                f"{name!r} names no file below the folder",
                hint="names are relative to the folder, with slashes",
            ) from None
    return list(files)


async def _summary(store: ReadStore, key: str, names: Sequence[str], progress: Progress | None) -> Summary:
    summary = Summary()
    async with aclosing(_footers(store, [store.beside(key, name) for name in names])) as footers:
        async for info, contents in footers:
            name, url = names[summary.num_files], store.url_of(info.key)
            with located(Where(key=url)):
                await off_loop(contents.num_chunks, summary.add, name, info.size, contents)
            if contents.state not in (None, FileState.COMPLETE):
                message = f"{url} is {contents.state}: its writer did not finish it"
                warnings.warn(message, IncompleteFileWarning, stacklevel=3)
            if progress is not None:
                progress(summary.num_files, len(names))
    return summary


async def _footers(store: ReadStore, keys: Sequence[str]) -> AsyncGenerator[tuple[ObjectInfo, Contents], None]:
    """The footers of objects, in order, a bounded number of them read ahead."""
    waiting = deque(keys)
    ahead: deque[asyncio.Task[tuple[ObjectInfo, Contents]]] = deque()
    try:
        while waiting or ahead:
            while waiting and len(ahead) < _MAX_REQUESTS:
                ahead.append(asyncio.create_task(_footer(store, waiting.popleft())))
            yield await ahead[0]
            ahead.popleft()
    finally:
        for task in ahead:
            task.cancel()
        await asyncio.gather(*ahead, return_exceptions=True)


async def _footer(store: ReadStore, key: str) -> tuple[ObjectInfo, Contents]:
    with located(Where(key=store.url_of(key))):
        return await read_contents(store, key, tail_bytes=_TAIL_BYTES, counters=FetchCounters())
