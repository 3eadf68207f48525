"""Files of other writers whose footer is gone: with a sibling's schema all rows of complete row groups are there."""

from __future__ import annotations

import io
import itertools
import random
from pathlib import Path
from typing import Any

import duckdb
import fastparquet
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq.format.schema_tree import Schema

ROWS = 700
CHOICE = random.Random(7)


def flat(rows: int = ROWS) -> pa.Table:
    """Columns of all widths, with and without nulls, some of one type side by side."""
    noise = [CHOICE.randbytes(CHOICE.randrange(12)) for _ in range(rows)]
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "when": pa.array([1_700_000_000_000_000 + i * 997 for i in range(rows)], pa.timestamp("us")),
            "small": pa.array([None if i % 5 == 0 else i % 90 for i in range(rows)], pa.int32()),
            "real": [CHOICE.random() for _ in range(rows)],
            "word": [None if i % 7 == 0 else f"word {i % 40}" for i in range(rows)],
            "text": [f"{CHOICE.random()}" for _ in range(rows)],
            "flag": [None if i % 11 == 0 else i % 3 == 0 for i in range(rows)],
            "nothing": pa.array([None] * rows, pa.string()),
            "noise": pa.array(noise, pa.binary()),
        }
    )


def nested(rows: int = ROWS) -> pa.Table:
    """Lists, structs, lists of structs, maps; nulls and empty ones at all levels."""

    def ints(i: int) -> list[int | None] | None:
        return None if i % 6 == 0 else [None if j % 4 == 3 else i * j for j in range(i % 5)]

    return pa.table(
        {
            "id": list(range(rows)),
            "list": pa.array([ints(i) for i in range(rows)], pa.list_(pa.int64())),
            "point": [None if i % 9 == 0 else {"x": i * 0.5, "y": None if i % 4 else f"y{i}"} for i in range(rows)],
            "lists": pa.array(
                [None if i % 8 == 0 else [ints(i + k) for k in range(i % 3)] for i in range(rows)],
                pa.list_(pa.list_(pa.int64())),
            ),
            "map": pa.array(
                [[(f"k{j}", j) for j in range(i % 4)] for i in range(rows)], pa.map_(pa.string(), pa.int32())
            ),
        }
    )


def by_pyarrow(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **({"row_group_size": 300, "data_page_size": 700} | options))
    return out.getvalue()


def by_duckdb(table: pa.Table, path: Path, *, compression: str, version: str) -> bytes:
    with duckdb.connect() as connection:
        connection.register("rows", pa.concat_tables([table] * 4))  # its row groups have 2,048 rows at least
        options = f"FORMAT parquet, ROW_GROUP_SIZE 2048, COMPRESSION {compression}, PARQUET_VERSION {version}"
        connection.execute(f"COPY rows TO '{path}' ({options})")
    return path.read_bytes()


def by_polars(table: pa.Table, path: Path, **options: Any) -> bytes:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(path, row_group_size=300, data_page_size=700, **options)
    return path.read_bytes()


def by_fastparquet(table: pa.Table, path: Path, **options: Any) -> bytes:
    frame = pd.DataFrame({name: table[name].to_pandas() for name in table.column_names if name != "nothing"})
    fastparquet.write(str(path), frame, row_group_offsets=300, **options)
    return path.read_bytes()


def whole_again(data: bytes, carving: Any, without: tuple[str, ...] = ("cut", "zeroed", "overwritten")) -> None:
    """Hold that without its footer all rows of a file are found, as pyarrow reads them of the file itself."""
    metadata, end = carving.footer_of(data)
    schema = Schema.from_elements(metadata.schema)
    expected = pq.read_table(io.BytesIO(data))
    damaged = {
        "cut": data[:end],
        "zeroed": data[:end] + bytes(len(data) - end),
        "overwritten": data[:end] + CHOICE.randbytes(len(data) - end),
    }
    for form in without:
        rebuilt = carving.carve(damaged[form], schema)
        assert [group.num_rows for group in rebuilt.row_groups] == [g.num_rows for g in metadata.row_groups]
        assert rebuilt.findings == ()
        rows = carving.table(damaged[form], rebuilt, metadata.key_value_metadata)
        assert rows.equals(expected)


PYARROW = [
    {"compression": codec, "data_page_version": version, "use_dictionary": dictionary, "write_page_checksum": crc}
    for codec, version, dictionary, crc in itertools.product(
        ["none", "snappy", "gzip", "brotli", "lz4", "zstd"], ["1.0", "2.0"], [True, False], [True, False]
    )
]


@pytest.mark.parametrize("make", [flat, nested])
@pytest.mark.parametrize("options", PYARROW[::5])
def test_pyarrow(make: Any, options: dict[str, Any], carving: Any) -> None:
    whole_again(by_pyarrow(make(), **options), carving, without=("zeroed",))


@pytest.mark.thorough
@pytest.mark.parametrize("make", [flat, nested])
@pytest.mark.parametrize("options", PYARROW)
def test_pyarrow_in_all_ways(make: Any, options: dict[str, Any], carving: Any) -> None:
    whole_again(by_pyarrow(make(), **options), carving)
    whole_again(by_pyarrow(make(), **options, data_page_size=1 << 20), carving)


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "gzip", "brotli", "lz4_raw", "zstd"])
def test_duckdb(compression: str, tmp_path: Path, carving: Any) -> None:
    version = "V2" if compression in ("snappy", "lz4_raw") else "V1"
    for make in (flat, nested):
        data = by_duckdb(make(), tmp_path / "file", compression=compression, version=version)
        whole_again(data, carving, without=("zeroed",))


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "gzip", "brotli", "lz4", "zstd"])
def test_polars(compression: str, tmp_path: Path, carving: Any) -> None:
    for make in (flat, nested):
        whole_again(by_polars(make(), tmp_path / "file", compression=compression), carving, without=("cut",))


@pytest.mark.parametrize("compression", [None, "SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD"])
def test_fastparquet(compression: str | None, tmp_path: Path, carving: Any) -> None:
    whole_again(by_fastparquet(flat(), tmp_path / "file", compression=compression), carving, without=("overwritten",))
