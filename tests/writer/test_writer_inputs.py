"""What a writer takes, in every form that rows come in; what does not fit costs nothing."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import resilient_pq as rpq
from resilient_pq import SchemaError, UnsupportedError, WriteOptions
from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.arrow.leaf_rows import LeafRows
from resilient_pq.format import kernels
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.writer import file_encoder

Read = Callable[..., Awaitable[Any]]


def _table() -> pa.Table:
    return pa.table({"a": pa.array([1, None, 3]), "b": pa.array(["x", "y", None]), "c": pa.array([1.5, -0.0, None])})


class OnlyArray:
    """Has ``__arrow_c_array__`` and nothing else."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object | None = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


FORMS: dict[str, Callable[[], Any]] = {
    "table": _table,
    "record batch": lambda: _table().to_batches()[0],
    "reader": lambda: pa.RecordBatchReader.from_batches(_table().schema, _table().to_batches()),
    "only an array": lambda: OnlyArray(_table().to_batches()[0]),
    "polars": lambda: pl.DataFrame(_table()),
    "duckdb": lambda: duckdb.from_arrow(_table()),
    "pandas": lambda: _table().to_pandas(types_mapper=pd.ArrowDtype),
    "dict of lists": lambda: _table().to_pydict(),
    "dict of arrays": lambda: {name: _table()[name] for name in "abc"},
    "records": lambda: _table().to_pylist(),
    "dict of NumPy": lambda: {
        "a": np.ma.MaskedArray([1, 2, 3], [False, True, False]),
        "b": np.array(["x", "y", None], object),
        "c": np.ma.MaskedArray([1.5, -0.0, 0.0], [False, False, True]),
    },
}


@pytest.mark.parametrize("form", FORMS)
async def test_every_form_of_rows(store: MemoryStore, table_of: Read, form: str) -> None:
    async with rpq.create((store, "file")) as writer:
        await writer.write(FORMS[form]())
    plain = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    assert (await table_of(store)).cast(plain).equals(_table())


async def test_what_was_read_can_be_written(store: MemoryStore, table_of: Read) -> None:
    async with rpq.create((store, "first")) as writer:
        await writer.write(_table())
    async with rpq.open((store, "first")) as file, rpq.create((store, "file"), file.schema) as writer:
        await writer.write(await file.read())
        async for batch in file.batches(2):
            await writer.write(batch)
    assert (await table_of(store)).equals(pa.concat_tables([_table(), _table()]))


async def test_forms_may_follow_one_another(store: MemoryStore, table_of: Read) -> None:
    async with rpq.create((store, "file"), _table().schema) as writer:
        for form in FORMS.values():
            await writer.write(form())
    assert (await table_of(store)).equals(pa.concat_tables([_table()] * len(FORMS)))


async def test_python_values_of_every_kind(store: MemoryStore, table_of: Read) -> None:
    rows: list[dict[str, Any]] = [
        {
            "flag": True, "int": 2**63 - 1, "float": 1.5, "text": "ä", "bytes": b"\xff", "day": dt.date(1969, 12, 31),
            "moment": dt.datetime(2020, 1, 2, 3, 4, 5, 6), "instant": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
            "clock": dt.time(1, 2, 3, 4), "span": dt.timedelta(days=-1, microseconds=1),
            "amount": decimal.Decimal("-12.30"), "list": [1, None], "struct": {"x": 1, "y": "z"}, "none": None,
        },
        {},
    ]  # fmt: skip
    async with rpq.create((store, "file")) as writer:
        await writer.write(rows)
    first, second = (await table_of(store)).to_pylist()
    assert first == rows[0]
    assert set(second.values()) == {None}


async def test_schema_of_the_first_rows_holds(store: MemoryStore, table_of: Read) -> None:
    async with rpq.create((store, "file")) as writer:
        assert writer.schema is None
        await writer.write([{"a": 1}, {"b": "x"}])
        assert writer.schema is not None and writer.schema.names == ["a", "b"]
        await writer.write([{"b": "y"}])
        await writer.write({"b": ["z"], "a": [7]})
    assert (await table_of(store)).to_pylist() == [
        {"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": None, "b": "y"}, {"a": 7, "b": "z"},
    ]  # fmt: skip


# --- the caller's memory ------------------------------------------------------------------------------------


