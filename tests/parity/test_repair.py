"""Files that are damaged, cut, or missing come back bit for bit, exactly where the geometry of their parity says so."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from sampled import either

import resilient_pq as rpq
from resilient_pq.io import MemoryStore
from resilient_pq.parity.group_shape import GroupShape, ParityShare, group_shapes
from resilient_pq.parity.sidecar_index import MIRROR_BYTES, padded

NAME = "day.parquet"
SIZES = [MIRROR_BYTES + 1, 77_000, 300_001, (1 << 20) + 5, 3 << 20]


@dataclass
class Protected:
    """A file, and the sidecar that was made of it."""

    data: bytes
    sidecar: bytes
    shape: GroupShape

    async def repaired(self, damaged: bytes | None, sidecar: bytes | None = None) -> bytes:
        store = MemoryStore()
        if damaged is not None:
            await store.put(NAME, damaged)
        await store.put(f"{NAME}.rpqparity", self.sidecar if sidecar is None else sidecar)
        try:
            await rpq.repair((store, NAME), (store, "new"))
        except rpq.RepairError:
            assert not await store.exists("new")
            raise
        return bytes((await store.read_tail("new", 1 << 30)).data)

    def is_within_the_parity(self, damaged: bytes) -> bool:
        """Whether no column lost more blocks than there are parity shards, by comparing the bytes."""
        size, lost = self.shape.block_bytes, np.zeros(self.shape.num_data * self.shape.num_columns, np.int64)
        moved = len(damaged) - len(self.data)
        for number, at in enumerate(range(0, len(self.data), size)):
            block = self.data[at : at + size]
            elsewhere = damaged[at + moved : at + moved + len(block)] if at + moved >= 0 else b""
            lost[number] = block not in (damaged[at : at + size][: len(block)], elsewhere)
        return bool((lost.reshape(-1, self.shape.num_columns).sum(axis=0) <= self.shape.num_parity).all())


async def protected(size: int, parity: str = "5%") -> Protected:
    data = np.random.default_rng(size).bytes(size)
    store = MemoryStore()
    await store.put(NAME, data)
    protection = await rpq.protect((store, NAME), parity=parity)
    sidecar = bytes((await store.read_tail(f"{NAME}.rpqparity", 1 << 30)).data)
    shape = next(group_shapes(padded(size), ParityShare.parse(parity)))
    assert protection.size == len(sidecar) and protection.num_bytes == size and protection.num_groups == 1
    assert protection.burst_bytes == min(shape.burst_bytes, padded(size))
    return Protected(data, sidecar, shape)


@pytest.fixture
async def small() -> Protected:
    return await protected(77_000)


class Damage:
    """Damages of several kinds, drawn one after another."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def to(self, data: bytes, burst: int) -> bytes:
        damaged = bytearray(data)
        for _ in range(self._draw.choice([1, 1, 2, 5])):
            kind = self._draw.choice(["bits", "sectors", "burst", "head", "tail", "missing", "more"])
            at = self._draw.randrange(len(damaged) + 1)
            size = int(burst * self._draw.choice([0.01, 0.3, 0.7, 1, 1.3]))
            if kind == "bits" and damaged:
                for _ in range(self._draw.choice([1, 10, 100])):
                    damaged[self._draw.randrange(len(damaged))] ^= 1 << self._draw.randrange(8)
            elif kind == "sectors":
                for _ in range(self._draw.choice([1, 5, 20])):
                    at = self._draw.randrange(len(damaged) + 1) // 512 * 512
                    damaged[at : at + 512] = self._draw.randbytes(len(damaged[at : at + 512]))
            elif kind == "burst":
                damaged[at : at + size] = bytes(len(damaged[at : at + size]))
            elif kind == "head":
                del damaged[:size]
            elif kind == "tail":
                del damaged[len(damaged) - min(size, len(damaged)) :]
            elif kind == "missing":
                del damaged[at : at + size]
            elif kind == "more":
                damaged[at:at] = self._draw.randbytes(min(size, 999))
        return bytes(damaged)


@pytest.mark.parametrize(("size", "count"), either([(77_000, 60)], [(size, 1000) for size in SIZES]))
async def test_what_the_geometry_allows_comes_back_and_nothing_else(size: int, count: int) -> None:
    file = await protected(size)
    for seed in range(count):
        damaged = Damage(seed).to(file.data, file.shape.burst_bytes)
        if file.is_within_the_parity(damaged):
            assert await file.repaired(damaged) == file.data
        else:
            with pytest.raises(rpq.RepairError, match="cannot be rebuilt"):
                await file.repaired(damaged)


