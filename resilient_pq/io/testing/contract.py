"""What every store promises, as tests: subclass, and give two fixtures.

::

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self):
            async with MyStore() as store:
                yield store

        @pytest.fixture
        def prefix(self):
            return "bucket/"      # what a key begins with

`ReadContract` is for stores that can only be read, `MultipartContract` for those that take uploads in parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from resilient_pq.errors import (
    AlreadyExistsError,
    NotFoundError,
    ObjectChangedError,
    RangeError,
    StoreError,
    UnsupportedError,
    WriterClosedError,
)
from resilient_pq.io.multipart_store import MultipartStore, UploadInfo
from resilient_pq.io.object_sink import SinkOptions, StoredState
from resilient_pq.io.protocols import ReadStore, WriteStore
from resilient_pq.io.stored_object import ObjectInfo
from resilient_pq.io.upload.copied_upload import copied_upload
from resilient_pq.units import MiB

DATA = bytes(range(256)) * 40


@contextmanager
def raises(*expected: type[BaseException]) -> Iterator[list[BaseException]]:
    """The block fails with one of these, which is then in the list; without a test framework."""
    caught: list[BaseException] = []
    try:
        yield caught
    except expected as error:
        caught.append(error)
        return
    raise AssertionError(f"nothing was raised, expected {' or '.join(kind.__name__ for kind in expected)}")


async def read_all(store: WriteStore, key: str) -> bytes:
    """The bytes of an object."""
    return bytes((await store.read_tail(key, 64 * MiB)).data)


class ReadContract:
    """Reading; needs the fixtures `store` and `prefix`, and of a store that cannot write `place` and `remove`."""

    async def place(self, store: Any, key: str, data: bytes) -> None:
        """Make an object of these bytes, in place of one that is there."""
        await store.put(key, data)

    async def remove(self, store: Any, key: str) -> None:
        """Delete an object."""
        await store.delete(key)

    async def test_tail_of_a_larger_object(self, store: ReadStore, prefix: str) -> None:
        """A tail has the last bytes, and says where they begin."""
        await self.place(store, prefix + "a", DATA)
        tail = await store.read_tail(prefix + "a", 100)
        assert bytes(tail.data) == DATA[-100:]
        assert (tail.offset, tail.info.size, tail.info.key) == (len(DATA) - 100, len(DATA), prefix + "a")

    async def test_tail_as_long_as_the_object(self, store: ReadStore, prefix: str) -> None:
        """A tail of exactly the object's size, or more, is all of it."""
        await self.place(store, prefix + "a", DATA)
        for size in (len(DATA), len(DATA) + 1, 100 * len(DATA)):
            tail = await store.read_tail(prefix + "a", size)
            assert (tail.offset, bytes(tail.data)) == (0, DATA)

    async def test_empty_object(self, store: ReadStore, prefix: str) -> None:
        """An empty object has a tail of nothing, and no error."""
        await self.place(store, prefix + "empty", b"")
        tail = await store.read_tail(prefix + "empty", 10)
        assert (tail.info.size, tail.offset, bytes(tail.data)) == (0, 0, b"")
        assert bytes(await store.read_range(prefix + "empty", 0, 0, pin=tail.info)) == b""

    async def test_range_excludes_its_end(self, store: ReadStore, prefix: str) -> None:
        """A range is exactly what was asked for."""
        await self.place(store, prefix + "a", DATA)
        info = await store.head(prefix + "a")
        for start, end in ((0, 1), (3, 3), (0, len(DATA)), (5, 1000), (len(DATA) - 1, len(DATA))):
            assert bytes(await store.read_range(prefix + "a", start, end, pin=info)) == DATA[start:end]

    async def test_range_beyond_the_end(self, store: ReadStore, prefix: str) -> None:
        """A range that the object does not have is an error, never fewer bytes."""
        await self.place(store, prefix + "a", DATA)
        info = await store.head(prefix + "a")
        for start, end in ((0, len(DATA) + 1), (len(DATA), len(DATA) + 1), (-1, 3), (5, 4)):
            with raises(RangeError):
                await store.read_range(prefix + "a", start, end, pin=info)

    async def test_ranges_side_by_side(self, store: ReadStore, prefix: str) -> None:
        """Many reads at one time each get their own bytes."""
        await self.place(store, prefix + "a", DATA)
        info = await store.head(prefix + "a")
        starts = range(0, len(DATA), 256)
        found = await asyncio.gather(*(store.read_range(prefix + "a", at, at + 256, pin=info) for at in starts))
        assert b"".join(found) == DATA

    async def test_head_and_tail_agree(self, store: ReadStore, prefix: str) -> None:
        """What an object is does not depend on how one asks."""
        await self.place(store, prefix + "a", DATA)
        info = await store.head(prefix + "a")
        assert (await store.read_tail(prefix + "a", 10)).info == info
        assert await store.exists(prefix + "a") and not await store.exists(prefix + "none")

    async def test_missing_object(self, store: ReadStore, prefix: str) -> None:
        """An object that is not there is NotFoundError, and the error names it."""
        for ask in (store.head(prefix + "none"), store.read_tail(prefix + "none", 10)):
            with raises(NotFoundError) as caught:
                await ask
            assert "none" in str(caught[0])

    async def test_replaced_object(self, store: ReadStore, prefix: str) -> None:
        """Bytes of two versions are never mixed, whether the new one is shorter, longer or as long."""
        for size in (len(DATA), len(DATA) - 500, len(DATA) + 500):
            await self.place(store, prefix + "a", DATA)
            pin = (await store.read_tail(prefix + "a", 10)).info
            await self.place(store, prefix + "a", bytes(size))
            with raises(ObjectChangedError):
                await store.read_range(prefix + "a", 100, 200, pin=pin)

    async def test_replaced_more_than_once(self, store: ReadStore, prefix: str) -> None:
        """A version that is gone stays gone, also when another one came after it was deleted."""
        await self.place(store, prefix + "a", DATA)
        pin = (await store.read_tail(prefix + "a", 10)).info
        await self.place(store, prefix + "a", DATA[::-1])
        await self.remove(store, prefix + "a")
        await self.place(store, prefix + "a", bytes(len(DATA)))
        with raises(ObjectChangedError):
            await store.read_range(prefix + "a", 0, 10, pin=pin)
        now = (await store.read_tail(prefix + "a", 10)).info
        assert bytes(await store.read_range(prefix + "a", 0, 10, pin=now)) == bytes(10)

    async def test_deleted_object(self, store: ReadStore, prefix: str) -> None:
        """An object that was deleted is no longer read."""
        await self.place(store, prefix + "a", DATA)
        pin = await store.head(prefix + "a")
        await self.remove(store, prefix + "a")
        with raises(NotFoundError, ObjectChangedError):
            await store.read_range(prefix + "a", 0, 10, pin=pin)

    async def test_pins_are_of_one_object(self, store: ReadStore, prefix: str) -> None:
        """Objects whose names begin alike are told apart, and a tail of one leads to no other."""
        for name, data in (("a", DATA), ("ab", DATA[::-1]), ("a.b", DATA[1:])):
            await self.place(store, prefix + name, data)
        for name, data in (("a", DATA), ("ab", DATA[::-1]), ("a.b", DATA[1:])):
            tail = await store.read_tail(prefix + name, 7)
            assert (bytes(tail.data), tail.info.size) == (data[-7:], len(data))
            assert bytes(await store.read_range(prefix + name, 3, 90, pin=tail.info)) == data[3:90]

    async def test_tails_of_any_size(self, store: ReadStore, prefix: str) -> None:
        """A tail is never short, whatever the sizes of tail and object: the last bytes, or all."""
        for size in (1, 2, 100, len(DATA)):
            await self.place(store, prefix + f"{size}", DATA[:size])
            for wanted in (1, size - 1 or 1, size, size + 1, 10 * MiB):
                tail = await store.read_tail(prefix + f"{size}", wanted)
                assert bytes(tail.data) == DATA[:size][-wanted:]
                assert tail.offset == max(0, size - wanted) and tail.info.size == size

    async def test_a_range_is_never_short(self, store: ReadStore, prefix: str) -> None:
        """More bytes than come at one time are all there."""
        data = DATA * 200
        await self.place(store, prefix + "large", data)
        info = await store.head(prefix + "large")
        assert bytes(await store.read_range(prefix + "large", 1, len(data), pin=info)) == data[1:]
        assert bytes((await store.read_tail(prefix + "large", len(data) - 1)).data) == data[1:]

    async def test_bytes_that_were_read_stay(self, store: ReadStore, prefix: str) -> None:
        """What was read is not changed by what becomes of the object, or of the store."""
        await self.place(store, prefix + "a", DATA)
        tail = await store.read_tail(prefix + "a", 100)
        data = await store.read_range(prefix + "a", 0, 100, pin=tail.info)
        await self.place(store, prefix + "a", bytes(len(DATA)))
        await store.close()
        assert (bytes(data), bytes(tail.data)) == (DATA[:100], DATA[-100:])
        assert memoryview(data).nbytes == 100 and memoryview(tail.data).nbytes == 100

    async def test_reads_that_are_cancelled(self, store: ReadStore, prefix: str) -> None:
        """Whoever leaves in the middle of a read disturbs nobody who reads after it."""
        await self.place(store, prefix + "a", DATA)
        info = await store.head(prefix + "a")
        for steps in (0, 1, 3, 10):
            reads = [asyncio.ensure_future(store.read_range(prefix + "a", at, at + 9, pin=info)) for at in range(8)]
            for _ in range(steps):
                await asyncio.sleep(0)
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)
        found = await asyncio.gather(*(store.read_range(prefix + "a", at, at + 9, pin=info) for at in range(20)))
        assert [bytes(data) for data in found] == [DATA[at : at + 9] for at in range(20)]


