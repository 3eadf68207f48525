"""Many files as one: which they are, in which order, what they have to agree in, and what they share."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_store import Fault, FaultyStore
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.bulk.name_pattern import is_pattern, matcher, split_pattern
from resilient_pq.io import MemoryStore, Stores


def bytes_of(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **{"row_group_size": 4, **options})
    return out.getvalue()


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"n": range(start, stop), "s": [f"text {i}" for i in range(start, stop)]})


async def stored(**files: pa.Table | bytes) -> MemoryStore:
    """Files below ``folder/``; two underscores are a slash, and each has ``.parquet`` behind it."""
    store = MemoryStore()
    for name, content in files.items():
        data = content if isinstance(content, bytes) else bytes_of(content)
        await store.put(f"folder/{name.replace('__', '/')}.parquet", data)
    return store


@pytest.fixture
async def store() -> MemoryStore:
    return await stored(b=numbers(10, 20), a=numbers(0, 10), deep__c=numbers(20, 25))


ALL = numbers(0, 25)


# --- which files ------------------------------------------------------------------------------------------------


async def test_a_folder_is_its_files_by_name(store: MemoryStore) -> None:
    await store.put("folder/_hidden/x.parquet", b"nothing")
    await store.put("folder/readme.txt", b"nothing")
    async with rpq.open_many((store, "folder")) as dataset:
        assert [url.removeprefix("memory:folder/") for url in dataset.urls] == [
            "a.parquet",
            "b.parquet",
            "deep/c.parquet",
        ]
        assert (dataset.num_rows, dataset.num_row_groups) == (25, 8)
        assert pa.schema(dataset.arrow_schema) == ALL.schema
        assert pa.table(await dataset.read()).equals(ALL)
        batches = [pa.table(batch) async for batch in dataset.batches(3)]
        assert pa.concat_tables(batches).equals(ALL)
        assert repr(dataset) == "<resilient_pq.Dataset: 3 files, 25 rows>"


async def test_a_list_keeps_its_order(store: MemoryStore) -> None:
    listed = [(store, "folder/b.parquet"), (store, "folder/a.parquet"), (store, "folder/b.parquet")]
    async with rpq.open_many(listed) as dataset:
        found = (await dataset.read(columns=["n"])).to_pydict()
    assert found == {"n": [*range(10, 20), *range(10), *range(10, 20)]}


@pytest.mark.parametrize(
    ("pattern", "rows"),
    [("folder/*.parquet", 20), ("folder/**", 25), ("fold*/[ab].parquet", 20), ("folder/*/?.parquet", 5)],
)
async def test_a_pattern_is_its_files_by_name(store: MemoryStore, pattern: str, rows: int) -> None:
    async with rpq.open_many((store, pattern)) as dataset:
        assert dataset.num_rows == rows
        assert list(dataset.urls) == sorted(dataset.urls)


async def test_a_summary_says_which_row_groups_there_are(store: MemoryStore) -> None:
    await rpq.write_metadata((store, "folder"))
    recording = RecordingStore(store)
    async with rpq.open_many((recording, "folder/")) as dataset:
        assert [call.verb for call in recording.calls] == ["list_objects", "read_tail"]
        assert pa.table(await dataset.read()).equals(ALL)
        assert len(dataset.files) == 1 and len(dataset.files[0].data_files) == 3


async def test_a_file_alone(store: MemoryStore) -> None:
    async with rpq.open_many((store, "folder/a.parquet")) as dataset:
        assert dataset.num_rows == 10


def test_paths_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, table in {"a": numbers(0, 10), "b": numbers(10, 25)}.items():
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.parquet").write_bytes(bytes_of(table))
    sources: list[Any] = ["in", "in/", tmp_path / "in", "in/*.parquet", f"file://{tmp_path}/in", tmp_path / "*" / "*"]
    sources += ["*/*.parquet", ["in/a.parquet", Path("in/b.parquet")], ("in/a.parquet", "in/b.parquet")]
    for source in sources:
        with sync.open_many(source) as dataset:
            assert pa.table(dataset).equals(ALL), source
    with sync.open_many("in/a.parquet") as dataset:
        assert dataset.num_rows == 10


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("folder/nothing*", "no file matches the pattern"),
        ("nowhere/", "there is no such folder"),
        ("nowhere", "no such object"),
    ],
)
async def test_nothing_there(store: MemoryStore, source: str, message: str) -> None:
    with pytest.raises(rpq.NotFoundError, match=message):
        await rpq.open_many((store, source))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "empty list"),
        (5, "urls is 5"),
        (b"folder", "urls is b'folder'"),
        ([3], "3 in urls names no file"),
        ([("a.parquet", "b.parquet")], r"\('a.parquet', 'b.parquet'\) in urls names no file"),
    ],
)
async def test_what_names_no_files(wrong: Any, message: str) -> None:
    with pytest.raises(rpq.SchemaError, match=message):
        await rpq.open_many(wrong)


async def test_an_empty_name_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.parquet").write_bytes(bytes_of(numbers(0, 5)))
    with pytest.raises(rpq.StoreError, match="an empty path names no object"):
        await rpq.open_many("")


async def test_names_that_look_like_patterns(tmp_path: Path) -> None:
    path = str(tmp_path / "b [1].parquet")
    Path(path).write_bytes(bytes_of(numbers(0, 5)))
    with pytest.raises(rpq.NotFoundError, match="no file matches") as alone:
        await rpq.open_many(f"{tmp_path}/c[1].parquet")
    assert alone.value.hint is not None and "stands in a list" in alone.value.hint
    for named in ([path], path):
        async with rpq.open_many(named) as dataset:
            assert dataset.num_rows == 5
    with pytest.raises(rpq.NotFoundError) as listed:
        await rpq.open_many([f"{tmp_path}/*.parquet"])
    assert listed.value.hint is not None and "a pattern stands alone" in listed.value.hint


def test_parts_without_a_name() -> None:
    assert matcher("**/*.parquet").match("a//b.parquet") and matcher("a/**").match("a//b")
    assert not matcher("**/*.parquet").match("a//_b/c.parquet")


def test_patterns() -> None:
    assert is_pattern("a*") and is_pattern("[a]") and not is_pattern("s3://b/a.parquet")
    assert split_pattern("s3://b/year=2026/*/x?") == ("s3://b/year=2026/", "*/x?")
    for pattern, yes, no in [
        ("*.parquet", "a.parquet .parquet.parquet"[:9], "d/a.parquet _a.parquet .a.parquet a.csv"),
        ("**/*.parquet", "a.parquet d/e/a.parquet _d=1/a.parquet", "_d/a.parquet a.parquet/b"),
        ("_*", "_metadata", "metadata"),
        ("[!a-c]?[]]", "dx]", "ax] d/] dxx"),
        ("[x", "[x", "x"),
        ("a.b", "a.b", "axb"),
    ]:
        for name in yes.split():
            assert matcher(pattern).match(name), (pattern, name)
        for name in no.split():
            assert not matcher(pattern).match(name), (pattern, name)
    with pytest.raises(rpq.SchemaError, match="is no pattern"):
        matcher("[z-a]")


async def test_one_store_for_all_files_that_it_reaches() -> None:
    stores = Stores()
    found = [stores.resolve(url) for url in ("a", "file:///b", "s3://b/k", "s3a://c/k", "http://h/x", "https://i/y")]
    assert [store.name for store, _ in found] == ["local files"] * 2 + ["S3"] * 2 + ["the web server"] * 2
    assert len({id(store) for store, _ in found}) == 3
    await stores.close()


# --- what they have to agree in -----------------------------------------------------------------------------------


def one(type: pa.DataType, values: list[Any], name: str = "x") -> pa.Table:
    return pa.table({name: pa.array(values, type)})


LIST, LARGE_LIST = pa.list_(pa.int32()), pa.large_list(pa.int32())


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.large_binary(), pa.binary(), pa.large_binary()),
        (LIST, LARGE_LIST, LARGE_LIST),
        (pa.decimal128(9, 2), pa.decimal256(9, 2), pa.decimal256(9, 2)),
        (pa.null(), pa.int32(), pa.int32()),
        (pa.timestamp("us", "UTC"), pa.null(), pa.timestamp("us", "UTC")),
        (pa.struct({"a": pa.string()}), pa.struct({"a": pa.large_string()}), pa.struct({"a": pa.large_string()})),
    ],
)
async def test_types_that_one_holds_without_loss(
    first: pa.DataType, second: pa.DataType, expected: pa.DataType
) -> None:
    values = {type: [None, _value(type)] for type in (first, second)}
    store = await stored(a=one(first, values[first]), b=one(second, values[second]))
    async with rpq.open_many((store, "folder")) as dataset:
        assert pa.schema(dataset.arrow_schema).field("x").type == expected
        table = pa.table(await dataset.read())
        assert table.column("x").type == expected
        assert table.column("x").to_pylist() == [*values[first], *values[second]]
        batches = [batch async for batch in dataset.batches()]
        assert {pa.schema(batch).field("x").type for batch in batches} == {expected}


def _value(type: pa.DataType) -> Any:
    if pa.types.is_null(type):
        return None
    if pa.types.is_struct(type):
        return {"a": "text"}
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return [1, 2]
    return pa.array(["1"]).cast(type).to_pylist()[0] if not pa.types.is_timestamp(type) else None


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        (pa.int32(), pa.int64(), "column 'x' is int32 in .*a.parquet and int64 in .*b.parquet"),
        (pa.timestamp("ns"), pa.timestamp("us"), r"timestamp\[ns\] in .*a.parquet"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), r"timestamp\[us, tz=UTC\] in .*b.parquet"),
        (pa.string(), pa.binary(), "is string in .*a.parquet and binary in"),
        (pa.decimal128(9, 2), pa.decimal128(9, 3), "column 'x' is decimal"),
        (pa.decimal128(9, 2), pa.decimal128(10, 2), "column 'x' is decimal"),
        (pa.struct({"a": pa.int8()}), pa.struct({"b": pa.int8()}), "column 'x' is struct"),
        (pa.struct({"a": pa.int8()}), pa.struct({"a": pa.int8(), "b": pa.int8()}), "column 'x' is struct"),
        (LIST, pa.list_(pa.int64()), "column 'x' is list"),
    ],
)
async def test_types_that_differ(first: pa.DataType, second: pa.DataType, difference: str) -> None:
    store = await stored(a=one(first, [None]), b=one(second, [None]))
    with pytest.raises(rpq.SchemaError, match=difference) as caught:
        await rpq.open_many((store, "folder"))
    assert (caught.value.where.key, caught.value.where.column) == ("memory:folder/b.parquet", "x")


async def test_columns_that_one_has_and_another_has_not() -> None:
    store = await stored(a=numbers(0, 3), b=numbers(3, 5).select(["n"]), c=numbers(5, 6))
    with pytest.raises(rpq.SchemaError, match=r"a\.parquet has a column 's', which .*b\.parquet has not"):
        await rpq.open_many((store, "folder"))
    with pytest.raises(rpq.SchemaError, match=r"a\.parquet has a column 's', which .*b\.parquet has not"):
        await rpq.open_many([(store, "folder/b.parquet"), (store, "folder/a.parquet")])


async def test_columns_in_another_order() -> None:
    store = await stored(a=numbers(0, 10), b=numbers(10, 25).select(["s", "n"]))
    async with rpq.open_many((store, "folder")) as dataset:
        assert pa.table(await dataset.read()).equals(ALL)
        table = pa.table(await dataset.read(columns=["s", "n"]))
        assert table.equals(ALL.select(["s", "n"]))


async def test_a_column_that_may_be_null_in_one_file() -> None:
    never = pa.table([pa.array([1])], schema=pa.schema([pa.field("x", pa.int64(), False)]))
    store = await stored(a=never, b=one(pa.int64(), [None]))
    async with rpq.open_many((store, "folder")) as dataset:
        table = pa.table(await dataset.read())
    assert table.schema.field("x").nullable and table.column("x").to_pylist() == [1, None]


async def test_fields_within_columns_and_views() -> None:
    nested = pa.struct({"a": pa.string(), "b": pa.int8()})
    wide = pa.struct({"a": pa.large_string(), "b": pa.int8()})
    store = await stored(a=one(nested, [{"a": "1", "b": 1}]), b=one(wide, [{"a": "2", "b": 2}]))
    async with rpq.open_many((store, "folder")) as dataset:
        table = pa.table(await dataset.read(columns=["x.a"]))
        assert table.schema.field("x").type == pa.struct({"a": pa.large_string()})
        assert table.to_pylist() == [{"x": {"a": "1"}}, {"x": {"a": "2"}}]
        views = pa.table(await dataset.read(columns=["x.a"], strings="view"))
        assert views.schema.field("x").type == pa.struct({"a": pa.string_view()})
        assert views.to_pylist() == table.to_pylist()


# --- what goes wrong ------------------------------------------------------------------------------------------------


async def test_a_file_that_is_missing_or_damaged_is_named(store: MemoryStore) -> None:
    listed = [(store, f"folder/{name}.parquet") for name in ("a", "missing", "b")]
    with pytest.raises(rpq.NotFoundError) as caught:
        await rpq.open_many(listed)
    assert caught.value.where.key == "memory:folder/missing.parquet"
    await store.put("folder/b.parquet", bytes_of(numbers(10, 20))[:-20])
    with pytest.raises(rpq.TornFileError, match=r"rpq recover memory:folder/b\.parquet") as torn:
        await rpq.open_many((store, "folder"))
    assert torn.value.where.key == "memory:folder/b.parquet"
    assert asyncio.all_tasks() == {asyncio.current_task()}


def damaged(table: pa.Table) -> bytes:
    """With a page of its second row group changed."""
    data = bytearray(bytes_of(table, write_page_checksum=True, use_dictionary=False))
    chunk = pq.read_metadata(io.BytesIO(bytes(data))).row_group(1).column(0)
    data[chunk.data_page_offset + chunk.total_compressed_size - 2] ^= 0xFF
    return bytes(data)


async def test_a_damaged_page_is_named_when_it_is_reached() -> None:
    store = await stored(a=numbers(0, 10), b=damaged(numbers(10, 20)))
    async with rpq.open_many((store, "folder")) as dataset:
        got = 0
        with pytest.raises(rpq.ChecksumError) as caught:
            async for batch in dataset.batches():
                got += batch.num_rows
        assert got == 10 + 4
        assert caught.value.where.key == "memory:folder/b.parquet"
        assert (caught.value.where.row_group, caught.value.where.column) == (1, "n")


async def test_damage_is_dropped_and_told_of() -> None:
    store = await stored(a=numbers(0, 10), b=damaged(numbers(10, 20)))
    told: list[rpq.LostRegion] = []
    async with rpq.open_many((store, "folder"), on_damage="drop", on_lost=told.append) as dataset:
        assert (await dataset.read()).to_pydict()["n"] == [*range(14), 18, 19]
        assert [region.where.key for region in told] == ["memory:folder/b.parquet"]
        assert sum([batch.num_rows async for batch in dataset.batches()]) == 16
        assert len(told) == 2


async def test_a_file_that_is_not_finished_is_warned_of() -> None:
    inner = MemoryStore()
    async with rpq.create((inner, "whole"), row_group_rows=5, checkpoint_every=1, checkpoint_overhead=9) as writer:
        await writer.write(numbers(0, 10))
    data = bytes((await inner.read_tail("whole", 1 << 20)).data)
    async with rpq.open((inner, "whole")) as file:
        begin = file.checkpoints[0].offset
    end = begin + 96 + int.from_bytes(data[begin + 72 : begin + 80], "little")
    store = await stored(a=data[:end], b=data)
    with pytest.warns(rpq.IncompleteFileWarning, match=r"a\.parquet is in-progress") as warned:
        async with rpq.open_many((store, "folder")) as dataset:
            assert dataset.num_rows == 15
    assert warned[0].filename == __file__


# --- what they share ------------------------------------------------------------------------------------------------


class Counting(MemoryStore):
    """Knows how many requests went on at one time."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__()
        self.__dict__.update(vars(inner))
        self.most = self._now = 0

    async def _counted(self, answer: Any) -> Any:
        self._now += 1
        self.most = max(self.most, self._now)
        for _ in range(3):
            await asyncio.sleep(0)
        self._now -= 1
        return await answer

    async def read_tail(self, key: str, size: int) -> Any:
        return await self._counted(super().read_tail(key, size))

    async def read_range(self, key: str, start: int, end: int, *, pin: Any) -> bytes | memoryview:
        data: bytes = await self._counted(super().read_range(key, start, end, pin=pin))
        return data


