"""pyarrow: as it is by default; tuned; and with page CRCs, which is what ours always has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from contestants.job import Job


def writing(name: str, table: pa.Table, job: Job) -> Callable[[], None]:
    """It writes with one thread, whatever is set."""
    settings: dict[str, Any] = {"compression": job.codec, "compression_level": job.level}
    settings["row_group_size"] = job.row_group_rows
    if name == "pyarrow-tuned":  # dictionaries of floats are built and then thrown away
        settings["use_dictionary"] = [path for path, kind in _leaves(table.schema) if not pa.types.is_floating(kind)]
    if name == "pyarrow-crc":
        settings["write_page_checksum"] = True
    return lambda: pq.write_table(table, job.path, **settings)


def _leaves(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """The paths of the leaf columns, as pyarrow's options name them, and their types."""

    def below(path: str, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if pa.types.is_struct(kind):
            return [leaf for child in kind for leaf in below(f"{path}.{child.name}", child.type)]
        if pa.types.is_list(kind):
            return below(f"{path}.list.element", kind.value_type)
        return [(path, kind)]

    return [leaf for field in schema for leaf in below(field.name, field.type)]


def reading(name: str, job: Job) -> Callable[[], Any]:
    if job.threads is not None:
        pa.set_cpu_count(job.threads)
    threads = job.threads != 1
    columns = None if job.columns is None else list(job.columns)
    if name == "pyarrow-tuned":  # without the dataset layer, and without copying what is in the page cache

        def read() -> pa.Table:
            with pq.ParquetFile(job.path, memory_map=True) as file:
                return file.read(columns, use_threads=threads)

        return read
    crc = name == "pyarrow-crc"
    return lambda: pq.read_table(job.path, columns=columns, use_threads=threads, page_checksum_verification=crc)


def as_arrow(result: Any) -> pa.Table:
    return result


def result_bytes(result: Any) -> int:
    return int(result.get_total_buffer_size())
