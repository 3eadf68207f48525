"""Encoding of pages: where a chunk is cut, the bodies, and the headers with their CRC32. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from resilient_pq.checksum import crc32, signed
from resilient_pq.format import compact_protocol, kernels
from resilient_pq.format.compression import codecs
from resilient_pq.format.encodings import bit_packed, dictionary, encode_values, plain, rle
from resilient_pq.format.encodings.dictionary import Dictionary
from resilient_pq.format.file_metadata import (
    CompressionCodec,
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    Encoding,
    PageHeader,
    PageType,
)
from resilient_pq.format.levels import row_starts
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.encoding_choice import Choice, CompressedValues, plain_bytes
from resilient_pq.format.physical_values import ByteArrays, LeafData, Levels, Values
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.lazy_dataclass import dataclass

#: Ordinals of pages in an encrypted file have 2 bytes (Encryption.md, section 4.4.2).
MAX_SEALED_PAGES: Final = 0x7FFF


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """A page ready to be placed in a column chunk."""

    header: bytes
    header_crc: int  # CRC32 of that
    body: list[Any]  # its body in pieces
    body_size: int  # their bytes together
    body_crc: int  # CRC32 of all of them
    uncompressed_size: int  # bytes of the header, and of the body before it was compressed


def _page(
    header: PageHeader,
    options: ChunkOptions,
    content: Sequence[NDArray[np.uint8]],
    *,
    uncompressed: Sequence[NDArray[np.uint8]] = (),
    packed: Any = None,
) -> EncodedPage:
    """A page of the `uncompressed` levels of version 2, then `content`, compressed as one: see `compress_parts`."""
    codec = options.codec
    # Without a codec the values go out as they lie in memory, levels and header beside them.
    body: list[Any] = [*uncompressed, *content]
    header.uncompressed_page_size = sum(map(len, body))
    if codec is not CompressionCodec.UNCOMPRESSED:
        body = [*uncompressed, *codecs.compress_parts(codec, content, options.level, packed)]
    header.compressed_page_size = sum(map(len, body))
    body_crc = 0
    for piece in body:
        body_crc = crc32(piece, body_crc)
    header.crc = signed(body_crc)
    encoded = compact_protocol.encode(header)
    return EncodedPage(
        encoded,
        crc32(encoded),
        body,
        header.compressed_page_size,
        body_crc,
        len(encoded) + header.uncompressed_page_size,
    )


def dictionary_page(leaf: Leaf, entries: Values, chosen: Choice, options: ChunkOptions) -> EncodedPage:
    """The page of a dictionary's entries."""
    header = PageHeader(
        type=int(PageType.DICTIONARY_PAGE),
        uncompressed_page_size=0,
        compressed_page_size=0,
        dictionary_page_header=DictionaryPageHeader(num_values=len(entries), encoding=int(chosen.dictionary_encoding)),
    )
    if (known := chosen.entries) is not None:
        return _page(header, options, [known.encoded], packed=known.compressed)
    return _page(header, options, [encode_values(Encoding.PLAIN, leaf.node, entries)])


def data_page(leaf: Leaf, data: LeafData, chosen: Choice, cut: PageCut, options: ChunkOptions) -> EncodedPage:
    """The page of a part of a chunk's levels and values."""
    if options.version == 1:
        return _data_page_v1(leaf, data, chosen, cut, options)
    return _data_page_v2(leaf, data, chosen, cut, options)


def _levels(leaf: Leaf, data: LeafData, cut: PageCut) -> list[tuple[Levels, int]]:
    """The levels of a page, each kind with its largest one."""
    maxima = leaf.max_repetition_level, leaf.max_definition_level
    return [(found, maximum) for found, maximum in zip(cut.levels_of(data), maxima, strict=True) if found is not None]


def _data_page_v1(leaf: Leaf, data: LeafData, chosen: Choice, cut: PageCut, options: ChunkOptions) -> EncodedPage:
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
    content, packed = v1_content(leaf, data, chosen, cut, options)
    return _page(header, options, content, packed=packed)


def v1_content(
    leaf: Leaf, data: LeafData, chosen: Choice, cut: PageCut, options: ChunkOptions
) -> tuple[list[NDArray[np.uint8]], Any]:
    """The levels and values of a page of version 1, and what the last part is compressed, where that is known."""
    parts = [_v1_levels(found, maximum, options.level_encoding) for found, maximum in _levels(leaf, data, cut)]
    values = data.values
    if (known := _known(chosen, cut, data)) is not None:
        return [*parts, known.encoded], known.compressed
    if options.codec is not CompressionCodec.UNCOMPRESSED and _is_plain_text(values, chosen):
        return [plain.encode_behind(parts, values[cut.value : cut.value_end])], None
    return [*parts, _encoded_values(leaf, data, chosen, cut)], None


def _known(chosen: Choice, cut: PageCut, data: LeafData) -> CompressedValues | None:
    """The values of a page that the choice of their encoding has compressed already."""
    return chosen.values if cut.value == 0 and cut.value_end == len(data.values) else None