async def test_requests_are_bounded_for_all_together() -> None:
    store = Counting(await stored(**{f"f{i:02}": numbers(5 * i, 5 * i + 5) for i in range(30)}))
    options = rpq.ReadOptions(max_requests=4, tail_bytes=8)
    async with rpq.open_many((store, "folder"), options=options) as dataset:
        assert store.most == 4
        opened = dataset.counters.requests
        assert pa.table(await dataset.read()).equals(numbers(0, 150))
        assert store.most == 4
        assert dataset.counters.requests == opened + 30  # each file is small, so that its row groups share a request
        assert [file.counters for file in dataset.files] == [dataset.counters] * 30


async def test_what_is_read_ahead_goes_on_into_the_next_files() -> None:
    store = RecordingStore(await stored(**{f"f{i}": numbers(5 * i, 5 * i + 5) for i in range(6)}))
    short = rpq.ReadOptions(tail_bytes=8)
    async with rpq.open_many((store, "folder"), options=short) as dataset, dataset.batches() as batches:
        store.calls.clear()
        await anext(batches)
        assert len({call.key for call in store.calls}) == 6
    little = rpq.ReadOptions(memory_budget=1, tail_bytes=8)
    async with rpq.open_many((store, "folder"), options=little) as dataset, dataset.batches() as batches:
        store.calls.clear()
        await anext(batches)
        assert len({call.key for call in store.calls}) <= 2
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_error_of_a_later_file_that_nobody_reaches_is_not_raised() -> None:
    store = FaultyStore(await stored(a=numbers(0, 10), b=numbers(10, 20)))
    async with rpq.open_many((store, "folder")) as dataset, dataset.batches() as batches:
        store.faults.append(Fault("read_range", rpq.TransientError("reset"), skip=1, times=100))
        assert (await anext(batches)).num_rows == 4
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_the_blocking_twin_is_an_arrow_stream(tmp_path: Path) -> None:
    for name, table in {"a": numbers(0, 10), "b": numbers(10, 25)}.items():
        (tmp_path / f"{name}.parquet").write_bytes(bytes_of(table))
    with sync.open_many(tmp_path) as dataset:
        assert pa.table(dataset).equals(ALL)
        assert pa.RecordBatchReader.from_stream(dataset.batches(columns=["n"])).read_all().num_rows == 25
        assert sum(batch.num_rows for batch in dataset.batches(2)) == 25
        assert dataset.read(columns=["s"]).num_columns == 1


