"""Files in bytes, by their pages, the magics at their ends, and their footers. Sans-io."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from resilient_pq.damage.page_search import FoundPage
from resilient_pq.errors import FormatError, ResilientPQError, ThriftError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.format.footer import MAGIC
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordKind, parse_header
from resilient_pq.format.schema_tree import Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.carve.carve_limits import CarveLimits
from resilient_pq.recovery.carve.range_windows import RangeRequests, RangeWindow, search_pages
from resilient_pq.units import KiB, MiB

_MAGIC = re.compile(re.escape(MAGIC))
#: Magics looked at in one search; bytes with more of them are made of them.
_MOST_MAGICS = 1 << 16
#: Files told apart in one search; twice as many, as a head and a footer count each.
_MOST_FILES = 4096
_SECTOR = 512


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file, or a part of one."""

    start: int  # Absolute offset of its leading magic; where that is gone, of its first page
    # Absolute offset after its last byte: behind its trailing magic, or where the next file begins, or the bytes end
    end: int
    has_head: bool  # Whether its leading magic is there, so that the offsets in its footer count from `start`
    # Its footer's, where it has one; then it is a file by itself, whole as far as that can be seen
    metadata: FileMetaData | None
    pages: tuple[FoundPage, ...]  # Its pages, in order, without those of files within its values

    @property
    def num_bytes(self) -> int:
        """Bytes of its pages."""
        return sum(page.end - page.offset for page in self.pages)


@dataclass(frozen=True, slots=True)
class _Footer:
    start: int
    end: int
    metadata: FileMetaData


def find_files(start: int, end: int, limits: CarveLimits | None = None) -> RangeRequests[list[FoundFile]]:
    """The files between two offsets, in order, those within a damaged page of another included."""
    limits = limits or CarveLimits()
    pages = yield from search_pages(start, end, limits.search)
    magics = yield from _magics(start, end, pages)
    heads = yield from _heads(magics, pages, end)
    footers = yield from _footers(magics, start, end, limits)
    if len(heads) + len(footers) > _MOST_FILES:
        raise FormatError(f"there seem to be {len(heads) + len(footers):,} files", hint="recover a part of the bytes")
    whole = [file for footer in footers if (file := _whole_file(footer, heads, pages)) is not None]
    return _assign_pages(start, end, pages, heads, whole)


def _magics(start: int, end: int, pages: Sequence[FoundPage]) -> RangeRequests[list[int]]:
    """Offsets of all magics outside of pages."""
    found: list[int] = []
    window = RangeWindow(end)
    at = start
    for following in [*(page.offset for page in pages), end]:
        while following - at >= len(MAGIC):
            view = yield from window.read(at, min(following, at + MiB))
            found += [at + match.start() for match in _MAGIC.finditer(view)]
            if len(found) > _MOST_MAGICS:
                raise FormatError("the bytes are full of magics of Parquet", hint="they may be made to mislead")
            at += max(len(view) - len(MAGIC) + 1, 1)
        at = max(at, following)
        position = bisect_left(pages, following, key=lambda page: page.offset)
        at = pages[position].end if position < len(pages) else at
    return found


def _heads(magics: Sequence[int], pages: Sequence[FoundPage], end: int) -> RangeRequests[list[int]]:
    """The magics that begin a file, as a page or the first record follows, unlike in copies of values in statistics."""
    offsets = {page.offset for page in pages}
    window = RangeWindow(end)
    found = []
    for at in magics:
        behind = at + len(MAGIC)
        header = parse_header((yield from window.read(behind, behind + HEADER_SIZE)))
        if behind in offsets or (header is not None and header.kind == RecordKind.ANCHOR):
            found.append(at)
    return found


