"""The numbers of row groups that were carved, by those that footers and records state. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.page_hints import PageHints
from resilient_pq.format.footer import MAGIC
from resilient_pq.recovery.evidence.located_row_group import LocatedChunk, LocatedRowGroup, Method

#: Bytes between two row groups that are too few for another row group.
_MOST_ALIGNMENT = 8


def join_halves(row_groups: Sequence[LocatedRowGroup], count: int | None = None) -> list[LocatedRowGroup]:
    """Row groups in the order of their offsets; what lies around a hole is one where there is no room for two.

    Between two row groups it is their stated ordinals that leave room; behind the last, the `count` of all.
    """
    joined: list[LocatedRowGroup] = []
    before = -1
    runs = [(stated, list(run)) for stated, run in groupby(row_groups, _is_numbered)]
    for number, (stated, run) in enumerate(runs, start=1):
        if not stated:
            following = runs[number][1][0].ordinal if number < len(runs) else count
            whole = _joined(run)
            is_room = following is None or len(whole) != following - before - 1
            joined += run if is_room else whole
        else:
            joined += run
            before = run[-1].ordinal
    return joined


def _joined(run: Sequence[LocatedRowGroup]) -> list[LocatedRowGroup]:
    """Carved row groups, each with what may be the rest of it."""
    joined: list[LocatedRowGroup] = []
    for row_group in run:
        one = _one(joined[-1], row_group) if joined and row_group.may_be_rest else None
        joined[-1:] = [one] if one is not None else [*joined[-1:], row_group]
    return joined


def _one(first: LocatedRowGroup, rest: LocatedRowGroup) -> LocatedRowGroup | None:
    """Two parts as one row group; None where their columns have other rows."""
    chunks = [_one_chunk(a, b) if a and b else a or b for a, b in zip(first.chunks, rest.chunks, strict=True)]
    counts = {chunk.read.num_rows for chunk in chunks if chunk and chunk.pages and chunk.pages.complete}
    if len(counts) != 1:
        return None
    rows = counts.pop()
    counted = tuple(chunk and replace(chunk, read=replace(chunk.read, num_rows=rows)) for chunk in chunks)
    return replace(first, num_rows=rows, chunks=counted, end=rest.end)


def _one_chunk(first: LocatedChunk, rest: LocatedChunk) -> LocatedChunk:
    """A chunk of which pages are missing between those that were found."""
    read, more = first.read, rest.read
    pages = [*(first.pages.pages if first.pages else ()), *(rest.pages.pages if rest.pages else ())]
    place = ByteRange(read.range.start, more.range.end)
    metadata = replace(
        read.metadata,
        encodings=sorted({*read.metadata.encodings, *more.metadata.encodings}),
        num_values=read.metadata.num_values + more.metadata.num_values,
        total_uncompressed_size=read.metadata.total_uncompressed_size + more.metadata.total_uncompressed_size,
        total_compressed_size=place.size,
    )
    return LocatedChunk(
        replace(read, metadata=metadata, range=place),
        PageHints(tuple(pages), complete=False, searched=True, ends=rest.pages is None or rest.pages.ends),
    )


def number_row_groups(row_groups: Sequence[LocatedRowGroup]) -> tuple[LocatedRowGroup, ...]:
    """Row groups in the order of their offsets, with ordinals that fit those that footers and records state.

    The rows before a carved row group are known where a record states them, or no other row group fits before it.
    """
    numbered: list[LocatedRowGroup] = []
    ordinal, carved, end = 0, None, len(MAGIC)
    counted: int | None = 0
    for row_group, most in zip(row_groups, _max_ordinals(row_groups), strict=True):
        if _is_numbered(row_group):
            following, before = max(ordinal, row_group.ordinal), row_group.rows_before
        else:
            skipped = 0 if carved is None else max(row_group.ordinal - carved - 1, 0)
            following, before = _next_ordinal(ordinal, skipped, most), None
        carved = row_group.ordinal if row_group.method is Method.CARVED else carved
        adjoins = row_group.follows and following == ordinal and row_group.start - end <= _MOST_ALIGNMENT
        if before is None and adjoins:
            before = counted
        if before is not None and counted is not None and before < counted:
            before = counted  # what states it did not count a row group that was found before this one
        numbered.append(replace(row_group, ordinal=following, rows_before=before))
        counted = None if before is None or row_group.num_rows is None else before + row_group.num_rows
        ordinal, end = following + 1, row_group.end
    return tuple(_without_guesses(numbered))


def _without_guesses(row_groups: Sequence[LocatedRowGroup]) -> Iterator[LocatedRowGroup]:
    """Row groups, told not to be placed behind what may be the rest of another one."""
    placed = True
    for row_group in row_groups:
        placed = _is_numbered(row_group) or (placed and not row_group.may_be_rest)
        yield replace(row_group, placed=placed)


def _next_ordinal(least: int, skipped: int, most: int | None) -> int:
    """The ordinal of a carved row group, where so many seem to be missing before it."""
    return least + skipped if most is None else max(least, min(least + skipped, most))


def _is_numbered(row_group: LocatedRowGroup) -> bool:
    return row_group.numbered or row_group.method is not Method.CARVED


def _max_ordinals(row_groups: Sequence[LocatedRowGroup]) -> list[int | None]:
    """The largest ordinal that each row group can have, by those behind it whose ordinals are stated."""
    found: list[int | None] = []
    most: int | None = None
    for row_group in reversed(row_groups):
        if _is_numbered(row_group):
            most = row_group.ordinal if most is None else min(most, row_group.ordinal)
        found.append(most)
        most = None if most is None else most - 1
    return found[::-1]
