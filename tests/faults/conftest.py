"""A killable server behind a proxy that draws outages; see the modules outage_* of tests/plugins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from outage_bench import Bench

#: Ninety seconds become four and a half.
SCALE = 0.05


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for cases that run one after the other."""
    made = Bench(tmp_path_factory.mktemp("bench"), SCALE)
    yield made
    made.close()
