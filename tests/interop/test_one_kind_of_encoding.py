"""Every reader gets every value of text columns whose cardinality changes between row groups.

fastparquet reads PLAIN text as null in a file where other pages of the column refer to dictionaries.
"""

from __future__ import annotations

import asyncio
import math
import random
from pathlib import Path
from typing import Any

import duckdb
import fastparquet  # type: ignore[import-untyped]
import hypothesis.strategies as st
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import resilient_pq as rpq
from resilient_pq import WriteOptions, sync
from resilient_pq.io.memory_store import MemoryStore

SCHEMA = pa.schema([("t", pa.string()), ("n", pa.int64()), ("s", pa.struct([("t", pa.string())]))])


def rows(start: int, count: int, distinct: int, nulls: int = 0, width: int = 8) -> pa.Table:
    """Rows with so many distinct values, each `nulls`th one null."""
    numbers = range(start, start + count)
    texts = [None if nulls and i % nulls == 0 else f"{i % distinct:0{width}}" for i in numbers]
    return pa.table([texts, [i % distinct for i in numbers], [{"t": text} for text in texts]], SCHEMA)


#: Rows of a row group, distinct values, and which values are null.
GROUPS = st.lists(
    st.tuples(st.integers(1, 400), st.sampled_from([1, 5, 60, 10**6]), st.sampled_from([0, 1, 3])),
    min_size=2,
    max_size=5,
)


def assert_all_read(path: Path, expected: pa.Table) -> None:
    texts, numbers = expected["t"].to_pylist(), expected["n"].to_pylist()
    assert pq.read_table(path).equals(expected)
    assert [list(row) for row in duckdb.sql(f"SELECT t, n, s.t FROM '{path}'").fetchall()] == [
        [text, number, text] for text, number in zip(texts, numbers, strict=True)
    ]
    frame = pl.read_parquet(path)
    assert frame["t"].to_list() == texts == frame["s"].struct.field("t").to_list()
    read = fastparquet.ParquetFile(str(path)).to_pandas()
    for name in ("t", "s.t"):
        assert [None if isinstance(text, float) and math.isnan(text) else text for text in read[name]] == texts
    assert read["n"].tolist() == numbers
    with sync.open(path) as file:
        assert pa.table(file.read()).equals(expected)


def kinds(path: Path, column: str = "t") -> set[bool]:
    """Whether chunks that have values have dictionaries."""
    metadata = pq.read_metadata(path)
    chunks = [metadata.row_group(i).column(0) for i in range(metadata.num_row_groups)]
    return {chunk.has_dictionary_page for chunk in chunks if chunk.statistics.null_count < chunk.num_values}


@settings(max_examples=12)
@given(groups=GROUPS, version=st.sampled_from(["1.0", "2.0"]), threads=st.sampled_from([1, 4]))
def test_cardinality_that_changes(
    tmp_path_factory: pytest.TempPathFactory, groups: list[Any], version: Any, threads: int
) -> None:
    folder = tmp_path_factory.mktemp("drawn")
    tables = [rows(7 * start, *group) for start, group in enumerate(groups)]
    path = folder / "drawn.parquet"
    for table in tables:  # each row group is written by a writer of its own, which goes on with the file
        unfinished = Path(f"{path}.partial").exists()
        opened = sync.resume(path) if unfinished else sync.create(path, SCHEMA)
        with pytest.raises(KeyError), opened as writer:
            writer.write(table)
            writer.checkpoint()
            raise KeyError
    with sync.resume(path, options=WriteOptions(data_page_version=version, max_threads=threads)) as writer:
        for table in tables:
            writer.write(table)
            writer.checkpoint()
    assert_all_read(path, pa.concat_tables([*tables, *tables]))
    assert len(kinds(path)) <= 1


@pytest.mark.parametrize("encodings", ["auto", "RLE_DICTIONARY"])
@pytest.mark.parametrize("first", [3, 10**6])
def test_a_dictionary_that_grows_too_large(tmp_path: Path, first: int, encodings: str) -> None:
    """Varied first or last, with more than `dictionary_bytes` of values, and encoded in several threads."""
    parts = [rows(0, 9000, first), rows(0, 9000, 10**6), rows(0, 9000, 3)]
    options = WriteOptions(dictionary_bytes=60_000, max_threads=4)
    path, alone = tmp_path / "grown.parquet", tmp_path / "alone.parquet"
    for name, chosen in ((path, options), (alone, WriteOptions(dictionary_bytes=60_000, max_threads=1))):
        with sync.create(
            name, row_group_rows=9000, encodings=encodings, options=chosen, checkpoint_every=None
        ) as writer:
            writer.write(pa.concat_tables(parts))
    assert_all_read(path, pa.concat_tables(parts))
    assert kinds(path) == kinds(alone) == {first == 3}


