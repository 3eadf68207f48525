"""Every byte of a resilient file may change: that is found, reported, and costs its own row group at most."""

from __future__ import annotations

import random
from typing import Any

import pytest

import resilient_pq as rpq


async def flip(small: Any, examined: Any, offset: int, value: int) -> None:
    lost = small.row_groups_with(offset)
    try:
        outcome = await examined(small, small.flipped((offset, value)), changed=[offset], may_lose=lost)
        if outcome.recovery.num_rows == small.table.num_rows:
            assert outcome.recovery.outcome == rpq.Outcome.RECOVERED
            assert outcome.recovery.kept.rows_lost == 0
    except Exception as error:
        error.add_note(f"byte {offset} XOR {value:#x}")
        raise


async def test_sampled_bytes(small: Any, examined: Any) -> None:
    rng = random.Random(1)
    for offset in rng.sample(range(len(small.data)), 40):
        await flip(small, examined, offset, rng.choice([0x01, 0xFF, rng.randint(1, 255)]))


async def test_bytes_of_filters_and_indexes(small: Any, examined: Any) -> None:
    """They stand between the last record and the final footer, and no rows depend on them."""
    (final,) = small.records(4)
    start = max(record.stop for kind in (1, 2, 3) for record in small.records(kind))
    places = range(start, final.start)
    assert small.data[start : start + 200].count(0) > 20  # a filter's empty words come first
    rng = random.Random(2)
    for offset in [places[0], places[-1], *rng.sample(places, 25)]:
        value = rng.randint(1, 255)
        outcome = await examined(small, small.flipped((offset, value)), changed=[offset])
        assert outcome.check.outcome is rpq.Outcome.DAMAGED
        assert outcome.read.equals(small.table)
        assert (outcome.recovery.num_rows, outcome.recovery.outcome) == (58, rpq.Outcome.RECOVERED)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("value", [0x01, 0xFF, None])
@pytest.mark.parametrize("share", range(8))
async def test_every_byte(small: Any, examined: Any, value: int | None, share: int) -> None:
    rng = random.Random(share)
    for offset in range(share, len(small.data), 8):
        await flip(small, examined, offset, value or rng.randint(1, 255))
