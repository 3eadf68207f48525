"""Page indexes whose bytes were changed: what they say is refused, and nothing else goes wrong by it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sampled import sampled

import resilient_pq as rpq
from resilient_pq.io import MemoryStore


@pytest.fixture
async def written() -> tuple[bytes, tuple[int, int], int]:
    """A file, the place of an OffsetIndex in it, and a byte in the middle of the first page of that chunk."""
    store = MemoryStore()
    async with rpq.create((store, "a"), options=rpq.WriteOptions(page_rows=100), encodings="PLAIN") as writer:
        await writer.write({"a": np.arange(400)})
    async with rpq.open((store, "a")) as file:
        column = file.metadata.row_groups[0].columns[0]
    data = bytes((await store.read_tail("a", 1 << 20)).data)
    start = column.offset_index_offset
    return data, (start, start + column.offset_index_length), column.meta_data.data_page_offset + 60


@sampled(20, 1000)
@pytest.mark.parametrize("flipped", [0x01, 0x40, 0xFF])
@pytest.mark.parametrize("on_damage", ["drop", "null"])
async def test_every_byte_of_an_offset_index(
    written: tuple[bytes, tuple[int, int], int], flipped: int, on_damage: str, count: int
) -> None:
    data, (start, end), in_page = written
    for at in random.Random(f"{flipped} {on_damage}").sample(range(start, end), min(count, end - start)):
        damaged = bytearray(data)
        damaged[at] ^= flipped
        damaged[in_page] ^= 1  # so that the pages of the chunk are looked at one by one
        store = MemoryStore()
        await store.put("damaged", bytes(damaged))
        report = await rpq.recover((store, "damaged"), (store, "saved"), on_damage=on_damage)
        async with rpq.open((store, "saved")) as file:
            values = (await file.read()).to_pydict()["a"]
        assert {value for value in values if value is not None} >= set(range(100, 400)), (at, report)
