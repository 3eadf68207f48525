"""Uploads to S3: the sums that go with the bytes, parts that may arrive yet, and completions that are believed."""

from __future__ import annotations

import asyncio
import base64
import random
import uuid
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from s3_errors import error_body

from resilient_pq.errors import (
    AlreadyExistsError,
    BucketNotFoundError,
    NotFoundError,
    ObjectChangedError,
    StoreError,
    TransientError,
)
from resilient_pq.io import ObjectInfo, Part, RetryPolicy, S3Store, SinkOptions
from resilient_pq.io.s3.object_etags import Fingerprint, crc32_of_parts, decoded, encoded, full_crc32
from resilient_pq.io.upload.copied_upload import copied_upload
from resilient_pq.units import MiB

QUICK = RetryPolicy(attempts=3, base_delay=0.001, max_delay=0.01)
FIRST = random.Random(1).randbytes(5 * MiB)
LAST = b"the last part"
CRC_HEADER = "x-amz-checksum-crc32"


@asynccontextmanager
async def store_of(s3: Any, **options: Any) -> AsyncIterator[S3Store]:
    async with S3Store({**s3.storage_options, **options}, retry=QUICK) as store:
        yield store


def new_key(s3: Any) -> str:
    """A key that no other test uses."""
    return f"{s3.bucket}/{uuid.uuid4().hex}"


def read(s3: Any, key: str) -> bytes:
    data: bytes = s3.read(key.partition("/")[2])
    return data


async def begun(store: S3Store, key: str, *contents: bytes) -> tuple[str, list[Part]]:
    """An upload with its parts: one small part unless others are given."""
    upload_id = await store.create_upload(key)
    parts = [
        await store.put_part(key, upload_id, number, data) for number, data in enumerate(contents or (LAST,), start=1)
    ]
    return upload_id, parts


def sum_of(data: bytes) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def sent(proxy: Any, method: str, match: str) -> list[dict[str, str]]:
    """The headers of such requests."""
    return [one.headers for one in proxy.requests if one.method == method and match in one.target]


def answering(status: int, body: bytes = b"", *, first: Any = None) -> Any:
    """An edit for `HttpProxy.on`: the server did it, and then something else is answered."""

    def edit(head: bytes, answer: bytes) -> tuple[bytes, bytes]:
        if first is not None:
            first()
        lines = [f"HTTP/1.1 {status} Edited", f"Content-Length: {len(body)}", "Connection: close"]
        return "\r\n".join([*lines, "", ""]).encode(), body

    return edit


def without_header(name: bytes) -> Any:
    """An edit for `HttpProxy.on`."""

    def edit(head: bytes, body: bytes) -> tuple[bytes, bytes]:
        kept = [line for line in head.split(b"\r\n") if not line.lower().startswith(name + b":")]
        return b"\r\n".join(kept), body

    return edit


# --- checksums


async def test_parts_and_objects_are_sent_with_their_crc32(shared_proxy: Any) -> None:
    """SeaweedFS compares and keeps the sums; moto takes the headers and looks at none."""
    s3, proxy = shared_proxy
    compares = s3.server == "seaweedfs"
    async with store_of(s3) as store:
        key = new_key(s3)
        upload_id, parts = await begun(store, key, FIRST, LAST)
        info = await store.complete_upload(key, upload_id, parts)
        await store.put(key + "-b", [FIRST[:1000], LAST])
        await store.put(key + "-c", LAST)
    create, complete = sent(proxy, "POST", key + "?")
    assert (create["x-amz-checksum-algorithm"], create["x-amz-checksum-type"]) == ("CRC32", "FULL_OBJECT")
    assert [one.get(CRC_HEADER) for one in sent(proxy, "PUT", key + "?")] == [
        sum_of(FIRST),
        sum_of(LAST) if compares else None,
    ]
    assert [part.crc32 for part in parts] == ([zlib.crc32(FIRST), zlib.crc32(LAST)] if compares else [None, None])
    assert complete["x-amz-mp-object-size"] == str(len(FIRST + LAST))
    assert complete.get(CRC_HEADER) == (sum_of(FIRST + LAST) if compares else None)
    assert info.size == len(FIRST + LAST)
    assert [one[CRC_HEADER] for one in sent(proxy, "PUT", "-b")] == [sum_of(FIRST[:1000] + LAST)]
    assert [one.get(CRC_HEADER) for one in sent(proxy, "PUT", "-c")] == [sum_of(LAST) if compares else None]
    if compares:
        for end, data in (("", FIRST + LAST), ("-b", FIRST[:1000] + LAST)):
            name = key.partition("/")[2] + end
            head = s3.client.head_object(Bucket=s3.bucket, Key=name, ChecksumMode="ENABLED")
            assert head["ChecksumCRC32"] == sum_of(data)
    assert read(s3, key) == FIRST + LAST


