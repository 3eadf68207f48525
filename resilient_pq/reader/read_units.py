"""What threads read of a local file and decode, one unit at a time. A shell."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.io import FetchCounters, ObjectInfo, OpenObject
from resilient_pq.lazy_dataclass import dataclass
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

#: So many units keep threads busy in any order.
_FEW: Final = 64

#: Where a chunk begins and ends, its bytes when it is decompressed, and itself, or its number among the flat ones.
Placed: TypeAlias = tuple[int, int, int, ChunkTask | int]


@dataclass(slots=True)
class ReadUnit:
    """What a thread reads and decodes at once."""

    info: ObjectInfo  # The object
    reads: list[ByteRange]  # The bytes to read
    # The chunks in them, or their numbers among the flat ones: each with the number of the read that it lies in, and
    # where it begins and ends therein
    pieces: list[tuple[ChunkTask | int, int, int, int]]
    whole: ChunkTask | None = None  # The chunk of which the reads are the ranges, where it is one with several
    size: int = 0  # Bytes that are read
    useful_bytes: int = 0  # Bytes of those that are wanted

    def with_read(self, start: int, end: int) -> Self:
        """Itself, with another read."""
        self.reads.append(ByteRange(start, end))
        self.size += end - start
        return self


def read_units(work: RowGroupWork, objects: ChunkObjects) -> list[ReadUnit]:
    """What is read and decoded at once: chunks that lie behind each other, or one of which some pages are wanted."""
    flat = work.flat
    placed: dict[int, tuple[ObjectInfo, list[Placed]]] = {id(objects.info): (objects.info, [])}
    placed[id(objects.info)][1].extend(
        [(flat.starts[number], flat.ends[number], max(flat.sizes[number], 0), number) for number in flat.numbers]
    )
    units = []
    for piece in work.pieces:
        places = objects.places_of(piece.chunk)
        info, ranges = places[0].info, [place.range for place in places]
        if len(ranges) == 1:
            of_object = placed.setdefault(id(info), (info, []))[1]
            of_object.append((ranges[0].start, ranges[0].end, piece.chunk.num_decoded, piece))
        else:
            size = sum([each.size for each in ranges])
            units.append(ReadUnit(info, ranges, [], piece, size, size))
    for info, of_object in placed.values():
        units += _merged_units(info, sorted(of_object, key=itemgetter(0)))
    if len(units) < _FEW:  # the largest first, so that the threads end at the same time
        units.sort(key=attrgetter("size"), reverse=True)
    return units


def _merged_units(info: ObjectInfo, placed: Sequence[Placed]) -> Iterator[ReadUnit]:
    """The units of chunks of one object, in the order of their places."""
    unit, weight, start, end = ReadUnit(info, [], []), 0, 0, -1
    for first, last, decoded, piece in placed:
        more = max(last - first, decoded)
        if unit.pieces and weight + more > _UNIT:
            yield unit.with_read(start, end)
            unit, weight, end = ReadUnit(info, [], []), 0, -1
        unit.useful_bytes += max(last - max(first, end), 0)
        if end >= 0 and first - end <= _GAP and max(last, end) - start <= _TOGETHER:
            end = max(end, last)
        else:
            if end >= 0:
                unit.with_read(start, end)
            start, end = first, last
        weight += more
        unit.pieces.append((piece, len(unit.reads), first - start, last - start))
    if unit.pieces:
        yield unit.with_read(start, end)


class ReadQueue:
    """Read units, for threads to take until there are none left."""

    def __init__(
        self, work: RowGroupWork, objects: ChunkObjects, opener: Callable[[ObjectInfo], OpenObject], memory_budget: int
    ) -> None:
        self.counters = FetchCounters()
        self._work = work
        self._objects = objects
        self._opener = opener
        self._waiting = deque(read_units(work, objects))
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
        group: list[tuple[ChunkTask | int, list[memoryview]]] = [
            (piece, [data[number][start:end]]) for piece, number, start, end in unit.pieces
        ]
        if unit.whole is not None:
            group.append((unit.whole, data))
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
