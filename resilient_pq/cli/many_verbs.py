"""Verbs that take many files: their options, and the output of a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated, Any

import typer

import resilient_pq as rpq
from resilient_pq.bulk.file_task import RunFile, run_here
from resilient_pq.bulk.many_files import DEFAULT_MAX_FILES
from resilient_pq.bulk.run_listing import is_folder, names_many
from resilient_pq.cli.output import report_lines, wording
from resilient_pq.cli.output.progress_bar import Meter
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.shared_options import Storage
from resilient_pq.errors import ResilientPQError
from resilient_pq.io import Stores
from resilient_pq.io.location import shown
from resilient_pq.lazy_dataclass import dataclass

Urls = Annotated[
    list[str],
    typer.Argument(
        metavar="URL...",
        help="A path or a URL, such as s3://bucket/key; or many files: a folder, a prefix that ends with a slash, or a"
        " pattern in quotes, such as 's3://bucket/events/**/*.parquet'.",
    ),
]
Resume = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="FILE",
        help="(multiple files) A journal of the files that are done; it is created if it is missing. Run the same"
        " command again to continue where it stopped. Files that changed or had errors are done again.",
    ),
]
MaxFiles = Annotated[
    int, typer.Option("--max-files", metavar="N", min=1, help="(multiple files) How many files are read at one time.")
]
MaxFilesAnywhere = Annotated[
    int | None,
    typer.Option(
        "--max-files",
        metavar="N",
        min=1,
        help=f"(multiple files) How many files are worked on at one time; {DEFAULT_MAX_FILES}, or as many as keep the"
        " workers of --scheduler busy.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="(multiple files) Let the workers of this Dask scheduler do the work, such as tcp://host:8786. They need"
        " resilient-pq[dask], and the same files under the same names.",
    ),
]
WorkersTimeout = Annotated[
    float | None,
    typer.Option(
        "--workers-timeout",
        metavar="SECONDS",
        help="With --scheduler: stop with an error when there is no worker for this long; by default, wait.",
    ),
]


@dataclass(frozen=True, slots=True)
class ManyOptions:
    """How a run is done; None for no journal, the best number of files, this process, and no timeout."""

    resume: str | None = None
    max_files: int | None = None
    scheduler: str | None = None
    workers_timeout: float | None = None


@dataclass(frozen=True, slots=True)
class RunWorker:
    """The worker of a run: the function that does a file, how many at a time, and the names of files for it."""

    run: RunFile
    max_files: int
    named: Callable[[str], str]


@asynccontextmanager
async def open_worker(options: ManyOptions, reached: Storage, *, dst: str | None = None) -> AsyncIterator[RunWorker]:
    """The worker of a run: this process, or the workers of a scheduler; `dst` is the folder of the outputs."""
    if options.scheduler is None:
        yield RunWorker(run_here, options.max_files or DEFAULT_MAX_FILES, str)
        return
    # An extra, which takes a second to import.
    from resilient_pq.dask.folders import everywhere_one  # noqa: PLC0415
    from resilient_pq.dask.on_cluster import OnCluster, connected  # noqa: PLC0415

    client = await asyncio.to_thread(connected, options.scheduler)
    try:
        run = OnCluster(
            client,
            storage_options=reached.options,
            dst=None if dst is None else everywhere_one(dst),
            workers_timeout=options.workers_timeout,
        )
        yield RunWorker(run, options.max_files or run.max_files, lambda url: str(everywhere_one(url)))
    finally:
        await asyncio.to_thread(client.close)


async def run_one_or_many(
    urls: Sequence[str],
    reached: Storage,
    *,
    one: Callable[[], Awaitable[int]],
    many: Callable[[], Awaitable[int]],
    surely_many: bool = False,
) -> int:
    """Run a verb for one file, or for many: several URLs, a folder, a pattern, a prefix, or `surely_many`."""
    if surely_many or len(urls) > 1 or names_many(urls[0]):
        return await many()
    try:
        return await one()
    except rpq.NotFoundError:
        if not await _is_prefix(urls[0], reached):
            raise
    return await many()


async def _is_prefix(url: str, reached: Storage) -> bool:
    """Whether there are objects below a URL at which there is none."""
    stores = Stores(reached.options)
    try:
        return await is_folder(url, stores)
    except rpq.StoreError:
        return False  # that there is no such object says more
    finally:
        await stores.close()


async def report_results(
    output: Output,
    results: rpq.FileResults,
    options: ManyOptions,
    *,
    each: Callable[[rpq.FileResult], None] | None = None,
) -> rpq.RunSummary:
    """Do all files, and print a JSON document for each, if JSON is wanted; `each` is called with each result."""
    output.as_lines = True
    try:
        async with results:
            async for result in results:
                output.document(_leading(result, output.reached).to_json())
                if each is not None:
                    each(result)
    except ResilientPQError:
        _so_far(output, results)
        raise
    except asyncio.CancelledError as error:
        _so_far(output, results)
        done = wording.counted(results.summary.num_files, "file")
        if options.resume is None:
            error.add_note(f"{done} were done; with --resume FILE, the same command continues where it stopped")
        else:
            error.add_note(f"{done} are done; the same command continues after them")
        raise
    return results.summary


def _so_far(output: Output, results: rpq.FileResults) -> None:
    """The table of a run that ends before its last file."""
    if results.summary.num_files:
        report_lines.show_run_summary(output, results.summary)


def _leading(result: rpq.FileResult, reached: Storage) -> rpq.FileResult:
    """A result whose next commands reach the same store."""
    return result if result.report is None else replace(result, report=reached.lead_to(result.report))


def update_meter(meter: Meter) -> Callable[[rpq.RunSummary], None]:
    """A function that updates a progress bar."""

    def show(summary: rpq.RunSummary) -> None:
        share = summary.num_files / summary.num_found if summary.all_found else None
        wrong = f", {summary.num_not_sound:,} not sound" if summary.num_not_sound else ""
        meter.update(share, f"{wording.counted(summary.num_files, 'file')}{wrong}")

    return show


def finish_run(
    output: Output,
    summary: rpq.RunSummary,
    urls: Sequence[str],
    following: Sequence[Sequence[str]] = (),
    more: Mapping[str, Any] | None = None,
) -> int:
    """Print the summary and the commands to run next, and return the exit code."""
    report_lines.show_run_summary(output, summary)
    output.next(*following)
    url = " ".join(map(shown, urls))
    document: dict[str, Any] = summary.to_json() | {"url": url, "next": [list(command) for command in following]}
    output.document(document | dict(more or {}))
    return summary.exit_code
