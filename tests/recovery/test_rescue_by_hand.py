"""The guide tells how to rescue an upload without this package: its blocks do so, on two servers."""

from __future__ import annotations

import base64
import builtins
import io
import json
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "write-to-s3.md"
Crash = Callable[[str], Any]


def block(opening: str) -> str:
    (found,) = re.findall(rf"^```{opening}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


PART_BYTES = 5 * 1024 * 1024


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def assert_rescued(s3: Any, left: Any) -> None:
    found = s3.read(left.name)
    assert found == left.stored
    assert pq.read_table(io.BytesIO(found)).num_rows == left.num_rows
    assert s3.upload_ids() == []


@pytest.fixture
def rescue_with_boto3(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Runs the block as it stands there, but for the names and the size of a page of parts; gives the parts named."""
    import boto3

    made = boto3.client
    named: list[Any] = []

    def client(*args: Any, page: int, **kwargs: Any) -> Any:
        found = made(*args, **kwargs)
        on = found.meta.events.register
        on("before-parameter-build.s3.ListParts", lambda params, **_: params.update(MaxParts=page))
        completing = "before-parameter-build.s3.CompleteMultipartUpload"
        on(completing, lambda params, **_: named.extend(params["MultipartUpload"]["Parts"]))
        return found

    def rescue(name: str, *, page: int = 1000, endpoint_url: str = s3.endpoint_url) -> list[Any]:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint_url)
        monkeypatch.setattr(boto3, "client", lambda *args, **kwargs: client(*args, page=page, **kwargs))
        source = replaced(
            block("python no-run boto3"),
            'BUCKET, KEY = "bucket", "day.parquet"',
            f'BUCKET, KEY = "{s3.bucket}", "{name}"',
        )
        exec(compile(source, str(GUIDE), "exec"), {"__builtins__": builtins})
        return named

    return rescue


def checksum_of(data: bytes, number: int, size: int) -> str:
    start = (number - 1) * PART_BYTES
    return base64.b64encode(zlib.crc32(data[start : start + size]).to_bytes(4, "big")).decode()


def assert_named_with_checksums(named: list[Any], left: Any) -> None:
    sizes = [PART_BYTES, PART_BYTES, len(left.stored) - 2 * PART_BYTES]
    expected = [(number, checksum_of(left.stored, number, size)) for number, size in enumerate(sizes, 1)]
    assert [(part["PartNumber"], part["ChecksumCRC32"]) for part in named] == expected
    assert all(part["ETag"].strip('"') for part in named)


@pytest.mark.parametrize("page", [1000, 2])
def test_with_boto3(s3: Any, crash: Crash, rescue_with_boto3: Callable[..., list[Any]], page: int) -> None:
    left = crash("day.parquet")
    s3.client.create_multipart_upload(Bucket=s3.bucket, Key="day.parquet.other")
    rescue_with_boto3("day.parquet", page=page)
    s3.client.abort_multipart_upload(Bucket=s3.bucket, Key="day.parquet.other", UploadId=s3.upload_ids()[0])
    assert_rescued(s3, left)


async def test_with_boto3_what_our_own_writer_left(
    s3: Any, write_and_fail: Callable[[str], Any], rescue_with_boto3: Callable[..., list[Any]]
) -> None:
    failed = await write_and_fail("day.parquet")
    rescue_with_boto3("day.parquet", page=2)
    assert_rows(s3, failed)


@pytest.mark.thorough
async def test_with_the_aws_command_line_what_our_own_writer_left(
    s3: Any, write_and_fail: Callable[[str], Any], rescue_with_aws: Callable[..., int]
) -> None:
    failed = await write_and_fail("day.parquet")
    assert rescue_with_aws("day.parquet") == 0
    assert_rows(s3, failed)


def assert_rows(s3: Any, failed: Any) -> None:
    found = s3.read("day.parquet")
    assert len(found) == failed.num_bytes
    numbers = pq.read_table(io.BytesIO(found), columns=["number"])["number"].to_pylist()
    assert numbers == list(range(failed.num_rows))


def test_with_boto3_nothing_is_replaced_and_nothing_made_up(
    s3: Any, crash: Crash, rescue_with_boto3: Callable[..., list[Any]]
) -> None:
    left = crash("day.parquet")
    s3.client.put_object(Bucket=s3.bucket, Key="day.parquet", Body=b"another")
    with pytest.raises(s3.client.exceptions.ClientError, match="PreconditionFailed"):
        rescue_with_boto3("day.parquet")
    assert s3.read("day.parquet") == b"another"
    place = {"Bucket": s3.bucket, "Key": "gap.parquet"}
    upload_id = s3.client.create_multipart_upload(**place)["UploadId"]
    s3.client.upload_part(**place, UploadId=upload_id, PartNumber=2, Body=left.stored[:1000])
    with pytest.raises(KeyError):
        rescue_with_boto3("gap.parquet")


def test_with_boto3_the_checksums_that_are_listed_are_named(
    s3: Any, crash: Crash, rescue_with_boto3: Callable[..., list[Any]], listing_checksums: Any
) -> None:
    left = crash("day.parquet")
    assert_named_with_checksums(rescue_with_boto3("day.parquet", endpoint_url=listing_checksums.endpoint_url), left)
    assert_rescued(s3, left)


@pytest.fixture
def rescue_with_aws(s3: Any, tmp_path: Path) -> Callable[..., int]:
    """Runs the block with sh, and gives its exit status."""
    aws = os.environ.get("RPQ_AWS") or shutil.which("aws")
    if aws is None:
        pytest.skip("the AWS command line is missing: set RPQ_AWS, or pip install awscli into another venv")

    def rescue(name: str, *, page: int = 1000, endpoint_url: str = s3.endpoint_url) -> int:
        source = replaced(block("bash"), "BUCKET=bucket KEY=day.parquet", f"BUCKET={s3.bucket} KEY={name}")
        source = replaced(source, "s3api list-parts", f"s3api list-parts --page-size {page}")
        environment = {
            **os.environ,
            "PATH": f"{Path(aws).parent}{os.pathsep}{os.environ['PATH']}",
            "AWS_ENDPOINT_URL": endpoint_url,
        }
        done = subprocess.run(
            ["sh", "-c", source],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        print(done.stdout, done.stderr)
        return done.returncode

    return rescue


@pytest.mark.thorough
def test_with_the_aws_command_line(s3: Any, crash: Crash, rescue_with_aws: Callable[..., int]) -> None:
    left = crash("day.parquet")
    assert rescue_with_aws("day.parquet") == 0
    assert_rescued(s3, left)


@pytest.mark.thorough
def test_with_the_aws_command_line_page_by_page(s3: Any, crash: Crash, rescue_with_aws: Callable[..., int]) -> None:
    left = crash("day.parquet")
    assert rescue_with_aws("day.parquet", page=2) == 0
    if s3.server == "moto":
        assert_rescued(s3, left)
    else:  # it lists both versions of the third part, in any order, and a page ends between them
        found = s3.read("day.parquet")
        assert left.stored.startswith(found)
        assert 0 < pq.read_table(io.BytesIO(found)).num_rows <= left.num_rows


@pytest.mark.thorough
def test_with_the_aws_command_line_nothing_is_made_up(
    s3: Any, crash: Crash, rescue_with_aws: Callable[..., int]
) -> None:
    left = crash("day.parquet")
    s3.client.put_object(Bucket=s3.bucket, Key="day.parquet", Body=b"another")
    assert rescue_with_aws("day.parquet") != 0
    assert s3.read("day.parquet") == b"another" and s3.upload_ids() == [left.upload_id]
    place = {"Bucket": s3.bucket, "Key": "gap.parquet"}
    upload_id = s3.client.create_multipart_upload(**place)["UploadId"]
    s3.client.upload_part(**place, UploadId=upload_id, PartNumber=2, Body=left.stored[:1000])
    assert rescue_with_aws("gap.parquet") != 0
    assert s3.object_names() == ["day.parquet"]


@pytest.mark.thorough
def test_with_the_aws_command_line_the_checksums_that_are_listed_are_named(
    s3: Any, crash: Crash, rescue_with_aws: Callable[..., int], listing_checksums: Any, tmp_path: Path
) -> None:
    left = crash("day.parquet")
    assert rescue_with_aws("day.parquet", endpoint_url=listing_checksums.endpoint_url) == 0
    assert_named_with_checksums(json.loads((tmp_path / "parts.json").read_text())["Parts"], left)
    assert_rescued(s3, left)
