"""Settings that name columns: bloom filters and sort orders, in the words of pyarrow, and what is refused."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes

import resilient_pq as rpq
from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.indexes.split_block_filter import BloomFilter, FilterOptions, filter_of
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.writer.column_options import bloom_filters, sorting_columns

SCHEMA = Ingest.from_schema(
    pa.schema(
        {
            "a": pa.int64(),
            "b": pa.string(),
            "flag": pa.bool_(),
            "s": pa.struct({"x": pa.int32(), "ok": pa.bool_()}),
            "l": pa.list_(pa.int32()),
        }
    )
).schema
DEFAULT = FilterOptions()


# --- bloom filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {}),
        ([], {}),
        (["a", "l"], {"a": DEFAULT, "l.list.element": DEFAULT}),
        ({"a": True, "b": False}, {"a": DEFAULT}),
        ({"a": {}}, {"a": DEFAULT}),
        ({"a": {"ndv": 10}, "b": {"fpp": 0.01}}, {"a": FilterOptions(10), "b": FilterOptions(None, 0.01)}),
        ({"a": {"ndv": 1}}, {"a": FilterOptions(1)}),
        ({"a": {"ndv": None, "fpp": 0.5}}, {"a": FilterOptions(None, 0.5)}),
        ({"s": True}, {"s.x": DEFAULT}),  # the boolean in it cannot have one
        ({"s": True, "s.x": {"ndv": 5}}, {"s.x": FilterOptions(5)}),
        ({"flag": False}, {}),
    ],
)
def test_who_gets_a_filter(given: Any, expected: dict[str, FilterOptions]) -> None:
    found = bloom_filters(SCHEMA, given)
    named = {leaf.column_path: one for leaf, one in zip(SCHEMA.leaves, found, strict=True) if one is not None}
    assert named == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a", "is one string"),
        (["z"], "no column 'z'"),
        (["flag"], "BOOLEAN columns have no bloom filters"),
        (["s.ok"], "BOOLEAN columns have no bloom filters"),
        ({"a": 5}, "a dict of ndv and fpp"),
        ({"a": {"nvd": 5}}, "a dict of ndv and fpp"),
        ({"a": {"ndv": 0}}, "at least 1"),
        ({"a": {"ndv": 1.5}}, "a number of values"),
        ({"a": {"fpp": 0}}, "between 0 and 1"),
        ({"a": {"fpp": 1.0}}, "between 0 and 1"),
        ({"a": {"fpp": "0.1"}}, "between 0 and 1"),
    ],
)
def test_filters_that_cannot_be(given: Any, message: str) -> None:
    with pytest.raises(rpq.SchemaError, match=message):
        bloom_filters(SCHEMA, given)


@pytest.mark.parametrize("distinct", [0, 1, 100, 5000])
def test_filters_are_sized_by_the_distinct_values_that_are_there(distinct: int) -> None:
    values = np.arange(distinct).repeat(40)
    made = filter_of(SCHEMA.leaves[0].node, values, DEFAULT)
    assert made.blocks.nbytes <= BloomFilter.sized(distinct, 0.05).blocks.nbytes
    assert made.may_contain(SCHEMA.leaves[0].node, values).all()
    others = np.arange(10**6, 10**6 + 20_000)
    assert made.may_contain(SCHEMA.leaves[0].node, others).mean() < 0.07
    fixed = filter_of(SCHEMA.leaves[0].node, values, FilterOptions(100_000))
    assert fixed.blocks.nbytes == BloomFilter.sized(100_000, 0.05).blocks.nbytes


async def write(table: pa.Table, options: rpq.WriteOptions, **more: Any) -> bytes:
    return await file_bytes(table, row_group_rows=50, options=options, **more)


@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
async def test_filters_stand_behind_their_row_group_and_checkpoints_name_them() -> None:
    options = rpq.WriteOptions(bloom_filter_options=["a"])
    table = pa.table({"a": range(100), "b": [f"{i % 7}" for i in range(100)]})
    data = await write(table, options, checkpoint_every=1, checkpoint_overhead=100.0)
    async with rpq.open(await put(data)) as file:
        end = data.index(b"PAR1", file.checkpoints[1].offset) + 4
    for part in (data, data[:end]):
        store, key = await put(part)
        async with rpq.open((store, key)) as file:
            for group, row_group in enumerate(file.metadata.row_groups):
                first, last = (chunk.meta_data for chunk in row_group.columns)
                assert first is not None and last is not None
                start = last.dictionary_page_offset or last.data_page_offset
                assert first.bloom_filter_offset == start + last.total_compressed_size
                assert ChunkSums.of(first).bloom is not None
                found = await file.bloom_filter(group, "a")
                assert found is not None and found.may_contain(list(range(50 * group, 50 * group + 50))).all()
                assert not found.may_contain(list(range(5000, 5100))).all()
        await rpq.recover((store, key), (store, "saved"))
        async with rpq.open((store, "saved")) as saved:
            again = await saved.bloom_filter(1, "a")
            assert again is not None and again.may_contain(75)


async def put(data: bytes) -> tuple[MemoryStore, str]:
    store = MemoryStore()
    await store.put("file", data)
    return store, "file"


def chunks_of(file: rpq.File) -> list[Any]:
    return [chunk for row_group in file.metadata.row_groups for chunk in row_group.columns]


# --- sort orders ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        ("a", "descending", "at_start"),
        rpq.SortingColumn("a", True, True),
        pq.SortingColumn(0, True, True),
    ],
)
def test_forms_of_a_sorting_column(entry: Any) -> None:
    (found,) = sorting_columns(SCHEMA, [entry])
    assert found == (SCHEMA.leaves[0], rpq.SortingColumn("a", True, True))


def test_the_default_is_ascending_with_nulls_last() -> None:
    found = [column for _, column in sorting_columns(SCHEMA, ["a", ("b", "descending"), "s.x"])]
    expected = [rpq.SortingColumn("a"), rpq.SortingColumn("b", True), rpq.SortingColumn("s.x")]
    assert found == expected
    assert sorting_columns(SCHEMA, None) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a", "is one column"),
        (rpq.SortingColumn("a"), "is one column"),
        (["z"], "no column 'z'"),
        (["s"], "no column 's'"),
        (["a", "a"], "twice"),
        ([("a", "down")], "no column of a sort order"),
        ([("a", "ascending", "last")], "no column of a sort order"),
        ([3], "no column of a sort order"),
        ([pq.SortingColumn(9)], "no column 9"),
        (["l.list.element"], "cannot be sorted by"),
    ],
)
def test_orders_that_cannot_be(given: Any, message: str) -> None:
    with pytest.raises(rpq.SchemaError, match=message):
        sorting_columns(SCHEMA, given)


async def test_only_row_groups_in_order_claim_to_be(caplog: pytest.LogCaptureFixture) -> None:
    rows = [*range(100), *reversed(range(50))]
    options = rpq.WriteOptions(sorting_columns=[("a", "ascending"), ("b", "descending")])
    with caplog.at_level(logging.WARNING, "resilient_pq.writer"):
        data = await write(pa.table({"a": rows, "b": ["x"] * 150}), options)
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert [metadata.row_group(i).sorting_columns for i in range(3)] == [
        (pq.SortingColumn(0), pq.SortingColumn(1, True)),
        (pq.SortingColumn(0), pq.SortingColumn(1, True)),
        (),
    ]
    assert [record.message for record in caplog.records] == [
        "memory:file: the rows of row group 2 are not sorted as declared"
    ]


# --- key-value metadata of chunks -----------------------------------------------------------------------


async def test_metadata_of_columns_are_in_every_chunk() -> None:
    given = {"a": {"unit": "m", "": "x"}, "s": {"of": "s"}, "s.ok": {"of": "ok"}}
    table = pa.table({"a": range(100), "b": ["b"] * 100, "s": [{"x": 1, "ok": True}] * 100})
    data = await write(table, rpq.WriteOptions(column_metadata=given))
    async with rpq.open(await put(data)) as file:
        for group in (0, 1):
            assert file.column_metadata(group, "a") == {"unit": "m", "": "x"}
            assert file.column_metadata(group, "b") == {}
            assert file.column_metadata(group, "s.x") == {"of": "s"}
            assert file.column_metadata(group, "s.ok") == {"of": "ok"}
    store, key = await put(data)
    damaged = bytearray(data)
    damaged[10] ^= 1  # the anchor: chunks are laid again
    await store.put(key, bytes(damaged))
    await rpq.recover((store, key), (store, "saved"))
    async with rpq.open((store, "saved")) as file:
        assert file.column_metadata(1, "a") == {"unit": "m", "": "x"}
    footer = pq.ParquetFile(pa.BufferReader(data)).metadata
    assert footer.num_row_groups == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"z": {"a": "b"}}, "column_metadata: there is no column 'z'"),
        ({"a": {"rpq.crc32": "0"}}, "the column_metadata key 'rpq.crc32' is the writer's own"),
        ({"a": {"k": 1}}, "column_metadata 'k' is not text"),
        ({"a": "b"}, "column_metadata has 'b' where a dict should be"),
    ],
)
async def test_metadata_of_columns_that_cannot_be(given: Any, message: str) -> None:
    with pytest.raises(rpq.SchemaError) as caught:
        await write(pa.table({"a": [1]}), rpq.WriteOptions(column_metadata=given))
    assert message in str(caught.value)
