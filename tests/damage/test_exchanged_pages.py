"""Pages of one size that change places, in chunks whose pages have one CRC32: gzip stores what does not compress."""

from __future__ import annotations

import asyncio
import io
import itertools
import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import OffsetIndex
from resilient_pq.format.pages import chunk_encoder
from resilient_pq.format.pages.page_sums import PageSums
from resilient_pq.io.memory_store import MemoryStore

PAGE_ROWS = 100
PAGES = 6
ROWS = 2 * PAGES * PAGE_ROWS
RNG = random.Random(3)
NAMES = ("noise", "blob")
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int32()),
        "noise": pa.array([RNG.getrandbits(63) for _ in range(ROWS)], pa.int64()),
        "blob": pa.array([RNG.randbytes(16) for _ in range(ROWS)], pa.binary(16)),
    }
)


@dataclass(frozen=True, repr=False)
class Sample:
    """A file."""

    data: bytes  # Its bytes
    pages: Mapping[str, Sequence[range]]  # Where the data pages of a column lie, over both row groups
    records: Sequence[int]  # Where the records of the row groups begin
    indexes: Mapping[str, Sequence[int]]  # Where the offset indexes of a column begin

    def __repr__(self) -> str:
        return "Sample"

    def exchanged(self, name: str, one: int, other: int) -> bytes:
        """The bytes with two pages of one size in each other's place."""
        first, second = self.pages[name][one], self.pages[name][other]
        changed = bytearray(self.data)
        changed[first.start : first.stop] = self.data[second.start : second.stop]
        changed[second.start : second.stop] = self.data[first.start : first.stop]
        assert len(changed) == len(self.data) and changed != self.data
        return bytes(changed)


async def sample(compression: str = "gzip", **options: Any) -> Sample:
    store = MemoryStore()
    creation = rpq.create(
        (store, "file"),
        row_group_rows=ROWS // 2,
        compression=compression,
        encodings="PLAIN",
        options=rpq.WriteOptions(page_rows=PAGE_ROWS, **options),
    )
    async with creation as writer:
        await writer.write(TABLE)
    data = bytes((await store.read_tail("file", 1 << 40)).data)
    found: dict[str, list[range]] = {}
    indexes: dict[str, list[int]] = {}
    async with rpq.open((store, "file")) as file:
        for name, group in itertools.product(NAMES, range(2)):
            column = ("id", *NAMES).index(name)
            chunk = file.metadata.row_groups[group].columns[column]
            indexes.setdefault(name, []).append(chunk.offset_index_offset or 0)
            for place in (await file.offset_index(group, name)).page_locations:
                page = range(place.offset, place.offset + place.compressed_page_size)
                found.setdefault(name, []).append(page)
    return Sample(data, found, record_places(data), indexes)


def record_places(data: bytes) -> list[int]:
    metadata = pq.read_metadata(io.BytesIO(data))
    keys = [metadata.row_group(i).column(0).metadata for i in range(metadata.num_row_groups)]
    return [int(key[b"rpq.record"].split(b":")[0]) for key in keys]


@pytest.fixture(scope="module", params=["1.0", "2.0"])
def with_hashes(request: pytest.FixtureRequest) -> Sample:
    return asyncio.run(sample(data_page_version=request.param))


