"""`rpq write`: a resilient Parquet file, or a data set of many, from a file of another form or from a pipe."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Annotated, Any, Literal

import typer

import resilient_pq as rpq
from resilient_pq.arrow.batch_sources import BatchSource
from resilient_pq.arrow.batch_sources import open_source as open_batches
from resilient_pq.arrow.types.arrow_schema import schema_to_arrow
from resilient_pq.arrow.types.field import Field
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.input.input_rows import BLOCK_BYTES, InputRows, open_rows
from resilient_pq.cli.input.input_stream import STDIN
from resilient_pq.cli.input.text_parser import TextOptions
from resilient_pq.cli.input.text_types import parse_types
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.progress_bar import Meter
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.rows.row_source import stdout_as_file
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import (
    TableOption,
    parse_delimiter,
    parse_schema,
    parse_table,
    size_option,
    split_names,
)
from resilient_pq.cli.write_arguments import chosen_options, takes_write_options
from resilient_pq.errors import OptionError
from resilient_pq.format.schema_tree import Schema
from resilient_pq.shell_commands import command
from resilient_pq.writer.write_options import EncoderOptions

OpenSource = Callable[..., AbstractAsyncContextManager[InputRows]]

#: A name that ends so is that of a file, and no data set is made of it.
_OF_FILE = (".parquet", ".pq")

Src = Annotated[
    str,
    typer.Argument(
        metavar="SRC",
        help="A .csv, .tsv, .jsonl, .ndjson, .parquet, .arrow or .feather file, text also with .gz or .zst, the URL of"
        " a Parquet file, or - for stdin: an Arrow IPC stream, JSON lines, or what --format says.",
    ),
]
Dst = Annotated[str, typer.Argument(metavar="DST", help="The new file, the folder of a data set, or - for stdout.")]
Mode = Annotated[Literal["w", "x"], typer.Option(help="w replaces a file that is at DST, x fails if there is one.")]
PartitionBy = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN,COLUMN",
        help="A data set: columns whose values are folders, as Hive has them; or transforms, such as day(at) and"
        " bucket(16, id).",
    ),
]
RollRows = Annotated[int | None, typer.Option(metavar="ROWS", help="A data set: rows of each file.")]
RollBytes = Annotated[int | None, size_option("--roll-bytes", "A data set: about how many bytes each file has.")]
RollSeconds = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="A data set: seconds until a new file is begun.")
]
FileNames = Annotated[
    str | None, typer.Option(metavar="NAME", help='A data set: what its files are called, if not "part".')
]
ResumeDataset = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue the file or the data set that an earlier run left unfinished, or begin it. SRC is read from its"
        " first row; as many rows as are stored are skipped.",
    ),
]
Append = Annotated[
    bool,
    typer.Option(
        "--append",
        help="Write the rows behind those of the complete file at DST, of any writer: they must fit its schema.",
    ),
]
Form = Annotated[
    Literal["csv", "tsv", "jsonl", "arrow", "parquet"] | None,
    typer.Option("--format", help="The format of SRC, if its name does not end with it."),
]
Types = Annotated[
    str | None,
    typer.Option(metavar="COLUMN=TYPE,...", help="Types of columns of CSV or JSON: zip=string,ts=timestamp[ms]."),
]
SchemaOfText = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="The types of all columns of CSV or JSON, as `rpq inspect FILE --schema` shows them: a file, or the text.",
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER", parser=parse_delimiter, help="CSV: what separates values, if not a comma; tab for a tab."
    ),
]
Null = Annotated[
    list[str] | None,
    typer.Option("--null", metavar="TEXT", help="CSV: what stands for null, in text too; may be repeated."),
]
NoHeader = Annotated[bool, typer.Option("--no-header", help="CSV: the first row has values; columns are f0, f1, ...")]


@verb(
    "write",
    "the file is written",
    "the input is damaged; no file was published",
    "rpq write flights.csv flights.parquet --row-group-bytes 32MiB",
    "zcat events.jsonl.gz | rpq write - s3://bucket/events.parquet --checkpoint-every 2",
    "rpq write events.jsonl s3://bucket/events/ --partition-by day,country --roll-bytes 256MiB --resume",
    "rpq write monday.csv s3://bucket/week.parquet --append",
    nothing="the input is named like a Parquet file, but is not one",
    about=lambda given: given["dst"],
)
@takes_write_options(before="mode")
async def write(
    output: Output,
    src: Src,
    dst: Dst,
    mode: Mode = "w",
    partition_by: PartitionBy = None,
    roll_rows: RollRows = None,
    roll_bytes: RollBytes = None,
    roll_seconds: RollSeconds = None,
    name: FileNames = None,
    resume: ResumeDataset = False,
    append: Append = False,
    table: TableOption = None,
    form: Form = None,
    types: Types = None,
    schema: SchemaOfText = None,
    delimiter: Delimiter = None,
    null: Null = None,
    no_header: NoHeader = False,
    **given: Any,
) -> int:
    """Write rows to resilient Parquet files.

    Rows are streamed: memory is bounded by the row group, whatever the size of the input. DST appears when it is
    complete, and not before; until then a local file is DST.partial, and what is in it can be recovered. Rows are
    also stored in time while SRC sends nothing more; only on Windows the last rows wait until more come.

    Types of CSV and JSON lines are inferred from the first 8 MiB (or from what arrives in a third of
    --max-unstored-seconds), and only if they keep every value as it is written: 03324 and +47 stay text. Empty values,
    NA, null, nan and the like are null, but not in text columns, where only --null defines nulls. With pyarrow (pip
    install 'resilient_pq[ingest]') text is read faster.

    With one of the options of a data set, DST is a folder, and each file in it appears when it is full. An
    interrupted run leaves unfinished files: the same command with --resume completes them and continues in new files.
    `rpq resume` has more options. DST - writes the file to stdout when it is complete.

    With --append, DST stays as it is until all rows are written, and is then replaced in one step. CSV and JSON lines
    must have the types of its columns: see --types and --schema.
    """
    settings = chosen_options(given)
    text = text_options_of(types, schema, delimiter, null, no_header)
    reading = partial(open_rows, src, form=form, text_options=text)
    rolling = _given(
        partition_by=split_names(partition_by, "--partition-by"),
        roll_rows=roll_rows,
        roll_bytes=roll_bytes,
        roll_seconds=roll_seconds,
        name=name,
        table=parse_table(table),
    )
    others = rolling or resume or mode == "x" or dst == STDIN
    create: Any = partial(rpq.resume_dataset, replay_from={}) if resume else rpq.create_dataset
    chosen = {**settings, **await output.reached.keys.writing()}
    EncoderOptions(**chosen)  # wrong ones are told of before anything is read
    if append:
        return await _append(output, reading, dst, settings, alone=not others)
    if not rolling and not resume:
        return await _write_file(output, reading, dst, {**chosen, "mode": mode})
    if dst.endswith(_OF_FILE) and not await asyncio.to_thread(os.path.isdir, dst):
        return await _create_or_resume(output, reading, dst, chosen, rolling)
    return await _write_dataset(output, reading, partial(create, dst, **chosen, **rolling), table)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def text_options_of(
    types: str | None, schema: str | None, delimiter: str | None, null: list[str] | None, no_header: bool
) -> TextOptions | None:
    """What was said of text; None where nothing was."""
    if not any((types, schema, delimiter is not None, null, no_header)):
        return None
    if types and schema:
        raise typer.BadParameter("--schema has the types of all columns: --types cannot be beside it")
    fields = {}
    try:
        fields = parse_types(types or "")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--types") from None
    if schema is not None:
        text = parse_schema(schema if schema.startswith("@") or "{" in schema else f"@{schema}")
        columns = Field.of(schema_to_arrow(Schema.parse(text))).children
        fields = {column.name: column for column in columns}
    return TextOptions(
        BLOCK_BYTES,
        delimiter=delimiter,
        header=not no_header,
        nulls=tuple(null or ()),
        types=fields,
        whole_schema=schema is not None,
    )


def _opened(output: Output, open_source: OpenSource, settings: Mapping[str, Any], **how: Any) -> Any:
    """The source; a block of text may wait for lines for a third of the time until rows have to be stored."""
    seconds, reached = settings["max_unstored_seconds"], output.reached
    waiting = None if seconds is None else seconds / 3
    return open_source(storage_options=reached.options, keys=reached.keys, block_seconds=waiting, **how)


async def _write_file(output: Output, open_source: OpenSource, dst: str, settings: Mapping[str, Any]) -> int:
    began = time.monotonic()
    options = output.reached.options
    reading = _opened(output, open_source, settings)
    async with _rows(output, reading) as (rows, meter), stdout_as_file(output, dst) as path:
        creation = rpq.create(path, rows.schema, metadata=rows.metadata, storage_options=options, **settings)
        async with creation as writer:
            await _feed(meter, rows, writer)
        async with rpq.open(path, storage_options=options, **output.reached.keys.reopening) as file:
            _report(output, file, time.monotonic() - began, writer.num_bytes_resent)
    return ExitCode.SOUND


async def _create_or_resume(
    output: Output, open_source: OpenSource, dst: str, settings: Mapping[str, Any], rolling: Mapping[str, Any]
) -> int:
    if rolling:
        raise OptionError(
            f"a data set is a folder, and {dst} has the name of a file", hint="name a folder, such as flights/"
        )

    def opening(rows: InputRows) -> Any:
        return rpq.create_or_resume(
            dst, rows.schema, metadata=rows.metadata, storage_options=output.reached.options, **settings
        )

    try:
        return await resume_file(output, open_source, dst, opening, skip=True, settings=settings)
    except rpq.AlreadyExistsError as error:
        if "overwrite=True" in (error.hint or ""):  # there is no writer that is alive
            error.hint = "without --resume it is replaced"
        raise


async def _append(output: Output, reading: OpenSource, dst: str, given: Mapping[str, Any], *, alone: bool) -> int:
    if not alone:
        raise OptionError("--append writes to one complete file", hint="leave --append or the other option out")
    opening = rpq.append(dst, storage_options=output.reached.options, **given)
    return await resume_file(output, reading, dst, lambda _: opening, skip=False, settings=given, word="appended")


async def resume_file(
    output: Output,
    open_source: OpenSource,
    dst: str,
    opening: Callable[[InputRows], AbstractAsyncContextManager[rpq.Writer]],
    *,
    skip: bool,
    settings: Mapping[str, Any],
    word: Literal["resumed", "appended"] = "resumed",
) -> int:
    """Go on with a file; with `skip` the source starts again, and rows that are stored are passed over."""
    began = time.monotonic()
    options = output.reached.options
    reading = _opened(output, open_source, settings)
    async with _rows(output, reading) as (rows, meter), opening(rows) as writer:
        stored = writer.num_rows_stored
        passed = f"; the first {wording.counted(stored, 'row')} of SRC were passed over" if skip and stored else ""
        await _feed(meter, rows, writer, skip=stored if skip else 0)
    output.line(word, f"{wording.counted(stored, 'row')} were stored before{passed}")
    async with rpq.open(dst, storage_options=options, **output.reached.keys.reopening) as file:
        more = {"resumed_rows": stored} if word == "resumed" else {"rows_before": stored}
        _report(output, file, time.monotonic() - began, writer.num_bytes_resent, **more)
    return ExitCode.SOUND


async def _write_dataset(
    output: Output,
    open_source: OpenSource,
    create: partial[AbstractAsyncContextManager[rpq.DatasetWriter]],
    table: str | None,
) -> int:
    if create.args == (STDIN,):
        raise OptionError("stdout takes one file, which begins anew", hint="name the file or the folder to resume")
    began = time.monotonic()
    # The days of JSON, "2026-08-01", are read as times, which name no partitions.
    as_written = create.keywords.get("partition_by", ())
    reading = _opened(output, open_source, create.keywords, as_written=as_written)
    async with _rows(output, reading) as (rows, meter):
        creation = create(rows.schema, metadata=rows.metadata, storage_options=output.reached.options)
        async with creation as writer:
            completed = writer.files
            await _feed(meter, rows, writer)
    published = writer.files[len(completed) :]
    files, size = wording.counted(len(published), "file"), sum(file.size for file in published)
    num_rows = sum(file.num_rows for file in published)
    output.line("written", f"{writer.url}: {wording.counted(num_rows, 'row')} in {files}")
    if completed:
        before = wording.counted(sum(file.num_rows for file in completed), "row")
        output.line("completed", f"{wording.counted(len(completed), 'file')} that were left open: {before}")
    partitions = wording.counted(len({file.partition for file in published}), "partition")
    output.line("", f"{wording.in_bytes(size)}, {partitions}, {wording.durations(time.monotonic() - began)}")
    if table is not None:
        output.line("committed", f"to {table}")
    output.finish(
        "written",
        rows=num_rows,
        url=writer.url,
        size=size,
        table=table,
        files=[_file_json(file) for file in published],
        completed=[_file_json(file) for file in completed],
    )
    return ExitCode.SOUND


def _file_json(file: rpq.DatasetFile) -> dict[str, Any]:
    return {"url": file.url, "partition": file.partition, "rows": file.num_rows, "size": file.size}


@asynccontextmanager
async def _rows(
    output: Output, reading: AbstractAsyncContextManager[InputRows]
) -> AsyncIterator[tuple[InputRows, Meter]]:
    """The rows of an opened source, and the meter, which shows itself while the first rows are looked at."""
    with output.progress("writing") as meter:
        shown = asyncio.get_running_loop().call_later(0.4, meter.update, None, "reading the first rows")
        try:
            async with reading as rows:
                shown.cancel()
                yield rows, meter
        finally:
            shown.cancel()


async def _feed(meter: Meter, rows: InputRows, writer: rpq.Writer | rpq.DatasetWriter, skip: int = 0) -> None:
    """Write all rows behind the first `skip`."""
    left = skip
    async for batch, share in rows.batches:
        data, left = _behind(batch, left) if left else (batch, 0)
        await writer.write(data)
        meter.update(share, wording.counted(writer.num_rows, "row"))
    if left:
        raise rpq.RecoveryError(
            f"{skip:,} rows are stored, and the input has {skip - left:,}: it is not the one that was written before",
            hint="`rpq resume --append-all` writes all its rows behind them",
        )


def _behind(batch: Any, count: int) -> tuple[BatchSource, int]:
    """The rows of a batch behind the first ones, and how many of these are in later batches."""
    source, kept = open_batches(batch), []
    for rows in source.batches:
        passed = min(count, rows.length)
        count -= passed
        kept.append(rows.slice(passed, rows.length - passed))
    return BatchSource(source.field, iter(kept)), count


def _report(output: Output, file: rpq.File, seconds: float, resent: int, **more: Any) -> None:
    """Print the contents of the file, by its footer, and the bytes that were sent again for checkpoints."""
    groups = wording.counted(file.num_row_groups, "row group")
    output.line("written", f"{file.url}: {wording.counted(file.num_rows, 'row')} in {groups}")
    checkpoints = wording.counted(len(file.checkpoints), "checkpoint")
    size = wording.in_bytes(file.info.size)
    again = f", {wording.in_bytes(resent)} sent again for them" if resent else ""
    output.line("", f"{size}, {checkpoints}{again}, {wording.durations(seconds)}")
    output.finish(
        "written",
        rows=file.num_rows,
        following=[output.reached.command(command("check", file.url))],
        url=file.url,
        row_groups=file.num_row_groups,
        size=file.info.size,
        checkpoints=len(file.checkpoints),
        resent_bytes=resent,
        **more,
    )
