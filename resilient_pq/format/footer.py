"""The footer: file metadata, its length in four bytes, and the magic; ours has a record header before it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32, xxh3
from resilient_pq.errors import (
    ChecksumError,
    FormatError,
    KeyMissingError,
    NotParquetError,
    TornFileError,
    UnsupportedError,
    Where,
)
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import (
    ColumnMetaData,
    ColumnOrder,
    EncryptionAlgorithm,
    FileMetaData,
    KeyValue,
    SchemaElement,
)
from resilient_pq.format.kernels.integers import varint_bytes
from resilient_pq.format.resilience_records import (
    FOOTER_KINDS,
    HEADER_SIZE,
    RecordHeader,
    RecordKind,
    parse_header,
    payload_sums,
)
from resilient_pq.lazy_dataclass import dataclass

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
EXTENDED_MAGIC = b"PARX"  # Of a form of the footer that is proposed for the specification
TAIL_SIZE = 8  # Bytes after the file metadata: its length and the magic
MIN_FILE_SIZE = 12  # Magic, an empty footer and its tail: nothing shorter is a Parquet file

STATE_KEY = "rpq.state"
CHECKPOINT_KEY = "rpq.checkpoint"
FILE_ID_KEY = "rpq.file_id"
FORMAT_KEY = "rpq.format"
CHECKPOINTS_KEY = "rpq.checkpoints"
PARITY_KEY = "rpq.parity"
PARITY_SHARE_KEY = "rpq.parity_share"
FILES_KEY = "rpq.files"
#: Where the records begin of a file to which rows were appended, and which another writer made.
BEGINS_KEY = "rpq.begins"
BASE_KEY = "rpq.base"  # Of a file that rows were appended to: bytes and ETag of the version that it was to replace
#: Where the file stands in a data set that is written as a stream: see `resilient_pq.dataset.naming`.
DATASET_KEY = "rpq.dataset"
LINEAGE_KEY = "rpq.recovered_from"  # What a file was recovered from, and how many rows were lost, as JSON
#: Which output of which compaction the file is: see `resilient_pq.compaction.compaction_plan`.
COMPACTION_KEY = "rpq.compaction"
CRC_KEY = "rpq.crc32"
SEALED_CRC_KEY = "rpq.sealed_crc32"  # The same of an encrypted chunk: sums of its ciphertext
HASH_KEY = "rpq.xxh3"
RECORD_KEY = "rpq.record"

_SUM = "([0-9a-f]{8}|-)"
#: The four sums of `ChunkSums`. What `int` would take besides, signs and underscores, was not written by us.
_SUMS = re.compile(":".join([_SUM] * 4))
_HASH = re.compile("[0-9a-f]{16}")
_STRUCT = 12
_LIST = 9
_SHORT_LIST = 15


def frame(metadata: bytes, magic: bytes = MAGIC) -> bytes:
    """The footer around serialised file metadata."""
    return metadata + len(metadata).to_bytes(4, "little") + magic


def sealed(metadata: bytes, file_id: bytes, *, num_rows: int, num_row_groups: int) -> bytes:
    """A whole summary: the magic, and the footer around serialised file metadata."""
    # fastparquet takes everything between the first magic and the last eight bytes of a summary for file metadata, so
    # that no record can stand before them. A record's header stands behind them instead, and counts to the footer, as
    # the signature of an encrypted file does: readers stop where the file metadata end.
    payload_hash, payload_crc = payload_sums(metadata)
    header = RecordHeader(
        RecordKind.SEAL, 0, file_id, len(MAGIC) + len(metadata), 0, 0, num_rows, num_row_groups, 0, len(metadata),
        payload_hash, payload_crc
    )  # fmt: skip
    return MAGIC + frame(metadata + header.pack())


def schema_part(schema: Sequence[SchemaElement]) -> bytes:
    """The beginning of file metadata, which says no more than the schema."""
    metadata = FileMetaData(1, list(schema), 0, [])
    metadata.num_rows = metadata.row_groups = None  # type: ignore[assignment]
    return compact_protocol.encode(metadata)[:-1]


def serialize(
    schema: Sequence[SchemaElement] | bytes,
    row_groups: Sequence[bytes],
    *,
    num_rows: int,
    column_orders: Sequence[ColumnOrder] | None,
    key_value: Mapping[str, str | None],
    created_by: str | None,
    encryption_algorithm: EncryptionAlgorithm | None = None,
    footer_signing_key_metadata: bytes | None = None,
) -> bytes:
    """File metadata whose row groups are serialised already, so that a footer costs a join and no more."""
    # `schema` may be its `schema_part`. The number of rows is field 3, and the row groups are field 4; what stands
    # after them is serialised by Thrift, and its first field has its number's distance from 4 instead of 0 put into its
    # header.
    after = FileMetaData(
        version=None,  # type: ignore[arg-type]
        schema=None,  # type: ignore[arg-type]
        num_rows=None,  # type: ignore[arg-type]
        row_groups=None,  # type: ignore[arg-type]
        key_value_metadata=[KeyValue(key, value) for key, value in key_value.items()],
        created_by=created_by,
        column_orders=None if column_orders is None else list(column_orders),
        encryption_algorithm=encryption_algorithm,
        footer_signing_key_metadata=footer_signing_key_metadata,
    )
    part = schema if isinstance(schema, bytes) else schema_part(schema)
    head = part + b"\x16" + varint_bytes((num_rows << 1) ^ (num_rows >> 63))  # the next field, an i64, zigzag
    tail = compact_protocol.encode(after)
    first_field = (tail[0] & 0x0F) | ((tail[0] >> 4) - 4) << 4
    return b"".join([head, _list_header(len(row_groups)), *row_groups, bytes([first_field]), tail[1:]])


def _list_header(count: int) -> bytes:
    """Header of field 4 after field 3, a list, then the list's own header: size and element type."""
    field = bytes([1 << 4 | _LIST])
    if count < _SHORT_LIST:
        return field + bytes([count << 4 | _STRUCT])
    return field + bytes([_SHORT_LIST << 4 | _STRUCT]) + varint_bytes(count)


