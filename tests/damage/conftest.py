"""A small resilient file, and what must hold of it whatever has been done to its bytes."""

from __future__ import annotations

import asyncio
import io
import json
import select
import struct
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from file_bytes import file_bytes
from ledger_check import check_ledger
from writers_of_others import by_duckdb, by_fastparquet, by_polars, by_pyarrow

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore

MAGIC = bytes.fromhex("d75250510d0a1a0a")
NOT_DAMAGE = (rpq.Damage.UNFINISHED, rpq.Damage.UNVERIFIED)


@dataclass(frozen=True)
class Whole:
    """A file before anything happened to it."""

    data: bytes  # Its bytes
    table: pa.Table  # Its rows, by pyarrow
    row_groups: tuple[tuple[range, ...], ...]  # The bytes of the column chunks of each row group, by pyarrow
    num_rows: tuple[int, ...]
    resilient: bool = True  # Whether every byte is covered by a checksum

    def row_groups_with(self, *offsets: int) -> set[int]:
        """The row groups whose column chunks have one of these bytes."""
        return {
            ordinal
            for ordinal, chunks in enumerate(self.row_groups)
            if any(offset in chunk for chunk in chunks for offset in offsets)
        }

    def without(self, lost: Collection[int]) -> pa.Table:
        """The rows of all other row groups."""
        kept, start = [], 0
        for ordinal, count in enumerate(self.num_rows):
            if ordinal not in lost:
                kept.append(self.table.slice(start, count))
            start += count
        return pa.concat_tables(kept) if kept else self.table.slice(0, 0)

    def records(self, kind: int) -> list[range]:
        """Where the records of a kind lie, by the layout in docs/format.md."""
        found = []
        at = self.data.find(MAGIC)
        while at >= 0:
            if self.data[at + 9] == kind and int.from_bytes(self.data[at + 32 : at + 40], "little") == at:
                (size,) = struct.unpack_from("<Q", self.data, at + 72)
                found.append(range(at, at + 96 + size))
            at = self.data.find(MAGIC, at + 1)
        return found

    def losses(self, changed: Collection[int]) -> set[int]:
        """The row groups that may be lost when all of these bytes changed.

        A row group is kept while its chunks are whole and a whole record names it; and there is a schema while one
        anchor, checkpoint or final record is whole.
        """
        changed = set(changed)
        lost = self.row_groups_with(*changed)
        footers = [record for kind in (1, 3, 4) for record in self.records(kind)]
        if not any(changed.isdisjoint(footer) for footer in footers):
            return set(range(len(self.num_rows)))
        for ordinal, record in enumerate(self.records(2)):
            # Footers name the row groups before them.
            naming = [record, *(footer for footer in footers if footer.start > record.start)]
            if not any(changed.isdisjoint(place) for place in naming):
                lost.add(ordinal)
        return lost

    def replaced(self, *pieces: tuple[int, bytes]) -> tuple[bytes, list[int]]:
        """The bytes, with others written over some of them, and the offsets of those that changed by it."""
        data = bytearray(self.data)
        for offset, piece in pieces:
            data[offset : offset + len(piece)] = piece[: len(data) - offset]
        return bytes(data), [i for i, (old, new) in enumerate(zip(self.data, data, strict=True)) if old != new]

    def forged(self, record: range, payload: bytes) -> bytes:
        """The bytes up to a record and the record with another payload, for which its checksums hold."""
        header = bytearray(self.data[record.start : record.start + 96])
        struct.pack_into("<QQI", header, 72, len(payload), xxhash.xxh3_64_intdigest(payload), zlib.crc32(payload))
        struct.pack_into("<I", header, 92, zlib.crc32(header[:92]))
        return self.data[: record.start] + header + payload

    def flipped(self, *flips: tuple[int, int]) -> bytes:
        """The bytes, with some of them XORed: pairs of an offset and a value."""
        changed = bytearray(self.data)
        for offset, value in flips:
            changed[offset] ^= value
        return bytes(changed)


