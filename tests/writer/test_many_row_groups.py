"""Files of more row groups than an ordinal can number."""

from __future__ import annotations

import io
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq.format.compact_protocol import decode
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.writer import cut_policy
from resilient_pq.writer.cut_policy import MAX_ROW_GROUPS


async def _ordinals(store: MemoryStore, key: str) -> list[int | None]:
    async with rpq.open((store, key)) as file:
        return [row_group.ordinal for row_group in file.metadata.row_groups]


@given(num_rows=st.integers(1, 24), most=st.integers(1, 8), torn_behind=st.integers(0, 24))
async def test_a_footer_has_all_ordinals_or_none(num_rows: int, most: int, torn_behind: int) -> None:
    """In the final footer, in every checkpoint, and in what is recovered and resumed of a torn file."""
    store, options = MemoryStore(), {"row_group_rows": 1, "checkpoint_every": 1, "checkpoint_overhead": 100.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut_policy, "MAX_ROW_GROUPS", most)
        async with rpq.create((store, "a"), **options) as writer:  # type: ignore[arg-type]
            await writer.write({"n": np.arange(num_rows)})
        numbered = [*range(num_rows)] if num_rows <= most else [None] * num_rows
        assert await _ordinals(store, "a") == numbered
        async with rpq.open((store, "a")) as file:
            checkpoints = file.checkpoints
        data = b"".join(map(bytes, [await store.read_range("a", 0, (i := await store.head("a")).size, pin=i)]))
        for known in checkpoints:
            at = known.offset + 96
            found, _ = decode(FileMetaData, memoryview(data)[at:])
            count = len(found.row_groups)
            of_checkpoint = [row_group.ordinal for row_group in found.row_groups]
            assert of_checkpoint == ([*range(count)] if count <= most else [None] * count)
        # Cut behind a row group: the rest comes of records, some with an ordinal and some without.
        ends = [row_group.columns[-1].meta_data for row_group in file.metadata.row_groups]
        behind = ends[min(torn_behind, num_rows - 1)]
        assert behind is not None
        await store.put("torn", data[: behind.data_page_offset + behind.total_compressed_size + 700])
        if len(checkpoints) or num_rows > 1:
            await rpq.recover((store, "torn"), (store, "saved"))
            saved = await _ordinals(store, "saved")
            assert saved == ([*range(len(saved))] if len(saved) <= most else [None] * len(saved))


@pytest.mark.thorough
async def test_a_file_of_more_row_groups_than_ordinals(tmp_path: Path) -> None:
    count, path = MAX_ROW_GROUPS + 33, tmp_path / "many.parquet"
    async with rpq.create(path, row_group_rows=1, checkpoint_every=None, compression="none") as writer:
        await writer.write({"n": np.arange(count)})
    assert pq.read_metadata(path).num_row_groups == count
    assert pq.read_table(io.BytesIO(path.read_bytes()))["n"].to_numpy().tolist() == [*range(count)]
    assert pl.read_parquet(path)["n"].sum() == sum(range(count))
    assert duckdb.sql(f"select count(*), sum(n) from '{path}'").fetchall() == [(count, sum(range(count)))]
    async with rpq.open(path) as file:
        assert {row_group.ordinal for row_group in file.metadata.row_groups} == {None}
        assert (await file.read(row_groups=[count - 1])).to_pylist() == [{"n": count - 1}]
