"""Carving of files with more missing than their footer: what is left keeps its column, its row group and its row."""

from __future__ import annotations

import io
import random
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.damage.page_search import FoundPage, Proof
from resilient_pq.errors import FormatError
from resilient_pq.format.file_metadata import DataPageHeader, DictionaryPageHeader, PageHeader, Type
from resilient_pq.format.pages.page import pages_of
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.reader.contents import chunk_range
from resilient_pq.recovery.carve import CarveLimits, carve, find_files
from resilient_pq.recovery.carve.page_layout import PageLayout
from resilient_pq.recovery.carve.page_probe import ColumnKind, ProbedPage
from resilient_pq.recovery.carve.stretch_placement import StretchPlacement
from resilient_pq.recovery.report import Damage

ROWS = 2000
CHOICE = random.Random(5)
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "other": pa.array([i * 31 for i in range(ROWS)], pa.int64()),
        "small": pa.array([None if i % 5 == 0 else i % 90 for i in range(ROWS)], pa.int32()),
        "real": [CHOICE.random() for _ in range(ROWS)],
        "word": [None if i % 7 == 0 else f"word {i % 40}" for i in range(ROWS)],
        "text": [f"{CHOICE.random()}" for _ in range(ROWS)],
        "list": [list(range(i % 4)) for i in range(ROWS)],
    }
)


