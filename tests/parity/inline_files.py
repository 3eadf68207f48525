"""Files with parity inside, and what the geometry of their groups says of damage."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import resilient_pq as rpq
from resilient_pq.format.resilience_records import HEADER_SIZE
from resilient_pq.io import MemoryStore
from resilient_pq.parity.group_record import GroupRecord
from resilient_pq.parity.inline_parity import find_inline
from resilient_pq.parity.pinned_object import PinnedObject

NAME = "day.parquet"


@dataclass
class InlineFile:
    """A file with parity inside, and the records of its groups."""

    data: bytes
    groups: tuple[GroupRecord, ...]

    @property
    def last_place(self) -> tuple[int, int]:
        """Where the parity of the last group begins and ends."""
        start = self.groups[-1].extents[0].end
        return start, start + self.groups[-1].shape.framed_bytes

    @property
    def burst(self) -> int:
        """So many bytes in a row are always rebuilt."""
        return min(group.shape.inline_burst_bytes for group in self.groups)

    async def repaired(self, damaged: bytes) -> bytes:
        store = await stored(damaged)
        try:
            await rpq.repair((store, NAME), (store, "new"))
        except rpq.ResilientPQError:
            assert not await store.exists("new")
            raise
        return await contents(store, "new")

    def is_within_the_parity(self, damaged: bytes) -> bool:
        """Whether all can be rebuilt, by comparing the bytes: of damage that leaves the rest in its place."""
        healed = bytearray(damaged)
        return all(self._heal(group, healed) for group in reversed(self.groups))

    def _heal(self, group: GroupRecord, healed: bytearray) -> bool:
        """Put the bytes of a group back if its columns allow that: the records before it lie in them."""
        shape = group.shape
        known = self._known_shards(group, healed)
        if known is None:
            return False
        data = np.zeros(shape.num_data * shape.shard_bytes, np.bool_)
        places = np.concatenate([np.arange(extent.start, extent.end) for extent in group.extents])
        there, right = np.frombuffer(bytes(healed), np.uint8), np.frombuffer(self.data, np.uint8)
        data[: len(places)] = there[places] != right[places]
        shards = slice(group.shards_offset, group.shards_offset + shape.parity_bytes)
        lost = blocks(data, shape.num_data, shape.block_bytes) | ~known[: shape.num_data, None]
        lost_parity = blocks(there[shards] != right[shards], shape.num_parity, shape.block_bytes)
        lost_parity |= ~known[shape.num_data :, None]
        num_lost = lost.sum(axis=0)
        if ((num_lost > 0) & (num_lost > (~lost_parity).sum(axis=0))).any():
            return False
        for extent in group.extents:
            healed[extent.start : extent.end] = self.data[extent.start : extent.end]
        return True

    def _known_shards(self, group: GroupRecord, healed: bytearray) -> NDArray[np.bool_] | None:
        """Of which shards one of the copies of the record has the checksums; None where neither can be used."""
        shape, known = group.shape, None
        row = 4 * (shape.num_columns + 1)
        for start in (group.shards_offset - shape.record_bytes, group.shards_offset + shape.parity_bytes):
            table = start + HEADER_SIZE + 96
            if healed[start : table - 12] != self.data[start : table - 12]:
                continue
            rows = [slice(table + row * i, table + row * (i + 1)) for i in range(shape.num_data + shape.num_parity)]
            whole = np.array([healed[place] == self.data[place] for place in rows])
            known = whole if known is None else known | whole
        return known


def blocks(differs: NDArray[np.bool_], num_shards: int, size: int) -> NDArray[np.bool_]:
    """For each shard and each of its blocks whether a byte differs."""
    found: NDArray[np.bool_] = differs.reshape(num_shards, -1, size).any(axis=2)
    return found


async def stored(data: bytes) -> MemoryStore:
    store = MemoryStore()
    await store.put(NAME, data)
    return store


async def contents(store: MemoryStore, key: str = NAME) -> bytes:
    return bytes((await store.read_tail(key, 1 << 40)).data)


async def inline_file(rows: int = 40_000, row_group_rows: int | None = 10_000, **options: Any) -> InlineFile:
    """A file of two columns; half of its rows were stored by a checkpoint."""
    store, draw = MemoryStore(), np.random.default_rng(rows)
    options = {"parity": "5%", **options}
    async with rpq.create((store, NAME), row_group_rows=row_group_rows, **options) as writer:
        for half in range(2):
            await writer.write({"a": np.arange(rows // 2), "b": draw.random(rows // 2)})
            if not half:
                await writer.checkpoint()
    found = await find_inline(await PinnedObject.find(store, NAME))
    assert found is not None
    return InlineFile(await contents(store), found.groups)


def drawn_damage(seed: int, data: bytes, burst: int) -> bytes:
    """Bits, sectors and bursts, in places of any kind."""
    draw, damaged = random.Random(seed), bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 4])):
        kind, at = draw.choice(["bits", "sectors", "burst", "burst"]), draw.randrange(len(damaged))
        if kind == "bits":
            for _ in range(draw.choice([1, 10, 200])):
                damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        elif kind == "sectors":
            for _ in range(draw.choice([1, 5, 30])):
                at = draw.randrange(len(damaged)) // 512 * 512
                damaged[at : at + 512] = draw.randbytes(len(damaged[at : at + 512]))
        else:
            size = int(burst * draw.choice([0.01, 0.3, 0.7, 1, 1.3]))
            damaged[at : at + size] = bytes(byte ^ 0xFF for byte in damaged[at : at + size])
    return bytes(damaged)
