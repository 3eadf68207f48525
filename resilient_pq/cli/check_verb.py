"""`rpq check`: what is wrong with files, and what to do about it."""

from __future__ import annotations

import asyncio
import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from typing import Annotated

import typer

import resilient_pq as rpq
from resilient_pq.bulk.file_result import FileError
from resilient_pq.bulk.file_task import FileTask, run_here
from resilient_pq.bulk.many_files import DEFAULT_MAX_FILES, each_of_many
from resilient_pq.bulk.name_pattern import split_pattern
from resilient_pq.bulk.scope import names_pattern
from resilient_pq.cli import many_verbs as many
from resilient_pq.cli.input.input_stream import STDIN
from resilient_pq.cli.input.stdin_copy import stdin_as_file
from resilient_pq.cli.inspect.footer_facts import row_groups_of
from resilient_pq.cli.many_verbs import ManyOptions, MaxFilesAnywhere, Resume, Scheduler, Urls, WorkersTimeout
from resilient_pq.cli.output import report_lines
from resilient_pq.cli.output.output_streams import write_bytes
from resilient_pq.cli.output.progress_bar import progress_in_bytes
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.errors import OptionError
from resilient_pq.io.location import is_web, shown, without_query
from resilient_pq.io.os_errors import explained
from resilient_pq.io.partial_file import SUFFIX as PARTIAL_SUFFIX
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.sidecar_index import SUFFIX as SIDECAR_SUFFIX
from resilient_pq.shell_commands import command


@verb(
    "check",
    "sound: no byte is damaged, as far as checksums and decoding tell",
    "damaged, or its writer never finished it",
    "rpq check day.parquet",
    "rpq check s3://bucket/day.parquet --endpoint-url http://localhost:8333",
    "rpq check incoming/ --quick --list > not-whole.txt",
    "rpq check 's3://bucket/events/**/*.parquet' --resume check.journal --json > check.jsonl",
    nothing="damaged, and no row can be recovered",
)
async def check(
    output: Output,
    urls: Urls,
    require_checksums: Annotated[
        bool, typer.Option("--require-checksums", help="Count pages without a checksum as damage: exit status 1.")
    ] = False,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Compare every byte with the sidecar beside it, and compute its parity again."),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Only see whether each file is complete: whether it has a footer, and all bytes that the footer names."
            " This takes one request for each file, and does not find damaged pages.",
        ),
    ] = False,
    list_names: Annotated[
        bool, typer.Option("--list", help="Print only the names of files that are not sound, one a line.")
    ] = False,
    null: Annotated[bool, typer.Option("-0", help="With --list: end each name with a NUL byte, for xargs -0.")] = False,
    quarantine: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Move local files that are damaged to this folder, with their sidecars. Nothing is overwritten, and"
            " DIR/NAME.2 is used where the name is taken; unfinished *.partial files stay.",
        ),
    ] = None,
    resume: Resume = None,
    max_files: MaxFilesAnywhere = None,
    scheduler: Scheduler = None,
    workers_timeout: WorkersTimeout = None,
) -> int:
    """Find damage, and print what to run next.

    Every byte is read and every checksum compared; nothing is written. Pages without a checksum are decoded and
    compared with statistics and page indexes. Their number is reported, since a changed value in them may not be
    found. The name - stands for stdin.

    In a folder, its *.parquet files at any depth are checked, and the *.parquet.partial files of killed writers;
    names that begin with . or _ are skipped. The summary lists the worst files first, the exit status is the highest of
    any file, and --json prints a document for each file as a line, and one of all as the last.
    """
    options = ManyOptions(resume, max_files, scheduler, workers_timeout)
    selection = CheckSelection(quick, list_names, "\0" if null else "\n", quarantine, require_checksums, deep)
    if selection.is_any:
        return await check_selected(output, urls, selection, options)
    return await many.run_one_or_many(
        urls,
        output.reached,
        one=lambda: _check(output, urls[0], selection),
        many=lambda: _check_many(output, urls, options, selection),
        surely_many=resume is not None or scheduler is not None,
    )


