"""`convert`: a stream from ranges of the old file into a resilient one, on any store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_wrapper import RecordingStore
from trevni_bytes import blocks_of, in_memory, trevni, write_trevni

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore


async def test_on_s3(s3: Any, samples: Path, rows_of: Any) -> None:
    name = "types-blocks-deflate-crc32.trv"
    s3.client.put_object(Bucket=s3.bucket, Key="old.trv", Body=(samples / name).read_bytes())
    options = rpq.WriteOptions(part_bytes=5 << 20)
    report = await rpq.convert(
        s3.url("old.trv"),
        s3.url("new.parquet"),
        options=options,
        storage_options=s3.storage_options,
        row_group_rows=10_000,
    )
    assert (report.outcome, report.num_rows, report.num_row_groups) == ("sound", 30_000, 3)
    async with rpq.open(s3.url("new.parquet"), storage_options=s3.storage_options) as file:
        found = (await file.read(columns=["l", "s", "y"])).to_pydict()
    assert found == {key: [row[key] for row in rows_of(name)] for key in ("l", "s", "y")}


async def test_the_input_is_read_by_ranges_and_never_whole(samples: Path) -> None:
    name = "types-blocks-deflate-crc32.trv"
    store, data = RecordingStore(MemoryStore()), (samples / name).read_bytes()
    await in_memory(data, store)
    options = rpq.ReadOptions(merge_gap=0, memory_budget=150_000)
    store.calls.clear()
    report = await rpq.convert((store, "f.trv"), (MemoryStore(), "new.parquet"), read_options=options)
    assert report.num_rows == 30_000
    reads = [call for call in store.calls if call.verb.startswith("read_")]
    sizes = [-(call.start or 0) if call.end is None else call.end - (call.start or 0) for call in reads]
    assert max(sizes) < len(data) / 3
    assert sum(sizes) < len(data) * 1.3


@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    import tracemalloc

    peaks = []
    for count in (100_000, 800_000):
        rng = np.random.default_rng(1)
        table = pa.table({"n": rng.integers(0, 2**60, count), "s": [f"text {i} of many" for i in range(count)]})
        path = tmp_path / f"{count}.trv"
        write_trevni(path, table)
        del table
        options = rpq.ReadOptions(memory_budget=1 << 20)
        tracemalloc.start()
        await rpq.convert(path, tmp_path / f"{count}.parquet", row_group_bytes=1 << 20, read_options=options)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


async def test_what_the_file_says_of_itself_is_kept(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([1, None])})
    metadata = {"origin": b"somewhere", "raw": b"\xff\x00", "rpq.file_id": b"mine"}
    write_trevni(tmp_path / "old.trv", table, metadata=metadata)
    await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet")
    kept = pq.read_metadata(tmp_path / "new.parquet").metadata or {}
    assert (kept[b"origin"], kept[b"raw.base64"]) == (b"somewhere", b"/wA=")
    assert b'"fields":[{"name":"a","type":["null","long"]}]' in kept[b"avro.schema"]
    assert (kept[b"trevni.codec"], kept[b"trevni.checksum"]) == (b"deflate", b"crc32")
    assert kept[b"rpq.file_id"] != b"mine"


async def test_some_columns(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "b": [[1], []], "c": ["x", "y"]})
    write_trevni(tmp_path / "old.trv", table)
    await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet", columns=["c", "b"])
    assert pq.read_table(tmp_path / "new.parquet").to_pydict() == {"c": ["x", "y"], "b": [[1], []]}
    with pytest.raises(rpq.SchemaError, match="there is no column 'd'"):
        await rpq.convert(tmp_path / "old.trv", tmp_path / "b.parquet", columns=["d"])
    with pytest.raises(rpq.SchemaError, match="only whole columns"):
        await rpq.convert((await _struct()), tmp_path / "b.parquet", columns=["s.x"])
    assert not (tmp_path / "b.parquet").exists()


async def _struct() -> tuple[MemoryStore, str]:
    return await in_memory(trevni({"s": [{"x": 1, "y": 2}]}))


async def test_checkpoints_and_progress(tmp_path: Path) -> None:
    write_trevni(tmp_path / "old.trv", pa.table({"a": range(200_000)}), codec="null")
    seen: list[tuple[int, int]] = []
    await rpq.convert(
        tmp_path / "old.trv", tmp_path / "new.parquet", row_group_rows=20_000, checkpoint_every=1,
        progress=lambda done, rows: seen.append((done, rows)), checkpoint_overhead=1.0,
    )  # fmt: skip
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (200_000, 200_000)
    assert {rows for _, rows in seen} == {200_000}
    async with rpq.open(tmp_path / "new.parquet") as file:
        assert (file.num_row_groups, file.state) == (10, "complete")
        assert len(file.checkpoints) > 2


async def test_nothing_is_published_where_rows_would_be_lost(tmp_path: Path) -> None:
    write_trevni(tmp_path / "old.trv", pa.table({"a": range(1000)}), block_bytes=100, codec="null")
    data = bytearray((tmp_path / "old.trv").read_bytes())
    place = blocks_of(data)["a/long"][-1]
    data[place.offset] ^= 1
    (tmp_path / "old.trv").write_bytes(data)
    with pytest.raises(rpq.RowsLostError, match="checksum of the block"):
        await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet", on_damage="raise", row_group_rows=10)
    assert [path.name for path in tmp_path.iterdir()] == ["old.trv"]
    report = await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet")
    assert (report.outcome, report.num_rows, report.exit_code) == ("partial", 1000 - place.num_rows, 1)


async def test_nothing_is_left(tmp_path: Path) -> None:
    write_trevni(tmp_path / "old.trv", pa.table({"a": range(9)}), codec="null")
    data = bytearray((tmp_path / "old.trv").read_bytes())
    data[-5] ^= 1
    (tmp_path / "old.trv").write_bytes(data)
    for on_damage in ("drop", "null"):
        with pytest.raises(rpq.NothingToRecoverError, match="no row is whole") as caught:
            await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet", on_damage=on_damage)
        report = caught.value.report
        assert (report.outcome, report.exit_code, report.kept.rows_lost) == ("nothing", 3, 9)
    assert [path.name for path in tmp_path.iterdir()] == ["old.trv"]


async def test_arguments(tmp_path: Path) -> None:
    write_trevni(tmp_path / "old.trv", pa.table({"a": [1]}))
    with pytest.raises(rpq.SchemaError, match="on_damage"):
        await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet", on_damage="columns")  # type: ignore[arg-type]
    with pytest.raises(rpq.RecoveryError, match="the file that is read"):
        await rpq.convert(tmp_path / "old.trv", tmp_path / "old.trv", overwrite=True)
    await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet")
    with pytest.raises(rpq.AlreadyExistsError):
        await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet")
    await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet", overwrite=True)
    with pytest.raises(rpq.NotFoundError):
        await rpq.convert(tmp_path / "none.trv", tmp_path / "b.parquet")
    async with rpq.open_trevni(tmp_path / "old.trv") as file:
        for wrong in ({"offset": -1}, {"limit": -1}, {"columns": ["b"]}):
            with pytest.raises(rpq.SchemaError):
                await file.read(**wrong)  # type: ignore[arg-type]
        with pytest.raises(rpq.SchemaError):
            file.batches(0)


async def test_an_object_that_is_replaced_while_it_is_read() -> None:
    store = MemoryStore()
    await in_memory(trevni({"a": range(90_000)}, codec="null"), store)
    async with rpq.open_trevni((store, "f.trv")) as file:
        await in_memory(trevni({"a": range(90_001)}, codec="null"), store)
        with pytest.raises(rpq.ObjectChangedError):
            await file.read()
