"""Pages, written: values become a body as it is stored, behind a header with its CRC32. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from resilient_pq.checksum import crc32, signed
from resilient_pq.format import compression, thrift
from resilient_pq.format.chunk_options import ChunkOptions
from resilient_pq.format.encoding_choice import Choice
from resilient_pq.format.encodings import bit_packed, dictionary, encode_values, plain, rle
from resilient_pq.format.metadata import (
    CompressionCodec,
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    Encoding,
    PageHeader,
    PageType,
)
from resilient_pq.format.page_cuts import PageCut
from resilient_pq.format.schema import Leaf
from resilient_pq.format.values import ByteArrays, LeafData, Levels, Values


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """A page ready to be placed in a column chunk.

    Attributes:
        header: Its header.
        header_crc: CRC32 of that.
        body: Its body in pieces.
        body_size: Their bytes together.
        body_crc: CRC32 of all of them.
        uncompressed_size: Bytes of the header, and of the body before it was compressed.
    """

    header: bytes
    header_crc: int
    body: list[Any]
    body_size: int
    body_crc: int
    uncompressed_size: int


def _page(
    header: PageHeader,
    options: ChunkOptions,
    content: Sequence[NDArray[np.uint8]],
    *,
    uncompressed: Sequence[NDArray[np.uint8]] = (),
) -> EncodedPage:
    """A page of the `uncompressed` levels of version 2, then `content`, compressed as one."""
    codec = options.codec
    # Without a codec the values go out as they lie in memory, levels and header beside them.
    body: list[Any] = [*uncompressed, *content]
    header.uncompressed_page_size = sum(map(len, body))
    if codec is not CompressionCodec.UNCOMPRESSED:
        body = [*uncompressed, compression.compress_parts(codec, content, options.level)]
    header.compressed_page_size = sum(map(len, body))
    body_crc = 0
    for piece in body:
        body_crc = crc32(piece, body_crc)
    header.crc = signed(body_crc)
    encoded = thrift.encode(header)
    return EncodedPage(
        encoded,
        crc32(encoded),
        body,
        header.compressed_page_size,
        body_crc,
        len(encoded) + header.uncompressed_page_size,
    )


def dictionary_page(leaf: Leaf, entries: Values, encoding: Encoding, options: ChunkOptions) -> EncodedPage:
    """The page of a dictionary's entries, whose header names `encoding`."""
    header = PageHeader(
        type=int(PageType.DICTIONARY_PAGE),
        uncompressed_page_size=0,
        compressed_page_size=0,
        dictionary_page_header=DictionaryPageHeader(num_values=len(entries), encoding=int(encoding)),
    )
    return _page(header, options, [encode_values(Encoding.PLAIN, leaf.node, entries)])


def data_page(
    leaf: Leaf, data: LeafData, chosen: Choice, cut: PageCut, options: ChunkOptions
) -> EncodedPage:
    """The page of a part of a chunk's levels and values."""
    maxima = leaf.max_repetition_level, leaf.max_definition_level
    levels = [
        (found, maximum)
        for found, maximum in zip(cut.levels_of(data), maxima, strict=True)
        if found is not None
    ]
    if options.version == 1:
        return _data_page_v1(leaf, data, levels, chosen, cut, options)
    return _data_page_v2(leaf, data, levels, chosen, cut, options)


def _data_page_v1(
    leaf: Leaf,
    data: LeafData,
    levels: Sequence[tuple[Levels, int]],
    chosen: Choice,
    cut: PageCut,
    options: ChunkOptions,
) -> EncodedPage:
    header = PageHeader(
        type=int(PageType.DATA_PAGE),
        uncompressed_page_size=0,
        compressed_page_size=0,
        data_page_header=DataPageHeader(
            num_values=cut.entry_end - cut.entry,
            encoding=int(chosen.encoding),
            definition_level_encoding=int(options.level_encoding),
            repetition_level_encoding=int(options.level_encoding),
        ),
    )
    parts = [_v1_levels(found, maximum, options.level_encoding) for found, maximum in levels]
    values = data.values
    if options.codec is not CompressionCodec.UNCOMPRESSED and _is_plain_text(values, chosen):
        return _page(header, options, [plain.encode_behind(parts, values[cut.value : cut.value_end])])
    return _page(header, options, [*parts, _encoded_values(leaf, data, chosen, cut)])


def _data_page_v2(
    leaf: Leaf,
    data: LeafData,
    levels: Sequence[tuple[Levels, int]],
    chosen: Choice,
    cut: PageCut,
    options: ChunkOptions,
) -> EncodedPage:
    parts = [rle.encode_levels(found, maximum) for found, maximum in levels]
    repetition = len(parts[0]) if data.repetition_levels is not None else 0
    num_values = cut.entry_end - cut.entry
    header = PageHeader(
        type=int(PageType.DATA_PAGE_V2),
        uncompressed_page_size=0,
        compressed_page_size=0,
        data_page_header_v2=DataPageHeaderV2(
            num_values=num_values,
            num_nulls=num_values - (cut.value_end - cut.value),
            num_rows=cut.row_end - cut.first_row,
            encoding=int(chosen.encoding),
            definition_levels_byte_length=sum(map(len, parts)) - repetition,
            repetition_levels_byte_length=repetition,
            is_compressed=options.codec is not CompressionCodec.UNCOMPRESSED,
        ),
    )
    return _page(header, options, [_encoded_values(leaf, data, chosen, cut)], uncompressed=parts)


def _is_plain_text(values: Values, chosen: Choice) -> TypeGuard[ByteArrays]:
    """Whether values are large where they are encoded: they are better not copied behind levels once more."""
    return chosen.encoding is Encoding.PLAIN and isinstance(values, ByteArrays)


def _encoded_values(leaf: Leaf, data: LeafData, chosen: Choice, cut: PageCut) -> NDArray[np.uint8]:
    built = chosen.dictionary
    if built is None:
        return encode_values(chosen.encoding, leaf.node, data.values[cut.value : cut.value_end])
    return dictionary.encode_indices(built.indices[cut.value : cut.value_end], len(built.values))


def _v1_levels(levels: Levels, maximum: int, encoding: Encoding) -> NDArray[np.uint8]:
    if encoding is Encoding.BIT_PACKED:
        return bit_packed.encode_levels(levels, maximum)
    return rle.encode_prefixed(levels, maximum)