def written(**options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(TABLE, out, **({"row_group_size": 250, "data_page_size": 600} | options))
    return out.getvalue()


MAKES: dict[str, dict[str, Any]] = {
    "v1": {},
    "v2": {"data_page_version": "2.0", "compression": "zstd"},
    "with CRCs": {"write_page_checksum": True, "compression": "none"},
    "without dictionaries": {"use_dictionary": False},
    "large pages": {"data_page_size": 1 << 20},
}


class Truth:
    """Where everything in a file is, by its footer."""

    def __init__(self, data: bytes, carving: Any) -> None:
        self.metadata, self.end = carving.footer_of(data)
        self.schema = Schema.from_elements(self.metadata.schema)
        self.chunks = [
            [chunk_range(column.meta_data, len(data)) for column in row_group.columns]
            for row_group in self.metadata.row_groups
        ]
        self.pages: dict[int, tuple[int, int]] = {}
        for ordinal, row_group in enumerate(self.chunks):
            for leaf, (start, end) in enumerate(row_group):
                for page in pages_of(memoryview(data)[start:end], start):
                    self.pages[page.offset] = ordinal, leaf

    def holds(self, rebuilt: Any) -> list[int]:
        """Hold that nothing is in a wrong place; returns the row groups that are named whole."""
        whole = []
        for group in rebuilt.row_groups:
            found = set()
            for leaf, chunk in enumerate(group.chunks):
                if chunk is None:
                    continue
                places = [self.pages[page.offset] for page in chunk.pages.pages]
                assert {place[1] for place in places} == {leaf}
                found |= {place[0] for place in places}
                if chunk.pages.complete:
                    assert (chunk.read.range.start, chunk.read.range.end) == self.chunks[places[0][0]][leaf]
            assert len(found) <= 1
            if all(chunk is not None and chunk.pages.complete for chunk in group.chunks):
                whole += found
        return whole


def damaged(data: bytes, end: int, choice: random.Random) -> tuple[bytes, list[tuple[int, int]]]:
    changed = bytearray(data[:end])
    holes = []
    for _ in range(choice.choice([1, 1, 2, 3, 5])):
        start = choice.randrange(end)
        stop = min(start + choice.choice([1, 16, 512, 512, 4000]), end)
        changed[start:stop] = choice.choice([bytes(stop - start), choice.randbytes(stop - start)])
        holes.append((start, stop))
    return bytes(changed), holes


def survives(make: str, seed: int, carving: Any) -> tuple[int, int]:
    """Hold that nothing is in a wrong place; returns how many row groups no damage touches, and are named of them."""
    data = written(**MAKES[make])
    truth = Truth(data, carving)
    form, holes = damaged(data, truth.end, random.Random(seed))
    rebuilt = carving.carve(form, truth.schema)
    untouched = {
        ordinal
        for ordinal, chunks in enumerate(truth.chunks)
        if not any(start < end and stop > begin for begin, end in chunks for start, stop in holes)
    }
    return len(untouched), len(untouched & set(truth.holds(rebuilt)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("make", MAKES)
def test_row_groups_without_damage_are_named_whatever_became_of_others(make: str, seed: int, carving: Any) -> None:
    untouched, named = survives(make, seed, carving)
    assert named == untouched


@pytest.mark.thorough
@pytest.mark.parametrize("make", MAKES)
def test_row_groups_without_damage_are_named_often(make: str, carving: Any) -> None:
    outcomes = [survives(make, seed, carving) for seed in range(100, 300)]
    untouched, named = (sum(counts) for counts in zip(*outcomes, strict=True))
    assert named >= 0.99 * untouched  # what could be of more than one column is left out


def test_a_chunk_that_is_gone_does_not_shift_those_behind_it(carving: Any) -> None:
    data = written(use_dictionary=False, data_page_size=1 << 20)
    truth = Truth(data, carving)
    for leaf in range(len(truth.schema.leaves)):
        start, end = truth.chunks[2][leaf]
        rebuilt = carving.carve(data[:start] + bytes(end - start) + data[end : truth.end], truth.schema)
        assert truth.holds(rebuilt) == [0, 1, 3, 4, 5, 6, 7]
        group = rebuilt.row_groups[2]
        assert [chunk is None for chunk in group.chunks] == [i == leaf for i in range(len(group.chunks))]
        assert group.num_rows == 250


@pytest.mark.parametrize(("row_group", "part", "first_row"), [(2, 1.0, 1750), (3, 1.5, None)])
async def test_rows_are_numbered_where_the_bytes_that_are_missing_are_as_many_as_usual(
    row_group: int, part: float, first_row: int | None, carving: Any
) -> None:
    """What follows a hole in the third row group is its last chunk, or that of the fourth, with bytes cut out as well."""
    data = written(use_dictionary=False, data_page_size=1 << 20)
    truth = Truth(data, carving)
    (start, usual), (_, end) = truth.chunks[2][5], truth.chunks[row_group][5]
    store, out = MemoryStore(), io.BytesIO()
    await store.put("torn", data[:start] + bytes(int(part * (usual - start))) + data[end : truth.end])
    pq.write_table(TABLE.slice(0, 0), out)
    await store.put("sibling", out.getvalue())
    report = await rpq.recover((store, "torn"), (store, "saved"), schema_from=(store, "sibling"))
    async with rpq.open((store, "saved")) as file:
        ids = pa.table(await file.read(columns=["id"]))["id"].to_pylist()
    assert ids == [*range(500), *range(250 + 250 * row_group, ROWS)]
    assert report.kept is not None and report.kept.ledger is not None
    assert [fate.first_row for fate in report.kept.ledger.rows if fate.kept][-1] == first_row


def test_of_a_chunk_with_a_hole_both_ends_are_known(carving: Any) -> None:
    data = written()
    truth = Truth(data, carving)
    start, _ = truth.chunks[3][0]
    pages = sorted(offset for offset, place in truth.pages.items() if place == (3, 0))
    assert len(pages) >= 2
    header = pages[1]  # the first data page's
    rebuilt = carving.carve(data[:header] + bytes(8) + data[header + 8 : truth.end], truth.schema)
    chunk = rebuilt.row_groups[3].chunks[0]
    assert [page.offset for page in chunk.pages.pages] == [offset for offset in pages if offset != header]
    assert not chunk.pages.complete
    assert (chunk.read.range.start, chunk.read.num_rows) == (start, 250)
    assert (rebuilt.row_groups[3].num_rows, rebuilt.row_groups[4].rows_before) == (250, 1000)


def test_of_a_row_group_that_is_cut_off_the_columns_before_are_there(carving: Any) -> None:
    data = written()
    truth = Truth(data, carving)
    rebuilt = carving.carve(data[: truth.chunks[4][3][0] + 10], truth.schema)
    assert truth.holds(rebuilt) == [0, 1, 2, 3]
    last = rebuilt.row_groups[4]
    assert [chunk is not None for chunk in last.chunks] == [True, True, True, False, False, False, False]
    assert (last.num_rows, last.rows_before, last.chunks[0].read.num_rows) == (None, 1000, 250)


def test_without_its_head_a_file_begins_with_the_first_page_that_is_whole(carving: Any) -> None:
    data = written()
    truth = Truth(data, carving)
    cut = truth.chunks[2][4][0] + 3
    rebuilt = carving.carve(bytes(cut) + data[cut : truth.end], truth.schema)
    assert truth.holds(rebuilt) == [3, 4, 5, 6, 7]


def test_with_the_schema_of_other_columns_no_row_group_is_named(carving: Any) -> None:
    data = written()
    _, end = carving.footer_of(data)
    schema = Schema.parse("message m { required boolean a; required int96 b; }")
    rebuilt = carving.carve(data[:end], schema)
    assert not any(carving.complete(group) or group.num_rows for group in rebuilt.row_groups)
    assert "no column of the schema" in rebuilt.findings[0].message


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_file_within_a_value_is_not_taken_for_rows(compression: str, carving: Any) -> None:
    inner = written(write_page_checksum=True)
    out = io.BytesIO()
    table = pa.table({"n": list(range(6)), "blob": [inner, b"x", inner, b"y", b"", inner]})
    pq.write_table(table, out, row_group_size=2, use_dictionary=False, compression=compression)
    data = out.getvalue()
    truth = Truth(data, carving)
    header = truth.chunks[1][1][0]
    for form in (data[: truth.end], data[:header] + bytes(8) + data[header + 8 : truth.end]):
        files = carving.drive(find_files(0, len(form)), form)
        outer = next(file for file in files if file.start == 0 and file.metadata is None)
        rebuilt = carving.drive(carve(outer, truth.schema), form)
        whole = truth.holds(rebuilt)
        assert whole == ([0, 1, 2] if form == data[: truth.end] else [0, 2])


def test_in_the_image_of_a_disk_each_file_is_by_itself(carving: Any) -> None:
    first, second = written(), written(compression="zstd")
    _, end = carving.footer_of(first)
    padding = bytes(-end % 512)
    image = random.Random(1).randbytes(1024) + first[:end] + padding + second + bytes(700) + second[:9000]
    files = carving.drive(find_files(0, len(image)), image)
    base = 1024 + end + len(padding)
    assert [(file.start, file.has_head, file.metadata is not None) for file in files] == [
        (1024, True, False),
        (base, True, True),
        (base + len(second) + 700, True, False),
    ]
    assert files[1].end == base + len(second)
    for file, expected in ((files[0], 8), (files[1], 8)):
        schema = Schema.from_elements(carving.footer_of(first)[0].schema)
        rebuilt = carving.drive(carve(file, schema), image)
        assert sum(map(carving.complete, rebuilt.row_groups)) == expected


def test_without_a_schema_columns_are_made_up_and_said_to_be(carving: Any) -> None:
    data = written(data_page_size=1 << 20)
    _, end = carving.footer_of(data)
    rebuilt = carving.carve(data[:end])
    assert [(leaf.path[0], leaf.node.physical_type.name) for leaf in rebuilt.schema.leaves] == [
        ("c0", "INT64"),
        ("c1", "INT64"),
        ("c2", "INT32"),
        ("c3", "DOUBLE"),
        ("c4", "BYTE_ARRAY"),
        ("c5", "BYTE_ARRAY"),
        ("c6", "INT64"),
    ]
    (finding,) = rebuilt.findings
    assert (finding.damage, finding.costs_rows) == (Damage.UNVERIFIED, False)
    assert "made up" in finding.message
    table = carving.table(data[:end], rebuilt)
    for name, original in zip(table.column_names, TABLE.column_names, strict=True):
        expected = TABLE[original]
        if pa.types.is_string(expected.type):
            expected = expected.cast(pa.binary())
        assert table[name].to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("data", [b"", b"PAR1", b"\0" * 5000, b"PAR1" * 1000, random.Random(3).randbytes(200_000)])
def test_where_there_is_no_file_none_is_found(data: bytes, carving: Any) -> None:
    assert carving.drive(find_files(0, len(data)), data) == []


def test_bytes_made_of_magics_are_an_error(carving: Any) -> None:
    data = b"PAR1" * 100_000
    with pytest.raises(FormatError, match="full of magics"):
        carving.drive(find_files(0, len(data)), data)


def test_work_without_end_ends_with_a_finding_and_what_was_found_stays(carving: Any) -> None:
    data = written(use_dictionary=False)
    metadata, end = carving.footer_of(data)
    schema = Schema.from_elements(metadata.schema)
    kept = []
    for most in (100, 300, 1000, 3000, 20_000_000):
        rebuilt = carving.carve(data[:end], schema, limits=CarveLimits(max_steps=most))
        kept.append(sum(map(carving.complete, rebuilt.row_groups)))
        assert kept[-1] == 8 or any("not searched further" in finding.message for finding in rebuilt.findings)
    assert kept == sorted(kept) and kept[0] < 8 and kept[-1] == 8


def test_work_without_end_does_not_keep_columns_from_being_made_up(carving: Any) -> None:
    data = written(use_dictionary=False)
    _, end = carving.footer_of(data)
    rebuilt = carving.carve(data[:end], limits=CarveLimits(max_steps=100))
    assert any("not searched further" in finding.message for finding in rebuilt.findings)


def test_rows_of_row_groups_that_are_expected_settle_what_is_not_clear(carving: Any) -> None:
    numbers = random.Random(0)
    table = pa.table({f"c{i}": [numbers.randrange(1 << 60) for _ in range(400)] for i in range(2)})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=100, use_dictionary=False, compression="none")
    metadata, end = carving.footer_of(out.getvalue())
    data, schema = out.getvalue()[:end], Schema.from_elements(metadata.schema)
    unclear = carving.carve(data, schema)
    assert "not clear" in unclear.findings[-1].message and unclear.findings[-1].costs_rows
    assert not unclear.row_groups  # pages of one column would be in the other
    for rows in (100, 200, 400):  # each of them would be possible
        rebuilt = carving.carve(data, schema, expected_rows=[rows])
        assert (rebuilt.findings, {group.num_rows for group in rebuilt.row_groups}) == ((), {rows})


NUMBER, TEXT = (ColumnKind(kind, None, 0, 0) for kind in (Type.INT32, Type.BYTE_ARRAY))


def misplaced(groups: list[list[tuple[ColumnKind, int, list[int]]]], expected_rows: set[int]) -> tuple[int, int]:
    """How many chunks are placed, and how many of them in a wrong column: their kinds, sizes and rows of pages.

    Between any two of them bytes are missing. A page without rows is a dictionary page.
    """
    pages, stretches, columns, at = [], [], [], 0
    for group in groups:
        for column, (kind, size, rows) in enumerate(group):
            stretches.append((len(pages), len(pages) + len(rows)))
            for count in rows:
                header = PageHeader(
                    0, size, size, data_page_header=DataPageHeader(count, 8 if rows[0] == 0 else 0, 3, 3)
                )
                if not count:
                    header = PageHeader(2, size, size, dictionary_page_header=DictionaryPageHeader(9, 0))
                pages.append(ProbedPage(FoundPage(at, header, 20, Proof.CRC), {kind: count}))
                columns.append(column)
                at = pages[-1].page.end
            at += 120
    layout = PageLayout(pages, [kind for kind, _, _ in groups[0]], set(), expected_rows, CarveLimits().budget(at))
    placing = StretchPlacement(layout, stretches, False, {})
    placing.run()
    placed = [placed.span for group in placing.groups for spans in group.spans for placed in spans]
    return len(placed), sum(columns[span.start] != span.leaf for span in placed)


def test_a_chunk_between_holes_is_not_put_into_a_later_column_of_its_type() -> None:
    """Its first two pages have as many rows each, so that they could be a row group of their own, and the rest nothing.

    Of the last column a chunk by itself completes a row group: that alone does not make it one of the last column.
    """
    chunks = [(NUMBER, 40, [10, 10, 10]), (TEXT, 50, [4, 4, 5, 3, 4, 5, 5]), (TEXT, 60, [7, 7, 8, 8])]
    placed, wrong = misplaced([chunks] * 3, {30})
    assert placed and not wrong


def test_a_chunk_between_holes_is_not_put_into_the_last_column_where_only_there_its_rows_are_known() -> None:
    """Before the last column it may be cut, as other row groups have more rows: that does not refute the column."""
    usual = [(TEXT, 50, [0, 8, 8]), (NUMBER, 40, [8, 8]), (TEXT, 60, [8, 8])]
    last = [(TEXT, 50, [0, 6, 7]), (NUMBER, 40, [6, 7]), (TEXT, 60, [6, 7])]
    placed, wrong = misplaced([usual, usual, usual, last], {16, 13})
    assert placed and not wrong


async def recovered(data: bytes, table: pa.Table, column: str | None = None) -> dict[str, list[Any]]:
    """The values of a file without footer; of one column alone with the numbers of its rows."""
    store, out = MemoryStore(), io.BytesIO()
    await store.put("torn", data)
    pq.write_table(table.slice(0, 0), out)
    await store.put("sibling", out.getvalue())
    policy, output = ("drop", "saved") if column is None else ("columns", f"saved.{column}")
    await rpq.recover((store, "torn"), (store, "saved"), schema_from=(store, "sibling"), on_damage=policy)
    async with rpq.open((store, output)) as file:
        return pa.table(await file.read()).to_pydict()


@pytest.mark.parametrize("lost", [{1, 4}, {1, 3, 4}, {2, 4}, {1}, {4}])
async def test_pages_between_two_holes_of_a_chunk_are_not_counted_from_its_end(lost: set[int], carving: Any) -> None:
    """Its dictionary page is page 0: rows are counted from there, or from the end where nothing is missing before it."""
    table = pa.table(
        {"id": range(200), "word": [f"word {i % 37}" for i in range(200)], "real": [i / 7 for i in range(200)]}
    )
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=40, data_page_size=10, write_batch_size=10, write_page_checksum=True)
    truth = Truth(out.getvalue(), carving)
    pages = sorted(offset for offset, place in truth.pages.items() if place == (2, 1))
    data = bytearray(out.getvalue()[: truth.end])
    for start, end in [each for page, each in enumerate(pairwise([*pages, truth.chunks[2][1][1]])) if page in lost]:
        data[start:end] = bytes(end - start)
    found = await recovered(bytes(data), table, "word")
    assert len(found["row"]) > 100
    assert [table["word"][row].as_py() for row in found["row"]] == found["word"]


async def test_where_many_chunks_are_missing_none_is_put_into_another_column_of_its_type(carving: Any) -> None:
    """Bytes that were cut out leave no gap whose size would tell how many chunks are missing."""
    rng = random.Random(1)
    table = pa.table({"id": range(600)} | {f"real {i}": [rng.random() for _ in range(600)] for i in range(6)})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=100, data_page_size=80, write_batch_size=10, write_page_checksum=True)
    truth = Truth(out.getvalue(), carving)
    starts = [chunk[0] for group in truth.chunks for chunk in group]
    held = {*zip(*table.to_pydict().values(), strict=True)}
    for first, last in ((10, 17), (10, 16), (11, 19), (12, 20)):
        cut, end = starts[first] + 300, starts[last] + 500
        found = await recovered(out.getvalue()[:cut] + out.getvalue()[end : truth.end], table)
        rows = [*zip(*found.values(), strict=True)]
        assert len(rows) >= 100
        assert held.issuperset(rows)