def test_a_small_first_row_group_does_not_forbid_dictionaries(tmp_path: Path) -> None:
    path = tmp_path / "slow.parquet"
    with sync.create(path, SCHEMA) as writer:
        for part in (rows(0, 40, 60), rows(0, 9000, 60)):
            writer.write(part)
            writer.checkpoint()
    assert kinds(path) == {True}


def test_compact_chooses_for_each_chunk(tmp_path: Path) -> None:
    path = tmp_path / "compact.parquet"
    with sync.create(path, row_group_rows=9000, encodings="compact") as writer:
        writer.write(pa.concat_tables([rows(0, 9000, 3), rows(0, 9000, 10**6, width=100)]))
    assert kinds(path) == {True, False}


def test_a_recovery_encodes_rows_again_as_their_column_is(tmp_path: Path) -> None:
    """The rows left of a row group that lost a page are few, and each is different."""
    data = asyncio.run(_damaged(tmp_path / "damaged.parquet"))
    out = tmp_path / "out.parquet"
    report = sync.recover(tmp_path / "damaged.parquet", out)
    assert report.kept.num_rows < data.num_rows and kinds(out) == {True}
    with sync.open(out) as file:
        assert_all_read(out, pa.table(file.read()))


async def _damaged(path: Path) -> pa.Table:
    store = MemoryStore()
    parts = [rows(0, 9000, 9), pa.concat_tables([rows(i * 500, 500, 10**6) for i in range(2)])]
    options, encodings = WriteOptions(page_rows=300, dictionary_bytes=500), {"n": "PLAIN"}
    async with rpq.create((store, "x"), row_group_rows=9000, encodings=encodings, options=options) as writer:
        await writer.write(pa.concat_tables(parts))
    found = bytearray((await store.read_tail("x", 1 << 40)).data)
    path.write_bytes(found)
    chunk = pq.read_metadata(path).row_group(1).column(1)
    found[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(found)
    return pa.concat_tables(parts)


def folder_read(folder: Path) -> list[Any]:
    """The texts of a data set as fastparquet reads the folder."""
    read = fastparquet.ParquetFile(sorted(map(str, folder.rglob("*.parquet")))).to_pandas()
    return sorted(str(text) for text in read["t"])


@pytest.mark.parametrize("partition_by", [None, "n"])
def test_all_files_of_a_data_set_have_one_kind(tmp_path: Path, partition_by: str | None) -> None:
    few, many = rows(0, 2000, 3), rows(0, 2000, 10**6, width=30)
    with sync.create_dataset(tmp_path, SCHEMA, partition_by=partition_by, roll_rows=500) as sink:
        for part in (few, many) if partition_by is None else (few, many.slice(0, 20)):
            sink.write(part.drop_columns("n").append_column("n", few["n"].slice(0, len(part))).select(SCHEMA.names))
    files = sorted(tmp_path.rglob("*.parquet"))
    assert len(files) > 2 and set.union(*map(kinds, files)) == {True}
    assert "nan" not in folder_read(tmp_path) and "None" not in folder_read(tmp_path)


def test_a_sink_that_is_resumed_keeps_the_kind_of_its_files(tmp_path: Path) -> None:
    with sync.create_dataset(tmp_path, SCHEMA, roll_rows=500) as sink:
        sink.write(rows(0, 1000, 10**6, width=30))
    with sync.resume_dataset(tmp_path, SCHEMA, roll_rows=500) as sink:
        sink.write(rows(0, 1000, 3))
    files = sorted(tmp_path.rglob("*.parquet"))
    assert len(files) == 4 and set.union(*map(kinds, files)) == {False}
    expected = rows(0, 1000, 10**6, width=30)["t"].to_pylist() + rows(0, 1000, 3)["t"].to_pylist()
    assert folder_read(tmp_path) == sorted(expected)


@pytest.mark.parametrize("distinct", [3, 300, 10**6])
def test_rows_behind_a_small_first_row_group_are_looked_at(tmp_path: Path, distinct: int) -> None:
    """A hundred texts that are all unlike would else get dictionaries, lest they be few among many rows."""
    draw, path = random.Random(distinct), tmp_path / "f.parquet"
    texts = [f"{draw.randrange(distinct):020}" for _ in range(6000)]
    table = pa.table([texts, range(6000), [{"t": text} for text in texts]], SCHEMA)
    with sync.create(path, SCHEMA, row_group_rows=100) as writer:
        writer.write(table)
    assert kinds(path) == {distinct < 1000}
    assert_all_read(path, table)
