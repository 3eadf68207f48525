"""Read damaged Parquet files with one library, as well as it can be made to, and judge what it returned.

``python torture_read.py TOOL ORIGINAL`` takes a line of JSON for each file on its input, ``{"path": ..., "sibling":
...}``, and answers with one, ``{"right": ..., "wrong": ..., "error": ...}``: rows that are as in the Feather file
ORIGINAL, rows that are not, and the error it met. `torture.py` runs it, since a damaged file may well end the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import fastparquet
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet as pq

from resilient_pq import sync as rpq

#: What a reader got, and the error that it met when it read all of the file.
Got = tuple[list[pa.Table], str | None]


def said(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def piecewise(whole: Callable[[], pa.Table], pieces: Callable[[], Iterator[Callable[[], pa.Table]]]) -> Got:
    """All rows at once, or else those of every row group that can be read by itself."""
    try:
        return [whole()], None
    except BaseException as error:  # panics of Rust are none of Exception
        met = said(error)
    tables = []
    with contextlib.suppress(BaseException):  # then no row group can be told from another
        for piece in pieces():
            with contextlib.suppress(BaseException):
                tables.append(piece())
    return tables, met


def by_pyarrow(path: str) -> Got:
    """With the checksums of pages verified, which has to be asked for."""

    def pieces() -> Iterator[Callable[[], pa.Table]]:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        for i in range(file.num_row_groups):
            yield lambda i=i: file.read_row_group(i)

    return piecewise(lambda: pq.read_table(path, page_checksum_verification=True), pieces)


def by_duckdb(path: str) -> Got:
    """Row groups by the numbers of their rows, which DuckDB skips by."""
    connection = duckdb.connect()

    def read(where: str = "") -> pa.Table:
        query = f"select * exclude file_row_number from read_parquet(?, file_row_number = true) {where}"
        return connection.execute(query, [path]).to_arrow_table()

    def pieces() -> Iterator[Callable[[], pa.Table]]:
        counts = connection.execute(
            "select distinct row_group_id, row_group_num_rows from parquet_metadata(?) order by 1", [path]
        ).fetchall()
        first = 0
        for _, count in counts:
            where = f"where file_row_number >= {first} and file_row_number < {first + count}"
            yield lambda where=where: read(where)
            first += count

    return piecewise(read, pieces)


def by_polars(path: str) -> Got:
    """Row groups by slices, whose borders pyarrow tells: Polars shows none."""

    def pieces() -> Iterator[Callable[[], pa.Table]]:
        metadata, first = pq.read_metadata(path), 0
        for i in range(metadata.num_row_groups):
            count = metadata.row_group(i).num_rows
            yield lambda first=first, count=count: polars.scan_parquet(path).slice(first, count).collect().to_arrow()
            first += count

    return piecewise(lambda: polars.read_parquet(path).to_arrow(), pieces)


def by_fastparquet(path: str) -> Got:
    def table(file: Any) -> pa.Table:
        return pa.Table.from_pandas(file.to_pandas(), preserve_index=False)

    def pieces() -> Iterator[Callable[[], pa.Table]]:
        file = fastparquet.ParquetFile(path)
        for i in range(len(file.row_groups)):
            yield lambda i=i: table(file[i])

    return piecewise(lambda: table(fastparquet.ParquetFile(path)), pieces)


def by_resilient_pq(path: str, sibling: str | None) -> Got:
    """Recovered into a new file; its rows as pyarrow reads them."""
    output = Path(path).with_suffix(".recovered")
    try:
        options: dict[str, Any] = {} if sibling is None else {"schema_from": sibling}
        rpq.recover(path, str(output), overwrite=True, **options)
        return [pq.read_table(output, page_checksum_verification=True)], None
    except BaseException as error:
        return [], said(error)
    finally:
        output.unlink(missing_ok=True)


TOOLS: dict[str, Callable[[str], Got]] = {
    "pyarrow": by_pyarrow,
    "duckdb": by_duckdb,
    "polars": by_polars,
    "fastparquet": by_fastparquet,
}


def judged(tables: list[pa.Table], original: pa.Table) -> tuple[int, int]:
    """Rows that are as in the original, each counted once, and all others. The column `id` numbers the original's."""
    right: set[int] = set()
    wrong = 0
    for table in tables:
        ids = pc.fill_null(pc.cast(table.column("id"), pa.int64(), safe=False), -1).combine_chunks()
        there = pc.and_(pc.greater_equal(ids, 0), pc.less(ids, original.num_rows))
        wanted = original.take(pc.if_else(there, ids, 0))
        same = there
        for name in original.column_names:
            same = pc.and_(same, equal_values(table.column(name), wanted.column(name)))
        found = ids.filter(same).to_pylist()
        fresh = set(found) - right
        wrong += table.num_rows - len(fresh)
        right |= fresh
    return len(right), wrong


def equal_values(found: pa.ChunkedArray, wanted: pa.ChunkedArray) -> pa.Array:
    """Where two columns have one value, or both have none."""
    try:
        cast = found.cast(wanted.type)
    except pa.ArrowInvalid:
        # Values that do not fit the type, or text that is no UTF-8: one by one.
        pairs = zip(found.to_pylist(), wanted.to_pylist(), strict=True)
        return pa.array([one == other for one, other in pairs], pa.bool_())
    both_null = pc.and_(pc.is_null(cast), pc.is_null(wanted))
    same = pc.or_(both_null, pc.fill_null(pc.equal(cast, wanted), False))
    return same.combine_chunks() if isinstance(same, pa.ChunkedArray) else same


def main() -> None:
    """Answer until the input ends."""
    warnings.simplefilter("ignore")
    # Libraries may print what they like; the answers have a way of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    tool, path = sys.argv[1:]
    original = pyarrow.feather.read_table(path)
    for line in sys.stdin:
        task = json.loads(line)
        if tool == "resilient_pq":
            tables, error = by_resilient_pq(task["path"], task["sibling"])
        else:
            tables, error = TOOLS[tool](task["path"])
        right, wrong = judged(tables, original)
        print(json.dumps({"right": right, "wrong": wrong, "error": error}), file=answers, flush=True)


if __name__ == "__main__":
    main()
