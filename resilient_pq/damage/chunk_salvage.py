"""Which pages of a damaged column chunk are whole, what rows they hold, and their values. Sans-io.

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

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.checksum import combine, crc32, signed, unsigned
from resilient_pq.damage.exact_page import check_exact
from resilient_pq.damage.page_hints import PageHint, PageHints
from resilient_pq.damage.page_search import pages_in
from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import Encoding, PageHeader, PageType
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.levels import slice_rows
from resilient_pq.format.pages.chunk_decoder import decode_chunk
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page import Page, open_data_page, read_header
from resilient_pq.format.pages.row_selection import from_first_row, leaf_data
from resilient_pq.format.pages.stored_pages import ends_stored
from resilient_pq.format.physical_values import LeafData

_DATA_PAGES = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
_DICTIONARY_ENCODINGS = (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY)
_HIDDEN: Final = "bytes of it are damaged that no checksum of a page covers"
_UNPROVEN: Final = "nothing proves its place: the chunk's checksum does not hold over the page headers that lie there"
MISPLACED: Final = "nothing proves its place: pages of this chunk are as they were written, and of something else"
_ADRIFT: Final = "nothing proves its place: bytes before it are damaged, and no page follows up to the chunk's end"
_EXCHANGED: Final = "another page is in its place"
_ALIKE: Final = "it stores its data in a gzip member, and no hash tells it from others of its size"


class RepairSource(StrEnum):
    """How a page was made whole that is not whole where it should lie."""

    HEADER_COPY = "header-copy"
    """Its header is damaged, and a record has a copy of it."""
    DICTIONARY_COPY = "dictionary-copy"
    """It is a dictionary page, and a record has a copy of it."""
    DISPLACED = "displaced"
    """Parts of the file were moved; it is whole where it lies now."""
    OTHER_COPY = "other-copy"
    """It is whole in another copy of the file."""
    BIT_REPAIR = "bit-repair"
    """One bit was turned back so that its CRC32 holds."""


@dataclass(frozen=True, slots=True)
class ChunkBytes:
    """The bytes of a chunk, from one of the places where they may lie.

    Attributes:
        data: As many as the chunk has; zeros where there are none.
        mending: What taking a page from here means; None for the place where it should lie.
    """

    data: memoryview
    mending: RepairSource | None = None


#: Bits turned back: a damaged body and the CRC32 it should have, to the body with one bit turned, or None.
Repair = Callable[[memoryview, int], bytes | None]
#: The first page at an offset of some bytes or behind it: its own offset in them, or None.
Search = Callable[[memoryview, int], int | None]


def next_page(data: memoryview, start: int) -> int | None:
    """Offset of the first page in bytes that begins at `start` or behind it; None where there is none."""
    pages = pages_in(data, 0, start)
    return pages[0].offset if pages else None


#: Whether rows agree with what is said of them; the first is that row of the row group, None where it is not known.
Agrees = Callable[[LeafData, int | None], bool]


@dataclass(frozen=True, slots=True)
class PageFate:
    """What became of a page, or of bytes in which there must be pages.

    Attributes:
        offset: Absolute offset of its header.
        end: Offset just after it.
        page: The page; None where it is lost.
        is_dictionary: Whether it is a dictionary page.
        first_row: The row of the row group that its first whole row is; None where rows before it are not counted.
        num_rows: Rows that begin in it; None where they cannot be counted, 0 of a dictionary page.
        mending: How it was made whole; None where it lies whole in its place, and where it is lost.
        checksummed: Whether a checksum vouches for it.
        reason: Why it is lost; None where it is whole.
        reading: Position of the reading that it is whole in; 0, where it should lie, of one that is lost.
        stated: CRC32 of header and body together, by what the header as it lies says of its body; None where no header
            is known, or it has no CRC32.
        placed: Whether a copy of its header, or a sum in an index, proves that this is its place.
        unplaced: Whether it was kept though nothing proves that.
    """

    offset: int
    end: int
    page: Page | None
    is_dictionary: bool = False
    first_row: int | None = None
    num_rows: int | None = None
    mending: RepairSource | None = None
    checksummed: bool = False
    reason: str | None = None
    reading: int = 0
    stated: int | None = None
    placed: bool = False
    unplaced: bool = False

    def lost(self, reason: str) -> PageFate:
        """The same place, its page lost."""
        return replace(self, page=None, mending=None, checksummed=False, reason=reason, reading=0, placed=False)


@dataclass(frozen=True, slots=True)
class RowRun:
    """Rows of a column that follow one another.

    Attributes:
        first_row: The first of them, counted in the row group; None where rows before it are not counted.
        data: Their levels and values.
    """

    first_row: int | None
    data: LeafData


@dataclass(frozen=True, slots=True)
class SalvagedChunk:
    """What is left of a column chunk.

    Attributes:
        chunk: Which one.
        pages: The fate of each page, in order; of bytes without a page that could be told, one for all of them.
        runs: The rows that are left, in order.
        is_cut: Whether its pages hold more than what is left: rows behind the last of the row group, or the end of a
            row before its first.
        is_misplaced: Whether pages in its place are as they were written, and of something else.
    """

    chunk: ChunkRead
    pages: tuple[PageFate, ...]
    runs: tuple[RowRun, ...]
    is_cut: bool = False
    is_misplaced: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether no page is lost, so that the chunk can be put together byte by byte as it was written."""
        return not self.is_cut and all(fate.page is not None for fate in self.pages)

    @property
    def in_place(self) -> bool:
        """Whether every page is whole where it should lie."""
        return self.is_whole and all(fate.mending is None for fate in self.pages)

    @property
    def num_rows(self) -> int:
        """Rows that are left."""
        return sum(run.data.num_rows for run in self.runs)

    def bytes(self) -> memoryview:
        """The chunk as it was written; it is whole."""
        pages = [fate.page for fate in self.pages if fate.page is not None]
        return memoryview(b"".join(part for page in pages for part in (page.header_bytes, page.body)))

    def rows_present(self, num_rows: int) -> NDArray[np.bool_]:
        """For each row of the row group, whether its value is left."""
        present = np.zeros(num_rows, np.bool_)
        for run in self.runs:
            if run.first_row is not None:
                present[run.first_row : run.first_row + run.data.num_rows] = True
        return present


