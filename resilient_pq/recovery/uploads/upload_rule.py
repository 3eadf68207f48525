"""What the parts of an upload that was left open can be completed to. Pure.

A writer of ours keeps its upload so that it can be completed at any moment, by anyone, knowing nothing but the sizes
of its parts. Every full part is a whole number of MiB, and the part that holds the end of the newest stored
checkpoint, the *open slot*, is cut there, never on a whole MiB. So the parts up to and including the first whose
size is no whole number of MiB are a whole file: this is the rule.
"""

from __future__ import annotations

from collections.abc import Iterable

from resilient_pq.io import MIN_PART_BYTES, Part
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import MiB


@dataclass(frozen=True, slots=True)
class UploadParts:
    """The parts of an upload, of each number the largest, and what they would make."""

    listed: tuple[Part, ...]  # One part of each number, by number
    gap_free: tuple[Part, ...]  # Parts 1, 2, ... up to the first that is missing
    # The first of these up to and including the first whose size is no whole number of MiB; None when there is none
    by_rule: tuple[Part, ...] | None

    @property
    def num_bytes(self) -> int:
        """Bytes of all parts."""
        return size_of(self.listed)

    @property
    def gap(self) -> int | None:
        """The number of the first part that is missing before others; None when none is."""
        return None if len(self.gap_free) == len(self.listed) else len(self.gap_free) + 1

    @property
    def fits_rule(self) -> bool:
        """Whether the sizes are those that a writer of ours leaves."""
        # Behind the open slot there may be parts of the next checkpoint already. All of them are full but
        # one, which ends where that checkpoint will.
        if self.by_rule is None:
            return False
        behind = self.listed[len(self.by_rule) :]
        return sum(part.size % MiB != 0 for part in behind) <= 1

    def chosen(self, *, gap_free: bool = False) -> tuple[Part, ...]:
        """The parts to complete: by the rule where the sizes fit it, otherwise all up to the first gap."""
        if self.by_rule is None or gap_free or not self.fits_rule:
            return self.gap_free
        return self.by_rule

    def behind(self, chosen: tuple[Part, ...]) -> tuple[Part, ...]:
        """The parts behind the chosen ones, which are the first: a store drops them when it completes those."""
        return self.listed[len(chosen) :]

    @property
    def before_another(self) -> tuple[Part, ...]:
        """The gap-free parts that one more part may follow: up to the first that is too small to be followed."""
        for index, part in enumerate(self.gap_free):
            if part.size < MIN_PART_BYTES:
                return self.gap_free[:index]
        return self.gap_free


def size_of(parts: Iterable[Part]) -> int:
    """Bytes of some parts together."""
    return sum(part.size for part in parts)


def upload_parts(listed: Iterable[Part]) -> UploadParts:
    """Understand the parts that a store lists."""
    largest: dict[int, Part] = {}
    for part in listed:
        known = largest.get(part.number)
        if known is None or part.size > known.size:
            largest[part.number] = part
    gap_free: list[Part] = []
    while len(gap_free) + 1 in largest:
        gap_free.append(largest[len(gap_free) + 1])
    end = next((index for index, part in enumerate(gap_free, start=1) if part.size % MiB), None)
    return UploadParts(
        listed=tuple(largest[number] for number in sorted(largest)),
        gap_free=tuple(gap_free),
        by_rule=None if end is None else tuple(gap_free[:end]),
    )
