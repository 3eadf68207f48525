"""Which codec a page is compressed with, where nothing says so: found by trying. Pure.

A page header names the size of its page before and after compression, and not the codec. Data that decompress to
exactly that size are hardly compressed with another one: all codecs but LZ4_RAW have marks or sizes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.format.compression import codecs
from resilient_pq.format.file_metadata import CompressionCodec, PageType
from resilient_pq.format.pages.page import Page

#: Those with a mark or a checksum first, then those that are in wide use.
TRIED = (
    CompressionCodec.ZSTD,
    CompressionCodec.GZIP,
    CompressionCodec.SNAPPY,
    CompressionCodec.LZ4_RAW,
    CompressionCodec.LZ4,
    CompressionCodec.BROTLI,
    CompressionCodec.LZO,
)
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP_MAGIC = b"\x1f\x8b"
_MARKS = {CompressionCodec.ZSTD: _ZSTD_MAGIC, CompressionCodec.GZIP: _GZIP_MAGIC}
#: How much LZO is tried on, as it is decompressed in Python.
_MOST_LZO = 1 << 20


def codecs_of(page: Page, likely: CompressionCodec | None = None) -> Iterator[CompressionCodec]:
    """The codecs that turn a page's body into exactly as many bytes as its header says, most likely first."""
    # Data that decompress to their own size hardly have a codec's mark by chance: UNCOMPRESSED comes after codecs that
    # have one, and after the likely codec.
    body, size = compressed_part(page)
    first = [codec for codec in TRIED if codec is likely or codec in _MARKS]
    if len(body):
        yield from (codec for codec in first if decompresses(codec, body, size))
    if len(body) == size:
        yield CompressionCodec.UNCOMPRESSED
    if len(body):
        yield from (codec for codec in TRIED if codec not in first and decompresses(codec, body, size))


def decompresses(codec: CompressionCodec, body: memoryview, size: int) -> bool:
    """Whether `body` is data of this codec, of exactly `size` bytes."""
    mark = _MARKS.get(codec, b"")
    if body[: len(mark)] != mark or (codec is CompressionCodec.LZO and size > _MOST_LZO):
        return False
    try:
        codecs.decompress(codec, body, size)
    except (FormatError, UnsupportedError):
        return False
    return True


def compressed_part(page: Page) -> tuple[memoryview, int]:
    """The bytes of a page that are compressed, and how many they were: in version 2 the levels are left out."""
    header = page.header
    levels, v2 = 0, header.data_page_header_v2
    if header.type == PageType.DATA_PAGE_V2 and v2 is not None:
        levels = v2.repetition_levels_byte_length + v2.definition_levels_byte_length
    return page.body[levels:], header.uncompressed_page_size - levels
