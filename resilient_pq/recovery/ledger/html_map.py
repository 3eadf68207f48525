"""The part of the page that draws the file as a map. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from resilient_pq.recovery.ledger.account import LETTERS, MEANINGS, Describer
from resilient_pq.recovery.ledger.grid import STATES, Band, Cell, Grid, GridSegment, grid
from resilient_pq.recovery.ledger.ledger_model import Ledger, Region
from resilient_pq.shell_commands import shell_line
from resilient_pq.units import counted, printable

MAX_CHARACTERS = 300  # Characters of a name or a reason; a hostile file's may be of any length
MAX_LINES = 100  # Lines of a table; --json has all


def text(words: str) -> str:
    """Words for an element or an attribute: what is no visible character is spelled out, and long ones are cut."""
    short = words if len(words) <= MAX_CHARACTERS else f"{words[: MAX_CHARACTERS - 1]}…"
    return html.escape(printable(short))


def lines(words: str) -> str:
    """Words of several lines, whole."""
    return "\n".join(html.escape(printable(line)) for line in words.split("\n"))


def command(arguments: Sequence[str]) -> str:
    """A command as one would type it, whole: half of one does something else."""
    return html.escape(shell_line(arguments))


def table(
    header: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], *, total: int | None = None, kind: str = "stack"
) -> Iterator[str]:
    """A table of HTML cells under (name, class) headers; on a phone the cells of a "stack" are below one another."""
    names = "".join(f'<th scope="col" class="{of}">{name}</th>' for name, of in header)
    yield f'<table class="list {kind}"><thead><tr>{names}</tr></thead><tbody>'
    for row in rows:
        cells = zip(header, row, strict=True)
        told = "".join(f'<td class="{of}" data-label="{name}">{cell}</td>' for (name, of), cell in cells)
        yield f"<tr>{told}</tr>"
    yield "</tbody></table>"
    if total is not None and total > len(rows):
        yield f"<p>And {total - len(rows):,} more, which <code>--json</code> lists.</p>"


MAX_COLUMNS = 48  # Bands of the map, at most; a browser scrolls wide ones
MAX_ROW_GROUPS = 64
MAX_SEGMENTS = 8_000  # Elements of the map, at most, and in a row and a cell of it: each carries its own words
_MAX_IN_A_ROW = 240
_MAX_IN_A_CELL = 32
_NARROW = 14  # From this many bands on their names stand upright


def page_grid(ledger: Ledger) -> Grid:
    """The map of a ledger, as large as a page should be."""
    columns = max(min(len(ledger.columns), MAX_COLUMNS), 1)
    row_groups = max(min(len(ledger.row_groups), MAX_ROW_GROUPS), 1)
    segments = min(MAX_SEGMENTS // (columns * row_groups), _MAX_IN_A_ROW // columns, _MAX_IN_A_CELL)
    return grid(ledger, max_columns=MAX_COLUMNS, max_row_groups=MAX_ROW_GROUPS, max_segments=max(segments, 2))


def identifiers(ledger: Ledger, drawn: Grid) -> dict[int, str]:
    """The identifier of the element of each page, by the `id` of its region."""
    numbers = {name: number for number, name in enumerate(ledger.columns)}
    places: dict[int, str] = {}
    for segment in (segment for row in drawn.cells for cell in row for segment in cell.segments):
        places |= dict.fromkeys(map(id, segment.pages), _identifier(segment.pages[0], numbers))
    return places


def map_section(ledger: Ledger, drawn: Grid, places: dict[int, str]) -> Iterator[str]:
    """The map, and the meanings of its colours and letters; nothing if no page is known."""
    if not drawn.columns or not drawn.row_groups:
        return
    yield "<h2>The file as a map</h2>"
    yield (
        "<p>Row groups from top to bottom, columns from left to right, and in each cell its pages, in their order."
        '<span class="screen"> Point at a page, or go to it with Tab and the arrow keys, to see what is known of'
        " it.</span></p>"
    )
    if drawn.folded:
        yield (
            f"<p><strong>Drawn smaller than it is:</strong> {counted(len(ledger.columns), 'column')} and"
            f" {counted(len(ledger.row_groups), 'row group')}. Neighbours share a place where there are too many"
            " of them; it shows which states there are among them, and how many are in each.</p>"
        )
    yield from _legend(drawn)
    narrow = " narrow" if len(drawn.columns) >= _NARROW else ""
    yield '<div class="scroll" tabindex="0" role="region" aria-label="Map of the file">'
    names = "".join(f'<th scope="col" {_column(ledger, band)}</th>' for band in drawn.columns)
    yield f'<table class="map{narrow}">\n<thead><tr><th scope="col" class="side">Row group</th>'
    yield f'<th scope="col" class="kept">Rows kept</th>{names}</tr></thead><tbody>'
    describer = Describer(ledger)
    for band, row, checkpoints in zip(drawn.row_groups, drawn.cells, drawn.checkpoints, strict=True):
        cells = "".join(f"<td>{_cell(cell, describer, places)}</td>" for cell in row)
        yield f'<tr class="row"><th scope="row" class="side">{_label(band)}</th>{_kept(ledger, band)}{cells}</tr>'
        if checkpoints:
            yield _checkpoints(checkpoints, len(drawn.columns))
    yield "</tbody></table>\n</div>"


def _legend(drawn: Grid) -> Iterator[str]:
    there = {state for row in drawn.cells for cell in row for state in cell.counts}
    yield '<ul class="legend">'
    for state in STATES:
        if state in there:
            swatch = f'<span class="p {state}" aria-hidden="true">{LETTERS[state]}</span>'
            yield f"<li>{swatch}<span>{state}: {MEANINGS[state]}</span></li>"
    yield "</ul>"


def _column(ledger: Ledger, band: Band) -> str:
    """The rest of a header's tag, and what is in it."""
    name = text(ledger.columns[band.first])
    if band.count > 1:
        last = text(ledger.columns[band.last])
        return f'title="{name} to {last}"><span><bdi>{name}</bdi> +{band.count - 1:,}</span>'
    return f'title="{name}"><span><bdi>{name}</bdi></span>'


