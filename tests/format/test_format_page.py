"""Pages: headers that contradict themselves, pages that go beyond their chunk, checksums, and both versions' levels."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from resilient_pq.checksum import signed
from resilient_pq.errors import ChecksumError, EncodingError, FormatError, ThriftError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import (
    CompressionCodec,
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    Encoding,
    PageHeader,
    PageType,
    Type,
)
from resilient_pq.format.pages.page import Page, check_crc, open_data_page, pages_of, read_header

PLAIN, RLE = int(Encoding.PLAIN), int(Encoding.RLE)
NONE = CompressionCodec.UNCOMPRESSED
LEVELS = {"definition_level_encoding": 3, "repetition_level_encoding": 3}


def _v1(body: bytes, num_values: int = 1, *, crc: bool = True, **rest: Any) -> bytes:
    header = PageHeader(
        type=int(PageType.DATA_PAGE), uncompressed_page_size=len(body), compressed_page_size=len(body),
        crc=signed(zlib.crc32(body)) if crc else None,
        data_page_header=DataPageHeader(**{"num_values": num_values, "encoding": PLAIN, **LEVELS, **rest}),
    )  # fmt: skip
    return compact_protocol.encode(header) + body


def _v2(levels: bytes, values: bytes, *, size: int | None = None, **rest: Any) -> bytes:
    detail = {
        "num_values": 1, "num_nulls": 0, "num_rows": 1, "encoding": PLAIN,
        "definition_levels_byte_length": len(levels), "repetition_levels_byte_length": 0, "is_compressed": False,
        **rest,
    }  # fmt: skip
    body = levels + values
    header = PageHeader(
        type=int(PageType.DATA_PAGE_V2), uncompressed_page_size=len(body) if size is None else size,
        compressed_page_size=len(body), crc=signed(zlib.crc32(body)), data_page_header_v2=DataPageHeaderV2(**detail),
    )  # fmt: skip
    return compact_protocol.encode(header) + body


def _page(data: bytes) -> Page:
    (page,) = pages_of(memoryview(data), 0)
    return page


# --- headers ------------------------------------------------------------------------------------------------


CONTRADICTIONS = {
    "negative compressed size": (PageHeader(0, 1, -1, data_page_header=DataPageHeader(1, PLAIN, 3, 3)), "a size is negative"),
    "negative size": (PageHeader(0, -1, 1, data_page_header=DataPageHeader(1, PLAIN, 3, 3)), "a size is negative"),
    "v1 without its header": (PageHeader(0, 1, 1), "no DATA_PAGE header in it"),
    "v2 without its header": (PageHeader(3, 1, 1, data_page_header=DataPageHeader(1, PLAIN, 3, 3)), "no DATA_PAGE_V2 header"),
    "dictionary without its header": (PageHeader(2, 1, 1), "no DICTIONARY_PAGE header in it"),
    "negative values": (
        PageHeader(0, 1, 1, data_page_header=DataPageHeader(-1, PLAIN, 3, 3)), "a count in it is negative"),
    "levels in no encoding": (
        PageHeader(0, 1, 1, data_page_header=DataPageHeader(1, PLAIN, 115, 3)), "levels are encoded as 115"),
    "dictionary in no encoding": (
        PageHeader(2, 1, 1, dictionary_page_header=DictionaryPageHeader(1, 1)), "a dictionary is encoded as 1"),
    "negative rows": (
        PageHeader(3, 1, 1, data_page_header_v2=DataPageHeaderV2(1, 0, -1, PLAIN, 0, 0)), "a count in it is negative"),
    "negative dictionary": (
        PageHeader(2, 1, 1, dictionary_page_header=DictionaryPageHeader(-5, PLAIN)), "a count in it is negative"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_headers_that_contradict_themselves(name: str) -> None:
    header, message = CONTRADICTIONS[name]
    with pytest.raises(ThriftError, match=message):
        read_header(memoryview(compact_protocol.encode(header)), 0)


def test_a_header_and_where_its_body_begins() -> None:
    data = b"before" + _v1(b"body")
    header, body = read_header(memoryview(data), 6)
    assert data[body:] == b"body" and header.compressed_page_size == 4


def test_index_pages_are_passed_over_by_their_size() -> None:
    index = compact_protocol.encode(PageHeader(int(PageType.INDEX_PAGE), 5, 5)) + b"index"
    pages = list(pages_of(memoryview(_v1(b"a") + index + _v1(b"b")), 0))
    assert [page.num_values for page in pages] == [1, 0, 1]
    assert [bytes(page.body) for page in pages] == [b"a", b"index", b"b"]


# --- chunks of pages ----------------------------------------------------------------------------------------


def test_pages_one_after_the_other() -> None:
    parts = [_v1(b"one"), _v1(b""), _v2(b"", b"three")]
    pages = list(pages_of(memoryview(b"".join(parts)), 1000))
    assert [page.ordinal for page in pages] == [0, 1, 2]
    assert [page.offset for page in pages] == [1000, 1000 + len(parts[0]), 1000 + len(parts[0] + parts[1])]
    assert [bytes(page.header_bytes) + bytes(page.body) for page in pages] == parts
    assert pages[-1].end == 1000 + sum(map(len, parts))
    assert list(pages_of(memoryview(b""), 0)) == []


def test_a_page_beyond_its_chunk_is_refused_and_placed() -> None:
    data = _v1(b"first") + _v1(b"second")
    pages = pages_of(memoryview(data)[:-2], 100)
    assert bytes(next(pages).body) == b"first"
    with pytest.raises(EncodingError, match="2 bytes beyond its column chunk") as caught:
        next(pages)
    assert (caught.value.where.page, caught.value.where.offset) == (1, 100 + len(_v1(b"first")))


def test_a_page_of_two_gibibytes_costs_nothing() -> None:
    header = PageHeader(0, 2**31 - 1, 2**31 - 1, data_page_header=DataPageHeader(2**31 - 1, PLAIN, 3, 3))
    with pytest.raises(EncodingError, match="beyond its column chunk"):
        list(pages_of(memoryview(compact_protocol.encode(header) + b"x"), 0))


def test_garbage_between_pages_is_placed() -> None:
    data = _v1(b"first") + b"\xff" * 20
    with pytest.raises(ThriftError, match="page header is damaged") as caught:
        list(pages_of(memoryview(data), 0))
    assert (caught.value.where.page, caught.value.where.offset) == (1, len(_v1(b"first")))


def test_every_changed_byte_of_pages_is_some_pages_or_one_of_our_errors() -> None:
    data = _v1(b"first") + _v2(b"", b"second")
    rng = random.Random(3)
    for position in range(len(data)):
        for _ in range(8):
            damaged = bytearray(data)
            damaged[position] = rng.randrange(256)
            try:
                pages = list(pages_of(memoryview(damaged), 0))
            except FormatError:
                continue
            assert sum(len(page.header_bytes) + len(page.body) for page in pages) == len(data)


# --- checksums ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [_v1(b"the body of a page"), _v2(b"", b"the body of a page")], ids=["v1", "v2"])
def test_every_flipped_bit_of_a_body_is_found(data: bytes) -> None:
    assert check_crc(_page(data)) is True
    start = len(data) - len(b"the body of a page")
    for bit in range(8 * start, 8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ChecksumError) as caught:
            check_crc(_page(bytes(damaged)))
        assert caught.value.stored == zlib.crc32(b"the body of a page")
        assert caught.value.computed == zlib.crc32(damaged[start:])
        assert (caught.value.where.page, caught.value.where.offset) == (0, 0)


def test_a_page_without_a_checksum_is_not_checked() -> None:
    assert check_crc(_page(_v1(b"body", crc=False))) is False


@pytest.mark.parametrize("body", [b"", b"\x00", b"aaaa", b"a7"])
def test_checksums_of_either_sign(body: bytes) -> None:
    assert check_crc(_page(_v1(body)))


# --- levels and values --------------------------------------------------------------------------------------


def test_v1_levels_stand_behind_their_lengths(leaf_of: Callable[..., Any]) -> None:
    body = b"\x02\0\0\0RR" + b"\x03\0\0\0DDD" + b"values"
    nested = open_data_page(_page(_v1(body)), leaf_of(Type.INT32, lists=1), NONE)
    assert nested.repetition_levels is not None and bytes(nested.repetition_levels.data) == b"RR"
    assert nested.definition_levels is not None and bytes(nested.definition_levels.data) == b"DDD"
    assert bytes(nested.values) == b"values"
    flat = open_data_page(_page(_v1(body)), leaf_of(Type.INT32), NONE)
    assert flat.repetition_levels is None and flat.definition_levels is not None
    required = open_data_page(_page(_v1(body)), leaf_of(Type.INT32, optional=False), NONE)
    assert required.definition_levels is None and bytes(required.values) == body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "ends before the length of its definition levels"),
        (b"\x01\0\0", "ends before the length of its definition levels"),
        (b"\x05\0\0\0DDDD", "definition levels take 5 bytes, but the page has 4 left"),
        (b"\xff\xff\xff\xffDDDD", "definition levels take 4294967295 bytes"),
    ],
)
def test_v1_levels_beyond_the_page(leaf_of: Callable[..., Any], body: bytes, message: str) -> None:
    with pytest.raises(EncodingError, match=message):
        open_data_page(_page(_v1(body)), leaf_of(Type.INT32), NONE)


def test_levels_in_an_encoding_that_levels_cannot_have(leaf_of: Callable[..., Any]) -> None:
    data = _v1(b"\x01\0\0\0D", definition_level_encoding=int(Encoding.DELTA_BINARY_PACKED))
    with pytest.raises(EncodingError, match="encoding 5"):
        open_data_page(_page(data), leaf_of(Type.INT32), NONE)
    required = leaf_of(Type.INT32, optional=False)
    assert bytes(open_data_page(_page(data), required, NONE).values) == b"\x01\0\0\0D"


def test_v2_levels_are_told_by_the_header(leaf_of: Callable[..., Any]) -> None:
    data = _v2(b"RRDDD", b"values", repetition_levels_byte_length=2, definition_levels_byte_length=3)
    found = open_data_page(_page(data), leaf_of(Type.INT32, lists=1), NONE)
    assert found.repetition_levels is not None and bytes(found.repetition_levels.data) == b"RR"
    assert found.definition_levels is not None and bytes(found.definition_levels.data) == b"DDD"
    assert bytes(found.values) == b"values"


@pytest.mark.parametrize(("first", "second"), [(-1, 0), (0, -1), (0, 12), (12, 0), (2**31 - 1, 2**31 - 1), (5, 7)])
def test_v2_levels_beyond_the_page(leaf_of: Callable[..., Any], first: int, second: int) -> None:
    data = _v2(b"", b"x" * 11, repetition_levels_byte_length=first, definition_levels_byte_length=second)
    with pytest.raises(EncodingError, match="do not fit in a page of 11"):
        open_data_page(_page(data), leaf_of(Type.INT32, lists=1), NONE)


def test_v2_values_are_compressed_and_levels_are_not(leaf_of: Callable[..., Any]) -> None:
    packed = zlib.compress(b"values" * 9, wbits=31)
    data = _v2(b"DD", packed, size=2 + 54, is_compressed=True)
    found = open_data_page(_page(data), leaf_of(Type.INT32), CompressionCodec.GZIP)
    assert bytes(found.values) == b"values" * 9
    # Without the flag they are compressed as well (parquet.thrift, DataPageHeaderV2.is_compressed).
    data = _v2(b"DD", packed, size=2 + 54, is_compressed=None)
    assert bytes(open_data_page(_page(data), leaf_of(Type.INT32), CompressionCodec.GZIP).values) == b"values" * 9


def test_v2_pages_smaller_than_their_levels(leaf_of: Callable[..., Any]) -> None:
    data = _v2(b"DDDD", b"xx", size=3, is_compressed=True)
    with pytest.raises(EncodingError, match="smaller than its levels"):
        open_data_page(_page(data), leaf_of(Type.INT32), CompressionCodec.GZIP)


def test_only_data_pages_are_opened(leaf_of: Callable[..., Any]) -> None:
    data = compact_protocol.encode(PageHeader(2, 1, 1, dictionary_page_header=DictionaryPageHeader(1, PLAIN))) + b"x"
    with pytest.raises(FormatError, match="not a data page"):
        open_data_page(_page(data), leaf_of(Type.INT32), NONE)
