"""The part of the page that accounts for every byte: a bar from the first to the last, and their sums. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby

from resilient_pq.recovery.ledger.account import share
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Ledger, PageState, Region
from resilient_pq.recovery.ledger.markup import table, text
from resilient_pq.units import in_bytes, in_units

_BUCKETS = 600  # Pieces that the bar is divided into


class _Use(StrEnum):
    """The use of a byte, in the order of priority for a piece of the bar."""

    DAMAGED = "damaged"
    DROPPED = "dropped"
    DATA = "data"
    METADATA = "metadata"
    DEAD = "dead"


_KEPT = {ByteUse.DATA: _Use.DATA, ByteUse.METADATA: _Use.METADATA, ByteUse.DEAD: _Use.DEAD}
_NAMES = {_Use.DAMAGED: "lost: damaged", _Use.DROPPED: "lost: dropped"}
_MEANINGS = {
    _Use.DATA: "pages whose values were kept",
    _Use.METADATA: "records, indexes and footers",
    _Use.DEAD: "padding, gaps, and bytes that no reader needs",
    _Use.DAMAGED: "damaged, or unusable without bytes that are damaged",
    _Use.DROPPED: "whole, but of rows that went with values of other columns",
}
#: Top and height of each use in the bar, which can be told apart without colours.
_HEIGHTS = {
    _Use.DATA: (8, 18),
    _Use.METADATA: (11, 12),
    _Use.DEAD: (15, 4),
    _Use.DAMAGED: (0, 34),
    _Use.DROPPED: (4, 26),
}
_WIDTH_OF_SWATCH = 22


def damaged_bytes(regions: Iterable[Region]) -> int:
    """Bytes that are damaged, or of no use without others that are."""
    return sum(region.size for region in regions if _use(region) is _Use.DAMAGED)


def bytes_section(ledger: Ledger) -> Iterator[str]:
    """A bar for each source, and the sums of all."""
    yield "<h2>Every byte of the input</h2>"
    for number, source in enumerate(ledger.sources):
        name = f"source {number}: {source.url}" if len(ledger.sources) > 1 else source.url
        yield f'<p class="kicker"><bdi>{text(name)}</bdi></p>'
        lost = in_units(ledger.num_bytes(ByteUse.LOST, number))
        label = text(f"The bytes of {name} from the first to the last; {lost} of {in_units(source.size)} lost")
        size = f'viewBox="0 0 {_BUCKETS} 34" preserveAspectRatio="none"'
        yield f'<svg class="bar" {size} role="img" aria-label="{label}">'
        yield from _bar([region for region in ledger.regions if region.source == number], source.size)
        yield f'</svg>\n<div class="axis"><span>0</span><span>{text(in_bytes(source.size))}</span></div>'
    sums: Counter[_Use] = Counter()
    for region in ledger.regions:
        sums[_use(region)] += region.size
    header = (("Bytes", ""), ("How many", "number"), ("Share", "number"), ("What they are", "words"))
    rows = [
        (f"{_swatch(use)}{_NAMES.get(use, use)}", f"{sums[use]:,}", share(sums[use], sums.total()), meaning)
        for use, meaning in _MEANINGS.items()
        if sums[use] or use is not _Use.DROPPED
    ]
    yield from table(header, rows, kind="uses")
    if sums[_Use.DAMAGED]:
        yield '<p class="quiet">Each piece of the bar is shown as damaged if one byte of it is damaged.</p>'


def _use(region: Region) -> _Use:
    if region.use is not ByteUse.LOST:
        return _KEPT[region.use]
    return _Use.DROPPED if region.state is PageState.DROPPED else _Use.DAMAGED


def _swatch(use: _Use) -> str:
    drawing = _rectangle(use, 0, _WIDTH_OF_SWATCH)
    size = f"0 0 {_WIDTH_OF_SWATCH} 34"
    return f'<svg class="swatch" viewBox="{size}" preserveAspectRatio="none" aria-hidden="true">{drawing}</svg>'


def _rectangle(use: _Use, at: int, width: int, title: str = "") -> str:
    top, height = _HEIGHTS[use]
    told = f"<title>{title}</title>" if title else ""
    return f'<rect class="u-{use}" x="{at}" y="{top}" width="{width}" height="{height}">{told}</rect>'


def _bar(regions: Sequence[Region], size: int) -> Iterator[str]:
    at = 0
    for use, run in groupby(_pieces(regions, size)):
        width = len(list(run))
        start, end = at * size // _BUCKETS, (at + width) * size // _BUCKETS
        yield _rectangle(use, at, width, f"about {start:,} to {end:,}: {use}")
        at += width


def _pieces(regions: Sequence[Region], size: int) -> list[_Use]:
    """The use of each piece of a file: damaged if a single byte is, else that of most bytes."""
    pieces: list[Counter[_Use]] = [Counter() for _ in range(_BUCKETS)]
    for region in regions:
        # In units of a byte's share of a piece, so that files smaller than the bar fill it, too.
        start, end = region.start * _BUCKETS, region.end * _BUCKETS
        for number in range(start // size, -(-end // size)):
            pieces[number][_use(region)] += min(end, (number + 1) * size) - max(start, number * size)
    order = list(_Use)
    return [
        _Use.DAMAGED if piece[_Use.DAMAGED] else max(piece, key=lambda use: (piece[use], -order.index(use)))
        for piece in pieces
        if piece
    ]
