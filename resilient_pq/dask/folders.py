"""`check` and `recover`: folders of files, done by a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from distributed import Client, default_client

from resilient_pq.blocking_streams import BlockingResults
from resilient_pq.bulk.file_task import RunFile, run_here
from resilient_pq.bulk.many_files import DEFAULT_MAX_FILES, FileResults, RunProgress, check_many, recover_many
from resilient_pq.dask.on_cluster import OnCluster
from resilient_pq.dask.serialized_row_group import Location
from resilient_pq.errors import SchemaError
from resilient_pq.io import RetryPolicy, with_retry
from resilient_pq.io.location import scrubbed
from resilient_pq.loop_portal import portal

Urls = Location | Sequence[Location]


def check(
    urls: Urls,
    client: Client | None = None,
    *,
    max_files: int | None = None,
    workers_timeout: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: RunProgress | None = None,
) -> BlockingResults:
    """Check the files of a folder on a cluster, as `resilient_pq.check` does each; nothing is written.

    Listing and counting are done here. Where a worker dies its files are done again; a file that kills one worker after
    the other is an error, and the others are not.

    Args:
        urls: A folder or a prefix, which means its ``*.parquet`` files at any depth; a pattern such as
            ``s3://bucket/events/**/*.parquet``; or a list of files. Files of this machine have to be there for the
            workers too, under the same path.
        client: Of the cluster. None is the client of this thread; where there is none, it is done in this process.
        max_files: Files that are handed out at one time; None for as many as keep all workers busy.
        workers_timeout: Seconds without any worker after which the run ends with an error; None waits for ever. After
            30 seconds without workers a warning is logged in any case.
        resume: A journal, a file of this machine. What it says is done and unchanged is not done again; it is made
            where it is missing.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them; workers get them too.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        progress: Called after each file with what was counted so far, in a thread of ours.

    Returns:
        An iterator of a result for each file, in the order in which they are done, and the summary of all.

    Raises:
        SchemaError: `urls` names nothing, `max_files` is below 1, or `workers_timeout` is no number above 0.
        NotFoundError: When the first result is asked for: there is no such file in the folder.
        RecoveryError: The same; the journal is of another run.
        StoreError: A store could not list; or when a result is asked for, there were no workers for `workers_timeout`.
    """
    storage_options = with_retry(storage_options, retry)

    async def begun() -> FileResults:
        run, files = _by_cluster(client, max_files, storage_options=storage_options, workers_timeout=workers_timeout)
        return check_many(
            everywhere(urls),
            max_files=files,
            resume=resume,
            storage_options=storage_options,
            progress=progress,
            run=run,
        )

    return BlockingResults(portal.run(begun()))


def recover(
    src: Urls,
    dst: Location,
    client: Client | None = None,
    *,
    only_damaged: bool = False,
    on_damage: Literal["drop", "null", "raise"] = "drop",
    schema: object | None = None,
    schema_from: Location | None = None,
    repair_bits: bool = False,
    keep_unplaced: bool = False,
    verify: bool = False,
    overwrite: bool = False,
    max_files: int | None = None,
    workers_timeout: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: RunProgress | None = None,
) -> BlockingResults:
    """Recover the files of a folder into another one on a cluster, as `resilient_pq.recover` does each.

    The tree of folders stays; sound files are copied. Where a worker dies its files are done again: what it left half
    written is removed, and an output that it had completed is written again, under the same name.

    Args:
        src: As `urls` of `check`.
        dst: The folder of the outputs, which all workers must reach; neither `src` itself, nor below
            or above it.
        client: As of `check`.
        only_damaged: Write nothing of sound files.
        on_damage: As of `resilient_pq.recover`, but for "columns".
        schema: As of `resilient_pq.recover`, for all files that do not tell theirs; without it, that of a file listed
            near, where the pages fit.
        schema_from: The same, as of a file.
        repair_bits: As of `resilient_pq.recover`.
        keep_unplaced: As of `resilient_pq.recover`.
        verify: As of `resilient_pq.recover`.
        overwrite: Replace outputs that are there.
        max_files: As of `check`.
        workers_timeout: As of `check`.
        resume: As of `check`.
        storage_options: Credentials, endpoint and so on for `src`; workers get them too.
        dst_storage_options: The same for `dst`; None means those of `src`.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.
        progress: As of `check`.

    Returns:
        As of `check`.

    Raises:
        SchemaError: `src` names nothing, `max_files` is below 1, `workers_timeout` is no number above 0, or there is
            no such `on_damage`.
        RecoveryError: `dst` is `src`, or below or above it; when the first result is asked for, the journal is of
            another run.
        NotFoundError: When the first result is asked for: there is no such file in the folder.
        StoreError: A store could not list; or when a result is asked for, there were no workers for `workers_timeout`.
    """
    storage_options = with_retry(storage_options, retry)
    if dst_storage_options is not None:
        dst_storage_options = with_retry(dst_storage_options, retry)
    if on_damage not in ("drop", "null", "raise"):
        raise SchemaError(f"on_damage is {on_damage!r}", hint='on a cluster it is "drop", "null" or "raise"')

    async def begun() -> FileResults:
        outputs = everywhere_one(dst)
        run, files = _by_cluster(
            client,
            max_files,
            storage_options=storage_options,
            dst_storage_options=dst_storage_options,
            dst=outputs,
            workers_timeout=workers_timeout,
        )
        return recover_many(
            everywhere(src),
            outputs,
            only_damaged=only_damaged,
            on_damage=on_damage,
            schema=schema,
            schema_from=None if schema_from is None else everywhere_one(schema_from),
            repair_bits=repair_bits,
            keep_unplaced=keep_unplaced,
            verify=verify,
            overwrite=overwrite,
            max_files=files,
            resume=resume,
            storage_options=storage_options,
            dst_storage_options=dst_storage_options,
            progress=progress,
            run=run,
        )

    return BlockingResults(portal.run(begun()))


def _by_cluster(client: Client | None, max_files: int | None, **reach: Any) -> tuple[RunFile, int]:
    """What does a file, and how many of them at one time."""
    if client is None:
        try:
            client = default_client()
        except ValueError:
            return run_here, DEFAULT_MAX_FILES if max_files is None else max_files
    run = OnCluster(client, **reach)
    return run, run.max_files if max_files is None else max_files


def everywhere(urls: Urls) -> Urls:
    """The same files by names that hold in other processes too."""
    if isinstance(urls, Sequence) and not isinstance(urls, str):
        return [everywhere_one(url) for url in urls]
    return everywhere_one(urls)


def everywhere_one(url: Any) -> Location:
    """The same of one: paths become absolute, as workers are in other folders."""
    if not isinstance(url, str | os.PathLike):
        raise SchemaError(f"{scrubbed(repr(url))} is no URL and no path", hint="other processes find files by those")
    text = os.fspath(url)
    if isinstance(url, str) and (not text or "://" in text or "::" in text):
        return url
    slash = "/" if text.endswith("/") and text != "/" else ""
    path = os.path.abspath(os.path.expanduser(text)) + slash
    return path if isinstance(url, str) else Path(path)
