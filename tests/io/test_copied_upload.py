"""Parts that the store copies itself: all of one version, and none is under way when their upload is removed."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.errors import AccessDeniedError, ObjectChangedError
from resilient_pq.io import MemoryStore, ObjectInfo, Part, RetryPolicy, S3Store, SinkOptions
from resilient_pq.io.upload.copied_upload import copied_upload, parts_to_copy
from resilient_pq.io.upload.part_layout import part_size
from resilient_pq.units import MiB

QUICK = RetryPolicy(attempts=3, base_delay=0.001, max_delay=0.01)
FIRST = random.Random(1).randbytes(5 * MiB)
LAST = b"the last part"
PIN = "x-amz-copy-source-if-match"
NOT_IMPLEMENTED = b"<?xml version='1.0'?><Error><Code>NotImplemented</Code><Message>said so</Message></Error>"


def store_of(s3: Any, **options: Any) -> S3Store:
    return S3Store({**s3.storage_options, **options}, retry=QUICK)


def new_key(s3: Any) -> str:
    """A key that no other test uses."""
    return f"{s3.bucket}/{uuid.uuid4().hex}"


def test_whose_objects_a_store_copies(moto_server: Any) -> None:
    """Those of its own endpoint and credentials, whatever else the options are."""
    store = store_of(moto_server)
    assert store.copies_from(store_of(moto_server, config_kwargs={"max_pool_connections": 3}))
    assert not store.copies_from(store_of(moto_server, key="another"))
    assert not store.copies_from(store_of(moto_server, endpoint_url="http://127.0.0.1:1"))
    assert not store.copies_from(MemoryStore()) and not MemoryStore().copies_from(MemoryStore())


@given(st.integers(0, 2**35), st.booleans(), st.sampled_from([5, 8, 64]))
def test_parts_that_are_copied(end: int, equal_parts: bool, part_mib: int) -> None:
    """They begin at the first byte, leave no gap, and leave less than a part to be sent, mostly less than a MiB."""
    options = SinkOptions(part_bytes=part_mib * MiB, equal_parts=equal_parts)
    parts = parts_to_copy(end, options)
    edges = [0, *(part.end for part in parts)]
    assert [part.start for part in parts] == edges[:-1] and not any(edge % MiB for edge in edges)
    assert all(part.size >= part_size(number, options) for number, part in enumerate(parts, 1))
    assert not equal_parts or {part.size for part in parts} <= {options.part_bytes}
    assert 0 <= end - edges[-1] < (part_size(len(parts) + 1, options) if equal_parts or not parts else MiB)


async def test_the_source_is_looked_at_before_the_first_copy_and_after_the_last(shared_proxy: Any) -> None:
    s3, proxy = shared_proxy
    source, key = new_key(s3), new_key(s3)
    async with store_of(s3) as store:
        info = await store.put(source, FIRST * 3 + LAST)
        proxy.requests.clear()
        told: list[int] = []
        async with copied_upload(store, key, info, info.size, SinkOptions(), copied=told.append) as begun:
            asked = [(request.method, "partNumber" in request.target) for request in proxy.requests]
            assert asked == [("HEAD", False), ("POST", False), *[("PUT", True)] * 3, ("HEAD", False)]
            assert [(part.number, part.size) for part in begun.parts] == [(n, len(FIRST)) for n in (1, 2, 3)]
            assert told == [len(FIRST) * n for n in (1, 2, 3)] and begun.num_bytes == told[-1]
            await store.abort_upload(key, begun.upload_id)


async def test_a_source_that_is_replaced_during_the_copy(moto_proxy: Any) -> None:
    """moto, as R2, does not look at the pin; and the version before was the right one."""
    s3, proxy = moto_proxy
    source, key = new_key(s3), new_key(s3)

    def replace_source(head: bytes, body: bytes) -> tuple[bytes, bytes]:
        s3.client.put_object(Bucket=s3.bucket, Key=source.partition("/")[2], Body=FIRST + LAST)
        return head, body

    async with store_of(s3) as store:
        info = await store.put(source, FIRST)
        for when, match in (("replaced", "partNumber"), ("removed", "nowhere")):
            proxy.on("PUT", match=match, edit=replace_source)
            with pytest.raises(ObjectChangedError, match=f"{when} while it was copied"):
                async with copied_upload(store, key, info, info.size, SinkOptions()):
                    pytest.fail("it was copied")
            assert not await store.list_uploads(key)
            await store.delete(source)


@pytest.mark.parametrize("answer", [{"status": 501}, {"status": 400, "body": NOT_IMPLEMENTED}])
async def test_a_store_that_will_not_be_told_which_version(moto_proxy: Any, answer: dict[str, Any]) -> None:
    s3, proxy = moto_proxy
    source, key = new_key(s3), new_key(s3)
    async with store_of(s3) as store:
        info = await store.put(source, FIRST * 2)
        proxy.on("PUT", match="partNumber=1", **answer)
        async with copied_upload(store, key, info, len(FIRST), SinkOptions()) as begun:
            pass
        copies = [request for request in proxy.requests if "partNumber" in request.target]
        assert [PIN in request.headers for request in copies] == [True, False]
        await store.abort_upload(key, begun.upload_id)
        async with copied_upload(store, key, info, len(FIRST), SinkOptions()) as begun:
            pass
        assert proxy.count("PUT", "partNumber") == 3, "it is not told again"
        await store.abort_upload(key, begun.upload_id)


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_no_copy_is_under_way_when_the_upload_is_aborted(how: str) -> None:
    """One that the store carries out later than that would leave parts that nobody knows of."""
    begun: list[int] = []
    ended: list[int] = []
    busy, going_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def copy_part(self, key: str, upload_id: str, number: int, *rest: Any) -> Part:
            begun.append(number)
            if len(begun) == 16:
                busy.set()
            if number == 1 and how == "fails":
                raise AccessDeniedError("scripted")
            await going_on.wait()
            ended.append(number)
            return await super().copy_part(key, upload_id, number, *rest)

        async def abort_upload(self, key: str, upload_id: str) -> None:
            assert sorted(ended) == [number for number in sorted(begun) if number > 1 or how != "fails"]
            await super().abort_upload(key, upload_id)

    async def copy(store: Slow, info: ObjectInfo) -> None:
        async with copied_upload(store, "b", info, info.size, SinkOptions(part_bytes=MiB)):
            pytest.fail("it was copied")

    store = Slow()
    copying = asyncio.create_task(copy(store, await store.put("a", bytes(40 * MiB))))
    await busy.wait()
    if how == "is cancelled":
        copying.cancel()
    await asyncio.sleep(0)
    going_on.set()
    with pytest.raises(AccessDeniedError if how == "fails" else asyncio.CancelledError):
        await copying
    assert len(begun) == 16 and not await store.list_uploads("b")
