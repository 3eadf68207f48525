"""What stands in an encrypted file besides its chunks: footers, records, what they say of chunks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from resilient_pq.checksum import crc32
from resilient_pq.encryption.encryption import Encryption
from resilient_pq.encryption.keys import FOOTER
from resilient_pq.errors import EncodingError
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.annotations import Empty
from resilient_pq.format.crypto.file_cipher import AES_GCM, FileAlgorithm, FileCipher
from resilient_pq.format.crypto.modules import GCM_OVERHEAD, KeyCipher, ModuleType, RandomBytes, record_aad
from resilient_pq.format.crypto.sealed_chunk import ChunkSealer, EncryptedChunk
from resilient_pq.format.crypto.sealed_footer import SealedFooter, sealed_frame
from resilient_pq.format.file_metadata import (
    ColumnChunk,
    ColumnCryptoMetaData,
    ColumnMetaData,
    EncryptionWithColumnKey,
    KeyValue,
    RowGroup,
)
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.pages.chunk_encoder import EncodedChunk
from resilient_pq.format.resilience_records import (
    CHUNK_RECORD_SIZE,
    SPAN_SIZE,
    BytesBehind,
    ChunkCopies,
    ChunkPlace,
    RecordKind,
)
from resilient_pq.format.schema_tree import Schema
from resilient_pq.writer.described_chunk import Described, behind_columns, with_columns

#: What tells of the values of an encrypted column, and no reader needs who has no key.
_TELLING: Final = (
    "key_value_metadata", "statistics", "encoding_stats", "size_statistics", "geospatial_statistics",
    "bloom_filter_offset", "bloom_filter_length",
)  # fmt: skip


def shown_metadata(metadata: ColumnMetaData) -> ColumnMetaData:
    """What a footer in the clear shows of the metadata of an encrypted column: nothing of its values."""
    left_out: dict[str, Any] = dict.fromkeys(_TELLING)
    return replace(metadata, **left_out)


class DescribedSealed(Described):
    """A chunk that is encrypted, with the footer key or with a key of its own."""

    def __init__(
        self, chunk: EncodedChunk, filter_offset: int, sealer: ChunkSealer, own_key: EncryptionWithColumnKey | None
    ) -> None:
        """Seal the indexes of a chunk in its place, whose bloom filter lies at an offset, if it has one."""
        self._chunk, self._sealer, self._own_key = chunk, sealer, own_key
        column, offsets = chunk.column_index, chunk.offset_index
        self._column_index = None if column is None else self._sealed(column, ModuleType.COLUMN_INDEX)
        self._offset_index = None if offsets is None else self._sealed(offsets, ModuleType.OFFSET_INDEX)
        sealed = (self._column_index, self._offset_index, chunk.bloom_filter)
        sums = ChunkSums(chunk.crc, *[None if module is None else crc32(module) for module in sealed])
        pairs = [pair for pair in chunk.metadata.key_value_metadata or () if not pair.key.startswith("rpq.")]
        self._metadata = replace(
            chunk.metadata, key_value_metadata=[*pairs, KeyValue(footer.SEALED_CRC_KEY, str(sums))]
        )
        if chunk.bloom_filter is not None:
            self._metadata.bloom_filter_offset = filter_offset
            self._metadata.bloom_filter_length = len(chunk.bloom_filter)

    def _sealed(self, struct: object, kind: ModuleType) -> bytes:
        return bytes(self._sealer.sealed(compact_protocol.encode(struct), kind))

    def column_chunk(self, *pairs: tuple[str, str]) -> bytes:
        """Its ColumnChunk, with further keys and values, for what is encrypted with the footer key."""
        metadata = self._with_pairs(pairs)
        if self._own_key is None:
            return self._column_chunk(metadata, None)
        return self._column_chunk(None, self._sealed(metadata, ModuleType.COLUMN_METADATA))

    def shown_chunk(self, *pairs: tuple[str, str]) -> bytes:
        """Its ColumnChunk for a footer in the clear, where readers without keys want to see something, too."""
        metadata = self._with_pairs(pairs)
        return self._column_chunk(shown_metadata(metadata), self._sealed(metadata, ModuleType.COLUMN_METADATA))

    def _with_pairs(self, pairs: Sequence[tuple[str, str]]) -> ColumnMetaData:
        added = [KeyValue(key, value) for key, value in pairs]
        return replace(self._metadata, key_value_metadata=[*(self._metadata.key_value_metadata or ()), *added])

    def _column_chunk(self, metadata: ColumnMetaData | None, sealed: bytes | None) -> bytes:
        crypto = ColumnCryptoMetaData(Empty() if self._own_key is None else None, self._own_key)
        return compact_protocol.encode(
            ColumnChunk(meta_data=metadata, crypto_metadata=crypto, encrypted_column_metadata=sealed)
        )

    def _copies(self) -> ChunkCopies:
        copies = super()._copies()
        if self._own_key is not None:
            copies.offset_index, copies.sealed_offset_index = None, self._offset_index
        return copies

    def column_index(self) -> bytes | None:
        """Its ColumnIndex as a module; None where it has none."""
        return self._column_index

    def offset_index(self) -> bytes | None:
        """Its OffsetIndex as a module; None where it has none."""
        return self._offset_index


class FileSealing:
    """Encrypts what stands around the rows of one file, and its chunks."""

    chunk_record_size = CHUNK_RECORD_SIZE + SPAN_SIZE + GCM_OVERHEAD

    def __init__(self, encryption: Encryption, schema: Schema, file_unique: bytes, random_bytes: RandomBytes) -> None:
        """Encrypt a file of these columns, whose AAD has bytes that no other file has."""
        self.shows_counts = self._in_clear = encryption.plaintext_footer
        self.magic = footer.MAGIC if self._in_clear else footer.ENCRYPTED_MAGIC
        self._random_bytes = random_bytes
        tagged, stored = encryption.algorithm == AES_GCM, encryption.store_aad_prefix
        prefix = encryption.aad_prefix or None
        algorithm = FileAlgorithm(tagged, file_unique, prefix if stored else None, not stored)
        self._cipher = FileCipher.of(algorithm, encryption.footer_key, prefix)
        named = encryption.footer_key_metadata
        self._footer_key_metadata = FOOTER.encode() if named is None else named
        encryption.check_names(schema)
        names = [encryption.name_of(leaf) for leaf in schema.leaves]
        ciphers = {name: KeyCipher(key, tagged_pages=tagged) for name, key in encryption.column_keys.items()}
        plain = dict.fromkeys(encryption.plaintext_columns)
        self._ciphers = [{**ciphers, **plain}.get(name or "", self._cipher.footer) for name in names]
        said = {name: name.encode() for name in ciphers} | dict(encryption.column_key_metadata)
        self._own_keys = [
            EncryptionWithColumnKey([*leaf.path], said[name]) if name in said else None
            for leaf, name in zip(schema.leaves, names, strict=True)
        ]

    def _sealer(self, row_group: int, column: int) -> ChunkSealer | None:
        cipher = self._ciphers[column]
        if cipher is None:
            return None
        return ChunkSealer(cipher, self._cipher.file_aad, self._random_bytes, row_group, column)

    def chunk(self, chunk: EncodedChunk, row_group: int, column: int) -> EncodedChunk:
        """A chunk as it is stored; called in the threads that encode."""
        sealer = self._sealer(row_group, column)
        return chunk if sealer is None else sealer.chunk(chunk)

    def chunk_payload(self, number: int, place: ChunkPlace, chunk: EncodedChunk) -> bytes:
        """The payload of the record before a chunk, which has this number."""
        if self._ciphers[place.column] is not None and not isinstance(chunk, EncryptedChunk):
            raise EncodingError("a column chunk was to be written in the clear that has to be encrypted")
        return BytesBehind(chunk.size, chunk.crc).pack() + self._record(RecordKind.CHUNK, number, place.pack())

    def row_group_payload(self, number: int, payload: bytes) -> bytes:
        """The payload of the record of a row group, which has this number."""
        return self._record(RecordKind.ROW_GROUP, number, payload)

    def described(self, chunk: EncodedChunk, filter_offset: int, row_group: int, column: int) -> Described:
        """What footers and records say of a chunk in its place."""
        sealer = self._sealer(row_group, column)
        if sealer is None:
            return Described(chunk, filter_offset)
        return DescribedSealed(chunk, filter_offset, sealer, self._own_keys[column])

    def in_footer(
        self, described: Sequence[Described], columns: Sequence[bytes], record: tuple[str, str]
    ) -> list[bytes]:
        """The ColumnChunks of a record as they stand in a footer, where the first one has the key of the record."""
        if not self._in_clear:
            return [*(chunk.column_chunk(record) for chunk in described[:1]), *columns[1:]]
        return [chunk.shown_chunk(*[] if i else [record]) for i, chunk in enumerate(described)]

    def goes_on(self, sealed: SealedFooter) -> bool:
        """Whether a file with this footer is encrypted in the same way."""
        return self._cipher.algorithm == sealed.algorithm and self._in_clear == (sealed.module is None)

    def placed(
        self, row_group: RowGroup, chunks: Sequence[EncodedChunk], ordinal: int, record: tuple[str, str]
    ) -> tuple[bytes, tuple[bytes | None, ...]]:
        """A row group that is in its place, as footers have it, and its offset indexes as they are stored."""
        described = [self.described(chunk, 0, ordinal, column) for column, chunk in enumerate(chunks)]
        columns = self.in_footer(described, [chunk.column_chunk() for chunk in described], record)
        indexes = tuple([chunk.offset_index() for chunk in described])
        return with_columns(behind_columns(replace(row_group, columns=[])), columns), indexes

    def footer(self, metadata: dict[str, Any]) -> bytes:
        """A footer of what `footer.serialize` takes, its length and the magic behind it."""
        named = self._footer_key_metadata
        if self._in_clear:
            algorithm = self._cipher.algorithm.stored
            metadata |= {"encryption_algorithm": algorithm, "footer_signing_key_metadata": named}
        serialized = footer.serialize(**metadata)
        return sealed_frame(serialized, self._cipher, named, self._random_bytes, in_clear=self._in_clear)

    def _record(self, kind: RecordKind, number: int, payload: bytes) -> bytes:
        aad = record_aad(self._cipher.file_aad, kind, number)
        return bytes(self._cipher.footer.seal(payload, ModuleType.RECORD + kind, aad, self._random_bytes))
