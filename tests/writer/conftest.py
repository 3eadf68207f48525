"""What the writer's tests share: a memory store to look into, and files read back by pyarrow."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import content

from resilient_pq.errors import NotFoundError
from resilient_pq.io import Buffer, ObjectInfo, ObjectSink, SinkOptions, StoredState
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS

T = TypeVar("T")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(scope="session")
def bytes_of() -> Callable[..., Awaitable[bytes]]:
    """The bytes of an object, ``file`` if not told otherwise."""
    return content


@pytest.fixture(scope="session")
def table_of() -> Callable[..., Awaitable[pa.Table]]:
    """What pyarrow reads of an object, checksums compared."""

    async def read(store: MemoryStore, key: str = "file") -> pa.Table:
        data = io.BytesIO(await content(store, key))
        return pq.read_table(data, page_checksum_verification=True)

    return read


@pytest.fixture(scope="session")
def row_groups_of() -> Callable[..., Awaitable[list[int]]]:
    """Rows of each row group of an object."""

    async def read(store: MemoryStore, key: str = "file") -> list[int]:
        metadata = pq.read_metadata(io.BytesIO(await content(store, key)))
        return [metadata.row_group(ordinal).num_rows for ordinal in range(metadata.num_row_groups)]

    return read


@pytest.fixture(scope="session")
def is_there() -> Callable[..., Awaitable[bool]]:
    """Whether an object was published."""

    async def look(store: MemoryStore, key: str = "file") -> bool:
        try:
            await store.head(key)
        except NotFoundError:
            return False
        return True

    return look


class SlowSink(ObjectSink):
    """Gives up the processor in every call, stores what is committed, and notes how it ended."""

    def __init__(self, sink: ObjectSink, pauses: int) -> None:
        self.sink = sink
        self.ended: list[str] = []
        self._pauses = pauses
        self._stored = 0

    async def _pause(self) -> None:
        for _ in range(self._pauses):
            await asyncio.sleep(0)

    @property
    def position(self) -> int:
        return self.sink.position

    @property
    def num_bytes_stored(self) -> int:
        return self._stored

    async def write(self, *buffers: Buffer) -> None:
        await self.sink.write(*buffers)
        await self._pause()

    async def commit(self, *, wait: bool = True) -> StoredState:
        await self._pause()
        self._stored = self.sink.position
        return StoredState.STORED

    async def complete(self) -> ObjectInfo:
        await self._pause()
        info = await self.sink.complete()
        self.ended.append("complete")
        return info

    async def abort(self) -> None:
        await self._pause()
        self.ended.append("abort")
        await self.sink.abort()

    async def keep(self) -> None:
        self.ended.append("keep")
        await self.sink.keep()

    def describe(self) -> str:
        return "a slow place"


class SlowStore(MemoryStore):
    """A memory store whose sinks are slow; `sinks` has them."""

    def __init__(self, pauses: int = 2) -> None:
        super().__init__()
        self.sinks: list[SlowSink] = []
        self._pauses = pauses

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        self.sinks.append(SlowSink(await super().create(key, options), self._pauses))
        return self.sinks[-1]


@pytest.fixture
def slow_store() -> SlowStore:
    return SlowStore()


@pytest.fixture(scope="session")
def make_slow_store() -> Callable[[], SlowStore]:
    return SlowStore
