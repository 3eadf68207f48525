"""Trevni files whose bytes changed, or end too early: what is whole is kept, what is lost is counted, nothing is made up."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sampled import ALL, either, sampled
from trevni_bytes import blocks_of, in_memory, trevni

import resilient_pq as rpq
from resilient_pq.io import ObjectInfo
from resilient_pq.io.memory_store import MemoryStore

#: Small files with checksums that hold, and what their values are.
CHECKED = ["enum-deflate-crc32.trv", "dremel-deflate-crc32.trv", "nested-deflate-crc32.trv", "types-snappy-crc32.trv"]
TABLE = pa.table(
    {
        "id": pa.array(range(40), pa.int32()),
        "names": pa.array([[f"n{i}.{j}" for j in range(i % 4)] for i in range(40)], pa.list_(pa.string())),
        "deep": pa.array(
            [[{"a": i * j, "b": list(range(j))} for j in range(i % 3)] for i in range(40)],
            pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))])),
        ),
        "maybe": pa.array([None if i % 3 else {"x": float(i)} for i in range(40)], pa.struct([("x", pa.float64())])),
    }
)


async def left(data: bytes, on_damage: Any = "drop") -> tuple[list[dict[str, Any]], list[rpq.LostRegion], int]:
    """The rows that are kept, what is lost, and how many rows the file says it has."""
    lost: list[rpq.LostRegion] = []
    async with rpq.open_trevni(await in_memory(data), on_damage=on_damage, on_lost=lost.append) as file:
        return (await file.read()).to_pylist(), lost, file.num_rows


def is_subsequence(found: Sequence[Any], whole: Sequence[Any]) -> bool:
    rest = iter(whole)
    return all(any(row == other for other in rest) for row in found)


def header_size(data: bytes) -> int:
    """Where what checksums cover begins, but for the tables of blocks."""
    return min(block.offset for blocks in blocks_of(data).values() for block in blocks)


async def answer(data: bytes, whole: Sequence[dict[str, Any]], *, exact: bool) -> str:
    """Read a file whatever it is; only errors of ours, and right counts."""
    try:
        found, lost, num_rows = await left(data)
    except (rpq.FormatError, rpq.UnsupportedError, rpq.SchemaError) as error:
        return type(error).__name__
    assert len(found) + sum(region.num_rows or 0 for region in lost) == num_rows
    if exact:
        assert is_subsequence(found, whole)
    return "lost" if lost else "ok"


def flips(data: bytes, rng: random.Random | None, count: int) -> Iterator[tuple[int, bytes]]:
    """The file with a bit of a byte turned: of every byte, or of some."""
    places = range(len(data)) if rng is None else rng.choices(range(len(data)), k=count)
    for at in places:
        spoilt = bytearray(data)
        spoilt[at] ^= 1 << ((at if rng is None else rng.randrange(8)) % 8)
        yield at, bytes(spoilt)


@pytest.mark.parametrize("name", CHECKED[:2])
async def test_flipped_bits_and_what_is_made_of_them(name: str, samples: Path) -> None:
    """Names, too, may be anything then; what is written has them, and as many rows as was said."""
    data, rng = (samples / name).read_bytes(), random.Random(name)
    said = set()
    for _, spoilt in [*flips(data, rng, 15), *flips(data[: data.rindex(b"trevni.type")], rng, 15)]:
        place = await in_memory(spoilt + data[len(spoilt) :])
        try:
            report = await rpq.convert(place, (place[0], "new.parquet"))
        except (rpq.NothingToRecoverError, rpq.UnsupportedError) as error:
            said.add(type(error).__name__)
            continue
        async with rpq.open((place[0], "new.parquet")) as file:
            assert (await file.read()).num_rows == report.num_rows
        said.add(str(report.outcome))
    assert said >= {"recovered"}


async def test_a_name_that_is_no_text(samples: Path) -> None:
    data = (samples / "enum.trv").read_bytes().replace(b"kind/Kind", b"k\xffnd/Kind")
    place = await in_memory(data)
    await rpq.convert(place, (place[0], "new.parquet"))
    async with rpq.open((place[0], "new.parquet")) as file:
        assert (await file.read()).to_pydict() == {"k\\xffnd": [None, 0, 1, 2]}


@pytest.mark.parametrize("count", either([40], [None], 1800), ids=["some", "every byte"])
@pytest.mark.parametrize("name", CHECKED)
async def test_flipped_bits(name: str, count: int | None, samples: Path, rows_of: Any) -> None:
    data, rng = (samples / name).read_bytes(), None if count is None else random.Random(name)
    begin = header_size(data)
    said = {await answer(spoilt, rows_of(name), exact=at >= begin) for at, spoilt in flips(data, rng, count or 0)}
    assert "lost" in said


@pytest.mark.parametrize("name", ["types-null-null.trv", "types-null-crc32.trv", "dremel.trv"])
async def test_flipped_bits_that_no_checksum_covers(name: str, samples: Path, rows_of: Any) -> None:
    """Values may be others then; but the answer is one of ours, and rows are counted right."""
    data, rng = (samples / name).read_bytes(), random.Random(name)
    for _, spoilt in flips(data, rng, 40):
        await answer(spoilt, rows_of(name), exact=False)


@sampled(20, ALL, 1800)
@pytest.mark.parametrize("name", CHECKED)
async def test_cut_files(name: str, count: int, samples: Path, rows_of: Any) -> None:
    data = (samples / name).read_bytes()
    begin = header_size(data)
    for at in random.Random(name).sample(range(len(data)), min(count, len(data))):
        said = await answer(data[:at], rows_of(name), exact=True)
        assert said in ("lost", "TornFileError", "FormatError"), at
        assert said == "lost" or at < begin


# --- which rows a block costs ----------------------------------------------------------------------------------------


DATA = trevni(TABLE, block_bytes=24, codec="null")


def _parent(name: str, names: Iterable[str]) -> str | None:
    """The column whose elements one lies in: its name is the longest that the other's begins with."""
    return max((other for other in names if other != name and name.startswith(other)), key=len, default=None)


