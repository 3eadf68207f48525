"""SizeStatistics: bytes of byte arrays and histograms of levels, of chunks and of their pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from resilient_pq.format.file_metadata import SizeStatistics, Type
from resilient_pq.format.indexes.statistics import PageSizes, size_statistics_of
from resilient_pq.format.physical_values import LeafData

Make = Callable[..., Any]


def test_a_list_of_strings(leaf_of: Make, lists: Make, encode: Make) -> None:
    leaf = leaf_of(Type.BYTE_ARRAY, lists=1)
    rows = [[b"ab", None], None, [], [b"c", b"defg", b""]]
    chunk = encode(leaf, lists(leaf, rows), page_rows=2)
    # Entries: ab, null | null list | empty list | c, defg, "".
    assert chunk.metadata.size_statistics == SizeStatistics(7, [4, 3], [1, 1, 1, 4])
    assert chunk.offset_index.unencoded_byte_array_data_bytes == [2, 5]
    assert chunk.column_index.repetition_level_histograms == [2, 1, 2, 2]
    assert chunk.column_index.definition_level_histograms == [1, 0, 1, 1, 0, 1, 0, 3]


def test_dictionaries_count_every_value(leaf_of: Make, flat: Make, encode: Make) -> None:
    leaf = leaf_of(Type.BYTE_ARRAY)
    chunk = encode(leaf, flat(leaf, [b"abc", None, b"abc"] * 50))
    assert chunk.dictionary_page is not None
    assert chunk.metadata.size_statistics == SizeStatistics(300)


@pytest.mark.parametrize("optional", [True, False])
def test_what_the_null_count_tells_already_is_left_out(leaf_of: Make, flat: Make, encode: Make, optional: bool) -> None:
    leaf = leaf_of(Type.INT64, optional=optional)
    chunk = encode(leaf, flat(leaf, [1, 2, 3]))
    assert chunk.metadata.size_statistics is None
    assert chunk.column_index.definition_level_histograms is None
    assert chunk.offset_index.unencoded_byte_array_data_bytes is None


def test_nothing_is_counted_where_no_statistics_are_wanted(leaf_of: Make, lists: Make, encode: Make) -> None:
    leaf = leaf_of(Type.BYTE_ARRAY, lists=1)
    chunk = encode(leaf, lists(leaf, [[b"a"]]), statistics=False)
    assert chunk.metadata.size_statistics is None
    assert chunk.offset_index.unencoded_byte_array_data_bytes is None


def test_a_chunk_without_entries(leaf_of: Make, encode: Make) -> None:
    leaf = leaf_of(Type.INT32, lists=1)
    empty = LeafData(0, np.empty(0, np.uint8), np.empty(0, np.uint8), np.empty(0, np.int32))
    assert encode(leaf, empty).metadata.size_statistics == SizeStatistics(None, [0, 0], [0, 0, 0, 0])


def test_pages_add_up() -> None:
    pages = [PageSizes(3, (1, 2), (0, 1, 2)), PageSizes(0, (1, 0), (1, 0, 0))]
    assert size_statistics_of(pages) == SizeStatistics(3, [2, 2], [1, 1, 2])
    assert size_statistics_of([PageSizes()]) is None