def survivors(
    chunk: ChunkRead,
    readings: Sequence[ChunkBytes],
    known: PageHints | None = None,
    *,
    num_rows: int | None,
    search: Search | None = None,
    repair: Repair | None = None,
    agrees: Agrees | None = None,
    verify: bool = True,
    keep_unplaced: bool = False,
) -> SalvagedChunk:
    """What is left of a chunk.

    Args:
        chunk: Which one.
        readings: Its bytes; the place where they should lie comes first.
        known: What is known of its pages besides.
        num_rows: Rows of its row group; None where it is not known to be complete.
        search: Finds the next page behind a header that is damaged; None gives up there.
        repair: Turns single bits back; None leaves them.
        agrees: Says whether values agree with what statistics say of the chunk; asked of those for which no checksum
            vouches. None believes them.
        verify: Whether checksums are compared; otherwise a page is lost where it does not decode.
        keep_unplaced: Whether pages are kept whose place nothing proves, as far as header and body fit each other.
    """
    finder = _Finder(chunk, readings, search, repair, verify=verify)
    fates = finder.known_pages(known) if known is not None else finder.chained()
    if verify:
        fates = _placed(chunk, fates, keep_unplaced=keep_unplaced)
    fates = _counted(chunk, fates)
    fates = _without_dictionary(fates)
    cut_short = known is not None and not known.complete
    fates = _aligned(fates, num_rows, cut_short=cut_short, begins=known is None or known.begins)
    aligned = _row_aligned(chunk, fates, known)
    return _decoded(chunk, fates, num_rows, agrees, row_aligned=aligned, bounded=not cut_short)


