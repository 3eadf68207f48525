"""Sidecars that somebody made to do harm: every checksum in them holds, and what they say does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import resilient_pq as rpq
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordChain, RecordKind
from resilient_pq.io import MemoryStore
from resilient_pq.parity.sidecar import Sidecar
from resilient_pq.parity.sidecar_index import MAGIC, SidecarIndex, pack_trailer

DATA = np.random.default_rng(1).bytes(60_000)


async def made(change: Callable[[dict[str, Any]], Any], mirror: bytes = b"") -> MemoryStore:
    """A store with a file and its sidecar, in whose index something was changed."""
    store = MemoryStore()
    await store.put("a", DATA)
    await rpq.protect((store, "a"))
    whole = bytes((await store.read_tail("a.rpqparity", 1 << 30)).data)
    fields = json.loads(SidecarIndex.pack((await Sidecar.read(store, "a.rpqparity")).index).partition(b"\n")[0])
    changed = change(fields)
    text = changed if isinstance(changed, bytes) else json.dumps(fields).encode()
    index = RecordChain(bytes(16)).record(
        RecordKind.SIDECAR_INDEX, len(whole), text + b"\n" + mirror, num_rows=0, num_row_groups=0
    )
    await store.put("a.rpqparity", whole + index + pack_trailer(len(whole), len(whole)))
    return store


def member(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda index: index["members"][0].update(fields)


async def test_the_index_that_is_changed_below_is_used() -> None:
    store = await made(member(name="another"))
    done = await rpq.repair((store, "a"), (store, "new"))
    assert done.num_blocks == 120 and bytes((await store.read_tail("new", 1 << 20)).data) == DATA
    store = await made(member(digest="0" * 32))
    with pytest.raises(rpq.RepairError, match="not the one"):
        await rpq.repair((store, "a"), (store, "new"))


@pytest.mark.parametrize(
    "change",
    [
        member(name="../a"),
        member(name="/etc/passwd"),
        member(name="b/c"),
        member(name="a\0b"),
        member(name=""),
        member(name=".."),
        member(size=-1),
        member(size=1 << 70),
        member(size=True),
        member(digest=7),
        lambda index: index.update(members=[]),
        lambda index: index.update(members={}),
        lambda index: index.update(members="ab"),
        lambda index: index.update(groups=["-1" * 16]),
        lambda index: index.update(groups=["f" * 32]),
        lambda index: index.update(groups=index["groups"] * 1000),
        lambda index: index.update(share="much"),
        lambda index: b"[" * 100_000,
        lambda index: b"1" * 5_000,
        lambda index: b"null",
    ],
)
async def test_an_index_that_says_what_no_sidecar_does(change: Callable[[dict[str, Any]], Any]) -> None:
    store = await made(change)
    with pytest.raises((rpq.FormatError, rpq.NotFoundError)):
        await rpq.repair((store, "a"), (store, "new"))
    assert not await store.exists("new")
    await rpq.check((store, "a"), deep=True)


@pytest.mark.parametrize("mirror", [b"short", b"x" * 70_000])
async def test_a_copy_of_another_size(mirror: bytes) -> None:
    store = await made(lambda index: index.update(groups=[]), mirror)
    with pytest.raises(rpq.FormatError):
        await rpq.repair((store, "a"), (store, "new"))


async def test_a_sidecar_full_of_headers_is_read_once() -> None:
    """Each names a payload of half of the file; the bytes that are read stay in proportion to its size."""
    size, chain = 2_000_000, RecordChain(bytes(16))
    data = bytearray(MAGIC.ljust(size, b"\0"))
    payload = bytes(size // 2)
    header = bytes(chain.record(RecordKind.SIDECAR_INDEX, 0, payload, num_rows=0, num_row_groups=0)[:HEADER_SIZE])
    for at in range(96, size // 2, 960):
        chain = RecordChain(bytes(16))
        header = bytes(chain.record(RecordKind.SIDECAR_INDEX, at, payload, num_rows=0, num_row_groups=0)[:HEADER_SIZE])
        data[at : at + HEADER_SIZE] = header
    store, read = MemoryStore(), []
    await store.put("a", DATA)
    await store.put("a.rpqparity", bytes(data))
    read_range = store.read_range

    async def counted(key: str, start: int, end: int, **how: Any) -> Any:
        read.append(ByteRange(start, end).size)
        return await read_range(key, start, end, **how)

    store.read_range = counted  # type: ignore[method-assign]
    with pytest.raises(rpq.FormatError):
        await rpq.repair((store, "a"), (store, "new"))
    assert sum(read) < 4 * size and len(read) < 50


async def test_a_newer_file_is_not_overwritten_with_an_old_copy(tmp_path: Any) -> None:
    path = tmp_path / "small.parquet"
    path.write_bytes(DATA[:9_000])
    await rpq.protect(path)
    path.write_bytes(DATA[9_000:18_000])
    with pytest.raises(rpq.RepairError, match="another version"):
        await rpq.repair(path, in_place=True)
    assert path.read_bytes() == DATA[9_000:18_000]
