"""Uploads that were left open: found, described, completed and aborted, on two servers."""

from __future__ import annotations

import asyncio
import io
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from parts_in_memory import PartStore

import resilient_pq as rpq
from resilient_pq.io import MemoryStore, ObjectInfo, Part, find_epoch
from resilient_pq.units import MiB
from resilient_pq.writer.checkpoint_log import CheckpointLog

Crash = Callable[..., Any]


async def begun(store: MemoryStore, key: str, *sizes: int, first: int = 1) -> str:
    """An upload with parts of these sizes."""
    upload_id = await store.create_upload(key)
    for number, size in enumerate(sizes, start=first):
        await store.put_part(key, upload_id, number, bytes(size))
    return upload_id


class TestOnServers:
    async def test_what_a_killed_writer_left_becomes_a_file(self, s3: Any, crash: Crash) -> None:
        left, options = crash("day.parquet"), s3.storage_options
        (upload,) = await rpq.list_uploads(s3.url("day.parquet"), storage_options=options)
        assert (upload.url, upload.key) == (s3.url("day.parquet"), f"{s3.bucket}/day.parquet")
        assert (upload.upload_id, upload.num_parts, upload.num_bytes) == (left.upload_id, 4, left.num_bytes)
        assert (upload.stored_bytes, upload.fits_rule, upload.gap) == (len(left.stored), True, None)
        assert upload.bytes_behind == 5 * MiB
        done = await rpq.complete_upload(upload.url, storage_options=options)
        assert (done.how, done.num_parts, done.bytes_dropped) == ("rule", 3, 5 * MiB)
        assert (done.size, done.next) == (len(left.stored), (("rpq", "check", upload.url),))
        found = s3.read("day.parquet")
        assert found == left.stored
        assert pq.read_table(io.BytesIO(found))["number"].to_pylist() == list(range(left.num_rows))
        assert await rpq.list_uploads(upload.url, storage_options=options) == []

    async def test_what_our_own_writer_left_becomes_a_file(
        self, s3: Any, write_and_fail: Callable[..., Any], tmp_path: Path
    ) -> None:
        options, url = s3.storage_options, s3.url("the day.parquet")
        failed = await write_and_fail("the day.parquet", tmp_path / "log")
        (upload,) = await rpq.list_uploads(url, log=tmp_path / "log", storage_options=options)
        assert upload.num_rows == failed.num_rows
        (note,) = [note for note in failed.notes if "rpq uploads complete" in note]
        reached = ["--endpoint-url", s3.endpoint_url]
        command = ["rpq", "uploads", "complete", url, "--upload-id", upload.upload_id, *reached]
        assert shlex.split(note[note.index("rpq uploads") :]) == command
        assert (upload.fits_rule, upload.stored_bytes) == (True, failed.num_bytes)
        done = await rpq.complete_upload(url, storage_options=options)
        assert (done.how, done.size) == ("rule", failed.num_bytes)
        found = pq.read_table(io.BytesIO(s3.read("the day.parquet")), columns=["number"])
        assert found["number"].to_pylist() == list(range(failed.num_rows))

    async def test_no_data_is_moved(self, s3_proxy: Any, crash: Crash) -> None:
        s3, proxy = s3_proxy
        crash("day.parquet")
        await rpq.complete_upload(s3.url("day.parquet"), storage_options=s3.storage_options)
        assert proxy.count("PUT") == 0
        read = [each.target for each in proxy.requests if each.method == "GET"]
        assert all("upload" in target or target.endswith("/_day.parquet.rpq-epoch") for target in read)
        assert sum(each.size for each in proxy.requests) < 10_000

    async def test_below_a_bucket_a_prefix_and_a_key(self, s3: Any) -> None:
        options = s3.storage_options
        for name in ("a/1", "a/10", "b"):
            s3.client.create_multipart_upload(Bucket=s3.bucket, Key=name)

        async def names(url: str) -> list[str]:
            found = await rpq.list_uploads(url, storage_options=options)
            return sorted(each.key.removeprefix(f"{s3.bucket}/") for each in found)

        assert await names(f"s3://{s3.bucket}") == await names(f"s3://{s3.bucket}/") == ["a/1", "a/10", "b"]
        assert await names(s3.url("a/")) == ["a/1", "a/10"]
        assert await names(s3.url("b")) == ["b"]
        assert await names(s3.url("c")) == []
        info = await rpq.resume_info(s3.url("a/1"), storage_options=options)
        assert [each.url for each in info.uploads] == [s3.url("a/1")]

    async def test_checksums_that_are_listed_are_named(self, listing_checksums: Any, crash: Crash) -> None:
        """S3 refuses an upload with composite checksums otherwise, and SeaweedFS does so, too."""
        s3, left = listing_checksums, crash("day.parquet", "COMPOSITE")
        await rpq.complete_upload(s3.url("day.parquet"), upload_id=left.upload_id, storage_options=s3.storage_options)
        assert s3.read("day.parquet") == left.stored

    async def test_an_object_at_the_key_is_replaced_only_when_asked(self, s3: Any, crash: Crash) -> None:
        left, options = crash("day.parquet"), s3.storage_options
        s3.client.put_object(Bucket=s3.bucket, Key="day.parquet", Body=b"another")
        with pytest.raises(rpq.AlreadyExistsError, match="an object of 7 bytes already"):
            await rpq.complete_upload(s3.url("day.parquet"), storage_options=options)
        assert s3.read("day.parquet") == b"another" and s3.upload_ids() == [left.upload_id]
        await rpq.complete_upload(s3.url("day.parquet"), overwrite=True, storage_options=options)
        assert s3.read("day.parquet") == left.stored

    async def test_an_object_that_came_meanwhile_stays(self, s3_proxy: Any, crash: Crash) -> None:
        """HEAD said there is none; the store itself decides when it completes."""
        s3, proxy = s3_proxy
        left = crash("day.parquet")

        def late(head: bytes, body: bytes) -> tuple[bytes, bytes]:
            s3.client.put_object(Bucket=s3.bucket, Key="day.parquet", Body=b"another")
            return head, body

        proxy.on("GET", match="uploadId", edit=late)
        with pytest.raises(rpq.AlreadyExistsError):
            await rpq.complete_upload(
                s3.url("day.parquet"), upload_id=left.upload_id, storage_options=s3.storage_options
            )
        assert s3.read("day.parquet") == b"another"

    async def test_a_writer_that_is_alive(self, s3_proxy: Any, crash: Crash, committed_file: Any) -> None:
        """Its next PUT comes between the listing and the completion."""
        s3, proxy = s3_proxy
        left = crash("day.parquet")

        def put(head: bytes, body: bytes) -> tuple[bytes, bytes]:
            full = committed_file.data[10 * MiB : 15 * MiB]
            s3.client.upload_part(Bucket=s3.bucket, Key="day.parquet", UploadId=left.upload_id, PartNumber=3, Body=full)
            return head, body

        proxy.on("GET", match=f"uploadId={left.upload_id}", edit=put)
        completing = rpq.complete_upload(
            s3.url("day.parquet"), upload_id=left.upload_id, storage_options=s3.storage_options
        )
        if s3.server == "seaweedfs":  # it keeps every version of a part, and takes the one that is named
            await completing
            assert s3.read("day.parquet") == left.stored
            return
        with pytest.raises(rpq.RecoveryError, match="a writer seems to be alive"):
            await completing
        assert s3.object_names() == []
        assert s3.upload_ids() == [left.upload_id]

    async def test_a_strangers_upload_goes_as_far_as_its_parts(self, s3: Any, committed_file: Any) -> None:
        data, options = committed_file.data, s3.storage_options
        place = {"Bucket": s3.bucket, "Key": "day.parquet"}
        upload_id = s3.client.create_multipart_upload(**place)["UploadId"]
        size = 6_000_000
        for number in (1, 2, 3, 5):
            part = data[(number - 1) * size : number * size]
            s3.client.upload_part(**place, UploadId=upload_id, PartNumber=number, Body=part)
        (upload,) = await rpq.list_uploads(s3.url(""), storage_options=options)
        assert (upload.fits_rule, upload.gap_free_bytes, upload.gap) == (False, 3 * size, 4)
        done = await rpq.complete_upload(s3.url("day.parquet"), storage_options=options)
        assert (done.how, done.size, done.num_parts) == ("gap-free", 3 * size, 3)
        assert s3.read("day.parquet") == data[: 3 * size]
        ((_, verb, src, dst),) = done.next
        assert verb == "recover"
        report = await rpq.recover(src, dst, storage_options=options)
        assert report.num_rows == max(rows for end, rows in committed_file.ends if end <= 3 * size)

    async def test_aborted(self, s3: Any) -> None:
        options = s3.storage_options
        ids = [s3.client.create_multipart_upload(Bucket=s3.bucket, Key=name)["UploadId"] for name in ("a", "a", "b")]
        with pytest.raises(rpq.RecoveryError, match="several uploads") as caught:
            await rpq.abort_upload(s3.url("a"), storage_options=options)
        assert caught.value.hint is not None and ids[0] in caught.value.hint
        assert await rpq.abort_upload(s3.url("a"), upload_id=ids[0], storage_options=options) == ids[0]
        assert await rpq.abort_upload(s3.url("a"), storage_options=options) == ids[1]
        assert s3.upload_ids() == [ids[2]]
        with pytest.raises(rpq.NotFoundError, match="no upload is open"):
            await rpq.abort_upload(s3.url("a"), storage_options=options)

    async def test_what_resuming_would_find(self, s3: Any, crash: Crash, tmp_path: Path) -> None:
        left, options, url = crash("day.parquet"), s3.storage_options, s3.url("day.parquet")
        with CheckpointLog.open(tmp_path / "log") as log:
            log.begun(url=url, upload_id=left.upload_id, file_id="0f")
            log.stored(ordinal=3, num_rows=9, offset=len(left.stored) - 1, upload_id=left.upload_id)
            log.stored(ordinal=4, num_rows=left.num_rows, offset=len(left.stored), upload_id=left.upload_id)
        info = await rpq.resume_info(url, log=tmp_path / "log", storage_options=options)
        assert (info.object, info.state, info.num_rows, info.file_id) == (None, None, None, None)
        assert [each.num_rows for each in info.uploads] == [left.num_rows]
        (upload,) = (await rpq.resume_info(url, storage_options=options)).uploads
        assert upload.num_rows is None
        await rpq.complete_upload(url, storage_options=options)
        info = await rpq.resume_info(url, storage_options=options)
        assert info.uploads == () and info.object is not None and info.object.size == len(left.stored)
        assert (info.state, info.num_rows) == ("in-progress", left.num_rows)
        assert info.file_id is not None and bytes.fromhex(info.file_id) in left.stored
        with pytest.raises(rpq.NotFoundError, match="no such upload"):
            await rpq.resume_info(url, upload_id=left.upload_id, storage_options=options)


