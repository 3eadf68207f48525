"""URLs and `storage_options` as pandas users write them: the same words, the same rows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import sync as rpq


@pytest.fixture
def frames(moto_server: Any) -> list[pd.DataFrame]:
    """Two files of one schema in a folder of the bucket."""
    made = [pd.DataFrame({"n": range(start, start + 50), "s": [f"text {start}"] * 50}) for start in (0, 50)]
    for name, frame in zip("ab", made, strict=True):
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pandas(frame), out)
        body = out.getvalue()
        moto_server.client.put_object(Bucket=moto_server.bucket, Key=f"options/{name}.parquet", Body=body)
    return made


def test_as_pandas_takes_them(moto_server: Any, frames: list[pd.DataFrame], tmp_path: Path) -> None:
    inner = {
        "key": moto_server.key,
        "secret": moto_server.secret,
        "client_kwargs": {"endpoint_url": moto_server.endpoint_url},
    }
    chained = {"s3": inner, "simplecache": {"cache_storage": str(tmp_path)}}
    url = f"s3://{moto_server.bucket}/options/a.parquet"
    for one, options in ((url, inner), (f"simplecache::{url}", chained)):
        theirs = pd.read_parquet(one, storage_options=options)
        pd.testing.assert_frame_equal(theirs, frames[0])
        with rpq.open(one, storage_options=options) as file:
            pd.testing.assert_frame_equal(file.read().to_pandas(), theirs)
    assert any(tmp_path.iterdir())


def test_patterns_and_folders_behind_them(moto_server: Any, frames: list[pd.DataFrame], tmp_path: Path) -> None:
    plain = moto_server.storage_options
    chained = {"s3": plain, "simplecache": {"cache_storage": str(tmp_path)}}
    folder = f"s3://{moto_server.bucket}/options"
    both = pd.concat(frames, ignore_index=True)
    for source, options in (
        (folder, plain),
        (f"{folder}/*.parquet", plain),
        ([f"{folder}/a.parquet", f"{folder}/b.parquet"], plain),
        (f"simplecache::{folder}/*.parquet", chained),
    ):
        with rpq.open_many(source, storage_options=options) as dataset:
            found = dataset.read().to_pyarrow().to_pandas(ignore_metadata=True)
            pd.testing.assert_frame_equal(found, both)
