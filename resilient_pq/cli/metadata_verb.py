"""`rpq metadata`: the summary of a folder."""

from __future__ import annotations

from typing import Annotated

import typer

import resilient_pq as rpq
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.shell_commands import command


@verb(
    "metadata",
    "the summary is written",
    "the footer of a file is missing or damaged; nothing was written",
    "rpq metadata flights",
    "rpq metadata s3://bucket/flights --overwrite --endpoint-url http://localhost:8333",
    nothing="one of them is not a Parquet file",
)
async def metadata(
    output: Output,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A folder: a path or a URL.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace summaries that are there.")] = False,
) -> int:
    """Write the summary of a folder of Parquet files.

    _metadata then has the row groups of every .parquet file below FOLDER, in the order of their names, and reads as
    one file; _common_metadata has the schema. Only footers are read; their schemas must be equal. Names that begin
    with _ or . are skipped. Run it again when files were added, replaced or removed.
    """
    with output.progress("reading") as meter:
        written = await rpq.write_metadata(
            folder,
            overwrite=overwrite,
            storage_options=output.reached.options,
            progress=lambda done, there: meter.update(done / there, wording.counted(done, "footer")),
        )
    groups = wording.counted(written.num_row_groups, "row group")
    files = wording.counted(written.num_files, "file")
    output.line("summary", f"{wording.counted(written.num_rows, 'row')} in {groups} of {files}")
    output.line("written", f"{written.url}, {wording.in_bytes(written.size)}")
    if written.common_url is not None:
        output.line("written", written.common_url)
    output.finish(
        "written",
        rows=written.num_rows,
        following=[output.reached.command(command("check", written.url))],
        url=written.url,
        common_url=written.common_url,
        files=written.num_files,
        row_groups=written.num_row_groups,
        size=written.size,
    )
    return ExitCode.SOUND
