"""Recovering an object whose end is lost moves its end, and not the rest of it: counted at the server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from ledger_check import check_ledger

import resilient_pq as rpq
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Confidence

MB = 1_000_000
#: Parts of an upload, as they are by default.
PART = 5 * 2**20
COLUMNS = 4


@dataclass(frozen=True)
class Cut:
    """An object whose last part is missing."""

    name: str  # Its name in the bucket
    size: int  # Its bytes
    rows: dict[str, Any]  # Those of each row group
    num_row_groups: int  # How many were written


pytestmark = pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")


@pytest.fixture
def seaweedfs_counted(seaweedfs: Any, http_proxy: Any) -> Iterator[Any]:
    """A server that is quick with large objects, past the counting proxy, and afterwards without them."""
    proxy = http_proxy(seaweedfs.endpoint_url)
    yield replace(seaweedfs, endpoint_url=proxy.endpoint_url), proxy
    for name in ("whole", "cut", "out"):
        seaweedfs.client.delete_object(Bucket=seaweedfs.bucket, Key=name)


async def cut_object(s3: Any, num_bytes: int, row_group_bytes: int) -> Cut:
    """Noise, written past the proxy, and then copied by the server without the last part."""
    noise = np.random.default_rng(7)
    num_rows, num_row_groups = row_group_bytes // (8 * COLUMNS), num_bytes // row_group_bytes
    rows = {f"x{i}": noise.random(num_rows) for i in range(COLUMNS)}
    direct = {**s3.storage_options, "endpoint_url": s3.client.meta.endpoint_url}
    async with rpq.create(
        s3.url("whole"), compression="none", encodings="PLAIN", row_group_rows=num_rows, storage_options=direct
    ) as writer:
        for _ in range(num_row_groups):
            await writer.write(rows)
    client, place = s3.client, {"Bucket": s3.bucket, "Key": "cut"}
    written = client.head_object(Bucket=s3.bucket, Key="whole")["ContentLength"]
    size = (written - 1) // PART * PART
    upload = {**place, "UploadId": client.create_multipart_upload(**place)["UploadId"]}
    source = {"Bucket": s3.bucket, "Key": "whole"}
    parts = []
    for number, start in enumerate(range(0, size, 40 * PART), start=1):
        span = f"bytes={start}-{min(start + 40 * PART, size) - 1}"
        copied = client.upload_part_copy(**upload, PartNumber=number, CopySource=source, CopySourceRange=span)
        parts.append({"PartNumber": number, "ETag": copied["CopyPartResult"]["ETag"]})
    client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    client.delete_object(Bucket=s3.bucket, Key="whole")
    return Cut("cut", size, rows, num_row_groups)


async def recover(s3: Any, proxy: Any, cut: Cut, **options: Any) -> tuple[rpq.Report, int]:
    """The report of a recovery, and how many bytes of bodies it moved."""
    before = proxy.num_bytes_moved
    open_before = set(s3.upload_ids())  # others share the bucket
    report = await rpq.recover(
        s3.url(cut.name), s3.url("out"), overwrite=True, storage_options=s3.storage_options, **options
    )
    assert set(s3.upload_ids()) <= open_before
    return report, proxy.num_bytes_moved - before


async def keeps_all_but_the_last(s3: Any, cut: Cut, report: rpq.Report) -> None:
    """Hold that all whole row groups are in the output, unchanged, and that it says what it is."""
    assert report.outcome is rpq.Outcome.PARTIAL and report.kept is not None
    num_rows = len(cut.rows["x0"])
    assert report.num_rows >= num_rows * (cut.num_row_groups - 1 - PART // (8 * COLUMNS * num_rows))
    direct = {**s3.storage_options, "endpoint_url": s3.client.meta.endpoint_url}
    checked = await rpq.check(s3.url("out"), storage_options=direct)
    assert checked.num_rows == report.num_rows
    assert [finding.damage for finding in checked.findings] == [rpq.Damage.UNFINISHED]
    async with rpq.open(s3.url("out"), storage_options=direct) as file:
        for row_group in (0, report.num_row_groups - 1):
            (values,) = (await file.read(columns=["x1"], row_groups=[row_group])).to_pydict().values()
            assert values == cut.rows["x1"][: len(values)].tolist()


async def test_the_end_is_read_and_the_rest_is_copied(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    cut = await cut_object(s3, 24 * MB, MB)
    report, moved = await recover(s3, proxy, cut)
    assert moved < 7 * MB
    assert report.kept is not None and report.kept.num_bytes_unread > 18 * MB
    ledger = report.kept.ledger
    assert ledger is not None and check_ledger(ledger) == []
    copied = [region for region in ledger.regions if region.confidence is Confidence.UNREAD]
    assert sum(region.size for region in copied if region.use is ByteUse.DATA) > 18 * MB
    await keeps_all_but_the_last(s3, cut, report)


@pytest.mark.parametrize(
    "verify", [pytest.param(True, id="wanted", marks=pytest.mark.thorough), pytest.param(False, id="refused")]
)
async def test_data_are_read_where_that_is_wanted_or_the_store_will_not_copy(
    seaweedfs_counted: Any, verify: bool
) -> None:
    """Then what is damaged in them is found: nothing is kept that was neither copied by the store nor compared."""
    s3, proxy = seaweedfs_counted
    cut = await cut_object(s3, 12 * MB, MB)
    data = bytearray(s3.read(cut.name))
    data[2 * MB + 12_345] ^= 1
    s3.client.put_object(Bucket=s3.bucket, Key=cut.name, Body=bytes(data))
    if not verify:
        proxy.on("PUT", match="partNumber=1", status=403)
    report, moved = await recover(s3, proxy, cut, verify=verify)
    assert report.kept is not None and report.kept.num_bytes_unread == 0
    assert moved > cut.size
    assert any(finding.where.row_group == 2 for finding in report.findings)
    direct = {**s3.storage_options, "endpoint_url": s3.client.meta.endpoint_url}
    checked = await rpq.check(s3.url("out"), storage_options=direct)
    assert [finding.damage for finding in checked.findings] == [rpq.Damage.UNFINISHED]


@pytest.mark.thorough
async def test_of_two_gigabytes(seaweedfs_counted: Any) -> None:
    s3, proxy = seaweedfs_counted
    cut = await cut_object(s3, 2000 * MB, 8 * MB)
    report, moved = await recover(s3, proxy, cut)
    assert moved < 20 * MB
    assert report.kept is not None and report.kept.num_bytes_unread > 1900 * MB
    await keeps_all_but_the_last(s3, cut, report)
