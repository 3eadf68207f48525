"""From the byte ranges that are wanted to the ones that are worth requesting. Pure: no I/O, no clock."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter

from resilient_pq.byte_ranges import ByteRange, union
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import KiB, MiB


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """When two ranges become one request."""

    # Measured at 30 ms latency: 50 of 200 columns are 20 requests instead of 2,500, three scattered columns stay apart,
    # and runs never grow so long that they lose their parallelism.

    always_gap: int = 64 * KiB  # Gaps of at most this many bytes are always read over
    wide_gap: int = 1 * MiB  # Gaps of at most this many bytes are read over while the waste stays within `max_waste`
    max_waste: float = 2.0  # The merged range may have at most this many times its useful bytes
    # A merged range is no longer than this; one wanted range of more than twice as much is split
    block_bytes: int = 8 * MiB
    # Ranges, in order, over which nothing is read together, however small they are
    never_over: tuple[ByteRange, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.always_gap < 0 or self.wide_gap < 0:
            raise ValueError("a gap is not below 0")
        if self.max_waste < 1:
            raise ValueError("max_waste is at least 1: the useful bytes themselves")
        if self.block_bytes < 1:
            raise ValueError("block_bytes is at least 1")


@dataclass(frozen=True, slots=True)
class MergedRange:
    """One request, and what of it was wanted."""

    range: ByteRange  # What to request
    # Per wanted range that lies in it, the index of that range in the input and the piece of it inside `range`, in
    # absolute offsets. A wanted range that was split has pieces in several merged ranges
    parts: tuple[tuple[int, ByteRange], ...]


DEFAULT_MERGE_OPTIONS = MergeOptions()
#: What is moved in about the time of a round trip: to cut a wave into smaller requests gains no time.
_LEAST_BLOCK = 1 * MiB


def merge(ranges: Sequence[ByteRange], options: MergeOptions = DEFAULT_MERGE_OPTIONS) -> list[MergedRange]:
    """The requests that cover all wanted ranges, by offset: no byte is missed, and none is requested twice."""
    blocks = _gather(_split(union(ranges), options.block_bytes), options)
    starts = [block.start for block in blocks]
    parts: list[list[tuple[int, ByteRange]]] = [[] for _ in blocks]
    for index, wanted in enumerate(ranges):
        if not wanted.size:
            continue
        at = bisect_right(starts, wanted.start) - 1
        while at < len(blocks) and blocks[at].start < wanted.end:
            piece = ByteRange(max(wanted.start, blocks[at].start), min(wanted.end, blocks[at].end))
            parts[at].append((index, piece))
            at += 1
    return [MergedRange(block, tuple(found)) for block, found in zip(blocks, parts, strict=True)]


def smaller_blocks(
    merged: Sequence[MergedRange], options: MergeOptions, max_requests: int, memory_budget: int
) -> MergeOptions | None:
    """Options under which a wave keeps as many requests busy as there may be, to its end; None where it does so."""
    sizes = [one.range.size for one in merged]
    if max(sizes, default=0) <= 2 * _LEAST_BLOCK:
        return None
    # What is under way at one time fits in the memory for it, and as many requests end together as begin together.
    longest = min(options.block_bytes, max(_LEAST_BLOCK, memory_budget // max_requests))
    count = -(-max(len(sizes), -(-sum(sizes) // longest)) // max_requests) * max_requests
    block_bytes = max(_LEAST_BLOCK, -(-sum(sizes) // count))
    return replace(options, block_bytes=block_bytes) if block_bytes < options.block_bytes else None


def _split(ranges: Iterable[ByteRange], block_bytes: int) -> list[ByteRange]:
    """Cut each range of more than two blocks into equal pieces of at most a block."""
    found: list[ByteRange] = []
    for whole in ranges:
        count = -(-whole.size // block_bytes) if whole.size > 2 * block_bytes else 1
        edges = [whole.start + whole.size * cut // count for cut in range(count + 1)]
        found += [ByteRange(*pair) for pair in pairwise(edges)]
    return found


def _gather(ranges: Iterable[ByteRange], options: MergeOptions) -> list[ByteRange]:
    """Join neighbours, which are sorted and do not overlap, as far as the options allow."""
    found: list[ByteRange] = []
    useful = 0
    for wanted in ranges:
        if found and _belongs(found[-1], useful, wanted, options):
            found[-1] = ByteRange(found[-1].start, wanted.end)
            useful += wanted.size
        else:
            found.append(wanted)
            useful = wanted.size
    return found


def _belongs(run: ByteRange, useful: int, wanted: ByteRange, options: MergeOptions) -> bool:
    """Whether `wanted` joins a run that has `useful` wanted bytes so far."""
    gap = wanted.start - run.end
    span = wanted.end - run.start
    apart = options.never_over and _lies_between(options.never_over, run.end, wanted.start)
    if span > options.block_bytes or apart:
        return False
    return gap <= options.always_gap or (gap <= options.wide_gap and span <= options.max_waste * (useful + wanted.size))


def _lies_between(ranges: Sequence[ByteRange], start: int, end: int) -> bool:
    """Whether one of some ranges lies between two offsets."""
    at = bisect_left(ranges, start, key=attrgetter("start"))
    return at < len(ranges) and ranges[at].end <= end
