"""Pages that are decoded together give what they give one by one, sound or damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import ResilientPQError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import CompressionCodec, Encoding, Type
from resilient_pq.format.kernels.page_columns import PageField
from resilient_pq.format.pages import chunk_decoder, page_table
from resilient_pq.format.pages.chunk_decoder import decode_chunk
from resilient_pq.format.pages.page import pages_of
from resilient_pq.format.pages.page_table import PageTable
from resilient_pq.format.physical_values import ByteArrays, LeafColumn
from resilient_pq.format.schema_tree import Leaf

Make = Callable[..., Any]
KINDS: dict[tuple[Type, int | None], st.SearchStrategy[Any]] = {
    (Type.BOOLEAN, None): st.booleans(),
    (Type.INT32, None): st.integers(0, 5) | st.integers(-(2**31), 2**31 - 1),
    (Type.INT64, None): st.integers(0, 300),
    (Type.FLOAT, None): st.floats(width=32, allow_nan=False),
    (Type.DOUBLE, None): st.sampled_from([0.0, -0.0, 1.5]),
    (Type.INT96, None): st.binary(min_size=12, max_size=12),
    (Type.FIXED_LEN_BYTE_ARRAY, 3): st.binary(min_size=3, max_size=3),
    (Type.BYTE_ARRAY, None): st.binary(max_size=5),
}
ENCODINGS = {
    Type.BOOLEAN: [Encoding.PLAIN, Encoding.RLE],
    Type.INT32: [Encoding.DELTA_BINARY_PACKED, Encoding.BYTE_STREAM_SPLIT],
    Type.INT64: [Encoding.DELTA_BINARY_PACKED],
    Type.BYTE_ARRAY: [Encoding.DELTA_LENGTH_BYTE_ARRAY, Encoding.DELTA_BYTE_ARRAY],
    Type.FIXED_LEN_BYTE_ARRAY: [Encoding.DELTA_BYTE_ARRAY],
}
CODECS = [
    CompressionCodec.UNCOMPRESSED,
    CompressionCodec.SNAPPY,
    CompressionCodec.ZSTD,
    CompressionCodec.GZIP,
]


def _described(column: LeafColumn) -> Any:
    values = column.values
    parts = (values.offsets, values.data) if isinstance(values, ByteArrays) else (values,)
    arrays = [*parts, column.present, column.definition_levels, column.repetition_levels]
    return column.num_rows, [a if a is None else (a.dtype, a.shape, a.tobytes()) for a in arrays]


def _outcome(decode: Callable[[], LeafColumn]) -> Any:
    try:
        return _described(decode())
    except ResilientPQError as error:
        return type(error), str(error), error.where


def _in_three_ways(leaf: Leaf, codec: int, data: bytes, num_rows: int) -> list[Any]:
    """In runs, in runs of pages that have memory of their own, and page by page."""
    view = memoryview(data)
    together = _outcome(lambda: decode_chunk(leaf, codec, PageTable.read(view, 100), num_rows))
    apart = _outcome(lambda: decode_chunk(leaf, codec, list(pages_of(view, 100)), num_rows))
    with patch.object(page_table, "_RUN_ENCODINGS", frozenset()):
        alone = _outcome(lambda: decode_chunk(leaf, codec, PageTable.read(view, 100), num_rows))
    return [together, apart, alone]


@pytest.fixture(scope="session")
def chunks(leaf_of: Make, flat: Make, lists: Make, encode: Make) -> st.SearchStrategy[Any]:
    """Leaf, codec, bytes and rows of chunks of several pages, whose encoding may change in between."""

    @st.composite
    def chunk(draw: st.DrawFn) -> tuple[Leaf, int, bytes, int]:
        (kind, length), value = draw(st.sampled_from(list(KINDS.items())))
        nested = draw(st.booleans())
        leaf = leaf_of(kind, length=length, lists=int(nested), optional=nested or draw(st.booleans()))
        codec = draw(st.sampled_from(CODECS))
        element = (
            value if leaf.node.repetition.name == "REQUIRED" else value | draw(st.sampled_from([value, st.none()]))
        )
        row = st.none() | st.lists(element, max_size=3) if nested else element
        data, num_rows = b"", 0
        for _ in range(draw(st.integers(1, 2))):
            rows = draw(st.lists(row, min_size=1, max_size=30))
            encoding = draw(st.sampled_from([Encoding.RLE_DICTIONARY, Encoding.PLAIN, *ENCODINGS.get(kind, [])]))
            encoded = encode(
                leaf,
                lists(leaf, rows) if nested else flat(leaf, rows),
                encoding=encoding,
                codec=codec,
                version=draw(st.sampled_from([1, 2])),
                page_rows=draw(st.sampled_from([1, 4, 7, 100])),
            )
            data += b"".join(bytes(buffer) for buffer in encoded.buffers)
            num_rows += len(rows)
        return leaf, codec, data, num_rows

    return chunk()


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_pages_together_are_as_pages_alone(chunks: st.SearchStrategy[Any], data: st.DataObject) -> None:
    leaf, codec, pages, num_rows = data.draw(chunks)
    with patch.object(page_table, "_RUN_BYTES", data.draw(st.sampled_from([1, 60, 1 << 20]))):
        together, apart, alone = _in_three_ways(leaf, codec, pages, num_rows)
    assert together == apart == alone
    assert together[0] == num_rows, together


@given(st.data(), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=3))
@settings(max_examples=120, deadline=None)
def test_damaged_pages_fail_together_as_they_do_alone(
    chunks: st.SearchStrategy[Any], data: st.DataObject, changes: list[tuple[int, int]]
) -> None:
    leaf, codec, pages, num_rows = data.draw(chunks)
    damaged = bytearray(pages)
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    together, apart, alone = _in_three_ways(leaf, codec, bytes(damaged), num_rows)
    assert together == apart == alone


def test_no_page_of_a_sound_chunk_is_decoded_alone(leaf_of: Make, flat: Make, encode: Make) -> None:
    for kind, rows in (
        (Type.INT64, [1, None, 3]),
        (Type.BYTE_ARRAY, [b"a", None, b"c"]),
        (Type.BOOLEAN, [True, None]),
    ):
        for version in (1, 2):
            for codec in CODECS:
                leaf = leaf_of(kind)
                encoded = encode(leaf, flat(leaf, rows * 9), version=version, codec=codec, page_rows=2)
                table = PageTable.read(memoryview(b"".join(bytes(buffer) for buffer in encoded.buffers)), 0)
                seen: list[Any] = []
                whole = chunk_decoder._ChunkDecoder._add_page

                def spy(self: Any, row: int, seen: list[Any] = seen, whole: Any = whole) -> None:
                    seen.append(self._table.rows[row][PageField.TYPE])
                    whole(self, row)

                with patch.object(chunk_decoder._ChunkDecoder, "_add_page", spy):
                    decode_chunk(leaf, codec, table, len(rows) * 9)
                assert 0 not in seen and 3 not in seen


def test_headers_that_only_the_full_reader_understands(leaf_of: Make, flat: Make, encode: Make) -> None:
    leaf = leaf_of(Type.INT32, optional=False)
    encoded = encode(leaf, flat(leaf, [1, 2]), codec=CompressionCodec.UNCOMPRESSED, dictionary_bytes=0)
    (page,) = pages_of(memoryview(b"".join(bytes(buffer) for buffer in encoded.buffers)), 0)
    twice = (
        b"\x15\x00\x05\x02\x00" + bytes(compact_protocol.encode(page.header))[2:] + bytes(page.body)
    )  # field 1 stands twice
    table = PageTable.read(memoryview(twice), 7)
    assert table.pages is not None and table.pages[0].offset == 7
    assert decode_chunk(leaf, 0, table, 2).values.tolist() == [1, 2]  # type: ignore[union-attr]
    assert [row[2:] for row in table.rows] == [row[2:] for row in PageTable.of([page]).rows]


@pytest.mark.parametrize("codec", [CompressionCodec.UNCOMPRESSED, CompressionCodec.SNAPPY])
def test_levels_that_a_column_does_not_have_are_stepped_over(
    leaf_of: Make, flat: Make, encode: Make, codec: CompressionCodec
) -> None:
    leaf = leaf_of(Type.INT32, optional=False)
    encoded = encode(leaf, flat(leaf, [1, 2]), codec=codec, version=2, dictionary_bytes=0)
    (page,) = pages_of(memoryview(b"".join(bytes(buffer) for buffer in encoded.buffers)), 0)
    levels = b"\x04\x00", b"\x04\x01"
    detail = replace(page.data_header, repetition_levels_byte_length=2, definition_levels_byte_length=2)
    header = replace(
        page.header,
        data_page_header_v2=detail,
        compressed_page_size=len(page.body) + 4,
        uncompressed_page_size=page.header.uncompressed_page_size + 4,
    )
    for column in _in_three_ways(leaf, codec, compact_protocol.encode(header) + b"".join(levels) + bytes(page.body), 2):
        assert np.frombuffer(column[1][0][2], np.int32).tolist() == [1, 2]
