"""`rpq resume`: go on with a file that its writer left unfinished, from an input."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

import resilient_pq as rpq
from resilient_pq.cli.input.input_rows import open_rows
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import UploadId
from resilient_pq.cli.write_arguments import chosen_options, takes_write_options
from resilient_pq.cli.write_verb import (
    Delimiter,
    Form,
    NoHeader,
    Null,
    SchemaOfText,
    Src,
    Types,
    resume_file,
    text_options_of,
)
from resilient_pq.errors import OptionError
from resilient_pq.writer.write_options import EncoderOptions


@verb(
    "resume",
    "the file is complete",
    "the input is damaged, or what was left of the file is; no file was published",
    "rpq resume flights.csv flights.parquet --skip-stored",
    "tail -n +1000001 events.jsonl | rpq resume - s3://bucket/events.parquet --append-all",
    nothing="the input is named like a Parquet file, but is not one",
    about=lambda given: given["dst"],
)
@takes_write_options(before="upload_id")
async def resume(
    output: Output,
    src: Src,
    dst: Annotated[str, typer.Argument(metavar="DST", help="What was given to `rpq write`: a path or a URL.")],
    skip_stored: Annotated[
        bool,
        typer.Option(
            "--skip-stored",
            help="SRC starts with the first row of DST: as many rows as DST has stored are skipped. They are counted,"
            " not compared.",
        ),
    ] = False,
    append_all: Annotated[
        bool,
        typer.Option("--append-all", help="SRC begins with the row after the stored ones: all its rows are written."),
    ] = False,
    upload_id: UploadId = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another file that is at DST.")] = False,
    form: Form = None,
    types: Types = None,
    schema: SchemaOfText = None,
    delimiter: Delimiter = None,
    null: Null = None,
    no_header: NoHeader = False,
    **given: Any,
) -> int:
    """Continue an unfinished file.

    DST is a local file of which DST.partial was left, or an object of which an upload was left open. Its stored rows
    are kept; an incomplete end is cut off. Say where SRC continues: --skip-stored or --append-all. CSV and JSON lines
    must have the same types as before.
    """
    settings = chosen_options(given)
    text = text_options_of(types, schema, delimiter, null, no_header)
    reading = partial(open_rows, src, form=form, text_options=text)
    chosen = {**settings, **await output.reached.keys.writing()}
    EncoderOptions(**chosen)
    if skip_stored == append_all:
        raise OptionError(
            "say how SRC continues the file, by one of --skip-stored and --append-all",
            hint="--skip-stored where SRC starts again from its first row",
        )
    reached: dict[str, Any] = {"upload_id": upload_id, "overwrite": overwrite}
    opening = rpq.resume(dst, storage_options=output.reached.options, **reached, **chosen)
    return await resume_file(output, reading, dst, lambda _: opening, skip=skip_stored, settings=settings)
