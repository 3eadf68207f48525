"""S3 and everything that speaks its language: keys are ``bucket/name``, credentials and endpoints are s3fs's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from resilient_pq.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    NotFoundError,
    PreconditionError,
    SchemaError,
    StoreError,
    TransientError,
    UnsupportedError,
)
from resilient_pq.io.multipart_store import MIN_PART_BYTES, MultipartStore, Part
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS, ObjectSink, SinkOptions
from resilient_pq.io.protocols import Capabilities, ReadStore
from resilient_pq.io.s3.object_etags import (
    FULL_OBJECT,
    Fingerprint,
    crc32_of_parts,
    encoded,
    full_crc32,
    multipart_etag,
)
from resilient_pq.io.s3.s3_objects import checksum_mode, info_of
from resilient_pq.io.s3.s3_parts import S3Parts
from resilient_pq.io.s3.s3_responses import code_of, refuses_parameter
from resilient_pq.io.stored_object import ObjectInfo, bare_etag
from resilient_pq.io.upload.multipart import MultipartSink


class S3Store(S3Parts, MultipartStore):
    """Buckets of one endpoint.

    Bytes are sent with their CRC32, and an object is completed with that of all its parts, where the store
    takes them; which it does is found out by the first request of each kind.
    """

    _plain_completion = False  # until the store refuses to complete with a size and a checksum
    _if_match = True  # until the store refuses to complete on this condition

    @property
    def capabilities(self) -> Capabilities:
        """What S3 can do; of equal parts, what `fixed_upload_size` says."""
        return Capabilities(
            suffix_range=True,
            if_match=True,
            if_none_match=True,
            multipart=True,
            list_parts=True,
            equal_parts=self._equal_parts,
            server_side_copy=True,
            list_names=True,
        )

    @property
    def command_arguments(self) -> tuple[str, ...]:
        """The endpoint, where the options name one: whoever rescues an upload has only a shell."""
        url = self._client.endpoint_url
        return () if url is None else ("--endpoint-url", url)

    def copies_from(self, store: ReadStore) -> bool:
        """Whether the other was made with the same options, as far as they say where it is and who asks."""
        return isinstance(store, S3Store) and self._client.is_alike(store._client)

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        """Begin an object; nothing is sent before one part of it is full.

        Raises:
            AlreadyExistsError: ``mode="x"``, and the object exists; the store decides again when it is
            completed. BucketNotFoundError: ``mode="x"``, and there is no such bucket. SchemaError: `part_bytes` is
            smaller than the 5 MiB that S3 demands.
        """
        options = self.upload_options(options)
        if options.mode == "x":
            try:
                await self.head(key)
            except BucketNotFoundError:
                raise
            except NotFoundError:
                pass
            else:
                raise self._exists_error(key)
        return MultipartSink(self, key, options)

    def upload_options(self, options: SinkOptions) -> SinkOptions:
        """Parts are equal where `fixed_upload_size` asks for it, and have at least 5 MiB."""
        if options.part_bytes < MIN_PART_BYTES:
            raise SchemaError(f"part_bytes is {options.part_bytes:,}; parts on S3 have at least 5 MiB")
        return replace(options, equal_parts=True) if self._equal_parts else options

    async def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Publish the object, naming every part's ETag, and compare its size and checksum with those of the parts.

        Raises:
            StoreError: Where it is retryable it has `keep_upload`: nothing is lost, and the same parts can be
            completed again, also when they were already and only the reply was lost.
        """
        chosen = sorted(parts, key=lambda part: part.number)
        full = self._checksum_types.get(upload_id) == FULL_OBJECT
        fingerprint = Fingerprint(
            sum(part.size for part in chosen), multipart_etag(chosen), crc32_of_parts(chosen) if full else None
        )
        try:
            info = await self._complete(key, upload_id, chosen, fingerprint, if_none_match, if_match)
            found = await self._verify_completed(info, fingerprint)
        except StoreError as error:
            if error.retryable:
                error.keep_upload = True
                error.hint = f"the upload is kept, and can be completed again; its id is {upload_id}"
            elif error.undecided and isinstance(error, NotFoundError):
                error.hint = "an attempt whose reply was lost may have completed it: look at the object"
            raise
        self._forget(upload_id)
        return found

    async def _complete(
        self,
        key: str,
        upload_id: str,
        chosen: list[Part],
        fingerprint: Fingerprint,
        if_none_match: bool,
        if_match: str | None,
    ) -> ObjectInfo:
        """The object, by one completion or by one before it whose reply was lost."""
        condition: dict[str, str] = {}
        if if_none_match:
            condition = await self._if_none_match("complete_multipart_upload")
        elif if_match is not None:
            # Not every store heeds the condition, and some refuse it: so it is looked at here too.
            if (info := await self._find_completed(key, if_match, fingerprint)) is not None:
                return info
            if self._if_match and await self._client.accepts("complete_multipart_upload", "IfMatch"):
                condition = {"IfMatch": if_match}

        async def send() -> ObjectInfo:
            try:
                answer = await self._send_completion(key, upload_id, chosen, fingerprint, condition)
            except (StoreError, UnsupportedError) as error:
                if "IfMatch" not in condition or not refuses_parameter(error):
                    raise
                answer = await self._send_completion(key, upload_id, chosen, fingerprint, {})
                self._if_match = False
            # Without an ETag it is no answer at all, and what became of the object is not known.
            etag = str(self._required_field(answer, "ETag", key))
            return ObjectInfo(key, fingerprint.size, etag, answer.get("VersionId"))

        def refused(error: StoreError) -> StoreError:
            if if_match is not None and (isinstance(error, PreconditionError) or code_of(error) == "NoSuchKey"):
                return self._changed_error(key)
            return self._exists_error(key) if isinstance(error, PreconditionError) else error

        try:
            return await self._publishing(key, send, lambda: fingerprint, refused=refused)
        except TransientError as error:
            try:
                await self._refuse_gone(key, upload_id)
            except NotFoundError as gone:
                gone.undecided = error.undecided
                raise
            raise

    async def _send_completion(
        self, key: str, upload_id: str, chosen: list[Part], fingerprint: Fingerprint, condition: Mapping[str, str]
    ) -> dict[str, Any]:
        """One completion, with size and checksum of the object; without them where the store does not know them."""
        # The checksums of the parts are named whenever they are known: MinIO, and S3 itself where the checksum of the
        # object is made of them, refuse a completion of such an upload without them.
        request = partial(self._call, "complete_multipart_upload", key, UploadId=upload_id, **condition)
        named = [{"PartNumber": part.number, "ETag": part.etag} for part in chosen]
        crcs = [encoded(part.crc32) for part in chosen if part.crc32 is not None]
        if len(crcs) == len(chosen):
            named = [{**one, "ChecksumCRC32": crc} for one, crc in zip(named, crcs, strict=True)]
        request = partial(request, MultipartUpload={"Parts": named})
        if self._plain_completion:
            return await request()
        sums: dict[str, Any] = {}
        if await self._client.accepts("complete_multipart_upload", "MpuObjectSize"):
            sums["MpuObjectSize"] = fingerprint.size
        if fingerprint.crc32 is not None:
            sums |= {"ChecksumCRC32": encoded(fingerprint.crc32), "ChecksumType": FULL_OBJECT}
        try:
            return await request(**sums)
        except (StoreError, UnsupportedError) as error:
            if not refuses_parameter(error):
                raise
            answer = await request()
            self._plain_completion = True
            return answer

    async def _find_completed(self, key: str, if_match: str, fingerprint: Fingerprint) -> ObjectInfo | None:
        """The object, if these parts were completed already and the reply was lost; None if it has this ETag."""
        try:
            answer = await self._attempts.of(lambda: self._call("head_object", key, **checksum_mode(fingerprint)))
        except NotFoundError as error:
            raise self._changed_error(key) from error
        except AccessDeniedError:
            return None  # credentials that may only write: the store alone decides
        if bare_etag(str(answer.get("ETag"))) == bare_etag(if_match):
            return None
        if fingerprint.is_of(answer):
            return info_of(key, answer)
        raise self._changed_error(key)

    async def _verify_completed(self, info: ObjectInfo, fingerprint: Fingerprint) -> ObjectInfo:
        """A completed object, after its size and checksum were compared with those of its parts."""
        try:
            answer = await self._attempts.of(lambda: self._call("head_object", info.key, **checksum_mode(fingerprint)))
        except AccessDeniedError:
            return info  # credentials that may only write
        found = info_of(info.key, answer)
        if found.etag is not None and info.etag is not None and bare_etag(found.etag) != bare_etag(info.etag):
            return info  # somebody wrote another one since
        if found.size != info.size:
            raise StoreError(
                f"the completed object has {found.size:,} bytes instead of {info.size:,}", where=self._where(info.key)
            )
        crc32 = full_crc32(answer)
        if None not in (crc32, fingerprint.crc32) and crc32 != fingerprint.crc32:
            raise StoreError(
                f"the completed object has CRC32 {crc32:08x} instead of {fingerprint.crc32:08x}",
                where=self._where(info.key),
            )
        return found
