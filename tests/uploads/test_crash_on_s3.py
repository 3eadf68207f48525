"""On real servers too: a writer that crashed after any of its requests leaves what the rule completes to its promise."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.io.s3.s3_store import S3Store
from resilient_pq.io.transfer.retry import NO_RETRIES
from resilient_pq.units import MiB


@pytest.fixture
def crash(
    s3_proxy: Any,
    random_batches: Callable[..., Any],
    rows_promised: Callable[[Any], int],
    complete_by_the_rule: Callable[..., Any],
) -> Callable[..., Any]:
    """Writes until so many requests that change something have passed, and completes what is left."""
    s3, proxy = s3_proxy

    async def run(seed: int, requests: int) -> bool:
        """Whether the writer crashed; otherwise it was done before."""
        rng = random.Random(seed)
        key = f"{seed} {requests}"
        tables: list[pa.Table] = []
        promised = 0
        proxy.refuse_after(requests)
        async with S3Store(s3.storage_options, retry=NO_RETRIES) as store:
            with contextlib.suppress(rpq.ResilientPQError):
                async with rpq.create(
                    (store, f"{s3.bucket}/{key}"),
                    compression="none",
                    row_group_bytes=rng.choice((2 * MiB, 7 * MiB)),
                    checkpoint_every=rng.choice((None, 2)),
                    checkpoint_overhead=100.0,
                    parity="5%" if seed % 2 else None,
                    options=rpq.WriteOptions(part_bytes=5 * MiB, max_bytes_in_flight=15 * MiB),
                ) as writer:
                    for table in random_batches(rng, 20 * MiB):
                        tables.append(table)
                        await writer.write(table)
                        promised = max(promised, rows_promised(writer))
                        if rng.random() < 0.4:
                            assert (await writer.checkpoint()).num_rows == rows_promised(writer)
                            promised = rows_promised(writer)
        for upload_id in s3.upload_ids():
            if key in s3.object_names() or complete_by_the_rule(s3, key, upload_id) is None:
                s3.client.abort_multipart_upload(Bucket=s3.bucket, Key=key, UploadId=upload_id)
        if key not in s3.object_names():
            assert promised == 0
            return proxy.refused
        found = pq.read_table(io.BytesIO(s3.read(key)))
        assert found.equals(pa.concat_tables(tables).slice(0, found.num_rows).combine_chunks())
        assert found.num_rows >= promised
        return proxy.refused

    return run


async def test_a_crash_after_some_request(crash: Callable[..., Any]) -> None:
    """Of a file with parity, as with all odd seeds."""
    for requests in (2, 6):
        assert await crash(1, requests)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 6))
async def test_a_crash_after_every_request(seed: int, crash: Callable[..., Any]) -> None:
    requests = 0
    while await crash(seed, requests):
        requests += 1
    assert requests > 10
