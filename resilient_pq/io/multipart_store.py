"""Stores that take an object in parts, which survive their writer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Protocol, runtime_checkable

from resilient_pq.errors import NotFoundError
from resilient_pq.io.object_sink import Buffer, SinkOptions
from resilient_pq.io.protocols import ReadStore, WriteStore
from resilient_pq.io.stored_object import ObjectInfo
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import MiB

#: Every part but the last has at least this size (Amazon S3 User Guide, "Amazon S3 multipart upload limits").
MIN_PART_BYTES = 5 * MiB


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a multipart upload, as the store acknowledged or lists it."""

    number: int  # From 1
    size: int  # Bytes
    etag: str  # The store's name for these bytes, needed to complete
    crc32: int | None = None  # CRC32 of the bytes where the store keeps it, unsigned
    # An earlier attempt to send these very bytes was sent whole and never answered: it may still arrive, and would
    # replace other bytes that were sent under this number meanwhile
    undecided: bool = False
    undecided_for: float = 0.0  # Seconds since the last such attempt was given up


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """An upload that was begun and neither completed nor aborted."""

    key: str  # The object it would become
    upload_id: str  # Its id; with the key, all that is needed to complete or abort it
    initiated: datetime | None  # When it was begun, as the store tells it


@runtime_checkable
class MultipartStore(WriteStore, Protocol):
    """Objects can be uploaded in parts that survive their writer, and be completed by anyone.

    The verbs are raw: parts are numbered from 1, need not arrive in order, and replace an earlier part of the
    same number.
    """

    @property
    def command_arguments(self) -> tuple[str, ...]:
        """What a command line needs to reach this very store, besides the URL and the credentials."""
        return ()

    def upload_options(self, options: SinkOptions) -> SinkOptions:
        """The options as an upload to this store has to keep them; SchemaError where it takes no parts so small."""
        return options

    def copies_from(self, store: ReadStore) -> bool:
        """Whether `copy_part` takes objects of another store: one of the same endpoint, by the same credentials."""
        return store is self

    @abstractmethod
    async def create_upload(self, key: str) -> str:
        """Begin an upload; gives its id."""

    @abstractmethod
    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        """Send one part, which survives the process when this returns; NotFoundError where there is no such upload."""

    @abstractmethod
    async def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Publish the object that the named parts make, in the order of their numbers; others are dropped."""
        # AlreadyExistsError where `if_none_match`, and the object exists. ObjectChangedError where `if_match`, an ETag,
        # and the object is another version, or gone. NotFoundError where there is no such upload.

    @abstractmethod
    async def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop the upload and its parts; NotFoundError where there is none, and the store tells."""

    @abstractmethod
    async def put(
        self, key: str, data: Sequence[Buffer] | Buffer, *, if_none_match: bool = False, if_match: str | None = None
    ) -> ObjectInfo:
        """Write a whole object at once."""
        # AlreadyExistsError where `if_none_match`, and the object exists. ObjectChangedError where `if_match`, an ETag,
        # and the object is another version, or gone, and the store can tell (`heeds_conditions`). UnsupportedError
        # where the store refuses the condition.

    @abstractmethod
    async def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Remove the object, or only the version `if_match` (else ObjectChangedError); one that is gone is no error."""

    async def heeds_conditions(self, key: str, data: bytes) -> bool:
        """Whether `put` keeps to its conditions, as shown with an object that is there, and its bytes."""
        return True

    def begun_twice(self, upload_id: str) -> bool:
        """Whether the beginning of an upload was asked for again, as no answer came: there may be another, empty."""
        return False

    async def discard_unfinished(self, key: str, *, keep: Collection[str] = ()) -> None:
        """Abort every upload of this object but those to keep, by their ids, where uploads can be listed."""
        if self.capabilities.list_parts:
            for upload in await self.uploads_of(key):
                if upload.upload_id not in keep:
                    with suppress(NotFoundError):  # it ended meanwhile
                        await self.abort_upload(key, upload.upload_id)

    async def uploads_of(self, key: str) -> list[UploadInfo]:
        """The open uploads of this object: a listing has those of `day.parquet.old` beside those of `day.parquet`."""
        return [upload for upload in await self.list_uploads(key) if upload.key == key]

    @abstractmethod
    async def list_uploads(self, prefix: str) -> list[UploadInfo]:
        """Every open upload whose key begins with `prefix`."""

    @abstractmethod
    async def list_parts(self, key: str, upload_id: str) -> list[Part]:
        """Every part the store lists, by number, in every version; NotFoundError where there is no such upload."""

    @abstractmethod
    async def copy_part(
        self, key: str, upload_id: str, number: int, source_key: str, start: int, end: int, source_etag: str | None
    ) -> Part:
        """Make a part of the bytes from `start` up to `end` of another object, copied by the store itself."""
        # Not every store heeds `source_etag`: see `copied_upload`, which asks what the source is besides.
        # ObjectChangedError where the source is another version, and the store tells; UnsupportedError where it does
        # not copy.
