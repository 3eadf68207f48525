"""The rows of salvaged pages: how many begin in each page, and which rows of the row group they are. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from resilient_pq.damage.chunk_salvage import PageFate
from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.format.encodings import rle
from resilient_pq.format.file_metadata import PageType
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page import Page, open_data_page


def count_rows(chunk: ChunkRead, fates: Sequence[PageFate]) -> list[PageFate]:
    """The fates with the rows that begin in each page, as far as they can be counted."""
    counted = []
    for fate in fates:
        page = fate.page
        if page is None:
            counted.append(replace(fate, num_rows=0) if fate.is_dictionary else fate)
            continue
        if not _has_encodings_of(chunk, page):
            counted.append(fate.lost("its header names encodings that the chunk does not have"))
            continue
        try:
            _check_levels(chunk, page)
            counted.append(replace(fate, num_rows=_num_rows(chunk, page)))
        except (FormatError, UnsupportedError) as error:
            counted.append(fate.lost(error.message))
    return counted


def _has_encodings_of(chunk: ChunkRead, page: Page) -> bool:
    """Whether a page is encoded as the metadata of its chunk say, where a checksum covers these."""
    if ChunkSums.of(chunk.metadata) is None:
        return True
    used = [] if page.data_header is None else [page.data_header.encoding]
    v1 = page.header.data_page_header
    if page.header.type == PageType.DATA_PAGE and v1 is not None:
        used += [v1.definition_level_encoding] if chunk.leaf.max_definition_level else []
        used += [v1.repetition_level_encoding] if chunk.leaf.max_repetition_level else []
    return all(encoding in chunk.metadata.encodings for encoding in used)


def _check_levels(chunk: ChunkRead, page: Page) -> None:
    """Refuse a page whose levels do not end where its header says, which the CRC32 of a page does not cover."""
    if ChunkSums.of(chunk.metadata) is not None or page.header.type != PageType.DATA_PAGE_V2:
        return
    leaf, data = chunk.leaf, open_data_page(page, chunk.leaf, chunk.metadata.codec, chunk.quirks)
    levels = ((data.repetition_levels, leaf.max_repetition_level), (data.definition_levels, leaf.max_definition_level))
    for each, maximum in levels:
        if each is not None and not rle.ends_with(each.data, rle.bit_width(maximum), data.num_values):
            raise FormatError("its header says that its levels end elsewhere than they do")


def _num_rows(chunk: ChunkRead, page: Page) -> int:
    """Rows that begin in a page."""
    if page.header.type not in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2):
        return 0
    v2 = page.header.data_page_header_v2
    if not chunk.leaf.max_repetition_level:
        return page.num_values
    if v2 is not None and page.header.type == PageType.DATA_PAGE_V2:
        return v2.num_rows
    data = open_data_page(page, chunk.leaf, chunk.metadata.codec, chunk.quirks)
    assert data.repetition_levels is not None
    # Runs of levels take next to no bytes: a damaged header may name more levels than there is memory for.
    try:
        levels = np.empty(data.num_values, np.uint8)
    except MemoryError as error:
        raise FormatError(f"there is not enough memory for {data.num_values:,} levels") from error
    data.repetition_levels.decode(chunk.leaf.max_repetition_level, levels)
    return int(np.count_nonzero(levels == 0))


def number_rows(
    fates: Sequence[PageFate], num_rows: int | None, *, cut_short: bool, begins: bool, ends: bool
) -> list[PageFate]:
    """The fates with the row that each page begins with, counted from the front, from the end, or by an index."""
    # Where pages may be missing after the last one (`cut_short`), fewer rows are no contradiction; where they may be
    # missing before the first one (not `begins`), nothing is counted from the front, and nothing from the end where the
    # chunk may go on behind them (not `ends`).
    numbered = _compare_with_index(fates, None if cut_short else num_rows)
    if num_rows is not None:
        reason = _row_count_contradiction(numbered, num_rows, cut_short=cut_short)
        if reason is not None:
            return [fate if fate.is_dictionary or fate.page is None else fate.lost(reason) for fate in numbered]
        counts = [fate.num_rows for fate in numbered if fate.num_rows is not None]
        if len(counts) == len(numbered) and sum(counts) != num_rows:
            # The header of a lost page has a wrong count: it proves nothing.
            numbered = [replace(fate, num_rows=None) if _is_lost_data(fate) else fate for fate in numbered]
    _number_forwards(numbered, 0 if begins else None)
    if num_rows is not None:
        _number_backwards(numbered, num_rows, ends=ends)
    return numbered


def _row_count_contradiction(fates: Sequence[PageFate], num_rows: int, *, cut_short: bool) -> str | None:
    """Why whole pages cannot have the rows that their headers say; None where they can."""
    counted = sum(fate.num_rows or 0 for fate in fates if fate.page is not None)
    may_be_fewer = cut_short or any(map(_is_lost_data, fates))
    if counted > num_rows or (counted < num_rows and not may_be_fewer):
        return f"its pages hold {counted:,} rows instead of {num_rows:,}: one of their headers is damaged"
    return None


def _compare_with_index(fates: Sequence[PageFate], num_rows: int | None) -> list[PageFate]:
    """The fates, with pages lost whose header counts other rows than an index does."""
    compared = list(fates)
    data = [i for i, fate in enumerate(fates) if not fate.is_dictionary]
    ends = [*(fates[i].first_row for i in data[1:]), num_rows]
    for i, end in zip(data, ends, strict=False):
        fate = fates[i]
        if fate.first_row is None or end is None or end < fate.first_row:
            continue
        count = end - fate.first_row
        if fate.page is not None and fate.num_rows != count:
            fate = fate.lost("its header counts other rows than its index")
        compared[i] = replace(fate, num_rows=count)
    return compared


def _is_lost_data(fate: PageFate) -> bool:
    return fate.page is None and not fate.is_dictionary


def _number_forwards(fates: list[PageFate], row: int | None) -> None:
    for i, fate in enumerate(fates):
        if fate.is_dictionary:
            continue
        if fate.first_row is None:
            fates[i] = replace(fate, first_row=row)
        row = fates[i].first_row
        row = None if row is None or fate.num_rows is None else row + fate.num_rows


def _number_backwards(fates: list[PageFate], num_rows: int, *, ends: bool) -> None:
    """Number the rows of pages from the end, as far as there are rows for them, if nothing is missing there."""
    if not ends and sum(fate.num_rows or 0 for fate in fates) != num_rows:
        return
    row: int | None = num_rows
    for i in range(len(fates) - 1, -1, -1):
        fate = fates[i]
        if fate.is_dictionary:
            continue
        if row is not None and fate.num_rows is None and fate.first_row is not None and fate.first_row <= row:
            fates[i] = replace(fate, num_rows=row - fate.first_row)
        elif row is not None and fate.first_row is None and fate.num_rows is not None and fate.num_rows <= row:
            fates[i] = replace(fate, first_row=row - fate.num_rows)
        row = fates[i].first_row