async def test_of_what_is_no_parquet_file_only_the_size_is_told() -> None:
    store = MemoryStore()
    await store.put("day", b"another")
    info = await rpq.resume_info((store, "day"))
    assert info.object is not None and (info.object.size, info.state, info.num_rows) == (7, None, None)


async def test_uploads_come_oldest_first_and_by_their_age(monkeypatch: pytest.MonkeyPatch) -> None:
    store, now = MemoryStore(), datetime.now(UTC)
    ages: dict[str, timedelta | None] = {}
    for days in (1, 3, None, 2):
        upload_id = await begun(store, f"day/{days}", 5 * MiB)
        ages[upload_id] = None if days is None else timedelta(days=days)
    listed = store.list_uploads

    async def with_ages(prefix: str) -> Any:
        since = {upload_id: None if age is None else now - age for upload_id, age in ages.items()}
        return [replace(each, initiated=since[each.upload_id]) for each in await listed(prefix)]

    monkeypatch.setattr(store, "list_uploads", with_ages)

    async def names(older_than: timedelta | None = None) -> list[str]:
        return [each.key for each in await rpq.list_uploads((store, "day/"), older_than=older_than)]

    assert await names() == ["day/3", "day/2", "day/1", "day/None"]
    assert await names(timedelta(days=2)) == ["day/3", "day/2"]
    assert await names(timedelta(days=30)) == []


