"""Uploads that nobody will write to: dropped, or else named, with the command that drops them. An async shell."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection
from datetime import timedelta

from resilient_pq.errors import NotFoundError, ResilientPQError, StoreError, UnsupportedError
from resilient_pq.io.cancellation import GRACE_SECONDS
from resilient_pq.io.multipart_store import MultipartStore, UploadInfo
from resilient_pq.io.object_sink import ObjectSink
from resilient_pq.io.upload.epoch import Epoch
from resilient_pq.shell_commands import shell_line

log = logging.getLogger("resilient_pq.io")

#: The clocks of a writer and of its store differ by less: S3 refuses what is signed by one that differs more.
MOST_SKEW = timedelta(minutes=15)


def upload_command(store: MultipartStore, verb: str, key: str, *options: str) -> str:
    """A command about the uploads of an object, for a shell."""
    return shell_line(["rpq", "uploads", verb, store.url_of(key), *options, *store.command_arguments])


def drop_command(store: MultipartStore, key: str, upload_id: str) -> str:
    """The command that drops an upload, for a shell."""
    return upload_command(store, "abort", key, "--upload-id", upload_id)


async def drop_upload(store: MultipartStore, key: str, upload_id: str, error: BaseException | None = None) -> None:
    """Drop an upload that nobody will write to; where the store refuses, the log says how to do it later."""
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            await store.abort_upload(key, upload_id)
    except NotFoundError:
        return  # somebody else ended it
    except (StoreError, UnsupportedError, TimeoutError) as refused:
        reason = refused.message if isinstance(refused, ResilientPQError) else "no answer"
        command = drop_command(store, key, upload_id)
        _warn(store.url_of(key), f"the upload {upload_id} was not removed ({reason}); to remove it: {command}", error)


async def abort_after(sink: ObjectSink, error: BaseException) -> str | None:
    """Abort what is written, after an error; gives what the error is made to say of what is left, None for nothing."""
    try:
        await sink.abort()
    except ResilientPQError as refused:
        note = f"what was written was not removed: {refused.message}"
        return _warn(sink.describe(), note if refused.hint is None else f"{note}; {refused.hint}", error)
    if sink.in_doubt and (command := sink.rescue_command()) is not None:
        note = f"it is not known whether it was published; if it was not, complete what was sent: {command}"
        return _warn(sink.describe(), note, error)
    return None


def _warn(place: str, note: str, error: BaseException | None) -> str:
    log.warning("%s: %s", place, note)
    told = f"{place}: {note}"
    if error is not None:
        error.add_note(told)
    return told


async def empty_uploads(
    store: MultipartStore, uploads: Collection[UploadInfo], epoch: Epoch | None = None
) -> list[str]:
    """Those of some uploads that hold no part; with an epoch, only those that were begun since its file was."""
    empty = []
    for upload in uploads:
        if epoch is not None and (
            upload.initiated is None or upload.initiated.timestamp() < epoch.began - MOST_SKEW.total_seconds()
        ):
            continue
        try:
            if not await store.list_parts(upload.key, upload.upload_id):
                empty.append(upload.upload_id)
        except NotFoundError:
            continue  # ended meanwhile
    return empty


async def uploads_left(store: object, keys: Collection[str]) -> tuple[str, ...]:
    """What there is to say of each upload that is open for one of some objects: which it is, and how to drop it."""
    if not isinstance(store, MultipartStore) or not store.capabilities.list_parts:
        return ()
    common = os.path.commonprefix(list(keys))  # noqa: RUF071 (names begin with it, folders or not)
    try:
        listed = await store.list_uploads(common)
    except (StoreError, UnsupportedError) as error:
        log.debug("%s: cannot tell which uploads are open: %s", store.url_of(common), error.message)
        return ()
    return tuple(
        f"the upload {each.upload_id} is open for {store.url_of(each.key)}, begun {_begin_time(each)}: unless somebody"
        f" writes to it, remove it: {drop_command(store, each.key, each.upload_id)}"
        for each in listed
        if each.key in keys
    )


def _begin_time(upload: UploadInfo) -> str:
    return "at an unknown time" if upload.initiated is None else upload.initiated.isoformat(timespec="seconds")
