"""Files of several row groups without footer and schema: what repeats itself is one column, not many."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import sampled
from writers_of_others import by_duckdb, by_fastparquet, by_polars, by_pyarrow

import resilient_pq as rpq
from resilient_pq.format.file_metadata import CompressionCodec, Type
from resilient_pq.format.pages.page import Page
from resilient_pq.format.resilience_records import CHUNK_RECORD_SIZE
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.carve import find_files
from resilient_pq.recovery.carve.column_cuts import CutChunk, count_columns
from resilient_pq.recovery.carve.invented_columns import candidate_kinds
from resilient_pq.recovery.carve.page_probe import ColumnKind, ProbedPage, probe_body, probe_header

pytestmark = pytest.mark.ways_in_quick(5)


def mixed(rows: int) -> pa.Table:
    """Columns of several types, one of which repeats itself, nulls in some, and only nulls in one."""
    rng = random.Random(rows)
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "small": pa.array([i % 100 for i in range(rows)], pa.int32()),
            "town": [None if i % 7 == 0 else f"town {i % 3}" for i in range(rows)],
            "score": [rng.random() for _ in range(rows)],
            "text": [f"{rng.random()}" for _ in range(rows)],
            "late": pa.array([None if i < rows / 2 else 10**12 + i for i in range(rows)], pa.int64()),
            "flag": [i % 3 == 0 for i in range(rows)],
            "none": pa.array([None] * rows, pa.int32()),
        }
    )


def pair(rows: int) -> pa.Table:
    rng = random.Random(rows)
    return pa.table({"id": list(range(rows)), "text": [f"{rng.random()}" for _ in range(rows)]})


def alone(rows: int) -> pa.Table:
    return pa.table({"id": list(range(rows))})


def of_one_type(rows: int) -> pa.Table:
    rng = random.Random(rows)
    return pa.table({f"x{i}": [rng.getrandbits(40) for _ in range(rows)] for i in range(3)})


WRITERS = {
    "pyarrow snappy": by_pyarrow(),
    "pyarrow zstd, CRCs": by_pyarrow(compression="zstd", write_page_checksum=True),
    "pyarrow none, pages 2.0": by_pyarrow(compression="none", data_page_version="2.0"),
    "pyarrow, no dictionaries": by_pyarrow(use_dictionary=False),
    "pyarrow gzip, small pages": by_pyarrow(compression="gzip", data_page_size=1000),
    "pyarrow lz4, page index": by_pyarrow(compression="lz4", write_page_index=True),
    "pyarrow brotli, small dictionaries": by_pyarrow(compression="brotli", dictionary_pagesize_limit=1000),
    "DuckDB snappy": by_duckdb("snappy", "V1"),
    "DuckDB zstd, new encodings": by_duckdb("zstd", "V2"),
    "Polars zstd": by_polars("zstd"),
    "Polars none": by_polars("uncompressed"),
    "fastparquet snappy": by_fastparquet("SNAPPY", without=("none", "late")),
    "fastparquet none": by_fastparquet("UNCOMPRESSED", without=("none", "late")),
}
#: Row groups, and whether the last has as many rows as the others, or how many.
SIZES = ((1, None), (2, None), (3, 299), (5, None), (10, 17))


def plain(column: Any) -> list[Any]:
    """Values as they are without the types that pages do not tell."""
    return [value.encode() if isinstance(value, str) else value for value in column.to_pylist()]


async def recovered(data: bytes) -> tuple[pa.Table, rpq.Report]:
    store = MemoryStore()
    await store.put("damaged", data)
    report = await rpq.recover((store, "damaged"), (store, "out"))
    output = bytes((await store.read_tail("out", 1 << 30)).data)
    return pq.read_table(io.BytesIO(output)), report


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., tuple[bytes, pa.Table]]:
    size = 2048 if request.param.startswith("DuckDB") else 300

    def written(make: Callable[[int], pa.Table], groups: int, last: int | None) -> tuple[bytes, pa.Table]:
        rows = size * (groups - 1) + (last or size)
        WRITERS[request.param](make(rows), size, tmp_path / "file")
        data = (tmp_path / "file").read_bytes()
        table = pq.read_table(io.BytesIO(data))
        assert pq.read_metadata(io.BytesIO(data)).num_row_groups == groups
        return data, table

    written.__name__ = request.param
    return written


def some(all_of_them: Sequence[Any], count: int, write: Any, make: Callable[[int], pa.Table]) -> list[Any]:
    """So many of them, others for each writer and table."""
    rng = random.Random(f"{write.__name__} {make.__name__}")
    return rng.sample(all_of_them, min(count, len(all_of_them)))


@sampled(2, len(SIZES))
@pytest.mark.parametrize("make", [mixed, pair, alone])
async def test_each_column_has_the_values_of_one(
    write: Callable[..., tuple[bytes, pa.Table]], make: Callable[[int], pa.Table], carving: Any, count: int
) -> None:
    for groups, last in some(SIZES, count, write, make):
        data, table = write(make, groups, last)
        _, end = carving.footer_of(data)
        found, _ = await recovered(data[:end])
        assert (found.num_columns, found.num_rows) == (table.num_columns, table.num_rows), (groups, last)
        for one, other in zip(found.columns, table.columns, strict=True):
            assert plain(one) == plain(other)


@sampled(2, len(SIZES))
async def test_columns_of_one_type_are_counted_or_left_out(
    write: Callable[..., tuple[bytes, pa.Table]], carving: Any, count: int
) -> None:
    """A last row group of fewer rows tells; row groups of equally many rows may be columns, and nothing can tell."""
    for groups, last in some(SIZES, count, write, of_one_type):
        data, table = write(of_one_type, groups, last)
        _, end = carving.footer_of(data)
        if last is None:
            with pytest.raises(rpq.NothingToRecoverError):
                await recovered(data[:end])
        else:
            found, _ = await recovered(data[:end])
            assert [plain(column) for column in found.columns] == [plain(column) for column in table.columns]


def test_chunks_that_are_missing_between_row_groups_make_no_columns_of_the_others(carving: Any) -> None:
    """Without those that are deleted no number of columns repeats itself, so all might be columns of one row group."""
    out, table = io.BytesIO(), mixed(1500).select(["id", "small", "score", "text", "flag"])
    pq.write_table(table, out, row_group_size=300, use_dictionary=False)
    chunks, data = chunks_of(out.getvalue()), out.getvalue()
    for gone in itertools.combinations([chunks[group][column] for group in (0, 1, 2) for column in (0, 2)], 3):
        left = data[: chunks[-1][-1][1]]
        for start, end in reversed(gone):
            left = left[:start] + left[end:]
        assert len(carving.carve(left).schema.leaves) <= table.num_columns


def test_a_row_group_that_is_cut_does_not_make_columns_of_the_others(carving: Any) -> None:
    out = io.BytesIO()
    table = mixed(1000)
    pq.write_table(table, out, row_group_size=300)
    metadata = pq.read_metadata(out)
    for column in range(metadata.num_columns):
        chunk = metadata.row_group(2).column(column)
        cut = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
        rebuilt = carving.carve(out.getvalue()[:cut])
        assert len(rebuilt.schema.leaves) == metadata.num_columns
        whole = [group.num_rows for group in rebuilt.row_groups if carving.complete(group)]
        assert whole[:2] == [300, 300]


def test_where_the_first_pages_are_gone_that_is_said(carving: Any) -> None:
    out = io.BytesIO()
    pq.write_table(mixed(1000), out, row_group_size=300)
    data = bytearray(out.getvalue())
    _, end = carving.footer_of(bytes(data))
    assert not [f for f in carving.carve(bytes(data[:end])).findings if "beginning" in f.message]
    data[4:40] = bytes(36)
    assert [f for f in carving.carve(bytes(data[:end])).findings if "beginning" in f.message]


def test_of_pages_that_do_not_follow_one_another_no_columns_are_made_up(carving: Any) -> None:
    """Columns of one type would be mixed: after a transfer as text hardly a page stands beside another."""
    out = io.BytesIO()
    pq.write_table(
        of_one_type(900), out, row_group_size=300, data_page_size=200, write_batch_size=20, use_dictionary=False
    )
    data = bytearray(out.getvalue())
    _, end = carving.footer_of(bytes(data))
    pages = [(page.offset, page.end) for file in carving.drive(find_files(0, end), data[:end]) for page in file.pages]
    for start, stop in pages[1::2]:
        data[start:stop] = bytes(stop - start)
    assert len(pages) > 20
    assert carving.carve(bytes(data[:end])).row_groups == ()


def chunks_of(data: bytes) -> list[list[tuple[int, int]]]:
    """For each row group where its chunks begin and end."""
    metadata = pq.read_metadata(io.BytesIO(data))
    found = []
    for group in range(metadata.num_row_groups):
        chunks = [metadata.row_group(group).column(column) for column in range(metadata.num_columns)]
        starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
        found.append([(at, at + chunk.total_compressed_size) for at, chunk in zip(starts, chunks, strict=True)])
    return found


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(plain(column) for column in table.columns), strict=True))


async def true_rows(data: bytes, table: pa.Table) -> int:
    """How many rows are kept, each of which has to begin like one that was written."""
    try:
        found, report = await recovered(data)
    except rpq.NothingToRecoverError:
        return 0
    assert report.exit_code == 1
    assert found.num_columns <= table.num_columns
    written = {row[: found.num_columns] for row in rows_of(table)}
    assert all(row in written for row in rows_of(found))
    return int(found.num_rows)


@sampled(3, 8)
async def test_a_second_row_group_that_is_cut_is_no_further_columns(
    write: Callable[..., tuple[bytes, pa.Table]], count: int
) -> None:
    """What stands behind the last whole page may have been the rest of the first columns, in the next row group."""
    data, table = write(mixed, 3, 17)
    first, second, _ = chunks_of(data)
    for start, end in some(second, count, write, mixed):
        assert await true_rows(data[: start + (end - start) * 2 // 3], table) >= len(table) // 3
    assert await true_rows(data[: first[-1][1] - 3], table) >= 0


async def test_where_the_first_page_is_gone_row_groups_end_where_others_begin(
    write: Callable[..., tuple[bytes, pa.Table]], carving: Any
) -> None:
    data, table = write(mixed, 3, 17)
    _, end = carving.footer_of(data)
    (start, stop), *_ = chunks_of(data)[0]
    assert await true_rows(data[:start] + bytes(stop - start) + data[stop:end], table)
    assert await true_rows(data[5:end], table)


async def test_of_equal_row_groups_without_beginning_and_end_no_rows_are_made_up(
    write: Callable[..., tuple[bytes, pa.Table]],
) -> None:
    """With which column one begins cannot be known: values of different rows would be taken for those of one."""
    data, table = write(mixed, 2, None)
    first, second = chunks_of(data)
    for column in range(len(first)):
        start, end = first[column][1], second[-1][1] - 3
        await true_rows(bytes(start) + data[start:end], table)


async def test_moved_chunks_make_no_columns(write: Callable[..., tuple[bytes, pa.Table]], carving: Any) -> None:
    data, table = write(mixed, 3, 17)
    _, end = carving.footer_of(data)
    first, second, third = chunks_of(data)
    (start, stop), to = first[1], second[-1][1]
    await true_rows(data[:start] + data[stop:to] + data[start:stop] + data[to : third[2][1] - 3], table)
    again = slice(*second[2])
    await true_rows(data[: again.stop] + data[again] + data[again.stop : end], table)


def in_pairs(rows: int) -> pa.Table:
    """Columns of which each two pages may as well be chunks of two columns."""
    rng = random.Random(rows)
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("text", pa.string())])
    return pa.table({"id": list(range(rows)), "text": [f"{rng.getrandbits(32):08x}" for _ in range(rows)]}, schema)


@pytest.mark.parametrize("end", [None, -1], ids=["whole row groups", "the last one cut"])
async def test_pages_of_one_column_are_not_taken_for_two(end: int | None) -> None:
    """Each chunk has two pages of 20 rows: nothing tells two columns of 40 rows from four of 20."""
    out, table = io.BytesIO(), in_pairs(100)
    pq.write_table(table, out, row_group_size=40, use_dictionary=False, data_page_size=64, write_batch_size=20)
    chunks = chunks_of(out.getvalue())
    data = out.getvalue()[: chunks[2][-1][1] if end is None else chunks[2][0][0] + 20]
    await true_rows(data, table)


@pytest.mark.parametrize("pages", [3, 4])
async def test_pages_of_two_columns_are_not_taken_for_one(pages: int) -> None:
    """Without a second row group of fewer rows, all pages may as well be row groups of one column."""
    out, table = io.BytesIO(), in_pairs(10 * pages)
    pq.write_table(table, out, use_dictionary=False, data_page_size=16, write_batch_size=10)
    await true_rows(out.getvalue()[: chunks_of(out.getvalue())[0][-1][1]], table)


async def test_a_page_that_needs_the_dictionary_before_it_ends_no_row_group() -> None:
    """Row groups of 20 and 40 rows: the first chunk of the second is no further column of the first."""
    out, table = io.BytesIO(), in_pairs(60)
    with pq.ParquetWriter(out, table.schema, data_page_size=64, write_batch_size=20) as writer:
        writer.write_table(table.slice(0, 20))
        writer.write_table(table.slice(20))
    second = chunks_of(out.getvalue())[1]
    assert await true_rows(out.getvalue()[: second[-1][1]], table) == 60
    assert await true_rows(out.getvalue()[: second[0][1]], table) == 20


def probed(table: pa.Table, carving: Any, **options: Any) -> list[tuple[Page, ProbedPage]]:
    """The pages of a file, and what carving finds out of each where nothing but the page is known."""
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    data = memoryview(out.getvalue())
    _, end = carving.footer_of(bytes(data))
    (file,) = carving.drive(find_files(0, end), data[:end])
    kinds = candidate_kinds(file.pages)
    pages = [
        Page(0, at.offset, at.header, data[at.offset :][: at.header_size], data[at.offset + at.header_size : at.end])
        for at in file.pages
    ]
    return [
        (page, probe_body(probe_header(at, kinds), page, kinds)) for page, at in zip(pages, file.pages, strict=True)
    ]


def test_pages_that_compression_leaves_as_large_are_those_of_their_codec(carving: Any) -> None:
    """Read as if they were not compressed they may be as many values of another type."""
    rng = random.Random(5)
    same = []
    for rows in range(3, 10):
        text = [f"{rng.getrandbits(32):08x}" if rng.random() < 0.8 else None for _ in range(60 * rows)]
        found = probed(pa.table({"text": text}), carving, compression="gzip", use_dictionary=False, row_group_size=rows)
        same += [known for page, known in found if page.header.uncompressed_page_size == len(page.body)]
    assert same
    assert {known.codec for known in same} == {CompressionCodec.GZIP}
    assert all(any(kind.physical_type is Type.BYTE_ARRAY for kind in known.rows) for known in same)


def test_levels_are_not_taken_for_places_in_a_dictionary(carving: Any) -> None:
    """Their length has zeros, which are runs of no values where they are read as places: others refuse those."""
    rng = random.Random(6)
    names = [f"name {rng.randrange(12)}" for _ in range(6000)]
    found = probed(pa.table({"name": names}), carving, row_group_size=20, compression="none")
    assert all(kind.max_definition_level for _, known in found if not known.is_dictionary for kind in known.rows)


async def test_a_shorter_last_row_group_that_is_cut_does_not_halve_the_columns() -> None:
    """Integers, texts, doubles and texts may be two columns, whose chunks would be unlike from one to the next."""
    rng = random.Random(3)
    rows = 5900
    columns = [
        list(range(rows)), [f"town {i % 3}" for i in range(rows)],
        [rng.random() for _ in range(rows)], [f"{rng.getrandbits(60):x}" for _ in range(rows)],
    ]  # fmt: skip
    table = pa.table(columns, ["id", "town", "score", "text"])
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=2000)
    last = pq.read_metadata(out).row_group(2)
    store = MemoryStore()
    await store.put("torn", out.getvalue()[: last.column(2).data_page_offset])
    report = await rpq.recover((store, "torn"), (store, "saved"))
    assert report.kept is not None and report.kept.num_rows == 4000
    async with rpq.open((store, "saved")) as file:
        found = pa.table(await file.read())
    assert [column.to_pylist() for column in found.columns[2:]] == [
        values[:4000] if name == "score" else [text.encode() for text in values[:4000]]
        for name, values in (("score", columns[2]), ("text", columns[3]))
    ]


def test_a_few_chunks_that_fit_nowhere_do_not_hide_how_many_columns_there_are() -> None:
    """Two columns in eight row groups, of which one chunk is of another file."""
    number, text, strange = (ColumnKind(one, None, 0, 0) for one in (Type.INT64, Type.BYTE_ARRAY, Type.BOOLEAN))
    kinds = [number, text] * 8
    kinds[6] = strange
    chunks = [CutChunk((kind,), i, i + 1, 10, False, False, 80, (0, 0), None) for i, kind in enumerate(kinds)]
    counted = count_columns([chunks], begins=True)
    assert counted is not None and counted.count == 2
    counted = count_columns([chunks[:10]], begins=True)
    assert counted is None or counted.count != 2, "of few a tenth may be much"


@pytest.mark.parametrize("columns", [2, 3])
async def test_records_tell_which_pages_begin_a_chunk(columns: int) -> None:
    """Without anchor and schema, of a row group that is cut within a column: its pages are of no row group behind."""
    table = pa.table({f"x{i}": range(1000 * i, 1000 * i + 16) for i in range(columns)})
    store, options = MemoryStore(), rpq.WriteOptions(page_rows=8)
    async with rpq.create((store, "whole"), table.schema, encodings="PLAIN", options=options) as writer:
        await writer.write(table)
    data = (await store.read_tail("whole", 1 << 20)).data
    chunks = [pq.read_metadata(io.BytesIO(data)).row_group(0).column(i) for i in range(columns)]
    record = chunks[0].data_page_offset - CHUNK_RECORD_SIZE
    end = chunks[-1].data_page_offset + chunks[-1].total_compressed_size
    await store.put("torn", bytes(record) + bytes(data[record : end - 8]))
    await rpq.recover((store, "torn"), (store, "saved"))
    async with rpq.open((store, "saved")) as file:
        rows = pa.table(await file.read()).to_pydict()
    assert rows == {f"c{i}": list(range(1000 * i, 1000 * i + 8)) for i in range(columns)}