async def _check(output: Output, url: str, selection: CheckSelection) -> int:
    async with stdin_as_file(url) as source:
        with output.progress("checking") as meter:
            report = await rpq.check(
                source,
                require_checksums=selection.require_checksums,
                deep=selection.deep,
                storage_options=output.reached.options,
                **output.reached.keys.opening,
                progress=progress_in_bytes(meter),
            )
    if url == STDIN:  # which is read already
        report = replace(report, next=())
    report_lines.show_check(output, output.reached.lead_to(report))
    return report.exit_code


async def _check_many(output: Output, urls: list[str], options: ManyOptions, selection: CheckSelection) -> int:
    more_to_be_had = False

    def look(result: rpq.FileResult) -> None:
        nonlocal more_to_be_had  # of what a recovery made there is not
        more_to_be_had |= result.report is not None and bool(result.report.next)

    output.reached.keys.refuse_many()
    async with many.open_worker(options, output.reached) as worker:
        with output.progress("checking") as meter:
            named = [worker.named(url) for url in urls]
            results = rpq.check_many(
                named[0] if len(urls) == 1 else named,
                max_files=worker.max_files,
                resume=options.resume,
                require_checksums=selection.require_checksums,
                deep=selection.deep,
                storage_options=output.reached.options,
                progress=many.update_meter(meter),
                run=worker.run,
            )
            summary = await many.report_results(output, results, options, each=look)
    more_to_be_had |= bool(summary.outcomes.get("damaged"))  # in an earlier run
    following = [output.reached.command(recovery_command(urls[0]))] if more_to_be_had and len(urls) == 1 else []
    return many.finish_run(output, summary, urls, following)


def recovery_command(url: str) -> tuple[str, ...]:
    """The command that recovers the damaged files to a folder beside theirs."""
    many, url = names_pattern(url), shown(url)
    folder = (split_pattern(url)[0] if many else without_query(url)).rstrip("/")
    before, _, last = folder.rpartition("/")
    if before.endswith(":/") or is_web(folder):
        dst = f"{last}.recovered"  # of a bucket: a folder here, since there may be no such bucket; of a web server, too
    elif last in ("", ".", ".."):
        dst = "../recovered" if last == "" else f"{folder}/../recovered"
    else:
        dst = f"{folder}.recovered"
    return *command("recover", url, dst), "--only-damaged"


@dataclass(frozen=True, slots=True)
class CheckSelection:
    """What of a check is wanted: a quick one, names that end with `ending`, and a folder for damaged files."""

    quick: bool
    list_names: bool
    ending: str
    quarantine: str | None
    require_checksums: bool
    deep: bool

    @property
    def is_any(self) -> bool:
        """Whether it is another check than usual."""
        return self.quick or self.list_names or self.ending == "\0" or self.quarantine is not None

    def check(self, output: Output, options: ManyOptions) -> None:
        """Refuse options that mean nothing together."""
        if self.ending == "\0" and not self.list_names:
            raise OptionError("-0 says how --list prints names", hint="give --list, too")
        if self.list_names and output.as_json:
            raise OptionError("--list and --json both write to stdout", hint="leave one of them out")
        if options.scheduler is not None or options.resume is not None:
            hint = "a journal does not name again what it has as damaged"
            raise OptionError("--quick, --list and --quarantine take neither --scheduler nor --resume", hint=hint)
        if self.quick and (self.require_checksums or self.deep):
            raise OptionError("--quick reads no pages: it goes with neither --require-checksums nor --deep")