async def test_arrays_of_numpy_may_be_changed_after_write(store: MemoryStore, table_of: Read) -> None:
    """Loops that fill the same arrays again and again are common."""
    numbers, floats = np.arange(10), np.arange(10.0)
    moments = np.arange(10).astype("M8[us]")
    masked = np.ma.MaskedArray(np.arange(10), np.arange(10) % 2 == 0)
    async with rpq.create((store, "file"), compression="none", encodings="PLAIN") as writer:
        for step in range(3):
            numbers[:] = np.arange(10) + 10 * step
            floats[:], moments[:], masked[:] = numbers, numbers.astype("M8[us]"), numbers
            masked.mask = numbers % 2 == 0
            await writer.write({"n": numbers, "slice": numbers[::-1], "f": floats, "t": moments, "m": masked})
        numbers[:], floats[:], moments[:], masked[:] = -1, -1.0, np.datetime64(0, "us"), -1
    found = await table_of(store)
    assert found["n"].to_pylist() == list(range(30))
    assert found["slice"].to_pylist() == [*range(9, -1, -1), *range(19, 9, -1), *range(29, 19, -1)]
    assert found["f"].to_pylist() == [float(i) for i in range(30)]
    assert found["t"].cast(pa.int64()).to_pylist() == list(range(30))
    assert found["m"].to_pylist() == [i if i % 2 else None for i in range(30)]


async def test_frames_of_pandas_may_be_changed_after_write(store: MemoryStore, table_of: Read) -> None:
    frame = pd.DataFrame({"n": np.arange(5), "f": np.arange(5.0), "s": list("abcde")})
    async with rpq.create((store, "file"), compression="none") as writer:
        await writer.write(frame)
        frame.iloc[:, 0] = -1
        frame.loc[0, "f"] = 99.0
        frame.loc[1, "s"] = "changed"
        await writer.write({"n": frame["n"], "f": frame["f"], "s": frame["s"]})
        frame.iloc[:, 0] = -2
    found = await table_of(store)
    assert found["n"].to_pylist() == [0, 1, 2, 3, 4] + [-1] * 5
    assert found["f"].to_pylist() == [0.0, 1.0, 2.0, 3.0, 4.0, 99.0, 1.0, 2.0, 3.0, 4.0]
    assert found["s"].to_pylist() == ["a", "b", "c", "d", "e", "a", "changed", "c", "d", "e"]


class _Frame(pd.DataFrame):
    """As those of GeoPandas are, whose module is not that of pandas."""


