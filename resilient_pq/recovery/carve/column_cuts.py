"""Pages without a schema, cut into chunks that are assigned to columns by what repeats. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import combinations, pairwise

from resilient_pq.format.encodings import DICTIONARY_ENCODINGS
from resilient_pq.format.resilience_records import ChunkPlace
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.carve.page_layout import PageLayout, Span
from resilient_pq.recovery.carve.page_probe import ColumnKind, ProbedPage, encoding_of
from resilient_pq.recovery.evidence.search_budget import SearchBudget

#: Rows of one column are of much the same size in all row groups.
_ALIKE = 0.3
#: Numbers of one column go as far, and begin no further from each other, up to so many times.
_FAR = 4
#: Of the chunks of columns that repeat themselves, so many are alike: values may change from row group to row group.
_MOST = 0.75
#: Where some are damaged, so many can be of the same column, in so many row groups at least.
_NEARLY = 0.8
#: What happens by chance once in a thousand times, as a logarithm.
_RARE = math.log(1000)
_ENOUGH = 3


@dataclass(frozen=True, slots=True)
class CutChunk:
    """A chunk, and how it differs from those of other columns."""

    kinds: tuple[ColumnKind, ...]  # The kinds of columns that it may be of, the simplest first
    start: int  # Index of its first page
    end: int  # Index after its last
    rows: int
    has_values: bool  # Whether it has any value that is not null
    has_dictionary: bool  # Whether values of it are in a dictionary
    size: int  # Bytes of its pages before compression
    # Of its pages, how many look like floating-point numbers, and how many can be looked at so
    floating: tuple[int, int]
    # The least and the greatest of its values as integers, where they are numbers that can be seen
    numbers: tuple[float, float] | None

    def is_like(self, other: CutChunk) -> bool:
        """Whether both look much the same."""
        if not (self.has_values and other.has_values):
            return True
        return self.is_as_large(other) and self._has_numbers_like(other)

    def is_as_large(self, other: CutChunk) -> bool:
        """Whether the values of both are as large, and both or none are in a dictionary."""
        if self.has_dictionary != other.has_dictionary:
            return False
        sizes = self.size / max(self.rows, 1), other.size / max(other.rows, 1)
        return abs(sizes[0] - sizes[1]) <= _ALIKE * max(sizes)

    def _has_numbers_like(self, other: CutChunk) -> bool:
        if self.numbers is None or other.numbers is None:
            return True
        spans = self.numbers[1] - self.numbers[0], other.numbers[1] - other.numbers[0]
        apart = max(self.numbers[0], other.numbers[0]) - min(self.numbers[1], other.numbers[1])
        # The last row group may have far fewer rows, and of numbers that ascend a smaller span.
        ratio = max(self.rows, other.rows) / max(min(self.rows, other.rows), 1)
        return max(spans) + 1 <= _FAR * ratio * (min(spans) + 1) and apart <= _FAR * (max(spans) + 1)

    def follows(self, other: CutChunk) -> bool:
        """Whether its numbers begin behind those of another chunk."""
        return self.numbers is not None and other.numbers is not None and self.numbers[0] > other.numbers[1]

    def goes_on(self, other: CutChunk) -> bool:
        """Whether it may continue the column of another chunk, as its numbers ascend without a step."""
        if not (self.follows(other) and _common_kinds([self, other]) and self.is_like(other)):
            return False
        assert self.numbers is not None and other.numbers is not None  # or nothing would follow
        return (self.numbers[0] - other.numbers[1]) * _FAR <= other.numbers[1] - other.numbers[0]


#: Chunks of equally many rows, one after the other: for each kind of column that one may be of, its pages.
Run = list[list[Span]]


class CutChunks:
    """Pages cut into chunks with the same number of rows, whatever their columns."""

    def __init__(
        self,
        pages: Sequence[ProbedPage],
        kinds: Sequence[ColumnKind],
        steps: SearchBudget,
        borders: Collection[int] = (),
    ) -> None:
        """Take the pages, the kinds of columns that they may be of, and the pages that begin chunks if known."""
        self._pages = pages
        self._layout = PageLayout(pages, kinds, borders, (), steps, separated=bool(borders))
        self._leaves = {kind: leaf for leaf, kind in enumerate(kinds)}

    def may_begin(self, page: int) -> bool:
        """Whether a chunk may begin with a page."""
        return self._pages[page].is_dictionary or not self._pages[page].needs_dictionary

    def _may_end(self, page: int) -> bool:
        """Whether a chunk may end before a page, which needs no dictionary before it."""
        return page == len(self._pages) or self.may_begin(page)

    def row_counts(self, start: int) -> list[int]:
        """Numbers of rows that the chunk beginning with a page may have."""
        counts: dict[int, None] = {}
        for leaf in range(len(self._layout.columns)):
            counts.update(dict.fromkeys(self._layout.row_counts(start, len(self._pages), leaf)))
        return list(counts)

    def runs(self, start: int, num_rows: int) -> list[Run]:
        """Runs of chunks with the same number of rows, so many in the first run, as far as pages can be laid out."""
        found: list[Run] = []
        run = self._run(start, num_rows)
        while run:
            found.append(run)
            at = run[-1][0].end
            following = [self._run(at, rows) for rows in self.row_counts(at)] if at < len(self._pages) else []
            run = max(following, key=len, default=[])
        return found

    def of(self, run: Run) -> list[CutChunk]:
        """The chunks of a run."""
        return [self._chunk(spans) for spans in run]

    def reach(self, runs: Sequence[Run]) -> bool:
        """Whether runs have all pages except those of a chunk that is cut."""
        start, end, rows = runs[-1][-1][0].end, len(self._pages), runs[-1][0][0].rows
        leaves = range(len(self._layout.columns))
        return start == end or any(self._layout.chunk(start, end, leaf, rows) is not None for leaf in leaves)

    def are_even(self, runs: Sequence[Run]) -> bool:
        """Whether the pages of most chunks are alike; otherwise they may be chunks of several columns."""
        alike = [
            one.is_like(other) for run in runs for spans in run for one, other in pairwise(self._pages_of(spans[0]))
        ]
        return sum(alike) >= _MOST * len(alike)

    def may_be_columns(self, chunk: CutChunk) -> bool:
        """Whether the pages of a chunk may be chunks of several columns."""
        pages = self._pages_of(Span(self._leaves[chunk.kinds[0]], chunk.start, chunk.end, chunk.rows, whole=True))
        return len(pages) > 1 and not any(page.has_dictionary for page in pages) and not _ascend(pages)

    def _pages_of(self, span: Span) -> list[CutChunk]:
        """The data pages of a chunk, each as a chunk."""
        kind = self._layout.columns[span.leaf]
        data = (at for at in range(span.start, span.end) if not self._pages[at].is_dictionary)
        return [self._chunk([Span(span.leaf, at, at + 1, self._pages[at].rows[kind], whole=True)]) for at in data]

    def _run(self, start: int, num_rows: int) -> Run:
        run: Run = []
        at = start
        while at < len(self._pages) and (spans := self._spans(at, num_rows)):
            run.append(spans)
            at = spans[0].end
        return run

    def _spans(self, at: int, num_rows: int) -> list[Span]:
        """The pages of a chunk with so many rows, for each kind that gives the same pages as the first."""
        end = len(self._pages)
        leaves = sorted(self._leaves[kind] for kind in self._pages[at].rows)
        spans = [self._layout.chunk(at, end, leaf, num_rows) for leaf in leaves]
        whole = [span for span in spans if span is not None and span.whole and self._may_end(span.end)]
        return [span for span in whole if span.end == whole[0].end]

    def _chunk(self, spans: Sequence[Span]) -> CutChunk:
        pages = self._pages[spans[0].start : spans[0].end]
        kinds = tuple(self._layout.columns[span.leaf] for span in spans)
        encodings = {encoding for page in pages if (encoding := encoding_of(page.page.header)) is not None}
        votes = [page.looks_floating for page in pages if page.looks_floating is not None]
        size = sum(page.page.header.uncompressed_page_size for page in pages)
        seen = [page.numbers for page in pages if page.numbers is not None]
        has_values = any(page.has_values and not page.is_dictionary for page in pages)
        numbers = (min(low for low, _ in seen), max(high for _, high in seen)) if seen else None
        return CutChunk(
            kinds, spans[0].start, spans[0].end, spans[0].rows, has_values,
            not encodings.isdisjoint(DICTIONARY_ENCODINGS), size, (sum(votes), len(votes)), numbers,
        )  # fmt: skip


def _common_kinds(chunks: Sequence[CutChunk]) -> list[ColumnKind]:
    """The kinds to which all of some chunks may belong, the simplest first."""
    others = [set(chunk.kinds) for chunk in chunks[1:]]
    return [kind for kind in chunks[0].kinds if all(kind in other for other in others)]


def usual_kinds(chunks: Sequence[CutChunk]) -> list[ColumnKind]:
    """The kinds to which most of some chunks may belong, the simplest first."""
    votes = Counter(kind for chunk in chunks for kind in chunk.kinds)
    most = max(votes.values())
    return [kind for kind in dict.fromkeys(kind for chunk in chunks for kind in chunk.kinds) if votes[kind] == most]


def rank(runs: Sequence[Run]) -> tuple[int, int]:
    """The rank of a way to cut pages into chunks: by its pages, then by row groups no larger than the first."""
    return runs[-1][-1][0].end, -sum(run[0][0].rows > runs[0][0][0].rows for run in runs)


def group_by_places(chunks: Sequence[CutChunk], places: Sequence[ChunkPlace | None]) -> list[list[CutChunk]]:
    """The chunks of each column, where records name each column; none otherwise."""
    columns: dict[int, list[CutChunk]] = {}
    for chunk in chunks:
        place = places[chunk.start]
        if place is not None:
            columns.setdefault(place.column, []).append(chunk)
    return [columns[column] for column in sorted(columns)] if len(columns) == max(columns, default=0) + 1 else []


@dataclass(frozen=True, slots=True)
class ColumnCount:
    """The number of columns."""

    count: int  # The columns
    first: int  # Ordinal of that of the first chunk
    # Chunks, from the first on, whose columns are known; later ones belong to other row groups or columns
    num_known: int

    def columns(self, chunks: Sequence[CutChunk]) -> list[list[CutChunk]]:
        """The chunks of each column."""
        known = chunks[: self.num_known]
        return [list(known[(ordinal - self.first) % self.count :: self.count]) for ordinal in range(self.count)]


def count_columns(runs: Sequence[Sequence[CutChunk]], *, begins: bool) -> ColumnCount | None:
    """The number of columns, and the column of the first chunk; None where it is not clear.

    Row groups have the same number of rows except for the last ones. So a row group ends where a run does, and the
    number of columns divides the chunks of each run. In a single run, types have to repeat.
    """
    for last in range(len(runs), 1, -1):  # behind them are pages of a row group that was cut
        if (counted := _of_several_runs(runs[:last], begins=begins)) is not None:
            # Cut chunks of the last row group may divide those of the others by chance, which then alternate.
            fewer = None if _all_alike(runs[:last], counted.count) else count_columns(runs[: last - 1], begins=begins)
            return counted if fewer is None or fewer.count % counted.count else fewer
    counted = _of_one_run(runs[0], begins=begins, ends=len(runs) > 1)
    if counted is None:
        return None
    columns = counted.columns(runs[0])
    rest = [chunk for run in runs[1:] for chunk in run]
    fit = [_common_kinds([*columns[i % counted.count], chunk]) for i, chunk in enumerate(rest)]
    return counted if all(fit) else None


def _of_several_runs(runs: Sequence[Sequence[CutChunk]], *, begins: bool) -> ColumnCount | None:
    """The number of columns where each run ends with a row group."""
    chunks = [chunk for run in runs for chunk in run]
    most = math.gcd(*map(len, runs if begins else runs[1:]))
    for count in range(most, 0, -1):
        if most % count == 0 and _repeats(chunks, count) and (begins or _all_alike(runs, count)):
            clear = _clear_count(chunks, count)
            return None if clear is None else ColumnCount(clear, -len(runs[0]) % clear, len(chunks))
    return None


def _of_one_run(chunks: Sequence[CutChunk], *, begins: bool, ends: bool) -> ColumnCount | None:
    """The number of columns where all chunks have the same number of rows."""
    known = chunks if begins else chunks[::-1]
    count = _of_equal_rows(known)
    if count is None or _may_be_pages(known, count) or not (begins or ends or 1 == count < len(chunks)):
        return None
    if count < len(chunks):
        return ColumnCount(count, 0 if begins else -len(chunks) % count, len(chunks))
    if begins:
        count = _first_row_group(chunks, count, ends=ends)
    return None if count is None or _have_twins(chunks[:count]) else ColumnCount(count, 0, count)


def _first_row_group(chunks: Sequence[CutChunk], count: int, *, ends: bool) -> int | None:
    """The number of chunks behind which the columns begin again; more columns than there are would be made up."""
    again = (n for n in range(1, count) if _begins_again(chunks, n, ends=ends) or chunks[n].goes_on(chunks[0]))
    count = next(again, count)
    contradicted = not _repeats(chunks, count) and any(_repeats(chunks, n) for n in range(1, count))
    return None if contradicted else count


def _begins_again(chunks: Sequence[CutChunk], count: int, *, ends: bool) -> bool:
    """Whether the chunks behind the first so many can belong to the same columns, in a damaged row group."""
    pairs = list(zip(chunks[:count], chunks[count:], strict=False))
    if len(pairs) == count or ends:
        first = pairs[: max(_ENOUGH, count // 3)]
        return len(first) >= _ENOUGH and all(_common_kinds(pair) and pair[0].is_like(pair[1]) for pair in first)
    alike = [one.is_as_large(other) for one, other in pairs if one.has_values and other.has_values]
    return all(map(_common_kinds, pairs)) and bool(alike) and sum(alike) >= _MOST * len(alike)


def _all_alike(runs: Sequence[Sequence[CutChunk]], count: int) -> bool:
    """Whether the chunks of each run resemble those of the row group before, with so many columns."""
    return all(_are_alike(run, count) for run in runs)


def _of_equal_rows(chunks: Sequence[CutChunk]) -> int | None:
    """The number of columns among chunks with the same number of rows, whether a row group begins or not."""
    if len(chunks) > 1 and _repeats(chunks, 1):
        # That some are more alike than others does not tell, as the values of several columns may grow together.
        return 1 if _ascend(chunks) or _ascend(chunks[::-1]) else None
    # Of a file that was cut, the last row group may lack chunks.
    counts = [n for n in range(1, len(chunks)) if not len(chunks) % n or len(chunks) > 2 * n]
    count = next((count for count in counts if _recurs(chunks, count)), len(chunks))
    return count if count == len(chunks) else _clear_count(chunks, count)


def _clear_count(chunks: Sequence[CutChunk], count: int) -> int | None:
    """So many columns, or fewer of which one goes on through all row groups; None where fewer are as likely.

    Of fewer columns the types repeat as well, and values that vary from row group to row group may be alike by chance
    where so many columns are taken for one.
    """
    fewer = [n for n in range(1, count) if not count % n and _repeats(chunks, n)]
    certain = next((n for n in fewer if any(_go_on(chunks[ordinal::n]) for ordinal in range(n))), None)
    if certain is not None:
        return certain
    if _repeats(chunks, 1) and _are_alike(chunks, 1):
        return count  # where all chunks are alike, nothing but the rows of the last row group tells the columns
    return count if all(_is_no_chance(chunks, count, n) for n in fewer) else None


def _go_on(chunks: Sequence[CutChunk]) -> bool:
    """Whether the numbers of several chunks ascend without a step."""
    return len(chunks) >= _ENOUGH and all(following.goes_on(one) for one, following in pairwise(chunks))


def _is_no_chance(chunks: Sequence[CutChunk], count: int, fewer: int) -> bool:
    """Whether chunks are alike with one number of columns so much more often than with another that it is no chance."""
    (unlike, pairs), (others, of) = _unlike(chunks, count), _unlike(chunks, fewer)
    part, usual = unlike / pairs, others / (of + 1)
    if part >= usual:
        return False
    # By Chernoff's bound it is as unlikely as e to the power of minus this, if any pair is unlike with the usual part.
    rarity = pairs * sum(p * math.log(p / q) for p, q in ((part, usual), (1 - part, 1 - usual)) if p)
    return rarity > _RARE


def _unlike(chunks: Sequence[CutChunk], count: int) -> tuple[int, int]:
    """Of the chunks that follow others of their columns, how many are unlike them, and how many there are."""
    pairs = list(zip(chunks, chunks[count:], strict=False))
    return sum(not one.is_like(other) for one, other in pairs), len(pairs)


def _recurs(chunks: Sequence[CutChunk], count: int) -> bool:
    """Whether so many chunks are followed by chunks of the same columns, row group by row group."""
    return _are_alike(chunks, count) and (_repeats(chunks, count) or _mostly_repeats(chunks, count))


def _have_twins(chunks: Sequence[CutChunk]) -> bool:
    """Whether two chunks may belong to one column, in row groups of which other chunks are missing."""
    return any(
        one.has_values and other.has_values and _common_kinds([one, other]) and one.is_like(other)
        for one, other in combinations(chunks, 2)
    )


def _may_be_pages(chunks: Sequence[CutChunk], count: int) -> bool:
    """Whether several chunks of each row group may be pages of one, as only a dictionary certainly begins a chunk."""
    for pages in (pages for pages in range(2, count + 1) if not count % pages):
        pairs = [pair for i, pair in enumerate(pairwise(chunks), start=1) if i % pages]
        alike = [one.is_like(other) and not other.has_dictionary for one, other in pairs]
        if all(map(_common_kinds, pairs)) and sum(alike) >= _MOST * len(alike):
            return True
    return False


def _are_alike(chunks: Sequence[CutChunk], count: int) -> bool:
    """Whether most chunks resemble those of the row group before, with so many columns."""
    unlike, pairs = _unlike(chunks, count)
    return pairs - unlike >= _MOST * pairs


def _ascend(chunks: Sequence[CutChunk]) -> bool:
    return all(following.follows(one) for one, following in pairwise(chunks))


def _repeats(chunks: Sequence[CutChunk], count: int) -> bool:
    """Whether the kinds of chunks allow so many columns."""
    return all(_common_kinds(chunks[ordinal::count]) for ordinal in range(min(count, len(chunks))))


def _mostly_repeats(chunks: Sequence[CutChunk], count: int) -> bool:
    """Whether they do except for a few chunks, which may be damaged or of another file."""
    fit = [not set(one.kinds).isdisjoint(other.kinds) for one, other in zip(chunks, chunks[count:], strict=False)]
    return len(chunks) >= _ENOUGH * count and sum(fit) >= _NEARLY * len(fit)