class _Finder:
    """Finds the pages of a chunk in its readings."""

    def __init__(
        self,
        chunk: ChunkRead,
        readings: Sequence[ChunkBytes],
        search: Search | None,
        repair: Repair | None,
        *,
        verify: bool,
    ) -> None:
        self._chunk = chunk
        self._readings = readings
        self._search = search
        self._repair = repair
        self._zero_is_none = chunk.quirks.zero_crc_is_none
        sums = ChunkSums.of(chunk.metadata)
        # Where the chunk's own sum does not hold, a page without one may be what is damaged.
        self._needs_crc = verify and sums is not None and sums.chunk is not None
        self._verify = verify
        # Where the chunk has a hash, the CRC32 of a page may be that of another: which one lies there is not sure then.
        hashed = sums if verify and sums is not None and sums.xxh3 is not None else None
        self._as_written = [hashed is None or hashed.computed(each.data) == hashed.xxh3 for each in readings]

    # -- pages whose places are known ------------------------------------------------------------

    def known_pages(self, known: PageHints) -> list[PageFate]:
        """Each page in its place, and what lies between them where not all are known."""
        fates: list[PageFate] = []
        at = self._chunk.range.start
        for position, place in enumerate(known.pages):
            if at < place.offset:
                fates += self.chained(at, place.offset, len(fates))
            following = known.pages[position + 1].offset if position + 1 < len(known.pages) else None
            fates.append(self._known_page(place, len(fates), following))
            at = place.end
        if at < self._chunk.range.end and not known.complete:
            fates += self.chained(at, self._chunk.range.end, len(fates))
        return fates

    def _known_page(self, place: PageHint, ordinal: int, following: int | None) -> PageFate:
        lost = PageFate(place.offset, place.end, None, first_row=place.first_row, reason="its bytes are damaged")
        if place.offset < self._chunk.range.start or place.end > self._chunk.range.end:
            return lost.lost("it is said to lie outside of its chunk")
        if place.header is None:
            return self._page_at(place, ordinal, lost)
        try:
            header, end = read_header(memoryview(place.header), 0)
        except FormatError:
            return lost.lost("the copy of its header does not parse")
        if end != len(place.header) or end + header.compressed_page_size != place.size:
            return lost.lost("the copy of its header is not that of this page")
        lost = replace(lost, is_dictionary=header.type == PageType.DICTIONARY_PAGE)
        start = place.offset - self._chunk.range.start
        bodies: list[tuple[int, memoryview]] = []
        exchanged = False
        for number, reading in enumerate(self._readings):
            stored = reading.data[start : start + end]
            body = reading.data[start + end : start + place.size]
            if not self._holds(header, body):
                bodies.append((number, body))
                continue
            exchanged = self._is_another(place, place.header, body)
            if not exchanged:
                mending = reading.mending
                if mending is None and stored != memoryview(place.header):
                    mending = RepairSource.HEADER_COPY
                lost = replace(lost, reading=number, placed=True)
                return self._whole(lost, ordinal, header, memoryview(place.header), body, mending)
        if place.body is not None and self._holds(header, memoryview(place.body)):
            body, lost = memoryview(place.body), replace(lost, placed=True)
            return self._whole(lost, ordinal, header, memoryview(place.header), body, RepairSource.DICTIONARY_COPY)
        if exchanged and not bodies:
            return lost.lost(_EXCHANGED)
        mended = self._repaired(lost, ordinal, header, memoryview(place.header), bodies)
        exchanged = mended.page is not None and self._is_another(place, place.header, mended.page.body)
        return lost.lost(_EXCHANGED) if exchanged else replace(mended, placed=mended.page is not None)

    def _is_another(self, place: PageHint, header: bytes | memoryview, body: memoryview) -> bool:
        """Whether a page, whose CRC32 holds, has another sum than the one of its place."""
        return self._verify and place.sum is not None and place.sum.computed(header, body) != place.sum.value

    def _is_blind(self, body: memoryview, reading: int) -> bool:
        """Whether the CRC32 of a page may be that of another, and nothing else vouches for it."""
        return not self._as_written[reading] and ends_stored(body)

    def _page_at(self, place: PageHint, ordinal: int, lost: PageFate) -> PageFate:
        """A page of which only the place is known."""
        start = place.offset - self._chunk.range.start
        found = doubted = None
        for number, reading in enumerate(self._readings):
            data = reading.data[: start + place.size]
            try:
                header, body_start = read_header(data, start)
            except FormatError:
                continue
            if body_start + header.compressed_page_size != start + place.size:
                continue
            lost = replace(lost, is_dictionary=header.type == PageType.DICTIONARY_PAGE)
            body = data[body_start:]
            if self._holds(header, body):
                fate = replace(lost, reading=number)
                stored = data[start:body_start]
                whole = self._whole(fate, ordinal, header, stored, body, reading.mending)
                if place.sum is None:
                    whole = self._believed(whole)
                elif self._is_another(place, stored, body):
                    whole = whole.lost(_EXCHANGED)
                else:
                    whole = replace(whole, placed=True)
                if whole.page is not None:
                    return whole
                doubted = doubted or whole
                continue
            found = found or (header, data[start:body_start], [(number, body)])
        if found is None:
            return doubted or lost.lost("its header is damaged")
        return self._repaired(lost, ordinal, *found)

    def _holds(self, header: PageHeader, body: memoryview) -> bool:
        """Whether a body is the one of a header: by its CRC32, or, without one, as far as can be told here."""
        if len(body) != header.compressed_page_size:
            return False
        if self._has_crc(header):
            return unsigned(header.crc or 0) == crc32(body)
        return not self._needs_crc

    def _has_crc(self, header: PageHeader) -> bool:
        return self._verify and header.crc is not None and not (self._zero_is_none and header.crc == 0)

    def _whole(
        self,
        fate: PageFate,
        ordinal: int,
        header: PageHeader,
        header_bytes: memoryview,
        body: memoryview,
        mending: RepairSource | None,
    ) -> PageFate:
        page = Page(ordinal, fate.offset, header, header_bytes, body)
        checksummed = self._has_crc(header)
        stated = _stated(header, header_bytes)
        return replace(fate, page=page, mending=mending, checksummed=checksummed, reason=None, stated=stated)

    def _believed(self, whole: PageFate) -> PageFate:
        """A page, its header as it lies; lost where its CRC32 may be that of another, too."""
        if whole.page is not None and self._needs_crc and self._is_blind(whole.page.body, whole.reading):
            return whole.lost(_ALIKE)
        return whole

    def _repaired(
        self,
        lost: PageFate,
        ordinal: int,
        header: PageHeader,
        header_bytes: memoryview,
        bodies: Sequence[tuple[int, memoryview]],
    ) -> PageFate:
        """The page with one bit turned back, where that makes its CRC32 hold.

        Args:
            lost: The page as it is.
            ordinal: Its number in the chunk.
            header: Its header.
            header_bytes: Its header as stored.
            bodies: What there is of its body, each with the position of the reading that it stands in.
        """
        lost = lost.lost("its CRC32 does not match" if self._has_crc(header) else _HIDDEN)
        lost = replace(lost, stated=_stated(header, header_bytes))
        counted = _entries(header)
        if not self._chunk.leaf.max_repetition_level and counted is not None and not lost.is_dictionary:
            lost = replace(lost, num_rows=counted)
        if self._repair is None or not self._has_crc(header):
            return lost
        for number, body in bodies:
            mended = self._repair(body, unsigned(header.crc or 0))
            if mended is not None:
                # The bit may be one of the sum itself: then the header has to get the right one.
                turned = replace(header, crc=signed(crc32(mended)))
                stored = header_bytes if turned.crc == header.crc else memoryview(compact_protocol.encode(turned))
                lost = replace(lost, reading=number)
                return self._whole(lost, ordinal, turned, stored, memoryview(mended), RepairSource.BIT_REPAIR)
        return lost

    # -- pages of which nothing is known but their own headers ------------------------------------

    def chained(self, start: int | None = None, end: int | None = None, ordinal: int = 0) -> list[PageFate]:
        """Page after page as their headers tell, from absolute offset `start` to `end`."""
        base = self._chunk.range.start
        at = (base if start is None else start) - base
        stop = (self._chunk.range.end if end is None else end) - base
        fates: list[PageFate] = []
        adrift = None  # from which on pages were only searched for
        left = self._chunk.num_values_to_read if start is None else None
        while at < stop and (left is None or left > 0):
            fate = self._next(at, stop, ordinal + len(fates))
            if fate is None:
                following = self._found_from(at + 1, stop)
                fates.append(PageFate(base + at, base + following, None, reason="its header is damaged"))
                at, adrift = following, len(fates)
                continue
            fates.append(fate)
            at = fate.end - base
            if left is not None:
                left -= fate.page.num_values if fate.page is not None else fate.num_rows or 0
        if adrift is not None and at not in (stop, stop - self._chunk.slack) and not self._needs_crc:
            fates[adrift:] = [fate.lost(_ADRIFT) if fate.page is not None else fate for fate in fates[adrift:]]
        return fates

    def _next(self, at: int, stop: int, ordinal: int) -> PageFate | None:
        """The page at `at`; None where no reading has a header there that fits."""
        base = self._chunk.range.start
        damaged = doubted = None
        for number, reading in enumerate(self._readings):
            data = reading.data[:stop]
            try:
                header, body_start = read_header(data, at)
            except FormatError:
                continue
            end = body_start + header.compressed_page_size
            if end > stop or not _is_plausible(header):
                continue
            is_dictionary = header.type == PageType.DICTIONARY_PAGE
            fate = PageFate(base + at, base + end, None, is_dictionary=is_dictionary, reading=number)
            if self._holds(header, data[body_start:end]):
                body = data[body_start:end]
                whole = self._believed(self._whole(fate, ordinal, header, data[at:body_start], body, reading.mending))
                if whole.page is not None:
                    return whole
                doubted = doubted or whole
                continue
            # Its length may be what is damaged: it is believed when another page, or the end, follows.
            if damaged is None and (end == stop or self._begins_page(data, end)):
                damaged = fate, header, data[at:body_start], [(number, data[body_start:end])]
        if damaged is None:
            return doubted
        fate, header, header_bytes, bodies = damaged
        return self._repaired(fate, ordinal, header, header_bytes, bodies)

    def _begins_page(self, data: memoryview, at: int) -> bool:
        try:
            header, body_start = read_header(data, at)
        except FormatError:
            return False
        return _is_plausible(header) and body_start + header.compressed_page_size <= len(data)

    def _found_from(self, at: int, stop: int) -> int:
        """Where the next page begins that can be believed; `stop` where there is none."""
        if self._search is None:
            return stop
        places = [self._search(reading.data[:stop], at) for reading in self._readings]
        return min((place for place in places if place is not None), default=stop)


