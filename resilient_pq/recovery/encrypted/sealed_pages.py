"""The pages of a damaged encrypted chunk: where they lie, what copies there are, and which belong elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from resilient_pq.encryption.plain_regions import SealedChunk
from resilient_pq.errors import FormatError
from resilient_pq.format.crypto.modules import CTR_OVERHEAD, GCM_OVERHEAD, WrongTagError, module_size
from resilient_pq.format.crypto.page_view import ChunkCipher, SealedPage
from resilient_pq.format.file_metadata import PageHeader
from resilient_pq.format.resilience_records import ChunkCopies
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import KiB, MiB

_LARGEST_HEADER: Final = 16 * KiB  # Modules of page headers that are searched for have fewer bytes
_SMALLEST_PAGE: Final = GCM_OVERHEAD + CTR_OVERHEAD + 8  # Fewer bytes than a page has, header and body
_MAX_TRIES: Final = 300_000  # Tags that are compared at most in one chunk, or for pages that were exchanged
_WINDOW: Final = MiB


@dataclass(frozen=True, slots=True)
class LostPage:
    """A page that does not open in its place, and the bytes that lie there."""

    chunk: SealedChunk
    page: SealedPage
    stored: memoryview


def find_pages(chunk: SealedChunk, data: memoryview, copies: ChunkCopies | None) -> list[LostPage]:
    """Find the pages of a chunk in its bytes, as far as there are any; gives those that do not open."""
    known = _copied_pages(chunk, data, copies) if copies is not None else None
    if known is not None:
        chunk.pages, chunk.instead = known
    elif chunk.pages is None:
        chunk.pages = list(_Search(chunk, data).pages())
    chunk.pages = [page for page in chunk.pages if page.end <= chunk.start + len(data)]
    lost = []
    for page in chunk.pages:
        if not opens(chunk.opener, page, chunk.stored_page(page, data, chunk.start)):
            lost.append(LostPage(chunk, page, data[page.start - chunk.start : page.end - chunk.start]))
    return lost


def opens(opener: ChunkCipher, page: SealedPage, stored: memoryview) -> bool:
    """Whether a page is as it was sealed for this place."""
    try:
        opener.open_page(page, stored, memoryview(bytearray(len(stored))))
    except (FormatError, WrongTagError):
        return False
    return True


def _copied_pages(
    chunk: SealedChunk, data: memoryview, copies: ChunkCopies
) -> tuple[list[SealedPage], dict[int, memoryview]] | None:
    """The pages as the record of the row group tells of them, and what of them stands there otherwise."""
    headers, at, start = memoryview(copies.page_headers), 0, chunk.start
    ordinal = None if copies.dictionary_page is not None else 0
    pages: list[SealedPage] = []
    instead: dict[int, memoryview] = {}
    try:
        while at < len(headers):
            header, size = chunk.opener.open_header(ordinal, headers[at:])
            page = SealedPage(start, size + header.compressed_page_size, ordinal)
            if start + size <= chunk.start + len(data) and _differ(data, start - chunk.start, headers[at : at + size]):
                instead[start] = headers[at : at + size]
            body = memoryview(copies.dictionary_copy or b"") if ordinal is None else memoryview(b"")
            if len(body) == header.compressed_page_size and _differ(data, start + size - chunk.start, body):
                instead[start + size] = body
            pages.append(page)
            at, start, ordinal = at + size, page.end, 0 if ordinal is None else ordinal + 1
    except (FormatError, WrongTagError):
        return None
    return (pages, instead) if pages else None


def _differ(data: memoryview, at: int, wanted: memoryview) -> bool:
    return data[at : at + len(wanted)] != wanted


class _Search:
    """Goes from page to page by the lengths of modules, and tries tags where these are damaged."""

    def __init__(self, chunk: SealedChunk, data: memoryview) -> None:
        self._chunk, self._data = chunk, data
        self._left = _MAX_TRIES

    def pages(self) -> Iterator[SealedPage]:
        """The pages that can be found, in order; a damaged one where its place is known."""
        at = 0
        ordinal = -1 if self._chunk.has_dictionary else 0
        while at < len(self._data) and self._left > 0:
            size = self._size_at(at, ordinal)
            if size is None:
                found = self._next(at + 1, ordinal)
                if found is None:
                    return
                at, ordinal = found
                continue
            yield SealedPage(self._chunk.start + at, size, None if ordinal < 0 else ordinal)
            at, ordinal = at + size, ordinal + 1

    def _header(self, at: int, ordinal: int) -> tuple[PageHeader, int] | None:
        self._left -= 1
        try:
            return self._chunk.opener.open_header(None if ordinal < 0 else ordinal, self._data[at:])
        except (FormatError, WrongTagError):
            return None

    def _size_at(self, at: int, ordinal: int) -> int | None:
        """The size of the page at an offset; None where it is neither whole nor followed by one that is."""
        found = self._header(at, ordinal)
        if found is not None:
            size = found[1] + found[0].compressed_page_size
            return size if at + size <= len(self._data) else None
        try:
            size = module_size(self._data, at, len(self._data), GCM_OVERHEAD)
            size += module_size(self._data, at + size, len(self._data), CTR_OVERHEAD)
        except FormatError:
            return None
        follows = at + size == len(self._data) or self._header(at + size, ordinal + 1) is not None
        return size if follows else None

    def _next(self, start: int, ordinal: int) -> tuple[int, int] | None:
        """Where the next page begins that opens, and its number."""
        for base in range(start, len(self._data), _WINDOW):
            window = np.frombuffer(self._data[base : base + _WINDOW + 3], np.uint8).astype(np.uint32)
            if len(window) < 4:
                return None
            lengths = window[:-3] | window[1:-2] << 8 | window[2:-1] << 16 | window[3:] << 24
            likely = (lengths >= GCM_OVERHEAD - 4) & (lengths < _LARGEST_HEADER)
            for at in (base + np.flatnonzero(likely)).tolist():
                for number in range(ordinal, ordinal + (at - start) // _SMALLEST_PAGE + 2):
                    if self._left <= 0:
                        return None
                    if self._header(at, number) is not None:
                        return at, number
        return None


def put_back_exchanged(lost: Sequence[LostPage]) -> None:
    """Find pages that lie in the places of others, by their tags, and show each in its own."""
    tries = 0
    by_size: dict[int, list[LostPage]] = {}
    for one in lost:
        by_size.setdefault(one.page.size, []).append(one)
    for alike in by_size.values():
        for wanted in alike:
            for other in alike:
                tries += 1
                if tries > _MAX_TRIES:
                    return
                if other is not wanted and opens(wanted.chunk.opener, wanted.page, other.stored):
                    kept = wanted.chunk.instead.items()
                    wanted.chunk.instead = {
                        at: known for at, known in kept if not wanted.page.start <= at < wanted.page.end
                    } | {wanted.page.start: other.stored}
                    break
