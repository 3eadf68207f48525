"""Pages of encrypted chunks as they would lie in the clear: each at its offset, and with the size it has on disk.

A sealed page is larger than the page. The header takes the room that is left, by a field that no reader knows: so all
offsets and sizes that footers and indexes name stay right (Thrift's compact protocol, unknown fields are passed over).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from resilient_pq.checksum import crc32, signed, unsigned
from resilient_pq.errors import ChecksumError, FormatError
from resilient_pq.format import compact_protocol
from resilient_pq.format.crypto.modules import (
    CTR_OVERHEAD,
    GCM_OVERHEAD,
    KeyCipher,
    ModulePlace,
    ModuleType,
    WrongTagError,
    module_size,
)
from resilient_pq.format.file_metadata import PageHeader
from resilient_pq.format.kernels.integers import varint_bytes

#: A binary field whose number is 15 more than that of the field before it, and the end of a struct.
_UNKNOWN_BINARY: Final = b"\xf8"
_STOP: Final = b"\0"
#: Lengths below it are one byte.
_SHORT_LENGTH: Final = 0x80


@dataclass(frozen=True, slots=True)
class SealedPage:
    """Where a page lies in its chunk, and what its AAD says of it."""

    start: int  # absolute offset of its header's module
    size: int  # of both modules
    ordinal: int | None  # among the data pages of the chunk; None for the dictionary page

    @property
    def end(self) -> int:
        """The offset just after it."""
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class ChunkCipher:
    """What opens the pages of one column chunk.

    Attributes:
        cipher: Of the column's key.
        file_aad: What the AAD of each module begins with.
        row_group: Ordinal of the row group, as the AADs have it.
        column: Ordinal of the leaf column.
    """

    cipher: KeyCipher
    file_aad: bytes | None
    row_group: int
    column: int

    def aad(self, module_type: ModuleType, page: int | None = None) -> bytes:
        """The AAD of one of its modules."""
        return ModulePlace(module_type, self.row_group, self.column, page).aad(self.file_aad)

    def open_index(self, module: memoryview, module_type: ModuleType) -> bytes:
        """The content of an index or a part of a bloom filter, of which `module` is the whole module."""
        return bytes(self.cipher.open(module, module_type, self.aad(module_type)))

    def open_page(self, page: SealedPage, data: memoryview, out: memoryview, *, with_crc: bool = False) -> None:
        """Put a page in the clear into `out`, which has the size of `data`, its two modules.

        Its header has no CRC32, or that of the page in the clear.

        Raises:
            WrongTagError: The page is not what was sealed for this place.
            ChecksumError: Its bytes are not those that were stored.
        """
        is_dictionary = page.ordinal is None
        header_type = ModuleType.DICTIONARY_PAGE_HEADER if is_dictionary else ModuleType.DATA_PAGE_HEADER
        body_type = ModuleType.DICTIONARY_PAGE if is_dictionary else ModuleType.DATA_PAGE
        at = module_size(data, 0, len(data), GCM_OVERHEAD)
        header = self.cipher.open(data[:at], header_type, self.aad(header_type, page.ordinal))
        stored, _ = compact_protocol.decode(PageHeader, header)
        overhead = self.cipher.overhead(body_type)
        body = data[at:]
        if module_size(data, at, len(data), overhead) != len(body):
            raise FormatError("an encrypted page has another size than it says")
        space = len(data) - len(body) + overhead
        try:
            self.cipher.open_into(body, body_type, self.aad(body_type, page.ordinal), out[space:])
            fits = overhead == GCM_OVERHEAD or stored.crc is None
            self.cipher.num_unverified += overhead != GCM_OVERHEAD and stored.crc is None
        except WrongTagError:
            _compare(stored.crc, body)
            raise
        content = out[space:]
        if not fits and crc32(content) != unsigned(stored.crc or 0):  # some writers count the page in the clear
            _compare(stored.crc, body)
        crc = signed(crc32(content)) if with_crc else None
        out[:space] = padded_header(replace(stored, compressed_page_size=len(content), crc=crc), space)


def _compare(stored: int | None, body: memoryview) -> None:
    """Refuse a body whose stored bytes do not have the CRC32 that the header names."""
    if stored is not None and (computed := crc32(body)) != unsigned(stored):
        raise ChecksumError("page CRC32 does not match", stored=unsigned(stored), computed=computed)


def padded_header(header: PageHeader, space: int) -> bytes:
    """A page header of exactly so many bytes."""
    encoded = compact_protocol.encode(header)
    left = space - len(encoded)
    if not left:
        return encoded
    room = left - 2 if left - 2 < _SHORT_LENGTH else left - 3
    padding = _UNKNOWN_BINARY + varint_bytes(room) + bytes(room)
    if room < 0 or len(padding) != left:
        raise FormatError("the header of an encrypted page has no room for what it says")
    return encoded[:-1] + padding + _STOP


def pages_in(chunk: memoryview, start: int, *, has_dictionary: bool) -> Iterator[SealedPage]:
    """The pages of a whole chunk, which begins at an absolute offset, by the lengths of its modules."""
    at, ordinal = 0, -1 if has_dictionary else 0
    while at < len(chunk):
        size = module_size(chunk, at, len(chunk), GCM_OVERHEAD)
        size += module_size(chunk, at + size, len(chunk), CTR_OVERHEAD)
        yield SealedPage(start + at, size, None if ordinal < 0 else ordinal)
        at, ordinal = at + size, ordinal + 1
