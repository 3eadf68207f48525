"""`rpq cat`: rows as text, for eyes and pipes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

import typer

import resilient_pq as rpq
from resilient_pq.cli import render, text_rows
from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.options import AsJson, EndpointUrl, StorageOptions, Url, split_names, storage
from resilient_pq.cli.render import Output
from resilient_pq.cli.running import run_verb
from resilient_pq.errors import Where, located

NAME = "cat"
#: Rows that become text at one time.
_BATCH_ROWS = 8192
EPILOG = epilog(
    "the rows are printed",
    "the file is damaged; rows before the damage may be printed already",
    "rpq cat flights.parquet --columns carrier,dep_delay --head 10",
    "rpq cat s3://bucket/flights.parquet --format csv > flights.csv",
)


def cat(
    url: Url,
    columns: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="The columns wanted, in this order.")
    ] = None,
    head: Annotated[int | None, typer.Option(min=0, metavar="N", help="The first N rows only.")] = None,
    form: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="JSON lines, or CSV with a header.")
    ] = "jsonl",
    endpoint_url: EndpointUrl = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> int:
    """Print rows as JSON lines or CSV.

    Rows come a row group at a time; only the columns and row groups that are needed are read.

    Dates and times are ISO 8601, decimals are text with all their digits, bytes are base64, maps are arrays of
    [key, value]. NaN and infinities are null in JSON. In CSV null is nothing, lists and structs are JSON.

    With --json there is one document whose "rows" is their number and whose "records" are the rows themselves.
    It is held in memory: use --head.
    """
    names = split_names(columns)
    options = storage(endpoint_url, storage_option).options

    async def work(output: Output) -> int:
        async with rpq.open(url, storage_options=options) as file:
            await _cat(output, file, names, head, form)
        return ExitCode.SOUND

    return run_verb(NAME, work, as_json=as_json)


async def _cat(output: Output, file: rpq.File, names: list[str] | None, head: int | None, form: str) -> None:
    async with aclosing(_batches(file, names, head)) as batches:
        if output.as_json:
            records: list[Any] = []
            async for batch in batches:
                records += [text_rows.plain(record) for record in text_rows.records_of(batch)]
            output.document(render.document(NAME, "read", rows=len(records), url=file.url, records=records))
            return
        if form == "csv":
            with located(Where(key=file.url)):
                selected = file.schema.select(names)
            render.write_text(text_rows.csv_header([column.node.name for column in selected]))
        to_text = text_rows.csv_lines if form == "csv" else text_rows.json_lines
        async for batch in batches:
            render.write_text(to_text(batch))


async def _batches(
    file: rpq.File, names: list[str] | None, head: int | None
) -> AsyncGenerator[rpq.Table, None]:
    """The first rows, from no more row groups than hold them."""
    wanted = file.num_rows if head is None else min(head, file.num_rows)
    row_groups, rows_before = [], 0
    for ordinal, row_group in enumerate(file.metadata.row_groups):
        if rows_before >= wanted:
            break
        row_groups.append(ordinal)
        rows_before += row_group.num_rows
    left = wanted
    async with aclosing(file.batches(_BATCH_ROWS, names, row_groups)) as batches:
        async for batch in batches:
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
