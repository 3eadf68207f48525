"""rugo, which is quick with footers: its own vectors are made Arrow, one batch for each row group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from rugo import parquet

from contestants.job import Job, SkippedError


def writing(name: str, table: pa.Table, job: Job) -> Callable[[], None]:
    raise SkippedError("it does not write what is Arrow's")


def reading(name: str, job: Job) -> Callable[[], Any]:
    columns = None if job.columns is None else list(job.columns)

    def read() -> pa.Table:
        with parquet.read_parquet(str(job.path), columns=columns, threads=job.threads) as reader:
            return pa.Table.from_batches([batch for morsel in reader for batch in _batches(morsel.to_arrow())])

    return read


def _batches(found: Any) -> list[pa.RecordBatch]:
    return found.to_batches() if isinstance(found, pa.Table) else [found]


def as_arrow(result: Any) -> pa.Table:
    return result


def result_bytes(result: Any) -> int:
    return int(result.get_total_buffer_size())
