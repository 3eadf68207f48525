"""Page indexes, bloom filters and statistics of a file: what they say, what they cost, and what is wrong with them."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import io
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import (
    BoundaryOrder,
    FileMetaData,
    OffsetIndex,
    PageLocation,
    StoredSortingColumn,
)
from resilient_pq.format.indexes.split_block_filter import BloomFilter, BloomFilterHeader
from resilient_pq.io.memory_store import MemoryStore

Stored = Callable[[bytes], Awaitable[MemoryStore]]
WithFooter = Callable[..., bytes]

DAY = dt.date(2020, 2, 29)
TABLE = pa.table(
    {
        "n": pa.array([None if i % 10 == 3 else i for i in range(60)], pa.int32()),
        "s": pa.array([f"text {i % 7}" for i in range(60)]),
        "day": pa.array([DAY + dt.timedelta(i) for i in range(60)]),
        "at": pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=i) for i in range(60)]),
        "ns": pa.array(range(60), pa.timestamp("ns")),
        "dec": pa.array([decimal.Decimal(i) / 4 for i in range(60)], pa.decimal128(20, 2)),
        "f": pa.array([[0.0, math.nan, 1.5, -2.0][i % 4] for i in range(60)]),
        "id": pa.array([uuid.UUID(int=i).bytes for i in range(60)], pa.binary(16)),
        "l": pa.array([None if i % 5 == 0 else [i] * (i % 4) for i in range(60)], pa.list_(pa.int64())),
        "flag": pa.array([True] * 60),
    }
)
FILTERED = ["n", "s", "day", "at", "ns", "dec", "f", "id", "l"]


@pytest.fixture(scope="module")
def data() -> bytes:
    store = MemoryStore()
    options = rpq.WriteOptions(page_rows=10, bloom_filter_options=FILTERED, sorting_columns=["day", "at"])
    with sync.create((store, "file"), row_group_rows=30, options=options) as writer:
        writer.write(TABLE)
    return bytes(asyncio.run(store.read_tail("file", 1 << 40)).data)


#: So few bytes of the end are read that nothing lies in them but the footer's length.
NO_TAIL = rpq.ReadOptions(tail_bytes=8)


@pytest.fixture
def opened(stored: Stored) -> Callable[..., Any]:
    @asynccontextmanager
    async def open_bytes(content: bytes, **options: Any) -> AsyncIterator[rpq.File]:
        async with rpq.open((await stored(content), "file"), **options) as file:
            yield file

    return open_bytes


# --- what they say --------------------------------------------------------------------------------------


async def test_statistics_are_values_as_tables_give_them(opened: Any, data: bytes) -> None:
    async with opened(data) as file:
        found = {name: file.statistics(1, name) for name in TABLE.column_names if name != "l"}
        bounds = {name: (one.min, one.max) for name, one in found.items()}
        assert bounds == {
            "n": (30, 59),
            "s": ("text 0", "text 6"),
            "day": (DAY + dt.timedelta(30), DAY + dt.timedelta(59)),
            "at": (TABLE["at"][30].as_py(), TABLE["at"][59].as_py()),
            "ns": (np.datetime64(30, "ns"), np.datetime64(59, "ns")),
            "dec": (decimal.Decimal("7.5"), decimal.Decimal("14.75")),
            "f": (-2.0, 1.5),
            "id": (uuid.UUID(int=30).bytes, uuid.UUID(int=59).bytes),
            "flag": (True, True),
        }
        assert found["n"].null_count == 3 and found["f"].nan_count == 7 and found["s"].byte_array_bytes == 180
        assert file.statistics(0, "l.list.element") == file.statistics(0, 8)
        rows = TABLE["l"][:30].to_pylist()
        values = sum(len(row or ()) for row in rows)
        histogram = (rows.count(None), rows.count([]), 0, values)
        assert file.statistics(0, 8).definition_level_histogram == histogram
        assert file.sorting_columns == (rpq.SortingColumn("day"), rpq.SortingColumn("at"))


async def test_column_index(opened: Any, data: bytes) -> None:
    async with opened(data) as file:
        before = file.counters.requests
        index = await file.column_index(1, "n")
        assert file.counters.requests == before  # it came with the footer
        assert [(page.min, page.max, page.null_count) for page in index.pages] == [
            (30, 39, 1),
            (40, 49, 1),
            (50, 59, 1),
        ]
        assert index.boundary_order is BoundaryOrder.ASCENDING
        lists = await file.column_index(0, "l.list.element")
        entries = [sum(page.definition_level_histogram) for page in lists.pages]
        assert entries == [sum(page.repetition_level_histogram) for page in lists.pages]
        assert sum(entries) == file.statistics(0, "l.list.element").num_values


async def test_an_index_that_did_not_come_with_the_footer(opened: Any, data: bytes) -> None:
    async with opened(data) as file:
        index = await file.column_index(1, "n")
    async with opened(data, options=NO_TAIL) as file:
        before = file.counters.requests
        assert await file.column_index(1, "n") == index
        assert file.counters.requests == before + 1


async def test_offset_index(opened: Any, data: bytes) -> None:
    async with opened(data) as file:
        index = await file.offset_index(1, "s")
        assert [page.first_row_index for page in index.page_locations] == [0, 10, 20]
        assert index.unencoded_byte_array_data_bytes == [60, 60, 60]


async def test_bloom_filters_contain_every_value(opened: Any, data: bytes) -> None:
    async with opened(data) as file:
        for name in FILTERED:
            path = "l.list.element" if name == "l" else name
            inside = TABLE[name].slice(30)
            if name == "l":
                inside = inside.combine_chunks().flatten()
            found = await file.bloom_filter(1, path)
            assert found.may_contain(inside).all()
            python = inside.cast(pa.int64()).to_numpy().astype("M8[ns]") if name == "ns" else inside.to_pylist()
            assert found.may_contain(python).all()
            assert all(found.may_contain(value) is True for value in python)
        assert await file.bloom_filter(0, "flag") is None


@pytest.mark.parametrize(
    ("arrow", "values"),
    [
        (pa.string_view(), ["a", None, "a text that is longer than twelve bytes"]),
        (pa.binary_view(), [b"a", b"\xff" * 20]),
        (pa.decimal32(9, 2), [decimal.Decimal("-1234567.89")]),
        (pa.decimal64(18, 3), [decimal.Decimal("0.125"), None]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"]),
    ],
    ids=str,
)
async def test_bloom_filters_take_arrow_arrays_of_any_type(arrow: pa.DataType, values: list[Any]) -> None:
    array = pa.array(values, arrow)
    store = MemoryStore()
    options = rpq.WriteOptions(bloom_filter_options=["x"])
    async with rpq.create((store, "file"), options=options) as writer:
        await writer.write(pa.table({"x": array}))
    async with rpq.open((store, "file")) as file:
        found = await file.bloom_filter(0, "x")
        assert found.may_contain(array).all()
        assert found.may_contain(pa.chunked_array([array, array])).tolist() == [True] * 2 * len(array)


async def test_bloom_filters_know_the_nanoseconds_and_the_nulls_of_pandas_and_numpy() -> None:
    instants = pa.array([1, 1_001, -1, 10**18 + 7, None], pa.timestamp("ns"))
    table = pa.table({"n": pa.array([1, None], pa.uint8()).take(pa.array([0, 0, 0, 0, 1]))})
    table = table.append_column("local", instants).append_column("utc", instants.cast(pa.timestamp("ns", "UTC")))
    store = MemoryStore()
    options = rpq.WriteOptions(bloom_filter_options=table.column_names)
    async with rpq.create((store, "file"), options=options) as writer:
        await writer.write(table)
    async with rpq.open((store, "file")) as file:
        for name in table.column_names:
            found = await file.bloom_filter(0, name)
            of_pandas = table[name].to_pandas()
            assert found.may_contain(table[name].to_pylist()).all()
            assert found.may_contain([*of_pandas]).all()
            assert found.may_contain(of_pandas.to_numpy()).all()
        assert not (await file.bloom_filter(0, "local")).may_contain(pd.Timestamp(2))


@pytest.mark.parametrize("first", ["inside", "outside"])
async def test_a_name_with_dots_is_the_column_that_has_it(first: str) -> None:
    outside = {"a.b": pa.array([2, 1])}
    inside = {"a": pa.array([{"b": 50}, {"b": 100}])}
    table = pa.table(inside | outside if first == "inside" else outside | inside)
    store = MemoryStore()
    options = rpq.WriteOptions(bloom_filter_options=["a.b"], sorting_columns=[("a.b", "descending")])
    async with rpq.create((store, "file"), options=options) as writer:
        await writer.write(table)
    async with rpq.open((store, "file")) as file:
        assert (await file.read(columns=["a.b"])).to_pylist() == [{"a.b": 2}, {"a.b": 1}]
        assert (file.statistics(0, "a.b").min, file.statistics(0, "a.b").max) == (1, 2)
        assert (await file.bloom_filter(0, "a.b")).may_contain([1, 2, 50, 100]).tolist() == [
            True,
            True,
            False,
            False,
        ]
        assert file.sorting_columns == (rpq.SortingColumn("a.b", descending=True),)


async def test_bloom_filters_exclude_most_others(opened: Any, data: bytes) -> None:
    async with opened(data) as file:
        for name, others in {
            "n": range(1000, 3000),
            "s": [f"other {i}" for i in range(2000)],
            "day": [DAY + dt.timedelta(1000 + i) for i in range(2000)],
            "f": np.arange(2000) + 0.25,
            "dec": [decimal.Decimal(i) for i in range(100, 2100)],
        }.items():
            found = await file.bloom_filter(0, name)
            assert found.may_contain(list(others)).mean() < 0.15


async def test_what_a_bloom_filter_is_asked(opened: Any, data: bytes) -> None:
    async with opened(data) as file:
        numbers = await file.bloom_filter(0, "n")
        assert numbers.may_contain([1, None, 2**40, 1.5, np.int8(2)]).tolist() == [
            True,
            True,
            False,
            False,
            True,
        ]
        assert numbers.may_contain([]).tolist() == []
        assert numbers.may_contain({5}).tolist() == [True]
        assert numbers.may_contain(None) is True
        floats = await file.bloom_filter(0, "f")
        assert floats.may_contain([0.0, -0.0, math.nan]).all()
        texts = await file.bloom_filter(0, "s")
        assert texts.may_contain("text 1") is True and texts.may_contain(b"text 1") is True
        assert texts.column == "s" and texts.num_bytes == 32
        with pytest.raises(rpq.SchemaError, match="cannot be compared with STRING") as caught:
            texts.may_contain([1])
        assert caught.value.where.column == "s"


async def test_what_is_not_there(opened: Any, data: bytes, their_bytes: bytes) -> None:
    async with opened(their_bytes) as file:
        assert await file.column_index(0, "n") is None
        assert await file.offset_index(0, "n") is None
        assert await file.bloom_filter(0, "n") is None
        assert file.sorting_columns == ()
    async with opened(data) as file:
        for ask in (file.statistics, file.column_index, file.offset_index, file.bloom_filter):
            for arguments, message in (
                ((2, "n"), "no row group 2"),
                ((-1, "n"), "no row group"),
                ((0, "l"), "no column 'l'"),
            ):
                with pytest.raises(rpq.SchemaError, match=message):
                    await _result(ask(*arguments))


async def _result(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


async def test_only_an_order_that_all_row_groups_have(opened: Any, data: bytes, with_footer: WithFooter) -> None:
    def edit(metadata: FileMetaData) -> None:
        metadata.row_groups[1].sorting_columns = [
            StoredSortingColumn(2, False, False),
            StoredSortingColumn(0, True, False),
        ]

    async with opened(with_footer(data, edit)) as file:
        assert file.sorting_columns == (rpq.SortingColumn("day"),)


# --- damage ---------------------------------------------------------------------------------------------

WHAT = {
    "column_index": lambda chunk: (chunk.column_index_offset, chunk.column_index_length),
    "offset_index": lambda chunk: (chunk.offset_index_offset, chunk.offset_index_length),
    "bloom_filter": lambda chunk: (chunk.meta_data.bloom_filter_offset, chunk.meta_data.bloom_filter_length),
}


@pytest.mark.parametrize("what", WHAT)
async def test_a_changed_byte_is_named(opened: Any, data: bytes, what: str) -> None:
    async with opened(data) as file:
        offset, length = WHAT[what](file.metadata.row_groups[1].columns[1])
    for at in (0, length // 2, length - 1):
        changed = bytearray(data)
        changed[offset + at] ^= 0x10
        async with opened(bytes(changed)) as file:
            with pytest.raises(rpq.ChecksumError, match="CRC32 does not match") as caught:
                await getattr(file, what)(1, "s")
            where = caught.value.where
            assert (where.row_group, where.column, where.offset) == (1, "s", offset)
            assert where.key == file.url
            assert await getattr(file, what)(0, "s") is not None


async def test_a_wrong_transfer_is_repeated(data: bytes, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(data, options=NO_TAIL) as file:
        fetched = file._indexes._fetch
        calls = []

        async def once_wrong(place: Any) -> memoryview:
            calls.append(place)
            found = bytearray(await fetched(place))
            found[0] ^= len(calls) == 1
            return memoryview(found)

        monkeypatch.setattr(file._indexes, "_fetch", once_wrong)
        assert await file.column_index(0, "n") is not None
        assert len(calls) == 2 and calls[0] == calls[1]


def their_file(**options: Any) -> bytes:
    out = io.BytesIO()
    table = pa.table({"n": range(100), "s": [f"{i}" for i in range(100)]})
    chosen = {"write_page_index": True, "bloom_filter_options": {"n": {"ndv": 100}}, "data_page_size": 64}
    pq.write_table(table, out, **{**chosen, **options})
    return out.getvalue()


async def test_files_of_others(opened: Any) -> None:
    async with opened(their_file(use_dictionary=False, max_rows_per_page=30)) as file:
        index = await file.column_index(0, "n")
        offsets = await file.offset_index(0, "n")
        assert len(index.pages) == len(offsets.page_locations) > 1
        assert (index.pages[0].min, index.pages[-1].max) == (0, 99)
        assert (await file.bloom_filter(0, "n")).may_contain(range(100)).all()


async def test_a_chunk_without_values_may_have_a_page(opened: Any, with_footer: WithFooter) -> None:
    def edit(metadata: FileMetaData) -> None:
        metadata.row_groups[0].columns[0].meta_data.num_values = 0

    async with opened(with_footer(their_file(), edit, vouch=False)) as file:
        assert len((await file.offset_index(0, "n")).page_locations) > 0


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize(
    ("offset", "length"),
    [(-1, 10), (0, 10), (1 << 40, 10), (4, 1 << 30), (4, -5), (4, 0), (-(2**63), 2**31 - 1)],
)
async def test_pointers_out_of_the_file(
    opened: Any, with_footer: WithFooter, what: str, offset: int, length: int
) -> None:
    def edit(metadata: FileMetaData) -> None:
        chunk = metadata.row_groups[0].columns[0]
        named = chunk.meta_data if what == "bloom_filter" else chunk
        setattr(named, f"{what}_offset", offset)
        setattr(named, f"{what}_length", length)

    async with opened(with_footer(their_file(), edit, vouch=False)) as file:
        with pytest.raises(rpq.FormatError, match="outside of the file") as caught:
            await getattr(file, what)(0, "n")
        assert (caught.value.where.row_group, caught.value.where.column) == (0, "n")


@pytest.mark.parametrize("what", ["column_index", "offset_index"])
async def test_pointers_to_something_else(opened: Any, with_footer: WithFooter, what: str) -> None:
    """At the magic, at pages, at the other index: an error of ours, and never anything else."""
    original = their_file()
    places = []
    for offset in range(4, len(original) - 700, 7):

        def edit(metadata: FileMetaData, offset: int = offset) -> None:
            setattr(metadata.row_groups[0].columns[0], f"{what}_offset", offset)

        async with opened(with_footer(original, edit, vouch=False)) as file:
            try:
                await getattr(file, what)(0, "n")
            except rpq.FormatError as error:
                places.append((error.where.row_group, error.where.column))
    assert len(places) > 100
    assert set(places) == {(0, "n")}


async def test_a_filter_whose_length_is_not_told(opened: Any, with_footer: WithFooter) -> None:
    def edit(metadata: FileMetaData) -> None:
        metadata.row_groups[0].columns[0].meta_data.bloom_filter_length = None

    for ndv in (10, 5000):  # in the first bytes, and beyond
        data = with_footer(their_file(bloom_filter_options={"n": {"ndv": ndv}}), edit, vouch=False)
        async with opened(data, options=NO_TAIL) as file:
            before = file.counters.requests
            found = await file.bloom_filter(0, "n")
            assert found.may_contain(range(100)).all()
            assert file.counters.requests - before == (1 if found.num_bytes < 1000 else 2)


@pytest.mark.parametrize("size", [-1, 0, 31, 32, 64, 2**31 - 32])
async def test_filters_that_say_they_are_larger(opened: Any, with_footer: WithFooter, size: int) -> None:
    original = their_file()
    header = compact_protocol.decode(BloomFilterHeader, BloomFilter.sized(1, 0.5).to_bytes())[0]
    header.numBytes = size

    def edit(metadata: FileMetaData) -> None:
        # The last bytes before the footer: whatever the header says, they are too few.
        meta = metadata.row_groups[0].columns[0].meta_data
        meta.bloom_filter_offset, meta.bloom_filter_length = start, None

    end = len(original) - 8 - int.from_bytes(original[-8:-4], "little")
    start = end - len(compact_protocol.encode(header)) - 16
    forged = original[:start] + compact_protocol.encode(header) + bytes(16) + original[end:]
    async with opened(with_footer(forged, edit, vouch=False)) as file:
        with pytest.raises(rpq.FormatError) as caught:
            await file.bloom_filter(0, "n")
        assert (caught.value.where.column, caught.value.where.offset) == ("n", start)


@pytest.mark.parametrize(
    "pages",
    [
        [(0, 10, 0)],
        [(4, 0, 0)],
        [(4, -1, 0)],
        [(4, 1 << 30, 0)],
        [(-5, 10, 0)],
        [(4, 10, 1)],
        [(4, 10, 0), (14, 10, 101)],
        [(4, 10, 0), (14, 10, 50), (24, 10, 40)],
    ],
)
async def test_offset_indexes_that_cannot_be(
    opened: Any, with_footer: WithFooter, pages: list[tuple[int, int, int]]
) -> None:
    original = their_file()
    end = len(original) - 8 - int.from_bytes(original[-8:-4], "little")
    index = compact_protocol.encode(OffsetIndex([PageLocation(*page) for page in pages]))

    def edit(metadata: FileMetaData) -> None:
        chunk = metadata.row_groups[0].columns[0]
        chunk.offset_index_offset, chunk.offset_index_length = end - len(index), len(index)

    forged = original[: end - len(index)] + index + original[end:]
    async with opened(with_footer(forged, edit, vouch=False)) as file:
        with pytest.raises(rpq.FormatError, match=r"page|rows") as caught:
            await file.offset_index(0, "n")
        assert caught.value.where.column == "n"


async def test_indexes_of_a_data_file_that_a_summary_names(tmp_path: Path) -> None:
    table = pa.table({"n": range(100), "s": [f"{i}" for i in range(100)]})
    options = rpq.WriteOptions(page_rows=30, bloom_filter_options=["n"])
    for name in ("a", "b"):
        async with rpq.create(tmp_path / f"{name}.parquet", options=options) as writer:
            await writer.write(table)
    await rpq.write_metadata(tmp_path)
    async with rpq.open(tmp_path / "_metadata") as summary, rpq.open(tmp_path / "b.parquet") as alone:
        assert summary.num_row_groups == 2
        assert await summary.column_index(1, "n") == await alone.column_index(0, "n")
        assert await summary.offset_index(1, "n") == await alone.offset_index(0, "n")
        found = await summary.bloom_filter(1, "n")
        assert found is not None and found.may_contain(7)
