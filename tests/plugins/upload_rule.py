"""The rule by which anyone can complete an upload, in plain botocore: an oracle that shares no code with us."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from resilient_pq.units import MiB


def parts_by_the_rule(parts: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]] | None:
    """The parts to complete, each a number, a size and an ETag; None where the upload holds no checkpoint.

    Of each number the largest version counts; parts 1, 2, ... up to and including the first whose size is not a whole
    number of MiB.
    """
    largest: dict[int, tuple[int, int, str]] = {}
    for number, size, etag in parts:
        if number not in largest or size > largest[number][1]:
            largest[number] = (number, size, etag)
    chosen: list[tuple[int, int, str]] = []
    while (part := largest.get(len(chosen) + 1)) is not None:
        chosen.append(part)
        if part[1] % MiB:
            return chosen
    return None


def complete(s3: Any, key: str, upload_id: str) -> bytes | None:
    """Complete an upload, past any proxy; gives the object, or None where the upload holds no checkpoint."""
    upload = {"Bucket": s3.bucket, "Key": key, "UploadId": upload_id}
    pages = s3.client.get_paginator("list_parts").paginate(**upload)
    listed = [(part["PartNumber"], part["Size"], part["ETag"]) for page in pages for part in page.get("Parts", [])]
    chosen = parts_by_the_rule(listed)
    if chosen is None:
        return None
    named = [{"PartNumber": number, "ETag": etag} for number, _, etag in chosen]
    s3.client.complete_multipart_upload(**upload, MultipartUpload={"Parts": named})
    data: bytes = s3.read(key)
    assert len(data) == sum(size for _, size, _ in chosen)
    return data


@pytest.fixture(scope="session")
def chosen_by_the_rule() -> Callable[..., Any]:
    """`parts_by_the_rule`: of parts as (number, size, ETag), those to complete, or None."""
    return parts_by_the_rule


@pytest.fixture(scope="session")
def complete_by_the_rule() -> Callable[..., Any]:
    """`complete`: given an S3, a key and an upload id, completes and gives the object's bytes, or None."""
    return complete
