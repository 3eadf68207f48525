"""Which bytes of the inputs of a recovery are what, where several things are said to lie in the same place. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum
from operator import attrgetter

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Region, complete_regions

#: The most zeros that a writer of ours leaves before a record, so that no footer ends where a part of an upload does.
_MOST_PADDING = 64
_PADDED = frozenset({"checkpoint", "footer"})  # What padding stands before


class Rank(IntEnum):
    """How sure the place of a region is; of two in one place the lower rank wins."""

    PAGES = 0  # Pages that were found whole there
    METADATA = 1  # Metadata that were found whole there
    HARMED = 2  # What should lie there, and is damaged
    AREA = 3  # What was lost somewhere in these bytes
    REST = 4  # What a file that is broken as a whole has besides


class RegionOverlaps:
    """Collects what is said of the bytes of several inputs."""

    def __init__(self, sources: Sequence[DamagedObject]) -> None:
        self._numbers = {id(source): number for number, source in enumerate(sources)}
        self._sizes = [source.info.size for source in sources]
        self._claims: list[list[list[Region]]] = [[[] for _ in Rank] for _ in sources]

    def add(self, rank: Rank, region: Region, source: DamagedObject) -> None:
        """Say what lies in a place."""
        number = self._numbers[id(source.origin)]
        for piece in source.lies_at(ByteRange(region.start, region.end)):
            is_there = (number, piece.start, piece.end) == (region.source, region.start, region.end)
            placed = region if is_there else replace(region, source=number, start=piece.start, end=piece.end)
            self._claims[number][rank].append(placed)

    def regions(self) -> tuple[Region, ...]:
        """Every byte of every input once."""
        regions: list[Region] = []
        for number, size in enumerate(self._sizes):
            taken: list[Region] = []
            for claims in self._claims[number]:
                taken = _added(taken, claims)
            regions += _padding_named(complete_regions(size, taken, source=number))
        return tuple(regions)


def _added(taken: list[Region], claims: list[Region]) -> list[Region]:
    """Regions in order, and what of others lies beside them; of two of those in one place the first has it."""
    free: list[Region] = []
    i, end = 0, 0
    for claim in sorted(claims, key=attrgetter("start", "end")):
        at = max(claim.start, end)
        while i < len(taken) and taken[i].end <= at:
            i += 1
        end = max(end, claim.end)
        k = i
        while at < claim.end:
            stop = min(claim.end, taken[k].start) if k < len(taken) else claim.end
            if at < stop:
                same = at == claim.start and stop == claim.end
                free.append(claim if same else replace(claim, start=at, end=stop))
            if k == len(taken):
                break
            at = max(at, stop, taken[k].end)
            k += 1
    return sorted([*taken, *free], key=attrgetter("start", "end")) if free else taken


def _padding_named(regions: Sequence[Region]) -> Iterable[Region]:
    """The regions of one input, with the zeros before footers named as such."""
    for position, region in enumerate(regions):
        following = regions[position + 1].what if position + 1 < len(regions) else None
        unknown = region.what == "unknown" and region.use is ByteUse.DEAD
        if unknown and region.size <= _MOST_PADDING and following in _PADDED:
            yield replace(region, what="padding")
        else:
            yield region
