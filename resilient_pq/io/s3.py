"""S3 and everything that speaks its language: keys are ``bucket/name``, credentials and endpoints are s3fs's."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from resilient_pq.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    NotFoundError,
    ObjectChangedError,
    PreconditionError,
    StoreError,
    UnsupportedError,
)
from resilient_pq.io.multipart import MultipartSink
from resilient_pq.io.protocols import (
    DEFAULT_SINK_OPTIONS,
    Buffer,
    Capabilities,
    MiB,
    MultipartStore,
    ObjectInfo,
    ObjectSink,
    Part,
    SinkOptions,
    UploadInfo,
    folder_prefix,
    pieces_of,
)
from resilient_pq.io.ranged_get import Answer, RangedGetStore, bare_etag
from resilient_pq.io.retry import DEFAULT_RETRY_POLICY, RetryPolicy
from resilient_pq.io.s3_client import S3Client, retry_policy_from
from resilient_pq.io.s3_errors import from_s3_error

MIN_PART_BYTES = 5 * MiB

# The name of an access point holds a slash itself.
_ACCESS_POINT = re.compile(r"(arn:[^/]+:accesspoint/[^/]+)/(.*)", re.DOTALL)


class S3Store(RangedGetStore, MultipartStore):
    """Buckets of one endpoint.

    Args:
        storage_options: As s3fs and pandas users write them: `key`, `secret`, `token`, `anon`, `profile`,
            `endpoint_url`, `client_kwargs`, `config_kwargs`, `s3_additional_kwargs` and the rest. What is not
            given comes from the environment (``AWS_*``, AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL among them)
            and the configuration files.
        retry: When a request is sent again. `retries` in `config_kwargs` sets the attempts instead: there is
            one layer of retries, this one.
    """

    def __init__(
        self,
        storage_options: Mapping[str, Any] | None = None,
        *,
        retry: RetryPolicy = DEFAULT_RETRY_POLICY,
    ) -> None:
        """Nothing is opened before the first request."""
        options = dict(storage_options or {})
        super().__init__(retry_policy_from(options, retry))
        self._client = S3Client(options)
        self._equal_parts = bool(options.get("fixed_upload_size", False))

    @property
    def name(self) -> str:
        """What to call the store in messages."""
        return f"S3 at {self._client.endpoint_url}" if self._client.endpoint_url else "S3"

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

    def url_of(self, key: str) -> str:
        """The URL of an object."""
        return f"s3://{key}"

    async def list_names(self, folder: str) -> list[str]:
        """Every object whose name begins with the folder's; of a folder itself some tools make an empty object."""
        bucket, prefix = _split(folder_prefix(folder))
        names: list[str] = []
        more: dict[str, str] = {}
        while True:
            request = partial(
                self._client.call,
                "list_objects_v2",
                self.url_of(folder),
                Bucket=bucket,
                Prefix=prefix,
                **more,
            )
            page = await self._retrying(request)
            found = (str(item["Key"]) for item in page.get("Contents", []))
            names += [name.removeprefix(prefix) for name in found if not name.endswith("/")]
            if not page.get("IsTruncated"):
                return sorted(names)
            following = {"ContinuationToken": str(page.get("NextContinuationToken") or "")}
            if following["ContinuationToken"] in ("", more.get("ContinuationToken")):
                raise StoreError("the listing ends before its end", where=self._where(folder))
            more = following

    async def put(
        self, key: str, data: Sequence[Buffer] | Buffer, *, if_none_match: bool = False
    ) -> ObjectInfo:
        """Write a whole object in one request."""
        pieces = pieces_of(data)
        size = sum(piece.nbytes for piece in pieces)
        condition = await self._if_none_match("put_object") if if_none_match else {}

        async def send() -> ObjectInfo:
            answer = await self._call("put_object", key, Body=pieces, **condition)
            return ObjectInfo(key, size, answer.get("ETag"), answer.get("VersionId"))

        return await self._publishing(key, send, lambda: _md5(pieces))

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        """Begin an object; nothing is sent before one part of it is full.

        Raises:
            AlreadyExistsError: ``mode="x"``, and the object exists; the store decides again when it is
            completed. ValueError: `part_bytes` is smaller than the 5 MiB that S3 demands.
        """
        if options.part_bytes < MIN_PART_BYTES:
            raise ValueError(f"parts on S3 have at least 5 MiB, not {options.part_bytes:,} bytes")
        if options.mode == "x":
            await self._refuse_existing(key)
        if self._equal_parts:
            options = replace(options, equal_parts=True)
        return MultipartSink(self, key, options)

    async def delete(self, key: str) -> None:
        """Remove the object, if there is one."""
        await self._retrying(lambda: self._call("delete_object", key))

    async def create_upload(self, key: str) -> str:
        """Begin an upload; gives its id."""
        answer = await self._retrying(lambda: self._call("create_multipart_upload", key))
        return str(answer["UploadId"])

    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        """Send one part, again and again with the same bytes until it is acknowledged."""
        pieces = pieces_of(data)
        size = sum(piece.nbytes for piece in pieces)
        answer = await self._retrying(
            lambda: self._call("upload_part", key, UploadId=upload_id, PartNumber=number, Body=pieces)
        )
        return Part(number, size, str(answer["ETag"]))

    async def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Publish the object, naming every part's ETag, and compare its size with that of the parts."""
        chosen = sorted(parts, key=lambda part: part.number)
        named = [{"PartNumber": part.number, "ETag": part.etag} for part in chosen]
        size = sum(part.size for part in chosen)
        condition = await self._if_none_match("complete_multipart_upload") if if_none_match else {}
        if if_match is not None and await self._client.accepts("complete_multipart_upload", "IfMatch"):
            condition = {"IfMatch": if_match}

        async def send() -> ObjectInfo:
            answer = await self._call(
                "complete_multipart_upload",
                key,
                UploadId=upload_id,
                MultipartUpload={"Parts": named},
                **condition,
            )
            return ObjectInfo(key, size, answer.get("ETag"), answer.get("VersionId"))

        info = await self._publishing(key, send, lambda: multipart_etag(chosen))
        return await self._checked(info)

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

        await self._retrying(send)

    async def list_uploads(self, prefix: str) -> list[UploadInfo]:
        """Every open upload whose key begins with `prefix`, which begins with the bucket."""
        bucket, name = _split(prefix)
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
            page = await self._retrying(request)
            parts = [_listed(part) for part in page.get("Parts", [])]
            found.update({(part.number, part.etag, part.size): part for part in parts})
            if not page.get("IsTruncated") or not parts:
                return sorted(found.values(), key=lambda part: (part.number, part.size))
            last = max(part.number for part in parts)
            # Versions of one number may lie on both sides of the edge of a page: so that number is asked for
            # again.
            marker = last - 1 if last - 1 > marker else last

    async def copy_part(
        self,
        key: str,
        upload_id: str,
        number: int,
        source_key: str,
        start: int,
        end: int,
        source_etag: str | None,
    ) -> Part:
        """Make a part of bytes of another object, without moving them through here."""
        bucket, name = _split(source_key)
        pin = {} if source_etag is None else {"CopySourceIfMatch": source_etag}
        try:
            answer = await self._retrying(
                lambda: self._call(
                    "upload_part_copy",
                    key,
                    UploadId=upload_id,
                    PartNumber=number,
                    CopySource={"Bucket": bucket, "Key": name},
                    CopySourceRange=f"bytes={start}-{end - 1}",
                    **pin,
                )
            )
        except PreconditionError as error:
            raise ObjectChangedError(
                "the object was replaced while it was copied", where=self._where(source_key)
            ) from error
        return Part(number, end - start, str(answer["CopyPartResult"]["ETag"]))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _get(self, key: str, byte_range: str, *, pin: ObjectInfo | None) -> Answer:
        condition = {"IfMatch": pin.etag} if pin is not None and pin.etag is not None else {}
        try:
            answer = await self._call("get_object", key, Range=byte_range, **condition)
        except PreconditionError as error:
            raise ObjectChangedError(
                "the object was replaced while it was read", where=self._where(key)
            ) from error
        return Answer(
            body=_S3Body(answer["Body"], _split(key)[0], self.url_of(key)),
            content_range=answer.get("ContentRange"),
            content_length=answer.get("ContentLength"),
            etag=answer.get("ETag"),
            version=answer.get("VersionId"),
        )

    async def _head(self, key: str) -> ObjectInfo:
        answer = await self._call("head_object", key)
        return ObjectInfo(key, int(answer["ContentLength"]), answer.get("ETag"), answer.get("VersionId"))

    async def _call(self, operation: str, key: str, **parameters: Any) -> dict[str, Any]:
        """One request about one object."""
        bucket, name = _split(key)
        if not bucket or not name:
            raise StoreError(
                f"not an object on S3: {key!r}", where=self._where(key), hint="write s3://bucket/name"
            )
        return await self._client.call(operation, self.url_of(key), Bucket=bucket, Key=name, **parameters)

    async def _list_uploads(self, bucket: str, prefix: str) -> list[UploadInfo]:
        """All pages."""
        found: list[UploadInfo] = []
        markers: dict[str, str] = {}
        while True:
            request = partial(
                self._client.call,
                "list_multipart_uploads",
                f"s3://{bucket}/{prefix}",
                Bucket=bucket,
                Prefix=prefix,
                **markers,
            )
            page = await self._retrying(request)
            found += [
                UploadInfo(f"{bucket}/{upload['Key']}", upload["UploadId"], upload.get("Initiated"))
                for upload in page.get("Uploads", [])
            ]
            following = {
                "KeyMarker": str(page.get("NextKeyMarker") or ""),
                "UploadIdMarker": str(page.get("NextUploadIdMarker") or ""),
            }
            if not page.get("IsTruncated") or following == markers:
                return found
            markers = following

    async def _if_none_match(self, operation: str) -> dict[str, str]:
        """The condition that no object exists yet."""
        if not await self._client.accepts(operation, "IfNoneMatch"):
            raise UnsupportedError(
                'the installed botocore cannot do mode="x"', hint="upgrade it: pip install -U s3fs"
            )
        return {"IfNoneMatch": "*"}

    async def _refuse_existing(self, key: str) -> None:
        if await self.exists(key):
            raise AlreadyExistsError("the object exists already", where=self._where(key))

    async def _publishing(
        self, key: str, send: Callable[[], Awaitable[ObjectInfo]], etag: Callable[[], str | None]
    ) -> ObjectInfo:
        """Send what publishes an object, and after a lost reply find out whether it did.

        Sent again, such a request may be refused because of its own success: the upload is gone, or the
        object exists. Only an object with the ETag of our bytes is taken for that.
        """
        undecided = False

        async def attempt() -> ObjectInfo:
            nonlocal undecided
            try:
                return await send()
            except (NotFoundError, PreconditionError) as error:
                if undecided and (info := await self._published(key, etag())) is not None:
                    return info
                if isinstance(error, PreconditionError):
                    raise AlreadyExistsError("the object exists already", where=self._where(key)) from error
                raise
            except StoreError as error:
                undecided = undecided or error.retryable
                raise

        return await self._retrying(attempt)

    async def _published(self, key: str, etag: str | None) -> ObjectInfo | None:
        """The object, if it is there and has this ETag."""
        try:
            info = await self._head(key)
        except (NotFoundError, AccessDeniedError):
            return None
        if etag is None or info.etag is None or bare_etag(info.etag) != etag:
            return None
        return info

    async def _checked(self, info: ObjectInfo) -> ObjectInfo:
        """A completed object, after its size was compared with that of its parts."""
        try:
            found = await self.head(info.key)
        except AccessDeniedError:
            return info  # credentials that may only write
        same = info.etag is None or found.etag is None or bare_etag(found.etag) == bare_etag(info.etag)
        if same and found.size != info.size:
            raise StoreError(
                f"the completed object has {found.size:,} bytes instead of {info.size:,}",
                where=self._where(info.key),
            )
        return found if same else info


