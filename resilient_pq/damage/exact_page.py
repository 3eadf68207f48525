"""Checks of a page header against the body of its page, to the byte.

The CRC32 of a page covers its body alone. A header that no checksum covers is compared with a body that is whole:
levels and values must be exactly as many as its counts, and take all bytes of the body.

One change may not be found: of a count within the padding of the last bit-packed group, which is zeros. The row count
of the chunk, or of most chunks beside it, contradicts it, and as it is not known which page it was, all pages are lost.
In the chunk in which a file was cut nothing contradicts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from resilient_pq.damage.page_search import pages_in
from resilient_pq.errors import EncodingError, FormatError
from resilient_pq.format import compact_protocol, kernels
from resilient_pq.format.compression import codecs
from resilient_pq.format.crypto.page_view import padded
from resilient_pq.format.encodings import DICTIONARY_ENCODINGS, LEVEL_ENCODINGS, encoding_for, rle
from resilient_pq.format.file_metadata import DataPageHeader, DataPageHeaderV2, Encoding, PageHeader, PageType, Type
from resilient_pq.format.pages.page import DataPage, EncodedLevels, Page, open_data_page, read_header
from resilient_pq.format.physical_values import fixed_width, room_for
from resilient_pq.format.quirks import NO_QUIRKS, Quirks
from resilient_pq.format.schema_tree import Leaf, Primitive

_DICTIONARY_PAGE_ENCODINGS: Final = (Encoding.PLAIN, Encoding.PLAIN_DICTIONARY)


def check_exact(page: Page, leaf: Leaf, codec: int, encodings: Sequence[int], quirks: Quirks = NO_QUIRKS) -> None:
    """Refuse a page, whose CRC32 holds, with a header that contradicts its body."""
    _check_canonical(page.header, page.header_bytes)
    try:
        if page.header.type == PageType.DICTIONARY_PAGE:
            _check_dictionary(page, leaf.node, codec, encodings)
        elif page.data_header is not None:
            if isinstance(page.data_header, DataPageHeader):
                _check_header_v1(page.data_header, leaf)
            else:
                _check_header_v2(page, page.data_header, leaf)
            if page.data_header.encoding not in encodings:
                raise FormatError("its header names encodings that the chunk does not have")
            _check_data(page, open_data_page(page, leaf, codec, quirks), leaf)
        else:
            raise FormatError("its header says that it is a page of another kind than any that writers make")
    except MemoryError as error:
        raise FormatError("there is not enough memory for as many values as its header says") from error


def spans_others(page: memoryview) -> bool:
    """Whether a page whose body is damaged has a header that no writer makes, or its body ends with other pages."""
    try:
        header, end = read_header(page, 0)
        _check_canonical(header, page[:end])
        return any(found.end == len(page) for found in pages_in(page, 0, end))
    except FormatError:
        return True


def _check_canonical(header: PageHeader, stored: memoryview) -> None:
    encoded = compact_protocol.encode(header)
    if len(encoded) < len(stored):
        with suppress(FormatError):  # there is no room for the field that fills the place of an encrypted page
            encoded = padded(encoded, len(stored))
    if encoded != bytes(stored):
        raise FormatError("its header has other bytes than what it says would have")


def check_narrow_indices(page: Page, leaf: Leaf, codec: int, quirks: Quirks) -> None:
    """Refuse a page whose indices take no bits, and are not decoded, where the runs that readers count are others."""
    data = open_data_page(page, leaf, codec, quirks)
    if data.encoding in DICTIONARY_ENCODINGS and len(data.values) and not data.values[0]:
        _check_data(page, data, leaf)


def _check_dictionary(page: Page, node: Primitive, codec: int, encodings: Sequence[int]) -> None:
    header = page.header.dictionary_page_header
    assert header is not None
    if header.encoding not in encodings or header.encoding not in _DICTIONARY_PAGE_ENCODINGS:
        raise FormatError("its header names encodings that the chunk does not have")
    body = codecs.decompress(codec, page.body, page.header.uncompressed_page_size)
    _check_values(Encoding.PLAIN, node, body, header.num_values)


def _check_header_v1(header: DataPageHeader, leaf: Leaf) -> None:
    needless = [header.repetition_level_encoding] if not leaf.max_repetition_level else []
    needless += [header.definition_level_encoding] if not leaf.max_definition_level else []
    if any(encoding not in LEVEL_ENCODINGS for encoding in needless):
        raise FormatError("its header names encodings that no levels have")


def _check_header_v2(page: Page, header: DataPageHeaderV2, leaf: Leaf) -> None:
    repetition, definition = header.repetition_levels_byte_length, header.definition_levels_byte_length
    if (repetition and not leaf.max_repetition_level) or (definition and not leaf.max_definition_level):
        raise FormatError("its header tells of levels that the column does not have")
    if header.is_compressed is False and len(page.body) != page.header.uncompressed_page_size:
        values_size = len(page.body) - repetition - definition
        raise FormatError(f"a page that is not compressed has {values_size} bytes of values")
    if not leaf.max_repetition_level and header.num_rows != header.num_values:
        raise FormatError("its header counts other rows than entries of a column without lists")


def _check_data(page: Page, data: DataPage, leaf: Leaf) -> None:
    """Hold the counts of a header against the levels and values of its page."""
    v2 = page.header.data_page_header_v2 if page.header.type == PageType.DATA_PAGE_V2 else None
    num_present = data.num_values
    if data.repetition_levels is not None:
        first = _levels_equal(data.repetition_levels, leaf.max_repetition_level, data.num_values, 0)
        if v2 is not None and first != v2.num_rows:
            raise FormatError(f"its header counts {v2.num_rows:,} rows, and its levels {first:,}")
    if data.definition_levels is not None:
        maximum = leaf.max_definition_level
        num_present = _levels_equal(data.definition_levels, maximum, data.num_values, maximum)
    if v2 is not None and v2.num_nulls != data.num_values - num_present:
        raise FormatError(f"its header counts {v2.num_nulls:,} nulls, and its levels {data.num_values - num_present:,}")
    _check_values(data.encoding, leaf.node, data.values, num_present)


def _levels_equal(encoded: EncodedLevels, maximum: int, count: int, level: int) -> int:
    """How many of exactly `count` levels are a certain one."""
    if encoded.encoding is Encoding.RLE and not rle.ends_with(encoded.data, rle.bit_width(maximum), count, zeros=True):
        raise EncodingError(f"its levels are not {count:,}")
    levels = np.empty(count, np.uint8)
    encoded.decode(maximum, levels)
    return int(np.count_nonzero(levels == level))


def _check_values(encoding: int, node: Primitive, data: memoryview, count: int) -> None:
    """Refuse values that do not end where their bytes do."""
    if not _take_all(encoding, node, data, count):
        raise EncodingError(f"its {len(data):,} bytes of values are not those of {count:,}")


def _take_all(encoding: int, node: Primitive, data: memoryview, count: int) -> bool:
    width = fixed_width(node)
    if encoding in DICTIONARY_ENCODINGS:
        # Without any values there may be no width before them either.
        return rle.ends_with(data[1:], data[0], count, zeros=True) if data else not count
    if encoding == Encoding.RLE:
        packed, rest = rle.take_prefixed(data, "RLE booleans")
        return not rest and rle.ends_with(packed, 1, count, zeros=True)
    if encoding == Encoding.PLAIN and node.physical_type is Type.BOOLEAN:
        return len(data) == (count + 7) // 8 and (count % 8 == 0 or not data[-1] >> count % 8)
    if encoding == Encoding.PLAIN and node.physical_type is Type.BYTE_ARRAY:
        if count > len(data):
            return False  # before room is made for as many
        lengths = np.empty(count, np.int32)
        return kernels.byte_array_lengths(data, lengths) + lengths.nbytes == len(data)
    if encoding in (Encoding.PLAIN, Encoding.BYTE_STREAM_SPLIT) and width is not None:
        return len(data) == count * width
    _decode(encoding, node, data, count)
    return True


def _decode(encoding: int, node: Primitive, data: memoryview, count: int) -> None:
    """Decode values that begin with their own number."""
    known = encoding_for(encoding, node.physical_type)
    if node.physical_type is Type.BYTE_ARRAY and known.decode_byte_arrays is not None:
        known.decode_byte_arrays(data, np.empty(count, np.int32))
    elif known.decode is not None:
        known.decode(node, data, room_for(node, count))
