"""`rpq uploads list`: the uploads that were left open."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import Log, OlderThan
from resilient_pq.cli.uploads import found_uploads
from resilient_pq.io.location import shown

NAME = "uploads list"
EPILOG = epilog(
    "they are listed, or there are none",
    "the FILE of --log is no log",
    "rpq uploads list s3://bucket --older-than 1d",
    "rpq uploads list s3://bucket/day.parquet --log day.log --json",
)


@verb(NAME)
async def uploads_list(
    output: Output,
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="A bucket, what the names begin with, or a pattern: s3://bucket/prefix."),
    ],
    older_than: OlderThan = None,
    log: Log = None,
) -> int:
    """List uploads that were left open, oldest first.

    "completable" is the size of the object that completing would make. Of an upload by this package it ends at the
    newest stored checkpoint ("rule"); of one by another program, before the first missing part ("gap-free").
    """
    store, key = found_uploads.place_of(url, output.reached.options)
    async with store:
        found = await found_uploads.uploads_of(store, url, key, older_than=older_than, log=log)
    if found:
        now = datetime.now(UTC)
        output.table(found_uploads.HEADER, [found_uploads.row(upload, now) for upload in found], left=2)
    else:
        old = "" if older_than is None else f" since {found_uploads.age(older_than)} or longer"
        output.line("nothing", f"no upload is open{old} below {shown(url)}")
    following = [
        output.reached.command(("rpq", "uploads", "show", upload.url, "--upload-id", upload.upload_id))
        for upload in found[:1]
    ]
    uploads = [found_uploads.as_json(upload) for upload in found]
    output.finish("read", following=following, url=shown(url), uploads=uploads)
    return ExitCode.SOUND