def _is_plausible(header: PageHeader) -> bool:
    return header.type in (*_DATA_PAGES, PageType.DICTIONARY_PAGE, PageType.INDEX_PAGE)


def _entries(header: PageHeader) -> int | None:
    detail = header.data_page_header or header.data_page_header_v2
    return None if detail is None else detail.num_values


# -- which place ---------------------------------------------------------------------------------


def _stated(header: PageHeader, header_bytes: memoryview) -> int | None:
    """CRC32 of a page, by its header and by what that says of the body."""
    if header.crc is None:
        return None
    return combine(crc32(header_bytes), unsigned(header.crc), header.compressed_page_size)


def _placed(chunk: ChunkRead, fates: Sequence[PageFate], *, keep_unplaced: bool) -> list[PageFate]:
    """The fates, pages lost whose place is not proven where the checksum of the chunk is known.

    Args:
        chunk: Which one.
        fates: Of its pages, in order.
        keep_unplaced: Whether such a page is kept where its header says exactly what its body is.
    """
    sums = ChunkSums.of(chunk.metadata)
    if sums is None or sums.chunk is None or _headers_hold(chunk, fates, sums.chunk):
        return list(fates)
    return [
        fate if fate.page is None or fate.placed else _unplaced(chunk, fate, fate.page, keep=keep_unplaced)
        for fate in fates
    ]


