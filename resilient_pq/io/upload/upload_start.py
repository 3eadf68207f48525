"""Begins uploads under a lease, and drops those that nobody will write to, or names the command. An async shell."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

from resilient_pq.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    FormatError,
    NotFoundError,
    ObjectChangedError,
    PreconditionError,
    RangeError,
    ResilientPQError,
    StoreError,
    UnsupportedError,
    Where,
)
from resilient_pq.io.cancellation import GRACE_SECONDS
from resilient_pq.io.multipart_store import MultipartStore, Part, UploadInfo
from resilient_pq.io.object_sink import ObjectSink
from resilient_pq.io.protocols import ReadStore
from resilient_pq.io.stored_object import ObjectInfo, bare_etag
from resilient_pq.io.upload.epoch import Epoch
from resilient_pq.io.upload.lease import Lease, find_epoch
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


#: An upload whose beginning was not answered was begun no longer before that which was asked for again.
_LOST_REPLY = timedelta(minutes=5)


async def begin_upload(store: MultipartStore, key: str, lease: Lease | None) -> str:
    """Begin an upload, and name it in its lease before any part is sent: an upload that no lease names is empty."""
    upload_id = await _create_upload(store, key, lease)
    try:
        duplicates = await duplicates_of(store, key, upload_id)
        if lease is not None:
            await lease.name(upload_id)
    except BaseException as error:
        await drop_upload(store, key, upload_id, error)
        raise
    # Nobody has taken the lease since these were listed: none of them is of a writer that is to hold it.
    for duplicate in duplicates:
        await drop_upload(store, key, duplicate)
    return upload_id


async def _create_upload(store: MultipartStore, key: str, lease: Lease | None) -> str:
    """Create an upload while its lease is taken; it holds nothing yet, and is removed where the lease is refused."""
    if lease is None:
        return await store.create_upload(key)
    if lease.is_exclusive:
        await lease.take()
        return await store.create_upload(key)
    creating = asyncio.create_task(store.create_upload(key))
    try:
        await lease.take()
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError):
            creating.cancel()
        (made,) = await asyncio.gather(creating, return_exceptions=True)
        if isinstance(made, str):
            await drop_upload(store, key, made, error)
        raise
    return await creating


async def drop_duplicates(store: MultipartStore, key: str, upload_id: str, lease: Lease | None) -> None:
    """Drop the duplicates of an upload that is about to be completed: the store may have begun one late."""
    duplicates = await duplicates_of(store, key, upload_id)
    if duplicates and lease is not None:
        await lease.confirm()
    for duplicate in duplicates:
        await drop_upload(store, key, duplicate)


async def duplicates_of(store: MultipartStore, key: str, upload_id: str) -> Sequence[str]:
    """The empty uploads that were begun beside one, by requests whose answers were lost."""
    # Of no other writer anybody can be told that anything is stored in them: they hold no part, and no epoch object
    # names them.
    if not store.begun_twice(upload_id):
        return []
    try:
        found = await find_epoch(store, key)
        named = () if found is None else found.epoch.uploads
        listed = await store.uploads_of(key)
        begun = next((each.initiated for each in listed if each.upload_id == upload_id), None)
        others = [
            each
            for each in listed
            if each.upload_id not in (upload_id, *named)
            and begun is not None
            and each.initiated is not None
            and abs(begun - each.initiated) < _LOST_REPLY
        ]
        return await empty_uploads(store, others)
    except (StoreError, UnsupportedError, FormatError) as error:
        log.warning(
            "%s: a request to begin its upload was not answered, and may have left an empty one (%s); see: %s",
            store.url_of(key),
            error.message,
            upload_command(store, "list", key),
        )
        return []


async def refuse_changed(store: ReadStore, source: ObjectInfo, end: int) -> None:
    """Raise unless the source is still the version that is wanted, and has so many bytes."""
    where = Where(key=store.url_of(source.key))
    try:
        now = await store.head(source.key)
    except NotFoundError as error:
        raise ObjectChangedError("the object was removed while it was copied", where=where) from error
    if now.etag is None or source.etag is None or bare_etag(now.etag) != bare_etag(source.etag):
        raise ObjectChangedError("the object was replaced while it was copied", where=where)
    if end > now.size:
        raise RangeError(f"{end:,} is beyond the {now.size:,} bytes of the source", where=where)


def refuses_to_copy(error: StoreError | UnsupportedError) -> bool:
    """Whether the store will not copy, though it may well let the bytes be read and written."""
    if isinstance(error, UnsupportedError):
        return True
    return not error.retryable and not isinstance(error, NotFoundError | PreconditionError | RangeError)


_WAITS: Final = (0.0, 0.2, 0.8, 3.0)  # Seconds before each time that is asked: a listing may be a little old


async def findable_parts(store: MultipartStore, key: str, upload_id: str) -> list[Part] | None:
    """The parts of an open upload that has some; None where the store does not list them, or not the upload itself."""
    # Credentials that may not list uploads prove nothing: others may be used to look for one.
    for wait in _WAITS:
        await asyncio.sleep(wait)
        try:
            parts = await store.list_parts(key, upload_id)
        except UnsupportedError:
            return None
        except BucketNotFoundError:
            raise
        except NotFoundError:
            if await _is_listed(store, key, upload_id):
                return None  # it is open, and yet nothing is told of its parts
            raise
        listed = await _is_listed(store, key, upload_id)
        if listed is None:
            return None
        if listed and parts:
            return parts
    return None


async def _is_listed(store: MultipartStore, key: str, upload_id: str) -> bool | None:
    """Whether the store lists the upload; True where the credentials may not list, None where the store cannot."""
    try:
        return any(found.upload_id == upload_id for found in await store.list_uploads(key))
    except AccessDeniedError:
        return True
    except UnsupportedError:
        return None
    except StoreError as error:
        if error.retryable:
            raise
        return None
