"""Consecutive pages, laid out in columns and row groups. Pure.

The chunks of a row group stand in the order of the columns and have the same number of rows; then the next row group
begins. So the first page of a row group and its number of rows determine the columns of pages, and most mistakes show:
a dictionary page within a chunk, a page of another type, numbers of rows that differ.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace
from itertools import islice

from resilient_pq.format.resilience_records import ChunkPlace
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.carve.page_probe import ColumnKind, ProbedPage
from resilient_pq.recovery.evidence.search_budget import SearchBudget

#: By the offset of a page, which chunk begins with it.
Places = Mapping[int, ChunkPlace]


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive pages, from index `start` to `end`, of one column chunk; `whole` where these are all of its pages."""

    leaf: int
    start: int
    end: int
    rows: int
    whole: bool


@dataclass(frozen=True, slots=True)
class LaidGroup:
    """Chunks of one row group, from one column on to another; only the last may not be whole."""

    num_rows: int
    spans: tuple[Span, ...]
    end: int
    whole: bool

    @property
    def counted(self) -> bool:
        """Whether a whole chunk gives the number of rows; otherwise `num_rows` are those seen of the first chunk."""
        return any(span.whole for span in self.spans)


@dataclass(frozen=True, slots=True)
class PlacedSpan:
    """Pages of a chunk of a kind, and whether they are known to begin and to end it."""

    span: Span
    kind: ColumnKind
    begins_chunk: bool
    ends_chunk: bool


@dataclass(slots=True)
class PlacedGroup:
    """The pages found of one row group, by column; its rows, and what is known of those before it."""

    num_rows: int | None
    spans: list[list[PlacedSpan]]
    first_row: int | None = None
    follows: bool = True  # Whether no row group seems to be missing before it, or within the one before it

    @property
    def adrift(self) -> bool:
        """Whether its pages, of one column alone, are in each other's rows, whichever these are."""
        return sum(map(bool, self.spans)) == 1 and not any(spans[0].begins_chunk for spans in self.spans if spans)

    def may_have(self, num_rows: int, more: Span | None) -> bool:
        """Whether its pages, and more of a chunk, can be of a row group of so many rows."""
        if self.num_rows is not None:
            return self.num_rows == num_rows
        seen = [sum(placed.span.rows for placed in spans) for spans in self.spans]
        if more is not None:
            seen[more.leaf] += more.rows
        return max(seen) <= num_rows


class _Column:
    """The rows of pages if they belong to one kind of column, so that chunks are laid out without reading each page."""

    def __init__(self, pages: Sequence[ProbedPage], kind: ColumnKind, borders: Collection[int]) -> None:
        rows, self._total = 0, array("q", [0])  # rows in all pages before an index
        self._stops: list[int] = []  # pages that cannot follow another one of their chunk
        self._unfit: list[int] = []  # pages that cannot be of the column at all
        self._wanting: list[int] = []  # pages that cannot be read without a dictionary page
        for index, page in enumerate(pages):
            found = page.rows.get(kind)
            rows += found or 0
            self._total.append(rows)
            if found is None:
                self._unfit.append(index)
            if found is None or page.is_dictionary or index in borders:
                self._stops.append(index)
            if page.needs_dictionary:
                self._wanting.append(index)

    def limit(self, start: int, end: int, *, has_dictionary: bool) -> int:
        """Index behind the last page that a chunk beginning with a page can have."""
        if _first(self._unfit, start, end) == start:
            return start
        limit = _first(self._stops, start + 1, end)
        return limit if has_dictionary else _first(self._wanting, start, limit)

    def rows(self, start: int, end: int) -> int:
        """Rows that begin in some pages."""
        return self._total[end] - self._total[start]

    def place(self, start: int, end: int, num_rows: int) -> int | None:
        """Index behind the most pages from `start` on that have so many rows together; None for none."""
        wanted = self._total[start] + num_rows
        place = bisect_right(self._total, wanted, start, end + 1) - 1
        return place if place > start and self._total[place] == wanted else None

    def counts(self, start: int, end: int) -> list[int]:
        """All numbers of rows that the pages from `start` on have together."""
        before = self._total[start]
        return sorted({total - before for total in self._total[start + 1 : end + 1]})


def _first(indexes: list[int], start: int, end: int) -> int:
    """The first of some ascending indexes from `start` on; `end` where none comes before it."""
    place = bisect_left(indexes, start)
    return min(indexes[place], end) if place < len(indexes) else end


