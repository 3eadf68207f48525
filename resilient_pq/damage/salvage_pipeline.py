"""The salvage of a damaged column chunk: which pages are whole, what rows they hold, and their values. Sans-io.

A page is whole when its CRC32 holds, or, where its writer left none, when it decodes. That proves its bytes, not its
place: a page of another column, row group or version of the file has a CRC32 that holds, too. The place of a page is
proven by a copy of its header, by a sum of it in an index (`PageHints`), or by the checksum of the chunk: where that
holds over all headers as they lie, with the CRC32s that they name for their bodies, every header is the one that was
written there, whatever became of the bodies. Without a proof a page is lost, unless the caller keeps it. Where no
checksum of the chunk is known, pages follow on each other from the start of the chunk, or up to its end.

Bytes may be at hand more than once: as they lie in the file, as they lie elsewhere in it when parts of it were moved,
and in other copies of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from resilient_pq.checksum import combine
from resilient_pq.damage.chunk_salvage import UNPROVEN_PLACE, ChunkBytes, PageFate, SalvagedChunk
from resilient_pq.damage.exact_page import check_exact, spans_others
from resilient_pq.damage.page_finder import PageFinder, Repair
from resilient_pq.damage.page_hints import PageHints
from resilient_pq.damage.page_rows import count_rows, number_rows
from resilient_pq.damage.page_runs import Agrees, PageRuns
from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.format.encodings import DICTIONARY_ENCODINGS
from resilient_pq.format.file_metadata import PageType
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page import Page

_UNPROVEN: Final = f"{UNPROVEN_PLACE}: the chunk's checksum does not hold over the page headers that lie there"
_BEHIND_DAMAGED: Final = "its rows are not known: the header of a page before it is damaged"
_FOLLOWED: Final = f"{UNPROVEN_PLACE}: the bytes behind its chunk belong neither to a page nor to a record"


def salvage_chunk(
    chunk: ChunkRead,
    readings: Sequence[ChunkBytes],
    hints: PageHints | None = None,
    *,
    num_rows: int | None,
    repair: Repair | None = None,  # Of single bits
    agrees: Agrees | None = None,  # Compares values that no checksum covers with the statistics
    verify: bool = True,
    keep_unplaced: bool = False,  # Whether to keep pages whose place nothing proves, where header and body fit
) -> SalvagedChunk:
    """Salvage a chunk from readings of its bytes, the place where they should lie first."""
    finder = PageFinder(chunk, readings, repair, verify=verify)
    fates = finder.hinted_pages(hints) if hints is not None else finder.chained_pages()
    if verify:
        fates = _check_places(chunk, fates, hints, keep_unplaced=keep_unplaced)
        if hints is not None and hints.counted:
            fates = _check_headers(chunk, fates, readings[0].data, complete=hints.complete)
    fates = _require_dictionary(count_rows(chunk, fates))
    cut_short = hints is not None and not hints.complete
    if hints is not None and hints.counted and not cut_short:
        fates = _without_contradicted_rows(fates, num_rows)
    known = hints or PageHints((), complete=True)
    fates = number_rows(fates, num_rows, cut_short=cut_short, begins=known.begins, ends=known.ends)
    aligned = _is_row_aligned(chunk, fates, hints)
    runs = PageRuns(
        chunk, fates, agrees, row_aligned=aligned, bounded=not cut_short, keep_unplaced=keep_unplaced and verify
    )
    fitting = [
        run
        for run in runs.decode()
        if run.data.num_rows
        and (run.first_row is None or num_rows is None or run.first_row + run.data.num_rows <= num_rows)
    ]
    return SalvagedChunk(chunk, tuple(runs.fates), tuple(fitting), runs.begins_within, runs.is_misplaced)


def _check_places(
    chunk: ChunkRead, fates: Sequence[PageFate], hints: PageHints | None, *, keep_unplaced: bool
) -> list[PageFate]:
    """The fates, with pages lost whose place is not proven though a checksum or a record should prove it."""
    sums, reason = ChunkSums.of(chunk.metadata), _UNPROVEN
    if hints is not None and hints.unproven:
        reason = _FOLLOWED
    elif sums is None or sums.chunk is None or _headers_hold(chunk, fates, sums.chunk):
        return list(fates)
    judged = list(fates)
    for i, fate in enumerate(fates):
        if fate.page is not None and not fate.placed:
            checked = _check_header(chunk, fate, fate.page) if keep_unplaced else fate.lost(reason)
            judged[i] = replace(checked, unplaced=checked.page is not None)
    return judged


def _headers_hold(chunk: ChunkRead, fates: Sequence[PageFate], stored: int) -> bool:
    """Whether the checksum of a chunk holds over all page headers and the CRC32s of the bodies in these headers."""
    at, computed = chunk.range.start, 0
    for fate in fates:
        if fate.offset != at or fate.stated is None:
            return False
        computed, at = combine(computed, fate.stated, fate.end - fate.offset), fate.end
    return at == chunk.range.end and computed == stored


def _check_headers(chunk: ChunkRead, fates: Sequence[PageFate], data: memoryview, *, complete: bool) -> list[PageFate]:
    """The fates, with pages lost whose header contradicts the body: which rows are behind them is not known then."""
    checked: list[PageFate] = []
    damaged = False
    for fate in fates:
        start, end = (at - chunk.range.start for at in (fate.offset, fate.end))
        found = fate if fate.page is None else _check_header(chunk, fate, fate.page)
        if fate.page is None and spans_others(data[start:end]):
            found = replace(fate, num_rows=None)  # its header counts those of other pages, or of none
        if damaged and not complete and found.page is not None:
            found = found.lost(_BEHIND_DAMAGED)
        checked.append(replace(found, first_row=None) if damaged else found)
        damaged = damaged or found is not fate
    return checked


def _without_contradicted_rows(fates: Sequence[PageFate], num_rows: int | None) -> list[PageFate]:
    """The fates, without first rows behind a lost page where these contradict the rows of the row group."""
    last = fates[-1] if fates else None
    if last is None or last.first_row is None or last.first_row + (last.num_rows or 0) == num_rows or not num_rows:
        return list(fates)
    lost = [i for i, fate in enumerate(fates) if fate.page is None and not fate.is_dictionary]
    first = lost[0] if lost else next((i for i, fate in enumerate(fates) if not fate.is_dictionary), 0)
    return [replace(fate, first_row=None) if i > first else fate for i, fate in enumerate(fates)]


def _check_header(chunk: ChunkRead, fate: PageFate, page: Page) -> PageFate:
    """The fate of a page that is lost if its header contradicts its body."""
    try:
        check_exact(page, chunk.leaf, chunk.metadata.codec, chunk.metadata.encodings, chunk.quirks)
    except FormatError as error:
        return fate.lost(f"its header is damaged, or its body: {error.message}")
    except UnsupportedError:
        pass  # decoding raises the same error
    return fate


def _require_dictionary(fates: Sequence[PageFate]) -> list[PageFate]:
    """The fates, with pages lost whose values are indexes into a dictionary that is lost."""
    if any(fate.is_dictionary and fate.page is not None for fate in fates):
        return list(fates)
    judged = list(fates)
    for i, fate in enumerate(fates):
        header = None if fate.page is None else fate.page.data_header
        if header is not None and header.encoding in DICTIONARY_ENCODINGS:
            judged[i] = fate.lost("its dictionary page is lost")
    return judged


def _is_row_aligned(chunk: ChunkRead, fates: Sequence[PageFate], hints: PageHints | None) -> bool:
    """Whether no row goes on from one page into the next."""
    if not chunk.leaf.max_repetition_level or chunk.quirks.row_aligned:
        return True
    if hints is not None and any(hint.first_row is not None for hint in hints.pages):
        return True  # pages of an OffsetIndex begin with rows (parquet-format, PageIndex.md)
    pages = [fate.page for fate in fates if fate.page is not None and not fate.is_dictionary]
    return bool(pages) and all(page.header.type == PageType.DATA_PAGE_V2 for page in pages)
