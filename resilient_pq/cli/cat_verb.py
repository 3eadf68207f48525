"""`rpq cat`: rows as text, or as an Arrow stream or a Parquet file, for eyes and pipes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal

import typer
from nanoarrow.ipc import StreamWriter

import resilient_pq as rpq
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.input.input_stream import STDIN
from resilient_pq.cli.output import report_lines, text_rows
from resilient_pq.cli.output.output_streams import ByteOutput, write_text
from resilient_pq.cli.output.verb_output import Output, base_document
from resilient_pq.cli.rows.row_source import Sources, open_rows, stdout_as_file
from resilient_pq.cli.rows.where_clause import WhereClause
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import split_names
from resilient_pq.errors import OptionError

#: Rows that become text at one time.
_BATCH_ROWS = 8192

Columns = Annotated[str | None, typer.Option(metavar="NAME,NAME", help="The columns wanted, in this order.")]
Where = Annotated[
    str | None,
    typer.Option(
        metavar="CONDITION",
        help="The rows wanted: comparisons of columns with values (=, !=, <, <=, >, >=, in, between, is null), with"
        " and, or, not and parentheses.",
    ),
]
OnDamageOption = Annotated[
    Literal["raise", "drop", "null"],
    typer.Option(
        "--on-damage",
        help="What to do with rows that lost a value: raise ends with an error, drop leaves them out,"
        " null prints null where the column may be null, and leaves them out elsewhere.",
    ),
]


@verb(
    "cat",
    "the rows are printed",
    "the file is damaged; rows before the damage may be printed already; with --on-damage, all rows that are left",
    "rpq cat flights.parquet --columns carrier,dep_delay --head 10",
    "rpq cat s3://bucket/flights/ --where \"dep_delay > 60 and carrier in ('UA', 'B6')\" --format csv > late.csv",
    "curl -s https://host/day.parquet | rpq cat - --format arrow | python analyse.py",
    nothing="a file is not a Parquet file",
)
async def cat(
    output: Output,
    urls: Sources,
    columns: Columns = None,
    where: Where = None,
    head: Annotated[int | None, typer.Option(min=0, metavar="N", help="The first N rows only.")] = None,
    form: Annotated[
        Literal["jsonl", "csv", "arrow", "parquet"],
        typer.Option("--format", help="JSON lines, CSV with a header, an Arrow IPC stream, or a Parquet file."),
    ] = "jsonl",
    on_damage: OnDamageOption = "raise",
) -> int:
    """Print rows as JSON lines, CSV, Arrow or Parquet.

    Rows of several files come in the order of the files, and those of a folder by name. Only the columns, row groups
    and pages that are needed are read.

    Dates and times are ISO 8601, decimals are text with all their digits, bytes are base64, maps are arrays of
    [key, value]. NaN and infinities are null in JSON. In CSV null is an empty field, lists and structs are JSON.

    In --where, text, dates and times are written in single quotes ('it''s', '2026-08-01T12:00:00'), column names with
    spaces in double quotes, fields of structs with dots. Null values match no condition but `is null`.

    With --json there is one document whose "rows" is their number and whose "records" are the rows themselves.
    It is held in memory: use --head.

    With --on-damage, what is lost is reported on stderr, and under "lost" with --json; `rpq recover` keeps what is
    left.
    """
    names = split_names(columns)
    if output.as_json and form in ("arrow", "parquet"):
        raise OptionError(f"--json and --format {form} both write to stdout", hint="leave one of them out")
    clause = WhereClause(where or "")
    lost: list[rpq.LostRegion] = []
    try:
        async with open_rows(output, urls, on_damage=on_damage, on_lost=lost.append) as dataset:
            filters = clause.filters(dataset.files[0].schema)  # which has the columns of all
            # nanoarrow writes no array that begins within another: a batch is a row group then.
            rows = sys.maxsize if form == "arrow" else _BATCH_ROWS
            batches = dataset.batches(rows, names, filters=filters, limit=head)
            async with aclosing(batches):
                await _print(output, batches, form, lost, dataset.urls)
    except rpq.FormatError as error:
        error.hint = _hint(error, on_damage)
        raise
    finally:
        report_lines.show_lost_rows(output, lost)
    return ExitCode.DAMAGE if lost else ExitCode.SOUND


def _hint(error: rpq.FormatError, on_damage: str) -> str | None:
    """The hint of an error, with the option that has the other rows printed, where there may be such."""
    if on_damage != "raise" or (error.where.row_group is None and not isinstance(error, rpq.TornFileError)):
        return error.hint
    others = "--on-damage drop prints the rows that are left"
    return others if error.hint is None else f"{others}; {error.hint}"


async def _print(
    output: Output, batches: rpq.Batches, form: str, lost: list[rpq.LostRegion], urls: Sequence[str]
) -> None:
    if output.as_json:
        records: list[Any] = []
        async for batch in batches:
            records += [text_rows.plain(record) for record in text_rows.records_of(batch)]
        url = urls[0] if len(urls) == 1 else output.url
        rest = {"records": records, "lost": [region.to_json() for region in lost]}
        output.document(base_document(output.verb, "partial" if lost else "read", rows=len(records), url=url, **rest))
    elif form == "parquet":
        async with stdout_as_file(output, STDIN) as path, rpq.create(path, batches) as writer:
            async for batch in batches:
                await writer.write(batch)
    else:
        await _print_stream(batches, form)


async def _print_stream(batches: rpq.Batches, form: str) -> None:
    empty = rpq.Table(batches, [], 0)
    if form == "arrow":
        with StreamWriter.from_writable(ByteOutput()) as stream:
            stream.write_stream(empty)
            async for batch in batches:
                stream.write_stream(batch)
        return
    if form == "csv":
        write_text(text_rows.csv_header(empty.column_names))
    to_text = text_rows.csv_lines if form == "csv" else text_rows.json_lines
    async for batch in batches:
        write_text(to_text(batch))
