"""The first bytes of an output are copied by the store that holds both, and nothing is left where that fails."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_store import Fault, FaultyStore
from file_bytes import content
from parts_in_memory import PartStore
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq.io import (
    Capabilities,
    LocalStore,
    MemoryStore,
    ObjectInfo,
    Part,
    SinkOptions,
)
from resilient_pq.io.s3.s3_store import S3Store
from resilient_pq.recovery.damaged_object import DamagedObject, open_source
from resilient_pq.recovery.rewrite.output_object import bytes_copied_unread, prefixed_sink

MiB = 2**20
SMALL = SinkOptions(part_bytes=MiB, max_part_bytes=MiB, max_bytes_in_flight=4 * MiB)
DATA = random.Random(5).randbytes(5 * MiB + 777)
#: Behind which the output goes on with bytes of its own.
PREFIX = 3 * MiB + 4321
BEHIND = b"what is written behind the prefix" * 70_000


async def source_of(store: Any, key: str = "damaged", data: bytes = DATA) -> DamagedObject:
    await store.put(key, data)
    return await open_source((store, key), None)


@pytest.mark.parametrize("prefix_end", [MiB, PREFIX, 4 * MiB, len(DATA)])
async def test_what_is_copied_and_what_is_read(prefix_end: int) -> None:
    recording = RecordingStore(PartStore())
    source = await source_of(recording)
    told: list[tuple[int, int]] = []
    begun = await prefixed_sink(
        source, recording, "out", prefix_end, SMALL, progress=lambda done, total: told.append((done, total))
    )
    assert begun is not None
    whole = prefix_end // MiB * MiB
    assert begun.num_bytes_unread == whole == bytes_copied_unread(source, recording, prefix_end, SMALL)
    copied = sorted((call.start, call.end) for call in recording.calls if call.verb == "copy_part")
    assert copied == [(start, start + MiB) for start in range(0, whole, MiB)]
    passed = [(call.start, call.end) for call in recording.calls if call.verb == "read_range"]
    assert [start for start, _ in passed] == ([whole] * 2 if whole < prefix_end else [])  # until they came twice alike
    # A small read brings along some of what follows.
    assert all(prefix_end <= end <= max(prefix_end, whole + 64 * 1024) for _, end in passed)
    done = [each for each, total in told if total == len(DATA)]
    assert done[-1] == prefix_end and done == sorted(done) and len(done) == len(told)

    assert begun.sink.position == prefix_end
    await begun.sink.write(BEHIND)
    await begun.sink.complete()
    assert await content(recording, "out") == DATA[:prefix_end] + BEHIND
    assert await content(recording, "damaged") == DATA


@pytest.mark.parametrize(
    ("equal", "copied"), [(False, [(0, 2 * MiB), (2 * MiB, 5 * MiB)]), (True, [(0, 2 * MiB), (2 * MiB, 4 * MiB)])]
)
async def test_the_last_part_that_is_copied(equal: bool, copied: list[tuple[int, int]]) -> None:
    """It reaches to the last whole MiB where parts may be unequal, so that little is left to be read."""
    store = PartStore()
    recording = RecordingStore(store)
    source = await source_of(recording)
    options = SinkOptions(part_bytes=2 * MiB, equal_parts=equal)
    begun = await prefixed_sink(source, recording, "out", len(DATA), options)
    assert begun is not None and begun.num_bytes_unread == copied[-1][1]
    assert copied == [(call.start, call.end) for call in recording.calls if call.verb == "copy_part"]
    await begun.sink.write(BEHIND)
    assert begun.sink.upload_id is not None
    await begun.sink.complete()
    assert await content(store, "out") == DATA + BEHIND
    sent = sorted(call.end for call in recording.calls if call.verb == "put_part" and call.end)
    assert set(sent[1:]) == {2 * MiB}, "behind what was copied they are as long as the options say"


async def test_an_output_that_was_given_up_leaves_nothing() -> None:
    store = PartStore()
    begun = await prefixed_sink(await source_of(store), store, "out", PREFIX, SMALL)
    assert begun is not None
    await begun.sink.write(BEHIND)
    await begun.sink.abort()
    assert not await store.list_uploads("") and not await store.exists("out")


async def test_an_output_whose_writer_died_is_not_taken_for_a_file() -> None:
    """The prefix need not end in a footer: by the rule of uploads these parts hold no checkpoint."""
    store = PartStore()
    begun = await prefixed_sink(await source_of(store), store, "out", PREFIX, SMALL)
    assert begun is not None and begun.sink.upload_id is not None
    parts = await store.list_parts("out", begun.sink.upload_id)
    assert parts and not [part for part in parts if part.size % MiB]
    (found,) = await rpq.list_uploads((store, "out"))
    assert found.stored_bytes is None
    await begun.sink.abort()


async def test_all_row_groups_before_the_damaged_one_are_copied() -> None:
    store = RecordingStore(PartStore())
    noise = np.random.default_rng(1)
    async with rpq.create((store, "a"), compression="none", encodings="PLAIN") as writer:
        for count in (3 * MiB // 4, MiB // 4, 1000, 1000):
            await writer.write({"x": noise.random(count)})
            await writer.checkpoint()
    data = bytearray(await content(store, "a"))
    async with rpq.open((store, "a")) as file:
        places = [group.columns[0].meta_data for group in file.metadata.row_groups]
    damaged = places[2].data_page_offset
    data[damaged + 4000] ^= 1
    await store.put("a", bytes(data))
    store.calls.clear()
    report = await rpq.recover((store, "a"), (store, "out"))
    assert (report.outcome, report.num_rows) == (rpq.Outcome.PARTIAL, MiB + 1000)
    copied = max(call.end for call in store.calls if call.verb == "copy_part")
    assert copied == damaged // MiB * MiB == 8 * MiB
    async with rpq.open((store, "out")) as file:
        starts = [group.columns[0].meta_data.data_page_offset for group in file.metadata.row_groups]
    assert starts[:2] == [place.data_page_offset for place in places[:2]]


# --- where the bytes have to be read


class NoCopies(PartStore):
    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(multipart=True)


async def test_a_prefix_that_fills_no_part() -> None:
    store = PartStore()
    source = await source_of(store)
    assert await prefixed_sink(source, store, "out", MiB - 1, SMALL) is None
    assert await prefixed_sink(source, store, "out", 0, SMALL) is None


async def test_an_output_elsewhere(tmp_path: Path) -> None:
    store = PartStore()
    source = await source_of(store)
    elsewhere = [(PartStore(), "out"), (LocalStore(), str(tmp_path / "out")), (NoCopies(), "out")]
    for there, key in elsewhere:
        assert await prefixed_sink(source, there, key, PREFIX, SMALL) is None
    unpinned = DamagedObject(
        store, "damaged", "damaged", ObjectInfo("damaged", len(DATA), None), source.counters, False
    )
    assert await prefixed_sink(unpinned, store, "out", PREFIX, SMALL) is None


@pytest.mark.parametrize(
    "error",
    [rpq.AccessDeniedError("may not read"), rpq.UnsupportedError("no copies"), rpq.StoreError("InvalidRequest")],
    ids=["denied", "unsupported", "refused"],
)
async def test_a_store_that_refuses_to_copy(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    store = PartStore()
    source = await source_of(store)
    faulty = FaultyStore(store, [Fault("copy_part", error=error, skip=1)])
    with caplog.at_level(logging.WARNING, "resilient_pq"):
        assert await prefixed_sink(source, faulty, "out", PREFIX, SMALL) is None
    assert [record.getMessage() for record in caplog.records] == [
        f"memory:out: memory does not copy, so its bytes are read: {error.message}"  # type: ignore[attr-defined]
    ]
    assert not await store.list_uploads("")


# --- when it fails


@pytest.mark.parametrize("verb", ["create_upload", "copy_part", "read_range", "head"])
async def test_a_store_that_fails(verb: str) -> None:
    store = PartStore()
    source = await source_of(store)
    for skip in (0, 1):
        faulty = FaultyStore(store, [Fault(verb, skip=skip)])
        source.store = faulty
        if not (skip and verb in ("create_upload", "read_range")):
            with pytest.raises(rpq.TransientError):
                await prefixed_sink(source, faulty, "out", PREFIX, SMALL)
        assert not await store.list_uploads("")


async def test_cancelled_on_the_way() -> None:
    store = PartStore()
    source = await source_of(store)
    ended = 0
    for turns in range(40):
        task = asyncio.ensure_future(prefixed_sink(source, store, "out", PREFIX, SMALL))
        for _ in range(turns):
            await asyncio.sleep(0)
        if not task.cancel():
            ended += 1
            begun = task.result()
            assert begun is not None
            await begun.sink.abort()
        await asyncio.gather(task, return_exceptions=True)
        assert not await store.list_uploads("")
    assert 0 < ended < 40


async def test_the_source_is_replaced_meanwhile() -> None:
    """Bytes of two objects are never put together, though the store does not look."""

    class Careless(PartStore):
        async def copy_part(self, *arguments: Any) -> Part:
            await self.put("damaged", DATA[::-1])
            return await MemoryStore.copy_part(self, *arguments[:6], None)

    store = Careless()
    with pytest.raises(rpq.ObjectChangedError):
        await prefixed_sink(await source_of(store), store, "out", PREFIX, SMALL)
    assert not await store.list_uploads("")


async def test_an_object_has_the_name_already() -> None:
    store = PartStore()
    source = await source_of(store)
    exclusive = SinkOptions(mode="x", part_bytes=MiB)
    begun = await prefixed_sink(source, store, "out", PREFIX, exclusive)
    assert begun is not None
    await store.put("out", b"somebody else's")
    with pytest.raises(rpq.AlreadyExistsError):
        await begun.sink.complete()
    await begun.sink.abort()
    with pytest.raises(rpq.AlreadyExistsError):
        await prefixed_sink(source, store, "out", PREFIX, exclusive)
    assert await content(store, "out") == b"somebody else's" and not await store.list_uploads("")


# --- on servers


async def test_on_s3(s3_proxy: Any) -> None:
    """Two stores of the same options, as `recover` makes them of two URLs."""
    s3, proxy = s3_proxy
    data = random.Random(6).randbytes(16 * MiB + 5)
    async with S3Store(s3.storage_options) as store:
        await store.put(f"{s3.bucket}/damaged", data)
        async with await open_source(s3.url("damaged"), s3.storage_options) as source:
            proxy.requests.clear()
            begun = await prefixed_sink(source, store, f"{s3.bucket}/out", 16 * MiB, SinkOptions())
            assert begun is not None and begun.num_bytes_unread == 16 * MiB
            assert proxy.count("HEAD") == 2 and proxy.count("PUT", "partNumber") == 3
            await begun.sink.write(b"behind")
            await begun.sink.complete()
    assert s3.read("out") == data[: 16 * MiB] + b"behind"
    assert not s3.upload_ids()


@pytest.mark.parametrize("status", [403, 501])
async def test_on_s3_that_refuses(s3_proxy: Any, status: int) -> None:
    s3, proxy = s3_proxy
    async with S3Store(s3.storage_options) as store:
        await store.put(f"{s3.bucket}/damaged", bytes(6 * MiB))
        async with await open_source(s3.url("damaged"), s3.storage_options) as source:
            proxy.on("PUT", match="partNumber", times=10, status=status)
            assert await prefixed_sink(source, store, f"{s3.bucket}/out", 6 * MiB, SinkOptions()) is None
    assert not s3.upload_ids()
