"""The reader's requests: how many, what for, and what becomes of answers that are wrong, late or of another version."""

from __future__ import annotations

import asyncio
import gc
import io
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_store import Fault, FaultyStore
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq import (
    AccessDeniedError,
    ChecksumError,
    NotFoundError,
    NotParquetError,
    ObjectChangedError,
    ReadOptions,
    ResilientPQError,
    SchemaError,
    TornFileError,
    TransientError,
    UnsupportedError,
)
from resilient_pq.format.kernels import KeptStructs
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.reader import opening

Stored = Callable[[bytes], Awaitable[MemoryStore]]

#: What is read with it does not come with the tail already, however small the file.
SHORT_TAIL = ReadOptions(tail_bytes=8)


# --- opening ------------------------------------------------------------------------------------------------


async def test_one_request_opens_a_file(our_bytes: bytes, stored: Stored) -> None:
    store = RecordingStore(await stored(our_bytes))
    async with rpq.open((store, "file")) as file:
        assert [call.verb for call in store.calls] == ["read_tail"]
        assert (file.counters.requests, file.counters.bytes) == (1, len(our_bytes))


async def test_a_longer_footer_costs_one_more_request(our_bytes: bytes, stored: Stored, rows: pa.Table) -> None:
    footer = int.from_bytes(our_bytes[-8:-4], "little") + 8
    for tail_bytes in (8, 9, 50, footer - 1, footer, footer + 95):
        store = RecordingStore(await stored(our_bytes))
        async with rpq.open((store, "file"), options=ReadOptions(tail_bytes=tail_bytes)) as file:
            first, second = store.calls
            assert (first.verb, first.start) == ("read_tail", -tail_bytes)
            assert second.verb == "read_range"
            assert (second.start, second.end) == (len(our_bytes) - footer - 96, len(our_bytes) - tail_bytes)
            assert file.counters.bytes == footer + 96
            assert pa.table(await file.read()).equals(rows)
    store = RecordingStore(await stored(our_bytes))
    async with rpq.open((store, "file"), options=ReadOptions(tail_bytes=footer + 96)):
        assert [call.verb for call in store.calls] == ["read_tail"]


async def test_a_large_footer_is_not_joined_to_its_end(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    # By others, so that its size is that of no record: the end of it is read once more.
    monkeypatch.setattr(opening, "_LARGE_FOOTER", 1000)
    written = io.BytesIO()
    pq.write_table(pa.table({f"c{i}": [i, i + 1] for i in range(40)}), written, row_group_size=1)
    data = written.getvalue()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    for tail_bytes, end in ((8, len(data)), (footer // 2, len(data) - footer // 2)):
        store = RecordingStore(await stored(data))
        async with rpq.open((store, "file"), options=ReadOptions(tail_bytes=tail_bytes)) as file:
            assert (store.calls[1].start, store.calls[1].end) == (len(data) - footer - 96, end)
            assert pa.table(await file.read()).equals(pq.read_table(written))


async def test_opening_makes_no_column_chunks(our_bytes: bytes, stored: Stored) -> None:
    written = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2], "b": [3, 4]}), written, row_group_size=1)
    for data in (our_bytes, written.getvalue()):
        async with rpq.open((await stored(data), "file")) as file:
            for row_group in file.metadata.row_groups:
                columns = row_group.columns
                assert isinstance(columns, KeptStructs) and columns._plain is None and not columns._made


@pytest.mark.parametrize("tail_bytes", [-1, 0, 1, 7])
async def test_the_length_of_the_footer_is_always_read(our_bytes: bytes, stored: Stored, tail_bytes: int) -> None:
    async with rpq.open((await stored(our_bytes), "file"), options=ReadOptions(tail_bytes=tail_bytes)) as file:
        assert file.num_rows == 90 and file.counters.requests == 2


