"""Files of many writers, rows to append to them, and stores that die."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from writers_of_others import WriteTable, by_duckdb, by_fastparquet, by_polars, by_pyarrow

from resilient_pq import sync
from resilient_pq.errors import TransientError
from resilient_pq.io.memory_store import MemoryStore


def by_us(**options: Any) -> WriteTable:
    return lambda table, size, path: sync.write(path, table, row_group_rows=size, **options)


WRITERS: dict[str, WriteTable] = {
    "ours": by_us(options=sync.WriteOptions(bloom_filter_options=["id", "name"])),
    "ours-gzip-v2": by_us(compression="gzip", options=sync.WriteOptions(data_page_version="2.0")),
    "pyarrow": by_pyarrow(write_page_index=True, bloom_filter_options={"id": True}),
    "pyarrow-v2": by_pyarrow(data_page_version="2.0", compression="zstd", write_page_checksum=True),
    "pyarrow-old": by_pyarrow(version="1.0", compression="none", use_dictionary=False, write_statistics=False),
    "duckdb": by_duckdb(),
    "polars": by_polars(),
    "fastparquet": by_fastparquet("SNAPPY"),
}


def rows(start: int, stop: int) -> pa.Table:
    """Rows that every writer keeps as they are."""
    numbers = range(start, stop)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": pa.array([None if i % 11 == 0 else f"name {i % 37}" for i in numbers], pa.string()),
            "price": pa.array([i / 7 for i in numbers], pa.float64()),
        }
    )


@pytest.fixture(scope="session")
def rows_of() -> Callable[[int, int], pa.Table]:
    return rows


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A file of 3,000 rows of each writer."""
    folder = tmp_path_factory.mktemp("originals")
    files = {}
    for name, write in WRITERS.items():
        path = folder / f"{name}.parquet"
        write(rows(0, 3000), 1000, path)
        files[name] = path.read_bytes()
    return files


@pytest.fixture
def original(originals: dict[str, bytes], tmp_path: Path) -> Callable[[str], Path]:
    """A file of a writer, in a folder of its own."""

    def place(name: str) -> Path:
        path = tmp_path / "day.parquet"
        path.write_bytes(originals[name])
        return path

    return place


class DyingStore(MemoryStore):
    """A store that one process loses at a request: neither that nor any later one of it is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[str] = []  # The requests that were made
        self.dies_at: int | None = None  # The number of the first request that is not answered; None for none
        self.carries_out = False  # Whether it is carried out all the same

    @classmethod
    def watch(cls, name: str) -> None:
        real = getattr(MemoryStore, name)

        async def asked(self: DyingStore, *args: Any, **kwargs: Any) -> Any:
            self.requests.append(name)
            number = len(self.requests) - 1
            if self.dies_at is None or number < self.dies_at:
                return await real(self, *args, **kwargs)
            if number == self.dies_at and self.carries_out:
                await real(self, *args, **kwargs)
            raise TransientError("the process is dead")

        setattr(cls, name, asked)

    def revive(self) -> None:
        self.dies_at = None


for name in (
    "head", "read_tail", "read_range", "put", "delete", "create_upload", "put_part", "complete_upload", "abort_upload",
    "list_uploads", "list_parts", "copy_part",
):  # fmt: skip
    DyingStore.watch(name)


@pytest.fixture
def dying_store() -> Callable[[], DyingStore]:
    return DyingStore
