"""Checking fetches ahead: many requests are under way, few bytes are held, and what is found comes in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import numpy as np
import pytest
from faulty_store import Fault, FaultyStore
from store_wrapper import Call, StoreWrapper

import resilient_pq as rpq
from resilient_pq.io import MemoryStore

Result = TypeVar("Result")


class Watched(StoreWrapper):
    """Remembers how many reads were under way at one time; each takes a few turns of the loop."""

    under_way = 0
    most = 0

    async def _do(self, call: Call, action: Callable[[], Awaitable[Result]]) -> Result:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            for _ in range(5):
                await asyncio.sleep(0)
            return await action()
        finally:
            self.under_way -= 1


@pytest.fixture(scope="module")
def data(write_file: Any) -> Any:
    """Sixteen row groups of two chunks of a MB: several requests, though neighbours share them."""
    noise = np.random.default_rng(3)
    rows = {name: noise.random(16 * 125_000) for name in ("a", "b")}
    return asyncio.run(
        write_file(rows, row_group_rows=125_000, checkpoint_every=8, compression="none", encodings="PLAIN")
    )


async def holding(data: bytes) -> MemoryStore:
    store = MemoryStore()
    await store.put("file", data)
    return store


async def test_requests_are_side_by_side(data: Any) -> None:
    watched = Watched(await holding(data.data))
    assert (await rpq.check((watched, "file"))).outcome is rpq.Outcome.SOUND
    assert 2 <= watched.most <= 16 and not watched.under_way


async def test_findings_come_in_the_order_of_the_file(data: Any) -> None:
    """Though some are told by the footer and others by the bytes, and some take longer to find than others."""
    spoiled = bytearray(data.data)
    async with rpq.open((await holding(data.data), "file")) as file:
        row_groups = file.metadata.row_groups
    places = [(3, 1), (3, 0), (15, 1), (0, 0), (9, 1)]
    for row_group, column in places:
        metadata = row_groups[row_group].columns[column].meta_data
        assert metadata is not None
        spoiled[metadata.data_page_offset + 1000] ^= 1
    report = await rpq.check((await holding(bytes(spoiled)), "file"))
    found = [(finding.where.row_group, finding.where.column) for finding in report.findings]
    assert found == [(row_group, "ab"[column]) for row_group, column in sorted(places)]


async def test_what_was_spoiled_on_the_way_is_fetched_again(data: Any) -> None:
    for skip in (0, 2):
        faulty = FaultyStore(await holding(data.data), [Fault("read_range", flip_bit=8_000_000, skip=skip)])
        report = await rpq.check((faulty, "file"))
        assert report.outcome is rpq.Outcome.SOUND and not faulty.faults[0].times


async def test_a_store_that_fails_midway_leaves_no_request(data: Any) -> None:
    watched = Watched(FaultyStore(await holding(data.data), [Fault("read_range", skip=2)]))
    with pytest.raises(rpq.TransientError):
        await rpq.check((watched, "file"))
    assert not watched.under_way and len(asyncio.all_tasks()) == 1


async def test_cancelled_midway_leaves_no_request(data: Any) -> None:
    for turns in range(5, 120, 7):
        watched = Watched(await holding(data.data))
        task = asyncio.create_task(rpq.check((watched, "file")))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not watched.under_way and len(asyncio.all_tasks()) == 1