async def test_bytes_damaged_on_their_way_are_sent_again(seaweedfs_proxy: Any) -> None:
    s3, proxy = seaweedfs_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id = await store.create_upload(key)
        proxy.on("PUT", flip_bit=12_345)
        part = await store.put_part(key, upload_id, 1, FIRST)
        assert proxy.count("PUT") == 2
        assert not part.undecided, "the store has said that it kept nothing"
        await store.complete_upload(key, upload_id, [part])
        proxy.on("PUT", flip_bit=3)
        await store.put(key + "-whole", LAST)
        assert proxy.count("PUT") == 4
    assert read(s3, key) == FIRST
    assert read(s3, key + "-whole") == LAST


def another_sum(head: bytes, body: bytes) -> tuple[bytes, bytes]:
    assert sum_of(LAST).encode() in head
    return head.replace(sum_of(LAST).encode(), sum_of(FIRST).encode()), body


async def test_a_store_that_says_it_has_other_bytes(seaweedfs_proxy: Any) -> None:
    s3, proxy = seaweedfs_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id = await store.create_upload(key)
        proxy.on("PUT", edit=another_sum)
        assert (await store.put_part(key, upload_id, 1, LAST)).crc32 == zlib.crc32(LAST)
        assert proxy.count("PUT") == 2
        proxy.on("PUT", times=3, edit=another_sum)
        with pytest.raises(TransientError, match=sum_of(FIRST)):
            await store.put_part(key, upload_id, 1, LAST)
        await store.abort_upload(key, upload_id)


REFUSALS = [(400, "InvalidArgument"), (400, "InvalidRequest"), (501, "NotImplemented"), (501, "")]


@pytest.mark.parametrize(("status", "code"), REFUSALS)
async def test_a_store_that_refuses_checksums(seaweedfs_proxy: Any, status: int, code: str) -> None:
    """It is asked once of each kind, and gets the plain request from then on."""
    s3, proxy = seaweedfs_proxy
    key = new_key(s3)
    refused = {"status": status, "body": error_body(code) if code else b""}
    async with store_of(s3) as store:
        proxy.on("PUT", **refused)
        for _ in range(2):
            await store.put(key, LAST)
        assert [one.get(CRC_HEADER) for one in sent(proxy, "PUT", "")] == [sum_of(LAST), None, None]
        proxy.requests.clear()

        upload_id = await store.create_upload(key)
        proxy.on("PUT", match="partNumber", **refused)
        for number in (1, 2):
            await store.put_part(key, upload_id, number, LAST)
        assert [one.get(CRC_HEADER) for one in sent(proxy, "PUT", "partNumber")] == [sum_of(LAST), None, None]
        await store.abort_upload(key, upload_id)
        proxy.requests.clear()

        proxy.on("POST", match="uploads", **refused)
        for _ in range(2):
            upload_id = await store.create_upload(key)
        assert ["x-amz-checksum-type" in one for one in sent(proxy, "POST", "uploads")] == [True, False, False]
        parts = [await store.put_part(key, upload_id, 1, LAST)]
        await store.complete_upload(key, upload_id, parts)
    assert read(s3, key) == LAST


async def test_a_store_that_refuses_the_sums_of_a_completion(seaweedfs_proxy: Any) -> None:
    s3, proxy = seaweedfs_proxy
    async with store_of(s3) as store:
        for number in range(2):
            key = new_key(s3)
            upload_id, parts = await begun(store, key)
            if not number:
                proxy.on("POST", match="uploadId", status=501, body=error_body("NotImplemented"))
            await store.complete_upload(key, upload_id, parts)
            assert read(s3, key) == LAST
    completions = sent(proxy, "POST", "uploadId")
    assert ["x-amz-mp-object-size" in one for one in completions] == [True, False, False]
    assert [CRC_HEADER in one for one in completions] == [True, False, False]


async def test_a_refusal_that_is_about_something_else(moto_proxy: Any) -> None:
    """What fails without its checksum as well says nothing of checksums."""
    s3, proxy = moto_proxy
    async with store_of(s3) as store:
        proxy.on("PUT", times=2, status=400, body=error_body("InvalidArgument"))
        with pytest.raises(StoreError, match="InvalidArgument"):
            await store.put(new_key(s3), LAST)
        await store.put(new_key(s3), LAST)
    assert [one.get(CRC_HEADER) for one in sent(proxy, "PUT", "")] == [sum_of(LAST), None, sum_of(LAST)]


