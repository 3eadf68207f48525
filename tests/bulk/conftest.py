"""Folders of small files, some of them damaged, each in one of ten ways."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes

TABLE = pa.table({"id": list(range(400)), "name": [f"name {i % 37}" for i in range(400)]})


def of_pyarrow(table: pa.Table = TABLE) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=100)
    return sink.getvalue()


async def of_ours() -> bytes:
    return await file_bytes(TABLE, row_group_rows=100, checkpoint_every=2, checkpoint_overhead=100.0)


def without_footer(data: bytes) -> bytes:
    return data[: -(int.from_bytes(data[-8:-4], "little") + 8)]


def chunk_of(data: bytes, row_group: int, column: int) -> tuple[int, int]:
    """Where a chunk lies, as pyarrow says it."""
    found = pq.read_metadata(io.BytesIO(data)).row_group(row_group).column(column)
    start = found.dictionary_page_offset or found.data_page_offset
    return start, start + found.total_compressed_size


def zeroed(data: bytes, start: int, end: int) -> bytes:
    return data[:start] + bytes(end - start) + data[end:]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


@dataclass(frozen=True)
class Way:
    """A way of being damaged."""

    data: bytes = field(repr=False)  # A file that is
    check: str  # What a check says of it
    recover: str  # What a recovery says of it
    num_rows: int  # How many rows can be kept
    needs_schema: bool = False  # Whether only another file tells its columns


@dataclass(frozen=True)
class Files:
    """What folders are made of."""

    sound: tuple[bytes, bytes] = field(repr=False)
    ways: dict[str, Way]

    def way_of(self, number: int) -> str | None:
        """How the file of a number is damaged: one in ten is, each way in turn."""
        return list(self.ways)[number // 10 % len(self.ways)] if number % 10 == 3 else None

    def data_of(self, number: int) -> bytes:
        way = self.way_of(number)
        return self.sound[number % 2] if way is None else self.ways[way].data

    def name_of(self, number: int) -> str:
        return f"day={number // 50:03}/part-{number:05}.parquet"

    def write(self, folder: Path, count: int) -> dict[str, str | None]:
        """Write so many files; the way of each by its name."""
        ways = {}
        for number in range(count):
            path = folder / self.name_of(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.data_of(number))
            ways[self.name_of(number)] = self.way_of(number)
        return ways


@pytest.fixture(scope="session")
def files() -> Files:
    ours, theirs = asyncio.run(of_ours()), of_pyarrow()
    third = chunk_of(ours, 2, 0)
    in_ours, in_theirs = chunk_of(ours, 1, 0), chunk_of(theirs, 1, 0)
    ways = {
        "ours torn in the third row group": Way(ours[: third[0] + 20], "damaged", "partial", 200),
        "ours without its footer": Way(ours[:-60], "damaged", "recovered", 400),
        "ours with a bad page": Way(flipped(ours, in_ours[1] - 5), "damaged", "partial", 300),
        "ours with a hole": Way(zeroed(ours, *in_ours), "damaged", "partial", 300),
        "ours torn in the first": Way(ours[: chunk_of(ours, 0, 0)[0] + 10], "nothing", "nothing", 0),
        "theirs without its footer": Way(without_footer(theirs), "damaged", "partial", 400, True),
        "theirs torn in the third": Way(theirs[: chunk_of(theirs, 2, 0)[0] + 5], "damaged", "partial", 200, True),
        "theirs with a hole": Way(zeroed(theirs, *in_theirs), "damaged", "partial", 300),
        "empty": Way(b"", "nothing", "nothing", 0),
        "no Parquet": Way(b"no Parquet file, " * 40, "nothing", "nothing", 0),
    }
    return Files((ours, theirs), ways)


@pytest.fixture(scope="session")
def without_its_footer() -> Callable[[bytes], bytes]:
    return without_footer