NOT_FILES: dict[str, tuple[bytes, type[ResilientPQError], str, bool]] = {
    "empty": (b"", NotParquetError, "the object is empty", False),
    "a zip archive": (b"PK\x03\x04" + bytes(500), NotParquetError, "a ZIP archive", False),
    "a CSV file": (b"a,b\n1,2\n" * 50, NotParquetError, "a text file with columns separated by ','", False),
    "a large CSV file": (b"a,b\n1,2\n" * 50_000, NotParquetError, "a text file with columns", False),
    "JSON that ends in the magic": (b'{"a": 1}' * 50 + b"PAR1", NotParquetError, "begins like a JSON file", False),
    "bytes of no known format": (bytes(range(128, 256)) * 50, NotParquetError, "at the beginning", False),
    "cut short": (b"PAR1" + b"\x15\x04" * 200, TornFileError, "the footer is missing or cut short", True),
    "the magic alone": (b"PAR1", TornFileError, "4 bytes are too few", True),
    "encrypted": (b"PARE" + bytes(50) + b"PARE", UnsupportedError, "encrypted", False),
}


@pytest.mark.parametrize("name", NOT_FILES)
async def test_what_is_no_file_is_told_apart(stored: Stored, name: str) -> None:
    data, kind, message, recoverable = NOT_FILES[name]
    with pytest.raises(kind, match=message) as caught:
        await rpq.open((await stored(data), "file"))
    assert caught.value.where.key == "memory:file"
    assert (caught.value.hint == "rpq recover memory:file RECOVERED") == recoverable
    if recoverable:
        assert str(caught.value).endswith("hint: rpq recover memory:file RECOVERED")


@pytest.mark.parametrize("size", [30, 1000, 3000])
async def test_torn_files_lead_to_recovery(our_bytes: bytes, stored: Stored, size: int) -> None:
    with pytest.raises(TornFileError) as caught:
        await rpq.open((await stored(our_bytes[:size]), "file"))
    assert caught.value.hint == "rpq recover memory:file RECOVERED"


async def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"missing\.parquet"):
        await rpq.open(tmp_path / "missing.parquet")
    with pytest.raises(FileNotFoundError):
        await rpq.open((MemoryStore(), "missing"))
    with pytest.raises(ResilientPQError) as caught:
        await rpq.open(tmp_path)
    assert str(tmp_path) in str(caught.value)


async def test_other_ways_to_treat_damage() -> None:
    with pytest.raises(SchemaError, match="on_damage is 'columns'") as caught:
        rpq.open("file", on_damage="columns")  # type: ignore[arg-type]
    assert caught.value.hint == "one of: raise, null, drop"
    with pytest.raises(SchemaError, match="on_lost is 3"):
        rpq.open("file", on_damage="drop", on_lost=3)  # type: ignore[arg-type]


async def test_a_store_that_refuses(our_bytes: bytes, stored: Stored) -> None:
    store = FaultyStore(await stored(our_bytes), [Fault("read_tail", AccessDeniedError("no permission"))])
    with pytest.raises(PermissionError, match="no permission"):
        await rpq.open((store, "file"))


# --- answers that are wrong ---------------------------------------------------------------------------------


async def test_an_object_that_is_replaced(our_bytes: bytes, their_bytes: bytes, stored: Stored) -> None:
    """Whenever it happens: bytes of two versions are never mixed."""
    store = await stored(our_bytes)
    short_of_memory = ReadOptions(tail_bytes=200, memory_budget=1)
    async with rpq.open((store, "file"), options=short_of_memory) as file:
        batches = file.batches(5)
        await anext(batches)
        await store.put("file", their_bytes)
        with pytest.raises(ObjectChangedError) as caught:
            await file.read()
        assert caught.value.where.key == "memory:file" and caught.value.hint == "open it again to read the new version"
        with pytest.raises(ObjectChangedError):
            async for _ in batches:
                pass
    async with rpq.open((store, "file")) as file:
        assert file.num_rows == 90 and file.state is None


async def test_replaced_between_the_two_requests_of_opening(our_bytes: bytes, stored: Stored) -> None:
    inner = await stored(our_bytes)

    class Replacing(RecordingStore):
        async def read_range(self, key: str, start: int, end: int, *, pin: Any) -> Any:
            await inner.put("file", our_bytes)
            return await super().read_range(key, start, end, pin=pin)

    with pytest.raises(ObjectChangedError):
        await rpq.open((Replacing(inner), "file"), options=ReadOptions(tail_bytes=100))