async def test_settings_of_the_user_go_with_the_checksums(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    key = new_key(s3)
    async with store_of(s3, s3_additional_kwargs={"ServerSideEncryption": "AES256"}) as store:
        upload_id, parts = await begun(store, key)
        await store.complete_upload(key, upload_id, parts)
        await store.put(key + "-whole", LAST)
    create, _ = sent(proxy, "POST", key)
    (whole,) = sent(proxy, "PUT", "-whole")
    for headers in (create, whole):
        assert headers["x-amz-server-side-encryption"] == "AES256"
    assert create["x-amz-checksum-algorithm"] == "CRC32"
    assert whole[CRC_HEADER] == sum_of(LAST)
    assert read(s3, key) == LAST


@pytest.mark.parametrize("algorithm", ["SHA256", "CRC32"])
async def test_a_user_who_wants_a_checksum(seaweedfs_proxy: Any, algorithm: str) -> None:
    """Another one is made by botocore, and ours stays away; ours is ours."""
    s3, proxy = seaweedfs_proxy
    key = new_key(s3)
    async with store_of(s3, s3_additional_kwargs={"ChecksumAlgorithm": algorithm}) as store:
        await store.put(key, LAST)
    (headers,) = sent(proxy, "PUT", key)
    assert (CRC_HEADER in headers) == (algorithm == "CRC32")
    assert read(s3, key) == LAST


async def test_copied_parts_keep_the_checksum_that_the_store_made(seaweedfs_proxy: Any) -> None:
    s3, proxy = seaweedfs_proxy
    source, key = new_key(s3), new_key(s3)
    async with store_of(s3) as store:
        info = await store.put(source, FIRST + LAST)
        async with copied_upload(store, key, info, info.size, SinkOptions()) as upload:
            (copied,) = upload.parts
            assert copied.crc32 == zlib.crc32(FIRST)
            parts = [copied, await store.put_part(key, upload.upload_id, 2, LAST)]
        await store.complete_upload(key, upload.upload_id, parts)
    assert sent(proxy, "POST", "uploadId")[0][CRC_HEADER] == sum_of(FIRST + LAST)
    assert read(s3, key) == FIRST + LAST


# --- parts that may arrive yet


#: What happens to an attempt, and whether it may arrive yet.
ATTEMPTS: list[tuple[dict[str, Any], bool]] = [
    ({"reset": True}, True),
    ({"hang": True}, True),
    ({"status": 500}, True),
    ({"status": 502}, True),
    ({"status": 504}, True),
    ({"status": 408}, True),
    ({"status": 503}, False),
    ({"status": 503, "body": error_body("SlowDown")}, False),
    ({"status": 429}, False),
    ({"status": 400, "body": error_body("BadDigest")}, False),
    ({"status": 400, "body": error_body("RequestTimeout")}, False),
]


async def test_an_attempt_that_was_sent_whole_and_not_answered(
    moto_proxy: Any, give_up_what_hangs: Callable[[Any], None]
) -> None:
    """It did not arrive, as far as the store tells; so it is sent again, and may arrive yet."""
    s3, proxy = moto_proxy
    give_up_what_hangs(proxy)
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id = await store.create_upload(key)
        for number, (fault, undecided) in enumerate(ATTEMPTS, start=1):
            proxy.requests.clear()
            proxy.on("PUT", **fault)
            part = await store.put_part(key, upload_id, number, LAST)
            assert (part.undecided, proxy.count("PUT")) == (undecided, 2), fault
            assert not (await store.put_part(key, upload_id, number, LAST)).undecided
        await store.abort_upload(key, upload_id)


#: An attempt that arrived, and whose answer did not.
LOST: list[dict[str, Any]] = [{"lose_reply": True}, {"hang_reply": True}, {"edit": without_header(b"etag")}]


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: next(iter(fault)))
@pytest.mark.parametrize("known", [True, False], ids=["with sums", "by MD5"])
async def test_an_attempt_that_arrived_unanswered_is_found(
    s3_proxy: Any, fault: dict[str, Any], known: bool, give_up_what_hangs: Callable[[Any], None]
) -> None:
    """The store is asked, and lists it: nothing is sent twice, and nothing may arrive any more."""
    s3, proxy = s3_proxy
    give_up_what_hangs(proxy)
    key = new_key(s3)
    async with store_of(s3) as store:
        if not known:
            store._without_crc32.add("*")
        upload_id = await store.create_upload(key)
        assert not (await store.put_part(key, upload_id, 1, FIRST)).undecided
        await store.put_part(key, upload_id, 2, LAST[:-1])
        for number, data in ((2, LAST), (3, b"another")):
            proxy.requests.clear()
            proxy.on("PUT", **fault)
            part = await store.put_part(key, upload_id, number, data)
            assert (part.undecided, proxy.count("PUT"), proxy.count("GET")) == (False, 1, 1)
            acknowledged = await store.put_part(key, upload_id, 4, data)
            assert (part.size, part.etag) == (acknowledged.size, acknowledged.etag)
        await store.abort_upload(key, upload_id)


