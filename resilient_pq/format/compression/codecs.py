"""Codecs: pages to compressed pages and back (parquet-format, Compression.md), a row of `CODECS` for each."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import cramjam
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.errors import CodecUnavailableError, EncodingError, OptionError, UnsupportedError
from resilient_pq.format.compression.hadoop_codecs import (
    lz4_block_decompress_into,
    lz4_decompress_into,
    lzo_decompress_into,
)
from resilient_pq.format.compression.zstd import frame_front, zstd
from resilient_pq.format.file_metadata import CompressionCodec
from resilient_pq.format.kernels.integers import varint_bytes
from resilient_pq.lazy_dataclass import dataclass

Buffer = NDArray[np.uint8]
_ISAL_MAX_LEVEL = 3  # ISA-L compresses gzip at levels 0 to 3, many times faster than zlib does at 1
_GZIP_WINDOW = 31
_IsalError: type[Exception] = cast(Any, isal_zlib.error)  # whose stubs say that it is an instance
#: Bytes before the values, which levels of pages without nulls are, that are better not compressed: a Snappy literal
#: of so many has its length in one byte.
_SHORT = 60
_GZIP_BITE = 32 * 1024  # How much of a page a gzip member is shown at first; twice as much when it goes on
_GZIP_RESERVED = 0xE0  # Flags of a gzip member that must be zero (RFC 1952, section 2.3.1.2)


@dataclass(frozen=True, slots=True)
class Codec:
    """How one codec compresses and decompresses."""

    decompress_into: Callable[[Any, Any], int]  # compressed bytes into a buffer; returns how much of it was filled
    compress: Callable[[Any, int], Any] | None = None  # bytes and level to compressed bytes; None where it is only read
    #: The levels that may be asked for, as (lowest, highest); None where there are none.
    levels: tuple[int, int] | None = None
    default_level: int = 0  # the level when none is asked for
    #: Bytes that one compressed byte can stand for at most; None where there is no bound worth the name.
    most: int | None = None


def _gzip_compress(data: Any, level: int) -> Any:
    # What ISA-L makes of the same data may differ from call to call: it looks for matches in memory left as it was.
    if level <= _ISAL_MAX_LEVEL:
        return isal_zlib.compress(data, level, _GZIP_WINDOW)
    return zlib.compress(data, level, _GZIP_WINDOW)


def _gzip_decompress_into(data: Any, out: Buffer) -> int:
    """Several members may follow one another (RFC 1952, section 2.2)."""
    view = memoryview(data)
    filled = at = 0
    while at < len(view):
        if len(view) > at + 3 and view[at + 3] & _GZIP_RESERVED:  # ISA-L ignores them, and all others refuse the page
            raise EncodingError("gzip: flags are set that must be zero")
        member, bite = isal_zlib.decompressobj(_GZIP_WINDOW), _GZIP_BITE
        # Bite by bite, as a member gives back a copy of all that follows it.
        while not member.eof:
            taken = view[at : at + bite]
            # One byte more than there is room for: a member that is longer than announced shows itself.
            piece = member.decompress(taken, len(out) - filled + 1)
            if not taken or filled + len(piece) > len(out):
                raise EncodingError("gzip: the data are longer than announced, or cut short")
            out[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
            filled += len(piece)
            at += len(taken) - len(member.unused_data)
            bite *= 2
    return filled


#: Compresses a buffer into another, and gives how many bytes that takes.
snappy_into: Callable[[Any, Any], int] = cramjam.snappy.compress_raw_into


def _snappy_compress(data: Any, _: int) -> Any:
    out: Any = memory_pool.empty((cramjam.snappy.compress_raw_max_len(data),), np.uint8)
    return memory_pool.front(out, snappy_into(data, out))


def _zstd_decompress_into(data: Any, out: Buffer) -> int:
    known = zstd()
    try:
        return known.decompress_into(data, out)
    except known.error as error:
        raise EncodingError(f"ZSTD data do not decompress: {error}") from error


def _lz4_compress(data: Any, _: int) -> Any:
    out: Any = memory_pool.empty((cramjam.lz4.compress_block_bound(data),), np.uint8)
    return memory_pool.front(out, cramjam.lz4.compress_block_into(data, out, store_size=False))


CODECS: dict[int, Codec] = {
    CompressionCodec.SNAPPY: Codec(cramjam.snappy.decompress_raw_into, _snappy_compress, most=22),
    CompressionCodec.GZIP: Codec(_gzip_decompress_into, _gzip_compress, (0, 9), 2, most=1032),
    CompressionCodec.LZO: Codec(lzo_decompress_into, most=255),
    CompressionCodec.BROTLI: Codec(
        cramjam.brotli.decompress_into, lambda data, level: cramjam.brotli.compress(data, level=level), (0, 11), 4
    ),
    CompressionCodec.LZ4: Codec(lz4_decompress_into, most=255),
    CompressionCodec.ZSTD: Codec(_zstd_decompress_into, lambda data, level: zstd().compress(data, level), (1, 22), 3),
    CompressionCodec.LZ4_RAW: Codec(lz4_block_decompress_into, _lz4_compress, most=255),
}

_NAMES = {"none": CompressionCodec.UNCOMPRESSED, "lz4": CompressionCodec.LZ4_RAW}


def codec_named(name: str | None) -> CompressionCodec:
    """The codec that a user names: "zstd", "snappy", "gzip", "brotli", "lz4" or "lz4_raw", "none" or None."""
    if not isinstance(name, str | None):
        raise OptionError(f"compression is {name!r}", hint='such as "zstd", or {"column": "zstd"}')
    wanted = (name or "none").lower()
    codec = _NAMES.get(wanted) or CompressionCodec.__members__.get(wanted.upper())
    if wanted == "none" or codec is CompressionCodec.UNCOMPRESSED:
        return CompressionCodec.UNCOMPRESSED
    if codec is None or not is_written(codec):
        names = (CompressionCodec(row).name.lower() for row, known in CODECS.items() if known.compress)
        written = ", ".join(["none", *names])
        problem = "unknown compression" if codec is None else "files are not written with compression"
        raise OptionError(f"{problem} {name!r}", hint=f"one of: {written}")
    return codec


def is_written(codec: int) -> bool:
    """Whether pages can be compressed with a codec, or left as they are; others can be read at most."""
    return codec == CompressionCodec.UNCOMPRESSED or (codec in CODECS and CODECS[codec].compress is not None)


def check_level(codec: CompressionCodec, level: int | None) -> int:
    """The level to compress with: the one asked for, or the codec's default."""
    known = CODECS.get(codec)
    if level is None or known is None:
        return known.default_level if known else 0
    if known.levels is None:
        raise OptionError(f"{codec.name.lower()} has no compression levels", hint="leave compression_level out")
    lowest, highest = known.levels
    if not isinstance(level, int):
        raise OptionError(f"compression_level is {level!r}; it is a whole number, {lowest} to {highest}")
    if not lowest <= level <= highest:
        raise OptionError(f"compression_level {level} is out of range for {codec.name.lower()}: {lowest} to {highest}")
    return level


