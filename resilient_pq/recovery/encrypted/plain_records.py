"""Records of an encrypted file as they would be in the clear, each in as many bytes as it has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from resilient_pq.encryption.plain_regions import PlainRegion, put_bytes
from resilient_pq.errors import FormatError, ResilientPQError
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.crypto.file_cipher import FileCipher
from resilient_pq.format.crypto.modules import GCM_OVERHEAD, ModuleType, WrongTagError, module_size, record_aad
from resilient_pq.format.crypto.page_view import padded
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
    payload_sums,
)

#: What the record of an encrypted chunk has more bytes than one in the clear: that stands right before the chunk.
MORE_OF_CHUNK = SPAN_SIZE + GCM_OVERHEAD


def opened_payload(header: RecordHeader, module: memoryview, cipher: FileCipher) -> bytes:
    """The content of the sealed payload of a record.

    Raises:
        WrongTagError: It is not what was sealed for this record.
    """
    kind = ModuleType.RECORD + header.kind
    if (
        cipher.footer is None
        or cipher.file_aad is None
        or module_size(module, 0, len(module), GCM_OVERHEAD) != len(module)
    ):
        raise FormatError("the payload of a record has another length than it says")
    return bytes(cipher.footer.open(module, kind, record_aad(cipher.file_aad, header.kind, header.number)))


def plain_header(header: RecordHeader, payload: bytes, shifts: Mapping[int, int]) -> RecordHeader:
    """The header of a record in the clear; `shifts` say how much later records lie there, by their offsets."""
    payload_hash, payload_crc = payload_sums(payload)
    return replace(
        header,
        previous=header.previous + shifts.get(header.previous, 0),
        payload_size=len(payload),
        payload_hash=payload_hash,
        payload_crc=payload_crc,
    )


def plain_chunk_record(header: RecordHeader, place: ChunkPlace, shifts: Mapping[int, int]) -> bytes:
    """The record of a chunk, zero bytes before it."""
    payload = place.pack()
    plain = replace(
        plain_header(header, payload, shifts),
        offset=header.offset + MORE_OF_CHUNK,
        num_rows=place.first_row,
        num_row_groups=place.row_group,
    )
    return (bytes(MORE_OF_CHUNK) + plain.pack() + payload)[: MORE_OF_CHUNK + CHUNK_RECORD_SIZE]


def opened_row_group(record: RowGroupRecord, cipher: FileCipher) -> list[OpenedChunk]:
    """Open the metadata and the indexes in the record of a row group; gives the chunks of which the key is known."""
    metadata = FileMetaData(1, [], record.row_group.num_rows, [record.row_group])
    if len(record.chunks) != len(record.row_group.columns):
        raise FormatError("the record of a row group has other chunks than columns")
    opened = list(open_chunks(metadata, cipher))
    for one in opened:
        copies = record.chunks[one.opener.column]
        index = copies.offset_index
        if copies.sealed_offset_index is not None:
            module = memoryview(copies.sealed_offset_index)
            index = compact_protocol.decode(OffsetIndex, one.opener.open_index(module, ModuleType.OFFSET_INDEX))[0]
        # What else it keeps is of the ciphertext.
        record.chunks[one.opener.column] = ChunkCopies(index, dictionary_page=copies.dictionary_page)
    return opened


def plain_row_group_record(header: RecordHeader, record: RowGroupRecord, shifts: Mapping[int, int], size: int) -> bytes:
    """The record of a row group that was opened, of so many bytes with its header."""
    row_group = record.row_group
    payload = padded(compact_protocol.encode(record), size - HEADER_SIZE)
    plain = replace(
        plain_header(header, payload, shifts),
        num_rows=(record.first_row or 0) + row_group.num_rows,
        num_row_groups=(row_group.ordinal or 0) + 1,
    )
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
                for _ in open_chunks(metadata, self.cipher):
                    pass
                content = plain_footer_record(self.header, metadata, self.shifts)
        except (ResilientPQError, WrongTagError):
            pass  # it is shown as bytes that are no record
        put_bytes(content, self.start, out, start)