class PageLayout:
    """Ways to lay out pages."""

    def __init__(
        self,
        pages: Sequence[ProbedPage],
        columns: Sequence[ColumnKind],
        borders: Collection[int],
        expected_rows: Collection[int],
        steps: SearchBudget,
        places: Places | None = None,
        *,
        separated: bool = False,
    ) -> None:
        """Take the pages, the kinds of columns, and what is known of them.

        `borders` are indexes of pages that begin a chunk; `separated` means that bytes lie between any two chunks, so
        that adjacent pages belong to one.
        """
        self._places = places or {}
        self._separated = separated
        # Where chunks can be laid out in several ways, by first page and column: the index behind their last page
        self.unclear: dict[tuple[int, int], int] = {}
        self.pages = pages
        self.columns = columns
        self.borders = frozenset(borders)
        self.expected_rows = set(expected_rows)
        self._groups: dict[tuple[int, int], list[LaidGroup]] = {}
        self.steps = steps
        self._columns = {kind: _Column(pages, kind, self.borders) for kind in set(columns)}

    def forget(self) -> None:
        """Discard layouts, as other numbers of rows are expected now."""
        self._groups.clear()

    def groups(self, start: int, end: int) -> list[LaidGroup]:
        """The row groups of pages the first of which begins one; the last may be cut."""
        key = start, end
        if key not in self._groups:
            self._groups[key] = self._lay_groups(start, end)
        return self._groups[key]

    def _lay_groups(self, start: int, end: int) -> list[LaidGroup]:
        found: list[LaidGroup] = []
        expected = set(self.expected_rows)
        at = start
        while at < end:
            group = self.group(at, end, 0, expected)
            if group is None:
                break
            found.append(group)
            at = group.end
            if not group.whole:
                break
            expected.add(group.num_rows)
        return found

    def group(self, start: int, end: int, leaf: int, expected: Set[int] | None = None) -> LaidGroup | None:
        """The chunks of a row group from one column on, beginning with a page; None where there is no way.

        Where pages can be laid out in several ways, only an expected number of rows decides: the one that lays out a
        whole row group and allows another behind it. That the pages of each column are alike does not, as the values of
        columns may grow together.
        """
        expected = self.expected_rows if expected is None else expected
        counts = self.row_counts(start, end, leaf, expected)
        if len(self.columns) == 1:
            counts = counts[-1:]  # where a row group ends is all the same with one column
        usual = self._lay_all(start, end, leaf, sorted(expected & set(counts), reverse=True), expected)
        for way in usual:
            if way.whole and self._may_go_on(way.end, end):
                return way
        ways = self._lay_all(start, end, leaf, counts, expected)
        whole = [way for way in ways if way.whole]
        good = list(islice((way for way in whole if self._may_go_on(way.end, end)), 2))  # two are as bad as many
        if not good and any(way.end == end and self._is_told(way, expected) for way in usual):
            return self._longest(usual, expected)
        return self._only(good or whole, ways, start, end) if whole else self._longest(ways, expected)

    def _only(self, possible: Sequence[LaidGroup], ways: Sequence[LaidGroup], start: int, end: int) -> LaidGroup | None:
        """The only way to lay out a whole row group; None where there are more, or it may be one that was cut."""
        cut = [way for way in ways if not way.whole and way.end == end]
        if len(possible) + len(cut) == 1:
            return possible[0]
        goes_on = cut or self._may_go_on(possible[0].end, end)
        self.unclear[start, ways[0].spans[0].leaf] = end if goes_on else max(way.end for way in possible)
        return None

    def _longest(self, ways: Sequence[LaidGroup], expected: Set[int]) -> LaidGroup | None:
        """The way to lay out a row group that was cut, as far as all ways of that length agree."""
        if not ways:
            return None
        best = max(ways, key=lambda way: (self._is_told(way, expected), way.end, len(way.spans)))
        # The last pages may be more of one chunk, or begin the next.
        is_told = self._is_told(best, expected)
        rivals = [way for way in ways if way.end == best.end and (way.num_rows in expected or not is_told)]
        return self._without_next(self._in_common(rivals) if len(rivals) > 1 else best)

    def _is_told(self, way: LaidGroup, expected: Set[int]) -> bool:
        """Whether a chunk has as many rows as expected, and another begins behind it, or there is one column only.

        Behind the last page nothing tells, as the last row group may have fewer rows than others.
        """
        if way.end == len(self.pages) or not way.counted or way.num_rows not in expected:
            return False
        return len(way.spans) > 1 or len(self.columns) == 1

    def _without_next(self, way: LaidGroup) -> LaidGroup:
        """The same, but of a lone chunk only those pages that cannot be of the next column.

        Bytes that are missing between its pages without a trace would explain as well why no whole row group fits.
        """
        span, count = way.spans[0], len(self.columns)
        if len(way.spans) > 1 or count == 1 or self.columns[span.leaf] != self.columns[(span.leaf + 1) % count]:
            return way
        column = self._columns[self.columns[span.leaf]]
        first = span.start + self.pages[span.start].is_dictionary
        end = next((i for i in range(first + 1, span.end) if not self.pages[i].needs_dictionary), span.end)
        cut = Span(span.leaf, span.start, end, column.rows(span.start, end), whole=False)
        return way if end == span.end else LaidGroup(cut.rows, (cut,), end, whole=False)

    def _in_common(self, ways: Sequence[LaidGroup]) -> LaidGroup:
        """The spans in which ways to lay out the same pages agree."""
        spans: list[Span] = []
        for each in zip(*(way.spans for way in ways), strict=False):
            if any(span != each[0] for span in each):
                leaf, start, end = each[0].leaf, each[0].start, min(span.end for span in each)
                rows = self._columns[self.columns[leaf]].rows(start, end)
                spans.append(Span(leaf, start, end, rows, whole=False))
                break
            spans.append(each[0])
        counted = ways[0].num_rows if any(span.whole for span in spans) else spans[0].rows
        return LaidGroup(counted, tuple(spans), spans[-1].end, whole=False)

    def _lay_all(self, start: int, end: int, leaf: int, counts: Sequence[int], expected: Set[int]) -> list[LaidGroup]:
        """The ways with all possible numbers of rows."""
        ways = [way for rows in counts if (way := self._lay(start, end, leaf, rows)) is not None]
        return [self._without_guess(way, end) if way.num_rows not in expected else way for way in ways]

    def _without_guess(self, way: LaidGroup, end: int) -> LaidGroup:
        """The same, but a lone chunk is not whole where bytes are missing behind its last page."""
        if len(self.columns) == 1 or len(way.spans) != 1 or way.end < end:
            return way
        return replace(way, spans=(replace(way.spans[0], whole=False),), whole=False)

    def _may_go_on(self, at: int, end: int) -> bool:
        if at >= end:
            return True
        counts = self.row_counts(at, end, 0, self.expected_rows)
        return any(self._lay(at, end, 0, rows) is not None for rows in reversed(counts))

    def row_counts(self, start: int, end: int, leaf: int, expected: Set[int] = frozenset()) -> list[int]:
        """The numbers of rows that a chunk beginning with a page may have."""
        column = self._columns[self.columns[leaf]]
        limit = column.limit(start, end, has_dictionary=self.pages[start].is_dictionary)
        if limit == start:
            return []
        self.steps.take(limit - start)
        counts = column.counts(start, limit)[-1:] if self._separated else column.counts(start, limit)
        if counts[0] == 0 and (len(counts) > 1 or self.pages[limit - 1].is_dictionary):
            del counts[0]  # of a dictionary page alone, or of a page without values
        if not counts:
            return [rows for rows in sorted(expected) if rows] if limit == end else []
        if limit == end:  # it may be cut short, in a row group of as many rows as others have
            counts += [rows for rows in sorted(expected) if rows > counts[-1]]
        return counts

    def _lay(self, start: int, end: int, leaf: int, num_rows: int) -> LaidGroup | None:
        """The chunks of a row group of so many rows; None where there is no way."""
        spans: list[Span] = []
        at = start
        for ordinal in range(leaf, len(self.columns)):
            if at == end:
                return LaidGroup(num_rows, tuple(spans), at, whole=False) if num_rows else None
            span = self.chunk(at, end, ordinal, num_rows)
            if span is None:
                return None
            spans.append(span)
            at = span.end
            if not span.whole:
                return LaidGroup(num_rows, tuple(spans), at, whole=False)
        return LaidGroup(num_rows, tuple(spans), at, whole=True)

    def place(self, page: int) -> ChunkPlace | None:
        """Which chunk begins with a page, where that is known, and there is such a column."""
        place = self._places.get(self.pages[page].page.offset)
        return None if place is None or place.column >= len(self.columns) else place

    def may_begin(self, page: int, leaf: int) -> bool:
        """Whether a page can be the first of a chunk of a column, of which there may be more than those known."""
        place = self._places.get(self.pages[page].page.offset)
        return self.columns[leaf] in self.pages[page].rows and (place is None or place.column == leaf)

    def chunk(self, start: int, end: int, leaf: int, num_rows: int) -> Span | None:
        """The chunk of a column that begins with a page and has so many rows, or is cut at `end`; None for none."""
        column = self._columns[self.columns[leaf]]
        limit = column.limit(start, end, has_dictionary=self.pages[start].is_dictionary)
        self.steps.take()
        if limit == start or not self.may_begin(start, leaf):
            return None
        place = column.place(start, limit, num_rows)
        if self._separated and limit < end and (limit not in self.borders or place != limit):
            return None
        if place is not None and (place == limit or not self._separated):
            return Span(leaf, start, place, num_rows, whole=True)
        rows = column.rows(start, limit)
        return Span(leaf, start, limit, rows, whole=False) if limit == end and rows < num_rows else None