# --- some of the rows -------------------------------------------------------------------------------------------


async def test_rows_that_filters_and_a_limit_leave_of_all_files(store: MemoryStore) -> None:
    odd = [("n", "in", list(range(1, 25, 2)))]
    async with rpq.open_many((store, "folder")) as dataset:
        for limit in (None, 0, 1, 4, 5, 6, 11, 12, 100):
            expected = ALL.filter([i % 2 == 1 for i in range(25)]).slice(0, limit)
            assert pa.table(await dataset.read(filters=odd, limit=limit)).equals(expected)
            batches = [pa.table(batch) async for batch in dataset.batches(3, filters=odd, limit=limit)]
            assert pa.concat_tables([ALL.slice(0, 0), *batches]).equals(expected)
            assert [row async for row in dataset.records(filters=odd, limit=limit)] == expected.to_pylist()
            assert pa.table(await dataset.read(limit=limit)).equals(ALL.slice(0, limit))
        with pytest.raises(rpq.SchemaError, match="no column"):
            await dataset.read(filters=[("m", "=", 1)])
        with pytest.raises(rpq.SchemaError, match="limit is -1"):
            dataset.batches(limit=-1)


async def test_files_that_cannot_have_the_rows_are_not_read(store: MemoryStore) -> None:
    watched = RecordingStore(store)
    async with rpq.open_many((watched, "folder"), options=rpq.ReadOptions(tail_bytes=8)) as dataset:
        watched.calls.clear()
        found = await dataset.read(["s"], filters=[("n", "=", 12)])
        assert found["s"].tolist() == ["text 12"]
        assert {call.key for call in watched.calls} == {"folder/b.parquet"}
        watched.calls.clear()
        assert (await dataset.read(limit=3)).num_rows == 3
        assert "folder/deep/c.parquet" not in {call.key for call in watched.calls}


async def test_filters_where_a_file_has_nothing_but_nulls() -> None:
    """Its column is of no kind, so it cannot be of another than the value's."""
    words = {"a": pa.nulls(2), "b": pa.array(["x", None, "y"]), "c": pa.nulls(1)}
    store = await stored(**{f"folder__{name}": pa.table({"word": column}) for name, column in words.items()})
    async with rpq.open_many((store, "folder")) as dataset:
        for operator, value, expected in (("=", "x", ["x"]), ("!=", "x", ["y"]), ("in", ["x", "y"], ["x", "y"])):
            found = pa.table(await dataset.read(filters=[("word", operator, value)]))
            assert found["word"].to_pylist() == expected
        assert (await dataset.read(filters=[("word", "is null")])).num_rows == 4
