"""Single bits turned back: which flips come back, and that no damage becomes false rows."""

from __future__ import annotations

import io
import random
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes, with_flips
from sampled import ALL, sampled, seeded

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.ledger.ledger_model import Ledger

COUNT = 60


def table() -> pa.Table:
    rng = seeded("rows")
    return pa.table(
        {
            "id": pa.array(range(COUNT), pa.int64()),
            "town": [None if i % 7 == 0 else f"t{i % 5}" for i in range(COUNT)],
            "score": [rng.random() for _ in range(COUNT)],
            "list": [[i] * (i % 3) for i in range(COUNT)],
        }
    )


@pytest.fixture(scope="module")
def theirs() -> bytes:
    """With page checksums, and no copies of anything."""
    sink = io.BytesIO()
    pq.write_table(table(), sink, row_group_size=30, data_page_size=50, write_batch_size=10, write_page_checksum=True)
    return sink.getvalue()


async def ours() -> bytes:
    return await file_bytes(table(), row_group_rows=30, options=rpq.WriteOptions(page_rows=10))


def chunks(data: bytes) -> list[range]:
    metadata, places = pq.read_metadata(io.BytesIO(data)), []
    for row_group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(row_group).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            places.append(range(start, start + chunk.total_compressed_size))
    return places


async def recover(data: bytes, **options: Any) -> tuple[rpq.Report, pa.Table | None]:
    """The report, and the rows that are kept: each of them as it was written."""
    store = MemoryStore()
    await store.put("d", data)
    try:
        report = await rpq.recover((store, "d"), (store, "o"), **{"repair_bits": True, **options})
    except rpq.NothingToRecoverError as error:
        return error.report, None
    found = pq.read_table(io.BytesIO((await store.read_tail("o", 1 << 40)).data))
    assert found.equals(table().take(found.column("id").to_pylist())), "there are false rows"
    return report, found


async def comes_back(data: bytes, bit: int) -> None:
    try:
        report, found = await recover(with_flips(data, bit))
        assert found is not None and found.num_rows == COUNT
        assert report.outcome in (rpq.Outcome.SOUND, rpq.Outcome.RECOVERED)
    except BaseException as error:
        error.add_note(f"bit {bit % 8} of byte {bit // 8}")
        raise


# --- one bit ------------------------------------------------------------------------------------------------


@sampled(60, ALL, 3600)
async def test_any_bit_of_our_files_comes_back(count: int) -> None:
    """In pages, in their headers and in the CRC32 there, in records, in the footer."""
    data = await ours()
    bits = range(len(data) * 8)
    for bit in seeded("ours").sample(bits, min(count, len(bits))):
        await comes_back(data, bit)


def bodies(file: Any) -> list[range]:
    return [page.body for row_group in file.row_groups for chunk in row_group.chunks for page in chunk.pages]


@pytest.fixture(scope="module")
def page_bodies(theirs: bytes, layout_of: Any) -> list[range]:
    """Where the bodies of the pages of `theirs` lie."""
    return [place for place in bodies(layout_of(theirs)) if place]


@sampled(15, ALL, 3600)
async def test_any_bit_of_a_page_of_others_comes_back(theirs: bytes, page_bodies: list[range], count: int) -> None:
    bits = [bit for place in page_bodies for bit in range(place.start * 8, place.stop * 8)]
    for bit in seeded("theirs").sample(bits, min(count, len(bits))):
        await comes_back(theirs, bit)


async def test_the_checksum_itself(theirs: bytes, layout_of: Any) -> None:
    """Flipped where nothing has a copy of it: the page is whole, and its header gets the right one."""
    crc = zlib.crc32
    for page in [page for chunk in layout_of(theirs).row_groups[0].chunks for page in chunk.pages]:
        stored = crc(theirs[page.body.start : page.body.stop])
        zigzag = (stored << 1) ^ -(stored >> 31) if stored < 1 << 31 else ((1 << 32) - stored) * 2 - 1
        varint = bytearray()
        while zigzag >= 0x80:
            varint.append(zigzag & 0x7F | 0x80)
            zigzag >>= 7
        varint.append(zigzag)
        at = theirs.index(bytes(varint), page.header.start, page.header.stop)
        await comes_back(theirs, (at + 1) * 8 + 2)


# --- what is no single bit ----------------------------------------------------------------------------------


async def two_bits(data: bytes, rng: random.Random) -> None:
    first, second = (rng.choice(rng.choice(chunks(data))) * 8 + rng.randrange(8) for _ in range(2))
    await recover(with_flips(data, first, second))


async def test_two_bits_never_make_false_rows(page_bodies: list[range], theirs: bytes) -> None:
    """In two pages both come back; in one, neither does."""
    rng = seeded("two")
    for _ in range(20):
        one, other = rng.sample(page_bodies, 2)
        _, found = await recover(with_flips(theirs, rng.choice(one) * 8, rng.choice(other) * 8 + 7))
        assert found is not None and found.num_rows == COUNT
        place = rng.choice([place for place in page_bodies if len(place) > 4])
        bits = rng.sample(range(place.start * 8, place.stop * 8), 2)
        report, found = await recover(with_flips(theirs, *bits))
        assert report.kept is not None and report.kept.lost
        assert found is None or found.num_rows < COUNT


async def burst(data: bytes, places: list[range], rng: random.Random) -> None:
    place = rng.choice(places)
    at = rng.choice(place)
    size = min(rng.randint(2, 40), place.stop - at)
    await recover(data[:at] + rng.randbytes(size) + data[at + size :])


@sampled(5, 1000, 3600)
async def test_bursts_and_pairs_never_make_false_rows(theirs: bytes, page_bodies: list[range], count: int) -> None:
    mine, rng = await ours(), seeded("burst")
    for _ in range(count):
        await burst(theirs, page_bodies, rng)
        await burst(mine, chunks(mine), rng)
        await two_bits(mine, rng)


# --- only when asked, and said ------------------------------------------------------------------------------


async def test_no_bit_is_turned_without_being_asked(theirs: bytes, page_bodies: list[range]) -> None:
    report, found = await recover(with_flips(theirs, page_bodies[1].start * 8), repair_bits=False)
    assert report.outcome is rpq.Outcome.PARTIAL
    assert found is None or found.num_rows < COUNT


async def test_the_report_says_which_pages_had_bits_turned(theirs: bytes, page_bodies: list[range]) -> None:
    report, _ = await recover(with_flips(theirs, page_bodies[1].start * 8))
    assert report.outcome is rpq.Outcome.RECOVERED
    assert report.kept is not None and isinstance(report.kept.ledger, Ledger)
    assert "bit-repair" in str(report.to_json())
