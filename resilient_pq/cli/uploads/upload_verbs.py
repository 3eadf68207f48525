"""The verbs of `rpq uploads`: list, complete, show and abort uploads that were left open."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

import resilient_pq as rpq
from resilient_pq.bulk.file_result import exit_code_of
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import Log, OlderThan, UploadId, Url
from resilient_pq.cli.uploads import found_uploads
from resilient_pq.errors import Where
from resilient_pq.io import WriteStore
from resilient_pq.io.location import shown
from resilient_pq.shell_commands import command


@verb(
    "uploads list",
    "they are listed, or there are none",
    "the FILE of --log is no log",
    "rpq uploads list s3://bucket --older-than 1d",
    "rpq uploads list s3://bucket/day.parquet --log day.log --json",
)
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


_HOW = {
    rpq.CompletedBy.RULE: "up to the newest checkpoint that was stored",
    rpq.CompletedBy.GAP_FREE: "up to the first part that is missing",
    rpq.CompletedBy.METADATA: "the last one a footer made of the metadata",
}


@verb(
    "uploads complete",
    "the object is there",
    "the metadata supplied are damaged",
    "rpq uploads complete s3://bucket/day.parquet",
    "rpq uploads complete s3://bucket/theirs.parquet --metadata theirs_metadata",
    "rpq uploads complete 's3://bucket/events/**/*.parquet' --older-than 1d",
    nothing="no part, or no row group of the metadata, can be used; nothing was completed",
)
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


#: By its name, and by the one that it had before.
uploads_show, uploads_resume_info = (
    verb(
        name,
        "there is an upload, or an object",
        "the FILE of --log is no log",
        "rpq uploads show s3://bucket/day.parquet",
        "rpq uploads show s3://bucket/day.parquet --log day.log --json",
        nothing="there is neither an upload nor an object",
    )(show)
    for name in ("uploads show", "uploads resume-info")
)


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


@verb(
    "uploads abort",
    "they are dropped, or none is so old",
    "the FILE of --log is no log",
    "rpq uploads abort s3://bucket/day.parquet",
    "rpq uploads abort s3://bucket --older-than 2w",
)
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