class StoreContract(ReadContract):
    """Reading, writing and publishing; needs the fixtures `store` and `prefix`."""

    def make_folder(self, key: str) -> None:
        """Make a folder and those that lead to it, where a store does not do so by itself when it writes."""

    async def test_what_was_written(self, store: WriteStore, prefix: str) -> None:
        """Writing tells what the object is, for reads to be pinned to."""
        written = await store.put(prefix + "a", DATA)
        assert (written.key, written.size) == (prefix + "a", len(DATA))
        assert await store.read_range(prefix + "a", 0, 5, pin=written) == DATA[:5]

    async def test_deleted_twice(self, store: WriteStore, prefix: str) -> None:
        """Deleting what is not there is no error."""
        await store.put(prefix + "a", DATA)
        await store.delete(prefix + "a")
        await store.delete(prefix + "a")
        assert not await store.exists(prefix + "a")

    async def test_put_in_pieces(self, store: WriteStore, prefix: str) -> None:
        """Pieces of any kind are joined in order."""
        await store.put(prefix + "a", [DATA[:10], bytearray(DATA[10:20]), b"", memoryview(DATA)[20:]])
        assert await read_all(store, prefix + "a") == DATA

    async def test_put_only_if_new(self, store: WriteStore, prefix: str) -> None:
        """With `if_none_match` an object is written once."""
        await store.put(prefix + "a", b"first", if_none_match=True)
        with raises(AlreadyExistsError):
            await store.put(prefix + "a", b"second", if_none_match=True)
        assert await read_all(store, prefix + "a") == b"first"

    async def test_names_with_odd_characters(self, store: WriteStore, prefix: str) -> None:
        """A name is taken as it stands."""
        for name in ("a b", "a+b", "a%20b", "a=1&b", "köln-東京", "a#b"):
            await store.put(prefix + name, name.encode())
            assert await read_all(store, prefix + name) == name.encode()

    async def test_names_below_a_folder(self, store: WriteStore, prefix: str) -> None:
        """Every object below a folder is listed at once, at any depth, and none beside it."""
        names = ["a", "a b/c%20d", "deep/er/köln", "deep/er/x=1&y", "_a/.b"]
        for folder in ("folder/a b", "folder/deep/er", "folder/_a", "folder2"):
            self.make_folder(prefix + folder)
        for name in names:
            await store.put(f"{prefix}folder/{name}", b"1")
        await store.put(f"{prefix}folder2/a", b"1")
        await store.put(f"{prefix}folder.a", b"1")
        if not store.capabilities.list_names:
            with raises(UnsupportedError):
                await store.list_names(prefix + "folder")
            return
        for folder in (prefix + "folder", prefix + "folder/"):
            assert await store.list_names(folder) == sorted(names)
        assert await store.list_names(prefix + "folder/deep") == ["er/köln", "er/x=1&y"]
        async with aclosing(store.list_objects(prefix + "folder")) as pages:
            listed = {found.name: found async for page in pages for found in page}
        assert sorted(listed) == sorted(names)
        assert {found.size for found in listed.values()} == {1}
        first = listed["a"]
        await store.put(f"{prefix}folder/a", b"12")
        async with aclosing(store.list_objects(prefix + "folder")) as pages:
            listed = {found.name: found async for page in pages for found in page}
        assert listed["a"] != first and listed["a"].size == 2, "a listing tells versions apart"
        await store.delete(f"{prefix}folder/a")
        assert await store.list_names(prefix + "folder") == sorted(names[1:])

    async def test_names_below_no_folder(self, store: WriteStore, prefix: str) -> None:
        """A folder that is not there holds nothing."""
        if store.capabilities.list_names:
            assert await store.list_names(prefix + "nowhere") == []

    async def test_names_beside(self, store: WriteStore, prefix: str) -> None:
        """What is listed below a folder leads to its key by any other object of that folder."""
        self.make_folder(prefix + "folder/deep")
        await store.put(prefix + "folder/deep/er", DATA)
        key = store.beside(prefix + "folder/_metadata", "deep/er")
        assert await read_all(store, key) == DATA

    async def test_sink_publishes_when_complete(self, store: WriteStore, prefix: str) -> None:
        """What is written is seen when it is complete, whole, and not before."""
        sink = await store.create(prefix + "a")
        for at in range(0, len(DATA), 1000):
            await sink.write(DATA[at : at + 400], DATA[at + 400 : at + 1000])
        assert sink.position == len(DATA)
        with raises(NotFoundError):
            await store.head(prefix + "a")
        info = await sink.complete()
        assert info.size == len(DATA)
        assert bytes(await store.read_range(prefix + "a", 0, len(DATA), pin=info)) == DATA

    async def test_sink_of_an_empty_object(self, store: WriteStore, prefix: str) -> None:
        """Nothing written is an empty object."""
        sink = await store.create(prefix + "empty")
        await sink.write()
        await sink.write(b"")
        assert (await sink.complete()).size == 0
        assert await read_all(store, prefix + "empty") == b""

    async def test_sink_that_ended(self, store: WriteStore, prefix: str) -> None:
        """After its end a sink takes nothing more, and ending it again changes nothing."""
        sink = await store.create(prefix + "a")
        await sink.write(DATA)
        await sink.complete()
        for act in (sink.write(b"more"), sink.commit(), sink.complete()):
            with raises(WriterClosedError):
                await act
        await sink.abort()
        await sink.keep()
        assert await read_all(store, prefix + "a") == DATA

    async def test_sink_aborted(self, store: WriteStore, prefix: str) -> None:
        """An aborted sink leaves what was there before, and room for another."""
        await store.put(prefix + "a", b"before")
        sink = await store.create(prefix + "a")
        await sink.write(DATA)
        await sink.commit()
        await sink.abort()
        await sink.abort()
        assert sink.num_bytes_stored == 0
        assert await read_all(store, prefix + "a") == b"before"
        with raises(WriterClosedError):
            await sink.write(b"more")
        second = await store.create(prefix + "a")
        await second.write(b"after")
        await second.complete()
        assert await read_all(store, prefix + "a") == b"after"

    async def test_sink_kept(self, store: WriteStore, prefix: str) -> None:
        """A kept sink publishes nothing, and says where its bytes are."""
        sink = await store.create(prefix + "kept")
        await sink.write(DATA)
        await sink.keep()
        with raises(NotFoundError):
            await store.head(prefix + "kept")
        assert "kept" in sink.describe()

    async def test_commit_is_honest(self, store: WriteStore, prefix: str) -> None:
        """A commit never says `VISIBLE`, and says `STORED` where the store promises to."""
        sink = await store.create(prefix + "a")
        assert sink.num_bytes_stored == 0
        await sink.write(DATA)
        state = await sink.commit()
        assert sink.num_bytes_stored == (len(DATA) if state is StoredState.STORED else 0)
        if store.capabilities.durable_commit:
            assert state is StoredState.STORED
        else:
            assert state in (StoredState.ACCEPTED, StoredState.STORED)
        with raises(NotFoundError):
            await store.head(prefix + "a")
        await sink.write(DATA)
        await sink.complete()
        assert await read_all(store, prefix + "a") == DATA + DATA

    async def test_exclusive_sink(self, store: WriteStore, prefix: str) -> None:
        """With mode "x" an existing object is refused at once, and one that came meanwhile when publishing."""
        exclusive = SinkOptions(mode="x")
        sink = await store.create(prefix + "a", exclusive)
        await sink.write(b"ours")
        await store.put(prefix + "a", b"theirs")
        with raises(AlreadyExistsError):
            await sink.complete()
        await sink.abort()
        with raises(AlreadyExistsError):
            await store.create(prefix + "a", exclusive)
        assert await read_all(store, prefix + "a") == b"theirs"

    async def test_close_twice(self, store: WriteStore, prefix: str) -> None:
        """Closing a closed store does nothing."""
        await store.put(prefix + "a", DATA)
        await store.close()
        await store.close()


