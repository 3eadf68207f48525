"""Objects of unknown size in parts: their sizes, the bounds, failures, and what is left behind."""

from __future__ import annotations

import asyncio
import random
import shlex
from collections.abc import Sequence
from dataclasses import replace

import pytest
from faulty_store import Fault, FaultyStore
from file_bytes import content
from store_wrapper import RecordingStore

from resilient_pq.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    NotFoundError,
    ObjectChangedError,
    StoreError,
    TransientError,
    WriterClosedError,
    WriterFencedError,
)
from resilient_pq.io import Buffer, ObjectInfo, ObjectTail, Part, SinkOptions, StoredState
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.io.upload.epoch import LeaseTerms
from resilient_pq.io.upload.lease import Lease, find_epoch, taken_over
from resilient_pq.io.upload.multipart import MultipartSink
from resilient_pq.io.upload.part_layout import MAX_PARTS, max_object_size, part_size
from resilient_pq.io.upload.upload_start import begin_upload
from resilient_pq.units import GiB, MiB

SMALL = SinkOptions(part_bytes=MiB, max_part_bytes=4 * MiB, max_bytes_in_flight=3 * MiB)


class SlowStore(MemoryStore):
    """Parts wait until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[int, int]] = []
        self.gate = asyncio.Event()
        self.in_flight = 0
        self.most_in_flight = 0

    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        size = sum(len(piece) for piece in data)
        self.in_flight += size
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.gate.wait()
            self.sent.append((number, size))
            return await super().put_part(key, upload_id, number, data)
        finally:
            self.in_flight -= size


def payload(size: int) -> bytes:
    return random.Random(size).randbytes(size)


# --- part sizes


def test_parts_double_every_500() -> None:
    options = SinkOptions(max_part_bytes=1 * GiB)
    found = [part_size(number, options) for number in (1, 500, 501, 1000, 1001, 4000, 4001, 10_000)]
    assert found == [size * MiB for size in (5, 5, 10, 10, 20, 640, 1024, 1024)]


def test_what_the_schedule_reaches() -> None:
    assert max_object_size() > 0.5 * 1024 * GiB
    assert max_object_size(SinkOptions(max_part_bytes=1 * GiB)) > 5 * 1024 * GiB
    assert max_object_size(SinkOptions(equal_parts=True)) == MAX_PARTS * 5 * MiB


def test_every_part_is_a_whole_number_of_mebibytes() -> None:
    assert part_size(1, SinkOptions(part_bytes=128 * MiB)) == part_size(9000, SinkOptions(part_bytes=128 * MiB))
    options = SinkOptions(part_bytes=7 * MiB, max_part_bytes=100 * MiB)
    assert all(part_size(number, options) % MiB == 0 for number in range(1, MAX_PARTS + 1))
    assert part_size(MAX_PARTS, options) == 100 * MiB


@pytest.mark.parametrize(
    ("options", "setting"),
    [(SinkOptions(), "max_part_bytes"), (SinkOptions(equal_parts=True), "part_bytes")],
)
def test_the_limit_names_the_setting(options: SinkOptions, setting: str) -> None:
    with pytest.raises(StoreError, match="more than 10,000 parts") as caught:
        part_size(MAX_PARTS + 1, options)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"raise {setting},")


@pytest.mark.parametrize(
    "setting",
    [
        {"mode": "a"},
        {"part_bytes": 5_000_000},
        {"part_bytes": 0},
        {"max_part_bytes": 0},
        {"max_part_bytes": 6 * GiB},
        {"max_part_bytes": 8 * MiB + 1},
        {"max_bytes_in_flight": 0},
    ],
)
def test_options_that_no_upload_could_have(setting: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"mode|part_bytes|max_bytes_in_flight"):
        SinkOptions(**setting)  # type: ignore[arg-type]


# --- what is sent


@pytest.mark.parametrize("size", [0, 1, MiB - 1])
async def test_less_than_a_part_is_one_put(size: int) -> None:
    store = RecordingStore(MemoryStore())
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(size))
    info = await sink.complete()
    assert [call.verb for call in store.calls] == ["put"]
    assert info.size == size
    assert await content(store.inner, "a") == payload(size)


@pytest.mark.parametrize("size", [MiB, MiB + 1, 5 * MiB - 1, 5 * MiB])
async def test_more_is_sent_in_parts(size: int) -> None:
    store = RecordingStore(MemoryStore())
    sink = MultipartSink(store, "a", SMALL)
    data = payload(size)
    chunks = random.Random(1)
    at = 0
    while at < size:
        take = chunks.choice([1, 40, 70_000, 900_000, 2 * MiB])
        await sink.write(data[at : at + take // 2], memoryview(data)[at + take // 2 : at + take])
        at += take
    assert sink.position == size
    info = await sink.complete()
    assert info.size == size
    assert await content(store.inner, "a") == data
    assert store.count("put_part") == -(-size // MiB)
    sizes = sorted(call.end or 0 for call in store.calls if call.verb == "put_part")
    assert sizes[1:] == [MiB] * (-(-size // MiB) - 1), "all are full but one at most"
    assert [call.verb for call in store.calls[-2:]] == ["list_parts", "complete_upload"]


async def test_large_pieces_are_not_copied() -> None:
    received: list[Buffer] = []

    class Watching(MemoryStore):
        async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
            received.extend(data)  # type: ignore[arg-type]
            return await super().put_part(key, upload_id, number, data)

    data = payload(3 * MiB)
    sink = MultipartSink(Watching(), "a", SMALL)
    await sink.write(data)
    await sink.complete()
    assert all(isinstance(piece, memoryview) and piece.obj is data for piece in received)


async def test_stored_when_the_commit_is_acknowledged() -> None:
    store = SlowStore()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(2 * MiB + 5))
    commit = asyncio.create_task(sink.commit())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not commit.done(), "it waits for the parts"
    assert sink.num_bytes_stored == 0
    store.gate.set()
    assert await commit is StoredState.STORED
    assert sink.num_bytes_stored == 2 * MiB + 5
    assert sorted(store.sent) == [(1, MiB), (2, MiB), (3, 5)] and store.sent[-1] == (1, MiB)
    await sink.write(b"one more byte")
    assert sink.num_bytes_stored == 2 * MiB + 5
    assert await sink.commit(wait=False) is StoredState.ACCEPTED
    assert await sink.commit() is StoredState.STORED
    assert sink.num_bytes_resent == 5
    await sink.abort()


async def test_a_commit_that_is_not_waited_for() -> None:
    store = SlowStore()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(MiB + 7))
    assert await sink.commit(wait=False) is StoredState.ACCEPTED
    await sink.write(payload(MiB))
    assert await sink.commit(wait=False) is StoredState.ACCEPTED, "one is under way already"
    store.gate.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert sink.num_bytes_stored == MiB + 7
    assert await sink.commit() is StoredState.STORED
    assert sink.num_bytes_stored == 2 * MiB + 7
    await sink.complete()
    assert await content(store, "a") == payload(MiB + 7) + payload(MiB)


async def test_the_first_part_holds_the_mark_until_something_is_committed() -> None:
    store = RecordingStore(MemoryStore())
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(b"head")
    sink.mark()
    await sink.write(payload(3 * MiB))
    await sink.commit(wait=False)
    await sink.keep()
    assert [call.end for call in store.calls if call.verb == "put_part"] == [4, MiB, MiB, 4, MiB]


async def test_no_commit_ends_on_a_multiple_of_a_mebibyte() -> None:
    store = MemoryStore()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(2 * MiB))
    assert await sink.commit() is StoredState.ACCEPTED
    assert sink.num_bytes_stored == 0
    await sink.complete()
    assert await content(store, "a") == payload(2 * MiB)


async def test_bytes_in_flight_are_bounded() -> None:
    store = SlowStore()
    sink = MultipartSink(store, "a", SMALL)
    write = asyncio.create_task(sink.write(payload(10 * MiB)))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not write.done()
    assert store.in_flight == 3 * MiB
    store.gate.set()
    await write
    await sink.complete()
    assert store.most_in_flight == 3 * MiB
    assert await content(store, "a") == payload(10 * MiB)


async def test_a_part_larger_than_the_bound_goes_alone() -> None:
    store = SlowStore()
    store.gate.set()
    options = SinkOptions(part_bytes=2 * MiB, max_part_bytes=2 * MiB, max_bytes_in_flight=1)
    sink = MultipartSink(store, "a", options)
    await sink.write(payload(7 * MiB))
    await sink.complete()
    assert store.most_in_flight == 2 * MiB


async def test_an_upload_of_all_the_parts_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resilient_pq.io.upload.part_layout.MAX_PARTS", 3)
    store = MemoryStore()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(3 * MiB - 1))
    await sink.commit()
    with pytest.raises(StoreError, match=r"more than 3 parts") as caught:
        await sink.write(b"xy")
    assert caught.value.where.key == "memory:a"
    await sink.write(b"x")
    await sink.complete()
    assert await content(store, "a") == payload(3 * MiB - 1) + b"x"


async def test_a_write_cancelled_while_it_waits_has_accepted_its_bytes() -> None:
    store = SlowStore()
    sink = MultipartSink(store, "a", SMALL)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sink.write(payload(9 * MiB)), 0.01)
    assert sink.position == 9 * MiB
    store.gate.set()
    await sink.write(b"and on")
    await sink.complete()
    assert await content(store, "a") == payload(9 * MiB) + b"and on"


async def test_mode_x_is_decided_when_publishing() -> None:
    store = MemoryStore()
    for size in (10, 3 * MiB):
        key = f"a{size}"
        sink = MultipartSink(store, key, SinkOptions(mode="x", part_bytes=MiB))
        await sink.write(payload(size))
        await store.put(key, b"theirs")
        with pytest.raises(AlreadyExistsError):
            await sink.complete()
        await sink.abort()
        assert await content(store, key) == b"theirs"
    assert await store.list_uploads("") == []


async def test_nothing_is_committed_before_every_part_has_arrived() -> None:
    class Reordering(MemoryStore):
        gate = asyncio.Event()

        async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
            if number == 2:
                await self.gate.wait()
            return await super().put_part(key, upload_id, number, data)

    store = Reordering()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(5))
    await sink.commit()
    await sink.write(payload(3 * MiB))
    await sink.commit(wait=False)
    for _ in range(20):
        await asyncio.sleep(0)
    assert sink.num_bytes_stored == 5, "part 3 has arrived, part 2 has not"
    store.gate.set()
    await sink.commit()
    assert sink.num_bytes_stored == 3 * MiB + 5
    await sink.abort()


# --- what goes wrong


async def test_the_first_failing_part_fails_the_sink() -> None:
    store = FaultyStore(MemoryStore(), [Fault("put_part", AccessDeniedError("denied"), skip=2)])
    sink = MultipartSink(store, "a", SMALL)

    async def write() -> None:
        for _ in range(100):
            await sink.write(payload(MiB))
            await asyncio.sleep(0)

    with pytest.raises(AccessDeniedError, match="denied"):
        await write()
    assert sink.position < 10 * MiB
    for act in (sink.write, sink.commit, sink.complete):
        with pytest.raises(AccessDeniedError, match="denied"):
            await act()
    with pytest.raises(NotFoundError):
        await store.head("a")
    await sink.abort()
    assert await store.list_uploads("") == []


@pytest.mark.parametrize("end", ["write", "commit", "complete"])
async def test_a_part_that_fails_by_no_error_of_ours(end: str) -> None:
    """A library below may raise anything: nothing is published without the part, and whoever waits is told."""
    store = MemoryStore()
    broken = FaultyStore(store, [Fault("put_part", ZeroDivisionError("in a library"), skip=1)])
    sink = MultipartSink(broken, "a", SMALL)
    async with asyncio.timeout(10):
        with pytest.raises(StoreError, match="a part was not sent: ZeroDivisionError") as caught:
            await sink.write(payload(2 * MiB + 7))
            await {"write": lambda: sink.write(payload(9 * MiB)), "commit": sink.commit, "complete": sink.complete}[
                end
            ]()
    assert isinstance(caught.value.__cause__, ZeroDivisionError) and caught.value.where.key == store.url_of("a")
    with pytest.raises(StoreError, match="a part was not sent"):
        await sink.write(b"more")
    with pytest.raises(NotFoundError):
        await store.head("a")
    await sink.abort()


@pytest.mark.parametrize("error", [NotFoundError("no such bucket"), ObjectChangedError("a condition does not hold")])
async def test_one_put_that_is_refused_is_no_upload_that_somebody_ended(error: StoreError) -> None:
    sink = MultipartSink(FaultyStore(MemoryStore(), [Fault("put", error)]), "a", SMALL)
    await sink.write(b"little")
    with pytest.raises(type(error)) as caught:
        await sink.complete()
    assert caught.value is error
    await sink.abort()


class WantedLease(Lease):
    """The lease of a new file, which somebody else holds, or which takes for ever to take."""

    def __init__(self, store: MemoryStore, *, refused: bool) -> None:
        super().__init__(store, "a", LeaseTerms(None))
        self.refused = refused

    async def take(self) -> None:
        for _ in range(5 if self.refused else 1_000_000):
            await asyncio.sleep(0)
        assert await self._store.list_uploads("")
        raise WriterFencedError("somebody else has taken the file over")


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "cancelled"])
async def test_an_upload_that_is_begun_while_its_lease_is_taken_goes_where_it_is_not(refused: bool) -> None:
    store = MemoryStore()
    beginning = asyncio.create_task(begin_upload(store, "a", WantedLease(store, refused=refused)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert await store.list_uploads("")
    if not refused:
        beginning.cancel()
    with pytest.raises(WriterFencedError if refused else asyncio.CancelledError):
        await beginning
    assert await store.list_uploads("") == []


@pytest.mark.parametrize("committed", [False, True])
async def test_the_first_part_waits_for_the_others_only_where_something_was_committed(committed: bool) -> None:
    class Waiting(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.gate = asyncio.Event()
            self.begun: list[int] = []

        async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
            self.begun.append(number)
            await self.gate.wait()
            return await super().put_part(key, upload_id, number, data)

    store = Waiting()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(5))
    if committed:
        store.gate.set()
        await sink.commit()
        store.gate.clear()
    store.begun.clear()
    await sink.write(payload(2 * MiB))
    completing = asyncio.create_task(sink.complete())
    for _ in range(50):
        await asyncio.sleep(0)
    assert sorted(store.begun) == ([2, 3] if committed else [1, 2, 3])
    store.gate.set()
    assert (await completing).size == 2 * MiB + 5
    assert await content(store, "a") == payload(5) + payload(2 * MiB)


@pytest.mark.parametrize("lost", [False, True])
async def test_at_the_end_the_lease_is_looked_at_while_parts_are_listed(lost: bool) -> None:
    class Listing(MemoryStore):
        looked_at = False

        async def list_parts(self, key: str, upload_id: str) -> list[Part]:
            while not self.looked_at:  # noqa: ASYNC110 (that is the test: it would never end)
                await asyncio.sleep(0)
            return await super().list_parts(key, upload_id)

        async def read_tail(self, key: str, size: int) -> ObjectTail:
            self.looked_at = True
            return await super().read_tail(key, size)

    store = Listing()
    sink = MultipartSink(store, "a", replace(SMALL, lease=LeaseTerms("00" * 16)))
    await sink.write(payload(2 * MiB + 5))
    if not lost:
        assert (await sink.complete()).size == 2 * MiB + 5
        return
    while sink.upload_id is None:  # noqa: ASYNC110 (nothing says when)
        await asyncio.sleep(0)
    found = await find_epoch(store, "a")
    assert found is not None
    await taken_over(store, "a", found)
    with pytest.raises(WriterFencedError):
        await sink.complete()
    assert sink.num_bytes_stored == 0
    with pytest.raises(NotFoundError):
        await store.head("a")


async def test_of_two_who_take_a_file_over_one_has_it() -> None:
    store = MemoryStore()
    sink = MultipartSink(store, "a", replace(SMALL, lease=LeaseTerms("00" * 16)))
    await sink.write(payload(2 * MiB + 5))
    while sink.upload_id is None:  # noqa: ASYNC110 (nothing says when)
        await asyncio.sleep(0)
    found = await find_epoch(store, "a")
    assert found is not None
    first = await taken_over(store, "a", found)
    with pytest.raises(WriterFencedError):
        await taken_over(store, "a", found)
    assert await find_epoch(store, "a") == first.held
    with pytest.raises(WriterFencedError):
        await sink.complete()


async def test_of_two_who_take_a_file_over_at_one_moment_one_has_it() -> None:
    """Both look at the epoch before either replaces it: only the condition of the store tells them apart."""

    class Pausing(MemoryStore):
        async def read_tail(self, key: str, size: int) -> ObjectTail:
            tail = await super().read_tail(key, size)
            await asyncio.sleep(0)
            return tail

    store = Pausing()
    await Lease(store, "folder/a", LeaseTerms("00" * 16)).take()
    assert await store.exists("folder/_a.rpq-epoch")
    found = await find_epoch(store, "folder/a")
    assert found is not None
    takers = [taken_over(store, "folder/a", found) for _ in range(2)]
    lease, refused = sorted(await asyncio.gather(*takers, return_exceptions=True), key=lambda each: type(each).__name__)
    assert isinstance(refused, WriterFencedError) and isinstance(lease, Lease)
    assert await find_epoch(store, "folder/a") == lease.held


async def test_an_upload_that_cannot_begin() -> None:
    store = FaultyStore(MemoryStore(), [Fault("create_upload", AccessDeniedError("denied"))])
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(2 * MiB))
    with pytest.raises(AccessDeniedError, match="denied"):
        await sink.complete()
    assert sink.describe() == "memory:a: nothing is stored yet"
    await sink.abort()


async def test_a_completion_that_failed_can_still_be_kept() -> None:
    store = FaultyStore(MemoryStore(), [Fault("complete_upload", TransientError("500"))])
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(2 * MiB))
    with pytest.raises(TransientError, match="500"):
        await sink.complete()
    await sink.keep()
    (upload,) = await store.list_uploads("")
    assert sink.describe() == f"memory:a, upload id {upload.upload_id}"
    assert [part.size for part in await store.list_parts("a", upload.upload_id)] == [MiB, MiB]


async def test_a_part_of_another_size_is_found_before_publishing() -> None:
    class Shrinking(MemoryStore):
        async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
            part = await super().put_part(key, upload_id, number, data)
            return Part(part.number, part.size - 1, part.etag)

    store = Shrinking()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(2 * MiB))
    with pytest.raises(StoreError, match="part 1 is not what was sent"):
        await sink.complete()
    await sink.abort()
    with pytest.raises(NotFoundError):
        await store.head("a")


async def test_kept_parts_arrive_and_stay() -> None:
    store = SlowStore()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(MiB), b"tail")
    await sink.commit(wait=False)
    await sink.write(payload(3 * MiB))
    keep = asyncio.create_task(sink.keep())
    await asyncio.sleep(0)
    store.gate.set()
    await keep
    assert store.in_flight == 0
    upload_id = sink.upload_id
    assert upload_id is not None
    sizes = [part.size for part in await store.list_parts("a", upload_id)]
    assert sizes == [MiB, 4, MiB, MiB], "the commit under way was made, and what was being sent arrived"
    with pytest.raises(WriterClosedError, match="kept"):
        await sink.write(b"more")
    await sink.abort()  # too late: what was kept stays
    assert await store.list_uploads("") != []


async def test_parts_that_do_not_end_are_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resilient_pq.io.upload.part_sender.GRACE_SECONDS", 0.01)
    store, before = SlowStore(), asyncio.all_tasks()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(4 * MiB))
    await sink.abort()
    assert store.in_flight == 0
    assert asyncio.all_tasks() == before
    assert await store.list_uploads("") == []


async def test_an_abort_that_fails_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FaultyStore(MemoryStore(), [Fault("abort_upload", TransientError("503"))])
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(4 * MiB))
    with pytest.raises(TransientError, match="503") as caught:
        await sink.abort()
    assert caught.value.hint == f"remove it later: rpq uploads abort memory:a --upload-id {sink.upload_id}"

    monkeypatch.setattr("resilient_pq.io.upload.multipart.GRACE_SECONDS", 0.01)

    class Silent(MemoryStore):
        async def abort_upload(self, key: str, upload_id: str) -> None:
            await asyncio.Event().wait()

    sink = MultipartSink(Silent(), "a", SMALL)
    await sink.write(payload(4 * MiB))
    with pytest.raises(TransientError, match="was not removed"):
        await sink.abort()


async def test_an_upload_that_somebody_else_ended_is_aborted() -> None:
    store = MemoryStore()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(2 * MiB))
    await sink.commit()
    await sink.write(b"1")
    await sink.commit()
    assert sink.upload_id is not None
    await store.abort_upload("a", sink.upload_id)
    await sink.abort()


@pytest.mark.parametrize("end", ["abort_upload", "complete_upload"])
async def test_a_writer_that_comes_back_is_fenced(end: str) -> None:
    store = MemoryStore()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(2 * MiB + 1))
    await sink.commit()
    upload_id = sink.upload_id
    assert upload_id is not None
    if end == "abort_upload":
        await store.abort_upload("a", upload_id)
    else:
        await store.complete_upload("a", upload_id, await store.list_parts("a", upload_id))
    with pytest.raises(WriterFencedError, match=f"the upload {upload_id} was .* by somebody else"):
        await sink.write(payload(5 * MiB))
        await sink.complete()
    with pytest.raises(WriterFencedError):
        await sink.complete()
    await sink.keep()
    assert await store.exists("a") is (end == "complete_upload")


async def test_of_two_that_replace_one_object_one_wins() -> None:
    store = MemoryStore()
    first = await store.put("a", b"what was there")
    sinks = [MultipartSink(store, "a", replace(SMALL, if_match=first.etag)) for _ in range(2)]
    for sink, text in zip(sinks, (b"1", b"2"), strict=True):
        await sink.write(payload(2 * MiB), text)
    await sinks[1].complete()
    with pytest.raises(WriterFencedError, match=r"the object .* was written by somebody else") as caught:
        await sinks[0].complete()
    command = sinks[0].rescue_command()
    assert command is not None and command.endswith(f"--upload-id {sinks[0].upload_id} --overwrite")
    assert caught.value.hint is not None and command in caught.value.hint
    await sinks[0].abort()
    assert await content(store, "a") == payload(2 * MiB) + b"2"
    assert await store.list_uploads("") == []


async def test_the_command_that_rescues_is_for_a_shell() -> None:
    sink = MultipartSink(MemoryStore(), "a day's rows; $(rm)", SMALL)
    await sink.write(payload(1))
    await sink.commit()
    command = sink.rescue_command()
    assert command is not None
    assert shlex.split(command) == [
        "rpq", "uploads", "complete", "memory:a day's rows; $(rm)", "--upload-id", sink.upload_id,
    ]  # fmt: skip
    await sink.abort()


async def test_a_completion_in_doubt_is_never_aborted(caplog: pytest.LogCaptureFixture) -> None:
    store = FaultyStore(MemoryStore(), [Fault("complete_upload", TransientError("409"), after=True)])
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(2 * MiB))
    with pytest.raises(TransientError):
        await sink.complete()
    await sink.abort()
    assert "it is not known whether it was published" in caplog.text
    assert await store.exists("a")


async def test_an_unanswered_part_is_waited_for_and_listed() -> None:
    """The bytes of the open slot change only when what was not answered cannot arrive any more."""

    class Unanswering(MemoryStore):
        listed = 0

        async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
            return replace(await super().put_part(key, upload_id, number, data), undecided=True)

        async def list_parts(self, key: str, upload_id: str) -> list[Part]:
            self.listed += 1
            return await super().list_parts(key, upload_id)

    store = Unanswering()
    sink = MultipartSink(store, "a", replace(SMALL, undecided_grace=0.05))
    loop = asyncio.get_running_loop()
    await sink.write(b"1")
    await sink.commit()
    since = loop.time()
    assert store.listed == 1
    await sink.write(b"2")
    await sink.commit()
    assert loop.time() - since >= 0.04, "the grace was waited for"
    await sink.complete()
    assert await content(store, "a") == b"12"


@pytest.mark.parametrize("size", [5 * MiB, 5 * MiB + 3])
@pytest.mark.parametrize("known", [0, 1, 3, 4])
async def test_a_listing_that_is_too_old_is_asked_for_again(size: int, known: int) -> None:
    class OldStore(MemoryStore):
        lists = 0

        async def list_parts(self, key: str, upload_id: str) -> list[Part]:
            self.lists += 1
            parts = await super().list_parts(key, upload_id)
            return parts[:known] if self.lists == 1 else parts

    store = OldStore()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(5 * MiB), payload(size - 5 * MiB))
    while sink._tasks:
        await asyncio.wait(sink._tasks)
    await sink.complete()
    assert await content(store, "a") == payload(5 * MiB) + payload(size - 5 * MiB) and store.lists == 2


async def test_parts_that_were_copied_and_a_tail() -> None:
    store = MemoryStore()
    info = await store.put("old", payload(2 * MiB + 9))
    upload_id = await store.create_upload("a")
    parts = [await store.copy_part("a", upload_id, n, "old", (n - 1) * MiB, n * MiB, info.etag) for n in (1, 2)]
    tail = payload(2 * MiB + 9)[2 * MiB :]
    sink = await MultipartSink.resume(store, "a", SMALL, upload_id=upload_id, parts=parts, tail=[tail])
    assert sink.position == sink.num_bytes_stored == 2 * MiB + 9
    assert [part.size for part in await store.list_parts("a", upload_id)] == [MiB, MiB, 9]
    await sink.write(payload(3 * MiB))
    await sink.complete()
    assert await content(store, "a") == payload(2 * MiB + 9) + payload(3 * MiB)


async def test_a_cancellation_while_publishing_waits_for_the_outcome() -> None:
    class Publishing(MemoryStore):
        begun = asyncio.Event()
        gate = asyncio.Event()

        async def complete_upload(
            self,
            key: str,
            upload_id: str,
            parts: Sequence[Part],
            *,
            if_none_match: bool = False,
            if_match: str | None = None,
        ) -> ObjectInfo:
            self.begun.set()
            await self.gate.wait()
            return await super().complete_upload(key, upload_id, parts, if_none_match=if_none_match, if_match=if_match)

    store = Publishing()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(2 * MiB))
    task = asyncio.create_task(sink.complete())
    await store.begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await sink.abort()  # it was published: nothing to abort
    assert await content(store, "a") == payload(2 * MiB)


async def test_a_cancellation_does_not_wait_for_a_store_that_is_down(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What publishes is tried again for minutes; nobody who has cancelled it waits for that."""
    monkeypatch.setattr("resilient_pq.io.upload.multipart.GRACE_SECONDS", 0.01)

    class Down(MemoryStore):
        begun = asyncio.Event()

        async def complete_upload(self, *_: object, **__: object) -> ObjectInfo:
            self.begun.set()
            await asyncio.Event().wait()
            raise AssertionError

    store, before = Down(), asyncio.all_tasks()
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(payload(2 * MiB))
    task = asyncio.create_task(sink.complete())
    await store.begun.wait()
    task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await task
        await sink.abort()
    assert "it is not known whether it was published" in caplog.text
    assert len(await store.list_uploads("")) == 1, "so the upload is kept"
    assert asyncio.all_tasks() == before


class JitteryStore(MemoryStore):
    """Every verb yields to the loop a random number of times."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)

    async def _dawdle(self) -> None:
        for _ in range(self.random.randrange(6)):
            await asyncio.sleep(0)

    async def create_upload(self, key: str) -> str:
        await self._dawdle()
        upload_id = await super().create_upload(key)
        await self._dawdle()
        return upload_id

    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        await self._dawdle()
        part = await super().put_part(key, upload_id, number, data)
        await self._dawdle()
        return part


@pytest.mark.parametrize("seed", range(60))
async def test_cancelled_at_any_moment_nothing_is_visible_and_nothing_is_left(seed: int) -> None:
    chance = random.Random(seed)
    store, before = JitteryStore(seed), asyncio.all_tasks()

    async def write() -> None:
        sink = MultipartSink(store, "a", SMALL)
        try:
            for _ in range(20):
                await sink.write(bytes(MiB // 2))
            await asyncio.Event().wait()
        except BaseException:
            await sink.abort()
            raise

    task = asyncio.create_task(write())
    for _ in range(chance.randrange(60)):
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(5):  # a second cancellation while it aborts changes nothing
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
    with pytest.raises(NotFoundError):
        await store.head("a")
    assert await store.list_uploads("") == []
