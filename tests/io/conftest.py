"""Fixtures for the stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest


@pytest.fixture
def moto_proxy(moto_server: Any, http_proxy: Any) -> tuple[Any, Any]:
    """For what does not depend on the server behind the proxy: the quicker one, and the bucket of all."""
    proxy = http_proxy(moto_server.endpoint_url)
    return replace(moto_server, endpoint_url=proxy.endpoint_url), proxy


@pytest.fixture
def give_up_what_hangs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Ends the patience with bodies that hang at a proxy, so that no test has to wait until it is over."""
    from resilient_pq.io.s3.s3_connection import RequestBody

    newest: list[tuple[asyncio.AbstractEventLoop, asyncio.Timeout]] = []
    begin = RequestBody.__init__

    def begin_and_note(self: Any, pieces: Any, patience: asyncio.Timeout, seconds: float | None) -> None:
        begin(self, pieces, patience, seconds)
        newest[:] = [(asyncio.get_running_loop(), patience)]

    def end(loop: asyncio.AbstractEventLoop, patience: asyncio.Timeout) -> None:
        if not patience.expired():
            patience.reschedule(0.0)
            loop.call_later(0.01, end, loop, patience)  # the client may yet note that its last bytes were taken

    def begin_to_hang() -> None:
        loop, patience = newest[0]
        loop.call_soon_threadsafe(end, loop, patience)

    monkeypatch.setattr(RequestBody, "__init__", begin_and_note)
    return lambda proxy: setattr(proxy, "hanging", begin_to_hang)


@pytest.fixture
def seaweedfs_proxy(seaweedfs: Any, http_proxy: Any) -> tuple[Any, Any]:
    """For what only a server that compares checksums shows."""
    proxy = http_proxy(seaweedfs.endpoint_url)
    return replace(seaweedfs, endpoint_url=proxy.endpoint_url), proxy


@pytest.fixture
def shared_proxy(s3_server: Any, http_proxy: Any) -> tuple[Any, Any]:
    """Each server in turn behind a proxy, and the bucket of all: a fresh one costs half a second."""
    proxy = http_proxy(s3_server.endpoint_url)
    return replace(s3_server, endpoint_url=proxy.endpoint_url), proxy
