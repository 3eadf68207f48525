"""Where row groups and checkpoints are cut, and that what a writer says of itself is true."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import AlreadyExistsError, FileFullError, WriterClosedError
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.writer import cut_policy

Read = Callable[..., Awaitable[Any]]


async def test_a_large_batch_is_split_into_row_groups(store: MemoryStore, table_of: Read, row_groups_of: Read) -> None:
    table = pa.table({"a": range(50), "b": [str(i) for i in range(50)]})
    async with rpq.create((store, "file"), row_group_rows=7) as writer:
        await writer.write(table)
    assert await row_groups_of(store) == [7] * 7 + [1]
    assert (await table_of(store)).equals(table)


async def test_small_batches_share_row_groups(store: MemoryStore, table_of: Read, row_groups_of: Read) -> None:
    async with rpq.create((store, "file"), row_group_rows=10) as writer:
        for start in range(0, 35, 5):
            await writer.write({"a": range(start, start + 5)})
        await writer.write({"a": range(35, 62)})
    assert await row_groups_of(store) == [10] * 6 + [2]
    assert (await table_of(store))["a"].to_pylist() == list(range(62))


async def test_row_groups_close_by_their_bytes(store: MemoryStore, row_groups_of: Read, table_of: Read) -> None:
    table = pa.table({"a": pa.array([b"x" * 1000] * 100)})
    async with rpq.create((store, "file"), row_group_bytes=10_500) as writer:
        await writer.write(table)
    groups = await row_groups_of(store)
    assert sum(groups) == 100 and set(groups[:-1]) <= {9, 10, 11}
    async with rpq.create((store, "tiny"), row_group_bytes=1) as writer:
        await writer.write(table.slice(0, 3))
    assert await row_groups_of(store, "tiny") == [1, 1, 1]
    assert (await table_of(store, "tiny")).equals(table.slice(0, 3))


async def test_counts_tell_the_truth(make_slow_store: Any, bytes_of: Read) -> None:
    store = make_slow_store()
    options: dict[str, Any] = {"row_group_rows": 10, "checkpoint_every": 2, "checkpoint_overhead": 100.0}
    async with rpq.create((store, "file"), **options) as writer:
        assert (writer.num_rows, writer.num_rows_stored, writer.num_bytes, writer.closed) == (0, 0, 0, False)
        assert (writer.last_checkpoint.ordinal, writer.last_checkpoint.num_rows) == (0, 0)
        await writer.write({"a": range(5)})
        assert (writer.num_rows, writer.num_rows_stored) == (5, 0)
        await writer.write({"a": range(10)})
        assert (writer.num_rows, writer.num_rows_stored, writer.last_checkpoint.ordinal) == (15, 0, 0)
        await writer.write({"a": range(10)})
        first = writer.last_checkpoint
        assert (first.ordinal, first.num_rows, first.state) == (1, 20, "stored")
        assert (writer.num_rows, writer.num_rows_stored) == (25, 20)
        assert first.offset == store.sinks[0].position == writer.num_bytes
        second = await writer.checkpoint()
        assert second == writer.last_checkpoint
        assert (second.ordinal, second.num_rows, second.state) == (2, 25, "stored")
        assert writer.num_rows_stored == 25
        assert await writer.checkpoint() == second, "nothing changed since"
        await writer.write({"a": [1]})
        assert (writer.num_rows, writer.num_rows_stored) == (26, 25)
    assert writer.closed and (writer.num_rows, writer.num_rows_stored) == (26, 26)
    data = await bytes_of(store)
    assert writer.num_bytes == len(data)
    for checkpoint in (first, second):
        assert pq.read_metadata(io.BytesIO(data[: checkpoint.offset])).num_rows == checkpoint.num_rows
    async with rpq.open((store, "file")) as file:
        assert [(known.ordinal, known.num_rows) for known in file.checkpoints] == [(1, 20), (2, 25)]


async def test_a_store_that_keeps_nothing_says_so(store: MemoryStore) -> None:
    async with rpq.create((store, "file")) as writer:
        await writer.write({"a": [1]})
        assert (await writer.checkpoint()).state == "accepted"
        assert writer.num_rows_stored == 0
    assert writer.num_rows_stored == 1


async def test_a_checkpoint_before_any_row_is_an_empty_file(store: MemoryStore, bytes_of: Read) -> None:
    async with rpq.create((store, "file"), pa.schema([("a", pa.int64())])) as writer:
        checkpoint = await writer.checkpoint()
        assert (checkpoint.ordinal, checkpoint.num_rows) == (1, 0)
        assert await writer.checkpoint() == checkpoint
        await writer.write({"a": [1, 2, 3]})
    data = await bytes_of(store)
    assert pq.read_table(io.BytesIO(data[: checkpoint.offset])).num_rows == 0
    assert pq.read_table(io.BytesIO(data)).num_rows == 3


@pytest.mark.parametrize("overhead", [0.1, 0.3, 0.45])
async def test_checkpoints_stay_within_their_overhead(store: MemoryStore, overhead: float) -> None:
    """Also where a footer has more in it than row groups: long metadata, or the schema of a wide table."""
    options: dict[str, Any] = {"row_group_rows": 1000, "checkpoint_every": 1, "checkpoint_overhead": overhead}
    notes = {"notes": "x" * 20_000}
    taken = 0
    async with rpq.create((store, "file"), compression="none", metadata=notes, **options) as writer:
        for step in range(30):
            await writer.write({"a": np.random.default_rng(step).random(1000)})
            checkpoint = writer.last_checkpoint
            if checkpoint.ordinal > taken:
                taken = checkpoint.ordinal
                assert writer._encoder is not None
                assert writer._encoder.layout.checkpoint_bytes <= overhead * checkpoint.offset
    assert taken


# --- writers that ended, and objects that exist -------------------------------------------------------------


async def test_a_closed_writer_takes_nothing(store: MemoryStore, table_of: Read) -> None:
    async with rpq.create((store, "file")) as writer:
        await writer.write({"a": [1]})
    for call in (lambda: writer.write({"a": [2]}), writer.checkpoint):
        with pytest.raises(WriterClosedError, match="the writer is closed") as caught:
            await call()
        assert caught.value.where.key == "memory:file"
    await writer.close()
    await writer.abort()
    assert (await table_of(store))["a"].to_pylist() == [1]


async def test_an_aborted_writer_leaves_nothing(slow_store: Any, is_there: Read) -> None:
    writer = await rpq.create((slow_store, "file"))
    await writer.write({"a": [1]})
    await writer.checkpoint()
    await writer.abort()
    await writer.abort()
    assert slow_store.sinks[0].ended == ["abort"]
    with pytest.raises(WriterClosedError):
        await writer.write({"a": [1]})
    await writer.close()
    assert not await is_there(slow_store)


async def test_what_is_replaced_stays_until_the_end(store: MemoryStore, table_of: Read) -> None:
    await store.put("file", b"what was there")
    with pytest.raises(AlreadyExistsError):
        await rpq.create((store, "file"), mode="x")
    async with rpq.create((store, "file")) as writer:
        await writer.write({"a": [1]})
        await writer.checkpoint()
        assert bytes((await store.read_tail("file", 99)).data) == b"what was there"
    assert (await table_of(store)).num_rows == 1


async def test_of_two_writers_of_a_new_object_one_wins(store: MemoryStore, table_of: Read) -> None:
    first = await rpq.create((store, "file"), mode="x")
    second = await rpq.create((store, "file"), mode="x")
    await first.write({"a": [1]})
    await second.write({"a": [2]})
    await second.close()
    with pytest.raises(AlreadyExistsError):
        await first.close()
    assert (await table_of(store))["a"].to_pylist() == [2]


# --- a full file --------------------------------------------------------------------------------------------


async def _write_sevens(url: Any, starts: Iterator[int], opened: list[rpq.Writer]) -> None:
    async with rpq.create(url, row_group_rows=10) as writer:
        opened.append(writer)
        for start in starts:
            await writer.write({"a": range(start, start + 7)})


async def test_a_full_file_is_completed_and_says_what_is_not_in_it(
    store: MemoryStore, table_of: Read, row_groups_of: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_policy, "MAX_FOOTER_BYTES", 450)
    starts = iter(range(0, 1000, 7))
    opened: list[rpq.Writer] = []
    with pytest.raises(FileFullError, match="the file is full") as caught:
        await _write_sevens((store, "file"), starts, opened)
    writer, given = opened[0], next(starts)
    assert caught.value.hint == "continue in a new file" and caught.value.where.key == "memory:file"
    assert writer.closed and writer.num_rows == writer.num_rows_stored
    groups = await row_groups_of(store)
    assert set(groups) == {10} and sum(groups) == writer.num_rows
    assert f"{given - writer.num_rows:,} rows of this batch are not in it" in str(caught.value)
    assert (await table_of(store))["a"].to_pylist() == list(range(writer.num_rows))
    async with rpq.open((store, "file")) as file:
        assert file.state == "complete"


async def test_a_file_may_be_just_full(
    store: MemoryStore, row_groups_of: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_policy, "MAX_FOOTER_BYTES", 300)
    async with rpq.create((store, "file"), row_group_rows=2) as writer:
        await writer.write({"a": range(4)})
    assert await row_groups_of(store) == [2, 2]


async def test_a_full_file_is_not_full_twice(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_policy, "MAX_FOOTER_BYTES", 1)
    async with rpq.create((store, "file"), row_group_rows=2) as writer:
        with pytest.raises(FileFullError):
            await writer.write({"a": range(5)})
        assert writer.closed and writer.num_rows == 2
        with pytest.raises(WriterClosedError):
            await writer.write({"a": [1]})
    async with rpq.open((store, "file")) as file:
        assert file.num_rows == 2
