"""A writer to S3 killed with SIGKILL leaves the row groups that lie in its acknowledged parts before the first gap."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq

GROUP, SIZE = 64, 30_000  # about two MB, a part of 5 MiB holds two and a half row groups


def acknowledged_bytes(s3: Any, key: str, upload_id: str) -> int:
    """Bytes of the parts that the server has, up to the first that is missing."""
    sizes: dict[int, int] = {}
    for page in s3.client.get_paginator("list_parts").paginate(Bucket=s3.bucket, Key=key, UploadId=upload_id):
        for part in page.get("Parts", []):
            sizes[part["PartNumber"]] = max(part["Size"], sizes.get(part["PartNumber"], 0))
    total, number = 0, 1
    while number in sizes:
        total, number = total + sizes[number], number + 1
    return total


async def kill_and_recover(
    seed: int,
    s3: Any,
    kill_writer: Callable[..., Any],
    written_rows: Callable[[int, int], dict[str, list[Any]]],
    parse_records: Callable[[bytes], list[Any]],
    lines: int,
) -> int:
    """How many rows came back."""
    key, options = f"{seed}.parquet", s3.storage_options
    killed = kill_writer(seed, s3.url(key), storage_options=options, group=GROUP, size=SIZE, lines=lines)
    assert key not in s3.object_names()
    promised = max(killed.rows("stored"), killed.rows("checkpoint", "stored"))
    uploads = await rpq.list_uploads(s3.url(key), storage_options=options)
    if not uploads or not acknowledged_bytes(s3, key, uploads[0].upload_id):
        assert promised == 0
        with pytest.raises((rpq.NotFoundError, rpq.RecoveryError)):
            await rpq.complete_upload(s3.url(key), storage_options=options)
        return 0
    assert [upload.key.removeprefix(f"{s3.bucket}/") for upload in uploads] == [key]
    stored = acknowledged_bytes(s3, key, uploads[0].upload_id)
    info = await rpq.complete_upload(s3.url(key), storage_options=options)
    torn = s3.read(key)
    assert info.size == len(torn) == stored
    whole = [record for record in parse_records(torn) if record.kind in (2, 3)]
    wanted = max((record.num_rows for record in whole), default=0)
    assert wanted >= promised
    with pytest.raises(rpq.TornFileError):
        async with rpq.open(s3.url(key), storage_options=options):
            pass
    output = f"{seed}.recovered.parquet"
    report = await rpq.recover(s3.url(key), s3.url(output), storage_options=options)
    assert report.num_rows == wanted
    assert pq.read_table(io.BytesIO(s3.read(output))).to_pydict() == written_rows(wanted, SIZE)
    return wanted


async def test_killed_at_a_random_moment(
    s3: Any, kill_writer: Any, written_rows: Any, parse_records: Any
) -> None:
    rows = [
        await kill_and_recover(seed, s3, kill_writer, written_rows, parse_records, lines)
        for seed, lines in enumerate((1, 9, 21))
    ]
    assert any(rows)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
async def test_killed_twenty_times(s3: Any, kill_writer: Any, written_rows: Any, parse_records: Any) -> None:
    rng = random.Random(1)
    rows = [
        await kill_and_recover(seed, s3, kill_writer, written_rows, parse_records, rng.randrange(45))
        for seed in range(100, 120)
    ]
    assert sum(map(bool, rows)) >= 10
