"""Row groups of which bytes in the middle are gone, where nobody knows how many: their rows are told of once."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledger_check import check_ledger
from structural_damage import row_group_entries
from structural_files import OWN, File, made

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.ledger.ledger_model import Ledger

ROWS, GROUP = 150, 40
TABLE = pa.table(
    {
        "id": range(ROWS),
        "a": [f"{i * 7919 % 4001:04d}" for i in range(ROWS)],
        "b": [i / 7 for i in range(ROWS)],
        "c": [i * i % 5 % 2 == 1 for i in range(ROWS)],
        "d": pa.array([i % 9 for i in range(ROWS)], pa.int32()),
        "e": pa.array([[i, i + 1] for i in range(ROWS)], pa.list_(pa.int32())),
    }
)


@pytest.fixture(scope="module")
def whole() -> File:
    """A file with four row groups, the pages of which have checksums."""
    out = io.BytesIO()
    pq.write_table(
        TABLE, out, row_group_size=GROUP, write_page_checksum=True, data_page_size=64, write_batch_size=10,
        compression="zstd",
    )  # fmt: skip
    return made(OWN, out.getvalue())


def chunk(file: File, row_group: int, column: int) -> range:
    return file.layout.row_groups[row_group].chunks[column].place


def damaged(file: File, *holes: range) -> bytes:
    """The file with noise in some places, and a footer that names its first and its last row group, and counts all."""
    data, rng = bytearray(file.data), random.Random(1)
    for hole in holes:
        data[hole.start : hole.stop] = rng.randbytes(len(hole))
    for entry in row_group_entries(file)[1:3]:
        data[entry.start : entry.stop] = b"\xff" * len(entry)
    return bytes(data)


@dataclass(frozen=True)
class Recovered:
    """What a recovery made of a damaged file."""

    report: rpq.Report
    store: MemoryStore

    @property
    def kept(self) -> rpq.Kept:
        assert self.report.kept is not None
        return self.report.kept

    @property
    def ledger(self) -> Ledger:
        assert self.kept.ledger is not None
        assert check_ledger(self.kept.ledger) == []
        return self.kept.ledger


async def recovered(data: bytes, on_damage: str) -> Recovered:
    store = MemoryStore()
    await store.put("damaged", data)
    return Recovered(await rpq.recover((store, "damaged"), (store, "out"), on_damage=on_damage), store)


@pytest.mark.parametrize("on_damage", ["drop", "null", "columns"])
async def test_both_sides_of_a_hole_are_one_row_group_where_there_is_room_for_one(on_damage: str, whole: File) -> None:
    found = await recovered(damaged(whole, chunk(whole, 2, 3)), on_damage)
    lost = GROUP if on_damage == "drop" else 0
    assert (found.report.outcome, found.kept.rows_lost, found.report.num_rows) == ("partial", lost, ROWS - lost)
    assert found.ledger.row_groups == (40, 40, 40, 30)
    told = [(fate.first_row, fate.num_rows, fate.row_group) for fate in found.ledger.rows]
    assert told == [(0, 40, 0), (40, 40, 1), (80, 40, 2), (120, 30, 3)]
    assert [fate.nulled for fate in found.ledger.rows if fate.nulled] == ([] if lost else [("c",)])


async def test_both_ends_of_a_chunk_are_of_one_row_group_where_there_is_room_for_one(whole: File) -> None:
    page = whole.layout.row_groups[2].chunks[1].pages[1]
    assert not page.is_dictionary
    found = await recovered(damaged(whole, range(page.header.start, page.body.stop)), "drop")
    assert (found.report.num_rows, found.kept.rows_lost) == (ROWS - 10, 10)
    assert [(fate.first_row, fate.num_rows) for fate in found.ledger.rows if not fate.kept] == [(80, 10)]


@pytest.mark.parametrize("on_damage", ["drop", "null", "columns"])
async def test_what_may_be_rows_told_of_before_does_not_stand_for_lost_ones(on_damage: str, whole: File) -> None:
    """Where a whole row group is gone, there is room for both sides of the hole."""
    gone = range(chunk(whole, 1, 0).start, chunk(whole, 1, 5).stop)
    found = await recovered(damaged(whole, gone, chunk(whole, 2, 3)), on_damage)
    assert (found.report.outcome, found.report.exit_code) == ("partial", 1)
    assert found.kept.rows_lost == (80 if on_damage == "drop" else None)
    behind = found.ledger.rows[-2]
    assert (behind.first_row, behind.num_rows, behind.row_group) == (None, 40, None)
    assert found.ledger.rows[-3].num_rows is None
    assert (found.ledger.rows[-1].first_row, found.ledger.rows[-1].row_group) == (120, 3)
    assert found.ledger.row_groups == (40, None, None, 30)