def _label(band: Band) -> str:
    return f"{band.first:,}" if band.count == 1 else f"{band.first:,} to {band.last:,}"


def _kept(ledger: Ledger, band: Band) -> str:
    """The words for the kept rows of a band."""
    numbers = range(band.first, band.last + 1)
    fates = [fate for fate in ledger.rows if fate.row_group in numbers]
    kept = sum(fate.num_rows or 0 for fate in fates if fate.kept)
    is_told = bool(fates) or None not in ledger.row_groups[band.first : band.last + 1]
    is_told = is_told and all(fate.num_rows is not None for fate in fates)
    total = None if not is_told else sum(fate.num_rows or 0 for fate in fates)
    words = f"{kept:,}" if kept == total else f"{kept:,} of {'?' if total is None else f'{total:,}'}"
    return f'<td class="kept{"" if kept == total else " short"}">{words}</td>'


def _cell(cell: Cell, describer: Describer, places: dict[int, str]) -> str:
    if not cell.segments:
        return '<div class="cell none" title="Nothing is known of its pages"></div>'
    drawn = "".join(_page(segment, cell, describer, places) for segment in cell.segments)
    return f'<div class="cell">{drawn}</div>'


def _page(segment: GridSegment, cell: Cell, describer: Describer, places: dict[int, str]) -> str:
    words = "&#10;".join(text(line) for line in describer.lines(segment))
    first = segment.pages[0]
    total = sum(cell.counts.values())
    weight = "" if cell.apart else f" merged w{max(10 * len(segment.pages) // total, 1)}"
    shape = " d" if cell.apart and first.what == "dictionary page" else ""
    kind = f"p {segment.state}{shape}{weight}"
    letter = LETTERS[segment.state]
    return f'<button type="button" id="{places[id(first)]}" class="{kind}" title="{words}">{letter}</button>'


def _identifier(page: Region, numbers: dict[str, int]) -> str:
    """A name for a page in the address: made of numbers, since names of columns may hold anything."""
    number = f"p{page.page}" if page.page is not None else f"b{page.start}"
    return f"g{page.row_group}-c{numbers[page.column or '']}-{number}"


def _checkpoints(checkpoints: Sequence[tuple[int, int]], columns: int) -> str:
    offset, rows = checkpoints[-1]
    many = f"{len(checkpoints):,} checkpoints, the last" if len(checkpoints) > 1 else "checkpoint"
    words = f"{many} at byte {offset:,}: {counted(rows, 'row')} before it"
    return f'<tr class="checkpoint"><th class="side"></th><td colspan="{columns + 1}"><span>{words}</span></td></tr>'