class _Tensor:
    """An array of somebody else, whose memory NumPy shows."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self._values.copy() if copy else self._values


async def test_frames_and_arrays_made_by_others_may_be_changed_after_write(store: MemoryStore, table_of: Read) -> None:
    frame, memory = _Frame({"n": np.arange(5)}), np.arange(5)
    async with rpq.create((store, "frame")) as writer:
        await writer.write(frame)
        frame.iloc[:, 0] = -1
    async with rpq.create((store, "array")) as writer:
        await writer.write({"n": _Tensor(memory)})
        memory[:] = -1
    for key in ("frame", "array"):
        assert (await table_of(store, key))["n"].to_pylist() == list(range(5))


async def test_lists_may_be_changed_after_write(store: MemoryStore, table_of: Read) -> None:
    values, record = [1, 2], {"a": 3}
    async with rpq.create((store, "file")) as writer:
        await writer.write({"a": values})
        await writer.write([record])
        values[:], record["a"] = [0, 0], 0
    assert (await table_of(store))["a"].to_pylist() == [1, 2, 3]


# --- what it refuses ----------------------------------------------------------------------------------------

MISFITS: dict[str, tuple[Any, str]] = {
    "another type": ({"a": ["text"], "b": ["x"], "c": [1.0]}, "column 'a'"),
    "a missing column": (pa.table({"a": [1], "b": ["x"]}), "column 'c' .* is missing"),
    "one column more": (pa.table({"a": [1], "b": ["x"], "c": [1.0], "d": [1]}), "there is no column 'd'"),
    "another width": (
        pa.table({"a": pa.array([1], pa.int32()), "b": ["x"], "c": [1.0]}),
        "column 'a' is int64",
    ),
    "an unknown key": ([{"a": 1, "e": 2}], "'e'"),
    "unequal lengths": ({"a": [1], "b": ["x", "y"], "c": [1.0]}, "different numbers of rows"),
    "no rows at all": (17, "rows cannot be taken from an object of type int"),
    "an array, not rows": (pa.array([1, 2]), "struct"),
    "too large": ({"a": [2**63], "b": ["x"], "c": [1.0]}, "does not fit"),
    "text as bytes": ({"a": [1], "b": [b"x"], "c": [1.0]}, "column 'b'"),
    "a misfit behind good rows": ([*_table().to_pylist(), {"a": 1.5}], "column 'a'"),
}


@pytest.mark.parametrize("name", MISFITS)
async def test_rows_that_do_not_fit_cost_nothing(store: MemoryStore, table_of: Read, name: str) -> None:
    rows, message = MISFITS[name]
    async with rpq.create((store, "file"), row_group_rows=2) as writer:
        await writer.write(_table())
        with pytest.raises(SchemaError, match=message) as caught:
            await writer.write(rows)
        assert caught.value.where.key == "memory:file" and not writer.closed
        assert writer.num_rows == 3
        await writer.write(_table())
    assert (await table_of(store)).equals(pa.concat_tables([_table(), _table()]))


async def test_of_a_stream_the_batches_before_the_bad_one_are_kept(store: MemoryStore, table_of: Read) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])

    def batches() -> Iterator[pa.RecordBatch]:
        for values in ([1, 2], [3, 4], [5, None, 7], [8]):
            yield pa.record_batch({"a": pa.array(values, pa.int64())})

    async with rpq.create((store, "file"), schema, row_group_rows=3) as writer:
        reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches())
        with pytest.raises(SchemaError, match="column 'a' may not be null, but row 5 is") as caught:
            await writer.write(reader)
        assert caught.value.where.column == "a" and writer.num_rows == 4
        await writer.write({"a": [9]})
    assert (await table_of(store))["a"].to_pylist() == [1, 2, 3, 4, 9]


async def test_a_first_batch_that_fails_does_not_settle_the_schema(store: MemoryStore, table_of: Read) -> None:
    runs = pa.table({"i": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["a"]))})
    async with rpq.create((store, "file")) as writer:
        with pytest.raises(SchemaError):
            await writer.write({"a": [1, "x"]})
        with pytest.raises(UnsupportedError, match="column 'i'"):
            await writer.write(runs)
        await writer.write({"z": ["fine"]})
    assert (await table_of(store)).to_pydict() == {"z": ["fine"]}


# --- without rows -------------------------------------------------------------------------------------------


async def test_batches_without_rows_make_a_schema_and_no_row_group(
    store: MemoryStore, table_of: Read, row_groups_of: Read
) -> None:
    async with rpq.create((store, "file")) as writer:
        await writer.write(_table().slice(0, 0))
        await writer.write(_table())
        await writer.write(_table().slice(0, 0))
    assert (await table_of(store)).equals(_table())
    assert await row_groups_of(store) == [3]


async def test_a_stream_without_batches_makes_an_empty_file(store: MemoryStore, table_of: Read) -> None:
    async with rpq.create((store, "file")) as writer:
        await writer.write(pa.RecordBatchReader.from_batches(_table().schema, []))
    found = await table_of(store)
    assert found.num_rows == 0 and found.schema.equals(_table().schema)
    async with rpq.open((store, "file")) as file:
        assert file.num_row_groups == 0 and (await file.read()).num_rows == 0
        assert [batch async for batch in file.batches()] == []


# --- sources and loops --------------------------------------------------------------------------------------


async def test_an_asynchronous_source_batch_by_batch(store: MemoryStore, table_of: Read) -> None:
    async def source() -> AsyncIterator[dict[str, list[int]]]:
        for step in range(4):
            await asyncio.sleep(0)
            yield {"a": [step]}

    async with rpq.create((store, "file")) as writer:
        async for rows in source():
            await writer.write(rows)
    assert (await table_of(store))["a"].to_pylist() == [0, 1, 2, 3]


async def test_tasks_may_write_at_the_same_time(store: MemoryStore, table_of: Read) -> None:
    async with rpq.create((store, "file"), row_group_rows=8) as writer:

        async def write(task: int) -> None:
            for step in range(10):
                await writer.write({"task": [task] * 3, "step": [step] * 3})

        await asyncio.gather(*map(write, range(5)))
    rows = (await table_of(store)).to_pylist()
    assert len(rows) == 150
    for task in range(5):
        steps = [row["step"] for row in rows if row["task"] == task]
        assert steps == [step for step in range(10) for _ in range(3)]
    assert all(rows[at] == rows[at + 1] == rows[at + 2] for at in range(0, 150, 3)), "a call's rows stay together"


async def test_the_event_loop_stays_free(store: MemoryStore) -> None:
    turns = 0

    async def beside() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(beside())
    async with rpq.create((store, "file"), compression_level=9) as writer:
        await writer.write({"a": np.random.default_rng(1).random(200_000)})
    task.cancel()
    assert turns > 10


async def test_large_batches_are_taken_by_views_and_small_ones_are_not(
    store: MemoryStore, table_of: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a chunk is encoded of lies in the caller's memory where the row group is made of one batch."""
    numbers = np.arange(6000)
    strings = pa.array([f"row {number}" for number in range(6000)])
    shared: list[bool] = []
    encode = file_encoder.encode_chunk

    def noted(leaf: Any, pieces: Any, *how: Any) -> Any:
        if leaf.column_path == "n":
            shared.append(np.shares_memory(pieces[0].values, numbers))
        return encode(leaf, pieces, *how)

    monkeypatch.setattr(kernels, "FlatWriter", None)
    monkeypatch.setattr(file_encoder, "encode_chunk", noted)
    table = pa.table({"n": numbers, "s": strings})
    async with rpq.create((store, "file"), row_group_rows=1000, row_group_bytes=1 << 16) as writer:
        await writer.write(table[:2500])  # two row groups, and half of one
        await writer.write(table[2500:2510])
        await writer.write(table[2510:])
    assert shared[:2] == [True, True] and shared[2] is False and all(shared[3:])
    assert (await table_of(store)).equals(table)


