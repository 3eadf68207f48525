"""One parallel wave of merged, pinned range reads: bounded in requests and in bytes, delivered as it arrives."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Container, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import field
from itertools import chain

import numpy as np

from resilient_pq import memory_pool
from resilient_pq.byte_ranges import ByteRange, union
from resilient_pq.errors import TransientError, Where
from resilient_pq.io.protocols import ReadStore
from resilient_pq.io.stored_object import ObjectInfo, ObjectTail
from resilient_pq.io.transfer.coalescing import MergedRange, MergeOptions, merge, smaller_blocks
from resilient_pq.io.transfer.fetch_counters import FetchCounters, counting
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.machine_limits import share_of_memory
from resilient_pq.off_event_loop import Turns, off_loop
from resilient_pq.units import MiB

__all__ = ["FetchCounters", "FetchOptions", "ObjectRange", "fetch", "fetch_groups", "fetch_places", "merge_all"]


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How a wave of reads is shaped."""

    merge: MergeOptions = field(default_factory=MergeOptions)  # When ranges share a request
    max_requests: int = 16  # Requests under way at one time
    # Bytes requested and not yet taken by the consumer; at least one request goes out, whatever its size. Wanted ranges
    # that were split are put together beside it
    memory_budget: int = share_of_memory(16, 64 * MiB)

    def __post_init__(self) -> None:
        """Refuse what could never fetch anything."""
        if self.max_requests < 1 or self.memory_budget < 1:
            raise ValueError("max_requests and memory_budget are at least 1")


DEFAULT_FETCH_OPTIONS = FetchOptions()


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """Bytes of one version of one object."""

    info: ObjectInfo  # The version; requests for it are pinned to it
    range: ByteRange  # Which bytes


def fetch(
    store: ReadStore,
    info: ObjectInfo,
    ranges: Sequence[ByteRange],
    *,
    options: FetchOptions = DEFAULT_FETCH_OPTIONS,
    counters: FetchCounters | None = None,
    in_order: bool = False,
) -> AsyncGenerator[tuple[int, memoryview], None]:
    """The bytes of every wanted range of one object, each as soon as it is whole.

    Leaving the loop early cancels what is still under way; wrap the call in `contextlib.aclosing` so that it
    happens there and then. New requests go out when the consumer comes back for the next range.
    """
    places = [ObjectRange(info, wanted) for wanted in ranges]
    return fetch_places(store, places, options=options, counters=counters, in_order=in_order)


async def fetch_places(
    store: ReadStore,
    places: Sequence[ObjectRange],
    *,
    options: FetchOptions = DEFAULT_FETCH_OPTIONS,
    counters: FetchCounters | None = None,
    in_order: bool = False,
    requests: asyncio.Semaphore | None = None,
) -> AsyncGenerator[tuple[int, memoryview], None]:
    """As `fetch`, of several objects in one wave: the bounds hold for all of them together."""
    groups = fetch_groups(
        store, places, options=options, counters=counters, in_order=in_order, requests=requests, group_bytes=1
    )
    async with aclosing(groups) as arriving:
        async for group in arriving:
            for delivery in group:
                yield delivery


async def fetch_groups(
    store: ReadStore,
    places: Sequence[ObjectRange],
    *,
    group_bytes: int,
    options: FetchOptions = DEFAULT_FETCH_OPTIONS,
    counters: FetchCounters | None = None,
    in_order: bool = False,
    requests: asyncio.Semaphore | None = None,
    tail: ObjectTail | None = None,
) -> AsyncGenerator[list[tuple[int, memoryview]], None]:
    """As `fetch_places`; what is there at one time comes together, where it is small."""
    at_hand = {} if tail is None else _at_hand(places, tail)
    merged = await off_loop(len(places), _requests, places, options, at_hand)
    wave = _Wave(store, places, merged, options, counters or FetchCounters(), in_order, requests, at_hand)
    turns = Turns()
    try:
        while not wave.done:
            wave.launch()
            group: list[tuple[int, memoryview]] = []
            size = 0
            for delivery in wave.take():
                await turns.give_way()
                group.append(delivery)
                size += len(delivery[1])
                if size >= group_bytes:
                    yield group
                    group, size = [], 0
                    wave.launch()
            if group:
                yield group
            wave.launch()
            await wave.progress()
    finally:
        await wave.cancel()


@dataclass(frozen=True, slots=True)
class _Request:
    """One request: the range asked for, and the piece of each wanted place in it, by the place's index."""

    info: ObjectInfo
    range: ByteRange
    parts: tuple[tuple[int, ByteRange], ...]


def _at_hand(places: Sequence[ObjectRange], tail: ObjectTail) -> dict[int, memoryview]:
    """The bytes of the places that lie in a tail, by their indexes."""
    parts = (tail.part(place.range.start, place.range.end) if place.info == tail.info else None for place in places)
    return {index: part for index, part in enumerate(parts) if part is not None}


def _requests(places: Sequence[ObjectRange], options: FetchOptions, at_hand: Container[int]) -> list[_Request]:
    """The requests that cover all other places, object by object in the order they first come, each by offset."""
    of_object: dict[ObjectInfo, list[int]] = {}
    for index, place in enumerate(places):
        if index not in at_hand:
            of_object.setdefault(place.info, []).append(index)
    merged = merge_all([[places[index].range for index in indexes] for indexes in of_object.values()], options)
    return [
        _Request(info, one.range, tuple((indexes[at], piece) for at, piece in one.parts))
        for (info, indexes), requests in zip(of_object.items(), merged, strict=True)
        for one in requests
    ]