def understand(data: bytes, *, resilient: bool = True) -> Whole:
    metadata = pq.read_metadata(io.BytesIO(data))
    row_groups = []
    for i in range(metadata.num_row_groups):
        chunks = []
        for j in range(metadata.num_columns):
            chunk = metadata.row_group(i).column(j)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            chunks.append(range(start, start + chunk.total_compressed_size))
        row_groups.append(tuple(chunks))
    rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    return Whole(data, pq.read_table(io.BytesIO(data)), tuple(row_groups), rows, resilient)


async def write(table: pa.Table, **options: Any) -> Whole:
    chosen = {"row_group_rows": 12, "checkpoint_every": 2, "checkpoint_overhead": 100.0, **options}
    whole = understand(await file_bytes(table, **chosen))
    assert whole.table.equals(table)
    return whole


def make_rows(count: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "town": pa.array([None if i % 7 == 0 else f"town {i % 3}" for i in range(count)]),
            "score": pa.array([None if i % 11 == 0 else i / 3 for i in range(count)]),
            "blob": pa.array([bytes([i % 256]) * (i % 9) for i in range(count)], pa.binary()),
        }
    )


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rpq.IncompleteFileWarning)
        yield


@dataclass(frozen=True)
class Outcome:
    """What came of a damaged file."""

    read: pa.Table | rpq.ResilientPQError  # The table, or the error that reading raised
    check: rpq.Report | rpq.ResilientPQError  # The report, or the error that the check raised
    recovery: rpq.Report | rpq.ResilientPQError  # The report, or the error that the recovery raised
    output: bytes | None  # The bytes that the recovery wrote


async def run(data: bytes) -> Outcome:
    """Read, check and recover; errors of ours are answers, all others pass."""
    store = MemoryStore()
    await store.put("damaged", data)
    read: Any
    check: Any
    recovery: Any
    output = None
    with quiet():
        try:
            async with rpq.open((store, "damaged")) as file:
                read = pa.table(await file.read())
        except rpq.ResilientPQError as error:
            read = error
        try:
            check = await rpq.check((store, "damaged"))
        except rpq.ResilientPQError as error:
            check = error
        try:
            recovery = await rpq.recover((store, "damaged"), (store, "out"))
            output = bytes((await store.read_tail("out", 1 << 30)).data)
        except rpq.ResilientPQError as error:
            recovery = error
            with pytest.raises(rpq.NotFoundError):
                await store.head("out")
        for report in (check, recovery):
            if isinstance(report, rpq.Report):
                report.to_json()
        accounted(recovery.report if isinstance(recovery, rpq.NothingToRecoverError) else recovery)
    assert bytes((await store.read_tail("damaged", 1 << 30)).data) == data
    return Outcome(read, check, recovery, output)


def accounted(recovery: Any) -> None:
    """Every byte and every row is accounted for once, and the report counts what the ledger counts."""
    if not isinstance(recovery, rpq.Report):
        return
    assert recovery.kept is not None and recovery.kept.ledger is not None
    ledger = recovery.kept.ledger
    assert check_ledger(ledger) == []
    assert ledger.rows_kept == recovery.num_rows
    if recovery.outcome != rpq.Outcome.NOTHING:
        assert (None if ledger.uncounted else ledger.rows_lost) == recovery.kept.rows_lost


def uncovered(report: rpq.Report | rpq.ResilientPQError, changed: Collection[int]) -> set[int]:
    """The changed bytes that no finding speaks of."""
    if isinstance(report, rpq.ResilientPQError):
        return set()
    spans = [
        range(finding.start, finding.end)
        for finding in report.findings
        if finding.damage not in NOT_DAMAGE and finding.start is not None and finding.end is not None
    ]
    return {offset for offset in changed if not any(offset in span for span in spans)}


