"""Parts whose bytes lie in another object already: the store copies them, or gets them sent where it does not."""

from __future__ import annotations

import random
from typing import Any

import pytest
from store_wrapper import RecordingStore

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import AccessDeniedError, ObjectChangedError, UnsupportedError
from resilient_pq.io import MultipartSink, Part, SinkOptions
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.units import MiB

SOURCE = random.Random(0).randbytes(30 * MiB)
HEAD = b"head" * 1000


async def written(store: Any, source: Any, *, then: Any = None) -> MultipartSink:
    """An object of a head, a long piece of the source, and a tail."""
    info = await store.head("source")
    sink = MultipartSink(store, "object", SinkOptions())
    await sink.write(HEAD)
    sink.expect_copy(source, info, 1000, ByteRange(len(HEAD), len(HEAD) + 20 * MiB))
    await sink.write(SOURCE[1000 : 1000 + 20 * MiB], b"tail" * MiB)
    if then is not None:
        await then()
    await sink.complete()
    return sink


@pytest.fixture
async def store() -> RecordingStore:
    store = RecordingStore(MemoryStore())
    await store.put("source", SOURCE)
    return store


async def test_parts_within_the_bytes_of_another_object_are_copied(store: RecordingStore) -> None:
    sink = await written(store, store)
    copies = [call for call in store.calls if call.verb == "copy_part"]
    sent = [call for call in store.calls if call.verb == "put_part"]
    assert sink.num_bytes_copied == sum((call.end or 0) - (call.start or 0) for call in copies) == 15 * MiB
    assert len(sent) == 2
    data = bytes((await store.read_tail("object", 1 << 30)).data)
    assert data == HEAD + SOURCE[1000 : 1000 + 20 * MiB] + b"tail" * MiB


@pytest.mark.parametrize("error", [UnsupportedError("no copies"), AccessDeniedError("not allowed to copy")])
async def test_a_store_that_refuses_to_copy_gets_the_bytes(store: RecordingStore, error: Exception) -> None:
    class Refusing(MemoryStore):
        async def copy_part(self, *args: Any) -> Part:
            raise error

    refusing = Refusing()
    await refusing.put("source", SOURCE)
    sink = await written(refusing, refusing)
    assert sink.num_bytes_copied == 0
    assert (await refusing.head("object")).size == len(HEAD) + 24 * MiB


async def test_nothing_is_copied_from_another_store(store: RecordingStore) -> None:
    assert (await written(store, MemoryStore())).num_bytes_copied == 0


async def test_a_source_that_is_replaced_meanwhile_is_noticed_whatever_the_store_heeds() -> None:
    class Heedless(MemoryStore):
        async def copy_part(self, *args: Any) -> Part:
            return await super().copy_part(*args[:-1], None)

    heedless = Heedless()
    await heedless.put("source", SOURCE)
    with pytest.raises(ObjectChangedError):
        await written(heedless, heedless, then=lambda: heedless.put("source", bytes(len(SOURCE))))
    assert not await heedless.exists("object")
