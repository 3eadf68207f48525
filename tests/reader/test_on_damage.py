"""Damaged files read in place: what is lost is left out or null, and told; all the rest is as it was written.

What is left is computed by `page_layout` from the whole file, which shares no code with us.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import page_layout
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_store import Fault, FaultyStore
from sampled import sampled, seeded
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io.memory_store import MemoryStore

POLICIES = ("drop", "null")
#: What is read with it does not come with the tail already, however small the file.
SHORT_TAIL = rpq.ReadOptions(tail_bytes=8)
NULLABLE = ("town", "score", "note", "flag", "lists", "point", "attributes")


async def stored_as(data: bytes) -> MemoryStore:
    store = MemoryStore()
    await store.put("file", data)
    return store


async def read(data: bytes, on_damage: str, **options: Any) -> tuple[pa.Table, list[rpq.LostRegion]]:
    """The table, and what was told to be lost; `File.batches` gives the same and tells the same."""
    lost: list[rpq.LostRegion] = []
    again: list[rpq.LostRegion] = []
    store = await stored_as(data)
    verify = options.pop("verify", True)
    async with rpq.open(
        (store, "file"),
        verify=verify,
        on_damage=on_damage,
        on_lost=lost.append,  # type: ignore[arg-type]
    ) as file:
        table = pa.table(await file.read(**options))
    async with rpq.open(
        (store, "file"),
        verify=verify,
        on_damage=on_damage,
        on_lost=again.append,  # type: ignore[arg-type]
    ) as file:
        batches = [pa.table(batch) async for batch in file.batches(33, **options)]
    assert sum(batch.num_rows for batch in batches) == table.num_rows
    if batches:
        assert pa.concat_tables(batches).cast(table.schema).equals(table)
    assert again == lost
    return table, lost


def best_of(file: Any, damaged: Any, on_damage: str) -> pa.Table:
    """The table that is left at best."""
    best, _ = file.expected(damaged.missing, on_damage)
    return file.values(list(best), best)


def data_pages(layout: page_layout.Layout, row_group: int, column: str) -> list[tuple[int, page_layout.Page]]:
    """The data pages of the first leaf of a column, each with its number in the chunk."""
    chunk = next(chunk for chunk in layout.row_groups[row_group].chunks if chunk.path[0] == column)
    return [(number, page) for number, page in enumerate(chunk.pages) if not page.is_dictionary]


def damaged_in_the_data(file: Any, rng: random.Random) -> Any:
    """A few places damaged, none of them in the footer.

    No record of a row group beside others: without it a damaged page header leaves the place of its chunk's pages
    unproven, which tests/damage/test_page_places.py looks at.
    """
    end = page_layout.records_of(file.data)
    last = max((record.place.start for record in end), default=file.layout.footer.start)
    places = [place for place in file.places if place.start >= 4 and place.stop <= last]
    pieces = []
    records = [record.place for record in file.layout.records if record.kind == 2]
    count = rng.choice([1, 1, 2, 3])
    if count > 1:
        places = [
            place for place in places if not any(place.start < it.stop and it.start < place.stop for it in records)
        ]
    for place in rng.sample(places, count):
        offset = rng.choice(place)
        match rng.randrange(3):
            case 0:
                pieces.append((offset, bytes([file.data[offset] ^ (1 << rng.randrange(8))])))
            case 1:
                pieces.append((place.start, bytes(len(place))))
            case 2:
                pieces.append((place.start, rng.randbytes(len(place))))
    return file.written_over(*pieces)


# --- rows and values ----------------------------------------------------------------------------------------


async def test_the_rows_of_one_page(one_paged_file: Any) -> None:
    """In every column; the callback names the page."""
    file = one_paged_file
    for column in ("id", "town", "lists", "attributes"):
        number, page = seeded(column).choice(data_pages(file.layout, 1, column))
        damaged = file.written_over((page.body.start, bytes(len(page.body))))
        for on_damage in POLICIES:
            expected = best_of(file, damaged, on_damage)
            table, lost = await read(damaged.data, on_damage)
            assert table.equals(expected)
            (region,) = lost
            nulled = on_damage == "null" and column in NULLABLE
            assert (region.start, region.end) == (page.header.start, page.body.stop)
            assert (region.num_rows, region.num_nulled) == ((0, page.num_rows) if nulled else (page.num_rows, 0))
            assert (region.where.key, region.where.row_group, region.where.page) == ("memory:file", 1, number)
            assert region.where.column is not None and region.where.column.split(".")[0] == column
            assert region.damage is rpq.Damage.CORRUPT and "CRC32" in region.reason


@pytest.mark.parametrize("on_damage", POLICIES)
async def test_views_of_strings_that_are_left(one_paged_file: Any, on_damage: str) -> None:
    """Columns that lost rows, and those whose rows went with them."""
    file = one_paged_file
    for column in ("town", "attributes", "id"):
        _, page = seeded("views", column).choice(data_pages(file.layout, 1, column))
        damaged = file.written_over((page.body.start, bytes(len(page.body))))
        table, lost = await read(damaged.data, on_damage, strings="view")
        table.validate(full=True)
        expected = best_of(file, damaged, on_damage)
        assert table.schema.field("town").type == pa.string_view()
        assert table.cast(expected.schema).equals(expected)
        assert len(lost) == 1


async def test_any_damage_of_our_files(paged_file: Any) -> None:
    """Of every codec, with pages of either version: exactly the rows that are left at best."""
    rng = seeded("ours", len(paged_file.data))
    await hold(paged_file, damaged_in_the_data(paged_file, rng), rng.choice(POLICIES))


async def hold(file: Any, damaged: Any, on_damage: str) -> None:
    try:
        best, lucky = file.expected(damaged.missing, on_damage)
        table, lost = await read(damaged.data, on_damage)
        numbers = table.column("id").to_pylist()
        assert numbers == sorted(numbers) and set(best) <= set(numbers) <= set(lucky)
        assert table.equals(file.values(numbers, best)) or table.equals(file.values(numbers, lucky))
        assert sum(region.num_rows or 0 for region in lost) == file.table.num_rows - len(numbers)
        assert [region.where.row_group for region in lost] == sorted(region.where.row_group for region in lost)
    except BaseException as error:
        error.add_note(f"{damaged.what}; on_damage={on_damage!r}")
        raise


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("on_damage", POLICIES)
async def test_many_damages_of_our_files(paged_file: Any, on_damage: str) -> None:
    rng = seeded("many", len(paged_file.data), on_damage)
    for _ in range(300):
        await hold(paged_file, damaged_in_the_data(paged_file, rng), on_damage)


async def recovered(data: bytes, on_damage: str) -> pa.Table:
    store = await stored_as(data)
    await rpq.recover((store, "file"), (store, "out"), on_damage=on_damage)  # type: ignore[arg-type]
    return pq.read_table(io.BytesIO((await store.read_tail("out", 1 << 40)).data))


def theirs(rows: pa.Table, version: str, *, checksums: bool, index: bool) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        rows, sink, row_group_size=60, data_page_size=64, write_batch_size=10, compression="zstd",
        data_page_version=version, write_page_checksum=checksums, write_page_index=index,
    )  # fmt: skip
    return sink.getvalue()


@sampled(1, 100)
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
async def test_pages_of_others(
    version: str, checksums: bool, index: bool, nested_rows: Callable[..., pa.Table], count: int
) -> None:
    """Bodies that are gone, and headers: what `recover` keeps is what is read, and no value is another."""
    rows = nested_rows(120)
    data = theirs(rows, version, checksums=checksums, index=index)
    layout = page_layout.Layout(data)
    rng = seeded(version, checksums, index)
    for column in rng.sample(rows.column_names, min(count, rows.num_columns)):
        _, page = rng.choice(data_pages(layout, 1, column))
        others = [name for name in rows.column_names if name != column]
        for place in (page.body, page.header):
            changed = bytearray(data)
            changed[place.start : place.stop] = b"\xff" * len(place)
            table, lost = await read(bytes(changed), "drop")
            assert lost and all(region.where.row_group == 1 for region in lost)
            kept = table.column("id").to_pylist()
            assert kept[:60] == list(range(60))
            assert table.equals(rows.take(kept).cast(table.schema))
            assert sum(region.num_rows or 0 for region in lost) == 120 - len(kept)
            if place is page.body and (index or version == "2.0"):  # else nothing tells the rows of nested pages
                assert kept == [row.number for row in layout.rows([place])]
            if column in NULLABLE:
                nulled, _ = await read(bytes(changed), "null")
                assert nulled.select(others).equals(rows.select(others).cast(nulled.select(others).schema))
                gone = set(range(120)) - set(kept)
                expected = [None if i in gone else value for i, value in enumerate(rows.column(column).to_pylist())]
                assert nulled.column(column).to_pylist() == expected
            again = await recovered(bytes(changed), "drop")
            assert again.equals(table.cast(again.schema))


async def test_a_large_dictionary_has_no_copy(
    write_paged: Callable[..., Any], nested_rows: Callable[..., pa.Table]
) -> None:
    """It takes the pages with it that need it; a small one has a copy and takes none."""
    rows = nested_rows(80, noise=3000)
    file = await write_paged(rows, compression="none", encodings={"note": "RLE_DICTIONARY"})
    for column, left in (("note", 40), ("kind", 80)):
        chunk = next(chunk for chunk in file.layout.row_groups[0].chunks if chunk.path == (column,))
        assert chunk.pages[0].is_dictionary
        damaged = file.flipped(chunk.pages[0].body[5], 3)
        for on_damage, num_rows in (("drop", left), ("null", 80)):
            expected = best_of(file, damaged, on_damage)
            table, lost = await read(damaged.data, on_damage)
            assert table.equals(expected) and table.num_rows == num_rows
            assert bool(lost) == (left < 80)
            assert (sum(region.num_rows or 0 for region in lost), sum(region.num_nulled for region in lost)) == (
                80 - num_rows,
                0 if on_damage == "drop" else num_rows - left,
            )


async def test_what_has_a_copy_costs_nothing(one_paged_file: Any) -> None:
    """Page headers, by the record of the row group; without that, as far as the OffsetIndex tells where pages are."""
    layout = one_paged_file.layout
    pages = [page for chunk in layout.row_groups[0].chunks for page in chunk.pages]
    headers = [(page.header.start, bytes(len(page.header))) for page in pages]
    table, lost = await read(one_paged_file.written_over(*headers).data, "drop")
    assert table.equals(one_paged_file.table) and not lost
    record = layout.row_groups[0].record.place
    number, page = data_pages(layout, 0, "score")[2]
    damaged = one_paged_file.written_over(
        (record.start, bytes(len(record))), (page.header.start, bytes(len(page.header)))
    )
    table, (region,) = await read(damaged.data, "drop")
    assert table.equals(best_of(one_paged_file, damaged, "drop"))
    assert (region.where.page, region.num_rows, region.reason) == (number, 10, "its header is damaged")


# --- what is asked for --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def damaged(one_paged_file: Any) -> Any:
    """A page of `id` and of each leaf of `point` lost in the second row group, all of `town` in the third."""
    layout = one_paged_file.layout
    pages = [data_pages(layout, 1, "id")[0][1], data_pages(layout, 1, "point")[2][1]]
    (leaf,) = (chunk for chunk in layout.row_groups[1].chunks if chunk.path == ("point", "y"))
    assert (leaf.pages[-1].first_row, leaf.pages[-1].num_rows) == (30, 10)
    pages.append(leaf.pages[-1])
    pages += [page for _, page in data_pages(layout, 2, "town")]
    return one_paged_file.written_over(*((page.body.start, bytes(len(page.body))) for page in pages))


def left_of(table: pa.Table, *gone: range) -> pa.Table:
    return table.take([i for i in range(table.num_rows) if not any(i in rows for rows in gone)])


async def test_other_columns_have_other_rows(one_paged_file: Any, damaged: Any) -> None:
    table = one_paged_file.table
    ids, x, y, towns = range(40, 50), range(60, 70), range(70, 80), range(80, 120)
    for columns, gone in (
        (["score"], ()),
        (["id"], (ids,)),
        (["town", "score"], (towns,)),
        (["point"], (x, y)),
        (["score", "id", "point"], (ids, x, y)),
    ):
        found, lost = await read(damaged.data, "drop", columns=columns)
        assert found.equals(left_of(table.select(columns), *gone))
        assert sum(region.num_rows or 0 for region in lost) == sum(map(len, gone))
    for leaf, gone in (("x", x), ("y", y)):
        found, lost = await read(damaged.data, "drop", columns=[f"point.{leaf}", "flag"])
        assert [region.where.column for region in lost] == [f"point.{leaf}"]
        left = left_of(table, gone)
        assert found.column("flag").equals(left.column("flag"))
        values = [None if point is None else {leaf: point[leaf]} for point in left.column("point").to_pylist()]
        assert found.column("point").to_pylist() == values


async def test_nulls_keep_the_columns_aligned(one_paged_file: Any, damaged: Any) -> None:
    """Whatever columns are read together; also where a column has lost all of a row group."""
    table = one_paged_file.table
    for columns in (["town"], ["town", "score"], ["point"], ["point.x"]):
        found, lost = await read(damaged.data, "null", columns=columns)
        assert found.num_rows == 153
        assert sum(region.num_nulled for region in lost) and not any(region.num_rows for region in lost)
    found, _ = await read(damaged.data, "null", columns=["town"])
    towns = table.column("town").to_pylist()
    assert found.column("town").to_pylist() == [None if 80 <= i < 120 else towns[i] for i in range(153)]
    found, _ = await read(damaged.data, "null", columns=["point"])
    points = table.column("point").to_pylist()
    assert found.column("point").to_pylist() == [
        None if 60 <= i < 70 or 70 <= i < 80 else points[i] for i in range(153)
    ]
    found, lost = await read(damaged.data, "null", columns=["town", "id"])
    assert found.column("id").to_pylist() == [i for i in range(153) if not 40 <= i < 50]
    assert [(region.num_rows, region.num_nulled) for region in lost] == [(10, 0)] + [(0, 10)] * 4


async def test_row_groups_in_any_order(one_paged_file: Any, damaged: Any) -> None:
    table = one_paged_file.table
    found, lost = await read(damaged.data, "drop", columns=["id", "town"], row_groups=[3, 2, 1, 1])
    second = left_of(table.slice(40, 40), range(10))
    assert found.equals(pa.concat_tables([table.slice(120), second, second]).select(["id", "town"]))
    assert [region.where.row_group for region in lost] == [2, 2, 2, 2, 1, 1]
    found, lost = await read(damaged.data, "drop", row_groups=[0])
    assert found.equals(table.slice(0, 40)) and not lost
    found, lost = await read(damaged.data, "drop", columns=["town"], row_groups=[2])
    assert found.num_rows == 0 and found.schema.equals(table.select(["town"]).schema) and len(lost) == 4


async def test_the_footer_still_says_what_was_written(damaged: Any) -> None:
    async with rpq.open((await stored_as(damaged.data), "file"), on_damage="drop") as file:
        assert (await file.read()).num_rows == 83
        assert file.num_rows == 153


# --- who is told, and when ----------------------------------------------------------------------------------


async def test_batches_tell_before_the_rows_come(damaged: Any) -> None:
    told: list[rpq.LostRegion] = []
    async with (
        rpq.open((await stored_as(damaged.data), "file"), on_damage="drop", on_lost=told.append) as file,
        aclosing(file.batches(40, columns=["id", "town"])) as batches,
    ):
        assert [(await anext(batches)).num_rows, len(told)] == [40, 0]
        assert [(await anext(batches)).num_rows, len(told)] == [30, 1]
        assert [(await anext(batches)).num_rows, len(told)] == [33, 5]
        assert [region.where.row_group for region in told] == [1, 2, 2, 2, 2]


async def test_what_the_callback_raises_ends_the_reading(damaged: Any) -> None:
    class EnoughError(Exception):
        pass

    def refuse(region: rpq.LostRegion) -> None:
        raise EnoughError

    async with rpq.open((await stored_as(damaged.data), "file"), on_damage="null", on_lost=refuse) as file:
        with pytest.raises(EnoughError):
            await file.read()
        with pytest.raises(EnoughError):
            async for batch in file.batches():
                assert batch.num_rows == 40
        assert (await file.read(["score"])).num_rows == 153


def test_the_same_without_a_loop(damaged: Any, one_paged_file: Any, tmp_path: Any) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(damaged.data)
    lost: list[rpq.LostRegion] = []
    with sync.open(path, on_damage="drop", on_lost=lost.append) as file:
        table = pa.table(file.read(["id"]))
        assert sum(batch.num_rows for batch in file.batches(columns=["id"])) == table.num_rows == 143
    assert [(region.start, region.where.key) for region in lost] == [(lost[0].start, str(path))] * 2


async def test_without_a_callback(damaged: Any) -> None:
    async with rpq.open((await stored_as(damaged.data), "file"), on_damage="drop") as file:
        assert (await file.read()).num_rows == 83


async def test_raising_is_what_happens_unasked(damaged: Any) -> None:
    lost: list[rpq.LostRegion] = []
    async with rpq.open((await stored_as(damaged.data), "file"), on_lost=lost.append) as file:
        with pytest.raises(rpq.ChecksumError, match="row group 1"):
            await file.read(["id"])
    assert not lost


# --- requests -----------------------------------------------------------------------------------------------


async def test_a_sound_file_costs_no_more(our_bytes: bytes, their_bytes: bytes, rows: pa.Table) -> None:
    for data in (our_bytes, their_bytes):
        asked = []
        for on_damage in ("raise", *POLICIES):
            store = RecordingStore(await stored_as(data))
            async with rpq.open((store, "file"), on_damage=on_damage, on_lost=pytest.fail) as file:  # type: ignore[arg-type]
                assert pa.table(await file.read()).equals(rows)
                assert sum([batch.num_rows async for batch in file.batches()]) == 90
            asked.append(sorted((call.verb, call.start, call.end) for call in store.calls))
        assert asked[0] == asked[1] == asked[2]


#: What is asked for besides: the chunk once more, two names that a sidecar may have, and the record.
DAMAGED = ["chunk", "sidecar", "sidecar", "record"]


async def test_damage_costs_the_chunk_once_more_and_the_record(one_paged_file: Any, damaged: Any) -> None:
    for columns, more in ((["score"], []), (["id"], DAMAGED), (["town", "score"], DAMAGED)):
        counts = []
        for data in (one_paged_file.data, damaged.data):
            store = RecordingStore(await stored_as(data))
            async with rpq.open((store, "file"), options=SHORT_TAIL, on_damage="drop") as file:
                await file.read(columns)
            counts.append(len(store.calls))
        assert counts[1] - counts[0] == len(more)


async def test_a_bit_that_flipped_on_the_way_is_no_loss(their_bytes: bytes, rows: pa.Table) -> None:
    """Of a page, and of a page's header, which no checksum covers."""
    for flip_bit in (3, 400):
        store = FaultyStore(await stored_as(their_bytes), [Fault("read_range", flip_bit=flip_bit)])
        async with rpq.open((store, "file"), options=SHORT_TAIL, on_damage="drop", on_lost=pytest.fail) as file:  # type: ignore[arg-type]
            assert pa.table(await file.read(["n"])).equals(rows.select(["n"]))
        assert not store.faults[0].times


