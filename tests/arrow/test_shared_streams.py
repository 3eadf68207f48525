"""Streams over arrays that they share: as nanoarrow makes them, of any type, and with lifetimes of their own."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import duckdb
import nanoarrow as na
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.field import MAX_NESTING
from resilient_pq.format import kernels

pytestmark = pytest.mark.skipif(kernels.batch_stream is None, reason="the kernels are not compiled")

TEXTS = ["x" * 30, None, "y", ""] * 3
ROWS = pa.table(
    {
        "n": pa.array([1, None, 3, 4] * 3, pa.int16()),
        "t": pa.array(TEXTS),
        "v": pa.array(TEXTS, pa.string_view()),
        "d": pa.array(TEXTS).dictionary_encode(),
        "nested": pa.array([[{"a": text, "b": [text]}] for text in TEXTS]),
        "views": pa.array([{"a": [text]} for text in TEXTS], pa.struct({"a": pa.list_(pa.string_view())})),
        "of words": pa.array([[text] for text in TEXTS], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        "nothing": pa.nulls(12),
    },
    pa.schema(
        [
            pa.field("n", pa.int16(), metadata={"a": "b"}),
            *(pa.field(name, kind) for name, kind in [("t", pa.string()), ("v", pa.string_view())]),
            pa.field("d", pa.dictionary(pa.int32(), pa.string())),
            pa.field("nested", pa.list_(pa.struct({"a": pa.string(), "b": pa.list_(pa.string())}))),
            pa.field("views", pa.struct({"a": pa.list_(pa.string_view())})),
            pa.field("of words", pa.list_(pa.dictionary(pa.int8(), pa.string()))),
            pa.field("nothing", pa.null()),
        ],
        metadata={"key": "value"},
    ),
)


def _table(rows: pa.Table, size: int = 5) -> Table:
    batches = rows.to_batches(size)
    return Table(rows.schema, [[na.c_array(column) for column in batch.columns] for batch in batches], rows.num_rows)


def test_the_same_as_nanoarrow_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(ROWS)
    for part in (table, table.slice(3, 6)):
        found = pa.table(part)
        found.validate(full=True)
        with monkeypatch.context() as patched:
            patched.setattr(kernels, "batch_stream", None)
            expected = pa.table(part)
        assert found.equals(expected)
        assert found.schema.equals(expected.schema, check_metadata=True)
    assert pa.table(table).equals(ROWS)


def test_other_consumers_any_number_of_times() -> None:
    table = _table(ROWS.select(["n", "t", "d", "nested"]))
    for _ in range(3):
        assert pl.DataFrame(table).rows() == pl.DataFrame(ROWS.select(["n", "t", "d", "nested"])).rows()
        given = pa.RecordBatchReader.from_stream(table)  # noqa: F841 (DuckDB finds it by its name)
        assert duckdb.sql("SELECT count(t) FROM given").fetchall() == [(9,)]
        assert na.ArrayStream(table).read_all().to_pylist()[0]["t"] == TEXTS[0]  # which moves what it is given
        table.__arrow_c_stream__()  # that nobody takes
    assert pa.table(table).equals(ROWS.select(["n", "t", "d", "nested"]))


def test_a_batch_keeps_its_own_memory_and_no_other() -> None:
    class Memory(np.ndarray[Any, Any]):
        pass

    memory = [np.arange(1000).view(Memory) for _ in range(3)]
    chunks = [[na.c_array_from_buffers(na.int64(), 1000, [None, each])] for each in memory]
    table = Table(pa.schema([pa.field("n", pa.int64())]), chunks, 3000)
    alive = [weakref.ref(each) for each in memory]
    reader = pa.RecordBatchReader.from_stream(table)
    first = reader.read_next_batch()
    del memory, chunks, table, reader
    gc.collect()
    assert [each() is not None for each in alive] == [True, False, False]
    assert first["n"].to_pylist() == list(range(1000))
    del first
    gc.collect()
    assert alive[0]() is None


def test_what_cannot_be_shared_is_an_error_of_the_stream() -> None:
    array, other = na.c_array(pa.array([1, 2])), na.c_array(pa.array([1, 2, 3]))
    schema = na.c_schema(pa.schema({"a": pa.int64(), "b": pa.int64()}))
    stream = pa.RecordBatchReader._import_from_c_capsule(kernels.batch_stream(schema, [[array, other]], MAX_NESTING))
    with pytest.raises(OSError, match="not the same length"):
        stream.read_all()
    nested = na.c_array(pa.array([[1]]))
    schema = na.c_schema(pa.schema({"a": pa.list_(pa.int64())}))
    stream = pa.RecordBatchReader._import_from_c_capsule(kernels.batch_stream(schema, [[nested]], 0))
    with pytest.raises(OSError, match="nested too deeply"):
        stream.read_all()