async def test_parts_are_listed_a_few_at_a_time_and_ended_uploads_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    ids = [await begun(store, f"day/{number:02}", 1) for number in range(40)]
    listed, running, most = store.list_parts, 0, 0

    async def slowly(key: str, upload_id: str) -> list[Part]:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0)
        running -= 1
        if upload_id == ids[7]:
            await store.abort_upload(key, upload_id)
        return await listed(key, upload_id)

    monkeypatch.setattr(store, "list_parts", slowly)
    found = await rpq.list_uploads((store, "day"))
    assert sorted(each.upload_id for each in found) == sorted(set(ids) - {ids[7]})
    assert 1 < most <= 16


async def test_when_one_listing_fails_none_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    for number in range(5):
        await begun(store, f"day/{number}", 1)
    ended: list[str] = []

    async def fail(key: str, upload_id: str) -> list[Part]:
        try:
            if key == "day/2":
                raise rpq.AccessDeniedError("no")
            await asyncio.Event().wait()
        finally:
            ended.append(key)
        return []

    monkeypatch.setattr(store, "list_parts", fail)
    with pytest.raises(rpq.AccessDeniedError):
        await rpq.list_uploads((store, "day"))
    assert sorted(ended) == [f"day/{number}" for number in range(5)]


async def test_an_upload_that_is_gone_is_told_before_the_object_that_is_there() -> None:
    """Who completes twice needs no `overwrite`: there is nothing left to replace the object by."""
    store = MemoryStore()
    await store.put("day", b"what completing made the first time")
    with pytest.raises(rpq.NotFoundError, match="no upload is open"):
        await rpq.complete_upload((store, "day"))