def metadata_length(tail: Any, where: Where) -> int:
    """Bytes of the file metadata, by the last eight bytes of a file."""
    last = bytes(tail[-TAIL_SIZE:])
    if last[4:] == ENCRYPTED_MAGIC:
        raise KeyMissingError("the footer is encrypted", where=where, hint="pass its key with keys= (rpq: --keys FILE)")
    if last[4:] == EXTENDED_MAGIC:
        raise UnsupportedError("the footer has the extended form PARX", where=where)
    if len(last) < TAIL_SIZE or last[4:] != MAGIC:
        raise TornFileError("no Parquet magic at the end: the footer is missing or cut short", where=where)
    return int.from_bytes(last[:4], "little")


@dataclass(frozen=True, slots=True)
class Footer:
    """A footer that was read."""

    metadata: FileMetaData
    start: int  # absolute offset of the file metadata
    length: int  # bytes of the file metadata
    #: The record header with its checksum, directly before the file metadata or, in a summary, behind them;
    #: None for files of others.
    record: RecordHeader | None
    trailing: int = 0  # bytes between the file metadata and their length of which nothing is known

    @property
    def end(self) -> int:
        """Absolute offset just after the magic."""
        return self.start + self.length + TAIL_SIZE


@dataclass(frozen=True, slots=True)
class NeedBytes:
    """A footer that begins before the bytes at hand: read from `start` to the end of the object."""

    start: int


def read_footer(tail: memoryview, offset: int) -> Footer | NeedBytes:
    """The footer in the last bytes of an object, which begin at `offset`, checked against its record header."""
    # The bytes may never change: row groups are read from them when they are asked for.
    size = offset + len(tail)
    where = Where(offset=size)
    if size == 0:
        raise NotParquetError("the object is empty", where=where)
    if offset == 0 and bytes(tail[:4]) not in (MAGIC, ENCRYPTED_MAGIC):
        raise NotParquetError("no Parquet magic at the beginning", where=Where(offset=0))
    if size < MIN_FILE_SIZE:
        raise TornFileError(f"{size} bytes are too few for a Parquet file", where=where)
    length = metadata_length(tail, where)
    found = framed_in(tail, offset, length)
    if isinstance(found, NeedBytes):
        return found
    start, payload, record = found
    metadata, end = compact_protocol.decode(FileMetaData, payload[:length], 0, what="footer", lasting=True)
    return Footer(metadata, start, length, record, 0 if record is not None else length - end)


