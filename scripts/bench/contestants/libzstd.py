"""The floor under a zstd writer: the same page bytes as ours, compressed by libzstd and nothing else."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from contestants import ours
from contestants.job import Job, SkippedError
from resilient_pq.format.compression import codecs
from resilient_pq.format.file_metadata import CompressionCodec
from resilient_pq.format.pages.page import pages_of


def writing(name: str, table: pa.Table, job: Job) -> Callable[[], None]:
    """Ours writes the file once; its pages, as they were before compression, are compressed again and dropped."""
    if job.codec != "zstd":
        raise SkippedError("there is nothing to compress")
    ours.writing("ours", table, job)()
    pages = _page_bytes(job)
    room = max(len(page) for page in pages) + 4096
    level = 3 if job.level is None else job.level
    local = threading.local()

    def compress(page: memoryview) -> None:
        if not hasattr(local, "buffer"):
            local.buffer = np.empty(room + room // 128, np.uint8)
        cramjam.zstd.compress_into(page, local.buffer, level=level)

    def write() -> None:
        with ThreadPoolExecutor(job.threads or os.cpu_count()) as pool:
            for _ in pool.map(compress, pages):
                pass

    return write


def _page_bytes(job: Job) -> list[memoryview]:
    data = memoryview(job.path.read_bytes())
    metadata = pq.read_metadata(job.path)
    found = []
    for i in range(metadata.num_row_groups):
        for j in range(metadata.num_columns):
            chunk = metadata.row_group(i).column(j)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            bounds = slice(start, start + chunk.total_compressed_size)
            for page in pages_of(data[bounds], start, chunk.num_values):
                size = page.header.uncompressed_page_size
                found.append(codecs.decompress(CompressionCodec.ZSTD, page.body, size))
    return found


def reading(name: str, job: Job) -> Callable[[], Any]:
    raise SkippedError("it only writes")


def as_arrow(result: Any) -> pa.Table:
    raise SkippedError("it reads nothing")


def result_bytes(result: Any) -> int:
    raise SkippedError("it reads nothing")