def _headers_hold(chunk: ChunkRead, fates: Sequence[PageFate], stored: int) -> bool:
    """Whether the checksum of a chunk holds over all page headers and the CRC32s that these say their bodies have."""
    at, computed = chunk.range.start, 0
    for fate in fates:
        if fate.offset != at or fate.stated is None:
            return False
        computed, at = combine(computed, fate.stated, fate.end - fate.offset), fate.end
    return at == chunk.range.end and computed == stored


def _unplaced(chunk: ChunkRead, fate: PageFate, page: Page, *, keep: bool) -> PageFate:
    if not keep:
        return fate.lost(_UNPROVEN)
    try:
        check_exact(page, chunk.leaf, chunk.metadata.codec, chunk.metadata.encodings, chunk.quirks)
    except FormatError as error:
        return fate.lost(f"its header is damaged, or its body: {error.message}")
    except UnsupportedError:
        pass  # whoever decodes it says so
    return replace(fate, unplaced=True)


# -- which rows ------------------------------------------------------------------------------------


def _counted(chunk: ChunkRead, fates: Sequence[PageFate]) -> list[PageFate]:
    """The fates with the rows that begin in each page, as far as they can be counted."""
    counted = []
    for fate in fates:
        page = fate.page
        if page is None:
            counted.append(replace(fate, num_rows=0) if fate.is_dictionary else fate)
            continue
        if not _fits(chunk, page):
            counted.append(fate.lost("its header names encodings that the chunk does not have"))
            continue
        try:
            counted.append(replace(fate, num_rows=_rows_of(chunk, page)))
        except (FormatError, UnsupportedError) as error:
            counted.append(fate.lost(error.message))
    return counted


