"""s3fs as client, credentials and endpoint options, and nothing else of it: one request per call.

s3fs retries, botocore retries below it, and the attempts multiply; its file objects publish what is torn. So
only `_call_s3` is used, with both kinds of retry off; and so is aiohttp's, which sends a request once more when
the connection breaks before the answer.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

import aiohttp.payload
import s3fs
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.exceptions import DataNotFoundError
from botocore.loaders import create_loader

from resilient_pq.errors import StoreError, UnsupportedError
from resilient_pq.io.location import cause_to_show, scrubbed
from resilient_pq.io.protocols import KiB, MiB
from resilient_pq.io.ranged_get import MAX_REQUESTS
from resilient_pq.io.request_log import RequestLine
from resilient_pq.io.retry import RetryPolicy
from resilient_pq.io.s3_credentials import Renewal
from resilient_pq.io.s3_errors import code_of, from_s3_error
from resilient_pq.io.s3_gets import S3Gets
from resilient_pq.io.s3_options import s3fs_options

CONNECT_SECONDS = 5
PROGRESS_SECONDS = 15

# Options that say neither where a store is, nor who asks.
_NOT_ABOUT_ACCESS = frozenset({"config_kwargs", "fixed_upload_size"})

_CHUNK = 256 * KiB
# Below this a body fits the socket's buffers, and asking first would only cost a round trip.
_ASK_FIRST = 1 * MiB


class S3Client:
    """The connection to one S3 endpoint, opened by the first request, within the event loop of that request."""

    def __init__(self, storage_options: Mapping[str, Any]) -> None:
        """Keep the options; nothing is looked up or opened yet.

        Raises:
            UnsupportedError: There is no such option.
        """
        self._options = s3fs_options(storage_options)
        self._filesystem: Any = None
        self._client: Any = None
        self._gets: S3Gets | None = None
        self._renewal: Renewal | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def endpoint_url(self) -> str | None:
        """The endpoint the options name, as it is shown; or None: then the environment decides, or it is AWS."""
        url = self._options.get("endpoint_url") or self._client_options.get("endpoint_url")
        return None if url is None else scrubbed(str(url))

    def is_alike(self, other: S3Client) -> bool:
        """Whether another client asks the same endpoint with the same credentials, as far as its options tell."""
        return self._access == other._access

    @property
    def _access(self) -> dict[str, Any]:
        return {name: value for name, value in self._options.items() if name not in _NOT_ABOUT_ACCESS}

    @property
    def _looks_up_credentials(self) -> bool:
        """Whether they come from where newer ones may come from: nobody named them."""
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
        """Send one request.

        Args:
            operation: As botocore names its method: ``"get_object"``.
            url: The object it is about, for messages.
            Bucket: The bucket.
            **parameters: As botocore names them. `Body` may be a list of views: it is sent without being
                joined.

        Raises:
            StoreError: Whatever went wrong, in words of ours. It is `undecided` only when the whole body was
                handed over.
        """
        used = None if self._renewal is None else self._renewal.in_use
        try:
            answer = await self._sent(operation, url, Bucket, parameters)
        except StoreError as error:
            if self._renewal is None:
                raise
            refused = await self._renewal.after(error, used or self._renewal.in_use)
            if refused is error:
                raise
            if refused is not None:
                raise refused from error.__cause__
            answer = await self._sent(operation, url, Bucket, parameters)
        if self._renewal is not None:
            self._renewal.granted()
        return answer

    async def _sent(
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

    async def _send(
        self, operation: str, url: str, bucket: str, parameters: dict[str, Any]
    ) -> dict[str, Any]:
        pieces: _Pieces | None = None
        try:
            filesystem = await self._connected()
            if operation == "get_object" and self._gets is not None:
                return await self._get(self._gets, filesystem, bucket, parameters)
            body = parameters.get("Body")
            if body is None:
                answer: dict[str, Any] = await filesystem._call_s3(operation, Bucket=bucket, **parameters)
                return answer
            async with asyncio.timeout(self._progress_seconds) as patience:
                parameters["Body"] = pieces = _Pieces(body, patience, self._progress_seconds)
                answer = await filesystem._call_s3(operation, Bucket=bucket, **parameters)
                return answer
        except Exception as error:
            if isinstance(error, StoreError | UnsupportedError):
                raise
            ours = from_s3_error(error, bucket=bucket, url=url, doing=operation)
            if ours is None:
                raise
            if isinstance(ours, StoreError) and pieces is not None and not pieces.handed_over:
                ours.undecided = False
            raise ours from error if code_of(error) else cause_to_show(error)

    async def _get(
        self, gets: S3Gets, filesystem: Any, bucket: str, parameters: dict[str, Any]
    ) -> dict[str, Any]:
        answer = await gets.get(parameters, bucket)
        if answer is None:
            send = partial(filesystem._call_s3, "get_object", Bucket=bucket, **parameters)
            answer = await gets.learn(send, parameters, bucket)
        return answer

    async def accepts(self, operation: str, parameter: str) -> bool:
        """Whether the installed botocore knows a parameter; s3fs drops unknown ones without a word."""
        await self._connected()
        api_name = self._client.meta.method_to_api_mapping[operation]
        shape = self._client.meta.service_model.operation_model(api_name).input_shape
        return parameter in shape.members

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        client, self._client, self._filesystem = self._client, None, None
        if client is not None:
            await client.close()

    async def _connected(self) -> Any:
        if self._closed:
            raise StoreError("the store is closed")
        loop = asyncio.get_running_loop()
        if self._filesystem is not None:
            if loop is not self._loop:
                raise StoreError("the store belongs to another event loop; make one in each")
            return self._filesystem
        async with self._opening:
            if self._filesystem is None:
                try:
                    filesystem = await asyncio.to_thread(_filesystem, self._options)
                    self._client = await filesystem.set_session()
                except (TypeError, KeyError, AttributeError) as error:
                    raise UnsupportedError(f"storage_options do not fit s3fs: {scrubbed(str(error))}") from None
                self._client.meta.events.register_last("before-call.s3", _expect_only_for_large_bodies)
                # A session of the caller's may have hooks of the caller's, which every request is to pass.
                if not self._options.get("session"):
                    with suppress(AttributeError):  # an aiobotocore that is made in another way: it works alone
                        self._gets = S3Gets(self._client)
                if self._looks_up_credentials:
                    self._renewal = Renewal(
                        self._client._request_signer, lambda: _session(filesystem).get_credentials()
                    )
                self._filesystem, self._loop = filesystem, loop
        return self._filesystem


def retry_policy_from(storage_options: Mapping[str, Any], otherwise: RetryPolicy) -> RetryPolicy:
    """The policy with the attempts that botocore's own `retries` asks for: below ours they have no effect."""
    retries = (storage_options.get("config_kwargs") or {}).get("retries") or {}
    if "total_max_attempts" in retries:
        return replace(otherwise, attempts=max(1, int(retries["total_max_attempts"])))
    if "max_attempts" in retries:
        return replace(otherwise, attempts=1 + max(0, int(retries["max_attempts"])))
    return otherwise


