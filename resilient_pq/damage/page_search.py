"""Pages found in bytes of which nothing else is known: by the shape of their headers. Sans-io.

A page header begins with its type and its two sizes, small integers in ascending fields, and every writer known
writes them so (parquet.thrift, PageHeader, in the compact protocol). Random bytes have this shape once in 10^14
places; bytes that somebody chose may have it anywhere, as those of a Parquet file in a column do. So a header is
accepted only where something else holds as well (`Proof`). The bytes of a page that is accepted are not searched.

`finding_pages` is a generator that asks for ranges of bytes, forwards and a few MiB at a time, and is sent them;
`pages_in` searches bytes that are at hand.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from enum import StrEnum
from typing import Any

from resilient_pq.checksum import crc32, unsigned
from resilient_pq.damage.codec_trial import codecs_of
from resilient_pq.damage.page_header_checks import LIMITS, SearchLimits, header_at
from resilient_pq.errors import FormatError, ThriftError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import (
    ColumnChunk,
    ColumnIndex,
    ColumnMetaData,
    FileMetaData,
    OffsetIndex,
    PageHeader,
)
from resilient_pq.format.footer import MAGIC
from resilient_pq.format.pages.page import Page
from resilient_pq.format.resilience_records import RECORD_MAGIC
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import MiB

#: Type, sizes, a CRC32 perhaps, and the first field of what the type has for a header. 61,747 pages of eleven
#: writers were looked at, from parquet-mr 1.0 on, and all headers begin so.
_SHAPE = re.compile(
    rb"\x15[\x00\x04\x06]"
    rb"\x15[\x80-\xff]{0,4}[\x00-\x7f]"
    rb"\x15[\x80-\xff]{0,4}[\x00-\x7f]"
    rb"(?:\x15[\x80-\xff]{0,4}[\x00-\x7f][\x1c\x3c\x4c]|[\x2c\x4c\x5c])\x15"
)
#: The longest match of it.
_LONGEST_SHAPE = 22
#: Magics and structs that may lie between the pages of a file, and are found without a footer. Impala,
#: and parquet-cpp at first, put a copy of its metadata behind each chunk.
_MARKS = (MAGIC, RECORD_MAGIC)
#: By the first byte: what fields they begin with.
_STRUCTS: dict[int, tuple[type[ColumnChunk | ColumnMetaData | FileMetaData | OffsetIndex | ColumnIndex], ...]] = {
    0x15: (ColumnMetaData, FileMetaData),
    0x19: (OffsetIndex, ColumnIndex),
    0x26: (ColumnChunk,),
}

Asking = Generator[range, memoryview, None]


class Proof(StrEnum):
    """Why a header is accepted as that of a page, the strongest reason that holds."""

    CRC = "crc"
    """The CRC32 in its header is that of its body."""
    BOTH_ENDS = "both-ends"
    """It begins where a page or a mark ends, and ends where another begins, or the bytes do."""
    NEXT = "next"
    """It ends where a page or a mark begins, or where the bytes end."""
    DECOMPRESSED = "decompressed"
    """It decompresses to exactly as many bytes as its header says."""
    PREVIOUS = "previous"
    """It begins where a page or a mark ends, and no other page lies across its end."""


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page, and why it is accepted."""

    offset: int  # Absolute offset of its header
    header: PageHeader
    header_size: int
    proof: Proof
    crc_holds: bool | None = None  # Whether its CRC32 is that of its body; None where the header has none

    @property
    def body(self) -> int:
        """Absolute offset of its body."""
        return self.offset + self.header_size

    @property
    def end(self) -> int:
        """Absolute offset just after it."""
        return self.offset + self.header_size + self.header.compressed_page_size


