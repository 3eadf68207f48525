"""`File.plan` says what `read` does: the same requests, for the same bytes, and why not for the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from file_bytes import file_bytes
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io.memory_store import MemoryStore

TABLE = pa.table(
    {
        "key": range(4000),
        "word": [f"word {i % 1000:04}x" for i in range(4000)],
        "text": [f"some text of row {i}, which is like no other" for i in range(4000)],
    }
)
APART = rpq.ReadOptions(merge_gap=0)
REQUESTS: list[dict[str, Any]] = [
    {},
    {"columns": ["text"], "row_groups": [2, 0]},
    {"columns": [], "filters": [("key", "=", 1234)]},
    {"filters": [("key", ">=", 990), ("key", "<", 1010)]},
    {"columns": ["word"], "limit": 1500},
    {"columns": ["text"], "filters": [("word", "=", "word 0005x")]},
    {"filters": [("word", "=", "word 0005")]},
    {"filters": [("key", "<", 0)]},
    {"limit": 0},
    {"filters": [("key", ">", 0)], "limit": 0},
]


@pytest.fixture(scope="module")
def data() -> bytes:
    options = rpq.WriteOptions(page_rows=100, bloom_filter_options=["word"])
    return asyncio.run(file_bytes(TABLE, row_group_rows=1000, compression="none", options=options))


@pytest.fixture(scope="module")
def indexes_at(data: bytes) -> int:
    """Where the indexes begin, which lie before the footer."""

    async def places() -> int:
        store = MemoryStore()
        await store.put("file", data)
        async with rpq.open((store, "file")) as file:
            chunks = [chunk for group in file.metadata.row_groups for chunk in group.columns]
        filters = [chunk.meta_data.bloom_filter_offset for chunk in chunks if chunk.meta_data.bloom_filter_offset]
        return min([*filters, *(chunk.column_index_offset for chunk in chunks)])

    return asyncio.run(places())


@pytest.fixture(params=[APART, rpq.ReadOptions()], ids=["apart", "merged"])
async def opened(
    request: pytest.FixtureRequest, data: bytes, indexes_at: int
) -> AsyncIterator[tuple[RecordingStore, rpq.File]]:
    store = RecordingStore(MemoryStore())
    await store.put("file", data)
    options = replace(request.param, tail_bytes=len(data) - indexes_at)
    async with rpq.open((store, "file"), options=options) as file:
        store.calls.clear()
        yield store, file


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
async def test_the_read_does_what_the_plan_says(opened: Any, request_: dict[str, Any]) -> None:
    store, file = opened
    plan = await file.plan(**request_)
    assert not store.calls
    useful = file.counters.useful_bytes
    await file.read(**request_)
    assert sorted((call.start, call.end) for call in store.calls) == [(one.start, one.end) for one in plan.requests]
    assert plan.num_bytes == sum(call.end - call.start for call in store.calls)
    assert plan.useful_bytes == file.counters.useful_bytes - useful
    wanted = sum(chunk.num_bytes for group in plan.row_groups for chunk in group.chunks)
    assert plan.useful_bytes + plan.bytes_at_hand == wanted


async def test_what_left_row_groups_out(opened: Any) -> None:
    _, file = opened

    async def by(**options: Any) -> list[str | None]:
        return [group.left_out_by for group in (await file.plan(**options)).row_groups]

    assert await by() == [None] * 4
    assert await by(filters=[("key", "=", 1234)]) == ["statistics", None, "statistics", "statistics"]
    assert await by(filters=[("word", "=", "word 0005")]) == ["bloom filter"] * 4
    # No statistics of the whole row group tell that no page has both.
    either = [("key", "<", 50), ("word", ">", "word 0500")]
    assert await by(filters=either) == ["page index", "statistics", "statistics", "statistics"]
    assert await by(limit=1500) == [None, None, "limit", "limit"]
    assert await by(row_groups=[3, 1], limit=1500) == [None, None]


async def test_pages_and_rows(opened: Any) -> None:
    _, file = opened
    plan = await file.plan(["text"], filters=[("key", ">=", 150), ("key", "<", 250)])
    first, *others = plan.row_groups
    assert (first.ordinal, first.num_rows, first.of_rows, plan.num_rows) == (0, 200, 1000, 200)
    assert not any(group.num_rows or group.chunks for group in others)
    text, key = first.chunks
    assert (key.column, key.num_pages, key.of_pages, key.shown) == ("key", 2, 10, False)
    pages = (await file.offset_index(0, "text")).page_locations
    starts = [page.first_row_index for page in pages]
    held = sum(start < 300 and end > 100 for start, end in zip(starts, [*starts[1:], 1000], strict=True))
    assert (text.column, text.num_pages, text.of_pages, text.shown) == ("text", held, len(pages), True)
    (whole,) = (await file.plan(["text"], [1])).row_groups
    assert (whole.chunks[0].num_pages, whole.num_rows) == (None, 1000)


async def test_it_prints_itself(data: bytes) -> None:
    store = MemoryStore()
    await store.put("file", data)
    async with rpq.open((store, "file"), options=replace(APART, tail_bytes=8)) as file:
        plan = await file.plan(["text"], filters=[("key", ">=", 150), ("key", "<", 250)])
        text = plan.row_groups[0].chunks[0]
        numbers = [f"{request.num_bytes:,}" for request in plan.requests]
        places = [f"{request.start:,} to {request.end:,}" for request in plan.requests]
        assert str(plan).splitlines() == [
            f"2 requests, {plan.num_bytes:,} bytes, {plan.num_bytes:,} of them wanted, for 200 of 4,000 rows",
            "left out by statistics: row groups 1, 2, 3",
            "row group 0: 200 of 1,000 rows",
            f"  text: {text.num_pages} of {text.of_pages} pages, {numbers[1]} bytes",
            f"  key: 2 of 10 pages, {numbers[0]} bytes, for the filter",
            f"request: bytes {places[0]}, {numbers[0]}",
            f"request: bytes {places[1]}, {numbers[1]}",
        ]
        assert repr(plan) == f"<resilient_pq.PlannedRead: {plan}>"
        assert str(await file.plan([])).startswith("0 requests, 0 bytes")


async def test_a_plan_of_many_row_groups_stays_readable() -> None:
    store = MemoryStore()
    async with rpq.create((store, "file"), row_group_rows=1, checkpoint_every=None) as writer:
        await writer.write({f"c{i}": range(60) for i in range(30)})
    async with rpq.open((store, "file"), options=APART) as file:
        text = str(await file.plan(filters=[("c0", ">=", 30)]))
    assert "left out by statistics: row groups 0, 1, 2" in text and " and 10 more\n" in text
    assert "  and 10 more columns" not in text and "and 10 more columns\n" in text
    assert "and 10 more row groups\n" in text and text.endswith("more requests")
    assert len(text.splitlines()) < 500


async def test_indexes_that_are_fetched_for_a_plan(data: bytes) -> None:
    store = RecordingStore(MemoryStore())
    await store.put("file", data)
    options = rpq.ReadOptions(tail_bytes=8, merge_gap=0)
    async with rpq.open((store, "file"), options=options) as file:
        store.calls.clear()
        blind = await file.plan(filters=[("key", "=", 1234)], fetch_indexes=False)
        assert not store.calls and blind.num_rows == 1000
        plan = await file.plan(filters=[("key", "=", 1234)])
        assert store.calls and plan.num_rows == 100
        # Of other row groups nothing is fetched: the statistics are enough to leave them out.
        places = [index for group in (0, 2, 3) for index in await places_of_indexes(file, group)]
        assert not any(call.start in place for call in store.calls for place in places)


async def places_of_indexes(file: rpq.File, group: int) -> list[range]:
    columns = file.metadata.row_groups[group].columns
    return [
        range(offset, offset + length)
        for column in columns
        for offset, length in (
            (column.column_index_offset, column.column_index_length),
            (column.offset_index_offset, column.offset_index_length),
        )
        if offset is not None and length is not None
    ]


def test_the_sync_twin_and_a_summary(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with sync.create(tmp_path / f"{name}.parquet") as writer:
            writer.write({"n": range(10) if name == "a" else range(10, 20)})
    sync.write_metadata(tmp_path)
    with sync.open(tmp_path / "_metadata") as file:
        plan = file.plan(filters=[("n", ">", 12)])
        assert [request.file for request in plan.requests] == ["b.parquet"]
        assert "of b.parquet, " in str(plan)


async def test_what_came_with_the_footer_costs_no_request(data: bytes) -> None:
    store = RecordingStore(MemoryStore())
    await store.put("file", data)
    async with rpq.open((store, "file"), options=rpq.ReadOptions(tail_bytes=len(data))) as file:
        store.calls.clear()
        plan = await file.plan(["text"])
        assert (plan.requests, plan.num_bytes) == ((), 0)
        assert plan.bytes_at_hand == sum(chunk.num_bytes for group in plan.row_groups for chunk in group.chunks)
        assert f"{plan.bytes_at_hand:,} more bytes that are wanted came with the footer" in str(plan)
        assert pa.table(await file.read(["text"])).equals(TABLE.select(["text"]))
        assert not store.calls
