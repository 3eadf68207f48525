"""Runs of whole pages of a damaged column chunk, decoded; pages that do not decode are lost after all. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from resilient_pq.damage.chunk_salvage import MISPLACED, PageFate, RepairSource, RowRun
from resilient_pq.damage.exact_page import check_narrow_indices
from resilient_pq.damage.page_statistics import check_page_statistics
from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.format.file_metadata import Encoding
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.levels import slice_rows
from resilient_pq.format.pages.chunk_decoder import decode_chunk
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.row_selection import from_first_row, leaf_data
from resilient_pq.format.physical_values import LeafData

#: Whether rows agree with the statistics of a chunk; the second argument is the first of them in the row group, None
#: where it is not known.
Agrees = Callable[[LeafData, int | None], bool]


class PageRuns:
    """Decodes the pages of a chunk that seem whole."""

    def __init__(
        self,
        chunk: ChunkRead,
        fates: Sequence[PageFate],
        agrees: Agrees | None,
        *,
        row_aligned: bool,
        bounded: bool,
        keep_unplaced: bool = False,
    ) -> None:
        """`row_aligned`: no row spans pages; `bounded`: no page of another column can lie between these pages."""
        self.fates = list(fates)
        self.is_misplaced = False  # Whether pages in the place of the chunk are whole, and of something else
        self.begins_within = False  # Whether pages that were decoded together begin with the end of a row
        self._given = fates
        self._chunk = chunk
        self._agrees = agrees
        self._row_aligned = row_aligned
        self._bounded = bounded
        self._keep_unplaced = keep_unplaced
        sums = ChunkSums.of(chunk.metadata)
        self._adrift = sums is None or sums.chunk is None  # a page's own checksum does not prove its place
        self._dictionary = [fate for fate in fates if fate.is_dictionary and fate.page is not None][:1]

    def decode(self) -> list[RowRun]:
        """The rows that are left, in order."""
        runs: list[RowRun] = []
        waiting = deque(_whole_runs(self.fates, 0, len(self.fates)))
        while waiting:
            first, end = waiting.popleft()
            try:
                runs.append(self._decode_run(first, end))
            except (FormatError, UnsupportedError) as error:
                self._find_damaged(first, end, error.message)
                if self._shows_misplacement(first, end, error):
                    if not self._keep_unplaced:
                        self.is_misplaced = True
                        self.fates = [fate if fate.page is None else fate.lost(MISPLACED) for fate in self.fates]
                        return []
                    self.fates = [
                        replace(fate, unplaced=fate.unplaced or (fate.page is not None and not fate.placed))
                        for fate in self.fates
                    ]
                waiting.extendleft(reversed(list(_whole_runs(self.fates, first, end))))
        return runs

    def _shows_misplacement(self, first: int, end: int, error: Exception) -> bool:
        """Whether pages that do not decode are as they were written, so that all pages lie in a wrong place."""
        lost = [fate for fate in self._given[first:end] if fate.checksummed and fate not in self.fates]
        if isinstance(error, UnsupportedError):  # an encoding to come, or one that is not for the type of the column
            headers = [fate.page.data_header for fate in lost if fate.page is not None]
            known = any(header is None or header.encoding in list(Encoding) for header in headers)
            return self._adrift and self._bounded and known
        return self._adrift and bool(lost)

    def _find_damaged(self, first: int, end: int, reason: str) -> None:
        """Mark the pages that do not decode among some that do not decode together: at least one of them."""
        if end - first == 1:
            self.fates[first] = self.fates[first].lost(reason)
            return
        middle = (first + end) // 2
        found = False
        for start, stop in ((first, middle), (middle, end)):
            try:
                self._decode_run(start, stop)
            except (FormatError, UnsupportedError) as error:
                self._find_damaged(start, stop, error.message)
                found = True
        if not found:
            # Each half decodes, and both together do not: neither is kept.
            for i in range(first, end):
                self.fates[i] = self.fates[i].lost(reason)

    def _decode_run(self, first: int, end: int) -> RowRun:
        """The rows of the pages from position `first` to before `end`."""
        chunk = self._chunk
        fates = [fate for fate in self.fates[first:end] if not fate.is_dictionary]
        used = [*self._dictionary, *fates]
        pages = [fate.page for fate in used if fate.page is not None]
        num_rows = sum(fate.num_rows or 0 for fate in fates)
        dictionary = self._dictionary[0].page if self._dictionary else None
        for fate in filter(_is_unproven, fates):
            assert fate.page is not None
            check_narrow_indices(fate.page, chunk.leaf, chunk.metadata.codec, chunk.quirks)
            check_page_statistics(fate.page, chunk.leaf, chunk.metadata.codec, dictionary, chunk.quirks)
        column = decode_chunk(chunk.leaf, chunk.metadata.codec, pages, num_rows, chunk.quirks)
        levels = column.repetition_levels
        self.begins_within |= levels is not None and len(levels) > 0 and bool(levels[0])
        data = from_first_row(chunk.leaf, leaf_data(column))
        first_row = self.fates[first].first_row
        if self._adrift or any(map(_is_unproven, used)):
            self._check_statistics(data, None if self.begins_within else first_row)
        if not self._row_aligned and end < len(self.fates) and data.num_rows:
            # The row that was begun last may go on in the page behind these.
            data = slice_rows(chunk.leaf, data, 0, data.num_rows - 1)
        return RowRun(first_row, data)

    def _check_statistics(self, data: LeafData, first_row: int | None) -> None:
        if self._agrees is not None and not self._agrees(data, first_row):
            raise FormatError("its values are not those of which the statistics of the chunk, or its indexes, tell")


def _whole_runs(fates: Sequence[PageFate], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Positions of data pages that follow one another whole, between two positions; ends exclusive."""
    first = None
    for i in range(start, stop):
        fate = fates[i]
        if fate.page is None and not fate.is_dictionary:
            if first is not None:
                yield first, i
            first = None
        elif first is None and not fate.is_dictionary:
            first = i
    if first is not None:
        yield first, stop


def _is_unproven(fate: PageFate) -> bool:
    """Whether a page is kept though no checksum that was written with it holds."""
    return fate.page is not None and (not fate.checksummed or fate.repair is RepairSource.BIT_REPAIR)
