"""The policy of row groups and checkpoints: by simulation of whole files, what checkpoints cost and how far apart
they get; and how many rows go into a row group.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.units import KiB, MiB
from resilient_pq.writer.cut_policy import (
    MAX_FOOTER_BYTES,
    MAX_ROW_GROUPS,
    Cadence,
    WriteProgress,
    checkpoint_due,
    commit_due,
    file_full,
    row_group_due,
    rows_that_fit,
)


class Simulation:
    """A file as the policy sees it: row groups of one size, each taking so many bytes in a footer."""

    def __init__(self, *, row_group: int, in_footer: int, every: int | None, overhead: float) -> None:
        self.row_group, self.in_footer, self.every, self.overhead = row_group, in_footer, every, overhead
        self.bytes_written = self.checkpoint_bytes = 0
        self.row_groups = 0
        self.checkpoints: list[int] = []

    def run(self, most: int = MAX_ROW_GROUPS) -> Simulation:
        while self.row_groups < most and not self.full:
            self.row_groups += 1
            self.bytes_written += self.row_group
            footer = KiB + self.row_groups * self.in_footer
            since = self.row_groups - (self.checkpoints[-1] if self.checkpoints else 0)
            progress = WriteProgress(since, self.bytes_written, self.checkpoint_bytes, footer)
            if checkpoint_due(progress, Cadence(every=self.every, overhead=self.overhead)):
                self.checkpoints.append(self.row_groups)
                self.bytes_written += footer
                self.checkpoint_bytes += footer
                assert self.checkpoint_bytes <= self.overhead * self.bytes_written
        return self

    @property
    def full(self) -> bool:
        return file_full(self.row_groups, self.row_groups * self.in_footer, another_follows=True)

    @property
    def gaps(self) -> list[int]:
        return [b - a for a, b in pairwise([0, *self.checkpoints])]


@pytest.mark.parametrize("columns", [1, 10, 100, 1000])
@pytest.mark.parametrize("row_group", [64 * KiB, 4 * MiB, 64 * MiB])
@pytest.mark.parametrize("overhead", [0.001, 0.02, 0.5])
@pytest.mark.ways_in_quick(12)
def test_overhead_is_held_to_the_last_row_group(columns: int, row_group: int, overhead: float) -> None:
    ran = Simulation(row_group=row_group, in_footer=120 * columns, every=8, overhead=overhead).run()
    assert ran.row_groups == min(MAX_ROW_GROUPS, -(-MAX_FOOTER_BYTES // (120 * columns)))
    assert all(gap >= 8 for gap in ran.gaps)
    # Where a row group's share is less than what it takes in one footer, no checkpoint is ever cheap enough.
    affordable = any(KiB + 120 * columns * n <= overhead * row_group * n for n in range(8, ran.row_groups + 1))
    assert bool(ran.checkpoints) == affordable


def test_the_fastest_cadence_while_it_is_cheap() -> None:
    ran = Simulation(row_group=64 * MiB, in_footer=1200, every=8, overhead=0.02).run(8 * 100)
    assert ran.gaps == [8] * 100


def test_stretched_not_stopped() -> None:
    ran = Simulation(row_group=MiB, in_footer=1200, every=1, overhead=0.02).run()
    assert ran.row_groups == MAX_ROW_GROUPS
    gaps = ran.gaps
    assert len(gaps) > 50 and gaps[0] < gaps[-1]
    assert 0.01 < ran.checkpoint_bytes / ran.bytes_written <= 0.02
    # The bytes that pay for one more footer, and no more than that.
    footer = ran.checkpoints[-1] * 1200
    assert gaps[-1] <= 1.1 * footer / (0.02 * MiB) + 2


def test_the_cost_is_not_the_square_of_the_row_groups() -> None:
    """1000 row groups of 100 columns, each checkpointed, would take more than 5 GB of footers."""
    assert sum(KiB + 12_000 * n for n in range(1, 1001)) > 5e9
    ran = Simulation(row_group=MiB, in_footer=12_000, every=1, overhead=0.02).run(1000)
    assert ran.checkpoint_bytes < 0.021 * 1000 * MiB


@pytest.mark.parametrize(("every", "overhead"), [(None, 0.02), (None, 1e9), (1, 0.0)])
def test_no_automatic_checkpoints(every: int | None, overhead: float) -> None:
    assert not Simulation(row_group=64 * MiB, in_footer=120, every=every, overhead=overhead).run(2000).checkpoints


@pytest.mark.thorough
@given(
    row_group=st.integers(1, 2**30), in_footer=st.integers(50, 200_000), every=st.integers(1, 1000),
    overhead=st.floats(0, 10),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_overhead_is_held_whatever_the_sizes(row_group: int, in_footer: int, every: int, overhead: float) -> None:
    ran = Simulation(row_group=row_group, in_footer=in_footer, every=every, overhead=overhead).run()
    assert all(gap >= every for gap in ran.gaps)


def _fit(num_rows: int, num_bytes: int, *, open_rows: int = 0, open_bytes: int = 0, max_rows: int | None = None) -> int:
    return rows_that_fit(
        num_rows, num_bytes, open_rows=open_rows, open_bytes=open_bytes, max_rows=max_rows, max_bytes=1000
    )


def test_rows_into_a_row_group() -> None:
    assert _fit(10, 1000) == 10
    assert _fit(10, 500, open_rows=3, open_bytes=500) == 10
    assert _fit(100, 10_000) == 10
    assert _fit(100, 10_000, open_rows=1, open_bytes=700) == 3
    assert _fit(100, 100, max_rows=7, open_rows=5) == 2
    assert _fit(100, 10_000, max_rows=7) == 7
    assert _fit(3, 30_000) == 1, "at least one into an empty row group"
    assert _fit(3, 30_000, open_rows=1, open_bytes=10) == 0


def test_rows_without_bytes_fit_also_where_there_is_no_room() -> None:
    assert _fit(5, 0) == 5
    assert _fit(5, 0, open_rows=9, open_bytes=2000) == 5
    assert _fit(5, 1, open_rows=9, open_bytes=2000) == 0


@given(
    num_rows=st.integers(1, 10**6),
    row_bytes=st.integers(0, 10**4),
    open_rows=st.integers(0, 10**5),
    open_bytes=st.integers(0, 10**8),
    max_rows=st.none() | st.integers(1, 10**6),
    max_bytes=st.integers(1, 10**8),
)
def test_rows_that_fit_whatever_the_sizes(
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


def test_a_file_is_full_before_readers_refuse_it() -> None:
    assert not file_full(MAX_ROW_GROUPS - 1, 0, another_follows=True)
    assert file_full(MAX_ROW_GROUPS, 0, another_follows=True)
    assert not file_full(MAX_ROW_GROUPS, 0, another_follows=False)
    assert file_full(1, MAX_FOOTER_BYTES, another_follows=False)


def _progress(**what: float) -> WriteProgress:
    return WriteProgress(**{  # type: ignore[arg-type]
        "row_groups_since": 1, "bytes_written": 100 * MiB, "checkpoint_bytes": 0, "next_checkpoint_bytes": KiB, **what
    })  # fmt: skip


def test_checkpoints_by_bytes() -> None:
    cadence = Cadence(num_bytes=10 * MiB)
    assert not checkpoint_due(_progress(bytes_since=10 * MiB - 1, seconds_since=99.0), cadence)
    assert checkpoint_due(_progress(bytes_since=10 * MiB), cadence)
    assert not checkpoint_due(_progress(bytes_since=10 * MiB, row_groups_since=0), cadence), "nothing new"
    assert not checkpoint_due(_progress(bytes_since=99 * MiB), Cadence()), "nobody asked"
    dear = _progress(bytes_since=10 * MiB, next_checkpoint_bytes=3 * MiB)
    assert not checkpoint_due(dear, cadence), "too dear"


def test_a_row_group_is_closed_early_when_it_has_an_eighth() -> None:
    cadence = Cadence(every=1, num_bytes=5 * MiB)

    def due(since: int, open_bytes: int, **what: float) -> bool:
        progress = _progress(row_groups_since=0, bytes_since=since, open_bytes=open_bytes, **what)
        return row_group_due(progress, cadence, row_group_bytes=64 * MiB)

    assert due(5 * MiB, 8 * MiB)
    assert not due(5 * MiB, 8 * MiB - 1)
    assert not due(4 * MiB, 63 * MiB)
    assert not due(5 * MiB, 8 * MiB, next_checkpoint_bytes=3 * MiB), "its checkpoint could not be written"
    assert due(5 * MiB, 8 * MiB, bytes_written=0), "the row group will pay for it"


def test_what_a_commit_may_cost() -> None:
    assert commit_due(MiB, MiB, 100 * MiB, 0.02)
    assert not commit_due(MiB + 1, MiB, 100 * MiB, 0.02)
    assert commit_due(0, 0, 0, 0.0), "where it costs nothing it is always done"


def test_a_complete_row_group_does_not_wait_for_long() -> None:
    assert checkpoint_due(_progress(seconds_since=60.0), Cadence(every=8))
    assert not checkpoint_due(_progress(seconds_since=59.0), Cadence(every=8))
    assert not checkpoint_due(_progress(seconds_since=60.0), Cadence(every=None)), "no automatic ones"
    assert not checkpoint_due(_progress(seconds_since=60.0, row_groups_since=0), Cadence(every=8))
    assert commit_due(100 * MiB, 0, MiB, 0.02, seconds_since=60.0)
    assert not commit_due(100 * MiB, 0, MiB, 0.02, seconds_since=59.0)
