"""The footer of an encrypted object: read, verified with its key, with the keys of the columns. An async shell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final, Self

from resilient_pq.encryption.encryption import Encryption
from resilient_pq.encryption.keys import DecryptionKeys
from resilient_pq.encryption.plain_regions import Patch
from resilient_pq.errors import AuthenticationError, FormatError, TornFileError, Where, WrongKeyError, located
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.crypto.file_cipher import AES_GCM, AES_GCM_CTR, FileCipher, own_key_of
from resilient_pq.format.crypto.modules import KeyCipher
from resilient_pq.format.crypto.page_view import padded
from resilient_pq.format.crypto.sealed_footer import (
    FOOTER_CHANGED,
    OpenedChunk,
    SealedFooter,
    column_key_metadata,
    open_chunks,
    plain_record,
    read_sealed_footer,
)
from resilient_pq.format.file_metadata import EncryptionWithColumnKey, FileMetaData, RowGroup
from resilient_pq.format.footer import NeedBytes
from resilient_pq.format.resilience_records import FILE_ID_SIZE, HEADER_SIZE, RecordHeader, RecordKind
from resilient_pq.io import ObjectTail, ReadStore
from resilient_pq.io.cancellation import all_or_none
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.off_event_loop import PIECE_BYTES, off_loop
from resilient_pq.version import MAKER

#: Bytes that are read of the first module of a file, to see whether a key is the right one.
_PEEKED: Final = 1024


@dataclass(slots=True)
class FileKeys:
    """The keys that a file names, as far as they are known."""

    sealed: SealedFooter  # The footer as it lies there
    cipher: FileCipher  # The ciphers of the file
    asked: DecryptionKeys  # Whoever has the keys
    footer_key: bytes = field(repr=False)  # That of the footer
    # What the file says of the key of each column that has its own, by dotted path
    own: dict[str, bytes | None] = field(default_factory=dict)
    # These keys; None where one is not known
    column_keys: dict[str, bytes | None] = field(default_factory=dict, repr=False)
    plaintext_columns: set[str] = field(default_factory=set)  # The columns that are not encrypted

    @classmethod
    async def of(cls, sealed: SealedFooter, keys: DecryptionKeys, aad_prefix: bytes | None) -> Self:
        """Ask for the key of a footer."""
        footer_key = await keys.key_of(sealed.key_metadata, None)
        if footer_key is None:
            raise keys.missing(sealed.key_metadata, None)
        return cls(sealed, FileCipher.of(sealed.algorithm, footer_key, aad_prefix), keys, footer_key)

    async def take_columns(self, row_groups: Sequence[RowGroup]) -> None:
        """Ask for the keys of the columns of row groups, which are not opened yet."""
        self.own = column_key_metadata(row_groups)
        given = await all_or_none(self.asked.key_of(about, path) for path, about in self.own.items())
        self.column_keys = dict(zip(self.own, given, strict=True))
        self.cipher.take_column_keys(self.column_keys)
        chunks = [chunk for row_group in row_groups for chunk in row_group.columns if chunk.crypto_metadata is None]
        if self.cipher.file_aad is not None:
            self.plaintext_columns = {
                ".".join(chunk.meta_data.path_in_schema or ()) for chunk in chunks if chunk.meta_data
            }

    @property
    def missing(self) -> dict[str, bytes | None]:
        """The columns whose key is not known, by dotted path, with what the file says of the key."""
        return {path: about for path, about in self.own.items() if self.column_keys[path] is None}

    @property
    def encryption(self) -> Encryption | None:
        """How to encrypt another file in the same way; None where the key of a column is not known."""
        if self.missing:
            return None
        known = {path: key for path, key in self.column_keys.items() if key is not None}
        said = {path: self.asked.portable(about) for path, about in self.own.items()}
        algorithm, file_aad = self.sealed.algorithm, self.cipher.file_aad
        prefix = b"" if algorithm.file_unique is None else (file_aad or b"").removesuffix(algorithm.file_unique)
        return Encryption(
            self.footer_key,
            column_keys=known,
            plaintext_columns=sorted(self.plaintext_columns),
            plaintext_footer=self.sealed.module is None,
            algorithm=AES_GCM if algorithm.tagged_pages else AES_GCM_CTR,
            aad_prefix=prefix or None,
            store_aad_prefix=not algorithm.prefix_is_supplied,
            footer_key_metadata=self.asked.portable(self.sealed.key_metadata),
            column_key_metadata={path: about for path, about in said.items() if about is not None},
        )


@dataclass(frozen=True, slots=True)
class OpenedFooter:
    """The footer of an encrypted object."""

    tail: ObjectTail  # The last bytes of the object, with all of the footer
    keys: FileKeys  # It as it lies there, and the keys that it names
    metadata: FileMetaData  # What it says; columns are still sealed until `open_chunks`

    @classmethod
    async def read(
        cls, store: ReadStore, key: str, keys: DecryptionKeys, *, aad_prefix: bytes | None, tail_bytes: int
    ) -> Self:
        """Read the footer of an object, and ask for the keys that it names.

        Raises:
            AuthenticationError: The object is not encrypted, or its footer was changed.
            KeyMissingError: There is no key for the footer.
            WrongKeyError: The key of the footer opens nothing.
        """
        tail, sealed = await _read_sealed_footer(store, key, tail_bytes)
        with located(Where(key=store.url_of(key))):
            if sealed is None:
                raise _not_encrypted(tail)
            found = await FileKeys.of(sealed, keys, aad_prefix)
            try:
                metadata = sealed.metadata(found.cipher)
            except WrongKeyError:
                first = await store.read_range(key, len(footer.MAGIC), min(sealed.start, _PEEKED), pin=tail.info)
                if not await _prove_keys(found, memoryview(first)):
                    raise
                raise AuthenticationError(FOOTER_CHANGED, where=Where(offset=sealed.start)) from None
            await found.take_columns(metadata.row_groups)
        return cls(tail, found, metadata)

    def open_chunks(self) -> list[OpenedChunk]:
        """Put what sealed metadata of columns say into the metadata; gives the chunks of which the key is known."""
        return list(open_chunks(self.metadata.row_groups, self.keys.cipher))

    def around(self) -> Iterator[Patch]:
        """What stands in the place of the magic, of the record and of the footer in the clear, which is the last."""
        metadata, sealed = self.metadata, self.keys.sealed
        metadata.encryption_algorithm, metadata.footer_signing_key_metadata = sealed.algorithm.stored, None
        metadata.schema, metadata.row_groups = list(metadata.schema), list(metadata.row_groups)
        encoded, space = compact_protocol.encode(metadata), len(sealed.payload) - footer.TAIL_SIZE
        framed = footer.frame(padded(encoded, space) if len(encoded) + 2 <= space else encoded)
        yield Patch(0, len(footer.MAGIC), footer.MAGIC)
        record = sealed.record or _lost_record(sealed, metadata)
        if record is not None:
            yield Patch(sealed.start - HEADER_SIZE, sealed.start, plain_record(record, framed, metadata).pack())
        yield Patch(sealed.start, sealed.start + len(framed), framed)


def _not_encrypted(tail: ObjectTail) -> FormatError:
    """The error of an object that does not end in the footer of an encrypted file."""
    if bytes(tail.data[-len(footer.MAGIC) :]) != footer.MAGIC:
        return TornFileError("no Parquet magic at the end: the footer is missing or cut short")
    hint = "leave the keys out if the file is not meant to be encrypted"
    return AuthenticationError("the file is not encrypted, and keys were given for it", hint=hint)


async def _prove_keys(known: FileKeys, first: memoryview) -> bool:
    """Whether other modules than a footer that was changed show that the keys are those of the file.

    These are the first one of the file, and in a footer in the clear the metadata of its columns.
    """
    if known.cipher.footer.seems_right_for(first):
        return True
    if known.sealed.module is not None:
        return False
    for own, module in _own_keys(known.sealed):
        given = await known.asked.key_of(own.key_metadata, ".".join(own.path_in_schema or ()))
        if given is not None and KeyCipher(given).seems_right_for(memoryview(module)):
            return True
    return False


def _own_keys(sealed: SealedFooter) -> list[tuple[EncryptionWithColumnKey, bytes]]:
    """What a footer in the clear, which nothing has proven, says of keys of columns, with metadata sealed with each."""
    try:
        metadata, _ = compact_protocol.decode(FileMetaData, sealed.payload, what="footer")
    except FormatError:
        return []
    columns = [chunk for row_group in metadata.row_groups[:1] for chunk in row_group.columns]
    found = [(own_key_of(chunk), chunk.encrypted_column_metadata) for chunk in columns]
    return [(own, module) for own, module in found if own is not None and module is not None]


def _lost_record(sealed: SealedFooter, metadata: FileMetaData) -> RecordHeader | None:
    """The record that stood before a footer of ours, which its own tag proves as well."""
    said = footer.key_values(metadata.key_value_metadata)
    file_id, is_complete = said.get(footer.FILE_ID_KEY) or "", said.get(footer.STATE_KEY) != "in-progress"
    if not (metadata.created_by or "").startswith(MAKER) or len(file_id) != 2 * FILE_ID_SIZE:
        return None
    kind = RecordKind.FINAL if is_complete else RecordKind.CHECKPOINT
    try:
        return RecordHeader(kind, 0, bytes.fromhex(file_id), sealed.start - HEADER_SIZE, 0, 0, 0, 0, 0, 0, 0, 0)
    except ValueError:
        return None


async def _read_sealed_footer(store: ReadStore, key: str, tail_bytes: int) -> tuple[ObjectTail, SealedFooter | None]:
    """The tail of an object, so large that its footer is in it, and its footer; None where it is not encrypted."""
    size = tail_bytes
    while True:
        tail = await store.read_tail(key, size)
        with located(Where(key=store.url_of(key))):
            found = await off_loop(
                len(tail.data) // PIECE_BYTES, read_sealed_footer, memoryview(tail.data), tail.offset
            )
        if not isinstance(found, NeedBytes):
            return tail, found
        size = tail.info.size - found.start
