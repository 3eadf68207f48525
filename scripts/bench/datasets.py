"""The tables that `compare.py` and its neighbours measure with: made once from fixed seeds, kept in a folder.

Each is kept as an Arrow IPC file, and as a Parquet file that pyarrow wrote (row groups of 1 Mi rows, page CRCs), which
all contestants read. The versions of both are part of their names, so a changed recipe is not mistaken for the old one.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

#: Rows of a record batch of a source, and of a row group of the files that pyarrow writes of it.
BATCH_ROWS = 1 << 20
DEFAULT_FOLDER = Path(tempfile.gettempdir()) / "resilient_pq-bench"
WIDE_COLUMNS = 1000
WIDE_ROW_GROUPS = 100
WIDE_GROUP_ROWS = 8

_VERSION = 2
_SEED = 20_261_121
_PAYMENTS = ("credit card", "cash", "no charge", "dispute", "unknown")
_LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "WARN", "ERROR")
_VERBS = ("accepted", "rejected", "stored", "retried", "forwarded", "timed out", "cancelled", "finished")
_NOUNS = ("request", "upload", "session", "payment", "message", "job", "query", "lease")


class UnavailableError(Exception):
    """A data set cannot be made here; the text says why."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """How a table is made.

    Attributes:
        rows: How many, where nothing is said.
        batches: Called with the number of rows.
        two_columns: The columns that `read-2` reads: a number and a string where there are strings.
    """

    rows: int
    batches: Callable[[int], Iterator[pa.RecordBatch]]
    two_columns: tuple[str, str]


def taxi(rows: int) -> Iterator[pa.RecordBatch]:
    """Twelve mixed columns: ids, nearly sorted times, 2-decimal floats, strings of low and mid cardinality."""
    words = np.random.default_rng([_SEED, 1])
    medallions = [words.bytes(8).hex() for _ in range(13_000)]
    zones = [f"{name} {i}" for i, name in enumerate(("Upper East Side", "Astoria", "Harlem", "JFK Airport") * 66)]
    remarks = [
        " ".join(words.choice([*_VERBS, *_NOUNS, *_PAYMENTS], size=words.integers(2, 5))) + f" {i}"
        for i in range(5_000)
    ]
    for start, count in _pieces(rows):
        rng = np.random.default_rng([_SEED, 2, start])
        numbers = np.arange(start, start + count)
        pickup = 1_700_000_000_000_000 + numbers * 730_000 + rng.integers(0, 60_000_000, count)
        distance = rng.gamma(1.5, 2.2, count).round(2)
        fare = (3 + distance * 2.5 + rng.random(count) * 2).round(2)
        yield pa.record_batch(
            {
                "trip_id": numbers * 3 + rng.integers(0, 3, count),
                "medallion": _words(medallions, rng.integers(0, len(medallions), count)),
                "pickup": pa.array(pickup, pa.timestamp("us")),
                "dropoff": pa.array(pickup + rng.integers(60, 3600, count) * 1_000_000, pa.timestamp("us")),
                "passengers": pa.array(rng.integers(1, 7, count), mask=rng.random(count) < 0.03),
                "distance": distance,
                "pickup_zone": _words(zones, (rng.random(count) ** 2 * len(zones)).astype(np.int64)),
                "dropoff_zone": (rng.random(count) ** 2 * len(zones)).astype(np.int32),
                "payment": _words(_PAYMENTS, (rng.random(count) ** 3 * len(_PAYMENTS)).astype(np.int64)),
                "fare": fare,
                "tip": pa.array((fare * rng.random(count) * 0.3).round(2), mask=rng.random(count) < 0.1),
                "remark": _words(remarks, rng.integers(0, len(remarks), count), rng.random(count) < 0.2),
            }
        )


def wide(rows: int) -> Iterator[pa.RecordBatch]:
    """Fifty columns of random floats, 4 and 8 bytes wide in turn."""
    for start, count in _pieces(rows):
        rng = np.random.default_rng([_SEED, 3, start])
        types = (np.float32, np.float64)
        yield pa.record_batch({f"f{i:02}": rng.random(count, types[i % 2]) for i in range(50)})


def logs(rows: int) -> Iterator[pa.RecordBatch]:
    """Log lines, each with a list of keys and values."""
    keys = [f"{noun}.{what}" for noun in _NOUNS for what in ("id", "ms", "bytes")]
    for start, count in _pieces(rows):
        rng = np.random.default_rng([_SEED, 4, start])
        time = 1_700_000_000_000_000 + np.arange(start, start + count) * 3_000 + rng.integers(0, 10_000, count)
        verbs, nouns = rng.integers(0, len(_VERBS), count), rng.integers(0, len(_NOUNS), count)
        numbers, hosts = rng.integers(0, 10**9, count), rng.integers(0, 200, count)
        messages = [
            f"{_NOUNS[noun]} {number:09d} {_VERBS[verb]} by worker-{host:03d} in {number % 977} ms, "
            f"{number % 65_521} bytes left in queue {verb * 8 + noun}"
            for noun, verb, number, host in zip(nouns, verbs, numbers, hosts, strict=True)
        ]
        offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 9, count))]).astype(np.int32)
        values = rng.integers(0, 50_000, offsets[-1])
        pairs = pa.StructArray.from_arrays(
            [
                _words(keys, rng.integers(0, len(keys), offsets[-1])),
                pa.array([f"value-{value:05d}" for value in values], mask=rng.random(offsets[-1]) < 0.05),
            ],
            ["key", "value"],
        )
        yield pa.record_batch(
            {
                "time": pa.array(time, pa.timestamp("us", "UTC")),  # DuckDB would cut nanoseconds
                "level": _words(_LEVELS, rng.integers(0, len(_LEVELS), count)),
                "host": _words([f"host-{i:03d}.example" for i in range(200)], hosts),
                "message": pa.array(messages),
                "attrs": pa.ListArray.from_arrays(pa.array(offsets), pairs),
            }
        )


def lineitem(rows: int) -> Iterator[pa.RecordBatch]:
    """TPC-H's lineitem, of the scale factor that gives about so many rows (6 million at 1).

    Raises:
        UnavailableError: DuckDB cannot make it.
    """
    try:
        duckdb: Any = importlib.import_module("duckdb")
        connection = duckdb.connect()
        _load_tpch(connection)
        connection.execute(f"CALL dbgen(sf={rows / 6_000_000})")
        yield from connection.execute("SELECT * FROM lineitem").to_arrow_reader(BATCH_ROWS)
    except (ImportError, duckdb.Error) as error:
        raise UnavailableError(f"DuckDB cannot make lineitem: {str(error).splitlines()[0]}") from error


def _load_tpch(connection: Any) -> None:
    """DuckDB's TPC-H generator: out of the package that carries it, else as DuckDB itself finds it."""
    package = importlib.util.find_spec("duckdb_extension_tpch")
    places = [] if package is None else [Path(place) for place in package.submodule_search_locations or ()]
    found = next((file for place in places for file in place.rglob("tpch.duckdb_extension")), None)
    if found is not None:
        connection.load_extension(str(found))
    else:
        connection.execute("INSTALL tpch; LOAD tpch")