# --- what is no damage, and what is too much ----------------------------------------------------------------


@pytest.mark.parametrize("on_damage", POLICIES)
async def test_what_cannot_be_read_is_not_lost(
    on_damage: str, their_bytes: bytes, with_footer: Callable[..., bytes]
) -> None:
    """A codec, or an encoding, that this version does not know; also where a page is damaged besides."""

    def codec(metadata: Any) -> None:
        metadata.row_groups[1].columns[0].meta_data.codec = 77

    def encoding(metadata: Any) -> None:
        metadata.row_groups[1].columns[0].meta_data.encodings = [0, 99]

    page = data_pages(page_layout.Layout(their_bytes), 1, "n")[0][1]
    flipped = bytearray(their_bytes)
    flipped[page.body.start] ^= 1
    for edit, data in ((codec, their_bytes), (codec, bytes(flipped)), (encoding, bytes(flipped))):
        store = await stored_as(with_footer(data, edit, vouch=False))
        async with rpq.open((store, "file"), on_damage=on_damage, on_lost=pytest.fail) as file:  # type: ignore[arg-type]
            with pytest.raises(rpq.UnsupportedError, match="row group 1, column n"):
                await file.read()
            assert (await file.read(["s", "f"])).num_rows == 90


@pytest.mark.parametrize("on_damage", POLICIES)
async def test_a_footer_that_promises_too_many_rows(
    on_damage: str, their_bytes: bytes, with_footer: Callable[..., bytes]
) -> None:
    def promise(metadata: Any) -> None:
        metadata.row_groups[1].num_rows = 1 << 50

    store = await stored_as(with_footer(their_bytes, promise, vouch=False))
    async with rpq.open((store, "file"), on_damage=on_damage) as file:  # type: ignore[arg-type]
        with pytest.raises(rpq.FormatError, match="the pages hold 20 rows instead of 1,125,899,906,842,624"):
            await file.read()