def _fits(chunk: ChunkRead, page: Page) -> bool:
    """Whether a page is encoded as its chunk says, where a checksum vouches for what it says."""
    if ChunkSums.of(chunk.metadata) is None:
        return True
    used = []
    if page.header.type == PageType.DATA_PAGE and page.header.data_page_header is not None:
        v1 = page.header.data_page_header
        used.append(v1.encoding)
        used += [v1.definition_level_encoding] if chunk.leaf.max_definition_level else []
        used += [v1.repetition_level_encoding] if chunk.leaf.max_repetition_level else []
    elif page.header.type == PageType.DATA_PAGE_V2 and page.header.data_page_header_v2 is not None:
        used.append(page.header.data_page_header_v2.encoding)
    return all(encoding in chunk.metadata.encodings for encoding in used)


def _rows_of(chunk: ChunkRead, page: Page) -> int:
    """Rows that begin in a page.

    Raises:
        FormatError: Its repetition levels do not decode.
        UnsupportedError: They use what this version does not read.
    """
    if page.header.type not in _DATA_PAGES:
        return 0
    v2 = page.header.data_page_header_v2
    if not chunk.leaf.max_repetition_level:
        return page.num_values
    if v2 is not None and page.header.type == PageType.DATA_PAGE_V2:
        return v2.num_rows
    data = open_data_page(page, chunk.leaf, chunk.metadata.codec, chunk.quirks)
    assert data.repetition_levels is not None
    # A level takes a bit at least, but in a run: as many as the page says may be more than there is memory.
    try:
        levels = np.empty(data.num_values, np.uint8)
    except MemoryError as error:
        raise FormatError(f"there is not enough memory for {data.num_values:,} levels") from error
    data.repetition_levels.decode(chunk.leaf.max_repetition_level, levels)
    return int(np.count_nonzero(levels == 0))


def _without_dictionary(fates: Sequence[PageFate]) -> list[PageFate]:
    """Pages whose values are places in a dictionary are lost with it."""
    if any(fate.is_dictionary and fate.page is not None for fate in fates):
        return list(fates)
    return [
        fate.lost("its dictionary page is lost") if fate.page is not None and _needs_dictionary(fate.page) else fate
        for fate in fates
    ]


def _has_known_encoding(page: Page) -> bool:
    return page.data_header is None or page.data_header.encoding in list(Encoding)


def _needs_dictionary(page: Page) -> bool:
    detail = page.data_header
    return detail is not None and detail.encoding in _DICTIONARY_ENCODINGS


