"""Pages that nobody writes any more: BIT_PACKED levels, dictionaries of BOOLEAN, prefixes that cross pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError
from resilient_pq.format import compact_protocol, kernels
from resilient_pq.format.encodings import rle
from resilient_pq.format.file_metadata import (
    DataPageHeader,
    DictionaryPageHeader,
    Encoding,
    PageHeader,
    PageType,
)
from resilient_pq.format.pages.chunk_decoder import decode_chunk
from resilient_pq.format.pages.page import Page, pages_of
from resilient_pq.format.physical_values import ByteArrays, LeafColumn
from resilient_pq.format.schema_tree import Leaf, Schema

RLE, BIT_PACKED = Encoding.RLE, Encoding.BIT_PACKED


def leaf_of(text: str) -> Leaf:
    return Schema.parse(f"message m {{ {text} }}").leaves[0]


def data_page(body: bytes, count: int, encoding: Encoding, *levels: Encoding) -> bytes:
    """A data page v1; `levels` are the encodings of definition and repetition levels."""
    detail = DataPageHeader(count, int(encoding), *map(int, levels))
    return (
        compact_protocol.encode(PageHeader(int(PageType.DATA_PAGE), len(body), len(body), data_page_header=detail))
        + body
    )


def dictionary_page(body: bytes, count: int) -> bytes:
    detail = DictionaryPageHeader(count, int(Encoding.PLAIN))
    header = PageHeader(int(PageType.DICTIONARY_PAGE), len(body), len(body), dictionary_page_header=detail)
    return compact_protocol.encode(header) + body


def decode(leaf: Leaf, data: bytes, num_rows: int, left_out: Sequence[int] = ()) -> LeafColumn:
    pages: list[Page] = [page for page in pages_of(memoryview(data), 0) if page.ordinal not in left_out]
    return decode_chunk(leaf, 0, pages, num_rows)


# --- BIT_PACKED levels ----------------------------------------------------------------------------------


def packed(levels: Sequence[int], maximum: int) -> bytes:
    """As digits, most significant first, cut into bytes; no length stands before them."""
    width = maximum.bit_length()
    digits = "".join(f"{level:0{width}b}" for level in levels)
    digits += "0" * (-len(digits) % 8)
    return bytes(int(digits[at : at + 8], 2) for at in range(0, len(digits), 8))


def encoded(levels: Sequence[int], maximum: int, encoding: Encoding) -> bytes:
    if encoding is BIT_PACKED:
        return packed(levels, maximum)
    return rle.encode_prefixed(np.array(levels, np.uint8), maximum).tobytes()


LISTS = leaf_of("optional group a (LIST) { repeated group list { optional int32 element; } }")


@settings(deadline=None, max_examples=60)
@given(
    entries=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=40),
    encodings=st.tuples(st.sampled_from([RLE, BIT_PACKED]), st.sampled_from([RLE, BIT_PACKED])),
)
def test_bit_packed_levels_are_those_of_rle(
    entries: list[tuple[int, int]], encodings: tuple[Encoding, Encoding]
) -> None:
    repetition, definition = ([0, *(r for r, _ in entries[1:])], [d for _, d in entries])
    values = np.arange(definition.count(3), dtype=np.int32)
    for_definition, for_repetition = encodings
    body = encoded(repetition, 1, for_repetition) + encoded(definition, 3, for_definition) + values.tobytes()
    page = data_page(body, len(entries), Encoding.PLAIN, for_definition, for_repetition)
    found = decode(LISTS, page, repetition.count(0))
    assert found.repetition_levels is not None and found.repetition_levels.tolist() == repetition
    assert found.definition_levels is not None and found.definition_levels.tolist() == definition
    assert isinstance(found.values, np.ndarray)
    slots = [level for level in definition if level >= LISTS.slot_definition_level]
    present = np.array(slots) == 3
    assert found.values[present].tolist() == values.tolist()
    assert not found.values[~present].any()


def test_the_encoding_of_levels_that_are_not_there_means_nothing() -> None:
    required = leaf_of("required int32 a;")
    body = np.array([1, 2, 3], np.int32).tobytes()
    for declared in (BIT_PACKED, RLE, Encoding.PLAIN):
        found = decode(required, data_page(body, 3, Encoding.PLAIN, declared, declared), 3)
        assert isinstance(found.values, np.ndarray) and found.values.tolist() == [1, 2, 3]


def test_no_byte_too_few() -> None:
    optional = leaf_of("optional boolean a;")
    body = packed([0] * 17, 1)
    assert decode(optional, data_page(body, 17, Encoding.PLAIN, BIT_PACKED, BIT_PACKED), 17).num_rows == 17
    with pytest.raises(EncodingError, match="the definition levels take 3 bytes, but the page has 2 left"):
        decode(optional, data_page(body[:-1], 17, Encoding.PLAIN, BIT_PACKED, BIT_PACKED), 17)


def test_a_level_above_the_greatest() -> None:
    two = leaf_of("optional group a { optional int32 b; }")
    with pytest.raises(EncodingError, match="a level of 3 stands where the greatest is 2"):
        decode(two, data_page(packed([1, 3], 2), 2, Encoding.PLAIN, BIT_PACKED, BIT_PACKED), 2)


def test_levels_in_an_encoding_of_values() -> None:
    page = data_page(b"\x00", 1, Encoding.PLAIN, Encoding.DELTA_BINARY_PACKED, RLE)
    with pytest.raises(EncodingError, match="definition levels are said to be in encoding 5"):
        decode(leaf_of("optional int32 a;"), page, 1)


# --- dictionaries of BOOLEAN ----------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", [Encoding.RLE_DICTIONARY, Encoding.PLAIN_DICTIONARY])
def test_a_dictionary_of_booleans(encoding: Encoding) -> None:
    leaf = leaf_of("optional boolean a;")
    indices = np.array([1, 0, 0, 1, 1], np.int32)
    values = b"\x01" + kernels.rle_encode(indices, 1).tobytes()
    levels = encoded([1, 0, 1, 1, 0, 1, 1], 1, RLE)
    found = decode(leaf, dictionary_page(b"\x01", 2) + data_page(levels + values, 7, encoding, RLE, RLE), 7)
    assert isinstance(found.values, np.ndarray) and found.values.dtype == np.bool_
    assert found.present is not None and found.present.tolist() == [
        True,
        False,
        True,
        True,
        False,
        True,
        True,
    ]
    # The dictionary is true, false.
    assert found.values[found.present].tolist() == [False, True, True, False, False]


def test_a_dictionary_of_more_booleans_than_it_has_bits() -> None:
    page = data_page(b"\x00", 1, Encoding.RLE_DICTIONARY, RLE, RLE)
    for count in (9, 2**31 - 1):
        with pytest.raises(EncodingError, match=f"a dictionary of {count} values does not fit in 1 bytes"):
            decode(leaf_of("required boolean a;"), dictionary_page(b"\x01", count) + page, 1)


# --- prefixes that cross pages --------------------------------------------------------------------------


def prefixed(prefixes: list[int], suffixes: list[bytes]) -> bytes:
    sizes = np.array([len(suffix) for suffix in suffixes], np.int32)
    lengths = kernels.delta_binary_encode(np.array(prefixes, np.int32)).tobytes()
    body = lengths + kernels.delta_binary_encode(sizes).tobytes() + b"".join(suffixes)
    return data_page(body, len(prefixes), Encoding.DELTA_BYTE_ARRAY, RLE, RLE)


def test_a_page_goes_on_from_the_one_before() -> None:
    # PARQUET-246: parquet-mr before 1.8 did so.
    pages = prefixed([0, 4], [b"bakery", b"d"]) + prefixed([3, 0], [b"ing", b""]) + prefixed([0, 0], [b"oven", b"x"])
    found = decode(leaf_of("required binary a;"), pages, 6)
    assert isinstance(found.values, ByteArrays)
    assert [found.values.value(i) for i in range(6)] == [b"bakery", b"baked", b"baking", b"", b"oven", b"x"]

    fixed = prefixed([0, 3], [b"cats", b"e"]) + prefixed([1, 4], [b"ure", b""])
    found = decode(leaf_of("required fixed_len_byte_array(4) a;"), fixed, 4)
    assert isinstance(found.values, np.ndarray)
    assert [row.tobytes() for row in found.values] == [b"cats", b"cate", b"cure", b"cure"]


def test_a_page_does_not_go_on_from_another() -> None:
    pages = prefixed([0], [b"one"]) + prefixed([0], [b"two"]) + prefixed([1], [b"en"])
    leaf = leaf_of("required binary a;")
    assert decode(leaf, pages, 3).num_rows == 3
    with pytest.raises(EncodingError, match="longer than the value before"):
        decode(leaf, pages, 2, left_out=[1])  # its first letter would be another
    with pytest.raises(EncodingError, match="longer than the value before"):
        decode(leaf, prefixed([1], [b"en"]), 1)
