"""Files of a web server, read by ranges; keys are whole URLs. fsspec supplies session and options, nothing else."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlsplit, urlunsplit

from resilient_pq.errors import (
    AccessDeniedError,
    NotFoundError,
    ObjectChangedError,
    RangeError,
    StoreError,
    ThrottledError,
    TransientError,
    UnsupportedError,
)
from resilient_pq.io.location import Address, cause_to_show, scrubbed, shown
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS, Buffer, ObjectSink, SinkOptions
from resilient_pq.io.option_kinds import OPTIONS, Kind, check_kinds, check_names
from resilient_pq.io.protocols import Capabilities, WriteStore
from resilient_pq.io.shared_clients import Borrowed, ClientKey, let_go
from resilient_pq.io.stored_object import ObjectInfo, ObjectTail
from resilient_pq.io.surroundings import surroundings
from resilient_pq.io.transfer.fetch_counters import add_counts
from resilient_pq.io.transfer.ranged_answer import Answer
from resilient_pq.io.transfer.ranged_get import MAX_REQUESTS, RangedGetStore
from resilient_pq.io.transfer.request_limiter import RequestLimiter
from resilient_pq.io.transfer.request_log import RequestLine
from resilient_pq.io.transfer.retry import READING, RetryPolicy, retry_after

if TYPE_CHECKING:
    import aiohttp

_TEXTS: Kind = (
    lambda value: isinstance(value, Mapping) and all(isinstance(each, str) for each in (*value, *value.values())),
    "a dict of texts",
)


def _is_timeout(value: Any) -> bool:
    import aiohttp  # noqa: PLC0415 (slow to import, and there where a value of its is)

    return isinstance(value, aiohttp.ClientTimeout)


_KINDS: dict[str, Kind] = {
    "client_kwargs": OPTIONS,
    **dict.fromkeys(("headers", "client_kwargs.headers"), _TEXTS),
    **dict.fromkeys(("cookies", "client_kwargs.cookies"), OPTIONS),
    "client_kwargs.timeout": (_is_timeout, "a ClientTimeout of aiohttp"),
    "get_client": (callable, "a function"),
}
# What a server answers to HEAD that has none for this URL: a presigned URL is signed for one method.
_NO_HEAD = frozenset({400, 401, 403, 405, 501})
_SIZE = re.compile(r"\s*bytes\s+(?:\d+-\d+|\*)/(\d{1,19})\s*", re.ASCII | re.IGNORECASE)


class HttpStore(RangedGetStore, WriteStore):
    """What http and https URLs lead to; it can only be read.

    A version is named by its ETag, or else by its Last-Modified, and each read is conditional on it. Presigned URLs
    work: where HEAD is refused, the first byte is asked for instead.

    Args:
        storage_options: As fsspec's HTTP file system takes them: `headers`, `client_kwargs` and the rest.
        retry: When a request is sent again.
    """

    name = "the web server"
    capabilities = Capabilities(suffix_range=True, if_match=True)

    def __init__(self, storage_options: Mapping[str, Any] | None = None, *, retry: RetryPolicy = READING) -> None:
        super().__init__(retry, limiter=lambda: self._borrowed.client.limiter)
        self._options = dict(storage_options or {})
        check_kinds(self._options, _KINDS)
        if self._options.get("client_kwargs"):
            import aiohttp  # noqa: PLC0415 (slow to import, and rarely needed before the store connects)

            known = frozenset(inspect.signature(aiohttp.ClientSession.__init__).parameters) - {"self"}
            check_names(self._options, "client_kwargs", known)
        self._borrowed = Borrowed(
            lambda: ClientKey("http", self._options, surroundings("http")), lambda: _HttpConnection(self._options)
        )
        self._without_head: set[str] = set()  # hosts

    def url_of(self, key: str) -> str:
        """The URL, without secrets."""
        return shown(key)

    def address_of(self, key: str) -> str:
        """The URL itself."""
        return Address(key)

    def beside(self, key: str, name: str) -> str:
        """The URL of a file in the folder of another, with the query of that one."""
        parts = urlsplit(key)
        folder, slash, _ = parts.path.rpartition("/")
        return Address(urlunsplit(parts._replace(path=f"{folder}{slash}{quote(name)}", fragment="")))

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """The last `size` bytes, in one request where the server can; see `RangedGetStore`."""
        return await super().read_tail(Address(key), size)

    def check_writable(self, key: str) -> None:
        """Refused."""
        self._refuse_writing(key)

    async def put(self, key: str, data: Sequence[Buffer] | Buffer, *, if_none_match: bool = False) -> ObjectInfo:
        """Refused."""
        self._refuse_writing(key)

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        """Refused."""
        self._refuse_writing(key)

    async def delete(self, key: str) -> None:
        """Refused."""
        self._refuse_writing(key)

    async def close(self) -> None:
        """Use the connections no more; they stay for the next store of these options."""
        self._borrowed.give_back()

    def _refuse_writing(self, key: str) -> NoReturn:
        raise UnsupportedError(
            "a web server can only be read",
            where=self._where(key),
            hint="write to a path, to s3:// or to another store that fsspec can write to",
        )

    async def _get(self, key: str, byte_range: str, *, pin: ObjectInfo | None) -> Answer:
        headers = {"Range": byte_range, **_condition(pin)}
        response = await self._request("GET", key, headers)
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            response.close()
            raise UnsupportedError(
                f"the web server sends the file compressed ({encoding}): ranges of it mean nothing",
                where=self._where(key),
            )
        return Answer(
            body=_HttpBody(response),
            status=response.status,
            content_range=response.headers.get("Content-Range"),
            content_length=response.content_length,
            etag=_version(response),
        )

    async def _head(self, key: str) -> ObjectInfo:
        host = key.split("?", 1)[0].split("/")[2:3]
        if not self._without_head.issuperset(host):
            try:
                info = await self._info("HEAD", key, "")
            except StoreError as error:
                if error.status not in _NO_HEAD:
                    raise
                info = None
            if info is not None:
                return info
            add_counts(requests=1)
        info = await self._info("GET", key, "bytes=0-0")
        if info is None:
            raise UnsupportedError("the web server does not say how large the file is", where=self._where(key))
        self._without_head.update(host)
        return info

    async def _info(self, method: str, key: str, byte_range: str) -> ObjectInfo | None:
        """The version of the file by the headers of an answer; None where they do not have its size."""
        with RequestLine(method, self.url_of(key), byte_range) as line:
            response = await self._request(method, key, {"Range": byte_range} if byte_range else {}, empty=True)
        size, told = response.content_length, response.headers.get("Content-Range")
        if response.status in (206, 416):
            match = None if told is None else _SIZE.fullmatch(told)
            # There is no first byte of an empty file.
            size = int(match[1]) if match is not None else 0 if response.status == 416 else None
        response.release()
        line.end(response.status, 0)
        return None if size is None else ObjectInfo(Address(key), size, _version(response))

    async def _request(
        self, method: str, url: str, headers: dict[str, str], *, empty: bool = False
    ) -> aiohttp.ClientResponse:
        """One request, its body unread, or the error of ours that the status means."""
        filesystem = await self._borrowed.client.filesystem()
        import aiohttp  # noqa: PLC0415 (imported when it was connected)

        options = dict(filesystem.kwargs)
        headers = {**options.pop("headers", {}), "Accept-Encoding": "identity", **headers}
        try:
            session = await filesystem.set_session()
            response: aiohttp.ClientResponse = await session.request(
                method, filesystem.encode_url(url), headers=headers, allow_redirects=True, **options
            )
        except TypeError as error:
            reason = f"storage_options do not fit a web server: {scrubbed(str(error))}"
            raise UnsupportedError(reason) from cause_to_show(error)
        except (ValueError, aiohttp.TooManyRedirects) as error:  # of InvalidURL, and of what no URL parser takes
            # Parsers name the very part that they do not take, which may be one of a password.
            reason = scrubbed(str(error)) if shown(url) == url else type(error).__name__
            raise StoreError(f"not a URL that can be read: {reason}", where=self._where(url)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = scrubbed(str(error)) or type(error).__name__
            raise TransientError(f"{method}: {reason}", where=self._where(url)) from cause_to_show(error)
        if response.status not in (200, 206) and not (empty and response.status == 416):
            response.close()
            refused = self._refused(method, url, response)
            refused.status = response.status
            raise refused
        return response

    def _refused(self, method: str, url: str, response: aiohttp.ClientResponse) -> StoreError:
        """The error that a status means."""
        status, where = response.status, self._where(url)
        message = f"{method}: the web server said {status} {scrubbed(response.reason or '')}".rstrip()
        if status in (404, 410):
            return NotFoundError(message, where=where)
        if status in (401, 403, 407):
            hint = "give credentials in storage_options, such as headers or client_kwargs"
            if urlsplit(url).query:
                hint = "if the URL is presigned, it may have expired: make a new one"
            return AccessDeniedError(message, where=where, hint=hint)
        if status == 412:
            return ObjectChangedError("the file was replaced while it was read", where=where)
        if status == 416:
            return RangeError(message, where=where)
        if status in (429, 503):
            wish = retry_after(response.headers.get("Retry-After"))
            return ThrottledError(message, retry_after=wish, where=where)
        if status == 408 or status >= 500:
            return TransientError(message, where=where)
        return StoreError(message, where=where)


class _HttpConnection:
    """A session, which stores share; the first request opens it."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.limiter = RequestLimiter(MAX_REQUESTS)
        self._options = options
        self._filesystem: Any = None

    async def filesystem(self) -> Any:
        """The file system of fsspec that has the session."""
        if self._filesystem is None:
            filesystem = await asyncio.to_thread(_filesystem, self._options, asyncio.get_running_loop())
            self._filesystem = self._filesystem or filesystem
        return self._filesystem

    async def close(self) -> None:
        """Close the connections."""
        filesystem, self._filesystem = self._filesystem, None
        if filesystem is not None and filesystem._session is not None:  # none where the options made none
            await filesystem._session.close()

    def abandon(self) -> None:
        """Let go of connections that nothing can close any more."""
        if self._filesystem is not None and self._filesystem._session is not None:
            let_go([self._filesystem._session])


