"""A ledger in words: the headline, the lost rows, and each page of the map. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.ledger.grid import UNHARMED, GridSegment, counted_states
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Ledger, PageState, Region, RowsFate
from resilient_pq.units import counted, in_bytes, in_units

#: A letter for each state of a page that is not whole, since colour alone says nothing to many.
LETTERS = {
    PageState.WHOLE: "",
    PageState.UNREAD: "U",
    PageState.MENDED: "M",
    PageState.REBUILT: "P",
    PageState.REPAIRED: "R",
    PageState.DROPPED: "D",
    PageState.NULLED: "N",
    PageState.LOST: "L",
}
MEANINGS = {
    PageState.WHOLE: "as it was written",
    PageState.UNREAD: "copied within the store, not read",
    PageState.MENDED: "put together of more than one place, and as it was written",
    PageState.REBUILT: "bytes of it were made from parity, and it is as it was written",
    PageState.REPAIRED: "one bit was turned back so that its checksum holds",
    PageState.DROPPED: "whole, but rows of it went with values that another column lost",
    PageState.NULLED: "its values are lost; its rows have nulls in their place",
    PageState.LOST: "its values are lost, and its rows with them",
}


@dataclass(frozen=True, slots=True)
class LostRows:
    """Rows that are lost, or that lost the values of some columns, as words."""

    rows: str
    row_group: str
    count: str
    fate: str
    reason: str


@dataclass(frozen=True, slots=True)
class DamagedPlace:
    """Pages of a chunk, or other bytes, with the same damage, as words; `first` is the `id` of the first region."""

    first: int
    name: str
    fate: str
    bytes: str
    reason: str


def headline(ledger: Ledger) -> str:
    """A sentence with the numbers of rows."""
    kept, lost = ledger.rows_kept, ledger.rows_lost
    if lost is None:
        told = f"{counted(kept, 'row')} kept, and {rows_lost_words(ledger)} lost"
    elif lost:
        told = f"{kept:,} of {counted(kept + lost, 'row')} kept, {lost:,} lost"
    else:
        told = f"All {counted(kept, 'row')} kept" if kept else "There were no rows"
    return f"{told}; {ledger.rows_nulled:,} of those kept {nulled_words(ledger)}" if ledger.rows_nulled else told


def rows_lost_words(ledger: Ledger) -> str:
    """The number of lost rows, as words."""
    if ledger.rows_lost is None:
        known = ledger.rows_lost_at_least
        return f"at least {counted(known, 'row')}" if known else "an unknown number of rows"
    return counted(ledger.rows_lost, "row") if ledger.rows_lost else "nothing"


def nulled_words(ledger: Ledger) -> str:
    """The words for rows that lost the values of a column."""
    apart = ledger.on_damage == "columns"
    return "are missing from a column's output" if apart else "have nulls where values were lost"


def share(part: int, whole: int) -> str:
    """``85.41 %``; rounded down, so that only all of it is 100 %."""
    if whole <= 0:
        return "0 %"
    hundredths = part * 10_000 // whole
    number = f"{hundredths // 100}.{hundredths % 100:02d}".rstrip("0").rstrip(".")
    return "less than 0.01 %" if part and not hundredths else f"{number} %"


def lost_rows(ledger: Ledger) -> list[LostRows]:
    """Every run of rows of a row group that is lost, or lost values, in order."""
    runs: list[RowsFate] = []
    for fate in ledger.rows:
        if fate.kept and not fate.nulled:
            continue
        before = runs[-1] if runs else None
        if before is not None and _continues(before, fate):
            runs[-1] = replace(before, num_rows=(before.num_rows or 0) + (fate.num_rows or 0))
        else:
            runs.append(fate)
    without = {"null": "nulls in", "columns": "missing from"}.get(ledger.on_damage, "without")
    return [_lost_rows(fate, without) for fate in runs]


def _continues(before: RowsFate, fate: RowsFate) -> bool:
    """Whether rows follow others of their row group with the same fate."""
    if None in (before.first_row, before.num_rows, fate.first_row, fate.num_rows):
        return False
    follows = (before.first_row or 0) + (before.num_rows or 0) == fate.first_row
    return follows and replace(before, first_row=0, num_rows=0) == replace(fate, first_row=0, num_rows=0)


def _lost_rows(fate: RowsFate, without: str) -> LostRows:
    if fate.first_row is None:
        rows = "unknown"
    elif fate.num_rows is None:
        rows = f"from {fate.first_row:,}"
    else:
        rows = f"{fate.first_row:,} to {fate.first_row + fate.num_rows:,}"
    return LostRows(
        rows=rows,
        row_group="" if fate.row_group is None else f"{fate.row_group:,}",
        count="unknown" if fate.num_rows is None else f"{fate.num_rows:,}",
        fate=f"{without} {', '.join(fate.nulled)}" if fate.kept else "lost",
        reason=fate.reason or "",
    )


def harmed_places(ledger: Ledger) -> list[DamagedPlace]:
    """Every damaged place, the worst first: pages, then other lost bytes; neighbours damaged alike are one."""
    pages = [page for page in ledger.pages() if page.state not in UNHARMED | {PageState.DROPPED}]
    order = [PageState.LOST, PageState.NULLED, PageState.REPAIRED, PageState.REBUILT, PageState.MENDED]
    regions = [page for state in order for page in pages if page.state is state]
    regions += [region for region in ledger.regions if region.state is None and region.use is ByteUse.LOST]
    return [_harmed(list(run)) for _, run in groupby(regions, key=_alike)]


def _alike(region: Region) -> tuple[object, ...]:
    """The key of a region: neighbours with the same one are a place."""
    missing = region.size == 0
    return region.source, missing, region.row_group, region.column, region.what, what_became(region), region.reason


def _harmed(run: Sequence[Region]) -> DamagedPlace:
    first, last = run[0], run[-1]
    size = sum(region.size for region in run)
    numbers = [region.page for region in run if region.page is not None]
    if len(run) == 1:
        name = place_of(first)
    elif numbers:
        chunk = place_of(replace(first, what="pages", page=None))
        name = f"{chunk} {min(numbers):,} to {max(numbers):,}"
    else:
        name = f"{len(run):,} times {place_of(first)}"
    return DamagedPlace(
        first=id(first),
        name=name,
        fate=what_became(first),
        bytes=bytes_of(replace(first, end=last.end), size),
        reason=first.reason or "",
    )


def what_became(region: Region) -> str:
    """The fate of a page, or of other bytes, in a word or two."""
    if region.state is None:
        return str(region.use)
    named = region.mended is not None and region.confidence is not None
    return f"{region.state} ({region.mended})" if named else str(region.state)


def place_of(region: Region) -> str:
    """``row group 4, note, page 2``; what it is, where it is no page."""
    page = region.what if region.page is None else f"page {region.page:,}"
    if region.what == "dictionary page":
        page = region.what
    parts = ["" if region.row_group is None else f"row group {region.row_group:,}", region.column or "", page]
    return ", ".join(part for part in parts if part)


def bytes_of(region: Region, size: int | None = None) -> str:
    """The offsets of a region, and its size, which is `size` if other bytes lie between."""
    size = region.size if size is None else size
    if not size:
        return f"not there; it should begin at {region.start:,}"
    source = f" of source {region.source}" if region.source else ""
    return f"{region.start:,} to {region.end:,}{source} ({in_units(size)})"


class Describer:
    """Describes the segments of a ledger's map."""

    def __init__(self, ledger: Ledger) -> None:
        """Look up once what all pages of a row group have in common."""
        self._methods = {fate.row_group: fate.method for fate in ledger.rows if fate.method is not None}
        self._first_rows: list[int | None] = []
        before: int | None = 0
        for num_rows in ledger.row_groups:
            self._first_rows.append(before)
            before = None if before is None or num_rows is None else before + num_rows

    def lines(self, segment: GridSegment) -> Iterator[str]:
        """Lines about a page, or about what several pages have in common."""
        if len(segment.pages) > 1:
            yield from _together(segment.pages)
            return
        (page,) = segment.pages
        place = place_of(page)
        yield place[:1].upper() + place[1:]
        yield f"{what_became(page)}: {MEANINGS[segment.state]}"
        if page.reason is not None:
            yield f"Reason: {page.reason}"
        yield f"Bytes: {bytes_of(page)}"
        if page.num_rows is not None:
            yield f"Rows: {self._rows(page, page.num_rows)}"
        method = self._methods.get(page.row_group)
        if method is not None:
            yield f"Found by: {method}"
        if page.confidence is not None:
            yield f"Confidence: {page.confidence}"

    def _rows(self, page: Region, num_rows: int) -> str:
        kept = "" if page.rows_kept is None else f", {page.rows_kept:,} kept"
        if page.first_row is None or page.row_group is None:
            return f"{num_rows:,}{kept}"
        before = self._first_rows[page.row_group]
        first, of = (page.first_row, " of the row group") if before is None else (before + page.first_row, "")
        return f"{first:,} to {first + num_rows:,}{of} ({num_rows:,}{kept})"


def _together(pages: Sequence[Region]) -> Iterator[str]:
    groups = sorted({page.row_group for page in pages if page.row_group is not None})
    columns = list(dict.fromkeys(page.column for page in pages if page.column is not None))
    place = _range("Row group", [f"{group:,}" for group in groups])
    yield f"{place}, {columns[0]}" if len(columns) == 1 else f"{place}, {counted(len(columns), 'column')}"
    if len(groups) == len(columns) == 1:
        yield _range("Page", [f"{page.page:,}" for page in pages if page.page is not None])
    counts = counted_states(pages)
    yield f"{counted(len(pages), 'page')}: " + ", ".join(f"{count:,} {state}" for state, count in counts.items())
    yield f"Bytes: {in_bytes(sum(page.size for page in pages))}"
    reasons = list(dict.fromkeys(page.reason for page in pages if page.reason is not None))
    if reasons:
        yield f"Reason: {reasons[0]}" + (f" (and {len(reasons) - 1:,} others)" if len(reasons) > 1 else "")


def _range(noun: str, names: Sequence[str]) -> str:
    if len(names) < 2:
        return f"{noun} {''.join(names)}".rstrip()
    return f"{noun}s {names[0]} to {names[-1]}"