async def test_a_file_smaller_than_the_tail_is_one_request_in_all(
    our_bytes: bytes, stored: Stored, rows: pa.Table
) -> None:
    store = RecordingStore(await stored(our_bytes))
    async with rpq.open((store, "file")) as file:
        assert pa.table(await file.read()).equals(rows)
        assert pa.concat_tables([pa.table(batch) async for batch in file.batches(7)]).equals(rows)
        assert (file.counters.requests, file.counters.bytes) == (1, len(our_bytes))
    assert [call.verb for call in store.calls] == ["read_tail"]


async def test_chunks_that_lie_in_the_tail_are_not_fetched(our_bytes: bytes, stored: Stored, rows: pa.Table) -> None:
    """What lies in it only in part is."""
    store = RecordingStore(await stored(our_bytes))
    async with rpq.open((store, "file")) as file:
        start = file.metadata.row_groups[-1].columns[0].meta_data.data_page_offset
    for tail_bytes in (len(our_bytes) - start + 200, len(our_bytes) - start - 1):
        store.calls.clear()
        async with rpq.open((store, "file"), options=ReadOptions(tail_bytes=tail_bytes)) as file:
            assert pa.table(await file.read()).equals(rows)
        asked = [call for call in store.calls if call.verb == "read_range"]
        inside = [call for call in asked if call.start >= len(our_bytes) - tail_bytes]
        assert asked and not inside


async def test_a_bit_that_flipped_in_the_tail_is_fetched_again(
    our_bytes: bytes, stored: Stored, rows: pa.Table
) -> None:
    """What came with it is believed no more than anything else, and no longer asked for there."""
    store = FaultyStore(await stored(our_bytes))
    async with rpq.open((store, "file")) as file:
        chunk = file.metadata.row_groups[1].columns[1].meta_data
    at = (chunk.dictionary_page_offset or chunk.data_page_offset) + 30
    store.faults.append(Fault("read_tail", flip_bit=8 * at))
    async with rpq.open((store, "file")) as file:
        assert pa.table(await file.read()).equals(rows)
        assert file.counters.requests == 2


async def test_a_bit_that_flipped_on_the_way_is_fetched_again(our_bytes: bytes, stored: Stored, rows: pa.Table) -> None:
    store = FaultyStore(await stored(our_bytes))
    async with rpq.open((store, "file"), options=SHORT_TAIL) as file:
        before = file.counters.requests
        store.faults.append(Fault("read_range", flip_bit=8 * 40))
        assert pa.table(await file.read()).equals(rows)
        assert file.counters.requests == before + 2


async def test_bits_that_flip_every_time_are_damage(our_bytes: bytes, stored: Stored) -> None:
    store = FaultyStore(await stored(our_bytes))
    async with rpq.open((store, "file"), options=SHORT_TAIL) as file:
        store.faults.append(Fault("read_range", flip_bit=8 * 40, times=100))
        with pytest.raises(rpq.FormatError) as caught:
            await file.read(columns=["n"], row_groups=[0])
    where = caught.value.where
    assert (where.key, where.row_group, where.column) == ("memory:file", 0, "n")


@pytest.mark.parametrize("cut_to", [0, 1, 100])
async def test_a_store_that_gives_too_few_bytes(our_bytes: bytes, stored: Stored, cut_to: int) -> None:
    store = FaultyStore(await stored(our_bytes))
    async with rpq.open((store, "file"), options=SHORT_TAIL) as file:
        store.faults.append(Fault("read_range", cut_to=cut_to, times=100))
        with pytest.raises(ResilientPQError):
            await file.read()


async def test_errors_of_the_store_pass_and_the_file_stays_usable(
    our_bytes: bytes, stored: Stored, rows: pa.Table
) -> None:
    store = FaultyStore(await stored(our_bytes))
    async with rpq.open((store, "file"), options=SHORT_TAIL) as file:
        store.faults.append(Fault("read_range", TransientError("reset")))
        with pytest.raises(TransientError, match="reset"):
            await file.read()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert pa.table(await file.read()).equals(rows)


# --- verify -------------------------------------------------------------------------------------------------


