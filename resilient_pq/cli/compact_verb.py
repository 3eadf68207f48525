"""`rpq compact`: many files become few."""

from __future__ import annotations

from typing import Annotated

import typer

import resilient_pq as rpq
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.progress_bar import progress_in_bytes
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import RowGroupBytes, parse_table, size_option
from resilient_pq.shell_commands import command


@verb(
    "compact",
    "every row of the files is in DST once",
    "a file is damaged, or an output is not sound when it is read back; no file was removed",
    "rpq compact flights/ flights-large/ --dry-run",
    "rpq compact 's3://bucket/events/**/*.parquet' s3://bucket/events-large/ --target 1GB --remove-sources",
    nothing="a file is not a Parquet file",
)
async def compact(
    output: Output,
    src: Annotated[str, typer.Argument(metavar="FOLDER|PATTERN", help="The files: a folder, or a pattern in quotes.")],
    dst: Annotated[str, typer.Argument(metavar="DST", help="The folder of the new files, outside of FOLDER.")],
    target: Annotated[int, size_option("--target", "Bytes of a new file, about.")] = "512MiB",  # type: ignore[assignment]  # typer parses it
    copy_from: Annotated[int, size_option("--copy-from", "Copy row groups of this size and more as bytes.")] = "8MiB",  # type: ignore[assignment]
    row_group_bytes: RowGroupBytes = "64MiB",  # type: ignore[assignment]
    parity: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Bytes of parity inside the new files for each byte: 5% or 0.05."),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="iceberg:[CATALOG/]NAME|delta[:URL]",
            help="The table that has the files: it gets the new ones in their place, in one commit."
            " Named as in rpq write.",
        ),
    ] = None,
    remove_sources: Annotated[
        bool, typer.Option("--remove-sources", help="Remove the files when all new ones were read back and are sound.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan in bytes, and write nothing.")] = False,
) -> int:
    """Merge many Parquet files into few.

    Large row groups are copied as bytes, by the store itself where it can; small ones that follow one another are
    decoded and written together. Rows keep their order, and hive partitions (day=1/) stay apart. Checksums are
    compared: a damaged file ends the run before anything is removed.

    Run it again after an interruption: it continues by the plan in DST/_compact. A file is taken only once, so that
    the same command, run every night, adds what has come since. While it runs DST has some of the rows; read FOLDER or
    DST, not both.
    """
    settings = parse_table(table)
    with output.progress("compacting") as meter:
        done = await rpq.compact(
            src,
            dst,
            target_bytes=target,
            copy_bytes=copy_from,
            row_group_bytes=row_group_bytes,
            parity=parity,
            table=settings,
            remove_sources=remove_sources,
            dry_run=dry_run,
            storage_options=output.reached.options,
            progress=progress_in_bytes(meter),
        )
    _show(output, done, dst)
    return ExitCode.SOUND


def _show(output: Output, done: rpq.Compaction, dst: str) -> None:
    files, outputs = wording.counted(done.num_files, "file"), wording.counted(len(done.urls), "file")
    what = f"{files} to {outputs}" if done.num_files else "nothing new: every file was compacted before"
    output.line("planned" if done.is_plan else "compacted", what)
    output.line("rows", f"{done.num_rows:,}")
    copied = wording.counted(done.row_groups_copied, "row group")
    output.line("by store", f"{wording.in_bytes(done.bytes_by_store)}{', about' if done.is_plan else ''}")
    output.line("copied", f"{wording.in_bytes(done.bytes_copied)} besides, of {copied}")
    merged = wording.counted(done.row_groups_merged, "row group")
    output.line("decoded", f"{wording.in_bytes(done.bytes_decoded)}, of {merged}")
    if done.num_removed:
        output.line("removed", wording.counted(done.num_removed, "file"))
    for note in done.notes:
        output.note(note)
    following = [] if done.is_plan or not done.urls else [output.reached.command(command("check", dst))]
    facts = done.to_json()
    output.finish("planned" if done.is_plan else "compacted", rows=facts.pop("num_rows"), following=following, **facts)
