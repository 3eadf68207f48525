"""A data set written as a stream to S3, and to a store that keeps nothing of what is not complete."""

from __future__ import annotations

import io
import random
import uuid
from collections import defaultdict
from typing import Any

import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq

SETTINGS: dict[str, Any] = {"partition_by": "p", "roll_rows": 40, "compression": "none", "max_open": 2}


def rows(start: int, stop: int) -> dict[str, list[Any]]:
    """Rows of 150 kB each: a file of 40 is more than one part of an upload."""
    numbers = list(range(start, stop))
    return {
        "n": numbers,
        "p": [f"ä {number % 2}" for number in numbers],
        "noise": [random.Random(number).randbytes(150_000) for number in numbers],
    }


@pytest.mark.parametrize(
    ("folder", "last"), [("", 20), ("a b/set/", 20), pytest.param("set", 110, marks=pytest.mark.thorough)]
)
async def test_on_s3(s3: Any, folder: str, last: int) -> None:
    """Also in a bucket itself; a sink that was thought dead is fenced, and spoils nothing."""
    url, options = s3.url(folder) if folder else f"s3://{s3.bucket}", s3.storage_options
    first = await rpq.create_dataset(url, storage_options=options, **SETTINGS)
    await first.write(rows(0, last // 2 - 5))
    checkpoint = await first.checkpoint()
    assert checkpoint.state == "stored"
    await first.write(rows(last // 2 - 5, last // 2))
    assert s3.upload_ids()
    async with rpq.resume_dataset(url, replay_from=checkpoint, storage_options=options, **SETTINGS) as second:
        stored = second.num_rows_stored_by_partition
        assert sum(stored.values()) >= checkpoint.num_rows
        assert all(stored[name] >= count for name, count in checkpoint.num_rows_by_partition.items())
        with pytest.raises((rpq.WriterFencedError, rpq.AlreadyExistsError)):
            await first.close()
        await second.write(rows(last // 2 - 5, last))
    found: dict[str, list[int]] = defaultdict(list)
    for name in sorted(s3.object_names()):
        below = name.removeprefix(folder.rstrip("/")).lstrip("/")
        found[below.partition("/")[0]] += pq.read_table(io.BytesIO(s3.read(name)))["n"].to_pylist()
    assert found == {f"p=%C3%A4%20{p}": list(range(p, last, 2)) for p in range(2)}
    assert s3.upload_ids() == []


async def test_a_store_that_keeps_nothing_unfinished() -> None:
    url = f"memory://{uuid.uuid4().hex}/set"
    first = await rpq.create_dataset(url, roll_rows=3)
    await first.write({"n": range(8)})
    assert (await first.checkpoint()).state == "accepted"
    assert first.num_rows_stored == 6
    with pytest.raises(ConnectionError):
        async with first:
            raise ConnectionError
    async with rpq.resume_dataset(url, roll_rows=3) as second:
        assert second.num_rows_stored == 6
        await second.write({"n": range(6, 8)})
    async with rpq.open_many(url) as dataset:
        assert (await dataset.read()).to_pydict()["n"] == list(range(8))
