"""Several copies of one file: every page that one of them has whole is in the output, and none of another file."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import seeded

import resilient_pq as rpq
from resilient_pq.format.resilience_records import FOOTER_KINDS, RecordKind
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.evidence.records.placement import place
from resilient_pq.recovery.evidence.records.record_scan import in_place, scan_headers

POLICIES = ("drop", "null")


async def merge(*copies: bytes, **options: Any) -> tuple[rpq.Report, pa.Table]:
    """What a recovery of several copies tells, and the rows that it keeps."""
    store = MemoryStore()
    names = [(store, f"copy {number}") for number in range(len(copies))]
    for (_, name), data in zip(names, copies, strict=True):
        await store.put(name, data)
    report = await rpq.recover(names, (store, "out"), **options)
    checked = await rpq.check((store, "out"))
    assert checked.outcome in (rpq.Outcome.SOUND, rpq.Outcome.INCOMPLETE), checked.findings
    return report, pq.read_table(io.BytesIO((await store.read_tail("out", 1 << 40)).data))


async def is_refused(*copies: bytes) -> None:
    with pytest.raises(rpq.RecoveryError, match="nothing shows that they are one file") as caught:
        await merge(*copies)
    assert caught.value.hint == "recover each by itself"


def zeroed(data: bytes, *places: tuple[int, int]) -> bytes:
    changed = bytearray(data)
    for start, end in places:
        changed[start:end] = bytes(end - start)
    return bytes(changed)


# --- ours, against the best that is possible ----------------------------------------------------------------


def cut_or_damaged(file: Any, rng: random.Random) -> Any:
    """A copy: cut, its head gone, its footer gone, or damaged in places."""
    size = len(file.data)
    match rng.randrange(5):
        case 0:
            return file.cut(rng.randrange(size // 3, size))
        case 1:
            return file.written_over((0, bytes(rng.randrange(4, size // 3))))
        case 2:
            return file.written_over((size - 200, bytes(200)), (rng.randrange(size - 600), bytes(512)))
        case _:
            return file.damaged_somewhere(rng)


async def test_each_page_comes_from_whichever_has_it(one_paged_file: Any, held_against_the_best: Any) -> None:
    rng = seeded("copies")
    for i in range(5):
        copies = [cut_or_damaged(one_paged_file, rng) for _ in range(rng.choice([2, 2, 3]))]
        await held_against_the_best(one_paged_file, copies[0], POLICIES[i % 2], *copies[1:])


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("on_damage", POLICIES)
async def test_many_copies_of_every_kind_of_file(paged_file: Any, held_against_the_best: Any, on_damage: str) -> None:
    rng = seeded("many copies", len(paged_file.data), on_damage)
    for _ in range(40):
        copies = [cut_or_damaged(paged_file, rng) for _ in range(rng.choice([2, 2, 3, 4]))]
        await held_against_the_best(paged_file, copies[0], on_damage, *copies[1:])


async def test_a_page_that_no_copy_has_is_lost(one_paged_file: Any, held_against_the_best: Any) -> None:
    file = one_paged_file
    page = file.layout.row_groups[1].chunks[0].pages[1]
    once = file.written_over((page.body.start, bytes(8)))
    twice = file.written_over((page.body.stop - 8, bytes(8)))
    await held_against_the_best(file, once, "drop", twice)
    report, table = await merge(once.data, twice.data)
    assert (report.outcome, table.num_rows) == (rpq.Outcome.PARTIAL, file.table.num_rows - page.num_rows)


async def test_the_copy_that_has_the_end_tells_of_it(one_paged_file: Any) -> None:
    """Though neither has a footer that can be used, as one lost its beginning and the other its final record."""
    file = one_paged_file
    final = max((record.place for record in file.layout.records), key=lambda place: place.start)
    last = file.layout.row_groups[-1].record.place.stop
    copies = [zeroed(file.data, (final.start, final.start + 300)), zeroed(file.data, (0, last // 2))]
    for order in itertools.permutations(copies):
        report, table = await merge(*order)
        assert table.equals(file.table)
        assert (report.outcome, report.kept and report.kept.rows_lost) == (rpq.Outcome.RECOVERED, 0)


async def test_halves_make_a_whole(one_paged_file: Any) -> None:
    """The end of one, the beginning of the other, in any order."""
    file, middle = one_paged_file, len(one_paged_file.data) // 2
    copies = [file.data[: middle + 500], zeroed(file.data, (0, middle))]
    for order in itertools.permutations(copies):
        report, table = await merge(*order)
        assert table.equals(file.table)
        assert (report.outcome, report.kept and report.kept.rows_lost) == (rpq.Outcome.RECOVERED, 0)


async def test_the_order_of_the_copies_makes_no_difference(one_paged_file: Any) -> None:
    rng = seeded("order")
    copies = [cut_or_damaged(one_paged_file, rng).data for _ in range(3)]
    tables = [(await merge(*order))[1] for order in itertools.permutations(copies)]
    assert all(table.equals(tables[0]) for table in tables)


async def test_row_groups_that_the_longest_copy_does_not_know(one_paged_file: Any) -> None:
    """It ends in zeros; a shorter one has what the zeros took, but for a page of the first row group."""
    file = one_paged_file
    first, last = file.layout.row_groups[0], file.layout.row_groups[-1]
    long = zeroed(file.data, (first.record.place.stop, len(file.data)))
    page = first.chunks[1].pages[-1]
    short = zeroed(file.data[: last.record.place.stop], (page.body.start, page.body.stop))
    for order in itertools.permutations([long, short]):
        assert (await merge(*order))[1].equals(file.table)


async def test_row_groups_that_each_copy_alone_knows(one_paged_file: Any) -> None:
    """One has zeros in place of a row group and its record; of the other nothing follows on that."""
    file = one_paged_file
    before, middle = file.layout.row_groups[:2]
    footers = [record.place for record in file.layout.records if record.kind in FOOTER_KINDS and record.num_row_groups]
    holed = zeroed(
        file.data, (before.record.place.stop, middle.record.place.stop), *((one.start, one.stop) for one in footers)
    )
    short = file.data[: middle.record.place.stop]
    for order in itertools.permutations([holed, short]):
        assert (await merge(*order))[1].equals(file.table)


async def test_a_row_group_in_flight_that_another_copy_has_whole(one_paged_file: Any) -> None:
    file = one_paged_file
    last = file.layout.row_groups[-1]
    torn = file.data[: last.chunks[3].place.stop]
    longer = zeroed(
        file.data[: last.record.place.stop], (last.chunks[0].pages[-1].body.start, last.chunks[0].place.stop)
    )
    for order in itertools.permutations([torn, longer]):
        assert (await merge(*order))[1].equals(file.table)


@pytest.mark.parametrize("damaged", [False, True])
async def test_the_same_copy_twice(one_paged_file: Any, damaged: bool) -> None:
    page = one_paged_file.layout.row_groups[1].chunks[0].pages[1]
    data = zeroed(one_paged_file.data, (page.body.start, page.body.stop)) if damaged else one_paged_file.data
    report, table = await merge(data, data)
    assert table.num_rows == one_paged_file.table.num_rows - (page.num_rows if damaged else 0)
    assert report.outcome is (rpq.Outcome.PARTIAL if damaged else rpq.Outcome.SOUND)


async def test_a_sound_copy_beside_a_damaged_one(one_paged_file: Any) -> None:
    damaged = one_paged_file.written_over((300, bytes(2000)))
    report, table = await merge(one_paged_file.data, damaged.data)
    assert (report.outcome, table.equals(one_paged_file.table)) == (rpq.Outcome.SOUND, True)
    report, table = await merge(damaged.data, one_paged_file.data)
    assert table.equals(one_paged_file.table)
    assert report.kept is not None and report.kept.lost == ()


# --- what is refused ----------------------------------------------------------------------------------------


async def test_a_copy_that_is_the_output(small: Any) -> None:
    store = MemoryStore()
    for name in ("a", "b"):
        await store.put(name, small.data)
    for overwrite in (False, True):
        with pytest.raises(rpq.RecoveryError, match="the file that is read"):
            await rpq.recover([(store, "a"), (store, "b")], (store, "b"), overwrite=overwrite)


async def test_a_copy_that_is_not_there(small: Any, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(small.data)
    with pytest.raises(rpq.NotFoundError, match=r"b\.parquet"):
        await rpq.recover([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "out.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


async def test_no_copy_at_all(tmp_path: Path) -> None:
    with pytest.raises(rpq.SchemaError, match="at least one copy"):
        await rpq.recover([], tmp_path / "out.parquet")


async def test_another_file_of_the_same_columns(write_file: Any, rows: Any) -> None:
    one, other = await write_file(rows(40, 1)), await write_file(rows(40, 2))
    chunk = next(header for header in one.records(RecordKind.CHUNK) if header.num_row_groups == 1)
    damaged = one.zeroed((chunk.end, chunk.end + 30))
    for data in (other.data, other.data[:-300], other.zeroed((0, 400))):
        await is_refused(damaged, data)


@pytest.mark.parametrize("data", [b"", bytes(5000), random.Random(1).randbytes(5000)])
async def test_what_is_no_copy_of_anything(small: Any, data: bytes) -> None:
    await is_refused(small.zeroed((300, 350)), data)


@pytest.fixture
def rows() -> Any:
    """So many rows of values that take the same room in every file."""

    def make(count: int, seed: int) -> pa.Table:
        rng = random.Random(seed)
        columns = {name: pa.array([rng.getrandbits(62) for _ in range(count)]) for name in ("v", "w")}
        return pa.table({"id": pa.array(range(count), pa.int64()), **columns})

    return make


# --- one file that went on in two ways ----------------------------------------------------------------------


async def both_ways(tmp_path: Path, first: pa.Table, second: pa.Table) -> list[bytes]:
    """Two files with the same id, and the same first twenty rows: a writer died, and of two copies each was resumed."""
    options: dict[str, Any] = {
        "compression": None, "row_group_rows": 20, "options": rpq.WriteOptions(page_rows=5),
    }  # fmt: skip
    store = MemoryStore()
    async with rpq.create((store, "file"), **options) as writer:
        await writer.write(first)
    whole = bytes((await store.read_tail("file", 1 << 40)).data)
    record = next(header for header in in_place(scan_headers(whole, 0)) if header.kind == RecordKind.ROW_GROUP)
    files = []
    for number, table in enumerate((first, second)):
        path = tmp_path / f"{number}.parquet"
        path.with_name(f"{path.name}.partial").write_bytes(whole[: record.end])
        async with rpq.resume(path, overwrite=True, **options) as writer:
            await writer.write(table.slice(writer.num_rows_stored))
        files.append(path.read_bytes())
    return files


def chunk_place(data: bytes, row_group: int, column: int) -> tuple[int, int]:
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(row_group).column(column)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    return start, start + chunk.total_compressed_size


async def test_rows_of_two_continuations_are_never_mixed(tmp_path: Path, rows: Any) -> None:
    first = rows(80, 1)
    for seed in itertools.count(2):
        second = pa.concat_tables([first.slice(0, 20), rows(80, seed).slice(20)])
        one, other = await both_ways(tmp_path, first, second)
        assert pq.read_table(io.BytesIO(one)).equals(first) and pq.read_table(io.BytesIO(other)).equals(second)
        records, others = [
            [header for header in in_place(scan_headers(data, 0)) if header.kind == RecordKind.ROW_GROUP]
            for data in (one, other)
        ]
        if [record.offset for record in records] == [record.offset for record in others]:
            break  # the record of one stands where the footer of the other has its own
    start, end = chunk_place(one, 2, 1)
    damaged = zeroed(one, (start + 10, end - 60))
    without_record = zeroed(damaged, (records[2].offset, records[2].offset + 200))
    for copy in (damaged, without_record):
        for rest in (other, other[: records[2].end + 3], other[: records[2].offset + 3]):
            _, table = await merge(copy, rest)
            assert table.equals(first.take(table.column("id").to_pylist()))
            assert table.num_rows < first.num_rows


async def test_what_both_continuations_have_in_common_is_merged(tmp_path: Path, rows: Any) -> None:
    first, second = rows(80, 1), rows(80, 2)
    one, other = await both_ways(tmp_path, first, pa.concat_tables([first.slice(0, 20), second.slice(20)]))
    start, end = chunk_place(one, 0, 1)
    _, table = await merge(zeroed(one, (start, end)), other)
    assert table.equals(first)


async def test_what_the_other_continuation_left_does_not_hide_what_lies_behind_it(tmp_path: Path, rows: Any) -> None:
    """An older end of the file lies before the newer one, of which a part was moved."""
    first = rows(80, 1)
    second = pa.concat_tables([first.slice(0, 20), rows(150, 2).slice(20)])
    one, other = await both_ways(tmp_path, first, second)
    records = [header for header in in_place(scan_headers(other, 0)) if header.kind == RecordKind.ROW_GROUP]
    cut = (records[-2].end + records[-1].offset) // 2
    _, table = await merge(one + other[:cut] + b"n" * 701 + other[cut:])
    assert table.slice(table.num_rows - 10).equals(second.slice(140))
    assert table.equals(
        pa.concat_tables([second.slice(at, 20) for at in range(0, 150, 20) if at in table["id"].to_pylist()])
    )


async def test_pages_of_either_continuation_between_two_pieces_are_of_neither(tmp_path: Path, rows: Any) -> None:
    """Of the last row group no record is left: the pages of `v` lie whole in both pieces, those of `w` in one."""
    first = rows(80, 1)
    for seed in itertools.count(2):
        second = pa.concat_tables([first.slice(0, 20), rows(80, seed).slice(20)])
        one, other = await both_ways(tmp_path, first, second)
        (start, end), (_, last) = chunk_place(one, 3, 1), chunk_place(one, 3, 2)
        if [chunk_place(one, 3, i) for i in range(3)] == [chunk_place(other, 3, i) for i in range(3)]:
            break
    data = one[:end] + b"n" * 701 + other[start:last]
    asking = place(len(data), scan_headers(data, 0))
    with pytest.raises(StopIteration) as placed:
        wanted = next(asking)
        while True:
            wanted = asking.send(memoryview(data)[wanted.start : wanted.end])
    assert not any(segment.start < end and start < segment.end for segment in placed.value.value.segments)
    _, table = await merge(data)
    known = {str(row) for row in (*first.to_pylist(), *second.to_pylist())}
    assert {str(row) for row in table.to_pylist()} <= known, "values of two continuations in one row"
    assert table.num_rows >= 20


# --- files of others ----------------------------------------------------------------------------------------


WAYS: list[dict[str, Any]] = [
    {"compression": compression, "write_page_checksum": crc, "write_page_index": index, "write_statistics": False}
    for compression in ("none", "snappy")
    for crc, index in ((False, False), (False, True), (True, False), (True, True))
]


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(f"{value}" for value in way.values()))
def theirs(request: pytest.FixtureRequest) -> Any:
    """Writes a table as another library does, one way or another."""

    def write(table: pa.Table) -> bytes:
        sink = io.BytesIO()
        pq.write_table(
            table, sink, row_group_size=100, data_page_size=200, write_batch_size=10, use_dictionary=False,
            **request.param,
        )  # fmt: skip
        return sink.getvalue()

    return write


def damages(data: bytes) -> Iterator[bytes]:
    """A footer that is gone, and one that is torn; the head gone; all behind the first row groups gone."""
    yield data[:-600]
    yield data[:-12]
    yield zeroed(data, (0, 100))
    yield zeroed(data, (len(data) - 2000, len(data)))
    yield data[: chunk_place(data, 2, 1)[0] + 60]


async def test_a_copy_of_a_file_of_others(theirs: Any, rows: Any) -> None:
    table = rows(400, 1)
    data = theirs(table)
    start, end = chunk_place(data, 1, 1)
    damaged = zeroed(data, (start + 10, end - 100))
    for other in damages(data):
        for order in ([damaged, other], [other, damaged]):
            report, found = await merge(*order)
            assert found.equals(table)
            assert report.kept is not None and report.kept.rows_lost == 0


async def test_another_file_of_others_of_the_same_layout(theirs: Any, rows: Any) -> None:
    data, other = theirs(rows(400, 1)), theirs(rows(400, 2))
    start, end = chunk_place(data, 1, 1)
    damaged = zeroed(data, (start + 10, end - 100))
    await is_refused(damaged, other)
    for rest in damages(other):
        await is_refused(damaged, rest)


async def test_copies_cut_in_their_footers_that_lost_different_pages(rows: Any) -> None:
    """Nothing counts the values of their chunks but the pages that are left, and those of another copy.

    All columns have one type: behind a page header that is lost nothing tells whose the pages are.
    """
    table, sink, rng = rows(400, 1), io.BytesIO(), seeded("pages")
    pq.write_table(table, sink, row_group_size=100, data_page_size=200, write_batch_size=10, write_page_checksum=True)
    data, kept = sink.getvalue(), []
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little") + 100
    for _ in range(10):
        copies = []
        for _ in range(2):
            first, last = chunk_place(data, rng.randrange(4), rng.randrange(3))
            at = rng.randrange(first, last)
            copies.append(zeroed(data, (at, min(at + 16, last)))[:end])
        report, found = await merge(*copies)
        assert report.num_rows == found.num_rows
        assert found.equals(table.take(found.column("id").to_pylist()))
        kept.append(found.num_rows)
    assert kept.count(400) >= 5, kept
