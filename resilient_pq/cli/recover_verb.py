"""`rpq recover`: keep what can be kept of damaged files, in new ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

import resilient_pq as rpq
from resilient_pq.cli import many_verbs as many
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.input.input_stream import STDIN
from resilient_pq.cli.input.stdin_copy import stdin_as_file
from resilient_pq.cli.many_verbs import ManyOptions, MaxFilesAnywhere, Resume, Scheduler, WorkersTimeout
from resilient_pq.cli.output import report_lines
from resilient_pq.cli.output.progress_bar import progress_in_bytes
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.rows.row_source import stdout_as_file
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import SchemaFrom, SchemaText
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.io.location import shown
from resilient_pq.recovery.ledger.html_page import save_html
from resilient_pq.shell_commands import command

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="SRC [COPY]... DST",
        help="The damaged file, other copies of it if there are, and the new file: paths or URLs. Or a folder, a"
        " prefix that ends with a slash or a pattern in quotes, and a new folder. - is stdin or stdout.",
    ),
]
OnDamageOption = Annotated[
    OnDamage,
    typer.Option(
        help="What to do with rows that lost a value: drop leaves them out; null keeps them, with null in"
        " columns that may be null; columns writes each column to a file of its own, as day.NAME.parquet, with the"
        " rows that it has left and their numbers; raise writes nothing."
    ),
]
RepairBits = Annotated[
    bool,
    typer.Option(
        "--repair-bits",
        help="Flip one bit of a page if its checksum is right then, and the values fit all that is known of them. Other"
        " damage can look like a flipped bit: one time in 512 in a page of 1 MiB.",
    ),
]
KeepUnplaced = Annotated[
    bool,
    typer.Option(
        "--keep-unplaced",
        help="Also keep pages whose place is not proven. They may belong to another column, another row group or an"
        " older version of the file, or contain bytes that are none of their values.",
    ),
]
FileId = Annotated[
    str | None,
    typer.Option(
        "--file-id",
        metavar="HEX",
        help="The id of the file to recover, if records of several files were found in it.",
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Also read and compare the beginning of a torn object. By default the store copies it unread if DST is in"
        " the same store.",
    ),
]
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write an HTML page with a map of the file and all that was lost."),
]
OnlyDamaged = Annotated[bool, typer.Option("--only-damaged", help="(multiple files) Do not copy sound files.")]


@verb(
    "recover",
    "the end of the file is proven, and every row before it was kept",
    "some rows were kept, others are lost",
    "rpq recover day.parquet.partial day.parquet",
    "rpq recover damaged.parquet replica.parquet saved.parquet",
    "rpq recover no-footer.parquet saved.parquet --schema-from sibling.parquet",
    "rpq recover damaged.parquet saved.parquet --on-damage null --html report.html",
    "rpq recover s3://bucket/events/ s3://bucket/saved/ --only-damaged --resume recover.journal",
    nothing="no row can be kept; nothing was written",
    about=lambda given: given["paths"][:-1],
)
async def recover(
    output: Output,
    paths: Paths,
    on_damage: OnDamageOption = OnDamage.DROP,
    schema: SchemaText = None,
    schema_from: SchemaFrom = None,
    repair_bits: RepairBits = False,
    keep_unplaced: KeepUnplaced = False,
    file_id: FileId = None,
    verify: Verify = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is at DST.")] = False,
    html: Html = None,
    only_damaged: OnlyDamaged = False,
    resume: Resume = None,
    max_files: MaxFilesAnywhere = None,
    scheduler: Scheduler = None,
    workers_timeout: WorkersTimeout = None,
) -> int:
    """Write what is whole of a damaged file to a new file.

    SRC is only read, never changed. Whole row groups are copied as bytes after every checksum was compared; in
    damaged ones, the rows that are left are encoded again. What is lost is listed and drawn; --json and --html account
    for every byte. A file without its footer is searched for pages, whoever wrote it: name a file with the same
    columns by --schema-from. With several copies of one file, each page is taken from a copy in which it is whole.
    Nothing is written when there is nothing to keep.

    In a folder, every file is recovered to the same name below DST: sound files are copied, and a file without a
    footer gets the schema of a file beside it that fits. The summary lists the worst files first, the exit
    status is the highest of any file, and --json prints a document for each file as a line, and one of all as the last.
    """
    if len(paths) < 2:
        raise typer.BadParameter("name the damaged file and the new one", param_hint="SRC DST")
    _check_html(html, paths)
    *copies, dst = paths
    several = ManyOptions(resume, max_files, scheduler, workers_timeout)
    options = {
        "on_damage": on_damage.value,
        "schema": schema,
        "schema_from": schema_from,
        "repair_bits": repair_bits,
        "keep_unplaced": keep_unplaced,
        "verify": verify,
        "overwrite": overwrite,
    }
    if STDIN in paths:
        return await _recover_piped(output, copies, dst, html, options | {"file_id": file_id})

    async def recover_folder(output: Output) -> int:
        if html is not None:
            raise rpq.RecoveryError("--html draws one file", hint="recover that file by itself, or use --json")
        if file_id is not None:
            raise rpq.RecoveryError("--file-id is that of one file", hint="recover that file by itself")
        return await _recover_many(output, copies[0], dst, several, options | {"only_damaged": only_damaged})

    if len(copies) > 1:
        return await _recover(output, copies, dst, html, options | {"file_id": file_id})
    return await many.run_one_or_many(
        copies,
        output.reached,
        one=lambda: _recover(output, copies, dst, html, options | {"file_id": file_id}),
        many=lambda: recover_folder(output),
        surely_many=resume is not None or only_damaged or scheduler is not None,
    )


async def _recover_piped(
    output: Output, copies: Sequence[str], dst: str, html: str | None, options: Mapping[str, Any]
) -> int:
    """Recover from stdin, or to stdout."""
    src = STDIN if STDIN in copies else ""
    async with stdin_as_file(src) as spooled, stdout_as_file(output, dst) as path:
        return await _recover(output, [spooled if each == STDIN else each for each in copies], path, html, options)


def _check_html(path: str | None, others: Iterable[str]) -> None:
    """Refuse a path of the page that is one of the `others`, the inputs and outputs, or in no folder."""
    if path is None:
        return
    if any(_is_same_file(path, other) for other in others):
        raise typer.BadParameter(f"{path} is one of the files to be recovered or written", param_hint="--html")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise typer.BadParameter(f"there is no folder for {path}", param_hint="--html")


def _is_same_file(one: str, other: str) -> bool:
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.abspath(one) == os.path.abspath(other.removeprefix("file://"))


async def _recover_many(output: Output, src: str, dst: str, several: ManyOptions, options: Mapping[str, Any]) -> int:
    reached, sibling = output.reached, options["schema_from"]
    reached.keys.refuse_many()
    async with many.open_worker(several, reached, dst=dst) as worker:
        with output.progress("recovering") as meter:
            results = rpq.recover_many(
                worker.named(src),
                worker.named(dst),
                **{**options, "schema_from": None if sibling is None else worker.named(sibling)},
                max_files=worker.max_files,
                resume=several.resume,
                storage_options=reached.options,
                progress=many.update_meter(meter),
                run=worker.run,
            )
            summary = await many.report_results(output, results, several)
    written = any(summary.outcomes.get(each) for each in ("partial", "recovered"))
    written = written or (not options["only_damaged"] and bool(summary.outcomes.get("sound")))
    folder = shown(dst) if shown(dst).endswith("/") else f"{shown(dst)}/"  # so that it is not taken for a file
    following = [reached.command(command("check", folder))] if written else []
    return many.finish_run(output, summary, [src], following)


async def _recover(
    output: Output, copies: Sequence[str], dst: str, html: str | None, options: Mapping[str, Any]
) -> int:
    try:
        with output.progress("recovering") as meter:
            report = await rpq.recover(
                list(copies),
                dst,
                **options,
                storage_options=output.reached.options,
                **output.reached.keys.opening,
                progress=progress_in_bytes(meter),
            )
    except rpq.NothingToRecoverError as error:
        if isinstance(error.report, rpq.Report):
            report = output.reached.lead_to(error.report)
            report_lines.show_recovery(output, report)
            await _save(output, html, report)
        output.note(error.message, label="error")
        if error.hint is not None:
            output.note(error.hint, label="hint")
        return ExitCode.NOTHING
    report = output.reached.lead_to(report)
    report_lines.show_recovery(output, report)
    await _save(output, html, report)
    return report.exit_code


async def _save(output: Output, html: str | None, report: rpq.Report) -> None:
    """Write the page, if it is wanted."""
    if html is None:
        return
    made = datetime.now().astimezone()
    if await save_html(html, report, made=made):
        output.note(f"the file as a map: {html}", label="page")
    else:
        output.note("there is nothing to draw, and no page was written")