async def examine(
    whole: Whole, data: bytes, *, changed: Collection[int] = (), may_lose: Collection[int] = ()
) -> Outcome:
    """Do everything with a damaged file, and hold it against P4 and P6."""
    outcome = await run(data)
    if isinstance(outcome.read, pa.Table):
        assert outcome.read.equals(whole.table), "silently different values"
    missed = uncovered(outcome.check, changed)
    assert not missed, f"no finding covers {sorted(missed)[:10]}"
    recovery = outcome.recovery
    if isinstance(recovery, rpq.ResilientPQError):
        assert set(may_lose) == set(range(len(whole.num_rows))), f"nothing was recovered: {recovery}"
        assert isinstance(recovery, rpq.NothingToRecoverError), repr(recovery)
        return outcome
    assert outcome.output is not None and recovery.kept is not None
    table = pq.read_table(io.BytesIO(outcome.output))
    lost = lost_row_groups(whole, table)
    assert lost <= set(may_lose), f"row groups {lost} were lost"
    assert table.equals(whole.without(lost)), "the output has wrong values"
    assert recovery.num_rows == table.num_rows
    assert recovery.kept.rows_lost in (None, whole.table.num_rows - table.num_rows)
    assert (recovery.outcome == rpq.Outcome.PARTIAL) == bool(recovery.kept.lost)
    if lost:
        assert recovery.kept.lost and recovery.kept.rows_lost != 0
    if isinstance(outcome.check, rpq.Report):
        assert outcome.check.num_rows == recovery.num_rows
    again = await run(outcome.output)
    assert isinstance(again.read, pa.Table) and again.read.equals(table)
    assert isinstance(again.check, rpq.Report)
    assert not [finding for finding in again.check.findings if finding.damage not in NOT_DAMAGE]
    return outcome


def lost_row_groups(whole: Whole, table: pa.Table) -> set[int]:
    """The row groups none of whose rows are there, by the column `id`."""
    found = set(table.column("id").to_pylist())
    lost, start = set(), 0
    for ordinal, count in enumerate(whole.num_rows):
        ids = set(whole.table.column("id").slice(start, count).to_pylist())
        if not ids & found:
            lost.add(ordinal)
        start += count
    return lost


@pytest.fixture(scope="session")
def small() -> Whole:
    """Five row groups, checkpoints behind the second and the fourth, and bloom filters of two columns."""
    options = rpq.WriteOptions(bloom_filter_options=["id", "town"])
    return asyncio.run(write(make_rows(5 * 12 - 2), options=options))


@pytest.fixture(scope="session")
def write_file() -> Callable[..., Any]:
    return write


@pytest.fixture(scope="session")
def rows() -> Callable[[int], pa.Table]:
    return make_rows


@pytest.fixture(scope="session")
def whole_of() -> Callable[..., Whole]:
    return understand


@pytest.fixture(scope="session")
def examined() -> Callable[..., Any]:
    return examine


@pytest.fixture(scope="session")
def outcome_of() -> Callable[[bytes], Any]:
    return run


class HostileReader:
    """The program in hostile_reader.py, begun anew when it has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def answer(self, data: bytes, *, seconds: float = 60) -> dict[str, Any]:
        """What came of these bytes; its death or its silence is a failure of the test."""
        process = self._process = self._process or self._begin()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(len(data).to_bytes(4, "little") + data)
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if ready else b""
        if not line:
            self.end()
            pytest.fail(f"{len(data)} bytes: " + ("it died" if ready else f"no answer in {seconds} seconds"))
        said: dict[str, Any] = json.loads(line)
        assert said["foreign"] is None, said["foreign"]
        return said

    def _begin(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(Path(__file__).with_name("hostile_reader.py"))]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@pytest.fixture(scope="session")
def hostile_reader() -> Iterator[HostileReader]:
    """Reads, checks and recovers in a process of its own, whose memory is bounded."""
    reader = HostileReader()
    yield reader
    reader.end()


FOREIGN_WRITERS = {
    "pyarrow with page CRCs": by_pyarrow(write_page_checksum=True),
    "pyarrow": by_pyarrow(data_page_version="2.0", write_page_index=True),
    "DuckDB": by_duckdb(),
    "Polars": by_polars(),
    "fastparquet": by_fastparquet(),
}


#: Those that the quick suite has too.
_QUICK = ("pyarrow with page CRCs", "Polars")


@pytest.fixture(
    scope="session",
    params=[pytest.param(name, marks=() if name in _QUICK else pytest.mark.thorough) for name in FOREIGN_WRITERS],
)
def foreign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """A small file of another writer, and who wrote it."""
    path = tmp_path_factory.mktemp("foreign") / "file.parquet"
    FOREIGN_WRITERS[request.param](make_rows(60), 2048 if request.param == "DuckDB" else 20, path)
    return request.param, path.read_bytes()
