"""What does not add up in a ledger: each byte and each row is accounted for once, and no two entries contradict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeVar

from resilient_pq.recovery.ledger.ledger_model import (
    PAGES,
    ByteUse,
    Ledger,
    LedgerSource,
    PageState,
    Region,
    RowsFate,
)

T = TypeVar("T", Region, RowsFate)

#: Whatever a region can be that has no values.
_OTHERS: Final = frozenset(
    {
        "magic",
        "anchor",
        "chunk record",
        "row-group record",
        "checkpoint",
        "footer",
        "index",
        "bloom filter",
        "parity",
        "padding",
        "unknown",
    }
)
_UNTOUCHED: Final = frozenset({PageState.WHOLE, PageState.UNREAD})
_KEPT: Final = _UNTOUCHED | {PageState.MENDED, PageState.REBUILT, PageState.REPAIRED}


def check_ledger(ledger: Ledger) -> list[str]:
    """What does not add up, for people; nothing where every byte and every row is accounted for once."""
    contradictions = [*_check_bytes(ledger)]
    for region in (*ledger.regions, *ledger.missing):
        problems = (*_check_labels(ledger, region), *_check_reason(region), *_check_page(region))
        contradictions += [f"{_describe(region)}: {problem}" for problem in problems]
    for fate in ledger.rows:
        contradictions += [f"{_describe_rows(fate)}: {problem}" for problem in _check_rows(ledger, fate)]
    return [*contradictions, *_check_row_counts(ledger), *_check_pages(ledger)]


# -- bytes ---------------------------------------------------------------------------------------


def _check_bytes(ledger: Ledger) -> Iterator[str]:
    numbers = [region.source for region in ledger.regions]
    if numbers != sorted(numbers) or not set(numbers) <= set(range(len(ledger.sources))):
        yield "the regions are not in the order of the sources"
        return
    for number, source in enumerate(ledger.sources):
        yield from _check_source(ledger, number, source)
    for region in ledger.missing:
        if region.size or region.what not in PAGES:
            yield f"{_describe(region)} is not missing"


def _check_source(ledger: Ledger, number: int, source: LedgerSource) -> Iterator[str]:
    end = 0
    for region in ledger.regions:
        if region.source == number:
            if region.start != end or region.end <= region.start:
                yield f"source {number}: {_describe(region)} follows on {end}"
            end = region.end
    if end != source.size:
        yield f"source {number}: told of up to {end} of {source.size} bytes"
    if sum(ledger.num_bytes(use, number) for use in ByteUse) != source.size:
        yield f"source {number}: the uses of its bytes do not make up its size"


# -- regions -------------------------------------------------------------------------------------


def _check_labels(ledger: Ledger, region: Region) -> Iterator[str]:
    if region.what not in PAGES | _OTHERS:
        yield "that is no word of the format"
    if region.row_group is not None and not 0 <= region.row_group < len(ledger.row_groups):
        yield "there is no such row group"
    if region.column is not None and region.column not in ledger.columns:
        yield "there is no such column"


def _check_reason(region: Region) -> Iterator[str]:
    if region.use is ByteUse.LOST and region.reason is None:
        yield "lost for no reason"
    untouched = region.use is ByteUse.METADATA and region.mended is None
    if region.reason is not None and (region.state in _UNTOUCHED or untouched):
        yield "there is a reason, and nothing wrong"


def _check_page(region: Region) -> Iterator[str]:
    if region.state is None:
        if region.num_rows is not None or region.page is not None:
            yield "no page, and has rows"
        return
    if region.row_group is None or region.column is None or (region.what == "chunk") != (region.page is None):
        yield "in no place"
    some_kept = region.state is PageState.DROPPED and bool(region.rows_kept)
    if (region.use is ByteUse.DATA) != (region.state in _KEPT or some_kept):
        yield f"its bytes are {region.use}, its values {region.state}"


# -- rows ----------------------------------------------------------------------------------------


def _check_rows(ledger: Ledger, fate: RowsFate) -> Iterator[str]:
    if fate.kept != (fate.confidence is not None) or (not fate.kept and (fate.nulled or not fate.reason)):
        yield "kept or lost"
    if fate.kept and (fate.num_rows is None or bool(fate.nulled) != bool(fate.reason)):
        yield "kept, but how many and how?"
    if not set(fate.nulled) <= set(ledger.columns):
        yield "there is no such column"


def _check_row_counts(ledger: Ledger) -> Iterator[str]:
    known = sum(fate.num_rows or 0 for fate in ledger.rows)
    if ledger.num_rows is not None and not ledger.uncounted and known != ledger.num_rows:
        yield f"{known} rows are told of, the file has {ledger.num_rows}"
    for after in _overlapping([fate for fate in ledger.rows if fate.first_row is not None]):
        yield f"{_describe_rows(after)}: told of twice"
    for ordinal, num_rows in enumerate(ledger.row_groups):
        counts = [fate.num_rows for fate in ledger.rows if fate.row_group == ordinal]
        if num_rows is not None and (None in counts or sum(count or 0 for count in counts) != num_rows):
            yield f"row group {ordinal}: {counts} rows are told of, it has {num_rows}"


def _overlapping(runs: Sequence[T]) -> Iterator[T]:
    """Those that begin before the run of rows before them ends."""
    for before, after in pairwise(runs):
        if (before.first_row or 0) + (before.num_rows or 0) > (after.first_row or 0):
            yield after


# -- rows of pages -------------------------------------------------------------------------------


def _check_pages(ledger: Ledger) -> Iterator[str]:
    """Pages that hold the same rows of a column, or keep others than the rows say."""
    chunks: dict[tuple[int | None, str | None], list[Region]] = defaultdict(list)
    for region in ledger.pages():
        if region.first_row is not None and region.num_rows is not None:
            chunks[region.row_group, region.column].append(region)
    for (ordinal, column), regions in chunks.items():
        regions.sort(key=lambda region: (region.first_row or 0, region.num_rows or 0))
        for after in _overlapping(regions):
            yield f"{_describe(after)}: its rows are told of twice"
        kept = None if ordinal is None else _kept_rows(ledger, ordinal, column)
        for region in regions if kept is not None else ():
            expected = _rows_among(region, kept or ())
            if region.rows_kept not in (None, expected):
                yield f"{_describe(region)}: keeps {region.rows_kept} rows, the rows say {expected}"


def _rows_among(region: Region, kept: Sequence[tuple[int, int]]) -> int:
    first, end = region.first_row or 0, (region.first_row or 0) + (region.num_rows or 0)
    return sum(max(min(end, stop) - max(first, start), 0) for start, stop in kept)


def _kept_rows(ledger: Ledger, ordinal: int, column: str | None) -> list[tuple[int, int]] | None:
    """The rows of a row group that are kept, as ranges within it; None where rows before them are not counted."""
    before = ledger.row_groups[:ordinal]
    fates = [fate for fate in ledger.rows if fate.row_group == ordinal]
    if None in before or any(fate.first_row is None or fate.num_rows is None for fate in fates):
        return None
    base = sum(count or 0 for count in before)
    own_outputs = ledger.on_damage == "columns"
    return [
        ((fate.first_row or 0) - base, (fate.first_row or 0) - base + (fate.num_rows or 0))
        for fate in fates
        if fate.kept and not (own_outputs and column in fate.nulled)
    ]


def _describe(region: Region) -> str:
    place = f"{region.what} at {region.start} to {region.end}"
    return place if region.row_group is None else f"{place} ({region.row_group}, {region.column}, {region.page})"


def _describe_rows(fate: RowsFate) -> str:
    return f"{fate.num_rows} rows from {fate.first_row} of row group {fate.row_group}"