def _rows_lost(data: bytes, column: str, block: int) -> set[int]:
    """By the rules of the format: the rows of the block, and those of the columns in it up to where theirs begin anew."""
    blocks = blocks_of(data)
    bad = blocks[column][block]
    lost = set(range(bad.first_row, bad.first_row + bad.num_rows))

    def lose_below(name: str, end: int) -> None:
        for child in blocks:
            if _parent(child, blocks) == name:
                starts = [each.first_row for each in blocks[child]]
                child_end = min((start for start in starts if start >= end), default=40)
                lost.update(range(bad.first_row, child_end))
                lose_below(child, child_end)

    lose_below(column, bad.first_row + bad.num_rows)
    return lost


async def test_a_bad_block_costs_its_rows_and_those_that_need_its_lengths() -> None:
    whole = TABLE.to_pylist()
    rng = random.Random(5)
    places = [(name, block) for name, blocks in blocks_of(DATA).items() for block in range(len(blocks))]
    for column, block in rng.sample(places, 25):
        place = blocks_of(DATA)[column][block]
        spoilt = bytearray(DATA)
        spoilt[place.offset + rng.randrange(place.stored_size)] ^= 1 << rng.randrange(8)
        gone = _rows_lost(DATA, column, block)
        found, lost, _ = await left(bytes(spoilt))
        assert found == [row for at, row in enumerate(whole) if at not in gone]
        assert [(region.where.column, region.where.page, region.num_rows) for region in lost] == [
            (column, block, len(gone))
        ]
        assert (lost[0].start, lost[0].damage) == (place.offset, "corrupt")


async def test_null_keeps_the_other_columns() -> None:
    whole, rng = TABLE.to_pylist(), random.Random(8)
    blocks = blocks_of(DATA)
    for column in ("maybe/T9", "deep/array", "deep/array[]/T5#b/array[]", "names/array[]/string"):
        for block in rng.choices(range(len(blocks[column])), k=2):
            spoilt = bytearray(DATA)
            spoilt[blocks[column][block].offset] ^= 255
            gone = _rows_lost(DATA, column, block)
            found, lost, _ = await left(bytes(spoilt), "null")
            name = column.partition("/")[0]
            assert found == [{**row, name: None} if at in gone else row for at, row in enumerate(whole)]
            (region,) = lost
            assert region.num_rows == 0
            # Of two leaves in a list that is null as a whole, each counts the values that it lost itself.
            most = 2 if column == "deep/array" else 1
            assert len(gone) <= region.num_nulled <= most * len(gone)


