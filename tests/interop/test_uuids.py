"""UUIDs are UUIDs: as pyarrow's extension type, as Python's objects, and as text on the command line."""

from __future__ import annotations

import uuid
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import resilient_pq
from resilient_pq import sync as rpq
from resilient_pq.cli.output import text_rows

SCHEMA = resilient_pq.Schema.parse(
    "message m { optional fixed_len_byte_array(16) u (UUID); repeated fixed_len_byte_array(16) r (UUID); "
    "optional group l (LIST) { repeated group list { optional fixed_len_byte_array(16) element (UUID); } } "
    "optional fixed_len_byte_array(16) plain; }"
)
ONE, TWO = uuid.UUID(int=1), uuid.UUID("6b82fc90-59bb-446a-8bf3-2837b7daf786")
ROWS = [
    {"u": ONE, "r": [ONE, TWO], "l": [TWO, None], "plain": TWO.bytes},
    {"u": None, "r": [], "l": None, "plain": None},
]


def test_uuids_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "uuid.parquet"
    with rpq.create(path, SCHEMA) as writer:
        writer.write(ROWS)
        writer.write([{"u": TWO.bytes, "r": [], "l": None, "plain": None}])
    with rpq.open(path) as file:
        assert file.schema == SCHEMA
        table = file.read()
    found, theirs = pa.table(table), pq.read_table(path)
    assert table.to_pylist() == [*ROWS, {"u": TWO, "r": [], "l": None, "plain": None}]
    assert found.schema.field("u").type == pa.uuid() == theirs.schema.field("u").type
    assert found.schema.field("plain").type == pa.binary(16)
    assert found.to_pylist() == theirs.to_pylist() == table.to_pylist()
    assert pl.DataFrame(table.slice(0, 3))["u"].to_list() == [ONE.bytes, None, TWO.bytes]
    assert text_rows.json_lines(table.slice(0, 1)).startswith('{"u": "00000000-0000-0000-0000-000000000001", ')


def test_uuids_of_pyarrow(tmp_path: Path) -> None:
    path = tmp_path / "uuid.parquet"
    theirs = pa.table({"u": pa.array([ONE.bytes, None, TWO.bytes], pa.uuid())})
    pq.write_table(theirs, path)
    with rpq.open(path) as file:
        table = file.read()
        assert pa.table(table).equals(theirs)
    again = tmp_path / "again.parquet"
    with rpq.create(again) as writer:
        writer.write(table)
    assert pq.read_table(again).equals(theirs)