class MultipartContract(StoreContract):
    """The raw verbs of uploads too; `part` is the smallest part that is not the last."""

    part = bytes(5 * MiB)

    async def test_upload(self, store: MultipartStore, prefix: str) -> None:
        """Parts in any order make one object, by their numbers."""
        upload_id = await store.create_upload(prefix + "a")
        third = await store.put_part(prefix + "a", upload_id, 3, b"the end")
        first = await store.put_part(prefix + "a", upload_id, 1, [self.part[:7], self.part[7:]])
        assert [(part.number, part.size) for part in (first, third)] == [(1, len(self.part)), (3, 7)]
        with raises(NotFoundError):
            await store.head(prefix + "a")
        info = await store.complete_upload(prefix + "a", upload_id, [third, first])
        assert info.size == len(self.part) + 7
        assert await read_all(store, prefix + "a") == self.part + b"the end"

    async def test_parts_are_listed(self, store: MultipartStore, prefix: str) -> None:
        """Of what was sent, number, size and ETag can be listed, and a stranger can complete it."""
        upload_id = await store.create_upload(prefix + "a")
        assert await store.list_parts(prefix + "a", upload_id) == []
        sent = [
            await store.put_part(prefix + "a", upload_id, number, data)
            for number, data in ((2, b"tail"), (1, self.part))
        ]
        listed = await store.list_parts(prefix + "a", upload_id)
        assert [(part.number, part.size) for part in listed] == [(1, len(self.part)), (2, 4)]
        assert {part.etag.strip('"') for part in listed} == {part.etag.strip('"') for part in sent}
        await store.complete_upload(prefix + "a", upload_id, listed)
        assert await read_all(store, prefix + "a") == self.part + b"tail"

    async def test_part_sent_again(self, store: MultipartStore, prefix: str) -> None:
        """A part sent again replaces the first, and parts that are not named are left out."""
        upload_id = await store.create_upload(prefix + "a")
        await store.put_part(prefix + "a", upload_id, 1, b"old")
        new = await store.put_part(prefix + "a", upload_id, 1, b"newer")
        await store.put_part(prefix + "a", upload_id, 2, b"not named")
        listed = await store.list_parts(prefix + "a", upload_id)
        assert (1, 5, new.etag) in [(part.number, part.size, part.etag) for part in listed]
        await store.complete_upload(prefix + "a", upload_id, [new])
        assert await read_all(store, prefix + "a") == b"newer"

    async def test_uploads_are_listed(self, store: MultipartStore, prefix: str) -> None:
        """Open uploads are found by a prefix of their keys, and gone when they end."""
        opened = {key: await store.create_upload(prefix + key) for key in ("day/1", "day/2", "night/1")}
        assert _ids(await store.list_uploads(prefix + "day/")) == {opened["day/1"], opened["day/2"]}
        assert _ids(await store.list_uploads(prefix)) == set(opened.values())
        found = await store.list_uploads(prefix + "night/1")
        assert [(upload.key, upload.upload_id) for upload in found] == [(prefix + "night/1", opened["night/1"])]
        for key, upload_id in opened.items():
            await store.abort_upload(prefix + key, upload_id)
        assert await store.list_uploads(prefix) == []

    async def test_upload_that_is_gone(self, store: MultipartStore, prefix: str) -> None:
        """An upload that was completed is gone for whoever still writes to it: that is the fence."""
        key = prefix + "a"
        upload_id = await store.create_upload(key)
        part = await store.put_part(key, upload_id, 1, b"one")
        await store.complete_upload(key, upload_id, [part])
        with raises(NotFoundError):
            await store.list_parts(key, upload_id)
        with raises(NotFoundError):
            await store.put_part(key, upload_id, 2, b"two")

    async def test_complete_only_if_new(self, store: MultipartStore, prefix: str) -> None:
        """With `if_none_match` an upload does not replace an object."""
        upload_id = await store.create_upload(prefix + "a")
        part = await store.put_part(prefix + "a", upload_id, 1, b"ours")
        await store.put(prefix + "a", b"theirs")
        with raises(AlreadyExistsError):
            await store.complete_upload(prefix + "a", upload_id, [part], if_none_match=True)
        assert await read_all(store, prefix + "a") == b"theirs"

    async def test_complete_in_place_of_one_version(self, store: MultipartStore, prefix: str) -> None:
        """With `if_match` an upload replaces that version and no other, nor makes an object that was deleted."""
        first = await store.put(prefix + "a", b"first")
        upload_id = await store.create_upload(prefix + "a")
        part = await store.put_part(prefix + "a", upload_id, 1, b"ours")
        await store.put(prefix + "a", b"second")
        with raises(ObjectChangedError):
            await store.complete_upload(prefix + "a", upload_id, [part], if_match=first.etag)
        assert await read_all(store, prefix + "a") == b"second"
        second = await store.head(prefix + "a")
        await store.complete_upload(prefix + "a", upload_id, [part], if_match=second.etag)
        assert await read_all(store, prefix + "a") == b"ours"
        upload_id = await store.create_upload(prefix + "a")
        part = await store.put_part(prefix + "a", upload_id, 1, b"ours again")
        third = await store.head(prefix + "a")
        await store.delete(prefix + "a")
        with raises(ObjectChangedError):
            await store.complete_upload(prefix + "a", upload_id, [part], if_match=third.etag)
        with raises(NotFoundError):
            await store.head(prefix + "a")

    async def test_put_in_place_of_one_version(self, store: MultipartStore, prefix: str) -> None:
        """With `if_match` an object is written, or removed, in place of that version and no other."""
        with raises(ObjectChangedError):
            await store.put(prefix + "a", b"never there", if_match='"of-nothing"')
        first = await store.put(prefix + "a", b"first", if_none_match=True)
        assert await store.heeds_conditions(prefix + "a", b"first")
        second = await store.put(prefix + "a", b"second", if_match=first.etag)
        with raises(ObjectChangedError):
            await store.put(prefix + "a", b"too late", if_match=first.etag)
        with raises(ObjectChangedError):
            await store.delete(prefix + "a", if_match=first.etag)
        assert await read_all(store, prefix + "a") == b"second"
        await store.delete(prefix + "a", if_match=second.etag)
        with raises(ObjectChangedError):
            await store.put(prefix + "a", b"gone", if_match=second.etag)
        with raises(ObjectChangedError):
            await store.delete(prefix + "a", if_match=second.etag)
        assert not await store.exists(prefix + "a")

    async def test_parts_are_named_by_their_etags(self, store: MultipartStore, prefix: str) -> None:
        """Of a part sent twice, the version that is named is published, or none: never the other one."""
        upload_id = await store.create_upload(prefix + "a")
        old = await store.put_part(prefix + "a", upload_id, 1, b"old")
        await store.put_part(prefix + "a", upload_id, 1, b"new")
        try:
            await store.complete_upload(prefix + "a", upload_id, [old])
        except StoreError:
            with raises(NotFoundError):
                await store.head(prefix + "a")
        else:
            assert await read_all(store, prefix + "a") == b"old"

    async def test_part_copied_by_the_store(self, store: MultipartStore, prefix: str) -> None:
        """A part can be made of another object's bytes."""
        source: ObjectInfo = await store.put(prefix + "source", [self.part, DATA])
        upload_id = await store.create_upload(prefix + "a")
        size = len(self.part)
        parts = [
            await store.copy_part(prefix + "a", upload_id, 1, prefix + "source", 0, size, source.etag),
            await store.put_part(prefix + "a", upload_id, 2, b"and more"),
        ]
        assert parts[0].size == size
        await store.complete_upload(prefix + "a", upload_id, parts)
        assert await read_all(store, prefix + "a") == self.part + b"and more"

    async def test_copies_of_a_version_that_is_gone(self, store: MultipartStore, prefix: str) -> None:
        """Of another version, or of bytes that are not there, no upload is begun."""
        old = await store.put(prefix + "source", [self.part, b"old"])
        new = await store.put(prefix + "source", [self.part, b"new"])
        size = len(self.part)
        with raises(ObjectChangedError):
            async with copied_upload(store, prefix + "a", old, size, SinkOptions()):
                raise AssertionError("it was copied")
        with raises(RangeError):
            async with copied_upload(store, prefix + "a", new, 2 * size, SinkOptions()):
                raise AssertionError("it was copied")
        assert not await store.list_uploads(prefix + "a")
        assert store.copies_from(store)


def _ids(uploads: list[UploadInfo]) -> set[str]:
    return {upload.upload_id for upload in uploads}
