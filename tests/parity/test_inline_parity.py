"""Files with parity in their gaps come back bit for bit, exactly where the geometry of the groups says so."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampled import either

import resilient_pq as rpq
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format.footer import parity_places
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordChain, RecordKind
from resilient_pq.parity.group_record import GroupRecord
from resilient_pq.parity.group_shape import ParityShare
from resilient_pq.parity.inline_groups import InlineGroups
from resilient_pq.parity.inline_parity import find_inline
from resilient_pq.parity.pinned_object import PinnedObject

from .inline_files import NAME, InlineFile, contents, drawn_damage, inline_file, stored


@pytest.fixture(scope="module")
def several() -> InlineFile:
    """A file of several groups."""
    file = asyncio.run(inline_file(400_000, 6_000))
    assert len(file.groups) > 2
    return file


@pytest.fixture(scope="module")
def small() -> InlineFile:
    """A file of one group."""
    return asyncio.run(inline_file())


async def test_every_byte_is_in_a_group_or_follows_from_one(several: InlineFile) -> None:
    extents = sorted(extent for group in several.groups for extent in group.extents)
    start, end = several.last_place
    assert [extents[0].start, extents[-1].end] == [0, len(several.data)]
    for before, after in pairwise(extents):
        assert before.end == after.start or (before.end, after.start) == (start, end)
    assert pq.read_table(BytesIO(several.data)).num_rows == 400_000
    parity = sum(group.shape.framed_bytes for group in several.groups)
    assert 0.05 < parity / len(several.data) < 0.08


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
async def test_what_the_geometry_allows_comes_back_and_nothing_else(several: InlineFile, seed: int) -> None:
    await held_against_the_geometry(several, drawn_damage(seed, several.data, several.burst))


@pytest.mark.thorough
@pytest.mark.parametrize(("rows", "row_group_rows"), [(0, None), (100, None), (40_000, None), (300_000, 6_000)])
async def test_many_damages(rows: int, row_group_rows: int | None) -> None:
    file = await inline_file(rows, row_group_rows)
    for seed in range(500):
        await held_against_the_geometry(file, drawn_damage(seed, file.data, file.burst))


async def held_against_the_geometry(file: InlineFile, damaged: bytes) -> None:
    if file.is_within_the_parity(damaged):
        assert await file.repaired(damaged) == file.data
    else:
        with pytest.raises((rpq.RepairError, rpq.NotFoundError)):
            await file.repaired(damaged)


async def bursts_come_back(file: InlineFile, step: int) -> None:
    draw = random.Random(step)
    for offset in range(0, 4096, step):
        start = draw.randrange(0, len(file.data) - file.burst - 4096) // 4096 * 4096 + offset
        damaged = bytearray(file.data)
        damaged[start : start + file.burst] = bytes(byte ^ 0x55 for byte in damaged[start : start + file.burst])
        assert await file.repaired(bytes(damaged)) == file.data


@pytest.mark.parametrize("step", either([271], [1]))
async def test_the_longest_burst_comes_back_wherever_it_begins(small: InlineFile, step: int) -> None:
    await bursts_come_back(small, step)


async def test_a_missing_part_and_a_missing_end_come_back(several: InlineFile) -> None:
    data, size = several.data, several.burst // 2
    for start in (0, 5_000, len(data) // 2, len(data) - size - 9_000, len(data) - size, several.last_place[0] - size):
        assert await several.repaired(data[:start] + data[start + size :]) == data
    assert await several.repaired(data[:777] + bytes(99) + data[777:]) == data


async def test_in_place(several: InlineFile, tmp_path: Path) -> None:
    path = tmp_path / "a"
    start, end = several.last_place
    for at, size in ((100, 9_000), (start, (end - start) // 3), (len(several.data) - 300, 300)):
        damaged = bytearray(several.data)
        damaged[at : at + size] = bytes(size)
        path.write_bytes(damaged)
        await rpq.repair(path, in_place=True)
        assert path.read_bytes() == several.data


# -- records that were changed, or made to do harm ---------------------------------------------------


@pytest.mark.parametrize("copies", [1, 2])
async def test_each_field_of_the_records_may_be_changed(small: InlineFile, copies: int) -> None:
    """One copy never matters; without both the file is refused, or right."""
    shape, start = small.groups[0].shape, small.last_place[0]
    second = start + shape.record_bytes + shape.parity_bytes
    fields = [*range(0, HEADER_SIZE, 4), *(HEADER_SIZE + at for at in (0, 1, 2, 3, *range(4, 96, 4), 100, 5_00))]
    for field in fields[:: 1 if copies == 2 else 3]:
        damaged = bytearray(small.data)
        damaged[2_000:4_000] = bytes(2_000)
        for copy in (start, second)[:copies]:
            damaged[copy + field] ^= 0x41
        try:
            assert await small.repaired(bytes(damaged)) == small.data
        except rpq.ResilientPQError:
            assert copies == 2


def hostile(record: GroupRecord, place: int, payload: bytes | None = None) -> bytes:
    chain = RecordChain(bytes(16))
    return chain.record(RecordKind.PARITY, place, payload or record.pack(), num_rows=0, num_row_groups=0)


async def test_hostile_records_are_refused_before_memory_is_taken(small: InlineFile) -> None:
    """Records with valid checksums that name impossible places, in a file without a footer."""
    (group,) = small.groups
    start, _ = small.last_place
    body = small.data[:start]
    far = 1 << 60
    second = start + group.shape.record_bytes + group.shape.parity_bytes
    for changed in (
        replace(group, extents=(ByteRange(0, start), ByteRange(far, far + group.extents[1].size))),
        replace(group, extents=(group.extents[0], ByteRange(0, group.extents[1].size))),
        replace(group, extents=(ByteRange(far, far + group.extents[0].size), group.extents[1])),
        replace(group, shards_offset=far),
        replace(group, shape=replace(group.shape, shard_bytes=1 << 30)),
        replace(group, flags=0),
    ):
        damaged = body + hostile(changed, start) + small.data[start + group.shape.record_bytes : second]
        store = await stored(damaged + hostile(replace(changed, other_copy=start), second))
        found = await find_inline(await PinnedObject.find(store, NAME), thorough=True)
        assert found is None or all(one.extents[-1].end <= len(small.data) for one in found.groups)
        with pytest.raises((rpq.RepairError, rpq.NotFoundError)):
            await rpq.repair((store, NAME), (store, "new"))
    many = b"".join(hostile(group, start + i * 200, b"\0" * 100) for i in range(2_000))
    store = await stored(body + many)
    assert await find_inline(await PinnedObject.find(store, NAME), thorough=True) is None


@pytest.mark.parametrize("text", ["1", "a:b", "5:100", "400:300,100:300", "100:300,150:300", "1:10000000000", "-1:300"])
def test_places_that_cannot_be_are_not_believed(text: str) -> None:
    assert parity_places(text, 1000) == []
    assert parity_places("100:300,500:300", 1000) == [ByteRange(100, 400), ByteRange(500, 800)]


async def test_a_blob_with_a_protected_file_is_no_parity_of_the_file_around_it(small: InlineFile) -> None:
    data = np.random.default_rng(1).bytes(5_000) + small.data + np.random.default_rng(2).bytes(5_000)
    store = await stored(data)
    assert await find_inline(await PinnedObject.find(store, NAME), thorough=True) is None


# -- writing -----------------------------------------------------------------------------------------


async def test_much_parity_comes_to_an_end() -> None:
    """The parity of each group lies in later ones, which get parity of their own."""
    file = await inline_file(100_000, 2_000, parity="50%")
    sizes = [group.shape.framed_bytes for group in file.groups]
    assert len(sizes) > 3 and sum(sizes) < 1.2 * (len(file.data) - sum(sizes))


@pytest.mark.parametrize("parity", ["1%", "20%", 0.5, 1e-320])
async def test_other_shares(parity: str | float) -> None:
    file = await inline_file(parity=parity)
    damaged = bytearray(file.data)
    damaged[1000 : 1000 + file.burst] = bytes(len(damaged[1000 : 1000 + file.burst]))
    assert await file.repaired(bytes(damaged)) == file.data


async def test_a_share_that_cannot_be_is_refused() -> None:
    for parity in ("5", "x%", 0, 2, True, 0.51):
        with pytest.raises(rpq.SchemaError, match="parity"):
            rpq.create((await stored(b""), NAME), parity=parity)


def test_any_cutting_gives_the_same_parity_and_one_group_waits() -> None:
    share, draw = ParityShare.parse("5%"), random.Random(1)
    data = np.random.default_rng(1).bytes(4_000_000)
    found = []
    for largest in (3_000, 100_000):
        groups, at, parity = InlineGroups(share), 0, []
        for row_group in range(50_000, len(data) + 1, 50_000):
            while at < row_group:
                size = min(draw.randrange(1, largest), row_group - at)
                groups.add([data[at : at + size]])
                at += size
            groups.end_row_group(50_000)
            groups.begin_row_group()
            groups.settle()
            assert groups.num_waiting <= 1
            while groups.num_waiting:
                parity += [bytes(part) for part in groups.take(0, lambda _, payload: payload)]
        found.append(parity)
    assert len(found[0]) == 3 * 4 and found[0] == found[1]


async def test_the_same_bytes_whatever_the_threads(small: InlineFile) -> None:
    sizes: list[Awaitable[InlineFile]] = [
        inline_file(options=rpq.WriteOptions(max_threads=threads)) for threads in (1, 4)
    ]
    one, four = [await size for size in sizes]
    start = one.last_place[0]
    assert one.last_place == four.last_place == small.last_place and len(one.data) == len(four.data)
    assert [group.shape for group in one.groups] == [group.shape for group in four.groups] and start


async def test_contents_are_those_of_a_file_without_parity(several: InlineFile) -> None:
    async with rpq.open((await stored(several.data), NAME)) as file:
        table = await file.read()
    assert table.to_pydict()["a"] == [*range(200_000)] * 2
    assert await contents(await stored(several.data)) == several.data
