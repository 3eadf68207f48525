"""The compiled kernels and those in NumPy make the same bytes of any table, and read the same out of any file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampled import either

from resilient_pq.format import kernels
from resilient_pq.format.kernels import reference

#: The compiled ones that this machine runs.
CHOSEN = kernels.rle_decode.__module__
KERNELS = [name for name, value in vars(reference).items() if callable(value)]
Draw = st.DataObject
Using = Callable[[str], AbstractContextManager[None]]
quick = settings(deadline=None, suppress_health_check=list(HealthCheck))

pytestmark = pytest.mark.skipif(kernels.active != "native", reason="there are no compiled kernels here")


@pytest.fixture(scope="session")
def using() -> Using:
    """Makes everything use the kernels of one kind for a while, and every file have the same id."""

    @contextmanager
    def use(which: str) -> Iterator[None]:
        native = import_module(CHOSEN)
        with pytest.MonkeyPatch.context() as patch:
            for name in KERNELS:
                fallback = getattr(reference, name)
                patch.setattr(kernels, name, fallback if which == "reference" else getattr(native, name, fallback))
            if which == "reference":
                patch.setattr(kernels, "FlatChunk", None)
            patch.setattr(os, "urandom", bytes)
            yield

    return use


def test_the_kernels_are_exchanged(using: Using) -> None:
    assert kernels.rle_decode.__module__ == CHOSEN
    with using("reference"):
        assert all(getattr(kernels, name) is getattr(reference, name) for name in KERNELS)
    assert kernels.rle_decode.__module__ == CHOSEN


@pytest.fixture(scope="session")
def compare(using: Using, repeatable_ways: Any, encodings: Any, written: Any, read_back: Any, assert_same: Any) -> Any:
    """Writes a table in a way that is drawn with either kind, and reads it with either."""

    def check(draw: Draw, table: pa.Table) -> None:
        way = {**draw.draw(repeatable_ways), "encodings": draw.draw(encodings(table.schema))}
        files = []
        for which in ("native", "reference"):
            with using(which):
                files.append(written([table], table.schema, way))
        assert files[0] == files[1]
        with using("reference"):
            assert_same(read_back(files[0]), table)

    return check


@pytest.mark.parametrize("max_rows", either([20], [40], 1800))
@given(draw=st.data())
@settings(quick)
def test_any_table(draw: Draw, tables: Any, compare: Any, max_rows: int) -> None:
    compare(draw, draw.draw(tables(max_rows)))


@pytest.mark.parametrize("rows", [1000, 5000])
def test_tables_of_many_rows(using: Using, written: Any, read_back: Any, assert_same: Any, rows: int) -> None:
    """Long enough for runs, blocks and miniblocks to fill, and for several of each."""
    numbers = [None if i % 7 == 3 else (i * 2654435761) % 2**40 - 2**39 for i in range(rows)]
    table = pa.table(
        {
            "int64": numbers,
            "int32": pa.array([i // 9 for i in range(rows)], pa.int32()),
            "runs": pa.array([i // 100 % 2 == 0 for i in range(rows)]),
            "double": pa.array([i / 3 for i in range(rows)]),
            "text": pa.array([f"https://example.org/{i // 10}/{i % 3}" for i in range(rows)]),
            "fixed": pa.array([i.to_bytes(5, "big") for i in range(rows)], pa.binary(5)),
            "lists": pa.array([[str(i)] * (i % 4) for i in range(rows)]),
        }
    )
    ways: list[dict[str, Any]] = [
        {"encodings": "PLAIN"},
        {"encodings": "auto"},
        {"encodings": {"int64": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "runs": "RLE"}},
        {"encodings": {"int32": "DELTA_BINARY_PACKED", "text": "DELTA_LENGTH_BYTE_ARRAY"}},
        {
            "encodings": {
                "double": "BYTE_STREAM_SPLIT",
                "fixed": "DELTA_BYTE_ARRAY",
                "lists": "DELTA_BYTE_ARRAY",
            }
        },
    ]
    for way in ways:
        files = []
        for which in ("native", "reference"):
            with using(which):
                files.append(written([table], table.schema, {**way, "compression": "none"}))
        assert files[0] == files[1], way
        with using("reference"):
            assert_same(read_back(files[0]), table)
