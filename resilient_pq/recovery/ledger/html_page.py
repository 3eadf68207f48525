"""A recovery's ledger as one page of HTML that needs nothing else: no server, no fonts, no other file.

Whatever comes from the file is escaped; should that ever fail, the page's own policy lets no script run but the one
that is in it, and lets nothing be fetched.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from resilient_pq.io.os_errors import explained
from resilient_pq.recovery.ledger.account import harmed_places, headline, lost_rows, share
from resilient_pq.recovery.ledger.html_bytes import bytes_section, damaged_bytes
from resilient_pq.recovery.ledger.html_map import identifiers, map_section, page_grid
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Ledger, PageState
from resilient_pq.recovery.ledger.markup import MAX_LINES, command, lines, table, text
from resilient_pq.recovery.report import Finding, Report
from resilient_pq.units import in_units
from resilient_pq.version import __version__


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