@pytest.mark.parametrize(
    ("counts", "first", "last", "left"),
    [
        ((200, 100), (0, 1), (1, 1), [1, 2]),
        ((200, 100), (0, 2), (1, 1), [2, 2]),
        ((100, 200), (0, 2), (1, 1), [2, 2]),
        ((200, 100), (0, 1), (0, 1), [3, 4]),
    ],
)
def test_columns_are_joined_only_where_their_rows_are_as_many_as_are_left(
    counts: tuple[int, int], first: tuple[int, int], last: tuple[int, int], left: list[int], carving: Any
) -> None:
    """The bytes of two row groups are far fewer than is usual, so that those missing could always be of the first."""
    rng = random.Random(3)
    out = io.BytesIO()
    schema = pa.schema({"id": pa.int64(), "small": pa.int32(), "real": pa.float64(), "text": pa.string()})
    with pq.ParquetWriter(out, schema, use_dictionary=False, compression="none") as writer:
        for count, length in ((counts[0], 3), (counts[1], 3), (200, 100), (200, 100), (200, 100)):
            texts = [rng.randbytes(length).hex()[:length] for _ in range(count)]
            reals = [rng.random() for _ in range(count)]
            writer.write_table(pa.table([range(count), range(count), reals, texts], schema=schema))
    truth = Truth(out.getvalue(), carving)
    data = bytearray(out.getvalue()[: truth.end])
    start, end = truth.chunks[first[0]][first[1]][0], truth.chunks[last[0]][last[1]][1]
    data[start:end] = bytes(end - start)
    rebuilt = carving.carve(bytes(data), truth.schema)
    truth.holds(rebuilt)
    found = [sum(chunk is not None for chunk in group.chunks) for group in rebuilt.row_groups]
    assert found == [*left, 4, 4, 4]


