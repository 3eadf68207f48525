"""Many files made into few: `rpq.compact`, that decodes nothing, beside pyarrow and DuckDB, which decode and encode.

    python scripts/bench/compaction.py --files 2000 --rows 20000 --rounds 3

Each contestant makes files of about 512 MiB of the same folder, with the codec of the sources, by turns. Printed are
the medians of wall time and CPU time, and their ratio to `rpq.compact`. Every result is counted by its ids.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import resilient_pq.sync as rpq

TARGET = 512 * 2**20


def make(folder: Path, files: int, rows: int, writer: str) -> int:
    """Files of one row group each; how many bytes they have."""
    rng = np.random.default_rng(0)
    words = np.array([f"word {n}" for n in range(5000)])
    for at in range(files):
        table = pa.table(
            {
                "id": np.arange(at * rows, (at + 1) * rows),
                "time": pa.array(np.cumsum(rng.integers(0, 1000, rows)), pa.timestamp("us")),
                "price": rng.normal(100, 5, rows).round(2),
                "noise": rng.random(rows),
                "count": rng.integers(0, 1000, rows),
                "name": words[rng.zipf(1.5, rows) % 5000],
            }
        )
        path = folder / f"{at:05}.parquet"
        if writer == "rpq":
            rpq.write(path, table)
        else:
            pq.write_table(table, path, compression="zstd")
    return sum(path.stat().st_size for path in folder.iterdir())


def by_rpq(src: Path, dst: Path) -> None:
    rpq.compact(src, dst, target_bytes=TARGET, copy_bytes=64 * 1024)


def by_rpq_removing(src: Path, dst: Path) -> None:
    """With everything read back; the sources are links, so that they are there for the next one."""
    links = dst.with_name("links")
    links.mkdir()
    for path in src.iterdir():
        (links / path.name).hardlink_to(path)
    rpq.compact(links, dst, target_bytes=TARGET, copy_bytes=64 * 1024, remove_sources=True)
    shutil.rmtree(links)


def by_rpq_decoding(src: Path, dst: Path) -> None:
    rpq.compact(src, dst, target_bytes=TARGET, copy_bytes=1 << 40)


def by_pyarrow(src: Path, dst: Path) -> None:
    """One file after the other into a writer: no more than one is in memory."""
    dst.mkdir()
    writer = None
    for path in sorted(src.iterdir()):
        table = pq.read_table(path)
        writer = writer or pq.ParquetWriter(dst / "0.parquet", table.schema, compression="zstd")
        writer.write_table(table)
    assert writer is not None
    writer.close()


def by_pyarrow_dataset(src: Path, dst: Path) -> None:
    options = ds.ParquetFileFormat().make_write_options(compression="zstd")
    ds.write_dataset(ds.dataset(src), dst, format="parquet", file_options=options)


def by_duckdb(src: Path, dst: Path) -> None:
    dst.mkdir()
    query = f"COPY (FROM read_parquet('{src}/*.parquet')) TO '{dst}/0.parquet' (FORMAT parquet, COMPRESSION zstd)"
    with duckdb.connect() as connection:
        connection.execute(query)


CONTESTANTS: dict[str, Callable[[Path, Path], None]] = {
    "rpq.compact": by_rpq,
    "rpq.compact, read back": by_rpq_removing,
    "rpq.compact, decoding": by_rpq_decoding,
    "pyarrow, file by file": by_pyarrow,
    "pyarrow.dataset": by_pyarrow_dataset,
    "DuckDB COPY": by_duckdb,
}


def check(dst: Path, num_rows: int) -> None:
    found = duckdb.sql(f"select count(*), sum(id) from read_parquet('{dst}/*.parquet')").fetchall()[0]
    assert found == (num_rows, num_rows * (num_rows - 1) // 2), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=20_000, help="of a file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--writer", choices=["rpq", "pyarrow"], default="pyarrow", help="of the files")
    parser.add_argument("--folder", help="where the files are made; a temporary folder by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as temporary:
        src, dst = Path(temporary, "src"), Path(temporary, "dst")
        src.mkdir()
        size = make(src, given.files, given.rows, given.writer)
        print(f"{given.files:,} files of {given.writer}, {size / 2**20:,.0f} MiB")
        by_rpq(src, dst)  # what is imported by then is not measured
        shutil.rmtree(dst)
        wall: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
        spent: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
        for _ in range(given.rounds):
            for name, contestant in CONTESTANTS.items():
                start, cpu = time.perf_counter(), time.process_time()
                contestant(src, dst)
                wall[name].append(time.perf_counter() - start)
                spent[name].append(time.process_time() - cpu)
                check(dst, given.files * given.rows)
                shutil.rmtree(dst)
        first, first_spent = (statistics.median(times["rpq.compact"]) for times in (wall, spent))
        for name in CONTESTANTS:
            took, cpu = statistics.median(wall[name]), statistics.median(spent[name])
            print(f"{name:24} {took:7.2f} s  {took / first:5.1f} x   CPU {cpu:7.2f} s  {cpu / first_spent:5.1f} x")


if __name__ == "__main__":
    main()
