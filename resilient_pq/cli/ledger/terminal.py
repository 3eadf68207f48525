"""The map of a ledger as lines for a terminal: a letter for each page, coloured where there are colours. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.text import Text

from resilient_pq.cli.output.wording import counted, printable
from resilient_pq.recovery.ledger.account import LETTERS
from resilient_pq.recovery.ledger.grid import STATES, Band, Cell, Grid, grid
from resilient_pq.recovery.ledger.ledger_model import Ledger, PageState

#: Characters of a column of the map, at least; the space behind it included.
_MIN_COLUMN = 6
#: Row groups that are drawn by themselves.
_MAX_ROW_GROUPS = 32
_STYLES = {
    PageState.WHOLE: "green",
    PageState.UNREAD: "cyan",
    PageState.MENDED: "bold white on blue",
    PageState.REBUILT: "bold white on green",
    PageState.REPAIRED: "bold white on magenta",
    PageState.DROPPED: "yellow",
    PageState.NULLED: "bold black on yellow",
    PageState.LOST: "bold white on red",
}
#: Of a page that is whole, where nothing but ASCII is wanted, and on a terminal.
_WHOLE = {True: ".", False: "\N{BLACK SQUARE}"}
_NO_PAGE = " "


def ledger_map(ledger: Ledger, *, width: int, plain: bool) -> list[Text]:
    """The lines of a ledger's map, of at most `width` characters if one column fits; in ASCII if `plain`."""
    labels = max(len("row group"), 2 * len(str(len(ledger.row_groups))) + 1) + 1
    room = max(width - labels, _MIN_COLUMN)
    drawn = grid(ledger, max_columns=room // _MIN_COLUMN, max_row_groups=_MAX_ROW_GROUPS, max_segments=room)
    if not drawn.columns or not drawn.row_groups:
        return []
    most = max(len(cell.segments) for row in drawn.cells for cell in row)
    names = max(len(_column(ledger, band)) for band in drawn.columns)
    each = min(max(most, names, _MIN_COLUMN - 1), max(room // len(drawn.columns) - 1, 1))
    return list(_lines(ledger, drawn, labels, each, plain))


def _lines(ledger: Ledger, drawn: Grid, labels: int, each: int, plain: bool) -> Iterator[Text]:
    header = "row group".ljust(labels) + " ".join(
        _cut(_column(ledger, band), each, plain).ljust(each) for band in drawn.columns
    )
    yield Text(header.rstrip(), style="bold")
    for band, row, checkpoints in zip(drawn.row_groups, drawn.cells, drawn.checkpoints, strict=True):
        line = Text(_label(band).rjust(labels - 1) + " ")
        for number, cell in enumerate(row):
            line.append(" " if number else "")
            line.append_text(_drawn(cell, each, plain))
        line.rstrip()
        yield line
        if checkpoints:
            _, rows = checkpoints[-1]
            many = f"{len(checkpoints):,} checkpoints, up to" if len(checkpoints) > 1 else "checkpoint,"
            words = f"{'':{labels}}-- {many} {counted(rows, 'row')}"
            yield Text(words[: max(len(line), len(header))], style="dim")
    yield Text("")
    yield from _legend(ledger, drawn, plain)


def _legend(ledger: Ledger, drawn: Grid, plain: bool) -> Iterator[Text]:
    there = {state for row in drawn.cells for cell in row for state in cell.counts}
    line = Text()
    for state in STATES:
        if state in there:
            line.append("   " if line.plain else "")
            line.append(_letter(state, plain), style=_STYLES[state])
            line.append(f" {state}")
    yield line
    if drawn.folded:
        many = f"{counted(len(ledger.columns), 'column')} and {counted(len(ledger.row_groups), 'row group')}"
        yield Text(f"drawn smaller than it is: {many}; neighbours share a place, which shows the worst of them")
    if any(band.count > 1 for band in drawn.columns):
        yield Text("columns that share one have the number of their first: 7+ is column 7, and others behind it")


def _drawn(cell: Cell, each: int, plain: bool) -> Text:
    """A cell of so many characters: one for each page where they fit, else as many of each state as it is a share."""
    text = Text()
    if not cell.segments:
        return Text(_NO_PAGE * each)
    if cell.apart and len(cell.segments) <= each:
        states = [segment.state for segment in cell.segments]
    else:
        states = _shares(cell, each)
    for state, run in groupby(states):
        text.append(_letter(state, plain) * len(list(run)), style=_STYLES[state])
    text.append(_NO_PAGE * (each - len(states)))
    return text


def _shares(cell: Cell, each: int) -> list[PageState]:
    """So many states, the worst behind; of each that there is at least one, as long as there is room."""
    total = sum(cell.counts.values())
    size = min(each, total)
    states: list[PageState] = []
    for state in reversed(cell.counts):
        left = size - len(states)
        states += [state] * min(max(cell.counts[state] * size // total, 1), left)
    best = next(iter(cell.counts))
    states += [best] * (size - len(states))
    return states[::-1]


def _letter(state: PageState, plain: bool) -> str:
    return LETTERS[state] or _WHOLE[plain]


def _label(band: Band) -> str:
    return f"{band.first}" if band.count == 1 else f"{band.first}-{band.last}"


def _column(ledger: Ledger, band: Band) -> str:
    """Its name; the number of the first, where they are several."""
    return printable(ledger.columns[band.first]) if band.count == 1 else f"{band.first}+"


def _cut(name: str, size: int, plain: bool) -> str:
    """Cut the beginning of a name: paths of nested columns begin alike."""
    name = name.encode("ascii", "backslashreplace").decode() if plain else name
    if len(name) <= size:
        return name
    return f"{'~' if plain else '…'}{name[len(name) - size + 1 :]}" if size > 1 else name[:size]
