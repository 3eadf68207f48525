"""What every store promises that takes uploads in parts, as tests."""

from __future__ import annotations

from resilient_pq.errors import AlreadyExistsError, NotFoundError, ObjectChangedError, RangeError, StoreError
from resilient_pq.io.multipart_store import MultipartStore, UploadInfo
from resilient_pq.io.object_sink import SinkOptions
from resilient_pq.io.stored_object import ObjectInfo
from resilient_pq.io.testing.read_contract import DATA, raises, read_all
from resilient_pq.io.testing.write_contract import StoreContract
from resilient_pq.io.upload.copied_upload import copied_upload
from resilient_pq.units import MiB


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
