"""Chunks as they are read: what is damaged is one of our errors and names its page, whatever the bytes say."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from resilient_pq.errors import EncodingError, FormatError, ResilientPQError, UnsupportedError
from resilient_pq.format import compact_protocol
from resilient_pq.format.encodings.dictionary import decode_indices
from resilient_pq.format.file_metadata import (
    CompressionCodec,
    DataPageHeader,
    Encoding,
    PageHeader,
    PageType,
    Type,
)
from resilient_pq.format.pages.chunk_decoder import decode_chunk
from resilient_pq.format.pages.page import Page, pages_of
from resilient_pq.format.physical_values import ByteArrays, ByteCodes, ByteLayout, ByteViews, LeafData

Make = Callable[..., Any]
NONE = CompressionCodec.UNCOMPRESSED


def _pages(data: bytes, base: int = 0) -> list[Page]:
    return list(pages_of(memoryview(data), base))


def _bytes(chunk: Any) -> bytes:
    return b"".join(bytes(buffer) for buffer in chunk.buffers)


def _v1(body: bytes, num_values: int, encoding: int = Encoding.PLAIN) -> bytes:
    header = PageHeader(0, len(body), len(body), data_page_header=DataPageHeader(num_values, int(encoding), 3, 3))
    return compact_protocol.encode(header) + body


@pytest.mark.parametrize(
    ("kind", "length", "rows"),
    [
        (Type.BOOLEAN, None, [True, None, False]),
        (Type.INT32, None, [-(2**31), None, 2**31 - 1]),
        (Type.INT64, None, [-(2**63), None, 2**63 - 1]),
        (Type.FLOAT, None, [1.5, None, float("-inf")]),
        (Type.DOUBLE, None, [1.1, None, 5e-324]),
        (Type.INT96, None, [bytes(range(12)), None, b"\xff" * 12]),
        (Type.FIXED_LEN_BYTE_ARRAY, 3, [b"abc", None, b"\0\0\0"]),
        (Type.BYTE_ARRAY, None, [b"", None, b"\xff" * 40]),
    ],
)
@pytest.mark.parametrize("encoding", [Encoding.PLAIN, Encoding.RLE_DICTIONARY])
@pytest.mark.parametrize("version", [1, 2])
def test_every_physical_type(
    leaf_of: Make, flat: Make, encode: Make, decoded: Make, rows_of: Make, kind: Type, length: int | None,
    rows: list[Any], encoding: Encoding, version: int,
) -> None:  # fmt: skip
    leaf = leaf_of(kind, length=length)
    chunk = encode(leaf, flat(leaf, rows * 40), encoding=encoding, version=version, page_rows=7)
    assert rows_of(decoded(leaf, chunk, num_rows=120)) == rows * 40


def test_null_slots_hold_nothing(leaf_of: Make, flat: Make, encode: Make, decoded: Make) -> None:
    leaf = leaf_of(Type.INT64)
    column = decoded(leaf, encode(leaf, flat(leaf, [7, None, None, 8])), num_rows=4)
    assert column.values.tolist() == [7, 0, 0, 8] and column.present.tolist() == [True, False, False, True]
    strings = leaf_of(Type.BYTE_ARRAY)
    column = decoded(strings, encode(strings, flat(strings, [b"a", None, b"b"])), num_rows=3)
    assert column.values.offsets.tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("layout", ByteLayout)
def test_byte_arrays_come_in_the_layout_that_is_asked_for(
    leaf_of: Make, flat: Make, encode: Make, layout: ByteLayout
) -> None:
    leaf = leaf_of(Type.BYTE_ARRAY)
    chunk = encode(leaf, flat(leaf, [b"a", b"b"]), encoding=Encoding.RLE_DICTIONARY)
    values = decode_chunk(leaf, chunk.metadata.codec, _pages(_bytes(chunk)), 2, layout=layout).values
    kinds = {ByteLayout.ARRAYS: ByteArrays, ByteLayout.VIEWS: ByteViews, ByteLayout.CODES: ByteCodes}
    assert type(values) is kinds[layout]


def test_no_mask_where_nothing_is_null(leaf_of: Make, flat: Make, encode: Make, decoded: Make) -> None:
    leaf = leaf_of(Type.INT64)
    assert decoded(leaf, encode(leaf, flat(leaf, [1, 2])), num_rows=2).present is None


def test_pages_of_some_rows_alone(leaf_of: Make, flat: Make, encode: Make, rows_of: Make) -> None:
    leaf = leaf_of(Type.INT32)
    rows = flat(leaf, [i % 3 for i in range(100)])
    chunk = encode(leaf, rows, page_rows=10, encoding=Encoding.RLE_DICTIONARY)
    pages = _pages(_bytes(chunk))
    assert pages[0].header.type == PageType.DICTIONARY_PAGE
    column = decode_chunk(leaf, chunk.metadata.codec, [pages[0], pages[3], pages[4]], 20)
    assert rows_of(column) == [i % 3 for i in range(20, 40)]


def test_another_number_of_rows(leaf_of: Make, flat: Make, lists: Make, encode: Make, decoded: Make) -> None:
    leaf = leaf_of(Type.INT32)
    with pytest.raises(FormatError, match="the pages hold 3 rows instead of 4"):
        decoded(leaf, encode(leaf, flat(leaf, [1, 2, 3])), num_rows=4)
    nested = leaf_of(Type.INT32, lists=1)
    with pytest.raises(FormatError, match="the pages hold 2 rows instead of 5"):
        decoded(nested, encode(nested, lists(nested, [[1, 2], [3, 4, 5]])), num_rows=5)
    with pytest.raises(FormatError, match="the pages hold 0 rows instead of 1"):
        decode_chunk(leaf, NONE, [], 1)
    assert len(decode_chunk(leaf, NONE, [], 0).values) == 0


DAMAGED: dict[str, tuple[bytes, int, type[ResilientPQError], str]] = {
    "too few bytes": (_v1(b"\x02\0\0\0\x04\x01" + b"1234", 2), 2, EncodingError, "PLAIN values take 8 bytes"),
    "levels end early": (_v1(b"\x02\0\0\0\x02\x01" + b"1234", 2), 2, EncodingError, "."),
    "indices without a dictionary": (
        _v1(b"\x02\0\0\0\x02\x01" + b"\x01\x02\x00", 1, Encoding.RLE_DICTIONARY), 1, EncodingError,
        "without a dictionary page"),
    "an encoding of the future": (_v1(b"\x02\0\0\0\x02\x01" + b"1234", 1, 77), 1, UnsupportedError, "encoding 77"),
    "an encoding of another type": (
        _v1(b"\x02\0\0\0\x02\x01" + b"1234", 1, Encoding.DELTA_BYTE_ARRAY), 1, UnsupportedError, "DELTA_BYTE_ARRAY"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_pages_are_named(leaf_of: Make, name: str) -> None:
    data, num_rows, kind, message = DAMAGED[name]
    sound = _v1(b"\x02\0\0\0\x02\x01" + b"1234", 1)
    with pytest.raises(kind, match=message) as caught:
        decode_chunk(leaf_of(Type.INT32), NONE, _pages(sound + data, 500), 1 + num_rows)
    assert (caught.value.where.page, caught.value.where.offset) == (1, 500 + len(sound))


@pytest.mark.parametrize(("kind", "plain"), [(Type.FIXED_LEN_BYTE_ARRAY, b""), (Type.BYTE_ARRAY, b"\x02\0\0\0")])
def test_a_prefix_goes_on_from_the_page_before_and_from_no_earlier_one(leaf_of: Make, kind: Type, plain: bytes) -> None:
    """As with the prefixes of old parquet-mr, which go on from page to page."""
    leaf = leaf_of(kind, length=2 if kind is Type.FIXED_LEN_BYTE_ARRAY else None)
    levels, delta = b"\x02\0\0\0\x02\x01", b"\x80\x01\x04\x01"  # one value: its number follows, doubled
    first = _v1(levels + delta + b"\0" + delta + b"\x04ab", 1, Encoding.DELTA_BYTE_ARRAY)
    second = _v1(levels + delta + b"\x02" + delta + b"\x02x", 1, Encoding.DELTA_BYTE_ARRAY)
    between = _v1(levels + plain + b"cd", 1)
    found = decode_chunk(leaf, NONE, _pages(first + second), 2).values
    assert (found.data if kind is Type.BYTE_ARRAY else found).tobytes() == b"abax"
    with pytest.raises(EncodingError) as caught:
        decode_chunk(leaf, NONE, _pages(first + between + second), 3)
    assert caught.value.where.page == 2


def test_levels_above_the_greatest(leaf_of: Make) -> None:
    leaf = leaf_of(Type.INT32, lists=2)
    assert leaf.max_definition_level == 5  # so that three bits hold more
    run_of_sixes = b"\x02\0\0\0\x02\x06"
    data = _v1(b"\x02\0\0\0\x02\x00" + run_of_sixes + b"1234", 1)
    with pytest.raises(EncodingError, match="a level of 6 stands where the greatest is 5"):
        decode_chunk(leaf, NONE, _pages(data), 1)


def test_two_billion_values_in_a_small_page_make_no_room(leaf_of: Make) -> None:
    data = _v1(b"\x02\0\0\0\x02\x01" + b"1234", 2**31 - 1)
    with pytest.raises(FormatError, match="hold 2,147,483,647 rows instead of 1"):
        decode_chunk(leaf_of(Type.INT32), NONE, _pages(data), 1)


def test_a_page_of_another_type_is_not_counted(leaf_of: Make) -> None:
    """Its header may still hold that of a data page: a changed type must not leave rows without values."""
    sound = _v1(b"\x02\0\0\0\x02\x01" + b"1234", 1)
    header = PageHeader(PageType.INDEX_PAGE, 10, 10, data_page_header=DataPageHeader(1, int(Encoding.PLAIN), 3, 3))
    index = compact_protocol.encode(header) + b"\x02\0\0\0\x02\x01" + b"1234"
    for data in (sound + index, index + sound):
        assert len(decode_chunk(leaf_of(Type.INT32), NONE, _pages(data), 1).values) == 1
        with pytest.raises(FormatError, match="hold 1 rows instead of 2"):
            decode_chunk(leaf_of(Type.INT32), NONE, _pages(data), 2)


def test_dictionary_indices_beyond_the_dictionary(leaf_of: Make, flat: Make, encode: Make) -> None:
    for kind, rows in ((Type.INT32, [5, 6, 7] * 5), (Type.BYTE_ARRAY, [b"a", b"b", b"c"] * 5)):
        leaf = leaf_of(kind, optional=False)
        options = {"encoding": Encoding.RLE_DICTIONARY, "codec": NONE}
        data = bytearray(_bytes(encode(leaf, flat(leaf, rows), **options)))
        assert len(_pages(bytes(data))) == 2
        data[-1] = 0xFF  # bit-packed indices of two bits: 3 is beyond the dictionary
        with pytest.raises(EncodingError) as caught:
            decode_chunk(leaf, NONE, _pages(bytes(data)), 15)
        assert caught.value.where.page == 1


@pytest.mark.parametrize(
    ("kind", "length", "rows"),
    [
        (Type.INT64, None, [None if i % 5 == 0 else i % 7 for i in range(60)]),
        (Type.BYTE_ARRAY, None, [None if i % 5 == 0 else b"text %d" % (i % 7) for i in range(60)]),
        (Type.BOOLEAN, None, [None if i % 5 == 0 else i % 3 == 0 for i in range(60)]),
        (Type.FIXED_LEN_BYTE_ARRAY, 2, [bytes([i % 3, 7]) for i in range(60)]),
    ],
    ids=["numbers", "strings", "booleans", "fixed"],
)
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "lists"])
@pytest.mark.parametrize("version", [1, 2])
def test_changed_bytes_are_some_column_or_one_of_our_errors(
    leaf_of: Make, flat: Make, lists: Make, encode: Make, kind: Type, length: int | None, rows: list[Any],
    nested: bool, version: int,
) -> None:  # fmt: skip
    leaf = leaf_of(kind, length=length, lists=int(nested))
    data = lists(leaf, [[row] * (i % 3) for i, row in enumerate(rows)]) if nested else flat(leaf, rows)
    rng = random.Random(f"{kind}{nested}{version}")
    for codec in (NONE, CompressionCodec.SNAPPY):
        sound = _bytes(encode(leaf, data, version=version, page_rows=25, codec=codec))
        refused = 0
        for _ in range(250):
            damaged = bytearray(sound)
            for _ in range(rng.randint(1, 3)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            try:
                column = decode_chunk(leaf, codec, _pages(bytes(damaged)), 60)
            except ResilientPQError:
                refused += 1
                continue
            assert column.num_rows == 60
            assert nested or len(column.values) == 60
        assert refused > 20


def test_every_cut_of_a_chunk_is_refused(leaf_of: Make, flat: Make, encode: Make) -> None:
    leaf = leaf_of(Type.BYTE_ARRAY)
    sound = _bytes(encode(leaf, flat(leaf, [b"a", None, b"ccc"] * 10), page_rows=8))
    for size in range(len(sound)):
        with pytest.raises(FormatError):
            decode_chunk(leaf, CompressionCodec.ZSTD, _pages(sound[:size]), 30)


def test_decoded_values_do_not_change_with_the_bytes(leaf_of: Make, flat: Make, encode: Make, rows_of: Make) -> None:
    """A column owns its memory: the fetched block may be used again."""
    for kind, rows in ((Type.INT64, [1, 2, 3]), (Type.BYTE_ARRAY, [b"one", b"two", b"three"])):
        leaf = leaf_of(kind, optional=False)
        data = bytearray(_bytes(encode(leaf, flat(leaf, rows), codec=NONE, dictionary_bytes=0)))
        column = decode_chunk(leaf, NONE, list(pages_of(memoryview(data), 0)), 3)
        data[:] = bytes(len(data))
        assert rows_of(column) == rows


def test_a_fixed_length_of_zero(leaf_of: Make, decoded: Make, encode: Make) -> None:
    leaf = leaf_of(Type.FIXED_LEN_BYTE_ARRAY, length=0, optional=False)
    chunk = encode(leaf, LeafData(5, None, None, np.zeros((5, 0), np.uint8)))
    assert decoded(leaf, chunk, num_rows=5).values.shape == (5, 0)


def test_levels_are_not_read_as_dictionary_indices() -> None:
    """The length of levels, 3, reads as a width of three bits and two runs of no values."""
    levels = memoryview(bytes.fromhex("03000000057f01" + "030388c6fa"))
    with pytest.raises(EncodingError, match="a run of no values"):
        decode_indices(levels, 10)
