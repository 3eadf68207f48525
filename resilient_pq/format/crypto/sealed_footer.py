"""The footer of an encrypted file: found, opened, and written again in the clear (Encryption.md, section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from resilient_pq.errors import AuthenticationError, FormatError, Where, WrongKeyError, located
from resilient_pq.format import compact_protocol
from resilient_pq.format.compact_protocol import BINARY, field
from resilient_pq.format.crypto.file_cipher import FileAlgorithm, FileCipher, own_key_of
from resilient_pq.format.crypto.modules import (
    GCM_OVERHEAD,
    NONCE_SIZE,
    TAG_SIZE,
    KeyCipher,
    ModulePlace,
    ModuleType,
    RandomBytes,
    WrongTagError,
    module_size,
)
from resilient_pq.format.crypto.page_view import ChunkCipher
from resilient_pq.format.file_metadata import ColumnChunk, ColumnMetaData, EncryptionAlgorithm, FileMetaData, RowGroup
from resilient_pq.format.footer import ENCRYPTED_MAGIC, MAGIC, TAIL_SIZE, NeedBytes, frame, framed_in
from resilient_pq.format.resilience_records import RecordHeader
from resilient_pq.lazy_dataclass import dataclass

FOOTER_CHANGED: Final = "the footer is not what was sealed: it was changed, or what binds it to the file"
SIGNATURE_SIZE: Final = NONCE_SIZE + TAG_SIZE  # Nonce and tag behind a footer in the clear


@compact_protocol.struct
class FileCryptoMetaData:
    """What stands in the clear before a sealed footer."""

    encryption_algorithm: EncryptionAlgorithm = field(1, EncryptionAlgorithm)
    key_metadata: bytes | None = field(2, BINARY, default=None)


@dataclass(frozen=True, slots=True)
class SealedFooter:
    """The footer of an encrypted file as it lies there."""

    start: int  # Absolute offset of its first byte; a record of ours may stand before it
    payload: memoryview  # From there to the end of the file
    algorithm: FileAlgorithm  # How the file is encrypted
    key_metadata: bytes | None  # What the file says of the footer key; None where it says nothing
    module: memoryview | None  # The sealed metadata; None where the metadata stand in the clear, with a signature
    record: RecordHeader | None  # The header of the record before it, whose checksums hold; None in files of others

    def metadata(self, cipher: FileCipher) -> FileMetaData:
        """The metadata, when the tag has been compared; chunks with keys of their own are still sealed."""
        aad = ModulePlace(ModuleType.FOOTER).aad(cipher.file_aad)
        key = cipher.footer
        with located(Where(offset=self.start)):
            try:
                if self.module is not None:
                    content = bytes(key.open(self.module, ModuleType.FOOTER, aad))
                    return compact_protocol.decode(FileMetaData, content, what="footer", lasting=True)[0]
                self._compare_signature(key, aad)
            except WrongTagError:
                if self.module is not None and key.seems_right_for(self.module):
                    raise AuthenticationError(FOOTER_CHANGED) from None
                raise wrong_tag(key, "the footer", self.key_metadata) from None
            return compact_protocol.decode(FileMetaData, self.payload, what="footer", lasting=True)[0]

    def _compare_signature(self, key: KeyCipher, aad: bytes) -> None:
        end = len(self.payload) - TAIL_SIZE - SIGNATURE_SIZE
        signature = bytes(self.payload[end : end + SIGNATURE_SIZE])
        if key.signature(self.payload[:end], signature[:NONCE_SIZE], aad) != signature:
            raise WrongTagError
        key.num_opened += 1


def wrong_tag(key: KeyCipher, what: str, key_metadata: bytes | None, *, where: Where | None = None) -> Exception:
    """The error of a module whose stored bytes are whole as far as is known, and that does not open."""
    where = where or Where()
    if key.num_opened:
        return AuthenticationError(f"{what} is not what was sealed for this place: it was changed", where=where)
    said = "" if key_metadata is None else f" (key metadata {key_metadata!r})"
    hint = "pass the key of this file; if it is the right key, the file was changed, or is damaged"
    return WrongKeyError(f"the key does not open {what}{said}", where=where, hint=hint)


def read_sealed_footer(tail: memoryview, offset: int) -> SealedFooter | NeedBytes | None:
    """The footer of an encrypted file in its last bytes, which begin at `offset`; None where it is not encrypted."""
    last = bytes(tail[-TAIL_SIZE:])
    if last[4:] not in (MAGIC, ENCRYPTED_MAGIC):
        return None
    found = framed_in(tail, offset, int.from_bytes(last[:4], "little"))
    if isinstance(found, NeedBytes):
        return found
    start, payload, record = found
    with located(Where(offset=start)):
        return parse_sealed_footer(payload, start, record)


def parse_sealed_footer(payload: memoryview, start: int, record: RecordHeader | None) -> SealedFooter | None:
    """The footer in bytes that begin with it and end with its magic; None where the file is not encrypted."""
    end = len(payload) - TAIL_SIZE
    if bytes(payload[-4:]) == ENCRYPTED_MAGIC:
        crypto, at = compact_protocol.decode(FileCryptoMetaData, payload[:end], what="footer")
        if module_size(payload, at, end, GCM_OVERHEAD) != end - at:
            raise FormatError("the encrypted footer has another length than it says")
        algorithm = FileAlgorithm.of(crypto.encryption_algorithm)
        return SealedFooter(start, payload, algorithm, crypto.key_metadata, payload[at:end], record)
    metadata, at = compact_protocol.decode(FileMetaData, payload[:end], what="footer")
    if metadata.encryption_algorithm is None:
        return None
    if end - at != SIGNATURE_SIZE:
        raise FormatError("the footer of a file with encrypted columns has no signature")
    algorithm = FileAlgorithm.of(metadata.encryption_algorithm)
    return SealedFooter(start, payload, algorithm, metadata.footer_signing_key_metadata, None, record)


def sealed_frame(
    metadata: bytes, cipher: FileCipher, key_metadata: bytes | None, random_bytes: RandomBytes, *, in_clear: bool
) -> bytes:
    """Serialised metadata as a footer that is sealed, or signed, its length and the magic behind it."""
    key, aad = cipher.footer, ModulePlace(ModuleType.FOOTER).aad(cipher.file_aad)
    if in_clear:
        return frame(metadata + key.signature(metadata, random_bytes(NONCE_SIZE), aad))
    module = key.seal(metadata, ModuleType.FOOTER, aad, random_bytes)
    crypto = FileCryptoMetaData(cipher.algorithm.stored, key_metadata)
    return frame(compact_protocol.encode(crypto) + module, ENCRYPTED_MAGIC)


@dataclass(frozen=True, slots=True)
class OpenedChunk:
    """A column chunk of which the key is known: what opens it, and what the footer in the clear says of it."""

    chunk: ColumnChunk
    opener: ChunkCipher
    bloom_filter: tuple[int, int | None] | None  # where its bloom filter lies, and the bytes of it on disk


def column_key_metadata(row_groups: Iterable[RowGroup]) -> dict[str, bytes | None]:
    """What row groups say of the key of each column that has its own, by dotted path."""
    found = [own_key_of(chunk) for row_group in row_groups for chunk in row_group.columns]
    return {".".join(own.path_in_schema or ()): own.key_metadata for own in found if own is not None}


def open_chunks(row_groups: Iterable[RowGroup], cipher: FileCipher) -> Iterator[OpenedChunk]:
    """Put what sealed metadata of chunks say into their row groups, where the key is known; gives these chunks."""
    for position, row_group in enumerate(row_groups):
        ordinal = position if row_group.ordinal is None else row_group.ordinal
        row_group.columns = list(row_group.columns)
        for column, chunk in enumerate(row_group.columns):
            if (key := cipher.of_chunk(chunk)) is None:
                continue
            opener = ChunkCipher(key, cipher.file_aad, ordinal, column)
            _open_metadata(chunk, opener)
            chunk.crypto_metadata = None
            if chunk.column_index_length is not None:
                chunk.column_index_length = _content_size(chunk.column_index_length, GCM_OVERHEAD)
            if chunk.offset_index_length is not None:
                chunk.offset_index_length = _content_size(chunk.offset_index_length, GCM_OVERHEAD)
            yield OpenedChunk(chunk, opener, _bloom_filter(chunk.meta_data))


def _open_metadata(chunk: ColumnChunk, opener: ChunkCipher) -> None:
    module, chunk.encrypted_column_metadata = chunk.encrypted_column_metadata, None
    if module is None:
        return
    own = own_key_of(chunk)
    path = ".".join((own and own.path_in_schema) or (chunk.meta_data and chunk.meta_data.path_in_schema) or ())
    where = Where(row_group=opener.row_group, column=path or None)
    with located(where):
        if module_size(memoryview(module), 0, len(module), GCM_OVERHEAD) != len(module):
            raise FormatError("the encrypted metadata of a column chunk have another length than they say")
        try:
            content = opener.open_index(memoryview(module), ModuleType.COLUMN_METADATA)
        except WrongTagError:
            what = f"the metadata of column {path}" if path else "the metadata of a column chunk"
            raise wrong_tag(opener.cipher, what, own.key_metadata if own else None, where=where) from None
        chunk.meta_data, _ = compact_protocol.decode(ColumnMetaData, content)


def _content_size(size: int, overhead: int) -> int:
    if size < overhead:
        raise FormatError(f"an encrypted index is said to have {size} bytes")
    return size - overhead


def _bloom_filter(metadata: ColumnMetaData | None) -> tuple[int, int | None] | None:
    """Where a bloom filter lies, and its bytes; in the clear it has those of two modules less."""
    if metadata is None or metadata.bloom_filter_offset is None:
        return None
    size = metadata.bloom_filter_length
    if size is not None:
        metadata.bloom_filter_length = _content_size(size, 2 * GCM_OVERHEAD)
    return metadata.bloom_filter_offset, size


def plain_record(record: RecordHeader, payload: bytes, metadata: FileMetaData) -> RecordHeader:
    """The header of a footer's record, as it is in a file in the clear."""
    return record.before(payload, num_rows=metadata.num_rows, num_row_groups=len(metadata.row_groups))
