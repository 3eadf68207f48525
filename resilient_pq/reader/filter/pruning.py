"""Pruning of a plan by indexes: which rows of its row groups may be wanted, and which pages hold them. Pure.

`indexes_wanted` names the indexes that could help, and `narrow_plan` makes a smaller plan of their bytes. An index that
is missing, damaged, or contradicts the footer only leaves more to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Any, Final, TypeVar

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.format.file_metadata import OffsetIndex
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.indexes.row_ranges import Rows, count, first, intersection, rows_of
from resilient_pq.format.indexes.split_block_filter import BloomFilter
from resilient_pq.format.indexes.trusted_bounds import ColumnStatistics, DecodedColumnIndex
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page_sums import PageSums
from resilient_pq.format.pages.selected_pages import page_rows, select_pages
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.filter import index_ranges
from resilient_pq.reader.filter.filters import Filter, Term
from resilient_pq.reader.filter.index_ranges import IndexedChunk, IndexPlace
from resilient_pq.reader.read_plan import ReadPlan, RowGroupLeftOut, RowGroupRead, term_may_hold
from resilient_pq.units import MiB

T = TypeVar("T")
#: An index is fetched where it has at most this share of the bytes that are read of its row group.
_WORTH_FETCHING: Final = 0.25
#: Bytes of indexes that are fetched for one read at most; row groups behind those are read as if they had none.
_MOST_BYTES: Final = 64 * MiB
#: Pages are selected where this share of a chunk's bytes need not be read.
_WORTH_SELECTING: Final = 0.25

#: The bytes of indexes that could be read, by file and offset.
Known = Mapping[tuple[str | None, int], memoryview]


def key_of(place: IndexPlace) -> tuple[str | None, int]:
    """How `Known` names a place."""
    return place.file, place.range.start


def indexes_wanted(contents: Contents, plan: ReadPlan, limit: int | None = None) -> list[IndexPlace]:
    """The indexes that may narrow a plan; a `limit` counts only without a filter."""
    found: list[IndexPlace] = []
    left = limit
    if limit == 0:
        return found
    for group in plan.row_groups:
        if plan.filter is None and (left is None or left >= group.num_rows):
            left = None if left is None else left - group.num_rows
            continue
        found += _indexes_of_group(contents, group, plan.filter)
        if plan.filter is None:
            break
    return found


def _indexes_of_group(contents: Contents, group: RowGroupRead, chosen: Filter | None) -> Iterator[IndexPlace]:
    def at(find: Callable[[IndexedChunk], IndexPlace | None], chunk: IndexedChunk) -> Iterator[IndexPlace]:
        with suppress(FormatError):
            place = find(chunk)
            if place is not None:
                yield place

    for leaf in () if chosen is None else chosen.leaves:
        chunk = IndexedChunk(contents, group.ordinal, leaf)
        yield from at(index_ranges.column_index_place, chunk)
        if any(term.plain is not None for term in _terms(chosen) if term.leaf == leaf):
            yield from at(index_ranges.bloom_filter_place, chunk)
    for read in group.chunks:
        yield from at(index_ranges.offset_index_place, IndexedChunk(contents, group.ordinal, read.leaf))


def _terms(chosen: Filter | None) -> list[Term]:
    return [] if chosen is None else [term for terms in chosen.any_of for term in terms]


def worth_a_wave(plan: ReadPlan, missing: Sequence[IndexPlace], wave_bytes: int) -> list[IndexPlace]:
    """The missing indexes that are worth a round trip, in which `wave_bytes` could be read instead."""
    of_group = {group.ordinal: group.num_bytes for group in plan.row_groups}
    if sum(of_group.values()) <= wave_bytes:
        return []
    worth: list[IndexPlace] = []
    total = 0
    for place in missing:
        total += place.range.size
        if total > _MOST_BYTES:
            break
        if place.range.size <= _WORTH_FETCHING * of_group[place.chunk.row_group]:
            worth.append(place)
    return worth


def narrow_plan(
    contents: Contents, plan: ReadPlan, known: Known, limit: int | None = None, *, verify: bool = True
) -> ReadPlan:
    """The plan without the row groups, rows and pages that indexes at hand, or a limit, rule out."""
    groups: list[RowGroupRead] = []
    left_out = list(plan.left_out)
    left = limit
    for group in plan.row_groups:
        indexes = _RowGroupIndexes(contents, group, known, verify=verify)
        by, rows = "limit", _all_rows(group)
        if plan.filter is not None:
            by, rows = indexes.find_rows(plan.filter)
        if left is not None and (plan.filter is None or not limit):
            by, rows = "limit" if rows else by, first(rows, left)
            left -= count(rows)
        if rows or not group.num_rows:
            groups.append(indexes.select_rows(rows))
        else:
            left_out.append(RowGroupLeftOut(group.ordinal, group.num_rows, by))
    return replace(plan, row_groups=tuple(groups), left_out=tuple(left_out))


def _all_rows(group: RowGroupRead) -> Rows:
    return (range(group.num_rows),)


@dataclass(frozen=True, slots=True)
class _Pages:
    """The pages of a chunk: the statistics and the rows of each."""

    known: tuple[ColumnStatistics, ...]
    rows: tuple[range, ...]


class _RowGroupIndexes:
    """The indexes of a row group, decoded when they are needed."""

    def __init__(self, contents: Contents, group: RowGroupRead, known: Known, *, verify: bool) -> None:
        self._contents = contents
        self._group = group
        self._known = known
        self._verify = verify
        self._filters: dict[int, BloomFilter | None] = {}
        self._pages: dict[int, _Pages | None] = {}

    # -- which rows ------------------------------------------------------------------------------

    def find_rows(self, chosen: Filter) -> tuple[str, Rows]:
        """The kind of index that was decisive, and the rows that may be wanted."""
        everything = _all_rows(self._group)
        alternatives = [terms for terms in chosen.any_of if all(map(self._may_be_in_chunk, terms))]
        if not alternatives:
            return "bloom filter", ()
        rows = [reduce(intersection, map(self._rows_of, terms), everything) for terms in alternatives]
        return "page index", rows_of(each for some in rows for each in some)

    def _may_be_in_chunk(self, term: Term) -> bool:
        if not term_may_hold(self._contents, self._group.ordinal, term):
            return False
        bits = None if term.plain is None else self._filter(term)
        return bits is None or term.plain is None or bool(bits.may_contain_plain(term.plain).any())

    def _filter(self, term: Term) -> BloomFilter | None:
        ordinal = term.leaf.ordinal
        if ordinal not in self._filters:
            self._filters[ordinal] = self._decode(
                index_ranges.bloom_filter_place,
                index_ranges.decode_filter,
                IndexedChunk(self._contents, self._group.ordinal, term.leaf),
            )
        return self._filters[ordinal]

    def _rows_of(self, term: Term) -> Rows:
        """Rows outside of which the term does not hold."""
        ordinal = term.leaf.ordinal
        if ordinal not in self._pages:
            self._pages[ordinal] = self._pages_of(IndexedChunk(self._contents, self._group.ordinal, term.leaf))
        pages = self._pages[ordinal]
        if pages is None:
            return _all_rows(self._group)
        held = zip(pages.known, pages.rows, strict=True)
        return rows_of(rows for known, rows in held if term.condition.may_hold(known))

    def _pages_of(self, chunk: IndexedChunk) -> _Pages | None:
        columns = self._decode(index_ranges.column_index_place, index_ranges.decode_columns, chunk)
        offsets = None if columns is None else self._offsets(chunk)
        if columns is None or offsets is None:
            return None
        rows = page_rows(offsets, self._group.num_rows)
        if len(columns.pages) != len(rows) or not _is_credible(chunk, columns, rows):
            return None
        return _Pages(columns.pages, tuple(rows))

    # -- which pages -----------------------------------------------------------------------------

    def select_rows(self, rows: Rows) -> RowGroupRead:
        """The row group with only so much of it as holds some rows."""
        group = self._group
        if rows == _all_rows(group) or not rows:
            return group
        columns = tuple(tuple(self._select_pages(chunk, rows) for chunk in chunks) for chunks in group.columns)
        return replace(group, columns=columns, rows=rows)

    def _select_pages(self, chunk: ChunkRead, rows: Rows) -> ChunkRead:
        offsets = self._offsets(IndexedChunk(self._contents, self._group.ordinal, chunk.leaf))
        if offsets is None:
            return chunk
        place = ByteRange(chunk.range.start, chunk.range.end - chunk.slack)
        may_split_rows = chunk.leaf.max_repetition_level > 0 and not chunk.quirks.row_aligned
        sums = self._page_sums(IndexedChunk(self._contents, self._group.ordinal, chunk.leaf))
        if self._verify and sums is None and _has_sum(chunk):
            return chunk  # only all of it shows whether its pages lie where they were written
        pages = select_pages(place, chunk.num_rows, offsets, rows, with_following=may_split_rows, sums=sums)
        if pages is None:
            return chunk
        # Reading page by page shows whether the rows in the index that the filter used are right.
        is_filtered = self._pages.get(chunk.leaf.ordinal) is not None
        if not is_filtered and pages.num_bytes > (1 - _WORTH_SELECTING) * place.size:
            return chunk
        return replace(chunk, pages=pages)

    # -- decoded indexes -------------------------------------------------------------------------

    def _offsets(self, chunk: IndexedChunk) -> OffsetIndex | None:
        return self._decode(index_ranges.offset_index_place, index_ranges.decode_offsets, chunk)

    def _page_sums(self, chunk: IndexedChunk) -> PageSums | None:
        return self._decode(index_ranges.offset_index_place, index_ranges.decode_page_sums, chunk)

    def _decode(
        self,
        find: Callable[[IndexedChunk], IndexPlace | None],
        decode: Callable[[IndexPlace, memoryview], T],
        chunk: IndexedChunk,
    ) -> T | None:
        """An index that was read, is whole, and is of a known kind; None for any other."""
        try:
            place = find(chunk)
            data = None if place is None else self._known.get(key_of(place))
            if place is None or data is None:
                return None
            index_ranges.check_sum(place, data)
            return decode(place, data)
        except (FormatError, UnsupportedError):
            return None  # without it more is read


def _has_sum(chunk: ChunkRead) -> bool:
    """Whether there is a checksum over a whole chunk."""
    sums = ChunkSums.of(chunk.metadata)
    return sums is not None and sums.of_chunk is not None


def _is_credible(chunk: IndexedChunk, index: DecodedColumnIndex, rows: Sequence[range]) -> bool:
    """Whether a ColumnIndex agrees with what the footer says of the whole chunk."""
    # Few files have checksums of their indexes, so this check stands for one.
    whole = index_ranges.statistics_of_chunk(chunk)
    counts = [page.null_count for page in index.pages]
    if whole.null_count is not None and None not in counts and sum(filter(None, counts)) != whole.null_count:
        return False
    return all(_is_credible_page(page, len(held), whole) for page, held in zip(index.pages, rows, strict=True))


def _is_credible_page(page: ColumnStatistics, num_rows: int, whole: ColumnStatistics) -> bool:
    nulls, levels = page.null_count, page.definition_level_histogram
    if not num_rows or (nulls is not None and nulls > num_rows) or (page.all_null and nulls != num_rows):
        return False
    if levels is not None and sum(levels) != num_rows:
        return False
    return _lies_within(page.low, whole) and _lies_within(page.high, whole)


def _lies_within(bound: Any, whole: ColumnStatistics) -> bool:
    """Whether the bound of a page lies within those of the chunk; bounds that are bytes may be cut, and pass."""
    if not isinstance(bound, int | float):
        return True
    low, high = whole.low, whole.high
    return (low is None or bool(low <= bound)) and (high is None or bool(bound <= high))
