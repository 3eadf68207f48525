"""DuckDB: it scans a registered Arrow table and gives Arrow tables, so both conversions are within the clock.

They are what a caller of Arrow pays. Its order of rows is kept, which is its default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa

from contestants.job import Job, SkippedError

#: What it takes out of a table at once: a row group cannot have fewer.
VECTOR_ROWS = 2048


def _connected(job: Job) -> Any:
    return duckdb.connect(config={} if job.threads is None else {"threads": job.threads})


def writing(name: str, table: pa.Table, job: Job) -> Callable[[], None]:
    if job.row_group_rows is not None and job.row_group_rows < VECTOR_ROWS:
        raise SkippedError(f"DuckDB has no row groups of fewer than {VECTOR_ROWS} rows")
    connection = _connected(job)
    connection.register("source", table)
    codec = {"none": "uncompressed"}.get(job.codec, job.codec)
    level = "" if job.level is None else f", COMPRESSION_LEVEL {job.level}"
    copy = f"COPY (SELECT * FROM source) TO '{job.path}' (FORMAT parquet, COMPRESSION {codec}{level})"

    def write() -> None:
        connection.execute(copy)

    return write


def reading(name: str, job: Job) -> Callable[[], Any]:
    connection = _connected(job)
    columns = "*" if job.columns is None else ", ".join(f'"{column}"' for column in job.columns)
    query = f"SELECT {columns} FROM read_parquet('{job.path}')"
    return lambda: connection.execute(query).to_arrow_table()


def as_arrow(result: Any) -> pa.Table:
    return result


def result_bytes(result: Any) -> int:
    return int(result.get_total_buffer_size())
