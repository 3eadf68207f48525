"""The ledger of real recoveries: what it says of bytes, pages and rows, held against the layout that was written."""

from __future__ import annotations

import io
import random
import warnings
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes, with_flips
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_check import check_ledger

import resilient_pq as rpq
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.evidence.records.record_scan import scan_headers
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Confidence, Ledger, PageState, Region

POLICIES = ("drop", "null", "columns")
Page = tuple[int, str, int]


async def recovered(*copies: bytes, **options: Any) -> tuple[rpq.Report, Ledger, MemoryStore]:
    """The report of a recovery, its ledger, which adds up, and the store with its outputs."""
    store = MemoryStore()
    for number, data in enumerate(copies):
        await store.put(f"{number}", data)
    sources = [(store, f"{number}") for number in range(len(copies))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rpq.IncompleteFileWarning)
        try:
            report = await rpq.recover(sources, (store, "out"), **options)
        except rpq.NothingToRecoverError as error:
            report = error.report  # type: ignore[assignment]
    assert isinstance(report, rpq.Report)
    assert report.kept is not None and report.kept.ledger is not None
    ledger = report.kept.ledger
    assert check_ledger(ledger) == []
    assert {(source.url, source.size) for source in ledger.sources} == {
        (f"memory:{number}", len(data)) for number, data in enumerate(copies)
    }
    return report, ledger, store


async def table_of(store: MemoryStore, key: str) -> Any:
    return pq.read_table(io.BytesIO(bytes((await store.read_tail(key, 1 << 40)).data)))


def states(ledger: Ledger) -> dict[Page, PageState]:
    """What became of each page that has a place of its own in the ledger."""
    told = {}
    for page in ledger.pages():
        assert page.row_group is not None and page.column is not None and page.state is not None
        if page.page is not None:
            told[page.row_group, page.column, page.page] = page.state
    return told


def rows_of(ledger: Ledger, *, kept: bool) -> list[int]:
    """The numbers of the rows that were kept, or lost."""
    return [
        number
        for fate in ledger.rows
        if fate.kept is kept and fate.first_row is not None and fate.num_rows is not None
        for number in range(fate.first_row, fate.first_row + fate.num_rows)
    ]


def nulled_of(ledger: Ledger) -> Mapping[int, frozenset[str]]:
    """For each row that is kept without a value, the columns of the top level that lost it."""
    return {
        number: frozenset(path.partition(".")[0] for path in fate.nulled)
        for fate in ledger.rows
        if fate.nulled
        for number in range(fate.first_row or 0, (fate.first_row or 0) + (fate.num_rows or 0))
    }


def at(ledger: Ledger, offset: int, source: int = 0) -> Region:
    """What a byte is."""
    (region,) = (r for r in ledger.regions if r.source == source and r.start <= offset < r.end)
    return region


def bodies(file: Any) -> dict[Page, range]:
    """Where the bodies of all data pages lie."""
    return {
        (ordinal, ".".join(chunk.path), number): page.body
        for ordinal, row_group in enumerate(file.layout.row_groups)
        for chunk in row_group.chunks
        for number, page in enumerate(chunk.pages)
        if not page.is_dictionary
    }


async def test_of_a_sound_file_every_byte_is_data_or_metadata(one_paged_file: Any) -> None:
    file = one_paged_file
    report, ledger, _ = await recovered(file.data)
    assert report.outcome == rpq.Outcome.SOUND
    assert {region.use for region in ledger.regions} <= {ByteUse.DATA, ByteUse.METADATA}
    assert {region.confidence for region in ledger.regions} == {Confidence.CHECKSUM}
    chunks = {chunk.place for row_group in file.layout.row_groups for chunk in row_group.chunks}
    assert {range(r.start, r.end) for r in ledger.regions if r.use is ByteUse.DATA} == chunks
    for record in file.layout.records:
        assert at(ledger, record.place.start).start == record.place.start
        assert at(ledger, record.place.start).end == record.place.stop
    assert [(fate.first_row, fate.num_rows, fate.method) for fate in ledger.rows] == [
        (0, 40, "footer"), (40, 40, "footer"), (80, 40, "footer"), (120, 33, "footer"),
    ]  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(POLICIES))
