"""Requests to S3, each sent once, through a client that is imported and made by the first of them (`s3_connection`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from resilient_pq.errors import StoreError, UnsupportedError
from resilient_pq.io.location import cause_to_show, scrubbed
from resilient_pq.io.s3.plain_access import PlainAccess
from resilient_pq.io.s3.plain_gets import PlainGets
from resilient_pq.io.s3.s3_options import s3fs_options
from resilient_pq.io.s3.s3_responses import code_of, from_s3_error
from resilient_pq.io.shared_clients import Borrowed, ClientKey, let_go
from resilient_pq.io.surroundings import surroundings
from resilient_pq.io.transfer.ranged_get import MAX_REQUESTS
from resilient_pq.io.transfer.request_limiter import RequestLimiter
from resilient_pq.io.transfer.request_log import RequestLine
from resilient_pq.io.transfer.retry import RetryPolicy

if TYPE_CHECKING:
    from resilient_pq.io.s3.s3_connection import Renewal, RequestBody, S3Gets

PROGRESS_SECONDS = 15
CONNECT_SECONDS = 5

# Options that say neither where a store is, nor who asks.
_NOT_ABOUT_ACCESS = frozenset({"config_kwargs", "fixed_upload_size"})


class S3Connection:
    """The client of one endpoint and one set of options in an event loop; the first request opens it."""

    def __init__(self, options: Mapping[str, Any], progress_seconds: float | None, *, renews: bool) -> None:
        # As many requests as there may be connections.
        most = max(1, int((options.get("config_kwargs") or {}).get("max_pool_connections", MAX_REQUESTS)))
        self.limiter = RequestLimiter(most)  # How many requests are under way at one time, of all stores together
        access = PlainAccess.of(options, surroundings("s3")[0], CONNECT_SECONDS)
        self.plain = None
        if access is not None:
            self.plain = PlainGets(access, progress_seconds=progress_seconds, max_connections=most)
        self.client: Any = None  # That of aiobotocore, once there is one
        self.gets: S3Gets | None = None  # What sends GETs past it, where something does
        self.renewal: Renewal | None = None  # What changes its credentials, where something does
        self._options = options
        self._progress_seconds = progress_seconds
        self._renews = renews
        self._filesystem: Any = None
        self._opening = asyncio.Lock()

    async def get(self, parameters: Mapping[str, Any], bucket: str) -> dict[str, Any]:
        """The answer to a GET, sent by the first that can of ourselves, ourselves as botocore did it, and botocore."""
        answer = None
        if self.plain is not None and self.client is None:
            answer = await self.plain.get(parameters, bucket)
        if answer is not None:
            return answer
        filesystem = await self.filesystem()
        send = partial(filesystem._call_s3, "get_object", Bucket=bucket, **parameters)
        if self.gets is None:
            return await send()  # type: ignore[no-any-return]
        return await self.gets.get(parameters, bucket) or await self.gets.learn(send, parameters, bucket)

    async def filesystem(self) -> Any:
        """The s3fs that sends requests, opened by the first of them."""
        if self._filesystem is not None:
            return self._filesystem
        async with self._opening:
            if self._filesystem is None:
                try:
                    filesystem = await asyncio.to_thread(_filesystem, self._options, self._progress_seconds)
                    self.client = await filesystem.set_session()
                except (TypeError, KeyError, AttributeError) as error:
                    raise UnsupportedError(f"storage_options do not fit s3fs: {scrubbed(str(error))}") from None
                from resilient_pq.io.s3.s3_connection import prepare_client  # noqa: PLC0415

                # A session of the caller's may have hooks of the caller's, which every request is to pass.
                self.gets, self.renewal = prepare_client(
                    filesystem, self.client, gets=not self._options.get("session"), renews=self._renews
                )
                self._filesystem = filesystem
        return self._filesystem

    async def close(self) -> None:
        """Close the connections."""
        if self.plain is not None:
            await self.plain.close()
        client, self.client, self._filesystem = self.client, None, None
        if client is not None:
            await client.close()

    def abandon(self) -> None:
        """Let go of connections that nothing can close any more."""
        if self.plain is not None:
            self.plain.abandon()
        if self.client is not None:
            let_go(self.client._endpoint.http_session._sessions.values())


class S3Client:
    """Requests to one S3 endpoint, over a connection that the first of them borrows in its event loop."""

    def __init__(self, storage_options: Mapping[str, Any]) -> None:
        """Keep the options; nothing is looked up or opened yet."""
        self._options = s3fs_options(storage_options)
        self._borrowed = Borrowed(
            lambda: ClientKey("s3", self._options, surroundings("s3")),
            lambda: S3Connection(self._options, self._progress_seconds, renews=self._looks_up_credentials),
        )

    @property
    def endpoint_url(self) -> str | None:
        """The endpoint the options name, as it is shown; or None: then the environment decides, or it is AWS."""
        url = self._options.get("endpoint_url") or self._client_options.get("endpoint_url")
        return None if url is None else scrubbed(str(url))

    def is_alike(self, other: S3Client) -> bool:
        """Whether another client asks the same endpoint with the same credentials, as far as its options tell."""
        ours, theirs = (
            {name: value for name, value in client._options.items() if name not in _NOT_ABOUT_ACCESS}
            for client in (self, other)
        )
        return ours == theirs

    @property
    def _looks_up_credentials(self) -> bool:
        """Whether credentials are looked up, so that newer ones may be found later, and not given as options."""
        named = any(self._options.get(name) for name in ("key", "secret", "username", "anon", "session"))
        return not named and "aws_access_key_id" not in self._client_options

    @property
    def _progress_seconds(self) -> float | None:
        """Seconds without progress after which a request is given up: botocore's `read_timeout`."""
        seconds = (self._options.get("config_kwargs") or {}).get("read_timeout", PROGRESS_SECONDS)
        return None if seconds is None else float(seconds)

    @property
    def _client_options(self) -> Mapping[str, Any]:
        options: Mapping[str, Any] = self._options.get("client_kwargs") or {}
        return options

    async def call(self, operation: str, url: str, *, Bucket: str, **parameters: Any) -> dict[str, Any]:  # noqa: N803
        """Send one request."""
        connection = self.connection
        used = None if connection.renewal is None else connection.renewal.in_use
        try:
            answer = await self._send_logged(operation, url, Bucket, parameters)
        except StoreError as error:
            if connection.renewal is None:
                raise
            in_words = partial(self._explain_refusal, url, Bucket)
            refused = await connection.renewal.after(error, used or connection.renewal.in_use, in_words)
            if refused is error:
                raise
            if refused is not None:
                raise refused from error.__cause__
            answer = await self._send_logged(operation, url, Bucket, parameters)
        if connection.renewal is not None:
            connection.renewal.granted()
        return answer

    async def _explain_refusal(self, url: str, bucket: str) -> StoreError | None:
        """Why the store refuses these credentials: the answer to a HEAD has no body that would give a reason."""
        try:
            await self._send_logged("list_objects_v2", url, bucket, {"MaxKeys": 1})
        except StoreError as error:
            return error
        except UnsupportedError:
            return None
        return None

    async def _send_logged(
        self, operation: str, url: str, bucket: str, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        """One request, and its line in the log."""
        if operation == "get_object":  # its body is to come: who reads it writes to the log
            return await self._send(operation, url, bucket, dict(parameters))
        size = sum(piece.nbytes for piece in parameters.get("Body") or ())
        with RequestLine(operation, url, num_bytes=size) as line:
            answer = await self._send(operation, url, bucket, dict(parameters))
        line.end(answer["ResponseMetadata"]["HTTPStatusCode"], size)
        return answer

    async def _send(self, operation: str, url: str, bucket: str, parameters: dict[str, Any]) -> dict[str, Any]:
        pieces: RequestBody | None = None
        try:
            connection = self.connection
            if operation == "get_object":
                return await connection.get(parameters, bucket)
            filesystem = await connection.filesystem()
            body = parameters.get("Body")
            if body is None:
                return await filesystem._call_s3(operation, Bucket=bucket, **parameters)  # type: ignore[no-any-return]
            from resilient_pq.io.s3.s3_connection import RequestBody  # noqa: PLC0415 (imported when it was connected)

            async with asyncio.timeout(self._progress_seconds) as patience:
                parameters["Body"] = pieces = RequestBody(body, patience, self._progress_seconds)
                return await filesystem._call_s3(operation, Bucket=bucket, **parameters)  # type: ignore[no-any-return]
        except Exception as error:
            ours = _error_of_ours(error, operation, url, bucket, sent=pieces is None or pieces.handed_over)
            if ours is None:
                raise
            raise ours from error if code_of(error) else cause_to_show(error)

    async def accepts(self, operation: str, parameter: str) -> bool:
        """Whether the installed botocore knows a parameter; s3fs drops unknown ones without a word."""
        await self.connection.filesystem()
        client = self.connection.client
        api_name = client.meta.method_to_api_mapping[operation]
        shape = client.meta.service_model.operation_model(api_name).input_shape
        return parameter in shape.members

    async def close(self) -> None:
        """Use the connection no more; it stays for the next store of these options."""
        self._borrowed.give_back()

    @property
    def connection(self) -> S3Connection:
        """That of the running event loop."""
        return self._borrowed.client


def _error_of_ours(error: Exception, operation: str, url: str, bucket: str, *, sent: bool) -> Exception | None:
    """What to raise for an error of the client; None where it is to be raised as it is."""
    if isinstance(error, StoreError | UnsupportedError):
        return None
    ours = from_s3_error(error, bucket=bucket, url=url, doing=operation)
    if isinstance(ours, StoreError) and not sent:
        ours.undecided = False
    return ours


def _filesystem(options: Mapping[str, Any], progress_seconds: float | None) -> Any:
    """An s3fs of our own; called in a thread."""
    from resilient_pq.io.s3.s3_connection import new_filesystem  # noqa: PLC0415 (it takes 0.2 s)

    return new_filesystem(options, progress_seconds)


def retry_policy_from(storage_options: Mapping[str, Any], otherwise: RetryPolicy) -> RetryPolicy:
    """The policy with the attempts that botocore's own `retries` asks for: below ours they have no effect."""
    retries = (storage_options.get("config_kwargs") or {}).get("retries") or {}
    if "total_max_attempts" in retries:
        return replace(otherwise, attempts=max(1, int(retries["total_max_attempts"])))
    if "max_attempts" in retries:
        return replace(otherwise, attempts=1 + max(0, int(retries["max_attempts"])))
    return otherwise
