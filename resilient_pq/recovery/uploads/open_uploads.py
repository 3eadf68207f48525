"""Uploads that were begun and never completed: found, described and aborted. An async shell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from resilient_pq.errors import FormatError, NotFoundError, RecoveryError, UnsupportedError, Where
from resilient_pq.io import (
    READING,
    WRITING,
    FetchCounters,
    MultipartStore,
    ObjectInfo,
    RetryPolicy,
    UploadInfo,
    place_of,
    with_retry,
)
from resilient_pq.io.cancellation import all_or_none
from resilient_pq.io.resolve import Location
from resilient_pq.io.upload.lease import forget_upload
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.reader.opening import read_contents
from resilient_pq.recovery.damaged_object import TAIL_BYTES
from resilient_pq.recovery.uploads.upload_rule import UploadParts, size_of, upload_parts
from resilient_pq.writer.checkpoint_log import LoggedCheckpoint, read_log, rows_stored

_MAX_CONCURRENCY = 16  # Uploads whose parts are listed at one time


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that was begun and neither completed nor aborted, and what its parts hold.

    Of a part that was sent again the store may list several versions; the largest counts everywhere here.

    Attributes:
        url: The object that it would become.
        key: The same, as the store names it.
        upload_id: Its id; with the URL, all that is needed to complete or abort it.
        initiated: When it was begun, as the store tells it; None where it does not.
        num_parts: Parts that are there.
        num_bytes: Bytes of them all.
        gap_free_bytes: Bytes of parts 1, 2, ... up to the first that is missing.
        gap: The number of the first part that is missing before others; None when none is.
        stored_bytes: Bytes up to the end of the newest stored checkpoint; None where the sizes of the parts are
            not those that a writer of ours leaves.
        num_rows: Rows before that end, as the log of the writer tells; None where it does not.
    """

    url: str
    key: str
    upload_id: str
    initiated: datetime | None
    num_parts: int
    num_bytes: int
    gap_free_bytes: int
    gap: int | None
    stored_bytes: int | None
    num_rows: int | None = None

    @property
    def fits_rule(self) -> bool:
        """Whether the sizes of the parts are those that a writer of ours leaves."""
        return self.stored_bytes is not None

    @property
    def completable_bytes(self) -> int:
        """Bytes of the object that completing the upload would make."""
        return self.gap_free_bytes if self.stored_bytes is None else self.stored_bytes

    @property
    def bytes_behind(self) -> int:
        """Bytes of the parts that completing the upload would drop."""
        return self.num_bytes - self.completable_bytes


@dataclass(frozen=True, slots=True)
class ResumeInfo:
    """What somebody would find who completed or resumed the writing of an object now.

    Attributes:
        url: The object.
        uploads: The uploads that are open for it, oldest first.
        object: The object that is there already; None where there is none.
        state: What that object says of itself; None for files of others, and for what has no footer.
        num_rows: Its rows; None where there is no object, or it has no footer that can be read.
        file_id: The id of the file, hexadecimal; None for files of others.
    """

    url: str
    uploads: tuple[Upload, ...]
    object: ObjectInfo | None = None
    state: FileState | None = None
    num_rows: int | None = None
    file_id: str | None = None


