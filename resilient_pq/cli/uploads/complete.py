"""`rpq uploads complete`: make an object of an upload that was left open."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import typer

import resilient_pq as rpq
from resilient_pq.bulk.file_result import exit_code_of
from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import OlderThan, UploadId
from resilient_pq.cli.uploads import found_uploads
from resilient_pq.errors import Where
from resilient_pq.io.location import shown

NAME = "uploads complete"
EPILOG = epilog(
    "the object is there",
    "the metadata supplied are damaged",
    "rpq uploads complete s3://bucket/day.parquet",
    "rpq uploads complete s3://bucket/theirs.parquet --metadata theirs_metadata",
    "rpq uploads complete 's3://bucket/events/**/*.parquet' --older-than 1d",
    nothing="no part, or no row group of the metadata, can be used; nothing was completed",
)
_HOW = {
    rpq.CompletedBy.RULE: "up to the newest checkpoint that was stored",
    rpq.CompletedBy.GAP_FREE: "up to the first part that is missing",
    rpq.CompletedBy.METADATA: "the last one a footer made of the metadata",
}


@verb(NAME)
async def uploads_complete(
    output: Output,
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="An object; with --older-than a prefix that ends with a slash, or a pattern, too."
        ),
    ],
    upload_id: UploadId = None,
    older_than: OlderThan = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an object that is at URL.")] = False,
    gap_free: Annotated[
        bool,
        typer.Option(
            "--gap-free", help="Take all parts up to the first missing one: another program began the upload."
        ),
    ] = False,
    metadata: Annotated[
        str | None,
        typer.Option(
            "--metadata",
            metavar="FILE",
            help="A Parquet file or metadata file, path or URL, that describes the parts of another program's upload.",
        ),
    ] = None,
) -> int:
    """Turn an upload that was left open into an object.

    The object has every row that the writer's checkpoints stored. No data is moved. Parts behind the newest checkpoint
    are deleted, and a writer that is still alive cannot go on. If another program began the upload, which the sizes of
    the parts show, the object has all parts up to the first missing one.

    Below a prefix, or of a pattern, every upload is completed that is at least as old as --older-than says. One that
    cannot be completed is reported, and the others go on. --json prints a document for each as a line, and one of all
    as the last.
    """
    found_uploads.refuse_young(url, older_than)
    options: dict[str, Any] = {"overwrite": overwrite, "gap_free": gap_free}
    if older_than is None:
        options |= {"upload_id": upload_id, "metadata": metadata}
        done = await rpq.complete_upload(url, **options, storage_options=output.reached.options)
        _show_completed(output, done)
        return ExitCode.SOUND
    if upload_id is not None or metadata is not None:
        raise typer.BadParameter("it is about one upload, and --older-than about many", param_hint="--older-than")
    return await _complete_many(output, url, older_than, options)


async def _complete_many(output: Output, url: str, older_than: timedelta, options: Mapping[str, Any]) -> int:
    """Complete each upload by itself; the exit code is the highest."""
    output.as_lines = True
    code = num_errors = 0
    store, prefix = found_uploads.place_of(url, output.reached.options)
    async with store:
        found = await found_uploads.uploads_of(store, url, prefix, older_than=older_than)
        for upload in found:
            try:
                done = await rpq.complete_upload((store, upload.key), upload_id=upload.upload_id, **options)
            except rpq.ResilientPQError as error:
                error.at(Where(key=upload.url))
                output.failed(error)
                code, num_errors = max(code, exit_code_of(error)), num_errors + 1
            else:
                _show_completed(output, done)
    if not found:
        output.line("nothing", f"no such upload was begun {found_uploads.age(older_than)} ago or earlier")
    output.finish(
        "completed",
        url=shown(url),
        uploads_completed=len(found) - num_errors,
        uploads_not_completed=num_errors,
    )
    return code


def _show_completed(output: Output, done: rpq.CompletedUpload) -> None:
    parts = wording.counted(done.num_parts, "part")
    output.line("completed", f"{done.url}, {wording.in_bytes(done.size)} in {parts}, {_HOW[done.how]}")
    if done.num_rows is not None:
        lost = wording.counted(done.rows_dropped or 0, "row")
        output.line("rows", f"{done.num_rows:,}; {lost} of the metadata are not in the parts")
    if done.bytes_dropped:
        output.line("dropped", f"{wording.in_bytes(done.bytes_dropped)} in parts behind these")
    output.finish(
        "completed",
        rows=done.num_rows,
        following=[output.reached.command(command) for command in done.next],
        url=done.url,
        upload_id=done.upload_id,
        how=str(done.how),
        parts=done.num_parts,
        size=done.size,
        bytes_dropped=done.bytes_dropped,
        rows_dropped=done.rows_dropped,
    )
