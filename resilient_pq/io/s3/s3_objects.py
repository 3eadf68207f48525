"""Objects on S3 as wholes: read by ranges, listed, written in one request, deleted."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from resilient_pq.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    BucketNotFoundError,
    NotFoundError,
    ObjectChangedError,
    PreconditionError,
    StoreError,
    TransientError,
    UnsupportedError,
    Where,
)
from resilient_pq.io.object_sink import Buffer, pieces_of
from resilient_pq.io.s3.object_etags import Fingerprint, crc32_of, decoded, encoded, md5_of
from resilient_pq.io.s3.s3_client import S3Client, retry_policy_from
from resilient_pq.io.s3.s3_options import s3fs_options
from resilient_pq.io.s3.s3_responses import code_of, from_s3_error, refuses_parameter, status_of
from resilient_pq.io.stored_object import ListedObject, ObjectInfo, folder_prefix
from resilient_pq.io.transfer.ranged_answer import Answer
from resilient_pq.io.transfer.ranged_get import RangedGetStore
from resilient_pq.io.transfer.retry import WRITING, RetryPolicy

# Whether an endpoint keeps to the conditions of PUTs: asked once.
_HEEDING: dict[str, bool] = {}
# Of no version of any object.
_NO_ETAG = '"00000000000000000000000000000000"'
# The name of an access point holds a slash itself.
_ACCESS_POINT = re.compile(r"(arn:[^/]+:accesspoint/[^/]+)/(.*)", re.DOTALL)


class S3Objects(RangedGetStore):
    """What `S3Store` does with whole objects, and what its uploads share with that."""

    def __init__(self, storage_options: Mapping[str, Any] | None = None, *, retry: RetryPolicy = WRITING) -> None:
        options = s3fs_options(storage_options or {})
        self._client = S3Client(options)
        super().__init__(retry_policy_from(options, retry), limiter=lambda: self._client.connection.limiter)
        # Operations that are sent without a CRC32, as the store was found not to keep it; "*" is all of them.
        # Who asks for another checksum has it made by botocore.
        additional = options.get("s3_additional_kwargs") or {}
        another = additional.get("ChecksumAlgorithm", "CRC32") != "CRC32"
        self._without_crc32: set[str] = {"*"} if another else set()
        self._buckets_there: set[str] = set()  # which are known to be, or cannot be asked for

    @property
    def name(self) -> str:
        """What to call the store in messages."""
        return f"S3 at {self._client.endpoint_url}" if self._client.endpoint_url else "S3"

    def url_of(self, key: str) -> str:
        """The URL of an object."""
        return f"s3://{key}"

    async def list_objects(self, folder: str) -> AsyncGenerator[Sequence[ListedObject], None]:
        """Every object whose name begins with the folder's; of a folder itself some tools make an empty object."""
        bucket, prefix = split_key(folder_prefix(folder))
        markers = {"ContinuationToken": "NextContinuationToken"}
        pages = self._pages("list_objects_v2", self.url_of(folder), markers, Bucket=bucket, Prefix=prefix)
        async with aclosing(pages):
            async for page in pages:
                found = [_listed(item, prefix) for item in page.get("Contents", []) if not item["Key"].endswith("/")]
                if found:
                    yield found

    async def _pages(
        self, operation: str, url: str, markers: Mapping[str, str], **parameters: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of a listing; `markers` says which fields of a page the next one is asked for with."""
        more: dict[str, str] = {}
        while True:
            page = await self._attempts.of(partial(self._client.call, operation, url, **parameters, **more))
            yield page
            if not page.get("IsTruncated"):
                return
            following = {name: str(page[source]) for name, source in markers.items() if page.get(source)}
            if following in ({}, more):
                raise StoreError("the listing ends before its end", where=Where(key=url))
            more = following

    async def put(
        self, key: str, data: Sequence[Buffer] | Buffer, *, if_none_match: bool = False, if_match: str | None = None
    ) -> ObjectInfo:
        """Write a whole object in one request, with its CRC32 where the store compares it."""
        pieces = pieces_of(data)
        size = sum(piece.nbytes for piece in pieces)
        condition = await self._if_none_match("put_object") if if_none_match else {}
        if if_match is not None:
            condition = await self._only_if_match("put_object", if_match)
        crc32 = await crc32_of(pieces)

        async def send() -> ObjectInfo:
            request = partial(self._call, "put_object", key, Body=pieces, **condition)
            answer, _ = await self._with_crc32("put_object", key, crc32, request)
            return ObjectInfo(key, size, answer.get("ETag"), answer.get("VersionId"))

        def refused(error: StoreError) -> StoreError:
            if if_match is not None and not _is_missing_bucket(error):
                return self._changed_error(key)
            return self._exists_error(key) if isinstance(error, PreconditionError) else error

        def identify() -> Fingerprint:
            return Fingerprint(size, md5_of(pieces), crc32 if self._may_take_crc32("put_object") else None)

        return await self._publishing(key, send, identify, refused=refused)

    async def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Remove the object, if there is one."""
        if if_match is None:
            await self._attempts.of(lambda: self._call("delete_object", key))
            return
        condition, failed = await self._only_if_match("delete_object", if_match), False

        async def send() -> None:
            nonlocal failed
            try:
                await self._call("delete_object", key, **condition)
            except (NotFoundError, PreconditionError) as error:
                if _is_missing_bucket(error):
                    raise
                if not failed or await self.exists(key):  # otherwise an earlier attempt did it, and its reply was lost
                    raise self._changed_error(key) from error
            except StoreError:
                failed = True
                raise

        await self._attempts.of(send)

    async def heeds_conditions(self, key: str, data: bytes) -> bool:
        """Whether PUTs keep to If-None-Match and If-Match: known of S3 itself, and asked once of any other endpoint."""
        endpoint = self._client.endpoint_url
        if endpoint is None:
            return True
        if endpoint not in _HEEDING:
            heeding = await self._refuses(self.put(key, data, if_match=_NO_ETAG))
            _HEEDING[endpoint] = heeding and await self._refuses(self.put(key, data, if_none_match=True))
        return _HEEDING[endpoint]

    async def _refuses(self, request: Awaitable[ObjectInfo]) -> bool:
        """Whether a condition that does not hold is what a request fails for."""
        try:
            await request
        except (AlreadyExistsError, ObjectChangedError):
            return True
        except UnsupportedError:
            return False
        return False

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _get(self, key: str, byte_range: str, *, pin: ObjectInfo | None) -> Answer:
        condition = {"IfMatch": pin.etag} if pin is not None and pin.etag is not None else {}
        try:
            answer = await self._call("get_object", key, Range=byte_range, **condition)
        except PreconditionError as error:
            raise ObjectChangedError("the object was replaced while it was read", where=self._where(key)) from error
        return Answer(
            body=_S3Body(answer["Body"], split_key(key)[0], self.url_of(key)),
            status=int(answer["ResponseMetadata"]["HTTPStatusCode"]),
            content_range=answer.get("ContentRange"),
            content_length=answer.get("ContentLength"),
            etag=answer.get("ETag"),
            version=answer.get("VersionId"),
        )

    async def _head(self, key: str) -> ObjectInfo:
        try:
            return info_of(key, await self._call("head_object", key))
        except NotFoundError:
            await self._refuse_missing_bucket(key)
            raise

    async def _refuse_missing_bucket(self, key: str) -> None:
        """Raise BucketNotFoundError if not only the object is missing, which the answer to a HEAD cannot tell."""
        # Asked once for each bucket; where that cannot be told, nothing is raised.
        bucket, _ = split_key(key)
        if bucket in self._buckets_there:
            return
        try:
            await self._client.call("head_bucket", self.url_of(key), Bucket=bucket)
        except BucketNotFoundError:
            raise
        except (StoreError, UnsupportedError) as error:
            if isinstance(error, StoreError) and error.retryable:
                return
        self._buckets_there.add(bucket)

    async def _call(self, operation: str, key: str, **parameters: Any) -> dict[str, Any]:
        """One request about one object."""
        bucket, name = split_key(key)
        if not bucket or not name:
            raise StoreError(f"not an object on S3: {key!r}", where=self._where(key), hint="write s3://bucket/name")
        answer = await self._client.call(operation, self.url_of(key), Bucket=bucket, Key=name, **parameters)
        self._buckets_there.add(bucket)
        return answer

    async def _if_none_match(self, operation: str) -> dict[str, str]:
        """The condition that no object exists yet."""
        if not await self._client.accepts(operation, "IfNoneMatch"):
            raise UnsupportedError('the installed botocore cannot do mode="x"', hint="upgrade it: pip install -U s3fs")
        return {"IfNoneMatch": "*"}

    async def _only_if_match(self, operation: str, etag: str) -> dict[str, str]:
        """The condition that the object is still this version."""
        if not await self._client.accepts(operation, "IfMatch"):
            raise UnsupportedError("the installed botocore knows no conditions", hint="upgrade it: pip install -U s3fs")
        return {"IfMatch": etag}

    def _changed_error(self, key: str) -> ObjectChangedError:
        return ObjectChangedError(
            "the object is not the version that was to be replaced",
            where=self._where(key),
            hint="somebody else wrote it meanwhile; nothing was published",
        )

    def _exists_error(self, key: str) -> AlreadyExistsError:
        return AlreadyExistsError("the object exists already", where=self._where(key))

    def _may_take_crc32(self, operation: str) -> bool:
        return not {"*", operation} & self._without_crc32

    async def _with_crc32(
        self, operation: str, key: str, crc32: int, send: Callable[..., Awaitable[dict[str, Any]]]
    ) -> tuple[dict[str, Any], bool]:
        """Send a body with its CRC32, where the store takes it: what it refuses, or ignores, is not sent again."""
        if not self._may_take_crc32(operation):
            return await send(), False
        try:
            answer = await send(ChecksumCRC32=encoded(crc32))
        except (StoreError, UnsupportedError) as error:
            if not may_be_about_checksums(error):
                raise
            answer = await send()
            self._without_crc32.add(operation)
            return answer, False
        if answer.get("ChecksumCRC32") is None:
            self._without_crc32.add(operation)
            return answer, False
        if decoded(answer["ChecksumCRC32"]) != crc32:
            raise TransientError(
                f"{operation}: the store has CRC32 {answer['ChecksumCRC32']} of bytes that have {encoded(crc32)}",
                where=self._where(key),
            )
        return answer, True

    async def _publishing(
        self,
        key: str,
        send: Callable[[], Awaitable[ObjectInfo]],
        identify: Callable[[], Fingerprint],
        *,
        refused: Callable[[StoreError], StoreError],
    ) -> ObjectInfo:
        """Send what publishes an object, and after a lost reply find out whether it did."""
        # Sent again, such a request may be refused because of its own success: the upload is gone, or the object is
        # another one than before. Only an object of our bytes is taken for that. An error that is raised is
        # `undecided` if any attempt was.
        undecided = False

        async def attempt() -> ObjectInfo:
            nonlocal undecided
            try:
                return await send()
            except (NotFoundError, PreconditionError) as error:
                # An upload is gone only once: whoever completed it, if the bytes are ours it is our success.
                gone = code_of(error) == "NoSuchUpload"
                if (undecided or gone) and (info := await self._published(key, identify())) is not None:
                    return info
                ours = refused(error)
                ours.undecided = undecided
                if ours is error:
                    raise
                raise ours from error
            except StoreError as error:
                undecided = error.undecided = undecided or error.undecided
                raise

        try:
            return await self._attempts.of(attempt)
        except StoreError as error:
            if error.undecided and error.retryable:
                try:
                    info = await self._published(key, identify())
                except StoreError:
                    info = None  # what is known of the request itself says more
                if info is not None:
                    return info
            raise

    async def _published(self, key: str, fingerprint: Fingerprint) -> ObjectInfo | None:
        """The object, if it is there and of these bytes."""
        try:
            answer = await self._call("head_object", key, **checksum_mode(fingerprint))
        except (NotFoundError, AccessDeniedError):
            return None
        return info_of(key, answer) if fingerprint.is_of(answer) else None


def _is_missing_bucket(error: StoreError) -> bool:
    return isinstance(error, NotFoundError) and code_of(error) == "NoSuchBucket"


def checksum_mode(fingerprint: Fingerprint) -> dict[str, str]:
    """The parameters that ask a HEAD for the checksum, where one is known to compare."""
    return {} if fingerprint.crc32 is None else {"ChecksumMode": "ENABLED"}


def _listed(item: Mapping[str, Any], prefix: str) -> ListedObject:
    """An object as a listing describes it."""
    size = item.get("Size")
    return ListedObject(str(item["Key"]).removeprefix(prefix), None if size is None else int(size), item.get("ETag"))


def info_of(key: str, answer: Mapping[str, Any]) -> ObjectInfo:
    """The version of an object by the answer to a HEAD."""
    return ObjectInfo(key, int(answer["ContentLength"]), answer.get("ETag"), answer.get("VersionId"))


def may_be_about_checksums(error: StoreError | UnsupportedError) -> bool:
    """Whether a request that failed may succeed without its checksums."""
    if isinstance(error, StoreError) and error.retryable:
        return False
    return refuses_parameter(error) or status_of(error) == 400


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


def split_key(key: str) -> tuple[str, str]:
    """Bucket and name."""
    if (match := _ACCESS_POINT.match(key)) is not None:
        return match[1], match[2]
    bucket, _, name = key.partition("/")
    return bucket, name