class _S3Body:
    """The body of a GET, with its errors as ours."""

    def __init__(self, stream: Any, bucket: str, url: str) -> None:
        self._stream = stream
        self._bucket = bucket
        self._url = url

    async def read(self, size: int) -> bytes:
        """The next bytes, none at the end."""
        try:
            data: bytes = await self._stream.read(size)
        except Exception as error:
            ours = from_s3_error(error, bucket=self._bucket, url=self._url, doing="reading the body")
            if ours is None:
                raise
            raise ours from error
        return data

    def close(self) -> None:
        """Drop the rest; a body read to its end gives its connection back."""
        self._stream.close()


def multipart_etag(parts: Sequence[Part]) -> str | None:
    """The ETag that S3 gives an object of these parts: the MD5 of their MD5s and how many there are.

    None where the ETags of the parts are no MD5s, as with some encryption.
    """
    try:
        sums = b"".join(bytes.fromhex(bare_etag(part.etag)) for part in parts)
    except ValueError:
        return None
    if len(sums) != 16 * len(parts):
        return None
    return f"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(parts)}"


def _md5(pieces: Sequence[memoryview]) -> str:
    """The ETag that S3 gives an object written in one request, encrypted ones apart."""
    total = hashlib.md5(usedforsecurity=False)
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()


def _listed(part: Mapping[str, Any]) -> Part:
    crc32 = part.get("ChecksumCRC32")
    return Part(
        int(part["PartNumber"]),
        int(part["Size"]),
        str(part["ETag"]),
        None if crc32 is None else int.from_bytes(base64.b64decode(crc32), "big"),
    )


def _split(key: str) -> tuple[str, str]:
    """Bucket and name."""
    if (match := _ACCESS_POINT.match(key)) is not None:
        return match[1], match[2]
    bucket, _, name = key.partition("/")
    return bucket, name