@pytest.fixture(scope="module")
def without_hashes() -> Sample:
    """As version 0.1 wrote it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_encoder, "sums_of", lambda *_: (None, None))
        return asyncio.run(sample())


async def opened(data: bytes, **options: Any) -> Any:
    store = MemoryStore()
    await store.put("file", data)
    return await rpq.open((store, "file"), **options)


def lost_rows(*page_numbers: int) -> set[int]:
    return {row for page in page_numbers for row in range(page * PAGE_ROWS, (page + 1) * PAGE_ROWS)}


def without(lost: set[int]) -> pa.Table:
    return TABLE.take([row for row in range(ROWS) if row not in lost])


def test_the_crc32_of_such_pages_tells_nothing(with_hashes: Sample) -> None:
    """Else what follows would say nothing."""
    for places in with_hashes.pages.values():
        assert len({len(place) for place in places}) == 1
        assert len({zlib.crc32(with_hashes.data[place.start : place.stop]) for place in places}) == 1
        assert len({with_hashes.data[place.start : place.stop] for place in places}) == 2 * PAGES


PLACES = st.tuples(
    st.sampled_from(NAMES),
    st.lists(st.integers(0, 2 * PAGES - 1), min_size=2, max_size=2, unique=True),
)


@given(PLACES)
def test_a_read_of_exchanged_pages_is_an_error(with_hashes: Sample, places: tuple[str, list[int]]) -> None:
    name, (one, other) = places
    damaged = with_hashes.exchanged(name, one, other)

    async def read() -> None:
        async with await opened(damaged) as file:
            with pytest.raises(rpq.ChecksumError, match="xxh3"):
                await file.read([name])
            with pytest.raises(rpq.ChecksumError, match="xxh3"):
                async for _ in file.batches(batch_rows=PAGE_ROWS):
                    pass
            assert pa.table(await file.read(["id"]))["id"].to_pylist() == list(range(ROWS))

    asyncio.run(read())


@given(PLACES)
def test_a_page_read_alone_is_the_right_one(with_hashes: Sample, places: tuple[str, list[int]]) -> None:
    """The page that is read has the right header and CRC32: only its chunk tells that it is another."""
    name, (one, other) = places
    damaged = with_hashes.exchanged(name, one, other)

    async def read() -> None:
        row = one * PAGE_ROWS + 7
        async with await opened(with_hashes.data) as file:
            assert pa.table(await file.read(filters=[("id", "=", row)])).equals(TABLE.slice(row, 1))
        async with await opened(damaged) as file:
            with pytest.raises(rpq.ChecksumError, match="xxh3"):
                await file.read(filters=[("id", "=", row)])
        async with await opened(damaged, on_damage="drop") as file:
            assert pa.table(await file.read(filters=[("id", "=", row)])).num_rows == 0

    asyncio.run(read())


@given(PLACES)
def test_a_check_names_exchanged_pages_and_a_recovery_keeps_the_others(
    with_hashes: Sample, places: tuple[str, list[int]]
) -> None:
    name, (one, other) = places
    damaged = with_hashes.exchanged(name, one, other)
    lost = lost_rows(one, other)
    kept = without(lost)

    async def judged() -> None:
        store = MemoryStore()
        await store.put("file", damaged)
        report = await rpq.check((store, "file"))
        assert report.outcome is rpq.Outcome.DAMAGED
        assert {finding.where.column for finding in report.findings} == {name}
        async with rpq.open((store, "file"), on_damage="drop") as file:
            assert pa.table(await file.read()).equals(kept)
        report = await rpq.recover((store, "file"), (store, "out"))
        assert (report.outcome, report.num_rows) == (rpq.Outcome.PARTIAL, len(kept))
        assert report.kept is not None and report.kept.rows_lost == len(lost)
        out = bytes((await store.read_tail("out", 1 << 40)).data)
        assert pq.read_table(io.BytesIO(out)).equals(kept)

    asyncio.run(judged())


async def test_one_bad_byte_costs_one_page_all_the_same(with_hashes: Sample) -> None:
    damaged = bytearray(with_hashes.data)
    damaged[with_hashes.pages["noise"][PAGES + 2].stop - 50] ^= 1
    async with await opened(bytes(damaged), on_damage="drop") as file:
        assert pa.table(await file.read()).equals(without(lost_rows(PAGES + 2)))


@pytest.mark.parametrize("index_too", [False, True])
async def test_without_the_record_no_page_is_believed_that_could_be_another(
    with_hashes: Sample, index_too: bool
) -> None:
    """The offset index has the sums of pages as well. Without both, the chunk's hash says that something is wrong."""
    damaged = bytearray(with_hashes.exchanged("noise", 1, 4))
    damaged[with_hashes.records[0] + 100] ^= 1
    lost = lost_rows(1, 4)
    if index_too:
        damaged[with_hashes.indexes["noise"][0] + 1] ^= 1
        lost = set(range(ROWS // 2))
    async with await opened(bytes(damaged), on_damage="null") as file:
        read = pa.table(await file.read())
    assert read["blob"].equals(TABLE["blob"])
    expected = [None if row in lost else value for row, value in enumerate(TABLE["noise"].to_pylist())]
    assert read["noise"].to_pylist() == expected


# -- pages whose CRC32 is their own, but goes along with them --------------------------------------------


CODECS = ("none", "snappy", "lz4_raw", "zstd")


@pytest.fixture(scope="module", params=itertools.product(CODECS, [True, False]))
def of_any_codec(request: pytest.FixtureRequest) -> Sample:
    """With sums of pages in its indexes, or as version 0.1 wrote it."""
    compression, summed = request.param
    with pytest.MonkeyPatch.context() as patch:
        if not summed:
            patch.setattr(chunk_encoder, "sums_of", lambda *_: (None, None))
        return asyncio.run(sample(compression))


@given(PLACES)
def test_a_page_of_any_codec_is_read_alone_only_in_its_place(
    of_any_codec: Sample, places: tuple[str, list[int]]
) -> None:
    name, (one, other) = places
    file = of_any_codec
    first, second = file.pages[name][one], file.pages[name][other]
    hypothesis.assume(len(first) == len(second))
    damaged = file.exchanged(name, one, other)

    async def read() -> None:
        row = one * PAGE_ROWS + 7
        async with await opened(damaged) as found:
            with pytest.raises(rpq.ChecksumError):
                await found.read(filters=[("id", "=", row)])

    asyncio.run(read())


async def test_a_check_of_an_older_file_says_what_it_cannot_tell(without_hashes: Sample) -> None:
    for data in (without_hashes.data, without_hashes.exchanged("noise", 1, 4)):
        store = MemoryStore()
        await store.put("file", data)
        report = await rpq.check((store, "file"))
        assert {finding.where.column for finding in report.findings} >= {"noise", "blob"}
        assert all(finding.damage is rpq.Damage.UNVERIFIED for finding in report.findings)
        assert any("12 pages" in finding.message or "6 pages" in finding.message for finding in report.findings)


# -- who else has the sums ---------------------------------------------------------------------------------


async def test_a_summary_has_the_hashes_of_the_files_it_names(with_hashes: Sample) -> None:
    store = MemoryStore()
    await store.put("data/one.parquet", with_hashes.data)
    await rpq.write_metadata((store, "data"))
    async with rpq.open((store, "data/_metadata")) as file:
        assert pa.table(await file.read()).equals(TABLE)
    await store.put("data/one.parquet", with_hashes.exchanged("noise", 1, 4))
    async with rpq.open((store, "data/_metadata")) as file:
        with pytest.raises(rpq.ChecksumError, match="xxh3"):
            await file.read()


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
async def test_a_file_that_is_gone_on_with_has_the_sums_of_what_is_in_place(tmp_path: Path, compression: str) -> None:
    """The records tell them: nothing is read again."""
    path = tmp_path / "file.parquet"
    creation = rpq.create(
        path,
        row_group_rows=ROWS // 2,
        compression=compression,
        encodings="PLAIN",
        checkpoint_every=1,
        options=rpq.WriteOptions(page_rows=PAGE_ROWS),
    )
    with pytest.raises(KeyError):
        async with creation as writer:
            await writer.write(TABLE)
            raise KeyError
    async with rpq.resume(path) as writer:
        assert writer.num_rows_stored == ROWS
    data = path.read_bytes()
    async with rpq.open(path) as file:
        for chunk in [chunk for group in file.metadata.row_groups for chunk in group.columns]:
            at, size = chunk.offset_index_offset or 0, chunk.offset_index_length or 0
            index, _ = compact_protocol.decode(OffsetIndex, data, at)
            pages = [data[place.offset :][: place.compressed_page_size] for place in index.page_locations]
            computed = xxhash.xxh3_64_intdigest if compression == "gzip" else zlib.crc32
            sums = PageSums.of_index(memoryview(data[at : at + size]))
            assert sums == PageSums(tuple(map(computed, pages)), compression == "gzip")
            assert len(pages) == PAGES
