"""Whether bytes are what was written: findings about chunks, records and indexes. Sans-io."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

import numpy as np

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32
from resilient_pq.damage.page_hints import record_place
from resilient_pq.damage.stated_values import Stated
from resilient_pq.errors import NOWHERE, ChecksumError, FormatError, ResilientPQError, UnsupportedError, Where
from resilient_pq.format.encodings import LEVEL_ENCODINGS
from resilient_pq.format.file_metadata import ColumnChunk, RowGroup, Type
from resilient_pq.format.footer import MAGIC, RECORD_KEY, ChunkSums, key_values
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page import check_crc, pages_of
from resilient_pq.format.pages.page_sums import needs_hashes
from resilient_pq.format.pages.page_table import stored_crcs
from resilient_pq.format.pages.row_selection import leaf_data
from resilient_pq.format.pages.stored_pages import ends_stored
from resilient_pq.format.physical_values import LeafData
from resilient_pq.format.resilience_records import (
    CHUNK_RECORD_SIZE,
    HEADER_SIZE,
    RecordHeader,
    RecordKind,
    parse_header,
)
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.group_record import GroupRecord
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.decoder import decode, verify_chunk
from resilient_pq.reader.read_plan import chunk_read
from resilient_pq.recovery.carve.page_probe import encoding_of
from resilient_pq.recovery.report import Damage, Finding


def examine_chunk(
    chunk: ChunkRead, data: memoryview, stated: Stated | None = None, look: Callable[[LeafData], None] | None = None
) -> list[Finding]:
    """What is wrong with a column chunk; nothing when a checksum covers every byte, or it decodes."""
    try:
        is_verified = verify_chunk(chunk, data)
        if is_verified and (chunk.leaf.max_repetition_level or chunk.metadata.num_values == chunk.num_rows):
            return list(_indistinct_pages(chunk, data))
        # Also what is as it was written, and was written with too few rows.
        column = decode(chunk, data, verify=False)
        if stated is not None and not is_verified:  # a page's own checksum does not prove its place
            found = list(_contradictions(stated, leaf_data(column)))
            if found:
                return found
        if look is not None:
            look(leaf_data(column))
    except UnsupportedError as error:
        return list(_contradicted_encodings(chunk, data)) or [_unverified(chunk, error)]
    except FormatError as error:
        if isinstance(error.__cause__, MemoryError):
            return [_unverified(chunk, error)]  # that says nothing about the file
        pages = list(_page_findings(chunk, data))
        return pages or [_finding(error, chunk.where, chunk.range)]
    return list(_indistinct_pages(chunk, data))


def _contradicted_encodings(chunk: ChunkRead, data: memoryview) -> Iterator[Finding]:
    """Pages with an encoding that the metadata do not list, or list for levels: of a damaged header, or elsewhere."""
    of_levels = () if chunk.leaf.node.physical_type is Type.BOOLEAN else LEVEL_ENCODINGS
    for page in pages_of(data, chunk.range.start, chunk.num_values_to_read):
        encoding = encoding_of(page.header)
        if encoding is not None and (encoding not in chunk.metadata.encodings or encoding in of_levels):
            message = f"its header says encoding {encoding}, which is none of its column chunk's"
            yield _finding(FormatError(message), chunk.where, ByteRange(page.offset, page.end))


def _indistinct_pages(chunk: ChunkRead, data: memoryview) -> Iterator[Finding]:
    """Pages of a chunk that its checksums, which hold, cannot tell from each other."""
    sums = ChunkSums.of(chunk.metadata)
    if sums is None or sums.chunk is None or sums.xxh3 is not None or not needs_hashes(chunk.metadata.codec):
        return
    pages = pages_of(data, chunk.range.start, chunk.num_values_to_read)
    alike = [page for page in pages if ends_stored(page.body)]
    if alike:
        count = f"{len(alike):,} pages store their" if len(alike) > 1 else "a page stores its"
        message = f"{count} data in gzip members, and no checksum of this file tells them from others of their size"
        yield Finding(Damage.UNVERIFIED, message, chunk.where, alike[0].offset, alike[-1].end, costs_rows=False)


def _contradictions(stated: Stated, data: LeafData) -> Iterator[Finding]:
    """Pages whose values contradict their index, or the chunk where only its statistics do."""
    found = False
    for page in stated.contradicting(data):
        message = "the values of a page without a checksum are not those of which its index tells"
        yield _finding(FormatError(message), stated.chunk.where, page.place)
        found = True
    if not found and not stated.agrees(data, None):
        message = "values without a checksum are not those of which the statistics of their chunk tell"
        yield _finding(FormatError(message), stated.chunk.where, stated.chunk.range)


@dataclass(frozen=True, slots=True)
class PagesSeen:
    """The pages of a chunk that is sound."""

    verified: int = 0  # How many a checksum covers
    decoded: int = 0  # How many have none and were decoded
    sealed: bool = False  # Whether each has a CRC32 of its own, and its place is proven, too
    # CRC32 of the bytes that were decoded, where pages have none; they are read again when they are copied
    crc: int | None = None


def pages_seen(chunk: ChunkRead, data: memoryview) -> PagesSeen:
    """The pages of a chunk that is sound."""
    stored = stored_crcs(data, chunk.range.start, chunk.num_values_to_read)
    sums = ChunkSums.of(chunk.metadata)
    verified = int(np.count_nonzero(stored >= (1 if chunk.quirks.zero_crc_is_none else 0)))
    decoded = len(stored) - verified
    if sums is not None and sums.chunk is not None:
        return PagesSeen(len(stored), 0, not decoded and not (needs_hashes(chunk.metadata.codec) and not sums.xxh3))
    return PagesSeen(verified, decoded, crc=crc32(data) if decoded else None)


def _unverified(chunk: ChunkRead, error: ResilientPQError) -> Finding:
    where = chunk.where.merged_with(error.where)
    return Finding(Damage.UNVERIFIED, error.message, where, chunk.range.start, chunk.range.end, costs_rows=False)


def _page_findings(chunk: ChunkRead, data: memoryview) -> Iterator[Finding]:
    """One finding for every page whose CRC32 does not hold, and one where the pages cannot be told apart."""
    pages = pages_of(data, chunk.range.start, chunk.num_values_to_read)
    while True:
        try:
            page = next(pages, None)
        except FormatError as error:
            start = error.where.offset if error.where.offset is not None else chunk.range.start
            yield _finding(error, chunk.where, ByteRange(start, chunk.range.end))
            return
        if page is None:
            return
        try:
            check_crc(page, zero_is_none=chunk.quirks.zero_crc_is_none)
        except ChecksumError as error:
            yield _finding(error, chunk.where, ByteRange(page.offset, page.end))


def _finding(error: ResilientPQError, where: Where, place: ByteRange, *, costs_rows: bool = True) -> Finding:
    return Finding(Damage.CORRUPT, error.message, error.where.merged_with(where), place.start, place.end, costs_rows)


@dataclass(frozen=True, slots=True)
class Expected:
    """Metadata that a resilient file should hold: a record of a kind, or bytes with a CRC32."""

    what: str
    range: ByteRange
    kind: RecordKind | None
    crc: int | None = None
    where: Where = NOWHERE
    file: str | None = None


def expected_metadata(contents: Contents) -> Iterator[Expected]:
    """Everything besides data pages and the footer that a resilient file's footer leads to."""
    record = contents.footer.record
    if record is None:
        return
    yield Expected("the magic at the beginning", ByteRange(0, len(MAGIC)), None, crc32(MAGIC))
    found = list(expected_of_row_groups(contents))
    yield from found
    if record.kind == RecordKind.SEAL:
        return  # a summary has no records besides
    yield from (Expected("parity", place, RecordKind.PARITY) for place in contents.parity)
    # Of an anchor and of checkpoints only the beginning is known; the next thing follows on them.
    starts = sorted([expected.range.start for expected in found] + [record.offset])
    heads = [] if contents.records_begin else [("anchor", len(MAGIC), RecordKind.ANCHOR)]
    heads += [(f"checkpoint {known.ordinal}", known.offset, RecordKind.CHECKPOINT) for known in contents.checkpoints]
    places = sorted({*starts, *(start for _, start, _ in heads)})
    for what, start, kind in heads:
        if start != record.offset:
            at = bisect_right(places, start)
            end = places[at] if at < len(places) else contents.footer.start
            yield Expected(what, ByteRange(start, max(end, start)), kind)


