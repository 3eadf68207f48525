"""Files as other libraries write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

#: Writes a table, with row groups of so many rows, to a path.
WriteTable = Callable[[pa.Table, int, Path], None]


def by_pyarrow(**options: Any) -> WriteTable:
    return lambda table, size, path: pq.write_table(table, path, row_group_size=size, **options)


def by_duckdb(codec: str = "snappy", version: str = "V1") -> WriteTable:
    """Its row groups have 2,048 rows at least."""

    def write(table: pa.Table, size: int, path: Path) -> None:
        import duckdb

        with duckdb.connect() as connection:
            connection.register("given", table)
            connection.execute("set threads = 1; set preserve_insertion_order = true")
            options = f"format parquet, row_group_size {size}, compression {codec}, parquet_version {version}"
            connection.execute(f"copy given to '{path}' ({options})")

    return write


def by_polars(codec: Any = "zstd", **options: Any) -> WriteTable:
    def write(table: pa.Table, size: int, path: Path) -> None:
        import polars

        frame = polars.from_arrow(table)
        assert isinstance(frame, polars.DataFrame)
        frame.write_parquet(path, row_group_size=size, compression=codec, **options)

    return write


def by_fastparquet(codec: str | None = None, *, without: tuple[str, ...] = ()) -> WriteTable:
    def write(table: pa.Table, size: int, path: Path) -> None:
        import fastparquet

        frame = table.to_pandas().drop(columns=list(without), errors="ignore")
        fastparquet.write(str(path), frame, row_group_offsets=size, write_index=False, compression=codec)

    return write
