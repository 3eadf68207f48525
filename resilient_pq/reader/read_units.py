"""What threads read of a local file and decode, one unit at a time. A shell."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from resilient_pq.byte_ranges import ByteRange, union
from resilient_pq.io import FetchCounters, ObjectInfo, ObjectRange, OpenObject
from resilient_pq.reader.arriving_chunks import ChunkTask
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.units import KiB

if TYPE_CHECKING:
    from resilient_pq.reader.row_groups import RowGroupWork

#: Neighbours are read in one piece up to this size.
_TOGETHER: Final = 128 * KiB
#: Gaps of at most so many bytes are read over: another call costs as much.
_GAP: Final = 4 * KiB
#: Bytes that are read before they are decoded, unless one chunk has more: so many stay in a processor's cache.
_UNIT: Final = 512 * KiB

#: A chunk, and where its ranges lie in their object.
Placed: TypeAlias = tuple[ChunkTask, tuple[ObjectRange, ...]]


@dataclass(slots=True)
class ReadUnit:
    """What a thread reads and decodes at once.

    Attributes:
        info: The object.
        reads: The bytes to read.
        pieces: The chunks in them; for each of their ranges, the number of the read that it lies in, and where.
        size: Bytes that are read.
        useful_bytes: Bytes of those that are wanted.
    """

    info: ObjectInfo
    reads: list[ByteRange]
    pieces: list[tuple[ChunkTask, list[tuple[int, int, int]]]]
    size: int = 0
    useful_bytes: int = 0

    def add(self, run: Sequence[Placed]) -> None:
        """Add chunks that lie close together, or one with several ranges."""
        first, places = run[0]
        if len(places) > 1:
            number = len(self.reads)
            self.reads += [place.range for place in places]
            self.pieces.append((first, [(number + at, 0, place.range.size) for at, place in enumerate(places)]))
            size = useful = sum([place.range.size for place in places])
        else:
            ranges = [places[0].range for _, places in run]
            start = ranges[0].start
            self.pieces += [
                (piece, [(len(self.reads), each.start - start, each.end - start)])
                for (piece, _), each in zip(run, ranges, strict=True)
            ]
            size = useful = ranges[0].size
            if len(run) > 1:
                size = max([each.end for each in ranges]) - start
                useful = sum([each.size for each in union(ranges)])
            self.reads.append(ranges[0] if len(run) == 1 else ByteRange(start, start + size))
        self.size += size
        self.useful_bytes += useful


def read_units(pieces: Sequence[ChunkTask], objects: ChunkObjects) -> Iterator[ReadUnit]:
    """The units of all row groups; of each row group the largest first, so that the threads end at the same time."""
    small: ReadUnit | None = None
    for _, of_group in groupby(pieces, key=attrgetter("group")):
        placed = [(piece, objects.places_of(piece.chunk)) for piece in of_group]
        placed.sort(key=lambda one: (one[0].chunk.file or "", one[1][0].range.start))
        large: list[ReadUnit] = []
        for run in _runs(placed):
            info = run[0][1][0].info
            unit = ReadUnit(info, [], [])
            unit.add(run)
            if unit.size >= _UNIT:
                large.append(unit)
            elif small is None or small.info is not info or small.size + unit.size > _UNIT:
                if small is not None:
                    yield small
                small = unit
            else:
                small.add(run)
        yield from sorted(large, key=attrgetter("size"), reverse=True)
    if small is not None:
        yield small


def _runs(placed: Sequence[Placed]) -> Iterator[list[Placed]]:
    """The chunks that are read in one piece."""
    run: list[Placed] = []
    for one in placed:
        if run and not _together(run[0][1], run[-1][1], one[1]):
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def _together(first: Sequence[ObjectRange], last: Sequence[ObjectRange], following: Sequence[ObjectRange]) -> bool:
    """Whether a chunk is read with those before it."""
    if len(last) > 1 or len(following) > 1:
        return False
    near = following[0].range.start - last[0].range.end <= _GAP
    return near and first[0].info is following[0].info and following[0].range.end - first[0].range.start <= _TOGETHER


class ReadQueue:
    """Read units, for threads to take until there are none left."""

    def __init__(
        self, work: RowGroupWork, objects: ChunkObjects, opener: Callable[[ObjectInfo], OpenObject], memory_budget: int
    ) -> None:
        """Read nothing yet."""
        self.counters = FetchCounters()
        self._work = work
        self._objects = objects
        self._opener = opener
        self._waiting = deque(read_units(work.pieces, objects))
        self._budget = memory_budget
        self._held = 0
        self._changed = threading.Condition()

    def drop(self) -> None:
        """Do no more."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()

    def do_all(self) -> None:
        """Read and decode until nothing is left to do, or something failed."""
        opened: OpenObject | None = None
        info: ObjectInfo | None = None
        try:
            while (unit := self._take()) is not None:
                try:
                    if opened is None or unit.info is not info:
                        if opened is not None:
                            opened.close()
                        opened, info = None, unit.info
                        opened = self._opener(info)
                    self._do(unit, opened)
                finally:
                    self._done(unit)
        except BaseException:
            self.drop()
            raise
        finally:
            if opened is not None:
                opened.close()

    def _take(self) -> ReadUnit | None:
        """The next unit, as soon as there is memory for it; one at a time is taken whatever its size."""
        with self._changed:
            while self._waiting:
                size = self._waiting[0].size
                if not self._held or self._held + size <= self._budget:
                    self._held += size
                    return self._waiting.popleft()
                self._changed.wait()
        return None

    def _done(self, unit: ReadUnit) -> None:
        with self._changed:
            self._held -= unit.size
            self._changed.notify_all()

    def _do(self, unit: ReadUnit, opened: OpenObject) -> None:
        data = opened.read_ranges(unit.reads)
        self._count(data, useful_bytes=unit.useful_bytes)
        group = [(piece, [data[number][start:end] for number, start, end in places]) for piece, places in unit.pieces]
        for piece, _ in self._work.decode(group):
            place = self._objects.place_of(piece.chunk)
            again = opened.read(place.range.start, place.range.end)
            self._count([again])
            self._work.decode_again(piece, again)

    def _count(self, data: Sequence[memoryview], *, useful_bytes: int = 0) -> None:
        with self._changed:
            self.counters.requests += len(data)
            self.counters.bytes += sum(map(len, data))
            self.counters.useful_bytes += useful_bytes
