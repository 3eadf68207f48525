"""The writer as its users meet it: what it takes, what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_store import Fault, FaultyStore

import resilient_pq as rpq
from resilient_pq.format import compact_protocol
from resilient_pq.format.resilience_records import RecordKind, RowGroupRecord
from resilient_pq.io import MemoryStore, StoredState
from resilient_pq.recovery.evidence.records.record_scan import in_place, scan_headers
from resilient_pq.writer import cut_policy

ROWS = 1_000


def table(start: int = 0, rows: int = ROWS) -> pa.Table:
    numbers = np.arange(start, start + rows)
    return pa.table({"n": numbers, "s": [None if n % 5 == 0 else f"value {n % 13}" for n in numbers]})


async def content(store: MemoryStore, key: str = "f") -> bytes:
    info = await store.head(key)
    return bytes(await store.read_range(key, 0, info.size, pin=info))


async def read_back(store: MemoryStore, key: str = "f") -> pa.Table:
    return pq.read_table(io.BytesIO(await content(store, key)))


async def test_a_batch_that_does_not_fit_costs_nothing() -> None:
    store = MemoryStore()
    async with rpq.create((store, "f")) as writer:
        await writer.write(table())
        wrong = pa.table({"n": ["text"], "s": ["x"]})
        with pytest.raises(rpq.SchemaError, match="'n'"):
            await writer.write(wrong)
        with pytest.raises(rpq.SchemaError, match="'s'"):
            await writer.write({"n": [1]} | {"s": [b"\xff"], "t": [1]})
        assert writer.num_rows == ROWS
        await writer.write(table(ROWS))
    assert (await read_back(store)).equals(pa.concat_tables([table(), table(ROWS)]).combine_chunks())


@pytest.mark.parametrize(
    "data",
    [
        {"n": np.arange(3), "s": ["a", None, "c"]},
        {"n": [0, 1, 2], "s": ["a", None, "c"]},
        [{"n": 0, "s": "a"}, {"n": 1}, {"n": 2, "s": "c"}],
        pa.table({"n": [0, 1, 2], "s": ["a", None, "c"]}),
        pa.record_batch({"n": [0, 1, 2], "s": ["a", None, "c"]}),
    ],
    ids=["dict of arrays", "dict of lists", "records", "table", "record batch"],
)
async def test_what_a_writer_takes(data: object) -> None:
    store = MemoryStore()
    async with rpq.create((store, "f")) as writer:
        await writer.write(data)
    assert (await read_back(store)).to_pydict() == {"n": [0, 1, 2], "s": ["a", None, "c"]}


@pytest.mark.parametrize(("entries", "is_copied"), [(8192, True), (8193, False)])
async def test_dictionaries_up_to_64_kib_have_a_copy(entries: int, is_copied: bool) -> None:
    """In the record of their row group, as they are stored."""
    store = MemoryStore()
    async with rpq.create((store, "f"), compression=None) as writer:
        values = [f"{i:04}" for i in range(entries)]  # of eight bytes each, with their lengths
        await writer.write(pa.table({"s": random.Random(1).sample(values * 8, k=8 * entries)}))
    data = (await store.read_tail("f", 1 << 30)).data
    record = next(header for header in in_place(scan_headers(data, 0)) if header.kind == RecordKind.ROW_GROUP)
    (copies,) = compact_protocol.decode(RowGroupRecord, data, record.payload_offset)[0].chunks
    assert copies.dictionary_page is not None
    assert (copies.dictionary_copy is not None) == is_copied
    assert not is_copied or len(copies.dictionary_copy) == 8 * entries


async def test_a_writer_that_was_awaited_is_a_context_too() -> None:
    store = MemoryStore()
    writer = await rpq.create((store, "f"))
    async with writer as same:
        assert same is writer
        await same.write(table())
    assert (await read_back(store)).num_rows == ROWS


async def test_a_closed_writer() -> None:
    store = MemoryStore()
    writer = await rpq.create((store, "f"))
    await writer.write(table())
    await writer.close()
    await writer.close()
    with pytest.raises(rpq.WriterClosedError):
        await writer.write(table())
    with pytest.raises(rpq.WriterClosedError):
        await writer.checkpoint()
    assert writer.num_rows_stored == ROWS


async def test_an_empty_file_has_its_schema() -> None:
    store = MemoryStore()
    async with rpq.create((store, "f"), table().schema):
        pass
    assert (await read_back(store)).schema.equals(table().schema)


async def test_neither_rows_nor_schema() -> None:
    store = MemoryStore()
    with pytest.raises(rpq.SchemaError, match="no schema"):
        async with rpq.create((store, "f")):
            pass
    with pytest.raises(rpq.NotFoundError):
        await store.head("f")


async def test_row_groups_and_checkpoints() -> None:
    store = MemoryStore()
    async with rpq.create((store, "f"), row_group_rows=300, checkpoint_every=2, checkpoint_overhead=10) as writer:
        await writer.write(table())
        assert (writer.num_rows, writer.last_checkpoint.num_rows) == (ROWS, 600)
        checkpoint = await writer.checkpoint()
        assert (checkpoint.num_rows, checkpoint.offset) == (ROWS, writer.num_bytes)
        assert checkpoint.state is StoredState.ACCEPTED, "memory keeps nothing"
        assert await writer.checkpoint() == checkpoint, "nothing came in between"
    metadata = pq.read_metadata(io.BytesIO(await content(store)))
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [300, 300, 300, 100]
    async with rpq.open((store, "f")) as file:
        assert [known.num_rows for known in file.checkpoints] == [600, ROWS]


async def test_a_row_group_is_closed_by_its_bytes() -> None:
    store = MemoryStore()
    data = pa.table({"n": np.arange(100_000)})
    async with rpq.create((store, "f"), row_group_bytes=100_000) as writer:
        await writer.write(data)
    metadata = pq.read_metadata(io.BytesIO(await content(store)))
    assert metadata.num_row_groups >= 8
    assert (await read_back(store)).equals(data)


async def test_a_full_file_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_policy, "MAX_FOOTER_BYTES", 400)
    store = MemoryStore()
    async with rpq.create((store, "f"), row_group_rows=ROWS) as writer:
        await writer.write(table())
        await writer.write(table(ROWS))
        with pytest.raises(rpq.FileFullError, match="2,000 rows"):
            await writer.write(table(2 * ROWS))
    assert (await read_back(store)).num_rows == 2 * ROWS


async def test_an_exception_publishes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    with pytest.raises(ZeroDivisionError) as caught:
        async with rpq.create(path, row_group_rows=100) as writer:
            await writer.write(table())
            raise ZeroDivisionError
    assert not path.exists()
    assert "1,000 rows are kept" in "".join(caught.value.__notes__)
    report = await rpq.recover(f"{path}.partial", tmp_path / "saved.parquet")
    assert report.num_rows == ROWS


async def test_an_exception_before_anything_is_stored_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with rpq.create(tmp_path / "f.parquet") as writer:
            await writer.write(table())
            raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


async def test_abort_on_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with rpq.create(tmp_path / "f.parquet", row_group_rows=100, on_error="abort") as writer:
            await writer.write(table())
            await writer.checkpoint()
            raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


async def test_a_store_that_is_full_fails_the_writer() -> None:
    fault = Fault("write", rpq.StoreError("no space left"), times=1)
    store = FaultyStore(MemoryStore(), [fault])
    with pytest.raises(rpq.StoreError, match="no space left"):
        async with rpq.create((store, "f"), row_group_rows=100) as writer:
            await writer.write(table())
    with pytest.raises(rpq.NotFoundError):
        await store.head("f")


async def test_a_failed_writer_says_so_again() -> None:
    store = FaultyStore(MemoryStore(), [Fault("write", rpq.StoreError("no space left"), times=1)])
    writer = await rpq.create((store, "f"), row_group_rows=100)
    with pytest.raises(rpq.StoreError):
        await writer.write(table())
    with pytest.raises(rpq.WriterFailedError, match="no space left"):
        await writer.write(table())
    with pytest.raises(rpq.WriterFailedError):
        await writer.close()


async def test_a_file_that_exists(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(b"something")
    with pytest.raises(rpq.AlreadyExistsError):
        async with rpq.create(path, mode="x") as writer:
            await writer.write(table())
    assert path.read_bytes() == b"something"
    async with rpq.create(path) as writer:
        await writer.write(table())
    assert pq.read_table(path).equals(table())


async def test_cancellation_publishes_nothing_and_leaves_no_task(tmp_path: Path) -> None:
    chosen = random.Random(3)

    async def write(path: Path) -> None:
        async with rpq.create(path, row_group_rows=100, checkpoint_every=1, checkpoint_overhead=10) as writer:
            for start in range(0, 50 * ROWS, ROWS):
                await writer.write(table(start))

    for attempt in range(20):
        path = tmp_path / f"{attempt}.parquet"
        task = asyncio.create_task(write(path))
        await asyncio.sleep(chosen.random() * 0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not path.exists()
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"compression": "rar"}, "unknown compression 'rar'"),
        ({"compression": "snappy", "compression_level": 3}, "no compression levels"),
        ({"compression": "zstd", "compression_level": 99}, "out of range"),
        ({"row_group_rows": 0}, "row_group_rows is 0"),
        ({"checkpoint_overhead": -1}, "checkpoint_overhead"),
        ({"metadata": {"rpq.state": "x"}}, "the writer's own"),
        ({"metadata": {"k": 1}}, "not text"),
        ({"on_error": "ignore"}, "on_error"),
        ({"options": rpq.WriteOptions(part_bytes=5)}, "whole number of MiB"),
        ({"options": rpq.WriteOptions(data_page_version="3.0")}, "data_page_version"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_can_never_work(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(rpq.SchemaError, match=message):
        rpq.create((MemoryStore(), "f"), **settings)


@pytest.mark.parametrize(
    ("encodings", "message"),
    [
        ({"x": "PLAIN"}, "no column 'x'"),
        ("MORSE", "unknown encoding"),
        ({"s": "RLE"}, "cannot hold BYTE_ARRAY"),
    ],
)
async def test_encodings_that_can_never_work(encodings: Any, message: str) -> None:
    with pytest.raises(rpq.SchemaError, match=message):
        async with rpq.create((MemoryStore(), "f"), encodings=encodings) as writer:
            await writer.write(table())


async def test_key_value_metadata() -> None:
    store = MemoryStore()
    async with rpq.create((store, "f"), metadata={"origin": "sensor 7"}) as writer:
        await writer.write(table())
    async with rpq.open((store, "f")) as file:
        assert file.key_value_metadata["origin"] == "sensor 7"
        assert file.state is rpq.FileState.COMPLETE
