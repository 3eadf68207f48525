"""The merger: no wanted byte is missed, none is fetched twice, and its options hold."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.byte_ranges import ByteRange, union
from resilient_pq.io.transfer.coalescing import MergeOptions, merge
from resilient_pq.units import KiB, MiB

byte_ranges = st.builds(lambda start, size: ByteRange(start, start + size), st.integers(0, 2000), st.integers(0, 400))
merge_options = st.builds(
    MergeOptions,
    always_gap=st.integers(0, 50),
    wide_gap=st.integers(0, 300),
    max_waste=st.floats(1, 5),
    block_bytes=st.integers(1, 500),
)


def bytes_of(ranges: list[ByteRange]) -> set[int]:
    return {byte for found in ranges for byte in range(found.start, found.end)}


@given(st.lists(byte_ranges, max_size=30), merge_options)
def test_every_wanted_byte_comes_once(wanted: list[ByteRange], options: MergeOptions) -> None:
    merged = merge(wanted, options)
    for one, two in itertools.pairwise(merged):
        assert one.range.end <= two.range.start, "requests are sorted and never overlap"
    pieces: dict[int, list[ByteRange]] = {index: [] for index in range(len(wanted))}
    for request in merged:
        assert request.parts, "no request without a wanted byte"
        for index, piece in request.parts:
            assert request.range.start <= piece.start < piece.end <= request.range.end
            pieces[index].append(piece)
    for index, found in pieces.items():
        assert sum(piece.size for piece in found) == wanted[index].size
        assert bytes_of(found) == bytes_of([wanted[index]])


@given(st.lists(byte_ranges, max_size=30), merge_options)
def test_options_hold(wanted: list[ByteRange], options: MergeOptions) -> None:
    for request in merge(wanted, options):
        useful = union(piece for _, piece in request.parts)
        if len(useful) > 1:
            assert request.range.size <= options.block_bytes
        assert request.range.size <= 2 * options.block_bytes
        assert (request.range.start, request.range.end) == (useful[0].start, useful[-1].end)
        taken = useful[0].size
        for one, two in itertools.pairwise(useful):
            taken += two.size
            gap, span = two.start - one.end, two.end - request.range.start
            assert gap <= options.always_gap or (gap <= options.wide_gap and span <= options.max_waste * taken)


@given(st.lists(byte_ranges, max_size=30))
def test_union_has_the_same_bytes(wanted: list[ByteRange]) -> None:
    found = union(wanted)
    assert bytes_of(found) == bytes_of(wanted)
    assert sum(one.size for one in found) == len(bytes_of(wanted))


def chunks(columns: list[int], of: int, size: int, row_groups: int) -> list[ByteRange]:
    """The chunks of some of `of` columns, all of one size, in every row group."""
    return [
        ByteRange(start, start + size)
        for row_group in range(row_groups)
        for column in columns
        for start in [(row_group * of + column) * size]
    ]


def test_many_near_columns_are_few_requests() -> None:
    """Every fourth of 200 columns of 16 KiB: gaps of 48 KiB are read over, up to a block."""
    requests = merge(chunks(list(range(0, 200, 4)), 200, 16 * KiB, 50))
    assert len(requests) == 20


def test_few_far_columns_stay_apart() -> None:
    """Three columns far from each other: reading what lies between would be 18 times the bytes."""
    requests = merge(chunks([10, 90, 170], 200, 16 * KiB, 50))
    assert len(requests) == 150
    assert sum(request.range.size for request in requests) == 150 * 16 * KiB


def test_gaps_of_a_megabyte_are_read_over_while_half_is_useful() -> None:
    """Every second of 20 columns of 740 KiB in 8 row groups: 14 requests instead of 80, for twice the bytes."""
    wanted = chunks(list(range(0, 20, 2)), 20, 740 * KiB, 8)
    requests = merge(wanted)
    assert len(requests) == 14
    assert all(request.range.size <= 8 * MiB for request in requests)
    assert sum(request.range.size for request in requests) <= 2 * 80 * 740 * KiB


def test_one_large_range_is_split_into_equal_blocks() -> None:
    requests = merge([ByteRange(5, 5 + 100 * MiB)])
    assert len(requests) == 13
    sizes = [request.range.size for request in requests]
    assert max(sizes) <= 8 * MiB
    assert max(sizes) - min(sizes) <= 1
    assert all(index == 0 for request in requests for index, _ in request.parts)


def test_a_range_of_up_to_two_blocks_stays_whole() -> None:
    assert len(merge([ByteRange(0, 16 * MiB)])) == 1
    assert len(merge([ByteRange(0, 16 * MiB + 1)])) == 3


def test_nothing_wanted_is_nothing_requested() -> None:
    assert merge([]) == []
    assert merge([ByteRange(7, 7)]) == []


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3)])
def test_what_is_no_range(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a byte range"):
        ByteRange(start, end)


@pytest.mark.parametrize("options", [{"always_gap": -1}, {"wide_gap": -1}, {"max_waste": 0.5}, {"block_bytes": 0}])
def test_options_that_cannot_be_meant(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"gap|max_waste|block_bytes"):
        MergeOptions(**options)


def test_ranges_have_an_order_and_a_size() -> None:
    assert sorted([ByteRange(5, 9), ByteRange(0, 9), ByteRange(0, 3)])[0] == ByteRange(0, 3)
    assert ByteRange(3, 10).size == 7
