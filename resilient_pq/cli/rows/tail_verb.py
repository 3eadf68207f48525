"""`rpq tail`: the last rows, and those that become stored while a writer is at work."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal

import typer

import resilient_pq as rpq
from resilient_pq.bulk.run_listing import names_many
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.output import text_rows
from resilient_pq.cli.output.output_streams import write_text
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.rows.row_source import open_rows
from resilient_pq.cli.rows.where_clause import WhereClause
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import split_names
from resilient_pq.reader.growing_file import row_groups_before

_BATCH_ROWS = 8192


def _rows(text: str) -> int:
    if text == "all":
        return -1
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r} is no number of rows, and not all")
    return int(text)


@verb(
    "tail",
    "the rows are printed; with -f, the file is complete",
    "the file is damaged, or its writer ended and did not complete it",
    "rpq tail flights.parquet",
    "rpq tail -f log.parquet --columns time,message",
    "rpq tail -f events/ --rows all --where \"level = 'error'\" | jq .message",
    nothing="the file is not a Parquet file",
)
async def tail(
    output: Output,
    url: Annotated[str, typer.Argument(metavar="URL", help="A file, a folder, or a pattern in quotes.")],
    rows: Annotated[
        int, typer.Option("--rows", "-n", metavar="N", parser=_rows, help="How many of the last rows; or all.")
    ] = "10",  # type: ignore[assignment]  # parsed like an argument
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with rows as they become stored.")] = False,
    columns: Annotated[str | None, typer.Option(metavar="NAME,NAME", help="The columns wanted, in this order.")] = None,
    where: Annotated[str | None, typer.Option(metavar="CONDITION", help="The rows wanted, as in rpq cat.")] = None,
    form: Annotated[Literal["jsonl", "csv"], typer.Option("--format", help="JSON lines, or CSV.")] = "jsonl",
    poll: Annotated[float, typer.Option(metavar="SECONDS", help="With -f: how often to look.")] = 1.0,
    idle: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="With -f, of a folder: end when no row came for this long.")
    ] = None,
) -> int:
    """Print the last rows, and with -f those that are still to come.

    A local file that is being written has new rows with each checkpoint; name it as it will be called. In a folder, new
    files are seen and, of local ones, checkpoints of those that are open; on S3 an object has no rows before it is
    complete. With -f a file ends when it is complete, and a folder never, unless --idle says so. A complete file is
    read once: rows that are appended to it later, and a file that replaces it, are not printed.

    Only row groups that have some of the last rows are read. With --where, these rows are looked at, and a few before
    them.
    """
    names, condition, last = split_names(columns), WhereClause(where or ""), None if rows < 0 else rows
    options = rpq.FollowOptions(poll_seconds=poll, last_rows=last, idle_seconds=idle)
    if not follow:
        async with open_rows(output, [url]) as dataset:
            filters = condition.filters(dataset.files[0].schema)
            surplus = 0 if where else _surplus(dataset.files, last)
            for file, before in zip(dataset.files, row_groups_before(dataset.files, last), strict=True):
                if before < file.num_row_groups:
                    wanted = range(before, file.num_row_groups)
                    batches = file.batches(_BATCH_ROWS, names, row_groups=wanted, filters=filters)
                    surplus = await _print(batches, surplus, form)
        return ExitCode.SOUND
    how: dict[str, Any] = {
        "follow": options,
        "storage_options": output.reached.options,
        **output.reached.keys.reading,
    }
    async with rpq.open_many(url, **how) if names_many(url) else rpq.open(url, **how) as source:
        files = source.files if isinstance(source, rpq.Dataset) else [source]
        filters = condition.filters(files[0].schema)
        surplus = 0 if where else _surplus(files, last)
        await _print(source.batches(_BATCH_ROWS, names, filters=filters), surplus, form)
    return ExitCode.SOUND


def _surplus(files: Sequence[rpq.File], last: int | None) -> int:
    """Rows of the row groups that are read, before the last ones."""
    before = row_groups_before(files, last)
    groups = (group for file, first in zip(files, before, strict=True) for group in file.metadata.row_groups[first:])
    return 0 if last is None else max(sum(group.num_rows for group in groups) - last, 0)


async def _print(batches: rpq.Batches, surplus: int, form: str) -> int:
    """Print rows behind some that are passed over; how many more are to be passed over."""
    to_text = text_rows.csv_lines if form == "csv" else text_rows.json_lines
    if form == "csv":
        write_text(text_rows.csv_header(rpq.Table(batches, [], 0).column_names))
    async with aclosing(batches):
        async for batch in batches:
            passed = min(surplus, batch.num_rows)
            surplus -= passed
            write_text(to_text(batch.slice(passed)))
    return surplus
