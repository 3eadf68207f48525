"""`rpq check`: what is wrong with files, and what to do about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

import resilient_pq as rpq
from resilient_pq.bulk.name_pattern import split_pattern
from resilient_pq.bulk.scope import names_pattern
from resilient_pq.cli import many_verbs as many
from resilient_pq.cli.check_selected import CheckSelection, check_selected
from resilient_pq.cli.exit_codes import epilog
from resilient_pq.cli.input.input_stream import STDIN
from resilient_pq.cli.input.stdin_copy import stdin_as_file
from resilient_pq.cli.many_verbs import ManyOptions, MaxFilesAnywhere, Resume, Scheduler, Urls, WorkersTimeout
from resilient_pq.cli.output import report_lines
from resilient_pq.cli.output.progress_bar import progress_in_bytes
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.io.location import is_web, shown, without_query
from resilient_pq.shell_commands import command

NAME = "check"
EPILOG = epilog(
    "sound: no byte is damaged, as far as checksums and decoding tell",
    "damaged, or its writer never finished it",
    "rpq check day.parquet",
    "rpq check s3://bucket/day.parquet --endpoint-url http://localhost:8333",
    "rpq check incoming/ --quick --list > not-whole.txt",
    "rpq check 's3://bucket/events/**/*.parquet' --resume check.journal --json > check.jsonl",
    nothing="damaged, and no row can be recovered",
)


@verb(NAME)
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
