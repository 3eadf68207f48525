"""What the tests of `resilient_pq.dask` share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest


@pytest.fixture
def s3_of_workers(seaweedfs: Any) -> Iterator[Any]:
    """A bucket on the server that is a process of its own."""
    bucket = f"rpq-{uuid.uuid4().hex[:16]}"
    seaweedfs.client.create_bucket(Bucket=bucket)
    found = replace(seaweedfs, bucket=bucket)
    yield found
    for upload in seaweedfs.client.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
        seaweedfs.client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    for name in found.object_names():
        seaweedfs.client.delete_object(Bucket=bucket, Key=name)
    seaweedfs.client.delete_bucket(Bucket=bucket)