DATA_SETS: dict[str, DataSet] = {
    "taxi": DataSet(4_000_000, taxi, ("distance", "pickup_zone")),
    "wide": DataSet(500_000, wide, ("f10", "f31")),
    "logs": DataSet(300_000, logs, ("time", "level")),
    "lineitem": DataSet(6_000_000, lineitem, ("l_extendedprice", "l_comment")),
}


def source(name: str, rows: int, folder: Path) -> Path:
    """The Arrow IPC file of a data set, made where it is missing.

    Raises:
        UnavailableError: It cannot be made here.
    """
    path = folder / f"{name}-{rows}-v{_VERSION}.arrow"
    if not path.exists():
        batches = DATA_SETS[name].batches(rows)
        first = next(batches)
        with _made(path) as partial, pa.ipc.new_file(str(partial), first.schema) as file:
            file.write_batch(first)
            for batch in batches:
                file.write_batch(batch)
    return path


def load(path: Path) -> pa.Table:
    """A source in memory of its own: nothing of it is read from the file, or faulted in, later on."""
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def parquet_input(name: str, rows: int, codec: str, level: int | None, folder: Path) -> Path:
    """The Parquet file of a data set as pyarrow writes it with page CRCs, made where it is missing."""
    path = folder / f"{name}-{rows}-{codec}-{level or 0}-v{_VERSION}.parquet"
    if not path.exists():
        table = load(source(name, rows, folder))
        with _made(path) as partial:
            pq.write_table(
                table,
                partial,
                compression=codec,
                compression_level=level,
                row_group_size=BATCH_ROWS,
                write_page_checksum=True,
            )
    return path