async def test_the_pages_lost_are_those_whose_bytes_are(one_paged_file: Any, seed: int, on_damage: str) -> None:
    """Bodies of pages alone are damaged: the second copies of everything else are whole."""
    file, dice = one_paged_file, random.Random(seed)
    places = bodies(file)
    chosen = dice.sample(sorted(places), dice.randint(1, 12))
    damaged = file.written_over(*((places[page][0] + len(places[page]) // 2, dice.randbytes(2)) for page in chosen))
    lost = {page for page in chosen if any(set(place) & set(places[page]) for place in damaged.gone)}
    report, ledger, store = await recovered(damaged.data, on_damage=on_damage)
    told = states(ledger)
    gone = {page for page, state in told.items() if state in (PageState.LOST, PageState.NULLED)}
    # Leaves of one column are null together: a whole page may have lost all its rows to one beside it.
    beside = {(ordinal, path.partition(".")[0]) for ordinal, path, _ in lost}
    assert lost <= gone
    assert {page for page in gone - lost if (page[0], page[1].partition(".")[0]) not in beside} == set()
    assert {page: at(ledger, places[page][0]).use for page in lost} == dict.fromkeys(lost, ByteUse.LOST)
    assert report.kept is not None and report.kept.rows_lost == ledger.rows_lost == len(rows_of(ledger, kept=False))
    assert sorted(rows_of(ledger, kept=True) + rows_of(ledger, kept=False)) == list(range(153))
    if on_damage != "columns":
        best, _ = file.expected(damaged.missing, on_damage)
        assert rows_of(ledger, kept=True) == sorted(best)
        # A column of several leaves is null where one of them is lost.
        assert nulled_of(ledger) == {number: names for number, names in best.items() if names}
        return
    outputs = dict(report.kept.outputs)
    for name in file.table.column_names:
        key = outputs[name].removeprefix("memory:") if name in outputs else None
        numbers = [] if key is None else (await table_of(store, key)).column("row").to_pylist()
        without = nulled_of(ledger)
        assert numbers == [n for n in rows_of(ledger, kept=True) if name not in without.get(n, ())], name


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(POLICIES), st.booleans())
async def test_whatever_is_damaged_it_adds_up(
    one_paged_file: Any, seed: int, on_damage: str, repair_bits: bool
) -> None:
    damaged = one_paged_file.damaged_somewhere(random.Random(seed))
    report, ledger, _ = await recovered(damaged.data, on_damage=on_damage, repair_bits=repair_bits)
    assert report.kept is not None
    assert ledger.rows_kept == report.num_rows
    if report.outcome != rpq.Outcome.NOTHING:
        assert report.kept.rows_lost == (None if ledger.uncounted else ledger.rows_lost)
    changed = {offset for place in damaged.gone for offset in place if offset < len(damaged.data)}
    for offset in changed:
        region = at(ledger, offset)
        assert region.use is not ByteUse.METADATA and region.state is not PageState.WHOLE, region


async def test_a_page_taken_from_another_copy_is_data_there(one_paged_file: Any) -> None:
    file = one_paged_file
    places = bodies(file)
    one, other, both = (0, "id", 1), (2, "score", 0), (3, "note", 2)
    first = file.written_over((places[one][0], b"\xff" * 4), (places[both][0], b"\xff" * 4)).data
    second = file.written_over((places[other][0], b"\xff" * 4), (places[both][0], b"\xff" * 4)).data
    report, ledger, _ = await recovered(first, second)
    told = states(ledger)
    assert told[one] is PageState.MENDED and told[both] is PageState.LOST
    assert report.num_rows == 153 - file.layout.row_groups[3].chunks[4].pages[2].num_rows
    for source in (0, 1):
        region = at(ledger, places[one][0], source)
        assert (region.use, region.mended, region.page) == (ByteUse.DATA, "other-copy", 1)
        assert at(ledger, places[both][0], source).use is ByteUse.LOST
    assert ledger.num_bytes(ByteUse.DEAD, 0) == 0
    assert at(ledger, places[other][0], 1).use is ByteUse.DEAD, "what nobody needed of the second copy"


async def test_a_page_that_only_a_longer_copy_has(one_paged_file: Any) -> None:
    """The other has no byte of it, and so nothing is missing."""
    file = one_paged_file
    places = bodies(file)
    lost = (3, "note", 2)
    cut = file.cut(file.layout.row_groups[2].chunks[0].place.start).data
    longer = file.written_over((places[lost][0], b"\xff" * 4)).data
    report, ledger, _ = await recovered(cut, longer)
    assert report.num_rows == 153 - file.layout.row_groups[3].chunks[4].pages[2].num_rows
    assert ledger.missing == ()
    assert states(ledger)[lost] is PageState.LOST


async def test_pages_that_are_nowhere_are_missing(one_paged_file: Any) -> None:
    file = one_paged_file
    chunk = file.layout.row_groups[3].chunks[0]
    report, ledger, _ = await recovered(file.cut(chunk.place.stop).data)
    assert report.num_rows == 120
    assert {region.column for region in ledger.missing} == {
        ".".join(c.path) for c in file.layout.row_groups[3].chunks[1:]
    }
    assert ledger.uncounted


async def test_row_groups_without_rows_miss_no_pages() -> None:
    data, table = io.BytesIO(), pa.table({"n": [1, 2]})
    with pq.ParquetWriter(data, table.schema) as writer:
        for part in (table, table.slice(2), table):
            writer.write_table(part)
    report, ledger, _ = await recovered(data.getvalue()[:-20])
    assert (report.num_rows, ledger.missing) == (4, ())


async def test_parts_in_another_order_are_told_of_where_they_lie(file_of_parts: Any) -> None:
    file, size = file_of_parts, 64 * 1024
    order = list(range(-(-len(file.data) // size)))
    order[2], order[7] = order[7], order[2]
    report, ledger, _ = await recovered(file.rearranged(size, order).data)
    assert report.num_rows == file.table.num_rows
    assert (ledger.rows_lost, ledger.missing) == (0, ())
    for row_group in file.layout.row_groups:
        for chunk in row_group.chunks:
            part = order.index(chunk.place.start // size)
            region = at(ledger, part * size + chunk.place.start % size)
            assert region.use is ByteUse.DATA and region.column == ".".join(chunk.path)


async def test_a_part_left_out(file_of_parts: Any) -> None:
    """All row groups are known, and of some pages not one byte is there."""
    file, size = file_of_parts, 64 * 1024
    report, ledger, _ = await recovered(file.without(5 * size, 6 * size).data, on_damage="null")
    assert report.num_rows < file.table.num_rows
    assert ledger.rows_kept + ledger.rows_lost == file.table.num_rows
    inside = [page for page, body in bodies(file).items() if 5 * size <= body.start and body.stop <= 6 * size]
    assert inside
    told = states(ledger)
    assert all(told[page] in (PageState.LOST, PageState.NULLED) for page in inside)
    assert {(region.row_group, region.column, region.page) for region in ledger.missing} >= set(inside)


async def test_bytes_that_are_no_parquet_file_are_lost() -> None:
    report, ledger, _ = await recovered(b"GIF89a" + bytes(2000))
    assert report.outcome == rpq.Outcome.NOTHING
    assert ledger.num_bytes(ByteUse.LOST) == 2006
    assert ledger.uncounted


@pytest.mark.parametrize("crc", [True, False])
async def test_a_file_of_others_without_its_footer(nested_rows: Any, crc: bool) -> None:
    sink = io.BytesIO()
    table = nested_rows(100).select(["id", "kind", "town"])
    pq.write_table(table, sink, row_group_size=50, write_page_checksum=crc)
    data = sink.getvalue()
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    report, ledger, _ = await recovered(data[:end], schema=table.schema)
    assert report.num_rows == 100
    assert {fate.method for fate in ledger.rows if fate.kept} == {"carved"}
    believed = {region.confidence for region in ledger.regions if region.use is ByteUse.DATA}
    assert believed == {Confidence.CHECKSUM if crc else Confidence.DECODED}
    assert ledger.num_bytes(ByteUse.DATA) == end - 4


@pytest.mark.parametrize("crc", [True, False])
async def test_a_sound_file_of_others(nested_rows: Any, crc: bool) -> None:
    sink = io.BytesIO()
    pq.write_table(nested_rows(100), sink, row_group_size=50, write_page_checksum=crc, write_page_index=True)
    report, ledger, _ = await recovered(sink.getvalue())
    assert report.outcome == rpq.Outcome.SOUND
    assert {region.use for region in ledger.regions} == {ByteUse.DATA, ByteUse.METADATA}
    assert {region.what for region in ledger.regions} == {"magic", "chunk", "index", "footer"}
    expected = Confidence.CHECKSUM if crc else Confidence.DECODED
    assert {region.confidence for region in ledger.regions if region.use is ByteUse.DATA} == {expected}
    assert [(fate.num_rows, fate.confidence) for fate in ledger.rows] == [(50, expected)] * 2


async def test_a_file_that_went_through_a_transfer_as_text(one_paged_file: Any) -> None:
    """Its rows are all there; its bytes were changed back, and are told of together."""
    report, ledger, _ = await recovered(one_paged_file.data.replace(b"\n", b"\r\n"))
    assert report.num_rows == ledger.rows_kept == 153
    assert [(region.use, region.what) for region in ledger.regions] == [(ByteUse.DATA, "unknown")]
    assert ledger.missing == ()


async def test_records_whose_payload_is_damaged_are_lost() -> None:
    """Of row groups, and of chunks that no footer names, as the file is cut within the last row group."""
    data = await file_bytes({"n": list(range(40)), "m": list(range(40))}, row_group_rows=10, checkpoint_every=1)
    headers = [header for _, header in scan_headers(data, 0)]
    cut = [header.offset for header in headers if header.kind == RecordKind.ROW_GROUP][-1]
    victims = [header for header in headers if header.kind == RecordKind.ROW_GROUP and header.end <= cut][:1]
    victims += [header for header in headers if header.kind == RecordKind.CHUNK][-2:]
    for damaged in ([], victims):
        changed = with_flips(data[:cut], *(8 * (header.payload_offset + 10) for header in damaged))
        _, ledger, _ = await recovered(changed)
        for header in victims:
            region = at(ledger, header.offset)
            use, confidence = (ByteUse.LOST, None) if damaged else (ByteUse.METADATA, Confidence.CHECKSUM)
            assert (region.start, region.end) == (header.offset, header.end)
            assert (region.use, region.confidence) == (use, confidence), region
