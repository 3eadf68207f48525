"""Row groups whose bytes lie elsewhere than the footer says, where no chunk has a checksum.

Pages that were shifted by inserted or missing bytes may by chance fit a chunk: they are as large as those that were
there, and their CRC32s hold. Other pages show it: those that cross an end of their chunk, or that are whole and of
another column.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.chunk_salvage import UNPROVEN_PLACE, SalvagedChunk
from resilient_pq.damage.page_search import Proof, pages_in
from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.format.compression import codecs
from resilient_pq.format.file_metadata import DataPageHeaderV2
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page import check_crc, open_data_page, pages_of
from resilient_pq.units import KiB

#: Bytes before and behind an end of a chunk that are searched for a page across it, at least and at most.
_LEAST, _MOST = 64 * KiB, 2 * KiB * KiB
_DISPLACED: Final = f"{UNPROVEN_PLACE}: pages of its row group go beyond their chunks, or are of something else"
#: Reads some bytes of the object in which a chunk lies; fewer where they go beyond its end.
Read = Callable[[ChunkRead, ByteRange], Awaitable[memoryview | None]]


async def goes_beyond(chunks: Sequence[SalvagedChunk | None], read: Read) -> bool:
    """Whether a page that is whole begins before an end of one of some chunks, and ends behind it."""
    for left in chunks:
        if left is None or not is_adrift(left.chunk):
            continue
        for place, border in _open_ends(left):
            data = await read(left.chunk, place)
            if data is not None and await asyncio.to_thread(_is_across, data, border - place.start):
                return True
    return False


def _open_ends(left: SalvagedChunk) -> Iterator[tuple[ByteRange, int]]:
    """The ends of a chunk at which it has no page, each within the bytes in which a page across it is searched."""
    place = left.chunk.range
    most = min(max(place.size, _LEAST), _MOST)
    if left.pages and left.pages[0].page is None:
        yield ByteRange(max(place.start - most, 0), place.start + most), place.start
    if left.pages and (left.pages[-1].page is None or left.pages[-1].end != place.end):
        start = min(left.pages[-1].offset, place.end)  # it may be said to lie behind its chunk
        yield ByteRange(max(start, place.end - _MOST), place.end + most), place.end


def _is_across(data: memoryview, border: int) -> bool:
    """Whether a page begins before an offset and ends behind it."""
    try:
        pages = pages_in(data)
    except FormatError:
        return False  # it would cost too much
    return any(page.offset < border < page.end and page.proof in (Proof.CRC, Proof.BOTH_ENDS) for page in pages)


async def begins_with_another(left: SalvagedChunk, read: Read) -> bool:
    """Whether a whole page of something else lies where a chunk should begin, and not its own with a wrong header."""
    if not left.is_misplaced:
        return False
    place = left.chunk.range
    data = await read(left.chunk, ByteRange(place.start, min(place.end, place.start + _MOST)))
    return data is not None and await asyncio.to_thread(_is_whole, data, left.chunk)


def _is_whole(data: memoryview, chunk: ChunkRead) -> bool:
    """Whether some bytes begin with a page whose CRC32 holds and whose sizes are true."""
    try:
        page = next(pages_of(data, chunk.range.start), None)
        if page is None:
            return False
        if isinstance(page.data_header, DataPageHeaderV2):
            open_data_page(page, chunk.leaf, chunk.metadata.codec)
        else:
            codecs.decompress(chunk.metadata.codec, page.body, page.header.uncompressed_page_size)
        return check_crc(page)
    except (FormatError, UnsupportedError, MemoryError):
        return False


def is_adrift(chunk: ChunkRead) -> bool:
    """Whether no checksum of a chunk is known, so that those of its pages do not prove their places."""
    sums = ChunkSums.of(chunk.metadata)
    return sums is None or sums.chunk is None


def is_displaced(chunks: Sequence[SalvagedChunk | None], *, beyond: bool) -> bool:
    """Whether something else lies where the chunks of a row group should be."""
    return beyond or any(left is not None and left.is_misplaced for left in chunks)


def without_displaced(
    chunks: Sequence[SalvagedChunk | None], *, keep_unplaced: bool = False
) -> list[SalvagedChunk | None]:
    """The chunks, without pages whose place only their own bytes show; `keep_unplaced` marks these instead."""
    kept: list[SalvagedChunk | None] = []
    for left in chunks:
        # The place may be known otherwise, or all of it was taken from elsewhere.
        whole = () if left is None else (fate for fate in left.pages if fate.page is not None)
        if left is None or not is_adrift(left.chunk) or all(fate.placed or fate.reading for fate in whole):
            kept.append(left)
        elif keep_unplaced:
            pages = tuple(replace(fate, unplaced=fate.page is not None) for fate in left.pages)
            kept.append(replace(left, pages=pages))
        else:
            kept.append(without_pages(left, _DISPLACED))
    return kept


def without_pages(left: SalvagedChunk, reason: str) -> SalvagedChunk:
    """A chunk with all of its pages lost."""
    fates = (fate if fate.page is None else fate.lost(reason) for fate in left.pages)
    return replace(left, pages=tuple(fates), runs=())