def many_chunks(columns: int, row_groups: int) -> pa.Table:
    """A few rows for each of `row_groups` row groups of `columns` columns."""
    rows = row_groups * WIDE_GROUP_ROWS
    return pa.table({f"column_{i:04d}": np.arange(rows, dtype=np.int64) * (i + 1) for i in range(columns)})


def many_chunks_input(columns: int, row_groups: int, folder: Path) -> Path:
    """The same as pyarrow writes it, made where it is missing."""
    path = folder / f"many-{columns}x{row_groups}-v{_VERSION}.parquet"
    if not path.exists():
        with _made(path) as partial:
            pq.write_table(
                many_chunks(columns, row_groups),
                partial,
                row_group_size=WIDE_GROUP_ROWS,
                write_page_checksum=True,
            )
    return path


def kept_input(name: str, table: Callable[[], pa.Table], folder: Path, **options: Any) -> Path:
    """A table as pyarrow writes it with page CRCs and these options, made where it is missing."""
    path = folder / f"{name}-v{_VERSION}.parquet"
    if not path.exists():
        with _made(path) as partial:
            pq.write_table(table(), partial, write_page_checksum=True, **options)
    return path


def mixed(rows: int) -> pa.Table:
    """Five columns of kinds that small tables have."""
    rng = np.random.default_rng([_SEED, 7, rows])
    return pa.table(
        {
            "id": np.arange(rows),
            "time": pa.array(1_700_000_000_000_000 + np.arange(rows) * 1_000_003, pa.timestamp("us")),
            "price": rng.normal(100, 15, rows).round(2),
            "count": pa.array(rng.integers(0, 1000, rows), mask=rng.random(rows) < 0.05),
            "kind": _words(_PAYMENTS, rng.integers(0, len(_PAYMENTS), rows)),
        }
    )


def floats(columns: int, rows: int) -> pa.Table:
    """Columns of random doubles."""
    rng = np.random.default_rng([_SEED, 8, columns, rows])
    return pa.table({f"c{i:05}": rng.random(rows) for i in range(columns)})


def random_columns_input(columns: int, row_groups: int, group_rows: int, folder: Path) -> Path:
    """Columns of 8 random bytes, floats and integers in turn, as pyarrow writes them without dictionaries."""
    path = folder / f"random-{columns}x{row_groups}x{group_rows}-v{_VERSION}.parquet"
    if not path.exists():

        def group(number: int) -> pa.Table:
            rng = np.random.default_rng([_SEED, 5, number])
            values = (lambda: rng.random(group_rows), lambda: rng.integers(0, 1 << 62, group_rows))
            return pa.table({f"c{i:03}": values[i % 2]() for i in range(columns)})

        _write_groups(path, (group(number) for number in range(row_groups)))
    return path


def keyed_input(row_groups: int, group_rows: int, folder: Path) -> Path:
    """Rows in the order of their column `key`, every third number, as pyarrow writes them with a page index."""
    path = folder / f"keyed-{row_groups}x{group_rows}-v{_VERSION}.parquet"
    if not path.exists():

        def group(number: int) -> pa.Table:
            rng = np.random.default_rng([_SEED, 6, number])
            keys = 3 * (number * group_rows + np.arange(group_rows))
            return pa.table({"key": keys, **{f"v{i}": rng.random(group_rows) for i in range(5)}})

        _write_groups(path, (group(number) for number in range(row_groups)))
    return path


def _write_groups(path: Path, groups: Iterator[pa.Table]) -> None:
    """Each table as a row group, with page CRCs and a page index."""
    first = next(groups)
    options = {"use_dictionary": False, "write_page_checksum": True, "write_page_index": True}
    with _made(path) as partial, pq.ParquetWriter(partial, first.schema, **options) as writer:
        writer.write_table(first)
        for table in groups:
            writer.write_table(table)


class _made:  # noqa: N801 (used as a function)
    """A file that gets its name when it is whole."""

    def __init__(self, path: Path) -> None:
        self._path, self._partial = path, path.with_name(path.name + ".partial")

    def __enter__(self) -> Path:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self._partial

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            os.replace(self._partial, self._path)


def _pieces(rows: int) -> Iterator[tuple[int, int]]:
    for start in range(0, rows, BATCH_ROWS):
        yield start, min(BATCH_ROWS, rows - start)


def _words(words: Any, indices: Any, mask: Any = None) -> pa.Array:
    """Strings out of a few, as plain strings."""
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=mask), pa.array(words)).cast(pa.string())
