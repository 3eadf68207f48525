"""Records: what makes a Parquet file resilient, in dead space that other readers pass over (docs/format.md)."""

from __future__ import annotations

import struct
from dataclasses import replace
from enum import IntEnum
from typing import Any

import xxhash

from resilient_pq.checksum import crc32
from resilient_pq.errors import FormatError
from resilient_pq.format import compact_protocol
from resilient_pq.format.compact_protocol import BINARY, I32, I64, field, list_of
from resilient_pq.format.file_metadata import OffsetIndex, PageLocation, RowGroup
from resilient_pq.lazy_dataclass import dataclass

#: Not ASCII at its start, CR LF and Ctrl-Z within: a transfer in text mode breaks it, as with PNG's.
RECORD_MAGIC = bytes.fromhex("d75250510d0a1a0a")
FORMAT_VERSION = 1
HEADER_SIZE = 96
FILE_ID_SIZE = 16
#: Dictionary pages up to this many bytes, as stored, have a copy in the row-group record.
MAX_DICTIONARY_COPY = 64 * 1024

_HEADER = struct.Struct("<8sBBHI16sQQQQIIQQII")
_CHUNK = struct.Struct("<IIQII")
_SPAN = struct.Struct("<QII")
SPAN_SIZE = _SPAN.size
#: Bytes of a chunk record: its header, and a payload that always has this size.
CHUNK_RECORD_SIZE = HEADER_SIZE + _CHUNK.size


class RecordKind(IntEnum):
    """What a record's payload is."""

    ANCHOR = 1
    ROW_GROUP = 2
    CHECKPOINT = 3
    FINAL = 4
    CHUNK = 5
    PARITY = 6
    SEAL = 7
    SIDECAR_INDEX = 8
    SPAN = 9


#: Kinds whose payload follows them, and is ``FileMetaData | u32 length | PAR1``, or the footer of an encrypted file.
FOOTER_KINDS = (RecordKind.ANCHOR, RecordKind.CHECKPOINT, RecordKind.FINAL)


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """The fields of a record's header, which has checksums of itself and constants besides, and names its own place."""

    kind: int
    epoch: int  # 0 for the first writer, one more each time the file is resumed or recovered
    file_id: bytes  # Random; magic and file id together are the sync marker
    offset: int  # This record's own absolute offset
    previous: int  # Offset of the record before it, 0 if none
    newest_footer: int  # Offset of the newest anchor or checkpoint at or before it
    num_rows: int  # Rows in all complete row groups before this point
    num_row_groups: int  # Complete row groups before this point
    number: int  # Of this record, from 0
    payload_size: int
    payload_hash: int  # xxh3-64
    payload_crc: int  # CRC32

    @property
    def payload_offset(self) -> int:
        """Absolute offset of the payload."""
        return self.offset + HEADER_SIZE

    @property
    def end(self) -> int:
        """Absolute offset just after the record."""
        return self.offset + HEADER_SIZE + self.payload_size

    def pack(self) -> bytes:
        """The 96 bytes."""
        return _packed(
            self.kind, self.epoch, self.file_id, self.offset, self.previous, self.newest_footer, self.num_rows,
            self.num_row_groups, self.number, self.payload_size, self.payload_hash, self.payload_crc
        )  # fmt: skip

    def before(self, payload: bytes, **fields: Any) -> RecordHeader:
        """The header before another payload, with other fields besides."""
        digest, crc = payload_sums(payload)
        return replace(self, payload_size=len(payload), payload_hash=digest, payload_crc=crc, **fields)

    def holds(self, payload: Any) -> bool:
        """Whether `payload` is the one this header was written for: its size, its CRC32 and its hash."""
        return (
            len(payload) == self.payload_size
            and crc32(payload) == self.payload_crc
            and xxhash.xxh3_64_intdigest(payload) == self.payload_hash
        )


def _packed(kind: int, *fields: int | bytes) -> bytes:
    """A record's header of the fields of `RecordHeader`, in their order."""
    packed = _HEADER.pack(RECORD_MAGIC, FORMAT_VERSION, kind, HEADER_SIZE, *fields, 0)[:-4]
    return packed + crc32(packed).to_bytes(4, "little")


def payload_sums(payload: bytes) -> tuple[int, int]:
    """The xxh3-64 and the CRC32 of a payload."""
    return xxhash.xxh3_64_intdigest(payload), crc32(payload)


def begins_record(data: Any) -> bool:
    """Whether bytes, however few, are those with which a record begins."""
    begin = bytes(data[: len(RECORD_MAGIC)])
    return bool(begin) and RECORD_MAGIC.startswith(begin)


def parse_header(data: Any) -> RecordHeader | None:
    """The header in the first 96 bytes of `data`; None where magic, version, length or CRC32 do not hold."""
    raw = bytes(data[:HEADER_SIZE])
    if len(raw) < HEADER_SIZE or not raw.startswith(RECORD_MAGIC):
        return None
    (_, version, kind, size, epoch, file_id, offset, previous, newest, num_rows, num_row_groups, number,
     payload_size, payload_hash, payload_crc, header_crc) = _HEADER.unpack(raw)  # fmt: skip
    if version != FORMAT_VERSION or size != HEADER_SIZE or crc32(raw[:-4]) != header_crc:
        return None
    return RecordHeader(
        kind, epoch, file_id, offset, previous, newest, num_rows, num_row_groups, number,
        payload_size, payload_hash, payload_crc
    )  # fmt: skip


