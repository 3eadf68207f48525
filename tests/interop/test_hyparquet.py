"""hyparquet, a reader written in JavaScript from the specification alone, reads our files with equal values.

Needs ``node``, and a folder in which ``npm install hyparquet hyparquet-compressors`` was run: the environment
variable ``RPQ_NODE_MODULES`` names its ``node_modules``.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import resilient_pq as rpq

WriteFile = Callable[..., Any]
ReadRows = Callable[[Path], list[dict[str, Any]]]

SCRIPT = """
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet'
import { compressors } from 'hyparquet-compressors'

// What JSON has no form for, or another one.
function plain(value) {
  if (typeof value === 'bigint') return { int: value.toString() }
  if (typeof value === 'number' && (!Number.isFinite(value) || Object.is(value, -0)))
    return { float: Object.is(value, -0) ? '-0' : String(value) }
  if (value instanceof Date) return { date: value.getTime() }
  if (value instanceof Uint8Array) return { bytes: Buffer.from(value).toString('hex') }
  if (Array.isArray(value)) return value.map(plain)
  if (value && typeof value === 'object')
    return { fields: Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plain(each)])) }
  return value === undefined ? null : value
}

const file = await asyncBufferFromFile(process.argv[2])
const rows = await parquetReadObjects({ file, compressors, utf8: false })
console.log(JSON.stringify(rows.map(plain)))
"""


@pytest.fixture(scope="module")
def read_rows(tmp_path_factory: pytest.TempPathFactory) -> ReadRows:
    """A file's rows as hyparquet gives them, as Python values."""
    node, modules = shutil.which("node"), os.environ.get("RPQ_NODE_MODULES", "")
    if node is None:
        pytest.skip("node is not installed")
    if not Path(modules, "hyparquet-compressors").is_dir() or not Path(modules, "hyparquet").is_dir():
        pytest.skip("RPQ_NODE_MODULES names no folder with hyparquet and hyparquet-compressors")
    folder = tmp_path_factory.mktemp("hyparquet")
    (folder / "node_modules").symlink_to(Path(modules).resolve())
    (folder / "read.mjs").write_text(SCRIPT)

    def read(path: Path) -> list[dict[str, Any]]:
        ran = subprocess.run(
            [node, str(folder / "read.mjs"), str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return [_python(row) for row in json.loads(ran.stdout)]

    return read


def _python(value: Any) -> Any:
    match value:
        case {"int": digits}:
            return int(digits)
        case {"float": text}:
            return float(text.replace("Infinity", "inf"))
        case {"date": milliseconds}:
            return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=milliseconds)
        case {"bytes": digits}:
            return bytes.fromhex(digits)
        case {"fields": fields}:
            return {name: _python(below) for name, below in fields.items()}
        case list():
            return [_python(below) for below in value]
    return value


NUM_ROWS = 60
DEEP = pa.list_(
    pa.list_(
        pa.struct(
            {
                "n": pa.int64(),
                "words": pa.list_(pa.string()),
                "inner": pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.float64())]),
            }
        )
    )
)


def _deep(i: int) -> Any:
    if i % 7 == 3:
        return None
    struct = {"n": i * 10**15, "words": [None, f"word {i}"][: i % 3], "inner": {"x": i, "y": i / 4}}
    bare = {"n": None, "words": None, "inner": None}
    return [[struct, bare, None][: i % 4], None, []][: i % 5]


def _table() -> pa.Table:
    numbers = range(NUM_ROWS)
    return pa.table(
        {
            "flag": pa.array([None if i % 7 == 3 else i % 3 == 0 for i in numbers]),
            "int32": pa.array([None if i % 7 == 3 else i * 1000 - 7 for i in numbers], pa.int32()),
            "int64": pa.array([None if i % 7 == 3 else (i - 30) * 10**17 for i in numbers], pa.int64()),
            "float": pa.array([i / 8 for i in numbers], pa.float32()),
            "double": pa.array([[0.0, -0.0, 1e300, float("inf"), i / 3][i % 5] for i in numbers]),
            "text": pa.array([None if i % 7 == 3 else "ä€😀"[: i % 4] * i for i in numbers]),
            "binary": pa.array([bytes([255, 0, i]) * (i % 3) for i in numbers]),
            "fixed": pa.array([bytes([i, 255, 0, i, 1]) for i in numbers], pa.binary(5)),
            "day": pa.array([dt.date(1970, 1, 1) + dt.timedelta(days=100 * i) for i in numbers]),
            "moment": pa.array([dt.datetime(2020, 1, 1, i % 24, i) for i in numbers], pa.timestamp("ms")),
            "cents": pa.array([decimal.Decimal(i * 25) / 100 for i in numbers], pa.decimal128(9, 2)),
            "list": pa.array([None if i % 7 == 3 else [None, i][: i % 3] for i in numbers], pa.list_(pa.int32())),
            "deep": pa.array([_deep(i) for i in numbers], DEEP),
        }
    )


def _expected(value: Any) -> Any:
    """As JavaScript writes it: a decimal is a number, a whole number has no point, a date is a moment."""
    if isinstance(value, decimal.Decimal):
        value = float(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21 and repr(value) != "-0.0":
        return int(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)
    if isinstance(value, dict):
        return {name: _expected(below) for name, below in value.items()}
    if isinstance(value, list):
        return [_expected(below) for below in value]
    return value


TABLE = _table()
ENCODINGS: dict[str, Any] = {
    "auto": "auto",
    "PLAIN": "PLAIN",
    "delta": {
        **dict.fromkeys(("int32", "int64", "moment"), "DELTA_BINARY_PACKED"),
        **dict.fromkeys(("text", "fixed", "deep.list.element.list.element.words.list.element"), "DELTA_BYTE_ARRAY"),
        "binary": "DELTA_LENGTH_BYTE_ARRAY",
        "flag": "RLE",
    },
    "split": dict.fromkeys(("int32", "int64", "float", "double", "fixed", "cents"), "BYTE_STREAM_SPLIT"),
}


@pytest.mark.parametrize("encodings", ENCODINGS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_it_reads_the_same_values(
    write_file: WriteFile, read_rows: ReadRows, encodings: str, version: Any, tmp_path: Path
) -> None:
    path = tmp_path / "ours.parquet"
    options = rpq.WriteOptions(data_page_version=version, page_rows=7)
    path.write_bytes(write_file(TABLE, encodings=ENCODINGS[encodings], options=options).data)
    found, expected = read_rows(path), _expected(TABLE.to_pylist())
    for row, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert repr(one) == repr(other), row


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "lz4_raw", "zstd"])
def test_it_reads_every_codec(write_file: WriteFile, read_rows: ReadRows, codec: str, tmp_path: Path) -> None:
    path = tmp_path / "ours.parquet"
    path.write_bytes(write_file(TABLE.select(["text", "deep"]), compression=codec).data)
    assert read_rows(path) == TABLE.select(["text", "deep"]).to_pylist()


def test_it_reads_every_checkpoint(write_file: WriteFile, read_rows: ReadRows, tmp_path: Path) -> None:
    ours = write_file(TABLE.select(["text", "deep"]))
    for prefix in ours.prefixes:
        path = tmp_path / f"{prefix.num_rows}.parquet"
        path.write_bytes(ours.data[: prefix.size])
        assert read_rows(path) == TABLE.select(["text", "deep"]).slice(0, prefix.num_rows).to_pylist()
