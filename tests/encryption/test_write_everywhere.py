"""`encryption=` in everything that writes files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from trevni_bytes import write_trevni

import resilient_pq as rpq
from resilient_pq.parquet_writer import ParquetWriter

KEY = b"footer key 16 by"
TABLE = pa.table({"a": range(100), "b": [f"b {i % 3}" for i in range(100)]})


def encryption() -> rpq.Encryption:
    return rpq.Encryption(KEY, aad_prefix=b"here")


def check(path: Path, reader: Any, expected: pa.Table = TABLE) -> None:
    assert path.read_bytes()[:4] == path.read_bytes()[-4:] == b"PARE"
    found = reader.read(path, KEY).cast(expected.schema)
    assert found.sort_by("a").equals(expected)
    with rpq.sync.open(path, **encryption().reading()) as file:
        assert pa.table(file.read()).sort_by("a").cast(expected.schema).equals(expected)


def test_blocking_calls(tmp_path: Path, pyarrow_reader: Any) -> None:
    with rpq.sync.create(tmp_path / "a.parquet", encryption=encryption()) as writer:
        writer.write(TABLE)
    check(tmp_path / "a.parquet", pyarrow_reader)
    rpq.sync.write(tmp_path / "b.parquet", TABLE, encryption=encryption())
    check(tmp_path / "b.parquet", pyarrow_reader)
    with ParquetWriter(tmp_path / "c.parquet", TABLE.schema, encryption=encryption()) as parquet_writer:
        parquet_writer.write_table(TABLE)
    check(tmp_path / "c.parquet", pyarrow_reader)


async def test_data_sets(tmp_path: Path, pyarrow_reader: Any) -> None:
    async with rpq.create_dataset(tmp_path / "data", partition_by="b", encryption=encryption()) as writer:
        await writer.write(TABLE)
    files = sorted((tmp_path / "data").rglob("*.parquet"))
    assert len(files) == 3
    for path in files:
        check(
            path,
            pyarrow_reader,
            TABLE.filter(pa.compute.equal(TABLE["b"], path.parent.name[2:].replace("%20", " "))).select(["a"]),
        )


async def test_a_data_set_that_was_left_is_gone_on_with(tmp_path: Path, pyarrow_reader: Any) -> None:
    options: Any = {"encryption": encryption(), "roll_rows": 30, "row_group_rows": 10}
    with pytest.raises(ZeroDivisionError):
        async with rpq.create_dataset(tmp_path / "data", **options) as writer:
            await writer.write(TABLE.slice(0, 85))
            raise ZeroDivisionError
    async with rpq.resume_dataset(tmp_path / "data", **options) as writer:
        assert writer.num_rows_stored == 80
        await writer.write(TABLE.slice(80))
    found = pa.concat_tables(pyarrow_reader.read(path, KEY) for path in sorted((tmp_path / "data").rglob("*.parquet")))
    assert found.cast(TABLE.schema).equals(TABLE)


async def test_conversion(tmp_path: Path, pyarrow_reader: Any) -> None:
    write_trevni(tmp_path / "old.trv", TABLE)
    report = await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet", encryption=encryption())
    assert (report.outcome, report.num_rows) == ("sound", 100)
    check(tmp_path / "new.parquet", pyarrow_reader)


async def test_a_file_in_the_clear_is_not_gone_on_with_encrypted(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with rpq.create(tmp_path / "a.parquet", row_group_rows=10) as writer:
            await writer.write(TABLE)
            raise ZeroDivisionError
    before = (tmp_path / "a.parquet.partial").read_bytes()
    with pytest.raises(rpq.OptionError, match="in the clear"):
        async with rpq.resume(tmp_path / "a.parquet", encryption=encryption()):
            pass
    assert (tmp_path / "a.parquet.partial").read_bytes() == before