@compact_protocol.struct
class ChunkCopies:
    """What a row-group record keeps of one column chunk."""

    #: Locations of its data pages; absent where the rows of a page are not known.
    offset_index: OffsetIndex | None = field(1, OffsetIndex, default=None)
    page_headers: bytes = field(2, BINARY, default=b"")  # copies of all its page headers, back to back
    crc32: int = field(3, I32, default=0)  # of the whole chunk, headers included, signed
    #: Location of the dictionary page, absent when there is none.
    dictionary_page: PageLocation | None = field(4, PageLocation, default=None)
    #: The dictionary page's body as stored, when it is no more than 64 KiB.
    dictionary_copy: bytes | None = field(5, BINARY, default=None)
    header_crcs: list[int] | None = field(6, list_of(I32), default=None)  # CRC32 of each page header, signed
    #: xxh3-64 of each page, header and body, signed, where a CRC32 may be that of another page too.
    page_hashes: list[int] | None = field(7, list_of(I64), default=None)
    #: In place of the OffsetIndex of a column that is encrypted with a key of its own: it as a module.
    sealed_offset_index: bytes | None = field(8, BINARY, default=None)


@compact_protocol.struct
class RowGroupRecord:
    """Payload of a row-group record: the row group's metadata, and copies for each of its chunks."""

    row_group: RowGroup = field(1, RowGroup)
    chunks: list[ChunkCopies] = field(2, list_of(ChunkCopies))
    #: The first row of the row group, in encrypted files alone: the headers of their records may not tell.
    first_row: int | None = field(3, I64, default=None)


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Payload of a chunk record: which chunk follows, and how its pages are compressed."""

    row_group: int
    column: int
    first_row: int
    codec: int

    def pack(self) -> bytes:
        """The 24 bytes."""
        # The codec comes from a Thrift i32, and a hostile file may have made it negative: keep its bits.
        column, codec = self.column & 0xFFFFFFFF, self.codec & 0xFFFFFFFF
        return _CHUNK.pack(self.row_group, column, self.first_row, codec, 0)

    @classmethod
    def unpack(cls, payload: Any) -> ChunkPlace:
        """Read the 24 bytes."""
        if len(payload) != _CHUNK.size:
            raise FormatError(f"a chunk record's payload has {len(payload)} bytes instead of {_CHUNK.size}")
        return cls(*_CHUNK.unpack(payload)[:4])


@dataclass(frozen=True, slots=True)
class BytesBehind:
    """What a record of an encrypted file says in the clear of the bytes that follow it: a chunk, filters, indexes."""

    size: int
    crc: int  # their CRC32

    def pack(self) -> bytes:
        """The 16 bytes."""
        return _SPAN.pack(self.size, self.crc, 0)

    @classmethod
    def unpack(cls, payload: Any) -> BytesBehind:
        """Read the first 16 bytes of a payload."""
        if len(payload) < SPAN_SIZE:
            raise FormatError(f"a record's payload has {len(payload)} bytes, fewer than {SPAN_SIZE}")
        return cls(*_SPAN.unpack_from(payload)[:2])


def has_span(header: RecordHeader) -> bool:
    """Whether the payload of a record begins with a span, as in encrypted files."""
    return header.kind == RecordKind.SPAN or (
        header.kind == RecordKind.CHUNK and header.payload_size >= SPAN_SIZE + _CHUNK.size
    )


@dataclass(slots=True)
class RecordChain:
    """Makes the records of one file, each knowing the one before it."""

    file_id: bytes  # 16 random bytes, the same in every record of the file
    epoch: int = 0  # 0 for the first writer
    number: int = 0  # number of the next record
    previous: int = 0  # offset of the newest record, 0 if none
    newest_footer: int = 0  # offset of the newest anchor or checkpoint
    shows_counts: bool = True  # whether headers have the numbers of rows and row groups; else they have zeros

    def record(self, kind: RecordKind, offset: int, payload: bytes, *, num_rows: int, num_row_groups: int) -> bytes:
        """The header and payload of the next record, behind `num_row_groups` complete row groups of `num_rows` rows."""
        if kind in (RecordKind.ANCHOR, RecordKind.CHECKPOINT):
            self.newest_footer = offset
        if not self.shows_counts:
            num_rows = num_row_groups = 0
        header = _HEADER.pack(
            RECORD_MAGIC, FORMAT_VERSION, kind, HEADER_SIZE, self.epoch, self.file_id, offset, self.previous,
            self.newest_footer, num_rows, num_row_groups, self.number, len(payload),
            xxhash.xxh3_64_intdigest(payload), crc32(payload), 0
        )[:-4]  # fmt: skip
        self.number += 1
        self.previous = offset
        return b"".join((header, crc32(header).to_bytes(4, "little"), payload))

    def before_chunks(self, place: ChunkPlace, *, num_rows: int, num_row_groups: int) -> bytes:
        """A chunk record without sums that the next ones follow as `kernels.records_like` makes them."""
        before = self.number - 1 & 0xFFFFFFFF
        return _HEADER.pack(
            RECORD_MAGIC, FORMAT_VERSION, RecordKind.CHUNK, HEADER_SIZE, self.epoch, self.file_id, self.previous, 0,
            self.newest_footer, num_rows, num_row_groups, before, _CHUNK.size, 0, 0, 0
        ) + place.pack()  # fmt: skip

    def follow(self, count: int, previous: int) -> None:
        """So many more were made, of which the last one lies at `previous`."""
        self.number += count
        self.previous = previous
