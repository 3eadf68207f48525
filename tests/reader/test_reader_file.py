"""Files that are not finished warn once, and INT96 timestamps are read in the unit that is asked for."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq

ROWS = 1_000
TABLE = pa.table(
    {"n": np.arange(ROWS), "s": [None if i % 5 == 0 else f"v{i}" for i in range(ROWS)], "f": np.arange(ROWS) / 4}
)


async def test_an_unfinished_file_warns_once(tmp_path: Path) -> None:
    writer = await rpq.create(tmp_path / "f.parquet")
    await writer.write(TABLE)
    checkpoint = await writer.checkpoint()
    partial = tmp_path / "f.parquet.partial"
    (tmp_path / "cut.parquet").write_bytes(partial.read_bytes()[: checkpoint.offset])
    await writer.abort()
    with pytest.warns(rpq.IncompleteFileWarning, match="in-progress") as awaited:
        await (await rpq.open(tmp_path / "cut.parquet")).close()
    assert [warning.filename for warning in awaited] == [__file__]
    with pytest.warns(rpq.IncompleteFileWarning, match="in-progress") as entered:
        async with rpq.open(tmp_path / "cut.parquet") as file:
            assert [warning.filename for warning in entered] == [__file__]
            assert file.state is rpq.FileState.IN_PROGRESS
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert pa.table(await file.read()).equals(TABLE)


@pytest.mark.parametrize("unit", ["ns", "days", 1])
def test_units_that_int96_is_not_read_in(unit: object) -> None:
    with pytest.raises(rpq.SchemaError, match='must be "us", "ms", "s" or None'):
        rpq.ReadOptions(coerce_int96_timestamp_unit=unit)  # type: ignore[arg-type]


async def test_int96_in_a_unit(tmp_path: Path) -> None:
    path = tmp_path / "theirs.parquet"
    times = pa.table({"t": pa.array([[1_999, None], [-1]], pa.list_(pa.timestamp("ns")))})
    pq.write_table(times, path, use_deprecated_int96_timestamps=True)
    async with rpq.open(path) as file:
        assert pa.table(await file.read())["t"].type.value_type == pa.timestamp("ns")
    options = rpq.ReadOptions(coerce_int96_timestamp_unit="us")
    async with rpq.open(path, options=options) as file:
        found = pa.table(await file.read())["t"].combine_chunks()
        assert pa.schema(file.arrow_schema).field("t").type == found.type
    assert found.type.value_type == pa.timestamp("us")
    assert found.values.cast(pa.int64()).to_pylist() == [1, None, -1]
