"""Small row groups that are written in one compiled step have the bytes that they have without it."""

from __future__ import annotations

import decimal
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.format import kernels

pytestmark = pytest.mark.skipif(kernels.FlatWriter is None, reason="the step is compiled")

TYPES: list[Any] = [
    pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(),
    pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.large_string(), pa.large_binary(),
    pa.date32(), pa.time32("ms"), pa.time64("us"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.duration("ns"),
]  # fmt: skip
#: Not flat, so that what has one of them takes the general path as a whole.
OTHERS: list[Any] = [pa.decimal128(9, 2), pa.list_(pa.int32()), pa.timestamp("s"), pa.float16(), pa.binary(3)]


def column(rng: np.random.Generator, kind: Any, rows: int, *, nullable: bool) -> Any:
    """Values of a type: few or many different ones, in order or not, with edge cases and nulls among them."""
    distinct = int(rng.choice([1, 2, 5, 40, 300, 5000]))
    numbers = rng.integers(0, distinct, rows)
    if rng.random() < 0.3:
        numbers = np.sort(numbers) if rng.random() < 0.5 else np.cumsum(numbers)
    mask = rng.random(rows) < rng.choice([0, 0, 0.01, 0.5, 1]) if nullable else np.zeros(rows, bool)
    if pa.types.is_list(kind):
        return pa.array([[int(n)] for n in numbers], kind)
    if pa.types.is_floating(kind):
        values = numbers * rng.choice([1.0, 0.1, 1e30 if kind == pa.float64() else 1.0])
        values[rng.random(rows) < rng.choice([0, 0.1, 1])] = rng.choice([np.nan, 0.0, -0.0, np.inf])
        return pa.array(values.astype(kind.to_pandas_dtype()), kind, mask=mask)
    if pa.types.is_boolean(kind):
        return pa.array(numbers % 2 == 0, kind, mask=mask)
    if pa.types.is_integer(kind):
        info = np.iinfo(kind.to_pandas_dtype())
        values = numbers.astype(kind.to_pandas_dtype())
        if rng.random() < 0.3:
            values[rng.integers(0, rows)] = rng.choice([info.min, info.max])
        return pa.array(values, kind, mask=mask)
    if pa.types.is_temporal(kind):
        return pa.array(numbers.astype("i4" if kind.bit_width == 32 else "i8"), mask=mask).cast(kind)
    long = rng.choice([1, 1, 12, 70])
    width = 3 if kind == pa.binary(3) else None
    words = [("ä" if n % 3 else "z") * (int(n) % int(long)) + str(n) for n in numbers]
    if pa.types.is_decimal(kind):
        return pa.array([decimal.Decimal(int(n) % 1000) for n in numbers], kind)
    texts = [None if null else word if pa.types.is_string(kind) or pa.types.is_large_string(kind) else
             word.encode()[:width].ljust(width or 0, b"\xff") for word, null in zip(words, mask, strict=True)]  # fmt: skip
    return pa.array(texts, kind)


def table(rng: np.random.Generator) -> pa.Table:
    rows = int(rng.choice([1, 2, 7, 8, 100, 511, 512, 513, 1000, 1023, 1024, 1025, 3000]))
    kinds = [*rng.choice(len(TYPES), int(rng.integers(1, 6))).tolist()]
    chosen = [TYPES[kind] for kind in kinds]
    if rng.random() < 0.15:
        chosen.append(OTHERS[int(rng.integers(len(OTHERS)))])
    fields, columns = [], []
    for number, kind in enumerate(chosen):
        nullable = bool(rng.random() < 0.7)
        fields.append(pa.field(f"column {number}", kind, nullable))
        columns.append(column(rng, kind, rows, nullable=nullable))
    made = pa.table(columns, pa.schema(fields))
    if rng.random() < 0.4:
        made = made.slice(int(rng.integers(0, rows)))
    return made if rng.random() < 0.7 else pa.concat_tables([made] * int(rng.integers(2, 4)))


def settings(rng: np.random.Generator) -> dict[str, Any]:
    options = {
        "dictionary_bytes": int(rng.choice([1 << 20, 1 << 20, 100, 0])),
        "page_rows": int(rng.choice([131_072, 131_072, 60])),
        "data_page_version": str(rng.choice(["1.0", "1.0", "1.0", "2.0"])),
    }
    chosen: dict[str, Any] = {
        "compression": str(rng.choice(["none", "snappy", "zstd", "lz4", "brotli"])),
        "options": rpq.WriteOptions(**options),
        "row_group_rows": [None, None, 50, 700][int(rng.integers(4))],
        "page_bytes": int(rng.choice([1 << 20, 1 << 20, 1 << 20, 500])),
        "row_group_bytes": int(rng.choice([1 << 26, 1 << 26, 9000])),
    }
    if rng.random() < 0.1:
        chosen["encodings"] = "compact"
    return chosen


def written(path: Path, table: pa.Table, settings: dict[str, Any]) -> bytes:
    path.unlink(missing_ok=True)
    with sync.create(path, **settings) as writer:
        writer.write(table)
        writer.write(table.slice(0, 3))
        writer.flush()
        writer.write({name: table[name] for name in table.column_names})  # each in arrays of its own
    return path.read_bytes()


@pytest.mark.parametrize("count", [50, pytest.param(4000, marks=pytest.mark.thorough)])
def test_drawn_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    made = 0
    rng = np.random.default_rng(count)
    for number in range(count):
        drawn, chosen = table(rng), settings(rng)
        by_step = written(tmp_path / "a", drawn, chosen)
        assert pq.read_table(tmp_path / "a").num_rows == 2 * drawn.num_rows + min(drawn.num_rows, 3)
        with monkeypatch.context() as without:
            without.setattr(kernels, "FlatWriter", None)
            assert by_step == written(tmp_path / "a", drawn, chosen), (number, drawn.schema, drawn.num_rows, chosen)
        made += 1
    assert made == count
