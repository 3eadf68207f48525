"""Pages of encrypted chunks as they would lie in the clear: each at its offset, and with the size it has on disk.

A sealed page is larger than the page. The header takes the room that is left, by a field that no reader knows: so all
offsets and sizes that footers and indexes name stay right (Thrift's compact protocol, unknown fields are passed over).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
from resilient_pq.format.file_metadata import OffsetIndex, PageHeader
from resilient_pq.lazy_dataclass import dataclass

#: A binary field whose number is 15 more than that of the field before it, and the end of a struct.
_UNKNOWN_BINARY: Final = b"\xf8"
_STOP: Final = b"\0"
_SHORT_LENGTH: Final = 0x80  # Lengths below it are one byte; longer ones take so many
_LENGTH_DIGITS: Final = 4


#: Stands in the place of pages that do not open: no struct begins with it, and it is no padding.
NO_PAGE: Final = b"\xff"


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
    """What opens the pages of one column chunk."""

    cipher: KeyCipher  # Of the column's key
    file_aad: bytes | None  # What the AAD of each module begins with
    row_group: int  # Ordinal of the row group, as the AADs have it
    column: int  # Ordinal of the leaf column

    def aad(self, module_type: ModuleType, page: int | None = None) -> bytes:
        """The AAD of one of its modules."""
        return ModulePlace(module_type, self.row_group, self.column, page).aad(self.file_aad)

    def open_index(self, module: memoryview, module_type: ModuleType) -> bytes:
        """The content of an index or a part of a bloom filter, of which `module` is the whole module."""
        return bytes(self.cipher.open(module, module_type, self.aad(module_type)))

    def open_offset_index(self, module: memoryview) -> OffsetIndex:
        """The places of the pages, of which `module` is the whole module."""
        return compact_protocol.decode(OffsetIndex, self.open_index(module, ModuleType.OFFSET_INDEX))[0]

    def open_page(self, page: SealedPage, data: memoryview, out: memoryview, *, with_crc: bool = False) -> None:
        """Put a page in the clear into `out`, which has the size of its two modules; with its own CRC32 or none."""
        stored, at = self.open_header(page.ordinal, data)
        body_type = ModuleType.DICTIONARY_PAGE if page.ordinal is None else ModuleType.DATA_PAGE
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

    def show_damaged_page(self, page: SealedPage, data: memoryview, out: memoryview) -> None:
        """Put what is left of a page that does not open into `out`: its header if that is whole, with a wrong CRC32."""
        out[:] = NO_PAGE * len(out)
        try:
            stored, at = self.open_header(page.ordinal, data)
            size = stored.compressed_page_size - self.cipher.overhead(ModuleType.DATA_PAGE)
            if at + stored.compressed_page_size != len(data) or size < 0:
                return
            wrong = signed(crc32(bytes(size)) ^ 1)
            out[: len(data) - size] = padded_header(
                replace(stored, compressed_page_size=size, crc=wrong), len(data) - size
            )
        except (WrongTagError, FormatError):
            return

    def open_header(self, ordinal: int | None, data: memoryview) -> tuple[PageHeader, int]:
        """The header of a page whose modules `data` begins with, and the size of its module."""
        kind = ModuleType.DICTIONARY_PAGE_HEADER if ordinal is None else ModuleType.DATA_PAGE_HEADER
        size = module_size(data, 0, len(data), GCM_OVERHEAD)
        header = self.cipher.open(data[:size], kind, self.aad(kind, ordinal))
        return compact_protocol.decode(PageHeader, header)[0], size


def _compare(stored: int | None, body: memoryview) -> None:
    """Refuse a body whose stored bytes do not have the CRC32 that the header names."""
    if stored is not None and (computed := crc32(body)) != unsigned(stored):
        raise ChecksumError("page CRC32 does not match", stored=unsigned(stored), computed=computed)


def padded_header(header: PageHeader, space: int) -> bytes:
    """A page header of exactly so many bytes."""
    return padded(compact_protocol.encode(header), space)


def padded(encoded: bytes, space: int) -> bytes:
    """A serialised struct in exactly so many bytes, filled up with a field that no reader knows."""
    left = space - len(encoded)
    if not left:
        return encoded
    # Of a longer one the length takes as many bytes whatever it is: no varint of the fewest bytes fits every space.
    digits = 1 if left - 2 < _SHORT_LENGTH else _LENGTH_DIGITS
    room = left - 1 - digits
    length = bytes([room >> 7 * i & 0x7F | (0x80 if i < digits - 1 else 0) for i in range(digits)])
    padding = _UNKNOWN_BINARY + length + bytes(max(room, 0))
    if not 0 <= room < 1 << 7 * digits:
        raise FormatError("a struct in an encrypted file has no room for what it says")
    return encoded[:-1] + padding + _STOP


def pages_in(chunk: memoryview, start: int, *, has_dictionary: bool) -> Iterator[SealedPage]:
    """The pages of a whole chunk, which begins at an absolute offset, by the lengths of its modules."""
    at, ordinal = 0, -1 if has_dictionary else 0
    while at < len(chunk):
        size = module_size(chunk, at, len(chunk), GCM_OVERHEAD)
        size += module_size(chunk, at + size, len(chunk), CTR_OVERHEAD)
        yield SealedPage(start + at, size, None if ordinal < 0 else ordinal)
        at, ordinal = at + size, ordinal + 1
