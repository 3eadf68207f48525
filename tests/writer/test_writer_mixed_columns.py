"""Batches of which only some columns are flat: those are written in one compiled step, in the same bytes as without."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import WriteOptions
from resilient_pq import sync as rpq
from resilient_pq.format import kernels
from resilient_pq.writer.file_encoder import FileEncoder

pytestmark = pytest.mark.skipif(kernels.FlatWriter is None, reason="the kernels are not compiled")

OTHERS = {"list", "struct", "map", "dictionary", "view", "decimal", "fixed", "bloom"}


def mixed(rows: int) -> pa.Table:
    words = [None if i % 7 == 3 else f"w{i % 11}" for i in range(rows)]
    return pa.table(
        {
            "int": pa.array(range(rows)),
            "list": [[i] * (i % 4) if i % 9 else None for i in range(rows)],
            "word": words,
            "struct": [{"a": i, "b": words[i]} if i % 5 else None for i in range(rows)],
            "float": pa.array([i / 3 for i in range(rows)]),
            "map": pa.array([[("k", i)] for i in range(rows)], pa.map_(pa.string(), pa.int64())),
            "dictionary": pa.array(words).dictionary_encode(),
            "view": pa.array(words, pa.string_view()),
            "decimal": [Decimal(i) / 100 for i in range(rows)],
            "flag": pa.array([i % 3 == 0 for i in range(rows)]),
            "fixed": pa.array([bytes([i % 256] * 3) for i in range(rows)], pa.binary(3)),
            "bloom": pa.array(range(rows)),
            "day": pa.array(range(rows), pa.int32()).cast(pa.date32()),
        }
    )


def written(path: Path, table: pa.Table, batches: int, **options: Any) -> bytes:
    with rpq.create(str(path), **options) as writer:
        for batch in table.to_batches(max_chunksize=max(table.num_rows // batches, 1)):
            writer.write(batch)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("rows", "group_rows", "batches"), [(1000, None, 1), (300, 100, 1), (600, 200, 4), (3000, None, 1)]
)
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_files_are_the_same_without_the_step(
    rows: int, group_rows: int | None, batches: int, codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    table = mixed(rows)
    options = {
        "compression": codec,
        "row_group_rows": group_rows,
        "options": WriteOptions(bloom_filter_options=["bloom"]),
    }
    with_step = written(tmp_path / "with.parquet", table, batches, **options)
    with monkeypatch.context() as without:
        without.setattr(kernels, "FlatWriter", None)
        assert written(tmp_path / "without.parquet", table, batches, **options) == with_step
    assert pq.read_table(tmp_path / "with.parquet").cast(table.schema).equals(table)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_files_of_flat_columns_are_the_same_without_the_step(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    table = mixed(700).drop_columns([*OTHERS])
    with_step = written(tmp_path / "with.parquet", table, 3, compression=codec, row_group_rows=300)
    monkeypatch.setattr(kernels, "FlatWriter", None)
    monkeypatch.setattr(kernels, "FlatChunk", None)
    assert written(tmp_path / "without.parquet", table, 3, compression=codec, row_group_rows=300) == with_step
    assert not rpq.check(str(tmp_path / "with.parquet")).findings


def test_only_the_other_columns_take_the_general_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declined = set()
    general = FileEncoder._encode_declined

    def counted(self: FileEncoder, rows: Any, at: int, side_by_side: Any) -> Any:
        declined.add(self.layout.schema.leaves[at].path[0])
        return general(self, rows, at, side_by_side)

    monkeypatch.setattr(FileEncoder, "_encode_declined", counted)
    monkeypatch.setattr(FileEncoder, "_row_group", None)
    written(tmp_path / "a.parquet", mixed(500), 1, options=WriteOptions(bloom_filter_options=["bloom"]))
    assert declined == OTHERS


def test_rows_that_do_not_fit_are_refused_before_any_is_taken(tmp_path: Path) -> None:
    schema = pa.schema([("int", pa.int64()), pa.field("list", pa.list_(pa.field("e", pa.int64(), nullable=False)))])
    good = pa.record_batch([pa.array([1]), pa.array([[1]], schema.field("list").type)], schema=schema)
    nulls = pa.array([[1, None]], pa.list_(pa.int64()))
    with rpq.create(str(tmp_path / "a.parquet"), schema) as writer:
        writer.write(good)
        with pytest.raises(rpq.SchemaError, match="null"):
            writer.write(pa.record_batch([pa.array([2]), nulls], names=["int", "list"]))
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == [{"int": 1, "list": [1]}]