@pytest.mark.parametrize("cuts", [[10, 20, 500, 501, 2000], [2000, 2001, 2002, 2500], [3, 1700, 1703]], ids=str)
@pytest.mark.parametrize("max_threads", [1, 2])
async def test_row_groups_of_pieces_large_and_small(
    store: MemoryStore, table_of: Read, cuts: list[int], max_threads: int
) -> None:
    rng = np.random.default_rng(1)
    mask = rng.random(3000) < 0.2
    table = pa.table(
        {
            "n": pa.array(rng.integers(0, 9, 3000), mask=mask),
            "s": pa.array([f"text {number}" for number in range(3000)], mask=mask),
            "v": pa.array([f"a text that is in no view {number}" for number in range(3000)], pa.string_view()),
            "l": pa.array([[1, None, 3][: number % 4] or None for number in range(3000)]),
            "d": pa.array(["one", "two", None] * 1000).dictionary_encode(),
        }
    )
    options = WriteOptions(max_threads=max_threads)
    async with rpq.create((store, "file"), row_group_bytes=30_000, options=options) as writer:
        for start, end in pairwise([0, *cuts, 3000]):
            await writer.write(table[start:end])
    assert (await table_of(store)).to_pydict() == table.to_pydict()


async def test_rows_that_no_longer_fit_when_they_are_encoded_fail_the_writer(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were taken: the row group cannot do without them, so this is no batch that can be refused."""

    def changed(_: LeafRows) -> Any:
        raise SchemaError("column 'a' may not be null, but row 1 is")

    monkeypatch.setattr(kernels, "FlatWriter", None)
    monkeypatch.setattr(LeafRows, "shredded", changed)
    writer = await rpq.create((store, "file"))
    await writer.write(pa.table({"a": [1, 2]}))
    with pytest.raises(rpq.EncodingError, match="the rows have changed since they were written"):
        await writer.checkpoint()
    with pytest.raises(rpq.WriterFailedError):
        await writer.write(pa.table({"a": [1, 2]}))
    await writer.abort()


@pytest.mark.parametrize("options", [None, WriteOptions(sorting_columns=["d"])], ids=["gathered", "compared"])
async def test_rows_that_no_longer_fit_when_they_are_looked_at_fail_the_writer(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, options: WriteOptions | None
) -> None:
    """No batch is at fault that comes after them, and no file is published whose columns differ in length."""
    monkeypatch.setitem(Ingest.batches.__kwdefaults__, "batch_bytes", 100)  # large enough to wait as it came
    indices = np.zeros(100, np.int32)
    column = pa.Array.from_buffers(pa.int32(), 100, [None, pa.py_buffer(indices)])
    table = pa.table({"n": range(100), "d": pa.DictionaryArray.from_arrays(column, ["a", "b"])})
    with pytest.raises(rpq.EncodingError, match="the rows have changed since they were written") as caught:
        async with rpq.create((store, "file"), options=options) as writer:
            await writer.write(table)
            indices[:] = 7
            await writer.write(pa.table({"n": [1], "d": pa.array(["a"]).dictionary_encode()}))
    assert caught.value.where.column == "d" and caught.value.where.row_group == 0
    with pytest.raises(rpq.NotFoundError):
        await store.head("file")