async def test_damage_is_an_error_where_that_was_asked_for() -> None:
    data = bytearray(DATA)
    place = (blocks_of(bytes(data)))["id/int"][2]
    data[place.offset + place.stored_size - 1] ^= 2
    async with rpq.open_trevni(await in_memory(bytes(data))) as file:
        rows = []
        with pytest.raises(rpq.ChecksumError, match=r"column id/int, page 2, offset"):
            async for batch in file.batches():
                rows += batch.to_pylist()
        assert [row["id"] for row in rows] == list(range(place.first_row))
        assert (await file.read(columns=["names"])).num_rows == 40
        with pytest.raises(rpq.ChecksumError):
            await file.read(columns=["id"])
    async with rpq.open_trevni(await in_memory(bytes(data)), verify=False) as file:
        assert (await file.read(columns=["id"])).num_rows == 40


async def test_two_blocks_that_cost_the_same_rows_count_once() -> None:
    data = bytearray(DATA)
    blocks = blocks_of(bytes(data))
    for column in ("id/int", "names/array"):
        data[blocks[column][0].offset] ^= 1
    found, lost, _ = await left(bytes(data))
    assert len(found) + sum(region.num_rows or 0 for region in lost) == 40
    assert len(lost) == 2


class Unsteady(MemoryStore):
    """Turns a bit of some bytes, each when it is read for the first time."""

    def __init__(self, unsteady: set[int]) -> None:
        super().__init__()
        self.unsteady = unsteady

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        data = bytearray(await super().read_range(key, start, end, pin=pin))
        for at in [at for at in self.unsteady if start <= at < end]:
            self.unsteady.discard(at)
            data[at - start] ^= 1
        return bytes(data)


async def test_what_is_bad_is_read_once_more(samples: Path, rows_of: Any) -> None:
    data = (samples / "types-blocks-deflate-crc32.trv").read_bytes()
    blocks = blocks_of(data)
    before_the_tail = [block for name in ("l", "s") for block in blocks[name] if block.offset < len(data) - 80_000]
    store = Unsteady({4, 700} | {block.offset + 9 for block in before_the_tail})
    async with rpq.open_trevni(await in_memory(data, store)) as file:
        found = await file.read(columns=["l", "s"])
    assert not store.unsteady
    wanted = rows_of("types-blocks-deflate-crc32.trv")
    assert found.to_pylist() == [{"l": row["l"], "s": row["s"]} for row in wanted]


async def test_the_number_of_rows_is_what_the_columns_say(samples: Path, rows_of: Any) -> None:
    """It stands in the header, which has no checksum, and again in the table of each column."""
    data = bytearray((samples / "dremel-deflate-crc32.trv").read_bytes())
    data[5] ^= 1
    async with rpq.open_trevni(await in_memory(bytes(data))) as file:
        assert (file.num_rows, len(file.notes)) == (2, 1)
        assert (await file.read()).to_pylist() == rows_of("dremel.trv")


async def test_a_schema_that_is_not_that_of_the_columns_is_passed_over(samples: Path) -> None:
    data = (samples / "dremel-deflate-crc32.trv").read_bytes().replace(b'"name":"DocId"', b'"name":"DocIx"')
    async with rpq.open_trevni(await in_memory(data)) as file:
        assert "'DocId' is not the 'DocIx'" in file.notes[0]
        assert file.schema.names == ["DocId", "Links", "Name"]
        found = (await file.read()).to_pylist()
    assert found[0]["Links"] == {"Backward": [], "Forward": [20, 40, 60]}
    report = await rpq.convert(await in_memory(data), (MemoryStore(), "new.parquet"))
    assert (report.outcome, report.exit_code) == ("recovered", 0)
    assert report.findings[0].message == file.notes[0]
