"""resilient_pq, by its blocking names: CRCs, statistics and checkpoints on, as they are by default."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from contestants.job import Job, SkippedError
from resilient_pq import ReadOptions, WriteOptions, checksum
from resilient_pq import sync as rpq


def writing(name: str, table: pa.Table, job: Job) -> Callable[[], None]:
    options = WriteOptions(max_threads=job.threads)
    settings: dict[str, Any] = {"compression": job.codec, "compression_level": job.level, "options": options}
    if name.startswith("ours-nocrc"):
        _compute_no_checksums()
    if name == "ours-nocrc-nocheckpoints":
        settings["checkpoint_every"] = None

    def write() -> None:
        with rpq.create(str(job.path), **settings) as writer:
            writer.write(table)

    return write


def reading(name: str, job: Job) -> Callable[[], Any]:
    options = {"max_threads": job.threads}
    arguments: dict[str, Any] = {"columns": job.columns}
    if job.work == "read-view":
        _ask_for_views(options, arguments)
    verify = name != "ours-noverify"

    def read() -> pa.Table:
        with rpq.open(str(job.path), verify=verify, options=ReadOptions(**options)) as file:
            return file.read(**arguments).to_pyarrow()  # without a copy

    return read


def as_arrow(result: Any) -> pa.Table:
    return result


def result_bytes(result: Any) -> int:
    return result.get_total_buffer_size()


def _ask_for_views(options: dict[str, Any], arguments: dict[str, Any]) -> None:
    if "strings" in inspect.signature(rpq.File.read).parameters:
        arguments["strings"] = "view"
    elif "strings" in {field.name for field in dataclasses.fields(ReadOptions)}:
        options["strings"] = "view"
    else:
        raise SkippedError('this version does not read strings="view"')


def _compute_no_checksums() -> None:
    """Have every CRC32 be 0 in this process, to measure what computing them costs. The files are bad ones."""

    def no_crc32(data: Any, start: int = 0) -> int:
        return 0

    def no_combine(first: int, second: int, second_size: int) -> int:
        return 0

    instead = {checksum.crc32: no_crc32, checksum.combine: no_combine}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "resilient_pq":
            for attribute, value in list(vars(module).items()):
                if inspect.isfunction(value) and value in instead:
                    setattr(module, attribute, instead[value])
