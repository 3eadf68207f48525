"""Whatever is damaged: every page whose bytes are whole is kept, and nothing else is.

Files of every codec, pages of either version, flat and nested columns, dictionaries, several pages in every chunk,
checkpoints. What is left at best is computed by `page_layout`, which shares no code with us.
"""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import hypothesis
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from sampled import sampled, seeded

import resilient_pq as rpq
from resilient_pq.errors import FormatError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import PageHeader
from resilient_pq.io.memory_store import MemoryStore

SHARES = 8
SECTOR = 512
POLICIES = ("drop", "null")


async def test_one_place_or_several(paged_file: Any, held_against_the_best: Any) -> None:
    rng = seeded("places", len(paged_file.data))
    for i in range(4):
        damaged = paged_file.damaged_somewhere(rng)
        await held_against_the_best(paged_file, damaged, POLICIES[i % 2], keep_unplaced=True)


async def test_one_page_costs_its_rows(one_paged_file: Any, held_against_the_best: Any) -> None:
    """And in a nullable column with on_damage="null" no row at all."""
    rng = seeded("pages")
    row_group = one_paged_file.layout.row_groups[1]
    for chunk in row_group.chunks:
        page = rng.choice([page for page in chunk.pages if not page.is_dictionary])
        damaged = one_paged_file.written_over((page.body.start, bytes(len(page.body))))
        rows = {on_damage: one_paged_file.layout.rows(damaged.gone, on_damage) for on_damage in POLICIES}
        assert len(rows["drop"]) == 153 - page.num_rows
        assert len(rows["null"]) == (153 - page.num_rows if chunk.path[0] in ("id", "kind") else 153)
        for on_damage in POLICIES:
            await held_against_the_best(one_paged_file, damaged, on_damage)


@pytest.mark.parametrize("what", ["page headers", "dictionary pages", "records", "indexes", "footers but the anchor"])
async def test_what_has_a_second_copy_costs_nothing(one_paged_file: Any, held_against_the_best: Any, what: str) -> None:
    layout = one_paged_file.layout
    chunks = [chunk for row_group in layout.row_groups for chunk in row_group.chunks]
    places = {
        "page headers": [page.header for chunk in chunks for page in chunk.pages],
        "dictionary pages": [page.body for chunk in chunks for page in chunk.pages if page.is_dictionary],
        "records": [record.place for record in layout.records if record.kind in (2, 5)],
        "indexes": [chunk.offset_index for chunk in chunks],
        "footers but the anchor": [record.place for record in layout.records if record.kind in (3, 4)],
    }[what]
    damaged = one_paged_file.written_over(*((place.start, bytes(len(place))) for place in places))
    assert len(layout.rows(damaged.gone)) == 153
    await held_against_the_best(one_paged_file, damaged)