def _row_aligned(chunk: ChunkRead, fates: Sequence[PageFate], known: PageHints | None) -> bool:
    """Whether no row goes on from one page into the next."""
    if not chunk.leaf.max_repetition_level or chunk.quirks.row_aligned:
        return True
    if known is not None and any(place.first_row is not None for place in known.pages):
        return True  # an OffsetIndex has it so (parquet-format, PageIndex.md)
    pages = [fate.page for fate in fates if fate.page is not None and not fate.is_dictionary]
    return bool(pages) and all(page.header.type == PageType.DATA_PAGE_V2 for page in pages)


def _aligned(fates: Sequence[PageFate], num_rows: int | None, *, cut_short: bool, begins: bool) -> list[PageFate]:
    """The fates with the row that each page begins with, counted from the front, from the end, or by an index.

    Where pages may be missing behind the last (`cut_short`), fewer rows than there should be contradict nothing. Where
    they may be missing before the first (not `begins`), nothing is counted from the front.
    """
    placed = _as_indexed(fates, None if cut_short else num_rows)
    counted = sum(fate.num_rows or 0 for fate in placed if fate.page is not None)
    doubtful = cut_short or any(map(_is_doubtful, placed))
    if num_rows is not None and (counted > num_rows or (counted < num_rows and not doubtful)):
        reason = f"its pages hold {counted:,} rows instead of {num_rows:,}: one of their headers is damaged"
        return [fate if fate.is_dictionary or fate.page is None else fate.lost(reason) for fate in placed]
    total = sum(fate.num_rows for fate in placed if fate.num_rows is not None)
    if num_rows is not None and all(fate.num_rows is not None for fate in placed) and total != num_rows:
        # The header of a lost page lies about its count: it proves nothing.
        placed = [replace(fate, num_rows=None) if _is_doubtful(fate) else fate for fate in placed]
    _count_forward(placed, 0 if begins else None)
    if num_rows is not None:
        _count_backward(placed, num_rows)
    return placed


def _as_indexed(fates: Sequence[PageFate], num_rows: int | None) -> list[PageFate]:
    """The fates, a page lost whose header counts other rows than an index does."""
    placed = list(fates)
    data = [i for i, fate in enumerate(fates) if not fate.is_dictionary]
    for position, i in enumerate(data):
        fate = fates[i]
        last = position + 1 == len(data)
        following = num_rows if last else fates[data[position + 1]].first_row
        if fate.first_row is None or following is None or following < fate.first_row:
            continue
        if fate.page is None:
            placed[i] = replace(fate, num_rows=following - fate.first_row)
        elif fate.num_rows != following - fate.first_row:
            placed[i] = replace(
                fate.lost("its header counts other rows than its index"), num_rows=following - fate.first_row
            )
    return placed


def _is_doubtful(fate: PageFate) -> bool:
    return fate.page is None and not fate.is_dictionary


def _count_forward(fates: list[PageFate], row: int | None) -> None:
    for i, fate in enumerate(fates):
        if fate.is_dictionary:
            continue
        if fate.first_row is None:
            fates[i] = replace(fate, first_row=row)
        row = fates[i].first_row
        row = None if row is None or fate.num_rows is None else row + fate.num_rows


def _count_backward(fates: list[PageFate], num_rows: int) -> None:
    """Place pages from the end, as far as there are rows for them: what tells of more contradicts itself."""
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


# -- values ----------------------------------------------------------------------------------------


def _decoded(
    chunk: ChunkRead,
    fates: Sequence[PageFate],
    num_rows: int | None,
    agrees: Agrees | None,
    *,
    row_aligned: bool,
    bounded: bool,
) -> SalvagedChunk:
    """Decode what is whole; a page that does not decode is lost after all."""
    decoding = _Decoding(chunk, fates, agrees, row_aligned=row_aligned, bounded=bounded)
    runs = decoding.runs()
    fitting = [
        run
        for run in runs
        if run.data.num_rows
        and (run.first_row is None or num_rows is None or run.first_row + run.data.num_rows <= num_rows)
    ]
    return SalvagedChunk(
        chunk, tuple(decoding.fates), tuple(fitting), is_cut=decoding.begins_within, is_misplaced=decoding.is_misplaced
    )


def _runs(fates: Sequence[PageFate], start: int, stop: int) -> Iterator[tuple[int, int]]:
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


