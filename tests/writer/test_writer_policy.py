"""The policy of checkpoints, by simulation: what they cost and how far apart they get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.writer.policy import (
    MAX_FOOTER_BYTES,
    MAX_ROW_GROUPS,
    Progress,
    checkpoint_due,
    file_full,
    rows_that_fit,
)


@pytest.mark.parametrize("chunk_metadata", [100, 10_000, 100_000])
@pytest.mark.parametrize("row_group_bytes", [100_000, 20_000_000])
@pytest.mark.parametrize("overhead", [0.02, 0.001])
def test_checkpoints_stay_within_their_share(
    chunk_metadata: int, row_group_bytes: int, overhead: float
) -> None:
    """To the last row group that a file may have, although a footer grows with every one."""
    written = spent = footer = since = 0
    checkpoints = []
    for row_group in range(MAX_ROW_GROUPS):
        written += row_group_bytes
        footer += chunk_metadata
        since += 1
        if checkpoint_due(Progress(since, written, spent, footer), every=8, overhead=overhead):
            assert since >= 8
            written += footer
            spent += footer
            since = 0
            checkpoints.append(row_group)
        assert spent <= overhead * written
    if chunk_metadata * 8 < overhead * row_group_bytes:
        assert checkpoints[0] == 7, "nothing stretches the cadence while a footer is small"


def test_no_automatic_checkpoints() -> None:
    assert not checkpoint_due(Progress(1_000, 1 << 40, 0, 1), every=None, overhead=1.0)


@given(
    num_rows=st.integers(1, 10**6),
    row_bytes=st.integers(0, 10**4),
    open_rows=st.integers(0, 10**5),
    open_bytes=st.integers(0, 10**8),
    max_rows=st.none() | st.integers(1, 10**6),
    max_bytes=st.integers(1, 10**8),
)
def test_rows_that_fit(
    num_rows: int, row_bytes: int, open_rows: int, open_bytes: int, max_rows: int | None, max_bytes: int
) -> None:
    open_rows = min(open_rows, max_rows or open_rows)
    open_bytes = min(open_bytes, max_bytes) if open_rows else 0
    fit = rows_that_fit(
        num_rows,
        num_rows * row_bytes,
        open_rows=open_rows,
        open_bytes=open_bytes,
        max_rows=max_rows,
        max_bytes=max_bytes,
    )
    assert 0 <= fit <= num_rows
    assert fit >= 1 or open_rows, "an empty row group takes a row, however large"
    assert max_rows is None or open_rows + fit <= max_rows
    if open_rows or fit > 1:
        assert open_bytes + fit * row_bytes <= max_bytes


def test_a_file_is_full_before_a_limit_of_the_format() -> None:
    assert not file_full(MAX_ROW_GROUPS - 1, 0)
    assert file_full(MAX_ROW_GROUPS, 0)
    assert file_full(1, MAX_FOOTER_BYTES)
