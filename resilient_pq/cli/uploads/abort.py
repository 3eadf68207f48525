"""`rpq uploads abort`: drop uploads that were left open."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

import resilient_pq as rpq
from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import Log, OlderThan, UploadId
from resilient_pq.cli.uploads import found_uploads
from resilient_pq.io import WriteStore
from resilient_pq.io.location import shown

NAME = "uploads abort"
EPILOG = epilog(
    "they are dropped, or none is so old",
    "the FILE of --log is no log",
    "rpq uploads abort s3://bucket/day.parquet",
    "rpq uploads abort s3://bucket --older-than 2w",
)


@verb(NAME)
async def uploads_abort(
    output: Output,
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="An object; with --older-than a bucket, what the names begin with, or a pattern."
        ),
    ],
    upload_id: UploadId = None,
    older_than: OlderThan = None,
    log: Log = None,
) -> int:
    """Abort uploads that were left open; their bytes are deleted.

    Without --older-than, the only upload of the object is aborted, or the one that --upload-id names. With it, every
    upload below URL that is at least so old; `rpq uploads list` shows them first. A writer that is still alive cannot
    go on.
    """
    found_uploads.refuse_young(url, older_than)
    if older_than is None:
        return await _abort_one(output, url, upload_id, log)
    return await _abort_old(output, url, upload_id, older_than, log)


async def _abort_one(output: Output, url: str, upload_id: str | None, log: str | None) -> int:
    store, key = found_uploads.place_of(url, output.reached.options, bucket_alone=False)
    async with store:
        found = await found_uploads.uploads_of(store, url, key, log=log)
        aborted = await rpq.abort_upload((store, key), upload_id=upload_id)
    dropped = [upload for upload in found if (upload.key, upload.upload_id) == (key, aborted)]
    _show_dropped(output, dropped)
    return _finish(output, url, dropped)


async def _abort_old(output: Output, url: str, upload_id: str | None, older_than: timedelta, log: str | None) -> int:
    store, prefix = found_uploads.place_of(url, output.reached.options)
    async with store:
        found = await found_uploads.uploads_of(store, url, prefix, older_than=older_than, log=log)
        meant = [upload for upload in found if upload_id in (None, upload.upload_id)]
        dropped = [upload for upload in meant if await _drop(output, store, upload)]
    if not dropped:
        output.line(
            "nothing", f"no such upload was begun {found_uploads.age(older_than)} ago or earlier; none was dropped"
        )
    return _finish(output, url, dropped)


def _finish(output: Output, url: str, dropped: list[rpq.Upload]) -> int:
    output.finish("aborted", url=shown(url), uploads=[found_uploads.as_json(upload) for upload in dropped])
    return ExitCode.SOUND


async def _drop(output: Output, store: WriteStore, upload: rpq.Upload) -> bool:
    """Drop an upload and say so; False when it was completed or dropped meanwhile."""
    try:
        await rpq.abort_upload((store, upload.key), upload_id=upload.upload_id)
    except rpq.NotFoundError:
        return False
    _show_dropped(output, [upload])
    return True


def _show_dropped(output: Output, dropped: list[rpq.Upload]) -> None:
    now = datetime.now(UTC)
    for upload in dropped:
        begun = "" if upload.initiated is None else f", begun {found_uploads.age(now - upload.initiated)} ago"
        output.line("aborted", f"{upload.url}, {upload.upload_id}{begun}, {found_uploads.holds(upload)}")
