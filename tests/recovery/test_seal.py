"""Files of other writers with checksums and records of ours: the same values, and every later change is found."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.cli.main import run
from resilient_pq.format.pages.page import pages_of
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.report import Damage

COUNT = 600
TABLE = pa.table(
    {
        "id": pa.array(range(COUNT), pa.int64()),
        "name": [None if i % 7 == 0 else f"name {i % 20}" for i in range(COUNT)],
        "x": [i / 7 for i in range(COUNT)],
        "list": [[i, None] * (i % 3) for i in range(COUNT)],
        "struct": [{"a": i, "b": None if i % 5 else f"b{i}"} for i in range(COUNT)],
        "empty": pa.nulls(COUNT, pa.string()),
    }
)
PYARROW: dict[str, dict[str, Any]] = {
    "plain": {"data_page_size": 500, "write_batch_size": 50},
    "indexed": {"write_page_index": True, "data_page_size": 500, "write_batch_size": 50, "compression": "zstd"},
    "v2": {"data_page_version": "2.0", "compression": "gzip", "write_page_index": True},
    "sums": {"write_page_checksum": True, "sorting_columns": [pq.SortingColumn(0)]},
}


def pyarrows(name: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE.replace_schema_metadata({"mine": "1"}), sink, row_group_size=250, **PYARROW[name])
    return sink.getvalue()


def of_writer(name: str, folder: Path) -> bytes:
    path = folder / "theirs.parquet"
    if name == "polars":
        pl.from_arrow(TABLE).write_parquet(path, row_group_size=250)  # type: ignore[union-attr]
    elif name == "duckdb":  # with bloom filters
        duckdb.sql("select range id, 'n' || (range % 9) s from range(5000)").write_parquet(
            str(path), row_group_size=2048
        )
    else:
        return pyarrows(name)
    return path.read_bytes()


async def sealed(data: bytes) -> tuple[bytes, rpq.Report]:
    store = MemoryStore()
    await store.put("theirs", data)
    report = await rpq.seal((store, "theirs"), (store, "sealed"))
    return bytes((await store.read_tail("sealed", 1 << 40)).data), report


async def checked(data: bytes) -> rpq.Report:
    store = MemoryStore()
    await store.put("file", data)
    return await rpq.check((store, "file"))


def bodies(data: bytes) -> list[list[bytes]]:
    metadata, found = pq.read_metadata(io.BytesIO(data)), []
    for i in range(metadata.num_row_groups):
        for j in range(metadata.num_columns):
            chunk = metadata.row_group(i).column(j)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            pages = memoryview(data)[start : start + chunk.total_compressed_size]
            found.append([bytes(page.body) for page in pages_of(pages, start)])
    return found


@pytest.mark.parametrize("name", [*PYARROW, "polars", "duckdb"])
async def test_values_and_metadata_stay_and_every_page_has_a_checksum(name: str, tmp_path: Path) -> None:
    theirs = of_writer(name, tmp_path)
    ours, report = await sealed(theirs)
    assert (report.outcome, report.exit_code, report.notes) == ("sealed", 0, ())
    check = await checked(ours)
    assert check.outcome == rpq.Outcome.SOUND and not check.pages_decoded, check.findings
    one, other = pq.ParquetFile(io.BytesIO(theirs)), pq.ParquetFile(io.BytesIO(ours), page_checksum_verification=True)
    assert other.read().equals(one.read())
    assert pl.read_parquet(ours).equals(pl.read_parquet(theirs))
    assert other.schema.equals(one.schema) and other.metadata.created_by == one.metadata.created_by
    assert bodies(ours) == bodies(theirs)
    for i in range(one.num_row_groups):
        before, after = one.metadata.row_group(i), other.metadata.row_group(i)
        assert after.sorting_columns == before.sorting_columns
        for j in range(one.metadata.num_columns):
            had, has = before.column(j), after.column(j)
            assert (has.statistics, has.encodings) == (had.statistics, had.encodings)
            assert has.has_column_index == had.has_column_index
            assert (has.bloom_filter_length or 0) >= (had.bloom_filter_length or 0)
    assert (one.metadata.metadata or {}).items() <= (other.metadata.metadata or {}).items()


async def test_filters_find_the_rows_by_the_indexes_that_went_along(tmp_path: Path) -> None:
    ours, _ = await sealed(of_writer("duckdb", tmp_path))
    (tmp_path / "sealed.parquet").write_bytes(ours)
    async with rpq.open(tmp_path / "sealed.parquet") as file:
        assert (await file.read(filters=[("id", "==", 4711)]))["s"].tolist() == ["n4"]
    assert duckdb.sql(f"select s from '{tmp_path}/sealed.parquet' where id = 4711").fetchall() == [("n4",)]


async def test_every_byte_that_changes_is_found() -> None:
    ours, _ = await sealed(pyarrows("indexed"))
    draw = random.Random(5)
    for at in sorted(draw.sample(range(len(ours)), 60)):
        changed = bytearray(ours)
        changed[at] ^= 1 << draw.randrange(8)
        report = await checked(bytes(changed))
        assert report.findings and report.outcome != rpq.Outcome.SOUND, at


async def test_rows_of_a_torn_copy_are_recovered_without_a_schema() -> None:
    ours, _ = await sealed(pyarrows("plain"))
    start = pq.read_metadata(io.BytesIO(ours)).row_group(2).column(0).data_page_offset
    store = MemoryStore()
    await store.put("torn", ours[:start])
    report = await rpq.recover((store, "torn"), (store, "out"))
    assert report.num_rows == 500
    assert (
        pq.read_table(io.BytesIO(bytes((await store.read_tail("out", 1 << 40)).data)))["name"].to_pylist()
        == (TABLE["name"].to_pylist()[:500])
    )


async def test_files_that_lack_nothing_are_copied_as_they_are() -> None:
    store = MemoryStore()
    async with rpq.create((store, "ours")) as writer:
        await writer.write(TABLE)
    data = bytes((await store.read_tail("ours", 1 << 40)).data)
    for given in (data, (await sealed(pyarrows("plain")))[0]):
        copy, report = await sealed(given)
        assert copy == given and report.outcome == rpq.Outcome.SOUND
        assert any("already" in note for note in report.notes)


async def test_a_recovery_of_a_file_of_another_writer_is_sealed_and_stays_salvaged() -> None:
    theirs = pyarrows("plain")
    store = MemoryStore()
    await store.put("torn", theirs[: len(theirs) * 2 // 3])
    schema = pq.read_schema(io.BytesIO(theirs))
    await rpq.recover((store, "torn"), (store, "saved"), schema=schema)
    await rpq.seal((store, "saved"), (store, "sealed"))
    with pytest.warns(rpq.IncompleteFileWarning, match="salvaged"):
        async with rpq.open((store, "sealed")) as file:
            assert "rpq.recovered_from" in file.key_value_metadata
            assert file.num_rows


def broken(how: str) -> bytes:
    data = bytearray(pyarrows("plain"))
    if how == "torn":
        return bytes(data[:-100])
    if how == "undecodable":
        chunk = pq.read_metadata(io.BytesIO(bytes(data))).row_group(1).column(2)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        data[start + 30 : start + 60] = bytes(30)
    return bytes(data)


@pytest.mark.parametrize("how", ["torn", "undecodable"])
async def test_what_is_damaged_is_refused_and_nothing_written(how: str) -> None:
    store = MemoryStore()
    await store.put("theirs", broken(how))
    with pytest.raises(rpq.RecoveryError, match="only a whole file can be sealed") as caught:
        await rpq.seal((store, "theirs"), (store, "sealed"))
    assert "rpq recover" in str(caught.value.hint)
    assert not await store.exists("sealed")


async def test_what_its_writer_did_not_finish_is_refused(tmp_path: Path) -> None:
    async with rpq.create(tmp_path / "a.parquet") as writer:
        await writer.write({"x": np.arange(100)})
        await writer.checkpoint()
        (tmp_path / "cut.parquet").write_bytes(next(tmp_path.glob("*.partial")).read_bytes())
    with pytest.raises(rpq.RecoveryError, match="did not finish it"):
        await rpq.seal(tmp_path / "cut.parquet", tmp_path / "b.parquet")


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "theirs.parquet").write_bytes(pyarrows("plain"))
    words = ["seal", str(tmp_path / "theirs.parquet"), str(tmp_path / "ours.parquet")]
    assert run(words) == 0
    assert "sealed      600 rows in 3 row groups; every page was decoded" in capsys.readouterr().out
    assert run(words) == 4
    assert "exists" in capsys.readouterr().err
    assert run([*words, "--overwrite", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["verb"], document["outcome"], document["rows_kept"]) == ("seal", "sealed", 600)
    assert run(["check", str(tmp_path / "ours.parquet"), "--require-checksums"]) == 0
    assert Damage.UNVERIFIED not in capsys.readouterr().out
    assert run(["check", str(tmp_path / "theirs.parquet"), "--require-checksums"]) == 1


async def test_files_on_s3(s3: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(1000))}), tmp_path / "theirs.parquet", row_group_size=300)
    (tmp_path / "text.parquet").write_text("a,b\n1,2\n" * 9)
    for name in ("theirs.parquet", "text.parquet"):
        s3.client.put_object(Bucket=s3.bucket, Key=name, Body=(tmp_path / name).read_bytes())
    options = {"storage_options": s3.storage_options}
    report = await rpq.seal(s3.url("theirs.parquet"), s3.url("sealed/theirs.parquet"), **options)
    assert (report.outcome, report.num_rows) == ("sealed", 1000)
    checked = await rpq.check(s3.url("sealed/theirs.parquet"), require_checksums=True, **options)
    assert (checked.outcome, checked.pages_decoded) == ("sound", 0)
    with pytest.raises(rpq.NotParquetError, match="this is a text file with columns separated by ','"):
        await rpq.seal(s3.url("text.parquet"), s3.url("sealed/text.parquet"), **options)
    assert s3.object_names() == ["sealed/theirs.parquet", "text.parquet", "theirs.parquet"]
