"""`rpq write`: a resilient Parquet file, or a data set of many, from a file of another form or from a pipe."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Annotated, Any, Literal

import typer

import resilient_pq as rpq
from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.input.input_rows import InputRows, open_rows
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import RunWork, verb
from resilient_pq.cli.shared_options import size_option, split_names
from resilient_pq.cli.write_arguments import chosen_options, takes_write_options
from resilient_pq.shell_commands import command

NAME = "write"
EPILOG = epilog(
    "the file is written",
    "the input is damaged; no file was published",
    "rpq write flights.csv flights.parquet --row-group-bytes 32MiB",
    "zcat events.jsonl.gz | rpq write - s3://bucket/events.parquet --checkpoint-every 2",
    "rpq write events.jsonl s3://bucket/events/ --partition-by day,country --roll-bytes 256MiB --resume",
)

Src = Annotated[
    str,
    typer.Argument(
        metavar="SRC",
        help="A .csv, .jsonl, .ndjson, .parquet, .arrow or .feather file, the URL of a Parquet file, or - for"
        " an Arrow IPC stream or JSON lines on stdin.",
    ),
]
Dst = Annotated[str, typer.Argument(metavar="DST", help="The new file, or the folder of a data set.")]
Mode = Annotated[Literal["w", "x"], typer.Option(help="w replaces a file that is at DST, x fails if there is one.")]
PartitionBy = Annotated[
    str | None,
    typer.Option(metavar="COLUMN,COLUMN", help="A data set: columns whose values are folders, as Hive has them."),
]
RollRows = Annotated[int | None, typer.Option(metavar="ROWS", help="A data set: rows of a file.")]
RollBytes = Annotated[int | None, size_option("--roll-bytes", "A data set: bytes of a file, about.")]
RollSeconds = Annotated[float | None, typer.Option(metavar="SECONDS", help="A data set: seconds that a file is open.")]
FileNames = Annotated[
    str | None, typer.Option(metavar="NAME", help='A data set: what its files are called, if not "part".')
]
ResumeDataset = Annotated[
    bool,
    typer.Option("--resume", help="A data set: go on with one; rows of SRC that are stored are passed over."),
]


@verb(NAME)
@takes_write_options(before="mode")
def write(
    run: RunWork,
    src: Src,
    dst: Dst,
    mode: Mode = "w",
    partition_by: PartitionBy = None,
    roll_rows: RollRows = None,
    roll_bytes: RollBytes = None,
    roll_seconds: RollSeconds = None,
    name: FileNames = None,
    resume: ResumeDataset = False,
    **given: Any,
) -> int:
    """Write rows to resilient Parquet files.

    Rows are streamed: memory is bounded by the row group, whatever the size of the input. DST appears when it is
    complete, and not before; until then a local file is DST.partial, and what is in it can be recovered. CSV and
    JSON lines are read by pyarrow with its defaults (pip install 'resilient_pq[ingest]'); their types are taken
    from the first 8 MiB, or from what comes in a third of --max-unstored-seconds. A source that stops keeps no row that
    came whole from being stored in time; only on Windows the last rows wait until more come.

    With one of the options of a data set DST is a folder, and each file in it appears when it is full. A run that was
    interrupted leaves files that are unfinished: the same with --resume completes them, and goes on in new ones.
    """
    settings = chosen_options(given)
    rolling = {
        "partition_by": split_names(partition_by, "--partition-by"),
        "roll_rows": roll_rows,
        "roll_bytes": roll_bytes,
        "roll_seconds": roll_seconds,
        "name": name,
    }
    rolling = {name: value for name, value in rolling.items() if value is not None}
    if not rolling and not resume:
        return run(lambda output: _write_file(output, src, dst, {**settings, "mode": mode}), [dst])
    create: Any = partial(rpq.resume_dataset, replay_from={}) if resume else rpq.create_dataset
    return run(lambda output: _write_dataset(output, src, partial(create, dst, **settings, **rolling)), [dst])


def _block_seconds(max_unstored_seconds: float | None) -> float | None:
    """Seconds that a block of text may wait for lines: a third of the time until rows have to be stored."""
    return None if max_unstored_seconds is None else max_unstored_seconds / 3


async def _write_file(output: Output, src: str, dst: str, settings: Mapping[str, Any]) -> int:
    began = time.monotonic()
    options = output.reached.options
    reading = open_rows(src, storage_options=options, block_seconds=_block_seconds(settings["max_unstored_seconds"]))
    async with reading as rows:
        creation = rpq.create(dst, rows.schema, metadata=rows.metadata, storage_options=options, **settings)
        async with creation as writer:
            await _feed(output, rows, writer)
    async with rpq.open(dst, storage_options=options) as file:
        _report(output, file, time.monotonic() - began, writer.num_bytes_resent)
    return ExitCode.SOUND


async def _write_dataset(
    output: Output, src: str, create: partial[AbstractAsyncContextManager[rpq.DatasetWriter]]
) -> int:
    began = time.monotonic()
    reading = open_rows(
        src,
        storage_options=output.reached.options,
        # The days of JSON, "2026-08-01", are read as times, which name no partitions.
        as_written=create.keywords.get("partition_by", ()),
        block_seconds=_block_seconds(create.keywords["max_unstored_seconds"]),
    )
    async with reading as rows:
        creation = create(rows.schema, metadata=rows.metadata, storage_options=output.reached.options)
        async with creation as writer:
            completed = writer.files
            await _feed(output, rows, writer)
    published = writer.files[len(completed) :]
    files, size = wording.counted(len(published), "file"), sum(file.size for file in published)
    num_rows = sum(file.num_rows for file in published)
    output.line("written", f"{writer.url}: {wording.counted(num_rows, 'row')} in {files}")
    if completed:
        before = wording.counted(sum(file.num_rows for file in completed), "row")
        output.line("completed", f"{wording.counted(len(completed), 'file')} that were left open: {before}")
    partitions = wording.counted(len({file.partition for file in published}), "partition")
    output.line("", f"{wording.in_bytes(size)}, {partitions}, {wording.durations(time.monotonic() - began)}")
    output.finish(
        "written",
        rows=num_rows,
        url=writer.url,
        size=size,
        files=[_file_json(file) for file in published],
        completed=[_file_json(file) for file in completed],
    )
    return ExitCode.SOUND


def _file_json(file: rpq.DatasetFile) -> dict[str, Any]:
    return {"url": file.url, "partition": file.partition, "rows": file.num_rows, "size": file.size}


async def _feed(output: Output, rows: InputRows, writer: rpq.Writer | rpq.DatasetWriter) -> None:
    with output.progress("writing") as meter:
        async for batch, share in rows.batches:
            await writer.write(batch)
            meter.update(share, wording.counted(writer.num_rows, "row"))


def _report(output: Output, file: rpq.File, seconds: float, resent: int) -> None:
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
    )
