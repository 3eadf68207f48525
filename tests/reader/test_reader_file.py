"""The reader as its users meet it: what is asked for, what comes, and what is refused."""

from __future__ import annotations

import asyncio
import io
import warnings
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.io import MemoryStore

ROWS = 1_000
TABLE = pa.table(
    {"n": np.arange(ROWS), "s": [None if i % 5 == 0 else f"v{i}" for i in range(ROWS)], "f": np.arange(ROWS) / 4}
)


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    async with rpq.create((store, "f"), row_group_rows=300) as writer:
        await writer.write(TABLE)
    return store


async def test_columns_come_in_the_order_asked_for(store: MemoryStore) -> None:
    async with rpq.open((store, "f")) as file:
        table = await file.read(columns=["f", "n"])
        assert table.column_names == ["f", "n"]
        assert pa.table(table).equals(TABLE.select(["f", "n"]))
        assert (await file.read(columns=[])).num_rows == ROWS


async def test_row_groups_come_in_the_order_asked_for(store: MemoryStore) -> None:
    async with rpq.open((store, "f")) as file:
        table = await file.read(row_groups=[2, 0])
        expected = pa.concat_tables([TABLE.slice(600, 300), TABLE.slice(0, 300)])
        assert pa.table(table).combine_chunks().equals(expected.combine_chunks())
        assert (await file.read(row_groups=[])).num_rows == 0


async def test_what_is_not_there(store: MemoryStore) -> None:
    async with rpq.open((store, "f")) as file:
        with pytest.raises(rpq.SchemaError, match="no column 'x'") as caught:
            await file.read(columns=["x"])
        assert caught.value.hint == "columns: n, s, f"
        with pytest.raises(rpq.SchemaError, match="one string"):
            await file.read(columns="n")
        with pytest.raises(rpq.SchemaError, match="no row group 9"):
            await file.read(row_groups=[9])
        with pytest.raises(rpq.SchemaError, match="batch_rows"):
            async for _ in file.batches(0):
                pass


@pytest.mark.parametrize("batch_rows", [1, 7, 300, 1_000])
async def test_batches_are_the_rows_in_order(store: MemoryStore, batch_rows: int) -> None:
    async with rpq.open((store, "f")) as file:
        batches = [batch async for batch in file.batches(batch_rows, columns=["s", "n"], row_groups=[0, 1])]
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    found = pa.concat_tables([pa.table(batch) for batch in batches]).combine_chunks()
    assert found.equals(TABLE.select(["s", "n"]).slice(0, 600).combine_chunks())


async def test_leaving_the_batches_early_leaves_no_task(store: MemoryStore) -> None:
    async with rpq.open((store, "f")) as file:
        async with aclosing(file.batches(10)) as batches:
            async for _ in batches:
                break
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_footer_longer_than_the_tail(store: MemoryStore) -> None:
    for tail_bytes in (8, 100, 1_000):
        options = rpq.ReadOptions(tail_bytes=tail_bytes)
        async with rpq.open((store, "f"), options=options) as file:
            assert file.counters.requests == 2
            assert pa.table(await file.read()).equals(TABLE)


async def test_an_object_that_is_replaced(store: MemoryStore) -> None:
    async with rpq.open((store, "f"), options=rpq.ReadOptions(tail_bytes=1_000)) as file:
        await store.put("f", b"PAR1 something else")
        with pytest.raises(rpq.ObjectChangedError):
            await file.read()


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", rpq.NotParquetError, "empty"),
        (b"not parquet at all", rpq.NotParquetError, "this is a text file, not Parquet"),
        (b"PAR1", rpq.TornFileError, "too few"),
        (b"PAR1" + bytes(100), rpq.TornFileError, "no Parquet magic at the end"),
        (b"PAR1\xff\xff\xff\x00PAR1", rpq.TornFileError, "the footer says"),
        (b"PAR1\x00\x00\x00\x00PAR1", rpq.ThriftError, "footer is damaged"),
        (b"PARE" + bytes(20) + b"PARE", rpq.KeyMissingError, "encrypted"),
    ],
)
async def test_what_is_no_parquet_file(content: bytes, error: type[Exception], message: str) -> None:
    store = MemoryStore()
    await store.put("f", content)
    with pytest.raises(error, match=message) as caught:
        async with rpq.open((store, "f")):
            pass
    assert "f" in str(caught.value.where.key)  # type: ignore[attr-defined]


