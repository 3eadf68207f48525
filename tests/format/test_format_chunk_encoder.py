"""Chunks as they are written: where pages are cut, what their headers, indexes, sums and metadata say."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import make_dataclass
from importlib.util import find_spec, module_from_spec
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq import memory_pool
from resilient_pq.checksum import unsigned
from resilient_pq.errors import SchemaError
from resilient_pq.format.file_metadata import CompressionCodec, Encoding, PageType, Type
from resilient_pq.format.levels import slice_rows
from resilient_pq.format.pages import chunk_options
from resilient_pq.format.pages.chunk_encoder import ChunkOptions, EncodedChunk, encode_chunk
from resilient_pq.format.pages.page import Page, check_crc, pages_of
from resilient_pq.format.physical_values import ByteArrays, LeafData
from resilient_pq.format.schema_tree import Leaf

Make = Callable[..., Any]
CODECS = [
    CompressionCodec.UNCOMPRESSED,
    CompressionCodec.SNAPPY,
    CompressionCodec.GZIP,
    CompressionCodec.ZSTD,
]


def _pages(chunk: EncodedChunk) -> list[Page]:
    return list(pages_of(memoryview(b"".join(chunk.buffers)), 0))


def _data_pages(chunk: EncodedChunk) -> list[Page]:
    return [page for page in _pages(chunk) if page.header.type != PageType.DICTIONARY_PAGE]


def _assert_consistent(leaf: Leaf, chunk: EncodedChunk, num_rows: int) -> None:
    """Everything that a chunk says of itself is true of its bytes."""
    data = b"".join(chunk.buffers)
    pages = _pages(chunk)
    assert chunk.size == len(data) == chunk.metadata.total_compressed_size
    assert chunk.crc == zlib.crc32(data)
    assert chunk.headers == b"".join(bytes(page.header_bytes) for page in pages)
    assert [unsigned(crc) for crc in chunk.header_crcs] == [zlib.crc32(page.header_bytes) for page in pages]
    assert all(check_crc(page) for page in pages)
    sizes = [len(page.header_bytes) + page.header.uncompressed_page_size for page in pages]
    assert chunk.metadata.total_uncompressed_size == sum(sizes)
    data_pages = _data_pages(chunk)
    assert chunk.metadata.num_values == sum(page.num_values for page in data_pages)
    assert chunk.metadata.data_page_offset == data_pages[0].offset
    assert chunk.offset_index is not None
    places = chunk.offset_index.page_locations
    assert [(p.offset, p.compressed_page_size) for p in places] == [
        (page.offset, page.end - page.offset) for page in data_pages
    ]
    first_rows = [place.first_row_index for place in places]
    assert first_rows[0] == 0 and first_rows == sorted(set(first_rows)) and first_rows[-1] < max(num_rows, 1)
    dictionaries = [page for page in pages if page.header.type == PageType.DICTIONARY_PAGE]
    assert len(dictionaries) <= 1
    if dictionaries:
        assert pages[0] is dictionaries[0] and chunk.dictionary_page is not None
        assert chunk.dictionary_body == bytes(dictionaries[0].body)
        assert chunk.metadata.dictionary_page_offset == chunk.dictionary_page.offset == 0
    else:
        assert chunk.dictionary_page is None and chunk.dictionary_body is None
        assert chunk.metadata.dictionary_page_offset is None
    headers = [page.data_header or page.header.dictionary_page_header for page in pages]
    used = [
        (page.header.type, header.encoding) for page, header in zip(pages, headers, strict=True) if header is not None
    ]
    stats = chunk.metadata.encoding_stats
    assert stats is not None
    assert Counter({(stat.page_type, stat.encoding): stat.count for stat in stats}) == Counter(used)
    levels = {
        encoding
        for page in data_pages
        for maximum, kind in ((leaf.max_definition_level, "definition"), (leaf.max_repetition_level, "repetition"))
        if maximum
        for encoding in (getattr(page.data_header, f"{kind}_level_encoding", Encoding.RLE),)
    }
    assert set(chunk.metadata.encodings) == {encoding for _, encoding in used} | levels
    assert chunk.metadata.path_in_schema == list(leaf.path)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_numbers(
    leaf_of: Make, flat: Make, encode: Make, decoded: Make, rows_of: Make, version: int, codec: Any
) -> None:
    leaf = leaf_of(Type.INT64)
    rows = [None if i % 7 == 0 else i * i for i in range(1000)]
    chunk = encode(leaf, flat(leaf, rows), codec=codec, level=1, version=version, page_rows=150)
    _assert_consistent(leaf, chunk, 1000)
    assert len(_data_pages(chunk)) == 7
    kind = PageType.DATA_PAGE if version == 1 else PageType.DATA_PAGE_V2
    assert {page.header.type for page in _data_pages(chunk)} == {kind}
    assert rows_of(decoded(leaf, chunk, num_rows=1000)) == rows


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(0, 1))
def test_pages_with_nulls_and_without(
    leaf_of: Make, flat: Make, encode: Make, decoded: Make, rows_of: Make, with_nulls: list[bool], unset: int
) -> None:
    """Whatever the memory held before that their flags are put into."""
    leaf = leaf_of(Type.INT64)
    rows = [None if nulls and i == 5 else i for nulls in with_nulls for i in range(10)]
    chunk = encode(leaf, flat(leaf, rows), page_rows=10)
    assert len(_data_pages(chunk)) == len(with_nulls)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_pool, "empty", lambda shape, dtype: np.full(shape, unset, dtype))
        assert rows_of(decoded(leaf, chunk, num_rows=len(rows))) == rows


@pytest.mark.parametrize("version", [1, 2])
def test_lists_are_cut_between_rows(leaf_of: Make, lists: Make, encode: Make, decoded: Make, version: int) -> None:
    leaf = leaf_of(Type.INT32, lists=1)
    rows = [None if i % 5 == 0 else [None if j == 1 else j for j in range(i % 7)] for i in range(200)]
    data = lists(leaf, rows)
    chunk = encode(leaf, data, version=version, page_rows=9, dictionary_bytes=0)
    _assert_consistent(leaf, chunk, 200)
    pages = _data_pages(chunk)
    assert len(pages) == 23
    column = decoded(leaf, chunk, num_rows=200)
    assert np.array_equal(column.repetition_levels, data.repetition_levels)
    assert np.array_equal(column.definition_levels, data.definition_levels)
    starts = np.flatnonzero(data.repetition_levels == 0)
    entries = np.cumsum([0, *(page.num_values for page in pages)])
    first_rows = [place.first_row_index for place in chunk.offset_index.page_locations]
    assert [int(starts[row]) for row in first_rows] == list(entries[:-1])
    if version == 2:
        headers = [page.header.data_page_header_v2 for page in pages]
        assert [header.num_rows for header in headers if header] == list(np.diff([*first_rows, 200]))
        assert sum(header.num_nulls for header in headers if header) == len(data.definition_levels) - len(data.values)


def test_one_long_row_is_one_page(leaf_of: Make, lists: Make, encode: Make) -> None:
    leaf = leaf_of(Type.INT64, lists=1)
    rows = [[1], list(range(5_000)), [2]]
    chunk = encode(leaf, lists(leaf, rows), page_bytes=100, dictionary_bytes=0)
    _assert_consistent(leaf, chunk, 3)
    assert max(page.num_values for page in _data_pages(chunk)) >= 5_000


def test_pages_are_about_as_large_as_asked(leaf_of: Make, flat: Make, encode: Make) -> None:
    leaf = leaf_of(Type.INT64, optional=False)
    chunk = encode(
        leaf,
        flat(leaf, range(10_000)),
        page_bytes=8_000,
        codec=CompressionCodec.UNCOMPRESSED,
        encoding=Encoding.PLAIN,
    )
    sizes = [len(page.body) for page in _data_pages(chunk)]
    assert len(sizes) == 10 and max(sizes) == min(sizes) == 8_000


def test_pages_of_strings_are_cut_by_their_bytes(leaf_of: Make, flat: Make, encode: Make) -> None:
    leaf = leaf_of(Type.BYTE_ARRAY)
    rows = [None if i % 3 == 0 else b"x" * (1 + i) for i in range(300)]
    chunk = encode(leaf, flat(leaf, rows), page_bytes=3_000, codec=CompressionCodec.UNCOMPRESSED, dictionary_bytes=0)
    _assert_consistent(leaf, chunk, 300)
    sizes = [len(page.body) for page in _data_pages(chunk)]
    assert len(sizes) > 5 and max(sizes) < 3_600
    counts = [page.num_values for page in _data_pages(chunk)]
    assert counts[0] > 2 * counts[-1]


def test_dictionary_where_it_pays(leaf_of: Make, flat: Make, encode: Make, decoded: Make, rows_of: Make) -> None:
    leaf = leaf_of(Type.BYTE_ARRAY)
    few = [None if i % 9 == 0 else b"value %d" % (i % 5) for i in range(500)]
    chunk = encode(leaf, flat(leaf, few), page_rows=100)
    _assert_consistent(leaf, chunk, 500)
    header = _pages(chunk)[0].header.dictionary_page_header
    assert header is not None and header.num_values == 5 and header.encoding == Encoding.PLAIN
    assert {page.header.data_page_header.encoding for page in _data_pages(chunk)} == {Encoding.RLE_DICTIONARY}  # type: ignore[union-attr]
    assert rows_of(decoded(leaf, chunk, num_rows=500)) == few
    many = [b"value %d" % i for i in range(500)]
    chunk = encode(leaf, flat(leaf, many))
    assert chunk.dictionary_page is None and rows_of(decoded(leaf, chunk, num_rows=500)) == many


def test_dictionary_on_request_and_never_beyond_its_limit(leaf_of: Make, flat: Make, encode: Make) -> None:
    leaf = leaf_of(Type.INT64, optional=False)
    data = flat(leaf, range(100))
    asked = {"encoding": Encoding.RLE_DICTIONARY}
    assert encode(leaf, data, **asked).dictionary_page is not None
    assert encode(leaf, data, **asked, dictionary_bytes=800).dictionary_page is not None
    refused = encode(leaf, data, **asked, dictionary_bytes=799)
    assert refused.dictionary_page is None and int(Encoding.PLAIN) in refused.metadata.encodings
    assert encode(leaf, data, **asked, dictionary_bytes=0).dictionary_page is None
    assert encode(leaf, flat(leaf, [7] * 100), encoding=Encoding.PLAIN).dictionary_page is None


@pytest.mark.parametrize("encoding", [None, Encoding.PLAIN, Encoding.RLE])
@pytest.mark.parametrize("version", [1, 2])
def test_booleans(
    leaf_of: Make,
    flat: Make,
    encode: Make,
    decoded: Make,
    rows_of: Make,
    encoding: Encoding | None,
    version: int,
) -> None:
    leaf = leaf_of(Type.BOOLEAN)
    rows = [None if i % 5 == 0 else i % 3 == 0 for i in range(77)]
    chunk = encode(leaf, flat(leaf, rows), encoding=encoding, version=version, page_rows=10)
    _assert_consistent(leaf, chunk, 77)
    assert rows_of(decoded(leaf, chunk, num_rows=77)) == rows


@pytest.mark.parametrize("rows", [[], [None], [None] * 30, [b""] * 30, [b"only one"]], ids=len)
@pytest.mark.parametrize("version", [1, 2])
def test_little_or_nothing(
    leaf_of: Make, flat: Make, encode: Make, decoded: Make, rows_of: Make, rows: list[Any], version: int
) -> None:
    leaf = leaf_of(Type.BYTE_ARRAY)
    chunk = encode(leaf, flat(leaf, rows), version=version)
    _assert_consistent(leaf, chunk, len(rows))
    assert rows_of(decoded(leaf, chunk, num_rows=len(rows))) == rows


def test_statistics_on_and_off(leaf_of: Make, flat: Make, encode: Make) -> None:
    leaf = leaf_of(Type.INT32)
    rows = [None, 5, -3, 9, None, 1]
    chunk = encode(leaf, flat(leaf, rows), page_rows=2)
    statistics, index = chunk.metadata.statistics, chunk.column_index
    assert statistics.null_count == 2
    assert (statistics.min_value, statistics.max_value) == (b"\xfd\xff\xff\xff", b"\x09\0\0\0")
    assert index.null_counts == [1, 0, 1] and index.null_pages == [False] * 3
    without = encode(leaf, flat(leaf, rows), statistics=False)
    assert without.metadata.statistics is None and without.column_index is None and without.offset_index


def test_place_makes_all_offsets_absolute(leaf_of: Make, flat: Make, encode: Make) -> None:
    leaf = leaf_of(Type.INT32)
    chunk = encode(leaf, flat(leaf, [1, 1, 1, 1] * 100), page_rows=50)
    before = [place.offset for place in chunk.offset_index.page_locations]
    chunk.place(10_000)
    assert [place.offset for place in chunk.offset_index.page_locations] == [10_000 + at for at in before]
    assert chunk.metadata.data_page_offset == 10_000 + before[0]
    assert chunk.metadata.dictionary_page_offset == chunk.dictionary_page.offset == 10_000


def test_values_of_another_type_are_refused(leaf_of: Make, flat: Make) -> None:
    numbers, strings = leaf_of(Type.INT32), leaf_of(Type.BYTE_ARRAY)
    four, five = (leaf_of(Type.FIXED_LEN_BYTE_ARRAY, length=length) for length in (4, 5))
    cases = [
        (numbers, flat(strings, [b"a"])),
        (strings, flat(numbers, [1])),
        (leaf_of(Type.INT64), flat(numbers, [1])),
        (four, flat(five, [b"abcde"])),
    ]
    for leaf, data in cases:
        with pytest.raises(SchemaError, match="values do not fit"):
            encode_chunk(leaf, [data], ChunkOptions())


# --- pieces -------------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_pieces_make_the_same_bytes_as_the_whole(leaf_of: Make, flat: Make, lists: Make, data: st.DataObject) -> None:
    nested = data.draw(st.booleans())
    kind = data.draw(st.sampled_from([Type.INT32, Type.BYTE_ARRAY, Type.BOOLEAN]))
    leaf = leaf_of(kind, lists=int(nested))
    value = {
        Type.INT32: st.integers(0, 9),
        Type.BYTE_ARRAY: st.binary(max_size=3),
        Type.BOOLEAN: st.booleans(),
    }[kind]
    element = st.none() | value
    row = st.none() | st.lists(element, max_size=3) if nested else element
    rows = data.draw(st.lists(row, min_size=1, max_size=30))
    whole: LeafData = (lists if nested else flat)(leaf, rows)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=4)) | {0, len(rows)})
    pieces = [slice_rows(leaf, whole, a, b) for a, b in pairwise(cuts)]
    options = ChunkOptions(page_rows=data.draw(st.integers(1, 9)), version=data.draw(st.sampled_from([1, 2])))
    one, several = encode_chunk(leaf, [whole], options), encode_chunk(leaf, pieces, options)
    assert b"".join(one.buffers) == b"".join(several.buffers)
    assert one.metadata == several.metadata and one.column_index == several.column_index
    _assert_consistent(leaf, several, len(rows))


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_pieces_without_values_do_not_decide_the_layout(
    leaf_of: Make, flat: Make, decoded: Make, rows_of: Make, empty: int
) -> None:
    """An array of no rows counts as contiguous whatever its strides are: the others must be so still."""
    leaf = leaf_of(Type.FIXED_LEN_BYTE_ARRAY, length=4)
    reversed_rows = np.zeros((0, 16), np.uint8)[:, :4][:, ::-1]
    nulls = LeafData(2, np.zeros(2, np.uint8), None, reversed_rows)
    pieces = [flat(leaf, [b"abcd"]), flat(leaf, [b"efgh"])]
    pieces.insert(empty, nulls)
    rows: list[Any] = [b"abcd", b"efgh"]
    rows[empty:empty] = [None, None]
    for dictionary_bytes in (0, 1000):
        chunk = encode_chunk(leaf, pieces, ChunkOptions(dictionary_bytes=dictionary_bytes))
        assert rows_of(decoded(leaf, chunk, num_rows=4)) == rows


def test_strings_whose_offsets_do_not_begin_at_zero(leaf_of: Make, encode: Make, decoded: Make, rows_of: Make) -> None:
    leaf = leaf_of(Type.BYTE_ARRAY, optional=False)
    values = ByteArrays(np.array([3, 5, 5, 9], np.int64), np.frombuffer(b"xxxabccccyyy", np.uint8))
    for dictionary_bytes in (0, 1000):
        options = {"dictionary_bytes": dictionary_bytes, "page_rows": 2}
        chunk = encode(leaf, LeafData(3, None, None, values), **options)
        assert rows_of(decoded(leaf, chunk, num_rows=3)) == [b"ab", b"", b"cccc"]


def test_an_option_that_compiled_chunks_do_not_know_is_left_to_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that is added to `ChunkOptions` is not ignored in small chunks."""
    more = make_dataclass("ChunkOptions", [("extra", bool, True)], bases=(ChunkOptions,), frozen=True)
    monkeypatch.setattr(chunk_options, "ChunkOptions", more)
    specification = find_spec("resilient_pq.format.pages.flat_chunk")
    assert specification is not None and specification.loader is not None
    flat_chunk = module_from_spec(specification)
    specification.loader.exec_module(flat_chunk)
    assert flat_chunk.has_common_options(more())
    assert not flat_chunk.has_common_options(more(extra=False))
