"""Sums of single pages, which stand in the OffsetIndex of their chunk: they prove a page where it is read alone.

The CRC32 in a page's header moves with the page. What is expected in a place has to stand elsewhere: in the chunk's own
sum, where all of it is read, else here. Thrift's field 32767 is there for extensions, and other readers pass over it
(parquet-format, BinaryProtocolExtensions.md).
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final

from resilient_pq.checksum import combine, crc32, unsigned, xxh3
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import CompressionCodec, OffsetIndex
from resilient_pq.format.kernels.integers import varint_bytes
from resilient_pq.format.pages.page import read_header
from resilient_pq.format.resilience_records import ChunkCopies
from resilient_pq.lazy_dataclass import dataclass

#: The first bytes of the extension, which other extensions do not have, and the type of each sum behind that.
_CRCS: Final = (b"resilient_pq:crc32:", "I")
_HASHES: Final = (b"resilient_pq:xxh3:", "Q")
#: Thrift's compact protocol: a field of type binary whose number, 32767, stands in full as a zigzag varint.
_FIELD: Final = b"\x08" + varint_bytes(2 * 32767)
_STOP: Final = b"\0"


@dataclass(frozen=True, slots=True)
class PageSum:
    """A sum of the header and the body of a page."""

    value: int  # unsigned
    is_hash: bool  # whether it is an xxh3-64, which their codec needs; else it is a CRC32

    def computed(self, header: Any, body: Any) -> int:
        """The sum of other bytes."""
        return xxh3(header, body) if self.is_hash else crc32(body, crc32(header))


@dataclass(frozen=True, slots=True)
class PageSums:
    """The sums of all pages of a chunk, the dictionary page included."""

    values: tuple[int, ...]  # in the order of the pages, unsigned
    are_hashes: bool  # as of `PageSum`

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, ordinal: int) -> PageSum:
        """The sum of one page, by its number in the chunk."""
        return PageSum(self.values[ordinal], self.are_hashes)

    @property
    def field(self) -> bytes:
        """They as a field of an OffsetIndex, its last one."""
        name, kind = _HASHES if self.are_hashes else _CRCS
        # In text, as there are readers that take what they pass over for UTF-8.
        said = name + b64encode(struct.pack(f"<{len(self)}{kind}", *self.values))
        return _FIELD + varint_bytes(len(said)) + said

    @classmethod
    def of_index(cls, index: memoryview) -> PageSums | None:
        """The sums in a serialised OffsetIndex; None where there are none."""
        data = bytes(index)
        for name, kind in (_CRCS, _HASHES):
            start = data.rfind(name)
            said = data[start : -len(_STOP)]
            if start < 0 or not data[:start].endswith(_FIELD + varint_bytes(len(said))):
                continue
            try:
                values = b64decode(said[len(name) :], validate=True)
                return cls(struct.unpack(f"<{len(values) // struct.calcsize(kind)}{kind}", values), kind == "Q")
            except (ValueError, struct.error):
                return None
        return None

    @classmethod
    def of_copies(cls, copies: ChunkCopies) -> PageSums | None:
        """The sums by the record of a row group; None where a page has no CRC32."""
        if copies.page_hashes is not None:
            return cls(tuple(unsigned(value, 64) for value in copies.page_hashes), are_hashes=True)
        headers, at, found = memoryview(copies.page_headers), 0, []
        while at < len(headers):
            header, end = read_header(headers, at)
            if header.crc is None:
                return None
            found.append(combine(crc32(headers[at:end]), unsigned(header.crc), header.compressed_page_size))
            at = end
        return cls(tuple(found), are_hashes=False)


def with_sums(index: OffsetIndex | None, sums: PageSums | None) -> bytes | None:
    """A serialised OffsetIndex with the sums of its pages, where they are known; None without an index."""
    if index is None:
        return None
    encoded = compact_protocol.encode(index)
    return encoded if sums is None else encoded[: -len(_STOP)] + sums.field + _STOP


def needs_hashes(codec: int) -> bool:
    """Whether pages of a codec can be different and have the same CRC32, other than by chance: see `stored_pages`."""
    return codec == CompressionCodec.GZIP


def sums_of(codec: int, pages: Sequence[Sequence[Any]], crcs: Sequence[int]) -> tuple[int | None, PageSums]:
    """The hash of a chunk, where its codec needs one, and the sums of its pages, which come in parts with CRC32s."""
    if not needs_hashes(codec):
        return None, PageSums(tuple(crcs), are_hashes=False)
    digest = xxh3(*[part for page in pages for part in page])
    return digest, PageSums(tuple(xxh3(*page) for page in pages), are_hashes=True)
