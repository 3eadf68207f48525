"""Stretches of pages with missing bytes between them, each put at its place in the file. Pure.

Where a stretch begins within a row group, the types of its pages and their rows must refute every column but one;
otherwise it is left out, since rows with mixed-up columns are worse than lost rows. The number of missing bytes before
it decides which row group it is of, but only where all of them are still there, overwritten: where bytes may be
deleted, it begins a row group of its own, as its rows may be others than those before the hole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from resilient_pq.errors import FormatError
from resilient_pq.format.resilience_records import ChunkPlace
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.carve.holes import Hole
from resilient_pq.recovery.carve.page_layout import LaidGroup, PageLayout, PlacedGroup, PlacedSpan, Span

#: Of several row groups one is taken where the bytes that are missing differ from what is usual by at most `_NEARLY` of
#: a row group, or by `_CLEARLY` less than those of any other.
_NEARLY, _CLEARLY = 0.3, 0.4
#: Pages of a chunk's end looked at, at the start of a stretch, to find where the next chunk begins.
_MOST_LEADING = 512


@dataclass(frozen=True, slots=True)
class _Place:
    """A way to continue with a stretch: the last pages of a chunk, then whole chunks from a column on."""

    lead: Span | None
    leaf: int
    group: LaidGroup | None


@dataclass(slots=True)
class StretchPlacement:
    """The row groups that stretches make up."""

    layout: PageLayout  # The pages
    stretches: Sequence[tuple[int, int]]  # Index of the first page of each stretch, and the one after its last
    from_start: bool  # Whether the first stretch begins where the file's data do
    holes: Mapping[int, Hole]  # What is before a stretch, by the index of its first page
    groups: list[PlacedGroup] = field(default_factory=list)  # What was found so far
    left_out: list[tuple[int, int]] = field(default_factory=list)  # Stretches, or ends of them, that were put nowhere
    ended: tuple[int, int] | None = None  # The pages that were not looked at, as that would have cost too much
    _at: int = 0  # index of the page that is being placed
    _chunk: int = 0  # number, in the file, of the chunk that is under way
    _last: int = -1  # index of the last page that was placed
    _doubtful: int = -1  # index behind the last row group that was cut: the pages there may be of several columns
    _follows: bool = True  # whether the next row group that begins is the one after the last
    _sizes: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # of whole chunks, by column: rows, bytes

    def run(self) -> None:
        """Place all stretches, and again with the sizes learned where some were left out.

        Where that costs too much, the row groups placed until then stay, and `ended` are the pages that were not
        placed.
        """
        self._within(self._learn, self.layout.steps.limit // 4)
        self._within(self._place_all, self.layout.steps.limit)
        if self.left_out and self.groups and self.ended is None:
            for group in self.groups:
                self._note([placed.span for spans in group.spans for placed in spans])
            self.layout.forget()
            first = self.groups, self.left_out
            self.groups, self.left_out = [], []
            self._chunk, self._last, self._follows = 0, -1, True
            self._within(self._place_all, self.layout.steps.limit)
            if self.ended is not None:
                (self.groups, self.left_out), self.ended = first, None

    def _within(self, search: Callable[[], None], limit: int) -> None:
        """Search until so many steps are taken."""
        steps, whole = self.layout.steps, self.layout.steps.limit
        steps.limit = limit
        try:
            search()
        except FormatError:
            if not steps.ended:
                raise
            if limit == whole:
                self.ended = (self._at, len(self.layout.pages))
            else:
                steps.ended = False
        finally:
            steps.limit = whole

    def _place_all(self) -> None:
        for number, (start, end) in enumerate(self.stretches):
            at = start
            while at < end:
                self._at = at
                if number == 0 and at == start and self.from_start:
                    following = self._go_on(at, end)
                else:
                    following = self._place(at, end)
                if following == at or (following == self._doubtful and following < end):
                    self.left_out.append((following, end))
                    break
                at = following

    def _learn(self) -> None:
        """Learn the usual sizes of chunks from pages that can be laid out in one way only."""
        for start, end in self.stretches:
            if start == 0 and self.from_start:
                for group in self.layout.groups(start, end):
                    self._note(group.spans)
                continue
            first = next((i for i in range(start, end) if self.layout.pages[i].is_dictionary), start)
            groups = [self.layout.group(first, end, leaf) for leaf in range(len(self.layout.columns))]
            ways = [way for way in groups if way is not None and self._reach(way, end) == end]
            if len(ways) == 1 and ways[0].whole:
                for learned in (ways[0], *self.layout.groups(ways[0].end, end)):
                    self._note(learned.spans)

    def _reach(self, group: LaidGroup, end: int) -> int:
        """The index behind the last page that may be laid out behind a row group."""
        last = [group, *(self.layout.groups(group.end, end) if group.whole else [])][-1]
        if last.whole:
            return self.layout.unclear.get((last.end, 0), last.end)
        return end if last.spans else last.end

    def _note(self, spans: Sequence[Span]) -> None:
        for span in spans:
            if span.whole:
                self._sizes.setdefault(span.leaf, []).append((span.rows, self._bytes(span)))

    def _go_on(self, at: int, end: int) -> int:
        """Take the row groups that begin with a page; returns the index behind them."""
        for group in self.layout.groups(at, end):
            self._take(group, None)
            at = group.end
        return at

    def _take(self, group: LaidGroup, lead: Span | None) -> None:
        """Add chunks, from the chunk number that is reached on."""
        count = len(self.layout.columns)
        if lead is not None:
            self._add(lead, begins=False, ends=True)
            self._chunk += 1
        if not group.whole:
            self._doubtful = group.end
        for span in group.spans:
            self._chunk += (span.leaf - self._chunk) % count
            self._add(span, begins=True, ends=span.whole)
            told = self.layout.place(span.start)
            if told is not None and told.row_group == self._chunk // count:
                self._group().first_row = told.first_row
            if span.whole:
                self.layout.expected_rows.add(group.num_rows)
                self._group().num_rows = group.num_rows
                self._chunk += 1

    def _group(self) -> PlacedGroup:
        count = len(self.layout.columns)
        while len(self.groups) <= self._chunk // count:
            self.groups.append(PlacedGroup(None, [[] for _ in range(count)], follows=self._follows))
            self._follows = True
        return self.groups[self._chunk // count]

    def _add(self, span: Span, *, begins: bool, ends: bool) -> None:
        self._group().spans[span.leaf].append(PlacedSpan(span, self.layout.columns[span.leaf], begins, ends))
        self._last = span.end - 1

    def _place(self, start: int, end: int) -> int:
        """Place a stretch; returns the index behind the pages that were placed."""
        told = self.layout.place(start)
        group = None if told is None else self.layout.group(start, end, told.column)
        if told is not None and group is not None and not self._has(told):
            self._chunk = told.row_group * len(self.layout.columns) + told.column
            self._take(group, None)
            return self._go_on(group.end, end) if group.whole else group.end
        places = self._places(start, end)
        chosen = self._choose(start, places)
        if chosen is None:
            return start
        place, chunk = chosen
        self._follows = self._follows and self._is_counted(start) and self._explains_gap(start, place, chunk)
        self._chunk = chunk
        if place.group is None:
            assert place.lead is not None
            self._add(place.lead, begins=False, ends=False)
            rows = self._group().num_rows
            known = self.layout.expected_rows if rows is None else {rows}
            if sum(placed.span.rows for placed in self._group().spans[place.lead.leaf]) in known:
                self._chunk += 1
            return place.lead.end
        self._take(place.group, place.lead)
        return self._go_on(place.group.end, end) if place.group.whole else place.group.end

    def _has(self, place: ChunkPlace) -> bool:
        """Whether a chunk has pages already, or its row group cannot exist."""
        if place.row_group > len(self.groups) + len(self.layout.pages):
            return True
        return place.row_group < len(self.groups) and bool(self.groups[place.row_group].spans[place.column])

    def _places(self, start: int, end: int) -> list[_Place]:
        """All ways to continue with a stretch."""
        found: list[_Place] = []
        pages, columns = self.layout.pages, self.layout.columns
        last = next((i for i in range(start, end) if pages[i].is_dictionary or i in self.layout.borders), end)
        for first in range(start, min(last, start + _MOST_LEADING) + 1):
            for leaf in range(len(columns)):
                lead = self._lead(start, first, (leaf - 1) % len(columns)) if first > start else None
                if (lead is not None or first == start) and (place := self._place_at(first, end, leaf, lead)):
                    found.append(place)
        reached = [end if place.group is None else self._reach(place.group, end) for place in found]
        return self._without_odd([place for place, reach in zip(found, reached, strict=True) if reach == max(reached)])

    def _without_odd(self, places: Sequence[_Place]) -> list[_Place]:
        """The places, without chunks of an unusual number of rows whose pages may end another one of their column."""
        ends = {(place.lead.leaf, place.lead.end) for place in places if place.lead is not None and place.group}
        return [
            place
            for place in places
            if place.lead is not None
            or place.group is None
            or not place.group.counted
            or place.group.num_rows in self.layout.expected_rows
            or (place.leaf, place.group.spans[0].end) not in ends
        ]

    def _place_at(self, first: int, end: int, leaf: int, lead: Span | None) -> _Place | None:
        """The way to continue with a column at a page; None for none."""
        if first == end:
            return _Place(lead, leaf, None)
        group = self.layout.group(first, end, leaf)
        begins = self.layout.pages[first].is_dictionary or first in self.layout.borders
        unclear = self.layout.unclear.get((first, leaf))
        if group is None and unclear is not None:
            group, begins = LaidGroup(0, (), unclear, whole=False), True
        # Where nothing tells how many rows a column has, it is not refuted.
        if group is None or not (group.counted or begins):
            return None
        fits = lead is None or leaf == 0 or not group.counted or self._may_lead(lead, group.num_rows)
        return _Place(lead, leaf, group) if fits else None

    def _may_lead(self, lead: Span, num_rows: int) -> bool:
        """Whether pages can be the end, but not all, of a chunk of so many rows."""
        if lead.rows == num_rows:
            return any(page.needs_dictionary for page in self.layout.pages[lead.start : lead.end])
        return lead.rows < num_rows

    def _lead(self, start: int, end: int, leaf: int) -> Span | None:
        """The pages as the end of a chunk of a column; None where they cannot be that."""
        kind, rows = self.layout.columns[leaf], 0
        most = max(self.layout.expected_rows, default=None)
        for page in self.layout.pages[start:end]:
            found = page.rows.get(kind)
            if found is None:
                return None
            rows += found
        lead = Span(leaf, start, end, rows, whole=False)
        return lead if most is None or self._may_lead(lead, most) else None

    def _choose(self, start: int, places: Sequence[_Place]) -> tuple[_Place, int] | None:
        """The only place and the number of its first chunk; None where there are more, or no number fits."""
        if len(places) != 1 or (places[0].group is not None and not places[0].group.counted):
            return None
        place, count = places[0], len(self.layout.columns)
        if self._is_counted(start):
            rated = sorted((self._badness(start, place, chunk), chunk) for chunk in self._chunks(start, place))
            best, chunk = rated[0]
            is_clear = best <= _NEARLY * count or (len(rated) > 1 and rated[1][0] >= best + _CLEARLY * count)
            whole = place.lead if place.group is not None else None  # it ends its chunk
            if is_clear and self._has_all_rows(start, whole, chunk):
                return place, chunk
        # A row group of its own, without the pages before.
        number = self._chunk // count
        number += number < len(self.groups) and any(self.groups[number].spans)
        return place, count * number + (place.leaf if place.lead is None else place.lead.leaf)

    def _is_counted(self, start: int) -> bool:
        """Whether as many bytes lie between what was placed last and a page as were written there."""
        holes = (self.holes[i] for i in range(self._last + 1, start + 1) if i in self.holes)
        return all(hole.is_full_length and (hole.num_values is None or self._sizes_vary()) for hole in holes)

    def _sizes_vary(self) -> bool:
        """Whether chunks of as many rows differ in size; else a page between whole headers may be parts of two."""
        return any(len({rows for rows, _ in sizes}) < len(set(sizes)) for sizes in self._sizes.values())

    def _has_all_rows(self, start: int, lead: Span | None, chunk: int) -> bool:
        """Whether the damaged pages between two parts of a chunk have just the rows that are missing there."""
        hole = self.holes.get(start)
        if hole is None or hole.num_values is None or lead is None or chunk != self._chunk or not self._unfinished():
            return True
        (*more, seen), rows = self._group().spans[lead.leaf], self._group().num_rows
        is_known = rows is not None and not more and seen.begins_chunk and not seen.kind.max_repetition_level
        return not is_known or seen.span.rows + hole.num_values + lead.rows == rows

    def _chunks(self, start: int, place: _Place) -> list[int]:
        """The numbers in the file that the first chunk of a place may have."""
        count = len(self.layout.columns)
        leaf = place.leaf if place.lead is None else place.lead.leaf
        nearest = self._chunk + (leaf - self._chunk) % count
        if self._unfinished() and nearest == self._chunk and (place.lead is None or not self._fits_rest(place.lead)):
            nearest += count
        gap, whole = self._gap(start), self._usual_group()
        if self._last < 0 or gap is None or not whole:
            return [nearest]
        skipped = max(int((gap - self._missing(place, nearest)) // whole), 0)
        return [nearest + count * number for number in (skipped, skipped + 1)]

    def _unfinished(self) -> bool:
        number, leaf = divmod(self._chunk, len(self.layout.columns))
        return number < len(self.groups) and bool(self.groups[number].spans[leaf])

    def _fits_rest(self, lead: Span) -> bool:
        """Whether pages can continue the chunk that is not finished."""
        group = self._group()
        seen = sum(placed.span.rows for placed in group.spans[lead.leaf])
        return group.num_rows is None or seen + lead.rows <= group.num_rows

    def _badness(self, start: int, place: _Place, chunk: int) -> float:
        """How much the number of missing bytes differs from the usual one, in chunks, and unusual numbers of rows."""
        odd_rows, number = 0.0, chunk // len(self.layout.columns)
        if place.group is not None and place.group.counted:
            known = self.groups[number] if number < len(self.groups) else None
            if place.leaf > 0 and known is not None and not known.may_have(place.group.num_rows, place.lead):
                return float("inf")
            if self.layout.expected_rows and place.group.num_rows not in self.layout.expected_rows:
                odd_rows = 1.0
        gap = self._gap(start)
        if gap is None or not self._sizes or self._last < 0:
            return odd_rows
        usual = sum(map(self._usual, self._sizes)) / len(self._sizes)
        return odd_rows + abs(gap - self._missing(place, chunk)) / max(usual, 1) + self._odd(place)

    def _odd(self, place: _Place) -> float:
        """How unusual the sizes of the whole chunks of a place are, from 0 to 1 on average."""
        ratios = []
        for span in () if place.group is None else place.group.spans:
            if span.whole and span.leaf in self._sizes:
                usual, size = self._usual(span.leaf), self._bytes(span)
                ratios.append(abs(size - usual) / max(size, usual, 1))
        return sum(ratios) / len(ratios) if ratios else 0.0

    def _explains_gap(self, start: int, place: _Place, chunk: int) -> bool:
        """Whether about as many bytes are missing before a place as usual, so that no row group seems lost there."""
        gap, missing = self._gap(start), self._missing(place, chunk)
        usual = self._usual_group() / len(self.layout.columns)
        return gap is None or abs(gap - missing) <= _NEARLY * max(missing, usual)

    def _gap(self, start: int) -> int | None:
        """Bytes between what was placed last and a page."""
        if self._last < 0:
            return None
        return self.layout.pages[start].page.offset - self.layout.pages[self._last].page.end

    def _missing(self, place: _Place, chunk: int) -> float:
        """Bytes that should be missing before a place."""
        count = len(self.layout.columns)
        expected = sum(self._usual(number % count) for number in range(self._chunk, chunk))
        if self._unfinished():
            spans = self._group().spans[self._chunk % count]
            expected -= sum(self._bytes(placed.span) for placed in spans)
        if place.lead is not None:
            expected += self._usual(place.lead.leaf) - self._bytes(place.lead)
        return max(expected, 0)

    def _usual(self, leaf: int) -> float:
        """The usual bytes of a chunk of a column, without those of small row groups such as the last."""
        known = self._sizes.get(leaf) or [noted for sizes in self._sizes.values() for noted in sizes] or [(0, 0)]
        most = max(rows for rows, _ in known)
        sizes = [size for rows, size in known if rows * 2 >= most]
        return sum(sizes) / len(sizes)

    def _usual_group(self) -> float:
        return sum(map(self._usual, range(len(self.layout.columns)))) if self._sizes else 0.0

    def _bytes(self, span: Span) -> int:
        return self.layout.pages[span.end - 1].page.end - self.layout.pages[span.start].page.offset
