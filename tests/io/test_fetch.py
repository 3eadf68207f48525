"""The wave of reads: the right bytes, the requests asked for, and the bounds kept."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest
from faulty_store import Fault, FaultyStore
from hypothesis import given
from hypothesis import strategies as st
from store_wrapper import Call, RecordingStore

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import NotFoundError, ObjectChangedError, TransientError
from resilient_pq.io import ObjectInfo
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.io.transfer.coalescing import MergeOptions
from resilient_pq.io.transfer.fetch import FetchOptions, ObjectRange, fetch, fetch_groups, fetch_places
from resilient_pq.io.transfer.fetch_counters import FetchCounters, add_counts
from resilient_pq.units import MiB

DATA = bytes(range(256)) * 16  # 4 KiB
APART = MergeOptions(always_gap=0, wide_gap=0, block_bytes=256)


class GatedStore(MemoryStore):
    """Reads wait until they are let through; what runs at one time is measured."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.running = 0
        self.most_running = 0
        self.running_bytes = 0
        self.most_bytes = 0
        self.ended: list[int] = []

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        self.running += 1
        self.running_bytes += end - start
        self.most_running = max(self.most_running, self.running)
        self.most_bytes = max(self.most_bytes, self.running_bytes)
        try:
            await self.open.wait()
            await asyncio.sleep(0)
            return await super().read_range(key, start, end, pin=pin)
        finally:
            self.running -= 1
            self.running_bytes -= end - start
            self.ended.append(start)


async def gather(store: MemoryStore, ranges: list[ByteRange], **options: object) -> list[tuple[int, bytes]]:
    info = await store.put("a", DATA)
    return [(index, bytes(data)) async for index, data in fetch(store, info, ranges, **options)]  # type: ignore[arg-type]


