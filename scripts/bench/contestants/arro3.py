"""arro3, which is parquet-rs: one thread, and all columns, since it takes no others from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import arro3.io
import pyarrow as pa

from contestants.job import Job

#: Its default of 1024 rows is slow, as its documentation says; several times more or fewer than this are no faster.
BATCH_ROWS = 32_768


def writing(name: str, table: pa.Table, job: Job) -> Callable[[], None]:
    codec: Any = {"none": "uncompressed"}.get(job.codec, job.codec)
    if job.level is not None:
        codec = f"{codec}({job.level})"
    return lambda: arro3.io.write_parquet(table, str(job.path), compression=codec)


def reading(name: str, job: Job) -> Callable[[], Any]:
    return lambda: pa.table(arro3.io.read_parquet(str(job.path), batch_size=BATCH_ROWS).read_all())


def as_arrow(result: Any) -> pa.Table:
    return result


def result_bytes(result: Any) -> int:
    return int(result.get_total_buffer_size())
