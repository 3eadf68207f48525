"""Which rows each page of a damaged chunk has: never more than the row group, and none that another page has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.damage.chunk_salvage import PageFate
from resilient_pq.recovery.ledger.row_fates import place_pages


def page(first_row: int | None, num_rows: int | None) -> PageFate:
    return PageFate(0, 10, None, first_row=first_row, num_rows=num_rows)


PAGES = st.builds(page, st.none() | st.integers(-3, 40), st.none() | st.integers(0, 50))
DICTIONARIES = st.just(PageFate(0, 10, None, is_dictionary=True, first_row=0, num_rows=0))


@given(st.lists(PAGES | DICTIONARIES, max_size=8), st.integers(0, 30))
def test_pages_share_the_rows_of_a_row_group(fates: list[PageFate], num_rows: int) -> None:
    """Whatever they say of themselves: none begins before the one before it, or reaches into the one behind it."""
    found = place_pages(fates, num_rows)
    assert len(found) == len(fates)
    known = []
    for (first, count), fate in zip(found, fates, strict=True):
        if fate.is_dictionary:
            assert (first, count) == (None, None)
        elif first is not None:
            assert first == fate.first_row
            known.append((first, first + (count or 0)))
        assert count is None or (fate.num_rows is not None and count <= fate.num_rows)
    assert known == sorted(known)
    ends = [first for first, _ in known[1:]] + [num_rows]
    assert all(0 <= first <= end <= limit for (first, end), limit in zip(known, ends, strict=False))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_pages_that_say_what_is_true_keep_it(counts: list[int]) -> None:
    firsts = [sum(counts[:i]) for i in range(len(counts))]
    fates = [page(first, count) for first, count in zip(firsts, counts, strict=True)]
    assert place_pages(fates, sum(counts)) == list(zip(firsts, counts, strict=True))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"num_rows": 99}, (10, 10)),
        ({"num_rows": 11}, (10, 10)),
        ({"num_rows": 9}, (10, 9)),
        ({"num_rows": None}, (10, None)),
        ({"first_row": None}, (None, 10)),
        ({"first_row": 31}, (None, 10)),
        ({"first_row": 12}, (12, 8)),
    ],
)
def test_a_page_among_others(changed: dict[str, int | None], expected: tuple[int | None, int | None]) -> None:
    """Its rows end where those of the next page begin, and the last page's where the row group ends."""
    for last in (False, True):
        fates = [page(0, 10), page(10, 10), *([] if last else [page(20, 10)])]
        fates[1] = replace(fates[1], **changed)
        assert place_pages(fates, 20 if last else 30)[1] == expected
