"""Pages that gzip only stores: their CRC32 does not tell them apart, so chunks of that codec have hashes besides.

A gzip member ends with the CRC32 of its data (RFC 1952). Where its last deflate block stores bytes as they are (RFC
1951, section 3.2.4), a change to these changes the CRC32 of all before that trailer as it changes the trailer, so that
both add up to nothing: members that differ in such bytes alone have one CRC32. So have their pages, and a chunk in
which such pages are exchanged. No other codec puts a CRC32 of this polynomial into what it makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from resilient_pq.checksum import xxh3
from resilient_pq.format.metadata import CompressionCodec

#: What ends a member: the CRC32 of its data, and their size.
_TRAILER_SIZE: Final = 8
#: A stored block begins with its length, and with that inverted; it is no longer than two bytes can say.
_LENGTHS_SIZE: Final = 4
_MAX_STORED: Final = 65535


@dataclass(frozen=True, slots=True)
class ChunkHashes:
    """What tells a chunk and its pages from all others.

    Attributes:
        chunk: xxh3-64 of all its bytes, unsigned.
        pages: xxh3-64 of each page, header and body, unsigned.
    """

    chunk: int
    pages: tuple[int, ...]


def needs_hashes(codec: int) -> bool:
    """Whether pages of a codec can be different and have the same CRC32, other than by chance."""
    return codec == CompressionCodec.GZIP


def hashes_of(codec: int, pages: Sequence[Sequence[Any]]) -> ChunkHashes | None:
    """The hashes of a chunk, where its codec needs them.

    Args:
        codec: The codec.
        pages: The bytes of its pages in order, each in parts.
    """
    if not needs_hashes(codec):
        return None
    return ChunkHashes(xxh3(*[part for page in pages for part in page]), tuple(xxh3(*page) for page in pages))


def ends_stored(body: Any) -> bool:
    """Whether a page's body, compressed with gzip, ends with a member whose last block stores its bytes."""
    data = np.frombuffer(body, np.uint8)
    end = len(data) - _TRAILER_SIZE
    longest = min(_MAX_STORED, end - _LENGTHS_SIZE)
    if longest < 1:
        return False
    # Of each length that the block could have, its four bytes would lie just so far from the end.
    near = data[end - longest - _LENGTHS_SIZE : end - 1].astype(np.uint16)
    words = near[:-1] | near[1:] << 8
    lengths, inverted = words[: longest], words[2 : longest + 2]
    expected = np.arange(longest, 0, -1, dtype=np.uint16)
    return bool(((lengths == expected) & (inverted == ~expected)).any())
