"""What every store that can be written promises, as tests."""

from __future__ import annotations

from contextlib import aclosing

from resilient_pq.errors import AlreadyExistsError, NotFoundError, UnsupportedError, WriterClosedError
from resilient_pq.io.object_sink import SinkOptions, StoredState
from resilient_pq.io.protocols import WriteStore
from resilient_pq.io.stored_object import ListedObject
from resilient_pq.io.testing.read_contract import DATA, ReadContract, raises, read_all


async def _listed(store: WriteStore, folder: str) -> dict[str, ListedObject]:
    async with aclosing(store.list_objects(folder)) as pages:
        return {found.name: found async for page in pages for found in page}


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
        listed = await _listed(store, prefix + "folder")
        assert sorted(listed) == sorted(names)
        assert {found.size for found in listed.values()} == {1}
        first = listed["a"]
        await store.put(f"{prefix}folder/a", b"12")
        listed = await _listed(store, prefix + "folder")
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
