"""Codecs and checksums of blocks."""

from __future__ import annotations

import bz2
import zlib
from enum import StrEnum
from typing import Any, Final

from resilient_pq.checksum import crc32
from resilient_pq.errors import ChecksumError, CodecUnavailableError, EncodingError, UnsupportedError, Where
from resilient_pq.format.compression import codecs
from resilient_pq.format.file_metadata import CompressionCodec

#: zlib's names for what surrounds deflated data: nothing, or a wrapper of its own.
_RAW, _WRAPPED = -15, 15
#: Bytes that one byte of deflated data can stand for at most (as in `format.compression.codecs`).
_MOST_DEFLATED: Final = 1032


class TrevniCodec(StrEnum):
    """The compression of blocks."""

    NULL = "null"
    DEFLATE = "deflate"
    SNAPPY = "snappy"
    BZIP2 = "bzip2"
    GZIP = "gzip"
    """Impala's alone."""

    @classmethod
    def named(cls, name: str | None, where: Where) -> TrevniCodec:
        """The codec of a name; Impala also wrote an empty one, or "none", for none."""
        if name in (None, "", "none"):
            return cls.NULL
        if name not in list(cls):
            raise CodecUnavailableError(str(name), where=where)
        return cls(name)


class Checksum(StrEnum):
    """The checksum behind each block."""

    NULL = "null"
    CRC32 = "crc32"
    """CRC-32 as Avro's writer has it: its highest byte first."""
    CRC_32 = "crc-32"
    """CRC-32 as the specification has it: a fixed32, its lowest byte first."""

    @classmethod
    def named(cls, name: str | None, where: Where) -> Checksum:
        """The checksum of a name."""
        if name is None:
            return cls.NULL
        if name not in list(cls):
            raise UnsupportedError(f"checksums named {name!r} are not supported", where=where)
        return cls(name)

    @property
    def size(self) -> int:
        """Bytes of one."""
        return 0 if self is Checksum.NULL else 4

    def verify(self, data: memoryview, stored: memoryview, codec: TrevniCodec) -> bool:
        """Compare the checksum of a decompressed block, and say whether it vouches for it."""
        if self is Checksum.NULL:
            return False
        order: Any = "big" if self is Checksum.CRC32 else "little"
        said, computed = int.from_bytes(stored, order), crc32(data)
        if said == computed:
            return True
        if codec is TrevniCodec.NULL and not said:
            return False  # Avro's writer sums up nothing where there is no codec
        raise ChecksumError("the checksum of the block does not hold", stored=said, computed=computed)


def decompress(codec: TrevniCodec, data: memoryview, size: int) -> memoryview:
    """The `size` bytes that a block had before it was compressed; no more than these are ever made of it."""
    match codec:
        case TrevniCodec.NULL if len(data) != size:
            raise EncodingError(f"{len(data):,} bytes that are not compressed are said to be {size:,}")
        case TrevniCodec.NULL:
            return data
        case TrevniCodec.SNAPPY | TrevniCodec.GZIP:
            return codecs.decompress(CompressionCodec[codec.name], data, size)
    try:
        return _inflated(data, size) if codec is TrevniCodec.DEFLATE else _unbzipped(data, size)
    except (zlib.error, OSError) as error:
        raise EncodingError(f"{codec}: {error}") from error


def _inflated(data: memoryview, size: int) -> memoryview:
    """Deflated data: bare, as both specifications say, or in a wrapper of zlib, as Impala's library adds one."""
    if size > len(data) * _MOST_DEFLATED:
        raise EncodingError(f"deflate: {len(data):,} bytes cannot become {size:,}")
    try:
        return _inflate(data, size, _RAW)
    except (zlib.error, EncodingError):
        if bytes(data[:1]) != b"\x78":
            raise
        return _inflate(data, size, _WRAPPED)


def _inflate(data: memoryview, size: int, window: int) -> memoryview:
    member = zlib.decompressobj(window)
    # One byte more than there should be: data that are longer show themselves.
    out = member.decompress(data, size + 1)
    if len(out) != size or not member.eof or member.unused_data:
        raise EncodingError(f"deflate: the data do not end after {size:,} bytes")
    return memoryview(out)


def _unbzipped(data: memoryview, size: int) -> memoryview:
    """Up to 1.8.2 Avro's writer compressed its whole buffer; what follows the block is of no concern."""
    member = bz2.BZ2Decompressor()
    pieces, missing, rest = [], size, bytes(data)
    while missing and not member.eof:
        piece = member.decompress(rest, missing)
        rest = b""
        if not piece and member.needs_input:
            break
        pieces.append(piece)
        missing -= len(piece)
    if missing:
        raise EncodingError(f"bzip2: the data end {missing:,} bytes before they have {size:,}")
    return memoryview(b"".join(pieces))
