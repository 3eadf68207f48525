"""What every store that can be read promises, as tests; without a test framework."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from resilient_pq.errors import NotFoundError, ObjectChangedError, RangeError
from resilient_pq.io.protocols import ReadStore, WriteStore
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
