"""Damaged files read in place: what is lost is left out or null, and told; all the rest is as it was written.

What is left is computed by `page_layout` from the whole file, which shares no code with us.
"""

from __future__ import annotations

import io
import random
import zlib
from collections.abc import Callable
from typing import Any

import page_layout
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.io.memory import MemoryStore

POLICIES = ("drop", "null")
NULLABLE = ("town", "score", "note", "flag", "lists", "point", "attributes")


def seeded(*parts: object) -> random.Random:
    return random.Random(zlib.crc32(repr(parts).encode()))


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
        (store, "file"), verify=verify, on_damage=on_damage, on_lost=lost.append  # type: ignore[arg-type]
    ) as file:
        table = pa.table(await file.read(**options))
    async with rpq.open(
        (store, "file"), verify=verify, on_damage=on_damage, on_lost=again.append  # type: ignore[arg-type]
    ) as file:
        batches = [pa.table(batch) async for batch in file.batches(33, **options)]
    assert sum(batch.num_rows for batch in batches) == table.num_rows
    if batches:
        assert pa.concat_tables(batches).cast(table.schema).equals(table)
    assert again == lost
    return table, lost


def data_pages(layout: page_layout.Layout, row_group: int, column: str) -> list[tuple[int, page_layout.Page]]:
    """The data pages of the first leaf of a column, each with its number in the chunk."""
    chunk = next(chunk for chunk in layout.row_groups[row_group].chunks if chunk.path[0] == column)
    return [(number, page) for number, page in enumerate(chunk.pages) if not page.is_dictionary]


def damaged_in_the_data(file: Any, rng: random.Random) -> Any:
    """A few places damaged, none of them in the footer."""
    end = page_layout.records_of(file.data)
    last = max((record.place.start for record in end), default=file.layout.footer.start)
    places = [place for place in file.places if place.start >= 4 and place.stop <= last]
    pieces = []
    for place in rng.sample(places, rng.choice([1, 1, 2, 3])):
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
            expected, _ = file.expected(damaged, on_damage)
            table, lost = await read(damaged.data, on_damage)
            assert table.equals(expected)
            (region,) = lost
            nulled = on_damage == "null" and column in NULLABLE
            assert (region.start, region.end) == (page.header.start, page.body.stop)
            assert (region.num_rows, region.num_nulled) == ((0, page.num_rows) if nulled else (page.num_rows, 0))
            assert (region.where.key, region.where.row_group, region.where.page) == ("memory:file", 1, number)
            assert region.where.column is not None and region.where.column.split(".")[0] == column
            assert region.damage is rpq.Damage.CORRUPT and "CRC32" in region.reason


async def test_any_damage_of_our_files(paged_file: Any) -> None:
    """Of every codec, with pages of either version: exactly the rows that are left at best."""
    rng = seeded("ours", len(paged_file.data))
    for i in range(2):
        damaged, on_damage = damaged_in_the_data(paged_file, rng), POLICIES[i % 2]
        await hold(paged_file, damaged, on_damage)


async def hold(file: Any, damaged: Any, on_damage: str) -> None:
    try:
        expected, numbers = file.expected(damaged, on_damage)
        table, lost = await read(damaged.data, on_damage)
        assert table.column("id").to_pylist() == numbers
        assert table.equals(expected)
        assert sum(region.num_rows or 0 for region in lost) == file.table.num_rows - len(numbers)
        assert [region.where.row_group for region in lost] == sorted(region.where.row_group for region in lost)
    except BaseException as error:
        error.add_note(f"{damaged.what}; on_damage={on_damage!r}")
        raise


@pytest.mark.thorough
@pytest.mark.timeout(1800)
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


THEIRS = [
    (version, checksums, index) for version in ("1.0", "2.0") for checksums in (True, False) for index in (True, False)
]


@pytest.mark.parametrize(("version", "checksums", "index"), THEIRS)
async def test_pages_of_others(
    version: str, checksums: bool, index: bool, nested_rows: Callable[..., pa.Table]
) -> None:
    """Bodies that are gone, and headers: what `recover` keeps is what is read, and no value is another."""
    rows = nested_rows(120)
    data = theirs(rows, version, checksums=checksums, index=index)
    layout = page_layout.Layout(data)
    rng = seeded(version, checksums, index)
    for column in rng.sample(rows.column_names, 2):
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