def metadata_end(data: memoryview) -> int | None:
    """Where metadata that may stand between pages end, when `data` begins with them: a chunk's, an index, a footer."""
    for struct in _STRUCTS.get(data[0], ()) if len(data) else ():
        try:
            found, end = compact_protocol.decode(struct, data)
        except ThriftError:
            continue
        chunk = found.meta_data if isinstance(found, ColumnChunk) else found
        if chunk is not None and not (isinstance(chunk, ColumnMetaData) and not chunk.path_in_schema):
            return end
    return None


def pages_in(data: Any, base: int = 0, start: int | None = None, limits: SearchLimits = LIMITS) -> list[FoundPage]:
    """All pages found in bytes at hand, the first of which is at offset `base`; the search begins at offset `start`."""
    view = memoryview(data)
    found: list[FoundPage] = []
    asking = finding_pages(base if start is None else start, base + len(view), found, limits)
    try:
        wanted = next(asking)
        while True:
            wanted = asking.send(view[wanted.start - base : wanted.stop - base])
    except StopIteration:
        return found


def finding_pages(start: int, end: int, found: list[FoundPage], limits: SearchLimits = LIMITS) -> Asking:
    """Find all pages between two offsets, asking for bytes; each goes to `found`. A page may end at `end`."""
    yield from _Search(start, end, found, limits).run()


