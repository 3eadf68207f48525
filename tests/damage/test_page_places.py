"""Pages that are whole and lie in a place that is not theirs: of an older version, another column or another row group.

Their own CRC32 holds. The record of the row group, which has copies of the headers, is destroyed, and so are the page
indexes, in one half of the cases.
"""

from __future__ import annotations

import io
import random
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes, recovered
from page_layout import Layout
from sampled import sampled

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore

ROWS, GROUP_ROWS, PAGE_ROWS = 160, 80, 10


def table(version: int) -> pa.Table:
    rng = random.Random(version)
    return pa.table(
        {
            "id": range(ROWS),
            "a": [rng.randrange(10**6) for _ in range(ROWS)],
            "b": [rng.randrange(10**6) for _ in range(ROWS)],
            "flag": [rng.random() < 0.5 for _ in range(ROWS)],
        }
    )


async def written(version: int, codec: str) -> bytes:
    rows, options = table(version), rpq.WriteOptions(page_rows=PAGE_ROWS, dictionary_bytes=0)
    with mock.patch("os.urandom", lambda size: bytes(range(size))):  # the same file id
        return await file_bytes(rows, rows.schema, row_group_rows=GROUP_ROWS, compression=codec, options=options)


def exchanged(data: bytes, other: bytes, rng: random.Random, *, indexes: bool) -> bytes | None:
    """A page of `other` in the place of one of the same size, and the record of its row group destroyed."""
    layout, theirs = Layout(data), Layout(other)
    group = rng.choice(layout.row_groups)
    column = rng.choice([1, 2, 3])
    page = rng.choice(group.chunks[column].pages)
    place = range(page.header.start, page.body.stop)
    fitting = [
        bytes(other[one.header.start : one.body.stop])
        for row_group in theirs.row_groups
        for chunk in row_group.chunks[1:]
        for one in chunk.pages
        if one.body.stop - one.header.start == len(place)
    ]
    fitting = [one for one in fitting if one != data[place.start : place.stop]]
    if not fitting:
        return None
    damaged = bytearray(data)
    damaged[place.start : place.stop] = rng.choice(fitting)
    damaged[group.record.place.start + 100 : group.record.place.stop] = bytes(len(group.record.place) - 100)
    if not indexes:
        final = layout.records[-1].place.start
        behind = max(record.place.stop for record in layout.records if record.place.stop <= final)
        damaged[behind:final] = bytes(final - behind)
    return bytes(damaged)


@sampled(6, 60)
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("indexes", [True, False], ids=["indexes whole", "indexes zeroed"])
async def test_a_page_in_another_place_is_lost(codec: str, indexes: bool, count: int) -> None:
    rng = random.Random(f"{codec} {indexes}")
    whole, older = await written(1, codec), await written(2, codec)
    tried = kept = 0
    for _ in range(count):
        damaged = exchanged(whole, rng.choice([whole, older]), rng, indexes=indexes)
        if damaged is None:
            continue
        tried += 1
        expected = table(1)
        report, found = await recovered(damaged)
        assert found.equals(expected.take(found["id"]))
        assert report.kept is not None and report.kept.rows_lost == ROWS - found.num_rows > 0
        # With the indexes only the page is lost; without them nothing proves the others of its chunk.
        assert found.num_rows == ROWS - (PAGE_ROWS if indexes else GROUP_ROWS)
        store = MemoryStore()
        await store.put("in", damaged)
        async with rpq.open((store, "in"), on_damage="drop") as file:
            assert pa.table(await file.read()).equals(found)
        report, found = await recovered(damaged, keep_unplaced=True)
        if not indexes:
            assert found.num_rows == ROWS and not found.equals(expected)
            assert report.kept is not None and report.kept.ledger is not None
            believed = {region.confidence for region in report.kept.ledger.regions if region.what == "page"}
            assert "unplaced" in believed
            kept += 1
    assert tried >= count // 2 and (indexes or kept)


@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_a_damaged_footer_tells_pages_of_another_place(codec: str) -> None:
    """The records of all row groups are gone, and a bit of the footer is wrong: what it says of a chunk is believed."""
    rng = random.Random(codec)
    whole, older = await written(1, codec), await written(2, codec)
    for data in (whole, next(filter(None, (exchanged(whole, older, rng, indexes=False) for _ in range(9))))):
        damaged = bytearray(data)
        for row_group in Layout(whole).row_groups:
            damaged[row_group.record.place.start : row_group.record.place.stop] = bytes(len(row_group.record.place))
        damaged[damaged.rindex(b"resilient_pq")] ^= 1
        report, found = await recovered(bytes(damaged))
        assert found.equals(table(1).take(found["id"]))
        assert found.num_rows == (ROWS if data is whole else ROWS - GROUP_ROWS)
        assert report.kept is not None and report.kept.rows_lost == ROWS - found.num_rows
        store = MemoryStore()
        await store.put("in", bytes(damaged))
        async with rpq.open((store, "in"), on_damage="drop") as file:
            assert pa.table(await file.read()).equals(found)


