"""Outputs of single columns: the numbers in `row` are those of the damaged file, the same in each, and never twice."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup, Method
from resilient_pq.recovery.evidence.numbering import number_row_groups
from resilient_pq.recovery.evidence.row_counts import find_uncounted
from resilient_pq.recovery.report import Damage
from resilient_pq.recovery.rewrite.retained_rows import row_numbers


def group(ordinal: int, num_rows: int | None, rows_before: int | None) -> LocatedRowGroup:
    return LocatedRowGroup(ordinal, num_rows, rows_before, (), Method.CARVED, ordinal * 100, ordinal * 100 + 100)


def test_numbers_go_on_where_nobody_counted_and_take_up_what_is_known() -> None:
    known = [
        group(0, 10, 0),
        group(1, None, 10),
        group(2, 5, None),
        group(3, 5, None),
        group(5, 5, 70),
        group(6, 5, 20),
    ]
    numbers = row_numbers(known, {})
    assert numbers.first == {0: 0, 1: 10, 2: 10, 3: 15, 5: 70, 6: 75}
    assert numbers.guessed == 2


def test_counted_rows_are_not_guessed() -> None:
    numbers = row_numbers([group(0, 10, 0), group(3, 10, 40)], {})
    assert (numbers.first, numbers.guessed) == ({0: 0, 3: 40}, None)


async def outputs(data: bytes, **options: Any) -> tuple[dict[str, pa.Table], rpq.Report]:
    store = MemoryStore()
    await store.put("damaged", data)
    report = await rpq.recover((store, "damaged"), (store, "out.parquet"), on_damage="columns", **options)
    assert report.kept is not None
    tables = {}
    for name in report.kept.outputs:
        output = await store.read_tail(f"out.{name}.parquet", 1 << 30)
        tables[name] = pq.read_table(io.BytesIO(bytes(output.data)))
    return tables, report


async def test_values_of_one_row_have_one_number_in_all_columns(write_file: Any) -> None:
    """Text transfers take bytes out of many pages; each value says of which row it is."""
    rng = random.Random(4)
    table = pa.table(
        {
            "a": pa.array([i * 7 for i in range(180)], pa.int64()),
            "b": pa.array([i * 3 for i in range(180)], pa.int32()),
            "c": pa.array([f"{i:05}" + "\r\n" * rng.randrange(2) for i in range(180)]),
        }
    )
    row_of = {
        "a": lambda value: value // 7,
        "b": lambda value: value // 3,
        "c": lambda value: int(value[:5]),
    }
    written = await write_file(table, row_group_rows=60, encodings={"c": "PLAIN"})
    places = [(header.offset, header.end) for header in written.headers if header.kind in (3, 4)]
    seen = 0
    for changed in (written.data, written.zeroed(*places)):
        tables, report = await outputs(changed.replace(b"\r\n", b"\n"), schema=table.schema)
        guessed = any("numbers in `row`" in finding.message for finding in report.findings)
        of_row: dict[int, int] = {}
        for name, output in tables.items():
            numbers = output["row"].to_pylist()
            assert numbers == sorted(set(numbers))
            for number, value in zip(numbers, output[name].to_pylist(), strict=True):
                row = row_of[name](value)
                assert guessed or number == row
                assert of_row.setdefault(number, row) == row
                seen += 1
    assert seen > 100


async def test_the_record_of_a_chunk_tells_how_many_rows_were_before_it(small: Any) -> None:
    """Whatever became of the row groups before: only a row group of the middle is left, and the records in it."""
    before, own = small.records(3)[0], small.records(2)[2]
    tables, report = await outputs(bytes(before.end) + small.data[before.end : own.offset])
    assert report.kept is not None and report.kept.ledger is not None
    (kept,) = [rows for rows in report.kept.ledger.rows if rows.kept]
    assert (kept.row_group, kept.first_row, kept.num_rows) == (2, 20, 10)
    assert {tuple(table["row"].to_pylist()) for table in tables.values()} == {tuple(range(20, 30))}


@pytest.mark.parametrize("zeros", [0, 150, 300, 450, 600])
async def test_a_torn_footer_with_pages_behind_it_counts_no_rows_of_the_file(write_file: Any, zeros: int) -> None:
    """It is that of a checkpoint, whatever became of the key that says so."""
    small = await write_file(pa.table({"id": list(range(50)), "name": [None if i % 3 else f"n{i}" for i in range(50)]}))
    first, *_ = small.records(3)
    gone = [
        (header.offset, header.end) for header in small.headers if header.kind in (1, 2, 3, 4) and header is not first
    ]
    data: bytes = small.zeroed(*gone, (first.offset, first.payload_offset), (first.end - zeros, first.end))
    store = MemoryStore()
    await store.put("damaged", data)
    report = await rpq.recover((store, "damaged"), (store, "out.parquet"))
    assert report.kept is not None
    assert (report.exit_code, report.kept.rows_lost) == (1, None)


def test_carved_row_groups_are_numbered_without_gaps_where_none_is_missing() -> None:
    numbered = number_row_groups([group(at, 10, None) for at in range(3)])
    assert [each.ordinal for each in numbered] == [0, 1, 2]


def test_the_place_is_a_guess_behind_what_may_be_a_rest_up_to_a_recorded_row_group() -> None:
    rest = replace(group(1, 10, None), may_be_rest=True)
    recorded = replace(group(3, 10, 30), method=Method.ROW_GROUP_RECORD)
    numbered = number_row_groups([group(0, 10, 0), rest, group(2, 10, None), recorded, group(4, 10, None)])
    assert [each.placed for each in numbered] == [True, False, False, True, True]


def test_a_row_group_whose_stated_rows_cannot_be_right_is_reported() -> None:
    known = [group(0, 10, 0), group(1, 5000, 10), group(2, None, None)]
    (lost,) = find_uncounted(known, {1: group(1, None, 10), 2: group(2, None, None)})
    assert (lost.start, lost.end, lost.damage, lost.where.row_group) == (100, 200, Damage.CORRUPT, 1)
    assert "5,000 rows are stated" in lost.reason
