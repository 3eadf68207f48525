"""The file as a map: row groups down, columns across, each cell its pages; drawn smaller where it must be. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.ledger.ledger_model import Ledger, PageState, Region

STATES = tuple(PageState)  # From the best to the worst, as they are declared
_BADNESS = {state: badness for badness, state in enumerate(STATES)}
UNHARMED = frozenset({PageState.WHOLE, PageState.UNREAD})  # States without damage


@dataclass(frozen=True, slots=True)
class Band:
    """Neighbours that are drawn as one: the ordinals of the first and of the last one."""

    first: int
    last: int

    @property
    def count(self) -> int:
        """The number of neighbours."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class GridSegment:
    """Pages that are drawn as one, and the worst of their states."""

    state: PageState
    pages: tuple[Region, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """The pages of a band of columns in a band of row groups; `apart` says that each segment is one page."""

    segments: tuple[GridSegment, ...]
    counts: dict[PageState, int]
    apart: bool

    @property
    def worst(self) -> PageState | None:
        """The worst state of a page in it; None where no page is known."""
        return max(self.counts, key=_BADNESS.__getitem__, default=None)


@dataclass(frozen=True, slots=True)
class Grid:
    """The map: bands, cells by row group and column, and the checkpoints (offset, rows) behind each row group."""

    columns: tuple[Band, ...]
    row_groups: tuple[Band, ...]
    cells: tuple[tuple[Cell, ...], ...]
    checkpoints: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def folded(self) -> bool:
        """Whether anything is drawn as one that is not one."""
        bands = any(band.count > 1 for band in (*self.columns, *self.row_groups))
        return bands or not all(cell.apart for row in self.cells for cell in row)


def grid(ledger: Ledger, *, max_columns: int, max_row_groups: int, max_segments: int) -> Grid:
    """The map of a ledger within limits of at least 1: undamaged neighbours are drawn as one, then any neighbours."""
    chunks: dict[tuple[int, int], list[Region]] = {}
    numbers = {name: number for number, name in enumerate(ledger.columns)}
    for page in ledger.pages():
        column = None if page.column is None else numbers.get(page.column)
        if page.row_group is not None and column is not None:
            chunks.setdefault((page.row_group, column), []).append(page)
    harmed = [place for place, pages in chunks.items() if any(page.state not in UNHARMED for page in pages)]
    down, across = {place[0] for place in harmed}, {place[1] for place in harmed}
    columns = bands([number in across for number in range(len(ledger.columns))], max_columns)
    row_groups = bands([number in down for number in range(len(ledger.row_groups))], max_row_groups)
    cells = tuple(tuple(_cell(chunks, low, wide, max_segments) for wide in columns) for low in row_groups)
    return Grid(columns, row_groups, cells, _checkpoints(ledger, row_groups, chunks))


def bands(harmed: Sequence[bool], limit: int) -> tuple[Band, ...]:
    """At most `limit` bands of neighbours; harmed ones are bands of their own if possible."""
    count = len(harmed)
    if count <= limit:
        return tuple(Band(number, number) for number in range(count))
    folded: list[Band] = []
    for to_see, run in groupby(range(count), key=harmed.__getitem__):
        numbers = list(run)
        folded += [Band(n, n) for n in numbers] if to_see else [Band(numbers[0], numbers[-1])]
    if len(folded) <= limit:
        return tuple(folded)
    step = -(-count // limit)
    return tuple(Band(first, min(first + step, count) - 1) for first in range(0, count, step))


def counted_states(pages: Iterable[Region]) -> dict[PageState, int]:
    """Pages in each state that there is, from the best to the worst."""
    counts = Counter(page.state for page in pages)
    return {state: counts[state] for state in STATES if counts[state]}


def _cell(chunks: dict[tuple[int, int], list[Region]], down: Band, across: Band, limit: int) -> Cell:
    several = down.count > 1 or across.count > 1
    pages = [
        page
        for row_group in range(down.first, down.last + 1)
        for column in range(across.first, across.last + 1)
        for page in sorted(chunks.get((row_group, column), ()), key=_in_chunk)
    ]
    if several:
        # Many pages are drawn by the number of each state, not by their places.
        states = counted_states(pages)
        worst = list(states)[-limit:]
        segments = [GridSegment(state, tuple(page for page in pages if page.state is state)) for state in worst]
    else:
        segments = _segments(pages, limit)
    return Cell(tuple(segments), counted_states(pages), all(len(segment.pages) == 1 for segment in segments))


def _in_chunk(page: Region) -> tuple[int, int]:
    return (page.start, -1) if page.page is None else (page.start, page.page)


def _segments(pages: Sequence[Region], limit: int) -> list[GridSegment]:
    """A segment for each page; where these are too many, for each run of pages alike, or for as many as it takes."""
    if len(pages) <= limit:
        return [_segment([page]) for page in pages]
    alike = [list(run) for _, run in groupby(pages, key=lambda page: page.state)]
    if len(alike) <= limit:
        return [_segment(run) for run in alike]
    step = -(-len(pages) // limit)
    return [_segment(pages[first : first + step]) for first in range(0, len(pages), step)]


def _segment(pages: Sequence[Region]) -> GridSegment:
    worst = max((page.state or PageState.LOST for page in pages), key=_BADNESS.__getitem__)
    return GridSegment(worst, tuple(pages))


def _checkpoints(
    ledger: Ledger, row_groups: Sequence[Band], chunks: dict[tuple[int, int], list[Region]]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The checkpoints behind each band: those that lie behind its first byte, and before the first of the next."""
    starts: dict[int, int] = {}
    for (row_group, _), pages in chunks.items():
        first = min(page.start for page in pages)
        starts[row_group] = min(starts.get(row_group, first), first)
    behind: list[list[tuple[int, int]]] = [[] for _ in row_groups]
    for place in sorted(ledger.checkpoints):
        before = [
            number
            for number, band in enumerate(row_groups)
            if any(starts.get(ordinal, place[0]) < place[0] for ordinal in (band.first, band.last))
        ]
        if before:
            behind[before[-1]].append(place)
    return tuple(map(tuple, behind))
