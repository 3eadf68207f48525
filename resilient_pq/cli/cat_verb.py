"""`rpq cat`: rows as text, for eyes and pipes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

import typer

import resilient_pq as rpq
from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.output import report_lines, text_rows
from resilient_pq.cli.output.output_streams import write_text
from resilient_pq.cli.output.verb_output import Output, base_document
from resilient_pq.cli.running import RunWork, verb
from resilient_pq.cli.shared_options import Url, split_names
from resilient_pq.errors import Where, located

NAME = "cat"
#: Rows that become text at one time.
_BATCH_ROWS = 8192
EPILOG = epilog(
    "the rows are printed",
    "the file is damaged; rows before it may be printed already, with --on-damage all that are left",
    "rpq cat flights.parquet --columns carrier,dep_delay --head 10",
    "rpq cat s3://bucket/flights.parquet --format csv > flights.csv",
)


@verb(NAME)
def cat(
    run: RunWork,
    url: Url,
    columns: Annotated[str | None, typer.Option(metavar="NAME,NAME", help="The columns wanted, in this order.")] = None,
    head: Annotated[int | None, typer.Option(min=0, metavar="N", help="The first N rows only.")] = None,
    form: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="JSON lines, or CSV with a header.")
    ] = "jsonl",
    on_damage: Annotated[
        Literal["raise", "drop", "null"],
        typer.Option(
            "--on-damage",
            help="What is done with rows of which a value is lost: raise ends with an error, drop leaves them out,"
            " null prints null where the column may be null, and leaves them out elsewhere.",
        ),
    ] = "raise",
) -> int:
    """Print rows as JSON lines or CSV.

    Rows come a row group at a time; only the columns and row groups that are needed are read.

    Dates and times are ISO 8601, decimals are text with all their digits, bytes are base64, maps are arrays of
    [key, value]. NaN and infinities are null in JSON. In CSV null is nothing, lists and structs are JSON.

    With --json there is one document whose "rows" is their number and whose "records" are the rows themselves.
    It is held in memory: use --head.

    With --on-damage, what is lost is told on stderr, and under "lost" with --json; `rpq recover` keeps what is left.
    """
    names = split_names(columns)

    async def work(output: Output) -> int:
        lost: list[rpq.LostRegion] = []
        try:
            async with rpq.open(
                url, on_damage=on_damage, on_lost=lost.append, storage_options=output.reached.options
            ) as file:
                await _cat(output, file, names, head, form, lost)
        except rpq.FormatError as error:
            if on_damage == "raise" and error.where.row_group is not None and error.hint is None:
                error.hint = "--on-damage drop prints the rows that are left"
            raise
        finally:
            report_lines.show_lost_rows(output, lost)
        return ExitCode.DAMAGE if lost else ExitCode.SOUND

    return run(work, [url])


async def _cat(
    output: Output,
    file: rpq.File,
    names: list[str] | None,
    head: int | None,
    form: str,
    lost: list[rpq.LostRegion],
) -> None:
    async with aclosing(_batches(file, names, head)) as batches:
        if output.as_json:
            records: list[Any] = []
            async for batch in batches:
                records += [text_rows.plain(record) for record in text_rows.records_of(batch)]
            rest = {"records": records, "lost": [region.to_json() for region in lost]}
            outcome = "partial" if lost else "read"
            output.document(base_document(NAME, outcome, rows=len(records), url=file.url, **rest))
            return
        if form == "csv":
            with located(Where(key=file.url)):
                selected = file.schema.select(names)
            write_text(text_rows.csv_header([column.node.name for column in selected]))
        to_text = text_rows.csv_lines if form == "csv" else text_rows.json_lines
        async for batch in batches:
            write_text(to_text(batch))


async def _batches(file: rpq.File, names: list[str] | None, head: int | None) -> AsyncGenerator[rpq.Table, None]:
    """The first rows, from no more row groups than hold them."""
    left = file.num_rows if head is None else min(head, file.num_rows)
    counts = [row_group.num_rows for row_group in file.metadata.row_groups]
    first = 0
    while True:
        end, num_rows = first, 0
        while end < len(counts) and num_rows < left:
            num_rows, end = num_rows + counts[end], end + 1
        async with aclosing(file.batches(_BATCH_ROWS, names, range(first, end))) as batches:
            async for batch in batches:
                yield batch.slice(0, left)
                left -= min(left, batch.num_rows)
        # Where rows of these were left out, the following have to do.
        if end == len(counts) or not left:
            return
        first = end
