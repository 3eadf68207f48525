"""`rpq seal`: a copy of a file of any writer, with checksums and records."""

from __future__ import annotations

from typing import Annotated

import typer

import resilient_pq as rpq
from resilient_pq.bulk.run_listing import names_many
from resilient_pq.cli.output import report_lines
from resilient_pq.cli.output.progress_bar import progress_in_bytes
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb


@verb(
    "seal",
    "the copy is written; a file that is sealed already was copied as it is",
    None,
    "rpq seal pandas.parquet sealed.parquet",
    "rpq seal s3://bucket/day.parquet s3://bucket/sealed/day.parquet --endpoint-url http://localhost:8333",
    nothing="SRC is not a Parquet file",
)
async def seal(
    output: Output,
    src: Annotated[str, typer.Argument(metavar="SRC", help="A sound Parquet file of any writer: a path or a URL.")],
    dst: Annotated[str, typer.Argument(metavar="DST", help="The new file: a path or a URL.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is at DST.")] = False,
) -> int:
    """Give a file of another writer checksums and records.

    `rpq check` then finds every byte of the copy that changes, and `rpq recover` recovers it as well as a file
    written by rpq. Every page is decoded once, then its bytes are copied, not encoded again: values, statistics, page
    indexes, bloom filters, schema and metadata stay. SRC is one file, not a folder, and is only read. A damaged or
    unfinished file is refused.
    """
    if names_many(src):
        raise typer.BadParameter("rpq seal takes one file, not a folder or a pattern", param_hint="SRC")
    with output.progress("sealing") as meter:
        report = await rpq.seal(
            src,
            dst,
            overwrite=overwrite,
            storage_options=output.reached.options,
            progress=progress_in_bytes(meter),
        )
    report = output.reached.lead_to(report)
    report_lines.show_seal(output, report)
    return report.exit_code