async def test_a_large_dictionary_has_no_copy(write_paged: Any, nested_rows: Any, held_against_the_best: Any) -> None:
    """It takes the pages with it that need it, and the rows of no other."""
    rows = nested_rows(80, noise=3000)
    file = await write_paged(rows, compression="none", encodings={"note": "RLE_DICTIONARY"})
    (chunk,) = (chunk for chunk in file.layout.row_groups[0].chunks if chunk.path == ("note",))
    dictionary, *others = chunk.pages
    assert dictionary.is_dictionary and len(dictionary.body) > 64 * 1024
    assert all(page.of_dictionary for page in others)
    damaged = file.flipped(dictionary.body[len(dictionary.body) // 2], 3)
    assert [len(file.layout.rows(damaged.gone, on_damage)) for on_damage in POLICIES] == [40, 80]
    for on_damage in POLICIES:
        await held_against_the_best(file, damaged, on_damage)


async def test_zeroed_from_somewhere_to_the_end(one_paged_file: Any, held_against_the_best: Any) -> None:
    """As a file system leaves a file whose length was stored before its bytes."""
    rng, size = seeded("end"), len(one_paged_file.data)
    for start in rng.sample(range(size), 5):
        await held_against_the_best(one_paged_file, one_paged_file.written_over((start, bytes(size - start))))


@hypothesis.given(rng=st.randoms(), on_damage=st.sampled_from(POLICIES))
@hypothesis.settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
def test_any_combination(one_paged_file: Any, held_against_the_best: Any, rng: random.Random, on_damage: str) -> None:
    damaged = one_paged_file.damaged_somewhere(rng)
    asyncio.run(held_against_the_best(one_paged_file, damaged, on_damage))


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("on_damage", POLICIES)
async def test_many_combinations(paged_file: Any, held_against_the_best: Any, on_damage: str) -> None:
    rng = seeded("many", len(paged_file.data), on_damage)
    for _ in range(1500):
        await held_against_the_best(paged_file, paged_file.damaged_somewhere(rng), on_damage, keep_unplaced=True)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("on_damage", POLICIES)
async def test_every_sector(paged_file: Any, held_against_the_best: Any, on_damage: str) -> None:
    for start in range(0, len(paged_file.data), SECTOR):
        for fill in (bytes(SECTOR), b"\xff" * SECTOR, seeded(start).randbytes(SECTOR)):
            damaged = paged_file.written_over((start, fill))
            # Where a sector took a record and a page header before it, nothing proves the place of the chunk's pages.
            await held_against_the_best(paged_file, damaged, on_damage, keep_unplaced=True)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("version", ["1.0", "2.0"])
async def test_every_bit_of_the_metadata(
    narrow_file: Any, held_against_the_best: Any, metadata_bits: Any, version: str, share: int
) -> None:
    file = narrow_file[version]
    for offset, bit in list(metadata_bits(file))[share::SHARES]:
        await held_against_the_best(file, file.flipped(offset, bit), POLICIES[offset % 2])


@pytest.mark.thorough
@pytest.mark.timeout(3600)
async def test_a_sample_of_the_bits_of_the_data(paged_file: Any, held_against_the_best: Any) -> None:
    rng = seeded("data", len(paged_file.data))
    pages = [page for row_group in paged_file.layout.row_groups for chunk in row_group.chunks for page in chunk.pages]
    for page in pages:
        for _ in range(5):
            damaged = paged_file.flipped(rng.choice(page.body), rng.randrange(8))
            await held_against_the_best(paged_file, damaged, rng.choice(POLICIES))


def header_bits_without_a_copy(file: Any, rng: random.Random, count: int) -> Iterator[Any]:
    """Single bits of page headers turned, and with each the record that has copies of those headers destroyed."""
    row_group = file.layout.row_groups[1]
    record = row_group.record.place
    headers = [page.header for chunk in row_group.chunks for page in chunk.pages]
    while count:
        header = rng.choice(headers)
        offset = rng.choice(header)
        turned = bytes([file.data[offset] ^ 1 << rng.randrange(8)])
        if not counts_within_padding(file.data[header.start : header.stop], offset - header.start, turned):
            yield file.written_over((record.start, bytes(len(record))), (offset, turned))
            count -= 1


def counts_within_padding(header: bytes, at: int, turned: bytes) -> bool:
    """Whether a header of version 1 then counts so many more or fewer entries that its last group of eight has them.

    That is the one change that the bytes of a page may not tell (`resilient_pq.damage.exact_page`).
    """
    try:
        whole, changed = (
            compact_protocol.decode(PageHeader, data)[0] for data in (header, header[:at] + turned + header[at + 1 :])
        )
    except FormatError:
        return False
    one, other = whole.data_page_header, changed.data_page_header
    if one is None or other is None or -(-one.num_values // 8) != -(-other.num_values // 8):
        return False
    return replace(changed, data_page_header=replace(other, num_values=one.num_values)) == whole


def has_no_values(header: bytes) -> bool:
    """Whether a page has levels alone: how values that are not there are encoded makes no difference."""
    whole, _ = compact_protocol.decode(PageHeader, header)
    v2 = whole.data_page_header_v2
    return whole.uncompressed_page_size <= 6 if v2 is None else v2.num_nulls == v2.num_values


@sampled(8, 100)
async def test_no_header_is_believed_that_was_changed(paged_file: Any, held_against_the_best: Any, count: int) -> None:
    """Though the CRC32 of its page holds: a count in it may have been changed, or a length."""
    rng = seeded("headers", len(paged_file.data))
    for i, damaged in enumerate(header_bits_without_a_copy(paged_file, rng, count)):
        await held_against_the_best(paged_file, damaged, POLICIES[i % 2], keep_unplaced=True)


@sampled(8, 400)
async def test_no_changed_header_is_believed_before_a_cut(
    paged_file: Any, held_against_the_best: Any, count: int
) -> None:
    """The record that has copies of the headers is cut: the rows that they count are held against their pages."""
    rng = seeded("headers before a cut", len(paged_file.data))
    row_group = paged_file.layout.row_groups[2]
    cut = rng.choice(row_group.record.place)
    headers = [page.header for chunk in row_group.chunks for page in chunk.pages if not page.is_dictionary]
    for i in range(count):
        header = rng.choice(headers)
        offset = rng.choice(header)
        turned = bytes([paged_file.data[offset] ^ 1 << rng.randrange(8)])
        whole = paged_file.data[header.start : header.stop]
        if counts_within_padding(whole, offset - header.start, turned) or has_no_values(whole):
            continue
        changed = paged_file.written_over((offset, turned))
        gone = (*changed.gone, range(cut, len(paged_file.data)))
        damaged = replace(changed, what=f"{changed.what}; cut at {cut}", data=changed.data[:cut], gone=gone)
        await held_against_the_best(paged_file, damaged, POLICIES[i % 2], keep_unplaced=True)


@pytest.fixture
def values_kept() -> Callable[..., Any]:
    """Recovers a damaged file with nulls for what is lost: how many values of each column are left, none of them wrong."""

    async def kept(file: Any, data: bytes, **options: Any) -> dict[str, int]:
        store = MemoryStore()
        await store.put("file", data)
        await rpq.recover((store, "file"), (store, "out"), on_damage="null", **options)
        found = pq.read_table(io.BytesIO(bytes((await store.read_tail("out", 1 << 40)).data))).to_pylist()
        for row in found:
            (written,) = file.table.slice(row["id"], 1).to_pylist()
            assert {name: value for name, value in row.items() if value not in (None, written[name])} == {}
        return {name: sum(row[name] is not None for row in found) for name in file.table.column_names}

    return kept


@pytest.mark.parametrize("what", ["its end", "its length"])
async def test_a_header_that_swallows_the_next_page_moves_no_values(
    snappy_file: Any, values_kept: Any, what: str
) -> None:
    """Its page seems to end where the next one does, and to have the rows of one page."""
    row_group = snappy_file.layout.row_groups[2]
    page, following = row_group.chunks[0].pages[1:3]
    data = bytearray(snappy_file.data[: row_group.record.place.start + 45])
    if what == "its end":
        data[page.header.stop - 2] ^= 8  # the end of a struct becomes a field of bytes: the next header and more
    else:
        header, _ = compact_protocol.decode(PageHeader, snappy_file.data[page.header.start : page.header.stop])
        longer = replace(header, compressed_page_size=following.body.stop - page.body.start)
        data[page.header.start : page.header.stop] = compact_protocol.encode(longer)
    kept = await values_kept(snappy_file, bytes(data), keep_unplaced=True)
    assert kept["id"] == 100  # the twenty rows of both pages are lost, and those behind them are in their places


@pytest.mark.parametrize("cut", [45, 120])
async def test_a_count_that_the_other_chunks_contradict(snappy_file: Any, values_kept: Any, cut: int) -> None:
    """The padding of the levels has room for one row more: without the record only other columns tell."""
    row_group = snappy_file.layout.row_groups[2]
    (chunk,) = (chunk for chunk in row_group.chunks if chunk.path == ("town",))
    page = chunk.pages[1]
    header, _ = compact_protocol.decode(PageHeader, snappy_file.data[page.header.start : page.header.stop])
    assert header.data_page_header.num_values == 10
    changed = replace(header, data_page_header=replace(header.data_page_header, num_values=11))
    data = bytearray(snappy_file.data[: row_group.record.place.start + cut])
    data[page.header.start : page.header.stop] = compact_protocol.encode(changed)
    kept = await values_kept(snappy_file, bytes(data))
    assert kept["id"] == 120


async def test_a_count_that_leaves_out_the_end_of_a_list(snappy_file: Any, values_kept: Any) -> None:
    """No row more or less: what fills the last group of levels, and is not zeros, tells."""
    row_group = snappy_file.layout.row_groups[2]
    (chunk,) = (chunk for chunk in row_group.chunks if chunk.path[0] == "lists")
    page = chunk.pages[-1]
    header, _ = compact_protocol.decode(PageHeader, snappy_file.data[page.header.start : page.header.stop])
    less = replace(header.data_page_header, num_values=header.data_page_header.num_values - 2)
    data = bytearray(snappy_file.data[: row_group.record.place.start + 45])
    data[page.header.start : page.header.stop] = compact_protocol.encode(replace(header, data_page_header=less))
    kept = await values_kept(snappy_file, bytes(data))
    assert kept["id"] == 120
    for row in await read_in_place(bytes(data)):
        assert row["lists"] in (None, snappy_file.table["lists"][row["id"]].as_py())


async def read_in_place(data: bytes) -> list[dict[str, Any]]:
    """The 120 rows of a torn file, with nulls for what is lost."""
    store = MemoryStore()
    await store.put("file", data)
    async with rpq.open((store, "file"), on_damage="null") as file:
        rows = (await file.read()).to_pylist()
    assert len(rows) == 120
    return rows


async def test_an_encoding_that_a_changed_header_names_costs_a_page(snappy_file: Any) -> None:
    """Only page headers tell the encodings of a chunk before a cut: one that nobody knows is damage."""
    row_group = snappy_file.layout.row_groups[2]
    (chunk,) = (chunk for chunk in row_group.chunks if chunk.path == ("town",))
    page = chunk.pages[1]
    header, _ = compact_protocol.decode(PageHeader, snappy_file.data[page.header.start : page.header.stop])
    changed = replace(header, data_page_header=replace(header.data_page_header, encoding=24))
    data = bytearray(snappy_file.data[: row_group.record.place.start + 45])
    data[page.header.start : page.header.stop] = compact_protocol.encode(changed)
    lost = [row["id"] for row in await read_in_place(bytes(data)) if row["town"] is None]
    written = snappy_file.table["town"].to_pylist()
    assert [number for number in lost if written[number] is not None] == [
        number for number in range(80, 90) if written[number] is not None
    ]


async def test_a_damaged_anchor_before_a_cut(one_paged_file: Any) -> None:
    """No record tells the schema; that in the anchor does, which is no footer with nothing of ours behind it."""
    layout = one_paged_file.layout
    anchor, record = layout.records[0].place, layout.row_groups[0].record.place
    data = bytearray(one_paged_file.data[: (record.start + record.stop) // 2])
    data[anchor.start + 16 : anchor.start + 32] = b"\xff" * 16
    store = MemoryStore()
    await store.put("file", data)
    report = await rpq.recover((store, "file"), (store, "out"))
    assert report.num_rows == 40
    output = bytes((await store.read_tail("out", 1 << 40)).data)
    assert pq.read_table(io.BytesIO(output)).equals(one_paged_file.table.slice(0, 40))


async def test_gzip_members_of_one_size_are_not_taken_for_each_other(write_paged: Any, nested_rows: Any) -> None:
    """Those that only store their data all have one CRC32: pages that are alike must not take them along."""
    file = await write_paged(nested_rows(160), compression="gzip")
    chunks = {chunk.path[0]: chunk for chunk in file.layout.row_groups[0].chunks}
    score, town = chunks["score"].pages, chunks["town"].pages
    assert len({file.data[page.header.start : page.header.stop] for page in score[:2]}) == 1
    start, end = town[1].header.start, score[1].body.start + 8
    damaged = file.written_over((start, bytes(end - start)))
    store = MemoryStore()
    cut = file.layout.row_groups[1].record.place.start + 500  # nothing tells whose the pages before it are
    await store.put("file", damaged.data[:cut])
    await rpq.recover((store, "file"), (store, "out"), on_damage="null")
    found = pq.read_table(io.BytesIO(bytes((await store.read_tail("out", 1 << 40)).data)))
    assert found["score"].to_pylist() == [None] * 20 + file.table["score"].to_pylist()[20:80]