async def test_nothing_to_complete() -> None:
    store = MemoryStore()
    await begun(store, "empty")
    await begun(store, "gap", 5 * MiB, first=2)
    for key in ("empty", "gap"):
        with pytest.raises(rpq.NothingToRecoverError, match="no part 1") as caught:
            await rpq.complete_upload((store, key))
        assert caught.value.where.key == f"memory:{key}"
    assert [each.key for each in await rpq.list_uploads((store, ""))] == ["empty", "gap"]


async def test_a_strangers_upload_that_might_be_ours() -> None:
    """Two parts of odd sizes look like an open slot and the end of the next checkpoint."""
    store = MemoryStore()
    for key in ("one", "other"):
        await begun(store, key, 6_000_000, 5_900_000)
    done = await rpq.complete_upload((store, "one"))
    assert (done.how, done.size, done.bytes_dropped) == ("rule", 6_000_000, 5_900_000)
    done = await rpq.complete_upload((store, "other"), gap_free=True)
    assert (done.how, done.size, done.bytes_dropped) == ("gap-free", 11_900_000, 0)


async def test_resuming_does_not_touch_a_strangers_upload() -> None:
    """Completing it by the rule would keep its first part, and drop the others."""
    store = MemoryStore()
    upload_id = await begun(store, "day", 6_000_000, 6_000_000, 6_000_000)
    with pytest.raises(rpq.RecoveryError, match="no checkpoint"):
        await rpq.resume((store, "day"))
    assert len(await store.list_parts("day", upload_id)) == 3
    assert not await store.exists("day")


