"""The keys of one encrypted file, and the modules that they seal and open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from resilient_pq.errors import OptionError, UnsupportedError
from resilient_pq.format.crypto.modules import KeyCipher
from resilient_pq.format.file_metadata import AesGcm, ColumnChunk, EncryptionAlgorithm, EncryptionWithColumnKey
from resilient_pq.lazy_dataclass import dataclass

AES_GCM: Final = "AES_GCM_V1"  # Names of the algorithms (Encryption.md, section 4.2)
AES_GCM_CTR: Final = "AES_GCM_CTR_V1"


@dataclass(frozen=True, slots=True)
class FileAlgorithm:
    """How a file is encrypted, as its footer says in the clear."""

    tagged_pages: bool  # Whether bodies of pages have a tag: AES_GCM_V1, not AES_GCM_CTR_V1
    # Bytes that no other file has; None where modules have no AAD, as in files of DuckDB: what was moved within such a
    # file, or from one to another of the same key, opens all the same
    file_unique: bytes | None
    prefix: bytes | None = None  # The AAD prefix that is stored in the file; None where none is
    prefix_is_supplied: bool = False  # Whether whoever reads has to know the prefix

    @classmethod
    def of(cls, algorithm: EncryptionAlgorithm) -> FileAlgorithm:
        """What a footer says."""
        found = algorithm.AES_GCM_V1 or algorithm.AES_GCM_CTR_V1
        if found is None:
            raise UnsupportedError("the file is encrypted by an algorithm that this version does not know")
        tagged = algorithm.AES_GCM_V1 is not None
        return cls(tagged, found.aad_file_unique, found.aad_prefix, bool(found.supply_aad_prefix))

    @property
    def stored(self) -> EncryptionAlgorithm:
        """What a footer says of it."""
        found = AesGcm(self.prefix, self.file_unique, self.prefix_is_supplied or None)
        return EncryptionAlgorithm(AES_GCM_V1=found) if self.tagged_pages else EncryptionAlgorithm(AES_GCM_CTR_V1=found)

    def file_aad(self, aad_prefix: bytes | None) -> bytes | None:
        """What the AAD of each module begins with, None where there is none; `aad_prefix` is that of whoever reads."""
        if self.prefix is not None and aad_prefix is not None and self.prefix != aad_prefix:
            raise OptionError("the file has another AAD prefix than the one that was given")
        if self.prefix_is_supplied and aad_prefix is None:
            raise OptionError(
                "the file is encrypted with an AAD prefix that it does not store", hint="pass aad_prefix="
            )
        prefix = aad_prefix or self.prefix
        return prefix if self.file_unique is None else (prefix or b"") + self.file_unique


@dataclass(slots=True)
class FileCipher:
    """The keys of a file as ciphers."""

    algorithm: FileAlgorithm  # How the file is encrypted
    file_aad: bytes | None  # What the AAD of each module begins with
    footer: KeyCipher  # The cipher of the footer, and of columns that have no key of their own
    # The ciphers of columns with a key of their own, by dotted path; None where their key is not known
    columns: dict[str, KeyCipher | None] = field(default_factory=dict)

    @classmethod
    def of(cls, algorithm: FileAlgorithm, footer_key: bytes, aad_prefix: bytes | None = None) -> FileCipher:
        """Begin with the footer key alone."""
        footer = KeyCipher(footer_key, tagged_pages=algorithm.tagged_pages)
        return cls(algorithm, algorithm.file_aad(aad_prefix), footer)

    def take_column_keys(self, keys: Mapping[str, bytes | None]) -> None:
        """Add the keys of columns, by dotted path; None where a key is not known."""
        tagged = self.algorithm.tagged_pages
        for path, key in keys.items():
            self.columns[path] = None if key is None else KeyCipher(key, tagged_pages=tagged)

    def of_chunk(self, chunk: ColumnChunk) -> KeyCipher | None:
        """The cipher of a chunk; None where it is in the clear, or its key is not known."""
        if chunk.crypto_metadata is None:  # in the clear, but DuckDB says so of what its footer key encrypts
            return self.footer if self.file_aad is None else None
        own = own_key_of(chunk)
        return self.footer if own is None else self.columns.get(".".join(own.path_in_schema or ()))


def own_key_of(chunk: ColumnChunk) -> EncryptionWithColumnKey | None:
    """What a chunk says of its key, where it has one of its own."""
    return None if chunk.crypto_metadata is None else chunk.crypto_metadata.ENCRYPTION_WITH_COLUMN_KEY
