"""resilient_pq, by its blocking names: CRCs, statistics and checkpoints on, as they are by default."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from contestants.job import Job, SkippedError
from resilient_pq import ReadOptions, WriteOptions
from resilient_pq import sync as rpq


def writing(name: str, table: pa.Table, job: Job) -> Callable[[], None]:
    options = WriteOptions(max_threads=job.threads)
    settings: dict[str, Any] = {"compression": job.codec, "compression_level": job.level, "options": options}
    if job.row_group_rows is not None:
        settings["row_group_rows"] = job.row_group_rows

    def write() -> None:
        with rpq.create(str(job.path), **settings) as writer:
            writer.write(table)

    return write


def reading(name: str, job: Job) -> Callable[[], Any]:
    options: dict[str, Any] = {"max_threads": job.threads}
    arguments: dict[str, Any] = {"columns": job.columns}
    if job.work.endswith("-view"):
        _ask_for_views(options, arguments)
    verify = name != "ours-noverify"

    def read() -> pa.Table:
        with rpq.open(str(job.path), verify=verify, options=ReadOptions(**options)) as file:
            return file.read(**arguments).to_pyarrow()  # without a copy

    return read


def as_arrow(result: Any) -> pa.Table:
    return result


def result_bytes(result: Any) -> int:
    return int(result.get_total_buffer_size())


def _ask_for_views(options: dict[str, Any], arguments: dict[str, Any]) -> None:
    if "strings" in inspect.signature(rpq.File.read).parameters:
        arguments["strings"] = "view"
    elif "strings" in {field.name for field in dataclasses.fields(ReadOptions)}:
        options["strings"] = "view"
    else:
        raise SkippedError('this version does not read strings="view"')
