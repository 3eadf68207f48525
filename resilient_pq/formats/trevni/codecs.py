"""Codecs and checksums of blocks."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import cramjam
import numpy as np

from resilient_pq.checksum import crc32
from resilient_pq.errors import ChecksumError, CodecUnavailableError, EncodingError, UnsupportedError, Where

#: zlib's names for what surrounds deflated data: nothing; whatever is there, of zlib or gzip.
_RAW, _WRAPPED = -15, 47
#: Bytes that one byte of deflated data can stand for at most (as in `format.compression`), and of snappy's.
_MOST_DEFLATED: Final = 1032
_MOST_SNAPPY: Final = 22


class Codec(StrEnum):
    """How blocks are compressed."""

    NULL = "null"
    DEFLATE = "deflate"
    SNAPPY = "snappy"
    BZIP2 = "bzip2"
    GZIP = "gzip"
    """Impala's alone."""

    @classmethod
    def named(cls, name: str | None, where: Where) -> Codec:
        """The codec of a name; Impala also wrote an empty one, or "none", for none.

        Raises:
            CodecUnavailableError: There is none of this name.
        """
        if name in (None, "", "none"):
            return cls.NULL
        if name not in list(cls):
            raise CodecUnavailableError(str(name), where=where)
        return cls(name)


class Checksum(StrEnum):
    """What stands behind each block."""

    NULL = "null"
    CRC32 = "crc32"
    """CRC-32 as Avro's writer has it: its highest byte first."""
    CRC_32 = "crc-32"
    """CRC-32 as the specification has it: a fixed32, its lowest byte first."""

    @classmethod
    def named(cls, name: str | None, where: Where) -> Checksum:
        """The checksum of a name.

        Raises:
            UnsupportedError: There is none of this name.
        """
        if name is None:
            return cls.NULL
        if name not in list(cls):
            raise UnsupportedError(f"checksums named {name!r} are not supported", where=where)
        return cls(name)

    @property
    def size(self) -> int:
        """Bytes of one."""
        return 0 if self is Checksum.NULL else 4

    def of(self, data: Any) -> bytes:
        """The checksum of data that are not compressed."""
        if self is Checksum.NULL:
            return b""
        return crc32(data).to_bytes(4, "big" if self is Checksum.CRC32 else "little")

    def verify(self, data: memoryview, stored: bytes, codec: Codec) -> bool:
        """Compare the checksum of a block.

        Avro's writer sums up nothing at all where the codec is null, and stores the 0 that comes of it; its own
        reader then refuses the file. Such a 0 says nothing, and is no reason to lose the block.

        Args:
            data: The block, no more compressed.
            stored: What stands behind it.
            codec: How it was compressed.

        Returns:
            Whether the block is known to be as it was written.

        Raises:
            ChecksumError: It is not.
        """
        if self is Checksum.NULL:
            return False
        if self.of(data) == stored:
            return True
        if codec is Codec.NULL and not any(stored):
            return False
        order: Any = "big" if self is Checksum.CRC32 else "little"
        raise ChecksumError(
            "the checksum of the block does not hold", stored=int.from_bytes(stored, order), computed=crc32(data)
        )


def decompress(codec: Codec, data: memoryview, size: int) -> memoryview:
    """A block as it was before it was compressed.

    Args:
        codec: How it is compressed.
        data: The block.
        size: Bytes that it had; no more than these are ever made of it.

    Raises:
        EncodingError: It does not decompress, or to another size.
    """
    if codec is Codec.NULL:
        if len(data) != size:
            raise EncodingError(f"{len(data):,} bytes that are not compressed are said to be {size:,}")
        return data
    try:
        return _DECOMPRESS[codec](data, size)
    except (zlib.error, OSError, cramjam.DecompressionError) as error:
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


def _gunzipped(data: memoryview, size: int) -> memoryview:
    if size > len(data) * _MOST_DEFLATED:
        raise EncodingError(f"gzip: {len(data):,} bytes cannot become {size:,}")
    return _inflate(data, size, _WRAPPED)


def _inflate(data: memoryview, size: int, window: int) -> memoryview:
    member = zlib.decompressobj(window)
    # One byte more than there should be: data that are longer show themselves.
    out = member.decompress(data, size + 1)
    if len(out) != size or not member.eof or member.unused_data:
        raise EncodingError(f"deflate: the data do not end after {size:,} bytes")
    return memoryview(out)


def _unsnapped(data: memoryview, size: int) -> memoryview:
    if size > len(data) * _MOST_SNAPPY:
        raise EncodingError(f"snappy: {len(data):,} bytes cannot become {size:,}")
    out: Any = np.empty(size, np.uint8)
    filled = cramjam.snappy.decompress_raw_into(data, out)
    if filled != size:
        raise EncodingError(f"snappy: {filled:,} bytes are said to be {size:,}")
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


_DECOMPRESS: dict[Codec, Callable[[memoryview, int], memoryview]] = {
    Codec.DEFLATE: _inflated,
    Codec.SNAPPY: _unsnapped,
    Codec.BZIP2: _unbzipped,
    Codec.GZIP: _gunzipped,
}


def compress(codec: Codec, data: Any) -> bytes:
    """A block as it is stored.

    Raises:
        CodecUnavailableError: It is a codec that is only read.
    """
    match codec:
        case Codec.NULL:
            return bytes(data)
        case Codec.DEFLATE:
            member = zlib.compressobj(wbits=_RAW)
            return member.compress(data) + member.flush()
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(data))
        case Codec.BZIP2:
            return bz2.compress(bytes(data))
    raise CodecUnavailableError(codec, hint="one of: null, deflate, snappy, bzip2")
