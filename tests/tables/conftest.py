"""Tables of each format, written by sinks and read by others."""

from __future__ import annotations

from pathlib import Path

import pytest
from table_places import KINDS, Place


@pytest.fixture(params=list(KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path / "tables", *KINDS[request.param])


@pytest.fixture
def iceberg_place(tmp_path: Path) -> Place:
    return Place(tmp_path / "tables", *KINDS["iceberg"])


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=pytest.mark.thorough)])
def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """For what does not depend on the format: the quicker one in the quick suite."""
    return Place(tmp_path / "tables", *KINDS[request.param])