@pytest.mark.parametrize("first_bit", [8 * 32, 8 * 60], ids=["of its offset", "elsewhere"])
async def test_a_chunk_before_what_is_left_of_a_record_of_another_place(first_bit: int) -> None:
    """The end of another version of the file, from within the last chunk record on; a bit of each record is wrong.

    The chunk fits its record to the byte. The record behind it, damaged as it is, was written at another offset.
    """

    async def written_with(name: str, numbers: list[int]) -> tuple[bytes, Layout]:
        store = MemoryStore()
        rows = pa.table({"name": [name] * GROUP_ROWS + ["same"] * GROUP_ROWS, "number": numbers})
        with mock.patch("os.urandom", lambda size: bytes(range(size))):  # the same file id
            options = rpq.WriteOptions(dictionary_bytes=0)
            async with rpq.create(
                (store, "f"), rows.schema, row_group_rows=GROUP_ROWS, compression="none", options=options
            ) as writer:
                await writer.write(rows)
        data = bytes((await store.read_tail("f", 1 << 30)).data)
        return data, Layout(data)

    numbers = list(range(ROWS))
    (own, mine), (other, theirs) = await written_with("short", numbers), await written_with("longer", numbers[::-1])
    cut, start = (layout.row_groups[1].chunks[1].place.start - 20 for layout in (mine, theirs))
    assert cut < start
    damaged = bytearray(own[:cut] + other[start:])
    for record in theirs.records:
        if record.place.start > start:
            damaged[record.place.start - start + cut + first_bit // 8] ^= 1
    store = MemoryStore()
    await store.put("in", bytes(damaged))
    report, found = await recovered(bytes(damaged))
    assert found["number"].to_pylist() == numbers[:GROUP_ROWS]
    assert report.outcome == "partial"
    lost: list[rpq.LostRegion] = []
    async with rpq.open((store, "in"), on_damage="drop", on_lost=lost.append) as file:
        assert pa.table(await file.read()).equals(found)
    assert lost


async def test_a_footer_of_another_version_does_not_prove_the_end() -> None:
    """It names other chunks than the records before it, in the same places, and no record vouches for it."""
    own = await written(1, "none")
    first, second = Layout(own).row_groups
    for version in range(2, 100):
        other = await written(version, "none")
        if [group.record.place for group in Layout(other).row_groups] == [first.record.place, second.record.place]:
            break
    damaged = bytearray(own[: first.record.place.stop] + other[first.record.place.stop :])
    damaged[Layout(other).records[-1].place.start + 60] ^= 1
    report, found = await recovered(bytes(damaged))
    assert found.slice(0, GROUP_ROWS).equals(table(1).slice(0, GROUP_ROWS))
    assert (report.outcome, report.kept.rows_lost) == ("partial", None)


@pytest.mark.parametrize("column", [2, 3])
async def test_chunks_of_two_versions_make_no_row(column: int) -> None:
    """The record of a row group is damaged, and those of its chunks name others before them than there are."""

    async def written_with(seed: int) -> tuple[bytes, Layout]:
        rng, store = random.Random(seed), MemoryStore()
        rows = pa.table({f"c{i}": ["x" * rng.randrange(2, 9) for _ in range(50)] for i in range(4)})
        with mock.patch("os.urandom", lambda size: bytes(range(size))):  # the same file id
            options = rpq.WriteOptions(dictionary_bytes=0, page_rows=10)
            await rpq.write((store, "f"), rows, compression="none", options=options)
        data = bytes((await store.read_tail("f", 1 << 30)).data)
        return data, Layout(data)

    (own, _), (other, layout) = await written_with(1), await written_with(2)
    (row_group,) = layout.row_groups
    versions = [pq.read_table(io.BytesIO(data)).to_pylist() for data in (own, other)]
    start = row_group.chunks[column].place.start
    for at, gone in ((start - 120, 0), (start - 120, 120), (start - 400, 0)):
        damaged = bytearray(own[:at] + other[at:])
        damaged[start - gone : start] = bytes(gone)
        for record in (row_group.record, layout.records[-1]):
            damaged[record.place.start + 100] ^= 1
        damaged[-30:] = bytes(30)
        report, found = await recovered(bytes(damaged), on_damage="null")
        for number, row in enumerate(found.to_pylist()):
            left = {name: value for name, value in row.items() if value is not None}
            assert any(left.items() <= version[number].items() for version in versions), (at, gone, number)
        assert report.outcome == "partial"
