"""`rpq recover`: keep what can be kept of a damaged file, in a new one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

import resilient_pq as rpq
from resilient_pq.cli import render, words
from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.ledger.saving import Html, check_html, save_html
from resilient_pq.cli.options import AsJson, EndpointUrl, Storage, StorageOptions, storage
from resilient_pq.cli.render import Output
from resilient_pq.cli.running import run_verb

NAME = "recover"
EPILOG = epilog(
    "every row that the file is known to have held was kept",
    "some rows were kept, others are lost",
    "rpq recover day.parquet.partial day.parquet",
    "rpq recover s3://bucket/torn.parquet saved.parquet --json",
    nothing="no row can be kept; nothing was written",
)


def recover(
    src: Annotated[str, typer.Argument(metavar="SRC", help="The damaged file: a path or a URL.")],
    dst: Annotated[str, typer.Argument(metavar="DST", help="The new file: a path or a URL.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is at DST.")] = False,
    html: Html = None,
    endpoint_url: EndpointUrl = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> int:
    """Keep what is whole of a damaged file, in a new one.

    SRC is only read, never changed. Whole row groups are copied as bytes after every checksum was compared; what
    is lost is listed. Nothing is written when there is nothing to keep.
    """
    reached = storage(endpoint_url, storage_option)
    check_html(html, (src, dst))
    return run_verb(NAME, lambda output: _recover(output, src, dst, overwrite, html, reached), as_json=as_json)


async def _recover(
    output: Output, src: str, dst: str, overwrite: bool, html: str | None, reached: Storage
) -> int:
    try:
        with output.progress("recovering") as meter:
            report = await rpq.recover(
                src,
                dst,
                overwrite=overwrite,
                storage_options=reached.options,
                progress=lambda done, size: meter.update(done / size, words.in_bytes(done)),
            )
    except rpq.NothingToRecoverError as error:
        if isinstance(error.report, rpq.Report):
            render.recovered(output, error.report)
            await _save(output, html, error.report)
        output.note(error.message, label="error")
        return ExitCode.NOTHING
    report = reached.lead_to(report)
    render.recovered(output, report)
    await _save(output, html, report)
    return report.exit_code


async def _save(output: Output, html: str | None, report: rpq.Report) -> None:
    """The page, where it is wanted."""
    if html is None:
        return
    made = datetime.now().astimezone()
    if await save_html(html, report, made=made):
        output.note(f"the file as a map: {html}", label="page")
    else:
        output.note("there is nothing to draw, and no page was written")
