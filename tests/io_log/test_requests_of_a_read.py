"""Exactly which requests a read makes: they are what a remote file costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore

Log = Callable[[], list[str]]
#: What is read with it does not come with the tail already.
SHORT_TAIL = rpq.ReadOptions(tail_bytes=1000)
APART = rpq.ReadOptions(merge_gap=0)
SHORT_OF_MEMORY = rpq.ReadOptions(memory_budget=1)


async def test_neighbours_of_a_row_group_are_one_request(store: RecordingStore, log: Log) -> None:
    async with rpq.open((store, "file")) as file:
        log()
        await file.read(columns=["id", "town"], row_groups=[1])
        assert log() == ["row group 1: id, town"]


async def test_columns_far_apart_are_requests_side_by_side(store: RecordingStore, log: Log) -> None:
    async with rpq.open((store, "file")) as file:
        log()
        await file.read(columns=["town", "score"], row_groups=[1])
        assert sorted(log()) == ["row group 1: score", "row group 1: town"]


async def test_the_end_of_a_row_group_and_the_beginning_of_the_next_are_one_request(
    store: RecordingStore, log: Log
) -> None:
    async with rpq.open((store, "file"), options=SHORT_TAIL) as file:
        log()
        await file.read(columns=["score", "id"])
        assert sorted(log()) == [
            "row group 0: id",
            "row group 0: score; row group 1: id",
            "row group 1: score; row group 2: id",
            "row group 2: score",
        ]


async def test_a_whole_file_without_its_tail_is_one_request_more(
    store: RecordingStore, log: Log, table: pa.Table
) -> None:
    async with rpq.open((store, "file"), options=SHORT_TAIL) as file:
        log()
        assert pa.table(await file.read()).equals(table)
        assert log() == [
            "row group 0: id, town, wide, score; row group 1: id, town, wide, score; row group 2: id, town, wide, score"
        ]


async def test_gaps_are_not_read_over_when_they_should_not_be(store: RecordingStore, log: Log) -> None:
    async with rpq.open((store, "file"), options=APART) as file:
        log()
        await file.read(columns=["id", "town"], row_groups=[0])
        assert sorted(log()) == ["row group 0: id", "row group 0: town"]
        assert file.counters.bytes - file.counters.useful_bytes <= 262_144  # the tail alone


async def test_the_same_columns_in_another_order_are_the_same_requests(store: RecordingStore, log: Log) -> None:
    async with rpq.open((store, "file")) as file:
        log()
        first = await file.read(columns=["town", "id"], row_groups=[2, 0])
        assert sorted(log()) == ["row group 0: id, town", "row group 2: id, town"]
    assert pa.table(first).column_names == ["town", "id"]


async def test_batches_fetch_ahead_while_a_row_group_is_handed_out(store: RecordingStore, log: Log) -> None:
    async with rpq.open((store, "file")) as file:
        log()
        async with file.batches(50, columns=["id"]) as batches:
            await anext(batches)
            # All are small, so all are on their way.
            assert log() == ["row group 0: id", "row group 1: id", "row group 2: id"]
            async for _ in batches:
                pass
        assert log() == []
        assert file.counters.requests == 4


async def test_batches_fetch_the_next_row_group_only_where_memory_is_short(store: RecordingStore, log: Log) -> None:
    async with rpq.open((store, "file"), options=SHORT_OF_MEMORY) as file:
        log()
        async with file.batches(50, columns=["id"]) as batches:
            await anext(batches)
            # The first is here; of the next at most one is on its way.
            assert log()[0] == "row group 0: id"
            await anext(batches)
            assert log() in ([], ["row group 1: id"])
            await anext(batches)
            assert "row group 2: id" not in log()[1:]
            assert len([batch async for batch in batches]) == 3
        assert file.counters.requests == 4


async def test_batches_of_small_row_groups_side_by_side_share_a_request(table: pa.Table) -> None:
    store = MemoryStore()
    narrow = table.select(["id", "town"])
    async with rpq.create((store, "file"), row_group_rows=20) as writer:
        await writer.write(narrow)
    async with rpq.open((store, "file"), options=SHORT_TAIL) as file:
        batches = [pa.table(batch) async for batch in file.batches()]
        assert file.counters.requests == 2 + 1  # the footer is longer than the tail
    assert [batch.num_rows for batch in batches] == [20] * 15
    assert pa.concat_tables(batches).equals(narrow)


async def test_no_columns_are_no_request(store: RecordingStore, log: Log) -> None:
    async with rpq.open((store, "file")) as file:
        log()
        assert (await file.read(columns=[])).num_rows == 300
        assert (await file.read(row_groups=[])).num_rows == 0
        assert log() == []


class TestOverHttp:
    """The same through the real client and a real server, counted by a proxy between them."""

    @pytest.fixture
    def remote(self, s3_proxy: Any, data: bytes) -> tuple[Any, Any]:
        s3, proxy = s3_proxy
        s3.client.put_object(Bucket=s3.bucket, Key="file.parquet", Body=data)
        return s3, proxy

    async def test_opening_is_one_get_and_no_head(self, remote: Any) -> None:
        s3, proxy = remote
        async with rpq.open(s3.url("file.parquet"), storage_options=s3.storage_options) as file:
            assert [request.method for request in proxy.requests] == ["GET"]
            assert proxy.requests[0].headers["range"] == "bytes=-262144"
            await file.read(columns=["id", "town"], row_groups=[1])
            assert [request.method for request in proxy.requests] == ["GET", "GET"]
            # Pinned to what was opened.
            assert proxy.requests[1].headers["if-match"] == file.info.etag
            first, last = proxy.requests[1].headers["range"].removeprefix("bytes=").split("-")
            assert int(last) - int(first) < 64 * 1024
            await file.read(columns=["town", "score"], row_groups=[1])
            assert [request.method for request in proxy.requests] == ["GET"] * 4
            assert file.counters.requests == 4

    async def test_a_file_that_is_not_there_is_one_get(self, remote: Any) -> None:
        s3, proxy = remote
        with pytest.raises(rpq.NotFoundError):
            async with rpq.open(s3.url("none.parquet"), storage_options=s3.storage_options):
                pass
        assert [request.method for request in proxy.requests] == ["GET"]
