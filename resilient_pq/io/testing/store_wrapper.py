"""A store around a store, which hands every call on; and one that remembers what was asked of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from typing import NamedTuple, TypeVar

from resilient_pq.errors import UnsupportedError
from resilient_pq.io.multipart_store import MultipartStore, Part, UploadInfo
from resilient_pq.io.object_sink import (
    DEFAULT_SINK_OPTIONS,
    Buffer,
    Fencing,
    ObjectSink,
    SinkOptions,
    StoredState,
    pieces_of,
)
from resilient_pq.io.protocols import Capabilities, ReadStore, WriteStore
from resilient_pq.io.stored_object import ListedObject, ObjectInfo, ObjectTail

Result = TypeVar("Result")


class Call(NamedTuple):
    """One thing that was asked of a store.

    Attributes:
        verb: The method, of the store or of a sink.
        key: The object.
        start: Of reads and of a sink's writes, the first byte; of a tail, minus how many bytes were asked
            for.
        end: Behind the last byte, or None.
    """

    verb: str
    key: str
    start: int | None = None
    end: int | None = None


class StoreWrapper(MultipartStore):
    """Hands every call on to another store; subclasses decide in `_do` what happens around it.

    Attributes:
        inner: The other store.
    """

    def __init__(self, store: WriteStore) -> None:
        """Hand calls on to `store`."""
        self.inner = store

    async def _do(self, call: Call, action: Callable[[], Awaitable[Result]]) -> Result:
        return await action()

    @property
    def name(self) -> str:
        """The inner store's."""
        return self.inner.name

    @property
    def capabilities(self) -> Capabilities:
        """The inner store's."""
        return self.inner.capabilities

    def url_of(self, key: str) -> str:
        """The inner store's."""
        return self.inner.url_of(key)

    def check_writable(self, key: str) -> None:
        """Handed on."""
        if isinstance(self.inner, WriteStore):
            self.inner.check_writable(key)

    def address_of(self, key: str) -> str:
        """The inner store's."""
        return self.inner.address_of(key)

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """Handed on."""
        return await self._do(Call("read_tail", key, -size), lambda: self.inner.read_tail(key, size))

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        """Handed on."""
        return await self._do(
            Call("read_range", key, start, end), lambda: self.inner.read_range(key, start, end, pin=pin)
        )

    async def head(self, key: str) -> ObjectInfo:
        """Handed on."""
        return await self._do(Call("head", key), lambda: self.inner.head(key))

    def beside(self, key: str, name: str) -> str:
        """The inner store's."""
        return self.inner.beside(key, name)

    async def list_objects(self, folder: str) -> AsyncGenerator[Sequence[ListedObject], None]:
        """Handed on; the first page is the call."""
        async with aclosing(self.inner.list_objects(folder)) as pages:
            first = await self._do(Call("list_objects", folder), lambda: anext(pages, None))
            if first is not None:
                yield first
                async for page in pages:
                    yield page

    async def put(
        self,
        key: str,
        data: Sequence[Buffer] | Buffer,
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Handed on."""
        size = sum(piece.nbytes for piece in pieces_of(data))

        async def put() -> ObjectInfo:
            if if_match is None:
                return await self.inner.put(key, data, if_none_match=if_none_match)
            return await self._multipart.put(key, data, if_none_match=if_none_match, if_match=if_match)

        return await self._do(Call("put", key, 0, size), put)

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        """Handed on; the sink is watched too."""
        sink = await self._do(Call("create", key), lambda: self.inner.create(key, options))
        return _SinkWrapper(self, key, sink)

    async def make_folder(self, folder: str) -> None:
        """Handed on."""
        await self._do(Call("make_folder", folder), lambda: self.inner.make_folder(folder))

    async def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Handed on."""

        async def delete() -> None:
            if if_match is None:
                await self.inner.delete(key)
            else:
                await self._multipart.delete(key, if_match=if_match)

        await self._do(Call("delete", key), delete)

    async def heeds_conditions(self, key: str, data: bytes) -> bool:
        """The inner store's."""
        return await self._multipart.heeds_conditions(key, data)

    def begun_twice(self, upload_id: str) -> bool:
        """The inner store's."""
        return self._multipart.begun_twice(upload_id)

    async def discard_unfinished(self, key: str, *, keep: Collection[str] = ()) -> None:
        """Handed on."""
        await self._do(Call("discard_unfinished", key), lambda: self.inner.discard_unfinished(key, keep=keep))

    def upload_options(self, options: SinkOptions) -> SinkOptions:
        """The inner store's."""
        return self._multipart.upload_options(options)

    def copies_from(self, store: ReadStore) -> bool:
        """The inner store's, of the inner store."""
        return self._multipart.copies_from(store.inner if isinstance(store, StoreWrapper) else store)

    async def create_upload(self, key: str) -> str:
        """Handed on."""
        return await self._do(Call("create_upload", key), lambda: self._multipart.create_upload(key))

    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        """Handed on."""
        size = sum(piece.nbytes for piece in pieces_of(data))
        return await self._do(
            Call("put_part", key, 0, size), lambda: self._multipart.put_part(key, upload_id, number, data)
        )

    async def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Handed on."""
        return await self._do(
            Call("complete_upload", key),
            lambda: self._multipart.complete_upload(
                key, upload_id, parts, if_none_match=if_none_match, if_match=if_match
            ),
        )

    async def abort_upload(self, key: str, upload_id: str) -> None:
        """Handed on."""
        await self._do(Call("abort_upload", key), lambda: self._multipart.abort_upload(key, upload_id))

    async def list_uploads(self, prefix: str) -> list[UploadInfo]:
        """Handed on."""
        return await self._do(Call("list_uploads", prefix), lambda: self._multipart.list_uploads(prefix))

    async def list_parts(self, key: str, upload_id: str) -> list[Part]:
        """Handed on."""
        return await self._do(Call("list_parts", key), lambda: self._multipart.list_parts(key, upload_id))

    async def copy_part(
        self,
        key: str,
        upload_id: str,
        number: int,
        source_key: str,
        start: int,
        end: int,
        source_etag: str | None,
    ) -> Part:
        """Handed on."""
        return await self._do(
            Call("copy_part", source_key, start, end),
            lambda: self._multipart.copy_part(key, upload_id, number, source_key, start, end, source_etag),
        )

    async def close(self) -> None:
        """Close the inner store."""
        await self.inner.close()

    @property
    def _multipart(self) -> MultipartStore:
        if not isinstance(self.inner, MultipartStore):
            raise UnsupportedError(f"{self.name} has no multipart uploads")
        return self.inner


class _SinkWrapper(ObjectSink):
    """A sink whose calls go through the wrapper of its store."""

    def __init__(self, wrapper: StoreWrapper, key: str, sink: ObjectSink) -> None:
        self._wrapper = wrapper
        self._key = key
        self._sink = sink

    @property
    def position(self) -> int:
        """The inner sink's."""
        return self._sink.position

    @property
    def num_bytes_stored(self) -> int:
        """The inner sink's."""
        return self._sink.num_bytes_stored

    async def write(self, *buffers: Buffer) -> None:
        """Handed on."""
        start = self._sink.position
        end = start + sum(piece.nbytes for piece in pieces_of(buffers))
        await self._wrapper._do(Call("write", self._key, start, end), lambda: self._sink.write(*buffers))

    def mark(self) -> None:
        """Handed on."""
        self._sink.mark()

    async def commit(self, *, wait: bool = True) -> StoredState:
        """Handed on."""
        return await self._wrapper._do(self._at("commit"), lambda: self._sink.commit(wait=wait))

    @property
    def num_bytes_resent(self) -> int:
        """The inner sink's."""
        return self._sink.num_bytes_resent

    @property
    def can_store(self) -> bool:
        """The inner sink's."""
        return self._sink.can_store

    @property
    def stored_as_written(self) -> bool:
        """The inner sink's."""
        return self._sink.stored_as_written

    @property
    def commit_seconds(self) -> float:
        """The inner sink's."""
        return self._sink.commit_seconds

    @property
    def commit_cost(self) -> int:
        """The inner sink's."""
        return self._sink.commit_cost

    async def complete(self) -> ObjectInfo:
        """Handed on."""
        return await self._wrapper._do(self._at("complete"), self._sink.complete)

    async def abort(self) -> None:
        """Handed on."""
        await self._wrapper._do(self._at("abort"), self._sink.abort)

    async def keep(self) -> None:
        """Handed on."""
        await self._wrapper._do(self._at("keep"), self._sink.keep)

    def describe(self) -> str:
        """The inner sink's."""
        return self._sink.describe()

    @property
    def published(self) -> ObjectInfo | None:
        """The inner sink's."""
        return self._sink.published

    @property
    def in_doubt(self) -> bool:
        """The inner sink's."""
        return self._sink.in_doubt

    @property
    def upload_id(self) -> str | None:
        """The inner sink's."""
        return self._sink.upload_id

    @property
    def fencing(self) -> Fencing:
        """The inner sink's."""
        return self._sink.fencing

    def rescue_command(self) -> str | None:
        """The inner sink's."""
        return self._sink.rescue_command()

    def _at(self, verb: str) -> Call:
        return Call(verb, self._key, self._sink.position)


class RecordingStore(StoreWrapper):
    """Remembers every call, in the order they were made.

    Attributes:
        calls: What was asked so far; clear it to begin anew.
    """

    def __init__(self, store: WriteStore) -> None:
        """Record what goes to `store`."""
        super().__init__(store)
        self.calls: list[Call] = []

    async def _do(self, call: Call, action: Callable[[], Awaitable[Result]]) -> Result:
        self.calls.append(call)
        return await action()

    def count(self, verb: str) -> int:
        """How often a verb was asked for."""
        return sum(call.verb == verb for call in self.calls)
