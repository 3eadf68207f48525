"""Settings of the reader that can never work are refused where they are made."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import resilient_pq as rpq
from resilient_pq.io import FetchOptions, MergeOptions


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"merge_gap": -1}, "merge_gap is -1; it is a whole number, at least 0"),
        ({"block_bytes": 0}, "block_bytes is 0; it is a whole number, at least 1"),
        ({"max_requests": 0}, "max_requests is 0"),
        ({"memory_budget": "64MB"}, "memory_budget is '64MB'"),
        ({"max_threads": 0}, "max_threads is 0"),
        ({"max_threads": "2"}, "max_threads is '2'"),
        ({"coerce_int96_timestamp_unit": "ns"}, "coerce_int96_timestamp_unit is 'ns'"),
    ],
)
def test_settings_out_of_range(given: dict[str, Any], message: str) -> None:
    with pytest.raises(rpq.SchemaError, match=message):
        rpq.ReadOptions(**given)


def test_options_of_the_other_side() -> None:
    with pytest.raises(rpq.SchemaError, match="open takes ReadOptions"):
        rpq.open("x.parquet", options=rpq.WriteOptions())  # type: ignore[arg-type]
    with pytest.raises(rpq.SchemaError, match="takes WriteOptions"):
        rpq.create("x.parquet", options=rpq.ReadOptions())  # type: ignore[arg-type]


def test_the_defaults_are_those_of_the_plan() -> None:
    assert rpq.ReadOptions().fetch == FetchOptions()


def test_the_knobs_shape_the_requests() -> None:
    fetch = rpq.ReadOptions(merge_gap=160, block_bytes=7, max_requests=3, memory_budget=99).fetch
    assert fetch == FetchOptions(MergeOptions(10, 160, 2.0, 7), 3, 99)
    assert rpq.ReadOptions(merge_gap=0).fetch.merge.always_gap == 0


@pytest.mark.parametrize(
    ("ttfb", "bandwidth", "tail_bytes", "merge_gap", "block_bytes"),
    [
        (0.03, 100e6, 375_000, 3_000_000, 1_687_500),
        (0.03, 1e9, 1 << 20, 8 << 20, 8 << 20),
        (0.0002, 1e9, 64 << 10, 200_000, 1 << 20),  # a server in the same room
        (0.08, 2e6, 64 << 10, 160_000, 1 << 20),  # a home
    ],
)
def test_options_from_a_network(
    ttfb: float, bandwidth: float, tail_bytes: int, merge_gap: int, block_bytes: int
) -> None:
    options = rpq.ReadOptions.from_network(ttfb, bandwidth)
    expected = rpq.ReadOptions(tail_bytes, merge_gap, block_bytes)
    assert (options.tail_bytes, options.merge_gap) == (expected.tail_bytes, expected.merge_gap)
    assert options.block_bytes == pytest.approx(block_bytes, abs=1)
    assert dataclasses.replace(options, block_bytes=block_bytes) == expected


@pytest.mark.parametrize(("ttfb", "bandwidth"), [(0, 1e6), (0.1, 0), (-1, 1e6), (0.1, float("nan")), (1e999, 1)])
def test_networks_that_are_none(ttfb: float, bandwidth: float) -> None:
    with pytest.raises(rpq.SchemaError, match="ttfb and bandwidth"):
        rpq.ReadOptions.from_network(ttfb, bandwidth)