def expected_of_row_groups(contents: Contents) -> Iterator[Expected]:
    """The chunk records, the bloom filters, the indexes and the row-group records of all row groups."""
    limit, begin = contents.footer.start, contents.records_begin + CHUNK_RECORD_SIZE
    for ordinal, row_group in enumerate(contents.metadata.row_groups):
        for leaf, column in zip(contents.schema.leaves, row_group.columns, strict=True):
            where = Where(row_group=ordinal, column=leaf.column_path)
            chunk = chunk_read(contents, ordinal, leaf)
            start = chunk.range.start
            if chunk.file is None and start >= begin:
                yield Expected(
                    "chunk record", ByteRange(start - CHUNK_RECORD_SIZE, start), RecordKind.CHUNK, where=where
                )
            yield from _expected_indexes(column, where, contents.data_end_in(chunk.file), chunk.file)
        place = record_range(row_group, limit)
        if place is not None:
            yield Expected("row-group record", place, RecordKind.ROW_GROUP, where=Where(row_group=ordinal))


def record_range(row_group: RowGroup, limit: int) -> ByteRange | None:
    """Where the record of a row group lies; None where its metadata do not say."""
    first = row_group.columns[0] if row_group.columns else None
    if first is None or first.file_path is not None or first.meta_data is None:
        return None
    text = key_values(first.meta_data.key_value_metadata).get(RECORD_KEY)
    place = record_place(first.meta_data)
    if text is not None and (place is None or place.end > limit):
        raise FormatError(f"{RECORD_KEY} of a row group is malformed: {text!r}")
    return place