class Unconditional(MemoryStore):
    """A store that knows no conditions, and one that replaces the object between HEAD and completion."""

    def __init__(self, *, changes: bool = False) -> None:
        super().__init__()
        self.changes = changes
        self.asked: list[tuple[bool, str | None]] = []

    async def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        self.asked.append((if_none_match, if_match))
        if self.changes:
            await self.put(key, b"newer")
        elif if_none_match or if_match is not None:
            raise rpq.UnsupportedError("501")
        return await super().complete_upload(key, upload_id, parts, if_none_match=if_none_match, if_match=if_match)


async def test_a_store_that_knows_no_conditions() -> None:
    store = Unconditional()
    await begun(store, "day", 100)
    assert (await rpq.complete_upload((store, "day"))).size == 100
    assert store.asked == [(True, None), (False, None)]


async def test_only_the_version_that_was_seen_is_replaced() -> None:
    store = Unconditional(changes=True)
    seen = await store.put("day", b"older")
    await begun(store, "day", 100)
    with pytest.raises(rpq.ObjectChangedError):
        await rpq.complete_upload((store, "day"), overwrite=True)
    assert store.asked == [(False, seen.etag)]
    assert (await store.head("day")).size == len(b"newer")


async def test_who_interrupts_a_completion_is_told_that_it_may_have_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, asked = MemoryStore(), asyncio.Event()
    await begun(store, "day", 100)

    async def hang(*_: Any, **__: Any) -> ObjectInfo:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(store, "complete_upload", hang)
    task = asyncio.create_task(rpq.complete_upload((store, "day")))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.__notes__ == ["the upload may be completed already: rpq uploads show memory:day"]


async def test_an_error_is_not_hidden_by_the_one_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are listed once more to tell a writer that is alive from other errors."""
    store = MemoryStore()
    await begun(store, "day", 100)

    async def refuse(key: str, upload_id: str, *_: Any, **__: Any) -> ObjectInfo:
        await store.abort_upload(key, upload_id)
        raise rpq.StoreError("EntityTooSmall")

    monkeypatch.setattr(store, "complete_upload", refuse)
    with pytest.raises(rpq.StoreError, match="EntityTooSmall"):
        await rpq.complete_upload((store, "day"))


@pytest.mark.parametrize("overwrite", [False, True])
async def test_credentials_that_may_only_write(overwrite: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 denies HEAD to those who may not read, and then only the condition tells what is there."""
    store = MemoryStore()
    await store.put("day", b"another")
    await begun(store, "day", 100)

    async def denied(key: str) -> ObjectInfo:
        raise rpq.AccessDeniedError("403")

    monkeypatch.setattr(store, "head", denied)
    if overwrite:
        assert (await rpq.complete_upload((store, "day"), overwrite=True)).size == 100
    else:
        with pytest.raises(rpq.AlreadyExistsError):
            await rpq.complete_upload((store, "day"))


async def test_stores_without_uploads(tmp_path: Path) -> None:
    for call in (rpq.list_uploads, rpq.complete_upload, rpq.abort_upload, rpq.resume_info):
        with pytest.raises(rpq.UnsupportedError, match="no multipart uploads") as caught:
            await call(tmp_path / "day.parquet")  # type: ignore[operator]
        assert caught.value.hint is not None and "s3://" in caught.value.hint


async def test_of_an_upload_that_was_completed_no_epoch_is_left() -> None:
    """It would name the upload as one that may hold rows, to every writer that follows."""
    store = PartStore()
    options = rpq.WriteOptions(part_bytes=MiB, max_part_bytes=MiB)
    writer = await rpq.create((store, "day"), options=options, checkpoint_every=None)
    await writer.write({"id": list(range(10))})
    await writer.checkpoint()
    found = await find_epoch(store, "day")
    assert found is not None and found.epoch.uploads
    done = await rpq.complete_upload((store, "day"))
    assert done.upload_id in found.epoch.uploads
    assert await find_epoch(store, "day") is None
    assert await store.list_names("") == ["day"]
