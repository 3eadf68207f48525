"""Polars: a frame of its own, made before the clock starts, is written; see `reading` for what is read.

POLARS_MAX_THREADS is set by whoever starts the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa

from contestants.job import Job


def writing(name: str, table: pa.Table, job: Job) -> Callable[[], None]:
    frame = pl.DataFrame(table)
    codec: Any = "uncompressed" if job.codec == "none" else job.codec
    settings: dict[str, Any] = {"compression_level": job.level, "row_group_size": job.row_group_rows}
    return lambda: frame.write_parquet(job.path, compression=codec, **settings)


def reading(name: str, job: Job) -> Callable[[], Any]:
    """Into plain Arrow: the oldest level of compatibility has large_string, and no string_view.

    With the works "-view" it stops at its own frame, which is Arrow with string views.
    """
    columns = None if job.columns is None else list(job.columns)
    if job.work.endswith("-view"):
        return lambda: pl.read_parquet(job.path, columns=columns)
    plain = pl.CompatLevel.oldest()
    return lambda: pl.read_parquet(job.path, columns=columns).to_arrow(compat_level=plain)


def as_arrow(result: Any) -> pa.Table:
    return result.to_arrow() if isinstance(result, pl.DataFrame) else result


def result_bytes(result: Any) -> int:
    return int(result.estimated_size() if isinstance(result, pl.DataFrame) else result.get_total_buffer_size())
