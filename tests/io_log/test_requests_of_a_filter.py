"""Exactly which requests a read of few rows makes: those for the pages that may hold them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import pytest
from faulty_store import Fault, FaultyStore
from store_wrapper import RecordingStore

import resilient_pq as rpq

Log = Callable[[], list[str]]
APART = rpq.ReadOptions(merge_gap=0)


async def test_one_row_by_its_key_is_two_round_trips(paged_store: RecordingStore, paged_log: Log) -> None:
    """The indexes come with the footer; then there is one wave."""
    async with rpq.open((paged_store, "file"), options=APART) as file:
        assert paged_log() == ["tail of 262,144 bytes"]
        row = await file.read(["town", "wide"], filters=[("key", "=", 2_345)])
        assert row["town"].tolist() == ["town 0"]
        assert sorted(paged_log()) == [
            "row group 1: 1 of 20 pages of key",
            "row group 1: 1 of 20 pages of town",
            "row group 1: 1 of 20 pages of wide",
            "row group 1: dictionary of town",
        ]


async def test_near_pages_are_merged_like_any_ranges(paged_store: RecordingStore, paged_log: Log) -> None:
    async with rpq.open((paged_store, "file")) as file:
        paged_log()
        await file.read(["key", "town"], filters=[("key", "=", 2_345)])
        assert len(paged_log()) == 1


async def test_leaves_of_structs_and_lists(paged_store: RecordingStore, paged_log: Log) -> None:
    async with rpq.open((paged_store, "file"), options=APART) as file:
        paged_log()
        rows = await file.read(["inner.y", "list"], filters=[("inner.x", ">=", 3), ("inner.x", "<=", 4)])
        assert rows.num_rows == 100
        assert sorted(paged_log()) == [
            "row group 0: 2 of 20 pages of inner.x",
            "row group 0: 2 of 20 pages of inner.y",
            "row group 0: 2 of 20 pages of list.list.element",
        ]


async def test_ranges_apart_are_pages_apart(paged_store: RecordingStore, paged_log: Log) -> None:
    async with rpq.open((paged_store, "file"), options=APART) as file:
        paged_log()
        rows = await file.read(["wide"], filters=[("key", "in", [5, 1_999, 2_000])])
        assert rows.num_rows == 3
        assert sorted(paged_log()) == [
            *["row group 0: 1 of 20 pages of key"] * 2,
            *["row group 0: 1 of 20 pages of wide"] * 2,
            "row group 1: 1 of 20 pages of key",
            "row group 1: 1 of 20 pages of wide",
        ]


async def test_the_first_rows_are_the_first_pages(paged_store: RecordingStore, paged_log: Log) -> None:
    async with rpq.open((paged_store, "file"), options=APART) as file:
        paged_log()
        assert (await file.read(["wide"], limit=250)).num_rows == 250
        assert paged_log() == ["row group 0: 3 of 20 pages of wide"]
        assert (await file.read(["wide"], limit=2_001)).num_rows == 2_001
        assert sorted(paged_log()) == ["row group 0: wide", "row group 1: 1 of 20 pages of wide"]


async def test_what_the_statistics_rule_out_is_no_request(paged_store: RecordingStore, paged_log: Log) -> None:
    async with rpq.open((paged_store, "file"), options=APART) as file:
        paged_log()
        assert (await file.read(filters=[("key", "<", 0)])).num_rows == 0
        assert (await file.read(filters=[("key", ">", 100.5), ("town", "=", "town 9")])).num_rows == 0
        assert [batch async for batch in file.batches(filters=[("town", "is null")])] == []
        assert paged_log() == []


async def test_batches_of_few_rows_fetch_their_pages(paged_store: RecordingStore, paged_log: Log) -> None:
    async with rpq.open((paged_store, "file"), options=APART) as file:
        paged_log()
        async with aclosing(file.batches(columns=["key"], filters=[("key", "in", [0, 3_999])])) as batches:
            assert [batch["key"].tolist() async for batch in batches] == [[0], [3_999]]
        assert paged_log() == ["row group 0: 1 of 20 pages of key", "row group 1: 1 of 20 pages of key"]


@pytest.mark.parametrize("wanted", ["key", "wide"])
async def test_a_bad_transfer_of_a_page_is_read_again(
    paged_store: RecordingStore, paged_log: Log, paged_data: bytes, wanted: str
) -> None:
    """The whole chunk, as it may be the index that is wrong."""
    faulty = FaultyStore(paged_store)
    async with rpq.open((faulty, "file"), options=APART) as file:
        paged_log()
        faulty.faults.append(Fault("read_range", flip_bit=8 * 60))
        found = await file.read([wanted], filters=[("key", "=", 2_345)])
        assert found.num_rows == 1
        assert sorted(paged_log())[:1] == ["row group 1: 1 of 20 pages of key"]
        assert file.counters.requests == (3 if wanted == "key" else 4)
