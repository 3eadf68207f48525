"""What records and footers say of a column chunk that is in its place, in Thrift. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from resilient_pq.checksum import crc32, signed
from resilient_pq.format import compact_protocol, kernels
from resilient_pq.format.file_metadata import ColumnChunk, KeyValue, RowGroup
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.kernels.integers import varint_bytes
from resilient_pq.format.pages.chunk_encoder import EncodedChunk
from resilient_pq.format.pages.page_sums import with_sums
from resilient_pq.format.resilience_records import MAX_DICTIONARY_COPY, ChunkCopies

#: Thrift's compact protocol: the first field of a struct, which is a list or a struct; a list in the field after that.
_FIRST_LIST, _FIRST_STRUCT, _NEXT_LIST, _STOP = b"\x19", b"\x1c", b"\x19", b"\0"
#: The header of a list of structs: their number in the upper half, unless it follows.
_STRUCTS, _SHORT_LIST, _LONG_LIST = 0x0C, 15, b"\xfc"
#: A struct that begins with a list of no structs.
_NO_COLUMNS: Final = 2
#: A field of type i64 that follows one whose number is one less.
_NEXT_I64: Final = b"\x16"


class Described:
    """A chunk of structs, which `chunk_encoder` made, or which a recovery took from another file."""

    def __init__(self, chunk: EncodedChunk, filter_offset: int) -> None:
        """Tell of a chunk whose bloom filter lies at an offset, if it has one."""
        self._chunk, self._metadata = chunk, chunk.metadata
        bloom = None
        if chunk.bloom_filter is not None:
            bloom = crc32(chunk.bloom_filter)
            self._metadata.bloom_filter_offset = filter_offset
            self._metadata.bloom_filter_length = len(chunk.bloom_filter)
        self._metadata.key_value_metadata = [
            *(pair for pair in self._metadata.key_value_metadata or () if not pair.key.startswith("rpq.")),
            *ChunkSums(chunk.crc, bloom=bloom, xxh3=chunk.digest).pairs,
        ]

    def column_chunk(self, *pairs: tuple[str, str]) -> bytes:
        """Its ColumnChunk, with further keys and values."""
        self._metadata.key_value_metadata = [
            *(self._metadata.key_value_metadata or ()),
            *(KeyValue(key, value) for key, value in pairs),
        ]
        return compact_protocol.encode(ColumnChunk(meta_data=self._metadata))

    def shown_chunk(self, *pairs: tuple[str, str]) -> bytes:
        """Its ColumnChunk for a footer in the clear."""
        return self.column_chunk(*pairs)

    def copies(self) -> bytes:
        """Its ChunkCopies."""
        return compact_protocol.encode(self._copies())

    def _copies(self) -> ChunkCopies:
        chunk = self._chunk
        body, sums = chunk.dictionary_body, chunk.page_sums
        hashes = sums.values if sums is not None and sums.are_hashes else None
        return ChunkCopies(
            offset_index=chunk.offset_index,
            page_headers=chunk.headers,
            crc32=signed(chunk.crc),
            dictionary_page=chunk.dictionary_page,
            dictionary_copy=bytes(body) if body is not None and len(body) <= MAX_DICTIONARY_COPY else None,
            header_crcs=chunk.header_crcs,
            page_hashes=None if hashes is None else [signed(value, 64) for value in hashes],
        )

    def column_index(self) -> bytes | None:
        """Its ColumnIndex; None where it has none."""
        index = self._chunk.column_index
        return None if index is None else compact_protocol.encode(index)

    def offset_index(self) -> bytes | None:
        """Its OffsetIndex, with the sums of its pages; None where it has none."""
        return with_sums(self._chunk.offset_index, self._chunk.page_sums)


def are_flat(chunks: Sequence[Any]) -> bool:
    """Whether all are compiled `FlatChunk`s, and there are some."""
    return kernels.FlatChunk is not None and set(map(type, chunks)) == {kernels.FlatChunk}


def said_of(described: list[Any]) -> tuple[list[bytes], list[bytes], list[bytes | None], list[bytes | None]]:
    """Of each chunk its ColumnChunk, its ChunkCopies, its ColumnIndex and its OffsetIndex."""
    if are_flat(described):
        said: tuple[list[bytes], list[bytes], list[bytes | None], list[bytes | None]]
        said = kernels.FlatChunk.described(described)
        return said
    return (
        [chunk.column_chunk() for chunk in described],
        [chunk.copies() for chunk in described],
        [chunk.column_index() for chunk in described],
        [chunk.offset_index() for chunk in described],
    )


def behind_columns(row_group: RowGroup) -> bytes:
    """What stands behind the columns of a row group, which it has none of."""
    return compact_protocol.encode(row_group)[_NO_COLUMNS:]


def with_columns(behind: bytes, columns: Sequence[bytes]) -> bytes:
    """A row group of columns in Thrift, and of what stands `behind` them."""
    return _FIRST_LIST + _structs(columns) + behind


def row_group_record(
    behind: bytes, columns: Sequence[bytes], copies: Sequence[bytes], first_row: int | None = None
) -> bytes:
    """A RowGroupRecord of them; one of an encrypted file says with which row the row group begins."""
    begins = b"" if first_row is None else _NEXT_I64 + varint_bytes(2 * first_row)
    return _FIRST_STRUCT + with_columns(behind, columns) + _NEXT_LIST + _structs(copies) + begins + _STOP


def _structs(structs: Sequence[bytes]) -> bytes:
    count = len(structs)
    start = bytes([count << 4 | _STRUCTS]) if count < _SHORT_LIST else _LONG_LIST + varint_bytes(count)
    return start + b"".join(structs)
