"""Settings that can never work are refused before anything is written, by their names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import SchemaError, WriteOptions
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.io.s3.s3_store import S3Store

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"row_group_rows": 0}, "row_group_rows is 0; it must be at least 1"),
    ({"row_group_rows": -5}, "row_group_rows is -5"),
    ({"row_group_rows": 1.5}, "row_group_rows is 1.5; it is a whole number"),
    ({"row_group_rows": "5"}, "row_group_rows is '5'; it is a whole number"),
    ({"row_group_bytes": 0}, "row_group_bytes is 0"),
    ({"row_group_bytes": None}, "row_group_bytes is None; it is a whole number"),
    ({"page_bytes": 0}, "page_bytes is 0"),
    ({"page_bytes": 2**30 + 1}, "page_bytes is more than 1 GiB"),
    ({"checkpoint_every": 0}, "checkpoint_every is 0"),
    ({"checkpoint_overhead": -0.1}, "checkpoint_overhead is -0.1; it is a share"),
    ({"checkpoint_overhead": float("nan")}, "checkpoint_overhead is nan"),
    ({"compression": "zip"}, "compression 'zip'"),
    (
        {"compression": "zstd", "compression_level": 23},
        "compression_level 23 is out of range for zstd: 1 to 22",
    ),
    (
        {"compression": "gzip", "compression_level": -1},
        "compression_level -1 is out of range for gzip: 0 to 9",
    ),
    ({"compression": "snappy", "compression_level": 1}, "snappy has no compression levels"),
    ({"metadata": {"rpq.state": "complete"}}, "'rpq.state' is the writer's own"),
    ({"metadata": {"ARROW:schema": "x"}}, "'ARROW:schema' is the writer's own"),
    ({"metadata": {"a": 1}}, "metadata 'a' is not text"),
    ({"metadata": {b"a": "x"}}, "metadata b'a' is not text"),
    ({"on_error": "ignore"}, "on_error is 'ignore'; it is 'keep' or 'abort'"),
    ({"mode": "a"}, "mode"),
    ({"options": WriteOptions(data_page_version="3.0")}, "data_page_version is '3.0'"),  # type: ignore[arg-type]
    ({"options": WriteOptions(page_rows=0)}, "page_rows is 0; it must be at least 1"),
    ({"options": WriteOptions(page_rows=-3)}, "page_rows is -3"),
    ({"options": WriteOptions(dictionary_bytes=-1)}, "dictionary_bytes is -1; it must be at least 0"),
    ({"options": WriteOptions(max_threads=0)}, "max_threads is 0; it must be at least 1"),
    ({"options": WriteOptions(max_threads="2")}, "max_threads is '2'; it is a whole number"),  # type: ignore[arg-type]
    ({"options": WriteOptions(part_bytes=5)}, "part_bytes is a whole number of MiB"),
    ({"options": WriteOptions(part_bytes="8MiB")}, "part_bytes is '8MiB'; it is a whole number"),  # type: ignore[arg-type]
    ({"options": WriteOptions(max_part_bytes=2.0**26)}, "max_part_bytes is 67108864.0; it is"),  # type: ignore[arg-type]
    ({"options": WriteOptions(max_bytes_in_flight=0)}, "max_bytes_in_flight"),
    ({"options": WriteOptions(checkpoint_seconds=0)}, "checkpoint_seconds is 0; it is a number of seconds above 0"),
    ({"options": WriteOptions(checkpoint_seconds=float("nan"))}, "checkpoint_seconds is nan"),
    ({"options": WriteOptions(checkpoint_seconds="5")}, "checkpoint_seconds is '5'"),  # type: ignore[arg-type]
    ({"options": WriteOptions(checkpoint_bytes=0)}, "checkpoint_bytes is 0; it must be at least 1"),
    ({"options": WriteOptions(undecided_grace=-1)}, "undecided_grace is -1; it is a number of seconds, not below 0"),
    ({"options": WriteOptions(undecided_grace=None)}, "undecided_grace is None"),  # type: ignore[arg-type]
    ({"options": WriteOptions(checkpoint_log=5)}, "checkpoint_log is 5; it is the path of a file"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: str(value)[:60])
async def test_refused_before_anything_is_written(
    store: MemoryStore, is_there: Callable[..., Awaitable[bool]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SchemaError, match=message):
        async with rpq.create((store, "file"), **options) as writer:
            pytest.fail(f"{writer.url} was opened")
    assert not await is_there(store)


ENCODINGS: list[tuple[Any, str]] = [
    ("DELTA", "column 'a': unknown encoding 'DELTA'"),
    ({"a": "DELTA"}, "column 'a': unknown encoding 'DELTA'"),
    ({"c": "PLAIN"}, "there is no column 'c'"),
    ({"b": "RLE"}, "column 'b': RLE cannot hold BYTE_ARRAY values"),
    ("RLE", "RLE cannot hold"),
    ({"flag": "RLE_DICTIONARY"}, "column 'flag': RLE_DICTIONARY cannot hold BOOLEAN values"),
    ({"list.element": "PLAIN"}, "there is no column 'list.element'"),
]


@pytest.mark.parametrize(("encodings", "message"), ENCODINGS, ids=str)
async def test_encodings_are_checked_with_the_first_rows(
    store: MemoryStore, is_there: Callable[..., Awaitable[bool]], encodings: Any, message: str
) -> None:
    rows = {"a": [1], "b": ["x"], "flag": [True], "list": [[1]]}
    with pytest.raises(SchemaError, match=message) as caught:
        async with rpq.create((store, "file"), encodings=encodings) as writer:
            await writer.write(rows)
    assert caught.value.where.key == "memory:file"
    assert not await is_there(store)


async def test_encodings_by_column_and_by_path(store: MemoryStore, bytes_of: Callable[..., Awaitable[bytes]]) -> None:
    rows = {"a": [1] * 50, "b": ["x"] * 50, "flag": [True] * 50, "list": [[1, 2]] * 50, "other": [7, 8] * 25}
    encodings = {
        "a": "plain",
        "b": "RLE_DICTIONARY",
        "flag": "RLE",
        "list.list.element": "PLAIN",
        "other": "PLAIN_DICTIONARY",
    }
    async with rpq.create((store, "file"), encodings=encodings) as writer:
        await writer.write(rows)
    group = pq.read_metadata(pa.BufferReader(await bytes_of(store))).row_group(0)
    found = {group.column(i).path_in_schema: set(group.column(i).encodings) - {"RLE"} for i in range(5)}
    assert found["a"] == {"PLAIN"} and found["list.list.element"] == {"PLAIN"} and found["flag"] == set()
    assert found["b"] == {"PLAIN", "RLE_DICTIONARY"} and found["other"] == {"PLAIN_DICTIONARY"}


async def test_metadata_of_the_caller_is_in_every_footer(
    store: MemoryStore, bytes_of: Callable[..., Awaitable[bytes]]
) -> None:
    async with rpq.create((store, "file"), metadata={"who": "me", "": "empty key"}) as writer:
        await writer.write({"a": [1]})
        checkpoint = await writer.checkpoint()
    data = await bytes_of(store)
    for cut in (checkpoint.offset, len(data)):
        metadata = pq.read_metadata(pa.BufferReader(data[:cut])).metadata
        assert metadata[b"who"] == b"me" and metadata[b""] == b"empty key"
        assert metadata[b"rpq.state"] == (b"complete" if cut == len(data) else b"in-progress")


async def test_options_are_frozen() -> None:
    with pytest.raises(AttributeError):
        WriteOptions().page_rows = 5  # type: ignore[misc]


@pytest.mark.parametrize("begin", [rpq.create, rpq.resume])
async def test_parts_that_s3_would_refuse_are_refused_before_anything_is_asked(begin: Callable[..., Any]) -> None:
    async with S3Store({"endpoint_url": "http://127.0.0.1:1"}) as store:
        with pytest.raises(SchemaError, match="part_bytes is 1,048,576; parts on S3 have at least 5 MiB"):
            await begin((store, "bucket/file"), options=WriteOptions(part_bytes=1024 * 1024))
