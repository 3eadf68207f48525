"""`compact` on S3 servers: large chunks are copied by the store itself, and what it says is what happened."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import resilient_pq as rpq


async def test_the_store_copies_what_lies_within_its_parts(
    seaweedfs: Any, empty_bucket: Any, http_proxy: Callable[[str], Any]
) -> None:
    with empty_bucket(seaweedfs) as bucket:
        proxy = http_proxy(bucket.endpoint_url)
        await compact_by(replace(bucket, endpoint_url=proxy.endpoint_url), proxy)


async def compact_by(s3: Any, proxy: Any) -> None:
    tables = []
    for at in range(2):
        noise = np.random.default_rng(at).random(1000 if at else 1_500_000)
        tables.append(pa.table({"id": np.arange(len(noise)) + at * 2_000_000, "noise": noise}))
        sink = io.BytesIO()
        pq.write_table(tables[-1], sink, use_dictionary=False, compression="none", row_group_size=1 << 30)
        s3.client.put_object(Bucket=s3.bucket, Key=f"src/{at}.parquet", Body=sink.getvalue())
    options = {"storage_options": s3.storage_options}
    plan = await rpq.compact(s3.url("src/"), s3.url("dst/"), dry_run=True, **options)
    done = await rpq.compact(s3.url("src/"), s3.url("dst/"), **options)
    copies = [request for request in proxy.requests if "x-amz-copy-source" in request.headers]
    assert len(copies) * 5 * 2**20 == done.bytes_by_store > 0
    assert abs(plan.bytes_by_store - done.bytes_by_store) <= 10 * 2**20
    assert plan.bytes_by_store + plan.bytes_copied == done.bytes_by_store + done.bytes_copied
    report = await rpq.check(done.urls[0], **options)
    assert report.outcome == "sound"
    name = done.urls[0].removeprefix(s3.url(""))
    data = s3.client.get_object(Bucket=s3.bucket, Key=name)["Body"].read()
    assert pq.read_table(io.BytesIO(data)).equals(pa.concat_tables(tables))
