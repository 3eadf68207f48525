"""Many files on S3: prefixes and patterns, copies within the store, few requests for small objects."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import resilient_pq as rpq
from resilient_pq.io import S3Store
from resilient_pq.io.transfer.retry import NO_RETRIES
from resilient_pq.units import MiB


def put(s3: Any, files: Any, count: int) -> dict[str, str | None]:
    ways = {}
    for number in range(count):
        s3.client.put_object(Bucket=s3.bucket, Key=f"in/{files.name_of(number)}", Body=files.data_of(number))
        ways[files.name_of(number)] = files.way_of(number)
    return ways


def body(s3: Any, name: str) -> bytes:
    found: bytes = s3.client.get_object(Bucket=s3.bucket, Key=name)["Body"].read()
    return found


async def test_a_prefix_and_a_pattern(s3: Any, files: Any, tmp_path: Path) -> None:
    ways = put(s3, files, 14)
    s3.client.put_object(Bucket=s3.bucket, Key="in2/part.parquet", Body=files.sound[0])
    s3.client.put_object(Bucket=s3.bucket, Key="in/_SUCCESS", Body=b"")
    reached: dict[str, Any] = {"storage_options": s3.storage_options}
    expected = {s3.url(f"in/{name}"): "sound" if way is None else files.ways[way].check for name, way in ways.items()}
    async with rpq.check_many(s3.url("in"), **reached) as checking:
        assert {each.url: each.outcome async for each in checking} == expected
    pattern = s3.url("in/**/part-0000[0-4].parquet")
    async with rpq.check_many(pattern, **reached) as checking:
        assert {each.url async for each in checking} == {s3.url(f"in/{files.name_of(number)}") for number in range(5)}
    with pytest.raises(rpq.NotFoundError):
        await rpq.check_many(s3.url("none/"), **reached).finish()

    journal = tmp_path / "journal"
    async with rpq.recover_many(s3.url("in/"), s3.url("out/"), resume=journal, **reached) as recovering:
        async for _ in recovering:
            break
    summary = await rpq.recover_many(s3.url("in"), s3.url("out"), resume=journal, **reached).finish()
    assert summary.num_resumed >= 1 and summary.num_files == 14
    assert summary.num_rows == sum(400 if way is None else files.ways[way].num_rows for way in ways.values())
    for name, way in ways.items():
        if way is None:
            assert body(s3, f"out/{name}") == body(s3, f"in/{name}")
    with pytest.raises(rpq.RecoveryError, match="among what is read"):
        rpq.recover_many(s3.url("in/"), s3.url("in/saved/"), **reached)
    local = await rpq.recover_many(s3.url("in/"), tmp_path / "here", only_damaged=True, **reached).finish()
    assert local.outcomes == summary.outcomes


async def test_a_small_sound_object_costs_one_get(s3_proxy: Any, files: Any) -> None:
    s3, proxy = s3_proxy
    for number in range(6):
        s3.client.put_object(Bucket=s3.bucket, Key=f"in/{number}.parquet", Body=files.sound[number % 2])
    proxy.requests.clear()
    async with S3Store(s3.storage_options, retry=NO_RETRIES) as store:  # nor hedging, where a machine is busy
        await rpq.check_many((store, f"{s3.bucket}/in/")).finish()
    asked = [request for request in proxy.requests if request.method in ("GET", "HEAD")]
    assert len([request for request in asked if "list-type" in request.target]) == 1
    assert len(asked) == 7


@pytest.mark.thorough
async def test_a_large_sound_object_is_copied_by_the_store(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    noise = pa.table({"noise": pa.array([random.Random(i).randbytes(MiB) for i in range(12)], pa.binary())})
    reached: dict[str, Any] = {"storage_options": s3.storage_options}
    async with rpq.create(s3.url("in/large.parquet"), row_group_rows=4, compression="none", **reached) as writer:
        await writer.write(noise)
    proxy.requests.clear()
    summary = await rpq.recover_many(s3.url("in/"), s3.url("out/"), **reached).finish()
    assert summary.outcomes == {"sound": 1}
    copies = [request for request in proxy.requests if "x-amz-copy-source" in request.headers]
    assert copies, "the bytes of parts do not pass through here"
    assert body(s3, "out/large.parquet") == body(s3, "in/large.parquet")


@pytest.mark.thorough
async def test_what_a_killed_recovery_left_on_s3_is_removed(s3: Any, files: Any, tmp_path: Path) -> None:
    """Its upload has the key of an output that the journal says was begun; another's has not."""
    put(s3, files, 5)
    reached: dict[str, Any] = {"storage_options": s3.storage_options}
    journal = tmp_path / "journal"
    await rpq.recover_many(s3.url("in/"), s3.url("out/"), resume=journal, **reached).finish()
    lines = journal.read_text().splitlines(keepends=True)
    begun = [line for line in lines if '"entry"' not in line and files.name_of(2) in line]
    journal.write_text(lines[0] + begun[0])
    async with S3Store(s3.storage_options) as store:
        mine, other = f"{s3.bucket}/out/{files.name_of(2)}", f"{s3.bucket}/out/{files.name_of(2)}.other"
        for key in (mine, other):
            await store.create_upload(key)
        for number in (0, 1, 3, 4):
            await store.delete(f"{s3.bucket}/out/{files.name_of(number)}")
        summary = await rpq.recover_many(s3.url("in/"), s3.url("out/"), resume=journal, **reached).finish()
        assert summary.outcomes == {"partial": 1, "sound": 4}
        assert [upload.key for upload in await store.list_uploads(f"{s3.bucket}/out/")] == [other]
