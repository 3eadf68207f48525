"""Values of which no checksum vouches, held against what statistics and page indexes say of them."""

from __future__ import annotations

import io
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from footers_of_others import chunks_of, footer_of, with_footer
from ledger_check import check_ledger

import resilient_pq as rpq
from resilient_pq.format.file_metadata import PageType
from resilient_pq.format.pages.page import Page, pages_of

COUNT = 4000
PLAIN: dict[str, Any] = {"use_dictionary": False, "compression": "none", "row_group_size": COUNT // 2}


def written(values: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"id": range(COUNT), "v": values})
    pq.write_table(table, sink, data_page_size=2000, write_batch_size=250, **{**PLAIN, **options})
    return sink.getvalue()


def pages_of_values(data: bytes, row_group: int) -> list[Page]:
    """The data pages of the column of values."""
    chunk = chunks_of(footer_of(data))[2 * row_group + 1]
    start = chunk.data_page_offset
    pages = pages_of(memoryview(data)[start : start + chunk.total_compressed_size], start)
    return [page for page in pages if page.header.type == PageType.DATA_PAGE]


NUMBERS = pa.array(range(COUNT), pa.int64())
CASES = {
    "int64": (NUMBERS, struct.pack("<q", 1 << 40)),
    "int64, low": (NUMBERS, struct.pack("<q", -5)),
    "uint32": (pa.array(range(COUNT), pa.uint32()), struct.pack("<I", 1 << 31)),
    "double": (pa.array([i / 2 for i in range(COUNT)]), struct.pack("<d", 1e9)),
    "date": (pa.array(range(COUNT), pa.date32()), struct.pack("<i", -1)),
    "bytes": (pa.array([b"%08d" % i for i in range(COUNT)], pa.binary(8)), b"~~~~~~~~"),
    "decimal": (pa.array([Decimal(i) for i in range(COUNT)], pa.decimal128(30, 0)), b"\x01" + bytes(12)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("index", [False, True], ids=["statistics", "index"])
async def test_values_that_lie_beyond(name: str, index: bool, outcome_of: Any) -> None:
    values, wrong = CASES[name]
    data = bytearray(written(values, write_page_index=index))
    damaged = pages_of_values(bytes(data), 1)[3]
    data[damaged.end - len(wrong) : damaged.end] = wrong
    await examine(bytes(data), values, damaged, outcome_of)


async def test_a_value_beyond_the_bounds_of_its_page_alone(outcome_of: Any) -> None:
    data = bytearray(written(NUMBERS, write_page_index=True))
    damaged = pages_of_values(bytes(data), 1)[3]
    data[damaged.end - 8 : damaged.end] = struct.pack("<q", COUNT // 2 + 1)  # as in another page of the chunk
    await examine(bytes(data), NUMBERS, damaged, outcome_of)


async def test_chunks_that_changed_places_are_not_read_as_each_other() -> None:
    """Their pages are whole; where the rows around damage are asked for, the statistics tell that they are others."""
    data = bytearray(written(NUMBERS, write_page_checksum=True))
    one, other = [pages_of_values(bytes(data), group) for group in (0, 1)]
    assert one[-1].end - one[0].offset == other[-1].end - other[0].offset
    places = [slice(pages[0].offset, pages[-1].end) for pages in (one, other)]
    data[places[0]], data[places[1]] = data[places[1]], data[places[0]]
    lost: list[rpq.LostRegion] = []
    async with rpq.open(bytes(data), on_damage="null", on_lost=lost.append) as file:
        table = await file.read()
    assert table.to_pydict()["v"] == [None] * COUNT
    assert {(region.where.row_group, region.where.column) for region in lost} >= {(0, "v"), (1, "v")}


async def examine(data: bytes, values: Any, damaged: Page, outcome_of: Any) -> None:
    """A value of a page has changed: that is found, and costs the rows of the page."""
    outcome = await outcome_of(data)
    assert outcome.check.outcome == rpq.Outcome.DAMAGED
    assert any(f.start <= damaged.end - 8 < f.end and f.costs_rows for f in outcome.check.findings)
    kept = pq.read_table(io.BytesIO(outcome.output))
    lost = set(range(COUNT)) - set(kept["id"].to_pylist())
    assert 0 < len(lost) == damaged.num_values == outcome.recovery.kept.rows_lost
    assert kept["v"].equals(pa.chunked_array([values]).take(kept["id"]))
    assert check_ledger(outcome.recovery.kept.ledger) == []


async def test_nulls_that_were_not_counted(outcome_of: Any) -> None:
    values = pa.array([None if i % 10 == 0 else i for i in range(COUNT)], pa.int64())
    data = bytearray(written(values))
    chunk = chunks_of(footer_of(bytes(data)))[3]
    assert chunk.statistics is not None and chunk.statistics.null_count

    def other(footer: Any) -> None:
        footer.row_groups[1].columns[1].meta_data.statistics.null_count += 1

    outcome = await outcome_of(with_footer(bytes(data), other))
    assert outcome.check.outcome == rpq.Outcome.DAMAGED
    assert outcome.recovery.kept.rows_lost == COUNT // 2


async def test_pages_with_checksums_are_believed_whatever_statistics_say(outcome_of: Any) -> None:
    def other(footer: Any) -> None:
        footer.row_groups[1].columns[1].meta_data.statistics.max_value = struct.pack("<q", 2)

    outcome = await outcome_of(with_footer(written(NUMBERS, write_page_checksum=True), other))
    assert outcome.check.outcome == rpq.Outcome.SOUND
    assert outcome.recovery.num_rows == COUNT


ODD = {
    "nan": pa.array([float("nan") if i % 3 else i / 7 for i in range(COUNT)]),
    "only nan": pa.array([float("nan")] * COUNT),
    "zeros": pa.array([-0.0 if i % 2 else 0.0 for i in range(COUNT)]),
    "half": pa.array([i / 8 for i in range(COUNT)], pa.float32()).cast(pa.float16()),
    "long text": pa.array(["\U0010ffff" * 40 + str(i) for i in range(COUNT)]),
    "lists": pa.array(
        [[None] * (i % 3) + [i] * (i % 2) if i % 5 else None for i in range(COUNT)], pa.list_(pa.int64())
    ),
    "structs": pa.array([{"a": i} if i % 5 else None for i in range(COUNT)]),
    "negative decimals": pa.array([Decimal(i) for i in range(-COUNT, 0)], pa.decimal128(5, 0)),
    "unsigned": pa.array([(1 << 64) - 1 - i * i for i in range(COUNT)], pa.uint64()),
    "nulls": pa.nulls(COUNT, pa.int32()),
    "nothing": pa.nulls(COUNT),
    "booleans": pa.array([i < 2500 for i in range(COUNT)]),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
async def test_what_is_hard_to_compare_is_sound(name: str, version: str, outcome_of: Any) -> None:
    data = written(ODD[name], write_page_index=True, data_page_version=version)
    outcome = await outcome_of(data)
    assert (outcome.check.outcome, outcome.check.findings) == (rpq.Outcome.SOUND, ())
