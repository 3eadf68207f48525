"""Samples of Trevni: those that Avro's own writer wrote, and their values, which are computed here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from corpus_of_others import CORPUS, absent

#: Where the samples are.
SAMPLES = CORPUS / "trevni"
NAMES = sorted(path.name for path in SAMPLES.glob("*.trv"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `sample_name` runs once for every sample."""
    if "sample_name" in metafunc.fixturenames:
        metafunc.parametrize("sample_name", NAMES or [None])


@pytest.fixture(autouse=True)
def sample_is_there(request: pytest.FixtureRequest) -> None:
    """No test runs with a sample that is not there."""
    if "sample_name" in request.fixturenames and not NAMES:
        absent(SAMPLES)


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of the samples."""
    if not NAMES:
        absent(SAMPLES)
    return SAMPLES


def _types(r: int) -> dict[str, Any]:
    """Row r of the files that have a column of each type."""
    sign = -1 if r % 2 else 1
    return {
        "n": None,
        "b": r % 3 == 0,
        "i": sign * 7919 * r,
        "l": sign * 1000003 * 4099 * r,
        "f32": 31 * r - 5,
        "f64": r * 0x100000001,
        "f": r / 8,
        "d": -r / 16,
        "s": f"row {r} é",
        "y": bytes([r & 255, 0, 255]),
        "sorted": r // 3,
    }


def _nested(r: int) -> dict[str, Any]:
    """Row r of the files with arrays in arrays."""
    count = r % 4 if r < 100 else (r // 50) % 2
    return {
        "id": r,
        "to": [f"t{r}.{j}" for j in range(count)],
        "received": [
            {"date": 10 * r + j, "sigs": [{"algo": f"a{r}{j}{t}"} for t in range((r + j) % 3)]} for j in range(r % 3)
        ],
    }


def _values(name: str) -> list[dict[str, Any]]:
    stem = name.removesuffix(".trv")
    if stem.startswith("types-"):
        rows = {"types-empty": 0, "types-blocks-deflate-crc32": 30_000}.get(stem, 500)
        return [_types(r) for r in range(rows)]
    if stem.startswith("nested-"):
        return [_nested(r) for r in range(400)]
    return [json.loads(line) for line in (SAMPLES / f"{stem}.json").read_text().splitlines()]


@pytest.fixture
def sample(sample_name: str) -> tuple[Path, list[dict[str, Any]]]:
    """A sample, and its rows."""
    return SAMPLES / sample_name, _values(sample_name)


@pytest.fixture(scope="session")
def rows_of() -> Any:
    """The rows of a sample, by its name."""
    return _values