def max_requests_from(storage_options: Mapping[str, Any]) -> int:
    """Requests under way at one time: as many as there may be connections, which `config_kwargs` can say."""
    return max(1, int((storage_options.get("config_kwargs") or {}).get("max_pool_connections", MAX_REQUESTS)))


def _filesystem(storage_options: Mapping[str, Any]) -> Any:
    """An s3fs of our own, never shared: its instances are bound to an event loop.

    Made in a thread: it reads what a client is made of, which takes 0.1 s for the first one.
    """
    config: dict[str, Any] = {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": PROGRESS_SECONDS,
        "max_pool_connections": MAX_REQUESTS,
        **_SENDING_ONCE,
        # Checksums as a trailer, botocore's new default, are refused by R2, GCS and Ceph.
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
        **(storage_options.get("config_kwargs") or {}),
        "retries": {"total_max_attempts": 1, "mode": "standard"},
    }
    # Hashing every body to sign it costs three times what sending it does.
    config["s3"] = {"payload_signing_enabled": False, **(config.get("s3") or {})}
    options = {**storage_options, "config_kwargs": config, "asynchronous": True, "skip_instance_cache": True}
    filesystem = s3fs.S3FileSystem(**options)
    filesystem.retries = 1
    if filesystem.session is None:
        filesystem.session = _session(filesystem)
    with suppress(DataNotFoundError):  # a botocore that keeps it elsewhere reads it when it makes the client
        loader = filesystem.session.get_component("data_loader")
        for name in ("service-2", "endpoint-rule-set-1"):
            loader.load_service_model("s3", name)
        for name in ("endpoints", "partitions", "sdk-default-configuration"):
            loader.load_data(name)
    return filesystem


