"""A small resilient file, and an oracle that knows it by the layout of its records alone, not by our code."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
import random
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes

SCRIPT = Path(__file__).with_name("killed_writer.py")
MAGIC = bytes.fromhex("d75250510d0a1a0a")
HEADER = struct.Struct("<8sBBHI16sQQQQIIQQII")
ANCHOR, ROW_GROUP, CHECKPOINT, FINAL, CHUNK = 1, 2, 3, 4, 5


@dataclass(frozen=True)
class Record:
    """A record as docs/format.md draws it."""

    kind: int
    epoch: int
    file_id: bytes
    offset: int
    previous: int
    newest_footer: int
    num_rows: int
    num_row_groups: int
    number: int
    end: int


def records_of(data: bytes) -> list[Record]:
    """Every record that lies where it says and whose two CRC32 hold."""
    found = []
    at = data.find(MAGIC)
    while at >= 0:
        if at + HEADER.size <= len(data):
            (_, version, kind, size, epoch, file_id, offset, previous, newest, num_rows, num_row_groups,
             number, payload_size, _, payload_crc, header_crc) = HEADER.unpack_from(data, at)  # fmt: skip
            end = at + HEADER.size + payload_size
            if (
                (version, size, offset) == (1, HEADER.size, at)
                and zlib.crc32(data[at : at + HEADER.size - 4]) == header_crc
                and end <= len(data)
                and zlib.crc32(data[at + HEADER.size : end]) == payload_crc
            ):
                found.append(Record(kind, epoch, file_id, at, previous, newest, num_rows, num_row_groups, number, end))
        at = data.find(MAGIC, at + 1)
    return found


@dataclass(frozen=True)
class ResilientFile:
    """A file, the rows in it, and its records."""

    data: bytes
    table: pa.Table
    records: Sequence[Record]

    def rows_before(self, cut: int) -> int:
        """Rows of the row groups that a record, or a footer, names which is whole before the cut."""
        named = (
            record.num_rows
            for record in self.records
            if record.kind in (ROW_GROUP, CHECKPOINT, FINAL) and record.end <= cut
        )
        return max(named, default=0)

    @property
    def most_rows(self) -> int:
        """Rows of the largest row group."""
        counts = [record.num_rows for record in self.records if record.kind == ROW_GROUP]
        return max(later - earlier for earlier, later in pairwise([0, *counts]))

    @property
    def anchor_end(self) -> int:
        """Where the schema is whole."""
        return self.records[0].end

    @property
    def checkpoint_ends(self) -> list[int]:
        """Where the file can be cut and is an ordinary one; the anchor and the whole file left out."""
        return [record.end for record in self.records if record.kind == CHECKPOINT]

    @property
    def borders(self) -> list[int]:
        """Every offset at which something begins or ends."""
        places = {0, 4, len(self.data)}
        for record in self.records:
            places |= {record.offset, record.offset + HEADER.size, record.end}
        metadata = pq.read_metadata(io.BytesIO(self.data))
        places.add(len(self.data) - 8 - metadata.serialized_size)
        for i in range(metadata.num_row_groups):
            for j in range(metadata.num_columns):
                chunk = metadata.row_group(i).column(j)
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                places |= {start, chunk.data_page_offset, start + chunk.total_compressed_size}
        return sorted(places)

    def cuts(self, *, around: int, samples: int, seed: int) -> list[int]:
        """Every border, the bytes up to `around` beside it, and seeded samples of all other places."""
        near = {border + by for border in self.borders for by in range(-around, around + 1)}
        drawn = random.Random(seed).sample(range(len(self.data)), samples)
        return sorted(cut for cut in near | set(drawn) if 0 <= cut < len(self.data))


def rows_of(count: int) -> pa.Table:
    """Rows of many kinds: nulls, strings with few values and with many, empty strings, whole Parquet files."""
    inner = io.BytesIO()
    pq.write_table(pa.table({"PAR1": [1, 2]}), inner)
    blobs = [None if i % 5 == 0 else inner.getvalue() if i % 16 == 3 else b"PAR1" * (i % 4) for i in range(count)]
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "town": pa.array([None if i % 7 == 0 else f"town {i % 3}" for i in range(count)]),
            "note": pa.array([f"{i * 7919 % 1013:x}" * (i % 3) for i in range(count)]),
            "score": pa.array([None if i % 11 == 0 else i / 3 for i in range(count)]),
            "flag": pa.array([i % 3 == 0 for i in range(count)]),
            "blob": pa.array(blobs, pa.binary()),
        }
    )


async def write(table: pa.Table, **options: Any) -> ResilientFile:
    """Write a table, a row group for every 16 rows and a checkpoint after every second one if not told otherwise."""
    chosen = {"row_group_rows": 16, "checkpoint_every": 2, "checkpoint_overhead": 100.0, **options}
    data = await file_bytes(table, **chosen)
    return ResilientFile(data, table, records_of(data))


@pytest.fixture(scope="session")
def small() -> ResilientFile:
    """Five row groups and two checkpoints, the last row group behind them."""
    return asyncio.run(write(rows_of(5 * 16 - 3)))


@pytest.fixture(scope="session")
def write_file() -> Callable[..., Any]:
    return write


@pytest.fixture(scope="session")
def make_rows() -> Callable[[int], pa.Table]:
    return rows_of


@pytest.fixture(scope="session")
def parse_records() -> Callable[[bytes], list[Record]]:
    return records_of


@pytest.fixture(scope="session")
def known() -> Callable[[bytes, pa.Table], ResilientFile]:
    """A file that is known by its bytes and by the rows that are in it."""
    return lambda data, table: ResilientFile(data, table, records_of(data))


@dataclass(frozen=True)
class Killed:
    """What the program in killed_writer.py had said when it was killed."""

    lines: list[list[str]]  # On its output
    logged: int  # Rows before the newest checkpoint in the log of its writer

    def rows(self, word: str, *states: str) -> int:
        """The largest number it said after a word, in one of the states where there are any."""
        said = [line for line in self.lines if line[0] == word and (not states or line[2] in states)]
        return max((int(line[1]) for line in said), default=0)


@pytest.fixture
def kill_writer(tmp_path: Path) -> Callable[..., Killed]:
    """Runs killed_writer.py, and kills it some time after it has said so many lines, three for a row group."""

    def run(seed: int, url: str, *, storage_options: Any = None, group: int, size: int, lines: int) -> Killed:
        rng = random.Random(seed)
        log = tmp_path / f"log {seed}"
        arguments = [url, json.dumps(storage_options), group, size, rng.randint(2, 5), log]
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=(tmp_path / "stderr").open("wb"),
            text=True,
        )
        assert process.stdout is not None
        said: list[str] = []
        try:
            for _ in range(lines):
                said.append(process.stdout.readline())
            time.sleep(rng.choice([0, 0, rng.uniform(0, 0.05)]))
            assert process.poll() is None, (tmp_path / "stderr").read_text()
        finally:
            process.kill()
            said += process.stdout.readlines()
            process.wait()
        assert process.returncode == -signal.SIGKILL
        # A line is whole or was never said.
        logged = [json.loads(line) for line in (log.open() if log.exists() else ()) if line.endswith("\n")]
        return Killed(
            [line.split() for line in said if line.endswith("\n")],
            max((event["num_rows"] for event in logged if event["event"] == "stored"), default=0),
        )

    return run


@pytest.fixture(scope="session")
def written_rows() -> Callable[[int, int], dict[str, list[Any]]]:
    """The first rows that killed_writer.py writes, given their number and the size of a value."""
    spec = importlib.util.spec_from_file_location("killed_writer", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda count, size: module.rows(0, count, size)