async def test_any_flipped_byte_of_a_chunk_is_found(our_bytes: bytes, stored: Stored, rows: pa.Table) -> None:
    """Page headers too, which no page's own checksum covers."""
    async with rpq.open((await stored(our_bytes), "file")) as file:
        chunk = file.metadata.row_groups[1].columns[1].meta_data
    assert chunk is not None
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    for at in range(start, start + chunk.total_compressed_size):
        data = bytearray(our_bytes)
        data[at] ^= 0x10
        async with rpq.open((await stored(bytes(data)), "file")) as file:
            with pytest.raises(rpq.FormatError) as caught:
                await file.read()
            assert (caught.value.where.row_group, caught.value.where.column) == (1, "s"), at
            assert pa.table(await file.read(columns=["n"])).equals(rows.select(["n"]))


async def test_a_flipped_byte_of_our_footer_is_found(our_bytes: bytes, stored: Stored) -> None:
    start = len(our_bytes) - 8 - int.from_bytes(our_bytes[-8:-4], "little")
    for at in range(start - 96, len(our_bytes), 7):
        data = bytearray(our_bytes)
        data[at] ^= 0x01
        store = await stored(bytes(data))
        with pytest.raises(rpq.FormatError):
            await rpq.open((store, "file"))


async def test_an_unvouched_footer_can_be_read_on_request(our_bytes: bytes, stored: Stored, rows: pa.Table) -> None:
    start = len(our_bytes) - 8 - int.from_bytes(our_bytes[-8:-4], "little")
    data = bytearray(our_bytes)
    data[start - 50] ^= 0x01
    store = await stored(bytes(data))
    with pytest.raises(rpq.FormatError, match="nothing vouches for the footer") as caught:
        await rpq.open((store, "file"))
    assert "verify=False" in str(caught.value.hint)
    async with rpq.open((store, "file"), verify=False) as file:
        assert file.state is None and pa.table(await file.read()).equals(rows)


async def test_verify_off_does_not_compare(stored: Stored) -> None:
    store = MemoryStore()
    numbers = pa.table({"n": pa.array([2**40 + i for i in range(50)])})
    async with rpq.create((store, "file"), compression="none", encodings="PLAIN") as writer:
        await writer.write(numbers)
    data = bytearray((await store.read_tail("file", 1 << 30)).data)
    data[data.index((2**40 + 7).to_bytes(8, "little"))] ^= 0xFF
    store = await stored(bytes(data))
    async with rpq.open((store, "file")) as file:
        with pytest.raises(ChecksumError) as caught:
            await file.read()
        assert caught.value.stored != caught.value.computed and caught.value.where.page == 0
    async with rpq.open((store, "file"), verify=False) as file:
        found = (await file.read()).to_pydict()["n"]
    assert found[7] == (2**40 + 7) ^ 0xFF
    assert found[:7] + found[8:] == numbers["n"].to_pylist()[:7] + numbers["n"].to_pylist()[8:]


# --- batches ------------------------------------------------------------------------------------------------


async def test_leaving_early_leaves_no_task(our_bytes: bytes, stored: Stored) -> None:
    store = await stored(our_bytes)
    for taken in range(0, 18, 3):
        async with rpq.open((store, "file")) as file:
            async with aclosing(file.batches(5)) as batches:
                for _ in range(taken):
                    await anext(batches)
            assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_error_in_the_loop_leaves_no_task(our_bytes: bytes, stored: Stored) -> None:
    async def use(file: rpq.File) -> None:
        async with aclosing(file.batches(5)) as batches:
            async for _ in batches:
                raise ZeroDivisionError

    async with rpq.open((await stored(our_bytes), "file")) as file:
        with pytest.raises(ZeroDivisionError):
            await use(file)
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_batches_that_are_forgotten_are_closed(our_bytes: bytes, stored: Stored, left_open: list[str]) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        async for _ in file.batches(5):
            break
        gc.collect()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert asyncio.all_tasks() == {asyncio.current_task()}
    left_open.clear()  # the one that was forgotten here


async def test_cancelled_reads_leave_no_task(our_bytes: bytes, stored: Stored, left_open: list[str]) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:

        async def walk() -> None:
            async for _ in file.batches(3):
                await asyncio.sleep(0)

        for work in (file.read, walk):
            for turns in range(12):
                task = asyncio.ensure_future(work())
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                # A stream that is let go of between two batches is closed by the loop, in a task that ends by itself.
                if closing := asyncio.all_tasks() - {asyncio.current_task()}:
                    await asyncio.wait(closing, timeout=60)
                assert asyncio.all_tasks() == {asyncio.current_task()}, turns
    # It depends on the number of turns whether one was cancelled there: `walk` closes no stream, as a caller may.
    left_open[:] = [generator for generator in left_open if not generator.startswith("batches_of")]


