"""Fixtures for the stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest


@pytest.fixture
def moto_proxy(moto_server: Any, http_proxy: Any) -> tuple[Any, Any]:
    """For what does not depend on the server behind the proxy: the quicker one, and the bucket of all."""
    proxy = http_proxy(moto_server.endpoint_url)
    return replace(moto_server, endpoint_url=proxy.endpoint_url), proxy


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