def _session(filesystem: Any) -> Any:
    """A session that has looked nothing up yet."""
    session = AioSession(**filesystem.kwargs)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


class _SessionThatSendsOnce(AIOHTTPSession):  # type: ignore[misc]
    """Does not send a request without a body again, unasked and uncounted, when the connection breaks."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        session._retry_connection = False  # as aiohttp's own test client does
        return session


# Where aiobotocore lets its session be chosen. Elsewhere aiohttp goes on to send such a request a second time.
_SENDING_ONCE: dict[str, Any] = (
    {"http_session_cls": _SessionThatSendsOnce}
    if "http_session_cls" in inspect.signature(AioConfig.__init__).parameters
    else {}
)


@cache
def _loader(data_path: str | None) -> Any:
    """botocore's description of S3, parsed once: that is nine tenths of what a client costs."""
    return create_loader(data_path)


def _expect_only_for_large_bodies(params: dict[str, Any], **_: Any) -> None:
    """Wait for the server's leave only where a refused body would be a large one sent in vain.

    A part follows a request that the server granted a moment ago, so it never asks.
    """
    body = params.get("body")
    if (
        "partNumber" in params.get("query_string", {})
        or not isinstance(body, _Pieces)
        or len(body) < _ASK_FIRST
    ):
        params["headers"].pop("Expect", None)


class _Pieces(aiohttp.payload.Payload):
    """A body in pieces, sent as they lie in memory: not joined, and not copied into the transport as a whole.

    aiohttp has no time-out for a body that the server stops taking: so there is patience, which every chunk
    that is taken renews.

    Attributes:
        handed_over: Every byte was given to the connection; the server may have it all.
    """

    def __init__(
        self, pieces: Sequence[memoryview], patience: asyncio.Timeout, progress_seconds: float | None
    ) -> None:
        super().__init__(None)
        self.handed_over = False
        self._pieces = pieces
        self._patience = patience
        self._progress_seconds = progress_seconds
        self._size = sum(piece.nbytes for piece in pieces)
        self._at = 0  # for read

    def __len__(self) -> int:
        return self._size or 0

    def __bool__(self) -> bool:
        return True

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text; asked for by nobody, but part of the interface."""
        return b"".join(self._pieces).decode(encoding, errors)

    async def write(self, writer: Any) -> None:
        """Send the body, once.

        aiohttp sends a request again, unasked and untold, when the connection breaks before the answer. Of a
        PUT that may have arrived we must know: so the body counts as consumed.
        """
        if self._consumed:
            raise ConnectionResetError(errno.ECONNRESET, "the connection broke before the answer")
        self._consumed = True
        for piece in self._pieces:
            for begin in range(0, piece.nbytes, _CHUNK):
                await writer.write(piece[begin : begin + _CHUNK])
                self._renew_patience()
        self.handed_over = True

    def _renew_patience(self) -> None:
        if self._progress_seconds is None:
            return
        # A server may answer before it has taken the whole body; then nobody is waiting any more.
        with suppress(RuntimeError):
            self._patience.reschedule(asyncio.get_running_loop().time() + self._progress_seconds)

    async def write_with_length(self, writer: Any, content_length: int | None) -> None:
        """Send the body, whose length is the announced one."""
        await self.write(writer)

    # What botocore needs of a body that it signs, should the user ask for signed bodies.

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        whole = b"".join(self._pieces)
        end = len(whole) if size is None or size < 0 else self._at + size
        begin, self._at = self._at, min(end, len(whole))
        return whole[begin : self._at]

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to an offset."""
        self._at = offset + (0, self._at, len(self))[whence]
        return self._at

    def tell(self) -> int:
        """The offset."""
        return self._at