async def test_batches_before_the_damage_are_given(our_bytes: bytes, stored: Stored, rows: pa.Table) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        chunk = file.metadata.row_groups[2].columns[0].meta_data
    assert chunk is not None
    data = bytearray(our_bytes)
    data[chunk.data_page_offset + chunk.total_compressed_size - 2] ^= 0xFF
    got = []
    async with rpq.open((await stored(bytes(data)), "file")) as file:
        batches = file.batches(7)
        with pytest.raises(ChecksumError) as caught:
            while True:
                got.append(pa.table(await anext(batches)))
    assert pa.concat_tables(got).equals(rows.slice(0, 40))
    assert (caught.value.where.row_group, caught.value.where.column) == (2, "n")


async def _leave_behind_an_error(store: FaultyStore) -> None:
    options = ReadOptions(tail_bytes=8, memory_budget=1)  # each row group by itself
    async with (
        rpq.open((store, "file"), options=options) as file,
        aclosing(file.batches(5, row_groups=[0, 1])) as batches,
    ):
        store.faults.append(Fault("read_range", TransientError("reset"), skip=1, times=100))
        await anext(batches)
        for _ in range(20):
            await asyncio.sleep(0.001)


async def test_an_error_ahead_that_nobody_waits_for_is_not_complained_of(
    our_bytes: bytes, stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    store = FaultyStore(await stored(our_bytes))
    await _leave_behind_an_error(store)
    assert store.faults[0].times < 100, "the row group ahead was asked for, and failed"
    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("batch_rows", [1, 7, 20, 33, 10**9])
async def test_batches_end_with_their_row_group(
    our_bytes: bytes, stored: Stored, rows: pa.Table, batch_rows: int
) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        got = [pa.table(batch) async for batch in file.batches(batch_rows, columns=["s", "l"])]
    sizes = [min(batch_rows, group - start) for group in (20, 20, 20, 20, 10) for start in range(0, group, batch_rows)]
    assert [batch.num_rows for batch in got] == sizes
    assert pa.concat_tables(got).equals(rows.select(["s", "l"]))


# --- reading --------------------------------------------------------------------------------------------------


async def test_reads_at_the_same_time(our_bytes: bytes, stored: Stored, rows: pa.Table) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        names = ["n", "s", "f", "l"]
        tables = await asyncio.gather(*(file.read(columns=[name]) for name in names * 5))
    for name, table in zip(names * 5, tables, strict=True):
        assert pa.table(table).equals(rows.select([name]))


async def test_the_same_row_group_twice(our_bytes: bytes, stored: Stored, rows: pa.Table) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        found = pa.table(await file.read(columns=["n", "n"], row_groups=[1, 1]))
    assert found.equals(pa.concat_tables([rows.slice(20, 20)] * 2).select(["n"]))


async def test_no_columns_keep_their_rows(our_bytes: bytes, stored: Stored) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        assert (await file.read(columns=[])).num_rows == 90
        assert (await file.read(columns=[], row_groups=[4])).num_rows == 10
        assert (await file.read(row_groups=[])).column_names == ["n", "s", "f", "l"]


async def test_tables_keep_the_metadata_of_the_file(stored: Stored) -> None:
    store = MemoryStore()
    rows = pa.table({"a": [1, 2], "b": ["x", "y"]}, metadata={"who": "me"}).to_pandas().set_index("a")
    async with rpq.create((store, "file"), metadata={"note": "kept"}) as writer:
        await writer.write(pa.Table.from_pandas(rows))
    async with rpq.open((store, "file")) as file:
        table = await file.read()
        (batch,) = [batch async for batch in file.batches(columns=["b"])]
        assert file.key_value_metadata["note"] == "kept"
    metadata = pa.table(table).schema.metadata
    assert metadata[b"note"] == b"kept" and not any(key.startswith(b"rpq.") for key in metadata)
    assert pa.table(batch).schema.metadata[b"note"] == b"kept"
