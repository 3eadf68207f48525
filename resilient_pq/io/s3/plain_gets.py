"""GETs from S3 over connections of our own: what a program that only reads needs of S3, without botocore.

To import botocore and to make a client of it takes half a second. `PlainAccess` says where that is not needed. A store
that refuses a request is asked again by botocore, which may know better, and says in its words why.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from resilient_pq.io.s3.http_connections import Endpoint, HttpConnections
from resilient_pq.io.s3.plain_access import PlainAccess
from resilient_pq.io.s3.s3_gets import answer_of


class PlainGets:
    """Sends GETs with the credentials that are known from the beginning.

    Attributes:
        refused: A request was, and is left to botocore.
    """

    def __init__(self, access: PlainAccess, *, progress_seconds: float | None) -> None:
        """Nothing is opened yet."""
        self.refused = access.is_secure and find_spec("certifi") is None  # then botocore brings certificates
        self._access = access
        self._connections = HttpConnections(connect_seconds=access.connect_seconds, progress_seconds=progress_seconds)
        self._certificates: ssl.SSLContext | None = None
        self._opening = asyncio.Lock()

    async def get(self, parameters: Mapping[str, Any], bucket: str) -> dict[str, Any] | None:
        """The answer to a GET, as botocore has it, or None where botocore is to send it."""
        known = self._access.bucket_request(bucket)
        if known is None or self.refused or not {"Key", "Range", "IfMatch"}.issuperset(parameters):
            return None
        request = known.get(parameters, self._access.credentials, datetime.now(UTC))
        try:
            response = await self._send(request, known.host)
            answer = await answer_of(response, leaves_refusals=True)
        except (OSError, ValueError) as error:
            raise await asyncio.to_thread(_error_of_botocore, error, request.url) from error
        self.refused = self.refused or answer is None
        return answer

    async def _send(self, request: SimpleNamespace, host: str) -> SimpleNamespace:
        url = urlsplit(request.url)
        if self._access.is_secure and self._certificates is None:
            async with self._opening:
                self._certificates = self._certificates or await asyncio.to_thread(_certificates)
        endpoint = Endpoint(str(url.hostname), url.port or (443 if self._access.is_secure else 80), self._certificates)
        headers = {"host": host, **request.headers, "accept": "*/*", "accept-encoding": "identity"}
        answer = await self._connections.get(endpoint, url.path, headers)
        rest = None if answer.status in (200, 206) else answer.read_all()
        body = SimpleNamespace(content=answer, close=answer.close)
        return SimpleNamespace(status_code=answer.status, headers=answer.headers, raw=body, content=rest)

    async def close(self) -> None:
        """Close the connections."""
        self.refused = True
        self._connections.close()

    def abandon(self) -> None:
        """Let go of connections that nothing can close any more."""
        self._connections.abandon()


def _certificates() -> ssl.SSLContext:
    """Those that botocore takes, too."""
    import certifi  # noqa: PLC0415 (for secure connections alone)

    return ssl.create_default_context(cafile=certifi.where())


def _error_of_botocore(error: Exception, url: str) -> Exception:
    """The error of botocore for one of a connection; called in a thread, as it may be the first to import that."""
    from botocore import exceptions as botocore  # noqa: PLC0415

    found: Exception = botocore.HTTPClientError(error=error)
    if isinstance(error, ssl.SSLError):
        found = botocore.SSLError(endpoint_url=url, error=error)
    elif isinstance(error, TimeoutError):
        kind = botocore.ConnectTimeoutError if str(error).startswith("connect") else botocore.ReadTimeoutError
        found = kind(endpoint_url=url, error=error)
    elif isinstance(error, OSError):
        answered = isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError)
        found = (botocore.ConnectionClosedError if answered else botocore.EndpointConnectionError)(
            endpoint_url=url, error=error
        )
    return found
