"""Files of parquet-testing that were made to show one thing about statistics, indexes or metadata each."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import pytest
from corpus_of_others import of_corpus

from resilient_pq import sync as rpq
from resilient_pq.format.file_metadata import BoundaryOrder


def opened(name: str) -> Any:
    return rpq.open(of_corpus(f"parquet-testing/data/{name}.parquet"))


def values_of(file: Any, row_group: int, column: str) -> list[Any]:
    return pq.ParquetFile(file.url).read_row_group(row_group)[column].to_pylist()


def test_bounds_that_were_cut() -> None:
    with opened("binary_truncated_min_max") as file:
        said = {name: file.statistics(0, name) for name in file.schema.names}
        flags = {name: (one.min, one.is_min_exact, one.max, one.is_max_exact) for name, one in said.items()}
    assert flags == {
        "utf8_full_truncation": ("Al", False, "Kf", False),
        "binary_full_truncation": (b"Al", False, b"Kf", False),
        "utf8_partial_truncation": ("Al", False, "🚀Kevin Bacon", True),
        "binary_partial_truncation": (b"Al", False, b"\xff\xff\x01\x02", True),
        "utf8_no_truncation": ("Al", True, "Ke", True),
        "binary_no_truncation": (b"Al", True, b"Ke", True),
    }


def test_both_orders_of_floats() -> None:
    """Row groups: no NaN, some NaN, nothing but NaN, a minimum of zero, a maximum of zero."""
    with opened("floating_orders_nan_count") as file:
        for column in file.schema.names:
            by_ieee = column.endswith("ieee754")
            found = [file.statistics(group, column) for group in range(5)]
            bounds = [(one.min, one.max) for one in found]
            assert repr(bounds[0]) == "(-2.0, 5.0)"
            assert repr(bounds[3:]) == "[(-0.0, 5.0), (-5.0, 0.0)]"
            assert bounds[2] == (None, None)
            assert (bounds[1] == (-2.0, 3.0)) == by_ieee
            assert [one.nan_count for one in found] == [0, 4, 10, 0, 0]
            for group in range(5):
                index = file.column_index(group, column)
                assert (index is None) == (not by_ieee and group in (1, 2))
                if index is not None:
                    assert [(page.min, page.max) for page in index.pages] == [bounds[group]]


@pytest.mark.parametrize("name", ["nan_in_stats", "single_nan"])
def test_bounds_that_are_nan_are_passed_over(name: str) -> None:
    with opened(name) as file:
        said = file.statistics(0, 0)
        assert (said.min, said.max) == (None, None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("float16_zeros_and_nans", "(-0.0, 0.0)"), ("float16_nonzeros_and_nans", "(-2.0, 2.0)")],
)
def test_half_floats(name: str, expected: str) -> None:
    with opened(name) as file:
        said = file.statistics(0, "x")
        assert repr((said.min, said.max)) == expected


def test_null_pages() -> None:
    with opened("int32_with_null_pages") as file:
        index, offsets = file.column_index(0, 0), file.offset_index(0, 0)
        rows = values_of(file, 0, "int32_field")
    assert index.boundary_order is BoundaryOrder.UNORDERED
    assert len(index.pages) == len(offsets.page_locations) == 10
    starts = [page.first_row_index for page in offsets.page_locations]
    for page, start, end in zip(index.pages, starts, [*starts[1:], len(rows)], strict=True):
        there = [row for row in rows[start:end] if row is not None]
        assert page.all_null == (not there)
        assert (page.min, page.max) == ((min(there), max(there)) if there else (None, None))
        assert page.null_count == end - start - len(there)
    assert any(page.all_null for page in index.pages)


@pytest.mark.parametrize("name", ["data_index_bloom_encoding_stats", "data_index_bloom_encoding_with_length"])
def test_bloom_filters_with_and_without_their_length(name: str) -> None:
    with opened(name) as file:
        chunk = file.metadata.row_groups[0].columns[0].meta_data
        assert (chunk.bloom_filter_length is not None) == name.endswith("with_length")
        found = file.bloom_filter(0, "String")
        words = values_of(file, 0, "String")
        assert found.may_contain(words).all()
        assert not found.may_contain(["not there", "neither"]).any()


def test_sort_orders() -> None:
    with opened("sort_columns") as file:
        assert file.sorting_columns == (
            rpq.SortingColumn("a", descending=True, nulls_first=True),
            rpq.SortingColumn("b", descending=False, nulls_first=False),
        )


def test_key_value_metadata_of_a_chunk() -> None:
    with opened("column_chunk_key_value_metadata") as file:
        chunks = [column.meta_data for column in file.metadata.row_groups[0].columns]
        pairs = [[(pair.key, pair.value) for pair in chunk.key_value_metadata or ()] for chunk in chunks]
    assert pairs == [[("foo", "bar"), ("thisiskeywithoutvalue", None)], []]


def test_int96_has_no_bounds_in_type_order() -> None:
    with opened("int96_from_spark") as file:
        said = file.statistics(0, "a")
        assert (said.min, said.max, said.null_count) == (None, None, 1)
