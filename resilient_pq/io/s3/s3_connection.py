"""s3fs as client, credentials and endpoint options, and nothing else of it.

s3fs retries, botocore retries below it, and the attempts multiply; its file objects publish what is torn. So only
`_call_s3` is used, with both kinds of retry off; and so is aiohttp's, which sends a request once more when the
connection breaks before the answer. To import all that takes 0.2 s, so `S3Client` does it in a thread.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import aiohttp.payload
import s3fs
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.exceptions import DataNotFoundError
from botocore.loaders import create_loader

from resilient_pq.io.s3.s3_client import CONNECT_SECONDS
from resilient_pq.io.s3.s3_credentials import Renewal
from resilient_pq.io.s3.s3_gets import S3Gets
from resilient_pq.io.transfer.ranged_get import MAX_REQUESTS
from resilient_pq.units import KiB, MiB

__all__ = ["Renewal", "RequestBody", "S3Gets", "new_filesystem", "prepare_client"]

_CHUNK = 256 * KiB
# Below this a body fits the socket's buffers, and asking first would only cost a round trip.
_ASK_FIRST = 1 * MiB


def new_filesystem(storage_options: Mapping[str, Any], progress_seconds: float | None) -> Any:
    """An s3fs of our own, never shared: its instances are bound to an event loop."""
    # Made in a thread: it reads what a client is made of, which takes 0.1 s for the first one.
    config: dict[str, Any] = {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": progress_seconds,
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


def prepare_client(filesystem: Any, client: Any, *, gets: bool, renews: bool) -> tuple[S3Gets | None, Renewal | None]:
    """What sends the GETs of a new client, and what changes its credentials; None where nothing does."""
    client.meta.events.register_last("before-call.s3", _expect_only_for_large_bodies)
    renewal = Renewal(client._request_signer, lambda: _session(filesystem).get_credentials()) if renews else None
    if gets:
        with suppress(AttributeError):  # an aiobotocore that is made in another way: it works alone
            return S3Gets(client), renewal
    return None, renewal


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
    """Wait for the server's leave only where a refused body would be a large one sent in vain."""
    # A part follows a request that the server granted a moment ago, so it never asks.
    body = params.get("body")
    if "partNumber" in params.get("query_string", {}) or not isinstance(body, RequestBody) or len(body) < _ASK_FIRST:
        params["headers"].pop("Expect", None)


class RequestBody(aiohttp.payload.Payload):
    """A body in pieces, sent as they lie in memory: not joined, and not copied into the transport as a whole."""

    # aiohttp has no time-out for a body that the server stops taking: so there is patience, which every chunk that is
    # taken renews.

    def __init__(self, pieces: Sequence[memoryview], patience: asyncio.Timeout, progress_seconds: float | None) -> None:
        super().__init__(None)
        self.handed_over = False  # Every byte was given to the connection; the server may have it all
        self._pieces = pieces
        self._patience = patience
        self._progress_seconds = progress_seconds
        self._size = sum(piece.nbytes for piece in pieces)
        self._at = 0  # for read

    def __len__(self) -> int:
        return self._size or 0

    def __bool__(self) -> bool:
        """An empty body is one too."""
        return True

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text; asked for by nobody, but part of the interface."""
        return b"".join(self._pieces).decode(encoding, errors)

    async def write(self, writer: Any) -> None:
        """Send the body, once."""
        # aiohttp sends a request again, unasked and untold, when the connection breaks before the answer. Of a PUT
        # that may have arrived we must know: so the body counts as consumed.
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