@pytest.mark.parametrize("on_damage", POLICIES)
async def test_a_damaged_footer(on_damage: str, our_bytes: bytes, their_bytes: bytes) -> None:
    """The records of our files name the row groups, too; what names no columns is an error."""

    def without_footer(data: bytes) -> bytes:
        size = int.from_bytes(data[-8:-4], "little")
        return data[: -8 - size] + b"\xff" * size + data[-8:]

    async with rpq.open((await stored_as(our_bytes), "file")) as file:
        whole = pa.table(await file.read())
    store = await stored_as(without_footer(our_bytes))
    with pytest.warns(rpq.IncompleteFileWarning):
        async with rpq.open((store, "file"), on_damage=on_damage) as file:  # type: ignore[arg-type]
            assert pa.table(await file.read()).equals(whole)
    for data, policy in ((our_bytes, "raise"), (their_bytes, on_damage)):
        with pytest.raises(rpq.FormatError) as caught:
            await rpq.open((await stored_as(without_footer(data)), "file"), on_damage=policy)  # type: ignore[arg-type]
        assert caught.value.hint is not None and "rpq recover" in caught.value.hint


@pytest.mark.parametrize("on_damage", POLICIES)
async def test_nothing_is_compared_unasked(on_damage: str, one_paged_file: Any) -> None:
    """With verify=False a page is lost where it does not decode."""
    pages = [page for _, page in data_pages(one_paged_file.layout, 1, "score")]
    gone = one_paged_file.written_over((pages[1].body.start, b"\xff" * len(pages[1].body)))
    table, (region,) = await read(gone.data, on_damage, verify=False)
    assert table.equals(best_of(one_paged_file, gone, on_damage))
    assert (region.where.page, region.num_rows or region.num_nulled) == (1, 10)
    assert "ZSTD" in region.reason


async def test_a_summary(one_paged_file: Any) -> None:
    """The regions name the file that they lie in; each row group's record is in its own file."""
    store = MemoryStore()
    page = data_pages(one_paged_file.layout, 1, "town")[1][1]
    other = data_pages(one_paged_file.layout, 1, "town")[2][1]
    damaged = one_paged_file.written_over(
        (page.body.start, bytes(len(page.body))), (other.header.start, bytes(len(other.header)))
    )
    await store.put("folder/a.parquet", one_paged_file.data)
    await store.put("folder/b.parquet", one_paged_file.data)
    await rpq.write_metadata((store, "folder"))
    await store.put("folder/b.parquet", damaged.data)
    lost: list[rpq.LostRegion] = []
    async with rpq.open((store, "folder/_metadata"), on_damage="drop", on_lost=lost.append) as file:
        table = pa.table(await file.read())
    whole = one_paged_file.table
    assert table.equals(pa.concat_tables([whole, left_of(whole, range(50, 60))]))
    (region,) = lost
    assert (region.where.key, region.where.row_group) == (store.url_of("folder/b.parquet"), 5)
    assert (region.start, region.end, region.num_rows) == (page.header.start, page.body.stop, 10)
