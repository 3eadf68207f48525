"""`rpq uploads show`: what is there of an object whose writer did not finish."""

from __future__ import annotations

from typing import Any

import resilient_pq as rpq
from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import Log, UploadId, Url
from resilient_pq.cli.uploads import found_uploads
from resilient_pq.shell_commands import command

NAME = "uploads show"
EPILOG = epilog(
    "there is an upload, or an object",
    "the FILE of --log is no log",
    "rpq uploads show s3://bucket/day.parquet",
    "rpq uploads show s3://bucket/day.parquet --log day.log --json",
    nothing="there is neither an upload nor an object",
)


async def show(
    output: Output,
    url: Url,
    upload_id: UploadId = None,
    log: Log = None,
) -> int:
    """Show what completing or resuming would find.

    These are the uploads that are open for the object, and the object itself where there is one; only its footer is
    read, and nothing is changed.
    """
    info = await rpq.resume_info(url, upload_id=upload_id, log=log, storage_options=output.reached.options)
    for upload in info.uploads:
        _show_upload(output, upload)
    output.line("object", _object_words(info))
    found = bool(info.uploads) or info.object is not None
    output.finish(
        "read" if found else "nothing",
        rows=info.num_rows,
        following=[output.reached.command(command) for command in _next(info)],
        url=info.url,
        uploads=[found_uploads.as_json(upload) for upload in info.uploads],
        object=_object_json(info),
    )
    return ExitCode.SOUND if found else ExitCode.NOTHING


uploads_show = verb(NAME)(show)
#: By the name that it had before.
uploads_resume_info = verb("uploads resume-info")(show)


def _show_upload(output: Output, upload: rpq.Upload) -> None:
    begun = "" if upload.initiated is None else f", begun {upload.initiated:%Y-%m-%d %H:%M:%S %Z}"
    output.line("upload", f"{upload.upload_id}{begun}")
    output.line("parts", f"{upload.num_parts:,}, {wording.in_bytes(upload.num_bytes)}")
    output.line("holds", found_uploads.holds(upload))
    if upload.gap is not None:
        output.line("missing", f"part {upload.gap:,}")
    if upload.bytes_behind:
        output.line("dropped", f"when it is completed: {wording.in_bytes(upload.bytes_behind)} behind that")


def _object_json(info: rpq.ResumeInfo) -> dict[str, Any] | None:
    if info.object is None:
        return None
    state = None if info.state is None else str(info.state)
    return {"size": info.object.size, "etag": info.object.etag, "state": state, "file_id": info.file_id}


def _object_words(info: rpq.ResumeInfo) -> str:
    if info.object is None:
        return "there is none" if info.uploads else "there is none, and no upload is open"
    size = wording.in_bytes(info.object.size)
    replaced = "; completing an upload needs --overwrite" if info.uploads else ""
    if info.num_rows is None:
        return f"{size}, without a footer that can be read{replaced}"
    state = "of another writer" if info.state is None else str(info.state)
    return f"{size}, {state}, {wording.counted(info.num_rows, 'row')}{replaced}"


def _next(info: rpq.ResumeInfo) -> list[tuple[str, ...]]:
    """Looking at the object that is there; where there is none, completing the only upload that holds anything."""
    if info.object is not None:
        return [command("check", info.url)]
    useful = [upload for upload in info.uploads if upload.completable_bytes]
    if len(useful) != 1:
        return []
    return [("rpq", "uploads", "complete", info.url, "--upload-id", useful[0].upload_id)]