class _Decoding:
    """Decodes the pages of a chunk that seem whole."""

    def __init__(
        self,
        chunk: ChunkRead,
        fates: Sequence[PageFate],
        agrees: Agrees | None,
        *,
        row_aligned: bool,
        bounded: bool,
    ) -> None:
        self.fates = list(fates)
        self._given = fates
        self._chunk = chunk
        self._agrees = agrees
        self._row_aligned = row_aligned
        self._bounded = bounded  # whether no page of another column can lie between those that were found
        sums = ChunkSums.of(chunk.metadata)
        self._adrift = sums is None or sums.chunk is None  # a page's own checksum does not prove its place
        self.is_misplaced = False
        self.begins_within = False  # whether pages that were decoded together begin with the end of a row
        self._dictionary = next((fate for fate in fates if fate.is_dictionary and fate.page is not None), None)

    def runs(self) -> list[RowRun]:
        """The rows that are left; pages that turn out to be damaged are lost in `fates`."""
        found: list[RowRun] = []
        todo = deque(_runs(self.fates, 0, len(self.fates)))
        while todo:
            first, end = todo.popleft()
            try:
                found.append(self._run(first, end))
            except (FormatError, UnsupportedError) as error:
                self._find_damaged(first, end, error.message)
                if self._misplaces(first, end, error):
                    self.is_misplaced = True
                    self.fates = [fate if fate.page is None else fate.lost(MISPLACED) for fate in self.fates]
                    return []
                todo.extendleft(reversed(list(_runs(self.fates, first, end))))
        return found

    def _misplaces(self, first: int, end: int, error: Exception) -> bool:
        """Whether pages turned out to be of something else, though they are as they were written.

        Then those beside them lie elsewhere than they were written, too.
        """
        lost = [fate for fate in self._given[first:end] if fate.checksummed and fate not in self.fates]
        if isinstance(error, UnsupportedError):  # an encoding to come, or one that is not for the type of the column
            lost = [fate for fate in lost if fate.page is not None and _has_known_encoding(fate.page)]
            return self._adrift and self._bounded and bool(lost)
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
                self._run(start, stop)
            except (FormatError, UnsupportedError) as error:
                self._find_damaged(start, stop, error.message)
                found = True
        if not found:
            # Each decodes, and both together do not: neither can be believed to be what it says.
            for i in range(first, end):
                self.fates[i] = self.fates[i].lost(reason)

    def _run(self, first: int, end: int) -> RowRun:
        """The rows of the pages from position `first` to before `end`.

        Raises:
            FormatError: They do not decode, or no checksum vouches for them, and they disagree with the statistics.
            UnsupportedError: They use what this version does not read.
        """
        chunk, fates = self._chunk, [fate for fate in self.fates[first:end] if not fate.is_dictionary]
        dictionary = [] if self._dictionary is None else [self._dictionary]
        pages = [fate.page for fate in (*dictionary, *fates) if fate.page is not None]
        num_rows = sum(fate.num_rows or 0 for fate in fates)
        column = decode_chunk(chunk.leaf, chunk.metadata.codec, pages, num_rows, chunk.quirks)
        levels = column.repetition_levels
        self.begins_within |= levels is not None and len(levels) > 0 and bool(levels[0])
        data = from_first_row(chunk.leaf, leaf_data(column))
        if self._agrees is not None and (self._adrift or any(map(_is_unproven, (*dictionary, *fates)))):
            begun = None if self.begins_within else self.fates[first].first_row
            if not self._agrees(data, begun):
                raise FormatError("its values are not those of which the statistics of the chunk, or its indexes, tell")
        if not self._row_aligned and end < len(self.fates) and data.num_rows:
            # The row that was begun last may go on in the page behind these.
            data = slice_rows(chunk.leaf, data, 0, data.num_rows - 1)
        return RowRun(self.fates[first].first_row, data)


def _is_unproven(fate: PageFate) -> bool:
    """Whether a page is believed though no checksum that was written with it holds."""
    return fate.page is not None and (not fate.checksummed or fate.mending is RepairSource.BIT_REPAIR)
