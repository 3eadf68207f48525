"""Errors of stores, and those that they came from, tell no secrets of URLs and of storage options."""

from __future__ import annotations

import asyncio
import pickle
import socket
import traceback
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from resilient_pq.errors import ResilientPQError, UnsupportedError
from resilient_pq.io import HttpStore, S3Store, resolve
from resilient_pq.io.location import shown

pytestmark = pytest.mark.usefixtures("two_attempts")

OPTIONS = {
    "headers": {"X-Api": "plantedHeader"},
    "client_kwargs": {"headers": {"Cookie": "plantedHeader"}, "trust_env": False},
}
PLANTED = "planted"


def _told(error: BaseException) -> Iterator[str]:
    """What anybody may print of an error, and of those that it says it came from."""
    yield from traceback.format_exception(error)
    waiting = [error]
    while waiting:
        each = waiting.pop()
        yield repr(each)
        yield str(each)
        yield repr(vars(each))
        yield repr(pickle.loads(pickle.dumps(each))) if isinstance(each, ResilientPQError) else ""
        waiting += [found for found in (each.__cause__, each.__context__) if found is not None]  # suppressed or not


def _port_of_nobody() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.parametrize("chain", ["", "simplecache::"])
async def test_errors_of_web_servers(guarded_site: Any, chain: str) -> None:
    site = guarded_site
    urls = [site.url(name) for name in ("403", "404", "429", "500", "loop", "elsewhere", "cut", "garbled")]
    urls += [site.url("x", scheme="https"), site.url("x", port=_port_of_nobody())]
    urls += [f"http://plantedUser:planted/Pa55@127.0.0.1:{site.port}/a", "http://[host/a?sig=planted"]
    for url in urls:
        store, key = resolve(chain + url, OPTIONS if not chain else {"http": OPTIONS})
        async with store:
            with pytest.raises(ResilientPQError) as caught:
                await store.read_tail(key, 100)
            errors: list[BaseException] = [caught.value]
            try:
                await store.head(key)
            except ResilientPQError as error:
                errors.append(error)
            assert len(errors) == 2 or "/cut" in url
            for error in errors:
                text = "\n".join(_told(error))
                assert PLANTED not in text, (url, text)
            assert PLANTED not in repr(key)


async def test_options_of_a_session_that_does_not_take_them(guarded_site: Any) -> None:
    url = guarded_site.put("a.parquet", b"PAR1" * 100)
    for options in (
        {"client_kwargs": {"proxy": "http://planted:planted@host", "nonsense": "planted"}},
        {"headers": {"Authorization": "planted\nplanted"}},
        {"proxy": f"http://planted:planted@127.0.0.1:{_port_of_nobody()}"},
        {"secret": "planted"},
    ):
        with pytest.raises(ResilientPQError) as caught:
            async with HttpStore(options) as store:
                await store.head(url)
        assert PLANTED not in "\n".join(_told(caught.value)), options


@pytest.mark.parametrize("endpoint", ["http://{}127.0.0.1:{}", "{}127.0.0.1:{}", "https://{}127.0.0.1:{}/?a=planted"])
async def test_errors_of_an_endpoint_with_a_password(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by an option it is refused; the environment may name it."""
    url = endpoint.format("plantedUser:plantedPa55@", _port_of_nobody())
    options = {"key": "plantedKey", "secret": "plantedSecret", "token": "plantedToken"}
    with pytest.raises(UnsupportedError) as refused:
        S3Store({**options, "endpoint_url": url})
    assert PLANTED not in "\n".join(_told(refused.value))
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    async with S3Store(options) as store:
        assert PLANTED not in store.name + repr(store.command_arguments)
        for asking in (store.head("b/a"), store.read_tail("b/a", 10), store.put("b/a", b"x"), store.list_names("b/")):
            with pytest.raises(ResilientPQError) as caught:
                await asking
            assert PLANTED not in "\n".join(_told(caught.value))


async def test_a_url_of_s3_with_a_user_is_refused_before_it_is_told() -> None:
    for url in ("s3://plantedKey:plantedSecret@bucket/a", "s3://plantedKey:planted/Secret@bucket/a"):
        with pytest.raises(ResilientPQError, match="a user and a password") as caught:
            resolve(url)
        assert PLANTED not in "\n".join(_told(caught.value))
        assert shown(url) == "s3://bucket/a"


async def test_answers_of_aiohttp_come_with_the_headers_of_the_request(guarded_site: Any) -> None:
    """What the rule about causes rests on."""
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer planted"}) as session:
        with pytest.raises(aiohttp.ClientResponseError) as caught:
            await asyncio.wait_for(session.get(guarded_site.signed("403"), raise_for_status=True), 10)
    assert "Bearer planted" in repr(caught.value)