def _footers(magics: Sequence[int], start: int, end: int, limits: CarveLimits) -> RangeRequests[list[_Footer]]:
    """The footers that end in a magic."""
    found: list[_Footer] = []
    allowed = 2 * (end - start) + limits.max_footer
    for at in magics:
        if at - 4 < start:
            continue
        tail = yield from RangeWindow(end).read(at - 4, at)
        size = int.from_bytes(tail, "little")
        footer_start = at - 4 - size
        if not 0 < size <= limits.max_footer or footer_start < start:
            continue
        allowed -= size
        if allowed < 0:
            raise FormatError("too much looks like a footer and is none")
        data = yield from RangeWindow(at).read(footer_start, at - 4)
        try:
            metadata, length = compact_protocol.decode(FileMetaData, data)
        except ThriftError:
            continue
        if metadata.schema and size - length < KiB and _tells_columns(metadata):
            found.append(_Footer(footer_start, at + len(MAGIC), metadata))
    return found


def _tells_columns(metadata: FileMetaData) -> bool:
    """Whether the schema of a footer is valid, and its row groups have its columns."""
    try:
        leaves = Schema.from_elements(metadata.schema).leaves
    except ResilientPQError:
        return False
    return all(len(row_group.columns) == len(leaves) for row_group in metadata.row_groups)


def _whole_file(footer: _Footer, heads: Sequence[int], pages: Sequence[FoundPage]) -> FoundFile | None:
    """The file of a footer, which begins so that its first page lies where the footer has it."""
    chunks = [chunk.meta_data for row_group in footer.metadata.row_groups for chunk in row_group.columns]
    starts = [min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in chunks if c is not None]
    first = min(starts, default=None)
    if first is None:
        start = footer.start - len(MAGIC)
        return FoundFile(start, footer.end, True, footer.metadata, ()) if start >= 0 else None
    for start in reversed([head for head in heads if head < footer.start]):
        position = bisect_left(pages, start + first, key=lambda page: page.offset)
        if position < len(pages) and pages[position].offset == start + first < footer.start:
            within = [page for page in pages[position:] if page.end <= footer.start]
            return FoundFile(start, footer.end, True, footer.metadata, tuple(within))
    return None


def _assign_pages(
    start: int, end: int, pages: Sequence[FoundPage], heads: Sequence[int], whole: Sequence[FoundFile]
) -> list[FoundFile]:
    """Assign each page to the innermost whole file, else to the file whose magic lies before it."""
    whole = [_without_inner(file, whole) for file in whole]
    taken = {page.offset for file in whole for page in file.pages}
    rest = [page for page in pages if page.offset not in taken]
    begins = [head for head in heads if not any(_contains(head, file) for file in whole)]
    # Bytes behind a whole file are not part of those before it, unless the file is a value in one of their pages.
    borders = {start, *begins, *(file.end for file in whole if _is_separate(file, begins, start))}
    separate = [file for file in whole if file.end in borders]
    found = list(whole)
    places = sorted(borders)
    for place, following in zip(places, [*places[1:], end], strict=True):
        ends_at = min([following, *(file.start for file in separate if file.start >= place)])
        first, last = (bisect_left(rest, offset, key=lambda page: page.offset) for offset in (place, following))
        own = tuple(rest[first:last])
        if place in begins:
            found.append(FoundFile(place, max(ends_at, own[-1].end if own else 0), True, None, own))
        elif own:
            found.append(FoundFile(own[0].offset, max(ends_at, own[-1].end), False, None, own))
    return sorted(found, key=lambda file: file.start)


def _without_inner(file: FoundFile, whole: Sequence[FoundFile]) -> FoundFile:
    inner = [other for other in whole if file.start < other.start and other.end < file.end]
    own = tuple(page for page in file.pages if not any(_contains(page.offset, other) for other in inner))
    return replace(file, pages=own)


def _contains(offset: int, file: FoundFile) -> bool:
    return file.start <= offset < file.end


def _is_separate(file: FoundFile, begins: Sequence[int], start: int) -> bool:
    """Whether a whole file begins in a sector of a disk or at the start, and not in a value of another file."""
    before = max((head for head in begins if head < file.start), default=start)
    return (file.start - before) % _SECTOR == 0
