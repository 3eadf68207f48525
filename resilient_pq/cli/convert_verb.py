"""`rpq convert`: a resilient Parquet file from a file of Parquet's ancestor, Trevni."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

import resilient_pq as rpq
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.input.stdin_copy import stdin_as_file
from resilient_pq.cli.output import report_lines, wording
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.rows.row_source import stdout_as_file
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import Compression, RowGroupBytes, parse_schema, split_names


@verb(
    "convert",
    "every row of the file is in the new one",
    "some rows or values are lost, the others were written",
    "rpq convert old.trv new.parquet",
    "rpq convert s3://bucket/old.trv s3://bucket/new.parquet --on-damage null --json",
    "rpq convert impala.trv new.parquet --schema @columns.txt",
    nothing="no row can be converted; nothing was written",
)
async def convert(
    output: Output,
    src: Annotated[str, typer.Argument(metavar="SRC", help="A Trevni file: a path, a URL, or - for stdin.")],
    dst: Annotated[str, typer.Argument(metavar="DST", help="The new Parquet file: a path, a URL, or - for stdout.")],
    columns: Annotated[str | None, typer.Option(metavar="NAME,NAME", help="Only these columns, in this order.")] = None,
    on_damage: Annotated[
        Literal["drop", "null", "raise"],
        typer.Option(
            help="What to do with rows that lost a value, in a block that is damaged or cut off: drop leaves"
            " them out; null keeps them, with null in columns that may be null; raise writes nothing."
        ),
    ] = "drop",
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="TEXT",
            parser=parse_schema,
            help="The schema of the same columns, as `rpq inspect FILE --schema` shows one, for files whose definition"
            " and repetition levels leave the nesting open; @FILE reads it from a file.",
        ),
    ] = None,
    compression: Compression = "zstd",
    row_group_bytes: RowGroupBytes = "64MiB",  # type: ignore[assignment]  # parsed like an argument
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is at DST.")] = False,
) -> int:
    """Convert a Trevni file to a resilient Parquet file.

    Trevni is Parquet's ancestor. SRC is read block by block, each by its byte range, and never whole. Both dialects
    are read: that of Avro, and the draft that Impala followed. Schema and metadata are kept. Checksums are compared;
    rows of blocks with a wrong checksum, and of blocks that are cut off, are lost and listed.
    """
    asked: dict[str, Any] = {
        "columns": split_names(columns),
        "on_damage": on_damage,
        "schema": schema,
        "compression": compression,
        "row_group_bytes": row_group_bytes,
        "overwrite": overwrite,
    }
    async with stdin_as_file(src) as spooled, stdout_as_file(output, dst) as path:
        return await _convert(output, spooled, path, asked)


async def _convert(output: Output, src: str, dst: str, asked: dict[str, Any]) -> int:
    try:
        with output.progress("converting") as meter:
            report = await rpq.convert(
                src,
                dst,
                progress=lambda done, rows: meter.update(done / rows, wording.counted(done, "row")),
                storage_options=output.reached.options,
                **await output.reached.keys.writing(),
                **asked,
            )
    except rpq.NothingToRecoverError as error:
        report_lines.show_conversion(output, error.report)
        output.note(error.message, label="error")
        if error.hint is not None:
            output.note(error.hint, label="hint")
        return ExitCode.NOTHING
    report_lines.show_conversion(output, output.reached.lead_to(report))
    return report.exit_code
