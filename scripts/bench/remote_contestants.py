"""The readers that `remote_reads.py` compares: each is connected once, then asked for rows of objects.

Every function here gives a function that answers a `Question` with an Arrow table. Imports are its own, so that a
process has one reader in it. What a reader cannot do raises `SkippedError`, with the reason.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

KEY, SECRET, BUCKET, REGION = "bench", "bench-secret", "bench", "us-east-1"


class SkippedError(Exception):
    """A reader cannot answer; the text says why."""


@dataclass(frozen=True, slots=True)
class Question:
    """Rows of an object.

    Attributes:
        name: Of the object.
        columns: The columns wanted.
        row_group: The only row group wanted; None for all.
        group_rows: Rows of each row group, for readers that know no row groups.
        key: The value of the column `key` that rows have to have; None for all rows.
    """

    name: str
    columns: tuple[str, ...]
    row_group: int | None = None
    group_rows: int = 0
    key: int | None = None

    @property
    def filters(self) -> list[tuple[str, str, int]] | None:
        return None if self.key is None else [("key", "==", self.key)]

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        return cls(**{**found, "columns": tuple(found["columns"])})


Ask = Callable[[Question], pa.Table]


# -- this library ----------------------------------------------------------------------------------


def ours_s3(endpoint: str) -> Ask:
    from resilient_pq.io import S3Store  # noqa: PLC0415

    store = S3Store({"key": KEY, "secret": SECRET, "endpoint_url": endpoint})
    return _ours(store, lambda name: f"{BUCKET}/{name}", {})


def ours_long_tail(endpoint: str) -> Ask:
    """With a tail that holds the footers of wide files."""
    from resilient_pq.io import S3Store  # noqa: PLC0415

    store = S3Store({"key": KEY, "secret": SECRET, "endpoint_url": endpoint})
    return _ours(store, lambda name: f"{BUCKET}/{name}", {"tail_bytes": 2 << 20})


def ours_http(endpoint: str) -> Ask:
    from resilient_pq.io import HttpStore  # noqa: PLC0415

    return _ours(HttpStore(), lambda name: f"{endpoint}/{BUCKET}/{name}", {})


def _ours(store: Any, key_of: Callable[[str], str], options: dict[str, int]) -> Ask:
    import resilient_pq as rpq  # noqa: PLC0415

    async def read(question: Question) -> pa.Table:
        groups = None if question.row_group is None else [question.row_group]
        async with rpq.open((store, key_of(question.name)), options=rpq.ReadOptions(**options)) as file:
            return pa.table(await file.read(question.columns, groups, filters=question.filters))

    return _in_one_loop(read)


def _in_one_loop(read: Callable[[Question], Coroutine[Any, Any, pa.Table]]) -> Ask:
    """A function that blocks; its loop stays, and with it the connections."""
    runner = asyncio.Runner()
    return lambda question: runner.run(read(question))


# -- pyarrow, over several clients -----------------------------------------------------------------


def pyarrow_s3(endpoint: str) -> Ask:
    from pyarrow import fs  # noqa: PLC0415

    filesystem = fs.S3FileSystem(access_key=KEY, secret_key=SECRET, endpoint_override=endpoint, region=REGION)
    return _pyarrow(filesystem, filesystem.open_input_file)


def pyarrow_s3fs(endpoint: str) -> Ask:
    filesystem = _s3fs(endpoint)
    return _pyarrow(filesystem, lambda path: filesystem.open(path, "rb"))


def pyarrow_obstore(endpoint: str) -> Ask:
    from obstore.fsspec import FsspecStore  # noqa: PLC0415

    filesystem = FsspecStore("s3", **_obstore_options(endpoint))
    return _pyarrow(filesystem, lambda path: filesystem.open(path, "rb"))


def _pyarrow(filesystem: Any, open_file: Callable[[str], Any]) -> Ask:
    def ask(question: Question) -> pa.Table:
        path, columns = f"{BUCKET}/{question.name}", list(question.columns)
        if question.row_group is None:
            return pq.read_table(path, filesystem=filesystem, columns=columns, filters=question.filters)
        with open_file(path) as file:
            return pq.ParquetFile(file, pre_buffer=True).read_row_group(question.row_group, columns)

    return ask


def _s3fs(endpoint: str) -> Any:
    import s3fs  # noqa: PLC0415

    return s3fs.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=endpoint)


def _obstore_options(endpoint: str) -> dict[str, Any]:
    return {
        "endpoint": endpoint,
        "access_key_id": KEY,
        "secret_access_key": SECRET,
        "region": REGION,
        "virtual_hosted_style_request": False,
        "client_options": {"allow_http": True},
    }


def fsspec_parquet(endpoint: str) -> Ask:
    from fsspec.parquet import open_parquet_file  # noqa: PLC0415

    filesystem = _s3fs(endpoint)

    def ask(question: Question) -> pa.Table:
        columns = list(question.columns)
        group, filters = question.row_group, question.filters
        with open_parquet_file(
            f"{BUCKET}/{question.name}",
            fs=filesystem,
            engine="pyarrow",
            columns=columns,
            row_groups=None if group is None else [group],  # its filters need the engine fastparquet
        ) as file:
            if group is None:
                return pq.read_table(file, columns=columns, filters=filters)
            return pq.ParquetFile(file).read_row_group(group, columns)

    return ask


# -- others ----------------------------------------------------------------------------------------


def polars(endpoint: str) -> Ask:
    import polars as pl  # noqa: PLC0415

    options = {
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_endpoint_url": endpoint,
        "aws_region": REGION,
        "aws_allow_http": "true",
    }

    def ask(question: Question) -> pa.Table:
        rows = pl.scan_parquet(f"s3://{BUCKET}/{question.name}", storage_options=options)
        if question.key is not None:
            rows = rows.filter(pl.col("key") == question.key)
        if question.row_group is not None:
            rows = rows.slice(question.row_group * question.group_rows, question.group_rows)
        return rows.select(question.columns).collect().to_arrow()

    return ask


def duckdb_httpfs(endpoint: str) -> Ask:
    """With the extension out of a wheel, where there is one for this DuckDB; nothing is downloaded."""
    import duckdb  # noqa: PLC0415

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    try:
        connection.load_extension(_wheel_of_httpfs() or "httpfs")
    except duckdb.Error as error:
        raise SkippedError(f"no extension httpfs here for DuckDB {duckdb.__version__}: see --duckdb") from error
    connection.execute(f"SET s3_endpoint='{endpoint.removeprefix('http://')}'; SET s3_use_ssl=false")
    connection.execute(f"SET s3_url_style='path'; SET s3_region='{REGION}'")
    connection.execute(f"SET s3_access_key_id='{KEY}'; SET s3_secret_access_key='{SECRET}'")
    return _duckdb(connection, "s3")


def _wheel_of_httpfs() -> str | None:
    import importlib.util  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    package = importlib.util.find_spec("duckdb_extension_httpfs")
    places = [] if package is None else [Path(place) for place in package.submodule_search_locations or ()]
    return next((str(file) for place in places for file in place.rglob("httpfs.duckdb_extension")), None)


def duckdb_s3fs(endpoint: str) -> Ask:
    import duckdb  # noqa: PLC0415

    connection = duckdb.connect()
    connection.register_filesystem(_s3fs(endpoint))
    return _duckdb(connection, "s3")


def _duckdb(connection: Any, scheme: str) -> Ask:
    def ask(question: Question) -> pa.Table:
        columns = ", ".join(f'"{column}"' for column in question.columns)
        source = f"read_parquet('{scheme}://{BUCKET}/{question.name}'"
        if question.row_group is not None:
            first = question.row_group * question.group_rows
            rows = f"file_row_number BETWEEN {first} AND {first + question.group_rows - 1}"
            query = f"SELECT {columns} FROM {source}, file_row_number=true) WHERE {rows}"
        else:
            where = "" if question.key is None else f" WHERE key = {question.key}"
            query = f"SELECT {columns} FROM {source}){where}"
        return connection.execute(query).to_arrow_table()

    return ask


def arro3(endpoint: str) -> Ask:
    """It knows no columns: everything is read, and the columns chosen afterwards."""
    from arro3.io import read_parquet_async  # noqa: PLC0415
    from arro3.io.store import S3Store  # noqa: PLC0415

    store = S3Store(BUCKET, **_obstore_options(endpoint))

    async def read(question: Question) -> pa.Table:
        if question.row_group is not None or question.key is not None:
            raise SkippedError("arro3 reads whole files")
        return pa.table(await read_parquet_async(question.name, store=store)).select(question.columns)

    return _in_one_loop(read)


CONTESTANTS: dict[str, Callable[[str], Ask]] = {
    "ours-s3": ours_s3,
    "ours-http": ours_http,
    "ours-long-tail": ours_long_tail,
    "pyarrow-s3": pyarrow_s3,
    "pyarrow-s3fs": pyarrow_s3fs,
    "pyarrow-obstore": pyarrow_obstore,
    "fsspec-parquet": fsspec_parquet,
    "polars": polars,
    "duckdb-httpfs": duckdb_httpfs,
    "duckdb-s3fs": duckdb_s3fs,
    "arro3": arro3,
}


def prefer(folder: str) -> None:
    """Let packages of a folder be found before those that are installed."""
    sys.path.insert(0, folder)