def _expected_indexes(column: ColumnChunk, where: Where, limit: int, file: str | None) -> Iterator[Expected]:
    metadata = column.meta_data
    sums = ChunkSums.of(metadata) if metadata is not None else None
    if metadata is None or sums is None:
        return
    places = (
        ("bloom filter", metadata.bloom_filter_offset, metadata.bloom_filter_length, sums.bloom),
        ("column index", column.column_index_offset, column.column_index_length, sums.column_index),
        ("offset index", column.offset_index_offset, column.offset_index_length, sums.offset_index),
    )
    for what, offset, length, crc in places:
        if offset is None or length is None or crc is None:
            continue
        if not 0 <= offset <= offset + length <= limit:
            raise FormatError(f"the {what} is said to lie outside of the file", where=where)
        yield Expected(what, ByteRange(offset, offset + length), None, crc, where, file)


def examine_expected(expected: Expected, data: memoryview, file_id: bytes) -> Finding | None:
    """What is wrong with metadata: an index is held against its CRC32, a record against its own and its place."""
    if expected.kind is None:
        if crc32(data) == expected.crc:
            return None
        message = f"{expected.what} is not as it was written: its CRC32 does not match"
    elif _is_record(expected, data, file_id):
        return None
    elif expected.kind == RecordKind.PARITY:
        message = "parity is damaged: no row is lost with it"
    elif (other := _id_of_other_file(expected, data, file_id)) is not None:
        message = f"{expected.what} is that of another file: --file-id {other.hex()} recovers what is left of that"
    else:
        message = f"{expected.what} is damaged; it is a second copy, nothing is lost yet"
    start, end = expected.range.start, expected.range.end
    return Finding(Damage.CORRUPT, message, expected.where, start, end, costs_rows=False)


def _id_of_other_file(expected: Expected, data: memoryview, file_id: bytes) -> bytes | None:
    """The id of another file whose record lies in the place of one, as where a longer file was written over."""
    header = parse_header(data)
    if header is None or header.offset != expected.range.start or header.file_id == file_id:
        return None
    return header.file_id


def _is_record(expected: Expected, data: memoryview, file_id: bytes) -> bool:
    header, kind = parse_header(data), expected.kind
    if header is None or not _is_whole(header, kind, expected.range.start, data, file_id):
        return False
    return kind != RecordKind.PARITY or has_parity(header, data, file_id)


def _is_whole(header: RecordHeader, kind: RecordKind | None, start: int, data: memoryview, file_id: bytes) -> bool:
    found = (header.kind, header.offset, header.file_id)
    return found == (kind, start, file_id) and header.holds(data[HEADER_SIZE : HEADER_SIZE + header.payload_size])


def has_parity(header: RecordHeader, data: memoryview, file_id: bytes) -> bool:
    """Whether parity shards that their first record names follow it, and its second copy."""
    record = GroupRecord.unpack(data[HEADER_SIZE : header.end - header.offset])
    if record is None or record.shape.framed_bytes != len(data):
        return False
    shape = record.shape
    shards = data[shape.record_bytes : shape.record_bytes + shape.parity_bytes]
    second = data[shape.record_bytes + shape.parity_bytes :]
    other = parse_header(second)
    if other is None or not _is_whole(other, RecordKind.PARITY, record.other_copy, second, file_id):
        return False
    sums = [crc32(shards[at : at + shape.block_bytes]) for at in range(0, len(shards), shape.block_bytes)]
    return sums == record.block_crcs[shape.num_data :].reshape(-1).tolist()
