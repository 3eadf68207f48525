"""`ParquetWriter` in the place of pyarrow's, in programs that are killed, interrupted, or never close their file."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest
import s3fs

import resilient_pq
from resilient_pq import sync as rpq
from resilient_pq.io.s3.s3_client import S3Connection

if TYPE_CHECKING:
    from s3_servers import S3

#: As a recorder of episodes is written: many small tables, and a program that somebody ends.
SCRIPT = """
import os, signal, sys, time
import pyarrow as pa
from {module} import ParquetWriter

schema = pa.schema([("frame", pa.int64()), ("action", pa.list_(pa.float32()))])
writer = ParquetWriter(sys.argv[1], schema)
for episode in range(20):
    frames = range(episode * 10, episode * 10 + 10)
    table = pa.table({{"frame": frames, "action": [[float(i)] * 6 for i in frames]}}, schema=schema)
    writer.write_table(table)
print("written", flush=True)
if sys.argv[2] == "wait":
    time.sleep(60)
if sys.argv[2] == "raise":
    raise RuntimeError("the robot fell over")
if sys.argv[2] == "close":
    writer.close()
"""


def ended(tmp_path: Path, how: str, stop: signal.Signals | None = None) -> tuple[Path, str]:
    """The path that the script wrote to, and what it printed on stderr."""
    script, path = tmp_path / "record.py", tmp_path / "episodes.parquet"
    script.write_text(SCRIPT.format(module="resilient_pq.sync"))
    arguments = [sys.executable, "-W", "default", str(script), str(path), how]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        if stop is not None:
            process.send_signal(stop)
        _, err = process.communicate(timeout=60)
    return path, err


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_program_that_is_ended_keeps_its_rows(tmp_path: Path, stop: signal.Signals) -> None:
    path, _ = ended(tmp_path, "wait", stop)
    assert not path.exists()
    report = rpq.recover(f"{path}.partial", path)
    assert report.num_rows == 200
    assert pq.read_table(path)["frame"].to_pylist() == list(range(200))


@pytest.mark.parametrize("how", ["raise", "never closed"])
def test_a_program_that_does_not_close_its_file_is_told(tmp_path: Path, how: str) -> None:
    path, err = ended(tmp_path, how)
    assert "ResourceWarning" in err and "rpq recover" in err
    assert not path.exists() and rpq.check(f"{path}.partial").num_rows == 200


def test_a_program_that_closes_its_file_writes_what_pyarrow_writes(tmp_path: Path) -> None:
    path, err = ended(tmp_path, "close")
    assert err == ""
    (tmp_path / "theirs.py").write_text(SCRIPT.format(module="pyarrow.parquet"))
    theirs = tmp_path / "theirs.parquet"
    subprocess.run([sys.executable, str(tmp_path / "theirs.py"), str(theirs), "close"], check=True, timeout=60)
    ours, expected = pq.ParquetFile(path), pq.ParquetFile(theirs)
    assert ours.read().equals(expected.read()) and ours.schema_arrow.equals(expected.schema_arrow)
    assert ours.num_row_groups == expected.num_row_groups == 20
    assert ours.metadata.row_group(0).column(0).compression == expected.metadata.row_group(0).column(0).compression


def test_the_words_of_pyarrow(tmp_path: Path) -> None:
    table = pa.table({"a": list(range(100)), "b": ["x", "y"] * 50})
    path = tmp_path / "a.parquet"
    with rpq.ParquetWriter(
        path, table.schema, compression="ZSTD", compression_level=3, use_dictionary=["b"], version="2.6",
        write_statistics=True, data_page_size=4096, data_page_version="2.0", store_schema=True,
    ) as writer:  # fmt: skip
        assert writer.is_open and writer.schema == table.schema
        writer.write_table(table, row_group_size=30)
        writer.write_batch(table.to_batches()[0])
        writer.write(table)
        writer.add_key_value_metadata({"who": "me"})
    assert not writer.is_open
    found = pq.ParquetFile(path)
    assert [found.metadata.row_group(i).num_rows for i in range(6)] == [30, 30, 30, 10, 100, 100]
    assert found.metadata.metadata[b"who"] == b"me" and found.metadata.row_group(0).column(0).compression == "ZSTD"
    assert "RLE_DICTIONARY" not in found.metadata.row_group(0).column(0).encodings
    assert found.read().equals(pa.concat_tables([table] * 3))


def test_compression_by_column_is_that_of_pyarrow(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "b": ["x", "y"], "c": [{"d": 1.5}, {"d": 2.5}], "e": [b"", b"1"]})
    settings = {
        "compression": {"a": "zstd", "b": "gzip", "c.d": "snappy"},
        "compression_level": {"a": 7, "b": 1},
    }
    found = []
    for module in (rpq, pq):
        path = tmp_path / f"{module.__name__}.parquet"
        with module.ParquetWriter(path, table.schema, **settings) as writer:
            writer.write_table(table)
        row_group = pq.read_metadata(path).row_group(0)
        found.append([row_group.column(i).compression for i in range(row_group.num_columns)])
        assert rpq.read(path).to_pydict() == table.to_pydict()
    assert found[0] == found[1] == ["ZSTD", "GZIP", "SNAPPY", "UNCOMPRESSED"]


def test_columns_without_a_codec_of_their_own_have_the_usual_one(tmp_path: Path) -> None:
    rpq.write(tmp_path / "a", {"a": [1] * 99, "b": [2] * 99}, compression={"b": "none"}, compression_level={"a": 19})
    row_group = pq.read_metadata(tmp_path / "a").row_group(0)
    assert [row_group.column(i).compression for i in range(2)] == ["ZSTD", "UNCOMPRESSED"]
    with pytest.raises(rpq.SchemaError, match="there is no column 'c'"):
        rpq.write(tmp_path / "b", {"a": [1]}, compression_level={"c": 1})
    with pytest.raises(rpq.OptionError, match="compression_level 99 is out of range for zstd"):
        rpq.create(tmp_path / "b", compression_level={"a": 99})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_file_systems_of_pyarrow_and_fsspec(tmp_path: Path, s3: S3) -> None:
    endpoint = s3.endpoint_url.removeprefix("http://")
    theirs = pa_fs.S3FileSystem(access_key=s3.key, secret_key=s3.secret, endpoint_override=endpoint, scheme="http")
    asked = s3fs.S3FileSystem(**s3.storage_options)
    table = pa.table({"a": [1, 2, 3]})
    places: list[tuple[Any, str]] = [
        (theirs, f"{s3.bucket}/a.parquet"),
        (asked, f"{s3.bucket}/b.parquet"),
        (pa_fs.PyFileSystem(pa_fs.FSSpecHandler(asked)), f"{s3.bucket}/c.parquet"),
        (pa_fs.LocalFileSystem(), str(tmp_path / "d.parquet")),
        (fsspec.filesystem("file"), str(tmp_path / "e.parquet")),
        (pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem()), "f.parquet"),
        (fsspec.filesystem("memory"), "/g.parquet"),
    ]
    for filesystem, path in places:
        with rpq.ParquetWriter(path, table.schema, filesystem) as writer:
            writer.write_table(table)
        assert pq.read_table(path, filesystem=filesystem).equals(table)
        rpq.write(path, {"a": [7]}, filesystem=filesystem)
        assert rpq.read(path, filesystem=filesystem).to_pydict() == {"a": [7]}
    assert not any("rpq-epoch" in name for name in s3.object_names())
    with pytest.raises(FileNotFoundError, match="nothing"):
        rpq.read(f"{s3.bucket}/nothing", filesystem=theirs)


def test_a_file_system_of_s3fs_keeps_the_rows_of_a_writer_that_is_killed(s3: S3) -> None:
    table, filesystem = pa.table({"a": [1, 2, 3]}), s3fs.S3FileSystem(**s3.storage_options)
    writer = rpq.ParquetWriter(f"{s3.bucket}/a.parquet", table.schema, filesystem, max_unstored_seconds=0.05)
    with pytest.raises(KeyError), writer:
        writer.write_table(table)
        for _ in range(200):  # other file systems are sent nothing before the end
            if writer._writer.num_rows_stored:
                break
            time.sleep(0.05)
        raise KeyError
    rpq.complete_upload(s3.url("a.parquet"), storage_options=s3.storage_options)
    assert rpq.check(s3.url("a.parquet"), storage_options=s3.storage_options).num_rows == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compression": {"b": "zstd"}}, "compression: there is no column 'b'"),
        ({"compression": {"a": "zip"}}, "zip"),
        ({"compression": {"a": 7}}, "compression is 7"),
        ({"compression_level": {"a": 9}}, "snappy has no compression levels"),
        ({"compression": "zstd", "compression_level": "high"}, "compression_level is 'high'"),
        ({"compression": "zip"}, "zip"),
        ({"version": "1.0"}, "version is '1.0'"),
        ({"use_deprecated_int96_timestamps": True}, "use_deprecated_int96_timestamps"),
        ({"row_group_size": 0}, "row_group_size is 0"),
        ({"filesystem": object()}, "no file system of fsspec"),
        ({"compresion": "zstd"}, "compresion"),
    ],
)
def test_options_that_it_does_not_have(tmp_path: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises((rpq.SchemaError, rpq.UnsupportedError, TypeError), match=said):
        rpq.ParquetWriter(tmp_path / "a", pa.schema([("a", pa.int64())]), **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_more_small_tables_than_a_file_has_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resilient_pq.writer.cut_policy.MAX_ROW_GROUPS", 40)
    table = pa.table({"frame": [7]})
    with rpq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for _ in range(100):
            writer.write_table(table)
    assert pq.read_table(tmp_path / "a.parquet")["frame"].to_pylist() == [7] * 100
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 11  # ten of their own, and one for the rest


async def test_a_dropped_writer_keeps_its_rows_while_its_loop_runs(tmp_path: Path) -> None:
    writer = await resilient_pq.create(tmp_path / "a.parquet")
    await writer.write({"frame": [7]})
    with pytest.warns(ResourceWarning, match="was not closed: its rows are kept") as told:
        del writer
        for _ in range(1000):  # a thread that worked for it may let go of it later
            gc.collect()
            if told:
                break
            await asyncio.sleep(0.01)
    assert (await resilient_pq.check(tmp_path / "a.parquet.partial")).num_rows == 1


def test_writers_that_a_loop_leaves_behind_keep_their_rows(tmp_path: Path) -> None:
    async def main() -> None:
        one = await resilient_pq.create(tmp_path / "a.parquet", row_group_rows=100)
        many = await resilient_pq.create_dataset(tmp_path / "many", partition_by="city")
        for _ in range(50):  # some of them are being encoded when the loop ends, which cancels all tasks
            await one.write({"frame": range(37), "noise": [os.urandom(99) for _ in range(37)]})
            await many.write({"frame": [1, 2], "city": ["Oslo", "Rome"]})
        kept.extend([one, many])

    kept: list[object] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(main())
        kept.clear()
        gc.collect()
    assert sorted("its rows are kept" in str(each.message) for each in told) == [True, True]
    assert rpq.check(tmp_path / "a.parquet.partial").num_rows == 50 * 37
    assert sum(rpq.check(path).num_rows or 0 for path in tmp_path.glob("many/*/*.partial")) == 100


def test_a_writer_to_s3_that_a_loop_leaves_behind_keeps_its_rows(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(connection: S3Connection) -> None:
        stored.append(len(s3.upload_ids()))
        await close_it(connection)

    stored: list[int] = []
    close_it = S3Connection.close
    monkeypatch.setattr(S3Connection, "close", close)

    async def main() -> None:
        writer = await resilient_pq.create(s3.url("a.parquet"), mode="x", storage_options=s3.storage_options)
        await writer.write({"frame": [1, 2, 3]})

    asyncio.run(main())
    assert stored == [1], "the connection was closed before the rows were stored"
    rpq.complete_upload(s3.url("a.parquet"), storage_options=s3.storage_options)
    assert rpq.check(s3.url("a.parquet"), storage_options=s3.storage_options).num_rows == 3


def test_a_loop_that_only_stops_loses_the_rows_in_memory(tmp_path: Path) -> None:
    async def main() -> resilient_pq.Writer:
        writer = await resilient_pq.create(tmp_path / "a.parquet", max_unstored_seconds=None)
        await writer.write({"frame": [7]})
        return writer

    loop = asyncio.new_event_loop()
    writer: object = loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_default_executor())  # no thread has it any more
    with pytest.warns(ResourceWarning, match="rows in memory are lost"):
        del writer
        gc.collect()
    loop.close()


def test_whole_files_in_one_call(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    assert rpq.write(path, {"a": [1, 2, 3], "b": ["x", "y", None]}, compression="snappy").num_rows == 3
    assert rpq.read(path, ["a"], filters=[("a", ">", 1)]).to_pydict() == {"a": [2, 3]}
    assert rpq.read(str(path), limit=1).num_rows == 1


async def test_a_file_that_is_not_open_says_what_to_do(tmp_path: Path) -> None:
    await resilient_pq.write(tmp_path / "a", {"a": [1]})
    opening = resilient_pq.open(tmp_path / "a")
    with pytest.raises(AttributeError, match="await"):
        opening.read()
    assert (await resilient_pq.read(tmp_path / "a")).num_rows == 1