def compress(codec: CompressionCodec, data: Any, level: int) -> Any:
    """The compressed bytes of `data`, as a buffer; `data` itself when the codec is UNCOMPRESSED."""
    if codec is CompressionCodec.UNCOMPRESSED:
        return data
    known = CODECS[codec].compress
    if known is None:
        raise UnsupportedError(f"the codec {codec.name} is only read")
    return known(data, level)


def compress_parts(codec: CompressionCodec, parts: Sequence[Any], level: int, packed: Any = None) -> list[Any]:
    """The compressed bytes of parts that follow one another, in pieces; `packed` are those of the last, where known."""
    *short, last = parts
    num_short = sum(map(len, short))
    if not num_short:
        return [compress(codec, last, level) if packed is None else packed]
    if num_short <= _SHORT and codec in (CompressionCodec.SNAPPY, CompressionCodec.ZSTD):
        packed = memoryview(compress(codec, last, level) if packed is None else packed)
        front = b"".join(short)
        behind = _behind_snappy if codec == CompressionCodec.SNAPPY else frame_front
        if (made := behind(packed, front, num_short + len(last))) is not None:
            head, begin = made
            return [head, packed[begin:]]
    return [compress(codec, b"".join(parts), level)]


def _behind_snappy(packed: memoryview, front: bytes, size: int) -> tuple[bytes, int]:
    """The bytes that put a few others before Snappy data, and how many bytes of those they replace."""
    # They are the length of all as a varint, then elements (snappy, "format_description"): what stands before an
    # element is nothing to it but what it copies from, by the distance. So a literal in front of others changes none of
    # them.
    begin = len(varint_bytes(size - len(front)))  # where the elements do
    return varint_bytes(size) + bytes((len(front) - 1 << 2,)) + front, begin


