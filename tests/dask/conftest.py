"""What the tests of `resilient_pq.dask` share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def s3_of_workers(seaweedfs: Any, empty_bucket: Any) -> Iterator[Any]:
    """A bucket on the server that is a process of its own."""
    with empty_bucket(seaweedfs) as found:
        yield found