async def test_no_such_object(tmp_path: Path) -> None:
    with pytest.raises(rpq.NotFoundError, match="missing"):
        async with rpq.open(tmp_path / "missing.parquet"):
            pass


async def test_a_changed_byte_names_its_page(store: MemoryStore) -> None:
    info = await store.head("f")
    data = bytearray(await store.read_range("f", 0, info.size, pin=info))
    metadata = pq.read_metadata(io.BytesIO(bytes(data)))
    chunk = metadata.row_group(1).column(2)
    data[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 1
    await store.put("f", bytes(data))
    async with rpq.open((store, "f")) as file:
        with pytest.raises(rpq.ChecksumError) as caught:
            await file.read()
        where = caught.value.where
        assert (where.row_group, where.column) == (1, "f")
        assert where.page is not None and where.offset is not None
        assert pa.table(await file.read(columns=["n", "s"])).equals(TABLE.select(["n", "s"]))


async def test_verify_can_be_switched_off(tmp_path: Path) -> None:
    path = tmp_path / "theirs.parquet"
    pq.write_table(TABLE, path, compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    at = data.index((500).to_bytes(8, "little"))
    data[at] ^= 1
    path.write_bytes(data)
    async with rpq.open(path) as file:
        with pytest.raises(rpq.ChecksumError):
            await file.read()
    async with rpq.open(path, verify=False) as file:
        assert (await file.read())["n"][500] == 501


async def test_an_unfinished_file_warns_once(tmp_path: Path) -> None:
    writer = await rpq.create(tmp_path / "f.parquet")
    await writer.write(TABLE)
    checkpoint = await writer.checkpoint()
    partial = tmp_path / "f.parquet.partial"
    (tmp_path / "cut.parquet").write_bytes(partial.read_bytes()[: checkpoint.offset])
    await writer.abort()
    with pytest.warns(rpq.IncompleteFileWarning, match="in-progress") as awaited:
        await (await rpq.open(tmp_path / "cut.parquet")).close()
    assert [warning.filename for warning in awaited] == [__file__]
    with pytest.warns(rpq.IncompleteFileWarning, match="in-progress") as entered:
        async with rpq.open(tmp_path / "cut.parquet") as file:
            assert [warning.filename for warning in entered] == [__file__]
            assert file.state is rpq.FileState.IN_PROGRESS
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert pa.table(await file.read()).equals(TABLE)


@pytest.mark.parametrize("unit", ["ns", "days", 1])
def test_units_that_int96_is_not_read_in(unit: object) -> None:
    with pytest.raises(rpq.SchemaError, match='must be "us", "ms", "s" or None'):
        rpq.ReadOptions(coerce_int96_timestamp_unit=unit)  # type: ignore[arg-type]


async def test_int96_in_a_unit(tmp_path: Path) -> None:
    path = tmp_path / "theirs.parquet"
    times = pa.table({"t": pa.array([[1_999, None], [-1]], pa.list_(pa.timestamp("ns")))})
    pq.write_table(times, path, use_deprecated_int96_timestamps=True)
    async with rpq.open(path) as file:
        assert pa.table(await file.read())["t"].type.value_type == pa.timestamp("ns")
    options = rpq.ReadOptions(coerce_int96_timestamp_unit="us")
    async with rpq.open(path, options=options) as file:
        found = pa.table(await file.read())["t"].combine_chunks()
        assert pa.schema(file.arrow_schema).field("t").type == found.type
    assert found.type.value_type == pa.timestamp("us")
    assert found.values.cast(pa.int64()).to_pylist() == [1, None, -1]