def merge_all(ranges: Sequence[Sequence[ByteRange]], options: FetchOptions) -> list[list[MergedRange]]:
    """The requests of one wave for ranges of several objects, object by object."""
    # Where fewer would be under way than may be, blocks are smaller: a wave is as slow as its longest request.
    merged = [merge(of_object, options.merge) for of_object in ranges]
    smaller = smaller_blocks([*chain(*merged)], options.merge, options.max_requests, options.memory_budget)
    return merged if smaller is None else [merge(of_object, smaller) for of_object in ranges]


class _Wave:
    """The state of one fetch: what waits, what is under way, what has arrived."""

    def __init__(
        self,
        store: ReadStore,
        places: Sequence[ObjectRange],
        merged: list[_Request],
        options: FetchOptions,
        counters: FetchCounters,
        in_order: bool,
        requests: asyncio.Semaphore | None,
        at_hand: Mapping[int, memoryview],
    ) -> None:
        self._store = store
        self._places = places
        self._options = options
        self._counters = counters
        self._in_order = in_order
        self._requests: AbstractAsyncContextManager[object] = nullcontext() if requests is None else requests
        self._next_index = 0
        if in_order:
            # Requests go out in the order their ranges are delivered, so that a budget full of later ranges
            # can never stand in the way of the next one.
            merged.sort(key=lambda request: min(index for index, _ in request.parts))
        self._waiting = deque(merged)
        self._running: dict[asyncio.Task[memoryview], _Request] = {}
        self._held = 0  # bytes requested and not yet taken
        self._missing = [0] * len(places)  # pieces each wanted range still waits for
        self._assembled: dict[int, memoryview] = {}  # wanted ranges that come in several pieces
        for request in merged:
            for index, _ in request.parts:
                self._missing[index] += 1
        # (index, bytes, budget given back when it is taken)
        self._ready: dict[int, tuple[memoryview, _Lease | None]] = {
            index: (at_hand.get(index, memoryview(b"")), None) for index, count in enumerate(self._missing) if not count
        }
        self._arrived = deque(self._ready)  # in which order: to ask a dict for its first key is slow when many are gone
        self._undelivered = len(places)

    @property
    def done(self) -> bool:
        """Whether every wanted range was delivered."""
        return not self._undelivered

    def launch(self) -> None:
        """Send as many requests as the bounds allow, and one in any case when nothing else can bring progress."""
        while self._waiting:
            size = self._waiting[0].range.size
            fits = self._held + size <= self._options.memory_budget
            if self._running and (len(self._running) >= self._options.max_requests or not fits):
                return
            if not self._running and not fits and self._deliverable():
                return
            self._send(self._waiting.popleft())

    def _send(self, request: _Request) -> None:
        self._held += request.range.size
        task = asyncio.create_task(self._read(request))
        self._running[task] = request

    async def _read(self, request: _Request) -> memoryview:
        """One request's bytes, exactly."""
        info, wanted = request.info, request.range
        async with self._requests:
            self._counters.requests += 1
            self._counters.useful_bytes += sum(piece.size for piece in union(piece for _, piece in request.parts))
            with counting(self._counters):
                data = await self._store.read_range(info.key, wanted.start, wanted.end, pin=info)
        self._counters.bytes += len(data)
        if len(data) != wanted.size:
            raise TransientError(
                f"{self._store.name} gave {len(data):,} bytes for a range of {wanted.size:,}",
                where=Where(key=self._store.url_of(info.key), offset=wanted.start),
            )
        return memoryview(data)

    async def progress(self) -> None:
        """Wait until some request has ended, and keep what it brought."""
        if not self._running:
            return
        ended, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            data = task.result()
            self._receive(self._running.pop(task), data)

    def _receive(self, request: _Request, data: memoryview) -> None:
        """Hand the pieces of a request to the wanted ranges they belong to."""
        lease = _Lease(request.range.size)
        for index, piece in request.parts:
            wanted = self._places[index].range
            view = data[piece.start - request.range.start : piece.end - request.range.start]
            self._missing[index] -= 1
            if piece.size == wanted.size:
                lease.users += 1
                self._ready[index] = (view, lease)
                self._arrived.append(index)
                continue
            if index not in self._assembled:
                self._assembled[index] = memory_pool.empty((wanted.size,), np.uint8).data
            target = self._assembled[index]
            target[piece.start - wanted.start : piece.end - wanted.start] = view
            if not self._missing[index]:
                self._ready[index] = (self._assembled.pop(index).toreadonly(), None)
                self._arrived.append(index)
        if not lease.users:
            self._held -= lease.size

    def _deliverable(self) -> bool:
        return self._next_index in self._ready if self._in_order else bool(self._ready)

    def take(self) -> Iterator[tuple[int, memoryview]]:
        """What can be delivered now; budget is given back when the consumer asks for the next one."""
        while self._deliverable():
            index = self._next_index if self._in_order else self._arrived.popleft()
            data, lease = self._ready.pop(index)
            self._next_index += 1
            self._undelivered -= 1
            yield index, data
            if lease is not None:
                lease.users -= 1
                if not lease.users:
                    self._held -= lease.size

    async def cancel(self) -> None:
        """End every request that is under way, and wait until it has ended."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()


@dataclass(slots=True)
class _Lease:
    """The budget of one request, shared by the wanted ranges that came whole in it."""

    size: int
    users: int = 0