class _Search:
    """A search under way: a window of the bytes that moves forwards, and back only behind a header that is none."""

    _WINDOW = 8 * MiB

    def __init__(self, start: int, end: int, found: list[FoundPage], limits: SearchLimits) -> None:
        self._start, self._end = start, end
        self._found = found
        self._limits = limits
        self._view, self._base = memoryview(b""), start
        #: The last header that was parsed, and its offset.
        self._parsed: tuple[int, tuple[PageHeader, int] | None] | None = None
        self._work = limits.work_per_byte * (end - start) + limits.free_work

    def run(self) -> Asking:
        """Search all of it."""
        at, behind = self._start, False  # whether something known ends at `at`
        while at < self._end:
            candidate = yield from self._next(at, behind)
            if candidate is None:
                return
            offset, behind = candidate
            page = yield from self._page_at(offset, behind)
            if page is None:
                at, behind = offset + 1, False
                continue
            if len(self._found) >= self._limits.max_pages:
                raise FormatError(f"there are more than {self._limits.max_pages:,} pages")
            self._found.append(page)
            at, behind = page.end, True

    def _next(self, at: int, behind: bool) -> Generator[range, memoryview, tuple[int, bool] | None]:
        """Where to look for a page at or after `at`, and whether it stands right behind something known."""
        while behind:
            if (yield from self._header(at)) is not None:
                return at, True
            skipped = metadata_end((yield from self._peek(at, self._limits.max_header)))
            at, behind = at + (skipped or 0), skipped is not None
        while at < self._end:
            yield from self._hold(at, _LONGEST_SHAPE)
            match = _SHAPE.search(self._view, at - self._base)
            if match is not None:
                return self._base + match.start(), False
            at = max(self._base + len(self._view) - _LONGEST_SHAPE + 1, at + 1)
            if self._base + len(self._view) == self._end:
                return None
        return None

    def _page_at(self, offset: int, behind: bool) -> Generator[range, memoryview, FoundPage | None]:
        """The page whose header lies at `offset`, where it is accepted."""
        parsed = yield from self._header(offset)
        if parsed is None:
            return None
        header, header_size = parsed
        body, end = offset + header_size, offset + header_size + header.compressed_page_size
        if end > self._end:
            return None
        holds = (yield from self._crc_holds(header, body, end)) if header.crc is not None else None
        proof = Proof.CRC if holds else (yield from self._proof(header, offset, body, end, behind))
        if proof is None:
            self._spend(end - offset)
            return None
        return FoundPage(offset, header, header_size, proof, holds)

    def _proof(
        self, header: PageHeader, offset: int, body: int, end: int, behind: bool
    ) -> Generator[range, memoryview, Proof | None]:
        """Why a header without a CRC32 that holds is accepted; None where it is not."""
        behind = behind or (yield from self._mark_before(offset))
        if (yield from self._known_at(end)):
            return Proof.BOTH_ENDS if behind else Proof.NEXT
        if end - offset <= self._WINDOW:
            yield from self._hold(offset, end - offset)
            view = self._view[offset - self._base : end - self._base]
            size = body - offset
            page = Page(0, offset, header, view[:size], view[size:])
            self._spend(header.uncompressed_page_size)
            if any(codec for codec in codecs_of(page)):  # not UNCOMPRESSED, which proves nothing
                return Proof.DECOMPRESSED
        if behind and not (yield from self._page_across(body, end)):
            return Proof.PREVIOUS
        return None

    def _known_at(self, at: int) -> Generator[range, memoryview, bool]:
        """Whether a page header, a mark or the end stands there."""
        if at == self._end:
            return True
        if (yield from self._header(at)) is not None:
            return True
        view = yield from self._peek(at, self._limits.max_header)
        return any(view[: len(mark)] == mark for mark in _MARKS) or metadata_end(view) is not None

    def _mark_before(self, at: int) -> Generator[range, memoryview, bool]:
        if at - len(MAGIC) < self._start:
            return False
        return (yield from self._peek(at - len(MAGIC), len(MAGIC))) == MAGIC

    def _page_across(self, start: int, end: int) -> Generator[range, memoryview, bool]:
        """Whether a page begins at `start` or after and goes on behind `end`, up to where something known begins."""
        at = start  # pages that end before belong to a file within a value
        while (candidate := (yield from self._next(at, False))) is not None and candidate[0] < end:
            at = candidate[0] + 1
            while at <= end and (parsed := (yield from self._header(at - 1))) is not None:
                inner_end = at - 1 + parsed[1] + parsed[0].compressed_page_size
                if not (yield from self._known_at(inner_end)):
                    break
                if inner_end > end:
                    return True
                at = inner_end + 1
        return False

    def _header(self, at: int) -> Generator[range, memoryview, tuple[PageHeader, int] | None]:
        """The header at an absolute offset, and its size."""
        if self._parsed is None or self._parsed[0] != at:
            view = yield from self._peek(at, self._limits.max_header)
            self._parsed = at, header_at(view, 0, self._limits)
            self._spend(1)
        return self._parsed[1]

    def _crc_holds(self, header: PageHeader, body: int, end: int) -> Generator[range, memoryview, bool | None]:
        """Compare the CRC32 of a body, which need not fit in the window; None where there is none."""
        computed, at = 0, body
        while at < end:
            yield from self._hold(at, 1)
            piece = self._view[at - self._base : end - self._base]
            computed = crc32(piece, computed)
            at += len(piece)
        stored = unsigned(header.crc or 0)
        return None if not stored and computed else stored == computed  # Parquet.jl leaves 0 there

    def _peek(self, at: int, size: int) -> Generator[range, memoryview, memoryview]:
        """Up to `size` bytes at an offset, wherever it is, without moving the window far away."""
        size = min(size, self._end - at)
        if not self._base <= at <= self._base + len(self._view) + self._WINDOW:
            self._spend(size)
            return (yield range(at, at + size)) if size > 0 else memoryview(b"")
        yield from self._hold(at, size)
        return self._view[at - self._base : at - self._base + size]

    def _hold(self, at: int, size: int) -> Generator[range, memoryview, None]:
        """Move the window so that `size` bytes from `at` on are in it, or as many as there are."""
        need = min(at + size, self._end)
        if self._base <= at and need <= self._base + len(self._view):
            return
        end = min(max(at + self._WINDOW, need), self._end)
        if at < self._base + len(self._view):
            self._spend(self._base + len(self._view) - at)
        self._view, self._base = (yield range(at, end)), at

    def _spend(self, work: int) -> None:
        self._work -= work
        if self._work < 0:
            raise FormatError(
                "the search for pages was given up: too much looks like a page and is none",
                hint="the bytes may have been made to be slow to read",
            )