def _data_page_v2(leaf: Leaf, data: LeafData, chosen: Choice, cut: PageCut, options: ChunkOptions) -> EncodedPage:
    parts = [rle.encode_levels(found, maximum) for found, maximum in _levels(leaf, data, cut)]
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
    if (known := _known(chosen, cut, data)) is not None:
        return _page(header, options, [known.encoded], uncompressed=parts, packed=known.compressed)
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


@dataclass(frozen=True, slots=True)
class PageCut:
    """The part of a chunk that becomes one data page: rows, entries and values, ends exclusive."""

    first_row: int
    row_end: int
    entry: int
    entry_end: int
    value: int
    value_end: int

    def levels_of(self, data: LeafData) -> tuple[Levels | None, Levels | None]:
        """The repetition and the definition levels of the page."""
        repetition, definition = data.repetition_levels, data.definition_levels
        return (
            None if repetition is None else repetition[self.entry : self.entry_end],
            None if definition is None else definition[self.entry : self.entry_end],
        )


def cut_pages(leaf: Leaf, data: LeafData, built: Dictionary | None, options: ChunkOptions) -> list[PageCut]:
    """Cut a chunk into pages, at the beginnings of rows only; `built` is its dictionary, None for none."""
    num_entries = len(data.values) if data.definition_levels is None else len(data.definition_levels)
    size = _size_as_written(leaf, data, built)
    fewest = -(-data.num_rows // options.page_rows)
    count = max(-(-size // options.page_bytes), fewest, 1)
    if count == 1 or data.num_rows < 2:
        return [PageCut(0, data.num_rows, 0, num_entries, 0, len(data.values))]
    definition, repetition = data.definition_levels, data.repetition_levels
    if len(data.values) == num_entries:
        definition = None  # none lacks a value
    starts = present = byte_arrays = None
    if built is None and isinstance(data.values, ByteArrays):
        byte_arrays = data.values
        starts = None if repetition is None else row_starts(repetition, num_entries)
        present = None if definition is None else definition == leaf.max_definition_level
    rows = entries = _row_cuts(data.num_rows, byte_arrays, count, size, starts, present, options)
    if repetition is not None:
        entries = kernels.row_entries(np.ascontiguousarray(repetition), np.array(rows, np.int64)).tolist()
    cuts: list[PageCut] = []
    value = 0
    for (first, end), (entry, entry_end) in zip(pairwise(rows), pairwise(entries), strict=True):
        num_values = entry_end - entry
        if definition is not None:
            num_values = int(np.count_nonzero(definition[entry:entry_end] == leaf.max_definition_level))
        cuts.append(PageCut(first, end, entry, entry_end, value, value + num_values))
        value = cuts[-1].value_end
    if options.sealed and len(cuts) > MAX_SEALED_PAGES:
        wider = replace(options, page_bytes=2 * options.page_bytes, page_rows=2 * options.page_rows)
        return cut_pages(leaf, data, built, wider)
    return cuts


def _size_as_written(leaf: Leaf, data: LeafData, built: Dictionary | None) -> int:
    """Bytes of the values that pages are cut by: of indices to the dictionary, where there is one."""
    if built is None:
        return plain_bytes(leaf, data.values)
    return len(data.values) * rle.bit_width(len(built.values) - 1) // 8


def _row_cuts(
    num_rows: int,
    byte_arrays: ByteArrays | None,
    count: int,
    size: int,
    starts: NDArray[Any] | None,
    present: NDArray[np.bool_] | None,
    options: ChunkOptions,
) -> list[int]:
    """The rows at which about `count` pages begin, and the end of the last one.

    Pages have equal shares of the bytes of `byte_arrays`; None cuts by rows. `starts` are the entries where rows begin,
    and `present` says which of them have a value; None is all.
    """
    if byte_arrays is not None:
        # Equal shares of bytes, found by the offsets, each value with its four bytes of length.
        values = np.array([_first_value_behind(byte_arrays, part * (size / count)) for part in range(1, count)])
        entries = values if present is None else _entries_of(values, present)
        rows = entries if starts is None else np.searchsorted(starts, entries)
        cuts = {0, num_rows, *(int(row) for row in rows)}
    else:
        cuts = {0, num_rows, *(num_rows * part // count for part in range(1, count))}
    ordered = sorted(cuts)
    return [row for first, end in pairwise(ordered) for row in range(first, end, options.page_rows)] + [num_rows]


def _first_value_behind(byte_arrays: ByteArrays, size: float) -> int:
    """The first value before which the others take at least so many bytes in PLAIN encoding."""
    offsets = byte_arrays.offsets
    start = int(offsets[0])
    return bisect_left(range(len(offsets)), size, key=lambda at: int(offsets[at]) - start + 4 * at)


def _entries_of(values: NDArray[Any], present: NDArray[np.bool_]) -> NDArray[Any]:
    """The first entry before which each number of values stands."""
    before = np.zeros(len(present) + 1, np.int64)
    np.cumsum(present, out=before[1:])
    return np.searchsorted(before, values)
