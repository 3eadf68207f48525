"""The contents of a page: its codec, and the kinds of columns to which it may belong. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from resilient_pq.damage.codec_trial import codecs_of
from resilient_pq.damage.page_search import FoundPage, Proof
from resilient_pq.damage.page_statistics import check_page_statistics
from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.format import kernels
from resilient_pq.format.compression import codecs
from resilient_pq.format.encodings import DICTIONARY_ENCODINGS, encoding_for
from resilient_pq.format.encodings.dictionary import MAX_BIT_WIDTH
from resilient_pq.format.file_metadata import CompressionCodec, Encoding, PageHeader, PageType, Type
from resilient_pq.format.pages.page import DataPage, Page, open_data_page
from resilient_pq.format.physical_values import empty_fixed, fixed_width
from resilient_pq.format.schema_tree import Leaf, Primitive
from resilient_pq.lazy_dataclass import dataclass

#: What fastparquet leaves behind the values of a page.
_SLACK = bytes(8)
#: Bytes that writers leave behind the places in a dictionary, at most.
_MOST_LEFT = 8
#: Values looked at to tell floating-point numbers from integers.
_SAMPLE = 1000
#: Floating-point numbers that people store lie between these, zeros apart.
_SMALLEST_USUAL = 1e-20
_LARGEST_USUAL = 1e20
#: Proofs of a page that say nothing of what stands behind it.
_OPEN_ENDS = (Proof.DECOMPRESSED, Proof.PREVIOUS)
#: A page that takes this part of its bytes, or less, when it is compressed would not decompress with other bytes.
_PACKED = 0.75
#: Numbers as integers, and as floating-point numbers of the same width.
_NUMBERS = {
    Type.INT32: ("<i4", "<f4"), Type.FLOAT: ("<i4", "<f4"), Type.INT64: ("<i8", "<f8"), Type.DOUBLE: ("<i8", "<f8"),
}  # fmt: skip


class ColumnKind(NamedTuple):
    """What the bytes of a page can show of its column."""

    physical_type: Type
    type_length: int | None
    max_definition_level: int
    max_repetition_level: int


#: Each kind of column that there is, with a column of it.
Kinds = Mapping[ColumnKind, Leaf]


def kind_of(leaf: Leaf) -> ColumnKind:
    """The kind of a column."""
    node = leaf.node
    return ColumnKind(node.physical_type, node.type_length, leaf.max_definition_level, leaf.max_repetition_level)


def kinds_of(leaves: Iterable[Leaf]) -> Kinds:
    """The kinds of some columns."""
    return {kind_of(leaf): leaf for leaf in leaves}


@dataclass(frozen=True, slots=True)
class ProbedPage:
    """A page and what was found out about it."""

    page: FoundPage
    # For each kind of column that it may belong to, the rows that begin in it; a dictionary page has none
    rows: Mapping[ColumnKind, int]
    codec: CompressionCodec | None = None  # The codec that it is compressed with; None where its bytes do not tell
    has_values: bool = True  # Whether it holds any value; False where all are null
    mid_row: bool = False  # Whether it goes on with a row of the page before it
    # Whether its values look like floating-point numbers rather than integers; None where they are neither, or their
    # encoding says
    looks_floating: bool | None = None
    # The least and the greatest of its first values, as integers where they may be these; None of others
    numbers: tuple[float, float] | None = None
    # Whether its body was decompressed and fits the kinds in `rows`; otherwise its header alone told
    decoded: bool = False
    stated: bool = False  # Whether statistics in its header tell of its values, or its checksum holds

    @property
    def is_dictionary(self) -> bool:
        """Whether it is a dictionary page."""
        return self.page.header.type == PageType.DICTIONARY_PAGE

    @property
    def needs_dictionary(self) -> bool:
        """Whether its values cannot be read without a dictionary page before it."""
        return self.has_values and encoding_of(self.page.header) in DICTIONARY_ENCODINGS

    @property
    def has_open_end(self) -> bool:
        """Whether nothing shows that the last bytes of a data page are not those of another, behind missing bytes.

        Random values of a fixed size decode whatever they are, and are stored by most codecs as they are.
        """
        header = self.page.header
        is_packed = self.codec is CompressionCodec.GZIP or (
            header.compressed_page_size <= _PACKED * header.uncompressed_page_size
        )
        return self.page.proof in _OPEN_ENDS and not (self.is_dictionary or self.stated or is_packed)

    @property
    def num_values(self) -> int:
        """Entries of a data page; 0 of a dictionary page."""
        data = self.page.header.data_page_header or self.page.header.data_page_header_v2
        return 0 if data is None else data.num_values


def encoding_of(header: PageHeader) -> int | None:
    """How the values of a data page are encoded; None for a dictionary page."""
    data = header.data_page_header or header.data_page_header_v2
    return None if data is None else data.encoding


def probe_header(page: FoundPage, kinds: Kinds) -> ProbedPage:
    """The kinds and rows that the header of a page allows; those of nested columns only in version 2."""
    header = page.header
    rows = {kind: count for kind, leaf in kinds.items() if (count := _rows_by_header(header, leaf)) is not None}
    v2 = header.data_page_header_v2
    return ProbedPage(page, rows, None, v2 is None or v2.num_nulls < v2.num_values)


def _rows_by_header(header: PageHeader, leaf: Leaf) -> int | None:
    """The rows of a page in a column; None where it cannot belong to that."""
    width, size = fixed_width(leaf.node), header.uncompressed_page_size
    is_strings = leaf.node.physical_type is Type.BYTE_ARRAY
    dictionary, v1, v2 = header.dictionary_page_header, header.data_page_header, header.data_page_header_v2
    if dictionary is not None:
        count = dictionary.num_values
        if leaf.node.physical_type is Type.BOOLEAN:
            return None
        return 0 if (size >= 4 * count if is_strings else size == count * (width or 0)) else None
    if not _may_hold(encoding_of(header), leaf.node):
        return None
    if v1 is not None:
        return v1.num_values if not leaf.max_repetition_level or not v1.num_values else None
    assert v2 is not None
    return _rows_of_v2(header, leaf, width)


def _rows_of_v2(header: PageHeader, leaf: Leaf, width: int | None) -> int | None:
    v2 = header.data_page_header_v2
    assert v2 is not None
    repetition, definition = v2.repetition_levels_byte_length, v2.definition_levels_byte_length
    if (repetition and not leaf.max_repetition_level) or (definition and not leaf.max_definition_level):
        return None
    if not leaf.max_repetition_level:
        if v2.num_rows != v2.num_values or (v2.num_nulls and not leaf.max_definition_level):
            return None
        size = header.uncompressed_page_size - repetition - definition
        present = v2.num_values - v2.num_nulls
        if v2.encoding == Encoding.PLAIN and width is not None and size != present * width:
            return None
    return v2.num_rows


def _may_hold(encoding: int | None, node: Primitive) -> bool:
    if encoding in DICTIONARY_ENCODINGS:
        return node.physical_type is not Type.BOOLEAN
    try:
        encoding_for(-1 if encoding is None else encoding, node.physical_type)
    except UnsupportedError:
        return False
    return True


def probe_body(
    known: ProbedPage,
    page: Page,
    kinds: Kinds,
    likely: CompressionCodec | None = None,
    dictionary: Page | None = None,
) -> ProbedPage:
    """The same page with the kinds and rows that its body allows; unchanged where it does not decompress.

    `likely` is the codec of pages before it, which is tried first, `dictionary` the dictionary page of its chunk,
    decompressed.
    """
    for codec in codecs_of(page, likely):
        plain = decompress_page(page, codec)
        found = _decode(known, plain, kinds)
        if found.rows:
            v2 = page.header.data_page_header_v2
            tells = page.header.uncompressed_page_size and not (v2 is not None and v2.is_compressed is False)
            stated = [_stated(found, plain, kinds[kind], dictionary) for kind in found.rows]
            rows = found.rows if any(told is not False for told in stated) else {}
            return replace(found, rows=rows, codec=codec if tells else None, decoded=True, stated=True in stated)
    return known


def with_all_types(known: ProbedPage, kinds: Kinds) -> ProbedPage:
    """The same page as one of all types that its levels and its encoding allow: its values are damaged."""
    levels = {kind[2:]: rows for kind, rows in known.rows.items()}
    encoding = encoding_of(known.page.header)
    allowed = [kind for kind, leaf in kinds.items() if kind[2:] in levels and _may_hold(encoding, leaf.node)]
    return replace(known, rows={**known.rows, **{kind: levels[kind[2:]] for kind in allowed}})


def _stated(known: ProbedPage, page: Page, leaf: Leaf, dictionary: Page | None) -> bool | None:
    """Whether the values of a page are those of which its header tells; None where it does not tell."""
    if known.page.crc_holds or (known.needs_dictionary and dictionary is None):
        return known.page.crc_holds or None
    used = dictionary if known.needs_dictionary else None
    try:
        return check_page_statistics(page, leaf, CompressionCodec.UNCOMPRESSED, used) or None
    except (FormatError, UnsupportedError):
        return False


def decompress_page(page: Page, codec: CompressionCodec) -> Page:
    """The page as if it had been written uncompressed."""
    v2 = page.header.data_page_header_v2
    levels = 0 if v2 is None else v2.repetition_levels_byte_length + v2.definition_levels_byte_length
    if codec is CompressionCodec.UNCOMPRESSED:
        return page
    size = page.header.uncompressed_page_size - levels
    body = codecs.decompress(codec, page.body[levels:], size)
    whole = memoryview(bytes(page.body[:levels]) + bytes(body)) if levels else body
    return replace(page, body=whole)


def _decode(known: ProbedPage, page: Page, kinds: Kinds) -> ProbedPage:
    """The page with the kinds of columns that its uncompressed body can be decoded as."""
    rows: dict[ColumnKind, int] = {}
    has_values = mid_row = False
    look: _NumberLook | None = None
    for kind, leaf in kinds.items():
        if kind not in known.rows and not (kind.max_repetition_level and known.page.header.data_page_header):
            continue
        try:
            found = _count_rows(page, leaf)
        except (FormatError, UnsupportedError, MemoryError):
            continue
        if found is not None:
            rows[kind] = found.rows
            has_values = has_values or found.present > 0
            mid_row = mid_row or found.mid_row
            look = look or found.look
    known = replace(known, rows=rows, has_values=has_values, mid_row=mid_row)
    return known if look is None else replace(known, looks_floating=look.floating, numbers=look.numbers)


class _PageCounts(NamedTuple):
    """Rows that begin in a page, its values that are not null, and what its numbers look like."""

    rows: int
    present: int
    mid_row: bool = False
    look: _NumberLook | None = None


class _NumberLook(NamedTuple):
    """Whether the first numbers of a page look like floating-point numbers, and their minimum and maximum."""

    floating: bool
    numbers: tuple[float, float]


def _count_rows(page: Page, leaf: Leaf) -> _PageCounts | None:
    """The contents of an uncompressed page; None where it is no page of `leaf`."""
    dictionary = page.header.dictionary_page_header
    if dictionary is not None:
        fits = _are_plain(leaf.node, page.body, dictionary.num_values)
        look = _look_at_numbers(leaf.node, Encoding.PLAIN, page.body, dictionary.num_values) if fits else None
        return _PageCounts(0, dictionary.num_values, False, look) if fits else None
    data = open_data_page(page, leaf, CompressionCodec.UNCOMPRESSED)
    rows = present = data.num_values
    mid_row = False
    levels, repetition = np.empty((2, data.num_values), np.uint8)
    if data.repetition_levels is not None:
        data.repetition_levels.decode(leaf.max_repetition_level, repetition)
        rows = int(np.count_nonzero(repetition == 0))
        mid_row = bool(len(repetition)) and repetition[0] != 0
    if data.definition_levels is not None:
        data.definition_levels.decode(leaf.max_definition_level, levels)
        goes_on = repetition == leaf.max_repetition_level if data.repetition_levels is not None else None
        if goes_on is not None and (goes_on & (levels < leaf.slot_definition_level)).any():
            return None  # a list that goes on where there is none
        present = int(np.count_nonzero(levels == leaf.max_definition_level))
    if not _are_values(leaf.node, data, present):
        return None
    return _PageCounts(rows, present, mid_row, _look_at_numbers(leaf.node, data.encoding, data.values, present))


def _look_at_numbers(node: Primitive, encoding: int, data: memoryview, count: int) -> _NumberLook | None:
    """What values look like; None where they are not numbers, or are dictionary indices.

    Stored integers are mostly small or timestamps, which as floating-point numbers are nearly 0, or NaN where they are
    negative; stored floating-point numbers are, as integers, close to the largest ones.
    """
    types = _NUMBERS.get(node.physical_type)
    if types is None or not count or encoding in DICTIONARY_ENCODINGS:
        return None
    in_part = encoding in (Encoding.PLAIN, Encoding.BYTE_STREAM_SPLIT)
    out: Any = empty_fixed(node, min(count, _SAMPLE) if in_part else count)
    decode = encoding_for(encoding, node.physical_type).decode
    assert decode is not None
    decode(node, data, out)
    integers, values = (out.view(np.uint8).view(name).reshape(-1) for name in types)
    with np.errstate(invalid="ignore"):
        sizes = np.abs(values.astype(np.float64))
    # Arithmetic makes NaNs without a payload; negative ones that have one are small negative integers.
    payload = (1 << (22 if integers.itemsize == 4 else 51)) - 1
    nan = np.isnan(sizes) & ((integers > 0) | (integers & payload == 0))
    usual = nan | ((sizes > _SMALLEST_USUAL) & (sizes < _LARGEST_USUAL))
    telling = integers != 0  # zeros are both
    floating = bool(2 * np.count_nonzero(usual & telling) > np.count_nonzero(telling))
    return _NumberLook(floating, (float(integers.min()), float(integers.max())))


def _are_values(node: Primitive, data: DataPage, count: int) -> bool:
    """Whether the values of a page are exactly `count` of this type, where that can be seen."""
    if data.encoding == Encoding.PLAIN:
        return _are_plain(node, data.values, count)
    if not count:
        return True
    if data.encoding in DICTIONARY_ENCODINGS:
        return _are_indices(data.values, count)
    if data.encoding == Encoding.BYTE_STREAM_SPLIT and len(data.values) not in _sizes(node, count):
        return False
    known = encoding_for(data.encoding, node.physical_type)
    if node.physical_type is Type.BYTE_ARRAY:
        lengths = np.empty(count, np.int32)
        assert known.decode_byte_arrays is not None
        known.decode_byte_arrays(data.values, lengths)
    else:
        out: Any = empty_fixed(node, count)
        assert known.decode is not None
        known.decode(node, data.values, out)
    return True


def _are_indices(data: memoryview, count: int) -> bool:
    """Whether bytes are `count` places in a dictionary, and hardly anything else."""
    if not len(data) or data[0] > MAX_BIT_WIDTH:
        return False
    taken = 1 + kernels.rle_decode(data[1:], data[0], np.empty(count, np.int32))
    return len(data) - taken <= _MOST_LEFT


def _sizes(node: Primitive, count: int) -> tuple[int, int]:
    """Bytes of so many values, without and with the padding of some writers."""
    size = count * (fixed_width(node) or 0)
    return size, size + len(_SLACK)


def _are_plain(node: Primitive, data: memoryview, count: int) -> bool:
    """Whether bytes are exactly `count` PLAIN values."""
    if node.physical_type is Type.BYTE_ARRAY:
        if 4 * count > len(data):
            return False
        size = 4 * count + kernels.byte_array_lengths(data, np.empty(count, np.int32))
    elif node.physical_type is Type.BOOLEAN:
        size = (count + 7) // 8
    else:
        size = count * (fixed_width(node) or 0)
    return len(data) == size or (len(data) == size + len(_SLACK) and data[size:] == _SLACK)