@pytest.mark.parametrize(("seen", "lost"), [(150, 30), (180, 40), (100, 50), (50, 160)])
def test_ends_of_a_chunk_with_more_rows_than_their_row_group_are_not_joined(seen: int, lost: int, carving: Any) -> None:
    """Zeros from within the first chunk of the first row group to within that of the second, as above."""
    rng = random.Random(3)
    out = io.BytesIO()
    schema = pa.schema({"id": pa.int64(), "real": pa.float64(), "text": pa.string()})
    options: dict[str, Any] = {"use_dictionary": False, "compression": "none", "data_page_size": 80}
    with pq.ParquetWriter(out, schema, write_batch_size=10, **options) as writer:
        for length in (3, 3, 100, 100, 100):
            texts = [rng.randbytes(length).hex()[:length] for _ in range(200)]
            reals = [rng.random() for _ in range(200)]
            writer.write_table(pa.table([range(200), reals, texts], schema=schema))
    truth = Truth(out.getvalue(), carving)
    first, second = (sorted(at for at, place in truth.pages.items() if place == (group, 0)) for group in (0, 1))
    data = bytearray(out.getvalue()[: truth.end])
    start, end = first[seen // 10], second[lost // 10]
    data[start:end] = bytes(end - start)
    assert truth.holds(carving.carve(bytes(data), truth.schema)) == [2, 3, 4]


@pytest.mark.parametrize(("use_dictionary", "page_size"), [(True, 1024), (False, 1024), (True, 1 << 20)])
async def test_columns_of_two_row_groups_are_not_joined_where_about_one_was_deleted(
    use_dictionary: bool, page_size: int, carving: Any
) -> None:
    """The rows of the second fit those of the first just as well: only bytes that are all there tell them apart."""
    rng = random.Random(2)
    words = [[f"{rng.randrange(16**4):06x}" for _ in range(3000)] for _ in range(2)]
    reals = [[rng.random() for _ in range(3000)] for _ in range(2)]
    table = pa.table({"id": range(3000), "a": words[0], "x": reals[0], "b": words[1], "y": reals[1]})
    out = io.BytesIO()
    options: dict[str, Any] = {"use_dictionary": use_dictionary, "data_page_size": page_size, "write_batch_size": 100}
    pq.write_table(table, out, row_group_size=500, write_page_checksum=True, **options)
    truth = Truth(out.getvalue(), carving)
    data, held = out.getvalue()[: truth.end], {*zip(*table.to_pydict().values(), strict=True)}
    usual = truth.chunks[2][0][0] - truth.chunks[1][0][0]
    for part, leaf in ((0.9, 1), (0.98, 2), (0.8, 3)):
        cut = sum(truth.chunks[1][leaf]) // 2
        found = await recovered(data[:cut] + data[cut + int(part * usual) :], table)
        rows = [*zip(*found.values(), strict=True)]
        assert held.issuperset(rows)
        assert len(rows) == 2000  # of the four row groups before and behind the deletion
