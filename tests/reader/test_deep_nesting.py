"""Columns nested deeper than most readers go: pyarrow ends at about 100 levels of the Parquet schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import UnsupportedError
from resilient_pq import sync as rpq


def _nested(kind: str, depth: int) -> tuple[pa.DataType, Any]:
    type_: pa.DataType = pa.int32()
    value: Any = 7
    for _ in range(depth):
        if kind == "struct":
            type_, value = pa.struct([("f", type_)]), {"f": value}
        else:
            type_, value = pa.list_(type_), [value]
    return type_, value


@pytest.mark.parametrize(
    ("kind", "depth"), [("struct", 62), ("struct", 99), ("struct", 149), ("list", 62), ("list", 120)]
)
def test_deep_columns(tmp_path: Path, kind: str, depth: int) -> None:
    path = tmp_path / "deep.parquet"
    type_, value = _nested(kind, depth)
    pq.write_table(pa.table({"x": pa.array([value, None, value], type_)}), path)
    with rpq.open(path) as file:
        assert file.read().to_pylist() == [{"x": value}, {"x": None}, {"x": value}]
    assert rpq.check(path).outcome == "sound"


@pytest.mark.parametrize(("kind", "depth"), [("struct", 151), ("list", 128), ("struct", 400), ("list", 400)])
def test_columns_beyond_all_measure(tmp_path: Path, kind: str, depth: int) -> None:
    path = tmp_path / "deep.parquet"
    type_, value = _nested(kind, depth)
    pq.write_table(pa.table({"x": pa.array([value], type_)}), path)
    with pytest.raises(UnsupportedError, match="is nested more than"), rpq.open(path) as file:
        file.read()