def framed_in(tail: memoryview, offset: int, length: int) -> tuple[int, memoryview, RecordHeader | None] | NeedBytes:
    """Where a footer of so many bytes begins in the last bytes of an object, its bytes, and its record's header."""
    size = offset + len(tail)
    start = size - TAIL_SIZE - length
    if start < len(MAGIC):
        raise TornFileError(
            f"the footer says it has {length:,} bytes, but the file has {size:,}", where=Where(offset=size)
        )
    if start < offset or (start - HEADER_SIZE < offset and start >= HEADER_SIZE):
        return NeedBytes(max(start - HEADER_SIZE, 0))
    payload, at = tail[start - offset :], start - offset - HEADER_SIZE
    record = parse_header(tail[at : at + HEADER_SIZE]) if at >= 0 else None
    if record is None or record.kind not in FOOTER_KINDS or record.payload_offset != start:
        record = _seal(payload, start)
        payload = payload if record is None else payload[: record.payload_size]
    if record is not None and not record.holds(payload):
        computed, where = crc32(payload), Where(offset=start)
        raise ChecksumError("footer CRC32 does not match", stored=record.payload_crc, computed=computed, where=where)
    return start, payload, record


def _seal(payload: memoryview, start: int) -> RecordHeader | None:
    """The record header behind the file metadata that `payload` begins with, if it says that it lies just there."""
    at = len(payload) - TAIL_SIZE - HEADER_SIZE
    if at < 0:
        return None
    header = parse_header(payload[at:])
    if header is None or (header.kind, header.offset, header.payload_size) != (RecordKind.SEAL, start + at, at):
        return None
    return header


def key_values(pairs: Sequence[KeyValue] | None) -> dict[str, str | None]:
    """Key-value metadata as a dict; of a key that stands twice the last value counts."""
    return {pair.key: pair.value for pair in pairs or ()}


def parity_places(text: str, size: int) -> list[ByteRange]:
    """The places that a footer names, in a file of at most so many bytes; none where they cannot be right."""
    try:
        pairs = [tuple(map(int, pair.split(":"))) for pair in text.split(",") if pair]
        places = [ByteRange(start, start + length) for start, length in pairs]
    except ValueError:
        return []
    ordered = all(before.end <= after.start for before, after in pairwise(places))
    return places if ordered and all(place.size > 2 * HEADER_SIZE and place.end <= size for place in places) else []


@dataclass(frozen=True, slots=True)
class ChunkSums:
    """What ``rpq.crc32`` and ``rpq.xxh3`` of a column chunk say: sums, unsigned; None where they say nothing."""

    chunk: int | None = None  # CRC32 of all its bytes
    column_index: int | None = None  # CRC32 of its ColumnIndex
    offset_index: int | None = None  # CRC32 of its OffsetIndex
    bloom: int | None = None  # CRC32 of its bloom filter
    xxh3: int | None = None  # xxh3-64 of all its bytes, where their CRC32 may be that of other bytes too

    def __str__(self) -> str:
        """The value of ``rpq.crc32``: four sums of eight hex digits, or ``-``, between colons."""
        sums = (self.chunk, self.column_index, self.offset_index, self.bloom)
        return ":".join(["-" if value is None else f"{value:08x}" for value in sums])

    @property
    def pairs(self) -> list[KeyValue]:
        """The keys that say so."""
        pairs = [KeyValue(CRC_KEY, str(self))]
        return pairs if self.xxh3 is None else [*pairs, KeyValue(HASH_KEY, f"{self.xxh3:016x}")]

    @property
    def of_chunk(self) -> int | None:
        """The sum of the chunk's bytes as they were written; None where there is none."""
        return self.chunk if self.xxh3 is None else self.xxh3

    def computed(self, data: Any) -> int:
        """The sum of a chunk's bytes that `of_chunk` is compared with."""
        return crc32(data) if self.xxh3 is None else xxh3(data)

    @classmethod
    def of(cls, metadata: ColumnMetaData) -> ChunkSums | None:
        """The sums in a chunk's key-value metadata; None where there are none."""
        pairs = key_values(metadata.key_value_metadata)
        text, digest = pairs.get(CRC_KEY), pairs.get(HASH_KEY)
        if digest is not None and _HASH.fullmatch(digest) is None:
            raise FormatError(f"{HASH_KEY} of a column chunk is malformed: {digest!r}")
        if text is None:
            return None if digest is None else cls(xxh3=int(digest, 16))
        return cls.parse(text, None if digest is None else int(digest, 16))

    @classmethod
    def parse(cls, text: str, digest: int | None = None) -> ChunkSums:
        """The sums of the value of ``rpq.crc32``, and the one of ``rpq.xxh3`` beside them."""
        found = _SUMS.fullmatch(text)
        if found is None:
            raise FormatError(f"{CRC_KEY} of a column chunk is malformed: {text!r}")
        chunk, columns, offsets, bloom = [None if part == "-" else int(part, 16) for part in found.groups()]
        return cls(chunk, columns, offsets, bloom, digest)
