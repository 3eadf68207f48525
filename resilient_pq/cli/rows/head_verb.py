"""`rpq head`: the first rows as a table, for eyes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.output import text_rows, wording
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.rows.row_source import Sources, open_rows
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import split_names

_WIDEST = 32


@verb(
    "head",
    "the rows are printed",
    "the file is damaged",
    "rpq head flights.parquet",
    "rpq head s3://bucket/flights/ -n 20 --columns carrier,dep_delay",
    nothing="a file is not a Parquet file",
)
async def head(
    output: Output,
    urls: Sources,
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, metavar="N", help="How many rows.")] = 10,
    columns: Annotated[str | None, typer.Option(metavar="NAME,NAME", help="The columns wanted, in this order.")] = None,
) -> int:
    """Show the first rows as a table.

    Long values are cut, and columns that do not fit the terminal are left out and named. `rpq cat` prints rows for
    other programs.
    """
    names = split_names(columns)
    async with open_rows(output, urls) as dataset:
        table = await dataset.read(names, limit=rows)
        _show(output, table.column_names, text_rows.records_of(table), dataset.num_rows)
        records = [text_rows.plain(record) for record in text_rows.records_of(table)] if output.as_json else []
        output.finish("read", rows=table.num_rows, url=output.url, num_rows=dataset.num_rows, records=records)
    return ExitCode.SOUND


def _show(output: Output, names: list[str], records: list[dict[str, Any]], num_rows: int) -> None:
    columns = [[name, *(_cell(record[name]) for record in records)] for name in names]
    shown: list[list[str]] = []
    left = output.width
    for column in columns:
        left -= max(map(len, column)) + 2 * bool(shown)
        if left < 0 and shown:
            break
        shown.append(column)
    if shown:
        header, *lines = zip(*shown, strict=True)
        output.table(header, lines, left=len(shown))
    output.note(f"{len(records):,} of {wording.counted(num_rows, 'row')}", label="rows")
    if len(shown) < len(names):
        output.note(f"not shown: {wording.wrapped_names(names[len(shown) :])}", label="columns")


def _cell(value: Any) -> str:
    value = text_rows.plain(value)
    text = value if isinstance(value, str) else text_rows.json_text(value)
    return wording.shortened(wording.printable(text), at_most=_WIDEST)
