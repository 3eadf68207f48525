"""Tables of every type, made by hypothesis: written by us, read by us and by pyarrow, equal to the last bit."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import subprocess
import sys
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io import MemoryStore

I64 = st.integers(-(2**63), 2**63 - 1)
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    **{
        kind: st.integers(int(np.iinfo(kind.to_pandas_dtype()).min), int(np.iinfo(kind.to_pandas_dtype()).max))
        for kind in (
            pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()
        )
    },
    pa.float16(): st.floats(width=16, allow_nan=False).map(np.float16),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=12),
    pa.large_string(): st.text(max_size=12),
    pa.string_view(): st.text(max_size=30),
    pa.binary(): st.binary(max_size=12),
    pa.large_binary(): st.binary(max_size=100),
    pa.binary_view(): st.binary(max_size=30),
    pa.binary(5): st.binary(min_size=5, max_size=5),
    pa.date32(): st.dates(),
    pa.date64(): st.dates(date(1700, 1, 1)),
    pa.time32("s"): st.integers(0, 86_399),
    pa.time32("ms"): st.integers(0, 86_399_999),
    pa.time64("us"): st.integers(0, 86_399_999_999),
    pa.time64("ns"): st.integers(0, 86_399_999_999_999),
    pa.timestamp("s"): st.integers(-(2**53), 2**53),
    **{pa.timestamp(unit, zone): I64 for unit in ("ms", "us", "ns") for zone in (None, "UTC", "Europe/Berlin")},
    pa.duration("us"): I64,
    pa.decimal128(7, 2): st.decimals(-99999, 99999, places=2),
    pa.decimal128(38, 10): st.decimals(-(10**20), 10**20, places=10),
    pa.decimal256(50, 3): st.decimals(-(10**24), 10**24, places=3),
    pa.null(): st.none(),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["a", "bb", "", "ccc"]),
    pa.list_(pa.int32()): st.lists(st.none() | st.integers(-5, 5), max_size=4),
    pa.struct([("x", pa.int64()), ("y", pa.string())]): st.fixed_dictionaries(
        {"x": st.none() | I64, "y": st.none() | st.text(max_size=3)}
    ),
    pa.map_(pa.string(), pa.int32()): st.lists(st.tuples(st.text(max_size=3), st.none() | st.integers(0, 9)), max_size=3),
    pa.list_(pa.struct([("l", pa.list_(pa.string()))])): st.lists(
        st.none() | st.fixed_dictionaries({"l": st.none() | st.lists(st.none() | st.text(max_size=2), max_size=2)}),
        max_size=3,
    ),
}  # fmt: skip


@st.composite
def columns(draw: st.DrawFn, num_rows: int) -> tuple[pa.Field, pa.ChunkedArray]:
    kind = draw(st.sampled_from(list(TYPES)))
    nullable = pa.types.is_null(kind) or draw(st.booleans())
    values = TYPES[kind] if not nullable else st.none() | TYPES[kind]
    made = draw(st.lists(values, min_size=num_rows, max_size=num_rows))
    storage = pa.int64() if pa.types.is_temporal(kind) and not pa.types.is_date(kind) else kind
    if pa.types.is_time32(kind):
        storage = pa.int32()
    array = pa.array(made, storage).cast(kind) if storage != kind else pa.array(made, kind)
    before = draw(st.integers(0, 3))
    padded = pa.concat_arrays([array[:0], pa.array([made[0]] * before, storage).cast(kind), array]) if num_rows else array
    sliced = padded[len(padded) - num_rows :]
    cut = draw(st.integers(0, num_rows))
    return pa.field("c", kind, nullable), pa.chunked_array([sliced[:cut], sliced[cut:]], kind)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    num_rows = draw(st.integers(0, 40))
    made = draw(st.lists(columns(num_rows), min_size=1, max_size=4))
    schema = pa.schema([field.with_name(f"c{i}") for i, (field, _) in enumerate(made)])
    return pa.Table.from_arrays([array for _, array in made], schema=schema)


ways = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "gzip", "brotli", "lz4_raw", "zstd"]),
        "row_group_rows": st.sampled_from([None, 1, 7, 16]),
        "page_bytes": st.sampled_from([1, 50, 1 << 20]),
        "checkpoint_every": st.sampled_from([None, 1, 2]),
        "checkpoint_overhead": st.just(100.0),
        "options": st.builds(
            rpq.WriteOptions,
            data_page_version=st.sampled_from(["1.0", "2.0"]),
            page_rows=st.sampled_from([1, 5, 131_072]),
            dictionary_bytes=st.sampled_from([0, 1 << 20]),
        ),
    }
)


def plain(table: pa.Table) -> pa.Table:
    """As a file gives it back: views and dictionaries are written as the values they stand for."""
    plains = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    fields = []
    for field in table.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else plains.get(field.type, field.type)
        fields.append(pa.field(field.name, kind, field.nullable))
    return table.cast(pa.schema(fields)).combine_chunks()


def same(found: pa.Table, expected: pa.Table) -> None:
    """Equal schemas and values; NaNs count as equal, and the two zeros as different."""
    assert found.schema.equals(expected.schema)
    found = found.combine_chunks()
    for one, two in zip(found.columns, expected.columns, strict=True):
        if pa.types.is_floating(one.type):
            for left, right in zip(one.to_pylist(), two.to_pylist(), strict=True):
                assert repr(left) == repr(right)
        else:
            assert one.equals(two)


async def write(table: pa.Table, batches: int, **way: Any) -> tuple[MemoryStore, bytes]:
    store = MemoryStore()
    async with rpq.create((store, "f"), table.schema, **way) as writer:
        step = max(-(-table.num_rows // batches), 1)
        for start in range(0, max(table.num_rows, 1), step):
            await writer.write(table.slice(start, step))
    info = await store.head("f")
    return store, bytes(await store.read_range("f", 0, info.size, pin=info))


async def round_trip(table: pa.Table, way: dict[str, Any], batches: int) -> None:
    store, data = await write(table, batches, **way)
    expected = plain(table)
    async with rpq.open((store, "f")) as file:
        same(pa.table(await file.read()), expected)
    theirs = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True).read()
    same(theirs.cast(expected.schema), expected)
    report = await rpq.check((store, "f"))
    assert report.outcome is rpq.Outcome.SOUND and not report.findings


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=tables(), way=ways, batches=st.integers(1, 5))
def test_any_table(table: pa.Table, way: dict[str, Any], batches: int) -> None:
    asyncio.run(round_trip(table, way, batches))


@pytest.mark.thorough
@settings(max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=tables(), way=ways, batches=st.integers(1, 5))
def test_many_tables(table: pa.Table, way: dict[str, Any], batches: int) -> None:
    asyncio.run(round_trip(table, way, batches))


@pytest.mark.parametrize("kind", list(TYPES), ids=str)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), way=ways)
def test_every_type(kind: pa.DataType, data: st.DataObject, way: dict[str, Any]) -> None:
    values = data.draw(st.lists(st.none() | TYPES[kind], min_size=1, max_size=30))
    storage = pa.int64() if pa.types.is_temporal(kind) and not pa.types.is_date(kind) else kind
    storage = pa.int32() if pa.types.is_time32(kind) else storage
    table = pa.table({"c": pa.array(values, storage).cast(kind)})
    asyncio.run(round_trip(table, way, 1))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=tables())
def test_how_rows_are_batched_does_not_matter(table: pa.Table) -> None:
    async def pages(batches: int) -> list[int]:
        _, data = await write(table, batches, row_group_rows=9)
        metadata = pq.read_metadata(io.BytesIO(data))
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]

    assert asyncio.run(pages(1)) == asyncio.run(pages(7))


def test_sync_has_the_same_names() -> None:
    assert sorted(sync.__all__) == sorted(rpq.__all__)
    for name in rpq.__all__:
        there, here = getattr(rpq, name), getattr(sync, name)
        if inspect.isfunction(there):
            assert inspect.signature(there) == inspect.signature(here)
        else:
            assert there is here


def test_sync_works_while_a_loop_is_running(tmp_path: Any) -> None:
    async def notebook() -> None:
        path = tmp_path / "f.parquet"
        with sync.create(path) as writer:
            writer.write({"n": [1, 2, 3]})
            assert writer.checkpoint().num_rows == 3
        with sync.open(path) as file:
            assert file.read()["n"].tolist() == [1, 2, 3]
            assert [batch.num_rows for batch in file.batches(2)] == [2, 1]
        assert sync.check(path).outcome is rpq.Outcome.SOUND

    asyncio.run(notebook())


def test_the_reference_kernels_do_the_same() -> None:
    script = (
        "import numpy as np, resilient_pq.sync as rpq\n"
        "from resilient_pq.format import kernels\n"
        "from resilient_pq.io import MemoryStore\n"
        "assert kernels.active == 'reference'\n"
        "import tempfile, os\n"
        "path = os.path.join(tempfile.mkdtemp(), 'f.parquet')\n"
        "data = {'n': np.arange(500), 's': [None if i % 3 == 0 else f'v{i % 9}' for i in range(500)],\n"
        "        'l': [[i, None] if i % 2 else None for i in range(500)]}\n"
        "with rpq.create(path, row_group_rows=200, page_bytes=300) as writer: writer.write(data)\n"
        "with rpq.open(path) as file: found = file.read().to_pydict()\n"
        "assert found == {'n': list(range(500)), 's': data['s'], 'l': data['l']}\n"
        "assert rpq.check(path).outcome == 'sound'\n"
    )
    environment = {**os.environ, "RESILIENT_PQ_KERNELS": "reference"}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=120)
