"""Rows are read by the pages that hold them, as far as the pages bear out what indexes say; else the chunk is read."""

from __future__ import annotations

import asyncio
import io
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes
from hypothesis import given
from hypothesis import strategies as st
from sampled import sampled
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import (
    DataPageHeader,
    Encoding,
    OffsetIndex,
    PageHeader,
    PageLocation,
    PageType,
)
from resilient_pq.format.indexes.row_ranges import rows_of
from resilient_pq.format.pages.page_sums import PageSums
from resilient_pq.format.pages.selected_pages import select_pages
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.reader.decoder import decode_parts
from resilient_pq.reader.read_plan import plan_read

ROWS = 400
TABLE = pa.table(
    {
        "key": range(ROWS),
        "word": [None if i % 9 == 0 else f"word {i % 13}" for i in range(ROWS)],
        "list": [None if i % 7 == 0 else [i] * (i % 4) for i in range(ROWS)],
        "inner": [None if i % 5 == 0 else {"x": i // 10, "y": "z" * (i % 3)} for i in range(ROWS)],
        "wide": [random.Random(i).randbytes(50) for i in range(ROWS)],
    }
)


def ours(**options: Any) -> bytes:
    chosen = rpq.WriteOptions(page_rows=20, bloom_filter_options=["word"], **options)
    return asyncio.run(file_bytes(TABLE, row_group_rows=200, compression="none", options=chosen))


def theirs(**options: Any) -> bytes:
    out = io.BytesIO()
    chosen = {"use_dictionary": ["word"], **options}
    pq.write_table(TABLE, out, row_group_size=200, write_page_index=True, max_rows_per_page=20, **chosen)
    return out.getvalue()


FILES: dict[str, Callable[[], bytes]] = {
    "ours": ours,
    "theirs": lambda: theirs(write_page_checksum=True),
    "theirs, pages of version 2": lambda: theirs(data_page_version="2.0", compression="zstd"),
    "theirs, plain": lambda: theirs(use_dictionary=False, compression="none"),
}


@pytest.fixture(scope="module", params=FILES)
def data(request: pytest.FixtureRequest) -> bytes:
    return FILES[request.param]()


def indexes_at(file: rpq.File) -> int:
    """Where the indexes begin, which lie before the footer."""
    chunks = [chunk for group in file.metadata.row_groups for chunk in group.columns]
    places = [chunk.column_index_offset for chunk in chunks]
    places += [chunk.meta_data.bloom_filter_offset for chunk in chunks if chunk.meta_data is not None]
    return min(place for place in places if place is not None)


async def opened(content: bytes, **options: Any) -> tuple[RecordingStore, Any]:
    store = RecordingStore(MemoryStore())
    await store.put("file", content)
    async with rpq.open((store, "file")) as whole:
        tail = len(content) - indexes_at(whole)  # with the indexes, and without data
    file = await rpq.open((store, "file"), options=rpq.ReadOptions(merge_gap=0, tail_bytes=tail), **options)
    store.calls.clear()
    return store, file


def fetched(store: RecordingStore) -> int:
    return sum((call.end or 0) - (call.start or 0) for call in store.calls)


FILTERS: list[tuple[Any, list[int]]] = [
    ([("key", "=", 17)], [17]),
    ([("key", "in", [0, 399])], [0, 399]),
    ([("key", ">=", 195), ("key", "<", 205)], list(range(195, 205))),
    ([[("key", "=", 3)], [("key", ">", 396), ("word", "is not null")]], [3, 397, 398, 399]),
    ([("inner.x", "=", 12)], [i for i in range(120, 130) if i % 5]),
    ([("inner.x", "<=", 1), ("word", "=", "word 4")], [4, 17]),
]


@pytest.mark.parametrize(("filters", "expected"), FILTERS)
async def test_rows_by_their_pages(data: bytes, filters: Any, expected: list[int]) -> None:
    for options in ({}, {"verify": False}):
        store, file = await opened(data, **options)
        found = pa.table(await file.read(filters=filters))
        assert found.equals(TABLE.take(expected))
        assert 0 < fetched(store) < len(data) / 2
        views = pa.table(await file.read(["word", "wide"], filters=filters, strings="view"))
        assert views["wide"].cast(pa.binary()).equals(TABLE["wide"].take(expected))
        batches = [pa.table(batch) async for batch in file.batches(3, ["list", "key"], filters=filters)]
        assert pa.concat_tables(batches).equals(TABLE.select(["list", "key"]).take(expected))


async def test_the_first_rows(data: bytes) -> None:
    for limit in (1, 20, 21, 150, 201, 399):
        store, file = await opened(data)
        assert pa.table(await file.read(limit=limit)).equals(TABLE.slice(0, limit))
        if limit < 100:
            assert fetched(store) < len(data) / 2


async def test_from_a_disk(data: bytes, tmp_path: Any) -> None:
    """There threads read what they decode."""
    path = tmp_path / "file.parquet"
    path.write_bytes(data)
    async with rpq.open(path) as file:
        before = file.counters.bytes
        for filters, expected in FILTERS:
            assert pa.table(await file.read(filters=filters)).equals(TABLE.take(expected))
        assert file.counters.bytes - before < len(FILTERS) * len(data) / 2
        assert file.counters.useful_bytes <= file.counters.bytes


async def test_no_index_is_fetched_that_costs_more_than_it_saves(data: bytes) -> None:
    """A small file whose indexes did not come with the footer: one wave reads it all, with an index it were two."""
    store = RecordingStore(MemoryStore())
    await store.put("file", data)
    async with rpq.open((store, "file"), options=rpq.ReadOptions(tail_bytes=8)) as file:
        store.calls.clear()
        found = pa.table(await file.read(["key"], filters=[("key", "=", 17)]))
        assert found["key"].to_pylist() == [17]
        assert len(store.calls) == 1


async def test_indexes_of_a_large_file_are_one_wave_of_their_own() -> None:
    """What is large is told by `merge_gap`: the bytes that are moved in a round trip."""
    content = await asyncio.to_thread(ours)
    store = RecordingStore(MemoryStore())
    await store.put("file", content)
    async with rpq.open((store, "file"), options=rpq.ReadOptions(tail_bytes=8, merge_gap=16 * 1024)) as file:
        store.calls.clear()
        found = pa.table(await file.read(["key"], filters=[("wide", "=", TABLE["wide"][17].as_py())]))
        assert found.equals(TABLE.select(["key"]).slice(17, 1))
        # The statistics cannot tell; the indexes of the first row group lie together, and so do its pages.
        assert len(store.calls) == 2


# --- damage -------------------------------------------------------------------------------------------------


def index_places(content: bytes, what: str) -> list[range]:
    async def places() -> list[range]:
        _, file = await opened(content)
        found = []
        for group, column in itertools.product(range(2), range(len(file.schema.leaves))):
            chunk = file.metadata.row_groups[group].columns[column]
            if what == "bloom_filter":
                chunk = chunk.meta_data
            offset, length = getattr(chunk, f"{what}_offset"), getattr(chunk, f"{what}_length")
            if offset is not None:
                found.append(range(offset, offset + length))
        return found

    return asyncio.run(places())


def flips(content: bytes, what: str, count: int) -> list[tuple[int, int]]:
    chosen = random.Random(7)
    every = [(at, chosen.randrange(8)) for place in index_places(content, what) for at in place]
    return chosen.sample(every, min(len(every), count))


def check_flips(content: bytes, what: str, *, believed: bool, count: int) -> None:
    """Whichever byte of an index has a bit flipped, a read ends without an error and, if `believed` is false, is right."""

    async def read(changed: bytes) -> None:
        _, file = await opened(changed)
        for filters, expected in FILTERS[:4]:
            found = await file.read(["key", "list", "word"], filters=filters)
            if not believed:
                assert found["key"].tolist() == expected

    for at, bit in flips(content, what, count):
        changed = bytearray(content)
        changed[at] ^= 1 << bit
        asyncio.run(read(bytes(changed)))


@sampled(40, 600)
@pytest.mark.parametrize("what", ["column_index", "offset_index", "bloom_filter"])
def test_any_flipped_bit_of_our_indexes(what: str, count: int) -> None:
    check_flips(ours(), what, believed=False, count=count)


@sampled(40, 600)
@pytest.mark.parametrize("what", ["column_index", "offset_index"])
def test_any_flipped_bit_of_indexes_of_others(what: str, count: int) -> None:
    """They have no checksums: bounds of pages that are wrong, but possible, have to be believed."""
    check_flips(theirs(), what, believed=what == "column_index", count=count)


def with_offset_index(content: bytes, with_footer: Any, change: Callable[[list[PageLocation]], None]) -> bytes:
    """The file with another OffsetIndex of the column `key` in its first row group."""

    async def index() -> OffsetIndex:
        _, file = await opened(content)
        found: OffsetIndex = await file.offset_index(0, "key")
        return found

    found = asyncio.run(index())
    change(found.page_locations)
    encoded = compact_protocol.encode(found)
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")

    def edit(metadata: Any) -> None:
        chunk = metadata.row_groups[0].columns[0]
        chunk.offset_index_offset, chunk.offset_index_length = end, len(encoded)

    return bytes(with_footer(content[:end] + encoded + content[end:], edit, vouch=False))


CHANGES: dict[str, Callable[[list[PageLocation]], None]] = {
    "a page left out": lambda places: places.pop(3),  # type: ignore[dict-item,return-value]
    "pages exchanged": lambda places: setattr(places[0], "offset", places[1].offset),
    "rows moved": lambda places: [setattr(page, "first_row_index", page.first_row_index + 1) for page in places[1:]],  # type: ignore[dict-item,return-value]
    "two pages as one": lambda places: (  # type: ignore[dict-item,return-value]
        setattr(places[0], "compressed_page_size", places[0].compressed_page_size + places.pop(1).compressed_page_size)
    ),
    "rows moved from the first to the fifth": lambda places: [  # type: ignore[dict-item,return-value]
        setattr(page, "first_row_index", page.first_row_index + 1) for page in places[1:5]
    ],
    "no pages": lambda places: places.clear(),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_indexes_that_the_pages_do_not_bear_out(with_footer: Any, change: str) -> None:
    content = await asyncio.to_thread(with_offset_index, theirs(), with_footer, CHANGES[change])
    _, file = await opened(content)
    for keys in ([0], [19], [20], [21], [79], [199], [0, 85], [3, 25, 85]):
        assert pa.table(await file.read(filters=[("key", "in", keys)])).equals(TABLE.take(keys))
        if "moved" not in change:
            # By the pages of a column whose index is right. Several numbers that agree in being wrong nobody can tell.
            chosen = [("inner.x", "in", [key // 10 for key in keys]), ("key", "in", keys)]
            assert (await file.read(["key"], filters=chosen))["key"].tolist() == [key for key in keys if key % 5]
    assert pa.table(await file.read(limit=25)).equals(TABLE.slice(0, 25))


@pytest.mark.parametrize(
    ("wide", "page", "first_row"),
    [(10, 1, 19), (10, 1, 21), (2000, 1, 19), (2000, 1, 21), (10, 4, 100)],
)
async def test_an_index_of_the_filtered_column_that_is_wrong_about_rows(
    with_footer: Any, wide: int, page: int, first_row: int
) -> None:
    """It was believed when rows were left out; then its pages tell better, few of the column's bytes or most of them."""
    text = [f"{i:05}" + "x" * (wide if i < 20 else 0) for i in range(100)]
    out = io.BytesIO()
    key = pa.field("key", pa.string(), nullable=False)  # so that no histogram tells how many rows pages have
    whole = pa.table([text], schema=pa.schema([key]))
    pq.write_table(whole, out, use_dictionary=False, compression="none", write_page_index=True, max_rows_per_page=20)

    def move(places: list[PageLocation]) -> None:
        places[page].first_row_index = first_row  # 20 * page

    content = await asyncio.to_thread(with_offset_index, out.getvalue(), with_footer, move)
    _, right = await opened(out.getvalue())
    _, file = await opened(content)
    for row in (0, 19, 20, 39, 40, 99):
        filters = [("key", "=", text[row])]
        assert (await right.read(filters=filters))["key"].tolist() == [text[row]]
        assert (await file.read(filters=filters))["key"].tolist() == [text[row]]


@pytest.mark.parametrize("name", ["key", "list.list.element"])
async def test_pages_that_have_other_rows_than_the_index_says(data: bytes, name: str) -> None:
    """Though of both together there are as many."""
    _, file = await opened(data)
    (whole,) = plan_read(file.contents, [name], [0]).row_groups[0].chunks
    right = select_pages(whole.range, 200, await file.offset_index(0, name), (range(45), range(90, 95)))
    assert right is not None and len(right.pages) == 4
    parts = [memoryview(data)[each.start : each.end] for each in right.ranges]
    assert decode_parts(replace(whole, pages=right), parts, verify=True).num_rows == 80
    pages = list(right.pages)
    pages[0] = replace(pages[0], rows=range(21))
    pages[3] = replace(pages[3], rows=range(81, 100))
    wrong = replace(right, pages=tuple(pages))
    with pytest.raises(rpq.FormatError, match="the page has 20 rows, where the index has 21") as caught:
        decode_parts(replace(whole, pages=wrong), parts, verify=True)
    assert caught.value.where.column == name and caught.value.where.offset == pages[0].bytes.start


LISTS = pa.table({"list": [[i] * 7 for i in range(100)]})


def splitting_rows(with_footer: Any) -> bytes:
    """As of writers that split rows of lists between pages, and have an OffsetIndex all the same."""
    out = io.BytesIO()
    pq.write_table(LISTS, out, use_dictionary=False, compression="none", store_schema=False)
    footer = out.getvalue()[-8 - int.from_bytes(out.getvalue()[-8:-4], "little") :]
    content, index = bytearray(b"PAR1"), OffsetIndex([])
    for start in range(0, 700, 10):
        starts_row = [entry % 7 == 0 for entry in range(start, start + 10)]
        repetition = bytes([0b101]) + sum(1 << i for i in range(10) if not starts_row[i]).to_bytes(2, "little")
        definition = bytes([10 << 1, 3])
        body = b"".join(len(levels).to_bytes(4, "little") + levels for levels in (repetition, definition))
        body += b"".join((entry // 7).to_bytes(8, "little") for entry in range(start, start + 10))
        data = DataPageHeader(10, Encoding.PLAIN, Encoding.RLE, Encoding.RLE)
        page = (
            compact_protocol.encode(PageHeader(PageType.DATA_PAGE, len(body), len(body), data_page_header=data)) + body
        )
        index.page_locations.append(PageLocation(len(content), len(page), -(-start // 7)))
        content += page
    encoded = compact_protocol.encode(index)

    def edit(metadata: Any) -> None:
        chunk = metadata.row_groups[0].columns[0]
        chunk.offset_index_offset, chunk.offset_index_length = len(content), len(encoded)
        chunk.meta_data.total_compressed_size = chunk.meta_data.total_uncompressed_size = len(content) - 4

    return bytes(with_footer(bytes(content) + encoded + footer, edit, vouch=False))


async def test_rows_that_go_on_in_the_next_page(with_footer: Any) -> None:
    """Nothing in the pages that have the beginnings of rows tells so, but the page behind them."""
    content = await asyncio.to_thread(splitting_rows, with_footer)
    assert pq.read_table(io.BytesIO(content)).equals(LISTS)
    store = MemoryStore()
    await store.put("file", content)
    file = await rpq.open((store, "file"))
    for limit in range(1, 101):
        assert pa.table(await file.read(limit=limit))["list"].equals(LISTS["list"][:limit])


async def test_a_page_that_is_damaged(data: bytes) -> None:
    """It is an error where it is read, and none where it is not; and rows are left out as if all had been read."""
    _, file = await opened(data)
    place = (await file.offset_index(0, "wide")).page_locations[4]
    changed = bytearray(data)
    changed[place.offset + place.compressed_page_size - 3] ^= 0x40
    _, file = await opened(bytes(changed))
    if not (await has_checksums(file)):
        return
    assert (await file.read(["wide"], filters=[("key", "=", 20)])).num_rows == 1
    with pytest.raises(rpq.ChecksumError) as caught:
        await file.read(["wide"], filters=[("key", "=", 90)])
    assert (caught.value.where.row_group, caught.value.where.column) == (0, "wide")
    lost: list[rpq.LostRegion] = []
    _, file = await opened(bytes(changed), on_damage="drop", on_lost=lost.append)
    kept = await file.read(["key", "wide"], filters=[("key", ">", 70), ("key", "<", 110)])
    assert kept["key"].tolist() == [*range(71, 80), *range(100, 110)]
    assert len(lost) == 1
    _, file = await opened(bytes(changed), on_damage="null")
    kept = await file.read(["key", "wide"], filters=[("key", ">", 78), ("key", "<", 82)], limit=2)
    assert (kept["key"].tolist(), kept["wide"].tolist()[1]) == ([79, 80], None)


async def has_checksums(file: Any) -> bool:
    try:
        await file.read(["wide"])
    except rpq.ChecksumError:
        return True
    except rpq.FormatError:
        return False
    return False


# --- which pages --------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 6)), min_size=1, max_size=20),
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 20)), min_size=1, max_size=5),
)
def test_the_pages_of_rows(pages: list[tuple[int, int]], dictionary: int, wanted: list[tuple[int, int]]) -> None:
    """No page that has a row is missed, none is fetched twice, and none that has no row is fetched."""
    offset, row, places, held = 4 + dictionary, 0, [], []
    for size, num_rows in pages:
        places.append(PageLocation(offset, size, row))
        held.append((ByteRange(offset, offset + size), range(row, row + num_rows)))
        offset, row = offset + size, row + num_rows
    rows = rows_of(range(min(start, row), min(start + size, row)) for start, size in wanted)
    chosen = select_pages(ByteRange(4, offset), row, OffsetIndex(places), rows)
    expected = [place for place, of_page in held if any(each in of_page for some in rows for each in some)]
    if not expected:
        assert chosen is None
        return
    assert chosen is not None
    assert [page.bytes for page in chosen.pages] == expected
    assert chosen.dictionary == (ByteRange(4, 4 + dictionary) if dictionary else None)
    fetched_bytes = [at for each in chosen.ranges for at in range(each.start, each.end)]
    assert len(set(fetched_bytes)) == len(fetched_bytes) == dictionary + sum(place.size for place in expected)
    for count in range(len(places) + 3):
        sums = PageSums(tuple(range(count)), are_hashes=False)
        fitting = select_pages(ByteRange(4, offset), row, OffsetIndex(places), rows, sums=sums)
        assert (fitting is not None) == (count == len(places) + bool(dictionary))
        assert fitting is None or fitting.sums == sums
    assert select_pages(ByteRange(4, offset + 1), row, OffsetIndex(places), rows) is None
