"""Marks: bytes with a checksum that are found elsewhere than they were written. Pure."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final

import numpy as np

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import unsigned
from resilient_pq.errors import FormatError
from resilient_pq.format import compact_protocol
from resilient_pq.format.pages.page import read_header
from resilient_pq.format.resilience_records import ChunkCopies, RowGroupRecord
from resilient_pq.lazy_dataclass import dataclass

#: Copies of page headers are looked up by so many of their first bytes; none is shorter: type, sizes, a CRC32 and what
#: the type has for a header take 15 bytes at least.
KEY_BYTES: Final = 12
#: Metadata and pages larger than this are not read into memory, whatever their headers say.
MAX_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class ChecksummedBytes:
    """The body of a page, or the payload of a record."""

    offset: int  # Where what it belongs to begins in the file as it was written
    start: int  # Where the bytes themselves begin
    end: int  # Where they end
    crc: int  # Their CRC32
    head: bytes = b""  # The page header before them; empty for a record


@dataclass(frozen=True, slots=True)
class Mark:
    """Bytes that were recognised: the offset and end at which they were written, and the shift to where they lie."""

    offset: int
    end: int
    shift: int


def read_bytes(size: int, start: int, length: int) -> Generator[ByteRange, memoryview, memoryview]:
    """So many bytes from an offset, with zeros outside of the bytes at hand."""
    first, last = min(max(start, 0), size), min(max(start + length, 0), size)
    data = memoryview(b"") if first >= last else (yield ByteRange(first, last))
    if len(data) == length:
        return data
    padded = bytearray(length)
    padded[first - start : first - start + len(data)] = data
    return memoryview(padded)


def copied_pages(payload: memoryview) -> Iterator[ChecksummedBytes]:
    """The pages that the record of a row group has copies of, up to the first contradiction in each chunk."""
    try:
        record, _ = compact_protocol.decode(RowGroupRecord, payload)
    except FormatError:
        return
    for column, copies in zip(record.row_group.columns, record.chunks, strict=False):
        metadata = column.meta_data
        if metadata is not None:
            yield from _pages_of(metadata.dictionary_page_offset or metadata.data_page_offset, copies)


def _pages_of(offset: int, copies: ChunkCopies) -> Iterator[ChecksummedBytes]:
    headers = memoryview(copies.page_headers)
    at = 0
    while at < len(headers):
        try:
            header, end = read_header(headers, at)
        except FormatError:
            return
        start = offset + end - at
        if header.crc is None or header.compressed_page_size > MAX_BYTES:
            return
        yield ChecksummedBytes(
            offset, start, start + header.compressed_page_size, unsigned(header.crc), bytes(headers[at:end])
        )
        offset, at = start + header.compressed_page_size, end


def find_header_places(raw: bytes, end: int) -> list[int]:
    """Where a page header may begin before `end`, by its type and the fields around it."""
    data = np.frombuffer(raw, np.uint8)
    if len(data) < KEY_BYTES:
        return []
    kinds = data[1:-1]
    shape = (data[:-2] == 0x15) & (data[2:] == 0x15) & ((kinds == 0) | (kinds == 4) | (kinds == 6))
    places: list[int] = np.flatnonzero(shape[:end]).tolist()
    return places


def outside(places: Sequence[int], base: int, copies: Sequence[ByteRange]) -> Iterator[int]:
    """The places outside of the records of row groups, which have copies of page headers; both are in order."""
    following = 0
    for place in places:
        while following < len(copies) and copies[following].end <= base + place:
            following += 1
        if following == len(copies) or base + place < copies[following].start:
            yield place
