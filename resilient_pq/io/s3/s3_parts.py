"""Uploads to S3 in parts: begun, sent, copied, listed and dropped; `s3` completes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from resilient_pq.errors import (
    NotFoundError,
    ObjectChangedError,
    PreconditionError,
    StoreError,
    TransientError,
    UnsupportedError,
)
from resilient_pq.io.multipart_store import Part, UploadInfo
from resilient_pq.io.object_sink import Buffer, pieces_of
from resilient_pq.io.s3.object_etags import COMPOSITE, FULL_OBJECT, crc32_of, decoded, md5_of
from resilient_pq.io.s3.s3_objects import S3Objects, may_be_about_checksums, split_key
from resilient_pq.io.s3.s3_responses import code_of, refuses_parameter, status_of
from resilient_pq.io.stored_object import bare_etag
from resilient_pq.io.transfer.retry import WRITING, RetryPolicy

log = logging.getLogger("resilient_pq.io")

# When a store is asked for a part that was sent whole and not answered: at once, and again after waits of so many
# times the first one of the policy, 3 s in all; but no more than this share of the time that the policy allows, so that
# several may be lost. It is not sent again meanwhile: of two copies under way nobody could tell which has arrived.
_ASKED_AGAIN = (0, 2, 4, 8, 16)
_SHARE_ASKED = 0.1
# A page has 1,000 parts, and some stores list a part that was sent twice twice.
_ON_FIRST_PAGE = 500


class S3Parts(S3Objects):
    """What `S3Store` does with uploads before they are completed."""

    def __init__(self, storage_options: Mapping[str, Any] | None = None, *, retry: RetryPolicy = WRITING) -> None:
        super().__init__(storage_options, retry=retry)
        self._equal_parts = bool((storage_options or {}).get("fixed_upload_size", False))
        # Of the uploads that keep the CRC32 of their parts, by id: whether that of the object covers its bytes
        # (FULL_OBJECT) or the sums of its parts (COMPOSITE).
        self._checksum_types: dict[str, str] = {}
        self._begun_twice: set[str] = set()  # uploads whose beginning was asked for again, as no answer had come
        # Of the uploads that parts were sent to, the bytes of each part that was acknowledged, by number.
        self._acknowledged: dict[str, dict[int, int]] = {}
        self._pins_copies = True  # until the store refuses to copy of one version only

    async def create_upload(self, key: str) -> str:
        """Begin an upload, one that keeps a CRC32 of all its bytes where the store can; gives its id."""
        unanswered = False

        async def send() -> tuple[str, dict[str, Any]]:
            nonlocal unanswered
            try:
                answer = await self._create_upload(key)
                return str(self._required_field(answer, "UploadId", key)), answer
            except StoreError as error:
                unanswered = unanswered or error.undecided
                raise

        upload_id, answer = await self._attempts.of(send)
        if unanswered:
            self._begun_twice.add(upload_id)
        if not self._note_checksums(upload_id, answer):
            self._without_crc32.add("create_multipart_upload")
        return upload_id

    def begun_twice(self, upload_id: str) -> bool:
        """Whether an earlier request for it was sent whole and not answered: it may have begun another one."""
        return upload_id in self._begun_twice

    async def _create_upload(self, key: str) -> dict[str, Any]:
        request = partial(self._call, "create_multipart_upload", key)
        known = await self._client.accepts("create_multipart_upload", "ChecksumType")
        if not known or not self._may_take_crc32("create_multipart_upload"):
            return await request()
        try:
            return await request(ChecksumAlgorithm="CRC32", ChecksumType=FULL_OBJECT)
        except (StoreError, UnsupportedError) as error:
            if not may_be_about_checksums(error):
                raise
            return await request()

    def _note_checksums(self, upload_id: str, answer: Mapping[str, Any]) -> bool:
        """Remember the type of an upload's checksum; whether the store keeps the CRC32 of its parts."""
        if answer.get("ChecksumAlgorithm") != "CRC32":
            return False
        # A MinIO that knows no types does not name one, and wants the sum of each part all the same.
        self._checksum_types[upload_id] = str(answer.get("ChecksumType", COMPOSITE))
        return True

    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        """Send one part, again and again with the same bytes until it is acknowledged."""
        pieces = pieces_of(data)
        size = sum(piece.nbytes for piece in pieces)
        takes_crc32 = upload_id in self._checksum_types and self._may_take_crc32("upload_part")
        crc32 = await crc32_of(pieces) if takes_crc32 else None

        async def send() -> Part:
            request = partial(self._call, "upload_part", key, UploadId=upload_id, PartNumber=number, Body=pieces)
            if crc32 is None:
                answer, compared = await request(), False
            else:
                answer, compared = await self._with_crc32("upload_part", key, crc32, request)
            return Part(number, size, str(self._required_field(answer, "ETag", key)), crc32 if compared else None)

        md5: str | None = None

        async def arrived() -> Part | None:
            nonlocal md5
            if md5 is None:
                md5 = await asyncio.to_thread(md5_of, pieces)
            return await self._part_there(key, upload_id, number, size, md5, crc32)

        # Bytes that are sent once more are there already: a listing would not tell of this time.
        before = self._acknowledged.setdefault(upload_id, {})
        part = await self._send_part(key, upload_id, send, None if before.get(number) == size else arrived)
        before[number] = size
        return part

    async def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop the upload and its parts."""
        failed = False

        async def send() -> None:
            nonlocal failed
            try:
                await self._call("abort_multipart_upload", key, UploadId=upload_id)
            except NotFoundError:
                if not failed:  # otherwise an earlier attempt did it, and its reply was lost
                    raise
            except StoreError:
                failed = True
                raise

        await self._attempts.of(send)
        self._forget(upload_id)

    def _forget(self, upload_id: str) -> None:
        """An upload has ended."""
        self._checksum_types.pop(upload_id, None)
        self._acknowledged.pop(upload_id, None)

    async def list_uploads(self, prefix: str) -> list[UploadInfo]:
        """Every open upload whose key begins with `prefix`, which begins with the bucket."""
        bucket, name = split_key(prefix)
        found = await self._list_uploads(bucket, name)
        if name and not found:
            # MinIO and others answer only to whole keys: so ask for all, and choose.
            found = await self._list_uploads(bucket, "")
        return [upload for upload in found if upload.key.startswith(prefix)]

    async def list_parts(self, key: str, upload_id: str) -> list[Part]:
        """Every part, by number, and of one number every version that is listed."""
        found: dict[tuple[int, str, int], Part] = {}
        marker = 0
        while True:
            request = partial(self._call, "list_parts", key, UploadId=upload_id, PartNumberMarker=marker)
            try:
                page = await self._attempts.of(request)
            except NotFoundError as error:
                if code_of(error) != "NoSuchKey":
                    raise
                raise UnsupportedError(
                    f"{self.name} does not list the parts of an upload", where=self._where(key)
                ) from error
            self._note_checksums(upload_id, page)
            parts = [self._listed(part, key) for part in page.get("Parts", [])]
            found.update({(part.number, part.etag, part.size): part for part in parts})
            if not page.get("IsTruncated") or not parts:
                return sorted(found.values(), key=lambda part: (part.number, part.size))
            last = max(part.number for part in parts)
            # Versions of one number may lie on both sides of the edge of a page: so that number is asked for
            # again.
            marker = last - 1 if last - 1 > marker else last

    async def copy_part(
        self, key: str, upload_id: str, number: int, source_key: str, start: int, end: int, source_etag: str | None
    ) -> Part:
        """Make a part of bytes of another object, without moving them through here."""
        # Of the version named, where the store heeds that: `copied_upload` makes sure of it elsewhere.
        bucket, name = split_key(source_key)

        async def send() -> Part:
            request = partial(
                self._call,
                "upload_part_copy",
                key,
                UploadId=upload_id,
                PartNumber=number,
                CopySource={"Bucket": bucket, "Key": name},
                CopySourceRange=f"bytes={start}-{end - 1}",
            )
            answer = await self._copy_pinned(request, source_etag)
            result = self._required_field(answer, "CopyPartResult", key)
            etag = str(self._required_field(result, "ETag", key))
            # SeaweedFS lists it in quotes, and answers without.
            return Part(number, end - start, f'"{bare_etag(etag)}"', decoded(result.get("ChecksumCRC32")))

        try:
            return await self._send_part(key, upload_id, send)
        except PreconditionError as error:
            raise ObjectChangedError(
                "the object was replaced while it was copied", where=self._where(source_key)
            ) from error

    async def _copy_pinned(
        self, request: Callable[..., Awaitable[dict[str, Any]]], source_etag: str | None
    ) -> dict[str, Any]:
        """Copy of one version only, where the store does not refuse to be find_part which."""
        if source_etag is None or not self._pins_copies:
            return await request()
        try:
            return await request(CopySourceIfMatch=source_etag)
        except (StoreError, UnsupportedError) as error:
            if not refuses_parameter(error):
                raise
            answer = await request()
            self._pins_copies = False
            return answer

    async def _send_part(
        self,
        key: str,
        upload_id: str,
        send: Callable[[], Awaitable[Part]],
        arrived: Callable[[], Awaitable[Part | None]] | None = None,
    ) -> Part:
        """One part, in as many attempts as it takes; it is `undecided` if one of them may arrive yet."""
        adrift, last, to_ask, loop = 0, 0.0, False, asyncio.get_running_loop()

        async def wait_for_part(waits: Sequence[int]) -> Part | None:
            """The part, if the store lists it by now; then one attempt fewer is unanswered."""
            nonlocal adrift, to_ask
            assert arrived is not None
            to_ask = True  # if the store does not answer now
            for seconds in _pauses(self._attempts.policy, waits):
                await asyncio.sleep(seconds)
                if (part := await arrived()) is not None:
                    adrift -= 1
                    return part
            to_ask = False
            return None

        async def find_part(waits: Sequence[int] = _ASKED_AGAIN) -> Part | None:
            """As `wait_for_part`; None where the store does not say."""
            try:
                return await wait_for_part(waits)
            except NotFoundError:
                raise
            except (StoreError, UnsupportedError) as error:
                log.debug("%s: cannot tell whether a part has arrived: %s", self.name, error.message)
                if isinstance(error, UnsupportedError) or not error.retryable:
                    return None
                error.undecided = True
                raise

        async def look_for(error: StoreError) -> Part | None:
            """The part of an attempt that may have arrived; None where it is not there, or the store does not say."""
            if arrived is not None:
                # A store that says itself that it failed does not go on.
                return await find_part(_ASKED_AGAIN[: 1 if status_of(error) == 500 else None])
            if status_of(error) == 500 and adrift == 1:
                await self._refuse_gone(key, upload_id)
            return None

        async def attempt() -> Part:
            nonlocal adrift, last
            if to_ask and (part := await find_part()) is not None:
                return part
            try:
                return await send()
            except StoreError as error:
                if error.undecided:
                    adrift, last = adrift + 1, loop.time()
                    if (part := await look_for(error)) is not None:
                        return part
                error.undecided = adrift > 0
                raise

        part = await self._attempts.of(attempt)
        return replace(part, undecided=adrift > 0, undecided_for=loop.time() - last if adrift else 0.0)

    async def _part_there(
        self, key: str, upload_id: str, number: int, size: int, md5: str, crc32: int | None
    ) -> Part | None:
        """A part of these very bytes, if the store lists it."""
        # moto takes the marker for a count of parts, so that is asked for only where it saves pages.
        marker = {} if number <= _ON_FIRST_PAGE else {"PartNumberMarker": number - 1}
        page = await self._call("list_parts", key, UploadId=upload_id, **marker)
        for listed in page.get("Parts", []):
            part = self._listed(listed, key)
            if (part.number, part.size) == (number, size) and (
                bare_etag(part.etag) == md5 or (crc32 is not None and part.crc32 == crc32)
            ):
                return part
        return None

    async def _refuse_gone(self, key: str, upload_id: str) -> None:
        """Raise NotFoundError if the upload is not there; where that cannot be find_part, nothing."""
        try:
            await self._call("list_parts", key, UploadId=upload_id, MaxParts=1)
        except NotFoundError:
            raise
        except (StoreError, UnsupportedError) as error:
            log.debug("%s: cannot tell whether upload %s is gone: %s", self.name, upload_id, error.message)

    def _required_field(self, answer: Mapping[str, Any], name: str, key: str) -> Any:
        """What an answer must have; one without it broke off on its way."""
        if answer.get(name) is None:
            error = TransientError(f"the answer of the store has no {name}", where=self._where(key))
            error.undecided = True
            raise error
        return answer[name]

    def _listed(self, part: Mapping[str, Any], key: str) -> Part:
        try:
            number, size, etag = int(part["PartNumber"]), int(part["Size"]), str(part["ETag"])
        except (KeyError, ValueError) as error:
            raise StoreError(f"the listing of the parts means nothing: {part!r}", where=self._where(key)) from error
        return Part(number, size, etag, decoded(part.get("ChecksumCRC32")))

    async def _list_uploads(self, bucket: str, prefix: str) -> list[UploadInfo]:
        # SeaweedFS names the upload alone.
        markers = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        url = self.url_of(f"{bucket}/{prefix}")
        pages = self._pages("list_multipart_uploads", url, markers, Bucket=bucket, Prefix=prefix)
        return [
            UploadInfo(f"{bucket}/{upload['Key']}", upload["UploadId"], upload.get("Initiated"))
            async for page in pages
            for upload in page.get("Uploads", [])
        ]


def _pauses(policy: RetryPolicy, waits: Sequence[int]) -> list[float]:
    """Seconds before each time that a store is asked for a part."""
    unit = min(policy.base_delay, _SHARE_ASKED * policy.seconds / sum(_ASKED_AGAIN))
    return [factor * unit for factor in waits]
