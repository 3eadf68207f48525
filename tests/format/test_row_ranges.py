"""Ranges of rows against sets of rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.format.indexes.row_ranges import Rows, count, first, intersection, mask_within, rows_of

RANGES = st.lists(st.builds(lambda start, size: range(start, start + size), st.integers(0, 30), st.integers(0, 8)))


def rows(ranges: Rows) -> list[int]:
    return [row for each in ranges for row in each]


@given(RANGES, RANGES, st.integers(0, 40))
def test_they_are_sets(one: list[range], other: list[range], number: int) -> None:
    a, b = rows_of(one), rows_of(other)
    assert rows(a) == sorted({row for each in one for row in each})
    assert all(a) and all(x.stop < y.start for x, y in pairwise(a))
    assert rows(intersection(a, b)) == sorted({*rows(a)} & {*rows(b)})
    assert rows(first(a, number)) == rows(a)[:number]
    assert count(a) == len(rows(a))
    both = rows_of([*a, *b])
    assert np.array(rows(both))[mask_within(a, both)].tolist() == rows(a)


def test_rows_that_are_not_covered() -> None:
    with pytest.raises(ValueError, match="rows 3 to 6 are not covered"):
        mask_within((range(3, 6),), (range(5), range(7, 9)))
    with pytest.raises(ValueError, match="not covered"):
        mask_within((range(9, 10),), (range(5),))