def _filesystem(storage_options: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> Any:
    """A file system of fsspec; called in a thread, as what it imports takes 0.1 s."""
    import aiohttp  # noqa: PLC0415
    from fsspec.implementations.http import HTTPFileSystem  # noqa: PLC0415

    # Connect within 5 s; once connected, some byte every 15 s.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=15)
    client_options = {"timeout": timeout, **storage_options.get("client_kwargs", {})}
    options = {**storage_options, "client_kwargs": client_options}
    return HTTPFileSystem(**options, asynchronous=True, loop=loop, skip_instance_cache=True)


class _HttpBody:
    """The body of a GET, with its errors as ours."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def read(self, size: int) -> bytes:
        """The next bytes, none at the end."""
        import aiohttp  # noqa: PLC0415 (imported when it was connected)

        try:
            return await self._response.content.read(size)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = scrubbed(str(error)) or type(error).__name__
            raise TransientError(f"the body broke off: {reason}") from cause_to_show(error)

    def close(self) -> None:
        """Drop the rest; a body read to its end gives its connection back."""
        self._response.close()


def _version(response: aiohttp.ClientResponse) -> str | None:
    return response.headers.get("ETag") or response.headers.get("Last-Modified")


def _condition(pin: ObjectInfo | None) -> dict[str, str]:
    """The header that holds a read to its version; a weak ETag can only be compared afterwards."""
    if pin is None or pin.etag is None or pin.etag.startswith("W/"):
        return {}
    return {"If-Match" if pin.etag.startswith('"') else "If-Unmodified-Since": pin.etag}