def check_readable(codec: int) -> None:
    """Refuse a codec whose pages cannot be decompressed."""
    if codec != CompressionCodec.UNCOMPRESSED:
        _reader_of(codec)


def _reader_of(codec: int) -> Codec:
    known = CODECS.get(codec)
    if known is None:
        raise CodecUnavailableError(_codec(codec).name, hint="pip install --upgrade cramjam isal")
    return known


def decompress(codec: int, data: memoryview, size: int) -> memoryview:
    """The `size` bytes that `data` was before it was compressed."""
    if codec == CompressionCodec.UNCOMPRESSED:
        if len(data) != size:
            raise EncodingError(f"an uncompressed page has {len(data)} bytes instead of {size}")
        return data
    if not len(data) and not size:
        return data  # some writers leave out even the empty frame
    check_growth(codec, len(data), size)  # before room is made for it
    try:
        out: Buffer = memory_pool.empty((size,), np.uint8)
    except MemoryError as error:
        raise EncodingError(f"{_codec(codec).name} data do not decompress: {error}") from error
    decompress_into(codec, data, out)
    return out.data


def check_growth(codec: int, size: int, decompressed: int) -> None:
    """Refuse a size that `size` bytes of this codec cannot have when they are decompressed."""
    most = _reader_of(codec).most
    if most is not None and decompressed > most * size:
        raise EncodingError(f"{size:,} bytes of {_codec(codec).name} data cannot become {decompressed:,}")


def decompress_into(codec: int, data: memoryview, out: Buffer) -> None:
    """Fill `out` with what `data` was before it was compressed, by a codec other than UNCOMPRESSED."""
    known = CODECS.get(codec) or _reader_of(codec)
    try:
        filled = known.decompress_into(data, out)
    except (cramjam.DecompressionError, _IsalError, MemoryError) as error:
        raise EncodingError(f"{_codec(codec).name} data do not decompress: {error}") from error
    if filled != len(out):
        raise EncodingError(f"{_codec(codec).name} data decompress to {filled} bytes instead of {len(out)}")


def decompress_parts(codec: int, parts: Sequence[memoryview], sizes: Sequence[int], out: Buffer) -> None:
    """Fill `out` with what several pieces of data were before each of them was compressed, back to back."""
    at = 0
    for part, size in zip(parts, sizes, strict=True):
        if len(part) or size:  # some writers leave out even the empty frame
            decompress_into(codec, part, out[at : at + size])
        at += size


def _codec(codec: int) -> CompressionCodec:
    try:
        return CompressionCodec(codec)
    except ValueError:
        raise UnsupportedError(
            f"unknown compression codec {codec}", hint="a newer version may know it: pip install --upgrade resilient_pq"
        ) from None
