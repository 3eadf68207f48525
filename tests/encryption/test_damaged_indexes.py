"""Encrypted files with a damaged index or bloom filter: the rows are read, and the index is told as damaged."""

from __future__ import annotations

import asyncio
import itertools

import pyarrow as pa
import pytest
from encrypted_files import flipped, read_in_memory, view_of

import resilient_pq as rpq
from resilient_pq.encryption.plain_regions import SealedIndex
from resilient_pq.io import ObjectInfo
from resilient_pq.io.memory_store import MemoryStore

KEY = bytes(range(32))


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return pa.table({"s": [f"text {n}" for n in range(600)], "n": range(600)})


async def written(rows: pa.Table) -> bytes:
    store = MemoryStore()
    options = rpq.WriteOptions(bloom_filter_options=["s"])
    await rpq.write((store, "a"), rows, row_group_rows=200, encryption=rpq.Encryption(KEY), options=options)
    return bytes(await store.read_range("a", 0, (await store.head("a")).size, pin=await store.head("a")))


async def indexes_of(data: bytes) -> list[SealedIndex]:
    view = await view_of(data, KEY, tail_bytes=1 << 20)
    return [region for region in view._regions if isinstance(region, SealedIndex)]


async def test_rows_are_read_around_a_damaged_index(rows: pa.Table) -> None:
    data = await written(rows)
    indexes = await indexes_of(data)
    assert len(indexes) == 3 + 2 * 6  # a bloom filter, and two indexes of each of two columns, in three row groups
    for index, at in itertools.product(indexes, (0, 20, -1)):
        damaged = flipped(data, index.start + at if at >= 0 else index.end + at)
        assert (await read_in_memory(damaged, keys=KEY, heal=False)).equals(rows)
        view = await view_of(damaged, KEY)
        with pytest.raises(rpq.ChecksumError, match="index CRC32 does not match"):
            await view.read_range("file", index.start, index.start + 1, pin=await view.head("file"))


class WaitingStore(MemoryStore):
    """Lets other tasks run before each read, as a store does that is far away."""

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes:
        await asyncio.sleep(0)
        return await super().read_range(key, start, end, pin=pin)


async def test_a_damaged_index_is_an_error_while_the_tail_is_read_without_it(rows: pa.Table) -> None:
    data = await written(rows)
    index = (await indexes_of(data))[-1]
    view = await view_of(flipped(data, index.end - 1), KEY, store=WaitingStore())
    pin = await view.head("file")

    async def read_later(turns: int) -> bytes:
        for _ in range(turns):
            await asyncio.sleep(0)
        return bytes(await view.read_range("file", index.start, index.end, pin=pin))

    tail = asyncio.create_task(view.read_tail("file", 1 << 20))
    found = await asyncio.gather(*map(read_later, range(20)), return_exceptions=True)
    assert (await tail).offset < index.end
    assert [type(each) for each in found] == [rpq.ChecksumError] * 20
