"""GETs from S3 over a session of aiohttp of our own: what a program that only reads needs of S3, without botocore.

To import botocore and to make a client of it takes half a second. `PlainAccess` says where that is not needed. A store
that refuses a request is asked again by botocore, which may know better, and says in its words why.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from resilient_pq.io.s3.plain_access import PlainAccess
from resilient_pq.io.s3.s3_gets import answer_of
from resilient_pq.io.shared_clients import let_go

if TYPE_CHECKING:
    import aiohttp


class PlainGets:
    """Sends GETs with the credentials that are known from the beginning."""

    def __init__(self, access: PlainAccess, *, progress_seconds: float | None, max_connections: int) -> None:
        self.refused = access.is_secure and find_spec("certifi") is None  # then botocore brings certificates
        self._access = access
        self._progress_seconds = progress_seconds
        self._max_connections = max_connections
        self._session: aiohttp.ClientSession | None = None
        self._opening = asyncio.Lock()

    async def get(self, parameters: Mapping[str, Any], bucket: str) -> dict[str, Any] | None:
        """The answer to a GET, as botocore has it, or None where botocore is to send it."""
        known = self._access.bucket_request(bucket)
        if known is None or self.refused or not {"Key", "Range", "IfMatch"}.issuperset(parameters):
            return None
        request = known.get(parameters, self._access.credentials, datetime.now(UTC))
        session = self._session or await self._open()
        try:
            response = await self._send(session, request)
            answer = await answer_of(response, leaves_refusals=True)
        except (OSError, ValueError, TimeoutError, _aiohttp().ClientError) as error:
            raise await asyncio.to_thread(_error_of_botocore, error, request.url) from error
        self.refused = self.refused or answer is None
        return answer

    async def _send(self, session: aiohttp.ClientSession, request: SimpleNamespace) -> SimpleNamespace:
        from yarl import URL  # noqa: PLC0415 (imported with aiohttp)

        headers = {**request.headers, "Accept-Encoding": "identity"}
        raw = await session.get(URL(request.url, encoded=True), headers=headers)
        named = {name.decode().lower(): value.decode() for name, value in raw.raw_headers}
        body = None if raw.status in (200, 206) else raw.read()
        return SimpleNamespace(status_code=raw.status, headers=named, raw=raw, content=body)

    async def _open(self) -> aiohttp.ClientSession:
        async with self._opening:
            if self._session is None:
                aiohttp = await asyncio.to_thread(_aiohttp)
                verified = await asyncio.to_thread(_certificates) if self._access.is_secure else True
                timeout = aiohttp.ClientTimeout(
                    sock_connect=self._access.connect_seconds, sock_read=self._progress_seconds
                )
                self._session = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=self._max_connections, ssl=verified),
                    timeout=timeout,
                    auto_decompress=False,
                )
                self._session._retry_connection = False  # no request is sent again unasked, as in `s3_connection`
        return self._session

    async def close(self) -> None:
        """Close the connections."""
        session, self._session, self.refused = self._session, None, True
        if session is not None:
            await session.close()

    def abandon(self) -> None:
        """Let go of connections that nothing can close any more."""
        if self._session is not None:
            let_go([self._session])


def _aiohttp() -> Any:
    import aiohttp  # noqa: PLC0415 (it takes 0.1 s)

    return aiohttp


def _certificates() -> ssl.SSLContext:
    """Those that botocore takes, too."""
    import certifi  # noqa: PLC0415 (for secure connections alone)

    return ssl.create_default_context(cafile=certifi.where())


def _error_of_botocore(error: Exception, url: str) -> Exception:
    """The error of botocore for one of a connection; called in a thread, as it may be the first to import that."""
    from botocore import exceptions as botocore  # noqa: PLC0415

    aiohttp = _aiohttp()
    found: Exception = botocore.HTTPClientError(error=error)
    if isinstance(error, aiohttp.ClientSSLError):
        found = botocore.SSLError(endpoint_url=url, error=error)
    elif isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        found = botocore.ConnectionClosedError(endpoint_url=url, error=error)
    elif isinstance(error, TimeoutError):
        slow_to_connect = str(error).lower().startswith("connect")
        kind = botocore.ConnectTimeoutError if slow_to_connect else botocore.ReadTimeoutError
        found = kind(endpoint_url=url, error=error)
    elif isinstance(error, aiohttp.ClientConnectionError | socket.gaierror):
        found = botocore.EndpointConnectionError(endpoint_url=url, error=error)
    return found