async def check_selected(output: Output, urls: Sequence[str], selection: CheckSelection, options: ManyOptions) -> int:
    """Check all files, and print or move those that are not sound."""
    selection.check(output, options)
    output.reached.keys.refuse_many()
    damaged: list[str] = []

    def look(result: rpq.FileResult) -> None:
        if result.is_sound and result.exit_code == 0:
            return
        if selection.list_names:
            write_bytes(f"{result.url}{selection.ending}".encode("utf-8", "surrogateescape"))
        if result.exit_code in (1, 3):
            damaged.append(result.url)

    to_stderr = output.off_stdout() if selection.list_names else nullcontext()
    with to_stderr, warnings.catch_warnings(), output.progress("checking") as meter:
        warnings.simplefilter("ignore", rpq.IncompleteFileWarning)
        if selection.quick:
            results = each_of_many(
                "check",
                urls[0] if len(urls) == 1 else urls,
                _is_whole,
                max_files=options.max_files or DEFAULT_MAX_FILES,
                storage_options=output.reached.options,
                progress=many.update_meter(meter),
            )
        else:
            results = rpq.check_many(
                urls[0] if len(urls) == 1 else urls,
                require_checksums=selection.require_checksums,
                deep=selection.deep,
                max_files=options.max_files or DEFAULT_MAX_FILES,
                storage_options=output.reached.options,
                progress=many.update_meter(meter),
                run=run_here,
            )
        summary = await many.report_results(output, results, options, each=look)
        moved = [] if selection.quarantine is None else await _moved(output, damaged, selection.quarantine)
        more = {"quick": selection.quick, "quarantined": [{"from": one, "to": two} for one, two in moved]}
        return many.finish_run(output, summary, urls, more=more)


async def _is_whole(task: FileTask) -> rpq.FileResult:
    """Whether a file opens, and its writer finished it: an error where not."""
    try:
        async with rpq.open(task.source) as file:
            if file.state not in (None, rpq.FileState.COMPLETE):
                raise rpq.TornFileError(f"its writer did not finish it: {file.num_rows:,} rows can be read")
            for _ in row_groups_of(file.contents):  # a FormatError where one lies outside of the file
                pass
            facts = {"rows": file.num_rows, "size": file.info.size}
            return rpq.FileResult("check", task.name, facts=facts)
    except Exception as error:
        return rpq.FileResult("check", task.name, error=FileError.of(error))


async def _moved(output: Output, names: Sequence[str], folder: str) -> list[tuple[str, str]]:
    """Move files to a folder, and return where each went."""
    found = []
    for name in names:
        if name.endswith(PARTIAL_SUFFIX):
            output.note(f"{name} stays: `rpq resume` or `rpq recover` has its rows")
        elif not await asyncio.to_thread(os.path.isfile, name):
            output.note(f"{name} stays: only local files are moved")
        elif await asyncio.to_thread(_lies_in, name, folder):
            output.note(f"{name} stays: it was moved before")
        else:
            moved = await asyncio.to_thread(_move, name, folder)
            output.line("moved", f"{name} -> {moved}")
            found.append((name, moved))
    return found


def _lies_in(path: str, folder: str) -> bool:
    return os.path.dirname(os.path.realpath(path)) == os.path.realpath(folder)


def _move(path: str, folder: str) -> str:
    """Move a file and its sidecar under the first names that are free, and return that of the file."""
    with explained("cannot move", path):
        os.makedirs(folder, exist_ok=True)
        for target in _names(os.path.join(folder, os.path.basename(path))):
            if os.path.lexists(target + SIDECAR_SUFFIX) or not _claim(path, target):
                continue
            if os.path.isfile(path + SIDECAR_SUFFIX):
                _claim(path + SIDECAR_SUFFIX, target + SIDECAR_SUFFIX)
            return target
    raise AssertionError("there is always a free name")


def _names(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}.{number}" for number in count(2))


def _claim(path: str, target: str) -> bool:
    """Move a file to a name; False where that is taken."""
    try:
        os.link(path, target, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError:  # another file system, or one without links
        try:
            with open(path, "rb") as source, open(target, "xb") as copy:
                shutil.copyfileobj(source, copy)
                copy.flush()
                os.fsync(copy.fileno())
        except FileExistsError:
            return False
        shutil.copystat(path, target)
    os.unlink(path)
    return True
