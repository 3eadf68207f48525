"""What `encodings="auto"` writes is read rightly by every reader, fastparquet too; and levels as old readers want them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq
from resilient_pq import SchemaError, WriteOptions
from resilient_pq import sync as rpq

#: In a process of its own: of files that it does not read it may crash.
FASTPARQUET = """
import json, sys
import fastparquet, pandas
for path in json.load(sys.stdin):
    column = fastparquet.ParquetFile(path).to_pandas()["x"]
    print(json.dumps([None if pandas.isna(value) else int(value) for value in column]))
"""


def _columns() -> dict[str, pa.Array]:
    """Columns of integers whose differences are of every width, with nulls and without."""
    random = np.random.default_rng(11)
    columns = {}
    for bits in (0, 1, 5, 8, 13, 20, 27, 28, 29, 30, 31, 32, 40, 52):
        steps = random.integers(-(1 << bits) // 2, (1 << bits) - (1 << bits) // 2 + 1, 3000)
        for step in (0, 12_345):
            values = np.cumsum(steps + step)
            if np.abs(values).max() < 1 << 53:  # fastparquet makes doubles of columns with nulls
                columns[f"int64 {bits} {step}"] = pa.array(values)
                columns[f"int64 null {bits} {step}"] = pa.array(values, mask=random.random(3000) < 0.1)
            if np.abs(values).max() < 1 << 31:
                columns[f"int32 {bits} {step}"] = pa.array(values, pa.int32())
    for name, count in (("one", 1), ("two", 2), ("block", 128), ("block and one", 129)):
        columns[name] = pa.array(np.arange(count) * 7)
    return columns


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, pa.Array]]:
    folder = tmp_path_factory.mktemp("auto")
    files = {}
    for number, (name, column) in enumerate(_columns().items()):
        path = folder / f"{number}.parquet"
        codec = ("none", "snappy", "zstd")[number % 3]
        with rpq.create(path, compression=codec, page_bytes=4000, row_group_rows=1700) as writer:
            writer.write(pa.table({"x": column}))
        files[name] = path, column
    return files


def _encodings(path: Path) -> set[str]:
    metadata = pq.read_metadata(path)
    return {
        encoding
        for group in range(metadata.num_row_groups)
        for encoding in metadata.row_group(group).column(0).encodings
    }


def test_columns_of_every_width_are_written_in_more_than_one_way(written: dict[str, tuple[Path, Any]]) -> None:
    used = [_encodings(path) for path, _ in written.values()]
    assert sum("DELTA_BINARY_PACKED" in encodings for encodings in used) > 20
    assert sum("DELTA_BINARY_PACKED" not in encodings for encodings in used) > 20
    assert all(encodings <= {"PLAIN", "RLE", "RLE_DICTIONARY", "DELTA_BINARY_PACKED"} for encodings in used)


def test_every_reader_reads_them(written: dict[str, tuple[Path, pa.Array]]) -> None:
    for name, (path, column) in written.items():
        expected = column.to_pylist()
        with rpq.open(path) as file:
            assert pa.table(file.read())["x"].to_pylist() == expected, name
        assert pq.read_table(path)["x"].to_pylist() == expected, name
        assert pl.read_parquet(path)["x"].to_list() == expected, name
        assert [row[0] for row in duckdb.sql(f"SELECT x FROM '{path}'").fetchall()] == expected, name
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FASTPARQUET],
        input=json.dumps([str(path) for path, _ in written.values()]),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = run.stdout.splitlines()
    for line, (name, (_, column)) in zip(lines, written.items(), strict=True):
        assert json.loads(line) == column.to_pylist(), name


NESTED = pa.table(
    {
        "o": pa.array([None if i % 3 == 0 else i for i in range(1000)]),
        "l": pa.array([None if i % 7 == 0 else [None, i][: i % 3] for i in range(1000)], pa.list_(pa.int32())),
        "d": pa.array([[[i], None, [None, i, i]][: i % 4] for i in range(1000)], pa.list_(pa.list_(pa.int16()))),
        "r": pa.array(range(1000)),
    },
    pa.schema(
        [
            pa.field("o", pa.int64()),
            pa.field("l", pa.list_(pa.int32())),
            pa.field("d", pa.list_(pa.list_(pa.int16()))),
            pa.field("r", pa.int64(), nullable=False),
        ]
    ),
)


@pytest.mark.parametrize("page_rows", [1, 7, 100_000])
def test_bit_packed_levels(tmp_path: Path, page_rows: int) -> None:
    path = tmp_path / "levels.parquet"
    options = WriteOptions(level_encoding="BIT_PACKED", page_rows=page_rows)
    with rpq.create(path, options=options) as writer:
        writer.write(NESTED)
    group = pq.read_metadata(path).row_group(0)
    levels = [set(group.column(i).encodings) & {"BIT_PACKED", "RLE"} for i in range(4)]
    assert levels == [{"BIT_PACKED"}, {"BIT_PACKED"}, {"BIT_PACKED"}, set()]
    with rpq.open(path) as file:
        assert pa.table(file.read()).equals(NESTED)
    assert rpq.check(path).outcome == "sound"


def test_bit_packed_levels_bit_by_bit(tmp_path: Path) -> None:
    """No other library is a witness: Arrow C++ takes the bits in the other order, DuckDB and Polars refuse them."""
    path = tmp_path / "levels.parquet"
    rows = [None, 1, None, 2, 3, None, None, None, 4]
    options = WriteOptions(level_encoding="BIT_PACKED")
    with rpq.create(path, options=options, compression="none", encodings="PLAIN") as writer:
        writer.write({"x": pa.array(rows, pa.int32())})
    values = b"".join(value.to_bytes(4, "little") for value in rows if value is not None)
    assert bytes([0b01011000, 0b10000000]) + values in path.read_bytes()


def test_bit_packed_levels_are_of_pages_v1() -> None:
    refused: list[Callable[[], Any]] = [
        lambda: rpq.create("x.parquet", options=WriteOptions("2.0", level_encoding="BIT_PACKED")),
        lambda: rpq.create("x.parquet", options=WriteOptions(level_encoding="PLAIN")),  # type: ignore[arg-type]
    ]
    for ask in refused:
        with pytest.raises(SchemaError, match=r"BIT_PACKED"):
            ask()
    assert resilient_pq.WriteOptions().level_encoding == "RLE"
