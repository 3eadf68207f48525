"""Records of an encrypted file as they would be in the clear, each in as many bytes as it has. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from resilient_pq.encryption.plain_regions import PlainRegion, put_bytes
from resilient_pq.errors import AuthenticationError, FormatError, ResilientPQError, Where
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.crypto.file_cipher import FileCipher
from resilient_pq.format.crypto.modules import GCM_OVERHEAD, ModuleType, WrongTagError, module_size, record_aad
from resilient_pq.format.crypto.page_view import ChunkCipher, padded
from resilient_pq.format.crypto.sealed_footer import OpenedChunk, open_chunks, parse_sealed_footer, plain_record
from resilient_pq.format.file_metadata import FileMetaData, OffsetIndex
from resilient_pq.format.footer import TAIL_SIZE
from resilient_pq.format.resilience_records import (
    CHUNK_RECORD_SIZE,
    HEADER_SIZE,
    SPAN_SIZE,
    ChunkCopies,
    ChunkPlace,
    RecordHeader,
    RowGroupRecord,
)
from resilient_pq.lazy_dataclass import dataclass

#: What the record of an encrypted chunk has more bytes than one in the clear: that stands right before the chunk.
MORE_OF_CHUNK = SPAN_SIZE + GCM_OVERHEAD


def opened_payload(header: RecordHeader, module: memoryview, cipher: FileCipher) -> bytes:
    """The content of the sealed payload of a record."""
    if module_size(module, 0, len(module), GCM_OVERHEAD) != len(module):
        raise WrongTagError
    aad = record_aad(cipher.file_aad, header.kind, header.number)
    return bytes(cipher.footer.open(module, ModuleType.RECORD + header.kind, aad))


def opened_record(header: RecordHeader, payload: memoryview, cipher: FileCipher) -> RowGroupRecord:
    """The record of a row group, whose metadata and indexes may still be sealed."""
    try:
        content = opened_payload(header, payload, cipher)
    except WrongTagError:
        where = Where(offset=header.offset)
        raise AuthenticationError("the record of a row group is not what was written", where=where) from None
    return compact_protocol.decode(RowGroupRecord, content)[0]


def offset_index_of(copies: ChunkCopies, opener: ChunkCipher) -> OffsetIndex | None:
    """The offset index that a record keeps of an encrypted chunk."""
    if copies.sealed_offset_index is None:
        return copies.offset_index
    return opener.open_offset_index(memoryview(copies.sealed_offset_index))


def plain_header(header: RecordHeader, payload: bytes, shifts: Mapping[int, int], **fields: int) -> RecordHeader:
    """The header of a record in the clear; `shifts` say how much later records lie there, by their offsets."""
    return header.before(payload, previous=header.previous + shifts.get(header.previous, 0), **fields)


def plain_chunk_record(header: RecordHeader, place: ChunkPlace, shifts: Mapping[int, int]) -> bytes:
    """The record of a chunk, zero bytes before it."""
    payload = place.pack()
    at, first_row, row_group = header.offset + MORE_OF_CHUNK, place.first_row, place.row_group
    plain = plain_header(header, payload, shifts, offset=at, num_rows=first_row, num_row_groups=row_group)
    return (bytes(MORE_OF_CHUNK) + plain.pack() + payload)[: MORE_OF_CHUNK + CHUNK_RECORD_SIZE]


def opened_row_group(record: RowGroupRecord, cipher: FileCipher) -> list[OpenedChunk]:
    """Open the metadata and the indexes in the record of a row group; gives the chunks of which the key is known."""
    if len(record.chunks) != len(record.row_group.columns):
        raise FormatError("the record of a row group has other chunks than columns")
    opened = list(open_chunks([record.row_group], cipher))
    for one in opened:
        copies = record.chunks[one.opener.column]
        index = offset_index_of(copies, one.opener)
        # What else it keeps is of the ciphertext.
        record.chunks[one.opener.column] = ChunkCopies(index, dictionary_page=copies.dictionary_page)
    return opened


def plain_row_group_record(header: RecordHeader, record: RowGroupRecord, shifts: Mapping[int, int], size: int) -> bytes:
    """The record of a row group that was opened, of so many bytes with its header."""
    row_group = record.row_group
    payload = padded(compact_protocol.encode(record), size - HEADER_SIZE)
    num_rows, num_row_groups = (record.first_row or 0) + row_group.num_rows, (row_group.ordinal or 0) + 1
    plain = plain_header(header, payload, shifts, num_rows=num_rows, num_row_groups=num_row_groups)
    return plain.pack() + payload


def plain_footer_record(header: RecordHeader, metadata: FileMetaData, shifts: Mapping[int, int]) -> bytes:
    """The record of a footer that was opened, in as many bytes as it has."""
    payload = footer.frame(padded(compact_protocol.encode(metadata), header.payload_size - TAIL_SIZE))
    # The length counts the padding; `frame` takes it from there.
    return plain_record(plain_header(header, payload, shifts), payload, metadata).pack() + payload


@dataclass(slots=True)
class SealedRecord(PlainRegion):
    """The record of a footer that is opened when it is read; zero bytes where it does not open."""

    header: RecordHeader
    cipher: FileCipher
    shifts: Mapping[int, int]

    def read(self, data: memoryview, base: int, out: memoryview, start: int, *, lenient: bool) -> None:
        """Its part that is asked for."""
        content = bytes(self.end - self.start)
        payload = data[self.start + HEADER_SIZE - base : self.end - base]
        try:
            sealed = parse_sealed_footer(payload, self.start + HEADER_SIZE, None)
            if sealed is not None:
                metadata = sealed.metadata(self.cipher)
                list(open_chunks(metadata.row_groups, self.cipher))
                content = plain_footer_record(self.header, metadata, self.shifts)
        except (ResilientPQError, WrongTagError):
            pass  # it is shown as bytes that are no record
        put_bytes(content, self.start, out, start)
