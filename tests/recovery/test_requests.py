"""A remote object is checked and recovered with requests that follow from its bytes, not from its row groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq.cli.inspect.footer_facts import pages_of_column
from resilient_pq.errors import NotFoundError
from resilient_pq.io import LocalStore, MemoryStore
from resilient_pq.recovery import damaged_object as sources
from resilient_pq.recovery.damaged_object import open_source

ROW_GROUPS, ROWS = 150, 4
Verb = Callable[[rpq.io.ReadStore, str], Awaitable[Any]]


@pytest.fixture(scope="module")
def data(write_file: Any) -> bytes:
    """Many row groups of four chunks of some kB."""
    noise = np.random.default_rng(7)
    num_rows = ROW_GROUPS * ROWS
    rows = {"n": np.arange(num_rows), **{name: [noise.bytes(700) for _ in range(num_rows)] for name in "abc"}}
    written = asyncio.run(write_file(rows, row_group_rows=ROWS, checkpoint_every=50, compression="none"))
    return bytes(written.data)


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


async def check(store: Any, key: str) -> None:
    await rpq.check((store, key))


async def recover(store: Any, key: str) -> None:
    report = await rpq.recover((store, key), (MemoryStore(), "out"))
    assert report.kept is not None
    assert report.num_rows >= (ROW_GROUPS // 2) * ROWS


async def inspect(store: Any, key: str) -> None:
    async with rpq.open((store, key)) as file:
        assert len([page async for page in pages_of_column(file, "b")]) >= ROW_GROUPS


@pytest.mark.parametrize(
    ("verb", "damage"),
    [
        (check, lambda data: data[: len(data) * 2 // 3]),
        (recover, flipped),
        (recover, lambda data: data[: len(data) * 2 // 3]),
        *[
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in [
                (check, bytes),
                (check, flipped),
                (recover, bytes),
                (recover, lambda data: data[:-50]),
            ]
        ],
        (inspect, bytes),
    ],
)
async def test_small_row_groups_share_requests(data: bytes, verb: Verb, damage: Callable[[bytes], bytes]) -> None:
    store = RecordingStore(MemoryStore())
    await store.put("file", damage(data))
    store.calls.clear()
    await verb(store, "file")
    assert len(store.calls) <= ROW_GROUPS // 3, [call.verb for call in store.calls]


NUM_BYTES = 20_000
READS = st.lists(st.tuples(st.integers(0, NUM_BYTES), st.integers(0, 900), st.booleans()), max_size=60)


class Reading:
    """A source of some bytes, and the requests for them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(sources, "_FIRST_WINDOW", 64)
        patch.setattr(sources, "_LARGEST_WINDOW", 512)
        self.data = np.random.default_rng(1).bytes(NUM_BYTES)
        self.sizes: list[int] = []

    async def source(self) -> sources.DamagedObject:
        sizes = self.sizes

        class Noting(MemoryStore):
            async def read_range(self, key: str, start: int, end: int, *, pin: Any) -> Any:
                sizes.append(end - start)
                return await super().read_range(key, start, end, pin=pin)

        store = Noting()
        await store.put("a", self.data)
        return await open_source((store, "a"), None)


@settings(max_examples=30)
@given(READS)
@example([(0, 50, False), (10, 20, True)])
def test_any_reads_give_the_bytes_and_hold_few(reads: list[tuple[int, int, bool]]) -> None:
    async def compare(reading: Reading) -> None:
        source = await reading.source()
        for start, size, again in reads:
            end = min(start + size, NUM_BYTES)
            before = len(reading.sizes)
            assert await source.read(sources.ByteRange(start, end), again=again) == reading.data[start:end]
            assert len(reading.sizes) - before <= 1
            assert not (again and start < end) or len(reading.sizes) == before + 1
            held = sum(len(data) for _, data in source._windows._kept)
            assert held <= sources._NUM_WINDOWS * sources._LARGEST_WINDOW
        assert max(reading.sizes, default=0) <= 900

    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(compare(Reading(patch)))


@settings(max_examples=30)
@given(st.lists(st.integers(1, 300), min_size=20, max_size=60), st.booleans())
def test_neighbours_share_requests_in_either_direction(sizes: list[int], backward: bool) -> None:
    async def read(reading: Reading) -> None:
        source, at = await reading.source(), 0
        for size in sizes:
            end = min(at + size, NUM_BYTES)
            place = sources.ByteRange(NUM_BYTES - end, NUM_BYTES - at) if backward else sources.ByteRange(at, end)
            await source.read(place)
            at = end
        assert sum(reading.sizes) <= 3 * at + 512
        # A read across the edge of a window begins a new one: of 512 bytes at least 212 are new.
        assert len(reading.sizes) <= 6 + at // 212

    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(read(Reading(patch)))


async def test_the_store_of_a_missing_object_is_closed_by_who_opened_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def close(store: LocalStore) -> None:
        closed.append(store)

    closed: list[LocalStore] = []
    monkeypatch.setattr(LocalStore, "close", close)
    with pytest.raises(NotFoundError):
        await open_source(str(tmp_path / "a"), None)
    assert len(closed) == 1
    with pytest.raises(NotFoundError):
        await open_source((LocalStore(), str(tmp_path / "a")), None)
    assert len(closed) == 1


async def test_local_files_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    """A neighbour of what is wanted may lie on a bad sector."""
    (tmp_path / "a").write_bytes(bytes(5000))
    async with await open_source((LocalStore(), str(tmp_path / "a")), None) as source:
        for start in (0, 10, 20):
            await source.read(sources.ByteRange(start, start + 10))
        assert (source.counters.requests, source.counters.bytes) == (3, 30)
