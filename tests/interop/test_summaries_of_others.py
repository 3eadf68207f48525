"""Summaries as other libraries write them, of their files and of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastparquet
import fastparquet.writer
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq

FRAME = pd.DataFrame(
    {
        "n": range(60),
        "s": [f"text {i % 5}" for i in range(60)],
        "f": [i / 8 for i in range(60)],
        "kind": ["a b", "c", "d=e"] * 20,
    }
)


async def read_summary(path: Path) -> tuple[pa.Table, rpq.File]:
    async with rpq.open(path) as file:
        return pa.table(await file.read()), file


@pytest.mark.parametrize("partition_on", [[], ["kind"]])
async def test_of_fastparquet(tmp_path: Path, partition_on: list[str]) -> None:
    """Values that stand in the names of folders only are no columns, as in each file."""
    fastparquet.write(str(tmp_path), FRAME, file_scheme="hive", row_group_offsets=20, partition_on=partition_on)
    table, file = await read_summary(tmp_path / "_metadata")
    assert table.column_names == [name for name in FRAME if name not in partition_on]
    expected = pa.concat_tables([pq.ParquetFile(tmp_path / name).read() for name in file.data_files])
    assert table.combine_chunks().equals(expected.cast(table.schema).combine_chunks())
    assert sorted(table["n"].to_pylist()) == list(range(60))
    empty, common = await read_summary(tmp_path / "_common_metadata")
    assert (common.num_rows, empty.num_rows, empty.column_names) == (0, 0, table.column_names)


async def test_of_pyarrow(tmp_path: Path) -> None:
    """As `dask.dataframe.to_parquet` makes them, too: footers collected while a data set is written."""
    collected: list[Any] = []
    table = pa.Table.from_pandas(FRAME)
    pq.write_to_dataset(table, tmp_path, partition_cols=["kind"], metadata_collector=collected)
    schema = table.schema.remove(table.schema.get_field_index("kind"))
    pq.write_metadata(schema, tmp_path / "_metadata", metadata_collector=collected)
    pq.write_metadata(schema, tmp_path / "_common_metadata")
    found, file = await read_summary(tmp_path / "_metadata")
    assert len(file.data_files) == 3 and found.column_names == ["n", "s", "f"]
    expected = ds.parquet_dataset(tmp_path / "_metadata").to_table()
    assert found.combine_chunks().equals(expected.combine_chunks())
    empty, _ = await read_summary(tmp_path / "_common_metadata")
    assert empty.num_rows == 0 and empty.schema.equals(schema)


@pytest.fixture
async def ours(tmp_path: Path) -> Path:
    for number in range(3):
        async with rpq.create(tmp_path / f"part.{number}.parquet", row_group_rows=8) as writer:
            await writer.write(pa.Table.from_pandas(FRAME[number * 20 : number * 20 + 20]))
    return tmp_path


async def test_of_fastparquet_of_our_files(ours: Path) -> None:
    """It copies our name as the maker, and our keys; that no record vouches for its footer is no damage."""
    fastparquet.writer.merge([str(ours / f"part.{number}.parquet") for number in range(3)])
    table, file = await read_summary(ours / "_metadata")
    assert (file.metadata.created_by or "").startswith("resilient_pq")
    assert not file.contents.verified and not file.contents.unvouched and file.state is None
    assert table["n"].to_pylist() == list(range(60))
    assert (await rpq.check(ours / "_metadata")).outcome is rpq.Outcome.SOUND


async def test_of_pyarrow_of_our_files(ours: Path) -> None:
    """The checksums of chunks are copied, and compared: a byte that changed is found through its summary too."""
    collected = []
    for number in range(3):
        metadata = pq.read_metadata(ours / f"part.{number}.parquet")
        metadata.set_file_path(f"part.{number}.parquet")
        collected.append(metadata)
    schema = pq.read_schema(ours / "part.0.parquet")
    pq.write_metadata(schema, ours / "_metadata", metadata_collector=collected)
    table, file = await read_summary(ours / "_metadata")
    assert table["n"].to_pylist() == list(range(60))
    chunk = file.metadata.row_groups[4].columns[2].meta_data
    assert chunk is not None
    data = bytearray((ours / "part.1.parquet").read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start + chunk.total_compressed_size - 3] ^= 1
    (ours / "part.1.parquet").write_bytes(data)
    with pytest.raises(rpq.ChecksumError) as caught:
        await read_summary(ours / "_metadata")
    where = caught.value.where
    assert (where.key, where.row_group, where.column) == (str(ours / "part.1.parquet"), 4, "f")