@pytest.mark.parametrize("size", SIZES)
async def test_the_longest_burst_comes_back_wherever_it_begins(size: int) -> None:
    file = await protected(size)
    length, block = min(size, file.shape.burst_bytes), file.shape.block_bytes
    for start in [0, 1, block - 1, block, 3 * block + 77, size // 2, size - length - 1, size - length]:
        damaged = bytearray(file.data)
        damaged[start : start + length] = bytes(byte ^ 0xFF for byte in damaged[start : start + length])
        assert await file.repaired(bytes(damaged)) == file.data


@pytest.mark.parametrize("size", [0, 1, 100, 4096, MIRROR_BYTES])
async def test_a_small_file_comes_back_even_when_it_is_missing(size: int) -> None:
    store = MemoryStore()
    data = np.random.default_rng(size).bytes(size)
    await store.put(NAME, data)
    protection = await rpq.protect((store, NAME))
    assert protection.burst_bytes == size and protection.num_groups == 0
    await store.delete(NAME)
    await rpq.repair((store, NAME), (store, "new"))
    assert bytes((await store.read_tail("new", 1 << 20)).data) == data


async def test_a_missing_file_of_a_folder_comes_back() -> None:
    store, draw = MemoryStore(), np.random.default_rng(1)
    files = {f"day/{i}.parquet": draw.bytes(size) for i, size in enumerate([20_000, 1, 300_000, 9_000, 0])}
    for key, data in files.items():
        await store.put(key, data)
    protection = await rpq.protect([(store, key) for key in files], parity="10%")
    assert protection.url.endswith("day/_folder.rpqparity") and protection.num_files == 5
    for lost in ["day/0.parquet", "day/1.parquet", "day/3.parquet", "day/4.parquet"]:
        assert len(files[lost]) <= protection.burst_bytes
        await store.delete(lost)
        with pytest.raises(rpq.NotFoundError):
            await rpq.repair((store, "day/other.parquet"), (store, "new"))
        await rpq.repair((store, lost), (store, lost))
        assert bytes((await store.read_tail(lost, 1 << 20)).data) == files[lost]
    await store.delete("day/2.parquet")
    with pytest.raises(rpq.RepairError):
        await rpq.repair((store, "day/2.parquet"), (store, "new"))


async def test_a_sidecar_that_is_damaged_too(small: Protected) -> None:
    """Both records of a group, both indexes and the parity shards are damaged in turn, and the file."""
    damaged = bytearray(small.data)
    damaged[5000:7000] = bytes(2000)
    whole, draw = small.sidecar, random.Random(3)
    for _ in range(60):
        sidecar = bytearray(whole)
        at = draw.randrange(len(sidecar))
        sidecar[at : at + 64] = draw.randbytes(len(sidecar[at : at + 64]))
        assert await small.repaired(bytes(damaged), bytes(sidecar)) == small.data


async def test_a_changed_bit_of_a_sidecar_never_makes_a_wrong_file(small: Protected) -> None:
    damaged = bytearray(small.data)
    damaged[5000:5700] = bytes(700)
    draw = random.Random(4)
    for _ in range(100):
        sidecar = bytearray(small.sidecar)
        for _ in range(draw.choice([1, 30, 2000])):
            sidecar[draw.randrange(len(sidecar))] ^= 1 << draw.randrange(8)
        cut = draw.choice([len(sidecar)] * 3 + [draw.randrange(len(sidecar))])
        try:
            assert await small.repaired(bytes(damaged), bytes(sidecar[:cut])) == small.data
        except (rpq.RepairError, rpq.FormatError):
            continue


async def test_the_sidecar_of_an_older_version_is_not_applied(small: Protected) -> None:
    """Half of the blocks are those of a newer version."""
    newer = np.random.default_rng(9).bytes(len(small.data) // 2) + small.data[len(small.data) // 2 :]
    with pytest.raises(rpq.RepairError, match="cannot be rebuilt"):
        await small.repaired(newer)


async def test_checksums_alone_find_damage_and_repair_nothing() -> None:
    store = MemoryStore()
    data = np.random.default_rng(2).bytes(100_000)
    await store.put(NAME, data)
    protection = await rpq.protect((store, NAME), checksums_only=True)
    assert protection.burst_bytes == 0 and protection.overhead < 0.05
    done = await rpq.repair((store, NAME), (store, "new"))
    assert (done.num_blocks_damaged, done.num_blocks) == (0, 200)
    await store.put(NAME, data[:5000] + b"?" + data[5001:])
    with pytest.raises(rpq.RepairError, match=r"damaged blocks: 1, of which 1 "):
        await rpq.repair((store, NAME), (store, "new2"))


@pytest.mark.parametrize("parity", ["1%", "5%", "30%", "100%"])
async def test_files_with_more_and_with_less_parity(parity: str) -> None:
    file = await protected(200_000, parity)
    damaged = bytearray(file.data)
    burst = min(len(damaged), file.shape.burst_bytes)
    damaged[:burst] = bytes(burst)
    assert await file.repaired(bytes(damaged)) == file.data


async def test_names_that_one_sidecar_cannot_have() -> None:
    store = MemoryStore()
    for key in ("a/1", "a/2", "b/1"):
        await store.put(key, b"x" * 9)
    for keys in ([], ["a/1", "b/1"], ["a/1", "a/1"]):
        with pytest.raises(rpq.SchemaError):
            await rpq.protect([(store, key) for key in keys])
    with pytest.raises(rpq.NotFoundError):
        await rpq.protect((store, "a/3"))
    await rpq.protect((store, "a/1"))
    with pytest.raises(rpq.AlreadyExistsError):
        await rpq.protect((store, "a/1"))
    await rpq.protect((store, "a/1"), overwrite=True)
    with pytest.raises(rpq.NotFoundError, match="no sidecar"):
        await rpq.repair((store, "b/1"), (store, "new"))