async def test_one_of_two_attempts_may_arrive_yet(s3_proxy: Any) -> None:
    """A listing does not tell which of them it shows."""
    s3, proxy = s3_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id = await store.create_upload(key)
        proxy.on("PUT", reset=True)
        proxy.on("PUT", lose_reply=True)
        part = await store.put_part(key, upload_id, 1, LAST)
        assert (part.undecided, proxy.count("PUT")) == (True, 2)
        assert 0 <= part.undecided_for < 5
        await store.abort_upload(key, upload_id)


async def test_several_requests_may_be_lost_in_a_short_time(moto_proxy: Any) -> None:
    """What is waited for while the store is asked for a part is a share of the time that there is."""
    s3, proxy = moto_proxy
    key = new_key(s3)
    async with S3Store(s3.storage_options, retry=RetryPolicy(seconds=3)) as store:
        upload_id = await store.create_upload(key)
        proxy.on("PUT", reset=True, times=3)
        part = await store.put_part(key, upload_id, 1, LAST)
        assert (part.undecided, proxy.count("PUT")) == (True, 4)
        await store.abort_upload(key, upload_id)


async def test_bytes_that_were_there_before_tell_nothing(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id = await store.create_upload(key)
        await store.put_part(key, upload_id, 1, LAST)
        proxy.on("PUT", lose_reply=True)
        assert (await store.put_part(key, upload_id, 1, LAST)).undecided
        await store.abort_upload(key, upload_id)


async def test_a_part_that_arrives_while_it_is_asked_for(moto_proxy: Any) -> None:
    """A gateway gives up, and the store behind it goes on."""
    s3, proxy = moto_proxy
    key = new_key(s3)
    policy = RetryPolicy(attempts=3, base_delay=0.05)
    async with S3Store(s3.storage_options, retry=policy) as store:
        upload_id = await store.create_upload(key)
        proxy.on("PUT", late=True)
        sending = asyncio.create_task(store.put_part(key, upload_id, 1, LAST))
        await asyncio.to_thread(proxy.wait_for, "GET", "uploadId")
        assert await asyncio.to_thread(proxy.release) == [200]
        part = await sending
        assert (part.undecided, proxy.count("PUT")) == (False, 1)
        await store.abort_upload(key, upload_id)


async def test_a_store_is_asked_for_a_part_after_longer_and_longer_pauses(
    moto_proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3, proxy = moto_proxy
    key, pauses, sleep = new_key(s3), [], asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    async with store_of(s3) as store:
        upload_id = await store.create_upload(key)
        proxy.on("PUT", status=502)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "sleep", noted)
            await store.put_part(key, upload_id, 1, LAST)
        assert pauses[:5] == pytest.approx([0, 0.002, 0.004, 0.008, 0.016])
        assert proxy.count("GET", "uploadId") == 5
        await store.abort_upload(key, upload_id)


async def test_what_cannot_be_asked_is_sent_again(moto_proxy: Any) -> None:
    """Credentials may not list parts; or the store is gone for a while, and is asked when it is back."""
    s3, proxy = moto_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id = await store.create_upload(key)
        proxy.on("PUT", lose_reply=True)
        proxy.on("GET", match="uploadId", times=100, status=403)
        assert (await store.put_part(key, upload_id, 1, LAST)).undecided
        assert proxy.count("PUT") == 2
        proxy.mend()
        proxy.requests.clear()
        proxy.on("PUT", lose_reply=True)
        proxy.on("GET", match="uploadId", reset=True)
        assert not (await store.put_part(key, upload_id, 2, LAST)).undecided
        assert (proxy.count("PUT"), proxy.count("GET")) == (1, 2)
        await store.abort_upload(key, upload_id)


async def test_a_part_that_failed_may_arrive_yet(moto_proxy: Any) -> None:
    """If any attempt may; the last one says nothing of the others."""
    s3, proxy = moto_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id = await store.create_upload(key)
        for first in (503, 500):
            proxy.on("PUT", status=first)
            proxy.on("PUT", times=2, status=503)
            with pytest.raises(StoreError) as caught:
                await store.put_part(key, upload_id, 1, LAST)
            assert caught.value.undecided == (first == 500)
        await store.abort_upload(key, upload_id)


async def test_an_attempt_whose_body_was_not_sent_whole_has_failed(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id = await store.create_upload(key)
        proxy.on("PUT", cut_request=0)
        part = await store.put_part(key, upload_id, 1, bytes(48 * MiB))  # more than sockets hold
        assert proxy.count("PUT") == 2
        assert not part.undecided
        await store.abort_upload(key, upload_id)


async def test_nobody_who_could_have_taken_it() -> None:
    async with S3Store({"endpoint_url": "http://127.0.0.1:1"}, retry=QUICK) as store:
        with pytest.raises(TransientError) as caught:
            await store.put_part("b/a", "upload", 1, LAST)
    assert not caught.value.undecided


# --- uploads that are gone


async def test_an_upload_that_is_gone_is_recognised(shared_proxy: Any) -> None:
    """Also on moto, which answers 500 to whatever is sent to it."""
    s3, proxy = shared_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        source = new_key(s3)
        info = await store.put(source, LAST)
        upload_id, parts = await begun(store, key)
        await store.abort_upload(key, upload_id)
        proxy.requests.clear()
        with pytest.raises(NotFoundError, match="no such upload"):
            await store.put_part(key, upload_id, 3, LAST)
        assert proxy.count("PUT") == 1
        with pytest.raises(NotFoundError, match="no such upload"):
            await store.copy_part(key, upload_id, 3, source, 0, 5, info.etag)
        with pytest.raises(NotFoundError, match="no such upload"):
            await store.complete_upload(key, upload_id, parts)
        assert not await store.exists(key)


async def test_an_upload_that_was_aborted_before_is_no_success_unless_a_reply_was_lost(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id = await store.create_upload(key)
        proxy.on("DELETE", lose_reply=True)
        await store.abort_upload(key, upload_id)
        assert proxy.count("DELETE") == 2
        with pytest.raises(NotFoundError, match="no such upload"):
            await store.abort_upload(key, upload_id)


async def test_a_server_that_is_broken_has_not_lost_the_upload(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id = await store.create_upload(key)
        proxy.on("PUT", times=2, status=500)
        await store.put_part(key, upload_id, 1, LAST)
        assert (proxy.count("PUT"), proxy.count("GET", "uploadId")) == (3, 2)
        proxy.on("PUT", times=2, status=500)
        proxy.on("GET", status=500)
        await store.put_part(key, upload_id, 1, LAST)
        await store.abort_upload(key, upload_id)


# --- completion


async def test_a_completion_whose_reply_was_lost(shared_proxy: Any) -> None:
    s3, proxy = shared_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        for times in (1, 3):  # and of which no attempt was ever answered
            upload_id, parts = await begun(store, key)
            proxy.on("POST", match="uploadId", times=times, lose_reply=True)
            info = await store.complete_upload(key, upload_id, parts)
            assert info.size == len(LAST)
            assert info == await store.head(key)
            # Who asks again is told the same.
            assert await store.complete_upload(key, upload_id, parts) == info
    assert read(s3, key) == LAST


async def test_a_completion_is_believed_by_its_checksum(seaweedfs_proxy: Any) -> None:
    """Where ETags are no MD5s, as with encryption, the CRC32 of the object tells."""
    s3, proxy = seaweedfs_proxy
    key = new_key(s3)
    odd = replace_etags(b'"another-etag"')
    async with store_of(s3) as store:
        for crc32_is_known in (True, False):
            upload_id, parts = await begun(store, key)
            if not crc32_is_known:
                parts = [replace(part, crc32=None) for part in parts]
            proxy.on("POST", match="uploadId", times=3, lose_reply=True)
            proxy.on("HEAD", times=2, edit=odd)
            if crc32_is_known:
                assert (await store.complete_upload(key, upload_id, parts)).size == len(LAST)
            else:
                with pytest.raises(NotFoundError) as caught:
                    await store.complete_upload(key, upload_id, parts)
                assert "may have completed it" in str(caught.value.hint)


def replace_etags(etag: bytes) -> Any:
    def edit(head: bytes, body: bytes) -> tuple[bytes, bytes]:
        lines = [b"ETag: " + etag if line.lower().startswith(b"etag:") else line for line in head.split(b"\r\n")]
        return b"\r\n".join(lines), body

    return edit


@pytest.mark.parametrize("passed_on", [False, True])
async def test_only_an_object_of_our_bytes_is_taken_for_ours(shared_proxy: Any, passed_on: bool) -> None:
    """The upload is gone, and there is an object: it is believed by its bytes, not because it is there."""
    s3, proxy = shared_proxy
    key = new_key(s3)
    there = {"Bucket": s3.bucket, "Key": key.partition("/")[2]}
    async with store_of(s3) as store:
        upload_id, parts = await begun(store, key)

        def interfere() -> None:
            if not passed_on:
                s3.client.abort_multipart_upload(**there, UploadId=upload_id)
            s3.client.put_object(**there, Body=b"theirs")

        if passed_on:  # completed, and replaced before anybody could look
            proxy.on("POST", match="uploadId", edit=answering(500, first=interfere))
        else:
            proxy.on("POST", match="uploadId", reset=True)
            interfere()
        with pytest.raises(NotFoundError, match="it was completed or aborted"):
            await store.complete_upload(key, upload_id, parts)
    assert read(s3, key) == b"theirs"


async def test_a_condition_and_a_reply_that_was_lost(shared_proxy: Any) -> None:
    """Asked again the condition does not hold, because of the first success."""
    s3, proxy = shared_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id, parts = await begun(store, key)
        proxy.on("POST", match="uploadId", lose_reply=True)
        first = await store.complete_upload(key, upload_id, parts, if_none_match=True)

        upload_id, parts = await begun(store, key, LAST * 2)
        proxy.on("POST", match="uploadId", lose_reply=True)
        second = await store.complete_upload(key, upload_id, parts, if_match=first.etag)
        assert second.size == len(LAST * 2)
        assert await store.complete_upload(key, upload_id, parts, if_match=first.etag) == second
    assert read(s3, key) == LAST * 2


@pytest.mark.parametrize(("status", "code"), [(412, "PreconditionFailed"), (404, "NoSuchKey"), (412, "")])
async def test_a_condition_that_broke_at_the_last_moment(moto_proxy: Any, status: int, code: str) -> None:
    s3, proxy = moto_proxy
    key = new_key(s3)
    answer = {"status": status, "body": error_body(code) if code else b""}
    async with store_of(s3) as store:
        old = await store.put(key, b"old")
        upload_id, parts = await begun(store, key)
        proxy.on("POST", match="uploadId", **answer)
        with pytest.raises(ObjectChangedError, match="not the version"):
            await store.complete_upload(key, upload_id, parts, if_match=old.etag)
        assert sent(proxy, "POST", "uploadId")[-1]["if-match"] == old.etag
        proxy.on("POST", match="uploadId", **answer)
        with pytest.raises(AlreadyExistsError if status == 412 else NotFoundError):
            await store.complete_upload(key, upload_id, parts, if_none_match=True)
        await store.abort_upload(key, upload_id)
    assert read(s3, key) == b"old"


async def test_a_store_that_refuses_the_condition(moto_proxy: Any) -> None:
    """What was there is looked at all the same."""
    s3, proxy = moto_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        old = await store.put(key, b"old")
        for number in range(2):
            upload_id, parts = await begun(store, key, LAST * number + LAST)
            if not number:  # with and without the sums
                proxy.on("POST", match="uploadId", times=2, status=501, body=error_body("NotImplemented"))
            with pytest.raises(ObjectChangedError):
                await store.complete_upload(key, upload_id, parts, if_match='"another"')
            old = await store.complete_upload(key, upload_id, parts, if_match=old.etag)
    assert ["if-match" in one for one in sent(proxy, "POST", "uploadId")] == [True, True, False, False]
    assert read(s3, key) == LAST * 2


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
async def test_a_conflict_is_asked_again_and_the_upload_kept(shared_proxy: Any, code: str) -> None:
    s3, proxy = shared_proxy
    key = new_key(s3)
    conflict = {"match": "uploadId", "status": 409, "body": error_body(code)}
    async with store_of(s3) as store:
        upload_id, parts = await begun(store, key)
        proxy.on("POST", times=3, **conflict)
        with pytest.raises(TransientError) as caught:
            await store.complete_upload(key, upload_id, parts, if_none_match=True)
        assert caught.value.keep_upload
        assert upload_id in str(caught.value.hint)
        assert (proxy.count("POST", "uploadId"), proxy.count("DELETE")) == (3, 0)
        assert upload_id in s3.upload_ids()
        proxy.on("POST", times=2, **conflict)
        await store.complete_upload(key, upload_id, parts, if_none_match=True)
    assert read(s3, key) == LAST


async def test_an_error_in_a_body_of_200_is_a_failure(shared_proxy: Any) -> None:
    s3, proxy = shared_proxy
    key = new_key(s3)
    fault = {"match": "uploadId", "status": 200, "body": error_body("InternalError")}
    async with store_of(s3) as store:
        upload_id, parts = await begun(store, key)
        proxy.on("POST", times=3, **fault)
        with pytest.raises(TransientError, match="said so") as caught:
            await store.complete_upload(key, upload_id, parts)
        assert caught.value.keep_upload
        assert not await store.exists(key)
        assert proxy.count("POST", "uploadId") == 3
        assert upload_id in s3.upload_ids()
        proxy.on("POST", times=2, **fault)
        await store.complete_upload(key, upload_id, parts)
    assert read(s3, key) == LAST


async def test_an_answer_without_its_end_is_none(shared_proxy: Any) -> None:
    """200, and then nothing: the object may be there, and is looked for by asking again."""
    s3, proxy = shared_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id, parts = await begun(store, key)
        proxy.on("POST", match="uploadId", edit=answering(200))
        proxy.on("POST", match="uploads", edit=answering(200))
        info = await store.complete_upload(key, upload_id, parts)
        assert info == await store.head(key)
        assert await store.create_upload(key)
    assert read(s3, key) == LAST


async def test_a_part_that_is_another_than_was_sent_is_not_published(seaweedfs_proxy: Any) -> None:
    s3, _ = seaweedfs_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id, parts = await begun(store, key, FIRST, LAST)
        wrong = [replace(parts[0], crc32=zlib.crc32(LAST)), parts[1]]
        with pytest.raises(TransientError, match="did not match") as caught:
            await store.complete_upload(key, upload_id, wrong)
        assert caught.value.keep_upload
        assert not await store.exists(key)
        await store.complete_upload(key, upload_id, parts)
    assert read(s3, key) == FIRST + LAST


async def test_the_checksum_of_a_completed_object_is_compared(seaweedfs_proxy: Any) -> None:
    s3, proxy = seaweedfs_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id, parts = await begun(store, key)
        proxy.on("HEAD", edit=another_sum)
        with pytest.raises(StoreError, match=f"CRC32 {zlib.crc32(FIRST):08x} instead of") as caught:
            await store.complete_upload(key, upload_id, parts)
    assert not caught.value.keep_upload


async def test_parts_of_a_stranger_are_completed_with_their_sums(seaweedfs: Any) -> None:
    """As boto3 sends them: the sum of the object is one over the sums of the parts, and each is asked for."""
    bucket, client, name = seaweedfs.bucket, seaweedfs.client, "stranger"
    upload = {"Bucket": bucket, "Key": name}
    upload["UploadId"] = client.create_multipart_upload(**upload, ChecksumAlgorithm="CRC32")["UploadId"]
    for number, data in ((1, FIRST), (2, LAST)):
        client.upload_part(**upload, PartNumber=number, Body=data, ChecksumCRC32=sum_of(data))
    async with store_of(seaweedfs) as store:
        parts = await store.list_parts(f"{bucket}/{name}", upload["UploadId"])
        # SeaweedFS alone does not list the sums that it wants.
        parts = [replace(part, crc32=zlib.crc32(data)) for part, data in zip(parts, (FIRST, LAST), strict=True)]
        info = await store.complete_upload(f"{bucket}/{name}", upload["UploadId"], parts)
    assert info.size == len(FIRST + LAST)
    assert seaweedfs.read(name) == FIRST + LAST


# --- what is known of bytes


def test_a_fingerprint_needs_more_than_an_object_of_that_size() -> None:
    ours = Fingerprint(5, "abc", 7)
    here = {"ContentLength": 5, "ETag": '"abc"', "ChecksumCRC32": encoded(7)}
    assert ours.is_of(here)
    assert ours.is_of({**here, "ETag": '"encrypted"'})
    assert ours.is_of({"ContentLength": 5, "ETag": "abc"})
    assert not ours.is_of({**here, "ContentLength": 6})
    assert not ours.is_of({**here, "ChecksumCRC32": encoded(8)})
    assert not ours.is_of({"ContentLength": 5, "ETag": '"abd"'})
    assert not ours.is_of({"ContentLength": 5})
    assert not Fingerprint(5, None, None).is_of(here)
    assert not Fingerprint(5, None, 7).is_of({**here, "ChecksumType": "COMPOSITE"})


@pytest.mark.parametrize("text", [None, "", "AAAA", "AAAB/w==-2", "no base64", "AAAB/wAA", "é"])
def test_sums_that_are_none(text: str | None) -> None:
    assert decoded(text) is None
    assert full_crc32({"ChecksumCRC32": text}) is None


def test_sums_as_s3_writes_them() -> None:
    assert decoded(encoded(0x1FF)) == 0x1FF
    assert encoded(0x1FF) == "AAAB/w=="


def test_the_sum_of_parts() -> None:
    parts = [Part(1, len(FIRST), "a", zlib.crc32(FIRST)), Part(2, len(LAST), "b", zlib.crc32(LAST))]
    assert crc32_of_parts(parts) == zlib.crc32(FIRST + LAST)
    assert crc32_of_parts([*parts, Part(3, 1, "c")]) is None


async def test_a_store_that_knows_no_types_of_checksums(seaweedfs_proxy: Any) -> None:
    """As MinIO before 2025: the upload keeps the sums of its parts, and wants them named again."""
    s3, proxy = seaweedfs_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        proxy.on("POST", match="uploads", edit=without_header(b"x-amz-checksum-type"))
        upload_id, parts = await begun(store, key, FIRST, LAST)
        assert [part.crc32 for part in parts] == [zlib.crc32(FIRST), zlib.crc32(LAST)]
        await store.complete_upload(key, upload_id, parts)
    (complete,) = [one for one in proxy.requests if one.method == "POST" and "uploadId" in one.target]
    assert CRC_HEADER not in complete.headers, "of the object, which may be a sum over the sums of its parts"
    assert complete.body.count(b"<ChecksumCRC32>") == 2
    assert read(s3, key) == FIRST + LAST


async def test_an_object_that_was_replaced_after_it_was_completed(moto_proxy: Any) -> None:
    """Somebody else's later object is no reason to call ours wrong."""
    s3, proxy = moto_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        upload_id, parts = await begun(store, key)
        etag = f'"{"0" * 32}"'.encode()
        proxy.on("HEAD", edit=replace_etags(etag))
        info: ObjectInfo = await store.complete_upload(key, upload_id, parts)
    assert info.size == len(LAST)
    assert str(info.etag).endswith('-1"')


async def test_sums_of_many_bytes_are_made_beside_the_event_loop(moto_proxy: Any) -> None:
    s3, _ = moto_proxy
    async with store_of(s3) as store:
        infos = await asyncio.gather(*(store.put(new_key(s3), FIRST) for _ in range(3)))
    assert {info.size for info in infos} == {len(FIRST)}


async def test_an_object_of_parts_that_were_sent_again_has_the_checksum_of_its_bytes(
    seaweedfs_proxy: Any,
) -> None:
    """Through the sink, whose commits send the beginning of a part before the whole of it."""
    s3, proxy = seaweedfs_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        sink = await store.create(key, SinkOptions(part_bytes=5 * MiB))
        for data in (LAST, FIRST, LAST):
            await sink.write(data)
            await sink.commit()
        await sink.complete()
    (complete,) = sent(proxy, "POST", "uploadId")
    assert complete[CRC_HEADER] == sum_of(LAST + FIRST + LAST)
    assert read(s3, key) == LAST + FIRST + LAST


async def test_a_sink_keeps_an_upload_whose_completion_is_in_conflict(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    key = new_key(s3)
    async with store_of(s3) as store:
        sink = await store.create(key, SinkOptions(part_bytes=5 * MiB))
        await sink.write(LAST)
        await sink.commit()
        proxy.on("POST", match="uploadId", times=3, status=409, body=error_body("ConditionalRequestConflict"))
        with pytest.raises(TransientError) as caught:
            await sink.complete()
        assert caught.value.keep_upload
        await sink.abort()
        (upload,) = await store.list_uploads(key)
        assert proxy.count("DELETE") == 0
        await store.abort_upload(key, upload.upload_id)


# -- a bucket that is not there ------------------------------------------------------------------


def remove_bucket(s3: Any, bucket: str) -> None:
    for upload in s3.client.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
        s3.client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    for found in s3.client.list_objects_v2(Bucket=bucket).get("Contents", []):
        s3.client.delete_object(Bucket=bucket, Key=found["Key"])
    s3.client.delete_bucket(Bucket=bucket)


@pytest.mark.parametrize("end", ["commit", "complete"])
async def test_a_bucket_that_is_removed_while_it_is_written_into(s3: Any, end: str) -> None:
    """That is nobody who completed or aborted the upload."""
    bucket = f"rpq-{uuid.uuid4().hex[:16]}"
    s3.client.create_bucket(Bucket=bucket)
    async with store_of(s3) as store:
        sink = await store.create(f"{bucket}/a")
        await sink.write(bytes(5 * MiB), b"1")
        await sink.commit()
        remove_bucket(s3, bucket)
        with pytest.raises(BucketNotFoundError, match=f"no such bucket: {bucket}"):
            if end == "commit":
                await sink.write(bytes(5 * MiB), b"2")
                await sink.commit()
            await sink.complete()
        await sink.keep()


async def test_a_bucket_that_never_was(s3: Any) -> None:
    """It is named before anything is read or written for it; the answer to a HEAD does not tell it."""
    bucket = f"rpq-{uuid.uuid4().hex[:16]}"
    async with store_of(s3) as store:
        for asking in (
            store.head(f"{bucket}/a"),
            store.create(f"{bucket}/a", SinkOptions(mode="x")),
            store.read_tail(f"{bucket}/a", 10),
            store.put(f"{bucket}/a", b"x"),
        ):
            with pytest.raises(BucketNotFoundError, match=f"no such bucket: {bucket}"):
                await asking
        assert not await store.exists(f"{bucket}/a")
        with pytest.raises(NotFoundError, match="no such object") as caught:
            await store.head(f"{s3.bucket}/none")
        assert not isinstance(caught.value, BucketNotFoundError)


async def test_a_bucket_is_asked_for_once(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    async with store_of(s3) as store:
        for name in "abc":
            assert not await store.exists(f"{s3.bucket}/once/{name}")
    assert proxy.count("HEAD") == 4