async def list_uploads(
    url: Location,
    *,
    older_than: timedelta | None = None,
    log: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> list[Upload]:
    """The uploads that were left open below a URL, oldest first.

    Args:
        url: "s3://bucket", "s3://bucket/prefix", or a pair of a store and a prefix: everything counts whose name
            begins with it, as with S3 itself.
        older_than: Only those that were begun so long ago, or longer, by the clocks of the store and of this machine;
            those whose age the store does not tell are left out.
        log: The log that the writer kept of its checkpoints (`WriteOptions.checkpoint_log`), for `Upload.num_rows`.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.

    Raises:
        UnsupportedError: The store has no uploads.
        NotFoundError: There is no such bucket, or no such log.
        FormatError: `log` is no log.
        StoreError: The store refused.
    """
    storage_options = with_retry(storage_options, retry)
    logged = await _read_log(log)
    async with multipart_store(url, storage_options, bucket_alone=True) as (store, prefix):
        found = await store.list_uploads(prefix)
        if older_than is not None:
            newest = datetime.now(UTC) - older_than
            found = [each for each in found if each.initiated is not None and each.initiated <= newest]
        return await _described(store, found, logged)


async def abort_upload(
    url: Location,
    *,
    upload_id: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> str:
    """Drop an upload that was left open, and all its parts: what it holds is lost.

    Args:
        url: The object that was being written.
        upload_id: Which upload; may be left out when there is one only.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Returns:
        The id of the upload that was dropped.

    Raises:
        NotFoundError: No such upload is open for this object.
        RecoveryError: Several uploads are open and none was named.
        UnsupportedError: The store has no uploads.
        StoreError: The store refused.
    """
    storage_options = with_retry(storage_options, retry)
    async with multipart_store(url, storage_options, retry=WRITING) as (store, key):
        chosen = upload_id or await only_upload(store, key)
        await store.abort_upload(key, chosen)
        await forget_upload(store, key, chosen)
        return chosen


async def resume_info(
    url: Location,
    *,
    upload_id: str | None = None,
    log: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> ResumeInfo:
    """What is there of an object whose writer did not finish: its open uploads, and the object itself.

    Nothing is changed, and of the object only the footer is read.

    Args:
        url: The object that was being written.
        upload_id: The upload to look at; all that are open for this object otherwise.
        log: The log that the writer kept of its checkpoints (`WriteOptions.checkpoint_log`), for `Upload.num_rows`.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.

    Raises:
        NotFoundError: The upload that was named is not open for this object, or there is no such log.
        FormatError: `log` is no log.
        UnsupportedError: The store has no uploads.
        StoreError: The store refused.
    """
    storage_options = with_retry(storage_options, retry)
    logged = await _read_log(log)
    async with multipart_store(url, storage_options) as (store, key):
        found = await store.uploads_of(key)
        if upload_id is not None:
            found = [each for each in found if each.upload_id == upload_id]
            if not found:
                raise NotFoundError(f"no such upload is open: {upload_id}", where=Where(key=store.url_of(key)))
        uploads = tuple(await _described(store, found, logged))
        info = await object_there(store, key)
        contents = None if info is None else await _contents(store, key)
        if contents is None:
            return ResumeInfo(store.url_of(key), uploads, info)
        record = contents.footer.record
        file_id = None if record is None or contents.state is None else record.file_id.hex()
        return ResumeInfo(store.url_of(key), uploads, info, contents.state, contents.num_rows, file_id)


@asynccontextmanager
async def multipart_store(
    url: Location,
    storage_options: Mapping[str, Any] | None,
    *,
    bucket_alone: bool = False,
    retry: RetryPolicy = READING,
) -> AsyncIterator[tuple[MultipartStore, str]]:
    """The store of a URL, closed at the end unless it was given, and the key there."""
    async with place_of(url, storage_options, bucket_alone=bucket_alone, retry=retry) as (store, key):
        if not isinstance(store, MultipartStore):
            raise UnsupportedError(
                "this store has no multipart uploads",
                where=Where(key=store.url_of(key)),
                hint="only S3 has uploads: name s3://bucket/key",
            )
        yield store, key


async def only_upload(store: MultipartStore, key: str) -> str:
    """The id of the upload that is open for an object."""
    found = await store.uploads_of(key)
    where = Where(key=store.url_of(key))
    if not found:
        raise NotFoundError("no upload is open for this object", where=where)
    if len(found) > 1:
        ids = ", ".join(upload.upload_id for upload in found)
        raise RecoveryError(
            "several uploads are open for this object",
            where=where,
            hint=f"choose one with --upload-id (upload_id=): {ids}",
        )
    return found[0].upload_id


async def object_there(store: MultipartStore, key: str) -> ObjectInfo | None:
    """The object, if there is one."""
    try:
        return await store.head(key)
    except NotFoundError:
        return None


async def _contents(store: MultipartStore, key: str) -> Contents | None:
    try:
        _, contents = await read_contents(store, key, tail_bytes=TAIL_BYTES, counters=FetchCounters())
    except (FormatError, UnsupportedError):
        return None
    return contents


async def _read_log(path: str | os.PathLike[str] | None) -> list[LoggedCheckpoint]:
    return [] if path is None else await asyncio.to_thread(read_log, path)


async def _described(
    store: MultipartStore, found: Sequence[UploadInfo], logged: Sequence[LoggedCheckpoint]
) -> list[Upload]:
    """Each with its parts, oldest first; those that end meanwhile are left out."""
    slots = asyncio.Semaphore(_MAX_CONCURRENCY)

    async def describe(info: UploadInfo) -> Upload | None:
        async with slots:
            try:
                listed = await store.list_parts(info.key, info.upload_id)
            except NotFoundError:
                return None
        return _upload(info, store.url_of(info.key), upload_parts(listed), logged)

    described = await all_or_none(describe(info) for info in found)
    return sorted((upload for upload in described if upload is not None), key=_by_age)


def _upload(info: UploadInfo, url: str, parts: UploadParts, logged: Sequence[LoggedCheckpoint]) -> Upload:
    stored = size_of(parts.by_rule) if parts.by_rule is not None and parts.fits_rule else None
    return Upload(
        url,
        info.key,
        info.upload_id,
        info.initiated,
        num_parts=len(parts.listed),
        num_bytes=parts.num_bytes,
        gap_free_bytes=size_of(parts.gap_free),
        gap=parts.gap,
        stored_bytes=stored,
        num_rows=rows_stored(logged, upload_id=info.upload_id, num_bytes=stored),
    )


def _by_age(upload: Upload) -> tuple[bool, datetime, str, str]:
    known = upload.initiated is not None
    return not known, upload.initiated or datetime.max.replace(tzinfo=UTC), upload.url, upload.upload_id
