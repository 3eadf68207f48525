"""Every module of an encrypted file, found and opened by the letter of Encryption.md and docs/format.md: an oracle."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from resilient_pq.format import compact_protocol
from resilient_pq.format.crypto.sealed_footer import FileCryptoMetaData
from resilient_pq.format.file_metadata import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    PageHeader,
)

MAGIC = bytes.fromhex("d75250510d0a1a0a")
HEADER = struct.Struct("<8sBBHI16sQQQQIIQQII")
KINDS = {1: "anchor", 2: "row group", 3: "checkpoint", 4: "final", 5: "chunk", 6: "parity", 9: "span"}


@dataclass(frozen=True)
class Module:
    """A module of a file: its type, where it is, what it was sealed with, and what is in it."""

    type: int
    start: int
    end: int
    nonce: bytes
    content: bytes


@dataclass(frozen=True)
class Record:
    """A record by its header."""

    kind: str
    offset: int
    num_rows: int
    num_row_groups: int
    number: int
    payload: bytes

    @property
    def payload_offset(self) -> int:
        return self.offset + HEADER.size

    @property
    def end(self) -> int:
        return self.payload_offset + len(self.payload)


def records(data: bytes) -> list[Record]:
    """All records, by their magic; each must name its own offset, and hold."""
    found, at = [], data.find(MAGIC)
    while at >= 0:
        _, _, kind, _, _, _, offset, _, _, rows, row_groups, number, size, _, crc, _ = HEADER.unpack_from(data, at)
        payload = data[at + HEADER.size :][:size]
        assert offset == at and zlib.crc32(payload) == crc
        found.append(Record(KINDS[kind], at, rows, row_groups, number, payload))
        at = data.find(MAGIC, at + HEADER.size)
    return found


def check_nonces(modules: Iterable[Module]) -> int:
    """No nonce has two contents; gives the number of nonces."""
    sealed: dict[bytes, Module] = {}
    for module in modules:
        known = sealed.setdefault(module.nonce, module)
        assert (known.type, known.content) == (module.type, module.content)
    return len(sealed)


class EncryptedFile:
    """A file of ours, or of another writer, opened with all of its keys."""

    def __init__(
        self, data: bytes, footer_key: bytes, columns: Mapping[str, bytes] | None = None, prefix: bytes | None = None
    ) -> None:
        self.data, self.footer_key, self._keys = data, footer_key, dict(columns or {})
        self.modules: list[Module] = []  # All modules of the footer, chunks, indexes and bloom filters
        size = int.from_bytes(data[-8:-4], "little")
        start = len(data) - 8 - size
        if data[-4:] == b"PARE":
            crypto, at = compact_protocol.decode(FileCryptoMetaData, memoryview(data), start)
            self._learn(crypto.encryption_algorithm, prefix)
            content = self.open(at, 0, b"", footer_key).content
            self.metadata, _ = compact_protocol.decode(FileMetaData, memoryview(content))
        else:
            self.metadata, at = compact_protocol.decode(FileMetaData, memoryview(data), start)
            self._learn(self.metadata.encryption_algorithm, prefix)
            nonce, tag = data[at : at + 12], data[at + 12 : at + 28]
            assert at + 28 == len(data) - 8
            assert AESGCM(footer_key).encrypt(nonce, data[start:at], self.aad(0))[-16:] == tag
            self.modules.append(Module(0, at, at + 28, nonce, b""))
        self.columns = [
            [self._column(chunk, ordinal, column) for column, chunk in enumerate(row_group.columns)]
            for ordinal, row_group in enumerate(self.metadata.row_groups)
        ]

    def _learn(self, algorithm: Any, prefix: bytes | None) -> None:
        self.tagged = algorithm.AES_GCM_V1 is not None
        found = algorithm.AES_GCM_V1 or algorithm.AES_GCM_CTR_V1
        self.file_aad = (found.aad_prefix or prefix or b"") + found.aad_file_unique

    def aad(self, kind: int, *ordinals: int) -> bytes:
        return self.file_aad + bytes([kind]) + b"".join(struct.pack("<h", each) for each in ordinals)

    def open(self, at: int, kind: int, ordinals: bytes | tuple[int, ...], key: bytes) -> Module:
        """The module at an offset."""
        size = int.from_bytes(self.data[at : at + 4], "little")
        nonce, rest = self.data[at + 4 : at + 16], self.data[at + 16 : at + 4 + size]
        if kind in (2, 3) and not self.tagged:
            content = Cipher(algorithms.AES(key), modes.CTR(nonce + b"\0\0\0\1")).decryptor().update(rest)
        else:
            aad = self.file_aad + bytes([kind]) + ordinals if isinstance(ordinals, bytes) else self.aad(kind, *ordinals)
            content = AESGCM(key).decrypt(nonce, rest, aad)
        self.modules.append(Module(kind, at, at + 4 + size, nonce, content))
        return self.modules[-1]

    def open_bytes(self, module: bytes, kind: int, ordinals: bytes | tuple[int, ...], key: bytes) -> bytes:
        """The content of a module that stands inside another struct."""
        outer, self.data = self.data, module
        try:
            return self.open(0, kind, ordinals, key).content
        finally:
            self.data = outer

    def key_of(self, chunk: ColumnChunk) -> bytes | None:
        """The key of a chunk; None where it is not encrypted."""
        if chunk.crypto_metadata is None:
            return None
        own = chunk.crypto_metadata.ENCRYPTION_WITH_COLUMN_KEY
        return self.footer_key if own is None else self._keys[".".join(own.path_in_schema or [])]

    def _column(self, chunk: ColumnChunk, row_group: int, column: int) -> ColumnMetaData:
        metadata, key, place = chunk.meta_data, self.key_of(chunk), (row_group, column)
        if key is None:
            assert metadata is not None
            return metadata
        if chunk.encrypted_column_metadata is not None:
            content = self.open_bytes(chunk.encrypted_column_metadata, 1, place, key)
            metadata, _ = compact_protocol.decode(ColumnMetaData, memoryview(content))
        assert metadata is not None
        list(self._pages(metadata, place, key))
        for kind, at in ((6, chunk.column_index_offset), (7, chunk.offset_index_offset)):
            if at is not None:
                self.open(at, kind, place, key)
        if metadata.bloom_filter_offset is not None:
            header = self.open(metadata.bloom_filter_offset, 8, place, key)
            bits = self.open(header.end, 9, place, key)
            assert bits.end - header.start == metadata.bloom_filter_length
        return metadata

    def _pages(self, metadata: ColumnMetaData, place: tuple[int, int], key: bytes) -> Iterator[PageHeader]:
        at = start = metadata.dictionary_page_offset or metadata.data_page_offset
        page = 0
        while at < start + metadata.total_compressed_size:
            is_dictionary = at == metadata.dictionary_page_offset
            ordinals = place if is_dictionary else (*place, page)
            page += not is_dictionary
            sealed = self.open(at, 5 if is_dictionary else 4, ordinals, key)
            header, _ = compact_protocol.decode(PageHeader, memoryview(sealed.content))
            stored = self.data[sealed.end : sealed.end + header.compressed_page_size]
            assert header.crc is None or zlib.crc32(stored) == header.crc & 0xFFFFFFFF
            body = self.open(sealed.end, 3 if is_dictionary else 2, ordinals, key)
            assert body.end - sealed.end == header.compressed_page_size
            at = body.end
            yield header
