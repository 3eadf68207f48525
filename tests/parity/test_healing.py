"""Reads of a damaged file beside which there is a sidecar: they give what was written, and tell."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import resilient_pq as rpq
from resilient_pq.io import MemoryStore

ROWS = 40_000
COLUMNS = {"a": np.arange(ROWS), "b": np.random.default_rng(1).random(ROWS)}


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    async with rpq.create((store, "a"), row_group_rows=ROWS // 4) as writer:
        await writer.write(COLUMNS)
    await rpq.protect((store, "a"))
    return store


async def data_of(store: MemoryStore) -> bytearray:
    return bytearray((await store.read_tail("a", 1 << 30)).data)


async def rot(store: MemoryStore, damage: Callable[[bytearray], None]) -> None:
    """Change bytes as a disk does that rots: the version of the object stays."""
    data = await data_of(store)
    damage(data)
    info, _ = store._objects["a"]
    store._objects["a"] = (info, bytes(data))


def values(table: rpq.Table) -> dict[str, list[float]]:
    return table.to_pydict()


async def test_a_damaged_chunk_is_read_and_told_once(store: MemoryStore) -> None:
    async with rpq.open((store, "a")) as file:
        expected = await file.read()
        chunk = file.metadata.row_groups[2].columns[1].meta_data
        assert not file.healed
    await rot(
        store,
        lambda data: data.__setitem__(slice(chunk.data_page_offset + 900, chunk.data_page_offset + 1400), bytes(500)),
    )
    told: list[rpq.HealedChunk] = []
    with pytest.warns(rpq.HealedFileWarning, match="rpq repair") as warned:
        async with rpq.open((store, "a"), on_healed=told.append) as file:
            table = await file.read()
            again = await file.read(["b"])
            assert [(each.row_group, each.column) for each in file.healed] == [(2, "b")] * 2
    assert values(table) == values(expected) and values(again)["b"] == values(expected)["b"]
    assert len(warned) == 1 and len(told) == 2 and told[0].num_blocks >= 1
    with pytest.raises(rpq.ChecksumError):
        async with rpq.open((store, "a"), heal=False) as file:
            await file.read()


async def test_a_page_whose_header_is_damaged_is_read(store: MemoryStore) -> None:
    """It fails before any checksum is compared."""
    async with rpq.open((store, "a")) as file:
        at = file.metadata.row_groups[2].columns[1].meta_data.data_page_offset
    await rot(store, lambda data: data.__setitem__(slice(at - 10, at + 20), bytes(30)))
    with pytest.warns(rpq.HealedFileWarning):
        async with rpq.open((store, "a")) as file:
            assert values(await file.read())["b"] == COLUMNS["b"].tolist()
    with pytest.raises(rpq.FormatError, match="page header is damaged"):
        async with rpq.open((store, "a"), heal=False) as file:
            await file.read()


@pytest.mark.parametrize("policy", ["null", "drop"])
async def test_nothing_is_lost_that_can_be_rebuilt(store: MemoryStore, policy: str) -> None:
    async with rpq.open((store, "a")) as file:
        expected = await file.read()
        at = file.metadata.row_groups[0].columns[1].meta_data.data_page_offset
    await rot(store, lambda data: data.__setitem__(at + 100, data[at + 100] ^ 1))
    lost: list[rpq.LostRegion] = []
    with pytest.warns(rpq.HealedFileWarning):
        async with rpq.open((store, "a"), on_damage=policy, on_lost=lost.append) as file:
            assert values(await file.read()) == values(expected)
    assert not lost


async def test_a_damaged_footer_is_read(store: MemoryStore) -> None:
    await rot(store, lambda data: data.__setitem__(slice(len(data) - 300, len(data)), bytes(300)))
    with pytest.warns(rpq.HealedFileWarning):
        async with rpq.open((store, "a")) as file:
            assert file.num_rows == ROWS and file.healed[0].row_group is None
            assert values(await file.read())["a"] == list(range(ROWS))


async def test_a_read_without_damage_asks_for_no_parity(store: MemoryStore) -> None:
    await store.delete("a.rpqparity")
    await store.put("a.rpqparity", b"no sidecar")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with rpq.open((store, "a")) as file:
            assert len((await file.read())["a"]) == ROWS


async def test_what_cannot_be_rebuilt_is_an_error_as_without_parity(store: MemoryStore) -> None:
    await rot(store, lambda data: data.__setitem__(slice(200, len(data) - 5000), bytes(len(data) - 5200)))
    async with rpq.open((store, "a")) as file:
        with pytest.raises(rpq.FormatError, match="row group"):
            await file.read()
    async with rpq.open((store, "a"), on_damage="drop") as file:
        assert (await file.read()).num_rows < ROWS


async def test_the_sidecar_of_an_older_version_gives_no_old_rows(store: MemoryStore) -> None:
    """The new version has the same size, and other rows; its footer and a page are damaged then."""
    old = bytes(await data_of(store))
    async with rpq.create((store, "a"), row_group_rows=ROWS // 4) as writer:
        await writer.write({"a": COLUMNS["a"] + 1, "b": COLUMNS["b"]})
    new = await data_of(store)
    async with rpq.open((store, "a")) as file:
        at = file.metadata.row_groups[0].columns[0].meta_data.data_page_offset
    new[at + 50] ^= 1
    await store.put("a", bytes(new))
    async with rpq.open((store, "a")) as file:
        with pytest.raises(rpq.ChecksumError):
            await file.read(["a"])
    await store.put("a", bytes(new[:-100]))
    with pytest.raises(rpq.TornFileError):
        await rpq.open((store, "a"))
    assert old != bytes(new)
