"""The bytes of indexes and bloom filters: from the tail that opening the file brought, else from the store. A shell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeVar

from resilient_pq.errors import ChecksumError, FormatError, located
from resilient_pq.io import ObjectTail
from resilient_pq.io.transfer.rereads import read_again
from resilient_pq.off_event_loop import Turns, off_loop
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.filter import index_ranges
from resilient_pq.reader.filter.index_ranges import IndexPlace
from resilient_pq.reader.filter.pruning import indexes_wanted, key_of, narrow_plan, worth_a_wave
from resilient_pq.reader.read_plan import ReadPlan

T = TypeVar("T")
InThread = Callable[..., Awaitable[Any]]


class IndexReader:
    """Reads the indexes of one file, and narrows plans by them."""

    def __init__(
        self, objects: ChunkObjects, tail: ObjectTail, *, verify: bool, wave_bytes: int, in_thread: InThread
    ) -> None:
        """Read nothing yet; `wave_bytes` as of `pruning.worth_a_wave`, `in_thread` makes a call in a thread."""
        self._objects = objects
        self._tail = tail
        self._verify = verify
        self._wave_bytes = wave_bytes
        self._in_thread = in_thread

    # -- a single index -------------------------------------------------------------

    async def read(self, place: IndexPlace, decode_bytes: Callable[[IndexPlace, memoryview], T]) -> T:
        """Read and decode an index."""
        data = await self._tail_or_fetch(place)
        if not place.complete:
            place = index_ranges.with_length(place, data)
            at_hand = place.range.size <= len(data)
            data = data[: place.range.size] if at_hand else await self._tail_or_fetch(place)
        found: list[T] = []

        async def is_whole(data: memoryview) -> bool:
            with suppress(ChecksumError):
                found.append(await self._in_thread(self._verify_and_decode, place, data, decode_bytes))
            return bool(found)

        if not await is_whole(data):
            damaged = await read_again(self._objects.store, lambda: self._fetch(place), is_whole, data)
            if damaged is not None:
                found.append(await self._in_thread(self._verify_and_decode, place, damaged, decode_bytes))
        return found[0]

    async def _tail_or_fetch(self, place: IndexPlace) -> memoryview:
        at_hand = self._at_hand(place)
        return await self._fetch(place) if at_hand is None else at_hand

    async def _fetch(self, place: IndexPlace) -> memoryview:
        with located(place.where):
            slack = 0 if place.complete else place.range.size - 1
            return await self._objects.read_range(place.file, place.range, slack=slack)

    def _verify_and_decode(
        self, place: IndexPlace, data: memoryview, decode_bytes: Callable[[IndexPlace, memoryview], T]
    ) -> T:
        if self._verify:
            index_ranges.check_sum(place, data)
        return decode_bytes(place, data)

    def _at_hand(self, place: IndexPlace) -> memoryview | None:
        """Bytes of the tail that opening the file read."""
        return None if place.file is not None else self._tail.part(place.range.start, place.range.end)

    # -- those that a plan can do with -----------------------------------------------------------

    async def narrow(
        self, contents: Contents, plan: ReadPlan, limit: int | None = None, *, fetch: bool = True
    ) -> ReadPlan:
        """Narrow a plan by indexes: costs a wave of requests for those worth it that the tail does not have."""
        wanted: list[IndexPlace] = await self._in_thread(indexes_wanted, contents, plan, limit)
        known: dict[tuple[str | None, int], memoryview] = {}
        while wanted:
            at_hand = await off_loop(
                len(wanted), lambda places: [(place, self._at_hand(place)) for place in places], wanted
            )
            missing = [place for place, data in at_hand if data is None]
            arrived = [(place, data) for place, data in at_hand if data is not None]
            if fetch:
                worth_it = await off_loop(len(missing), worth_a_wave, plan, missing, self._wave_bytes)
                arrived += await self._wave(worth_it)
            wanted = []
            turns = Turns()
            for place, data in arrived:
                await turns.give_way()
                if place.complete:
                    known[key_of(place)] = data
                    continue
                with suppress(FormatError):  # damaged: it tells nothing
                    whole = index_ranges.with_length(place, data)
                    if whole.range.size <= len(data):
                        known[key_of(place)] = data[: whole.range.size]
                    else:
                        wanted.append(whole)
        narrow: ReadPlan = await self._in_thread(
            partial(narrow_plan, contents, plan, known, limit, verify=self._verify)
        )
        return narrow

    async def _wave(self, places: Sequence[IndexPlace]) -> list[tuple[IndexPlace, memoryview]]:
        """The bytes of places, but of those that cannot lie where they are said to."""
        await self._objects.pin(place.file for place in places)
        inside = []
        turns = Turns()
        for place in places:
            await turns.give_way()
            with suppress(FormatError):
                slack = 0 if place.complete else place.range.size - 1
                inside.append((place, self._objects.place_in(place.file, place.range, slack=slack)))
        found: list[tuple[IndexPlace, memoryview]] = []
        async with aclosing(self._objects.fetch_places([at for _, at in inside])) as arriving:
            async for position, data in arriving:
                found.append((inside[position][0], data))
        return found
