"""`complete_upload`: make an object of the upload that a writer left open. An async shell."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from resilient_pq.checksum import crc32
from resilient_pq.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    FormatError,
    NotFoundError,
    NothingToRecoverError,
    PreconditionError,
    RecoveryError,
    StoreError,
    UnsupportedError,
    Where,
    located,
)
from resilient_pq.io import (
    WRITING,
    FetchCounters,
    Lease,
    MultipartStore,
    ObjectInfo,
    Part,
    RetryPolicy,
    find_epoch,
    with_retry,
)
from resilient_pq.io.resolve import Location, reach
from resilient_pq.io.upload.lease import taken_over
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.opening import read_contents
from resilient_pq.recovery.damaged_object import TAIL_BYTES
from resilient_pq.recovery.report import Outcome, Report, recovered_name
from resilient_pq.recovery.uploads.open_uploads import multipart_store, object_there, only_upload
from resilient_pq.recovery.uploads.supplied_footer import SuppliedFooter, fitted_footer, supplied_contents
from resilient_pq.recovery.uploads.upload_rule import UploadParts, size_of, upload_parts
from resilient_pq.shell_commands import command, shell_line


class ArrowMetadata(Protocol):
    """What pyarrow calls FileMetaData."""

    def write_metadata_file(self, where: Any) -> None:
        """Write a file that holds the metadata alone."""


SuppliedMetadata: TypeAlias = bytes | bytearray | memoryview | str | os.PathLike[str] | ArrowMetadata


class CompletedBy(StrEnum):
    """How the parts to take were chosen."""

    RULE = "rule"
    """The sizes of the parts: the object ends with the newest checkpoint that was stored."""
    GAP_FREE = "gap-free"
    """All parts up to the first that is missing: whatever they hold."""
    METADATA = "metadata"
    """Metadata that the caller supplied: a footer made of them was sent as the last part."""


@dataclass(frozen=True, slots=True)
class CompletedUpload:
    """An object that was made of an upload.

    Attributes:
        url: The object.
        upload_id: The upload, which is no more.
        info: The object's size and version.
        how: How the parts to take were chosen.
        num_parts: Parts of the object.
        bytes_dropped: Bytes of parts behind those, which are gone.
        num_rows: Rows of the object; None where it has to be read to know.
        rows_dropped: Rows that the supplied metadata speak of and that were not in the parts; None without metadata.
        next: The commands to run next, as argument lists.
    """

    url: str
    upload_id: str
    info: ObjectInfo
    how: CompletedBy
    num_parts: int
    bytes_dropped: int
    num_rows: int | None = None
    rows_dropped: int | None = None
    next: tuple[tuple[str, ...], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return self.info.size


async def complete_upload(
    url: Location,
    *,
    upload_id: str | None = None,
    overwrite: bool = False,
    gap_free: bool = False,
    metadata: SuppliedMetadata | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> CompletedUpload:
    """Complete the upload that a writer left open.

    An upload of ours becomes a Parquet file with every row that was stored. Of any other, which the sizes of its parts
    tell, all parts up to the first that is missing are taken, and `recover` is the next thing to do; or `metadata`
    tell what lies in them, and it becomes a Parquet file at once. Parts that are not taken are gone then.

    Args:
        url: The object that was being written.
        upload_id: Which upload, when several are open for this object.
        overwrite: Replace the object that is at `url`; that very version, where the store can tell.
        gap_free: Take all parts up to the first that is missing, for an upload known to be another's, although the
            sizes of its parts might be ours.
        metadata: Of the file that was being written, or of the same file written once more: the bytes, path or URL of
            a file whose footer counts, such as one of `pyarrow.parquet.write_metadata`, or pyarrow's FileMetaData
            itself. A footer of the row groups that lie in the gap-free parts is sent behind them as one more part; a
            part of that number is replaced, if it is too small to stand before another.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        NotFoundError: No such upload is open for this object.
        AlreadyExistsError: There is an object at `url`, and `overwrite` is False; or one came meanwhile.
        NothingToRecoverError: There is no part 1, or no row group of `metadata` lies in the parts.
        RecoveryError: Several uploads are open and none was named; or the parts changed meanwhile, since the writer
            is alive; or `metadata` are not of such a file.
        FormatError: `metadata` are damaged.
        WriterFencedError: Somebody else resumes or completes it at this moment.
        UnsupportedError: The store has no uploads, or `metadata` speak of encrypted columns.
        StoreError: The store refused.
    """
    storage_options = with_retry(storage_options, retry)
    contents = None if metadata is None else await _contents_of(metadata, storage_options)
    async with multipart_store(url, storage_options, retry=WRITING) as (store, key):
        with located(Where(key=store.url_of(key))):
            # What is missing is told first: nobody should replace an object for the sake of an upload that is gone.
            chosen = upload_id or await only_upload(store, key)
            lease = await _take_lease(store, key, chosen)
            found = upload_parts(await store.list_parts(key, chosen))
            condition = await _condition(store, key, overwrite=overwrite)
            upload = _Completion(store, key, chosen, condition)
            if contents is None:
                done = await upload.of_parts(found, gap_free=gap_free)
            else:
                done = await upload.of_metadata(found, contents)
            if lease is not None:
                await lease.release()
            return done


async def _take_lease(store: MultipartStore, key: str, upload_id: str) -> Lease | None:
    """Take the lease of an upload from its writer, to which nothing counts as stored from then on."""
    try:
        found = await find_epoch(store, key)
    except (AccessDeniedError, FormatError):
        return None
    if found is None or upload_id not in found.epoch.uploads:
        return None
    return await taken_over(store, key, found, strict=False)


async def _contents_of(metadata: SuppliedMetadata, storage_options: Mapping[str, Any] | None) -> Contents:
    """What the metadata say."""
    if isinstance(metadata, str | os.PathLike):
        store, key = await reach(metadata, storage_options)
        async with store:
            with located(Where(key=store.url_of(key))):
                _, contents = await read_contents(
                    store, key, tail_bytes=TAIL_BYTES, counters=FetchCounters(), verify=False
                )
                return contents
    if isinstance(metadata, bytes | bytearray | memoryview):
        return supplied_contents(bytes(metadata))
    written = io.BytesIO()
    metadata.write_metadata_file(written)
    return supplied_contents(written.getvalue())


async def _condition(store: MultipartStore, key: str, *, overwrite: bool) -> dict[str, Any]:
    """What has to hold when the upload is completed: that there is still what is there now, nothing or a version."""
    try:
        there = await object_there(store, key)
    except AccessDeniedError:  # credentials that may only write
        return {"if_none_match": not overwrite}
    if there is not None and not overwrite:
        raise AlreadyExistsError(
            f"there is an object of {there.size:,} bytes already",
            hint="look at both with rpq uploads show; --overwrite (overwrite=True) replaces the object",
        )
    return {"if_none_match": True} if there is None else {"if_match": there.etag}


@dataclass(frozen=True, slots=True)
class _Completion:
    """One upload that is about to be completed."""

    store: MultipartStore
    key: str
    upload_id: str
    condition: Mapping[str, Any]

    @property
    def url(self) -> str:
        return self.store.url_of(self.key)

    async def of_parts(self, found: UploadParts, *, gap_free: bool) -> CompletedUpload:
        """As far as the parts go."""
        parts = found.chosen(gap_free=gap_free)
        if not parts:
            raise self._nothing("the upload has no part 1", found)
        info = await self._publish(parts, listed=parts)
        how = CompletedBy.RULE if parts == found.by_rule and found.fits_rule else CompletedBy.GAP_FREE
        recovering = command("recover", self.url, recovered_name(self.url))
        return CompletedUpload(
            self.url,
            self.upload_id,
            info,
            how,
            num_parts=len(parts),
            bytes_dropped=size_of(found.behind(parts)),
            next=(command("check", self.url) if how is CompletedBy.RULE else recovering,),
        )

    async def of_metadata(self, found: UploadParts, contents: Contents) -> CompletedUpload:
        """With a footer as one more part."""
        before = found.before_another
        made: SuppliedFooter = fitted_footer(contents, size_of(before))
        if not made.num_row_groups:
            raise self._nothing("no row group of the metadata lies in the parts", found, contents)
        footer = await self.store.put_part(self.key, self.upload_id, len(before) + 1, made.footer)
        if all(part.crc32 is not None for part in before):
            footer = replace(footer, crc32=crc32(made.footer))  # an upload with checksums has one of each part
        info = await self._publish((*before, footer), listed=before)
        return CompletedUpload(
            self.url,
            self.upload_id,
            info,
            CompletedBy.METADATA,
            num_parts=len(before) + 1,
            bytes_dropped=size_of(found.behind(before)),
            num_rows=made.num_rows,
            rows_dropped=made.rows_dropped,
            next=(command("check", self.url),),
        )

    async def _publish(self, parts: Sequence[Part], *, listed: Sequence[Part]) -> ObjectInfo:
        """Complete the upload, unless another object came meanwhile."""
        try:
            try:
                return await self.store.complete_upload(self.key, self.upload_id, parts, **self.condition)
            except UnsupportedError:  # the store knows no conditions: what it said a moment ago must do
                return await self.store.complete_upload(self.key, self.upload_id, parts)
        except asyncio.CancelledError as error:
            telling = shell_line(["rpq", "uploads", "show", self.url, *self.store.command_arguments])
            error.add_note(f"the upload may be completed already: {telling}")
            raise
        except (NotFoundError, AlreadyExistsError, AccessDeniedError, PreconditionError):
            raise
        except StoreError as error:
            if error.retryable or not await self._changed(listed):
                raise
            raise RecoveryError(
                "parts of the upload changed while it was completed: a writer seems to be alive",
                hint="stop that writer, or wait for its end; nothing was completed",
            ) from error

    async def _changed(self, listed: Sequence[Part]) -> bool:
        try:
            now = upload_parts(await self.store.list_parts(self.key, self.upload_id)).listed
        except StoreError:
            return False  # the earlier error says more
        etags = {part.number: part.etag for part in now}
        return any(etags.get(part.number) != part.etag for part in listed)

    def _nothing(self, reason: str, found: UploadParts, contents: Contents | None = None) -> NothingToRecoverError:
        report = Report(
            verb="uploads complete",
            url=self.url,
            outcome=Outcome.NOTHING,
            num_rows=0,
            size=found.num_bytes,
            schema=None if contents is None else str(contents.schema),
        )
        return NothingToRecoverError(f"nothing can be completed: {reason}", report=report)
