"""The pages of a damaged column chunk: which are whole where hints or their own headers say that they lie. Sans-io."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Self

from resilient_pq.checksum import combine, crc32, signed, unsigned
from resilient_pq.damage.chunk_salvage import ChunkBytes, PageFate, RepairSource
from resilient_pq.damage.page_hints import PageHint, PageHints
from resilient_pq.damage.page_search import pages_in
from resilient_pq.errors import FormatError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import PageHeader, PageType
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page import Page, read_header
from resilient_pq.format.pages.stored_pages import ends_stored
from resilient_pq.lazy_dataclass import dataclass

_PAGE_TYPES: Final = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2, PageType.DICTIONARY_PAGE, PageType.INDEX_PAGE)
_HIDDEN: Final = "bytes of it are damaged that no checksum of a page covers"
_ADRIFT: Final = "nothing proves its place: bytes before it are damaged, and no page follows up to the chunk's end"
_EXCHANGED: Final = "another page is in its place"
_STRANGE: Final = "the page that lies here is of no column, or of another one"
_ALIKE: Final = "it stores its data in a gzip member, and no hash tells it from others of its size"

#: Repairs a damaged body by turning one bit, given the CRC32 that it should have; None where that is not possible.
Repair = Callable[[memoryview, int], bytes | None]


@dataclass(frozen=True, slots=True)
class _StoredHeader:
    """A page header, parsed and as stored."""

    parsed: PageHeader
    data: memoryview

    @classmethod
    def at(cls, data: memoryview, start: int) -> Self | None:
        """The header at an offset; None where none parses there."""
        try:
            parsed, end = read_header(data, start)
        except FormatError:
            return None
        return cls(parsed, data[start:end])

    @property
    def page_size(self) -> int:
        """Bytes of the header and of the body after it."""
        return len(self.data) + self.parsed.compressed_page_size

    @property
    def is_plausible(self) -> bool:
        return self.parsed.type in _PAGE_TYPES

    @property
    def is_dictionary(self) -> bool:
        return self.parsed.type == PageType.DICTIONARY_PAGE

    @property
    def page_crc(self) -> int | None:
        """CRC32 of the page, calculated from these bytes and the CRC32 of the body in them; None without that."""
        if self.parsed.crc is None:
            return None
        return combine(crc32(self.data), unsigned(self.parsed.crc), self.parsed.compressed_page_size)


class PageFinder:
    """Finds the pages of a chunk in its readings."""

    def __init__(
        self, chunk: ChunkRead, readings: Sequence[ChunkBytes], repair: Repair | None, *, verify: bool
    ) -> None:
        """Compare the hash of the chunk, where it has one, with each reading."""
        self._chunk = chunk
        self._readings = readings
        self._repair = repair
        self._zero_is_none = chunk.quirks.zero_crc_is_none
        sums = ChunkSums.of(chunk.metadata)
        # Where the chunk's own sum does not hold, a page without one may be what is damaged.
        self._needs_crc = verify and sums is not None and sums.chunk is not None
        self._verify = verify
        # Where the chunk has a hash, the CRC32 of a page may be that of another page.
        hashed = sums if verify and sums is not None and sums.xxh3 is not None else None
        self._as_written = [hashed is None or hashed.computed(each.data) == hashed.xxh3 for each in readings]

    def hinted_pages(self, hints: PageHints) -> list[PageFate]:
        """Each page that hints name, and the pages between them where the hints do not name all."""
        fates: list[PageFate] = []
        at = self._chunk.range.start
        for hint in hints.pages:
            if at < hint.offset:
                between = self._chain(at, hint.offset, len(fates))
                fates += map(_refused, between) if hints.searched else between
            fates.append(self._hinted_page(hint, len(fates)))
            at = hint.end
        if at < self._chunk.range.end and not hints.complete:
            fates += self._chain(at, self._chunk.range.end, len(fates))
        return fates

    def chained_pages(self) -> list[PageFate]:
        """Page after page, each where the header of the one before it says that it ends."""
        return self._chain(self._chunk.range.start, self._chunk.range.end, 0, self._chunk.num_values_to_read)

    # -- pages whose places are known ------------------------------------------------------------

    def _hinted_page(self, hint: PageHint, ordinal: int) -> PageFate:
        lost = PageFate(hint.offset, hint.end, None, first_row=hint.first_row)
        start = hint.offset - self._chunk.range.start
        if hint.offset < self._chunk.range.start or hint.end > self._chunk.range.end:
            return lost.lost("it is said to lie outside of its chunk")
        if hint.header is None:
            return self._page_at(start, start + hint.size, ordinal, hint) or lost.lost("its header is damaged")
        header = _StoredHeader.at(memoryview(hint.header), 0)
        if header is None:
            return lost.lost("the copy of its header does not parse")
        if len(header.data) != len(hint.header) or header.page_size != hint.size:
            return lost.lost("the copy of its header is not that of this page")
        return self._page_of_copy(hint, header, ordinal, replace(lost, is_dictionary=header.is_dictionary))

    def _page_of_copy(self, hint: PageHint, header: _StoredHeader, ordinal: int, lost: PageFate) -> PageFate:
        """The page of which there is a copy of the header: its body from a reading, from a copy, or repaired."""
        start = hint.offset - self._chunk.range.start
        body_start = start + len(header.data)
        damaged: list[tuple[int, memoryview]] = []
        is_exchanged = False
        for number, reading in enumerate(self._readings):
            body = reading.data[body_start : start + hint.size]
            if not self._holds(header.parsed, body):
                damaged.append((number, body))
                continue
            is_exchanged = self._is_another(hint, header, body)
            if not is_exchanged:
                is_in_place = reading.data[start:body_start] == header.data
                repair = reading.repair or (None if is_in_place else RepairSource.HEADER_COPY)
                return self._whole(replace(lost, reading=number, placed=True), ordinal, header, body, repair)
        if hint.body is not None and self._holds(header.parsed, memoryview(hint.body)):
            fate, body = replace(lost, placed=True), memoryview(hint.body)
            return self._whole(fate, ordinal, header, body, RepairSource.DICTIONARY_COPY)
        if is_exchanged and not damaged:
            return lost.lost(_EXCHANGED)
        repaired = self._repaired(lost, ordinal, header, damaged)
        if repaired.page is not None and self._is_another(hint, header, repaired.page.body):
            return lost.lost(_EXCHANGED)
        return replace(repaired, placed=repaired.page is not None)

    def _is_another(self, hint: PageHint, header: _StoredHeader, body: memoryview) -> bool:
        """Whether a page, whose CRC32 holds, has another sum than the one of its place."""
        return self._verify and hint.sum is not None and hint.sum.computed(header.data, body) != hint.sum.value

    # -- pages as their own headers describe them --------------------------------------------------

    def _chain(self, start: int, end: int, ordinal: int, max_values: int | None = None) -> list[PageFate]:
        """Page after page from one absolute offset to another, or up to a number of values."""
        base = self._chunk.range.start
        at, stop = start - base, end - base
        fates: list[PageFate] = []
        num_values = 0
        first_searched = None  # the pages from this one on were only searched for
        while at < stop and (max_values is None or num_values < max_values):
            fate = self._page_at(at, stop, ordinal + len(fates))
            if fate is None:
                fate = PageFate(base + at, base + self._next_page(at + 1, stop), None, reason="its header is damaged")
                first_searched = len(fates) + 1
            fates.append(fate)
            at = fate.end - base
            num_values += fate.page.num_values if fate.page is not None else fate.num_rows or 0
        if first_searched is not None and at not in (stop, stop - self._chunk.slack) and not self._needs_crc:
            searched = fates[first_searched:]
            fates[first_searched:] = [fate.lost(_ADRIFT) if fate.page is not None else fate for fate in searched]
        return fates

    def _page_at(self, at: int, stop: int, ordinal: int, hint: PageHint | None = None) -> PageFate | None:
        """The page at `at` (with a hint it ends at `stop`); None where no reading has a header that fits."""
        base = self._chunk.range.start
        damaged = doubtful = None
        for number, reading in enumerate(self._readings):
            data = reading.data[:stop]
            header = _StoredHeader.at(data, at)
            if header is None:
                continue
            end = at + header.page_size
            if end > stop or (end < stop if hint is not None else not header.is_plausible):
                continue
            first_row = None if hint is None else hint.first_row
            fate = PageFate(base + at, base + end, None, header.is_dictionary, first_row, reading=number)
            body = data[at + len(header.data) : end]
            if self._holds(header.parsed, body):
                fate = self._judged(self._whole(fate, ordinal, header, body, reading.repair), header, hint)
                if fate.page is not None:
                    return fate
                doubtful = doubtful or fate
            # Its length may be what is damaged: it is used when another page, or the end, follows.
            elif damaged is None and (end == stop or self._begins_page(data, end)):
                damaged = fate, header, [(number, body)]
        if damaged is None:
            return doubtful
        fate, header, bodies = damaged
        return self._repaired(fate, ordinal, header, bodies)

    def _judged(self, whole: PageFate, header: _StoredHeader, hint: PageHint | None) -> PageFate:
        """A page with its own header; lost where it may be, or is, another page than the one of its place."""
        if whole.page is None:
            return whole
        if hint is not None and hint.sum is not None:
            is_another = self._is_another(hint, header, whole.page.body)
            return whole.lost(_EXCHANGED) if is_another else replace(whole, placed=True)
        if self._needs_crc and not self._as_written[whole.reading] and ends_stored(whole.page.body):
            return whole.lost(_ALIKE)  # its CRC32 may be that of another page, and there is no other sum
        return whole

    def _begins_page(self, data: memoryview, at: int) -> bool:
        header = _StoredHeader.at(data, at)
        return header is not None and header.is_plausible and at + header.page_size <= len(data)

    def _next_page(self, at: int, stop: int) -> int:
        """Where a search finds the next page in any reading; `stop` where there is none."""
        found = [pages_in(reading.data[:stop], 0, at) for reading in self._readings]
        return min((pages[0].offset for pages in found if pages), default=stop)

    # -- what a page is ----------------------------------------------------------------------------

    def _holds(self, header: PageHeader, body: memoryview) -> bool:
        """Whether a body is the one of a header: by its CRC32, or, without one, as far as can be checked here."""
        if len(body) != header.compressed_page_size:
            return False
        if self._has_crc(header):
            return unsigned(header.crc or 0) == crc32(body)
        return not self._needs_crc

    def _has_crc(self, header: PageHeader) -> bool:
        return self._verify and header.crc is not None and not (self._zero_is_none and header.crc == 0)

    def _whole(
        self, fate: PageFate, ordinal: int, header: _StoredHeader, body: memoryview, repair: RepairSource | None
    ) -> PageFate:
        page = Page(ordinal, fate.offset, header.parsed, header.data, body)
        checksummed = self._has_crc(header.parsed)
        return replace(fate, page=page, repair=repair, checksummed=checksummed, reason=None, stated=header.page_crc)

    def _repaired(
        self, fate: PageFate, ordinal: int, header: _StoredHeader, bodies: Sequence[tuple[int, memoryview]]
    ) -> PageFate:
        """The page with one bit turned in one of its bodies where that makes its CRC32 hold; otherwise lost."""
        parsed = header.parsed
        lost = replace(
            fate.lost("its CRC32 does not match" if self._has_crc(parsed) else _HIDDEN), stated=header.page_crc
        )
        detail = parsed.data_page_header or parsed.data_page_header_v2
        if detail is not None and not self._chunk.leaf.max_repetition_level and not lost.is_dictionary:
            lost = replace(lost, num_rows=detail.num_values)
        if self._repair is None or not self._has_crc(parsed):
            return lost
        for number, body in bodies:
            turned = self._repair(body, unsigned(parsed.crc or 0))
            if turned is not None:
                # The bit may be one of the sum itself: then the header has to get the right one.
                right = replace(parsed, crc=signed(crc32(turned)))
                if right.crc != parsed.crc:
                    header = _StoredHeader(right, memoryview(compact_protocol.encode(right)))
                fate = replace(lost, reading=number)
                return self._whole(fate, ordinal, header, memoryview(turned), RepairSource.BIT_REPAIR)
        return lost


def _refused(fate: PageFate) -> PageFate:
    """The fate of a page that was found whole, and not taken for one of the chunk."""
    is_whole = fate.page is not None and fate.repair is None
    return replace(fate.lost(_STRANGE), num_rows=None, is_dictionary=False) if is_whole else fate
