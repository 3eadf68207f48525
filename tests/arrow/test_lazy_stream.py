"""An Arrow C stream whose tables are made when they are asked for: what any consumer of one may do with it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import duckdb
import nanoarrow
import polars as pl
import pyarrow as pa
import pytest

from resilient_pq import SchemaError
from resilient_pq.arrow import c_stream
from resilient_pq.arrow.c_stream import lazy_stream
from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.field import Field

ROWS = pa.table(
    {
        "n": pa.array(range(6)),
        "s": pa.array(["a", None, "c" * 40, "", "é", "f"]),
        "l": pa.array([[1], None, [], [2, None], [3], [4]], pa.list_(pa.int32())),
        "v": pa.array(["short", None, "x" * 100, "y" * 13, "", "z"], pa.string_view()),
        "r": pa.array([{"a": i, "b": None} for i in range(6)], pa.struct({"a": pa.int8(), "b": pa.bool_()})),
    }
)


def table_of(rows: pa.Table) -> Table:
    columns = [nanoarrow.c_array(rows[name].combine_chunks()) for name in rows.column_names]
    return Table(rows.schema, [columns], rows.num_rows)


class Source:
    """Something that gives one stream of tables, and counts what happens to it."""

    def __init__(self, tables: Iterator[Table], schema: pa.Schema = ROWS.schema) -> None:
        self.taken = self.ended = 0
        self._schema = schema
        self._capsule: object = lazy_stream(Field.of(schema), self._counted(tables), self._end)

    def _counted(self, tables: Iterator[Table]) -> Iterator[Table]:
        for table in tables:
            self.taken += 1
            yield table

    def _end(self) -> None:
        self.ended += 1

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        capsule, self._capsule = self._capsule, None
        return capsule


def halves() -> Iterator[Table]:
    yield table_of(ROWS.slice(0, 3))
    yield table_of(ROWS.slice(3))


def test_tables_are_taken_when_they_are_asked_for() -> None:
    source = Source(halves())
    reader = pa.RecordBatchReader.from_stream(source)
    assert (reader.schema, source.taken, source.ended) == (ROWS.schema, 0, 0)
    first = reader.read_next_batch()
    assert (first.num_rows, source.taken) == (3, 1)
    assert pa.Table.from_batches([first]).equals(ROWS.slice(0, 3))
    second = reader.read_next_batch()
    with pytest.raises(StopIteration):
        reader.read_next_batch()
    with pytest.raises(StopIteration):
        reader.read_next_batch()
    assert (source.taken, source.ended) == (2, 0)
    del reader
    gc.collect()
    assert source.ended == 1
    second.validate(full=True)
    assert pa.Table.from_batches([second]).equals(ROWS.slice(3))


def test_one_that_is_let_go_of_early_ends() -> None:
    source = Source(halves())
    reader = pa.RecordBatchReader.from_stream(source)
    reader.read_next_batch()
    reader.close()
    del reader
    gc.collect()
    assert (source.taken, source.ended) == (1, 1)


def test_one_that_is_asked_for_its_schema_alone_leaves_the_tables_to_others() -> None:
    source = Source(halves())
    others = dict(c_stream._handed_out)  # that whoever took them has not let go of yet
    assert pa.RecordBatchReader.from_stream(source).schema == ROWS.schema
    gc.collect()
    assert (source.taken, source.ended) == (0, 0)
    assert c_stream._handed_out.items() <= others.items()


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param(pa.table, id="pyarrow"),
        pytest.param(lambda source: pl.DataFrame(source).to_arrow(), id="polars"),
        pytest.param(lambda source: duckdb.sql("select * from source").to_arrow_table(), id="duckdb"),
        pytest.param(lambda source: pa.table(nanoarrow.c_array_stream(source)), id="nanoarrow"),
    ],
)
def test_other_libraries_take_it(taken: Any) -> None:
    source = Source(halves())
    assert taken(source).to_pylist() == ROWS.to_pylist()
    gc.collect()
    assert (source.taken, source.ended) == (2, 1)


def test_no_tables_and_tables_without_rows() -> None:
    assert pa.table(Source(iter([]))).schema == ROWS.schema
    empty = table_of(ROWS.slice(0, 0))
    assert pa.table(Source(iter([empty, *halves(), empty]))).to_pylist() == ROWS.to_pylist()


def test_tables_of_several_chunks() -> None:
    one, other = halves()
    both = Table(ROWS.schema, [*one._chunks, *other._chunks], 6)
    reader = pa.RecordBatchReader.from_stream(Source(iter([both])))
    assert [batch.num_rows for batch in reader] == [3, 3]


def failing() -> Iterator[Table]:
    yield table_of(ROWS.slice(0, 3))
    raise SchemaError("the disk is on fire")


def test_an_error_comes_out_and_stays() -> None:
    """Also for one who goes on: rows that are missing must not look like the end."""
    source = Source(failing())
    reader = pa.RecordBatchReader.from_stream(source)
    assert reader.read_next_batch().num_rows == 3
    for _ in range(2):
        with pytest.raises(pa.ArrowInvalid, match="SchemaError: the disk is on fire"):
            reader.read_next_batch()
    del reader
    gc.collect()
    assert source.ended == 1


def test_an_error_comes_out_of_a_stream_that_is_taken_whole() -> None:
    source = Source(failing())
    with pytest.raises(pa.ArrowInvalid, match="the disk is on fire"):
        pa.table(source)
    other = Source(failing())
    with pytest.raises(Exception, match="the disk is on fire"):
        pl.DataFrame(other)
    gc.collect()
    assert (source.ended, other.ended) == (1, 1)


def test_an_interrupt_is_an_error_of_the_stream() -> None:
    def interrupted() -> Iterator[Table]:
        raise KeyboardInterrupt
        yield

    with pytest.raises(OSError, match="KeyboardInterrupt"):
        pa.table(Source(interrupted()))


def test_values_that_need_a_wider_type_than_was_declared() -> None:
    wider = pa.table({"t": pa.array([1, 2], pa.timestamp("us"))})
    declared = pa.schema([("t", pa.timestamp("ns"))])
    with pytest.raises(pa.ArrowInvalid, match=r"column 't' come as timestamp\[us\].*cannot change"):
        pa.table(Source(iter([table_of(wider)]), declared))


def test_from_a_thread_without_the_gil() -> None:
    """Consumers ask from threads that Python does not know."""
    source = Source(halves())
    reader = pa.RecordBatchReader.from_stream(source)
    found: list[pa.Table] = []
    thread = threading.Thread(target=lambda: found.append(reader.read_all()))
    thread.start()
    thread.join()
    assert found[0].to_pylist() == ROWS.to_pylist()
