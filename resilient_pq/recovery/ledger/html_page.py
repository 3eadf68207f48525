"""A recovery's ledger as one page of HTML that needs nothing else: no server, no fonts, no other file.

Whatever comes from the file is escaped; should that ever fail, the page's own policy lets no script run but the one
that is in it, and lets nothing be fetched.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from resilient_pq.io.os_errors import explained
from resilient_pq.recovery.ledger.account import harmed_places, headline, lost_rows, share
from resilient_pq.recovery.ledger.html_map import (
    MAX_LINES,
    command,
    identifiers,
    lines,
    map_section,
    page_grid,
    table,
    text,
)
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Ledger, PageState, Region
from resilient_pq.recovery.report import Finding, Report
from resilient_pq.units import in_bytes, in_units
from resilient_pq.version import __version__

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


def ledger_page(ledger: Ledger, report: Report, *, made: datetime | None = None) -> str:
    """The page, the same for the same arguments; `made` is the time that it shows."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src {_sum(style)}; script-src {_sum(script)}"
    )
    title = f"Recovery of {report.url.rstrip('/').rpartition('/')[2] or report.url}"
    drawn = page_grid(ledger)
    places = identifiers(ledger, drawn)
    parts = [
        *_head(title, ledger, report),
        *_commands(report),
        *bytes_section(ledger),
        *map_section(ledger, drawn, places),
        *_rows(ledger),
        *_places(ledger, places),
        *_findings(report.findings),
        *_sources(ledger, report),
        *_foot(made),
    ]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n"
        f'<div id="tip" hidden></div>\n<script>{script}</script>\n</body>\n</html>\n'
    )


async def save_html(path: str, report: Report, *, made: datetime | None = None) -> bool:
    """Write the page of a recovery's ledger; False where there is no ledger."""
    ledger = None if report.kept is None else report.kept.ledger
    if ledger is None:
        return False
    page = ledger_page(ledger, report, made=made)
    with explained("cannot write the page", path):
        await asyncio.to_thread(Path(path).write_text, page, encoding="utf-8", newline="\n")
    return True


def _asset(name: str) -> str:
    return files("resilient_pq.recovery.ledger").joinpath(name).read_text(encoding="utf-8")


def _sum(source: str) -> str:
    """A source's checksum, as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _head(title: str, ledger: Ledger, report: Report) -> Iterator[str]:
    outcome = f'<span class="outcome">{text(report.outcome)}</span>'
    yield f"<header>\n<h1><bdi>{text(title)}</bdi> {outcome}</h1>"
    yield f'<p class="kicker"><bdi>{text(report.url)}</bdi></p>'
    yield f'<p class="headline">{text(headline(ledger))}.</p>\n<dl class="facts">'
    kept, lost = ledger.rows_kept, ledger.rows_lost_at_least
    uncounted = ledger.rows_lost is None
    known = "of those known of" if uncounted else f"of {kept + lost:,}"
    yield _fact("Rows kept", f"{kept:,}", f"{share(kept, kept + lost)} {known}")
    more = "at least; the total is unknown" if uncounted else share(lost, kept + lost)
    yield _fact("Rows lost", f"{lost:,}", more)
    if ledger.rows_nulled:
        told = "not in every column's output" if ledger.on_damage == "columns" else "with nulls for lost values"
        yield _fact("Rows incomplete", f"{ledger.rows_nulled:,}", told)
    counts = Counter(page.state for page in ledger.pages())
    gone = counts[PageState.LOST] + counts[PageState.NULLED]
    mended = counts[PageState.MENDED] + counts[PageState.REBUILT] + counts[PageState.REPAIRED]
    yield _fact("Pages lost", f"{gone:,}", f"of {counts.total():,}; {mended:,} mended or repaired")
    size = sum(source.size for source in ledger.sources)
    lost_bytes = sum(ledger.num_bytes(ByteUse.LOST, number) for number in range(len(ledger.sources)))
    damaged = damaged_bytes(ledger.regions)
    yield _fact("Bytes lost", in_units(lost_bytes), f"of {in_units(size)}; {in_units(damaged)} damaged")
    yield "</dl>\n</header>"


def _fact(name: str, value: str, more: str) -> str:
    return f"<div><dt>{name}</dt><dd>{text(value)}<small>{text(more)}</small></dd></div>"


def _commands(report: Report) -> Iterator[str]:
    output = None if report.kept is None else report.kept.output
    if output is not None:
        yield "<h2>What was kept</h2>"
        yield f"<p>It is in <code><bdi>{text(output)}</bdi></code>. The input was not changed.</p>"
    if report.next:
        commands = "\n".join(command(arguments) for arguments in report.next)
        yield f'<h2>To run next</h2>\n<pre tabindex="0">{commands}</pre>'


def _rows(ledger: Ledger) -> Iterator[str]:
    lost = lost_rows(ledger)
    yield "<h2>Rows that are lost or incomplete</h2>"
    if not lost:
        yield "<p>None: every row that is known of was kept whole.</p>"
        return
    yield "<p>Rows are numbered from 0, and the second number of a range is the first that is not in it.</p>"
    header = (
        ("Rows", "number"),
        ("Row group", "number"),
        ("How many", "number"),
        ("What became of them", ""),
        ("Reason", "words"),
    )
    told = [(run.rows, run.row_group, run.count, run.fate, run.reason) for run in lost[:MAX_LINES]]
    yield from table(header, [tuple(map(text, line)) for line in told], total=len(lost))


def _places(ledger: Ledger, on_map: dict[int, str]) -> Iterator[str]:
    places = harmed_places(ledger)
    if not places:
        return
    yield "<h2>Damaged places</h2>"
    header = (("What became of it", ""), ("Place", ""), ("Bytes", ""), ("What was wrong", "words"))
    rows = []
    for place in places[:MAX_LINES]:
        name = f"<bdi>{text(place.name)}</bdi>"
        if place.first in on_map:
            name = f'<a href="#{on_map[place.first]}">{name}</a>'
        rows.append((text(place.fate), name, text(place.bytes), text(place.reason)))
    yield from table(header, rows, total=len(places))


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    if not findings:
        return
    yield "<h2>What was found</h2>"
    header = (("Damage", ""), ("Finding", "words"), ("Place", ""), ("Rows are lost", ""))
    rows = [
        (text(found.damage), text(found.message), text(str(found.where)), "yes" if found.costs_rows else "no")
        for found in findings[:MAX_LINES]
    ]
    yield from table(header, rows, total=len(findings))


def _sources(ledger: Ledger, report: Report) -> Iterator[str]:
    yield "<h2>Sources</h2>"
    header = (("Source", "number"), ("Location", "words"), ("Bytes", "number"), ("Version", ""))
    rows = [
        (f"{number}", f"<bdi>{text(source.url)}</bdi>", f"{source.size:,}", text(source.etag or ""))
        for number, source in enumerate(ledger.sources)
    ]
    yield from table(header, rows)
    if report.schema is not None:
        schema = f'<pre tabindex="0">{lines(report.schema)}</pre>'
        yield f"<details><summary>Schema</summary>{schema}</details>"


def _foot(made: datetime | None) -> Iterator[str]:
    when = "" if made is None else f", {text(made.isoformat(sep=' ', timespec='seconds'))}"
    yield f"<footer>Made by rpq {text(__version__)}{when}. <code>--json</code> prints all of it as data.</footer>"
