"""`rpq uploads abort`: drop uploads that were left open."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

import resilient_pq as rpq
from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import RunWork, verb
from resilient_pq.cli.shared_options import (
    Log,
    OlderThan,
    UploadId,
)
from resilient_pq.cli.uploads import chosen, described
from resilient_pq.io import WriteStore
from resilient_pq.io.location import shown

NAME = "uploads abort"
EPILOG = epilog(
    "they are dropped, or none is so old",
    "the FILE of --log is no log",
    "rpq uploads abort s3://bucket/day.parquet",
    "rpq uploads abort s3://bucket --older-than 2w",
)


@dataclass(frozen=True, slots=True)
class _Wishes:
    """What the command line asks for."""

    url: str
    upload_id: str | None
    older_than: timedelta | None
    log: str | None


@verb(NAME)
def uploads_abort(
    run: RunWork,
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
    """Drop uploads that were left open, and what they hold.

    Without --older-than it is the one upload of the object, or the one that is named. With it, it is every upload
    below URL that was begun so long ago, and none that is younger; `rpq uploads list` shows them first. A writer that
    is still alive cannot go on.
    """
    chosen.refuse_young(url, older_than)
    wishes = _Wishes(url, upload_id, older_than, log)
    return run(lambda output: _abort(output, wishes), [url])


async def _abort(output: Output, wishes: _Wishes) -> int:
    store, prefix = chosen.place_of(wishes.url, output.reached.options, bucket_alone=wishes.older_than is not None)
    async with store:
        found = await chosen.uploads_of(store, wishes.url, prefix, older_than=wishes.older_than, log=wishes.log)
        if wishes.older_than is None:
            upload_id = await rpq.abort_upload((store, prefix), upload_id=wishes.upload_id)
            dropped = [upload for upload in found if (upload.key, upload.upload_id) == (prefix, upload_id)]
            _say(output, dropped)
        else:
            meant = [upload for upload in found if wishes.upload_id in (None, upload.upload_id)]
            dropped = [upload for upload in meant if await _dropped(output, store, upload)]
            if not dropped:
                old = described.age(wishes.older_than)
                output.line("nothing", f"no such upload was begun {old} ago or earlier; none was dropped")
    output.finish("aborted", url=shown(wishes.url), uploads=[described.as_json(upload) for upload in dropped])
    return ExitCode.SOUND


async def _dropped(output: Output, store: WriteStore, upload: rpq.Upload) -> bool:
    """Drop an upload and say so; False when it was completed or dropped meanwhile."""
    try:
        await rpq.abort_upload((store, upload.key), upload_id=upload.upload_id)
    except rpq.NotFoundError:
        return False
    _say(output, [upload])
    return True


def _say(output: Output, dropped: list[rpq.Upload]) -> None:
    now = datetime.now(UTC)
    for upload in dropped:
        begun = "" if upload.initiated is None else f", begun {described.age(now - upload.initiated)} ago"
        output.line("aborted", f"{upload.url}, {upload.upload_id}{begun}, {described.holds(upload)}")