async def settle() -> None:
    """Let every task run until it waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


byte_ranges = st.builds(
    lambda start, size: ByteRange(start, min(start + size, len(DATA))),
    st.integers(0, len(DATA)),
    st.integers(0, 900),
)


@given(
    ranges=st.lists(byte_ranges, max_size=12),
    always_gap=st.integers(0, 200),
    block_bytes=st.integers(16, 600),
    max_requests=st.integers(1, 4),
    memory_budget=st.integers(1, 1500),
    in_order=st.booleans(),
)
def test_every_range_comes_once_with_its_bytes(
    ranges: list[ByteRange],
    always_gap: int,
    block_bytes: int,
    max_requests: int,
    memory_budget: int,
    in_order: bool,
) -> None:
    options = FetchOptions(
        MergeOptions(always_gap=always_gap, wide_gap=0, block_bytes=block_bytes), max_requests, memory_budget
    )
    found = asyncio.run(gather(MemoryStore(), ranges, options=options, in_order=in_order))
    assert sorted(found) == [(index, DATA[one.start : one.end]) for index, one in enumerate(ranges)]
    if in_order:
        assert [index for index, _ in found] == list(range(len(ranges)))


async def test_requests_are_the_merged_ranges() -> None:
    store = RecordingStore(MemoryStore())
    info = await store.put("a", DATA)
    counters = FetchCounters()
    wanted = [ByteRange(100, 200), ByteRange(2000, 2010), ByteRange(250, 300)]
    options = FetchOptions(MergeOptions(always_gap=64, wide_gap=0))
    async for _ in fetch(store, info, wanted, options=options, counters=counters):
        pass
    assert store.calls[1:] == [Call("read_range", "a", 100, 300), Call("read_range", "a", 2000, 2010)]
    assert counters == FetchCounters(requests=2, bytes=210, useful_bytes=160)


async def test_overlapping_ranges_are_useful_once() -> None:
    store = MemoryStore()
    info = await store.put("a", DATA)
    counters = FetchCounters()
    wanted = [ByteRange(0, 100), ByteRange(50, 150), ByteRange(0, 100)]
    found = {index: bytes(data) async for index, data in fetch(store, info, wanted, counters=counters)}
    assert found == {0: DATA[:100], 1: DATA[50:150], 2: DATA[:100]}
    assert counters == FetchCounters(requests=1, bytes=150, useful_bytes=150)


async def test_requests_and_bytes_are_bounded() -> None:
    store = GatedStore()
    store.open.set()
    ranges = [ByteRange(at, at + 256) for at in range(0, len(DATA), 256)]
    await gather(store, ranges, options=FetchOptions(APART, max_requests=3))
    assert store.most_running == 3
    store = GatedStore()
    store.open.set()
    await gather(store, ranges, options=FetchOptions(APART, memory_budget=600))
    assert store.most_bytes == 512


async def test_what_was_not_taken_counts_against_the_budget() -> None:
    """A consumer that stops taking stops the requests too."""
    store = RecordingStore(MemoryStore())
    info = await store.put("a", DATA)
    ranges = [ByteRange(at, at + 256) for at in range(0, len(DATA), 256)]
    wave = fetch(store, info, ranges, options=FetchOptions(APART, memory_budget=1024))
    async with aclosing(wave):
        await anext(wave)
        await settle()
        assert store.count("read_range") == 4


async def test_what_came_in_pieces_gives_its_budget_back() -> None:
    """A range of several requests has bytes of its own; what was held for these is free for others."""
    store = GatedStore()
    store.open.set()
    wanted = [ByteRange(0, 1536), *(ByteRange(at, at + 256) for at in range(1792, 4096, 512))]
    options = FetchOptions(replace(APART, block_bytes=512), max_requests=2, memory_budget=1536)
    info = await store.put("a", DATA)
    async for index, _ in fetch(store, info, wanted, options=options, in_order=True):
        if index == 0:
            store.most_running = 0
    assert store.most_running == 2


async def test_one_request_goes_out_whatever_its_size() -> None:
    found = await gather(MemoryStore(), [ByteRange(0, 4096)], options=FetchOptions(memory_budget=1))
    assert found == [(0, DATA)]


async def test_a_full_budget_never_stands_in_the_way_of_order() -> None:
    """The first range lies last in the object, and is all that fits."""
    wanted = [ByteRange(3840, 4096), *(ByteRange(at, at + 256) for at in range(0, 3840, 256))]
    options = FetchOptions(APART, memory_budget=300)
    found = await gather(MemoryStore(), wanted, options=options, in_order=True)
    assert [index for index, _ in found] == list(range(len(wanted)))


BACKWARDS = [ByteRange(at, at + 256) for at in range(3840, -1, -256)]


@pytest.mark.parametrize("wanted", [BACKWARDS, [BACKWARDS[0], *BACKWARDS[:1:-1], BACKWARDS[1]]], ids=["", "merged"])
async def test_in_order_the_budget_holds_wherever_the_ranges_lie(wanted: list[ByteRange]) -> None:
    """What is next has its place in the budget, together with the last one too: what lies before it is not first."""
    counters = FetchCounters()
    info = await (store := MemoryStore()).put("a", DATA)
    merging = replace(APART, block_bytes=512) if wanted[-1].start else APART
    options = FetchOptions(merging, max_requests=1, memory_budget=1024)
    wave = fetch(store, info, wanted, options=options, counters=counters, in_order=True)
    taken = 0
    async with aclosing(wave):
        async for index, data in wave:
            assert (index, data) == (taken // 256, DATA[wanted[index].start : wanted[index].end])
            await settle()
            assert counters.bytes - taken <= 1024
            taken += len(data)
    assert taken == len(DATA)


async def test_leaving_early_cancels_what_is_under_way() -> None:
    store = GatedStore()
    info = await store.put("a", DATA)
    before = asyncio.all_tasks()
    ranges = [ByteRange(0, 0), *(ByteRange(at, at + 10) for at in range(0, 3000, 500))]
    async with aclosing(fetch(store, info, ranges, options=FetchOptions(APART))) as wave:
        async for index, data in wave:
            assert (index, bytes(data)) == (0, b"")  # the empty range needs no request
            await settle()
            assert store.running == 6
            break
    assert store.running == 0
    assert len(store.ended) == 6
    assert asyncio.all_tasks() == before


async def test_cancelling_the_consumer_cancels_what_is_under_way() -> None:
    store = GatedStore()
    info = await store.put("a", DATA)

    async def consume() -> None:
        async for _ in fetch(store, info, [ByteRange(0, 10), ByteRange(3000, 3010)], options=FetchOptions(APART)):
            pass

    task = asyncio.create_task(consume())
    await settle()
    assert store.running == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.running == 0


async def test_the_first_error_is_raised_as_it_is_and_ends_the_rest() -> None:
    inner = GatedStore()
    store = FaultyStore(inner, [Fault("read_range", NotFoundError("gone"), skip=2)])
    info = await store.put("a", DATA)
    ranges = [ByteRange(at, at + 10) for at in range(0, 3000, 500)]
    with pytest.raises(NotFoundError, match="gone"):
        async for _ in fetch(store, info, ranges, options=FetchOptions(APART)):
            pass
    assert inner.running == 0


async def test_a_store_that_breaks_its_word_is_found_out() -> None:
    store = FaultyStore(MemoryStore(), [Fault("read_range", cut_to=5)])
    info = await store.put("a", DATA)
    with pytest.raises(TransientError, match="5 bytes for a range of 10"):
        async for _ in fetch(store, info, [ByteRange(0, 10)]):
            pass


async def test_the_pin_is_handed_to_every_request() -> None:
    store = MemoryStore()
    info = await store.put("a", DATA)
    await store.put("a", DATA)
    with pytest.raises(ObjectChangedError):
        async for _ in fetch(store, info, [ByteRange(0, 10)]):
            pass


async def test_retries_inside_the_store_are_counted_apart() -> None:
    class Retrying(MemoryStore):
        async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
            add_counts(retries=1, resumed=start > 0)
            return await super().read_range(key, start, end, pin=pin)

    store, first, second = Retrying(), FetchCounters(), FetchCounters()
    info = await store.put("a", DATA)
    async for _ in fetch(store, info, [ByteRange(0, 10)], counters=first):
        async for _ in fetch(store, info, [ByteRange(5, 10)], counters=second):
            pass
    add_counts(retries=1, resumed=True)  # nobody counts here
    assert (first.retries, first.resumed) == (1, 0)
    assert (second.retries, second.resumed) == (1, 1)


@pytest.mark.parametrize("bound", [{"max_requests": 0}, {"memory_budget": 0}])
def test_bounds_that_could_never_fetch(bound: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        FetchOptions(**bound)  # type: ignore[arg-type]


# --- several objects


@given(
    wanted=st.lists(st.tuples(st.sampled_from("abc"), byte_ranges), max_size=12),
    max_requests=st.integers(1, 4),
    memory_budget=st.integers(1, 3000),
    in_order=st.booleans(),
    merge=st.sampled_from([APART, MergeOptions()]),
)
async def test_places_of_several_objects(
    wanted: list[tuple[str, ByteRange]],
    max_requests: int,
    memory_budget: int,
    in_order: bool,
    merge: MergeOptions,
) -> None:
    """Every place gets the bytes of its own object, in one wave, and requests of two objects never share."""
    contents = {"a": DATA, "b": DATA[::-1], "c": bytes(len(DATA))}
    store = RecordingStore(MemoryStore())
    infos = {key: await store.put(key, data) for key, data in contents.items()}
    store.calls.clear()
    places = [ObjectRange(infos[key], one) for key, one in wanted]
    options = FetchOptions(merge, max_requests, memory_budget)
    found = [
        (index, bytes(data)) async for index, data in fetch_places(store, places, options=options, in_order=in_order)
    ]
    assert sorted(found) == [(index, contents[key][one.start : one.end]) for index, (key, one) in enumerate(wanted)]
    if in_order:
        assert [index for index, _ in found] == list(range(len(wanted)))
    assert {call.key for call in store.calls} == {key for key, one in wanted if one.size}


async def test_the_bounds_hold_for_all_objects_together() -> None:
    store = GatedStore()
    places = [ObjectRange(await store.put(f"{n}", DATA), ByteRange(0, 100)) for n in range(50)]

    async def drain() -> int:
        return len([one async for one in fetch_places(store, places, options=FetchOptions(max_requests=7))])

    task = asyncio.create_task(drain())
    await settle()
    assert store.running == 7
    store.open.set()
    assert await task == 50
    assert store.most_running == 7


async def test_waves_that_share_a_bound_keep_it_together() -> None:
    store = GatedStore()
    info = await store.put("a", DATA)
    places = [ObjectRange(info, ByteRange(at, at + 100)) for at in range(0, 4000, 200)]
    shared = asyncio.Semaphore(3)
    options = FetchOptions(APART, max_requests=8)

    async def drain() -> int:
        return len([one async for one in fetch_places(store, places, options=options, requests=shared)])

    tasks = [asyncio.create_task(drain()) for _ in range(4)]
    await settle()
    assert store.running == 3
    store.open.set()
    assert await asyncio.gather(*tasks) == [len(places)] * 4
    assert store.most_running == 3


async def test_one_object_of_several_is_replaced() -> None:
    store = MemoryStore()
    places = [ObjectRange(await store.put(f"{n}", DATA), ByteRange(0, 100)) for n in range(3)]
    await store.put("1", DATA)
    with pytest.raises(ObjectChangedError) as caught:
        async with aclosing(fetch_places(store, places)) as arriving:
            async for _ in arriving:
                pass
    assert caught.value.where.key == "memory:1"


async def test_what_is_at_hand_is_not_fetched() -> None:
    """Whole places in the tail of that very version; others are fetched and merged as ever."""
    store = RecordingStore(MemoryStore())
    for key in ("a", "b"):
        await store.put(key, DATA)
    tail, other = await store.read_tail("a", 1000), await store.head("b")
    begin = tail.offset
    ranges = [(begin, begin + 10), (begin - 1, begin + 5), (0, 10), (len(DATA) - 1, len(DATA)), (begin, begin)]
    places = [ObjectRange(tail.info, ByteRange(*one)) for one in ranges]
    places += [
        ObjectRange(other, ByteRange(begin, begin + 10)),
        ObjectRange(replace(tail.info, etag="new"), ByteRange(0, 0)),
    ]
    store.calls.clear()
    for in_order in (False, True):
        counters = FetchCounters()
        options = FetchOptions(APART)
        wave = fetch_groups(
            store, places, group_bytes=1, options=options, counters=counters, in_order=in_order, tail=tail
        )
        found = {index: bytes(data) async for group in wave for index, data in group}
        assert list(found) == sorted(found) or not in_order
        assert found == {i: DATA[place.range.start : place.range.end] for i, place in enumerate(places)}
        assert (counters.requests, counters.useful_bytes) == (3, 6 + 10 + 10)


async def test_small_places_that_arrive_together_come_together() -> None:
    store = RecordingStore(MemoryStore())
    await store.put("a", DATA)
    info = await store.head("a")
    places = [ObjectRange(info, ByteRange(10 * i, 10 * i + 10)) for i in range(20)]
    groups = [group async for group in fetch_groups(store, places, group_bytes=60)]
    assert [len(group) for group in groups] == [6, 6, 6, 2]
    assert {i: bytes(data) for group in groups for i, data in group} == {
        i: DATA[10 * i : 10 * i + 10] for i in range(20)
    }


@pytest.mark.parametrize(("pieces", "max_requests", "expected"), [(9, 16, 9), (9, 4, 4), (2, 16, 1), (900, 16, 9)])
async def test_a_few_long_requests_are_made_more(pieces: int, max_requests: int, expected: int) -> None:
    """As many as may be under way, but none is shorter than a mebibyte for it."""
    store = RecordingStore(MemoryStore())
    await store.put("a", bytes(9 * MiB))
    info = await store.head("a")
    size = min(MiB, 9 * MiB // pieces)
    places = [ObjectRange(info, ByteRange(size * i, size * i + size)) for i in range(pieces)]
    store.calls.clear()
    found = [one async for one in fetch_places(store, places, options=FetchOptions(max_requests=max_requests))]
    assert len(found) == pieces
    assert abs(len(store.calls) - expected) <= 1
